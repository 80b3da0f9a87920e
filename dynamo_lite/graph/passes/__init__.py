"""Effects around a graph that are no operators of it: aliasing, assignment to data, checks, hooks, backward passes in parts.

Entry: one function per pass, called by `graph.builder`. Tests: `tests/graph/`.
"""
