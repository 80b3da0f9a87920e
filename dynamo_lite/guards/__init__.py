"""Guards: the conditions under which compiled code is valid.

Input: what the tracer observed, recorded in a `GuardSet` (`ir`). Output: a C program (`program`), the same conditions
as readable Python (`mirror`), and the reason why a call missed (`mirror.explain_miss`). Only `tensor_guards` and `tensor_class` import
torch. `kinds` is the table of what there is to check.

Entry: `ir.GuardSet`, `program.build_program`. Tests: `tests/guards/`.
"""
