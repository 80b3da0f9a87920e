/* Tensor metadata for guards. */
#ifndef DYNAMO_LITE_TENSOR_H
#define DYNAMO_LITE_TENSOR_H

#include <Python.h>

typedef struct TensorSpec TensorSpec;

/* The compiled form of a TENSOR check's argument (see guards/tensor.py), or NULL with an exception.
   Objects are borrowed from the argument. */
TensorSpec *tensor_spec_parse(PyObject *argument);
void tensor_spec_free(TensorSpec *spec);

/* 1, 0, or -1 with an exception. */
int tensor_spec_matches(const TensorSpec *spec, PyObject *value);

/* Whether tensor_spec_matches() can never run Python code nor fail. */
int tensor_spec_is_pure(const TensorSpec *spec);

/* Add the Python functions that connect to torch. */
int tensor_module_init(PyObject *module);

#endif
