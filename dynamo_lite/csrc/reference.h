/* Weak references of guards and records.

   Input: an object of the program. Output: a reference to it, one for all who ask.
   Invariant: it is never the reference without a callback that `weakref.ref(object)` gives the program. That one keeps the object's hash: if
   it were kept alive here, the program's `__hash__` would run less often, and what it says later would not be heard. */

static PyTypeObject Reference_Type;

static PyObject *
reference_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *object;
    if (!PyArg_ParseTuple(args, "O:Reference", &object)) {
        return NULL;
    }
    if (PyType_SUPPORTS_WEAKREFS(Py_TYPE(object))) {
        PyWeakReference *found = *(PyWeakReference **)PyObject_GET_WEAKREFS_LISTPTR(object);
        for (; found != NULL; found = found->wr_next) {
            if (Py_IS_TYPE(found, type)) {
                return Py_NewRef(found);
            }
        }
    }
    return _PyWeakref_RefType.tp_new(type, args, kwargs);
}

static PyObject *
reference_to(PyObject *object)
{
    return PyObject_CallOneArg((PyObject *)&Reference_Type, object);
}

/* Its base, the type of weak references, is set when the module is made. */
static PyTypeObject Reference_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "dynamo_lite._eval_frame.Reference",
    .tp_doc = "Reference(object)\n--\n\nThe weak reference of this package's to an object.",
    .tp_basicsize = sizeof(PyWeakReference),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = reference_new,
};
