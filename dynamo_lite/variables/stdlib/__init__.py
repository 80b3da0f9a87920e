"""Models of functions and classes of the standard library that Python code cannot stand for; a file has the name of its module.

Entry: `builtins`. Tests: `tests/variables/`.
"""
