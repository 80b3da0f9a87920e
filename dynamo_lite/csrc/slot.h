/* SlotMethod and SlotDescriptor: what calling an object runs is decided by its type at each call, as CPython's slots decide it. */

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *object;
    PyObject *name;
    PyObject *replace;            /* called with what the type has under the name; gives what runs instead, with the object as first argument */
    PyObject *raw;                /* what the type had when it was last looked at; NULL: not yet */
    PyObject *bound;              /* what runs instead, as a method of the object; NULL: not yet */
    PyTypeObject *type;           /* the type that the object had then */
    PyObject *rebuild;            /* makes the like of this for another object: copies and pickles */
    PyObject *weakrefs;
} SlotMethod;

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    Py_ssize_t offset;            /* of the slot with the SlotMethod, in instances of `owner` */
    PyTypeObject *owner;
    PyObject *follow;             /* called with an instance whose object has got another type */
    PyObject *base, *name;        /* the class that it stands for a method of, and that method's name */
    PyObject *reader;             /* called with the method when somebody asks what it is an instance of; may raise */
} SlotDescriptor;

static PyTypeObject SlotMethod_Type, SlotDescriptor_Type;

/* What runs now, borrowed; NULL with an exception. */
static PyObject *
slot_method_refresh(SlotMethod *self)
{
    PyObject *raw = _PyType_Lookup(Py_TYPE(self->object), self->name);
    if (raw == self->raw && raw != NULL) {
        return self->bound;
    }
    if (raw == NULL) {
        return PyErr_Format(PyExc_TypeError, "'%.200s' object is not callable", Py_TYPE(self->object)->tp_name);
    }
    Py_INCREF(raw);
    PyObject *made = PyObject_CallOneArg(self->replace, raw);
    PyObject *bound = made == NULL ? NULL : PyMethod_New(made, self->object);
    Py_XDECREF(made);
    if (bound == NULL) {
        Py_DECREF(raw);
        return NULL;
    }
    Py_XSETREF(self->raw, raw);
    Py_XSETREF(self->bound, bound);
    Py_XSETREF(self->type, (PyTypeObject *)Py_NewRef(Py_TYPE(self->object)));
    return self->bound;
}

static PyObject *
slot_method_vectorcall(SlotMethod *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    PyObject *bound = c_stack_is_used_up() ? NULL : slot_method_refresh(self);
    if (bound == NULL) {
        return NULL;
    }
    Py_INCREF(bound);
    PyObject *result = PyObject_Vectorcall(bound, args, nargsf, kwnames);
    Py_DECREF(bound);
    return result;
}

static PyObject *
slot_method_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"object", "name", "replace", "rebuild", NULL};
    PyObject *object, *name, *replace, *rebuild;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OUOO:SlotMethod", names, &object, &name, &replace, &rebuild)) {
        return NULL;
    }
    SlotMethod *self = (SlotMethod *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->vectorcall = (vectorcallfunc)slot_method_vectorcall;
    self->object = Py_NewRef(object);
    self->name = Py_NewRef(name);
    PyUnicode_InternInPlace(&self->name);
    self->replace = Py_NewRef(replace);
    self->rebuild = Py_NewRef(rebuild);
    return (PyObject *)self;
}

TRAVERSE(slot_method, SlotMethod, object, replace, raw, bound, type, rebuild)

/* The object stays: a cleared method can still be called by a finalizer, and every cycle through the object can be broken at one of the
   object's own members. */
CLEAR(slot_method, SlotMethod, raw, bound, type)
DEALLOC(slot_method, SlotMethod, raw, bound, type, object, name, replace, rebuild)

/* Everything else is as for the method. */
static PyObject *
slot_method_getattro(SlotMethod *self, PyObject *name)
{
    PyObject *value = PyObject_GenericGetAttr((PyObject *)self, name);
    if (value == NULL && PyErr_ExceptionMatches(PyExc_AttributeError)) {
        PyErr_Clear();
        PyObject *bound = slot_method_refresh(self);
        value = bound == NULL ? NULL : PyObject_GetAttr(bound, name);
    }
    return value;
}

static PyObject *
slot_method_repr(SlotMethod *self)
{
    return PyUnicode_FromFormat("<optimized %R>", self->object);
}

