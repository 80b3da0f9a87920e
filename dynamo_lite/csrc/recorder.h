/* Taking down the steps of a record: what record.h says, node by node.

   Nothing here runs Python code: the collector is off, and only builtin types are looked into. */

typedef struct {
    GuardProgram *program;
    Record *record;
    int failed;              /* out of memory, or something does not hold any more */
    int level;               /* how many pinned objects lie above the one that is looked at */
    uintptr_t fingerprint;   /* of the objects for which a weak reference is needed that the program does not have */
} Maker;

static void record_value(Maker *maker, Node *node, PyObject *value);

/* Append a step; its keeper is stolen. */
static void
add_step(Maker *maker, Steps *steps, Step step)
{
    if (steps->n == steps->allocated) {
        int room = steps->allocated == 0 ? 16 : 2 * steps->allocated;
        Step *items = resize_array(steps->items, room, sizeof(Step));
        if (items == NULL) {
            Py_XDECREF(step.keeper);
            release_dict_version(step.version_at);
            maker->failed = 1;
            return;
        }
        steps->items = items;
        steps->allocated = room;
    }
    step.level = maker->level;
    step.is_last |= step.kind == CHECK;
    steps->items[steps->n++] = step;
}

/* Called when all that this pure step leads to has been taken down. */
static void
settle_step(Maker *maker, int i)
{
    Steps *pure = &maker->record->pure;
    for (int k = i + 1; k < pure->n; k++) {
        if (pure->items[k].level > maker->level) {
            return;
        }
    }
    if (i < pure->n) {   /* else there was no memory for it */
        pure->items[i].is_last = 1;
    }
}

/* What an accessor finds, if that can be told without running Python code; else NULL. Borrowed. */
static PyObject *
peek(const Node *node, PyObject *object)
{
    PyObject **slot;
    switch (node->kind) {
    case K_INSTANCE_DICT:
        slot = instance_dict_slot(object);
        return slot == NULL ? NULL : *slot;
    case K_DICT_ITEM:
        return PyDict_Check(object) && dict_has_only_str_keys(object) && PyUnicode_CheckExact(node->arg)
            ? PyDict_GetItemWithError(object, node->arg) : NULL;
    case K_INDEX:
        return PyTuple_Check(object) && node->n < PyTuple_GET_SIZE(object) ? PyTuple_GET_ITEM(object, node->n)
            : PyList_Check(object) && node->n < PyList_GET_SIZE(object) ? PyList_GET_ITEM(object, node->n) : NULL;
    case K_CELL_CONTENTS:
        return PyCell_Check(object) ? PyCell_GET(object) : NULL;
    case K_TYPE:
        return (PyObject *)Py_TYPE(object);
    case K_METHOD_SELF:
        return PyMethod_Check(object) ? PyMethod_GET_SELF(object) : NULL;
    case K_METHOD_FUNC:
        return PyMethod_Check(object) ? PyMethod_GET_FUNCTION(object) : NULL;
    }
    return NULL;
}

/* Is it likely to save work if this object is pinned? Instances, functions and methods with guards on what they hold. */
static int
worth_pinning(const Node *node, PyObject *value)
{
    if (node->instability >= TRUST_PIN || PyType_Check(value) || !can_refer_weakly(value)) {
        return 0;
    }
    for (int i = 0; i < node->n_children; i++) {
        int kind = node->children[i].kind;
        if (kind == K_INSTANCE_DICT || kind == K_TYPE || kind == K_METHOD_SELF || kind == K_METHOD_FUNC
            || (kind >= K_FUNC_CODE && kind <= K_FUNC_CLOSURE)) {
            return 1;
        }
    }
    return 0;
}

/* The record will need a weak reference to this object. */
static void
plan_watch(Maker *maker, PyObject *object)
{
    maker->fingerprint = (maker->fingerprint + (uintptr_t)object) * 31 + 1;
}

static int
add_pin(Maker *maker, Node *node, PyObject *value)
{
    Record *record = maker->record;
    if (node->pin_slot == 0) {
        node->pin_slot = ++maker->program->n_pin_slots;
    }
    if (node->pin_slot > record->n_pins) {
        Known *pins = resize_array(record->pins, node->pin_slot, sizeof(Known));
        if (pins == NULL) {
            return 0;
        }
        memset(pins + record->n_pins, 0, (node->pin_slot - record->n_pins) * sizeof(Known));
        record->pins = pins;
        record->n_pins = node->pin_slot;
    }
    record->pins[node->pin_slot - 1].object = value;
    plan_watch(maker, value);
    return 1;
}

