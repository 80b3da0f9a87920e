/* Reading the metadata of a tensor, without torch's headers.

   The fast way is torch's C shim, a stable C ABI made for ahead-of-time compiled code, whose handles are addresses of
   at::Tensor values; one such value lies inside every Python tensor object. Where it lies, and where the dispatch keys lie
   inside a TensorImpl, is found at run time and verified on probe tensors. guards/tensor_guards.py calls init_tensor() for that.
   Whatever cannot be verified is read through Python attributes instead: slower, same answers. Tensors that are checked at
   each call, again and again the same ones, are compared without the shim: see tensor_layout.h.

   The shim has no getter for requires_grad: that comes from c10::TensorImpl::requires_grad() const. */

/* Outcomes of a check. */
enum { RAISED = -1, NO = 0, YES = 1 };

#include "tensor_layout.h"

/* ------------------------------------------------------------------------------------------------------------------
   The connection to torch. */

typedef int32_t (*GetInt32)(void *tensor, int32_t *out);     /* 0: success */
typedef int32_t (*GetInt64)(void *tensor, int64_t *out);
typedef int32_t (*GetArray)(void *tensor, int64_t **out);
typedef char (*GetBool)(const void *impl);                   /* C++ bool */

static struct {
    int enabled;                  /* verified, and not switched off */
    PyTypeObject *tensor_type;    /* objects of this type have an at::Tensor at tensor_offset */
    PyObject *plain_types;        /* tuple: reading these never runs Python code */
    Py_ssize_t tensor_offset;
    Py_ssize_t keys_offset;       /* of the dispatch keys in a TensorImpl; -1: not found */
    GetInt32 dtype, device_type, device_index, layout;
    GetInt64 dim;
    GetArray sizes, strides;
    GetBool requires_grad;        /* may be NULL */
    uint64_t known_keys[8];       /* dispatch keys of tensors that the shim has given the sizes of */
    int n_known_keys;
} shim;

static inline void *
tensor_handle(PyObject *tensor)
{
    return (char *)tensor + shim.tensor_offset;
}

static inline char *
tensor_impl(PyObject *tensor)
{
    return *(char **)tensor_handle(tensor);
}

static inline uint64_t
tensor_keys(PyObject *tensor)
{
    return impl_word(tensor_impl(tensor), shim.keys_offset);
}

/* 1, or 0 if the shim refuses. */
static int
read_metadata(PyObject *tensor, Metadata *m)
{
    void *handle = tensor_handle(tensor);
    return shim.dtype(handle, &m->dtype) == 0 && shim.device_type(handle, &m->device_type) == 0
        && shim.device_index(handle, &m->device_index) == 0 && shim.layout(handle, &m->layout) == 0
        && shim.dim(handle, &m->dim) == 0 && shim.sizes(handle, &m->sizes) == 0;
}

/* ------------------------------------------------------------------------------------------------------------------
   Specs. */

typedef struct {
    PyObject *argument;           /* borrowed, as are the others */
    PyTypeObject *type;
    PyObject *dtype, *device, *layout, *requires_grad;   /* as Python objects */
    PyObject *sizes, *strides;    /* tuples of int or None (any); strides may be NULL: not checked */
    PyObject *keys_function;      /* of a tensor, gives its dispatch keys; NULL: not checked */
    PyObject *keys;
    int use_shim, is_pure, has_strides, check_keys;
    Metadata codes;               /* the same for the shim; its arrays follow in `dims` */
    uint64_t raw_keys;
    uint64_t raw_codes, raw_codes_mask;   /* dtype and device as they lie in a TensorImpl */
    int wants_grad;
    int64_t dims[];
} TensorSpec;

static int
parse_dims(PyObject *dims, int64_t *out)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(dims); i++) {
        PyObject *dim = PyTuple_GET_ITEM(dims, i);
        out[i] = dim == Py_None ? ANY : PyLong_AsLongLong(dim);
        if (out[i] == -1 && PyErr_Occurred()) {
            return -1;
        }
    }
    return 0;
}

static int
is_plain_type(PyTypeObject *type)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(shim.plain_types); i++) {
        if (PyTuple_GET_ITEM(shim.plain_types, i) == (PyObject *)type) {
            return 1;
        }
    }
    return 0;
}

static int
has_known_keys(uint64_t keys)
{
    for (int i = 0; i < shim.n_known_keys; i++) {
        if (shim.known_keys[i] == keys) {
            return 1;
        }
    }
    return 0;
}

