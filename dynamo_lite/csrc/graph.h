/* GraphCall: how generated code calls a compiled graph.

   A graph takes what the arguments of the function hold and what hangs on other objects: parameters, buffers, globals.
   Generated code loads the former ("given"). The latter are found by the guards anyway, on the way to their checks, so a
   successful evaluation hands them over: it makes a Handover with these arguments at their places, the call that goes on
   with the entry pushes it onto a list of its thread, and the GraphCall that it is for takes it from there.

   Why the right one is taken. Only code of an entry contains its GraphCall. Every way to run an entry's code evaluates
   its guards before, on the same thread, and pushes the Handover just before running the code; when the code is done, the
   Handover is dropped if it was not taken (an exception came first). Calls nest, also those made by user code that
   runs in between (a property that generated code reads, a signal handler), and each of them leaves the list as it was.
   So the topmost Handover for this GraphCall is the one of this call. Code objects that somebody fished out of an
   entry and called by hand get a RuntimeError.

   A Handover owns its arguments, during the call only: nothing outlives the objects that it hangs on.

   Graphs that raise. What the program did in Python before the operator that raises has not happened yet: generated code does
   it after the graph. So `on_failure` is asked: it returns the graph's results after all, or says that the frame can start
   again as ordinary Python, which then raises at the right place. For this GraphFailed is raised instead; generated code
   catches it. Or it returns another exception to raise, one that the program had raised meanwhile.

   Inputs that die while the graph runs: see release.h. Then `boxed` is called by torch's boxed calling convention: it takes one list of
   all inputs and empties it. Such a frame cannot start again. */

static PyObject *GraphFailed;

/* Put the handover of an entry (NULL: none) where the entry's code will look for it. */
static inline void
handover_push(Thread *thread, Handover *handover)
{
    if (handover != NULL) {
        handover->outer = thread->handovers;
        thread->handovers = handover;
    }
}

/* The same handover after the code has run, and perhaps taken and freed it: only its address is used. */
static inline void
handover_drop(Thread *thread, Handover *handover)
{
    if (handover == NULL) {
        return;
    }
    for (Handover **link = &thread->handovers; *link != NULL; link = &(*link)->outer) {
        if (*link == handover) {
            *link = handover->outer;
            handover_free(handover);
            return;
        }
    }
}

static Handover *
handover_take(Thread *thread, GraphCall *graph)
{
    for (Handover **link = &thread->handovers; *link != NULL; link = &(*link)->outer) {
        Handover *handover = *link;
        if (handover->graph == graph) {
            *link = handover->outer;
            return handover;
        }
    }
    PyErr_SetString(PyExc_RuntimeError, "code made by dynamo_lite runs only through the function it was made for");
    return NULL;
}

#include "release.h"

static PyObject *
tuple_of(PyObject *const *items, Py_ssize_t n)
{
    PyObject *tuple = PyTuple_New(n);
    for (Py_ssize_t i = 0; tuple != NULL && i < n; i++) {
        PyTuple_SET_ITEM(tuple, i, Py_NewRef(items[i]));
    }
    return tuple;
}

/* Take the current exception, complete with its traceback. */
static PyObject *
take_exception(void)
{
#if PY_VERSION_HEX >= 0x030C0000
    return PyErr_GetRaisedException();
#else
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    PyErr_NormalizeException(&type, &error, &traceback);
    if (traceback != NULL) {
        PyException_SetTraceback(error, traceback);
        Py_DECREF(traceback);
    }
    Py_DECREF(type);
    return error;
#endif
}

/* Raise an exception, whose reference is taken, with the traceback and the context that it has. */
static void
put_exception(PyObject *error)
{
#if PY_VERSION_HEX >= 0x030C0000
    PyErr_SetRaisedException(error);
#else
    PyErr_Restore(Py_NewRef(Py_TYPE(error)), error, PyException_GetTraceback(error));
#endif
}

/* The compiled graph has raised. Interrupts and lack of memory are nothing that starting again could put right. `args` is NULL if the
   inputs were released. */
static PyObject *
graph_failed(GraphCall *graph, PyObject *const *args, Py_ssize_t n)
{
    if (!PyErr_ExceptionMatches(PyExc_Exception) || PyErr_ExceptionMatches(PyExc_MemoryError)) {
        return NULL;
    }
    PyObject *error = take_exception(), *values = args == NULL ? Py_NewRef(Py_None) : tuple_of(args, n);
    PyObject *answer = values == NULL ? NULL
        : PyObject_CallFunctionObjArgs(graph->on_failure, graph, error, values, NULL);
    Py_XDECREF(values);
    if (answer == NULL && !PyErr_ExceptionMatches(PyExc_Exception)) {
        Py_DECREF(error);
        return NULL;
    }
    if (answer != NULL && PyExceptionInstance_Check(answer)) {
        Py_DECREF(error);
        put_exception(answer);
        return NULL;
    }
    if (answer == NULL || answer == Py_False || args == NULL) {
        Py_XDECREF(answer);
        PyErr_Clear();
        put_exception(error);
        return NULL;
    }
    Py_DECREF(error);
    if (answer == Py_True) {
        Py_DECREF(answer);
        PyErr_SetNone(GraphFailed);
        return NULL;
    }
    return answer;
}