/* Whether there was memory for it. */
static int
add_anchor(Record *record, Known anchor)
{
    Known *anchors = resize_array(record->anchors, record->n_anchors + 1, sizeof(Known));
    if (anchors == NULL) {
        return 0;
    }
    Py_INCREF(anchor.weakref);
    record->anchors = anchors;
    anchors[record->n_anchors++] = anchor;
    return 1;
}

/* A node where only one object can be, which the program may not keep alive. */
static void
record_anchor(Maker *maker, Node *node)
{
    if (node->anchor.weakref != NULL
        && !(is_known_alive(&node->anchor) && add_anchor(maker->record, node->anchor))) {
        maker->failed = 1;
        return;
    }
    record_value(maker, node, node->anchor.object);
}

/* A node that is evaluated at each call, in the shallow part. `value` is what it leads to now, or NULL: not known. */
static void
record_shallow(Maker *maker, Node *node, PyObject *value)
{
    if (node->anchor.object != NULL) {
        record_anchor(maker, node);
        return;
    }
    if (value != NULL && worth_pinning(node, value) && add_pin(maker, node, value)) {
        record_value(maker, node, value);
        return;
    }
    for (int i = 0; i < node->n_children; i++) {
        record_shallow(maker, &node->children[i], value == NULL ? NULL : peek(&node->children[i], value));
    }
}

static void
record_evaluated_child(Maker *maker, Node *child, PyObject *parent)
{
    add_step(maker, &maker->record->impure, (Step){.kind = CHILD, .node = child, .object = parent});
    record_shallow(maker, child, peek(child, parent));
}

/* A child whose value is pinned, or pinned to be absent. */
static void
record_pinned_child(Maker *maker, Node *child, PyObject *value)
{
    if (value != NULL) {
        maker->level++;
        record_value(maker, child, value);
        maker->level--;
    }
    else if (child->absent_index < 0) {
        maker->failed = 1;
    }
}

/* Is this an immutable object of a builtin type, all the way down, in so many levels of tuples? */
static int
is_constant_within(PyObject *value, int levels)
{
    PyTypeObject *type = Py_TYPE(value);
    if (type == &PyTuple_Type) {
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(value); i++) {
            if (levels == 0 || !is_constant_within(PyTuple_GET_ITEM(value, i), levels - 1)) {
                return 0;
            }
        }
        return 1;
    }
    return value == Py_None || value == Py_Ellipsis || type == &PyUnicode_Type || type == &PyLong_Type
        || type == &PyBool_Type || type == &PyFloat_Type || type == &PyBytes_Type || type == &PyComplex_Type;
}

enum { LEVELS_OF_CONSTANTS = 50 };

static int
is_constant(PyObject *value)
{
    return is_constant_within(value, LEVELS_OF_CONSTANTS);
}

/* Can an object with this address have another type? Dicts and classes count, because pointer steps do not notice if
   one dies: (c) and (d) above. */
static int
type_can_change(PyObject *value)
{
    return !PyType_HasFeature(Py_TYPE(value), Py_TPFLAGS_IMMUTABLETYPE) || PyModule_Check(value)
        || PyDict_Check(value) || PyType_Check(value);
}

/* Let a pointer step notice if the expected object dies: (a) to (e) above. 0 if that is not possible. */
static int
protect(Maker *maker, const Node *node, Step *step)
{
    PyObject *value = step->expected;
    if (value != NULL && value == node->anchor.object) {
        step->keeper = Py_XNewRef(node->anchor.weakref);
        return 1;
    }
    if (value == NULL || PyDict_Check(value) || node->kind == K_TYPE) {
        return 1;
    }
    if (is_constant(value)) {
        step->keeper = Py_NewRef(value);
        return 1;
    }
    if (!can_refer_weakly(value)) {
        return 0;
    }
    step->watched = 1;
    plan_watch(maker, value);
    return 1;
}

/* Do all keys compare without running Python code? */
static int
dict_has_constant_keys(PyObject *dict)
{
    Py_ssize_t position = 0;
    PyObject *key;
    if (!dict_has_only_str_keys(dict)) {
        while (PyDict_Next(dict, &position, &key, NULL)) {
            if (!is_constant(key)) {
                return 0;
            }
        }
    }
    return 1;
}

