/* The pure steps of a record, in the form in which they are run: sorted, packed into two words each, in runs of one kind.

   The order. record_value() takes steps down in the order of the paths. All that a step needs before it is run is that its object is
   known to be alive, which the steps about the pinned objects above it prove. So the steps are sorted by level, the number of
   pinned objects above theirs, and in a level by kind: pointers first (types among them), versions, tensors, then all
   others in their old order. Then the loops are tight and what they will read can be prefetched. Within a run no step
   depends on another, so pointers and versions are compared without a branch each. */

enum { AHEAD = 8 };   /* the memory that the steps look at lies anywhere: ask for it in time */

#if defined(__GNUC__) && !defined(__clang__)
#  define UNROLL _Pragma("GCC unroll 8")
#else
#  define UNROLL
#endif

/* ------------------------------------------------------------------------------------------------------------------
   Packing. */

/* Is this about the class of an object, and the class is known weakly? */
static int
expects_known_class(const Step *step)
{
    return step->kind == POINTER_IS && step->address == (PyObject **)&step->object->ob_type && step->keeper != NULL
        && step->keeper != step->expected;
}

static enum PackedKind
packed_kind(const Step *step)
{
    if (step->kind == POINTER_IS
        && (step->keeper == NULL || step->keeper == step->expected || expects_known_class(step))) {
        return PACKED_POINTER;
    }
    if (step->kind == DICT_VERSION_IS) {
        return PACKED_VERSION;
    }
    /* If what the tensor says of itself and what lies in it agree now, what lies in it tells from now on. */
    if (step->kind == CHECK && step->check->kind == K_TENSOR && tensor_spec_is_direct(step->check->tensor)
        && tensor_spec_matches(step->check->tensor, step->object) == YES
        && tensor_matches_again(step->check->tensor, step->object)) {
        return PACKED_TENSOR;
    }
    return PACKED_STEP;
}

static Packed
packed_step(const Step *step)
{
    switch (step->packed) {
    case PACKED_POINTER:
        return (Packed){(uintptr_t)step->address, (uintptr_t)step->expected};
    case PACKED_VERSION:
        return (Packed){(uintptr_t)step->object, step->version};
    case PACKED_TENSOR:
        return (Packed){(uintptr_t)step->object, (uintptr_t)step->check->tensor};
    default:
        return (Packed){(uintptr_t)step, 0};
    }
}

/* Sort by level and kind; steps that agree in both stay in order. Whether there was memory for it. */
static int
sort_steps(Steps *steps)
{
    int n_levels = 0, n = steps->n;
    for (int i = 0; i < n; i++) {
        steps->items[i].packed = packed_kind(&steps->items[i]);
        n_levels = Py_MAX(n_levels, steps->items[i].level + 1);
    }
    int *next = PyMem_Calloc(n_levels * N_PACKED_KINDS + 1, sizeof(int));
    Step *sorted = PyMem_New(Step, n + 1);
    int succeeded = next != NULL && sorted != NULL;
    if (succeeded) {
        for (int i = 0; i < n; i++) {
            const Step *step = &steps->items[i];
            next[step->level * N_PACKED_KINDS + step->packed + 1]++;
        }
        for (int k = 1; k <= n_levels * N_PACKED_KINDS; k++) {
            next[k] += next[k - 1];
        }
        for (int i = 0; i < n; i++) {
            const Step *step = &steps->items[i];
            sorted[next[step->level * N_PACKED_KINDS + step->packed]++] = *step;
        }
        memcpy(steps->items, sorted, n * sizeof(Step));
    }
    PyMem_Free(next);
    PyMem_Free(sorted);
    return succeeded;
}

/* A model has a thousand instances of a dozen classes: that the classes live is found out once for all of them, with the anchors. */
static int
anchor_classes(Record *record)
{
    PointerSet classes;
    const Steps *pure = &record->pure;
    int n = 0, succeeded = 1;
    for (int i = 0; i < pure->n; i++) {
        n += expects_known_class(&pure->items[i]);
    }
    if (pointer_set_init(&classes, n) < 0) {
        return 0;
    }
    for (int i = 0; i < pure->n && succeeded; i++) {
        const Step *step = &pure->items[i];
        if (expects_known_class(step) && pointer_set_add(&classes, step->keeper)) {
            succeeded = add_anchor(record, (Known){.object = step->expected, .weakref = step->keeper});
        }
    }
    PyMem_Free(classes.slots);
    return succeeded;
}