static PyObject *
slot_method_get_bound(SlotMethod *self, void *Py_UNUSED(closure))
{
    return Py_XNewRef(slot_method_refresh(self));
}

static PyObject *
slot_method_get_signature(SlotMethod *self, void *Py_UNUSED(closure))
{
    PyObject *inspect = PyImport_ImportModule("inspect");
    PyObject *bound = inspect == NULL ? NULL : slot_method_refresh(self);
    PyObject *result = bound == NULL ? NULL : PyObject_CallMethod(inspect, "signature", "O", bound);
    Py_XDECREF(inspect);
    return result;
}

static PyObject *
slot_method_reduce(SlotMethod *self, PyObject *Py_UNUSED(ignored))
{
    return Py_BuildValue("O(O)", self->rebuild, self->object);
}

static PyObject *
slot_method_copy(SlotMethod *self, PyObject *Py_UNUSED(ignored))
{
    PyObject *copy = PyImport_ImportModule("copy");
    PyObject *object = copy == NULL ? NULL : PyObject_CallMethod(copy, "copy", "O", self->object);
    PyObject *result = object == NULL ? NULL : PyObject_CallOneArg(self->rebuild, object);
    Py_XDECREF(object);
    Py_XDECREF(copy);
    return result;
}

static PyGetSetDef slot_method_getset[] = {
    {"bound", (getter)slot_method_get_bound, NULL, "The method that runs now."},
    {"__signature__", (getter)slot_method_get_signature},
    {NULL}
};

static PyMemberDef slot_method_members[] = {
    {"__self__", T_OBJECT, offsetof(SlotMethod, object), READONLY},
    {"name", T_OBJECT, offsetof(SlotMethod, name), READONLY},
    {"_torchdynamo_orig_callable", T_OBJECT, offsetof(SlotMethod, object), READONLY},
    {NULL}
};

static PyMethodDef slot_method_methods[] = {
    {"__reduce__", (PyCFunction)slot_method_reduce, METH_NOARGS},
    {"__copy__", (PyCFunction)slot_method_copy, METH_NOARGS},
    {NULL}
};

static PyTypeObject SlotMethod_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "dynamo_lite._eval_frame.SlotMethod",
    .tp_doc = "SlotMethod(object, name, replace, rebuild)\n--\n\nWhat the type of object has under name now, run as replace makes it.",
    .tp_basicsize = sizeof(SlotMethod),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(SlotMethod, vectorcall),
    .tp_weaklistoffset = offsetof(SlotMethod, weakrefs),
    .tp_new = slot_method_new,
    .tp_call = PyVectorcall_Call,
    .tp_getattro = (getattrofunc)slot_method_getattro,
    .tp_repr = (reprfunc)slot_method_repr,
    LIFE_SLOTS(slot_method),
    .tp_methods = slot_method_methods,
    .tp_members = slot_method_members,
    .tp_getset = slot_method_getset,
};

/* What an instance has in the slot, borrowed; NULL with an exception. */
static PyObject *
slot_of(SlotDescriptor *self, PyObject *instance)
{
    if (!PyObject_TypeCheck(instance, self->owner)) {
        return PyErr_Format(PyExc_TypeError, "a compiled module was expected, got '%.200s'", Py_TYPE(instance)->tp_name);
    }
    PyObject *value = *(PyObject **)((char *)instance + self->offset);
    if (value == NULL) {
        return PyErr_Format(PyExc_TypeError, "'%.200s' object is not callable", Py_TYPE(instance)->tp_name);
    }
    SlotMethod *method = (SlotMethod *)value;
    if (Py_TYPE(value) == &SlotMethod_Type && method->type != NULL && method->type != Py_TYPE(method->object)) {
        Py_XSETREF(method->type, (PyTypeObject *)Py_NewRef(Py_TYPE(method->object)));
        PyObject *done = PyObject_CallOneArg(self->follow, instance);
        if (done == NULL) {
            return NULL;
        }
        Py_DECREF(done);
        value = *(PyObject **)((char *)instance + self->offset);
        if (value == NULL) {
            return PyErr_Format(PyExc_TypeError, "'%.200s' object is not callable", Py_TYPE(instance)->tp_name);
        }
    }
    return value;
}

