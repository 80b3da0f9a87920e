/* The door between CPython and dynamo_lite.

   Callable     what optimize(fn) returns: checks the guards of the cached entries on the bare arguments and runs the
                matching code as a plain Python function. Needs no interpreter internals.
   the hook     a PEP 523 frame evaluator, for Python functions that are called from eager code inside a compiled region.
                It swaps the code of the frame in place. Installed only while some thread has an active region.
   Cache        the compiled entries of one code object in one region.
   Entry        one of them: guards and replacement code.
   Region       one optimize() context: owns its caches, names the callback that compiles on a miss.
   GuardProgram the guards of an entry: see guards.h.
   GraphCall    calls a compiled graph from replacement code, with what the guards have found: see graph.h.
   Uncaptured   calls a callable with this thread's region switched off; an UncapturedFunction calls a function.
   TailCall     what generated code returns to go on in a resume function: see tail_call.h.

   Ownership: Callable -> Cache <-> Region, Cache -> Entry -> GuardProgram; all are GC-tracked. A code object only borrows
   its caches, through co_extra: references stored there would be invisible to the collector and leak.

   This is the one C file of the package. The headers are parts of it, each built on those before, in the order of the
   pipeline:
   limits       c_stack.h (how deep calls may go); members.h (what types have in common);
   guards       tensor_layout.h, tensor.h (metadata of tensors) with modes.h, program.h (data structures), class_check.h, evaluate.h,
                recorder.h, packed.h, record.h (the fast path), guards.h (GuardProgram);
   calls        frame.h (CPython's frames), evaluator.h (whether the hook is installed), graph.h (GraphCall), cache.h (Entry, Cache),
                region.h, lookup.h, move.h, call.h, tail_call.h, hook.h, wrapper.h (Callable, UncapturedFunction, Uncaptured), slot.h.

   Being wrong is not an option, being absent is: whenever something is unusual (a tracer, no room on the data stack,
   arguments that do not bind), the original code runs. */

#define _GNU_SOURCE 1              /* pthread_getattr_np */
#define Py_BUILD_CORE_MODULE 1
#include <Python.h>

#if PY_VERSION_HEX < 0x030B0000 || PY_VERSION_HEX >= 0x030F0000
#  error "dynamo_lite runs on CPython 3.11 to 3.14: it knows the frames and the bytecode of these"
#endif
#ifdef Py_GIL_DISABLED
#  error "dynamo_lite needs the GIL; what stands in the way of free-threaded builds: docs/dev/free-threading.md"
#endif

#include <internal/pycore_dict.h>

#if PY_VERSION_HEX >= 0x030E0000
#  include <internal/pycore_interpframe.h>
#else
#  include <internal/pycore_frame.h>
#endif

#if PY_VERSION_HEX >= 0x030D0000
#  define IS_FINALIZING() Py_IsFinalizing()
#else
#  define IS_FINALIZING() _Py_IsFinalizing()
#endif

#include <opcode.h>
#include <structmember.h>
#if defined(__linux__) || defined(__APPLE__)
#  include <pthread.h>
#endif
#ifndef _WIN32
#  include <dlfcn.h>
#  include <signal.h>
#endif

#include "csrc/c_stack.h"
#include "csrc/members.h"
#include "csrc/reference.h"
#include "csrc/tensor.h"
#include "csrc/dict_version.h"
#include "csrc/program.h"
#include "csrc/class_check.h"
#include "csrc/odict.h"
#include "csrc/evaluate.h"
#include "csrc/record.h"
#include "csrc/guards.h"
#include "csrc/frame.h"
#include "csrc/evaluator.h"

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
    PyObject *globals;            /* the entry is tried for functions with these globals only; NULL: any. Set when the callback returns it */
    PyFunctionObject *function;   /* the code as a function, kept between calls; never with a closure */
    Py_ssize_t hits;
    GraphCall *releasing;         /* the graph that the code calls, if it may release arguments; borrowed from the code */
    char needs_hook;              /* the code has a graph break: inner Python frames that it calls are offered to the region */
} Entry;