/* Sort and pack the steps, of which there will be no more. */
static void
record_pack(Maker *maker)
{
    Record *record = maker->record;
    const Steps *pure = &record->pure;
    record->packed = PyMem_New(Packed, pure->n + AHEAD);
    record->runs = PyMem_New(Run, pure->n + 1);
    if (record->packed == NULL || record->runs == NULL || !anchor_classes(record)
        || !sort_steps(&record->pure)) {
        maker->failed = 1;
        return;
    }
    for (int i = 0; i < pure->n; i++) {
        const Step *step = &pure->items[i];
        record->packed[i] = packed_step(step);
        if (i == 0 || step->packed != step[-1].packed || step->level != step[-1].level) {
            record->runs[record->n_runs++] = (Run){step->packed, 0};
        }
        record->runs[record->n_runs - 1].n++;
    }
    for (int i = pure->n; i < pure->n + AHEAD; i++) {
        record->packed[i] = (Packed){(uintptr_t)record, 0};
    }
}

/* ------------------------------------------------------------------------------------------------------------------
   Running. */

/* Is this the object that the step recorded, not merely one at the same address? */
static inline int
is_expected(const Step *step, PyObject *value)
{
    return value == step->expected
        && (step->keeper == NULL || step->keeper == value || ((PyWeakReference *)step->keeper)->wr_object == value);
}

/* A structural step. */
static int
step_holds(const Step *step)
{
    switch (step->kind) {
    case POINTER_IS:
        return is_expected(step, *step->address);
    case LIST_ITEM_IS:
        return step->i < PyList_GET_SIZE(step->object)
            && is_expected(step, PyList_GET_ITEM(step->object, step->i));
    case DICT_ITEM_IS:
        return dict_has_only_str_keys(step->object)
            && is_expected(step, PyDict_GetItemWithError(step->object, step->key));
    case DICT_VERSION_IS:
        return !dict_tags_differ(DICT_TAG(step->object), step->version);
    case TYPE_VERSION_IS:
        return ((PyTypeObject *)step->object)->tp_version_tag == step->version;
    }
    Py_UNREACHABLE();
}

static int
pointers_hold(const Packed *packed, size_t n)
{
    uint64_t differences = 0;
    UNROLL for (size_t i = 0; i < n; i++) {
        PREFETCH((const void *)packed[i + AHEAD].where);
        differences |= *(const uintptr_t *)packed[i].where ^ packed[i].expected;
    }
    return differences == 0;
}

static int
versions_hold(const Packed *packed, size_t n)
{
    uint64_t differences = 0;
    UNROLL for (size_t i = 0; i < n; i++) {
        PREFETCH((const void *)packed[i + AHEAD].where);
        differences |= DICT_TAG(packed[i].where) ^ packed[i].expected;
    }
    return !dict_tags_differ(differences, 0);
}

static int
tensors_hold(const Packed *packed, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        PREFETCH((const void *)packed[i + AHEAD].where);
        if (!tensor_matches_again((const TensorSpec *)(uintptr_t)packed[i].expected, (PyObject *)packed[i].where)) {
            return 0;
        }
    }
    return 1;
}

static int
steps_hold(const Packed *packed, int n, PyObject **saved)
{
    for (int i = 0; i < n; i++) {
        const Step *step = (const Step *)packed[i].where;
        if (!(step->kind == CHECK ? check_holds(step->check, step->object, saved) == YES : step_holds(step))) {
            return 0;
        }
    }
    return 1;
}

static int
run_holds(enum PackedKind kind, const Packed *packed, int n, PyObject **saved)
{
    switch (kind) {
    case PACKED_POINTER:
        return pointers_hold(packed, n);
    case PACKED_VERSION:
        return versions_hold(packed, n);
    case PACKED_TENSOR:
        return tensors_hold(packed, n);
    default:
        return steps_hold(packed, n, saved);
    }
}

/* One of these steps does not hold: the first is to blame. */
static int
blame(Record *record, enum PackedKind kind, int first, PyObject **saved)
{
    while (run_holds(kind, &record->packed[first], 1, saved)) {
        first++;
    }
    const Step *step = &record->pure.items[first];
    if (step->kind == CHECK) {
        return step->check->index;
    }
    record->stale = step->node;
    return STALE;
}

static int
run_pure_steps(Record *record, PyObject **saved)
{
    const Packed *packed = record->packed;
    for (int i = 0; i < record->n_runs; i++) {
        Run run = record->runs[i];
        if (!run_holds(run.kind, packed, run.n, saved)) {
            return blame(record, run.kind, (int)(packed - record->packed), saved);
        }
        packed += run.n;
    }
    return GUARDS_PASS;
}
