"""What the compiler did, for people: coverage, explanations, and running unmodified scripts.

Entry: `coverage.Coverage`, `explain.explain`. Tests: `tests/report/`.
"""