/* What happens to a frame that no entry fits: it is offered to the region (COMPILE), or the original runs. In the SKIP states no entry is
   tried, in the RUN_ONLY states entries are. Frames that the original calls are offered to the region, but in the ..._ALL states the
   original runs with the region switched off. */
enum CacheState { STATE_COMPILE, STATE_SKIP, STATE_RUN_ONLY, STATE_SKIP_ALL, STATE_RUN_ONLY_ALL };

typedef struct Cache {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyCodeObject *code;
    Region *region;
    Entry **entries;              /* most recently hit first */
    Py_ssize_t n_entries, allocated;
    struct Prediction *predicted; /* N_PREDICTED, by hash of arguments; NULL: not made yet */
    struct Cache *next;           /* of the same code object, in another region; borrowed */
    PyObject *kwonly_names;       /* tuple */
    int n_bound;                  /* slots that arguments take */
    int state;
    char simple;                  /* only positional parameters */
} Cache;

/* Callable, UncapturedFunction and Uncaptured. The first two are subtypes of CPython's type of functions. */
typedef struct {
    PyFunctionObject function;    /* an Uncaptured only has a vectorcall, a dict and weakrefs of it */
    PyObject *fn;
    Cache *cache;                 /* NULL: uncaptured */
    PyObject *wrapped;            /* NULL: fn */
    PyObject *called;             /* of an UncapturedFunction: what torch.compile calls in its place; NULL: not asked for yet */
} Wrapper;

static PyTypeObject Region_Type, Entry_Type, Cache_Type, Callable_Type, UncapturedFunction_Type, Uncaptured_Type;

/* ------------------------------------------------------------------------------------------------------------------
   Per thread: the active region. The evaluator is interpreter-wide, so it is installed while any thread has one. */

typedef struct {
    Region *region;               /* owned; NULL: frames on this thread are left alone */
    PyCodeObject *pass;           /* the next frame of this code is to run as it is */
    int in_callback;              /* compiling: optimized functions called meanwhile run as they are */
    int outvoted;                 /* a version fits the call that is missed, but not that of another process */
    Handover *handovers;          /* those of calls in progress that were not taken yet, innermost first */
    struct TailCall *tail;        /* about to be run: its arguments are to be handed over */
    struct Move *move;            /* a call whose arguments are released when its frame begins */
    struct Loan *loans;           /* those of calls in progress whose graphs may release arguments, innermost first */
} Thread;

static _Thread_local Thread thread_storage;

/* Looking this up costs a function call in a shared library, so it is done once per call and handed down. */
static inline Thread *
this_thread(void)
{
    Thread *thread = &thread_storage;
#if defined(__GNUC__)
    __asm__("" : "+r"(thread));   /* a compiler that knows what it is looks it up again wherever it is used: 17 instructions each */
#endif
    return thread;
}

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

#include "csrc/observe.h"
#include "csrc/graph.h"

#include "csrc/cache.h"
#include "csrc/region.h"
#include "csrc/lookup.h"
#include "csrc/move.h"
#include "csrc/call.h"
#include "csrc/tail_call.h"
#include "csrc/hook.h"
#include "csrc/wrapper.h"
#include "csrc/slot.h"

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

