/* Regions, and asking them.

   Input:  a call that no entry is valid for. Output: the entry that the region's callback makes, under the conditions that an
   analysis needs of the process. */

static int
region_init(Region *region, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"callback", NULL};
    PyObject *callback = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O:Region", names, &callback)) {
        return -1;
    }
    Py_XSETREF(region->callback, Py_XNewRef(callback));
    return 0;
}

static PyObject *
region_cache_for(Region *region, PyObject *code)
{
    if (!PyCode_Check(code)) {
        return PyErr_Format(PyExc_TypeError, "expected a code object, not %.200s", Py_TYPE(code)->tp_name);
    }
    return Py_XNewRef(cache_get((PyCodeObject *)code, region));
}

static PyObject *
region_caches(Region *region, void *Py_UNUSED(closure))
{
    return region->caches == NULL ? PyTuple_New(0) : PyList_AsTuple(region->caches);
}

TRAVERSE(region, Region, callback, caches)
CLEAR(region, Region, callback, caches)
DEALLOC(region, Region, callback, caches)

static PyObject *
region_check_reader(PyObject *Py_UNUSED(region), PyObject *Py_UNUSED(fn))
{
    Py_RETURN_NONE;
}

static PyMethodDef region_methods[] = {
    {"cache_for", (PyCFunction)region_cache_for, METH_O, "cache_for(code) -> Cache\n\nMade on demand."},
    {"check_reader", region_check_reader, METH_O,
     "check_reader(fn)\n\nCalled when somebody reads the code of a Callable; raises if that may not be."},
    {NULL}
};

static PyMemberDef region_members[] = {
    {"callback", T_OBJECT_EX, offsetof(Region, callback), 0,
     "callback(cache, fn, locals) -> Entry | None | exception, called on a miss; None: run the original this time"},
    {NULL}
};

static PyGetSetDef region_getset[] = {
    {"caches", (getter)region_caches, NULL, "tuple of all caches of this region"},
    {NULL}
};

static PyTypeObject Region_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "dynamo_lite._eval_frame.Region",
    .tp_doc = "Region(callback=None)\n--\n\nOne optimize() context: what compiles, and all that it has compiled.",
    .tp_basicsize = sizeof(Region),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
    .tp_weaklistoffset = offsetof(Region, weakrefs),
    .tp_new = PyType_GenericNew,
    .tp_init = (initproc)region_init,
    LIFE_SLOTS(region),
    .tp_methods = region_methods,
    .tp_members = region_members,
    .tp_getset = region_getset,
};

/* What an analysis needs of the process, whose program must find it as it was whatever interrupts the analysis: no garbage
   collections, which would double its time, and room for recursion, since it takes several frames for one of the program.
   While any analysis runs the settings are those; the last one to end puts back what the first one found. */
static struct {
    int running, collects, program_limit, limit;
} analyses;

/* So many frames more than the program has now, but no more than the C stack has room for if each takes what a call through torch's
   dispatcher does: code of the program runs as it is during an analysis (backends, fake implementations, dispatch of subclasses), and
   nothing but the limit stops it if it calls itself. */
enum { FRAMES_OF_AN_ANALYSIS = 20000, C_STACK_OF_A_FRAME = 3500 };

static int
frames_now(void)
{
    PyThreadState *tstate = PyThreadState_Get();
#if PY_VERSION_HEX >= 0x030C0000
    return tstate->py_recursion_limit - tstate->py_recursion_remaining;
#else
    return tstate->recursion_limit - tstate->recursion_remaining;
#endif
}

static void
analysis_begins(void)
{
    if (analyses.running++ == 0) {
        int fits = frames_now() + (int)Py_MIN(c_stack_left() / C_STACK_OF_A_FRAME, (size_t)FRAMES_OF_AN_ANALYSIS);
        analyses.collects = PyGC_Disable();
        analyses.program_limit = Py_GetRecursionLimit();
        analyses.limit = Py_MAX(analyses.program_limit, fits);
        Py_SetRecursionLimit(analyses.limit);
    }
}

static void
analysis_ends(void)
{
    if (--analyses.running > 0) {
        return;
    }
    if (analyses.collects) {
        PyGC_Enable();
    }
    else {
        PyGC_Disable();
    }
    if (analyses.program_limit < analyses.limit && Py_GetRecursionLimit() == analyses.limit) {
        Py_SetRecursionLimit(analyses.program_limit);   /* unless another thread has set one meanwhile */
    }
}

/* `signal.signal`, without what that does besides: it forgets `signal.siginterrupt`. A new reference to the previous handler. */
static PyObject *
replace_signal_handler(PyObject *signal_module, int number, PyObject *handler)
{
#ifdef HAVE_SIGACTION
    struct sigaction action;
    int known = sigaction(number, NULL, &action) == 0;
#endif
    PyObject *previous = PyObject_CallMethod(signal_module, "signal", "iO", number, handler);
#ifdef HAVE_SIGACTION
    if (previous != NULL && known) {
        sigaction(number, &action, NULL);
    }
#endif
    return previous;
}

#define MAX_SIGNALS_MEANWHILE 1000

/* Take the current exception, if no earlier one is kept. */
static void
keep_first_exception(PyObject **kept)
{
    if (*kept == NULL) {
        *kept = take_exception();
    }
    else {
        PyErr_Clear();
    }
}

/* Put `new` in the place of `old` where that is the handler of signal `number`. A handler that runs meanwhile (`signal.signal` runs
   those of signals that have come) may raise, which is kept in `raised`: it has had its turn, and the replacement is made nevertheless. */
