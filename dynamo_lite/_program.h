/* The compiled form of a guard program: shared by _guards.c (parsing, full evaluation) and _record.c (fast path). */
#ifndef DYNAMO_LITE_PROGRAM_H
#define DYNAMO_LITE_PROGRAM_H

#include "_guards.h"
#include "_tensor.h"

/* The kinds. The numbers are those of guards/ir.py; tests/guards/test_ir.py compares the two tables. */

#define ACCESSOR_KINDS(X) \
    X(LOCAL, 0) X(FREEVAR, 1) X(CONST, 2) X(ATTR, 3) X(INSTANCE_DICT, 4) X(DICT_ITEM, 5) X(INDEX, 6) \
    X(CELL_CONTENTS, 7) X(TYPE, 8) X(TYPE_ATTR, 9) X(FUNC_CODE, 10) X(FUNC_DEFAULTS, 11) X(FUNC_KWDEFAULTS, 12) \
    X(FUNC_CLOSURE, 13) X(METHOD_SELF, 14) X(METHOD_FUNC, 15) X(ITER_ITEM, 16) X(DICT_KEY, 17) X(CALL, 18)

#define CHECK_KINDS(X) \
    X(IS, 32) X(IS_NOT, 33) X(TYPE_IS, 34) X(EQUALS, 35) X(LEN, 36) X(DICT_KEYS, 37) X(HAS_KEY, 38) X(LACKS_KEY, 39) \
    X(ABSENT, 40) X(TENSOR, 41) X(TRUTH, 42) X(PYTHON, 43) X(SAVE, 44)

#define RELATION_KINDS(X) X(SAME, 64) X(DISTINCT, 65) X(PREDICATE, 66) X(GLOBAL_STATE, 67)

#define ENUM_MEMBER(name, value) K_##name = value,
enum { ACCESSOR_KINDS(ENUM_MEMBER) CHECK_KINDS(ENUM_MEMBER) RELATION_KINDS(ENUM_MEMBER) };
#undef ENUM_MEMBER

/* Outcomes of a check. */
enum { RAISED = -1, NO = 0, YES = 1 };

typedef struct {
    int kind;
    int index;
    PyObject *arg;
    union {
        Py_ssize_t n;        /* LEN, SAVE, TRUTH */
        TensorSpec *tensor;  /* TENSOR */
    };
} Check;

typedef struct Node {
    int kind;
    int first_index;         /* reported when the accessor itself fails */
    int absent_index;        /* index of this node's ABSENT check, or -1 */
    int anchor_index;        /* of the IS check */
    PyObject *anchor;        /* argument of this node's IS check: the only value it can have; or NULL */
    PyObject *only_type;     /* all that there is to check here and below; or NULL */
    PyObject *arg;
    Py_ssize_t n;            /* LOCAL, FREEVAR, INDEX, ITER_ITEM, DICT_KEY */
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

/* A set of object addresses: open addressing in a power of two, more than twice as many as there are elements. */
typedef struct {
    void **slots;
    size_t size;
} PointerSet;

/* An object that is not fixed by the program, but for which a record was made: a module instance, say. */
typedef struct {
    PyObject *object;        /* only compared with; NULL: nothing pinned here */
    PyObject *weakref;       /* owned; tells whether it is still the same object */
} Pin;

/* See _record.c. */
typedef struct Record Record;

struct GuardProgram {
    PyObject_HEAD
    Node *roots;
    Relation *relations;     /* GLOBAL_STATE first */
    int n_roots, n_relations, n_global_state;
    int n_saved;
    int is_plain;            /* nothing in it can be pinned: a record would be of no use */
    int busy;                /* the records are in use and must not be changed */
    Record **records;
    int n_records, last_record;
    int n_pin_slots;
    int hopeless;            /* how often no record could be made */
    PointerSet scratch;      /* of DISTINCT */
    PyObject *spec;          /* owns every object that the nodes point to */
};

/* ---- _guards.c ---- */

/* YES, NO, or RAISED with a BaseException set. */
int check_holds(const Check *check, PyObject *value, PyObject **saved);

/* The results of these are GUARDS_PASS, GUARDS_RAISED or the index of the check that failed. The caller keeps values
   alive. With a record, what lies at and below an IS check or a pinned object is left out, except that the object must
   be the right one; if it is not the one that the record is about, the result is OTHER_OBJECT. */
int evaluate_node(const Node *node, PyObject *value, PyObject **saved, Record *record);
int evaluate_child(const Node *child, PyObject *parent, PyObject **saved, Record *record);
int evaluate_root(const Node *root, PyObject *const *locals, Py_ssize_t n_locals, PyObject *closure, PyObject **saved,
                  Record *record);
int evaluate_relation(GuardProgram *p, const Relation *relation, PyObject **saved);

/* A root's value (borrowed), or NULL. */
PyObject *root_value(const Node *root, PyObject *const *locals, Py_ssize_t n_locals, PyObject *closure);

int pointer_set_init(PointerSet *set, size_t capacity);
int pointer_set_add(PointerSet *set, void *pointer);         /* whether it was new */
int pointer_set_has(const PointerSet *set, void *pointer);

/* ---- _record.c ---- */

/* Further results: */
enum { STALE = -3,           /* something changed; a full evaluation will tell whether it matters */
       OTHER_OBJECT = -4 };

/* Evaluate through the records; STALE if that decides nothing. Afterwards *renew is the number of the record to be
   replaced, or -1. */
int records_evaluate(GuardProgram *p, PyObject *const *locals, Py_ssize_t n_locals, PyObject *closure, int *renew);

/* After a successful full evaluation. Runs no Python code. */
void records_renew(GuardProgram *p, PyObject *const *locals, Py_ssize_t n_locals, PyObject *closure, int renew);

void records_free(GuardProgram *p);
int records_traverse(GuardProgram *p, visitproc visit, void *arg);

/* The address of the pointer to an instance's __dict__, or NULL if it has none; for a class, NULL. The dict is one whose
   versions can be trusted. */
PyObject **instance_dict_slot(PyObject *object);

/* Is there a pin at this node? If so, *holds tells whether it is the right object. */
int record_has_pin(Record *record, const Node *node, PyObject *value, int *holds);

/* Runs an evaluation with room for the saved values; it owns what it stores there. */
typedef int (*Evaluator)(GuardProgram *, Record *, PyObject *const *, Py_ssize_t, PyObject *, PyObject **);
int evaluate_with_saved(Evaluator evaluator, GuardProgram *p, Record *record, PyObject *const *locals,
                        Py_ssize_t n_locals, PyObject *closure);

#endif
