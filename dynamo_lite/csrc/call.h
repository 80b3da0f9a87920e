/* Calls through a cache: arguments are bound, the entry is found or made, and its code runs as a plain function. */

/* ------------------------------------------------------------------------------------------------------------------
   Arguments, bound to the local slots as CPython does: positional, keyword-only, the *args tuple, the **kw dict. */

enum { FEW_SLOTS = 16 };

typedef struct {
    PyObject **slots;             /* owned references; NULL: not bound yet */
    Py_ssize_t n;
    PyObject *few[FEW_SLOTS];
} Bound;

static void
bound_release(Bound *bound)
{
    for (Py_ssize_t i = 0; i < bound->n; i++) {
        Py_XDECREF(bound->slots[i]);
    }
    if (bound->slots != bound->few) {
        PyMem_Free(bound->slots);
    }
}

/* The slot of the parameter that may be given by this keyword; -1: none, -2: exception. */
static Py_ssize_t
keyword_slot(PyCodeObject *code, PyObject *keyword)
{
    Py_ssize_t total = code->co_argcount + code->co_kwonlyargcount;
    PyObject **names = ((PyTupleObject *)code->co_localsplusnames)->ob_item;
    for (Py_ssize_t i = code->co_posonlyargcount; i < total; i++) {
        if (names[i] == keyword) {
            return i;
        }
    }
    for (Py_ssize_t i = code->co_posonlyargcount; i < total; i++) {
        int equal = PyObject_RichCompareBool(keyword, names[i], Py_EQ);
        if (equal != 0) {
            return equal < 0 ? -2 : i;
        }
    }
    return -1;
}

static int
bind_keywords(PyCodeObject *code, PyObject **slots, PyObject *kwdict, PyObject *const *values, PyObject *kwnames)
{
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(kwnames); k++) {
        PyObject *keyword = PyTuple_GET_ITEM(kwnames, k);
        Py_ssize_t i = keyword_slot(code, keyword);
        if (i >= 0) {
            if (slots[i] != NULL) {
                return -1;   /* given twice */
            }
            slots[i] = Py_NewRef(values[k]);
        }
        else if (i == -2 || kwdict == NULL || PyDict_SetItem(kwdict, keyword, values[k]) < 0) {
            return -1;
        }
    }
    return 0;
}

static int
bind_defaults(PyFunctionObject *fn, PyCodeObject *code, PyObject **slots)
{
    Py_ssize_t n_defaults = fn->func_defaults == NULL ? 0 : PyTuple_GET_SIZE(fn->func_defaults);
    Py_ssize_t first = code->co_argcount - n_defaults;
    for (Py_ssize_t i = 0; i < code->co_argcount; i++) {
        if (slots[i] == NULL) {
            if (i < first) {
                return -1;
            }
            slots[i] = Py_NewRef(PyTuple_GET_ITEM(fn->func_defaults, i - first));
        }
    }
    for (Py_ssize_t i = code->co_argcount; i < code->co_argcount + code->co_kwonlyargcount; i++) {
        if (slots[i] == NULL) {
            PyObject *name = PyTuple_GET_ITEM(code->co_localsplusnames, i);
            PyObject *value = fn->func_kwdefaults == NULL ? NULL
                : PyDict_GetItemWithError(fn->func_kwdefaults, name);
            if (value == NULL) {
                return -1;
            }
            slots[i] = Py_NewRef(value);
        }
    }
    return 0;
}

/* 0; or -1 (no exception set): these arguments do not fit, and calling the function will say why. */
static int
bind_arguments(Bound *bound, Cache *cache, PyFunctionObject *fn, PyObject *const *args, Py_ssize_t nargs,
               PyObject *kwnames)
{
    PyCodeObject *code = cache->code;
    Py_ssize_t n_positional = Py_MIN(nargs, code->co_argcount);
    Py_ssize_t next = code->co_argcount + code->co_kwonlyargcount;
    PyObject *kwdict = NULL;
    bound->n = 0;
    bound->slots = bound->few;
    if (cache->n_bound > FEW_SLOTS) {
        bound->slots = PyMem_New(PyObject *, cache->n_bound);
        if (bound->slots == NULL) {
            bound->slots = bound->few;
            return -1;
        }
    }
    bound->n = cache->n_bound;
    memset(bound->slots, 0, bound->n * sizeof(PyObject *));
    for (Py_ssize_t i = 0; i < n_positional; i++) {
        bound->slots[i] = Py_NewRef(args[i]);
    }
    if (code->co_flags & CO_VARARGS) {
        PyObject *rest = PyTuple_New(nargs - n_positional);
        if (rest == NULL) {
            goto fail;
        }
        for (Py_ssize_t i = n_positional; i < nargs; i++) {
            PyTuple_SET_ITEM(rest, i - n_positional, Py_NewRef(args[i]));
        }
        bound->slots[next++] = rest;
    }
    else if (nargs > n_positional) {
        goto fail;
    }
    if (code->co_flags & CO_VARKEYWORDS) {
        kwdict = bound->slots[next] = PyDict_New();
        if (kwdict == NULL) {
            goto fail;
        }
    }
    if (kwnames != NULL && bind_keywords(code, bound->slots, kwdict, args + nargs, kwnames) < 0) {
        goto fail;
    }
    if (bind_defaults(fn, code, bound->slots) < 0) {
        goto fail;
    }
    return 0;
fail:
    PyErr_Clear();
    return -1;
}