/* What calling an instance runs, borrowed; NULL with an exception. */
static PyObject *
slot_descriptor_find(SlotDescriptor *self, PyObject *instance)
{
    PyObject *value = slot_of(self, instance);
    return value != NULL && Py_TYPE(value) == &SlotMethod_Type ? slot_method_refresh((SlotMethod *)value) : value;
}

enum { FEW_ARGUMENTS = 8 };

/* Call a bound method (which is a function and its object) or something else. The arguments are the caller's, perhaps a tuple's items:
   PY_VECTORCALL_ARGUMENTS_OFFSET, by which a callee may write into the slot before them, is passed for an array of our own only. */
static PyObject *
slot_run(PyObject *callable, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    Py_ssize_t n_all = n + (kwnames == NULL ? 0 : PyTuple_GET_SIZE(kwnames));
    PyObject *few[FEW_ARGUMENTS + 2], *result;
    Py_INCREF(callable);
    if (!PyMethod_Check(callable) || n_all > FEW_ARGUMENTS) {
        result = PyObject_Vectorcall(callable, args, n, kwnames);
    }
    else {
        few[1] = PyMethod_GET_SELF(callable);   /* few[0] is for whoever is called, to put another in front */
        for (Py_ssize_t i = 0; i < n_all; i++) {
            few[2 + i] = args[i];
        }
        result = PyObject_Vectorcall(PyMethod_GET_FUNCTION(callable), few + 1, (size_t)(n + 1) | PY_VECTORCALL_ARGUMENTS_OFFSET, kwnames);
    }
    Py_DECREF(callable);
    return result;
}

static PyObject *
slot_descriptor_vectorcall(SlotDescriptor *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    Py_ssize_t n = PyVectorcall_NARGS(nargsf);
    if (n < 1) {
        PyErr_SetString(PyExc_TypeError, "a compiled module was expected");
        return NULL;
    }
    PyObject *callable = c_stack_is_used_up() ? NULL : slot_descriptor_find(self, args[0]);
    return callable == NULL ? NULL : slot_run(callable, args + 1, n - 1, kwnames);
}

/* ------------------------------------------------------------------------------------------------------------------
   Calls of instances. CPython looks up `__call__`, puts the arguments into another array with the instance in front, and calls what it has
   found. A class of compiled modules does less for its own descriptor. CPython puts its own function back whenever `__call__`, or the
   bases, of such a class are assigned. */

static ternaryfunc generic_call;   /* CPython's: `slot_tp_call` */

static PyObject *
slot_call(PyObject *self, PyObject *args, PyObject *kwargs)
{
    PyObject *descriptor = _PyType_Lookup(Py_TYPE(self), s_call);
    if (kwargs != NULL || descriptor == NULL || Py_TYPE(descriptor) != &SlotDescriptor_Type) {
        return generic_call(self, args, kwargs);
    }
    Py_INCREF(descriptor);   /* the instance may get another class now */
    PyObject *callable = c_stack_is_used_up() ? NULL : slot_descriptor_find((SlotDescriptor *)descriptor, self);
    Py_DECREF(descriptor);
    return callable == NULL ? NULL : slot_run(callable, ((PyTupleObject *)args)->ob_item, PyTuple_GET_SIZE(args), NULL);
}

static PyObject *
module_call_by_slot(PyObject *Py_UNUSED(module), PyObject *cls)
{
    PyTypeObject *type = (PyTypeObject *)cls;
    if (!PyType_Check(cls) || !PyType_HasFeature(type, Py_TPFLAGS_HEAPTYPE)) {
        PyErr_SetString(PyExc_TypeError, "call_by_slot() takes a class made by a class statement");
        return NULL;
    }
    PyObject *descriptor = _PyType_Lookup(type, s_call);
    if (descriptor != NULL && Py_TYPE(descriptor) == &SlotDescriptor_Type && type->tp_call != slot_call
        && (generic_call == NULL || type->tp_call == generic_call)) {
        generic_call = type->tp_call;
        type->tp_call = slot_call;
    }
    Py_RETURN_NONE;
}

