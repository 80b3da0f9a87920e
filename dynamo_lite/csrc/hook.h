/* The PEP 523 hook: frames that eager code inside a compiled region pushes.

   Input:  a frame that has not started. Output: its result, by the code of an entry in place of its own, or as it is. */

static inline PyObject *
run_frame(PyThreadState *tstate, Frame *frame, int throwflag)
{
    REFUND_C_RECURSION(tstate);
    PyObject *result = next_evaluator(tstate, frame, throwflag);
    CHARGE_C_RECURSION(tstate);
    return result;
}

static PyObject *
run_frame_without_region(Thread *thread, PyThreadState *tstate, Frame *frame, int throwflag)
{
    Region *previous = swap_region(thread, NULL);
    PyObject *result = run_frame(tstate, frame, throwflag);
    restore_region(thread, previous);
    return result;
}

/* With an evaluator installed every Python call uses the C stack. Where little of it is left, the evaluator is taken out for
   the time of a frame and all that it calls: then Python's calls need none. Frames of other threads are missed meanwhile. */
enum { SHORT_STACK_RECURSION = 1000, C_STACK_OF_A_C_CALL = 1024 };

static PyObject *
run_frame_on_short_stack(Thread *thread, PyThreadState *tstate, Frame *frame, int throwflag)
{
    Region *previous = swap_region(thread, NULL);
    PyInterpreterState *interp = PyInterpreterState_Get();
    if (_PyInterpreterState_GetEvalFrameFunc(interp) == hook_evaluator) {
        _PyInterpreterState_SetEvalFrameFunc(interp, next_evaluator);
    }
#ifdef C_RECURSION_REMAINING
    /* What the hook has paid back is used up all the same: C code may not go as deep from here as from the start, and in a thread with a
       small stack no deeper than what is left allows. */
    int remaining = *C_RECURSION_REMAINING(tstate);
    int fits = (int)Py_MIN(c_stack_left() / C_STACK_OF_A_C_CALL, (size_t)SHORT_STACK_RECURSION);
    int allowed = Py_MIN(remaining, fits);
    *C_RECURSION_REMAINING(tstate) = allowed;
    PyObject *result = next_evaluator(tstate, frame, throwflag);
    *C_RECURSION_REMAINING(tstate) += remaining - allowed;
#else
    PyObject *result = next_evaluator(tstate, frame, throwflag);
#endif
    if (n_active_threads > 0 && _PyInterpreterState_GetEvalFrameFunc(interp) == next_evaluator) {
        _PyInterpreterState_SetEvalFrameFunc(interp, hook_evaluator);
    }
    restore_region(thread, previous);
    return result;
}

/* Run `code` instead of the frame's own code. Arguments stay where they are: they are the prefix of the local slots. */
static PyObject *
run_replaced(PyThreadState *tstate, Frame *frame, PyCodeObject *code)
{
    PyCodeObject *original = frame_code(frame);
    /* A frame that starts is the top of the stack. Its size cannot be read off its code: the analysis of this very call may
       have raised the code's frame size since the frame was pushed. */
    Py_ssize_t pushed = tstate->datastack_top - (PyObject **)frame;
    Py_ssize_t grow = code_frame_size(code) - pushed;
    if (grow > 0) {
        if (grow >= tstate->datastack_limit - tstate->datastack_top) {
            return run_frame(tstate, frame, 0);   /* no room; cache_add() has seen to it that this is rare */
        }
        tstate->datastack_top += grow;
    }
    for (int i = original->co_nlocalsplus; i < code->co_nlocalsplus; i++) {
        frame->localsplus[i] = SLOT_NULL;
    }
    frame_replace_code(frame, (PyCodeObject *)Py_NewRef(code));
    return run_frame(tstate, frame, 0);
}

/* Is this the start of an ordinary function? */
static int
frame_is_eligible(Frame *frame, PyCodeObject *code, int throwflag)
{
    return code != NULL && !throwflag && frame->owner == FRAME_OWNED_BY_THREAD
        && (code->co_flags & (CO_OPTIMIZED | CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR)) == CO_OPTIMIZED
        && PyFunction_Check(frame_function(frame))
        && ((PyFunctionObject *)frame_function(frame))->func_code == (PyObject *)code;
}

