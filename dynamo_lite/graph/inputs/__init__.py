"""Inputs of a graph that are no plain tensors: subclasses that consist of others, fake tensors of the program.

Entry: `wrapper_inputs`, `fake_inputs`. Tests: `tests/graph/`.
"""
