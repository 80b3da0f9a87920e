"""Models of `torch.distributed`: process groups, and the collectives that change tensors in place.

Entry: `collectives`, loaded with the program's first trace. Tests: `tests/distributed/`.
"""