static int
parse_codes(TensorSpec *spec, PyObject *codes)
{
    Metadata *m = &spec->codes;
    if (!PyArg_ParseTuple(codes, "iiii;TENSOR codes are (dtype, device type, device index, layout)",
                          &m->dtype, &m->device_type, &m->device_index, &m->layout)) {
        return -1;
    }
    if (spec->keys != NULL) {
        spec->raw_keys = PyLong_AsUnsignedLongLong(spec->keys);
        if (spec->raw_keys == (uint64_t)-1 && PyErr_Occurred()) {
            return -1;
        }
        spec->check_keys = shim.keys_offset >= 0;
        if (!has_known_keys(spec->raw_keys) && shim.n_known_keys < (int)Py_ARRAY_LENGTH(shim.known_keys)) {
            shim.known_keys[shim.n_known_keys++] = spec->raw_keys;
        }
    }
    spec->wants_grad = spec->requires_grad == Py_True;
    spec->use_shim = 1;
    if (impl_layout.found) {
        spec->raw_codes = codes_word((uint16_t)m->dtype, device_bytes(m));
        spec->raw_codes_mask = codes_word(UINT16_MAX, UINT16_MAX);
    }
    spec->is_pure = is_plain_type(spec->type) && shim.requires_grad != NULL && (spec->keys == NULL || spec->check_keys);
    return 0;
}

/* The compiled form of a TENSOR check's argument (see guards/tensor_guards.py), or NULL with an exception. Objects are borrowed
   from the argument. */
static TensorSpec *
tensor_spec_parse(PyObject *argument)
{
    PyObject *type, *dtype, *device, *layout, *requires_grad, *sizes, *strides, *keys, *codes;
    PyObject *keys_function = NULL, *keys_value = NULL;
    if (!PyTuple_Check(argument)) {
        PyErr_SetString(PyExc_TypeError, "TENSOR takes a tuple");
        return NULL;
    }
    if (!PyArg_ParseTuple(argument, "O!OOOO!O!OOO;TENSOR takes (type, dtype, device, layout, requires_grad, sizes, "
                          "strides, keys, codes)", &PyType_Type, &type, &dtype, &device, &layout, &PyBool_Type,
                          &requires_grad, &PyTuple_Type, &sizes, &strides, &keys, &codes)) {
        return NULL;
    }
    if (strides != Py_None && (!PyTuple_Check(strides) || PyTuple_GET_SIZE(strides) != PyTuple_GET_SIZE(sizes))) {
        PyErr_SetString(PyExc_TypeError, "TENSOR strides must be None or a tuple as long as the sizes");
        return NULL;
    }
    if (keys != Py_None && !(PyTuple_Check(keys) && PyArg_ParseTuple(keys, "OO!", &keys_function, &PyLong_Type,
                                                                     &keys_value))) {
        PyErr_SetString(PyExc_TypeError, "TENSOR keys must be None or (function, int)");
        return NULL;
    }
    Py_ssize_t n = PyTuple_GET_SIZE(sizes);
    TensorSpec *spec = new_array(1, sizeof(TensorSpec) + 2 * n * sizeof(int64_t));
    if (spec == NULL) {
        return NULL;
    }
    spec->argument = argument;
    spec->type = (PyTypeObject *)type;
    spec->dtype = dtype;
    spec->device = device;
    spec->layout = layout;
    spec->requires_grad = requires_grad;
    spec->sizes = sizes;
    spec->strides = strides == Py_None ? NULL : strides;
    spec->keys_function = keys_function;
    spec->keys = keys_value;
    spec->codes.dim = n;
    spec->codes.sizes = spec->dims;
    spec->codes.strides = spec->dims + n;
    spec->has_strides = strides != Py_None;
    if (parse_dims(sizes, spec->codes.sizes) < 0
        || (spec->has_strides && parse_dims(strides, spec->codes.strides) < 0)
        || (codes != Py_None && shim.enabled && PyType_IsSubtype(spec->type, shim.tensor_type)
            && (!PyTuple_Check(codes) || parse_codes(spec, codes) < 0))) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_TypeError, "TENSOR codes must be None or a tuple");
        }
        PyMem_Free(spec);
        return NULL;
    }
    return spec;
}

/* Whether tensor_spec_matches() can never run Python code nor fail. */
static int
tensor_spec_is_pure(const TensorSpec *spec)
{
    return spec->is_pure;
}

