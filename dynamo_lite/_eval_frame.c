/* The door between CPython and dynamo_lite.

   Callable     what optimize(fn) returns: checks the guards of the cached entries on the bare arguments and runs the
                matching code as a plain Python function. Needs no interpreter internals.
   the hook     a PEP 523 frame evaluator, for Python functions that are called from eager code inside a compiled region.
                It swaps the code of the frame in place. Installed only while some thread has an active region.
   Cache        the compiled entries of one code object in one region.
   Entry        one of them: guards and replacement code.
   Region       one optimize() context: owns its caches, names the callback that compiles on a miss.
   GuardProgram the guards of an entry: see _guards.h.
   GraphCall    calls a compiled graph from replacement code, with what the guards have found: see _graph.h.
   Uncaptured   calls a function with this thread's region switched off.
   TailCall     what generated code returns to go on in a resume function: see _move.h.

   Ownership: Callable -> Cache <-> Region, Cache -> Entry -> GuardProgram; all are GC-tracked. A code object only borrows
   its caches, through co_extra: references stored there would be invisible to the collector and leak.

   This is the one C file of the package. The headers are parts of it, each built on those before: _tensor.h (metadata of
   tensors), _program.h (data structures of guards), _evaluate.h, _record.h (the fast path), _guards.h, _graph.h,
   _move.h.

   Being wrong is not an option, being absent is: whenever something is unusual (a tracer, no room on the data stack,
   arguments that do not bind), the original code runs. */

#define _GNU_SOURCE 1              /* pthread_getattr_np */
#define Py_BUILD_CORE_MODULE 1
#include <Python.h>
#include <internal/pycore_dict.h>

#if PY_VERSION_HEX >= 0x030B0000 && PY_VERSION_HEX < 0x030E0000
#  define HAVE_HOOK 1
#  include <internal/pycore_frame.h>
#else
#  define HAVE_HOOK 0
#endif

#include <structmember.h>
#ifdef __linux__
#  include <pthread.h>
#endif
#ifndef _WIN32
#  include <dlfcn.h>
#endif

#include "_tensor.h"
#include "_program.h"
#include "_evaluate.h"
#include "_record.h"
#include "_guards.h"

/* ------------------------------------------------------------------------------------------------------------------
   CPython versions. All access to fields of frames and thread states that differ between versions is here. */

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

/* ------------------------------------------------------------------------------------------------------------------
   Object layouts. */

typedef struct Region {
    PyObject_HEAD
    PyObject *callback;     /* a subclass may define a method of that name instead */
    PyObject *caches;       /* list: owns the caches */
    PyObject *weakrefs;
} Region;

typedef struct Entry {
    PyObject_HEAD
    GuardProgram *guards;
    PyCodeObject *code;
    PyObject *owner;              /* the Python side's record */
    PyObject *strict;             /* NULL, or called after each evaluation to compare its result with another one */
    PyObject *globals;            /* the entry holds for functions with these globals; NULL: any */
    PyFunctionObject *function;   /* the code as a function, kept between calls; never with a closure */
    Py_ssize_t hits;
    char needs_hook;
} Entry;

enum CacheState { STATE_COMPILE, STATE_SKIP, STATE_RUN_ONLY, STATE_SKIP_ALL };

typedef struct Cache {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyCodeObject *code;
    Region *region;
    Entry **entries;              /* most recently hit first */
    Py_ssize_t n_entries, allocated;
    Entry **predicted;            /* N_PREDICTED entries by hash of arguments, borrowed; NULL: not made yet */
    struct Cache *next;           /* of the same code object, in another region; borrowed */
    PyObject *kwonly_names;       /* tuple */
    int n_bound;                  /* slots that arguments take */
    int state;
    char simple;                  /* only positional parameters */
} Cache;

/* Callable and Uncaptured. */
typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *fn;
    Cache *cache;                 /* NULL: Uncaptured */
    PyObject *wrapped;            /* NULL: fn */
    PyObject *dict;
    PyObject *weakrefs;
} Wrapper;

static PyTypeObject Region_Type, Entry_Type, Cache_Type, Callable_Type, Uncaptured_Type;
static PyObject *s_callback;

/* ------------------------------------------------------------------------------------------------------------------
   Per thread: the active region. The evaluator is interpreter-wide, so it is installed while any thread has one. */

typedef struct {
    Region *region;               /* owned; NULL: frames on this thread are left alone */
    PyCodeObject *pass;           /* the next frame of this code is to run as it is */
    int in_callback;              /* compiling: optimized functions called meanwhile run as they are */
    uintptr_t stack_floor;        /* below this address the C stack is running short; 0: not known yet */
    Handover *handovers;          /* those of calls in progress that were not taken yet, innermost first */
    struct TailCall *tail;        /* about to be run: its arguments are to be handed over */
    struct Move *move;            /* a call whose arguments are released when its frame begins */
} Thread;

static _Thread_local Thread thread_storage;

/* Looking this up costs a function call in a shared library, so it is done once per call and handed down. */
static inline Thread *
this_thread(void)
{
    return &thread_storage;
}

static void hook_acquire(void);
static void hook_release(void);

/* Make `region` (stolen, may be NULL) the thread's active region; return the previous one (owned, may be NULL). */
static Region *
swap_region(Thread *thread, Region *region)
{
    Region *previous = thread->region;
    thread->region = region;
    if (region != NULL && previous == NULL) {
        hook_acquire();
    }
    else if (region == NULL && previous != NULL) {
        hook_release();
    }
    return previous;
}

static void
restore_region(Thread *thread, Region *previous)
{
    Py_XDECREF(swap_region(thread, previous));
}

#include "_graph.h"

/* ------------------------------------------------------------------------------------------------------------------
   Code objects and their caches. co_extra holds the head of a list of caches, or &generated_code. */

static Py_ssize_t extra_index;
static char generated_code;       /* its address marks replacement code: the hook never offers it */

static void *
code_extra(PyCodeObject *code)
{
    void *extra = NULL;
    if (CODE_GET_EXTRA((PyObject *)code, extra_index, &extra) < 0) {
        PyErr_Clear();
    }
    return extra;
}

static Cache *
code_caches(PyCodeObject *code)
{
    void *extra = code_extra(code);
    return extra == &generated_code ? NULL : extra;
}

static void
cache_unlink(Cache *cache)
{
    Cache *head = code_caches(cache->code);
    if (head == cache) {
        (void)CODE_SET_EXTRA((PyObject *)cache->code, extra_index, cache->next);   /* the slot exists: cannot fail */
        return;
    }
    for (; head != NULL; head = head->next) {
        if (head->next == cache) {
            head->next = cache->next;
            return;
        }
    }
}

/* The cache of `region` in such a list (borrowed), or NULL. */
static Cache *
cache_find(Cache *cache, Region *region)
{
    while (cache != NULL && cache->region != region) {
        cache = cache->next;
    }
    return cache;
}

static PyObject *cache_vectorcall(Cache *, PyObject *const *, size_t, PyObject *);

/* The cache of `code` in `region`, made on demand; NULL with an exception. Borrowed from the region. */
static Cache *
cache_get(PyCodeObject *code, Region *region)
{
    Cache *cache = cache_find(code_caches(code), region);
    if (cache != NULL) {
        return cache;
    }
    if (region->caches == NULL && (region->caches = PyList_New(0)) == NULL) {
        return NULL;
    }
    cache = PyObject_GC_New(Cache, &Cache_Type);
    if (cache == NULL) {
        return NULL;
    }
    int varargs = (code->co_flags & CO_VARARGS) != 0, varkeywords = (code->co_flags & CO_VARKEYWORDS) != 0;
    cache->vectorcall = (vectorcallfunc)cache_vectorcall;
    cache->code = (PyCodeObject *)Py_NewRef(code);
    cache->region = (Region *)Py_NewRef(region);
    cache->entries = NULL;
    cache->n_entries = cache->allocated = 0;
    cache->predicted = NULL;
    cache->next = code_caches(code);
    cache->n_bound = code->co_argcount + code->co_kwonlyargcount + varargs + varkeywords;
    cache->state = STATE_COMPILE;
    cache->simple = cache->n_bound == code->co_argcount;
    cache->kwonly_names = PyTuple_GetSlice(code->co_localsplusnames, code->co_argcount,
                                           code->co_argcount + code->co_kwonlyargcount);
    PyObject_GC_Track(cache);
    if (cache->kwonly_names == NULL || CODE_SET_EXTRA((PyObject *)code, extra_index, cache) < 0) {
        Py_DECREF(cache);
        return NULL;
    }
    int appended = PyList_Append(region->caches, (PyObject *)cache);
    Py_DECREF(cache);
    return appended < 0 ? NULL : cache;
}

