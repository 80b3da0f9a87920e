/* Guard programs: decide in a few dozen nanoseconds whether compiled code is valid for these arguments.

   Input:  the spec that guards/program.py builds from the guard IR: a trie of access paths with checks.
   Output: guards_evaluate(), and the Python type GuardProgram around it.

   Invariants
   - An accessor or check never assumes the type of a value: on an unexpected type it is a miss, never a crash.
   - Values are held by a strong reference while anything that may run Python code looks at them.
   - An Exception raised by user code inside a check is a miss; a BaseException propagates. */

#include "_program.h"

static PyObject *s_reduce;   /* "__reduce__" */

/* Turn a pending exception into a miss, unless it is one that must reach the user. */
static int
miss_or_raised(void)
{
    if (PyErr_ExceptionMatches(PyExc_Exception)) {
        PyErr_Clear();
        return NO;
    }
    return RAISED;
}

/* ------------------------------------------------------------------------------------------------------------------
   Strict equality: same exact type and equal, all the way down. 1, True and 1.0 differ, so do 0.0 and -0.0; a NaN
   equals itself bit by bit. Returns YES, NO or RAISED (with any exception set). */

static int strict_equal(PyObject *a, PyObject *b);

static int
strict_equal_items(PyObject *const *a, PyObject *const *b, Py_ssize_t n)
{
    for (Py_ssize_t i = 0; i < n; i++) {
        int result = strict_equal(a[i], b[i]);
        if (result != YES) {
            return result;
        }
    }
    return YES;
}

/* Two sets that are == : check that every element of `a` has its strict equal in `b`. */
static int
strict_equal_elements(PyObject *a, PyObject *b)
{
    PyObject *left = PySequence_List(a), *right = left ? PySequence_List(b) : NULL;
    int result = right == NULL ? RAISED : YES;
    for (Py_ssize_t i = 0; result == YES && i < PyList_GET_SIZE(left); i++) {
        PyObject *x = PyList_GET_ITEM(left, i);
        if (PyUnicode_CheckExact(x)) {
            continue;   /* an exact str is only == to a str */
        }
        result = NO;
        for (Py_ssize_t j = 0; result == NO && j < PyList_GET_SIZE(right); j++) {
            result = strict_equal(x, PyList_GET_ITEM(right, j));
        }
    }
    Py_XDECREF(left);
    Py_XDECREF(right);
    return result;
}

static int
strict_equal_dicts(PyObject *a, PyObject *b)
{
    PyObject *left = PyDict_Items(a), *right = left ? PyDict_Items(b) : NULL;
    int result = right == NULL ? RAISED : strict_equal(left, right);
    Py_XDECREF(left);
    Py_XDECREF(right);
    return result;
}

/* range(0) == range(1, 1), but they have different attributes. */
static int
strict_equal_ranges(PyObject *a, PyObject *b)
{
    static const char *const fields[] = {"start", "stop", "step"};
    int result = YES;
    for (int i = 0; result == YES && i < 3; i++) {
        PyObject *x = PyObject_GetAttrString(a, fields[i]);
        PyObject *y = x ? PyObject_GetAttrString(b, fields[i]) : NULL;
        result = y == NULL ? RAISED : strict_equal(x, y);
        Py_XDECREF(x);
        Py_XDECREF(y);
    }
    return result;
}

static int
strict_equal(PyObject *a, PyObject *b)
{
    if (a == b) {
        return YES;
    }
    PyTypeObject *type = Py_TYPE(a);
    if (type != Py_TYPE(b)) {
        return NO;
    }
    if (type == &PyFloat_Type) {
        double x = PyFloat_AS_DOUBLE(a), y = PyFloat_AS_DOUBLE(b);
        return memcmp(&x, &y, sizeof x) == 0;
    }
    if (type == &PyComplex_Type) {
        Py_complex x = PyComplex_AsCComplex(a), y = PyComplex_AsCComplex(b);
        return memcmp(&x.real, &y.real, sizeof x.real) == 0 && memcmp(&x.imag, &y.imag, sizeof x.imag) == 0;
    }
    if (type == &PyRange_Type) {
        return strict_equal_ranges(a, b);
    }
    int result;
    if (Py_EnterRecursiveCall(" in a guard")) {
        return RAISED;
    }
    if (PyTuple_Check(a) && type->tp_richcompare == PyTuple_Type.tp_richcompare) {
        result = PyTuple_GET_SIZE(a) != PyTuple_GET_SIZE(b) ? NO : strict_equal_items(
            ((PyTupleObject *)a)->ob_item, ((PyTupleObject *)b)->ob_item, PyTuple_GET_SIZE(a));
    }
    else if (type == &PyList_Type) {
        PyObject *x = PyList_AsTuple(a), *y = x ? PyList_AsTuple(b) : NULL;
        result = y == NULL ? RAISED : strict_equal(x, y);
        Py_XDECREF(x);
        Py_XDECREF(y);
    }
    else if (type == &PyDict_Type) {
        result = strict_equal_dicts(a, b);
    }
    else if (type == &PySlice_Type) {
        PySliceObject *x = (PySliceObject *)a, *y = (PySliceObject *)b;
        PyObject *left[] = {x->start, x->stop, x->step}, *right[] = {y->start, y->stop, y->step};
        result = strict_equal_items(left, right, 3);
    }
    else {
        result = PyObject_RichCompareBool(a, b, Py_EQ);
        if (result == YES && (type == &PyFrozenSet_Type || type == &PySet_Type)) {
            result = strict_equal_elements(a, b);
        }
    }
    Py_LeaveRecursiveCall();
    return result;
}

