/* From bound arguments to the entry whose guards hold: predictions, then all entries, most recently hit first. */

/* ------------------------------------------------------------------------------------------------------------------
   Predictions. Most lookups hit the first entry. Where there are many, and calls alternate between them, it would take long
   to find the one that fails at nothing. So the entry that was right for some arguments is remembered under a hash of what
   can be seen of them at a glance, and tried first the next time. There are two such hashes, one with the addresses of
   objects and one without: an address may be all that tells two modules apart, or may differ from call to call. A prediction
   decides nothing: the guards of the entry do.

   The table is open: a hash lies in one of the few slots after its own. Two entries that took turns in one slot would each be searched
   for among all entries at each call, which is what the table is to spare. */

enum { MANY_ENTRIES = 4, N_PREDICTED = 512, N_PROBES = 8 };

typedef struct Prediction {
    uint64_t hint;
    Entry *entry;    /* borrowed; NULL: free */
} Prediction;

typedef struct {
    uint64_t without_addresses, with_addresses;
} Hints;

static inline uint64_t
mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value ^ (value >> 32)) * 0x9E3779B97F4A7C15u;
    return hash ^ (hash >> 32);
}

/* How much is looked at: so many values, those inside tuples and lists included, so many of each, so deep. A frame that goes on for
   others has their variables in lists within lists, and they are what tells its entries apart: a resumed `Module._wrapped_call_impl` has a
   hundred entries in models that break often, and fifteen of them are tried per call where the lists are not looked into. */
enum { MOST_VALUES = 512, MOST_ITEMS = 32, DEEPEST = 32 };

typedef struct {
    Hints hints;
    int left;   /* values */
} Look;

/* Add a value: what is seen of it without running Python code, or, if that is only its type, its address. */
static void
look_at(Look *look, PyObject *value, int depth)
{
    PyTypeObject *type = Py_TYPE(value);
    uint64_t visible = (uintptr_t)type;
    const int64_t *sizes;
    int64_t dim;
    look->left--;
    if (type == &PyLong_Type || type == &PyBool_Type || type == &PyFloat_Type || type == &PyUnicode_Type) {
        visible += (uint64_t)type->tp_hash(value);
    }
    else if (type == &PyTuple_Type || type == &PyList_Type) {
        PyObject **items = PySequence_Fast_ITEMS(value);
        Py_ssize_t n = depth == DEEPEST ? 0 : Py_MIN(Py_SIZE(value), MOST_ITEMS);
        visible += (uint64_t)Py_SIZE(value);
        for (Py_ssize_t i = 0; i < n && look->left > 0; i++) {
            look_at(look, items[i], depth + 1);
        }
    }
    else if (type == &PyFunction_Type) {   /* resume functions are made anew for each call, their code is not */
        visible += (uintptr_t)((PyFunctionObject *)value)->func_code;
    }
    else if ((sizes = tensor_sizes(value, &dim)) != NULL) {
        for (int64_t i = 0; i < dim; i++) {
            visible = mix(visible, (uint64_t)sizes[i]);
        }
    }
    else {
        look->hints.with_addresses = mix(look->hints.with_addresses, (uintptr_t)value);
    }
    look->hints.without_addresses = mix(look->hints.without_addresses, visible);
}

static Hints
hints_of(PyFunctionObject *fn, PyObject *const *locals, Py_ssize_t n_locals)
{
    Look look = {{(uintptr_t)fn->func_globals, 0}, MOST_VALUES};
    for (Py_ssize_t i = 0; i < n_locals; i++) {
        look_at(&look, locals[i], 0);
    }
    uint64_t visible = look.hints.without_addresses, addresses = look.hints.with_addresses;
    Py_ssize_t n_cells = fn->func_closure == NULL ? 0 : PyTuple_GET_SIZE(fn->func_closure);
    for (Py_ssize_t i = 0; i < n_cells; i++) {
        addresses = mix(addresses, (uintptr_t)PyCell_GET(PyTuple_GET_ITEM(fn->func_closure, i)));
    }
    return (Hints){visible, addresses == 0 ? visible : mix(visible, addresses)};
}