/* ------------------------------------------------------------------------------------------------------------------
   Entry. */

static PyObject *
entry_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"guards", "code", "owner", "needs_hook", "strict", NULL};
    PyObject *guards, *code, *owner, *strict = Py_None;
    int needs_hook = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O!O|pO:Entry", names, &GuardProgram_Type, &guards,
                                     &PyCode_Type, &code, &owner, &needs_hook, &strict)) {
        return NULL;
    }
    Entry *entry = (Entry *)type->tp_alloc(type, 0);
    if (entry != NULL) {
        entry->guards = (GuardProgram *)Py_NewRef(guards);
        entry->code = (PyCodeObject *)Py_NewRef(code);
        entry->owner = Py_NewRef(owner);
        entry->needs_hook = (char)needs_hook;
        entry->strict = strict == Py_None ? NULL : Py_NewRef(strict);
    }
    return (PyObject *)entry;
}

/* Code objects are not GC-tracked, so a cycle through the constants of replacement code (compiled graphs, caches) would
   never be found. As long as nobody but this entry refers to the code, the constants are the entry's own. */
static int
entry_owns_code(Entry *entry)
{
    Py_ssize_t own = 1;
    if (entry->function != NULL) {
        if (Py_REFCNT(entry->function) != 1 || entry->function->func_code != (PyObject *)entry->code) {
            return 0;
        }
        own = 2;
    }
    return entry->code != NULL && Py_REFCNT(entry->code) == own;
}

static int
entry_traverse(Entry *entry, visitproc visit, void *arg)
{
    Py_VISIT(entry->guards);
    Py_VISIT(entry->owner);
    Py_VISIT(entry->strict);
    Py_VISIT(entry->globals);
    Py_VISIT(entry->function);
    if (entry_owns_code(entry)) {
        Py_VISIT(entry->code->co_consts);
    }
    return 0;
}

/* Leaves guards and code, which calls in progress may be using; neither is part of a cycle once the rest is gone. */
static int
entry_clear(Entry *entry)
{
    Py_CLEAR(entry->owner);
    Py_CLEAR(entry->strict);
    Py_CLEAR(entry->globals);
    Py_CLEAR(entry->function);
    return 0;
}

static void
entry_dealloc(Entry *entry)
{
    PyObject_GC_UnTrack(entry);
    entry_clear(entry);
    Py_CLEAR(entry->guards);
    Py_CLEAR(entry->code);
    Py_TYPE(entry)->tp_free(entry);
}

static PyMemberDef entry_members[] = {
    {"guards", T_OBJECT, offsetof(Entry, guards), READONLY},
    {"code", T_OBJECT, offsetof(Entry, code), READONLY},
    {"owner", T_OBJECT, offsetof(Entry, owner), 0},
    {"strict", T_OBJECT, offsetof(Entry, strict), READONLY},
    {"globals", T_OBJECT, offsetof(Entry, globals), READONLY},
    {"hits", T_PYSSIZET, offsetof(Entry, hits), 0},
    {"needs_hook", T_BOOL, offsetof(Entry, needs_hook), READONLY},
    {NULL}
};

static PyTypeObject Entry_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "dynamo_lite._eval_frame.Entry",
    .tp_doc = "Entry(guards, code, owner, needs_hook=False, strict=None)\n--\n\nOne compiled version of a code object. "
              "strict(locals, closure, failed), where failed\nis None or the index of the guard that failed, is called after "
              "each evaluation.",
    .tp_basicsize = sizeof(Entry),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = entry_new,
    .tp_dealloc = (destructor)entry_dealloc,
    .tp_traverse = (traverseproc)entry_traverse,
    .tp_clear = (inquiry)entry_clear,
    .tp_members = entry_members,
};

/* The entry's code as a function with the globals, builtins and closure of `fn`. New reference. Without free variables
   one function object serves all calls, recursive ones too; otherwise it is taken out of the entry during the call. */
static PyFunctionObject *
entry_take_function(Entry *entry, PyFunctionObject *fn)
{
    PyFunctionObject *function = entry->function;
    int shared = entry->code->co_nfreevars == 0;
    if (function == NULL || function->func_globals != fn->func_globals) {
        function = (PyFunctionObject *)PyFunction_New((PyObject *)entry->code, fn->func_globals);
        if (function == NULL) {
            return NULL;
        }
        Py_XSETREF(function->func_builtins, Py_NewRef(fn->func_builtins));
        if (shared) {
            Py_XSETREF(entry->function, (PyFunctionObject *)Py_NewRef(function));
        }
    }
    else if (shared) {
        Py_INCREF(function);
    }
    else {
        entry->function = NULL;
    }
    if (!shared) {
        function->func_closure = Py_XNewRef(fn->func_closure);
    }
    return function;
}

/* After the call. A function with free variables is kept for the next call, but without its closure: the cells must not
   live longer than the user's function. Not if a frame object or traceback still refers to it. */
static void
entry_return_function(Entry *entry, PyFunctionObject *function)
{
    if (entry->code->co_nfreevars > 0 && Py_REFCNT(function) == 1) {
        Py_CLEAR(function->func_closure);
        if (entry->function == NULL) {
            entry->function = function;
            return;
        }
    }
    Py_DECREF(function);
}

/* ------------------------------------------------------------------------------------------------------------------
   Cache. */

/* Can `code` replace `original`, in place and as a function? NULL if so, else what differs. The arguments are the prefix
   of both frames' local slots, and the closure is shared, so a mismatch would be a crash. */
static const char *
replacement_mismatch(PyCodeObject *original, PyCodeObject *code)
{
    const int optimized = CO_OPTIMIZED | CO_NEWLOCALS;
    const int generator = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR;
    const int shape = CO_VARARGS | CO_VARKEYWORDS;
    if ((code->co_flags & optimized) != optimized || (code->co_flags & generator)) {
        return "it must be an ordinary function's code";
    }
    if (code->co_argcount != original->co_argcount || code->co_kwonlyargcount != original->co_kwonlyargcount
        || (code->co_flags & shape) != (original->co_flags & shape)) {
        return "parameters differ";
    }
    for (int i = original->co_argcount; i < original->co_argcount + original->co_kwonlyargcount; i++) {
        if (PyUnicode_Compare(PyTuple_GET_ITEM(original->co_localsplusnames, i),
                              PyTuple_GET_ITEM(code->co_localsplusnames, i)) != 0) {
            return "keyword-only parameters differ";
        }
    }
    if (code->co_nfreevars == 0) {
        return NULL;
    }
    if (code->co_nfreevars != original->co_nfreevars) {
        return "free variables differ";
    }
    for (int i = 1; i <= code->co_nfreevars; i++) {
        if (PyUnicode_Compare(PyTuple_GET_ITEM(original->co_localsplusnames, original->co_nlocalsplus - i),
                              PyTuple_GET_ITEM(code->co_localsplusnames, code->co_nlocalsplus - i)) != 0) {
            return "free variables differ";
        }
    }
    return NULL;
}

static Py_ssize_t
cache_index(Cache *cache, PyObject *entry)
{
    for (Py_ssize_t i = 0; i < cache->n_entries; i++) {
        if ((PyObject *)cache->entries[i] == entry) {
            return i;
        }
    }
    return -1;
}

/* Move entry number `from` to the front. */
static void
cache_promote(Cache *cache, Py_ssize_t from)
{
    Entry *entry = cache->entries[from];
    memmove(cache->entries + 1, cache->entries, from * sizeof(Entry *));
    cache->entries[0] = entry;
}

static void
cache_forget_predictions(Cache *cache)
{
    PyMem_Free(cache->predicted);
    cache->predicted = NULL;
}

