/* Guard programs: decide in a few dozen nanoseconds whether compiled code is valid for these arguments.

   Input:  the spec that guards/program.py builds from the guard IR: a trie of access paths with checks.
   Output: guards_evaluate(), and the Python type GuardProgram around it. */

/* ------------------------------------------------------------------------------------------------------------------
   Evaluation. */

enum { SHALLOW = 20, C_STACK_OF_A_NODE = 512 };

/* Evaluate on bound arguments. `closure` is the function's closure tuple or NULL. Never returns with an Exception
   set: those count as a miss; a BaseException (KeyboardInterrupt) gives GUARDS_RAISED and stays set. On success
   *handover, if that is asked for, is set for programs with a GraphCall; the caller then owns it. */
static int
guards_evaluate(GuardProgram *p, PyObject *const *locals, Py_ssize_t n_locals, PyObject *closure, Handover **handover)
{
    Handover **wanted = p->graph == NULL ? NULL : handover;
    if (p->spec == NULL) {
        return 0;   /* cleared by the collector */
    }
    if (p->deepest > SHALLOW && c_stack_left() < C_STACK_SPARE + (size_t)p->deepest * C_STACK_OF_A_NODE) {
        return 0;   /* a miss: this thread cannot look so deep */
    }
    if (p->is_plain || p->busy) {   /* busy: a guard calls the guarded function, or another thread is here */
        return evaluate_with_saved(evaluate_fully, p, NULL, locals, n_locals, closure, wanted);
    }
    int renew = -1, result = STALE;
    if (p->n_records > 0) {
        p->busy = 1;
        result = records_evaluate(p, locals, n_locals, closure, &renew, wanted);
        p->busy = 0;
    }
    if (result == STALE) {
        p->busy = 1;
        result = evaluate_with_saved(evaluate_fully, p, NULL, locals, n_locals, closure, wanted);
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

/* The argument of a check, an accessor or a relation: what stands in the spec, or, for (..., n), the n-th of the program's objects.
   So a spec that comes from a file need not be built anew to put the objects of this process into it. Borrowed. */
static PyObject *
argument_of(GuardProgram *p, PyObject *arg)
{
    if (p->objects == NULL || !PyTuple_CheckExact(arg) || PyTuple_GET_SIZE(arg) != 2
        || PyTuple_GET_ITEM(arg, 0) != Py_Ellipsis) {
        return arg;
    }
    Py_ssize_t n;
    if (parse_small(PyTuple_GET_ITEM(arg, 1), arg, &n) < 0) {
        return NULL;
    }
    if (n >= PyTuple_GET_SIZE(p->objects)) {
        bad_spec("there is no such object", arg);
        return NULL;
    }
    return PyTuple_GET_ITEM(p->objects, n);
}

/* The compiled form of a TENSOR check's argument; one for all checks with this very argument. */
static TensorSpec *
shared_tensor_spec(GuardProgram *p, PyObject *argument)
{
    for (int i = p->n_tensors; i-- > 0;) {
        if (p->tensors[i]->argument == argument) {
            return p->tensors[i];
        }
    }
    if ((p->n_tensors & (p->n_tensors - 1)) == 0) {   /* full: the room is a power of two */
        size_t room = p->n_tensors == 0 ? 1 : 2 * (size_t)p->n_tensors;
        TensorSpec **tensors = resize_array(p->tensors, room, sizeof(TensorSpec *));
        if (tensors == NULL) {
            PyErr_NoMemory();
            return NULL;
        }
        p->tensors = tensors;
    }
    TensorSpec *spec = tensor_spec_parse(argument);
    return spec == NULL ? NULL : (p->tensors[p->n_tensors++] = spec);
}

/* The argument of a kind that demands this of it, into `check`. */
static int
parse_argument(GuardProgram *p, enum Argument demanded, PyObject *arg, PyObject *spec, Check *check)
{
    if (arg == NULL) {
        return -1;
    }
    check->arg = arg;
    switch (demanded) {
    case ARG_NOTHING:
        return 0;
    case ARG_TYPE:
    case ARG_OBJECT:
        check->known = (Known){.object = arg};
        return demanded == ARG_OBJECT || PyType_Check(arg) ? 0 : bad_spec("expected a type", spec);
    case ARG_WEAKREF:
        if (!PyWeakref_CheckRef(arg)) {
            return bad_spec("expected a weak reference", spec);
        }
        check->known = known_referent(arg);
        return 0;
    case ARG_TUPLE:
        return PyTuple_Check(arg) ? 0 : bad_spec("expected a tuple", spec);
    case ARG_NAME:
        return PyUnicode_CheckExact(arg) ? 0 : bad_spec("expected a name", spec);
    case ARG_BOOL:
        check->n = arg == Py_True;
        return PyBool_Check(arg) ? 0 : bad_spec("expected a bool", spec);
    case ARG_NUMBER:
        return parse_small(arg, spec, &check->n);
    case ARG_SLOT:
        if (parse_small(arg, spec, &check->n) < 0) {
            return -1;
        }
        if (check->n >= p->n_saved) {
            return bad_spec("slot out of range", spec);
        }
        p->saves_again |= p->is_saved[check->n];
        p->is_saved[check->n] = 1;
        return 0;
    case ARG_TENSOR:
        check->tensor = shared_tensor_spec(p, arg);
        return check->tensor == NULL ? -1 : 0;
    case ARG_UNKNOWN_KIND:
        break;
    }
    return bad_spec("unknown kind", spec);
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
    enum Argument demanded = kind < (Py_ssize_t)sizeof(check_arguments) ? check_arguments[kind] : ARG_UNKNOWN_KIND;
    return parse_argument(p, demanded, argument_of(p, f[1]), spec, check);
}

static int parse_nodes(GuardProgram *p, Node **nodes, int *count, PyObject *specs, int roots);

static int
parse_step(GuardProgram *p, Node *node, int root, PyObject *spec, PyObject *arg)
{
    enum Argument demanded = (size_t)node->kind < sizeof(step_arguments) ? step_arguments[node->kind] : ARG_UNKNOWN_KIND;
    Check parsed = {0};
    if (parse_argument(p, demanded, arg, spec, &parsed) < 0) {
        return -1;
    }
    node->arg = arg;
    if (demanded == ARG_NUMBER) {
        node->n = parsed.n;
    }
    if (node->kind == K_REFERENT) {
        node->anchor = parsed.known;
    }
    int is_root = node->kind == K_LOCAL || node->kind == K_FREEVAR || node->kind == K_CONST || node->kind == K_REFERENT;
    if (node->kind == K_CONST || node->kind == K_REFERENT || (demanded == ARG_NOTHING && node->kind != K_CELL_CONTENTS)) {
        p->is_plain = 0;   /* a field of C, or the object itself: it can be pinned */
    }
    return is_root == root ? 0 : bad_spec(root ? "a root must be LOCAL, FREEVAR, CONST or REFERENT" : "a root inside the trie", spec);
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
    node->absent_index = -1;
    if (parse_step(p, node, root, spec, argument_of(p, f[1])) < 0) {
        return -1;
    }
    int n = (int)PyTuple_GET_SIZE(f[2]);
    if ((node->checks = new_array(n, sizeof(Check))) == NULL) {
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
        else if ((check->kind == K_IS || check->kind == K_REF_IS) && node->kind != K_REFERENT) {
            p->is_plain = 0;
            node->anchor = check->known;
            node->anchor_index = check->index;
        }
    }
    if (parse_nodes(p, &node->children, &node->n_children, f[3], 0) < 0) {
        return -1;
    }
    if (n == 0 && node->n_children == 0) {
        return bad_spec("a node with nothing to check", spec);
    }
    int kind_of_first = n == 1 && node->n_children == 0 ? node->checks[0].kind : -1;
    if (kind_of_first == K_TYPE_IS || kind_of_first == K_REF_TYPE_IS) {
        node->only_type = node->checks[0].known;
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
    if (c_stack_is_used_up() || Py_EnterRecursiveCall(" while building a guard program")) {
        return -1;
    }
    p->depth++;
    p->deepest = Py_MAX(p->deepest, p->depth);
    int n = (int)PyTuple_GET_SIZE(specs), result = 0;
    if ((*nodes = new_array(n, sizeof(Node))) == NULL) {
        result = -1;
    }
    else {
        *count = n;   /* zeroed nodes are safe to free */
        for (int i = 0; result == 0 && i < n; i++) {
            result = parse_node(p, &(*nodes)[i], PyTuple_GET_ITEM(specs, i), roots);
        }
    }
    p->depth--;
    Py_LeaveRecursiveCall();
    return result;
}

/* The slot of a saved value. */
static int
parse_slot(const GuardProgram *p, PyObject *number, PyObject *spec, int *slot)
{
    Py_ssize_t n;
    if (parse_small(number, spec, &n) < 0) {
        return -1;
    }
    *slot = (int)n;
    return n < p->n_saved && p->is_saved[n] ? 0 : bad_spec("a slot that no node fills", spec);
}

/* SAME (i, j); DISTINCT (i, ...); PREDICATE (function, (i, ...)); GLOBAL_STATE function. */
static int
parse_relation(GuardProgram *p, Relation *relation, PyObject *spec)
{
    PyObject **f = fields(spec, 3, "a relation is (kind, arg, index)");
    Py_ssize_t kind, index;
    if (f == NULL || parse_small(f[0], spec, &kind) < 0 || parse_small(f[2], spec, &index) < 0) {
        return -1;
    }
    relation->kind = (int)kind;
    relation->index = (int)index;
    PyObject *slots = f[1];
    switch (kind) {
    case K_GLOBAL_STATE:
        relation->function = argument_of(p, f[1]);
        return relation->function == NULL ? -1 : 0;
    case K_PREDICATE:
        f = fields(f[1], 2, "PREDICATE takes (function, slots)");
        if (f == NULL) {
            return -1;
        }
        relation->function = argument_of(p, f[0]);
        if (relation->function == NULL) {
            return -1;
        }
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
    if ((relation->slots = new_array(relation->n_slots, sizeof(int))) == NULL) {
        return -1;
    }
    for (int i = 0; i < relation->n_slots; i++) {
        if (parse_slot(p, PyTuple_GET_ITEM(slots, i), spec, &relation->slots[i]) < 0) {
            return -1;
        }
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
    if ((p->relations = new_array(n, sizeof(Relation))) == NULL) {
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

/* Nodes may lie thousands of levels deep, and be freed where the C stack is short: no recursion. The first node of an array that is still
   to be freed says with its `arg` which array is next, and with its `n` how long it is itself. */
static void
free_nodes(Node *nodes, int n)
{
    Node *next = NULL;
    while (nodes != NULL) {
        for (int i = 0; i < n; i++) {
            Node *children = nodes[i].children;
            PyMem_Free(nodes[i].checks);
            if (children != NULL && nodes[i].n_children > 0) {
                children->arg = (PyObject *)next;
                children->n = nodes[i].n_children;
                next = children;
            }
            else {
                PyMem_Free(children);
            }
        }
        PyMem_Free(nodes);
        nodes = next;
        if (nodes != NULL) {
            next = (Node *)nodes->arg;
            n = (int)nodes->n;
        }
    }
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
    while (p->n_tensors > 0) {
        PyMem_Free(p->tensors[--p->n_tensors]);
    }
    PyMem_Free(p->tensors);
    p->tensors = NULL;
    Py_CLEAR(p->spec);
    Py_CLEAR(p->objects);
    Py_CLEAR(p->graph);
    return 0;
}

static int
program_traverse(GuardProgram *p, visitproc visit, void *arg)
{
    Py_VISIT(p->spec);
    Py_VISIT(p->objects);
    Py_VISIT(p->graph);
    return records_traverse(p, visit, arg);
}

static void
program_dealloc(GuardProgram *p)
{
    PyObject_GC_UnTrack(p);
    program_clear(p);
    PyMem_Free(p->scratch.slots);
    PyMem_Free(p->handed_slots);
    PyMem_Free(p->seen);
    PyMem_Free(p->is_saved);
    Py_TYPE(p)->tp_free(p);
}

static int
parse_handed(GuardProgram *p, GraphCall *graph, PyObject *slots)
{
    Py_ssize_t n = PyTuple_GET_SIZE(slots);
    if (n != graph->n_handed) {
        return bad_spec("the graph has another number of arguments to be handed over", slots);
    }
    if ((p->handed_slots = new_array(n, sizeof(int))) == NULL) {
        return -1;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        if (parse_slot(p, PyTuple_GET_ITEM(slots, i), slots, &p->handed_slots[i]) < 0) {
            return -1;
        }
    }
    p->graph = n == 0 ? NULL : (GraphCall *)Py_NewRef(graph);
    return 0;
}

static PyObject *
program_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"spec", "graph", "handed_slots", "objects", NULL};
    PyObject *spec, *graph = NULL, *slots = NULL, *objects = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|O!O!O!:GuardProgram", names, &spec, &GraphCall_Type, &graph,
                                     &PyTuple_Type, &slots, &PyTuple_Type, &objects)) {
        return NULL;
    }
    if ((graph == NULL) != (slots == NULL)) {
        PyErr_SetString(PyExc_TypeError, "graph and handed_slots belong together");
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
    p->objects = Py_XNewRef(objects);
    p->n_saved = (int)n_saved;
    p->is_plain = 1;
    p->is_saved = new_array(n_saved, 1);
    if (p->is_saved == NULL || parse_nodes(p, &p->roots, &p->n_roots, f[0], 1) < 0 || parse_relations(p, f[1]) < 0
        || (graph != NULL && parse_handed(p, (GraphCall *)graph, slots) < 0)) {
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
    int result = guards_evaluate(p, ((PyTupleObject *)locals)->ob_item, PyTuple_GET_SIZE(locals), closure, NULL);
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
                                                           PyTuple_GET_SIZE(locals), closure, NULL);
    if (result == GUARDS_PASS) {
        Py_RETURN_NONE;
    }
    return result == GUARDS_RAISED ? NULL : PyLong_FromLong(result);
}

/* Does something here demand an object that is gone? */
static int
nodes_are_outlived(const Node *nodes, int n)
{
    for (int i = 0; i < n; i++) {
        const Node *node = &nodes[i];
        if (node->kind == K_REFERENT && (node->anchor.object == NULL || !is_known_alive(&node->anchor))) {
            return 1;
        }
        for (int k = 0; k < node->n_checks; k++) {
            const Check *check = &node->checks[k];
            if (check_arguments[check->kind] == ARG_WEAKREF && check->kind != K_REF_IS_NOT
                && (check->known.object == NULL || !is_known_alive(&check->known))) {
                return 1;
            }
        }
        if (nodes_are_outlived(node->children, node->n_children)) {
            return 1;
        }
    }
    return 0;
}

static PyObject *
program_outlived(GuardProgram *p, PyObject *Py_UNUSED(ignored))
{
    return PyBool_FromLong(nodes_are_outlived(p->roots, p->n_roots));
}

static PyMethodDef program_methods[] = {
    {"outlived", (PyCFunction)program_outlived, METH_NOARGS,
     "outlived() -> bool\n\nWhether the guards can never hold again: they demand an object that is gone."},
    {"check", (PyCFunction)program_check, METH_VARARGS,
     "check(locals, closure=None) -> bool\n\nWhether all guards hold for these bound arguments."},
    {"first_failure", (PyCFunction)program_first_failure, METH_VARARGS,
     "first_failure(locals, closure=None) -> int | None\n\nIndex of the first check that fails."},
    {NULL}
};

static PyTypeObject GuardProgram_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "dynamo_lite._eval_frame.GuardProgram",
    .tp_doc = "GuardProgram(spec, graph=None, handed_slots=())\n--\n\n"
              "A compiled trie of guards; see guards/program.py for the spec. With a GraphCall, the values saved in these slots\n"
              "are handed over to it.",
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

/* Add GuardProgram, GUARD_KINDS and the tensor functions to the module. */
static int
guards_module_init(PyObject *module)
{
    find_resumable_iterators();
    if (PyType_Ready(&GuardProgram_Type) < 0
        || PyModule_AddObjectRef(module, "GuardProgram", (PyObject *)&GuardProgram_Type) < 0
        || PyModule_AddFunctions(module, tensor_functions) < 0) {
        return -1;
    }
#define FORMAT(name, value, argument) "s(is)"
#define VALUES(name, value, argument) , #name, value, #argument
    PyObject *kinds = Py_BuildValue("{" STEP_KINDS(FORMAT) CHECK_KINDS(FORMAT) RELATION_KINDS(FORMAT) "}"
                                    STEP_KINDS(VALUES) CHECK_KINDS(VALUES) RELATION_KINDS(VALUES));
#undef FORMAT
#undef VALUES
    int result = kinds == NULL ? -1 : PyModule_AddObjectRef(module, "GUARD_KINDS", kinds);
    Py_XDECREF(kinds);
    return result;
}