static PyObject *
graph_run(Thread *thread, GraphCall *graph, PyObject *callable, PyObject *const *args, size_t nargsf)
{
    if (c_stack_is_used_up()) {
        return NULL;
    }
    Region *previous = thread->region == NULL ? NULL : swap_region(thread, NULL);
    PyObject *ended = graph_observer == NULL ? NULL : observe_begin(graph_observer, (PyObject *)graph, NULL);
    PyObject *result = PyObject_Vectorcall(callable, args, nargsf, NULL);
    if (result == NULL && graph->on_failure != NULL) {
        result = graph_failed(graph, callable == graph->compiled ? args : NULL, PyVectorcall_NARGS(nargsf));
    }
    if (ended != NULL) {
        observe_end(ended);
    }
    if (previous != NULL) {
        restore_region(thread, previous);
    }
    return result;
}

/* The inputs are in a list whose reference is taken. */
static PyObject *
graph_run_boxed(Thread *thread, GraphCall *graph, PyObject *inputs)
{
    PyObject *boxed = Py_NewRef(graph->boxed), *room[2] = {NULL, inputs};
    PyObject *result = graph_run(thread, graph, boxed, room + 1, 1 | PY_VECTORCALL_ARGUMENTS_OFFSET);
    Py_DECREF(boxed);
    Py_DECREF(inputs);
    return result;
}

static PyObject *
graph_vectorcall(GraphCall *graph, PyObject *const *given, size_t nargsf, PyObject *kwnames)
{
    if (PyVectorcall_NARGS(nargsf) != graph->n_given || kwnames != NULL) {
        return PyErr_Format(PyExc_TypeError, "this graph takes %d positional arguments", graph->n_given);
    }
    Thread *thread = this_thread();
    if (graph->boxed != NULL) {
        PyObject *inputs = graph_release(thread, graph, given, nargsf);
        if (inputs != NULL || PyErr_Occurred()) {
            return inputs == NULL ? NULL : graph_run_boxed(thread, graph, inputs);
        }
    }
    if (graph->n_handed == 0) {
        return graph_run(thread, graph, graph->compiled, given, nargsf);
    }
    Handover *handover = handover_take(thread, graph);
    if (handover == NULL) {
        return NULL;
    }
    PyObject **args = handover->room + 1;   /* the callee may use the slot before */
    for (int i = 0; i < graph->n_given; i++) {
        args[graph->given[i]] = given[i];
    }
    PyObject *result = graph_run(thread, graph, graph->compiled, args,
                                 (size_t)(graph->n_given + graph->n_handed) | PY_VECTORCALL_ARGUMENTS_OFFSET);
    handover_free(handover);
    return result;
}

/* ------------------------------------------------------------------------------------------------------------------
   The type. */

static void
graph_hand(GraphCall *graph, int position)
{
    Span *last = graph->n_spans == 0 ? NULL : &graph->handed[graph->n_spans - 1];
    if (last != NULL && last->first + last->n == position) {
        last->n++;
    }
    else {
        graph->handed[graph->n_spans++] = (Span){position, 1};
    }
}

/* Sort the positions 0 ... n-1 into given ones and those in the tuple, which must be ascending. */
static int
graph_lay_out(GraphCall *graph, Py_ssize_t n, PyObject *handed)
{
    graph->n_handed = (int)PyTuple_GET_SIZE(handed);
    graph->n_given = (int)n - graph->n_handed;
    graph->handed = PyMem_New(Span, graph->n_handed + 1);
    graph->given = PyMem_New(int, n + 1);
    if (graph->handed == NULL || graph->given == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    int n_given = 0, n_handed = 0;
    for (int i = 0; i < n; i++) {
        long next = n_handed < graph->n_handed ? PyLong_AsLong(PyTuple_GET_ITEM(handed, n_handed)) : -1;
        if (next == -1 && PyErr_Occurred()) {
            return -1;
        }
        if (next == i) {
            graph_hand(graph, i);
            n_handed++;
        }
        else {
            graph->given[n_given++] = i;
        }
    }
    if (n_handed != graph->n_handed) {
        PyErr_SetString(PyExc_ValueError, "the positions must be ascending and less than the number of arguments");
        return -1;
    }
    return 0;
}

static PyObject *
graph_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"compiled", "n_args", "handed", "on_failure", NULL};
    PyObject *compiled, *handed, *on_failure = NULL;
    int n_args;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OiO!|O:GraphCall", names, &compiled, &n_args, &PyTuple_Type, &handed,
                                     &on_failure)) {
        return NULL;
    }
    GraphCall *graph = (GraphCall *)type->tp_alloc(type, 0);
    if (graph == NULL) {
        return NULL;
    }
    graph->vectorcall = (vectorcallfunc)graph_vectorcall;
    graph->compiled = Py_NewRef(compiled);
    graph->on_failure = Py_XNewRef(on_failure);
    if (graph_lay_out(graph, n_args, handed) < 0) {
        Py_DECREF(graph);
        return NULL;
    }
    return (PyObject *)graph;
}

