"""The toy example of the field: a data-dependent branch. `python -m dynamo_lite run --coverage examples/toy.py`"""

import torch


@torch.compile(backend="eager")
def toy(a, b):
    x = a / (torch.abs(a) + 1)
    if b.sum() < 0:
        b = b * -1
    return x * b


if __name__ == "__main__":
    torch.manual_seed(0)
    for _ in range(100):
        toy(torch.randn(10), torch.randn(10))
