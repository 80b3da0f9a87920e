"""Models of numpy: scalars and dtypes are constants or symbolic numbers, arrays are tensors of the graph.

Entry: `models.builds_numpy`. Tests: `tests/graph/`, `tests/recompiles/`.
"""