/* Does anything at or below this node depend on what is in this dict or class? */
static int
needs_version(const Node *node)
{
    for (int i = 0; i < node->n_checks; i++) {
        int kind = node->checks[i].kind;
        if (kind == K_LEN || kind == K_TRUTH || kind == K_DICT_KEYS || kind == K_HAS_KEY || kind == K_LACKS_KEY) {
            return 1;
        }
    }
    for (int i = 0; i < node->n_children; i++) {
        int kind = node->children[i].kind;
        if (kind == K_DICT_ITEM || kind == K_DICT_KEY || kind == K_DICT_VALUE || kind == K_TYPE_ATTR) {
            return 1;
        }
    }
    return 0;
}

/* Is it to be proved by its version that a dict or class is unchanged? */
static int
has_trusted_version(const Node *node, PyObject *value)
{
    return node->instability < TRUST_VERSION && needs_version(node)
        && (!PyDict_Check(value) || (dict_has_versions(value) && dict_has_constant_keys(value)));
}

/* In a slot that can hold anything, the same pointer need not be the same dict: (c) above. Its version tells, if it is a dict; where
   death gives a version, that alone tells. */
static void
record_dict_type(Maker *maker, Node *node, PyObject *dict)
{
    if (VERSION_TELLS_DEATH && has_trusted_version(node, dict)) {
        return;
    }
    maker->level++;
    add_step(maker, &maker->record->pure,
             (Step){.kind = POINTER_IS, .node = node, .object = dict, .address = (PyObject **)&dict->ob_type,
                    .expected = (PyObject *)Py_TYPE(dict)});
    maker->level--;
}

/* A child in a mutable slot of its parent, which holds step.expected; NULL there means `if_null`. */
static void
record_slot(Maker *maker, Node *child, Step step, PyObject *if_null)
{
    step.node = child;
    if (child->instability >= TRUST_POINTER || !protect(maker, child, &step)) {
        record_evaluated_child(maker, child, step.object);
        return;
    }
    int first = maker->record->pure.n;
    add_step(maker, &maker->record->pure, step);
    if (step.expected != NULL && PyDict_Check(step.expected) && child->kind != K_INSTANCE_DICT) {
        record_dict_type(maker, child, step.expected);
    }
    record_pinned_child(maker, child, step.expected != NULL ? step.expected : if_null);
    settle_step(maker, first);
}

static void
record_dict_item(Maker *maker, Node *child, PyObject *dict, int versioned)
{
    PyObject *key = child->arg;
    int by_step = PyUnicode_CheckExact(key) && dict_has_only_str_keys(dict);
    if (!(versioned && is_constant(key)) && !by_step) {
        record_evaluated_child(maker, child, dict);
        return;
    }
    PyObject *value = PyDict_GetItemWithError(dict, key);
    if (versioned) {
        record_pinned_child(maker, child, value);
    }
    else {
        record_slot(maker, child, (Step){.kind = DICT_ITEM_IS, .object = dict, .key = key, .expected = value}, NULL);
    }
}

static void
record_dict_place(Maker *maker, Node *child, PyObject *dict, int versioned)
{
    PyObject *key = NULL, *value = NULL;
    if (!versioned || PyODict_Check(dict)) {
        record_evaluated_child(maker, child, dict);
        return;
    }
    if (!dict_item_at(dict, child->n, &key, &value)) {
        key = value = NULL;
    }
    record_pinned_child(maker, child, child->kind == K_DICT_KEY ? key : value);
}

static void
record_index(Maker *maker, Node *child, PyObject *sequence)
{
    Py_ssize_t i = child->n;
    if (PyTuple_Check(sequence)) {
        record_pinned_child(maker, child, i < PyTuple_GET_SIZE(sequence) ? PyTuple_GET_ITEM(sequence, i) : NULL);
    }
    else if (PyList_Check(sequence) && i < PyList_GET_SIZE(sequence)) {
        record_slot(maker, child, (Step){.kind = LIST_ITEM_IS, .object = sequence, .i = i,
                                         .expected = PyList_GET_ITEM(sequence, i)}, NULL);
    }
    else {
        record_evaluated_child(maker, child, sequence);
    }
}

static void
record_pointer(Maker *maker, Node *child, PyObject *parent, PyObject **address, PyObject *if_null)
{
    record_slot(maker, child, (Step){.kind = POINTER_IS, .object = parent, .address = address, .expected = *address},
                if_null);
}

static void
record_instance_dict(Maker *maker, Node *child, PyObject *object)
{
    PyObject **slot = instance_dict_slot(object);
    if (slot == NULL || *slot == NULL) {
        record_evaluated_child(maker, child, object);
        return;
    }
    record_pointer(maker, child, object, slot, NULL);
}