/* ------------------------------------------------------------------------------------------------------------------
   Matching. */

/* `object.name` compared by identity, or by == where identity is not promised (devices). */
static int
attribute_is(PyObject *object, PyObject *name, PyObject *expected)
{
    PyObject *value = PyObject_GetAttr(object, name);
    if (value == NULL) {
        return RAISED;
    }
    int result = value == expected ? YES : name == s_device ? PyObject_RichCompareBool(value, expected, Py_EQ) : NO;
    Py_DECREF(value);
    return result;
}

/* A tuple of ints against a tuple of ints or None. Steals `actual`, which is NULL if an exception is set. */
static int
tuple_matches(PyObject *actual, PyObject *expected)
{
    if (actual == NULL) {
        return RAISED;
    }
    int result = PyTuple_Check(actual) && PyTuple_GET_SIZE(actual) == PyTuple_GET_SIZE(expected);
    for (Py_ssize_t i = 0; result == YES && i < PyTuple_GET_SIZE(expected); i++) {
        PyObject *want = PyTuple_GET_ITEM(expected, i);
        if (want != Py_None) {
            result = PyObject_RichCompareBool(PyTuple_GET_ITEM(actual, i), want, Py_EQ);
        }
    }
    Py_DECREF(actual);
    return result;
}

static int
keys_match(const TensorSpec *spec, PyObject *value)
{
    PyObject *keys = PyObject_CallOneArg(spec->keys_function, value);
    int result = keys == NULL ? RAISED : PyObject_RichCompareBool(keys, spec->keys, Py_EQ);
    Py_XDECREF(keys);
    return result;
}

static int
matches_by_attributes(const TensorSpec *spec, PyObject *value)
{
    const struct {PyObject *name, *expected;} attributes[] = {
        {s_layout, spec->layout}, {s_dtype, spec->dtype}, {s_device, spec->device}, {s_requires_grad, spec->requires_grad},
    };
    int result = YES;
    for (size_t i = 0; result == YES && i < Py_ARRAY_LENGTH(attributes); i++) {
        result = attribute_is(value, attributes[i].name, attributes[i].expected);
    }
    if (result == YES && spec->keys_function != NULL) {
        result = keys_match(spec, value);
    }
    if (result == YES) {
        result = tuple_matches(PyObject_GetAttr(value, s_shape), spec->sizes);
    }
    if (result == YES && spec->strides != NULL) {
        result = tuple_matches(PyObject_CallMethodNoArgs(value, s_stride), spec->strides);
    }
    return result;
}

/* Dispatch keys come first: kinds of tensors whose sizes the shim refuses to give have other ones. */
static int
matches_by_shim(const TensorSpec *spec, PyObject *value)
{
    const Metadata *want = &spec->codes;
    Metadata found;
    if (tensor_impl(value) == NULL) {
        return NO;
    }
    if (spec->check_keys && tensor_keys(value) != spec->raw_keys) {
        return NO;
    }
    if (!read_metadata(value, &found) || found.dim != want->dim || found.dtype != want->dtype
        || found.device_type != want->device_type || found.device_index != want->device_index
        || found.layout != want->layout || !dims_match(found.sizes, want->sizes, want->dim)) {
        return NO;
    }
    if (spec->has_strides && (shim.strides(tensor_handle(value), &found.strides) != 0
                              || !dims_match(found.strides, want->strides, want->dim))) {
        return NO;
    }
    int result = shim.requires_grad != NULL ? !shim.requires_grad(tensor_impl(value)) == !spec->wants_grad
        : attribute_is(value, s_requires_grad, spec->requires_grad);
    return result == YES && spec->keys_function != NULL && !spec->check_keys ? keys_match(spec, value) : result;
}

/* Can tensor_matches_again() tell about tensors that match this spec? */
static int
tensor_spec_is_direct(const TensorSpec *spec)
{
    return spec->use_shim && spec->is_pure && spec->check_keys && layout_covers(&spec->codes, spec->has_strides);
}

static int
device_index_matches(const TensorSpec *spec, PyObject *value)
{
    int32_t index;
    return shim.device_index(tensor_handle(value), &index) == 0 && index == spec->codes.device_index;
}

/* Not where the answer can be read in place. */
Py_NO_INLINE static int
requires_grad_is(const char *impl, int wanted)
{
    return !shim.requires_grad(impl) == !wanted;
}

