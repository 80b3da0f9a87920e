/* How much of the thread's C stack is left.

   CPython 3.11 calls Python functions from Python code without using the C stack, and its recursion limit counts Python's frames: programs
   raise that limit and recurse as deep as they like. Calls through our C code do use the C stack, so they look at it themselves. The
   stages, from a full stack to an empty one:
   C_STACK_FOR_ANALYSIS   with less than that nothing is compiled: the original runs;
   c_stack_is_short()     nothing of ours runs but the bare call of the original, and the frame evaluator is taken out;
   c_stack_is_used_up()   RecursionError.

   On 3.12 and 3.13 CPython counts C recursion as well, which does not know how large a thread's stack is. */

typedef struct {
    uintptr_t lowest, highest;    /* addresses; lowest is 0 while they are not known */
    uintptr_t short_below, used_up_below;
    char is_measured;
} CStack;

static _Thread_local CStack c_stack_storage;

enum { C_STACK_FOR_ANALYSIS = 1024 * 1024, C_STACK_UNKNOWN = 256 * 1024, C_STACK_SPARE = 16 * 1024,
       LEAST_C_STACK = 48 * 1024, MOST_C_STACK = 512 * 1024 };   /* what is left to the program below used_up_below */

#if defined(__GNUC__) || defined(__clang__)
#  define HERE_ON_C_STACK ((uintptr_t)__builtin_frame_address(0))
#else
#  define HERE_ON_C_STACK ((uintptr_t)&(char){0})
#endif

static void
c_stack_measure(CStack *stack, uintptr_t here)
{
    stack->is_measured = 1;
    stack->short_below = here - C_STACK_UNKNOWN;   /* where nothing better is known */
#if defined(__linux__)
    pthread_attr_t attributes;
    void *lowest;
    size_t size;
    if (pthread_getattr_np(pthread_self(), &attributes) != 0) {
        return;
    }
    int failed = pthread_attr_getstack(&attributes, &lowest, &size);
    pthread_attr_destroy(&attributes);
    if (failed) {
        return;
    }
    stack->lowest = (uintptr_t)lowest;
#elif defined(__APPLE__)
    size_t size = pthread_get_stacksize_np(pthread_self());
    stack->lowest = (uintptr_t)pthread_get_stackaddr_np(pthread_self()) - size;
#else
    size_t size = 0;
    return;
#endif
    stack->highest = stack->lowest + size;
    stack->short_below = stack->lowest + size / 4;
    stack->used_up_below = stack->lowest + Py_MIN(Py_MAX(size / 8, (size_t)LEAST_C_STACK), (size_t)MOST_C_STACK);
}

static CStack *
c_stack(uintptr_t here)
{
    CStack *stack = &c_stack_storage;
    if (!stack->is_measured) {
        c_stack_measure(stack, here);
    }
    return stack;
}

/* Programs may run Python on stacks that they have made themselves: nothing is known of those. */
static int
c_stack_has(const CStack *stack, uintptr_t here)
{
    return stack->lowest <= here && here < stack->highest;
}

static int
c_stack_is_short(void)
{
    uintptr_t here = HERE_ON_C_STACK;
    return here < c_stack(here)->short_below;
}

/* 1, and a RecursionError is set. */
static int
c_stack_is_used_up(void)
{
    uintptr_t here = HERE_ON_C_STACK;
    CStack *stack = c_stack(here);
    if (here >= stack->used_up_below || !c_stack_has(stack, here)) {
        return 0;
    }
    PyErr_SetString(PyExc_RecursionError, "maximum recursion depth exceeded: the C stack is used up");
    return 1;
}

/* How many bytes are left; very many where that is not known. */
static size_t
c_stack_left(void)
{
    uintptr_t here = HERE_ON_C_STACK;
    CStack *stack = c_stack(here);
    return c_stack_has(stack, here) ? here - stack->lowest : PY_SSIZE_T_MAX;
}
