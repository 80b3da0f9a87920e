"""What varies from call to call: which sizes, strides and numbers are symbolic, what marks demand of them, how much may be reasoned
about them, and when recompiling ends.

Facts about values and earlier versions come in as plain numbers and records; nothing here knows a tracker or a graph.

Entry: `dynamic_shapes.dynamic_dims`, `recompile_policy.why_in_vain`. Tests: `tests/shapes/`.
"""