/* ------------------------------------------------------------------------------------------------------------------
   Accessors. follow() gives a new reference, or NULL and one of: */

enum { NOTHING = 0,   /* the accessor is applicable and finds nothing; no exception set */
       WRONG = 1,     /* not applicable to this value, or user code raised: a miss even where ABSENT is expected */
       THREW = -1 };  /* a BaseException is set */

static PyObject *
found(PyObject *borrowed, int *why)
{
    *why = NOTHING;
    return Py_XNewRef(borrowed);
}

static PyObject *
not_applicable(int *why)
{
    *why = WRONG;
    return NULL;
}

/* The result of code that may have raised. */
static PyObject *
computed(PyObject *owned, int *why)
{
    if (owned == NULL) {
        *why = PyErr_Occurred() == NULL ? NOTHING : miss_or_raised() == RAISED ? THREW : WRONG;
    }
    return owned;
}

static PyObject *
access_attribute(PyObject *object, PyObject *name, int *why)
{
    PyObject *value = PyObject_GetAttr(object, name);
    if (value == NULL && PyErr_ExceptionMatches(PyExc_AttributeError)) {
        PyErr_Clear();
    }
    return computed(value, why);
}

/* obj.__dict__ without calling anything: the real dict, made on demand as CPython does. */
static PyObject *
access_instance_dict(PyObject *object, int *why)
{
    if (PyType_Check(object)) {
#if PY_VERSION_HEX >= 0x030C0000
        return computed(PyType_GetDict((PyTypeObject *)object), why);
#else
        return found(((PyTypeObject *)object)->tp_dict, why);
#endif
    }
    PyObject **slot = instance_dict_slot(object);
    if (slot == NULL) {
        return found(NULL, why);
    }
    return *slot != NULL ? found(*slot, why) : computed(PyObject_GenericGetDict(object, NULL), why);
}

static PyObject *
access_index(PyObject *sequence, Py_ssize_t i, int *why)
{
    if (PyList_Check(sequence)) {
        return found(i < PyList_GET_SIZE(sequence) ? PyList_GET_ITEM(sequence, i) : NULL, why);
    }
    if (PyTuple_Check(sequence)) {
        return found(i < PyTuple_GET_SIZE(sequence) ? PyTuple_GET_ITEM(sequence, i) : NULL, why);
    }
    return not_applicable(why);
}

static PyObject *
access_dict_key(PyObject *dict, Py_ssize_t i, int *why)
{
    Py_ssize_t position = 0;
    PyObject *key = NULL;
    if (!PyDict_Check(dict)) {
        return not_applicable(why);
    }
    if (PyODict_Check(dict)) {   /* keeps an order of its own */
        PyObject *keys = PySequence_List(dict);
        key = keys != NULL && i < PyList_GET_SIZE(keys) ? Py_NewRef(PyList_GET_ITEM(keys, i)) : NULL;
        Py_XDECREF(keys);
        return computed(key, why);
    }
    for (Py_ssize_t k = 0; k <= i; k++) {
        if (!PyDict_Next(dict, &position, &key, NULL)) {
            return found(NULL, why);
        }
    }
    return found(key, why);
}

/* The exact types whose __reduce__ is (iter, (sequence,)[, position]). NULL-terminated; filled at module init. */
static PyTypeObject *resumable_iterators[8];

static int
is_resumable_iterator(PyObject *object)
{
    for (int i = 0; resumable_iterators[i] != NULL; i++) {
        if (Py_TYPE(object) == resumable_iterators[i]) {
            return 1;
        }
    }
    return 0;
}

/* The k-th item still to come. Pickling support gives (iter, (sequence,)[, position]) for all builtin iterators and
   does not move them; that spares us their struct layouts. */
static PyObject *
access_iterator_item(PyObject *iterator, Py_ssize_t k, int *why)
{
    if (!is_resumable_iterator(iterator)) {
        return not_applicable(why);
    }
    PyObject *state = PyObject_CallMethodNoArgs(iterator, s_reduce);
    if (state == NULL) {
        return computed(NULL, why);
    }
    PyObject *value = NULL;
    PyObject *args = PyTuple_Check(state) && PyTuple_GET_SIZE(state) >= 2 ? PyTuple_GET_ITEM(state, 1) : NULL;
    if (args != NULL && PyTuple_Check(args) && PyTuple_GET_SIZE(args) == 1) {
        PyObject *position = PyTuple_GET_SIZE(state) > 2 ? PyTuple_GET_ITEM(state, 2) : Py_None;
        Py_ssize_t start = PyLong_Check(position) ? PyLong_AsSsize_t(position) : 0;
        PyObject *sequence = PyTuple_GET_ITEM(args, 0);
        Py_ssize_t length = PySequence_Size(sequence);
        if (!PyErr_Occurred() && k < length - start) {
            value = PySequence_GetItem(sequence, start + k);
        }
    }
    Py_DECREF(state);
    return computed(value, why);
}

