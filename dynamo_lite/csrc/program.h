/* The compiled form of a guard program, its records, and what they need of CPython's dicts. */

#ifdef Py_GIL_DISABLED
#  error "dynamo_lite does not support free-threaded CPython: its caches and dict-version guards rely on the GIL"
#endif

/* Results of an evaluation. A miss is the index (>= 0) of the check that failed. */
enum { GUARDS_PASS = -1, GUARDS_RAISED = -2,
       STALE = -3,           /* something changed; a full evaluation will tell whether it matters */
       OTHER_OBJECT = -4 };

/* The kinds, and what each demands of its argument. */
#include <guard_kinds.h>

#define ENUM_MEMBER(name, value, argument) K_##name = value,
enum { STEP_KINDS(ENUM_MEMBER) CHECK_KINDS(ENUM_MEMBER) RELATION_KINDS(ENUM_MEMBER) };
#undef ENUM_MEMBER

enum Argument { ARG_UNKNOWN_KIND, ARG_NOTHING, ARG_OBJECT, ARG_WEAKREF, ARG_TYPE, ARG_TUPLE, ARG_NAME, ARG_BOOL, ARG_NUMBER, ARG_SLOT,
                ARG_TENSOR };

#define ENTRY(name, value, argument) [value] = ARG_##argument,
static const char step_arguments[] = {STEP_KINDS(ENTRY)}, check_arguments[] = {CHECK_KINDS(ENTRY)};
#undef ENTRY

#if defined(__GNUC__) || defined(__clang__)
#  define PREFETCH(address) __builtin_prefetch(address)
#else
#  define PREFETCH(address) ((void)(address))
#endif

/* ------------------------------------------------------------------------------------------------------------------
   CPython versions. */

#if PY_VERSION_HEX >= 0x030D0000
/* From 3.13 on an instance's dict shares the values inside of the instance. In 3.13.0, storing an attribute then changes
   no version, and the collector misses cycles through such a dict. Taking the last item out and putting it back gives
   the dict a table of its own; identity and order stay. */
static void
detach_from_instance(PyObject *dict)
{
    static PyObject *popitem;
    if (popitem == NULL && (popitem = PyUnicode_InternFromString("popitem")) == NULL) {
        return;
    }
    PyObject *item;
    if (PyDict_GET_SIZE(dict) == 0) {
        if (PyDict_SetItem(dict, popitem, Py_None) == 0) {
            PyDict_Clear(dict);
        }
    }
    else if ((item = PyObject_CallMethodNoArgs(dict, popitem)) != NULL) {
        PyDict_SetItem(dict, PyTuple_GET_ITEM(item, 0), PyTuple_GET_ITEM(item, 1));
        Py_DECREF(item);
    }
}
#endif

/* The address of the pointer to an instance's __dict__, or NULL if it has none; for a class, NULL. The dict is one whose
   versions can be trusted. */
static PyObject **
instance_dict_slot(PyObject *object)
{
    PyObject **slot = PyType_Check(object) ? NULL : _PyObject_GetDictPtr(object);
#if PY_VERSION_HEX >= 0x030D0000
    if (slot != NULL && *slot != NULL && PyDict_CheckExact(*slot) && ((PyDictObject *)*slot)->ma_values != NULL) {
        detach_from_instance(*slot);
    }
#endif
    if (PyErr_Occurred()) {
        PyErr_Clear();   /* out of memory */
        return NULL;
    }
    return slot;
}

/* Does every change of this dict change its version? */
static int
dict_has_versions(PyObject *dict)
{
#if PY_VERSION_HEX >= 0x030D0000
    if (((PyDictObject *)dict)->ma_values != NULL) {
        return 0;
    }
#endif
    (void)dict;
    return are_there_dict_versions();
}

static inline int
dict_has_only_str_keys(PyObject *dict)
{
    return DK_IS_UNICODE(((PyDictObject *)dict)->ma_keys);
}

/* ------------------------------------------------------------------------------------------------------------------
   A set of object addresses: open addressing in a power of two, more than twice as many as there are elements. */

typedef struct {
    void **slots;
    size_t size;
} PointerSet;

static int
pointer_set_init(PointerSet *set, size_t capacity)
{
    for (set->size = 4; set->size <= 2 * capacity; set->size *= 2) {
    }
    set->slots = PyMem_Calloc(set->size, sizeof(void *));
    return set->slots == NULL ? -1 : 0;
}

/* Where the pointer is, or the free slot where it belongs. */
static void **
pointer_set_slot(const PointerSet *set, void *pointer)
{
    size_t at = (((uintptr_t)pointer >> 4) * (size_t)0x9E3779B97F4A7C15) >> (8 * sizeof(size_t) - 32);
    for (;; at++) {
        void **slot = &set->slots[at & (set->size - 1)];
        if (*slot == pointer || *slot == NULL) {
            return slot;
        }
    }
}

