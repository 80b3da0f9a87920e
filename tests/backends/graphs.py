"""Programs and inputs on which a backend for inference is held against eager execution."""

import torch
from torch.nn import functional as F

torch.manual_seed(0)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(8)
        self.head = torch.nn.Linear(8, 5)

    def forward(self, x):
        return self.head(F.relu(self.norm(self.conv(x))).mean((2, 3)))


def attention(q, k, v, mask):
    scores = (q @ k.transpose(-1, -2)) / q.shape[-1] ** 0.5
    return scores.masked_fill(~mask, float("-inf")).softmax(-1) @ v


def views(x):
    y = x.t().reshape(2, -1)
    return y, y[0], x[1:], x.t()


def writes(x, y):
    x.mul_(2).add_(y)
    y[0] = 7
    return x.sum(0) + y.exp().sin()


def integers(x, y):
    return x // y, x % y, (x & 3) | y, x.cumsum(0), (x > y).any(-1), x.to(torch.float32).mean()


def booleans(x, y):
    return x & ~y, x ^ y, torch.where(x, 1.5, -2.0), x.sum(), x.any()


def complexes(x):
    spectrum = torch.fft.rfft(x * 2 + 1)
    return (spectrum.abs() + 1).log(), spectrum * 2


def random(x):
    a = torch.rand_like(x) * x.sin()
    b = F.dropout(a + 1, 0.5)
    return a, b * torch.rand(3) + a.cos().sum()


def embedding(i, weight):
    h = F.embedding(i, weight)
    return F.layer_norm(h, h.shape[-1:]), h.argmax(-1), h.topk(2).values


def doubles(x):
    return (x.sin() + 1).pow(2).sum(-1, keepdim=True), x.std(0)


def halves(x):
    return (x @ x.t()).softmax(-1), F.gelu(x) * 2


def image(x, weight):
    y = F.conv2d(x, weight, padding=1)
    return y, F.max_pool2d(y.relu(), 2), y.mean((2, 3))


def scalars(x):
    return x * 2 + 1, x.sum() + 1, x.shape[0] * x


GRAPHS = {
    "attention": (attention, lambda: [*torch.randn(3, 2, 4, 8), torch.ones(4, 4, dtype=torch.bool).tril()]),
    "views": (views, lambda: [torch.randn(4, 6)]),
    "writes": (writes, lambda: [torch.randn(3, 4), torch.randn(4)]),
    "integers": (integers, lambda: [torch.randint(0, 50, (4, 5)), torch.randint(1, 9, (4, 5))]),
    "booleans": (booleans, lambda: [torch.rand(4, 5) > 0.5, torch.rand(4, 5) > 0.5]),
    "complexes": (complexes, lambda: [torch.randn(3, 8)]),
    "random": (random, lambda: [torch.randn(4, 3)]),
    "embedding": (embedding, lambda: [torch.randint(0, 10, (2, 6)), torch.randn(10, 8)]),
    "doubles": (doubles, lambda: [torch.randn(4, 5, dtype=torch.float64)]),
    "halves": (halves, lambda: [torch.randn(4, 5, dtype=torch.float16)]),
    "bfloats": (halves, lambda: [torch.randn(4, 5, dtype=torch.bfloat16)]),
    "channels last": (
        image,
        lambda: [torch.randn(2, 3, 6, 6).to(memory_format=torch.channels_last), torch.randn(4, 3, 3, 3)],
    ),
    "no elements": (scalars, lambda: [torch.randn(0, 5)]),
    "not contiguous": (scalars, lambda: [torch.randn(8, 10)[::2, 1::3].t()]),
    "expanded": (scalars, lambda: [torch.randn(4, 1).expand(4, 5)]),
    "no dimensions": (scalars, lambda: [torch.randn(3).sum().reshape(1)]),
}
"""Name → (function, maker of its inputs)."""


def observed(run, make, seed):
    """All that can be seen of one call without gradients: results, inputs after it, strides, shared memory, the next random number."""
    torch.manual_seed(seed)
    inputs = make()
    with torch.no_grad():
        outputs = run(*inputs)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    memory = [t.untyped_storage().data_ptr() for t in (*outputs, *inputs)]
    shared = [a == b for a in memory for b in memory]
    return outputs, inputs, [o.stride() for o in outputs], shared, torch.rand(1)
