/* Whether CPython evaluates frames through the hook. It is installed while any thread needs it. */

static _PyFrameEvalFunction hook_evaluator;    /* the hook: see hook.h */
static _PyFrameEvalFunction next_evaluator = _PyEval_EvalFrameDefault;
static _PyFrameEvalFunction evaluator_above;   /* somebody's evaluator that was installed over ours, or NULL */
static Py_ssize_t n_active_threads;

static void
hook_acquire(void)
{
    if (n_active_threads++ > 0) {
        return;
    }
    PyInterpreterState *interp = PyInterpreterState_Get();
    _PyFrameEvalFunction current = _PyInterpreterState_GetEvalFrameFunc(interp);
    if (current == hook_evaluator || (evaluator_above != NULL && current == evaluator_above)) {
        return;   /* already in the chain */
    }
    evaluator_above = NULL;
    next_evaluator = current;
    _PyInterpreterState_SetEvalFrameFunc(interp, hook_evaluator);
}

/* If somebody has installed an evaluator over ours, it stays in the chain and passes everything through. */
static void
hook_release(void)
{
    if (--n_active_threads > 0) {
        return;
    }
    PyInterpreterState *interp = PyInterpreterState_Get();
    _PyFrameEvalFunction current = _PyInterpreterState_GetEvalFrameFunc(interp);
    if (current == hook_evaluator) {
        _PyInterpreterState_SetEvalFrameFunc(interp, next_evaluator);
    }
    else if (current != next_evaluator) {
        evaluator_above = current;
    }
}