/* `versioned`: a step proves that the value, a dict or class, is unchanged. */
static void
record_child(Maker *maker, Node *child, PyObject *value, int versioned)
{
    switch (child->kind) {
    case K_INSTANCE_DICT:
        record_instance_dict(maker, child, value);
        return;
    case K_DICT_ITEM:
        if (PyDict_Check(value)) {
            record_dict_item(maker, child, value, versioned);
            return;
        }
        break;
    case K_DICT_KEY:
    case K_DICT_VALUE:
        if (PyDict_Check(value)) {
            record_dict_place(maker, child, value, versioned);
            return;
        }
        break;
    case K_INDEX:
        record_index(maker, child, value);
        return;
    case K_CELL_CONTENTS:
        if (PyCell_Check(value)) {
            record_pointer(maker, child, value, &((PyCellObject *)value)->ob_ref, NULL);
            return;
        }
        break;
    case K_TYPE:
        if (type_can_change(value)) {
            record_pointer(maker, child, value, (PyObject **)&value->ob_type, NULL);
        }
        else {
            record_pinned_child(maker, child, (PyObject *)Py_TYPE(value));
        }
        return;
    case K_TYPE_ATTR:
        if (versioned) {
            record_pinned_child(maker, child, _PyType_Lookup((PyTypeObject *)value, child->arg));
            return;
        }
        break;
    case K_FUNC_CODE:
    case K_FUNC_DEFAULTS:
    case K_FUNC_KWDEFAULTS:
        if (PyFunction_Check(value)) {
            record_pointer(maker, child, value, function_field(value, child->kind), Py_None);
            return;
        }
        break;
    case K_ATTR:   /* of a function: a read-only member, for which there is no accessor */
        if (PyFunction_Check(value) && PyUnicode_CompareWithASCIIString(child->arg, "__globals__") == 0) {
            record_pinned_child(maker, child, ((PyFunctionObject *)value)->func_globals);
            return;
        }
        break;
    case K_FUNC_CLOSURE:
        if (PyFunction_Check(value)) {
            PyObject *closure = *function_field(value, K_FUNC_CLOSURE);
            record_pinned_child(maker, child, closure != NULL ? closure : Py_None);
            return;
        }
        break;
    case K_METHOD_SELF:
    case K_METHOD_FUNC:
        if (PyMethod_Check(value)) {
            record_pinned_child(maker, child, child->kind == K_METHOD_SELF ? PyMethod_GET_SELF(value)
                                : PyMethod_GET_FUNCTION(value));
            return;
        }
        break;
    }
    record_evaluated_child(maker, child, value);
}

/* Is the truth of this container its size? */
static int
has_builtin_truth(PyObject *value)
{
    PyTypeObject *type = Py_TYPE(value);
    return type == &PyDict_Type || type == &PyODict_Type || type == &PyList_Type || type == &PyTuple_Type
        || type == &PySet_Type || type == &PyFrozenSet_Type;
}

static void
record_check(Maker *maker, Node *node, const Check *check, PyObject *value, int versioned)
{
    Step step = {.kind = CHECK, .node = node, .object = value, .check = check};
    int can_run_python = 1, settled = 0;   /* settled: the outcome cannot change while the earlier steps hold */
    switch (check->kind) {
    case K_IS:
    case K_IS_NOT:
    case K_REF_IS:
    case K_REF_IS_NOT:
        settled = 1;
        break;
    case K_TYPE_IS:
    case K_REF_TYPE_IS:
        settled = !type_can_change(value) || (VERSION_TELLS_DEATH && versioned && PyDict_CheckExact(value));
        if (!settled) {   /* the class is known to the program */
            step = (Step){.kind = POINTER_IS, .node = node, .object = value, .expected = check->known.object,
                          .address = (PyObject **)&value->ob_type, .keeper = Py_XNewRef(check->known.weakref)};
            step.is_last = 1;
            can_run_python = 0;
        }
        break;
    case K_NO_FINALIZER:
        settled = !type_can_change(value);
        can_run_python = 0;
        break;
    case K_NO_FINALIZER_AT:
        can_run_python = !(PyDict_Check(value) && dict_has_only_str_keys(value) && is_constant(check->arg));
        break;
    case K_EQUALS:
    case K_INT64:
        settled = is_constant(value);
        break;
    case K_TRUTH:
        settled = is_constant(value) || (has_builtin_truth(value) && versioned);
        can_run_python = !has_builtin_truth(value);
        break;
    case K_LEN:
        settled = PyTuple_Check(value) || is_constant(value) || (PyDict_Check(value) && versioned);
        can_run_python = !(PyList_Check(value) || PyDict_Check(value) || PyAnySet_Check(value));
        break;
    case K_DICT_KEYS:
        settled = PyDict_Check(value) && !PyODict_Check(value) && versioned;
        break;
    case K_HAS_KEY:
    case K_LACKS_KEY:
        settled = PyDict_Check(value) && versioned && is_constant(check->arg);
        break;
    case K_TENSOR:
        can_run_python = !tensor_spec_is_pure(check->tensor);
        break;
    case K_SAVE:
        maker->record->pinned[check->n] = value;
        return;
    case K_ABSENT:
        maker->failed = 1;
        return;
    }
    if (settled) {
        maker->failed |= check_holds(check, value, NULL) != YES;
    }
    else {
        add_step(maker, can_run_python ? &maker->record->impure : &maker->record->pure, step);
    }
}

