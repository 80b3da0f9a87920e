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

typedef _PyInterpreterFrame Frame;

/* A local variable or an operand of a frame. From 3.14 on it may borrow its reference from another one that lives longer. */
#if PY_VERSION_HEX >= 0x030E0000
typedef _PyStackRef Slot;
#  define SLOT_NULL PyStackRef_NULL
#  define SLOT_NONE PyStackRef_None
#  define slot_owns(slot) PyStackRef_RefcountOnObject(slot)
#  define slot_close PyStackRef_XCLOSE
#  define slot_steal PyStackRef_AsPyObjectSteal   /* a new reference if the slot has none of its own */

/* Borrowed; NULL if there is nothing. */
static inline PyObject *
slot_object(Slot slot)
{
    return PyStackRef_IsNullOrInt(slot) ? NULL : PyStackRef_AsPyObjectBorrow(slot);
}
#else
typedef PyObject *Slot;
#  define SLOT_NULL NULL
#  define SLOT_NONE Py_NewRef(Py_None)
#  define slot_owns(slot) 1
#  define slot_close Py_XDECREF
#  define slot_steal(slot) (slot)
#  define slot_object(slot) (slot)
#endif

/* The frame's code, or NULL if it executes something else. */
static inline PyCodeObject *
frame_code(Frame *frame)
{
#if PY_VERSION_HEX >= 0x030E0000
    PyObject *executable = slot_object(frame->f_executable);
    return executable != NULL && PyCode_Check(executable) ? (PyCodeObject *)executable : NULL;
#elif PY_VERSION_HEX >= 0x030D0000
    return PyCode_Check(frame->f_executable) ? (PyCodeObject *)frame->f_executable : NULL;
#else
    return frame->f_code;
#endif
}

static inline PyObject *
frame_function(Frame *frame)
{
#if PY_VERSION_HEX >= 0x030E0000
    return slot_object(frame->f_funcobj);
#elif PY_VERSION_HEX >= 0x030C0000
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
#if PY_VERSION_HEX >= 0x030E0000
    Slot old = frame->f_executable;
    frame->f_executable = PyStackRef_FromPyObjectSteal((PyObject *)code);
    frame->instr_ptr = _PyCode_CODE(code);
    frame->stackpointer = frame->localsplus + code->co_nlocalsplus;
    slot_close(old);
#else
    PyCodeObject *old = frame_code(frame);
#  if PY_VERSION_HEX >= 0x030D0000
    frame->f_executable = (PyObject *)code;
    frame->instr_ptr = _PyCode_CODE(code);
#  else
    frame->f_code = code;
    frame->prev_instr = _PyCode_CODE(code) - 1;
#  endif
    frame->stacktop = code->co_nlocalsplus;
    Py_DECREF(old);
#endif
}

/* The arguments of a frame that has not started, borrowed; in `room`, which has place for one or more, where slots are not plain pointers. */
static inline PyObject *const *
frame_arguments(Frame *frame, Py_ssize_t n, PyObject **room)
{
#if PY_VERSION_HEX >= 0x030E0000
    room[0] = NULL;
    for (Py_ssize_t i = 0; i < n; i++) {
        room[i] = slot_object(frame->localsplus[i]);
    }
    return room;
#else
    (void)n, (void)room;
    return frame->localsplus;
#endif
}

/* The operands of the call that a frame makes, if it calls a C function with these arguments. */
typedef struct {
    PyObject *callable;           /* borrowed; NULL: somebody else makes the call, or nothing is known about it */
    Slot *args;                   /* they are given back after the call, as they are found then */
    Py_ssize_t n;
} Operands;

#if PY_VERSION_HEX >= 0x030E0000

/* CALL has callable, NULL or self, arguments, and CALL_KW their names on top. C functions get an array of their own, in which self comes
   first. Self is given back as it was before the call, so that it is not among the operands here. */
static Operands
frame_operands(Frame *frame, PyCodeObject *code, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    int oparg = frame->instr_ptr->op.arg, n_self = (int)n - oparg;
    Slot *top = frame->stackpointer - (kwnames != NULL), *first = top - oparg;
    if ((n_self & ~1) != 0 || first - 2 < frame->localsplus + code->co_nlocalsplus
        || (kwnames != NULL && slot_object(*top) != kwnames) || (slot_object(first[-1]) != NULL) != n_self) {
        return (Operands){0};
    }
    for (int i = -n_self; i < oparg; i++) {
        if (slot_object(first[i]) != args[n_self + i]) {
            return (Operands){0};
        }
    }
    return (Operands){slot_object(first[-2]), first, oparg};
}

#else

/* CALL has, the arguments last: up to 3.12 NULL, callable, or callable, self; 3.13 callable, NULL, or callable, self. Its C functions get
   a pointer to self, if there is one, else to the argument behind. They may pass on a part of this array; but then it is not as long as
   the instruction says, or does not begin behind the callable, which is found there. */
static Operands
frame_operands(Frame *frame, PyCodeObject *code, PyObject *const *args, Py_ssize_t n, PyObject *Py_UNUSED(kwnames))
{
    PyObject *const *first = frame->localsplus + code->co_nlocalsplus, *const *end = first + code->co_stacksize;
    if ((uintptr_t)args < (uintptr_t)(first + 1) || (uintptr_t)(args + n) > (uintptr_t)end) {
        return (Operands){0};
    }
    enum { CALLABLE = PY_VERSION_HEX >= 0x030D0000 ? -2 : -1 };
#  if PY_VERSION_HEX >= 0x030D0000
    int oparg = frame->instr_ptr->op.arg;
#  elif PY_VERSION_HEX >= 0x030C0000
    int oparg = frame->prev_instr->op.arg;
#  else
    int oparg = _Py_OPARG(*frame->prev_instr);
#  endif
    PyObject *callable = n == oparg + 1 ? args[-1]
        : n == oparg && args > first + 1 && args[-3 - CALLABLE] == NULL ? args[CALLABLE] : NULL;
    return (Operands){callable, (Slot *)args, n};
}

#endif

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
   limit Python's recursion to half of that. Python's own limit still holds, and the hook looks at the stack itself. (3.14 looks at it too.) */
#if PY_VERSION_HEX >= 0x030C0000 && PY_VERSION_HEX < 0x030E0000
#  define REFUND_C_RECURSION(tstate) ((tstate)->c_recursion_remaining += 2)
#  define CHARGE_C_RECURSION(tstate) ((tstate)->c_recursion_remaining -= 2)
#  define C_RECURSION_REMAINING(tstate) (&(tstate)->c_recursion_remaining)
#else
#  define REFUND_C_RECURSION(tstate) ((void)0)
#  define CHARGE_C_RECURSION(tstate) ((void)0)
#endif