TRAVERSE(graph, GraphCall, compiled, boxed, on_failure)

/* No tp_clear: a cycle through a compiled graph can be broken elsewhere, and calls in progress need it. */
static void
graph_dealloc(GraphCall *graph)
{
    PyObject_GC_UnTrack(graph);
    Py_XDECREF(graph->compiled);
    Py_XDECREF(graph->boxed);
    Py_XDECREF(graph->on_failure);
    PyMem_Free(graph->handed);
    PyMem_Free(graph->given);
    PyMem_Free(graph->dropped);
    Py_TYPE(graph)->tp_free(graph);
}

static PyMemberDef graph_members[] = {
    {"on_failure", T_OBJECT, offsetof(GraphCall, on_failure), READONLY},
    {"boxed", T_OBJECT, offsetof(GraphCall, boxed), READONLY},
    {NULL}
};

static PyObject *
graph_get_compiled(GraphCall *graph, void *Py_UNUSED(closure))
{
    return Py_NewRef(graph->compiled);
}

/* Calls in progress borrow the old one: who replaces it keeps it. The boxed form of the old one goes. */
static int
graph_set_compiled(GraphCall *graph, PyObject *value, void *Py_UNUSED(closure))
{
    if (value == NULL) {
        PyErr_SetString(PyExc_TypeError, "a graph is called by something");
        return -1;
    }
    Py_SETREF(graph->compiled, Py_NewRef(value));
    Py_CLEAR(graph->boxed);
    return 0;
}

static PyObject *
graph_get_dropped(GraphCall *graph, void *Py_UNUSED(closure))
{
    PyObject *result = PyTuple_New(graph->n_dropped);
    for (int i = 0; result != NULL && i < graph->n_dropped; i++) {
        PyObject *slot = PyLong_FromLong(graph->dropped[i]);
        if (slot == NULL) {
            Py_CLEAR(result);
            break;
        }
        PyTuple_SET_ITEM(result, i, slot);
    }
    return result;
}

/* release(boxed, dropped) */
static PyObject *
graph_set_release(GraphCall *graph, PyObject *args)
{
    PyObject *boxed, *dropped;
    if (!PyArg_ParseTuple(args, "OO!:release", &boxed, &PyTuple_Type, &dropped)) {
        return NULL;
    }
    Py_ssize_t n = PyTuple_GET_SIZE(dropped);
    int *slots = PyMem_New(int, n + 1);
    if (slots == NULL) {
        return PyErr_NoMemory();
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        slots[i] = PyLong_AsLong(PyTuple_GET_ITEM(dropped, i));
    }
    if (PyErr_Occurred()) {
        PyMem_Free(slots);
        return NULL;
    }
    PyMem_Free(graph->dropped);
    graph->dropped = slots;
    graph->n_dropped = (int)n;
    Py_XSETREF(graph->boxed, boxed == Py_None ? NULL : Py_NewRef(boxed));
    Py_RETURN_NONE;
}

static PyMethodDef graph_methods[] = {
    {"release", (PyCFunction)graph_set_release, METH_VARARGS,
     "release(boxed, dropped)\n\nThe variables with these numbers in the code that calls this are read no more. Where that makes an end of what\n"
     "they hold, boxed(list of all arguments) is called, which empties the list, and on_failure gets None for the arguments."},
    {NULL}
};

static PyGetSetDef graph_getset[] = {
    {"compiled", (getter)graph_get_compiled, (setter)graph_set_compiled, NULL, NULL},
    {"dropped", (getter)graph_get_dropped, NULL, NULL, NULL},
    {NULL}
};

static PyTypeObject GraphCall_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "dynamo_lite._eval_frame.GraphCall",
    .tp_doc = "GraphCall(compiled, n_args, handed, on_failure=None)\n--\n\n"
              "Calls compiled(*args) with this thread's region switched off. The arguments at the positions `handed` come\n"
              "from the guards of the entry whose code calls this; the others are its own arguments. When it raises,\n"
              "on_failure(self, error, args) returns the results after all, or True: raise GraphFailed, or False: raise\n"
              "the error, or an exception to raise.",
    .tp_basicsize = sizeof(GraphCall),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(GraphCall, vectorcall),
    .tp_new = graph_new,
    .tp_call = PyVectorcall_Call,
    .tp_dealloc = (destructor)graph_dealloc,
    .tp_traverse = (traverseproc)graph_traverse,
    .tp_methods = graph_methods,
    .tp_members = graph_members,
    .tp_getset = graph_getset,
};