static PyObject *
cache_add(Cache *cache, PyObject *arg)
{
    if (!Py_IS_TYPE(arg, &Entry_Type)) {
        return PyErr_Format(PyExc_TypeError, "expected an Entry, not %.200s", Py_TYPE(arg)->tp_name);
    }
    Entry *entry = (Entry *)arg;
    const char *mismatch = replacement_mismatch(cache->code, entry->code);
    if (mismatch != NULL) {
        return PyErr_Format(PyExc_ValueError, "cannot replace the code of %U: %s", cache->code->co_qualname, mismatch);
    }
    if (cache->n_entries == cache->allocated) {
        Py_ssize_t room = cache->allocated < 4 ? 4 : 2 * cache->allocated;
        Entry **entries = PyMem_Resize(cache->entries, Entry *, room);
        if (entries == NULL) {
            return PyErr_NoMemory();
        }
        cache->entries = entries;
        cache->allocated = room;
    }
    if (code_extra(entry->code) == NULL
        && CODE_SET_EXTRA((PyObject *)entry->code, extra_index, &generated_code) < 0) {
        return NULL;
    }
#if HAVE_HOOK
    code_raise_frame_size(cache->code, code_frame_size(entry->code));
#endif
    cache->entries[cache->n_entries++] = (Entry *)Py_NewRef(entry);
    cache_promote(cache, cache->n_entries - 1);
    Py_RETURN_NONE;
}

static PyObject *
cache_remove(Cache *cache, PyObject *entry)
{
    Py_ssize_t i = cache_index(cache, entry);
    if (i < 0) {
        PyErr_SetString(PyExc_ValueError, "the entry is not in this cache");
        return NULL;
    }
    cache->n_entries--;
    memmove(cache->entries + i, cache->entries + i + 1, (cache->n_entries - i) * sizeof(Entry *));
    cache_forget_predictions(cache);
    Py_DECREF(entry);
    Py_RETURN_NONE;
}

static void
cache_drop_entries(Cache *cache)
{
    Entry **entries = cache->entries;
    Py_ssize_t n = cache->n_entries;
    cache->entries = NULL;
    cache->n_entries = cache->allocated = 0;
    cache_forget_predictions(cache);
    for (Py_ssize_t i = 0; i < n; i++) {
        Py_DECREF(entries[i]);
    }
    PyMem_Free(entries);
}

static PyObject *
cache_clear_method(Cache *cache, PyObject *Py_UNUSED(ignored))
{
    cache_drop_entries(cache);
    Py_RETURN_NONE;
}

static PyObject *
cache_entries(Cache *cache, void *Py_UNUSED(closure))
{
    PyObject *result = PyTuple_New(cache->n_entries);
    for (Py_ssize_t i = 0; result != NULL && i < cache->n_entries; i++) {
        PyTuple_SET_ITEM(result, i, Py_NewRef(cache->entries[i]));
    }
    return result;
}

static PyObject *
cache_get_state(Cache *cache, void *Py_UNUSED(closure))
{
    return PyLong_FromLong(cache->state);
}

static int
cache_set_state(Cache *cache, PyObject *value, void *Py_UNUSED(closure))
{
    long state = value == NULL ? -1 : PyLong_AsLong(value);
    if (state < STATE_COMPILE || state > STATE_SKIP_ALL) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_ValueError, "state must be COMPILE, SKIP, RUN_ONLY or SKIP_ALL");
        }
        return -1;
    }
    cache->state = (int)state;
    return 0;
}

static PyObject *
cache_repr(Cache *cache)
{
    return PyUnicode_FromFormat("<Cache of %U: %zd entries>", cache->code->co_qualname, cache->n_entries);
}

static int
cache_traverse(Cache *cache, visitproc visit, void *arg)
{
    Py_VISIT(cache->code);
    Py_VISIT(cache->region);
    Py_VISIT(cache->kwonly_names);
    for (Py_ssize_t i = 0; i < cache->n_entries; i++) {
        Py_VISIT(cache->entries[i]);
    }
    return 0;
}

/* Keeps the region: breaking the cycle at its list of caches and at the entries is enough, and calls need it. */
static int
cache_clear(Cache *cache)
{
    cache_drop_entries(cache);
    return 0;
}

static void
cache_dealloc(Cache *cache)
{
    PyObject_GC_UnTrack(cache);
    cache_unlink(cache);
    cache_drop_entries(cache);
    Py_XDECREF(cache->kwonly_names);
    Py_DECREF(cache->region);
    Py_DECREF(cache->code);
    PyObject_GC_Del(cache);
}

static PyMethodDef cache_methods[] = {
    {"add", (PyCFunction)cache_add, METH_O, "add(entry)\n\nTry this entry first. ValueError if its code does not fit."},
    {"remove", (PyCFunction)cache_remove, METH_O, "remove(entry)"},
    {"clear", (PyCFunction)cache_clear_method, METH_NOARGS, "Remove all entries."},
    {NULL}
};

static PyMemberDef cache_members[] = {
    {"code", T_OBJECT, offsetof(Cache, code), READONLY},
    {"region", T_OBJECT, offsetof(Cache, region), READONLY},
    {NULL}
};

static PyGetSetDef cache_getset[] = {
    {"entries", (getter)cache_entries, NULL, "tuple of entries, most recently hit first"},
    {"state", (getter)cache_get_state, (setter)cache_set_state,
     "COMPILE; SKIP: run the original, never ask; RUN_ONLY: try the entries, never ask; SKIP_ALL: run the original with "
     "the region switched off"},
    {NULL}
};

static PyTypeObject Cache_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "dynamo_lite._eval_frame.Cache",
    .tp_doc = "The compiled entries of one code object in one region; made by Region.cache_for().\n\n"
              "cache(fn, *args) calls fn, a function with this code, through the cache.",
    .tp_basicsize = sizeof(Cache),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL
              | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_vectorcall_offset = offsetof(Cache, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_repr = (reprfunc)cache_repr,
    .tp_dealloc = (destructor)cache_dealloc,
    .tp_traverse = (traverseproc)cache_traverse,
    .tp_clear = (inquiry)cache_clear,
    .tp_methods = cache_methods,
    .tp_members = cache_members,
    .tp_getset = cache_getset,
};

/* ------------------------------------------------------------------------------------------------------------------
   Region. */

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

static int
region_traverse(Region *region, visitproc visit, void *arg)
{
    Py_VISIT(region->callback);
    Py_VISIT(region->caches);
    return 0;
}

static int
region_clear(Region *region)
{
    Py_CLEAR(region->callback);
    Py_CLEAR(region->caches);
    return 0;
}

static void
region_dealloc(Region *region)
{
    PyObject_GC_UnTrack(region);
    if (region->weakrefs != NULL) {
        PyObject_ClearWeakRefs((PyObject *)region);
    }
    region_clear(region);
    Py_TYPE(region)->tp_free(region);
}

static PyMethodDef region_methods[] = {
    {"cache_for", (PyCFunction)region_cache_for, METH_O, "cache_for(code) -> Cache\n\nMade on demand."},
    {NULL}
};

static PyMemberDef region_members[] = {
    {"callback", T_OBJECT_EX, offsetof(Region, callback), 0,
     "callback(cache, fn, locals) -> Entry | None, called on a miss; None: run the original this time"},
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
    .tp_dealloc = (destructor)region_dealloc,
    .tp_traverse = (traverseproc)region_traverse,
    .tp_clear = (inquiry)region_clear,
    .tp_methods = region_methods,
    .tp_members = region_members,
    .tp_getset = region_getset,
};

static PyObject *
tuple_of(PyObject *const *items, Py_ssize_t n)
{
    PyObject *tuple = PyTuple_New(n);
    for (Py_ssize_t i = 0; tuple != NULL && i < n; i++) {
        PyTuple_SET_ITEM(tuple, i, Py_NewRef(items[i]));
    }
    return tuple;
}

/* What an analysis needs of the process, whose program must find it as it was whatever interrupts the analysis: no garbage
   collections, which would double its time, and room for recursion, since it takes several frames for one of the program.
   While any analysis runs the settings are those; the last one to end puts back what the first one found. */
static struct {
    int running, collects, program_limit;
} analyses;

enum { ANALYSIS_RECURSION_LIMIT = 20000 };

static void
analysis_begins(void)
{
    if (analyses.running++ == 0) {
        analyses.collects = PyGC_Disable();
        analyses.program_limit = Py_GetRecursionLimit();
        if (analyses.program_limit < ANALYSIS_RECURSION_LIMIT) {
            Py_SetRecursionLimit(ANALYSIS_RECURSION_LIMIT);
        }
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
    if (analyses.program_limit < ANALYSIS_RECURSION_LIMIT && Py_GetRecursionLimit() == ANALYSIS_RECURSION_LIMIT) {
        Py_SetRecursionLimit(analyses.program_limit);   /* unless another thread has set one meanwhile */
    }
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

/* ------------------------------------------------------------------------------------------------------------------
   Predictions. Most lookups hit the first entry. Where there are many, and calls alternate between them, it would take long
   to find the one that fails at nothing. So the entry that was right for some arguments is remembered under a hash of what
   can be seen of them at a glance, and tried first the next time. There are two such hashes, one with the addresses of
   objects and one without: an address may be all that tells two modules apart, or may differ from call to call. A prediction
   decides nothing: the guards of the entry do. */

enum { MANY_ENTRIES = 4, N_PREDICTED = 1024 };

typedef struct {
    uint64_t without_addresses, with_addresses;
} Hints;

static inline uint64_t
mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value ^ (value >> 32)) * 0x9E3779B97F4A7C15u;
    return hash ^ (hash >> 32);
}

