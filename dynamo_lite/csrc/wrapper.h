/* Callable, UncapturedFunction and Uncaptured: they look like the function, or other callable, that they wrap.

   Callable and UncapturedFunction are subtypes of CPython's type of functions, so that `inspect.isfunction`, and whoever else asks
   `isinstance(obj, types.FunctionType)`, finds functions in them. All of CPython that runs a function's code without a look at its
   vectorcall (the evaluation loop and its specialised instructions) asks for that type itself, `PyFunction_Check` is exact, and so never
   takes a subtype. torch.compile's C code reads defaults from functions of exactly that type only: the attribute `_torchdynamo_inline`
   leads it to one. Their struct begins with a valid PyFunctionObject for the members that are inherited; what the program can read or
   assign is answered by the wrapped function at that moment (wrapper_getset). */

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
    PyObject *ended = call_observer == NULL ? NULL
        : observe_begin(call_observer, self->fn, PyVectorcall_NARGS(nargsf) > 0 ? args[0] : NULL);
    PyObject *result = call_through_cache(cache, fn, args, nargsf, kwnames);
    if (ended != NULL) {
        observe_end(ended);
    }
    Py_DECREF(cache);
    return result;
}

static PyObject *
uncaptured_vectorcall(Wrapper *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    Thread *thread = this_thread();
    if (c_stack_is_used_up()) {
        return NULL;
    }
    if (thread->region == NULL) {
        return PyObject_Vectorcall(self->fn, args, nargsf, kwnames);
    }
    Region *previous = swap_region(thread, NULL);
    PyObject *result = PyObject_Vectorcall(self->fn, args, nargsf, kwnames);
    restore_region(thread, previous);
    return result;
}

/* The members that a function has from the beginning. The others (defaults, annotations) stay empty: those of `fn` count. */
static void
wrapper_init_function(PyFunctionObject *self, PyFunctionObject *fn)
{
    self->func_globals = Py_NewRef(fn->func_globals);
    self->func_builtins = Py_NewRef(fn->func_builtins);
    self->func_name = Py_NewRef(fn->func_name);
    self->func_qualname = Py_NewRef(fn->func_qualname);
    self->func_code = Py_NewRef(fn->func_code);
    self->func_closure = Py_XNewRef(fn->func_closure);
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
    self->function.vectorcall = (vectorcallfunc)(cache != NULL ? callable_vectorcall : uncaptured_vectorcall);
    self->fn = Py_NewRef(fn);
    self->cache = (Cache *)Py_XNewRef(cache);
    self->function.func_dict = attributes;
    if (type->tp_base == &PyFunction_Type) {
        wrapper_init_function(&self->function, (PyFunctionObject *)fn);
    }
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
    if (!PyFunction_Check(fn)) {   /* a Callable or an UncapturedFunction has no frames of its own */
        return PyErr_Format(PyExc_TypeError, "%R is wrapped already", fn);
    }
    if (((PyFunctionObject *)fn)->func_code != (PyObject *)((Cache *)cache)->code) {
        PyErr_SetString(PyExc_ValueError, "the cache is for another code object");
        return NULL;
    }
    return wrapper_make(type, fn, (Cache *)cache);
}

/* Uncaptured(fn), which gives an UncapturedFunction for a function. */
static PyObject *
uncaptured_new(PyTypeObject *Py_UNUSED(type), PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"fn", NULL};
    PyObject *fn;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O:Uncaptured", names, &fn)) {
        return NULL;
    }
    if (!PyCallable_Check(fn) && Py_TYPE(fn)->tp_descr_get == NULL) {   /* classmethod objects are not callable */
        return PyErr_Format(PyExc_TypeError, "%.200s object is not callable", Py_TYPE(fn)->tp_name);
    }
    return wrapper_make(PyFunction_Check(fn) ? &UncapturedFunction_Type : &Uncaptured_Type, fn, NULL);
}

TRAVERSE(wrapper, Wrapper, fn, cache, wrapped, called, function.func_dict, function.func_globals, function.func_builtins,
         function.func_name, function.func_qualname, function.func_code, function.func_closure)

/* fn, cache and the members of the function stay: a cleared wrapper can still be called by a finalizer, and every cycle through them can
   be broken at one of fn's own members or at a cell. */
CLEAR(wrapper, Wrapper, wrapped, called, function.func_dict)
DEALLOC(wrapper, Wrapper, wrapped, called, function.func_dict, fn, cache, function.func_globals, function.func_builtins,
        function.func_name, function.func_qualname, function.func_code, function.func_closure)

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

/* By two attributes torch.compile finds what it is to follow in the place of what it has made: by `_torchdynamo_inline` inside of code
   that it captures, by `_torchdynamo_wrapper_id` (which must be the wrapper's own address) where it is to compile the wrapper itself.

   What torch.compile follows: the function of a Callable. For a function that is not to be captured it gets an object that it calls, as it
   reads the defaults of a function in C, from functions proper. */
