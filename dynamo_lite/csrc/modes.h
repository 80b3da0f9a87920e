/* Is any torch function mode or dispatch mode, or torch.jit.trace, active on this thread?

   Every entry with a graph asks this at each call. A Python function that asks torch's bindings takes 700 instructions; torch's own
   functions behind these bindings are exported and take 10 each. guards/tensor_guards.py verifies them. */

typedef int64_t (*GetLength)(void);
typedef void *const *(*GetPointer)(void);   /* where a shared_ptr lies, whose first word is the pointer */

static struct {
    GetLength function_modes, dispatch_modes;   /* NULL: not found */
    GetPointer tracing_state;
} mode_stacks;

static bool
finds_modes(void)
{
    return mode_stacks.function_modes != NULL && mode_stacks.dispatch_modes != NULL && mode_stacks.tracing_state != NULL;
}

static PyObject *
init_modes(PyObject *Py_UNUSED(module), PyObject *libraries)
{
    if (!PyTuple_Check(libraries)) {
        PyErr_SetString(PyExc_TypeError, "init_modes() takes a tuple of names");
        return NULL;
    }
    mode_stacks.function_modes = (GetLength)find_symbol(libraries, "_ZN2at4impl22PythonTorchFunctionTLS9stack_lenEv");
    mode_stacks.dispatch_modes = (GetLength)find_symbol(libraries, "_ZN3c104impl20TorchDispatchModeTLS9stack_lenEv");
    mode_stacks.tracing_state = (GetPointer)find_symbol(libraries, "_ZN5torch3jit6tracer15getTracingStateEv");
    return PyBool_FromLong(finds_modes());
}

static PyObject *
no_modes(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    if (!finds_modes()) {
        PyErr_SetString(PyExc_RuntimeError, "init_modes() has not found torch's functions");
        return NULL;
    }
    return PyBool_FromLong(mode_stacks.function_modes() == 0 && mode_stacks.dispatch_modes() == 0
                           && *mode_stacks.tracing_state() == NULL);
}
