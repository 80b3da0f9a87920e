"""Models of torch's autograd: functions with gradients of their own, hooks, checkpoints, backward passes in the traced code.

Entry: `autograd_function.function_apply`. Tests: `tests/graph/`, `tests/variables/`.
"""
