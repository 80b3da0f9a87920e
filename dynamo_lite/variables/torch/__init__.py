"""Models of torch: tensors, modules, functions, the `__torch_function__` protocol. No other room of `variables` imports torch.

Entry: `tensor.TensorVariable`, `functions.TorchFunctionVariable`. Tests: `tests/graph/`, `tests/variables/`.
"""
