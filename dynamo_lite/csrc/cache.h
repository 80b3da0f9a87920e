/* Code objects, their caches, and the entries in them.

   Input:  what the Python side adds: guards and replacement code. Output: the types Entry and Cache, and how a code object leads
   to its caches.
   Invariant: the code of every entry of a cache fits the cache's code object (replacement_mismatch()). */

/* ------------------------------------------------------------------------------------------------------------------
   Code objects and their caches. co_extra holds the head of a list of caches, or &generated_code. */

static Py_ssize_t extra_index;
static char generated_code;       /* its address marks replacement code: the hook never offers it */

static void *
code_extra(PyCodeObject *code)
{
    void *extra = NULL;
    if (CODE_GET_EXTRA((PyObject *)code, extra_index, &extra) < 0) {
        PyErr_Clear();
    }
    return extra;
}

/* CPython 3.11 to 3.13 set no exception where there is no memory. */
static int
code_set_extra(PyCodeObject *code, void *extra)
{
    if (CODE_SET_EXTRA((PyObject *)code, extra_index, extra) == 0) {
        return 0;
    }
    if (!PyErr_Occurred()) {
        PyErr_NoMemory();
    }
    return -1;
}

static Cache *
code_caches(PyCodeObject *code)
{
    void *extra = code_extra(code);
    return extra == &generated_code ? NULL : extra;
}

static void
cache_unlink(Cache *cache)
{
    Cache *head = code_caches(cache->code);
    if (head == cache) {
        (void)CODE_SET_EXTRA((PyObject *)cache->code, extra_index, cache->next);   /* the slot exists: cannot fail */
        return;
    }
    for (; head != NULL; head = head->next) {
        if (head->next == cache) {
            head->next = cache->next;
            return;
        }
    }
}

/* The cache of `region` in such a list (borrowed), or NULL. */
static Cache *
cache_find(Cache *cache, Region *region)
{
    while (cache != NULL && cache->region != region) {
        cache = cache->next;
    }
    return cache;
}

static PyObject *cache_vectorcall(Cache *, PyObject *const *, size_t, PyObject *);

/* The cache of `code` in `region`, made on demand; NULL with an exception. Borrowed from the region. */
static Cache *
cache_get(PyCodeObject *code, Region *region)
{
    Cache *cache = cache_find(code_caches(code), region);
    if (cache != NULL) {
        return cache;
    }
    if (region->caches == NULL && (region->caches = PyList_New(0)) == NULL) {
        return NULL;
    }
    cache = PyObject_GC_New(Cache, &Cache_Type);
    if (cache == NULL) {
        return NULL;
    }
    int varargs = (code->co_flags & CO_VARARGS) != 0, varkeywords = (code->co_flags & CO_VARKEYWORDS) != 0;
    cache->vectorcall = (vectorcallfunc)cache_vectorcall;
    cache->code = (PyCodeObject *)Py_NewRef(code);
    cache->region = (Region *)Py_NewRef(region);
    cache->entries = NULL;
    cache->n_entries = cache->allocated = 0;
    cache->predicted = NULL;
    cache->next = NULL;
    cache->n_bound = code->co_argcount + code->co_kwonlyargcount + varargs + varkeywords;
    cache->state = STATE_COMPILE;
    cache->simple = cache->n_bound == code->co_argcount;
    cache->kwonly_names = PyTuple_GetSlice(code->co_localsplusnames, code->co_argcount,
                                           code->co_argcount + code->co_kwonlyargcount);
    PyObject_GC_Track(cache);
    if (cache->kwonly_names == NULL) {
        Py_DECREF(cache);
        return NULL;
    }
    cache->next = code_caches(code);   /* not before: what was allocated above may have run the collector, which frees caches */
    if (code_set_extra(code, cache) < 0) {
        Py_DECREF(cache);
        return NULL;
    }
    int appended = PyList_Append(region->caches, (PyObject *)cache);
    Py_DECREF(cache);
    return appended < 0 ? NULL : cache;
}

/* ------------------------------------------------------------------------------------------------------------------
   Entry. */

static GraphCall *
releasing_graph(PyCodeObject *code)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(code->co_consts); i++) {
        PyObject *value = PyTuple_GET_ITEM(code->co_consts, i);
        if (Py_IS_TYPE(value, &GraphCall_Type) && ((GraphCall *)value)->boxed != NULL) {
            return (GraphCall *)value;
        }
    }
    return NULL;
}