/* What can be seen of a value without running Python code; 0 if that is only its type and address. */
static uint64_t
hint_of(PyObject *value)
{
    PyTypeObject *type = Py_TYPE(value);
    if (type == &PyLong_Type || type == &PyBool_Type || type == &PyFloat_Type || type == &PyUnicode_Type) {
        return (uint64_t)type->tp_hash(value) | 1u << 31;
    }
    if (type == &PyTuple_Type || type == &PyList_Type) {
        return (uint64_t)Py_SIZE(value) + 1;
    }
    int64_t dim;
    const int64_t *sizes = tensor_sizes(value, &dim);
    if (sizes == NULL) {
        return 0;
    }
    uint64_t hash = (uint64_t)dim + 1;
    for (int64_t i = 0; i < dim; i++) {
        hash = mix(hash, (uint64_t)sizes[i]);
    }
    return hash;
}

static Hints
hints_of(PyFunctionObject *fn, PyObject *const *locals, Py_ssize_t n_locals)
{
    uint64_t visible = (uintptr_t)fn->func_globals, addresses = 0;
    for (Py_ssize_t i = 0; i < n_locals; i++) {
        uint64_t hint = hint_of(locals[i]);
        visible = mix(visible, (uintptr_t)Py_TYPE(locals[i]) + hint);
        if (hint == 0) {
            addresses = mix(addresses, (uintptr_t)locals[i]);
        }
    }
    Py_ssize_t n_cells = fn->func_closure == NULL ? 0 : PyTuple_GET_SIZE(fn->func_closure);
    for (Py_ssize_t i = 0; i < n_cells; i++) {
        addresses = mix(addresses, (uintptr_t)PyCell_GET(PyTuple_GET_ITEM(fn->func_closure, i)));
    }
    return (Hints){visible, addresses == 0 ? visible : mix(visible, addresses)};
}

static inline size_t
prediction_slot(uint64_t hint)
{
    return mix(hint, 0) % N_PREDICTED;
}

/* An entry was right for such arguments. */
static void
cache_predict(Cache *cache, Hints hints, Entry *entry)
{
    if (cache->predicted == NULL && (cache->predicted = PyMem_Calloc(N_PREDICTED, sizeof(Entry *))) == NULL) {
        return;
    }
    cache->predicted[prediction_slot(hints.with_addresses)] = entry;
    cache->predicted[prediction_slot(hints.without_addresses)] = entry;
}

/* ------------------------------------------------------------------------------------------------------------------
   Looking up the entry for a call. */

/* Is this the entry for the call? Then it is the first to be tried next. YES, NO or RAISED. */
static int
cache_try(Thread *thread, Cache *cache, Entry *entry, PyFunctionObject *fn, PyObject *const *locals, Py_ssize_t n_locals,
          Handover **handover)
{
    if (entry->globals != NULL && entry->globals != fn->func_globals) {
        return NO;
    }
    int result = entry_evaluate(thread, entry, fn, locals, n_locals, handover);
    if (result != GUARDS_PASS) {
        return result == GUARDS_RAISED ? RAISED : NO;
    }
    entry->hits++;
    if (cache->n_entries > 1) {   /* guards may have changed the cache */
        Py_ssize_t i = cache_index(cache, (PyObject *)entry);
        if (i > 0) {
            cache_promote(cache, i);
        }
    }
    return YES;
}

/* The first entry whose guards hold (new reference). NULL: none, or an exception if PyErr_Occurred(). */
static Entry *
cache_lookup(Thread *thread, Cache *cache, PyFunctionObject *fn, PyObject *const *locals, Py_ssize_t n_locals,
             Handover **handover)
{
    int result = NO, predicts = cache->n_entries >= MANY_ENTRIES;
    Hints hints = {0, 0};
    if (predicts) {
        hints = hints_of(fn, locals, n_locals);
        const uint64_t hint[] = {hints.with_addresses, hints.without_addresses};
        Entry *tried = NULL;   /* only compared with */
        for (int i = 0; result == NO && i < 2 && cache->predicted != NULL; i++) {
            Entry *entry = cache->predicted[prediction_slot(hint[i])];
            if (entry != NULL && entry != tried) {
                Py_INCREF(entry);
                result = cache_try(thread, cache, entry, fn, locals, n_locals, handover);
                if (result == YES) {
                    return entry;
                }
                tried = entry;
                Py_DECREF(entry);
            }
        }
    }
    for (Py_ssize_t i = 0; result == NO && i < cache->n_entries; i++) {
        Entry *entry = (Entry *)Py_NewRef(cache->entries[i]);
        result = cache_try(thread, cache, entry, fn, locals, n_locals, handover);
        if (result == YES) {
            if (predicts && cache_index(cache, (PyObject *)entry) >= 0) {
                cache_predict(cache, hints, entry);
            }
            return entry;
        }
        Py_DECREF(entry);
    }
    return NULL;
}

/* The entry to run for these bound arguments: a hit, or what the region compiles. New reference.
   NULL: an exception if PyErr_Occurred(), else run the original. *handover, NULL before, is what to run the entry with. */
static Entry *
cache_resolve(Thread *thread, Cache *cache, PyFunctionObject *fn, PyObject *const *locals, Py_ssize_t n_locals,
              Handover **handover)
{
    Entry *entry = cache_lookup(thread, cache, fn, locals, n_locals, handover);
    if (entry != NULL || cache->state != STATE_COMPILE || PyErr_Occurred()) {
        return entry;
    }
    PyObject *answer = region_ask(thread, cache->region, cache, fn, locals, n_locals);
    if (answer == NULL || answer == Py_None) {
        Py_XDECREF(answer);
        return NULL;
    }
    entry = (Entry *)answer;
    if (entry->guards->graph != NULL
        && entry_evaluate(thread, entry, fn, locals, n_locals, handover) != GUARDS_PASS) {   /* for the handover */
        Py_CLEAR(entry);
    }
    return entry;
}

/* ------------------------------------------------------------------------------------------------------------------
   Arguments, bound to the local slots as CPython does: positional, keyword-only, the *args tuple, the **kw dict. */

enum { FEW_SLOTS = 16 };

typedef struct {
    PyObject **slots;             /* owned references; NULL: not bound yet */
    Py_ssize_t n;
    PyObject *few[FEW_SLOTS];
} Bound;

static void
bound_release(Bound *bound)
{
    for (Py_ssize_t i = 0; i < bound->n; i++) {
        Py_XDECREF(bound->slots[i]);
    }
    if (bound->slots != bound->few) {
        PyMem_Free(bound->slots);
    }
}

/* The slot of the parameter that may be given by this keyword; -1: none, -2: exception. */
static Py_ssize_t
keyword_slot(PyCodeObject *code, PyObject *keyword)
{
    Py_ssize_t total = code->co_argcount + code->co_kwonlyargcount;
    PyObject **names = ((PyTupleObject *)code->co_localsplusnames)->ob_item;
    for (Py_ssize_t i = code->co_posonlyargcount; i < total; i++) {
        if (names[i] == keyword) {
            return i;
        }
    }
    for (Py_ssize_t i = code->co_posonlyargcount; i < total; i++) {
        int equal = PyObject_RichCompareBool(keyword, names[i], Py_EQ);
        if (equal != 0) {
            return equal < 0 ? -2 : i;
        }
    }
    return -1;
}

static int
bind_keywords(PyCodeObject *code, PyObject **slots, PyObject *kwdict, PyObject *const *values, PyObject *kwnames)
{
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(kwnames); k++) {
        PyObject *keyword = PyTuple_GET_ITEM(kwnames, k);
        Py_ssize_t i = keyword_slot(code, keyword);
        if (i >= 0) {
            if (slots[i] != NULL) {
                return -1;   /* given twice */
            }
            slots[i] = Py_NewRef(values[k]);
        }
        else if (i == -2 || kwdict == NULL || PyDict_SetItem(kwdict, keyword, values[k]) < 0) {
            return -1;
        }
    }
    return 0;
}

