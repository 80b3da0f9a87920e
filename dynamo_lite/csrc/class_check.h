/* ClassCheck: has a class the attributes that it had when a graph was captured?

   Captured code calls methods of torch.Tensor, and slots of named tuples, without looking them up. A type's version tag is another one
   after each change of its dictionary or of its bases'; what the change was is asked of Python, once for each tag. A check does not keep
   its class alive, and does not hold once the class is gone. */

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyTypeObject *cls;            /* borrowed */
    PyObject *weakref;            /* tells whether it is still there */
    PyObject *hook;               /* called with the class after a change */
    PyObject *expected;           /* the answer with which the check holds */
    unsigned int version;         /* the tag for which `holds` is known; 0: none */
    char holds;
} ClassCheck;

static PyTypeObject ClassCheck_Type;

static bool
class_check_is_alive(ClassCheck *self)
{
    return ((PyWeakReference *)self->weakref)->wr_object == (PyObject *)self->cls;
}

static bool
class_check_is_current(ClassCheck *self)
{
#if PY_VERSION_HEX < 0x030C0000
    if (!PyType_HasFeature(self->cls, Py_TPFLAGS_VALID_VERSION_TAG)) {
        return false;
    }
#endif
    return self->version != 0 && self->cls->tp_version_tag == self->version;
}

static int
class_check_ask(ClassCheck *self)
{
    _PyType_Lookup(self->cls, s_doc);   /* gives the type a tag */
    unsigned int version = self->cls->tp_version_tag;
    PyObject *answer = PyObject_CallOneArg(self->hook, (PyObject *)self->cls);
    int holds = answer == NULL ? -1 : PyObject_RichCompareBool(answer, self->expected, Py_EQ);
    Py_XDECREF(answer);
    if (holds < 0) {
        return -1;
    }
    self->version = version;
    self->holds = (char)holds;
    return 0;
}

/* 1, 0, or -1 with an exception. */
static inline int
class_check_holds(ClassCheck *self)
{
    if (!class_check_is_alive(self)) {
        return 0;
    }
    return class_check_is_current(self) || class_check_ask(self) == 0 ? self->holds : -1;
}

static PyObject *
class_check_vectorcall(ClassCheck *self, PyObject *const *Py_UNUSED(args), size_t nargsf, PyObject *kwnames)
{
    if (PyVectorcall_NARGS(nargsf) != 0 || kwnames != NULL) {
        PyErr_SetString(PyExc_TypeError, "ClassCheck takes no arguments");
        return NULL;
    }
    int holds = class_check_holds(self);
    return holds < 0 ? NULL : PyBool_FromLong(holds);
}

static PyObject *
class_check_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"cls", "hook", "expected", NULL};
    PyObject *cls, *hook, *expected;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!OO:ClassCheck", names, &PyType_Type, &cls, &hook, &expected)) {
        return NULL;
    }
    ClassCheck *self = (ClassCheck *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->vectorcall = (vectorcallfunc)class_check_vectorcall;
    self->cls = (PyTypeObject *)cls;
    self->hook = Py_NewRef(hook);
    self->expected = Py_NewRef(expected);
    if ((self->weakref = reference_to(cls)) == NULL) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

TRAVERSE(class_check, ClassCheck, weakref, hook, expected)
DEALLOC(class_check, ClassCheck, weakref, hook, expected)

static PyObject *
class_check_cls(ClassCheck *self, void *Py_UNUSED(closure))
{
    return Py_NewRef(class_check_is_alive(self) ? (PyObject *)self->cls : Py_None);
}

static PyGetSetDef class_check_getset[] = {
    {"cls", (getter)class_check_cls, NULL, "The class; None once it is gone."},
    {NULL}
};

static PyMemberDef class_check_members[] = {
    {"hook", T_OBJECT, offsetof(ClassCheck, hook), READONLY},
    {"expected", T_OBJECT, offsetof(ClassCheck, expected), READONLY},
    {NULL}
};

static PyTypeObject ClassCheck_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "dynamo_lite._eval_frame.ClassCheck",
    .tp_doc = "ClassCheck(cls, hook, expected)\n--\n\nCalled, whether hook(cls) == expected; hook is asked after changes of the class only.",
    .tp_basicsize = sizeof(ClassCheck),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(ClassCheck, vectorcall),
    .tp_new = class_check_new,
    .tp_call = PyVectorcall_Call,
    .tp_dealloc = (destructor)class_check_dealloc,
    .tp_traverse = (traverseproc)class_check_traverse,
    .tp_getset = class_check_getset,
    .tp_members = class_check_members,
};
