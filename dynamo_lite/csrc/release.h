/* Inputs of a graph that die while it runs, as they do in eager execution where the program binds their variables anew or deletes them.

   Input: a call of a GraphCall by the code that was made for it; its `dropped` are local variables of that code which nothing reads any
   more. Output: one list of all inputs, in which `boxed` finds the last references to what these variables held.
   Invariant: only references are taken of which it is known whose they are, and None takes their places, so that every owner finds what it
   may read and give back. They are: the variables and the operand stack of the code; what the arguments of its call were bound to; and
   the operand stack of the caller.

   In eager execution the interpreter moves arguments from there into the frame of a Python function. A callable in C gets a pointer to
   them, and the caller gives them back after the call. Arguments that come otherwise (from a tuple, from C) have an owner in eager
   execution too: they are left alone, and so is everything if nothing would die by it. */

/* Where the arguments of a call in progress are, for the graph of its code. One whose arguments are not known hides those of outer calls. */
typedef struct Loan {
    GraphCall *graph;             /* borrowed from the code */
    Operands held;                /* of the caller: None is left there */
    PyObject **bound;             /* of call_with_bound(): NULL is left there */
    Py_ssize_t n_bound;
    struct Loan *outer;
} Loan;

/* Does the interpreter call this with operands of its current frame? */
static Operands
called_by_interpreter(Frame *frame, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    PyCodeObject *code = frame == NULL ? NULL : frame_code(frame);
    if (code == NULL || !(nargsf & PY_VECTORCALL_ARGUMENTS_OFFSET)    /* which bound methods do not pass on */
        || frame_is_monitored(frame)) {                               /* the first argument is read again after the call, to be reported */
        return (Operands){0};
    }
    return frame_operands(frame, code, args, PyVectorcall_NARGS(nargsf) + (kwnames == NULL ? 0 : PyTuple_GET_SIZE(kwnames)), kwnames);
}

static inline int
is_observed(PyThreadState *tstate)
{
    return tstate->c_tracefunc != NULL || tstate->c_profilefunc != NULL;
}

/* Begin to run an entry for a call of the function `fn`; NULL: for a frame whose caller is not known. */
static Py_NO_INLINE void
loan_push(Loan *loan, Thread *thread, Entry *entry, PyFunctionObject *fn, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    PyThreadState *tstate = PyThreadState_Get();
    *loan = (Loan){.graph = entry->releasing, .outer = thread->loans};
    if (fn != NULL && !is_observed(tstate)) {
        Operands held = called_by_interpreter(current_frame(tstate), args, nargsf, kwnames);
        if (held.callable != NULL && Py_IS_TYPE(held.callable, &Callable_Type) && ((Wrapper *)held.callable)->fn == (PyObject *)fn) {
            loan->held = held;
        }
    }
    thread->loans = loan;
}

static inline void
loan_begin(Loan *loan, Thread *thread, Entry *entry, PyFunctionObject *fn, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    if (entry->releasing != NULL) {
        loan_push(loan, thread, entry, fn, args, nargsf, kwnames);
    }
}

/* The arguments have been bound to these slots, which hold references too. */
static inline void
loan_bind(Loan *loan, Thread *thread, PyObject **slots, Py_ssize_t n)
{
    if (thread->loans == loan) {
        loan->bound = slots;
        loan->n_bound = n;
    }
}

static inline void
loan_end(Loan *loan, Thread *thread)
{
    if (thread->loans == loan) {
        thread->loans = loan->outer;
    }
}

static Py_ssize_t
times_in(PyObject *object, PyObject *const *items, Py_ssize_t n)
{
    Py_ssize_t times = 0;
    for (Py_ssize_t i = 0; i < n; i++) {
        times += items[i] == object;
    }
    return times;
}

/* How many references to the object the slots have. */
static Py_ssize_t
times_owned(PyObject *object, const Slot *slots, Py_ssize_t n)
{
    Py_ssize_t times = 0;
    for (Py_ssize_t i = 0; i < n; i++) {
        times += slot_object(slots[i]) == object && slot_owns(slots[i]);
    }
    return times;
}

static void
leave_none(Slot *slots, Py_ssize_t n)
{
    for (Py_ssize_t i = 0; i < n; i++) {
        Slot old = slots[i];
        slots[i] = SLOT_NONE;
        slot_close(old);
    }
}

/* Would something that a variable has dropped die? */
static int
is_last_holder(GraphCall *graph, Frame *frame, const Loan *loan, const Slot *given)
{
    int n_locals = frame_code(frame)->co_nlocals;
    for (int i = 0; i < graph->n_dropped; i++) {
        PyObject *value = graph->dropped[i] < n_locals ? slot_object(frame->localsplus[graph->dropped[i]]) : NULL;
        if (value == NULL) {
            return 0;
        }
        if (Py_REFCNT(value) == times_owned(value, frame->localsplus, n_locals) + times_owned(value, given, graph->n_given)
                + times_owned(value, loan->held.args, loan->held.n) + times_in(value, loan->bound, loan->n_bound)) {
            return 1;
        }
    }
    return 0;
}

/* What the call in progress lends a graph, which is called once; NULL: its own code does not call it, or for the second time. */
static const Loan *
loan_take(Thread *thread, GraphCall *graph)
{
    for (Loan **link = &thread->loans; *link != NULL; link = &(*link)->outer) {
        if ((*link)->graph == graph) {
            const Loan *loan = *link;
            *link = loan->outer;
            return loan;
        }
    }
    return NULL;
}

/* The inputs in one list, if something dies by that; else NULL, perhaps with an exception. */
static PyObject *
graph_release(Thread *thread, GraphCall *graph, PyObject *const *given, size_t nargsf)
{
    PyThreadState *tstate = PyThreadState_Get();
    Frame *frame = current_frame(tstate);
    const Loan *loan = loan_take(thread, graph);
    if (loan == NULL || is_observed(tstate)) {
        return NULL;
    }
    Operands operands = called_by_interpreter(frame, given, nargsf, NULL);
    if (operands.callable != (PyObject *)graph || operands.n != graph->n_given
        || !is_last_holder(graph, frame, loan, operands.args)) {
        return NULL;
    }
    Handover *handover = graph->n_handed == 0 ? NULL : handover_take(thread, graph);
    PyObject *inputs = handover == NULL && graph->n_handed > 0 ? NULL : PyList_New(graph->n_given + graph->n_handed);
    for (int i = 0; inputs != NULL && i < graph->n_given; i++) {
        PyList_SET_ITEM(inputs, graph->given[i], slot_steal(operands.args[i]));
        operands.args[i] = SLOT_NONE;
    }
    for (int k = 0; inputs != NULL && k < graph->n_spans; k++) {
        for (int i = graph->handed[k].first; i < graph->handed[k].first + graph->handed[k].n; i++) {
            PyList_SET_ITEM(inputs, i, Py_NewRef(handover->room[1 + i]));
        }
    }
    if (handover != NULL) {
        handover_free(handover);
    }
    if (inputs == NULL) {
        return NULL;
    }
    leave_none(loan->held.args, loan->held.n);
    for (Py_ssize_t i = 0; i < loan->n_bound; i++) {
        Py_CLEAR(loan->bound[i]);
    }
    for (int i = 0; i < graph->n_dropped; i++) {
        leave_none(&frame->localsplus[graph->dropped[i]], 1);
    }
    return inputs;
}
