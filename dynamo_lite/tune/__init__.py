"""Which backend runs a graph fastest, and right: `key` names the graph, `race` measures, `results` remembers, `autotune` decides.

Entry: `autotune.autotune`. Tests: `tests/tune/`.
"""
