/* The keys of an OrderedDict in its order, past the methods of its class. Its own iterators look each key up, which asks keys of the program
   whether they are equal: code that may change the dict, and that neither guards nor an analysis may run. */

/* The beginning of the objects of `Objects/odictobject.c`, which no header has; unchanged since 3.5. */
typedef struct OrderedNode {
    PyObject *key;
    Py_hash_t hash;
    struct OrderedNode *next, *prev;
} OrderedNode;

typedef struct {
    PyDictObject dict;
    OrderedNode *first, *last;
} OrderedDictHead;

/* A new tuple; NULL with an exception. */
static PyObject *
ordered_keys(PyObject *dict)
{
    PyObject *keys = PyList_New(0);
    for (const OrderedNode *node = ((OrderedDictHead *)dict)->first; keys != NULL && node != NULL; node = node->next) {
        if (PyList_Append(keys, node->key) < 0) {
            Py_CLEAR(keys);
        }
    }
    PyObject *result = keys != NULL ? PyList_AsTuple(keys) : NULL;
    Py_XDECREF(keys);
    return result;
}