/* Add a step that proves that this dict or class is unchanged; whether there is such a step. */
static int
record_version(Maker *maker, Node *node, PyObject *value)
{
    Step step = {.node = node, .object = value};
    if (!has_trusted_version(node, value)) {
        return 0;
    }
    if (PyDict_Check(value)) {
        step.version_at = hold_dict_version(value);
        if (step.version_at == NULL) {
            maker->failed |= VERSION_TELLS_DEATH;   /* its type is not looked at */
            return 0;
        }
        step.kind = DICT_VERSION_IS;
        step.version = *step.version_at;
    }
    else {
        for (int i = 0; i < node->n_children; i++) {
            if (node->children[i].kind == K_TYPE_ATTR) {   /* a lookup assigns a version */
                _PyType_Lookup((PyTypeObject *)value, node->children[i].arg);
                break;
            }
        }
        step.kind = TYPE_VERSION_IS;
        step.version = ((PyTypeObject *)value)->tp_version_tag;
        if (step.version == 0) {
            return 0;
        }
    }
    add_step(maker, &maker->record->pure, step);
    return 1;
}

static void
record_value(Maker *maker, Node *node, PyObject *value)
{
    int first = maker->record->pure.n;
    int versioned = (PyDict_Check(value) || PyType_Check(value)) && record_version(maker, node, value);
    for (int i = 0; i < node->n_checks; i++) {
        record_check(maker, node, &node->checks[i], value, versioned);
    }
    for (int i = 0; i < node->n_children && !maker->failed; i++) {
        record_child(maker, &node->children[i], value, versioned);
    }
    if (versioned) {
        settle_step(maker, first);
    }
}

enum { MANY_OPEN = 16 };   /* so many values are compared pair by pair */

/* Most of the objects that must be distinct are parameters. Only the others have to be looked at again. */
static void
record_distinct(Maker *maker, const Relation *relation, int n_open)
{
    Record *record = maker->record;
    OpenDistinct *distinct = &record->distincts[record->n_distincts++];
    distinct->relation = relation;
    distinct->open = PyMem_New(int, n_open + 1);
    if (distinct->open == NULL || pointer_set_init(&distinct->pinned, relation->n_slots) < 0) {
        maker->failed = 1;
        return;
    }
    for (int i = 0; i < relation->n_slots; i++) {
        PyObject *value = record->pinned[relation->slots[i]];
        if (value == NULL) {
            distinct->open[distinct->n_open++] = relation->slots[i];
        }
        else if (!pointer_set_add(&distinct->pinned, value)) {
            maker->failed = 1;
        }
    }
}

static void
record_fill(Record *record, int slot)
{
    for (int i = 0; i < record->n_fills; i++) {
        if (record->fills[i] == slot) {
            return;
        }
    }
    if (record->pinned[slot] != NULL) {
        record->fills[record->n_fills++] = slot;
    }
}

static void
record_relation(Maker *maker, const Relation *relation)
{
    Record *record = maker->record;
    int n_open = 0;
    for (int i = 0; i < relation->n_slots; i++) {
        n_open += record->pinned[relation->slots[i]] == NULL;
    }
    if (relation->kind == K_DISTINCT && n_open < relation->n_slots && n_open <= MANY_OPEN) {
        record_distinct(maker, relation, n_open);
        return;
    }
    if (relation->kind == K_SAME && n_open == 0) {
        maker->failed |= record->pinned[relation->slots[0]] != record->pinned[relation->slots[1]];
        return;
    }
    record->relations[record->n_relations++] = relation;
    for (int i = 0; i < relation->n_slots; i++) {
        record_fill(record, relation->slots[i]);
    }
}
