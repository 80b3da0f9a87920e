/* Is any torch function mode or dispatch mode active on this thread?

   Every entry with a graph asks this at each call. A Python function that asks torch's bindings takes 700 instructions; torch's own
   functions behind these bindings are exported and take 10 each. guards/tensor.py verifies them. */

typedef int64_t (*GetLength)(void);

static struct {
    GetLength function_modes, dispatch_modes;   /* NULL: not found */
} mode_stacks;

static PyObject *
init_modes(PyObject *Py_UNUSED(module), PyObject *libraries)
{
    if (!PyTuple_Check(libraries)) {
        PyErr_SetString(PyExc_TypeError, "init_modes() takes a tuple of names");
        return NULL;
    }
    mode_stacks.function_modes = (GetLength)find_symbol(libraries, "_ZN2at4impl22PythonTorchFunctionTLS9stack_lenEv");
    mode_stacks.dispatch_modes = (GetLength)find_symbol(libraries, "_ZN3c104impl20TorchDispatchModeTLS9stack_lenEv");
    return PyBool_FromLong(mode_stacks.function_modes != NULL && mode_stacks.dispatch_modes != NULL);
}

static PyObject *
no_modes(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    if (mode_stacks.function_modes == NULL || mode_stacks.dispatch_modes == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "init_modes() has not found torch's functions");
        return NULL;
    }
    return PyBool_FromLong(mode_stacks.function_modes() == 0 && mode_stacks.dispatch_modes() == 0);
}
