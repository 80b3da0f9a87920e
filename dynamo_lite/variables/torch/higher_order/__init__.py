"""Models of functions that take functions and become one node: control flow, transforms, attention.

Entry: `body.follow`, `func.TransformedVariable`. Tests: `tests/graph/`.
"""
