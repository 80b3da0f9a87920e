/* The fast path of guard programs: what a successful evaluation learned, in a form that can be re-verified in a few
   nanoseconds per dict instead of per guard.

   A record is a list of steps about *pinned* objects: constants of the program, arguments of IS checks (the program owns
   both, or references them weakly: the anchors), objects found where such a thing is not demanded but likely to stay the
   same ("pins": a module instance, known by a weak reference), and what is reachable from all these in verified ways. A
   later call evaluates the other nodes as always, down to IS checks and pins ("the shallow part"), then the steps. There can be several records for
   one program: a function that all layers of a model share is called with one instance after the other.

   Why the steps are enough. Claim: if the shallow part and all steps hold, a full evaluation would succeed.
   Every node lies in the shallow part, or at or below a CONST root, an IS check or a pin. The shallow part is evaluated.
   For the rest, by induction along the path: suppose a node's object is pinned, that is, it has been alive without
   interruption since it was recorded, and the same path leads to it now. (For a pin, the shallow part has compared the
   object, and the weak reference says that it never died; the same goes for anchors.)
   - Its checks whose outcome can never change for this very object (identity; equality of immutable builtin constants;
     length of a tuple; type, where the type of the object cannot be assigned) were run when the record was made, in
     the same uninterrupted stretch of C code that took down the steps. All others are steps or are covered by them.
   - A child found by a way that cannot change (tuple item, self and function of a bound method, closure of a function)
     is pinned.
   - Items of a dict, its length and keys: a dict gets a new, globally unique version at every change (dict_version.h), so an
     equal version means the same dict with the same items ever since; its values are pinned. (As CPython's own caches
     do, we take it that keys of builtin types do not change how they compare.)
   - A class attribute: the same holds for the version tag of the class, which changes with every class on the MRO.
   - A mutable slot (cell, __dict__, list item, field of a function, class of an object; dict item where versions are no
     use): the slot must hold the recorded pointer. An equal pointer alone proves nothing, since the object may have died
     and another one may have got its address. So a pointer step is only used where the value is (a) an immutable
     constant, kept alive by the record; (b) referenced weakly by the record, so that its death is noticed; (c) a dict,
     about which nothing is taken for granted but what its version proves; (d) a class, likewise; or (e) known to the
     program, which owns it or has a weak reference to it. Anything else is not pinned: such a child is evaluated in full at each call.

   Why no step touches freed memory. A step about an object runs after all steps about the pinned objects above it (see
   packed.h), and none runs after one of these has failed. So they have proved that a live parent holds it; pins and anchors
   are found alive just before the first step. Phase 1 consists of steps that can run no Python code (dict lookups only with str keys in dicts with only
   str keys), so nothing can die in between. Then come those that can; their objects are all given a strong reference
   at the end of phase 1.

   A failed structural step means "stale", not "miss": the program is evaluated in full, and if that succeeds the record
   is made anew. A node that was the reason becomes less trusted each time: a dict whose version keeps changing is looked
   into instead, and a value that keeps changing is evaluated at each call. So counters in module globals cost a few
   lookups, not a full evaluation per call.

   Programs can count the weak references to their objects. So a record that would need new ones is only made when a call
   has come with the very same objects before. */

/* How often a value may change before it is looked at in another way. */
enum { TRUST_VERSION = 2, TRUST_POINTER = 4, TRUST_PIN = 16 };

/* Limits on what the records of one program may take. */
enum { MAX_RECORDS = 64, MAX_STEPS = 20000 };

/* So many sets of objects are let pass because they have not been seen before. */
enum { MAX_SEEN = 64 };

#include "recorder.h"

/* ------------------------------------------------------------------------------------------------------------------
   A record as a whole. */

static void
free_steps(Steps *steps)
{
    for (int i = 0; i < steps->n; i++) {
        Py_XDECREF(steps->items[i].keeper);
        release_dict_version(steps->items[i].version_at);
    }
    PyMem_Free(steps->items);
}

