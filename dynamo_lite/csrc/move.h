/* Calls that hand their arguments over.

   A C caller of a Python function holds the arguments until the function returns. Between two parts of one function that
   shows: what the second part drops would live on, and weak references, finalizers and reference counts would tell. So the
   array of arguments is emptied when the function's frame has begun, and owns its references: the one place where a frame
   begins is the frame evaluator, which is installed for that moment if it is not there anyway. */

typedef struct Move {
    PyObject *function;           /* borrowed */
    PyObject **items;
    Py_ssize_t n;
    char has_hook;                /* the evaluator is installed for this call */
} Move;

typedef struct TailCall {
    PyObject_VAR_HEAD
    Cache *cache;                 /* NULL: the function runs eagerly */
    PyFunctionObject *function;
    PyObject *kwnames;            /* of the last items; or NULL */
    PyObject *items[1];
} TailCall;

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

/* Call a Python function with n arguments whose references are taken from `items`. */
static PyObject *
call_moving(Thread *thread, PyObject *function, PyObject **items, Py_ssize_t n, PyObject *kwnames)
{
    Move move = {function, items, n, thread->region == NULL};
    if (move.has_hook) {
        hook_acquire();
    }
    thread->move = &move;
    size_t positional = (size_t)(n - (kwnames == NULL ? 0 : PyTuple_GET_SIZE(kwnames)));
    PyObject *result = ((PyFunctionObject *)function)->vectorcall(function, items, positional, kwnames);
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
        return call_moving(thread, (PyObject *)function, tail->items, Py_SIZE(tail), NULL);
    }
    return function->vectorcall((PyObject *)function, args, nargsf, kwnames);
}
