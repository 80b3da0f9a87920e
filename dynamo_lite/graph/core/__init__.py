"""What a graph under construction is made of: nodes, values, metadata of tensors without data, torch's ambient state.

Entry: `fake.Propagator`, `values.TensorValue`. Tests: `tests/graph/`.
"""
