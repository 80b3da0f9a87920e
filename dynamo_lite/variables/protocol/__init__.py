"""The algorithms of CPython's object model, and the tables in which models register. No family of types is imported here.

Entry: `abstract.binary_op`, `descr.generic_getattr`, `wrap.find_builder`. Tests: `tests/variables/`.
"""