static int
bind_defaults(PyFunctionObject *fn, PyCodeObject *code, PyObject **slots)
{
    Py_ssize_t n_defaults = fn->func_defaults == NULL ? 0 : PyTuple_GET_SIZE(fn->func_defaults);
    Py_ssize_t first = code->co_argcount - n_defaults;
    for (Py_ssize_t i = 0; i < code->co_argcount; i++) {
        if (slots[i] == NULL) {
            if (i < first) {
                return -1;
            }
            slots[i] = Py_NewRef(PyTuple_GET_ITEM(fn->func_defaults, i - first));
        }
    }
    for (Py_ssize_t i = code->co_argcount; i < code->co_argcount + code->co_kwonlyargcount; i++) {
        if (slots[i] == NULL) {
            PyObject *name = PyTuple_GET_ITEM(code->co_localsplusnames, i);
            PyObject *value = fn->func_kwdefaults == NULL ? NULL
                : PyDict_GetItemWithError(fn->func_kwdefaults, name);
            if (value == NULL) {
                return -1;
            }
            slots[i] = Py_NewRef(value);
        }
    }
    return 0;
}

/* 0; or -1 (no exception set): these arguments do not fit, and calling the function will say why. */
static int
bind_arguments(Bound *bound, Cache *cache, PyFunctionObject *fn, PyObject *const *args, Py_ssize_t nargs,
               PyObject *kwnames)
{
    PyCodeObject *code = cache->code;
    Py_ssize_t n_positional = Py_MIN(nargs, code->co_argcount);
    Py_ssize_t next = code->co_argcount + code->co_kwonlyargcount;
    PyObject *kwdict = NULL;
    bound->n = 0;
    bound->slots = bound->few;
    if (cache->n_bound > FEW_SLOTS) {
        bound->slots = PyMem_New(PyObject *, cache->n_bound);
        if (bound->slots == NULL) {
            bound->slots = bound->few;
            return -1;
        }
    }
    bound->n = cache->n_bound;
    memset(bound->slots, 0, bound->n * sizeof(PyObject *));
    for (Py_ssize_t i = 0; i < n_positional; i++) {
        bound->slots[i] = Py_NewRef(args[i]);
    }
    if (code->co_flags & CO_VARARGS) {
        PyObject *rest = PyTuple_New(nargs - n_positional);
        if (rest == NULL) {
            goto fail;
        }
        for (Py_ssize_t i = n_positional; i < nargs; i++) {
            PyTuple_SET_ITEM(rest, i - n_positional, Py_NewRef(args[i]));
        }
        bound->slots[next++] = rest;
    }
    else if (nargs > n_positional) {
        goto fail;
    }
    if (code->co_flags & CO_VARKEYWORDS) {
        kwdict = bound->slots[next] = PyDict_New();
        if (kwdict == NULL) {
            goto fail;
        }
    }
    if (kwnames != NULL && bind_keywords(code, bound->slots, kwdict, args + nargs, kwnames) < 0) {
        goto fail;
    }
    if (bind_defaults(fn, code, bound->slots) < 0) {
        goto fail;
    }
    return 0;
fail:
    PyErr_Clear();
    return -1;
}

/* ------------------------------------------------------------------------------------------------------------------
   Calls through a cache. */

#include "_move.h"

/* Run the replacement code as a function. The handover is stolen. */
static PyObject *
entry_run(Thread *thread, Entry *entry, Handover *handover, Region *region, PyFunctionObject *fn, PyObject *const *args,
          size_t nargsf, PyObject *kwnames)
{
    int is_original = entry->code == (PyCodeObject *)fn->func_code;   /* found not worth replacing */
    PyFunctionObject *function = is_original ? fn : entry_take_function(entry, fn);
    handover_push(thread, handover);
    if (function == NULL) {
        handover_drop(thread, handover);
        return NULL;
    }
    int switches = entry->needs_hook && thread->region != region;
    Region *previous = switches ? swap_region(thread, (Region *)Py_NewRef(region)) : NULL;
    if (is_original) {
        thread->pass = thread->region == NULL ? NULL : entry->code;
    }
    PyObject *result = call_function(thread, function, args, nargsf, kwnames);
    handover_drop(thread, handover);
    if (switches) {
        restore_region(thread, previous);
    }
    if (is_original) {
        thread->pass = NULL;
    }
    else {
        entry_return_function(entry, function);
    }
    return result;
}

/* The same with bound arguments, all of them passed explicitly: the defaults in force are those of `fn`. */
static PyObject *
entry_run_bound(Thread *thread, Entry *entry, Handover *handover, Cache *cache, PyFunctionObject *fn, Bound *bound)
{
    PyCodeObject *code = cache->code;
    Py_ssize_t n_kwonly = code->co_kwonlyargcount, next = code->co_argcount + n_kwonly, k = 0;
    PyObject *varargs = code->co_flags & CO_VARARGS ? bound->slots[next++] : NULL;
    PyObject *kwdict = code->co_flags & CO_VARKEYWORDS ? bound->slots[next] : NULL;
    Py_ssize_t n_varargs = varargs == NULL ? 0 : PyTuple_GET_SIZE(varargs);
    Py_ssize_t n_extra = kwdict == NULL ? 0 : PyDict_GET_SIZE(kwdict);
    Py_ssize_t nargs = code->co_argcount + n_varargs;
    PyObject **args = bound->slots, *kwnames = n_kwonly == 0 ? NULL : Py_NewRef(cache->kwonly_names);
    if (n_varargs > 0 || n_extra > 0) {
        args = PyMem_New(PyObject *, nargs + n_kwonly + n_extra);
        if (args == NULL) {
            Py_XDECREF(kwnames);
            handover_free(handover);
            return PyErr_NoMemory();
        }
        memcpy(args, bound->slots, code->co_argcount * sizeof(PyObject *));
        if (n_varargs > 0) {
            memcpy(args + code->co_argcount, ((PyTupleObject *)varargs)->ob_item, n_varargs * sizeof(PyObject *));
        }
        memcpy(args + nargs, bound->slots + code->co_argcount, n_kwonly * sizeof(PyObject *));
    }
    if (n_extra > 0) {
        PyObject *name, *value, *names = PyTuple_New(n_kwonly + n_extra);
        if (names == NULL) {
            PyMem_Free(args);
            Py_XDECREF(kwnames);
            handover_free(handover);
            return NULL;
        }
        for (Py_ssize_t i = 0; i < n_kwonly; i++) {
            PyTuple_SET_ITEM(names, i, Py_NewRef(PyTuple_GET_ITEM(cache->kwonly_names, i)));
        }
        Py_ssize_t at = n_kwonly;
        while (PyDict_Next(kwdict, &k, &name, &value)) {
            PyTuple_SET_ITEM(names, at, Py_NewRef(name));
            args[nargs + at++] = value;
        }
        Py_XSETREF(kwnames, names);
    }
    PyObject *result = entry_run(thread, entry, handover, cache->region, fn, args, nargs, kwnames);
    if (args != bound->slots) {
        PyMem_Free(args);
    }
    Py_XDECREF(kwnames);
    return result;
}

/* Run the function itself; the frames that it calls are offered to the region, unless the cache says SKIP_ALL. */
static PyObject *
run_original(Thread *thread, Cache *cache, PyFunctionObject *fn, PyObject *const *args, size_t nargsf,
             PyObject *kwnames)
{
    Region *region = cache->state == STATE_SKIP_ALL ? NULL : cache->region;
    Region *previous = swap_region(thread, (Region *)Py_XNewRef(region));
    thread->pass = region == NULL ? NULL : cache->code;
    PyObject *result = call_function(thread, fn, args, nargsf, kwnames);
    thread->pass = NULL;   /* still set if the arguments did not bind */
    restore_region(thread, previous);
    return result;
}

static PyObject *
call_with_bound(Thread *thread, Cache *cache, PyFunctionObject *fn, PyObject *const *args, size_t nargsf,
                PyObject *kwnames)
{
    Bound bound;
    PyObject *result = NULL;
    if (bind_arguments(&bound, cache, fn, args, PyVectorcall_NARGS(nargsf), kwnames) < 0) {
        bound_release(&bound);
        return run_original(thread, cache, fn, args, nargsf, kwnames);
    }
    Handover *handover = NULL;
    Entry *entry = cache_resolve(thread, cache, fn, bound.slots, bound.n, &handover);
    if (entry != NULL) {
        result = entry_run_bound(thread, entry, handover, cache, fn, &bound);
        Py_DECREF(entry);
    }
    else if (!PyErr_Occurred()) {
        result = run_original(thread, cache, fn, args, nargsf, kwnames);
    }
    bound_release(&bound);
    return result;
}