static PyObject *
entry_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"guards", "code", "owner", "needs_hook", "strict", "globals", NULL};
    PyObject *guards, *code, *owner, *strict = Py_None, *globals = NULL;
    int needs_hook = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O!O|pOO!:Entry", names, &GuardProgram_Type, &guards,
                                     &PyCode_Type, &code, &owner, &needs_hook, &strict, &PyDict_Type, &globals)) {
        return NULL;
    }
    Entry *entry = (Entry *)type->tp_alloc(type, 0);
    if (entry != NULL) {
        entry->guards = (GuardProgram *)Py_NewRef(guards);
        entry->code = (PyCodeObject *)Py_NewRef(code);
        entry->owner = Py_NewRef(owner);
        entry->releasing = releasing_graph(entry->code);
        entry->needs_hook = (char)needs_hook;
        entry->strict = strict == Py_None ? NULL : Py_NewRef(strict);
        entry->globals = Py_XNewRef(globals);
    }
    return (PyObject *)entry;
}

/* Code objects are not GC-tracked, so a cycle through the constants of replacement code (compiled graphs, caches) would
   never be found. As long as nobody but this entry refers to the code, the constants are the entry's own. */
static int
entry_owns_code(Entry *entry)
{
    Py_ssize_t own = 1;
    if (entry->function != NULL) {
        if (Py_REFCNT(entry->function) != 1 || entry->function->func_code != (PyObject *)entry->code) {
            return 0;
        }
        own = 2;
    }
    return entry->code != NULL && Py_REFCNT(entry->code) == own;
}

static int
entry_traverse(Entry *entry, visitproc visit, void *arg)
{
    Py_VISIT(entry->guards);
    Py_VISIT(entry->owner);
    Py_VISIT(entry->strict);
    Py_VISIT(entry->globals);
    Py_VISIT(entry->function);
    if (entry_owns_code(entry)) {
        Py_VISIT(entry->code->co_consts);
    }
    return 0;
}

/* Leaves guards and code, which calls in progress may be using; neither is part of a cycle once the rest is gone. */
CLEAR(entry, Entry, owner, strict, globals, function)
DEALLOC(entry, Entry, owner, strict, globals, function, guards, code)

static PyMemberDef entry_members[] = {
    {"guards", T_OBJECT, offsetof(Entry, guards), READONLY},
    {"code", T_OBJECT, offsetof(Entry, code), READONLY},
    {"owner", T_OBJECT, offsetof(Entry, owner), 0},
    {"strict", T_OBJECT, offsetof(Entry, strict), READONLY},
    {"globals", T_OBJECT, offsetof(Entry, globals), READONLY},
    {"hits", T_PYSSIZET, offsetof(Entry, hits), 0},
    {"needs_hook", T_BOOL, offsetof(Entry, needs_hook), READONLY},
    {NULL}
};

static PyTypeObject Entry_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "dynamo_lite._eval_frame.Entry",
    .tp_doc = "Entry(guards, code, owner, needs_hook=False, strict=None)\n--\n\nOne compiled version of a code object. "
              "strict(locals, closure, failed), where failed\nis None or the index of the guard that failed, is called after "
              "each evaluation.",
    .tp_basicsize = sizeof(Entry),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = entry_new,
    LIFE_SLOTS(entry),
    .tp_members = entry_members,
};

/* The entry's code as a function with the globals, builtins and closure of `fn`. New reference. Without free variables
   one function object serves all calls, recursive ones too; otherwise it is taken out of the entry during the call. */
static PyFunctionObject *
entry_take_function(Entry *entry, PyFunctionObject *fn)
{
    PyFunctionObject *function = entry->function;
    int shared = entry->code->co_nfreevars == 0;
    if (function == NULL || function->func_globals != fn->func_globals) {
        function = (PyFunctionObject *)PyFunction_New((PyObject *)entry->code, fn->func_globals);
        if (function == NULL) {
            return NULL;
        }
        Py_XSETREF(function->func_builtins, Py_NewRef(fn->func_builtins));
        if (shared) {
            Py_XSETREF(entry->function, (PyFunctionObject *)Py_NewRef(function));
        }
    }
    else if (shared) {
        Py_INCREF(function);
    }
    else {
        entry->function = NULL;
    }
    if (!shared) {
        function->func_closure = Py_XNewRef(fn->func_closure);
    }
    return function;
}

/* After the call. A function with free variables is kept for the next call, but without its closure: the cells must not
   live longer than the user's function. Not if a frame object or traceback still refers to it. */