static PyObject *
access_function_field(PyObject *object, int kind, int *why)
{
    if (!PyFunction_Check(object)) {
        return not_applicable(why);
    }
    PyFunctionObject *function = (PyFunctionObject *)object;
    PyObject *value = kind == K_FUNC_CODE ? function->func_code
        : kind == K_FUNC_DEFAULTS ? function->func_defaults
        : kind == K_FUNC_KWDEFAULTS ? function->func_kwdefaults
        : function->func_closure;
    return found(value != NULL ? value : Py_None, why);
}

static PyObject *
follow(const Node *node, PyObject *object, int *why)
{
    switch (node->kind) {
    case K_ATTR:
        return access_attribute(object, node->arg, why);
    case K_INSTANCE_DICT:
        return access_instance_dict(object, why);
    case K_DICT_ITEM:
        if (!PyDict_Check(object)) {
            return not_applicable(why);
        }
        return computed(Py_XNewRef(PyDict_GetItemWithError(object, node->arg)), why);
    case K_INDEX:
        return access_index(object, node->n, why);
    case K_CELL_CONTENTS:
        return PyCell_Check(object) ? found(PyCell_GET(object), why) : not_applicable(why);
    case K_TYPE:
        return found((PyObject *)Py_TYPE(object), why);
    case K_TYPE_ATTR:
        if (!PyType_Check(object)) {
            return not_applicable(why);
        }
        return found(_PyType_Lookup((PyTypeObject *)object, node->arg), why);
    case K_FUNC_CODE:
    case K_FUNC_DEFAULTS:
    case K_FUNC_KWDEFAULTS:
    case K_FUNC_CLOSURE:
        return access_function_field(object, node->kind, why);
    case K_METHOD_SELF:
        return PyMethod_Check(object) ? found(PyMethod_GET_SELF(object), why) : not_applicable(why);
    case K_METHOD_FUNC:
        return PyMethod_Check(object) ? found(PyMethod_GET_FUNCTION(object), why) : not_applicable(why);
    case K_ITER_ITEM:
        return access_iterator_item(object, node->n, why);
    case K_DICT_KEY:
        return access_dict_key(object, node->n, why);
    case K_CALL:
        return computed(PyObject_CallOneArg(node->arg, object), why);
    }
    Py_UNREACHABLE();   /* parse_node() admits no other kind */
}

/* ------------------------------------------------------------------------------------------------------------------
   Checks. */

static int
check_length(PyObject *value, Py_ssize_t n)
{
    Py_ssize_t length = PyTuple_Check(value) ? PyTuple_GET_SIZE(value)
        : PyList_Check(value) ? PyList_GET_SIZE(value)
        : PyDict_Check(value) ? PyDict_GET_SIZE(value)
        : PyAnySet_Check(value) ? PySet_GET_SIZE(value)
        : is_resumable_iterator(value) ? PyObject_LengthHint(value, -1)
        : PyObject_Size(value);
    return length == -1 && PyErr_Occurred() ? RAISED : length == n;
}

static int
check_dict_keys(PyObject *dict, PyObject *keys)
{
    Py_ssize_t position = 0, n = PyTuple_GET_SIZE(keys);
    if (!PyDict_Check(dict) || PyDict_GET_SIZE(dict) != n) {
        return NO;
    }
    if (PyODict_Check(dict)) {   /* keeps an order of its own */
        PyObject *actual = PySequence_Tuple(dict);
        int result = actual == NULL ? RAISED : strict_equal(actual, keys);
        Py_XDECREF(actual);
        return result;
    }
    PyObject *key;
    for (Py_ssize_t i = 0; i < n; i++) {
        if (!PyDict_Next(dict, &position, &key, NULL)) {
            return NO;   /* a user-defined __eq__ changed the dict */
        }
        if (key != PyTuple_GET_ITEM(keys, i)) {
            Py_INCREF(key);
            int result = strict_equal(key, PyTuple_GET_ITEM(keys, i));
            Py_DECREF(key);
            if (result != YES) {
                return result;
            }
        }
    }
    return YES;
}

static int
check_contains(PyObject *container, PyObject *key, int expected)
{
    int contained = PyDict_Check(container) ? PyDict_Contains(container, key)
        : PyAnySet_Check(container) ? PySet_Contains(container, key)
        : -2;
    return contained == -2 ? NO : contained < 0 ? RAISED : contained == expected;
}

