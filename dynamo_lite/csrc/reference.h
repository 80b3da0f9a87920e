/* Weak references of guards and records.

   Input: an object of the program. Output: a reference to it, one for all who ask.
   Invariant: it is never the reference without a callback that `weakref.ref(object)` gives the program. That one keeps the object's hash: if
   it were kept alive here, the program's `__hash__` would run less often, and what it says later would not be heard. */

static PyTypeObject Reference_Type;

/* Classes of C code whose objects die without a word to their weak references, which then point to memory of others. */
static PyObject *silent_classes;

static PyObject *
module_set_silent_classes(PyObject *module, PyObject *classes)
{
    if (!PyTuple_CheckExact(classes)) {
        PyErr_SetString(PyExc_TypeError, "set_silent_classes() takes a tuple of classes");
        return NULL;
    }
    Py_XSETREF(silent_classes, Py_NewRef(classes));
    Py_RETURN_NONE;
}

/* Can an object be referred to weakly? */
static int
can_refer_weakly(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    if (!PyType_SUPPORTS_WEAKREFS(type)) {
        return 0;
    }
    for (Py_ssize_t i = 0; silent_classes != NULL && i < PyTuple_GET_SIZE(silent_classes); i++) {
        if (PyType_IsSubtype(type, (PyTypeObject *)PyTuple_GET_ITEM(silent_classes, i))) {
            return 0;
        }
    }
    return 1;
}

static PyObject *
module_can_refer_weakly(PyObject *module, PyObject *object)
{
    return PyBool_FromLong(can_refer_weakly(object));
}

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
