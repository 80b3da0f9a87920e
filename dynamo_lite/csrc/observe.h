/* Who is told of calls: reports count and time them without being in their way. Nothing that the program can see, and nothing that
   capture looks at, differs with an observer: no wrapper, guard or version is another one.

   An observer is called before a compiled function (with the function and its first argument, or None) or a graph (with its GraphCall
   and None) runs, with this thread's region switched off; what it returns is called behind it, if it is not None. What either raises is
   written as unraisable. */

static PyObject *call_observer, *graph_observer;

static PyObject *
observe_call(PyObject *function, PyObject *subject, PyObject *first)
{
    PyObject *type, *value, *traceback;
    Thread *thread = this_thread();
    Region *previous = thread->region == NULL ? NULL : swap_region(thread, NULL);
    PyErr_Fetch(&type, &value, &traceback);
    Py_INCREF(function);
    PyObject *result = subject == NULL ? PyObject_CallNoArgs(function)
        : PyObject_CallFunctionObjArgs(function, subject, first == NULL ? Py_None : first, NULL);
    if (result == NULL) {
        PyErr_WriteUnraisable(function);
    }
    Py_DECREF(function);
    PyErr_Restore(type, value, traceback);
    if (previous != NULL) {
        restore_region(thread, previous);
    }
    return result;
}

/* What is to be called behind the call, NULL for nothing. */
static Py_NO_INLINE PyObject *
observe_begin(PyObject *observer, PyObject *subject, PyObject *first)
{
    PyObject *end = observe_call(observer, subject, first);
    if (end == Py_None) {
        Py_CLEAR(end);
    }
    return end;
}

static Py_NO_INLINE void
observe_end(PyObject *end)
{
    Py_XDECREF(observe_call(end, NULL, NULL));
    Py_DECREF(end);
}

static PyObject *
module_observe(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 2) {
        PyErr_SetString(PyExc_TypeError, "observe() takes two observers");
        return NULL;
    }
    PyObject *previous = Py_BuildValue("OO", call_observer == NULL ? Py_None : call_observer,
                                       graph_observer == NULL ? Py_None : graph_observer);
    if (previous != NULL) {
        Py_XSETREF(call_observer, args[0] == Py_None ? NULL : Py_NewRef(args[0]));
        Py_XSETREF(graph_observer, args[1] == Py_None ? NULL : Py_NewRef(args[1]));
    }
    return previous;
}