static int
check_predicate(PyObject *predicate, PyObject *value)
{
    PyObject *result = PyObject_CallOneArg(predicate, value);
    int truth = result == NULL ? RAISED : PyObject_IsTrue(result);
    Py_XDECREF(result);
    return truth;
}

int
check_holds(const Check *check, PyObject *value, PyObject **saved)
{
    int result;
    switch (check->kind) {
    case K_IS:
        return value == check->arg;
    case K_IS_NOT:
        return value != check->arg;
    case K_TYPE_IS:
        return (PyObject *)Py_TYPE(value) == check->arg;
    case K_SAVE:
        Py_XSETREF(saved[check->n], Py_NewRef(value));
        return YES;
    case K_EQUALS:
        result = strict_equal(value, check->arg);
        break;
    case K_LEN:
        result = check_length(value, check->n);
        break;
    case K_DICT_KEYS:
        result = check_dict_keys(value, check->arg);
        break;
    case K_HAS_KEY:
    case K_LACKS_KEY:
        result = check_contains(value, check->arg, check->kind == K_HAS_KEY);
        break;
    case K_ABSENT:
        return NO;   /* there is a value */
    case K_TENSOR:
        result = tensor_spec_matches(check->tensor, value);
        break;
    case K_TRUTH:
        result = PyObject_IsTrue(value);
        result = result == RAISED ? RAISED : result == (int)check->n;
        break;
    case K_PYTHON:
        result = check_predicate(check->arg, value);
        break;
    default:
        Py_UNREACHABLE();   /* parse_check() admits no other kind */
    }
    return result == RAISED ? miss_or_raised() : result;
}

/* ------------------------------------------------------------------------------------------------------------------
   Evaluation of the trie. */

int
evaluate_child(const Node *child, PyObject *parent, PyObject **saved, Record *record)
{
    int why;
    PyObject *value = follow(child, parent, &why);
    if (value == NULL) {
        return why == NOTHING && child->absent_index >= 0 ? GUARDS_PASS
            : why == THREW ? GUARDS_RAISED : child->first_index;
    }
    int result = evaluate_node(child, value, saved, record);
    Py_DECREF(value);
    return result;
}

int
evaluate_node(const Node *node, PyObject *value, PyObject **saved, Record *record)
{
    if (record != NULL) {
        int holds;
        if (node->anchor != NULL) {
            return value == node->anchor ? GUARDS_PASS : node->anchor_index;
        }
        if (node->pin_slot != 0 && record_has_pin(record, node, value, &holds)) {
            return holds ? GUARDS_PASS : OTHER_OBJECT;
        }
    }
    for (int i = 0; i < node->n_checks; i++) {
        const Check *check = &node->checks[i];
        int result = check_holds(check, value, saved);
        if (result != YES) {
            return result == RAISED ? GUARDS_RAISED : check->index;
        }
    }
    for (int i = 0; i < node->n_children; i++) {
        int result = evaluate_child(&node->children[i], value, saved, record);
        if (result != GUARDS_PASS) {
            return result;
        }
    }
    return GUARDS_PASS;
}

PyObject *
root_value(const Node *root, PyObject *const *locals, Py_ssize_t n_locals, PyObject *closure)
{
    switch (root->kind) {
    case K_CONST:
        return root->arg;
    case K_LOCAL:
        return root->n < n_locals ? locals[root->n] : NULL;
    default:   /* FREEVAR */
        return closure != NULL && root->n < PyTuple_GET_SIZE(closure) ? PyTuple_GET_ITEM(closure, root->n) : NULL;
    }
}

int
evaluate_root(const Node *root, PyObject *const *locals, Py_ssize_t n_locals, PyObject *closure, PyObject **saved,
              Record *record)
{
    PyObject *value = root_value(root, locals, n_locals, closure);
    if (value == NULL) {
        return root->first_index;
    }
    if (root->only_type != NULL) {
        return (PyObject *)Py_TYPE(value) == root->only_type ? GUARDS_PASS : root->first_index;
    }
    return evaluate_node(root, value, saved, record);
}

/* ------------------------------------------------------------------------------------------------------------------
   Relations. */

int
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

int
pointer_set_add(PointerSet *set, void *pointer)
{
    void **slot = pointer_set_slot(set, pointer);
    int is_new = *slot == NULL;
    *slot = pointer;
    return is_new;
}

int
pointer_set_has(const PointerSet *set, void *pointer)
{
    return *pointer_set_slot(set, pointer) != NULL;
}

/* All values different objects? A set, because 300 tensors would be 45000 pairs. */
static int
relation_distinct(GuardProgram *p, const Relation *relation, PyObject **saved)
{
    memset(p->scratch.slots, 0, p->scratch.size * sizeof(void *));
    for (int i = 0; i < relation->n_slots; i++) {
        if (!pointer_set_add(&p->scratch, saved[relation->slots[i]])) {
            return NO;
        }
    }
    return YES;
}

