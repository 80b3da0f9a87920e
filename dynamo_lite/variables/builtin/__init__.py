"""Models of containers, numbers, text and iterators: one file as one of CPython's `Objects/`.

Entry: `dict.DictVariable`, `list.ListVariable`. Tests: `tests/variables/`.
"""