static void
entry_return_function(Entry *entry, PyFunctionObject *function)
{
    if (entry->code->co_nfreevars > 0 && Py_REFCNT(function) == 1) {
        Py_CLEAR(function->func_closure);
        if (entry->function == NULL) {
            entry->function = function;
            return;
        }
    }
    Py_DECREF(function);
}

/* ------------------------------------------------------------------------------------------------------------------
   Cache. */

/* Can `code` replace `original`, in place and as a function? NULL if so, else what differs. The arguments are the prefix
   of both frames' local slots, and the closure is shared, so a mismatch would be a crash. */
static const char *
replacement_mismatch(PyCodeObject *original, PyCodeObject *code)
{
    const int optimized = CO_OPTIMIZED | CO_NEWLOCALS;
    const int generator = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR;
    const int shape = CO_VARARGS | CO_VARKEYWORDS;
    if ((code->co_flags & optimized) != optimized || (code->co_flags & generator)) {
        return "it must be an ordinary function's code";
    }
    if (code->co_argcount != original->co_argcount || code->co_kwonlyargcount != original->co_kwonlyargcount
        || (code->co_flags & shape) != (original->co_flags & shape)) {
        return "parameters differ";
    }
    for (int i = original->co_argcount; i < original->co_argcount + original->co_kwonlyargcount; i++) {
        if (PyUnicode_Compare(PyTuple_GET_ITEM(original->co_localsplusnames, i),
                              PyTuple_GET_ITEM(code->co_localsplusnames, i)) != 0) {
            return "keyword-only parameters differ";
        }
    }
    if (code->co_nfreevars == 0) {
        return NULL;
    }
    if (code->co_nfreevars != original->co_nfreevars) {
        return "free variables differ";
    }
    for (int i = 1; i <= code->co_nfreevars; i++) {
        if (PyUnicode_Compare(PyTuple_GET_ITEM(original->co_localsplusnames, original->co_nlocalsplus - i),
                              PyTuple_GET_ITEM(code->co_localsplusnames, code->co_nlocalsplus - i)) != 0) {
            return "free variables differ";
        }
    }
    return NULL;
}

static Py_ssize_t
cache_index(Cache *cache, PyObject *entry)
{
    for (Py_ssize_t i = 0; i < cache->n_entries; i++) {
        if ((PyObject *)cache->entries[i] == entry) {
            return i;
        }
    }
    return -1;
}

/* Move entry number `from` to the front. */
static void
cache_promote(Cache *cache, Py_ssize_t from)
{
    Entry *entry = cache->entries[from];
    memmove(cache->entries + 1, cache->entries, from * sizeof(Entry *));
    cache->entries[0] = entry;
}

static void
cache_forget_predictions(Cache *cache)
{
    PyMem_Free(cache->predicted);
    cache->predicted = NULL;
}

static PyObject *
cache_add(Cache *cache, PyObject *arg)
{
    if (!Py_IS_TYPE(arg, &Entry_Type)) {
        return PyErr_Format(PyExc_TypeError, "expected an Entry, not %.200s", Py_TYPE(arg)->tp_name);
    }
    Entry *entry = (Entry *)arg;
    const char *mismatch = replacement_mismatch(cache->code, entry->code);
    if (mismatch != NULL) {
        return PyErr_Format(PyExc_ValueError, "cannot replace the code of %U: %s", cache->code->co_qualname, mismatch);
    }
    if (cache->n_entries == cache->allocated) {
        Py_ssize_t room = cache->allocated < 4 ? 4 : 2 * cache->allocated;
        Entry **entries = resize_array(cache->entries, room, sizeof(Entry *));
        if (entries == NULL) {
            return PyErr_NoMemory();
        }
        cache->entries = entries;
        cache->allocated = room;
    }
    if (code_extra(entry->code) == NULL && code_set_extra(entry->code, &generated_code) < 0) {
        return NULL;
    }
    code_raise_frame_size(cache->code, code_frame_size(entry->code));
    cache->entries[cache->n_entries++] = (Entry *)Py_NewRef(entry);
    cache_promote(cache, cache->n_entries - 1);
    Py_RETURN_NONE;
}

static PyObject *
cache_remove(Cache *cache, PyObject *entry)
{
    Py_ssize_t i = cache_index(cache, entry);
    if (i < 0) {
        PyErr_SetString(PyExc_ValueError, "the entry is not in this cache");
        return NULL;
    }
    cache->n_entries--;
    memmove(cache->entries + i, cache->entries + i + 1, (cache->n_entries - i) * sizeof(Entry *));
    cache_forget_predictions(cache);
    Py_DECREF(entry);
    Py_RETURN_NONE;
}