static void
record_free(Record *record)
{
    if (record == NULL) {
        return;
    }
    free_steps(&record->pure);
    free_steps(&record->impure);
    for (int i = 0; i < record->n_pins; i++) {
        Py_XDECREF(record->pins[i].weakref);
    }
    for (int i = 0; i < record->n_anchors; i++) {
        Py_DECREF(record->anchors[i].weakref);
    }
    PyMem_Free(record->packed);
    PyMem_Free(record->runs);
    PyMem_Free(record->handed);
    PyMem_Free(record->pins);
    PyMem_Free(record->anchors);
    PyMem_Free(record->pinned);
    PyMem_Free(record->fills);
    PyMem_Free(record->open);
    PyMem_Free(record->relations);
    for (int i = 0; i < record->n_distincts; i++) {
        PyMem_Free(record->distincts[i].pinned.slots);
        PyMem_Free(record->distincts[i].open);
    }
    PyMem_Free(record->distincts);
    PyMem_Free(record);
}

static Record *
record_new(const GuardProgram *p)
{
    Record *record = PyMem_Calloc(1, sizeof(Record));
    if (record == NULL) {
        return NULL;
    }
    record->pinned = PyMem_Calloc(p->n_saved, sizeof(PyObject *));
    record->fills = PyMem_Calloc(p->n_saved, sizeof(int));
    record->open = PyMem_Calloc(p->n_saved, sizeof(int));
    record->relations = PyMem_Calloc(p->n_relations, sizeof(Relation *));
    record->distincts = PyMem_Calloc(p->n_relations, sizeof(OpenDistinct));
    record->handed = PyMem_Calloc(p->graph == NULL ? 0 : p->graph->n_handed, sizeof(PyObject *));
    if (!record->handed || !record->pinned || !record->fills || !record->open || !record->relations || !record->distincts) {
        record_free(record);
        return NULL;
    }
    return record;
}

/* Whether a call has come with these objects before. Enough of calls that have not: then records are made at once. */
static int
record_is_due(GuardProgram *p, uintptr_t fingerprint)
{
    if (fingerprint == 0 || p->n_seen == MAX_SEEN) {
        return 1;
    }
    for (int i = 0; i < p->n_seen; i++) {
        if (p->seen[i] == fingerprint) {
            return 1;
        }
    }
    if (p->seen == NULL && (p->seen = PyMem_New(uintptr_t, MAX_SEEN)) == NULL) {
        return 1;
    }
    p->seen[p->n_seen++] = fingerprint;
    return 0;
}

/* Sort the pinned values by argument. */
static void
record_hand_over(GuardProgram *p, Record *record)
{
    record->all_handed = 1;
    for (int i = 0; p->graph != NULL && i < p->graph->n_handed; i++) {
        record->handed[i] = record->pinned[p->handed_slots[i]];
        record->all_handed &= record->handed[i] != NULL;
    }
}

/* Which slots of saved values are written to when the record is used: those that are not pinned, and the fills. */
static void
record_open_slots(GuardProgram *p, Record *record)
{
    for (int slot = 0; slot < p->n_saved; slot++) {
        if (record->pinned[slot] == NULL || p->saves_again) {
            record->open[record->n_open++] = slot;
        }
    }
    for (int i = 0; i < record->n_fills && !p->saves_again; i++) {
        record->open[record->n_open++] = record->fills[i];
    }
}

/* Make the weak references that were planned. */
static void
record_watch(Maker *maker)
{
    Record *record = maker->record;
    for (int i = 0; i < record->n_pins; i++) {
        Known *pin = &record->pins[i];
        if (pin->object != NULL && (pin->weakref = reference_to(pin->object)) == NULL) {
            maker->failed = 1;
        }
    }
    for (int i = 0; i < record->pure.n; i++) {
        Step *step = &record->pure.items[i];
        if (step->watched && (step->keeper = reference_to(step->expected)) == NULL) {
            maker->failed = 1;
        }
    }
}

#include "packed.h"

