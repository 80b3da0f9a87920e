"""Models of tensors of other classes: those that consist of tensors, fake tensors, classes made by the traced code.

Entry: `wrapper_tensor.make_tensor`. Tests: `tests/graph/`.
"""