/* Whether it was new. */
static int
pointer_set_add(PointerSet *set, void *pointer)
{
    void **slot = pointer_set_slot(set, pointer);
    int is_new = *slot == NULL;
    *slot = pointer;
    return is_new;
}

static int
pointer_set_has(const PointerSet *set, void *pointer)
{
    return *pointer_set_slot(set, pointer) != NULL;
}

/* ------------------------------------------------------------------------------------------------------------------
   Objects that a program knows without keeping them alive. */

typedef struct {
    PyObject *object;        /* only compared with; NULL: nothing is known */
    PyObject *weakref;       /* tells whether it is still the same object; NULL: something else keeps it alive */
} Known;

static inline int
is_known_alive(const Known *known)
{
    return known->weakref == NULL || ((PyWeakReference *)known->weakref)->wr_object == known->object;
}

/* Is `value` this very object, not merely one that has got its address? */
static inline int
is_known(const Known *known, const void *value)
{
    return value == known->object && is_known_alive(known);
}

/* Of the referent of a weak reference, which is borrowed. */
static Known
known_referent(PyObject *weakref)
{
    PyObject *object = ((PyWeakReference *)weakref)->wr_object;
    return (Known){.object = object == Py_None ? NULL : object, .weakref = weakref};
}

/* ------------------------------------------------------------------------------------------------------------------
   The trie of guards. */

typedef struct {
    int kind;
    int index;
    PyObject *arg;
    union {
        Py_ssize_t n;        /* LEN, SAVE, TRUTH */
        TensorSpec *tensor;  /* TENSOR */
        Known known;         /* IS, IS_NOT, TYPE_IS, and the kinds with a referent */
    };
} Check;

typedef struct Node {
    int kind;
    int first_index;         /* reported when the accessor itself fails */
    int absent_index;        /* index of this node's ABSENT check, or -1 */
    int anchor_index;        /* of the IS check */
    Known anchor;            /* argument of this node's IS check: the only value it can have. REFERENT: the value */
    Known only_type;         /* all that there is to check here and below */
    PyObject *arg;
    Py_ssize_t n;            /* LOCAL, FREEVAR, INDEX, ITER_ITEM, DICT_KEY, DICT_VALUE */
    Check *checks;
    struct Node *children;
    int n_checks, n_children;
    int instability;         /* how often the value changed although all guards still held */
    int pin_slot;            /* 1-based slot in Record.pins; 0: never pinned to a particular object */
} Node;

typedef struct {
    int kind;
    int index;
    PyObject *function;      /* PREDICATE, GLOBAL_STATE */
    int *slots;              /* indices into the saved values */
    int n_slots;
} Relation;

/* ------------------------------------------------------------------------------------------------------------------
   Records: see record.h. */

enum StepKind {
    POINTER_IS,        /* *address is `expected` */
    LIST_ITEM_IS,      /* item i of the list is `expected` */
    DICT_ITEM_IS,      /* so is the dict's item under a str key; NULL: no such key */
    DICT_VERSION_IS,
    TYPE_VERSION_IS,
    CHECK,             /* the object passes this check */
    CHILD,             /* a full evaluation of this child of the object succeeds */
};

/* The form of a step in packed.h. */
enum PackedKind {
    PACKED_WORD,             /* (where, expected): the eight bytes there are these */
    PACKED_VERSION,          /* (where): the versions there are those recorded */
    PACKED_TENSOR,           /* (tensor, where its TensorImpl was): it still matches the run's TensorSpec */
    PACKED_STEP,             /* (Step): it holds */
    N_PACKED_KINDS
};

typedef struct {
    int kind;
    enum PackedKind packed;
    Node *node;              /* becomes less trusted if the step fails; CHILD: the child */
    PyObject *object;        /* borrowed: pinned */
    union {
        PyObject **address;
        Py_ssize_t i;
        PyObject *key;       /* borrowed from the program */
        uint64_t version;
        const Check *check;
    };
    uint64_t *version_at;    /* DICT_VERSION_IS: owned, see dict_version.h */
    PyObject *expected;      /* only compared with */
    PyObject *keeper;        /* owned: the expected object, or a weak reference to it, or NULL */
    int watched;             /* a weak reference is to be the keeper */
    int level;               /* how many pinned objects lie above the one that the step is about */
    int is_last;             /* no step about an object below relies on this one */
} Step;

typedef struct {
    Step *items;
    int n, allocated;
} Steps;

/* A DISTINCT relation some of whose values are pinned. */
typedef struct {
    const Relation *relation;
    PointerSet pinned;
    int *open;               /* slots of the other values */
    int n_open;
} OpenDistinct;

/* So many pure steps of one kind, one after the other. What most steps compare fits into two words, and a big model has ten
   thousand of them, which cost what it costs to read them. */
