"""Reports about the compiler, for people: coverage, explanations, and running unmodified scripts.

Entry: `coverage.Coverage`, `explain.explain`. Tests: `tests/report/`.
"""
