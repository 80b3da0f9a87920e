"""The journey of one call that no compiled version fits: analysis, code generation, graph breaks.

Only this room restarts an analysis.

Entry: `convert.Region.on_miss`. Tests: `tests/frontend/`, `tests/`.
"""