/* NULL: it is not time yet, or (then *failed is set) none can be made. */
static Record *
record_make(GuardProgram *p, PyObject *const *locals, Py_ssize_t n_locals, PyObject *closure, int *failed)
{
    Maker maker = {.program = p, .record = record_new(p)};
    *failed = 1;
    if (maker.record == NULL) {
        return NULL;
    }
    for (int i = 0; i < p->n_roots && !maker.failed; i++) {
        Node *root = &p->roots[i];
        PyObject *value = root_value(root, locals, n_locals, closure);
        if (root->kind == K_CONST) {
            record_value(&maker, root, value);
        }
        else if (root->kind == K_REFERENT) {
            record_anchor(&maker, root);
        }
        else {
            record_shallow(&maker, root, value);
        }
    }
    for (int i = p->n_global_state; i < p->n_relations && !maker.failed; i++) {
        record_relation(&maker, &p->relations[i]);
    }
    int is_due = maker.failed || record_is_due(p, maker.fingerprint);
    if (is_due && !maker.failed) {
        record_watch(&maker);
        record_pack(&maker);
        record_hand_over(p, maker.record);
        record_open_slots(p, maker.record);
    }
    PyErr_Clear();   /* out of memory: then the step is missing and `failed` set, or something is evaluated instead */
    *failed = maker.failed;
    if (maker.failed || !is_due) {
        record_free(maker.record);
        return NULL;
    }
    return maker.record;
}

/* ------------------------------------------------------------------------------------------------------------------
   The records of a program. */

static int
are_alive(const Known *known, int n)
{
    for (int i = 0; i < n; i++) {
        if (!is_known_alive(&known[i])) {
            return 0;
        }
    }
    return 1;
}

static int
pins_are_alive(const Record *record)
{
    return are_alive(record->pins, record->n_pins) && are_alive(record->anchors, record->n_anchors);
}

/* The record to give up for a new one, or -1 if there is room. One that was never used shows that the objects differ from
   call to call: pinning them does not pay. */
static int
record_to_replace(GuardProgram *p)
{
    int steps = 0;
    for (int i = 0; i < p->n_records; i++) {
        const Record *record = p->records[i];
        steps += record->pure.n + record->impure.n;
        if (record->hits == 0 && record->stale != NULL) {
            record->stale->instability++;
        }
        if (record->hits == 0 || !pins_are_alive(record)) {
            return i;
        }
    }
    return p->n_records < MAX_RECORDS && steps < MAX_STEPS ? -1 : p->last_record;
}

/* Take over a new record, in place of number `renew` if that is not -1. */
static void
record_put(GuardProgram *p, Record *record, int renew)
{
    if (renew < 0 && (renew = record_to_replace(p)) < 0) {
        Record **records = resize_array(p->records, p->n_records + 1, sizeof(Record *));
        if (records == NULL) {
            record_free(record);
            return;
        }
        p->records = records;
        records[renew = p->n_records++] = NULL;
    }
    record_free(p->records[renew]);
    p->records[renew] = record;
    p->last_record = renew;
}

/* After a successful full evaluation. `renew` is the number of the record to be replaced, or -1. Runs no Python code. */
static void
records_renew(GuardProgram *p, PyObject *const *locals, Py_ssize_t n_locals, PyObject *closure, int renew)
{
    enum { HOPELESS = 3 };
    if (p->hopeless == HOPELESS) {
        return;
    }
    if (renew >= 0) {
        p->records[renew]->stale->instability++;
    }
    int gc_was_enabled = PyGC_Disable(), failed;
    Record *record = record_make(p, locals, n_locals, closure, &failed);
    p->hopeless += failed;
    if (record != NULL) {
        record_put(p, record, renew);
    }
    else if (renew >= 0) {
        record_free(p->records[renew]);
        p->records[renew] = p->records[--p->n_records];
        p->last_record = 0;
    }
    if (gc_was_enabled) {
        PyGC_Enable();
    }
}

static void
records_free(GuardProgram *p)
{
    Record **records = p->records;
    int n = p->n_records;
    p->records = NULL;
    p->n_records = 0;
    for (int i = 0; i < n; i++) {
        record_free(records[i]);
    }
    PyMem_Free(records);
}

static int
records_traverse(GuardProgram *p, visitproc visit, void *arg)
{
    for (int i = 0; i < p->n_records; i++) {
        const Record *record = p->records[i];
        for (int k = 0; k < record->pure.n; k++) {   /* impure steps have no keepers */
            Py_VISIT(record->pure.items[k].keeper);
        }
        for (int k = 0; k < record->n_pins; k++) {
            Py_VISIT(record->pins[k].weakref);
        }
        for (int k = 0; k < record->n_anchors; k++) {
            Py_VISIT(record->anchors[k].weakref);
        }
    }
    return 0;
}

/* ------------------------------------------------------------------------------------------------------------------
   Using a record. */

