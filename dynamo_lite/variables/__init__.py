"""Models of Python's objects during an analysis: a `VariableTracker` for each object.

The rooms stand on each other in this order: protocol, builtin, objects, generators, stdlib, torch. `register_models` imports them all.

Entry: `register_models`. Tests: `tests/variables/`.
"""