/* The hash that a key had when the program stored it: its `__hash__` may give another one by the time that the store is replayed. */
static PyObject *
module_store_hashed(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *dict, *key, *value;
    Py_ssize_t hash;
    if (!PyArg_ParseTuple(args, "O!OnO", &PyDict_Type, &dict, &key, &hash, &value) ||
        _PyDict_SetItem_KnownHash(dict, key, value, hash) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

/* The annotations that a function has made (PEP 649), beside what makes them: assigned, they take that away. */
static PyObject *
module_keep_annotations(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyFunctionObject *fn;
    PyObject *annotations;
    if (!PyArg_ParseTuple(args, "O!O!", &PyFunction_Type, &fn, &PyDict_Type, &annotations)) {
        return NULL;
    }
    Py_XSETREF(fn->func_annotations, Py_NewRef(annotations));
    Py_RETURN_NONE;
}

static PyObject *
module_has_annotations(PyObject *Py_UNUSED(module), PyObject *fn)
{
    if (!PyFunction_Check(fn)) {
        return PyErr_Format(PyExc_TypeError, "expected a function, not %.200s", Py_TYPE(fn)->tp_name);
    }
    return PyBool_FromLong(((PyFunctionObject *)fn)->func_annotations != NULL);
}

static PyObject *
module_is_stored_under(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *dict, *key;
    Py_ssize_t hash;
    if (!PyArg_ParseTuple(args, "O!On", &PyDict_Type, &dict, &key, &hash)) {
        return NULL;
    }
    PyObject *value = _PyDict_GetItem_KnownHash(dict, key, hash);
    return value == NULL && PyErr_Occurred() ? NULL : PyBool_FromLong(value != NULL);
}

/* The beginning of the objects of `Modules/_collectionsmodule.c`, which no header has; unchanged since 3.5. */
typedef struct {
    PyObject_VAR_HEAD
    void *leftblock, *rightblock;
    Py_ssize_t leftindex, rightindex;
    size_t state;
} DequeHead;

typedef struct {
    PyObject_HEAD
    void *b;
    Py_ssize_t index;
    DequeHead *deque;
    size_t state;
} DequeIteratorHead;

static PyObject *
module_deque_has_changed(PyObject *Py_UNUSED(module), PyObject *iterator)
{
    const DequeIteratorHead *it = (DequeIteratorHead *)iterator;
    return PyBool_FromLong(it->deque->state != it->state);
}

static PyObject *
module_ordered_keys(PyObject *Py_UNUSED(module), PyObject *dict)
{
    if (!PyODict_Check(dict)) {
        return PyErr_Format(PyExc_TypeError, "expected an OrderedDict, not %.200s", Py_TYPE(dict)->tp_name);
    }
    return ordered_keys(dict);
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

static PyObject *
module_c_stack_left(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    return PyLong_FromSize_t(c_stack_left());
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
    {"raise_here", module_raise_here, METH_O, "raise_here(exception)\n\nRaise it as the instruction here."},
    {"raise_again", module_raise_again, METH_O,
     "raise_again(exception)\n\nRaise it as the instruction here, with a traceback that lacks its first entry. If that is none of "
     "generated code, return it."},
    {"begins_generated", module_begins_generated, METH_O,
     "begins_generated(traceback) -> bool\n\nIs the first entry that of generated code?"},
    {"program_collects", module_program_collects, METH_NOARGS,
     "program_collects() -> bool\n\nDoes the program collect garbage? During an analysis nobody does."},
    {"store_hashed", module_store_hashed, METH_VARARGS,
     "store_hashed(dict, key, hash, value)\n\ndict[key] = value, without a call of hash(key)."},
    {"is_stored_under", module_is_stored_under, METH_VARARGS,
     "is_stored_under(dict, key, hash) -> bool\n\nWhether the dict has the key where one with this hash is looked for; hash(key) is not called."},
    {"deque_has_changed", module_deque_has_changed, METH_O,
     "deque_has_changed(iterator) -> bool\n\nWhether the deque of a deque's iterator has changed since: next(iterator) raises RuntimeError."},
    {"ordered_keys", module_ordered_keys, METH_O,
     "ordered_keys(dict) -> tuple\n\nThe keys of an OrderedDict in its order; no key is looked up, and so asked whether it equals another."},
    {"keep_annotations", module_keep_annotations, METH_VARARGS,
     "keep_annotations(function, annotations)\n\nfunction.__annotations__ = annotations, but `__annotate__` stays."},
    {"has_annotations", module_has_annotations, METH_O,
     "has_annotations(function) -> bool\n\nWhether function.__annotations__ is there already: asking for it makes it (PEP 649)."},
    {"program_recursion_limit", module_program_recursion_limit, METH_NOARGS,
     "program_recursion_limit() -> int\n\nWhat sys.getrecursionlimit() is for the program; an analysis has a higher one."},
    {"replace_signal_handlers", module_replace_signal_handlers, METH_O,
     "replace_signal_handlers([(signum, old, new), ...])\n\nsignal.signal(signum, new) where the handler is old; what siginterrupt() has set stays.\n"
     "A handler that raises meanwhile keeps none of them from being replaced; its exception is raised behind the last one."},
    {"c_stack_left", module_c_stack_left, METH_NOARGS,
     "c_stack_left() -> int\n\nHow many bytes of this thread's C stack are left."},
    {"set_region", module_set_region, METH_O,
     "set_region(region) -> previous\n\nMake a Region, or None, the active one of this thread."},
    {"observe", (PyCFunction)(void (*)(void))module_observe, METH_FASTCALL,
     "observe(calls, graphs) -> previous\n\nHave functions, or None, told of each call of a compiled function, calls(function, first_argument),\n"
     "and of each call of a graph, graphs(graph_call, None). What they return, unless None, is called when the call has ended."},
    {"set_guard_vote", module_set_guard_vote, METH_O,
     "set_guard_vote(vote) -> previous\n\nHave a function, or None, say whether a version is used where there are any: vote(code, fits) -> bool."},
    {"is_outvoted", module_is_outvoted, METH_NOARGS,
     "is_outvoted() -> bool\n\nDoes a version fit the call that this thread's callback is asked about, and was voted against?"},
    {"set_silent_classes", module_set_silent_classes, METH_O,
     "set_silent_classes(classes)\n\nRefer weakly to no instance of these: they die without a word to their weak references."},
    {"can_refer_weakly", module_can_refer_weakly, METH_O,
     "can_refer_weakly(object) -> bool\n\nCan an object be referred to weakly, and do its references hear of its death?"},
    {"call_by_slot", module_call_by_slot, METH_O,
     "call_by_slot(cls)\n\nMake calls of instances of a class whose `__call__` is a SlotDescriptor cheaper."},
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
    PyTypeObject *const types[] = {&Region_Type, &Cache_Type, &Entry_Type, &Uncaptured_Type, &GraphCall_Type,
                                   &TailCall_Type, &SlotMethod_Type, &SlotDescriptor_Type, &ClassCheck_Type, &Reference_Type};
    Reference_Type.tp_base = &_PyWeakref_RefType;
    for (size_t i = 0; i < Py_ARRAY_LENGTH(types); i++) {
        if (PyModule_AddType(module, types[i]) < 0) {
            return -1;
        }
    }
    /* Their tp_name is that of functions. */
    Callable_Type.tp_base = UncapturedFunction_Type.tp_base = &PyFunction_Type;
    if (PyType_Ready(&Callable_Type) < 0 || PyType_Ready(&UncapturedFunction_Type) < 0
        || PyModule_AddObjectRef(module, "Callable", (PyObject *)&Callable_Type) < 0
        || PyModule_AddObjectRef(module, "UncapturedFunction", (PyObject *)&UncapturedFunction_Type) < 0) {
        return -1;
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
    hook_evaluator = hook;
    GraphFailed = PyErr_NewExceptionWithDoc("dynamo_lite._eval_frame.GraphFailed",
                                            "A graph has raised before anything happened: the frame is to start again.",
                                            PyExc_BaseException, NULL);
    if (extra_index < 0) {
        PyErr_SetString(PyExc_ImportError, "CPython has no free code-extra slot");
    }
    const struct {const char *name; int value;} numbers[] = {
        {"COMPILE", STATE_COMPILE}, {"SKIP", STATE_SKIP}, {"RUN_ONLY", STATE_RUN_ONLY}, {"SKIP_ALL", STATE_SKIP_ALL},
        {"RUN_ONLY_ALL", STATE_RUN_ONLY_ALL}, {"C_STACK_FOR_ANALYSIS", C_STACK_FOR_ANALYSIS},
    };
    int failed = extra_index < 0 || intern_names() < 0 || GraphFailed == NULL
        || PyModule_AddObjectRef(module, "GraphFailed", GraphFailed) < 0
        || find_function_vectorcall() < 0 || add_types(module) < 0 || guards_module_init(module) < 0;
    for (size_t i = 0; !failed && i < Py_ARRAY_LENGTH(numbers); i++) {
        failed = PyModule_AddIntConstant(module, numbers[i].name, numbers[i].value) < 0;
    }
    if (failed) {
        Py_CLEAR(module);
    }
    return module;
}
