/* Frames and code objects of CPython: all access to their fields that differs between versions. */

#if PY_VERSION_HEX >= 0x030C0000
#  define CODE_EXTRA_INDEX PyUnstable_Eval_RequestCodeExtraIndex
#  define CODE_GET_EXTRA PyUnstable_Code_GetExtra
#  define CODE_SET_EXTRA PyUnstable_Code_SetExtra
#else
#  define CODE_EXTRA_INDEX _PyEval_RequestCodeExtraIndex
#  define CODE_GET_EXTRA _PyCode_GetExtra
#  define CODE_SET_EXTRA _PyCode_SetExtra
#endif

#if HAVE_HOOK

typedef _PyInterpreterFrame Frame;

/* The frame's code, or NULL if it executes something else. */
static inline PyCodeObject *
frame_code(Frame *frame)
{
#if PY_VERSION_HEX >= 0x030D0000
    return PyCode_Check(frame->f_executable) ? (PyCodeObject *)frame->f_executable : NULL;
#else
    return frame->f_code;
#endif
}

static inline PyObject *
frame_function(Frame *frame)
{
#if PY_VERSION_HEX >= 0x030C0000
    return frame->f_funcobj;
#else
    return (PyObject *)frame->f_func;
#endif
}

static inline Frame *
current_frame(PyThreadState *tstate)
{
#if PY_VERSION_HEX >= 0x030D0000
    return tstate->current_frame;
#else
    return tstate->cframe->current_frame;
#endif
}

/* The operand of the instruction that the frame executes, as far as it fits in one byte. */
static inline int
frame_oparg(Frame *frame)
{
#if PY_VERSION_HEX >= 0x030D0000
    return frame->instr_ptr->op.arg;
#elif PY_VERSION_HEX >= 0x030C0000
    return frame->prev_instr->op.arg;
#else
    return _Py_OPARG(*frame->prev_instr);
#endif
}

/* Is what the frame executes reported to a tool? */
static inline int
frame_is_monitored(Frame *frame)
{
#if PY_VERSION_HEX >= 0x030D0000
    return frame->instr_ptr->op.code >= MIN_INSTRUMENTED_OPCODE;
#elif PY_VERSION_HEX >= 0x030C0000
    return frame->prev_instr->op.code >= MIN_INSTRUMENTED_OPCODE;
#else
    (void)frame;   /* see is_observed() */
    return 0;
#endif
}

/* Give a frame that has not started yet another code object (whose reference is stolen). */
static inline void
frame_replace_code(Frame *frame, PyCodeObject *code)
{
    PyCodeObject *old = frame_code(frame);
#if PY_VERSION_HEX >= 0x030D0000
    frame->f_executable = (PyObject *)code;
    frame->instr_ptr = _PyCode_CODE(code);
#else
    frame->f_code = code;
    frame->prev_instr = _PyCode_CODE(code) - 1;
#endif
    Py_DECREF(old);
}

/* Slots that a frame of this code takes on the data stack. */
static inline Py_ssize_t
code_frame_size(PyCodeObject *code)
{
#if PY_VERSION_HEX >= 0x030C0000
    return code->co_framesize;
#else
    return code->co_nlocalsplus + code->co_stacksize + FRAME_SPECIALS_SIZE;
#endif
}

/* Make future frames of `code` at least `size` slots big, so that a bigger replacement always finds room. Without this,
   a call site that happens to lie at the end of a data stack chunk would never run compiled code. */
static void
code_raise_frame_size(PyCodeObject *code, Py_ssize_t size)
{
    Py_ssize_t lacking = size - code_frame_size(code);
    if (lacking > 0) {
#if PY_VERSION_HEX >= 0x030C0000
        code->co_framesize += (int)lacking;
#else
        code->co_stacksize += (int)lacking;
#endif
    }
}

#if PY_VERSION_HEX >= 0x030D0000
extern void _PyEval_FrameClearAndPop(PyThreadState *, _PyInterpreterFrame *);
#endif

/* Dispose of a frame that will not be evaluated. */
static void
frame_abandon(PyThreadState *tstate, Frame *frame)
{
#if PY_VERSION_HEX >= 0x030D0000
    _PyEval_FrameClearAndPop(tstate, frame);
#elif PY_VERSION_HEX >= 0x030C0000
    /* Nothing is exported for this: clear the frame, then give its room on the data stack back. */
    for (int i = 0; i < frame->stacktop; i++) {
        Py_XDECREF(frame->localsplus[i]);
    }
    Py_XDECREF(frame->f_locals);
    Py_DECREF(frame->f_funcobj);
    Py_DECREF(frame->f_code);
    _PyStackChunk *chunk = tstate->datastack_chunk;
    if ((PyObject **)frame != &chunk->data[0]) {
        tstate->datastack_top = (PyObject **)frame;
        return;
    }
    _PyStackChunk *previous = chunk->previous;
    tstate->datastack_top = &previous->data[previous->top];
    tstate->datastack_chunk = previous;
    tstate->datastack_limit = (PyObject **)((char *)previous + previous->size);
    PyObjectArenaAllocator allocator;
    PyObject_GetArenaAllocator(&allocator);
    allocator.free(allocator.ctx, chunk, chunk->size);
#else
    (void)tstate, (void)frame;   /* 3.11: the caller of the evaluator clears and pops */
#endif
}

/* After its evaluation: what goes on for it must not find its locals alive. */
static inline void
frame_forget_locals(Frame *frame)
{
#if PY_VERSION_HEX >= 0x030C0000
    (void)frame;   /* the evaluator has popped it */
#else
    for (int i = 0; frame->frame_obj == NULL && i < frame->stacktop; i++) {
        Py_CLEAR(frame->localsplus[i]);
    }
#endif
}

/* 3.12 and 3.13 count C recursion (up to 1500 and 10000), and a call through a frame evaluator costs two units, which would
   limit Python's recursion to half of that. Python's own limit still holds, and the hook looks at the stack itself. */
#if PY_VERSION_HEX >= 0x030C0000
#  define REFUND_C_RECURSION(tstate) ((tstate)->c_recursion_remaining += 2)
#  define CHARGE_C_RECURSION(tstate) ((tstate)->c_recursion_remaining -= 2)
#  define C_RECURSION_REMAINING(tstate) (&(tstate)->c_recursion_remaining)
#else
#  define REFUND_C_RECURSION(tstate) ((void)0)
#  define CHARGE_C_RECURSION(tstate) ((void)0)
#endif

#endif /* HAVE_HOOK */
