/* Where the metadata of a tensor lies inside its TensorImpl.

   Asking torch's C shim for everything takes 250 instructions per tensor, and a model has hundreds of parameters. Most of what a
   TENSOR check compares are plain numbers in the TensorImpl. Where they lie is not taken from torch's headers but searched
   on probe tensors (of several kinds, so that a place that agrees with all of them is the right one), and used only
   where there is exactly one such place.

   In this way only tensors are read that the shim has been asked about before, in full, and whose numbers were found to agree
   with its answers (see packed_step()). That the numbers are what counts, and not a sizes() of the tensor's own, is a
   matter of its dispatch keys, which are compared first. */

static const int64_t ANY = INT64_MIN;   /* a dynamic dimension */

typedef struct {
    int32_t dtype, device_type, device_index, layout;
    int64_t dim, *sizes, *strides;
} Metadata;

enum { MAX_INLINE_DIM = 5 };   /* longer sizes and strides lie elsewhere */
enum { TENSOR_IMPL_SIZE = 184 };   /* at least this in every torch with a shim: what torch 2.11 allocates */

static struct {
    int found;
    Py_ssize_t dim, sizes, strides, dtype, device;
    Py_ssize_t codes;            /* of eight bytes with both dtype and device */
    Py_ssize_t autograd_meta;    /* a pointer, NULL: does not require gradients; -1: not found */
    Py_ssize_t requires_grad;    /* a bool in what that points to: requires gradients, whatever else is there */
} impl_layout = {.autograd_meta = -1};

static inline int
dims_match(const int64_t *actual, const int64_t *expected, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (actual[i] != expected[i] && expected[i] != ANY) {
            return 0;
        }
    }
    return 1;
}

/* The type of a device and its index (-1: none), as they lie in a c10::Device. */
static inline uint16_t
device_bytes(const Metadata *m)
{
    const int8_t bytes[2] = {(int8_t)m->device_type, (int8_t)m->device_index};
    uint16_t result;
    memcpy(&result, bytes, sizeof result);
    return result;
}

static inline uint16_t
impl_uint16(const char *impl, Py_ssize_t offset)
{
    uint16_t result;
    memcpy(&result, impl + offset, sizeof result);
    return result;
}

/* dtype and device as they lie at impl_layout.codes; the other bytes are zero. */
static uint64_t
codes_word(uint16_t dtype, uint16_t device)
{
    unsigned char bytes[sizeof(uint64_t)] = {0};
    uint64_t result;
    memcpy(bytes + impl_layout.dtype - impl_layout.codes, &dtype, sizeof dtype);
    memcpy(bytes + impl_layout.device - impl_layout.codes, &device, sizeof device);
    memcpy(&result, bytes, sizeof result);
    return result;
}

/* Can tensors with such metadata be compared here? */
static int
layout_covers(const Metadata *m, int has_strides)
{
    if (!impl_layout.found || m->dim > MAX_INLINE_DIM || !has_strides) {
        return 0;
    }
    for (int64_t i = 0; i < m->dim; i++) {
        if (m->sizes[i] == ANY || m->strides[i] == ANY) {
            return 0;
        }
    }
    return 1;
}

static inline uint64_t
impl_word(const char *impl, Py_ssize_t offset)
{
    uint64_t result;
    memcpy(&result, impl + offset, sizeof result);
    return result;
}

/* Zero if the TensorImpl holds these numbers. The keys are compared elsewhere; layout_covers() holds. `dim` is want->dim: where it
   is a constant nothing is left of the loop. */
static Py_ALWAYS_INLINE inline uint64_t
layout_difference(const char *impl, const Metadata *want, uint64_t codes, uint64_t codes_mask, const int dim)
{
    uint64_t difference = impl_word(impl, impl_layout.dim) ^ (uint64_t)dim;
    difference |= (impl_word(impl, impl_layout.codes) ^ codes) & codes_mask;
    for (int i = 0; i < dim; i++) {
        difference |= impl_word(impl, impl_layout.sizes + 8 * i) ^ (uint64_t)want->sizes[i];
        difference |= impl_word(impl, impl_layout.strides + 8 * i) ^ (uint64_t)want->strides[i];
    }
    return difference;
}

/* ------------------------------------------------------------------------------------------------------------------
   Searching. */

/* One tensor whose metadata Python has read. */
typedef struct {
    PyObject *tensor;
    uintptr_t impl;
    int requires_grad;
    uint64_t keys;
    Metadata metadata;   /* what the shim says */
} Probe;

/* Does the probe have, at `at`, one part of its metadata? */
typedef int (*ProbeMatch)(const Probe *probe, const char *at);