static Py_ALWAYS_INLINE inline int
requires_grad_matches(const char *impl, int wanted)
{
    if (impl_layout.autograd_meta < 0) {
        return requires_grad_is(impl, wanted);
    }
    const char *meta = *(char *const *)(impl + impl_layout.autograd_meta);
    if (wanted) {
        return meta != NULL && (meta[impl_layout.requires_grad] == 1 || requires_grad_is(impl, 1));
    }
    return meta == NULL || requires_grad_is(impl, 0);
}

/* The same as tensor_spec_matches(), for a tensor that has matched before. `dim` and `wants_grad` are those of the spec: where they
   are constants little is left of this. No probe has a device with an index. */
static Py_ALWAYS_INLINE inline int
tensor_matches_again(const TensorSpec *spec, PyObject *value, const int dim, const int wants_grad)
{
    const char *impl = tensor_impl(value);
    if (impl == NULL) {
        return 0;
    }
    uint64_t difference = (uintptr_t)Py_TYPE(value) ^ (uintptr_t)spec->type;
    difference |= impl_word(impl, shim.keys_offset) ^ spec->raw_keys;
    difference |= layout_difference(impl, &spec->codes, spec->raw_codes, spec->raw_codes_mask, dim);
    return difference == 0 && requires_grad_matches(impl, wants_grad)
        && (spec->codes.device_index < 0 || device_index_matches(spec, value));
}

/* YES, NO, or RAISED with an exception. */
static int
tensor_spec_matches(const TensorSpec *spec, PyObject *value)
{
    if (Py_TYPE(value) != spec->type) {
        return NO;
    }
    return spec->use_shim ? matches_by_shim(spec, value) : matches_by_attributes(spec, value);
}

/* Does the tensor match the spec, and would tensor_matches_again() say so? */
static int
tensor_matches_both_ways(const TensorSpec *spec, PyObject *value)
{
    return tensor_spec_is_direct(spec) && tensor_spec_matches(spec, value) == YES
        && tensor_matches_again(spec, value, (int)spec->codes.dim, spec->wants_grad);
}

/* The sizes of a plain tensor; or NULL: not known. Asks the shim for nothing that it could refuse, with a message. */
static const int64_t *
tensor_sizes(PyObject *value, int64_t *dim)
{
    int64_t *sizes;
    if (!shim.enabled || shim.keys_offset < 0 || !is_plain_type(Py_TYPE(value)) || tensor_impl(value) == NULL
        || !has_known_keys(tensor_keys(value)) || shim.dim(tensor_handle(value), dim) != 0
        || shim.sizes(tensor_handle(value), &sizes) != 0) {
        return NULL;
    }
    return sizes;
}

/* ------------------------------------------------------------------------------------------------------------------
   Connecting. */

static void *
find_symbol(PyObject *libraries, const char *name)
{
    void *symbol = NULL;
#ifndef _WIN32
    for (Py_ssize_t i = 0; symbol == NULL && i < PyTuple_GET_SIZE(libraries); i++) {
        const char *path = PyUnicode_AsUTF8(PyTuple_GET_ITEM(libraries, i));
        void *library = path == NULL ? NULL : dlopen(path, RTLD_NOLOAD | RTLD_LAZY);
        if (library != NULL) {
            symbol = dlsym(library, name);
            dlclose(library);   /* torch keeps it loaded */
        }
    }
    PyErr_Clear();
#endif
    return symbol;
}

static int
find_symbols(PyObject *libraries)
{
    shim.dtype = (GetInt32)find_symbol(libraries, "aoti_torch_get_dtype");
    shim.device_type = (GetInt32)find_symbol(libraries, "aoti_torch_get_device_type");
    shim.device_index = (GetInt32)find_symbol(libraries, "aoti_torch_get_device_index");
    shim.layout = (GetInt32)find_symbol(libraries, "aoti_torch_get_layout");
    shim.dim = (GetInt64)find_symbol(libraries, "aoti_torch_get_dim");
    shim.sizes = (GetArray)find_symbol(libraries, "aoti_torch_get_sizes");
    shim.strides = (GetArray)find_symbol(libraries, "aoti_torch_get_strides");
    shim.requires_grad = (GetBool)find_symbol(libraries, "_ZNK3c1010TensorImpl13requires_gradEv");
    return shim.dtype && shim.device_type && shim.device_index && shim.layout && shim.dim && shim.sizes && shim.strides;
}

