/* The pure steps of a record, in the form in which they are run: sorted, packed into one or two words each, in runs of one kind.

   The order. record_value() takes steps down in the order of the paths. All that a step needs before it is run is that its object is
   known to be alive, which the steps about the pinned objects above it prove. So the steps are sorted by level, the number of
   pinned objects above theirs; those that no step about another object relies on come after all levels. In a level they are
   sorted by kind: plain words (pointers), versions, tensors, then all others in their old order; and within a kind by address, since
   objects made together lie together. So the loops are tight and long, and read memory in the order that hardware
   expects: cache lines cost more than instructions here. Within a run no step depends on another: words and versions are compared without a
   branch each, and the processor looks far ahead.

   Versions. They count up: a change gives a dict a version greater than all before, and so does the birth of a dict where dicts have
   versions of their own. What lies where the version of a recorded dict was is the version of that dict or of a later one (that it is a
   dict is known where its death gives no version: see record_slot()), so it is the recorded one or a greater one. Hence none has changed
   if, and only if, the sum of all is what it was.

   Tensors. See tensor_layout.h. */

#if defined(__GNUC__) && !defined(__clang__)
#  define UNROLL _Pragma("GCC unroll 8")
#else
#  define UNROLL
#endif

/* ------------------------------------------------------------------------------------------------------------------
   Tensors. */

enum { TENSOR_WORDS = 2, AHEAD = 8 };   /* one address leads to the next: what lies there is asked for in time */

/* `dim` and `wants_grad` are those of the spec; they are constants. */
static Py_ALWAYS_INLINE inline int
tensors_hold_at(const uintptr_t *packed, size_t n, const TensorSpec *spec, const int dim, const int wants_grad)
{
    for (const uintptr_t *end = packed + TENSOR_WORDS * n; packed != end; packed += TENSOR_WORDS) {
        PREFETCH((const void *)packed[TENSOR_WORDS * AHEAD]);
        const char *later = (const char *)packed[TENSOR_WORDS * AHEAD + 1];   /* where a TensorImpl was */
        for (int offset = 0; offset < TENSOR_IMPL_SIZE; offset += 64) {
            PREFETCH(later + offset);
        }
        if (!tensor_matches_again(spec, (PyObject *)packed[0], dim, wants_grad)) {
            return 0;
        }
    }
    return 1;
}

/* Do these tensors, which have matched the spec before, match it again? A loop for each number of dimensions. */
static int
tensors_hold(const uintptr_t *packed, size_t n, const TensorSpec *spec)
{
    switch (2 * spec->codes.dim + spec->wants_grad) {
#define CASES(dim) \
    case 2 * dim: return tensors_hold_at(packed, n, spec, dim, 0); \
    case 2 * dim + 1: return tensors_hold_at(packed, n, spec, dim, 1);
    CASES(0) CASES(1) CASES(2) CASES(3) CASES(4) CASES(5)
#undef CASES
    }
    Py_UNREACHABLE();   /* tensor_spec_is_direct() */
}

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
        return PACKED_WORD;
    }
    if (step->kind == DICT_VERSION_IS) {
        return PACKED_VERSION;
    }
    /* If what the tensor says of itself and what lies in it agree now, what lies in it tells from now on. */
    if (step->kind == CHECK && step->check->kind == K_TENSOR && tensor_matches_both_ways(step->check->tensor, step->object)) {
        return PACKED_TENSOR;
    }
    return PACKED_STEP;
}

/* How many words a step takes. */
static int
packed_size(enum PackedKind kind)
{
    return kind == PACKED_WORD || kind == PACKED_TENSOR ? 2 : 1;
}

static void
pack_step(const Step *step, uintptr_t *packed)
{
    switch (step->packed) {
    case PACKED_WORD:
        packed[0] = (uintptr_t)step->address;
        packed[1] = (uintptr_t)step->expected;
        return;
    case PACKED_VERSION:
        packed[0] = (uintptr_t)step->version_at;
        return;
    case PACKED_TENSOR:
        packed[0] = (uintptr_t)step->object;
        packed[1] = (uintptr_t)tensor_impl(step->object);
        return;
    default:
        packed[0] = (uintptr_t)step;
    }
}

static const TensorSpec *
spec_of(const Step *step)
{
    return step->packed == PACKED_TENSOR ? step->check->tensor : NULL;
}

/* Where a step belongs. */
typedef struct {
    int level, kind;           /* INT_MAX: after all levels */
    uintptr_t spec, address;   /* of a tensor; of what is looked at */
    int i;                     /* its old place */
} Place;

static Place
place_of(const Step *step, int i)
{
    uintptr_t packed[2];
    pack_step(step, packed);
    return (Place){step->is_last ? INT_MAX : step->level, step->packed, (uintptr_t)spec_of(step),
                   step->packed == PACKED_STEP ? 0 : packed[0], i};
}

static int
compare_places(const void *left, const void *right)
{
    const Place *a = left, *b = right;
#define COMPARE(field) if (a->field != b->field) { return a->field < b->field ? -1 : 1; }
    COMPARE(level) COMPARE(kind) COMPARE(spec) COMPARE(address) COMPARE(i)
#undef COMPARE
    return 0;
}

