/* Callable and Uncaptured: they look like the function that they wrap. */

static PyObject *
callable_vectorcall(Wrapper *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    PyFunctionObject *fn = (PyFunctionObject *)self->fn;
    Cache *cache = self->cache;
    if (fn->func_code != (PyObject *)cache->code) {   /* somebody assigned fn.__code__ */
        cache = cache_get((PyCodeObject *)fn->func_code, cache->region);
        if (cache == NULL) {
            return NULL;
        }
        Py_INCREF(cache);
        Py_SETREF(self->cache, cache);
    }
    Py_INCREF(cache);
    PyObject *result = call_through_cache(cache, fn, args, nargsf, kwnames);
    Py_DECREF(cache);
    return result;
}

static PyObject *
uncaptured_vectorcall(Wrapper *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    Thread *thread = this_thread();
    if (thread->region == NULL) {
        return PyObject_Vectorcall(self->fn, args, nargsf, kwnames);
    }
    Region *previous = swap_region(thread, NULL);
    PyObject *result = PyObject_Vectorcall(self->fn, args, nargsf, kwnames);
    restore_region(thread, previous);
    return result;
}

/* The wrapper's own attributes start as a copy of the function's, except for __wrapped__: that is the function. */
static PyObject *
wrapper_make(PyTypeObject *type, PyObject *fn, Cache *cache)
{
    PyObject *attributes = PyFunction_Check(fn) && ((PyFunctionObject *)fn)->func_dict != NULL
        ? PyDict_Copy(((PyFunctionObject *)fn)->func_dict) : PyDict_New();
    if (attributes == NULL) {
        return NULL;
    }
    if (PyDict_DelItemString(attributes, "__wrapped__") < 0) {
        if (!PyErr_ExceptionMatches(PyExc_KeyError)) {
            Py_DECREF(attributes);
            return NULL;
        }
        PyErr_Clear();
    }
    Wrapper *self = (Wrapper *)type->tp_alloc(type, 0);
    if (self == NULL) {
        Py_DECREF(attributes);
        return NULL;
    }
    self->vectorcall = (vectorcallfunc)(cache != NULL ? callable_vectorcall : uncaptured_vectorcall);
    self->fn = Py_NewRef(fn);
    self->cache = (Cache *)Py_XNewRef(cache);
    self->dict = attributes;
    return (PyObject *)self;
}

static PyObject *
callable_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"fn", "cache", NULL};
    PyObject *fn, *cache;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O!:Callable", names, &PyFunction_Type, &fn,
                                     &Cache_Type, &cache)) {
        return NULL;
    }
    if (((PyFunctionObject *)fn)->func_code != (PyObject *)((Cache *)cache)->code) {
        PyErr_SetString(PyExc_ValueError, "the cache is for another code object");
        return NULL;
    }
    return wrapper_make(type, fn, (Cache *)cache);
}

static PyObject *
uncaptured_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"fn", NULL};
    PyObject *fn;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O:Uncaptured", names, &fn)) {
        return NULL;
    }
    if (!PyCallable_Check(fn) && Py_TYPE(fn)->tp_descr_get == NULL) {   /* classmethod objects are not callable */
        return PyErr_Format(PyExc_TypeError, "%.200s object is not callable", Py_TYPE(fn)->tp_name);
    }
    return wrapper_make(type, fn, NULL);
}

static int
wrapper_traverse(Wrapper *self, visitproc visit, void *arg)
{
    Py_VISIT(self->fn);
    Py_VISIT(self->cache);
    Py_VISIT(self->wrapped);
    Py_VISIT(self->dict);
    return 0;
}

/* fn and cache stay: a cleared wrapper can still be called by a finalizer, and every cycle through fn can be broken at
   one of fn's own members. */
static int
wrapper_clear(Wrapper *self)
{
    Py_CLEAR(self->wrapped);
    Py_CLEAR(self->dict);
    return 0;
}

static void
wrapper_dealloc(Wrapper *self)
{
    PyObject_GC_UnTrack(self);
    if (self->weakrefs != NULL) {
        PyObject_ClearWeakRefs((PyObject *)self);
    }
    wrapper_clear(self);
    Py_CLEAR(self->fn);
    Py_CLEAR(self->cache);
    Py_TYPE(self)->tp_free(self);
}