/* It stands alone because of the room that it takes on the C stack. */
static Py_NO_INLINE Entry *
frame_resolve(Thread *thread, Cache *cache, PyFunctionObject *fn, Frame *frame, Handover **handover)
{
    PyObject *few[FEW_SLOTS], **room = few;
    if (cache->n_bound > FEW_SLOTS && (room = PyMem_New(PyObject *, cache->n_bound)) == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    Entry *entry = cache_resolve(thread, cache, fn, frame_arguments(frame, cache->n_bound, room), cache->n_bound, handover);
    if (room != few) {
        PyMem_Free(room);
    }
    return entry;
}

static PyObject *
hook(PyThreadState *tstate, Frame *frame, int throwflag)
{
    Thread *thread = this_thread();
    if (thread->move != NULL && thread->move->function == frame_function(frame)) {
        move_finish(thread);
    }
    if (c_stack_is_short()) {
        return run_frame_on_short_stack(thread, tstate, frame, throwflag);
    }
    Region *region = thread->region;
    if (region == NULL) {
        return run_frame(tstate, frame, throwflag);
    }
    /* Under a tracer nothing is captured, and 3.12+ reports other events where it cannot inline because of an evaluator. Nor is code
       that the interpreter calls with tracing off: tracers, profilers and audit hooks are no part of the program. */
    if (tstate->c_tracefunc != NULL || tstate->tracing) {
        return run_frame_without_region(thread, tstate, frame, throwflag);
    }
    PyCodeObject *code = frame_code(frame);
    if (thread->pass != NULL && thread->pass == code) {
        thread->pass = NULL;
        return run_frame(tstate, frame, throwflag);
    }
    if (!frame_is_eligible(frame, code, throwflag)) {
        return run_frame(tstate, frame, throwflag);
    }
    void *extra = code_extra(code);
    if (extra == &generated_code) {
        return run_frame(tstate, frame, 0);
    }
    Cache *cache = cache_find(extra, region);
    if (cache == NULL && (cache = cache_get(code, region)) == NULL) {
        PyErr_Clear();   /* out of memory */
        return run_frame(tstate, frame, 0);
    }
    if (cache->state == STATE_SKIP) {
        return run_frame(tstate, frame, 0);
    }
    if (cache->state == STATE_SKIP_ALL) {
        return run_frame_without_region(thread, tstate, frame, 0);
    }
    PyFunctionObject *fn = (PyFunctionObject *)frame_function(frame);
    Py_INCREF(cache);
    Handover *handover = NULL;
    Entry *entry = frame_resolve(thread, cache, fn, frame, &handover);
    int state = cache->state;   /* the callback may just have set it */
    Py_DECREF(cache);
    if (entry == NULL) {
        if (PyErr_Occurred()) {
            frame_abandon(tstate, frame);
            return NULL;
        }
        return runs_alone(state) ? run_frame_without_region(thread, tstate, frame, 0) : run_frame(tstate, frame, 0);
    }
    PyCodeObject *replacement = (PyCodeObject *)Py_NewRef(entry->code);
    Loan loan;
    loan_begin(&loan, thread, entry, NULL, NULL, 0, NULL);
    Py_DECREF(entry);
    PyObject *ended = call_observer == NULL ? NULL
        : observe_begin(call_observer, (PyObject *)fn, code->co_argcount > 0 ? slot_object(frame->localsplus[0]) : NULL);
    handover_push(thread, handover);
    PyObject *result = run_replaced(tstate, frame, replacement);
    handover_drop(thread, handover);
    loan_end(&loan, thread);
    Py_DECREF(replacement);
    if (result != NULL && Py_IS_TYPE(result, &TailCall_Type)) {
        frame_forget_locals(frame);
    }
    result = finish_tail_calls(thread, result);
    if (ended != NULL) {
        observe_end(ended);
    }
    return result;
}
