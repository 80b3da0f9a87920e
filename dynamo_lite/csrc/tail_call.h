/* TailCall: how generated code goes on in a resume function. The code returns one instead of a result, its frame ends, and
   the caller of the code, here in C, calls the resume function. So the frames are those that the original has, however many
   parts a function, or a loop with a graph break, is cut into. With no cache it is a call that is not captured: of the
   function's own code, from its start. */

static void
tail_dealloc(TailCall *tail)
{
    for (Py_ssize_t i = 0; i < Py_SIZE(tail); i++) {
        Py_XDECREF(tail->items[i]);
    }
    Py_XDECREF(tail->cache);
    Py_DECREF(tail->function);
    Py_XDECREF(tail->kwnames);
    PyObject_Free(tail);
}

/* Short-lived, so that the collector need not know about it: it lives from the end of one frame to the end of the next. */
static PyTypeObject TailCall_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "dynamo_lite._eval_frame.TailCall",
    .tp_doc = "What generated code returns to go on in a resume function.",
    .tp_basicsize = offsetof(TailCall, items),
    .tp_itemsize = sizeof(PyObject *),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_dealloc = (destructor)tail_dealloc,
};

static PyObject *
tail_run_eagerly(Thread *thread, TailCall *tail)
{
    Region *previous = swap_region(thread, NULL);
    PyObject *result = call_moving(thread, (PyObject *)tail->function, tail->items, Py_SIZE(tail), tail->kwnames);
    restore_region(thread, previous);
    Py_DECREF(tail);
    return result;
}

static PyObject *
tail_run(Thread *thread, TailCall *tail)
{
    if (tail->cache == NULL) {
        return tail_run_eagerly(thread, tail);
    }
    TailCall *outer = thread->tail;
    thread->tail = tail;
    PyObject *result = call_once(thread, tail->cache, tail->function, tail->items, (size_t)Py_SIZE(tail), NULL);
    thread->tail = outer;
    Py_DECREF(tail);
    return result;
}

/* What generated code has returned is the result, or says where to go on. */
static inline PyObject *
finish_tail_calls(Thread *thread, PyObject *result)
{
    while (result != NULL && Py_IS_TYPE(result, &TailCall_Type)) {
        result = tail_run(thread, (TailCall *)result);
    }
    return result;
}

static PyObject *
call_through_cache(Cache *cache, PyFunctionObject *fn, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    Thread *thread = this_thread();
    return finish_tail_calls(thread, call_once(thread, cache, fn, args, nargsf, kwnames));
}

/* cache(fn, *args) */
static PyObject *
cache_vectorcall(Cache *cache, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    Py_ssize_t nargs = PyVectorcall_NARGS(nargsf);
    if (nargs < 1 || !PyFunction_Check(args[0])
        || ((PyFunctionObject *)args[0])->func_code != (PyObject *)cache->code) {
        PyErr_SetString(PyExc_TypeError, "the first argument must be a function with the code of this cache");
        return NULL;
    }
    return call_through_cache(cache, (PyFunctionObject *)args[0], args + 1, nargs - 1, kwnames);
}

static TailCall *
tail_new(PyObject *cache, PyObject *function, PyObject *const *items, Py_ssize_t n, PyObject *kwnames)
{
    TailCall *tail = PyObject_NewVar(TailCall, &TailCall_Type, n);
    if (tail != NULL) {
        tail->cache = (Cache *)Py_XNewRef(cache);
        tail->function = (PyFunctionObject *)Py_NewRef(function);
        tail->kwnames = Py_XNewRef(kwnames);
        for (Py_ssize_t i = 0; i < n; i++) {
            tail->items[i] = Py_NewRef(items[i]);
        }
    }
    return tail;
}

static PyObject *
module_tail_call(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs < 2 || !Py_IS_TYPE(args[0], &Cache_Type) || !PyFunction_Check(args[1])
        || ((PyFunctionObject *)args[1])->func_code != (PyObject *)((Cache *)args[0])->code) {
        PyErr_SetString(PyExc_TypeError, "tail_call() takes a cache, a function with its code, and arguments");
        return NULL;
    }
    return (PyObject *)tail_new(args[0], args[1], args + 2, nargs - 2, NULL);
}