static PyObject *
wrapper_get_inline(Wrapper *self)
{
    if (self->cache != NULL) {
        return Py_NewRef(self->fn);
    }
    if (self->called == NULL) {
        Wrapper *called = (Wrapper *)wrapper_make(&Uncaptured_Type, self->fn, NULL);
        if (called == NULL || PyDict_Update(called->function.func_dict, self->function.func_dict) < 0) {
            Py_XDECREF(called);
            return NULL;
        }
        self->called = (PyObject *)called;
    }
    return Py_NewRef(self->called);
}

static bool
wrapper_is_function(Wrapper *self)
{
    return Py_TYPE(self) != &Uncaptured_Type;
}

static PyObject *
wrapper_getattro(Wrapper *self, PyObject *name)
{
    if (name == s_dict) {
        return PyObject_GenericGetDict((PyObject *)self, NULL);
    }
    PyObject *value = PyObject_GenericGetAttr((PyObject *)self, name);
    if (value == NULL && PyErr_ExceptionMatches(PyExc_AttributeError)) {
        PyErr_Clear();
        value = wrapper_is_function(self) && PyUnicode_Compare(name, s_inline) == 0 ? wrapper_get_inline(self)
            : PyObject_GetAttr(self->fn, name);
    }
    return value;
}

/* `object.__getattribute__(wrapper, "__dict__")`, by which `inspect.getattr_static` looks for attributes of the instance. Only there
   torch.compile asks for the first name: in the dictionary itself, `functools.wraps` would copy it to functions that do more. */
static PyObject *
wrapper_get_static_dict(PyObject *self, void *closure)
{
    PyObject *dict = PyObject_GenericGetDict(self, closure);
    if (dict != NULL && wrapper_is_function((Wrapper *)self)) {
        PyObject *target = wrapper_get_inline((Wrapper *)self);
        Py_SETREF(dict, target == NULL ? NULL : PyDict_Copy(dict));
        if (dict != NULL && PyDict_SetItem(dict, s_inline, target) < 0) {
            Py_CLEAR(dict);
        }
        Py_XDECREF(target);
    }
    return dict;
}

static PyObject *
callable_get_id(PyObject *self, void *Py_UNUSED(closure))
{
    return PyLong_FromVoidPtr(self);
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
    PyObject *own = self->function.func_dict == NULL ? NULL : Py_XNewRef(PyDict_GetItemWithError(self->function.func_dict, key));
    PyObject *value = own != NULL || PyErr_Occurred() ? own : PyObject_GetAttr(self->fn, key);
    Py_DECREF(key);
    return value;
}

static int
wrapper_set_metadata(Wrapper *self, PyObject *value, void *name)
{
    if (self->function.func_dict == NULL && (self->function.func_dict = PyDict_New()) == NULL) {
        return -1;
    }
    return value != NULL ? PyDict_SetItemString(self->function.func_dict, name, value) : PyDict_DelItemString(self->function.func_dict, name);
}

#if PY_VERSION_HEX >= 0x030E0000

/* As for functions (PEP 649), the wrapper's own annotations are made by its own `__annotate__`, if it has one, when they are first read;
   setting one of the two takes the other away. */
static PyObject *
wrapper_get_annotations(Wrapper *self, void *name)
{
    PyObject *dict = self->function.func_dict, *annotate = NULL, *made;
    if (dict == NULL || PyDict_ContainsString(dict, name) != 0) {
        return wrapper_get_metadata(self, name);
    }
    if (PyDict_GetItemStringRef(dict, "__annotate__", &annotate) < 0) {
        return NULL;
    }
    if (annotate == NULL || annotate == Py_None) {
        Py_XDECREF(annotate);
        return wrapper_get_metadata(self, name);
    }
    made = PyObject_CallFunction(annotate, "i", 1);   /* annotationlib.Format.VALUE */
    Py_DECREF(annotate);
    if (made != NULL && PyDict_SetItemString(dict, name, made) < 0) {
        Py_CLEAR(made);
    }
    return made;
}

static int
wrapper_set_annotations(Wrapper *self, PyObject *value, void *name)
{
    const char *other = strcmp(name, "__annotate__") == 0 ? "__annotations__" : "__annotate__";
    if (wrapper_set_metadata(self, value, name) < 0) {
        return -1;
    }
    PyObject *dict = self->function.func_dict;
    if (value != NULL && strcmp(other, "__annotate__") == 0) {
        return PyDict_SetItemString(dict, other, Py_None);
    }
    return PyDict_PopString(dict, other, NULL) < 0 ? -1 : 0;
}

#  define ANNOTATIONS \
    {"__annotations__", (getter)wrapper_get_annotations, (setter)wrapper_set_annotations, NULL, "__annotations__"}, \
    {"__annotate__", (getter)wrapper_get_metadata, (setter)wrapper_set_annotations, NULL, "__annotate__"}