static int
relation_predicate(const Relation *relation, PyObject **saved)
{
    PyObject *few[8] = {NULL}, **args = few;
    int n = relation->n_slots;
    if (n > 8 && (args = PyMem_New(PyObject *, n)) == NULL) {
        return NO;
    }
    for (int i = 0; i < n; i++) {
        args[i] = saved[relation->slots[i]];
    }
    PyObject *result = PyObject_Vectorcall(relation->function, args, n, NULL);
    int truth = result == NULL ? RAISED : PyObject_IsTrue(result);
    Py_XDECREF(result);
    if (args != few) {
        PyMem_Free(args);
    }
    return truth == RAISED ? miss_or_raised() : truth;
}

int
evaluate_relation(GuardProgram *p, const Relation *relation, PyObject **saved)
{
    int result = relation->kind == K_SAME ? saved[relation->slots[0]] == saved[relation->slots[1]]
        : relation->kind == K_DISTINCT ? relation_distinct(p, relation, saved)
        : relation_predicate(relation, saved);
    return result == YES ? GUARDS_PASS : result == RAISED ? GUARDS_RAISED : relation->index;
}

/* ------------------------------------------------------------------------------------------------------------------
   Evaluation of a program. */

static int
evaluate_fully(GuardProgram *p, Record *Py_UNUSED(record), PyObject *const *locals, Py_ssize_t n_locals,
               PyObject *closure, PyObject **saved)
{
    int result = GUARDS_PASS;
    for (int i = 0; result == GUARDS_PASS && i < p->n_global_state; i++) {
        result = evaluate_relation(p, &p->relations[i], saved);
    }
    for (int i = 0; result == GUARDS_PASS && i < p->n_roots; i++) {
        result = evaluate_root(&p->roots[i], locals, n_locals, closure, saved, NULL);
    }
    for (int i = p->n_global_state; result == GUARDS_PASS && i < p->n_relations; i++) {
        result = evaluate_relation(p, &p->relations[i], saved);
    }
    return result;
}

enum { SAVED_ON_STACK = 16 };

int
evaluate_with_saved(Evaluator evaluator, GuardProgram *p, Record *record, PyObject *const *locals,
                    Py_ssize_t n_locals, PyObject *closure)
{
    if (p->n_saved == 0) {
        return evaluator(p, record, locals, n_locals, closure, NULL);
    }
    PyObject *few[SAVED_ON_STACK] = {NULL}, **saved = few;
    if (p->n_saved > SAVED_ON_STACK) {
        saved = PyMem_Calloc(p->n_saved, sizeof(PyObject *));
        if (saved == NULL) {
            return 0;   /* out of memory: the original function is always right */
        }
    }
    int result = evaluator(p, record, locals, n_locals, closure, saved);
    for (int i = 0; i < p->n_saved; i++) {
        Py_XDECREF(saved[i]);
    }
    if (saved != few) {
        PyMem_Free(saved);
    }
    return result;
}

int
guards_evaluate(GuardProgram *p, PyObject *const *locals, Py_ssize_t n_locals, PyObject *closure)
{
    if (p->spec == NULL) {
        return 0;   /* cleared by the collector */
    }
    if (p->is_plain || p->busy) {   /* busy: a guard calls the guarded function, or another thread is here */
        return evaluate_with_saved(evaluate_fully, p, NULL, locals, n_locals, closure);
    }
    int renew = -1, result = STALE;
    if (p->n_records > 0) {
        p->busy = 1;
        result = records_evaluate(p, locals, n_locals, closure, &renew);
        p->busy = 0;
    }
    if (result == STALE) {
        p->busy = 1;
        result = evaluate_with_saved(evaluate_fully, p, NULL, locals, n_locals, closure);
        p->busy = 0;
        if (result == GUARDS_PASS) {
            records_renew(p, locals, n_locals, closure, renew);
        }
    }
    return result;
}

/* ------------------------------------------------------------------------------------------------------------------
   Compiling a spec. The pointers in nodes and checks are borrowed from the spec, which the program owns. */

static int
bad_spec(const char *what, PyObject *spec)
{
    PyErr_Format(PyExc_TypeError, "bad guard spec: %s: %R", what, spec);
    return -1;
}

/* Return the elements of a tuple of known length, or NULL with TypeError. */
static PyObject **
fields(PyObject *spec, Py_ssize_t n, const char *what)
{
    if (!PyTuple_Check(spec) || PyTuple_GET_SIZE(spec) != n) {
        bad_spec(what, spec);
        return NULL;
    }
    return ((PyTupleObject *)spec)->ob_item;
}

static int
parse_small(PyObject *number, PyObject *spec, Py_ssize_t *out)
{
    *out = PyLong_Check(number) ? PyLong_AsSsize_t(number) : -1;
    if (*out < 0 || *out > INT_MAX) {
        PyErr_Clear();
        return bad_spec("expected a small non-negative integer", spec);
    }
    return 0;
}

