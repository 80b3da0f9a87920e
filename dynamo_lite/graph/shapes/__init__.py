"""Symbolic sizes: the shape environment, and the rules by which sizes of results follow from sizes of arguments.

Entry: `symbols.Symbols`. Tests: `tests/shapes/`, `tests/graph/`.
"""