typedef struct {
    enum PackedKind kind;
    int first, n;            /* in Record.pure */
    const uintptr_t *packed;
    union {
        const TensorSpec *spec;
        uint64_t sum;        /* of the versions */
    };
    uint64_t latest_dict_change;   /* when the sum was right last */
} Run;

typedef struct Record {
    Steps pure, impure;      /* phase 1 and 2 */
    uintptr_t *packed;       /* the pure steps, in order, and some more words that are not looked at but prefetched */
    Run *runs;               /* of the pure steps */
    int n_runs;
    Known *pins;             /* by Node.pin_slot, and weakrefs owned: objects that are not fixed by the program, but for which
                                the record was made (a module instance, say); NULL: nothing pinned here */
    Known *anchors;          /* those that the program does not keep alive; weakrefs owned */
    int n_pins, n_anchors;
    Py_ssize_t hits;
    Node *stale;             /* the node whose step failed last */
    PyObject **pinned;       /* by slot of a saved value: the pinned one (borrowed), or NULL */
    PyObject **handed;       /* the same by argument of GuardProgram.graph to be handed over */
    int all_handed;          /* none of these is NULL */
    int *fills;              /* slots of pinned values that a relation needs */
    int *open;               /* all slots that are written to */
    const Relation **relations;
    OpenDistinct *distincts;
    int n_fills, n_open, n_relations, n_distincts;
} Record;

/* ------------------------------------------------------------------------------------------------------------------
   Arguments of a compiled graph that the guards hand over: see graph.h. */

/* So many positions, one after the other. */
typedef struct {
    int first, n;
} Span;

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *compiled;
    PyObject *on_failure;    /* asked what to do when `compiled` raises; or NULL */
    int *given;              /* positions of arguments, ascending */
    Span *handed;            /* those of the others */
    int n_given, n_handed, n_spans;
    PyObject *boxed;         /* the same for one list of all arguments, which it empties; or NULL */
    int *dropped;            /* local variables of the calling code that nothing reads any more */
    int n_dropped;
} GraphCall;

typedef struct Handover {
    struct Handover *outer;  /* the one below it in its thread's list */
    GraphCall *graph;        /* owned */
    PyObject *room[];        /* a free slot, then the graph's arguments; those handed over are owned */
} Handover;

static PyTypeObject GraphCall_Type;

static void
handover_free(Handover *handover)
{
    if (handover == NULL) {
        return;
    }
    GraphCall *graph = handover->graph;
    for (int i = 0; i < graph->n_spans; i++) {
        PyObject **args = handover->room + 1 + graph->handed[i].first;
        for (size_t k = 0, n = graph->handed[i].n; k < n; k++) {
            Py_XDECREF(args[k]);
        }
    }
    PyMem_Free(handover);
    Py_DECREF(graph);
}

/* With these arguments handed over, as far as they are known: `values` is in the order of graph->handed; NULL: none is. */
static Handover *
handover_new(GraphCall *graph, PyObject *const *values)
{
    size_t n = (size_t)(graph->n_given + graph->n_handed) + 1;
    Handover *handover = PyMem_Malloc(sizeof(Handover) + n * sizeof(PyObject *));
    if (handover == NULL) {
        return NULL;
    }
    handover->graph = (GraphCall *)Py_NewRef(graph);
    for (int i = 0; i < graph->n_spans; i++) {
        PyObject **args = handover->room + 1 + graph->handed[i].first;
        size_t n_values = graph->handed[i].n;
        if (values == NULL) {
            memset(args, 0, n_values * sizeof(PyObject *));
            continue;
        }
        for (size_t k = 0; k < n_values; k++) {
            args[k] = Py_XNewRef(values[k]);
        }
        values += n_values;
    }
    return handover;
}

/* ------------------------------------------------------------------------------------------------------------------
   Programs. */

typedef struct {
    PyObject_HEAD
    Node *roots;
    Relation *relations;     /* GLOBAL_STATE first */
    int n_roots, n_relations, n_global_state;
    int n_saved;
    int saves_again;         /* a slot is written to by two nodes */
    int is_plain;            /* nothing in it can be pinned: a record would be of no use */
    int busy;                /* the records are in use and must not be changed */
    Record **records;
    int n_records, last_record;
    int n_pin_slots;
    int hopeless;            /* how often no record could be made */
    int n_seen;
    int depth, deepest;      /* of the node that is being made, of all; bounds the recursion of what walks them */
    uintptr_t *seen;         /* fingerprints of the objects that records were to watch: see record_is_due() */
    PointerSet scratch;      /* of DISTINCT */
    char *is_saved;          /* while it is built: by slot */
    TensorSpec **tensors;    /* owned, by the checks' shared arguments */
    int n_tensors;
    PyObject *spec, *objects;   /* own every object that the nodes point to; objects may be NULL */
    GraphCall *graph;        /* owned: what an evaluation makes a Handover for; or NULL */
    int *handed_slots;       /* for each argument handed over, where its value is saved */
} GuardProgram;