static int
parse_check(GuardProgram *p, Check *check, PyObject *spec)
{
    PyObject **f = fields(spec, 3, "a check is (kind, arg, index)");
    Py_ssize_t kind, index;
    if (f == NULL || parse_small(f[0], spec, &kind) < 0 || parse_small(f[2], spec, &index) < 0) {
        return -1;
    }
    check->kind = (int)kind;
    check->index = (int)index;
    check->arg = f[1];
    switch (kind) {
    case K_IS:
    case K_IS_NOT:
    case K_EQUALS:
    case K_HAS_KEY:
    case K_LACKS_KEY:
    case K_ABSENT:
    case K_PYTHON:
        return 0;
    case K_TYPE_IS:
        return PyType_Check(f[1]) ? 0 : bad_spec("TYPE_IS takes a type", spec);
    case K_DICT_KEYS:
        return PyTuple_Check(f[1]) ? 0 : bad_spec("DICT_KEYS takes a tuple", spec);
    case K_TRUTH:
        check->n = f[1] == Py_True;
        return PyBool_Check(f[1]) ? 0 : bad_spec("TRUTH takes a bool", spec);
    case K_LEN:
        return parse_small(f[1], spec, &check->n);
    case K_SAVE:
        if (parse_small(f[1], spec, &check->n) < 0) {
            return -1;
        }
        return check->n < p->n_saved ? 0 : bad_spec("SAVE out of range", spec);
    case K_TENSOR:
        check->tensor = tensor_spec_parse(f[1]);
        return check->tensor == NULL ? -1 : 0;
    }
    return bad_spec("unknown check kind", spec);
}

static int parse_nodes(GuardProgram *p, Node **nodes, int *count, PyObject *specs, int roots);

static int
parse_accessor(GuardProgram *p, Node *node, int root, PyObject *spec, PyObject *arg)
{
    switch (node->kind) {
    case K_LOCAL:
    case K_FREEVAR:
    case K_CONST:
        if (!root) {
            return bad_spec("a root accessor inside the trie", spec);
        }
        p->is_plain &= node->kind != K_CONST;
        return node->kind == K_CONST ? 0 : parse_small(arg, spec, &node->n);
    case K_INDEX:
    case K_ITER_ITEM:
    case K_DICT_KEY:
        if (parse_small(arg, spec, &node->n) < 0) {
            return -1;
        }
        break;
    case K_ATTR:
    case K_TYPE_ATTR:
        if (!PyUnicode_CheckExact(arg)) {
            return bad_spec("expected a name", spec);
        }
        break;
    case K_INSTANCE_DICT:
    case K_TYPE:
    case K_FUNC_CODE:
    case K_FUNC_DEFAULTS:
    case K_FUNC_KWDEFAULTS:
    case K_FUNC_CLOSURE:
    case K_METHOD_SELF:
    case K_METHOD_FUNC:
        p->is_plain = 0;
        break;
    case K_DICT_ITEM:
    case K_CELL_CONTENTS:
    case K_CALL:
        break;
    default:
        return bad_spec("unknown accessor kind", spec);
    }
    return root ? bad_spec("a root must be LOCAL, FREEVAR or CONST", spec) : 0;
}