static PyObject *
callable_descr_get(PyObject *self, PyObject *object, PyObject *Py_UNUSED(type))
{
    return object == NULL || object == Py_None ? Py_NewRef(self) : PyMethod_New(self, object);
}

/* Uncaptured wraps any callable: bind as that one does. */
static PyObject *
uncaptured_descr_get(PyObject *self, PyObject *object, PyObject *type)
{
    PyObject *fn = ((Wrapper *)self)->fn;
    descrgetfunc get = Py_TYPE(fn)->tp_descr_get;
    if (get == NULL) {
        return Py_NewRef(self);
    }
    if (PyType_HasFeature(Py_TYPE(fn), Py_TPFLAGS_METHOD_DESCRIPTOR)) {
        return callable_descr_get(self, object, type);
    }
    PyObject *bound = get(fn, object, type);
    if (bound == NULL || bound == fn || !PyCallable_Check(bound)) {
        return bound == fn ? Py_DECREF(bound), Py_NewRef(self) : bound;
    }
    PyObject *result = wrapper_make(&Uncaptured_Type, bound, NULL);
    Py_DECREF(bound);
    return result;
}

static PyObject *
wrapper_getattro(Wrapper *self, PyObject *name)
{
    PyObject *value = PyObject_GenericGetAttr((PyObject *)self, name);
    if (value == NULL && PyErr_ExceptionMatches(PyExc_AttributeError)) {
        PyErr_Clear();
        value = PyObject_GetAttr(self->fn, name);
    }
    return value;
}

static PyObject *
callable_repr(Wrapper *self)
{
    return PyUnicode_FromFormat("<optimized %R>", self->fn);
}

static PyObject *
uncaptured_repr(Wrapper *self)
{
    return PyUnicode_FromFormat("<uncaptured %R>", self->fn);
}

/* Pickled by name, as functions are; something without a name is wrapped anew. */
static PyObject *
wrapper_reduce(Wrapper *self, PyObject *Py_UNUSED(ignored))
{
    PyObject *name = PyObject_GetAttrString((PyObject *)self, "__qualname__");
    if (name == NULL && self->cache == NULL && PyErr_ExceptionMatches(PyExc_AttributeError)) {
        PyErr_Clear();
        return Py_BuildValue("O(O)", Py_TYPE(self), self->fn);
    }
    return name;
}

static PyObject *
wrapper_copy(PyObject *self, PyObject *Py_UNUSED(memo))
{
    return Py_NewRef(self);
}

/* Names that a type would answer itself. Metadata: the wrapper's own value if one was set, else the function's. */
static PyObject *
wrapper_get_metadata(Wrapper *self, void *name)
{
    PyObject *key = PyUnicode_InternFromString(name);
    if (key == NULL) {
        return NULL;
    }
    PyObject *own = self->dict == NULL ? NULL : Py_XNewRef(PyDict_GetItemWithError(self->dict, key));
    PyObject *value = own != NULL || PyErr_Occurred() ? own : PyObject_GetAttr(self->fn, key);
    Py_DECREF(key);
    return value;
}

static int
wrapper_set_metadata(Wrapper *self, PyObject *value, void *name)
{
    if (self->dict == NULL && (self->dict = PyDict_New()) == NULL) {
        return -1;
    }
    return value != NULL ? PyDict_SetItemString(self->dict, name, value) : PyDict_DelItemString(self->dict, name);
}

/* What makes the function do what it does is shared with it. A Region may object to somebody who wants to read the code. */
static PyObject *
wrapper_get_shared(Wrapper *self, void *name)
{
    if (self->cache != NULL && strcmp(name, "__code__") == 0) {
        PyObject *checked = PyObject_CallMethod((PyObject *)self->cache->region, "check_reader", "O", self->fn);
        if (checked == NULL) {
            return NULL;
        }
        Py_DECREF(checked);
    }
    return PyObject_GetAttrString(self->fn, name);
}

static int
wrapper_set_shared(Wrapper *self, PyObject *value, void *name)
{
    return PyObject_SetAttrString(self->fn, name, value);
}