/* ------------------------------------------------------------------------------------------------------------------
   Calls through a cache. */

/* Run the replacement code as a function. The handover is stolen. */
static PyObject *
entry_run(Thread *thread, Entry *entry, Handover *handover, Region *region, PyFunctionObject *fn, PyObject *const *args,
          size_t nargsf, PyObject *kwnames)
{
    int is_original = entry->code == (PyCodeObject *)fn->func_code;   /* found not worth replacing */
    PyFunctionObject *function = is_original ? fn : entry_take_function(entry, fn);
    handover_push(thread, handover);
    if (function == NULL) {
        handover_drop(thread, handover);
        return NULL;
    }
    int switches = entry->needs_hook && thread->region != region;
    Region *previous = switches ? swap_region(thread, (Region *)Py_NewRef(region)) : NULL;
    if (is_original) {
        thread->pass = thread->region == NULL ? NULL : entry->code;
    }
    PyObject *result = call_function(thread, function, args, nargsf, kwnames);
    handover_drop(thread, handover);
    if (switches) {
        restore_region(thread, previous);
    }
    if (is_original) {
        thread->pass = NULL;
    }
    else {
        entry_return_function(entry, function);
    }
    return result;
}

/* The same with bound arguments, all of them passed explicitly: the defaults in force are those of `fn`. */
static PyObject *
entry_run_bound(Thread *thread, Entry *entry, Handover *handover, Cache *cache, PyFunctionObject *fn, Bound *bound)
{
    PyCodeObject *code = cache->code;
    Py_ssize_t n_kwonly = code->co_kwonlyargcount, next = code->co_argcount + n_kwonly, k = 0;
    PyObject *varargs = code->co_flags & CO_VARARGS ? bound->slots[next++] : NULL;
    PyObject *kwdict = code->co_flags & CO_VARKEYWORDS ? bound->slots[next] : NULL;
    Py_ssize_t n_varargs = varargs == NULL ? 0 : PyTuple_GET_SIZE(varargs);
    Py_ssize_t n_extra = kwdict == NULL ? 0 : PyDict_GET_SIZE(kwdict);
    Py_ssize_t nargs = code->co_argcount + n_varargs;
    PyObject **args = bound->slots, *kwnames = n_kwonly == 0 ? NULL : Py_NewRef(cache->kwonly_names);
    if (n_varargs > 0 || n_extra > 0) {
        args = PyMem_New(PyObject *, nargs + n_kwonly + n_extra);
        if (args == NULL) {
            Py_XDECREF(kwnames);
            handover_free(handover);
            return PyErr_NoMemory();
        }
        memcpy(args, bound->slots, code->co_argcount * sizeof(PyObject *));
        if (n_varargs > 0) {
            memcpy(args + code->co_argcount, ((PyTupleObject *)varargs)->ob_item, n_varargs * sizeof(PyObject *));
        }
        memcpy(args + nargs, bound->slots + code->co_argcount, n_kwonly * sizeof(PyObject *));
    }
    if (n_extra > 0) {
        PyObject *name, *value, *names = PyTuple_New(n_kwonly + n_extra);
        if (names == NULL) {
            PyMem_Free(args);
            Py_XDECREF(kwnames);
            handover_free(handover);
            return NULL;
        }
        for (Py_ssize_t i = 0; i < n_kwonly; i++) {
            PyTuple_SET_ITEM(names, i, Py_NewRef(PyTuple_GET_ITEM(cache->kwonly_names, i)));
        }
        Py_ssize_t at = n_kwonly;
        while (PyDict_Next(kwdict, &k, &name, &value)) {
            PyTuple_SET_ITEM(names, at, Py_NewRef(name));
            args[nargs + at++] = value;
        }
        Py_XSETREF(kwnames, names);
    }
    PyObject *result = entry_run(thread, entry, handover, cache->region, fn, args, nargs, kwnames);
    if (args != bound->slots) {
        PyMem_Free(args);
    }
    Py_XDECREF(kwnames);
    return result;
}