static int
parse_node(GuardProgram *p, Node *node, PyObject *spec, int root)
{
    PyObject **f = fields(spec, 4, "a node is (kind, arg, checks, children)");
    Py_ssize_t kind;
    if (f == NULL || parse_small(f[0], spec, &kind) < 0) {
        return -1;
    }
    if (!PyTuple_Check(f[2])) {
        return bad_spec("checks must be a tuple", spec);
    }
    node->kind = (int)kind;
    node->arg = f[1];
    node->absent_index = -1;
    if (parse_accessor(p, node, root, spec, f[1]) < 0) {
        return -1;
    }
    int n = (int)PyTuple_GET_SIZE(f[2]);
    node->checks = PyMem_Calloc(n, sizeof(Check));
    if (node->checks == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (node->n_checks = 0; node->n_checks < n; node->n_checks++) {
        Check *check = &node->checks[node->n_checks];
        if (parse_check(p, check, PyTuple_GET_ITEM(f[2], node->n_checks)) < 0) {
            return -1;
        }
        if (check->kind == K_ABSENT) {
            node->absent_index = check->index;
        }
        else if (check->kind == K_IS) {
            p->is_plain = 0;
            node->anchor = check->arg;
            node->anchor_index = check->index;
        }
    }
    if (parse_nodes(p, &node->children, &node->n_children, f[3], 0) < 0) {
        return -1;
    }
    if (n == 0 && node->n_children == 0) {
        return bad_spec("a node with nothing to check", spec);
    }
    if (n == 1 && node->n_children == 0 && node->checks[0].kind == K_TYPE_IS) {
        node->only_type = node->checks[0].arg;
    }
    node->first_index = n > 0 ? node->checks[0].index : node->children[0].first_index;
    return 0;
}

static int
parse_nodes(GuardProgram *p, Node **nodes, int *count, PyObject *specs, int roots)
{
    if (!PyTuple_Check(specs)) {
        return bad_spec("expected a tuple of nodes", specs);
    }
    if (Py_EnterRecursiveCall(" while building a guard program")) {
        return -1;
    }
    int n = (int)PyTuple_GET_SIZE(specs), result = 0;
    *nodes = PyMem_Calloc(n, sizeof(Node));
    if (*nodes == NULL) {
        PyErr_NoMemory();
        result = -1;
    }
    else {
        *count = n;   /* zeroed nodes are safe to free */
        for (int i = 0; result == 0 && i < n; i++) {
            result = parse_node(p, &(*nodes)[i], PyTuple_GET_ITEM(specs, i), roots);
        }
    }
    Py_LeaveRecursiveCall();
    return result;
}

/* SAME (i, j); DISTINCT (i, ...); PREDICATE (function, (i, ...)); GLOBAL_STATE function. */
static int
parse_relation(GuardProgram *p, Relation *relation, PyObject *spec)
{
    PyObject **f = fields(spec, 3, "a relation is (kind, arg, index)");
    Py_ssize_t kind, index, slot;
    if (f == NULL || parse_small(f[0], spec, &kind) < 0 || parse_small(f[2], spec, &index) < 0) {
        return -1;
    }
    relation->kind = (int)kind;
    relation->index = (int)index;
    PyObject *slots = f[1];
    switch (kind) {
    case K_GLOBAL_STATE:
        relation->function = f[1];
        return 0;
    case K_PREDICATE:
        f = fields(f[1], 2, "PREDICATE takes (function, slots)");
        if (f == NULL) {
            return -1;
        }
        relation->function = f[0];
        slots = f[1];
        break;
    case K_SAME:
        if (fields(slots, 2, "SAME takes two slots") == NULL) {
            return -1;
        }
        break;
    case K_DISTINCT:
        break;
    default:
        return bad_spec("unknown relation kind", spec);
    }
    if (!PyTuple_Check(slots)) {
        return bad_spec("slots must be a tuple", spec);
    }
    relation->n_slots = (int)PyTuple_GET_SIZE(slots);
    relation->slots = PyMem_Calloc(relation->n_slots, sizeof(int));
    if (relation->slots == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (int i = 0; i < relation->n_slots; i++) {
        if (parse_small(PyTuple_GET_ITEM(slots, i), spec, &slot) < 0) {
            return -1;
        }
        if (slot >= p->n_saved) {
            return bad_spec("slot out of range", spec);
        }
        relation->slots[i] = (int)slot;
    }
    return 0;
}

static int
parse_relations(GuardProgram *p, PyObject *specs)
{
    if (!PyTuple_Check(specs)) {
        return bad_spec("expected a tuple of relations", specs);
    }
    int n = (int)PyTuple_GET_SIZE(specs);
    p->relations = PyMem_Calloc(n, sizeof(Relation));
    if (p->relations == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    p->n_relations = n;
    int widest = 0;
    for (int i = 0; i < n; i++) {
        Relation *relation = &p->relations[i];
        if (parse_relation(p, relation, PyTuple_GET_ITEM(specs, i)) < 0) {
            return -1;
        }
        if (relation->kind == K_GLOBAL_STATE) {
            if (p->n_global_state != i) {
                return bad_spec("GLOBAL_STATE must come first", specs);
            }
            p->n_global_state++;
        }
        if (relation->kind == K_DISTINCT && relation->n_slots > widest) {
            widest = relation->n_slots;
        }
    }
    if (pointer_set_init(&p->scratch, widest) < 0) {
        PyErr_NoMemory();
        return -1;
    }
    return 0;
}

/* ------------------------------------------------------------------------------------------------------------------
   The type GuardProgram. */

static void
free_nodes(Node *nodes, int n)
{
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < nodes[i].n_checks; k++) {
            if (nodes[i].checks[k].kind == K_TENSOR) {
                tensor_spec_free(nodes[i].checks[k].tensor);
            }
        }
        PyMem_Free(nodes[i].checks);
        free_nodes(nodes[i].children, nodes[i].n_children);
    }
    PyMem_Free(nodes);
}

/* Called by the collector and at deallocation; a cleared program misses always. */
static int
program_clear(GuardProgram *p)
{
    Node *roots = p->roots;
    int n_roots = p->n_roots;
    p->roots = NULL;
    p->n_roots = 0;
    free_nodes(roots, n_roots);
    for (int i = 0; i < p->n_relations; i++) {
        PyMem_Free(p->relations[i].slots);
    }
    PyMem_Free(p->relations);
    p->relations = NULL;
    p->n_relations = p->n_global_state = 0;
    records_free(p);
    Py_CLEAR(p->spec);
    return 0;
}

static int
program_traverse(GuardProgram *p, visitproc visit, void *arg)
{
    Py_VISIT(p->spec);
    return records_traverse(p, visit, arg);
}

static void
program_dealloc(GuardProgram *p)
{
    PyObject_GC_UnTrack(p);
    program_clear(p);
    PyMem_Free(p->scratch.slots);
    Py_TYPE(p)->tp_free(p);
}

static PyObject *
program_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"spec", NULL};
    PyObject *spec;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O:GuardProgram", names, &spec)) {
        return NULL;
    }
    PyObject **f = fields(spec, 3, "a program is (roots, relations, n_saved)");
    Py_ssize_t n_saved;
    if (f == NULL || parse_small(f[2], spec, &n_saved) < 0) {
        return NULL;
    }
    GuardProgram *p = (GuardProgram *)type->tp_alloc(type, 0);
    if (p == NULL) {
        return NULL;
    }
    p->spec = Py_NewRef(spec);
    p->n_saved = (int)n_saved;
    p->is_plain = 1;
    if (parse_nodes(p, &p->roots, &p->n_roots, f[0], 1) < 0 || parse_relations(p, f[1]) < 0) {
        Py_DECREF(p);
        return NULL;
    }
    return (PyObject *)p;
}

