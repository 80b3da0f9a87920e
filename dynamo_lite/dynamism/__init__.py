"""Which sizes, strides and numbers of the inputs are symbolic, what marks demand of them, how much may be reasoned about them.

Entry: `dynamic_shapes.dynamic_dims`. Tests: `tests/shapes/`.
"""
