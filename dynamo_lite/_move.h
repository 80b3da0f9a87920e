/* Calls that hand their arguments over.

   A C caller of a Python function holds the arguments until the function returns. Between two parts of one function that
   shows: what the second part drops would live on, and weak references, finalizers and reference counts would tell. So the
   array of arguments is emptied when the function's frame has begun, and owns its references: the one place where a frame
   begins is the frame evaluator, which is installed for that moment if it is not there anyway.

   TailCall: how generated code goes on in a resume function. The code returns one instead of a result, its frame ends, and
   the caller of the code, here in C, calls the resume function. So the frames are those that the original has, however many
   parts a function, or a loop with a graph break, is cut into. */

typedef struct Move {
    PyObject *function;           /* borrowed */
    PyObject **items;
    Py_ssize_t n;
    char has_hook;                /* the evaluator is installed for this call */
} Move;

typedef struct TailCall {
    PyObject_VAR_HEAD
    Cache *cache;
    PyFunctionObject *function;
    PyObject *items[1];
} TailCall;

static PyTypeObject TailCall_Type;

static void
move_finish(Thread *thread)
{
    Move *move = thread->move;
    thread->move = NULL;
    for (Py_ssize_t i = 0; i < move->n; i++) {
        Py_CLEAR(move->items[i]);
    }
    if (move->has_hook) {
        hook_release();
    }
}

/* Call a Python function with positional arguments whose references are taken from `items`. */
static PyObject *
call_moving(Thread *thread, PyObject *function, PyObject **items, Py_ssize_t n)
{
    Move move = {function, items, n, thread->region == NULL};
    if (move.has_hook) {
        hook_acquire();
    }
    thread->move = &move;
    PyObject *result = ((PyFunctionObject *)function)->vectorcall(function, items, (size_t)n, NULL);
    if (thread->move == &move) {   /* no frame has begun */
        move_finish(thread);
    }
    return result;
}

/* Call `function` for a call through a cache; the arguments of a tail call are handed over. */
static PyObject *
call_function(Thread *thread, PyFunctionObject *function, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    TailCall *tail = thread->tail;
    if (tail != NULL && args == tail->items) {
        thread->tail = NULL;
        return call_moving(thread, (PyObject *)function, tail->items, Py_SIZE(tail));
    }
    return function->vectorcall((PyObject *)function, args, nargsf, kwnames);
}

static PyObject *call_once(Thread *, Cache *, PyFunctionObject *, PyObject *const *, size_t, PyObject *);

static PyObject *
tail_run(Thread *thread, TailCall *tail)
{
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

static void
tail_dealloc(TailCall *tail)
{
    for (Py_ssize_t i = 0; i < Py_SIZE(tail); i++) {
        Py_XDECREF(tail->items[i]);
    }
    Py_DECREF(tail->cache);
    Py_DECREF(tail->function);
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
module_tail_call(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs < 2 || !Py_IS_TYPE(args[0], &Cache_Type) || !PyFunction_Check(args[1])
        || ((PyFunctionObject *)args[1])->func_code != (PyObject *)((Cache *)args[0])->code) {
        PyErr_SetString(PyExc_TypeError, "tail_call() takes a cache, a function with its code, and arguments");
        return NULL;
    }
    TailCall *tail = PyObject_NewVar(TailCall, &TailCall_Type, nargs - 2);
    if (tail != NULL) {
        tail->cache = (Cache *)Py_NewRef(args[0]);
        tail->function = (PyFunctionObject *)Py_NewRef(args[1]);
        for (Py_ssize_t i = 2; i < nargs; i++) {
            tail->items[i - 2] = Py_NewRef(args[i]);
        }
    }
    return (PyObject *)tail;
}

/* call_moved(function, list): function(*list), the list's items handed over. */
static PyObject *
module_call_moved(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 2 || !PyFunction_Check(args[0]) || !PyList_CheckExact(args[1])) {
        PyErr_SetString(PyExc_TypeError, "call_moved() takes a function and a list");
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
    PyObject *result = call_moving(this_thread(), args[0], items, n);
    PyMem_Free(items);
    return result;
}

/* raise_again(exception): raise it once more as if the instruction that calls this had raised it. Its traceback begins with
   the generated frame that caught it, which stands for the frame that goes on here: that entry is left out. */
static PyObject *
module_raise_again(PyObject *Py_UNUSED(module), PyObject *exception)
{
    if (!PyExceptionInstance_Check(exception)) {
        PyErr_SetString(PyExc_TypeError, "raise_again() takes an exception");
        return NULL;
    }
    PyObject *rest = PyException_GetTraceback(exception);
    if (rest != NULL) {   /* an exception that C code made may lack the entry */
        PyTracebackObject *first = (PyTracebackObject *)rest;
        PyCodeObject *code = PyFrame_GetCode(first->tb_frame);
        if (code_extra(code) == &generated_code) {
            rest = Py_XNewRef((PyObject *)first->tb_next);
            Py_DECREF(first);
        }
        Py_DECREF(code);
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