/* Where the hint is; else where it belongs: a free slot, or its own if there is none. */
static Prediction *
prediction_slot(Prediction *predicted, uint64_t hint)
{
    size_t home = mix(hint, 0) % N_PREDICTED;
    for (size_t i = home; i < home + N_PROBES; i++) {
        Prediction *slot = &predicted[i % N_PREDICTED];
        if (slot->entry == NULL || slot->hint == hint) {
            return slot;
        }
    }
    return &predicted[home];
}

/* The entry that was right for such arguments (borrowed), or NULL. */
static Entry *
predicted_entry(Prediction *predicted, uint64_t hint)
{
    const Prediction *slot = prediction_slot(predicted, hint);
    return slot->hint == hint ? slot->entry : NULL;
}

/* An entry was right for such arguments. */
static void
cache_predict(Cache *cache, Hints hints, Entry *entry)
{
    if (cache->predicted == NULL && (cache->predicted = PyMem_Calloc(N_PREDICTED, sizeof(Prediction))) == NULL) {
        return;
    }
    *prediction_slot(cache->predicted, hints.with_addresses) = (Prediction){hints.with_addresses, entry};
    *prediction_slot(cache->predicted, hints.without_addresses) = (Prediction){hints.without_addresses, entry};
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
            Entry *entry = predicted_entry(cache->predicted, hint[i]);
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

/* Who says whether a version is used, where there are any: a callable (code, fits) -> bool, or NULL. */
static PyObject *guard_vote;

static PyObject *
module_set_guard_vote(PyObject *Py_UNUSED(module), PyObject *vote)
{
    PyObject *previous = guard_vote == NULL ? Py_NewRef(Py_None) : guard_vote;
    guard_vote = vote == Py_None ? NULL : Py_NewRef(vote);
    return previous;
}

static PyObject *
module_is_outvoted(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing))
{
    return PyBool_FromLong(this_thread()->outvoted);
}

/* Is the entry that was found, or NULL, to be used? YES, NO or RAISED. What the vote calls is not captured. */
static int
cache_vote(Thread *thread, Cache *cache, Entry *entry)
{
    PyObject *vote = Py_NewRef(guard_vote);
    Region *previous = swap_region(thread, NULL);
    thread->in_callback++;
    PyObject *answer = PyObject_CallFunctionObjArgs(vote, cache->code, entry == NULL ? Py_False : Py_True, NULL);
    int agreed = answer == NULL ? -1 : PyObject_IsTrue(answer);
    thread->in_callback--;
    restore_region(thread, previous);
    Py_XDECREF(answer);
    Py_DECREF(vote);
    return agreed < 0 ? RAISED : agreed ? YES : NO;
}

/* The entry to run for these bound arguments: a hit, or what the region compiles. New reference.
   NULL: an exception if PyErr_Occurred(), else run the original. *handover, NULL before, is what to run the entry with. */
static Entry *
cache_resolve(Thread *thread, Cache *cache, PyFunctionObject *fn, PyObject *const *locals, Py_ssize_t n_locals,
              Handover **handover)
{
    Entry *entry = cache_lookup(thread, cache, fn, locals, n_locals, handover);
    int outvoted = 0;
    if (guard_vote != NULL && cache->n_entries > 0 && !PyErr_Occurred() && cache_vote(thread, cache, entry) != YES && entry != NULL) {
        Py_CLEAR(entry);
        handover_free(*handover);
        *handover = NULL;
        outvoted = 1;
    }
    if (entry != NULL || cache->state != STATE_COMPILE || PyErr_Occurred() || c_stack_left() < C_STACK_FOR_ANALYSIS) {
        return entry;
    }
    int was_outvoted = thread->outvoted;
    thread->outvoted = outvoted;
    PyObject *answer = region_ask(thread, cache->region, cache, fn, locals, n_locals);
    thread->outvoted = was_outvoted;
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
