/* Is any torch function mode or dispatch mode, or torch.jit.trace, active on this thread, or a level of forward-mode derivatives open?

   Every entry with a graph asks this at each call. A Python function that asks torch's bindings takes 700 instructions; torch's own
   functions behind these bindings are exported and take 10 each. guards/tensor_guards.py verifies them. */

typedef int64_t (*GetLength)(void);
typedef void *const *(*GetPointer)(void);   /* where a shared_ptr lies, whose first word is the pointer */

static struct {
    GetLength function_modes, dispatch_modes;   /* NULL: not found */
    GetPointer tracing_state;
    PyObject *dual_levels, *current_level;   /* the variables of torch.autograd.forward_ad; the name of one */
} mode_stacks;

static bool
finds_modes(void)
{
    return mode_stacks.function_modes != NULL && mode_stacks.dispatch_modes != NULL && mode_stacks.tracing_state != NULL;
}

static PyObject *
init_modes(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *libraries, *dual_levels;
    if (!PyArg_ParseTuple(args, "O!O!:init_modes", &PyTuple_Type, &libraries, &PyDict_Type, &dual_levels)) {
        return NULL;
    }
    if (mode_stacks.current_level == NULL
        && (mode_stacks.current_level = PyUnicode_InternFromString("_current_level")) == NULL) {
        return NULL;
    }
    Py_XSETREF(mode_stacks.dual_levels, Py_NewRef(dual_levels));
    mode_stacks.function_modes = (GetLength)find_symbol(libraries, "_ZN2at4impl22PythonTorchFunctionTLS9stack_lenEv");
    mode_stacks.dispatch_modes = (GetLength)find_symbol(libraries, "_ZN3c104impl20TorchDispatchModeTLS9stack_lenEv");
    mode_stacks.tracing_state = (GetPointer)find_symbol(libraries, "_ZN5torch3jit6tracer15getTracingStateEv");
    return PyBool_FromLong(finds_modes());
}

/* -1 is the level outside of all. A torch that has no such variable has no answer, and none is open. */
static bool
has_dual_level(void)
{
    int overflow = 0;
    PyObject *level = PyDict_GetItemWithError(mode_stacks.dual_levels, mode_stacks.current_level);
    if (level == NULL || !PyLong_CheckExact(level)) {
        PyErr_Clear();
        return false;
    }
    return PyLong_AsLongAndOverflow(level, &overflow) >= 0;
}

static PyObject *
no_modes(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    if (!finds_modes()) {
        PyErr_SetString(PyExc_RuntimeError, "init_modes() has not found torch's functions");
        return NULL;
    }
    return PyBool_FromLong(mode_stacks.function_modes() == 0 && mode_stacks.dispatch_modes() == 0
                           && *mode_stacks.tracing_state() == NULL && !has_dual_level());
}
