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
enum { TENSOR_IMPL_SIZE = 192 };   /* at least this in every torch with a shim */

static struct {
    int found;
    Py_ssize_t dim, sizes, strides, dtype, device;
} impl_layout;

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

/* Can tensors with such metadata be compared here? */
static int
layout_covers(const Metadata *m)
{
    return impl_layout.found && m->dim <= MAX_INLINE_DIM;
}

/* Does the TensorImpl hold these numbers? The keys have been compared; layout_covers() holds. */
static inline int
layout_matches(const char *impl, const Metadata *want, int has_strides)
{
    int64_t dim = *(const int64_t *)(impl + impl_layout.dim);
    return dim == want->dim && impl_uint16(impl, impl_layout.dtype) == (uint16_t)want->dtype
        && impl_uint16(impl, impl_layout.device) == device_bytes(want)
        && dims_match((const int64_t *)(impl + impl_layout.sizes), want->sizes, dim)
        && (!has_strides || dims_match((const int64_t *)(impl + impl_layout.strides), want->strides, dim));
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

static int
keys_lie_at(const Probe *probe, const char *at)
{
    return memcmp(at, &probe->keys, sizeof probe->keys) == 0;
}

static int
dim_lies_at(const Probe *probe, const char *at)
{
    return memcmp(at, &probe->metadata.dim, sizeof probe->metadata.dim) == 0;
}

static int
sizes_lie_at(const Probe *probe, const char *at)
{
    return memcmp(at, probe->metadata.sizes, probe->metadata.dim * sizeof(int64_t)) == 0;
}

static int
strides_lie_at(const Probe *probe, const char *at)
{
    return memcmp(at, probe->metadata.strides, probe->metadata.dim * sizeof(int64_t)) == 0;
}

static int
dtype_lies_at(const Probe *probe, const char *at)
{
    return impl_uint16(at, 0) == (uint16_t)probe->metadata.dtype;
}

static int
device_lies_at(const Probe *probe, const char *at)
{
    return impl_uint16(at, 0) == device_bytes(&probe->metadata);
}

/* The offset at which all probes match, if it is the only one; else -1. `size` bytes are looked at. */
static Py_ssize_t
find_offset(const Probe *probes, Py_ssize_t n, ProbeMatch matches, size_t step, size_t size)
{
    Py_ssize_t found = -1;
    for (size_t offset = 0; offset + size <= TENSOR_IMPL_SIZE; offset += step) {
        int everywhere = 1;
        for (Py_ssize_t i = 0; i < n && everywhere; i++) {
            everywhere = matches(&probes[i], (const char *)probes[i].impl + offset);
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

/* The probes' metadata is filled in; none has more than MAX_INLINE_DIM dimensions, and one has as many. */
static void
find_layout(const Probe *probes, Py_ssize_t n)
{
    const size_t room = MAX_INLINE_DIM * sizeof(int64_t);
    impl_layout.dim = find_offset(probes, n, dim_lies_at, sizeof(int64_t), sizeof(int64_t));
    impl_layout.sizes = find_offset(probes, n, sizes_lie_at, sizeof(int64_t), room);
    impl_layout.strides = find_offset(probes, n, strides_lie_at, sizeof(int64_t), room);
    impl_layout.dtype = find_offset(probes, n, dtype_lies_at, sizeof(uint16_t), sizeof(uint16_t));
    impl_layout.device = find_offset(probes, n, device_lies_at, 1, sizeof(uint16_t));
    impl_layout.found = impl_layout.dim >= 0 && impl_layout.sizes >= 0 && impl_layout.strides >= 0
        && impl_layout.dtype >= 0 && impl_layout.device >= 0;
}