static void
replace_if_current(PyObject *signal_module, int number, PyObject *old, PyObject *new, PyObject **raised)
{
    for (int attempt = 0; attempt < MAX_SIGNALS_MEANWHILE; attempt++) {
        PyObject *current = PyObject_CallMethod(signal_module, "getsignal", "i", number);
        PyObject *previous = current == old ? replace_signal_handler(signal_module, number, new) : Py_XNewRef(current);
        Py_XDECREF(current);
        if (previous != NULL) {
            Py_DECREF(previous);
            return;
        }
        keep_first_exception(raised);
    }
}

/* replace_signal_handlers([(signum, old, new), ...]): all of them, whatever handlers raise meanwhile; then the first exception. */
static PyObject *
module_replace_signal_handlers(PyObject *Py_UNUSED(module), PyObject *replacements)
{
    PyObject *signal_module = PyImport_ImportModule("_signal");
    if (signal_module == NULL) {
        return NULL;
    }
    PyObject *raised = NULL;
    for (Py_ssize_t i = 0; PyList_Check(replacements) && i < PyList_GET_SIZE(replacements); i++) {
        int number;
        PyObject *old, *new;
        if (PyArg_ParseTuple(PyList_GET_ITEM(replacements, i), "iOO:replace_signal_handlers", &number, &old, &new)) {
            replace_if_current(signal_module, number, old, new, &raised);
        }
        else {
            keep_first_exception(&raised);
        }
    }
    Py_DECREF(signal_module);
    if (raised != NULL) {
        put_exception(raised);
        return NULL;
    }
    Py_RETURN_NONE;
}

/* Is a function of the program told about what runs on this thread? From 3.12 on there are many ways to have that: not telling
   it is less work than finding out. (A profiler in C, which measures time, is not kept from our calls on 3.11.) */
static int
is_watched(PyThreadState *tstate)
{
    return PY_VERSION_HEX >= 0x030C0000 || tstate->c_tracefunc != NULL || (tstate->c_profilefunc != NULL && PyCallable_Check(tstate->c_profileobj));
}

/* The region's answer to a miss: a new reference to an Entry or to None; NULL with an exception. */
static PyObject *
region_ask(Thread *thread, Region *region, Cache *cache, PyFunctionObject *fn, PyObject *const *locals,
           Py_ssize_t n_locals)
{
    if (IS_FINALIZING()) {   /* modules of ours are taken apart */
        return Py_NewRef(Py_None);
    }
    Region *previous = swap_region(thread, NULL);
    PyThreadState *tstate = PyThreadState_Get();
    int watched = is_watched(tstate);
    if (watched) {
        PyThreadState_EnterTracing(tstate);
    }
    thread->in_callback++;
    analysis_begins();
    PyObject *answer = NULL;
    PyObject *callback = PyObject_GetAttr((PyObject *)region, s_callback);
    PyObject *bound = callback == NULL ? NULL : tuple_of(locals, n_locals);
    if (bound != NULL) {
        answer = PyObject_CallFunctionObjArgs(callback, cache, fn, bound, NULL);
    }
    Py_XDECREF(bound);
    Py_XDECREF(callback);
    analysis_ends();
    thread->in_callback--;
    if (watched) {
        PyThreadState_LeaveTracing(tstate);
    }
    restore_region(thread, previous);
    if (answer == NULL || answer == Py_None) {
        return answer;
    }
    if (PyExceptionInstance_Check(answer)) {
        put_exception(answer);   /* without entries of the callback in its traceback */
        return NULL;
    }
    const char *mismatch = !Py_IS_TYPE(answer, &Entry_Type) ? "not an Entry"
        : replacement_mismatch(cache->code, ((Entry *)answer)->code);
    if (mismatch != NULL) {
        PyErr_Format(PyExc_TypeError, "callback returned %R for %U: %s", answer, cache->code->co_qualname, mismatch);
        Py_DECREF(answer);
        return NULL;
    }
    /* Equal code objects can belong to functions with different globals; guards speak about these ones only. */
    if (((Entry *)answer)->globals == NULL) {
        ((Entry *)answer)->globals = Py_NewRef(fn->func_globals);
    }
    return answer;
}

/* Strict mode: tell the entry's `strict` what the evaluation came to. -1 with an exception if it disagrees. */
static int
entry_compare(Entry *entry, int result, PyObject *const *locals, Py_ssize_t n_locals, PyObject *closure)
{
    PyObject *bound = tuple_of(locals, n_locals), *answer = NULL;
    PyObject *failed = result == GUARDS_PASS ? Py_NewRef(Py_None) : PyLong_FromLong(result);
    if (bound != NULL && failed != NULL) {
        answer = PyObject_CallFunctionObjArgs(entry->strict, bound, closure == NULL ? Py_None : closure, failed, NULL);
    }
    Py_XDECREF(bound);
    Py_XDECREF(failed);
    Py_XDECREF(answer);
    return answer == NULL ? -1 : 0;
}

/* Evaluate an entry's guards for this call. They may run Python code, which must not be offered for compilation. */
static int
entry_evaluate(Thread *thread, Entry *entry, PyFunctionObject *fn, PyObject *const *locals, Py_ssize_t n_locals,
               Handover **handover)
{
    Region *active = thread->region;
    thread->region = NULL;
    int result = guards_evaluate(entry->guards, locals, n_locals, fn->func_closure, handover);
    if (entry->strict != NULL && result != GUARDS_RAISED
        && entry_compare(entry, result, locals, n_locals, fn->func_closure) < 0) {
        handover_free(*handover);
        *handover = NULL;
        result = GUARDS_RAISED;
    }
    thread->region = active;
    return result;
}
