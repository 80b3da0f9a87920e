"""Models of types, instances, descriptors, functions, cells, modules, frames and exceptions, as in CPython's `Objects/`.

Entry: `type.TypeVariable`, `function.FunctionVariable`, `instance.InstanceVariable`. Tests: `tests/variables/`.
"""