/* Call `fn`, whose code is cache->code. The caller keeps the cache alive. The result may be a TailCall. */
static PyObject *
call_once(Thread *thread, Cache *cache, PyFunctionObject *fn, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    if (thread->in_callback) {
        return call_function(thread, fn, args, nargsf, kwnames);
    }
    if (cache->state == STATE_SKIP || cache->state == STATE_SKIP_ALL) {
        return run_original(thread, cache, fn, args, nargsf, kwnames);
    }
    Py_ssize_t nargs = PyVectorcall_NARGS(nargsf);
    if (kwnames != NULL || nargs != cache->n_bound || !cache->simple) {
        return call_with_bound(thread, cache, fn, args, nargsf, kwnames);
    }
    Handover *handover = NULL;
    Entry *entry = cache_resolve(thread, cache, fn, args, nargs, &handover);
    if (entry == NULL) {
        return PyErr_Occurred() ? NULL : run_original(thread, cache, fn, args, nargsf, NULL);
    }
    PyObject *result = entry_run(thread, entry, handover, cache->region, fn, args, nargsf, NULL);
    Py_DECREF(entry);
    return result;
}

static PyObject *
call_through_cache(Cache *cache, PyFunctionObject *fn, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    Thread *thread = this_thread();
    return finish_tail_calls(thread, call_once(thread, cache, fn, args, nargsf, kwnames));
}

/* cache(fn, *args) */
static PyObject *
cache_vectorcall(Cache *cache, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    Py_ssize_t nargs = PyVectorcall_NARGS(nargsf);
    if (nargs < 1 || !PyFunction_Check(args[0])
        || ((PyFunctionObject *)args[0])->func_code != (PyObject *)cache->code) {
        PyErr_SetString(PyExc_TypeError, "the first argument must be a function with the code of this cache");
        return NULL;
    }
    return call_through_cache(cache, (PyFunctionObject *)args[0], args + 1, nargs - 1, kwnames);
}

/* ------------------------------------------------------------------------------------------------------------------
   The hook. */

#if HAVE_HOOK

static PyObject *hook(PyThreadState *tstate, Frame *frame, int throwflag);

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
    if (current == hook || (evaluator_above != NULL && current == evaluator_above)) {
        return;   /* already in the chain */
    }
    evaluator_above = NULL;
    next_evaluator = current;
    _PyInterpreterState_SetEvalFrameFunc(interp, hook);
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
    if (current == hook) {
        _PyInterpreterState_SetEvalFrameFunc(interp, next_evaluator);
    }
    else if (current != next_evaluator) {
        evaluator_above = current;
    }
}

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
enum { SHORT_STACK_RECURSION = 1000 };

static PyObject *
run_frame_on_short_stack(Thread *thread, PyThreadState *tstate, Frame *frame, int throwflag)
{
    Region *previous = swap_region(thread, NULL);
    PyInterpreterState *interp = PyInterpreterState_Get();
    if (_PyInterpreterState_GetEvalFrameFunc(interp) == hook) {
        _PyInterpreterState_SetEvalFrameFunc(interp, next_evaluator);
    }
#ifdef C_RECURSION_REMAINING
    /* What the hook has paid back is used up all the same: C code may not go as deep from here as from the start. */
    int remaining = *C_RECURSION_REMAINING(tstate), allowed = Py_MIN(remaining, SHORT_STACK_RECURSION);
    *C_RECURSION_REMAINING(tstate) = allowed;
    PyObject *result = next_evaluator(tstate, frame, throwflag);
    *C_RECURSION_REMAINING(tstate) += remaining - allowed;
#else
    PyObject *result = next_evaluator(tstate, frame, throwflag);
#endif
    if (n_active_threads > 0 && _PyInterpreterState_GetEvalFrameFunc(interp) == next_evaluator) {
        _PyInterpreterState_SetEvalFrameFunc(interp, hook);
    }
    restore_region(thread, previous);
    return result;
}

static int
stack_is_short(Thread *thread)
{
    char here;
    if (thread->stack_floor == 0) {
        thread->stack_floor = (uintptr_t)&here - 256 * 1024;   /* where nothing better is known */
#ifdef __linux__
        pthread_attr_t attributes;
        void *lowest;
        size_t size;
        if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
            if (pthread_attr_getstack(&attributes, &lowest, &size) == 0) {
                thread->stack_floor = (uintptr_t)lowest + size / 4;
            }
            pthread_attr_destroy(&attributes);
        }
#endif
    }
    return (uintptr_t)&here < thread->stack_floor;
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
        frame->localsplus[i] = NULL;
    }
    frame->stacktop = code->co_nlocalsplus;
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

static PyObject *
hook(PyThreadState *tstate, Frame *frame, int throwflag)
{
    Thread *thread = this_thread();
    if (thread->move != NULL && thread->move->function == frame_function(frame)) {
        move_finish(thread);
    }
    if (stack_is_short(thread)) {
        return run_frame_on_short_stack(thread, tstate, frame, throwflag);
    }
    Region *region = thread->region;
    if (region == NULL) {
        return run_frame(tstate, frame, throwflag);
    }
    /* Under a tracer nothing is captured, and 3.12+ reports other events where it cannot inline because of an evaluator. */
    if (tstate->c_tracefunc != NULL) {
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
    Entry *entry = cache_resolve(thread, cache, fn, frame->localsplus, cache->n_bound, &handover);
    int state = cache->state;   /* the callback may just have set it */
    Py_DECREF(cache);
    if (entry == NULL) {
        if (PyErr_Occurred()) {
            frame_abandon(tstate, frame);
            return NULL;
        }
        return state == STATE_SKIP_ALL ? run_frame_without_region(thread, tstate, frame, 0) : run_frame(tstate, frame, 0);
    }
    PyCodeObject *replacement = (PyCodeObject *)Py_NewRef(entry->code);
    Py_DECREF(entry);
    handover_push(thread, handover);
    PyObject *result = run_replaced(tstate, frame, replacement);
    handover_drop(thread, handover);
    Py_DECREF(replacement);
    if (result != NULL && Py_IS_TYPE(result, &TailCall_Type)) {
        frame_forget_locals(frame);
    }
    return finish_tail_calls(thread, result);
}

#else

static void
hook_acquire(void)
{
}

static void
hook_release(void)
{
}

#endif /* HAVE_HOOK */

/* ------------------------------------------------------------------------------------------------------------------
   Callable and Uncaptured: look like the function that they wrap. */

static PyObject *
callable_vectorcall(Wrapper *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    PyFunctionObject *fn = (PyFunctionObject *)self->fn;
    Cache *cache = self->cache;
    if (fn->func_code != (PyObject *)cache->code) {   /* somebody assigned fn.__code__ */
        cache = cache_get((PyCodeObject *)fn->func_code, cache->region);
        if (cache == NULL) {
            return NULL;
        }
        Py_INCREF(cache);
        Py_SETREF(self->cache, cache);
    }
    Py_INCREF(cache);
    PyObject *result = call_through_cache(cache, fn, args, nargsf, kwnames);
    Py_DECREF(cache);
    return result;
}

static PyObject *
uncaptured_vectorcall(Wrapper *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    Thread *thread = this_thread();
    if (thread->region == NULL) {
        return PyObject_Vectorcall(self->fn, args, nargsf, kwnames);
    }
    Region *previous = swap_region(thread, NULL);
    PyObject *result = PyObject_Vectorcall(self->fn, args, nargsf, kwnames);
    restore_region(thread, previous);
    return result;
}

/* The wrapper's own attributes start as a copy of the function's, except for __wrapped__: that is the function. */
static PyObject *
wrapper_make(PyTypeObject *type, PyObject *fn, Cache *cache)
{
    PyObject *attributes = PyFunction_Check(fn) && ((PyFunctionObject *)fn)->func_dict != NULL
        ? PyDict_Copy(((PyFunctionObject *)fn)->func_dict) : PyDict_New();
    if (attributes == NULL) {
        return NULL;
    }
    if (PyDict_DelItemString(attributes, "__wrapped__") < 0) {
        PyErr_Clear();
    }
    Wrapper *self = (Wrapper *)type->tp_alloc(type, 0);
    if (self == NULL) {
        Py_DECREF(attributes);
        return NULL;
    }
    self->vectorcall = (vectorcallfunc)(cache != NULL ? callable_vectorcall : uncaptured_vectorcall);
    self->fn = Py_NewRef(fn);
    self->cache = (Cache *)Py_XNewRef(cache);
    self->dict = attributes;
    return (PyObject *)self;
}

static PyObject *
callable_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"fn", "cache", NULL};
    PyObject *fn, *cache;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O!:Callable", names, &PyFunction_Type, &fn,
                                     &Cache_Type, &cache)) {
        return NULL;
    }
    if (((PyFunctionObject *)fn)->func_code != (PyObject *)((Cache *)cache)->code) {
        PyErr_SetString(PyExc_ValueError, "the cache is for another code object");
        return NULL;
    }
    return wrapper_make(type, fn, (Cache *)cache);
}

