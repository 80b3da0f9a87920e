/* Evaluating guards: accessors, checks, relations.

   Input:  the nodes and relations of a program, and values. Output: does it hold, or the index of what does not.

   Invariants
   - An accessor or check never assumes the type of a value: on an unexpected type it is a miss, never a crash.
   - Values are held by a strong reference while anything that may run Python code looks at them.
   - An Exception raised by user code inside a check is a miss; a BaseException propagates. */

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

/* Of what two values were converted to, or NULL with an exception; takes the references. */
static int
strict_equal_taken(PyObject *a, PyObject *b)
{
    int result = a == NULL || b == NULL ? RAISED : strict_equal(a, b);
    Py_XDECREF(a);
    Py_XDECREF(b);
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
        result = strict_equal_taken(x, x == NULL ? NULL : PyObject_GetAttrString(b, fields[i]));
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
    if (c_stack_is_used_up() || Py_EnterRecursiveCall(" in a guard")) {
        return RAISED;
    }
    if (PyTuple_Check(a) && type->tp_richcompare == PyTuple_Type.tp_richcompare) {
        result = PyTuple_GET_SIZE(a) != PyTuple_GET_SIZE(b) ? NO : strict_equal_items(
            ((PyTupleObject *)a)->ob_item, ((PyTupleObject *)b)->ob_item, PyTuple_GET_SIZE(a));
    }
    else if (type == &PyList_Type) {
        PyObject *x = PyList_AsTuple(a);
        result = strict_equal_taken(x, x == NULL ? NULL : PyList_AsTuple(b));
    }
    else if (type == &PyDict_Type) {
        PyObject *x = PyDict_Items(a);
        result = strict_equal_taken(x, x == NULL ? NULL : PyDict_Items(b));
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

/* The result of code that may have raised, where an AttributeError says that there is nothing. */
static PyObject *
attribute_value(PyObject *owned, int *why)
{
    if (owned == NULL && PyErr_ExceptionMatches(PyExc_AttributeError)) {
        PyErr_Clear();
    }
    return computed(owned, why);
}

static PyObject *
access_attribute(PyObject *object, PyObject *name, int *why)
{
    return attribute_value(PyObject_GetAttr(object, name), why);
}

/* The dict of a class itself; a new reference. */
static PyObject *
class_dict(PyTypeObject *type)
{
#if PY_VERSION_HEX >= 0x030C0000
    return PyType_GetDict(type);
#else
    return Py_XNewRef(type->tp_dict);
#endif
}

/* What a class statement has made, or a C extension that allows changes. */
static int
is_mutable_class(PyTypeObject *type)
{
    return (type->tp_flags & (Py_TPFLAGS_HEAPTYPE | Py_TPFLAGS_IMMUTABLETYPE)) == Py_TPFLAGS_HEAPTYPE;
}

/* What the first getset or member descriptor of this name along the MRO says, whatever else the program has put before it; `fields`: the
   first one of an immutable class. No attribute lookup takes place, so no method of the program runs. */
static PyObject *
access_member(PyObject *object, PyObject *name, int fields, int *why)
{
    PyTypeObject *type = Py_TYPE(object);
    PyObject *descriptor = NULL;
    Py_ssize_t n = type->tp_mro != NULL ? PyTuple_GET_SIZE(type->tp_mro) : 0;
    for (Py_ssize_t i = 0; i < n && descriptor == NULL; i++) {
        PyTypeObject *base = (PyTypeObject *)PyTuple_GET_ITEM(type->tp_mro, i);
        if (fields && is_mutable_class(base)) {
            continue;
        }
        PyObject *dict = class_dict(base);
        if (dict == NULL) {
            return computed(NULL, why);
        }
        descriptor = PyDict_GetItemWithError(dict, name);
        if (descriptor == NULL && PyErr_Occurred()) {
            Py_DECREF(dict);
            return computed(NULL, why);
        }
        if (descriptor != NULL && !Py_IS_TYPE(descriptor, &PyGetSetDescr_Type) && !Py_IS_TYPE(descriptor, &PyMemberDescr_Type)) {
            descriptor = NULL;
        }
        Py_XINCREF(descriptor);
        Py_DECREF(dict);
    }
    if (descriptor == NULL) {
        return not_applicable(why);
    }
    PyObject *value = Py_TYPE(descriptor)->tp_descr_get(descriptor, object, (PyObject *)type);
    Py_DECREF(descriptor);
    return attribute_value(value, why);
}

/* obj.__dict__ without calling anything: the real dict, made on demand as CPython does. */
static PyObject *
access_instance_dict(PyObject *object, int *why)
{
    if (PyType_Check(object)) {
        return computed(class_dict((PyTypeObject *)object), why);
    }
    PyObject **slot = instance_dict_slot(object);
    if (slot == NULL) {   /* it has none, or there is no memory for it */
        return Py_TYPE(object)->tp_dictoffset == 0 ? found(NULL, why) : not_applicable(why);
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

/* The i-th item of a dict that keeps no order of its own; 0 if there is none. Borrowed. A position of PyDict_Next() is the number of an
   entry: where nothing was deleted, the i-th entry is the i-th item, and no entry follows those that are counted. */
static int
dict_item_at(PyObject *dict, Py_ssize_t i, PyObject **key, PyObject **value)
{
    Py_ssize_t position = PyDict_GET_SIZE(dict);
    if (i >= position) {
        return 0;
    }
    if (!PyDict_Next(dict, &position, NULL, NULL)) {
        position = i;
        return PyDict_Next(dict, &position, key, value);
    }
    position = 0;
    for (Py_ssize_t k = 0; k <= i; k++) {
        if (!PyDict_Next(dict, &position, key, value)) {
            return 0;
        }
    }
    return 1;
}

/* The value of an OrderedDict for one of its keys, found by identity: no key is asked whether it equals another. Borrowed. */
static PyObject *
value_of_own_key(PyObject *dict, PyObject *own)
{
    Py_ssize_t position = 0;
    PyObject *key, *value;
    while (PyDict_Next(dict, &position, &key, &value)) {
        if (key == own) {
            return value;
        }
    }
    return NULL;
}

/* DICT_KEY, DICT_VALUE */
static PyObject *
access_dict_place(PyObject *dict, const Node *node, int *why)
{
    Py_ssize_t i = node->n;
    PyObject *key = NULL, *value = NULL;
    if (!PyDict_Check(dict)) {
        return not_applicable(why);
    }
    if (PyODict_Check(dict)) {   /* keeps an order of its own */
        PyObject *keys = ordered_keys(dict);
        if (keys != NULL && i < PyTuple_GET_SIZE(keys)) {
            key = PyTuple_GET_ITEM(keys, i);
            value = Py_XNewRef(node->kind == K_DICT_KEY ? key : value_of_own_key(dict, key));
        }
        Py_XDECREF(keys);
        return computed(value, why);
    }
    if (!dict_item_at(dict, i, &key, &value)) {
        return found(NULL, why);
    }
    return found(node->kind == K_DICT_KEY ? key : value, why);
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

static inline PyObject **
function_field(PyObject *object, int kind)
{
    PyFunctionObject *function = (PyFunctionObject *)object;
    return kind == K_FUNC_CODE ? &function->func_code
        : kind == K_FUNC_DEFAULTS ? &function->func_defaults
        : kind == K_FUNC_KWDEFAULTS ? &function->func_kwdefaults
        : &function->func_closure;
}

static PyObject *
access_function_field(PyObject *object, int kind, int *why)
{
    if (!PyFunction_Check(object)) {
        return not_applicable(why);
    }
    PyObject *value = *function_field(object, kind);
    return found(value != NULL ? value : Py_None, why);
}

static PyObject *
follow(const Node *node, PyObject *object, int *why)
{
    switch (node->kind) {
    case K_ATTR:
        return access_attribute(object, node->arg, why);
    case K_FIELD:
    case K_MEMBER:
        return access_member(object, node->arg, node->kind == K_FIELD, why);
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
    case K_DICT_VALUE:
        return access_dict_place(object, node, why);
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
        return strict_equal_taken(ordered_keys(dict), Py_NewRef(keys));
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

/* The like for a key that may be gone by now, which is in no container then. */
static int
check_contains_known(PyObject *container, const Known *key, int expected)
{
    if (key->object == NULL || !is_known_alive(key)) {
        return NO;
    }
    PyObject *alive = Py_NewRef(key->object);
    int result = check_contains(container, alive, expected);
    Py_DECREF(alive);
    return result;
}

static int
check_predicate(PyObject *predicate, PyObject *value)
{
    PyObject *result = PyObject_CallOneArg(predicate, value);
    int truth = result == NULL ? RAISED : PyObject_IsTrue(result);
    Py_XDECREF(result);
    return truth;
}

/* Does `__del__` of a class made by a class statement run when this object dies? Classes of C modules, such as those of `io`, are heap
   types too since 3.12, and immutable. */
static int
has_finalizer(PyObject *value)
{
    PyTypeObject *type = Py_TYPE(value);
    return type->tp_finalize != NULL && PyType_HasFeature(type, Py_TPFLAGS_HEAPTYPE)
           && !PyType_HasFeature(type, Py_TPFLAGS_IMMUTABLETYPE);
}

static int
check_item_finalizer(PyObject *value, PyObject *key)
{
    PyObject *item;
    if (!PyDict_Check(value)) {
        return NO;
    }
    item = PyDict_GetItemWithError(value, key);
    return item != NULL ? !has_finalizer(item) : PyErr_Occurred() ? RAISED : YES;
}

/* YES, NO, or RAISED with a BaseException set. */
static int
check_holds(const Check *check, PyObject *value, PyObject **saved)
{
    int result;
    switch (check->kind) {
    case K_IS:
    case K_REF_IS:
        return is_known(&check->known, value);
    case K_IS_NOT:
    case K_REF_IS_NOT:
        return !is_known(&check->known, value);
    case K_TYPE_IS:
    case K_REF_TYPE_IS:
        return is_known(&check->known, Py_TYPE(value));
    case K_INT64:
        result = !PyLong_CheckExact(value);
        if (!result) {
            (void)PyLong_AsLongLongAndOverflow(value, &result);
        }
        return result == 0;
    case K_NO_FINALIZER:
        return !has_finalizer(value);
    case K_NO_FINALIZER_AT:
        result = check_item_finalizer(value, check->arg);
        break;
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
    case K_REF_HAS_KEY:
    case K_REF_LACKS_KEY:
        result = check_contains_known(value, &check->known, check->kind == K_REF_HAS_KEY);
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

/* Is there a pin at this node? If so, *holds tells whether it is the right object. */
static int
record_has_pin(Record *record, const Node *node, PyObject *value, int *holds)
{
    const Known *pin = node->pin_slot <= record->n_pins ? &record->pins[node->pin_slot - 1] : NULL;
    if (pin == NULL || pin->object == NULL) {
        return 0;
    }
    *holds = pin->object == value;   /* and alive, as record_evaluate() finds out for all pins together */
    if (!*holds) {
        record->stale = (Node *)node;
    }
    return 1;
}

static int evaluate_node(const Node *node, PyObject *value, PyObject **saved, Record *record);

/* The results of these are GUARDS_PASS, GUARDS_RAISED or the index of the check that failed. The caller keeps values
   alive. With a record, what lies at and below an IS check or a pinned object is left out, except that the object must
   be the right one; if it is not the one that the record is about, the result is OTHER_OBJECT. */
static int
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

static int
evaluate_node(const Node *node, PyObject *value, PyObject **saved, Record *record)
{
    if (record != NULL) {
        int holds;
        if (node->anchor.object != NULL) {
            return is_known(&node->anchor, value) ? GUARDS_PASS : node->anchor_index;
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

/* A root's value (borrowed), or NULL. */
static PyObject *
root_value(const Node *root, PyObject *const *locals, Py_ssize_t n_locals, PyObject *closure)
{
    switch (root->kind) {
    case K_CONST:
        return root->arg;
    case K_REFERENT:
        return root->anchor.object != NULL && is_known_alive(&root->anchor) ? root->anchor.object : NULL;
    case K_LOCAL:
        return root->n < n_locals ? locals[root->n] : NULL;
    default:   /* FREEVAR */
        return closure != NULL && root->n < PyTuple_GET_SIZE(closure) ? PyTuple_GET_ITEM(closure, root->n) : NULL;
    }
}

static int
evaluate_root(const Node *root, PyObject *const *locals, Py_ssize_t n_locals, PyObject *closure, PyObject **saved,
              Record *record)
{
    PyObject *value = root_value(root, locals, n_locals, closure);
    if (value == NULL) {
        return root->first_index;
    }
    if (root->only_type.object != NULL) {
        return is_known(&root->only_type, Py_TYPE(value)) ? GUARDS_PASS : root->first_index;
    }
    if (root->kind != K_REFERENT) {
        return evaluate_node(root, value, saved, record);
    }
    Py_INCREF(value);   /* of the others there is an owner */
    int result = evaluate_node(root, value, saved, record);
    Py_DECREF(value);
    return result;
}

/* ------------------------------------------------------------------------------------------------------------------
   Relations. */

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

/* Every entry with a graph asks three of these at each call, so they are called without what CPython does around a call. */
static int
relation_global_state(PyObject *function)
{
    if (Py_TYPE(function) == &ClassCheck_Type) {
        int holds = class_check_holds((ClassCheck *)function);
        return holds < 0 ? miss_or_raised() : holds;
    }
    PyObject *result = PyCFunction_CheckExact(function) && PyCFunction_GET_FLAGS(function) == METH_NOARGS
        ? PyCFunction_GET_FUNCTION(function)(PyCFunction_GET_SELF(function), NULL) : PyObject_CallNoArgs(function);
    int truth = result == Py_True ? YES : result == NULL ? RAISED : PyObject_IsTrue(result);
    Py_XDECREF(result);
    return truth == RAISED ? miss_or_raised() : truth;
}

static int
evaluate_relation(GuardProgram *p, const Relation *relation, PyObject **saved)
{
    int result = relation->kind == K_GLOBAL_STATE ? relation_global_state(relation->function)
        : relation->kind == K_SAME ? saved[relation->slots[0]] == saved[relation->slots[1]]
        : relation->kind == K_DISTINCT ? relation_distinct(p, relation, saved)
        : relation_predicate(relation, saved);
    return result == YES ? GUARDS_PASS : result == RAISED ? GUARDS_RAISED : relation->index;
}

/* ------------------------------------------------------------------------------------------------------------------
   Evaluation of a program. */

/* Fill in the arguments that are still missing; whether all are there then. */
static int
handover_fill(const GuardProgram *p, Handover *handover, PyObject *const *values)
{
    const GraphCall *graph = p->graph;
    const int *slot = p->handed_slots;
    int complete = 1;
    for (int i = 0; i < graph->n_spans; i++) {
        PyObject **args = handover->room + 1 + graph->handed[i].first;
        for (int k = 0; k < graph->handed[i].n; k++, slot++) {
            if (args[k] == NULL) {
                args[k] = Py_XNewRef(values[*slot]);
                complete &= args[k] != NULL;
            }
        }
    }
    return complete;
}

/* The end of an evaluation: hand over, or free. Something missing (out of memory; by construction nothing else can be)
   counts as a miss: the original function is always right. */
static int
handover_finish(const GuardProgram *p, int result, Handover *handover, PyObject *const *saved, Handover **wanted)
{
    if (result == GUARDS_PASS && handover != NULL && handover_fill(p, handover, saved)) {
        *wanted = handover;
        return GUARDS_PASS;
    }
    handover_free(handover);
    return result == GUARDS_PASS ? 0 : result;
}

static int
evaluate_fully(GuardProgram *p, Record *Py_UNUSED(record), PyObject *const *locals, Py_ssize_t n_locals,
               PyObject *closure, PyObject **saved, Handover **wanted)
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
    if (wanted != NULL && result == GUARDS_PASS) {
        result = handover_finish(p, result, handover_new(p->graph, NULL), saved, wanted);
    }
    return result;
}

/* Runs an evaluation with room for the saved values; it owns what it stores there. `wanted` is where it puts the handover
   if it succeeds; NULL: there is none, or it is not needed. */
typedef int (*Evaluator)(GuardProgram *, Record *, PyObject *const *, Py_ssize_t, PyObject *, PyObject **, Handover **);

enum { SAVED_ON_STACK = 16 };

static int
evaluate_with_saved(Evaluator evaluator, GuardProgram *p, Record *record, PyObject *const *locals,
                    Py_ssize_t n_locals, PyObject *closure, Handover **wanted)
{
    if (p->n_saved == 0) {
        return evaluator(p, record, locals, n_locals, closure, NULL, NULL);
    }
    PyObject *few[SAVED_ON_STACK], **saved = few;
    if (p->n_saved > SAVED_ON_STACK) {
        saved = PyMem_New(PyObject *, p->n_saved);
        if (saved == NULL) {
            return 0;   /* out of memory: the original function is always right */
        }
    }
    /* Most slots are for parameters, which a record has pinned: only the others are used. */
    const int *open = record == NULL ? NULL : record->open;
    int n_open = record == NULL ? p->n_saved : record->n_open;
    for (int i = 0; i < n_open; i++) {
        saved[open == NULL ? i : open[i]] = NULL;
    }
    int result = evaluator(p, record, locals, n_locals, closure, saved, wanted);
    for (int i = 0; i < n_open; i++) {
        Py_XDECREF(saved[open == NULL ? i : open[i]]);
    }
    if (saved != few) {
        PyMem_Free(saved);
    }
    return result;
}