#else
#  define ANNOTATIONS METADATA("__annotations__")
#endif

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
#if PY_VERSION_HEX >= 0x030C0000
#  define TYPE_PARAMS METADATA("__type_params__"),
#else
#  define TYPE_PARAMS
#endif
#define WRAPPER_GETSET \
    METADATA("__name__"), METADATA("__qualname__"), METADATA("__doc__"), METADATA("__module__"), \
    ANNOTATIONS, TYPE_PARAMS \
    SHARED("__defaults__"), SHARED("__kwdefaults__"), SHARED("__code__"), SHARED("__globals__"), SHARED("__builtins__"), \
    SHARED("__closure__"), \
    {"__wrapped__", (getter)wrapper_get_wrapped, (setter)wrapper_set_wrapped}, \
    {"__dict__", wrapper_get_static_dict, PyObject_GenericSetDict}

static PyGetSetDef wrapper_getset[] = {WRAPPER_GETSET, {NULL}};

static PyGetSetDef callable_getset[] = {WRAPPER_GETSET, {"_torchdynamo_wrapper_id", callable_get_id}, {NULL}};

/* torch.jit.script compiles the function itself. */
static PyObject *
wrapper_prepare_scriptable(Wrapper *self, PyObject *Py_UNUSED(ignored))
{
    return Py_NewRef(self->fn);
}

/* `type.__new__` makes static and class methods of functions with these names, but of no objects of a subtype. */
static PyObject *
wrapper_set_name(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    static const struct {const char *name; PyTypeObject *type;} kinds[] = {
        {"__new__", &PyStaticMethod_Type}, {"__init_subclass__", &PyClassMethod_Type}, {"__class_getitem__", &PyClassMethod_Type},
    };
    if (nargs != 2 || !PyUnicode_Check(args[1])) {
        PyErr_SetString(PyExc_TypeError, "__set_name__() takes a class and a name");
        return NULL;
    }
    for (size_t i = 0; i < Py_ARRAY_LENGTH(kinds); i++) {
        if (PyUnicode_CompareWithASCIIString(args[1], kinds[i].name) == 0) {
            PyObject *method = PyObject_CallOneArg((PyObject *)kinds[i].type, self);
            int failed = method == NULL ? -1 : PyObject_SetAttr(args[0], args[1], method);
            Py_XDECREF(method);
            if (failed < 0) {
                return NULL;
            }
        }
    }
    Py_RETURN_NONE;
}

#define WRAPPER_METHODS \
    {"__prepare_scriptable__", (PyCFunction)wrapper_prepare_scriptable, METH_NOARGS}, \
    {"__reduce__", (PyCFunction)wrapper_reduce, METH_NOARGS}, \
    {"__copy__", wrapper_copy, METH_NOARGS}, \
    {"__deepcopy__", wrapper_copy, METH_O}, \
    {NULL}

static PyMethodDef wrapper_methods[] = {WRAPPER_METHODS};
static PyMethodDef function_methods[] = {
    {"__set_name__", (PyCFunction)(void (*)(void))wrapper_set_name, METH_FASTCALL}, WRAPPER_METHODS
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

#define WRAPPER_SLOTS(flags) \
    .tp_basicsize = sizeof(Wrapper), \
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | (flags), \
    .tp_vectorcall_offset = offsetof(PyFunctionObject, vectorcall), \
    .tp_dictoffset = offsetof(PyFunctionObject, func_dict), \
    .tp_weaklistoffset = offsetof(PyFunctionObject, func_weakreflist), \
    .tp_call = PyVectorcall_Call, \
    .tp_getattro = (getattrofunc)wrapper_getattro, \
    LIFE_SLOTS(wrapper)

static PyTypeObject Callable_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "function",
    .tp_doc = "Callable(fn, cache)\n--\n\nThe function fn, run through the compiled entries of its cache.",
    WRAPPER_SLOTS(Py_TPFLAGS_METHOD_DESCRIPTOR),
    .tp_new = callable_new,
    .tp_descr_get = callable_descr_get,
    .tp_repr = (reprfunc)callable_repr,
    .tp_methods = function_methods,
    .tp_members = callable_members,
    .tp_getset = callable_getset,
};

/* Made by Uncaptured. */
static PyTypeObject UncapturedFunction_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "function",
    .tp_doc = "Calls a function with this thread's region switched off.",
    WRAPPER_SLOTS(Py_TPFLAGS_METHOD_DESCRIPTOR | Py_TPFLAGS_DISALLOW_INSTANTIATION),
    .tp_descr_get = callable_descr_get,
    .tp_repr = (reprfunc)uncaptured_repr,
    .tp_methods = function_methods,
    .tp_members = uncaptured_members,
    .tp_getset = wrapper_getset,
};

static PyTypeObject Uncaptured_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "dynamo_lite._eval_frame.Uncaptured",
    .tp_doc = "Uncaptured(fn)\n--\n\nCalls fn with this thread's region switched off. Of a function it makes an UncapturedFunction.",
    WRAPPER_SLOTS(0),
    .tp_new = uncaptured_new,
    .tp_descr_get = uncaptured_descr_get,
    .tp_repr = (reprfunc)uncaptured_repr,
    .tp_methods = wrapper_methods,
    .tp_members = uncaptured_members,
    .tp_getset = wrapper_getset,
};