static PyObject *
uncaptured_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"fn", NULL};
    PyObject *fn;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O:Uncaptured", names, &fn)) {
        return NULL;
    }
    if (!PyCallable_Check(fn) && Py_TYPE(fn)->tp_descr_get == NULL) {   /* classmethod objects are not callable */
        return PyErr_Format(PyExc_TypeError, "%.200s object is not callable", Py_TYPE(fn)->tp_name);
    }
    return wrapper_make(type, fn, NULL);
}

static int
wrapper_traverse(Wrapper *self, visitproc visit, void *arg)
{
    Py_VISIT(self->fn);
    Py_VISIT(self->cache);
    Py_VISIT(self->wrapped);
    Py_VISIT(self->dict);
    return 0;
}

/* fn and cache stay: a cleared wrapper can still be called by a finalizer, and every cycle through fn can be broken at
   one of fn's own members. */
static int
wrapper_clear(Wrapper *self)
{
    Py_CLEAR(self->wrapped);
    Py_CLEAR(self->dict);
    return 0;
}

static void
wrapper_dealloc(Wrapper *self)
{
    PyObject_GC_UnTrack(self);
    if (self->weakrefs != NULL) {
        PyObject_ClearWeakRefs((PyObject *)self);
    }
    wrapper_clear(self);
    Py_CLEAR(self->fn);
    Py_CLEAR(self->cache);
    Py_TYPE(self)->tp_free(self);
}

static PyObject *
callable_descr_get(PyObject *self, PyObject *object, PyObject *Py_UNUSED(type))
{
    return object == NULL || object == Py_None ? Py_NewRef(self) : PyMethod_New(self, object);
}

/* Uncaptured wraps any callable: bind as that one does. */
static PyObject *
uncaptured_descr_get(PyObject *self, PyObject *object, PyObject *type)
{
    PyObject *fn = ((Wrapper *)self)->fn;
    descrgetfunc get = Py_TYPE(fn)->tp_descr_get;
    if (get == NULL) {
        return Py_NewRef(self);
    }
    if (PyType_HasFeature(Py_TYPE(fn), Py_TPFLAGS_METHOD_DESCRIPTOR)) {
        return callable_descr_get(self, object, type);
    }
    PyObject *bound = get(fn, object, type);
    if (bound == NULL || bound == fn || !PyCallable_Check(bound)) {
        return bound == fn ? Py_DECREF(bound), Py_NewRef(self) : bound;
    }
    PyObject *result = wrapper_make(&Uncaptured_Type, bound, NULL);
    Py_DECREF(bound);
    return result;
}

static PyObject *
wrapper_getattro(Wrapper *self, PyObject *name)
{
    PyObject *value = PyObject_GenericGetAttr((PyObject *)self, name);
    if (value == NULL && PyErr_ExceptionMatches(PyExc_AttributeError)) {
        PyErr_Clear();
        value = PyObject_GetAttr(self->fn, name);
    }
    return value;
}

static PyObject *
callable_repr(Wrapper *self)
{
    return PyUnicode_FromFormat("<optimized %R>", self->fn);
}

static PyObject *
uncaptured_repr(Wrapper *self)
{
    return PyUnicode_FromFormat("<uncaptured %R>", self->fn);
}

/* Pickled by name, as functions are; something without a name is wrapped anew. */
static PyObject *
wrapper_reduce(Wrapper *self, PyObject *Py_UNUSED(ignored))
{
    PyObject *name = PyObject_GetAttrString((PyObject *)self, "__qualname__");
    if (name == NULL && self->cache == NULL) {
        PyErr_Clear();
        return Py_BuildValue("O(O)", Py_TYPE(self), self->fn);
    }
    return name;
}

static PyObject *
wrapper_copy(PyObject *self, PyObject *Py_UNUSED(memo))
{
    return Py_NewRef(self);
}

/* Names that a type would answer itself. Metadata: the wrapper's own value if one was set, else the function's. */
static PyObject *
wrapper_get_metadata(Wrapper *self, void *name)
{
    PyObject *own = self->dict == NULL ? NULL : PyDict_GetItemString(self->dict, name);
    return own != NULL ? Py_NewRef(own) : PyObject_GetAttrString(self->fn, name);
}

static int
wrapper_set_metadata(Wrapper *self, PyObject *value, void *name)
{
    if (self->dict == NULL && (self->dict = PyDict_New()) == NULL) {
        return -1;
    }
    return value != NULL ? PyDict_SetItemString(self->dict, name, value) : PyDict_DelItemString(self->dict, name);
}

/* What makes the function do what it does is shared with it. */
static PyObject *
wrapper_get_shared(Wrapper *self, void *name)
{
    return PyObject_GetAttrString(self->fn, name);
}

static int
wrapper_set_shared(Wrapper *self, PyObject *value, void *name)
{
    return PyObject_SetAttrString(self->fn, name, value);
}

static PyObject *
wrapper_get_wrapped(Wrapper *self, void *Py_UNUSED(closure))
{
    return Py_NewRef(self->wrapped != NULL ? self->wrapped : self->fn);
}

static int
wrapper_set_wrapped(Wrapper *self, PyObject *value, void *Py_UNUSED(closure))
{
    Py_XSETREF(self->wrapped, Py_XNewRef(value));
    return 0;
}

#define METADATA(name) {name, (getter)wrapper_get_metadata, (setter)wrapper_set_metadata, NULL, name}
#define SHARED(name) {name, (getter)wrapper_get_shared, (setter)wrapper_set_shared, NULL, name}

static PyGetSetDef wrapper_getset[] = {
    METADATA("__name__"), METADATA("__qualname__"), METADATA("__doc__"), METADATA("__module__"),
    METADATA("__annotations__"),
    SHARED("__defaults__"), SHARED("__kwdefaults__"), SHARED("__code__"), SHARED("__globals__"), SHARED("__closure__"),
    {"__wrapped__", (getter)wrapper_get_wrapped, (setter)wrapper_set_wrapped},
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict},
    {NULL}
};

static PyMethodDef wrapper_methods[] = {
    {"__reduce__", (PyCFunction)wrapper_reduce, METH_NOARGS},
    {"__copy__", wrapper_copy, METH_NOARGS},
    {"__deepcopy__", wrapper_copy, METH_O},
    {NULL}
};

static PyMemberDef callable_members[] = {
    {"_torchdynamo_orig_callable", T_OBJECT, offsetof(Wrapper, fn), READONLY},
    {"cache", T_OBJECT, offsetof(Wrapper, cache), READONLY},
    {NULL}
};

static PyMemberDef uncaptured_members[] = {
    {"_torchdynamo_orig_callable", T_OBJECT, offsetof(Wrapper, fn), READONLY},
    {NULL}
};

static PyTypeObject Callable_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "dynamo_lite._eval_frame.Callable",
    .tp_doc = "Callable(fn, cache)\n--\n\nThe function fn, run through the compiled entries of its cache.",
    .tp_basicsize = sizeof(Wrapper),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR,
    .tp_vectorcall_offset = offsetof(Wrapper, vectorcall),
    .tp_dictoffset = offsetof(Wrapper, dict),
    .tp_weaklistoffset = offsetof(Wrapper, weakrefs),
    .tp_new = callable_new,
    .tp_call = PyVectorcall_Call,
    .tp_descr_get = callable_descr_get,
    .tp_getattro = (getattrofunc)wrapper_getattro,
    .tp_repr = (reprfunc)callable_repr,
    .tp_dealloc = (destructor)wrapper_dealloc,
    .tp_traverse = (traverseproc)wrapper_traverse,
    .tp_clear = (inquiry)wrapper_clear,
    .tp_methods = wrapper_methods,
    .tp_members = callable_members,
    .tp_getset = wrapper_getset,
};