/* As in eager execution, an attribute is the method that there is when it is read. */
static PyObject *
slot_descriptor_get(PyObject *self, PyObject *object, PyObject *Py_UNUSED(type))
{
    if (object == NULL || object == Py_None) {
        return Py_NewRef(self);
    }
    return Py_XNewRef(slot_descriptor_find((SlotDescriptor *)self, object));
}

static PyObject *
slot_descriptor_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"member", "follow", "base", "name", "reader", NULL};
    PyObject *member, *follow, *base, *name, *reader;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!OO!UO:SlotDescriptor", names, &PyMemberDescr_Type, &member, &follow,
                                     &PyType_Type, &base, &name, &reader)) {
        return NULL;
    }
    PyMemberDescrObject *descr = (PyMemberDescrObject *)member;
    if (descr->d_member->type != T_OBJECT_EX) {
        PyErr_SetString(PyExc_ValueError, "the member is not one of __slots__");
        return NULL;
    }
    SlotDescriptor *self = (SlotDescriptor *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->vectorcall = (vectorcallfunc)slot_descriptor_vectorcall;
    self->offset = descr->d_member->offset;
    self->owner = (PyTypeObject *)Py_NewRef(PyDescr_TYPE(descr));
    self->follow = Py_NewRef(follow);
    self->base = Py_NewRef(base);
    self->name = Py_NewRef(name);
    self->reader = Py_NewRef(reader);
    return (PyObject *)self;
}

/* The method of the class, which this one looks like. */
static PyObject *
slot_descriptor_get_wrapped(SlotDescriptor *self, void *Py_UNUSED(closure))
{
    return PyObject_GetAttr(self->base, self->name);
}

static PyObject *
slot_descriptor_getattro(SlotDescriptor *self, PyObject *name)
{
    PyObject *value = PyObject_GenericGetAttr((PyObject *)self, name);
    if (value == NULL && PyErr_ExceptionMatches(PyExc_AttributeError)) {
        PyErr_Clear();
        PyObject *wrapped = slot_descriptor_get_wrapped(self, NULL);
        value = wrapped == NULL ? NULL : PyObject_GetAttr(wrapped, name);
        Py_XDECREF(wrapped);
    }
    return value;
}

static PyMemberDef slot_descriptor_members[] = {
    {"name", T_OBJECT, offsetof(SlotDescriptor, name), READONLY},
    {"owner", T_OBJECT, offsetof(SlotDescriptor, owner), READONLY},
    {NULL}
};

static PyObject *
slot_descriptor_get_class(SlotDescriptor *self, void *Py_UNUSED(closure))
{
    PyObject *wrapped = slot_descriptor_get_wrapped(self, NULL);
    PyObject *done = wrapped == NULL ? NULL : PyObject_CallOneArg(self->reader, wrapped);
    PyObject *result = done == NULL ? NULL : Py_NewRef(Py_TYPE(self));
    Py_XDECREF(done);
    Py_XDECREF(wrapped);
    return result;
}

static PyGetSetDef slot_descriptor_getset[] = {
    {"__class__", (getter)slot_descriptor_get_class},
    {"__wrapped__", (getter)slot_descriptor_get_wrapped},
    {NULL}
};

/* No tp_clear: the type stays, for calls while a cycle is taken apart, which its own dictionary breaks. */
TRAVERSE(slot_descriptor, SlotDescriptor, owner, follow, base, reader)
DEALLOC(slot_descriptor, SlotDescriptor, owner, follow, base, name, reader)

static PyTypeObject SlotDescriptor_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "dynamo_lite._eval_frame.SlotDescriptor",
    .tp_doc = "SlotDescriptor(member, follow, base, name, reader)\n--\n\nA method of instances that call what they have in a slot.",
    .tp_basicsize = sizeof(SlotDescriptor),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR,
    .tp_vectorcall_offset = offsetof(SlotDescriptor, vectorcall),
    .tp_new = slot_descriptor_new,
    .tp_call = PyVectorcall_Call,
    .tp_descr_get = slot_descriptor_get,
    .tp_getattro = (getattrofunc)slot_descriptor_getattro,
    .tp_members = slot_descriptor_members,
    .tp_getset = slot_descriptor_getset,
    .tp_dealloc = (destructor)slot_descriptor_dealloc,
    .tp_traverse = (traverseproc)slot_descriptor_traverse,
};