static void
verify_requires_grad(const Probe *probes, Py_ssize_t n)
{
    for (Py_ssize_t i = 0; i < n && shim.requires_grad != NULL; i++) {
        if (!shim.requires_grad((void *)probes[i].impl) != !probes[i].requires_grad) {
            shim.requires_grad = NULL;
        }
    }
}

/* Have the shim say what it knows of the probes. */
static int
read_probes(Probe *probes, Py_ssize_t n)
{
    for (Py_ssize_t i = 0; i < n; i++) {
        Metadata *m = &probes[i].metadata;
        if (!read_metadata(probes[i].tensor, m) || m->dim > MAX_INLINE_DIM
            || shim.strides(tensor_handle(probes[i].tensor), &m->strides) != 0) {
            return 0;
        }
    }
    return 1;
}

static Probe *
parse_probes(PyObject *tuples)
{
    Py_ssize_t n = PyTuple_GET_SIZE(tuples);
    Probe *probes = new_array(n + 1, sizeof(Probe));
    if (probes == NULL) {
        return NULL;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        unsigned long long impl, keys;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(tuples, i), "O!KpK;a probe is (tensor, impl, requires_grad, keys)",
                              shim.tensor_type, &probes[i].tensor, &impl, &probes[i].requires_grad, &keys)) {
            PyMem_Free(probes);
            return NULL;
        }
        probes[i].impl = (uintptr_t)impl;
        probes[i].keys = keys;
    }
    return probes;
}

static PyObject *
init_tensor(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *type, *plain, *libraries, *tuples;
    if (!PyArg_ParseTuple(args, "O!O!O!O!:init_tensor", &PyType_Type, &type, &PyTuple_Type, &plain,
                          &PyTuple_Type, &libraries, &PyTuple_Type, &tuples)) {
        return NULL;
    }
    shim.enabled = impl_layout.found = 0;
    impl_layout.autograd_meta = -1;
    Py_XSETREF(shim.tensor_type, (PyTypeObject *)Py_NewRef(type));
    Py_XSETREF(shim.plain_types, Py_NewRef(plain));
    Probe *probes = parse_probes(tuples);
    if (probes == NULL) {
        return NULL;
    }
    Py_ssize_t n = PyTuple_GET_SIZE(tuples);
    shim.tensor_offset = n > 0 && find_symbols(libraries) ? find_offset(
        probes, n, handle_lies_at, sizeof(void *), sizeof(void *), sizeof(PyObject), shim.tensor_type->tp_basicsize) : -1;
    if (shim.tensor_offset >= 0) {
        shim.enabled = 1;
        shim.keys_offset = find_in_impl(probes, n, keys_lie_at, sizeof(uint64_t), sizeof(uint64_t));
        verify_requires_grad(probes, n);
        if (read_probes(probes, n)) {
            find_layout(probes, n);
        }
    }
    PyMem_Free(probes);
    return Py_BuildValue("{sOsOsOsO}", "metadata", shim.enabled ? Py_True : Py_False,
                         "keys", shim.enabled && shim.keys_offset >= 0 ? Py_True : Py_False,
                         "requires_grad", shim.enabled && shim.requires_grad != NULL ? Py_True : Py_False,
                         "layout", shim.enabled && impl_layout.found ? Py_True : Py_False);
}

/* Have all leaves require gradients, or not. */
static int
set_requires_grad(PyObject *leaves, int flag)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(leaves); i++) {
        if (PyObject_SetAttr(PyTuple_GET_ITEM(leaves, i), s_requires_grad, flag ? Py_True : Py_False) < 0) {
            return -1;
        }
    }
    return 0;
}

/* Find impl_layout.requires_grad; or -1 there, or -1 with an exception. */
static int
find_requires_grad(PyObject *leaves, char *const *impls, int n)
{
    char candidates[AUTOGRAD_META_SIZE];
    memset(candidates, 1, sizeof candidates);
    for (int turn = 0; turn < 4; turn++) {
        int flag = turn % 2 == 0;
        if (set_requires_grad(leaves, flag) < 0) {
            return -1;
        }
        for (int i = 0; i < n; i++) {
            sift_flags(candidates, impls[i], flag);
        }
    }
    impl_layout.requires_grad = only_flag(candidates);
    return 0;
}

enum { N_LEAVES = 4 };