/* eager_call(function, args, kwnames) */
static PyObject *
module_eager_call(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 3 || !PyFunction_Check(args[0]) || !PyTuple_CheckExact(args[1]) || !PyTuple_CheckExact(args[2])
        || PyTuple_GET_SIZE(args[2]) > PyTuple_GET_SIZE(args[1])) {
        PyErr_SetString(PyExc_TypeError, "eager_call() takes a function, a tuple of arguments, and the names of the last of them");
        return NULL;
    }
    PyObject *kwnames = PyTuple_GET_SIZE(args[2]) == 0 ? NULL : args[2];
    return (PyObject *)tail_new(NULL, args[0], ((PyTupleObject *)args[1])->ob_item, PyTuple_GET_SIZE(args[1]), kwnames);
}

/* call_moved(function, list): function(*list), the list's items handed over. */
static PyObject *
module_call_moved(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 2 || !PyFunction_Check(args[0]) || !PyList_CheckExact(args[1])) {
        PyErr_SetString(PyExc_TypeError, "call_moved() takes a function and a list");
        return NULL;
    }
    if (c_stack_is_used_up()) {
        return NULL;
    }
    PyListObject *list = (PyListObject *)args[1];
    Py_ssize_t n = Py_SIZE(list);
    PyObject **items = PyMem_New(PyObject *, n + 1);
    if (items == NULL) {
        return PyErr_NoMemory();
    }
    memcpy(items, list->ob_item, n * sizeof(PyObject *));
    Py_SET_SIZE(list, 0);
    PyObject *result = call_moving(this_thread(), args[0], items, n, NULL);
    PyMem_Free(items);
    return result;
}

/* Does a traceback begin with a generated frame? */
static int
begins_generated(PyObject *traceback)
{
    if (!PyTraceBack_Check(traceback)) {
        return 0;
    }
    PyCodeObject *code = PyFrame_GetCode(((PyTracebackObject *)traceback)->tb_frame);
    int is_generated = code_extra(code) == &generated_code;
    Py_DECREF(code);
    return is_generated;
}

static PyObject *
module_begins_generated(PyObject *Py_UNUSED(module), PyObject *traceback)
{
    return PyBool_FromLong(begins_generated(traceback));
}

/* raise_here(exception): the instruction that calls this raises it, with the context that it has, behind which comes what the frame
   handles. */
static PyObject *
module_raise_here(PyObject *Py_UNUSED(module), PyObject *exception)
{
    if (!PyExceptionInstance_Check(exception)) {
        PyErr_SetString(PyExc_TypeError, "raise_here() takes an exception");
        return NULL;
    }
    PyObject *handled = PyErr_GetHandledException(), *innermost = Py_NewRef(exception), *context;
    while (innermost != handled && (context = PyException_GetContext(innermost)) != NULL) {
        Py_SETREF(innermost, context);
    }
    if (handled != NULL && handled != Py_None && innermost != handled) {
        PyException_SetContext(innermost, Py_NewRef(handled));
    }
    Py_XDECREF(handled);
    Py_DECREF(innermost);
    put_exception(Py_NewRef(exception));
    return NULL;
}

/* raise_again(exception): raise it once more as if the instruction that calls this had raised it. Its traceback begins with
   the generated frame that caught it, which stands for the frame that goes on here: that entry is left out. If it begins
   with another, then there was no such frame when the exception came to be (3.11 makes one that C has set when it is
   caught, and what goes wrong then has the traceback of that alone): it is returned, to be raised without an entry. */
static PyObject *
module_raise_again(PyObject *Py_UNUSED(module), PyObject *exception)
{
    if (!PyExceptionInstance_Check(exception)) {
        PyErr_SetString(PyExc_TypeError, "raise_again() takes an exception");
        return NULL;
    }
    PyObject *rest = PyException_GetTraceback(exception);
    if (rest != NULL) {
        PyTracebackObject *first = (PyTracebackObject *)rest;
        if (!begins_generated(rest)) {
            Py_DECREF(rest);
            return Py_NewRef(exception);
        }
        rest = Py_XNewRef((PyObject *)first->tb_next);
        Py_DECREF(first);
    }
#if PY_VERSION_HEX >= 0x030C0000
    if (PyException_SetTraceback(exception, rest == NULL ? Py_None : rest) == 0) {
        PyErr_SetRaisedException(Py_NewRef(exception));
    }
    Py_XDECREF(rest);
#else
    PyErr_Restore(Py_NewRef(Py_TYPE(exception)), Py_NewRef(exception), rest);
#endif
    return NULL;
}