static int
parse_call(PyObject *args, PyObject **locals, PyObject **closure)
{
    *closure = Py_None;
    if (!PyArg_ParseTuple(args, "O!|O", &PyTuple_Type, locals, closure)) {
        return -1;
    }
    if (*closure == Py_None) {
        *closure = NULL;
    }
    else if (!PyTuple_Check(*closure)) {
        PyErr_SetString(PyExc_TypeError, "closure must be a tuple or None");
        return -1;
    }
    return 0;
}

static PyObject *
program_check(GuardProgram *p, PyObject *args)
{
    PyObject *locals, *closure;
    if (parse_call(args, &locals, &closure) < 0) {
        return NULL;
    }
    int result = guards_evaluate(p, ((PyTupleObject *)locals)->ob_item, PyTuple_GET_SIZE(locals), closure);
    return result == GUARDS_RAISED ? NULL : PyBool_FromLong(result == GUARDS_PASS);
}

static PyObject *
program_first_failure(GuardProgram *p, PyObject *args)
{
    PyObject *locals, *closure;
    if (parse_call(args, &locals, &closure) < 0) {
        return NULL;
    }
    int result = p->spec == NULL ? 0 : evaluate_with_saved(evaluate_fully, p, NULL, ((PyTupleObject *)locals)->ob_item,
                                                           PyTuple_GET_SIZE(locals), closure);
    if (result == GUARDS_PASS) {
        Py_RETURN_NONE;
    }
    return result == GUARDS_RAISED ? NULL : PyLong_FromLong(result);
}

static PyMethodDef program_methods[] = {
    {"check", (PyCFunction)program_check, METH_VARARGS,
     "check(locals, closure=None) -> bool\n\nWhether all guards hold for these bound arguments."},
    {"first_failure", (PyCFunction)program_first_failure, METH_VARARGS,
     "first_failure(locals, closure=None) -> int | None\n\nIndex of the first check that fails."},
    {NULL}
};

PyTypeObject GuardProgram_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "dynamo_lite._eval_frame.GuardProgram",
    .tp_doc = "GuardProgram(spec)\n--\n\nA compiled trie of guards; see guards/program.py for the spec.",
    .tp_basicsize = sizeof(GuardProgram),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = program_new,
    .tp_dealloc = (destructor)program_dealloc,
    .tp_traverse = (traverseproc)program_traverse,
    .tp_clear = (inquiry)program_clear,
    .tp_methods = program_methods,
};

/* ------------------------------------------------------------------------------------------------------------------
   Module. */

static void
find_resumable_iterators(void)
{
    PyTypeObject *const types[] = {&PyListIter_Type, &PyTupleIter_Type, &PyRangeIter_Type, &PyLongRangeIter_Type,
                                   &PyDictIterKey_Type, &PyDictIterValue_Type, &PyDictIterItem_Type};
    memcpy(resumable_iterators, types, sizeof types);
}

int
guards_module_init(PyObject *module)
{
    find_resumable_iterators();
    s_reduce = PyUnicode_InternFromString("__reduce__");
    if (s_reduce == NULL || PyType_Ready(&GuardProgram_Type) < 0
        || PyModule_AddObjectRef(module, "GuardProgram", (PyObject *)&GuardProgram_Type) < 0
        || tensor_module_init(module) < 0) {
        return -1;
    }
    PyObject *kinds = PyDict_New();
#define ADD_KIND(name, value) \
    if (kinds != NULL) { \
        PyObject *number = PyLong_FromLong(value); \
        if (number == NULL || PyDict_SetItemString(kinds, #name, number) < 0) { \
            Py_CLEAR(kinds); \
        } \
        Py_XDECREF(number); \
    }
    ACCESSOR_KINDS(ADD_KIND) CHECK_KINDS(ADD_KIND) RELATION_KINDS(ADD_KIND)
#undef ADD_KIND
    int result = kinds == NULL ? -1 : PyModule_AddObjectRef(module, "KINDS", kinds);
    Py_XDECREF(kinds);
    return result;
}
