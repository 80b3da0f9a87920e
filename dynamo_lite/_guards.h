/* Guard programs: what `_eval_frame.c` needs of `_guards.c`. */
#ifndef DYNAMO_LITE_GUARDS_H
#define DYNAMO_LITE_GUARDS_H

#include <Python.h>

#ifdef Py_GIL_DISABLED
#  error "dynamo_lite does not support free-threaded CPython: its caches and dict-version guards rely on the GIL"
#endif

/* Results of an evaluation. A miss is the index (>= 0) of the check that failed. */
enum { GUARDS_PASS = -1, GUARDS_RAISED = -2 };

typedef struct GuardProgram GuardProgram;
extern PyTypeObject GuardProgram_Type;

/* Evaluate on bound arguments. `closure` is the function's closure tuple or NULL. Never returns with an Exception
   set: those count as a miss; a BaseException (KeyboardInterrupt) gives GUARDS_RAISED and stays set. */
int guards_evaluate(GuardProgram *program, PyObject *const *locals, Py_ssize_t n_locals, PyObject *closure);

/* Add GuardProgram, KINDS and the tensor functions to the module. */
int guards_module_init(PyObject *module);

#endif