#define PROBE_MATCH(name, holds) static int name(const Probe *probe, const char *at) { return holds; }
PROBE_MATCH(handle_lies_at, *(const uintptr_t *)at == probe->impl)
PROBE_MATCH(keys_lie_at, memcmp(at, &probe->keys, sizeof probe->keys) == 0)
PROBE_MATCH(dim_lies_at, memcmp(at, &probe->metadata.dim, sizeof probe->metadata.dim) == 0)
PROBE_MATCH(sizes_lie_at, memcmp(at, probe->metadata.sizes, probe->metadata.dim * sizeof(int64_t)) == 0)
PROBE_MATCH(strides_lie_at, memcmp(at, probe->metadata.strides, probe->metadata.dim * sizeof(int64_t)) == 0)
PROBE_MATCH(dtype_lies_at, impl_uint16(at, 0) == (uint16_t)probe->metadata.dtype)
PROBE_MATCH(device_lies_at, impl_uint16(at, 0) == device_bytes(&probe->metadata))
#undef PROBE_MATCH

/* The offset from `first` on, below `end`, at which all probes match, if it is the only one; else -1. `size` bytes are looked at. */
static Py_ssize_t
find_offset(const Probe *probes, Py_ssize_t n, ProbeMatch matches, size_t step, size_t size, size_t first, size_t end)
{
    Py_ssize_t found = -1;
    for (size_t offset = first; offset + size <= end; offset += step) {
        int everywhere = 1;
        for (Py_ssize_t i = 0; i < n && everywhere; i++) {
            const char *start = matches == handle_lies_at ? (const char *)probes[i].tensor : (const char *)probes[i].impl;
            everywhere = matches(&probes[i], start + offset);
        }
        if (everywhere) {
            if (found >= 0) {
                return -1;
            }
            found = (Py_ssize_t)offset;
        }
    }
    return found;
}

static Py_ssize_t
find_in_impl(const Probe *probes, Py_ssize_t n, ProbeMatch matches, size_t step, size_t size)
{
    return find_offset(probes, n, matches, step, size, 0, TENSOR_IMPL_SIZE);
}

/* The probes' metadata is filled in; none has more than MAX_INLINE_DIM dimensions, and one has as many. */
static void
find_layout(const Probe *probes, Py_ssize_t n)
{
    const size_t room = MAX_INLINE_DIM * sizeof(int64_t);
    impl_layout.dim = find_in_impl(probes, n, dim_lies_at, sizeof(int64_t), sizeof(int64_t));
    impl_layout.sizes = find_in_impl(probes, n, sizes_lie_at, sizeof(int64_t), room);
    impl_layout.strides = find_in_impl(probes, n, strides_lie_at, sizeof(int64_t), room);
    impl_layout.dtype = find_in_impl(probes, n, dtype_lies_at, sizeof(uint16_t), sizeof(uint16_t));
    impl_layout.device = find_in_impl(probes, n, device_lies_at, 1, sizeof(uint16_t));
    impl_layout.codes = Py_MIN(impl_layout.dtype, impl_layout.device);
    impl_layout.found = impl_layout.dim >= 0 && impl_layout.sizes >= 0 && impl_layout.strides >= 0 && impl_layout.codes >= 0
        && Py_MAX(impl_layout.dtype, impl_layout.device) + sizeof(uint16_t) <= impl_layout.codes + sizeof(uint64_t)
        && impl_layout.codes + sizeof(uint64_t) <= TENSOR_IMPL_SIZE;
}

/* ------------------------------------------------------------------------------------------------------------------
   Where it lies whether a tensor requires gradients: in what a pointer in the TensorImpl points to, if that is there. Searched on
   leaves that are told to require gradients, and not to, in turn. */

enum { AUTOGRAD_META_SIZE = 160 };   /* at least this */

static int
is_pointer(uint64_t word)
{
    return word >= 4096 && word % sizeof(void *) == 0;
}

/* The offset of a pointer that was NULL in all leaves `before` and is there now. */
static Py_ssize_t
find_new_pointer(char (*before)[TENSOR_IMPL_SIZE], char *const *impls, int n)
{
    Py_ssize_t found = -1;
    for (size_t offset = 0; offset < TENSOR_IMPL_SIZE; offset += sizeof(uint64_t)) {
        int everywhere = 1;
        for (int i = 0; i < n; i++) {
            everywhere &= impl_word(before[i], offset) == 0 && is_pointer(impl_word(impls[i], offset));
        }
        if (everywhere) {
            if (found >= 0) {
                return -1;
            }
            found = (Py_ssize_t)offset;
        }
    }
    return found;
}

/* Which bytes can hold the flag, as far as one can tell from what this leaf says now. */
static void
sift_flags(char *candidates, const char *impl, int requires_grad)
{
    const char *meta = *(char **)(impl + impl_layout.autograd_meta);
    for (int offset = 0; offset < AUTOGRAD_META_SIZE; offset++) {
        candidates[offset] &= meta != NULL && meta[offset] == requires_grad;
    }
}

/* The only candidate that is left, or -1. */
static Py_ssize_t
only_flag(const char *candidates)
{
    const char *first = memchr(candidates, 1, AUTOGRAD_META_SIZE);
    if (first == NULL || memchr(first + 1, 1, candidates + AUTOGRAD_META_SIZE - first - 1) != NULL) {
        return -1;
    }
    return first - candidates;
}
