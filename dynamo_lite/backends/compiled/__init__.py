"""What Inductor has compiled: its records, its generated code and its C++ kernels, the whole as plain data and back.

Entry: `artifact.write`, `compiled_graph.called_directly`. Tests: `tests/backends/`, `tests/warm_cache/`.
"""
