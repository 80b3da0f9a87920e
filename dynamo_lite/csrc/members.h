/* What many parts of the extension have in common: interned names; arrays; lives of types. */

#define NAMES(X) \
    X(callback, "callback") X(reduce, "__reduce__") X(doc, "__doc__") X(call, "__call__") X(dict, "__dict__") \
    X(inline, "_torchdynamo_inline") X(dtype, "dtype") X(device, "device") X(layout, "layout") X(requires_grad, "requires_grad") \
    X(shape, "shape") X(stride, "stride")

#define DECLARE_NAME(name, text) static PyObject *s_##name;
NAMES(DECLARE_NAME)

static int
intern_names(void)
{
#define INTERN_NAME(name, text) && (s_##name = PyUnicode_InternFromString(text)) != NULL
    return 1 NAMES(INTERN_NAME) ? 0 : -1;
}

/* The array with room for `n` items of this size; or NULL, no exception set, and the array is what it was. (The macro PyMem_Resize() sets
   the pointer to the array to NULL where there is no memory.) */
static void *
resize_array(void *items, size_t n, size_t size)
{
    return n > PY_SSIZE_T_MAX / size ? NULL : PyMem_Realloc(items, n * size);
}

/* Zeroed; NULL with a MemoryError. */
static void *
new_array(size_t n, size_t size)
{
    void *items = PyMem_Calloc(n, size);
    return items != NULL ? items : PyErr_NoMemory();
}

/* tp_traverse, tp_clear and tp_dealloc of a type, from the names of those of its members that refer to objects (at most twelve). */

#define EXPAND(x) x
#define EACH_1(f, x) f(x)
#define EACH_2(f, x, ...) f(x) EXPAND(EACH_1(f, __VA_ARGS__))
#define EACH_3(f, x, ...) f(x) EXPAND(EACH_2(f, __VA_ARGS__))
#define EACH_4(f, x, ...) f(x) EXPAND(EACH_3(f, __VA_ARGS__))
#define EACH_5(f, x, ...) f(x) EXPAND(EACH_4(f, __VA_ARGS__))
#define EACH_6(f, x, ...) f(x) EXPAND(EACH_5(f, __VA_ARGS__))
#define EACH_7(f, x, ...) f(x) EXPAND(EACH_6(f, __VA_ARGS__))
#define EACH_8(f, x, ...) f(x) EXPAND(EACH_7(f, __VA_ARGS__))
#define EACH_9(f, x, ...) f(x) EXPAND(EACH_8(f, __VA_ARGS__))
#define EACH_10(f, x, ...) f(x) EXPAND(EACH_9(f, __VA_ARGS__))
#define EACH_11(f, x, ...) f(x) EXPAND(EACH_10(f, __VA_ARGS__))
#define EACH_12(f, x, ...) f(x) EXPAND(EACH_11(f, __VA_ARGS__))
#define THIRTEENTH(a, b, c, d, e, f, g, h, i, j, k, l, x, ...) x
#define EACH(f, ...) EXPAND(EXPAND(THIRTEENTH(__VA_ARGS__, EACH_12, EACH_11, EACH_10, EACH_9, EACH_8, EACH_7, EACH_6, EACH_5, EACH_4, \
                                             EACH_3, EACH_2, EACH_1, ))(f, __VA_ARGS__))

#define VISIT_MEMBER(member) Py_VISIT(self->member);
#define CLEAR_MEMBER(member) Py_CLEAR(self->member);

#define TRAVERSE(prefix, Type, ...) \
    static int prefix##_traverse(Type *self, visitproc visit, void *arg) { EACH(VISIT_MEMBER, __VA_ARGS__) return 0; }

#define CLEAR(prefix, Type, ...) \
    static int prefix##_clear(Type *self) { EACH(CLEAR_MEMBER, __VA_ARGS__) return 0; }

#define DEALLOC(prefix, Type, ...) \
    static void prefix##_dealloc(Type *self) \
    { \
        PyObject_GC_UnTrack(self); \
        if (PyType_SUPPORTS_WEAKREFS(Py_TYPE(self))) { \
            PyObject_ClearWeakRefs((PyObject *)self); \
        } \
        EACH(CLEAR_MEMBER, __VA_ARGS__) \
        Py_TYPE(self)->tp_free(self); \
    }

/* These three as slots of the type. */
#define LIFE_SLOTS(prefix) \
    .tp_dealloc = (destructor)prefix##_dealloc, \
    .tp_traverse = (traverseproc)prefix##_traverse, \
    .tp_clear = (inquiry)prefix##_clear
