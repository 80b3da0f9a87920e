"""Models of what only tensor data decide, where the graph can have it: the smaller of two objects, selections by masks, numbers that
Python computes of them.

Entry: `extremes.extreme`, `masked.subscript`, `spelled_out.call_one_hot`. Tests: `tests/graph/`, `tests/shapes/`.
"""