static PyObject *
init_requires_grad(PyObject *Py_UNUSED(module), PyObject *leaves)
{
    char before[N_LEAVES][TENSOR_IMPL_SIZE], *impls[N_LEAVES];
    impl_layout.autograd_meta = -1;
    if (!PyTuple_Check(leaves) || PyTuple_GET_SIZE(leaves) != N_LEAVES) {
        PyErr_Format(PyExc_TypeError, "init_requires_grad() takes a tuple of %d tensors", N_LEAVES);
        return NULL;
    }
    for (int i = 0; i < N_LEAVES; i++) {
        PyObject *leaf = PyTuple_GET_ITEM(leaves, i);
        if (!shim.enabled || !PyObject_TypeCheck(leaf, shim.tensor_type) || (impls[i] = tensor_impl(leaf)) == NULL) {
            Py_RETURN_FALSE;
        }
        memcpy(before[i], impls[i], TENSOR_IMPL_SIZE);
    }
    if (set_requires_grad(leaves, 1) < 0) {
        return NULL;
    }
    Py_ssize_t meta = find_new_pointer(before, impls, N_LEAVES);
    if (meta >= 0) {
        impl_layout.autograd_meta = meta;
        if (find_requires_grad(leaves, impls, N_LEAVES) < 0 || impl_layout.requires_grad < 0) {
            impl_layout.autograd_meta = -1;
        }
    }
    return PyErr_Occurred() ? NULL : PyBool_FromLong(impl_layout.autograd_meta >= 0);
}

static PyObject *
dims_tuple(const int64_t *dims, int64_t n)
{
    PyObject *result = PyTuple_New(n);
    for (Py_ssize_t i = 0; result != NULL && i < n; i++) {
        PyObject *dim = PyLong_FromLongLong(dims[i]);
        if (dim == NULL) {
            Py_CLEAR(result);
            break;
        }
        PyTuple_SET_ITEM(result, i, dim);
    }
    return result;
}

static PyObject *
read_tensor(PyObject *Py_UNUSED(module), PyObject *tensor)
{
    Metadata m;
    if (!shim.enabled || !PyObject_TypeCheck(tensor, shim.tensor_type) || tensor_impl(tensor) == NULL
        || !read_metadata(tensor, &m) || shim.strides(tensor_handle(tensor), &m.strides) != 0) {
        Py_RETURN_NONE;
    }
    PyObject *sizes = dims_tuple(m.sizes, m.dim), *strides = sizes ? dims_tuple(m.strides, m.dim) : NULL;
    if (strides == NULL) {
        Py_XDECREF(sizes);
        return NULL;
    }
    return Py_BuildValue("(iiii)NN", m.dtype, m.device_type, m.device_index, m.layout, sizes, strides);
}

static PyObject *
use_tensor_shim(PyObject *Py_UNUSED(module), PyObject *flag)
{
    int enable = PyObject_IsTrue(flag), previous = shim.enabled;
    if (enable < 0) {
        return NULL;
    }
    shim.enabled = enable && shim.tensor_type != NULL && shim.tensor_offset >= 0;
    return PyBool_FromLong(previous);
}

#include "modes.h"

static PyMethodDef tensor_functions[] = {
    {"init_tensor", init_tensor, METH_VARARGS,
     "init_tensor(tensor_type, plain_types, libraries, probes) -> dict[str, bool]\n\n"
     "Connect to torch's C shim; tells what can be read through it. `libraries` are names of loaded libraries, a probe is\n"
     "(tensor, address of its TensorImpl, requires_grad, dispatch keys)."},
    {"init_requires_grad", init_requires_grad, METH_O,
     "init_requires_grad(leaves) -> bool\n\nAfter init_tensor(): find where it lies whether a tensor requires gradients. `leaves` are "
     "fresh tensors that do not."},
    {"read_tensor", read_tensor, METH_O,
     "read_tensor(tensor) -> ((dtype, device type, device index, layout), sizes, strides) | None\n\n"
     "What the shim says; None without a shim, or if it refuses."},
    {"init_modes", init_modes, METH_VARARGS,
     "init_modes(libraries, variables) -> bool\n\nFind torch's stacks of modes; whether no_modes() can be used. The variables are those of"
     " torch.autograd.forward_ad."},
    {"no_modes", no_modes, METH_NOARGS,
     "no_modes() -> bool\n\nIs no torch function mode, no dispatch mode and no tracer active on this thread, and no dual level open?"},
    {"use_tensor_shim", use_tensor_shim, METH_O,
     "use_tensor_shim(flag) -> previous\n\nWhether programs built from now on read tensors through the shim."},
    {NULL}
};