static PyTypeObject Uncaptured_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "dynamo_lite._eval_frame.Uncaptured",
    .tp_doc = "Uncaptured(fn)\n--\n\nCalls fn with this thread's region switched off.",
    .tp_basicsize = sizeof(Wrapper),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(Wrapper, vectorcall),
    .tp_dictoffset = offsetof(Wrapper, dict),
    .tp_weaklistoffset = offsetof(Wrapper, weakrefs),
    .tp_new = uncaptured_new,
    .tp_call = PyVectorcall_Call,
    .tp_descr_get = uncaptured_descr_get,
    .tp_getattro = (getattrofunc)wrapper_getattro,
    .tp_repr = (reprfunc)uncaptured_repr,
    .tp_dealloc = (destructor)wrapper_dealloc,
    .tp_traverse = (traverseproc)wrapper_traverse,
    .tp_clear = (inquiry)wrapper_clear,
    .tp_methods = wrapper_methods,
    .tp_members = uncaptured_members,
    .tp_getset = wrapper_getset,
};

/* ------------------------------------------------------------------------------------------------------------------
   Module. */

static PyObject *
module_set_region(PyObject *Py_UNUSED(module), PyObject *region)
{
    if (region != Py_None && !PyObject_TypeCheck(region, &Region_Type)) {
        return PyErr_Format(PyExc_TypeError, "expected a Region or None, not %.200s", Py_TYPE(region)->tp_name);
    }
    Region *previous = swap_region(this_thread(), region == Py_None ? NULL : (Region *)Py_NewRef(region));
    return previous != NULL ? (PyObject *)previous : Py_NewRef(Py_None);
}

/* Assignment to __class__ refuses `type` itself: that is the one case in which this is needed. */
static PyObject *
module_set_metaclass(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 2 || !PyType_Check(args[0]) || !PyType_Check(args[1])) {
        PyErr_SetString(PyExc_TypeError, "set_metaclass() takes a class and a metaclass");
        return NULL;
    }
    PyTypeObject *old = Py_TYPE(args[0]);
    PyTypeObject *meta = (PyTypeObject *)args[1];
    if (old->tp_base != meta || old->tp_basicsize != meta->tp_basicsize || !(old->tp_flags & Py_TPFLAGS_HEAPTYPE)) {
        PyErr_SetString(PyExc_TypeError, "the class must be made by a plain subclass of the metaclass");
        return NULL;
    }
    if (meta->tp_flags & Py_TPFLAGS_HEAPTYPE) {
        Py_INCREF(meta); /* instances own their heap type */
    }
    Py_SET_TYPE(args[0], meta);
    Py_DECREF(old);
    PyType_Modified((PyTypeObject *)args[0]);
    Py_RETURN_NONE;
}

static PyObject *
module_program_recursion_limit(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing))
{
    return PyLong_FromLong(analyses.running > 0 ? analyses.program_limit : Py_GetRecursionLimit());
}

static PyObject *
module_program_collects(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    return PyBool_FromLong(analyses.running > 0 ? analyses.collects : PyGC_IsEnabled());
}

/* Other extensions may put a vectorcall of their own into a function. */
static vectorcallfunc function_vectorcall;   /* what CPython puts there, which it does not export */

static int
find_function_vectorcall(void)
{
    PyObject *code = (PyObject *)PyCode_NewEmpty("", "", 1), *globals = PyDict_New();
    PyObject *fn = code == NULL || globals == NULL ? NULL : PyFunction_New(code, globals);
    if (fn != NULL) {
        function_vectorcall = ((PyFunctionObject *)fn)->vectorcall;
    }
    Py_XDECREF(code);
    Py_XDECREF(globals);
    Py_XDECREF(fn);
    return fn == NULL ? -1 : 0;
}

static PyObject *
module_runs_its_code(PyObject *Py_UNUSED(module), PyObject *fn)
{
    return PyBool_FromLong(PyFunction_Check(fn) && ((PyFunctionObject *)fn)->vectorcall == function_vectorcall);
}

static PyMethodDef module_methods[] = {
    {"runs_its_code", module_runs_its_code, METH_O,
     "runs_its_code(fn) -> bool\n\nIs calling this function nothing but running its code?"},
    {"tail_call", (PyCFunction)(void (*)(void))module_tail_call, METH_FASTCALL,
     "tail_call(cache, fn, *args)\n\nWhat generated code returns so that cache(fn, *args) is called in its place."},
    {"eager_call", (PyCFunction)(void (*)(void))module_eager_call, METH_FASTCALL,
     "eager_call(fn, args, kwnames)\n\nWhat generated code returns so that fn is called in its place and not captured; `kwnames`\n"
     "are the names of the last arguments."},
    {"call_moved", (PyCFunction)(void (*)(void))module_call_moved, METH_FASTCALL,
     "call_moved(fn, list)\n\nfn(*list), where fn owns the arguments: the list is emptied."},
    {"raise_again", module_raise_again, METH_O,
     "raise_again(exception)\n\nRaise it as the instruction here, with a traceback that lacks its first entry. If that is none of "
     "generated code, return it."},
    {"begins_generated", module_begins_generated, METH_O,
     "begins_generated(traceback) -> bool\n\nIs the first entry that of generated code?"},
    {"program_collects", module_program_collects, METH_NOARGS,
     "program_collects() -> bool\n\nDoes the program collect garbage? During an analysis nobody does."},
    {"program_recursion_limit", module_program_recursion_limit, METH_NOARGS,
     "program_recursion_limit() -> int\n\nWhat sys.getrecursionlimit() is for the program; an analysis has a higher one."},
    {"set_region", module_set_region, METH_O,
     "set_region(region) -> previous\n\nMake a Region, or None, the active one of this thread."},
    {"set_metaclass", (PyCFunction)(void (*)(void))module_set_metaclass, METH_FASTCALL,
     "set_metaclass(cls, meta)\n\nMake `meta` the type of a class that was made by a plain subclass of `meta`."},
    {NULL}
};

static struct PyModuleDef module_def = {
    PyModuleDef_HEAD_INIT,
    .m_name = "dynamo_lite._eval_frame",
    .m_doc = "The C part of dynamo_lite: callables, caches, guard programs and the frame evaluation hook.",
    .m_size = -1,
    .m_methods = module_methods,
};

static int
add_types(PyObject *module)
{
    PyTypeObject *const types[] = {&Region_Type, &Cache_Type, &Entry_Type, &Callable_Type, &Uncaptured_Type,
                                   &GraphCall_Type, &TailCall_Type};
    for (size_t i = 0; i < Py_ARRAY_LENGTH(types); i++) {
        if (PyModule_AddType(module, types[i]) < 0) {
            return -1;
        }
    }
    return 0;
}

PyMODINIT_FUNC
PyInit__eval_frame(void)
{
    PyObject *module = PyModule_Create(&module_def);
    if (module == NULL) {
        return NULL;
    }
    extra_index = CODE_EXTRA_INDEX(NULL);
    s_callback = PyUnicode_InternFromString("callback");
    GraphFailed = PyErr_NewExceptionWithDoc("dynamo_lite._eval_frame.GraphFailed",
                                            "A graph has raised before anything happened: the frame is to start again.",
                                            PyExc_BaseException, NULL);
    if (extra_index < 0) {
        PyErr_SetString(PyExc_ImportError, "CPython has no free code-extra slot");
    }
    if (extra_index < 0 || s_callback == NULL || GraphFailed == NULL || PyModule_AddObjectRef(module, "GraphFailed", GraphFailed) < 0
        || find_function_vectorcall() < 0 || add_types(module) < 0 || guards_module_init(module) < 0
        || PyModule_AddIntConstant(module, "COMPILE", STATE_COMPILE) < 0
        || PyModule_AddIntConstant(module, "SKIP", STATE_SKIP) < 0
        || PyModule_AddIntConstant(module, "RUN_ONLY", STATE_RUN_ONLY) < 0
        || PyModule_AddIntConstant(module, "SKIP_ALL", STATE_SKIP_ALL) < 0
        || PyModule_AddIntConstant(module, "HAVE_HOOK", HAVE_HOOK) < 0) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