/* Whether there was memory for it. */
static int
sort_steps(Steps *steps)
{
    int n = steps->n;
    Place *places = PyMem_New(Place, n + 1);
    Step *sorted = PyMem_New(Step, n + 1);
    int succeeded = places != NULL && sorted != NULL;
    if (succeeded) {
        for (int i = 0; i < n; i++) {
            steps->items[i].packed = packed_kind(&steps->items[i]);
            places[i] = place_of(&steps->items[i], i);
        }
        qsort(places, n, sizeof(Place), compare_places);
        for (int i = 0; i < n; i++) {
            sorted[i] = steps->items[places[i].i];
        }
        memcpy(steps->items, sorted, n * sizeof(Step));
    }
    PyMem_Free(places);
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

static int
belong_together(const Step *a, const Step *b)
{
    return a->packed == b->packed && a->is_last == b->is_last && (a->is_last || a->level == b->level)
        && spec_of(a) == spec_of(b);
}

/* Sort and pack the steps, of which there will be no more. */
static void
record_pack(Maker *maker)
{
    Record *record = maker->record;
    const Steps *pure = &record->pure;
    record->packed = PyMem_Calloc(2 * pure->n + TENSOR_WORDS * (AHEAD + 1), sizeof(uintptr_t));
    record->runs = PyMem_New(Run, pure->n + 1);
    if (record->packed == NULL || record->runs == NULL || !anchor_classes(record)
        || !sort_steps(&record->pure)) {
        maker->failed = 1;
        return;
    }
    uintptr_t *packed = record->packed;
    for (int i = 0; i < pure->n; i++) {
        const Step *step = &pure->items[i];
        if (i == 0 || !belong_together(step, &step[-1])) {
            record->runs[record->n_runs++] = (Run){.kind = step->packed, .first = i, .packed = packed, .sum = 0};
        }
        Run *run = &record->runs[record->n_runs - 1];
        run->n++;
        if (step->packed == PACKED_VERSION) {
            run->sum += step->version;
        }
        else if (step->packed == PACKED_TENSOR) {
            run->spec = step->check->tensor;
        }
        pack_step(step, packed);
        packed += packed_size(step->packed);
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
        return *step->version_at == step->version;
    case TYPE_VERSION_IS:
        return ((PyTypeObject *)step->object)->tp_version_tag == step->version;
    }
    Py_UNREACHABLE();
}

/* Do something for i = 0 ... n-1, without counting each of them. */
#define IN_EIGHTS(n, i, ...) \
    size_t i = 0; \
    for (size_t end = (n) & ~(size_t)7; i < end; i += 8) { \
        const size_t first = i; \
        UNROLL for (size_t k = 0; k < 8; k++) { \
            const size_t i = first + k; \
            __VA_ARGS__ \
        } \
    } \
    for (; i < (n); i++) { \
        __VA_ARGS__ \
    }

static int
words_hold(const uintptr_t *packed, size_t n)
{
    uintptr_t differences = 0;
    IN_EIGHTS(n, i,
        differences |= *(const uintptr_t *)packed[2 * i] ^ packed[2 * i + 1];
    )
    return differences == 0;
}

static uint64_t
sum_of_versions(const uintptr_t *packed, size_t n)
{
    uint64_t sum = 0;
    IN_EIGHTS(n, i,
        sum += *(const uint64_t *)packed[i];
    )
    return sum;
}

static int
steps_hold(const uintptr_t *packed, int n, PyObject **saved)
{
    for (int i = 0; i < n; i++) {
        const Step *step = (const Step *)packed[i];
        if (!(step->kind == CHECK ? check_holds(step->check, step->object, saved) == YES : step_holds(step))) {
            return 0;
        }
    }
    return 1;
}

/* Is each dict unchanged? Most calls come after one behind which no dict at all has changed. */
static int
versions_hold(Run *run)
{
    uint64_t latest = latest_dict_change();
    if (latest != 0 && run->latest_dict_change == latest) {
        return 1;
    }
    if (sum_of_versions(run->packed, run->n) != run->sum) {
        return 0;
    }
    run->latest_dict_change = latest;
    return 1;
}

static int
run_holds(Run *run, PyObject **saved)
{
    switch (run->kind) {
    case PACKED_WORD:
        return words_hold(run->packed, run->n);
    case PACKED_VERSION:
        return versions_hold(run);
    case PACKED_TENSOR:
        return tensors_hold(run->packed, run->n, run->spec);
    default:
        return steps_hold(run->packed, run->n, saved);
    }
}

static int
step_of_run_holds(const Run *run, int i, const Step *step, PyObject **saved)
{
    Run alone = *run;
    alone.n = 1;
    alone.packed += i * packed_size(run->kind);
    if (run->kind == PACKED_VERSION) {
        alone.sum = step->version;
        alone.latest_dict_change = 0;
    }
    return run_holds(&alone, saved);
}

/* One of these steps does not hold: the first is to blame. */
static int
blame(Record *record, const Run *run, PyObject **saved)
{
    const Step *step = &record->pure.items[run->first];
    for (int i = 0; i + 1 < run->n && step_of_run_holds(run, i, step, saved); i++) {
        step++;
    }
    if (step->kind == CHECK) {
        return step->check->index;
    }
    record->stale = step->node;
    return STALE;
}

static int
run_pure_steps(Record *record, PyObject **saved)
{
    for (int i = 0; i < record->n_runs; i++) {
        Run *run = &record->runs[i];
        if (!run_holds(run, saved)) {
            return blame(record, run, saved);
        }
    }
    return GUARDS_PASS;
}