static void
cache_drop_entries(Cache *cache)
{
    Entry **entries = cache->entries;
    Py_ssize_t n = cache->n_entries;
    cache->entries = NULL;
    cache->n_entries = cache->allocated = 0;
    cache_forget_predictions(cache);
    for (Py_ssize_t i = 0; i < n; i++) {
        Py_DECREF(entries[i]);
    }
    PyMem_Free(entries);
}

static PyObject *
cache_clear_method(Cache *cache, PyObject *Py_UNUSED(ignored))
{
    cache_drop_entries(cache);
    Py_RETURN_NONE;
}

static PyObject *
cache_entries(Cache *cache, void *Py_UNUSED(closure))
{
    PyObject *result = PyTuple_New(cache->n_entries);
    for (Py_ssize_t i = 0; result != NULL && i < cache->n_entries; i++) {
        PyTuple_SET_ITEM(result, i, Py_NewRef(cache->entries[i]));
    }
    return result;
}

static PyObject *
cache_get_state(Cache *cache, void *Py_UNUSED(closure))
{
    return PyLong_FromLong(cache->state);
}

static int
cache_set_state(Cache *cache, PyObject *value, void *Py_UNUSED(closure))
{
    long state = value == NULL ? -1 : PyLong_AsLong(value);
    if (state < STATE_COMPILE || state > STATE_RUN_ONLY_ALL) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_ValueError, "state must be COMPILE, SKIP, RUN_ONLY, SKIP_ALL or RUN_ONLY_ALL");
        }
        return -1;
    }
    cache->state = (int)state;
    return 0;
}

static PyObject *
cache_repr(Cache *cache)
{
    return PyUnicode_FromFormat("<Cache of %U: %zd entries>", cache->code->co_qualname, cache->n_entries);
}

static int
cache_traverse(Cache *cache, visitproc visit, void *arg)
{
    Py_VISIT(cache->code);
    Py_VISIT(cache->region);
    Py_VISIT(cache->kwonly_names);
    for (Py_ssize_t i = 0; i < cache->n_entries; i++) {
        Py_VISIT(cache->entries[i]);
    }
    return 0;
}

/* Keeps the region: breaking the cycle at its list of caches and at the entries is enough, and calls need it. */
static int
cache_clear(Cache *cache)
{
    cache_drop_entries(cache);
    return 0;
}

static void
cache_dealloc(Cache *cache)
{
    PyObject_GC_UnTrack(cache);
    cache_unlink(cache);
    cache_drop_entries(cache);
    Py_XDECREF(cache->kwonly_names);
    Py_DECREF(cache->region);
    Py_DECREF(cache->code);
    PyObject_GC_Del(cache);
}

static PyMethodDef cache_methods[] = {
    {"add", (PyCFunction)cache_add, METH_O, "add(entry)\n\nTry this entry first. ValueError if its code does not fit."},
    {"remove", (PyCFunction)cache_remove, METH_O, "remove(entry)"},
    {"clear", (PyCFunction)cache_clear_method, METH_NOARGS, "Remove all entries."},
    {NULL}
};

static PyMemberDef cache_members[] = {
    {"code", T_OBJECT, offsetof(Cache, code), READONLY},
    {"region", T_OBJECT, offsetof(Cache, region), READONLY},
    {NULL}
};

static PyGetSetDef cache_getset[] = {
    {"entries", (getter)cache_entries, NULL, "tuple of entries, most recently hit first"},
    {"state", (getter)cache_get_state, (setter)cache_set_state,
     "COMPILE; SKIP: run the original, never ask; RUN_ONLY: try the entries, never ask; SKIP_ALL: run the original with "
     "the region switched off"},
    {NULL}
};

static PyTypeObject Cache_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "dynamo_lite._eval_frame.Cache",
    .tp_doc = "The compiled entries of one code object in one region; made by Region.cache_for().\n\n"
              "cache(fn, *args) calls fn, a function with this code, through the cache.",
    .tp_basicsize = sizeof(Cache),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL
              | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_vectorcall_offset = offsetof(Cache, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_repr = (reprfunc)cache_repr,
    LIFE_SLOTS(cache),
    .tp_methods = cache_methods,
    .tp_members = cache_members,
    .tp_getset = cache_getset,
};