static PyObject *
wrapper_get_wrapped(Wrapper *self, void *Py_UNUSED(closure))
{
    return Py_NewRef(self->wrapped != NULL ? self->wrapped : self->fn);
}

static int
wrapper_set_wrapped(Wrapper *self, PyObject *value, void *Py_UNUSED(closure))
{
    Py_XSETREF(self->wrapped, Py_XNewRef(value));
    return 0;
}

#define METADATA(name) {name, (getter)wrapper_get_metadata, (setter)wrapper_set_metadata, NULL, name}
#define SHARED(name) {name, (getter)wrapper_get_shared, (setter)wrapper_set_shared, NULL, name}

static PyGetSetDef wrapper_getset[] = {
    METADATA("__name__"), METADATA("__qualname__"), METADATA("__doc__"), METADATA("__module__"),
    METADATA("__annotations__"),
    SHARED("__defaults__"), SHARED("__kwdefaults__"), SHARED("__code__"), SHARED("__globals__"), SHARED("__closure__"),
    {"__wrapped__", (getter)wrapper_get_wrapped, (setter)wrapper_set_wrapped},
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict},
    {NULL}
};

/* torch.jit.script compiles the function itself. */
static PyObject *
wrapper_prepare_scriptable(Wrapper *self, PyObject *Py_UNUSED(ignored))
{
    return Py_NewRef(self->fn);
}

static PyMethodDef wrapper_methods[] = {
    {"__prepare_scriptable__", (PyCFunction)wrapper_prepare_scriptable, METH_NOARGS},
    {"__reduce__", (PyCFunction)wrapper_reduce, METH_NOARGS},
    {"__copy__", wrapper_copy, METH_NOARGS},
    {"__deepcopy__", wrapper_copy, METH_O},
    {NULL}
};

static PyMemberDef callable_members[] = {
    {"_torchdynamo_orig_callable", T_OBJECT, offsetof(Wrapper, fn), READONLY},
    {"cache", T_OBJECT, offsetof(Wrapper, cache), READONLY},
    {NULL}
};

static PyMemberDef uncaptured_members[] = {
    {"_torchdynamo_orig_callable", T_OBJECT, offsetof(Wrapper, fn), READONLY},
    {NULL}
};

static PyTypeObject Callable_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "dynamo_lite._eval_frame.Callable",
    .tp_doc = "Callable(fn, cache)\n--\n\nThe function fn, run through the compiled entries of its cache.",
    .tp_basicsize = sizeof(Wrapper),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR,
    .tp_vectorcall_offset = offsetof(Wrapper, vectorcall),
    .tp_dictoffset = offsetof(Wrapper, dict),
    .tp_weaklistoffset = offsetof(Wrapper, weakrefs),
    .tp_new = callable_new,
    .tp_call = PyVectorcall_Call,
    .tp_descr_get = callable_descr_get,
    .tp_getattro = (getattrofunc)wrapper_getattro,
    .tp_repr = (reprfunc)callable_repr,
    .tp_dealloc = (destructor)wrapper_dealloc,
    .tp_traverse = (traverseproc)wrapper_traverse,
    .tp_clear = (inquiry)wrapper_clear,
    .tp_methods = wrapper_methods,
    .tp_members = callable_members,
    .tp_getset = wrapper_getset,
};

static PyTypeObject Uncaptured_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "dynamo_lite._eval_frame.Uncaptured",
    .tp_doc = "Uncaptured(fn)\n--\n\nCalls fn with this thread's region switched off.",
    .tp_basicsize = sizeof(Wrapper),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(Wrapper, vectorcall),
    .tp_dictoffset = offsetof(Wrapper, dict),
    .tp_weaklistoffset = offsetof(Wrapper, weakrefs),
    .tp_new = uncaptured_new,
    .tp_call = PyVectorcall_Call,
    .tp_descr_get = uncaptured_descr_get,
    .tp_getattro = (getattrofunc)wrapper_getattro,
    .tp_repr = (reprfunc)uncaptured_repr,
    .tp_dealloc = (destructor)wrapper_dealloc,
    .tp_traverse = (traverseproc)wrapper_traverse,
    .tp_clear = (inquiry)wrapper_clear,
    .tp_methods = wrapper_methods,
    .tp_members = uncaptured_members,
    .tp_getset = wrapper_getset,
};