static int
run_impure_steps(Record *record, PyObject **saved)
{
    int result = GUARDS_PASS, n = record->impure.n;
    const Step *steps = record->impure.items;
    for (int i = 0; i < n; i++) {
        Py_INCREF(steps[i].object);
    }
    for (int i = 0; i < n && result == GUARDS_PASS; i++) {
        const Step *step = &steps[i];
        if (step->kind == CHILD) {
            result = evaluate_child(step->node, step->object, saved, record);
        }
        else {
            int outcome = check_holds(step->check, step->object, saved);
            result = outcome == YES ? GUARDS_PASS : outcome == RAISED ? GUARDS_RAISED : step->check->index;
        }
    }
    for (int i = 0; i < n; i++) {
        Py_DECREF(steps[i].object);
    }
    return result;
}

static int
open_distinct_holds(const OpenDistinct *distinct, PyObject **saved)
{
    for (int i = 0; i < distinct->n_open; i++) {
        PyObject *value = saved[distinct->open[i]];
        if (pointer_set_has(&distinct->pinned, value)) {
            return 0;
        }
        for (int k = 0; k < i; k++) {
            if (saved[distinct->open[k]] == value) {
                return 0;
            }
        }
    }
    return 1;
}

static int
run_relations(GuardProgram *p, Record *record, PyObject **saved)
{
    for (int i = 0; i < record->n_distincts; i++) {
        if (!open_distinct_holds(&record->distincts[i], saved)) {
            return record->distincts[i].relation->index;
        }
    }
    int result = GUARDS_PASS;
    for (int i = 0; result == GUARDS_PASS && i < record->n_relations; i++) {
        result = evaluate_relation(p, record->relations[i], saved);
    }
    return result;
}

static int
record_evaluate(GuardProgram *p, Record *record, PyObject *const *locals, Py_ssize_t n_locals, PyObject *closure,
                PyObject **saved, Handover **wanted)
{
    int result = GUARDS_PASS;
    record->stale = NULL;
    /* The arguments come before the global state, because they are what tells entries of one function apart. */
    for (int i = 0; result == GUARDS_PASS && i < p->n_roots; i++) {
        if (p->roots[i].kind != K_CONST && p->roots[i].kind != K_REFERENT) {
            result = evaluate_root(&p->roots[i], locals, n_locals, closure, saved, record);
        }
    }
    for (int i = 0; result == GUARDS_PASS && i < p->n_global_state; i++) {
        result = evaluate_relation(p, &p->relations[i], saved);
    }
    if (result == GUARDS_PASS) {   /* user code in a guard may have destroyed something, and not all pins were met */
        result = pins_are_alive(record) ? run_pure_steps(record, saved) : OTHER_OBJECT;
    }
    if (result != GUARDS_PASS) {
        return result;
    }
    for (int i = 0; i < record->n_fills; i++) {
        saved[record->fills[i]] = Py_NewRef(record->pinned[record->fills[i]]);
    }
    /* The pinned values now, before user code can make an end of one; the others are in `saved`. */
    Handover *handover = wanted == NULL ? NULL : handover_new(p->graph, record->handed);
    result = run_impure_steps(record, saved);
    if (result == GUARDS_PASS) {
        result = run_relations(p, record, saved);
    }
    if (result == GUARDS_PASS && handover != NULL && record->all_handed) {
        *wanted = handover;
        return result;
    }
    return wanted == NULL ? result : handover_finish(p, result, handover, saved, wanted);
}

/* Evaluate through the records; STALE if that decides nothing. Afterwards *renew is the number of the record to be
   replaced, if it is not -1. Layers of a model come round in the same order: the first to be tried is the last that held. */
static int
records_evaluate(GuardProgram *p, PyObject *const *locals, Py_ssize_t n_locals, PyObject *closure, int *renew,
                 Handover **wanted)
{
    int n = p->n_records;
    for (int i = 0; i < n; i++) {
        int at = (p->last_record + i) % n;
        Record *record = p->records[at];
        int result = evaluate_with_saved(record_evaluate, p, record, locals, n_locals, closure, wanted);
        if (result == OTHER_OBJECT) {
            continue;
        }
        if (result == GUARDS_PASS) {
            record->hits++;
            p->last_record = at;
        }
        else if (result == STALE) {
            *renew = at;
        }
        return result;
    }
    return STALE;
}
