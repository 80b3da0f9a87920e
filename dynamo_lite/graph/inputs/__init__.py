"""Values of the program that become inputs of a graph: tensors and numbers, tensors that consist of others, `FakeTensor`s, known buffers.

Entry: `outside.OutsideValues`. Tests: `tests/graph/`.
"""