static inline int
runs_alone(int state)
{
    return state == STATE_SKIP_ALL || state == STATE_RUN_ONLY_ALL;
}

/* Run the function itself; the frames that it calls are offered to the region, unless the cache's state says that they are not. */
static PyObject *
run_original(Thread *thread, Cache *cache, PyFunctionObject *fn, PyObject *const *args, size_t nargsf,
             PyObject *kwnames)
{
    Region *region = runs_alone(cache->state) ? NULL : cache->region;
    Region *previous = swap_region(thread, (Region *)Py_XNewRef(region));
    thread->pass = region == NULL ? NULL : cache->code;
    PyObject *result = call_function(thread, fn, args, nargsf, kwnames);
    thread->pass = NULL;   /* still set if the arguments did not bind */
    restore_region(thread, previous);
    return result;
}

/* It stands alone because `bound` takes much of the C stack, which functions that call themselves shall use only where they need it. */
static Py_NO_INLINE PyObject *
call_with_bound(Thread *thread, Cache *cache, PyFunctionObject *fn, PyObject *const *args, size_t nargsf,
                PyObject *kwnames)
{
    Bound bound;
    PyObject *result = NULL;
    if (bind_arguments(&bound, cache, fn, args, PyVectorcall_NARGS(nargsf), kwnames) < 0) {
        bound_release(&bound);
        return run_original(thread, cache, fn, args, nargsf, kwnames);
    }
    Handover *handover = NULL;
    Entry *entry = cache_resolve(thread, cache, fn, bound.slots, bound.n, &handover);
    if (entry != NULL) {
        Loan loan;
        loan_begin(&loan, thread, entry, fn, args, nargsf, kwnames);
        loan_bind(&loan, thread, bound.slots, bound.n);
        result = entry_run_bound(thread, entry, handover, cache, fn, &bound);
        loan_end(&loan, thread);
        Py_DECREF(entry);
    }
    else if (!PyErr_Occurred()) {
        result = run_original(thread, cache, fn, args, nargsf, kwnames);
    }
    bound_release(&bound);
    return result;
}

/* Little is left of the C stack: nothing is captured from here on. NULL with a RecursionError where even that would be too much. */
static PyObject *
run_on_short_stack(Thread *thread, PyFunctionObject *fn, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    if (c_stack_is_used_up()) {
        return NULL;
    }
    Region *previous = swap_region(thread, NULL);
    PyObject *result = call_function(thread, fn, args, nargsf, kwnames);
    restore_region(thread, previous);
    return result;
}

/* Call `fn`, whose code is cache->code. The caller keeps the cache alive. The result may be a TailCall. */
static PyObject *
call_once(Thread *thread, Cache *cache, PyFunctionObject *fn, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    if (c_stack_is_short()) {
        return run_on_short_stack(thread, fn, args, nargsf, kwnames);
    }
    if (thread->in_callback) {
        return call_function(thread, fn, args, nargsf, kwnames);
    }
    if (cache->state == STATE_SKIP || cache->state == STATE_SKIP_ALL) {
        return run_original(thread, cache, fn, args, nargsf, kwnames);
    }
    Py_ssize_t nargs = PyVectorcall_NARGS(nargsf);
    if (kwnames != NULL || nargs != cache->n_bound || !cache->simple) {
        return call_with_bound(thread, cache, fn, args, nargsf, kwnames);
    }
    Handover *handover = NULL;
    Entry *entry = cache_resolve(thread, cache, fn, args, nargs, &handover);
    if (entry == NULL) {
        return PyErr_Occurred() ? NULL : run_original(thread, cache, fn, args, nargsf, NULL);
    }
    Loan loan;
    loan_begin(&loan, thread, entry, fn, args, nargsf, NULL);
    PyObject *result = entry_run(thread, entry, handover, cache->region, fn, args, nargsf, NULL);
    loan_end(&loan, thread);
    Py_DECREF(entry);
    return result;
}
