"""Jagged tensors (`torch.nested` with `layout=torch.jagged`): inputs, results, made in the captured code; guards on their offsets."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nested import as_nested_tensor, narrow, nested_tensor, nested_tensor_from_jagged
from torch.utils import _pytree as pytree

import dynamo_lite
from dynamo_lite.testing import CompileCounterWithBackend, same

BACKENDS = ["eager", "aot_eager"]
JAGGED = torch.jagged


def rows(lengths, width=4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(n, width, generator=generator) for n in lengths]


def offsets(lengths):
    return torch.tensor([0, *lengths]).cumsum(0)


def jagged(lengths=(2, 3, 5), width=4, seed=0):
    return nested_tensor(rows(lengths, width, seed), layout=JAGGED)


def fitting(lengths=(2, 3, 5)):
    """Two with the same offsets."""
    one = jagged(lengths)
    return one, nested_tensor_from_jagged(one.values() * 2, one.offsets())


def other(lengths=(2, 3, 5)):
    """Two whose offsets are equal, but not the same."""
    return jagged(lengths), jagged(lengths, seed=1)


def plain(value):
    """Values with the parts of jagged tensors in their place; nested ints as what they have in common."""

    def apart(t):
        return ("jagged", t._ragged_idx, t.requires_grad, t._values.detach(), t._offsets, t._lengths)

    value = pytree.tree_map_only(lambda t: getattr(t, "layout", None) is JAGGED, apart, value)
    return pytree.tree_map_only(torch.SymInt, lambda j: "nested", value)


def fit(values):
    """Which of the jagged tensors among these fit each other."""
    found = [t for t in pytree.tree_leaves(values) if getattr(t, "layout", None) is JAGGED]
    return [bool(a.shape[a._ragged_idx] == b.shape[b._ragged_idx]) for a in found for b in found]


def run(call, given):
    results = []
    for make in given:
        args = make()
        results.append((args, call(*args)))
    return [(plain(both), fit(both)) for both in results]


def graphs(fn, given, backend="eager", **options):
    """How many graphs are made for these arguments; results, arguments and which fit which are as in eager execution."""
    counter = CompileCounterWithBackend(backend)
    compiled = dynamo_lite.compile(fn, backend=counter, **options)
    assert same(run(fn, given), run(compiled, given), tol=1e-5)
    return counter.frame_count


LINEAR, NORM, EMBEDDING = nn.Linear(4, 4), nn.LayerNorm(4), nn.Embedding(5, 4)


def one():
    return (jagged(),)


def made_parts():
    return torch.cat(rows((2, 3, 5))), offsets((2, 3, 5))


def heads(x):
    return x.unflatten(-1, [2, 2]).transpose(1, 2)


CASES = {
    "pointwise": (lambda x: (x.sin() * 2 + 1).relu() + x, one),
    "linear": (lambda x: LINEAR(NORM(x)).softmax(-1), one),
    "matmul": (lambda x: x @ torch.ones(4, 3), one),
    "embedding": (lambda i: EMBEDDING(i), lambda: (nested_tensor([torch.arange(n) for n in (2, 5)], layout=JAGGED),)),
    "broadcast": (lambda x, b: x + b, lambda: (jagged(), torch.arange(12.0).reshape(3, 1, 4))),
    "reductions": (lambda x: (x.sum(), x.sum(1), x.sum(-1), x.mean(1), x.amax(1), x.mean(-1, keepdim=True)), one),
    "parts": (lambda x: (x.values() * 2, x.offsets() + 1, x.lengths()), one),
    "padded": (lambda x: x.to_padded_tensor(0.0), one),
    "pieces": (lambda x: (*x.chunk(2, -1), *x.split([1, 3], -1), x.select(-1, 1)), one),
    "joined": (lambda x, y: (torch.cat([x, y], -1), torch.stack([x, y], -1)), fitting),
    "copies": (lambda x: (x.clone(), x.detach(), torch.zeros_like(x), x.to(torch.float64), x.half()), one),
    "masked": (lambda x: torch.where(x > 0, x, 0.0).masked_fill(x < -1, 3.0), one),
    "views": (lambda x: (heads(x), heads(x).transpose(1, 2).flatten(-2), x.unsqueeze(-1).squeeze(-1)), one),
    "ragged view": (lambda x: x.view(x.shape[0], x.shape[1], 2, 2), one),
    "metadata": (lambda x: (x * x.shape[0], x.size(-1), x.dim(), len(x), x.is_nested, x.layout, x.is_contiguous()), one),
    "sizes": (lambda x: (x * 2, x.shape, x.shape[1], x.shape[1] * 2), one),
    "a nested int is no int": (lambda x: (x * 2, isinstance(x.shape[1], int), x.shape[1] == 5, x.shape[1] > 1), one),
    "identity": (lambda x: (x.sin().offsets() is x.offsets(), x.offsets() is x.offsets(), x), one),
    "changed": (lambda x: (x.mul_(2), x.values().add_(1), x + 1), one),
    "attention": (lambda x: F.scaled_dot_product_attention(*[x.to_padded_tensor(0.0)] * 3), one),
    "made": (lambda v, o: nested_tensor_from_jagged(v, o) * 2, made_parts),
    "made of lengths": (lambda v, n: nested_tensor_from_jagged(v, lengths=n), lambda: (made_parts()[0], torch.tensor([2, 8]))),
    "with bounds": (lambda v, o: nested_tensor_from_jagged(v, o, min_seqlen=2, max_seqlen=5).sum(1), made_parts),
    "with holes": (lambda v, o: nested_tensor_from_jagged(v, o, torch.tensor([1, 2, 4])) * 2, made_parts),
    "made of a list": (lambda ts: nested_tensor(ts, layout=JAGGED) + as_nested_tensor(ts, layout=JAGGED).sum(), lambda: (rows((2, 3)),)),
    "narrowed": (lambda x: x * 2, lambda: (narrow(torch.ones(2, 7, 4), 1, torch.tensor([0, 1]), torch.tensor([2, 5]), layout=JAGGED),)),
    "a list": (lambda xs: {"all": [x * 2 for x in xs]}, lambda: ([jagged(), jagged((3, 3))],)),
}  # fmt: skip


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", CASES)
def test_one_graph(name, backend):
    fn, make = CASES[name]
    assert graphs(fn, [make, make], backend, fullgraph=True) == 1


# -- which versions there are


@pytest.mark.parametrize("backend", BACKENDS)
def test_lengths_vary_without_recompiles(backend):
    lengths = [(2, 3, 5), (4, 6, 3), (7, 2, 2), (2, 2, 3)]
    assert graphs(lambda x: NORM(x * 2), [lambda n=n: (jagged(n),) for n in lengths], backend) == 1
    parts = [lambda n=n: (torch.cat(rows(n)), offsets(n)) for n in lengths]
    assert (
        graphs(lambda v, o: nested_tensor_from_jagged(v, o) * 2, parts, backend) == 2
    )  # the values at first as they are


def test_the_number_of_rows_varies_after_one_recompile():
    lengths = [(2, 3, 5), (4, 6), (7, 2, 2, 9), (2, 2, 3, 4, 5)]
    assert graphs(lambda x: x * 2, [lambda n=n: (jagged(n),) for n in lengths]) == 2


def test_rows_without_elements():
    assert (
        graphs(lambda x: x * 2, [lambda n=n: (jagged(n),) for n in [(4, 0, 2), (5, 3, 3), (3, 0, 0), (0, 0, 0)]]) == 3
    )


def compare(x, y):
    return x + 1 if x.shape[1] == y.shape[1] else x - 1


def compare_made(x, v, o):
    return compare(x, nested_tensor_from_jagged(v, o))


def compare_both_made(v, o, p):
    x, y = nested_tensor_from_jagged(v, o), nested_tensor_from_jagged(v * 2, p)
    return compare(x, y).values()


def with_its_offsets():
    x = jagged()
    return x, torch.cat(rows((2, 3, 5))), x.offsets()


def with_other_offsets():
    return jagged(), torch.cat(rows((2, 3, 5))), offsets((2, 3, 5))


def same_offsets():
    o = offsets((2, 3, 5))
    return torch.cat(rows((2, 3, 5))), o, o


def used_offsets():
    v, o, _ = same_offsets()
    nested_tensor_from_jagged(v, o)
    return v, o, o


def two_offsets():
    return torch.cat(rows((2, 3, 5))), offsets((2, 3, 5)), offsets((2, 3, 5))


@pytest.mark.parametrize(
    ("fn", "a", "b"),
    [
        (compare, fitting, other),
        (compare_made, with_its_offsets, with_other_offsets),
        (compare_both_made, same_offsets, two_offsets),
        (compare_both_made, used_offsets, two_offsets),
    ],
)
def test_whose_offsets_are_the_same_is_guarded(fn, a, b):
    assert graphs(fn, [a, b, a, b]) == 2
    assert graphs(fn, [b, a, b, a]) == 2


def test_what_does_not_fit_raises_as_in_eager_execution():
    add = dynamo_lite.compile(lambda x, y: x + y, backend="eager")
    for pair in (fitting, other, fitting):
        x, y = pair()
        if pair is other:
            with pytest.raises(RuntimeError, match="binary pointwise function"):
                add(x, y)
        else:
            assert same(plain(add(x, y)), plain(x + y))


def test_a_size_as_argument():
    def view(x, j):
        return x.view(x.shape[0], j, 2, 2) if x.shape[1] == j else x * 3

    def its_own(lengths):
        x = jagged(lengths)
        return x, x.shape[1]

    given = [lambda: its_own((2, 3, 5)), lambda: its_own((4, 4, 3)), lambda: (jagged(), jagged().shape[1])]
    assert graphs(view, given, fullgraph=True) == 2


def test_a_copy_whose_size_belongs_to_other_offsets():
    """`copy.deepcopy` gives a tensor the size of the original, and offsets of its own."""
    double = dynamo_lite.compile(lambda x: x * 2, backend="eager")
    x = jagged()
    for given in (copy.deepcopy(x), x, copy.deepcopy(x)):
        expected, found = given * 2, double(given)
        assert same(plain(found), plain(expected))
        assert (found.shape[1] == given.shape[1]) == (expected.shape[1] == given.shape[1])


@pytest.mark.parametrize("backend", BACKENDS)
def test_memory_shared_with_another_argument(backend):
    def change(x, v):
        x.values().mul_(2)
        return v + 1

    def apart():
        return jagged(), torch.cat(rows((2, 3, 5)))

    def together():
        v = torch.cat(rows((2, 3, 5)))
        return nested_tensor_from_jagged(v, offsets((2, 3, 5))), v

    graphs(change, [apart, together, apart], backend)


def test_breaks_keep_the_offsets():
    def broken(x):
        y = x * 2
        j = y.shape[1]
        print(end="")
        return y.view(y.shape[0], j, 2, 2), y.offsets() is x.offsets(), y + x

    assert graphs(broken, [one, lambda: (jagged((4, 2, 6)),)]) == 2


def test_what_depends_on_the_lengths_is_a_break():
    def rowwise(x):
        return [row.sum() for row in (x * 2).unbind()], x[0]

    assert graphs(rowwise, [one, one]) >= 1


# -- training


class Block(nn.Module):
    """A layer of a transformer on rows of different lengths, with attention over padded ones."""

    def __init__(self, width=8):
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 16), nn.Linear(16, width)

    def attend(self, x):
        q, k, v = [
            f(x).to_padded_tensor(0.0).unflatten(-1, (2, -1)).transpose(1, 2)
            for f in (self.query, self.key, self.value)
        ]
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(-2)
        return x * self.out(mixed.mean(1, keepdim=True))

    def forward(self, x):
        x = x + self.attend(self.first(x))
        return x + self.down(F.gelu(self.up(self.second(x))))


def transformer():
    return nn.Sequential(Block(), Block())


def small():
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU())


@pytest.mark.parametrize(("backend", "make"), [("eager", transformer), ("aot_eager", transformer), ("inductor", small)])
def test_training(backend, make):
    torch.manual_seed(0)
    net = make()

    def steps(call, model):
        found = []
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for lengths in [(2, 3, 5), (4, 6, 3), (7, 2, 2)]:
            x = jagged(lengths, 8).requires_grad_()
            out = call(x)
            loss = out.to_padded_tensor(0.0).square().mean() + out.values().sum()
            loss.backward()
            found.append((loss.detach(), plain(x.grad), [p.grad.clone() for p in model.parameters()]))
            optimizer.step()
            optimizer.zero_grad()
        return found

    mine = copy.deepcopy(net)
    counter = CompileCounterWithBackend(backend)
    compiled = dynamo_lite.compile(mine, backend=counter, fullgraph=True)
    assert same(steps(net, net), steps(compiled, mine), tol=1e-4)
    assert counter.frame_count == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_gradients_of_what_it_is_made_of(backend):
    def gradients(fn):
        parts = [t.requires_grad_() for t in rows((2, 3, 5))]
        v = torch.cat(rows((1, 2))).requires_grad_()
        fn(parts, v, offsets((1, 2))).backward()
        return [t.grad for t in (*parts, v)]

    def loss(parts, v, o):
        x = as_nested_tensor(parts, layout=JAGGED).softmax(-1)
        return x.values().square().sum() + LINEAR(nested_tensor_from_jagged(v, o)).to_padded_tensor(0.0).cos().sum()

    assert same(gradients(loss), gradients(dynamo_lite.compile(loss, backend=backend, fullgraph=True)), tol=1e-5)


def test_a_parameter_and_autocast():
    def scaled(x, p):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return LINEAR(x * p)

    assert graphs(scaled, [lambda: (jagged(), nn.Parameter(torch.ones(4)))], fullgraph=True) == 1


def padded(n):
    return (n * 2).to_padded_tensor(0.0)


def padded_rows(n):
    return torch.nested.nested_tensor([n, n[:1]]).to_padded_tensor(0.0)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize(
    ("fn", "make"),
    [
        (padded, lambda: torch.nested.nested_tensor([torch.ones(3), torch.ones(1)])),
        (padded_rows, lambda: torch.ones(3)),
    ],
)
def test_nested_tensors_of_the_strided_layout_run_eagerly(fn, make):
    with dynamo_lite.config.patch(debug=True):
        assert torch.equal(dynamo_lite.compile(fn, backend="eager")(make()), fn(make()))
    with pytest.raises(dynamo_lite.exc.Unsupported):
        dynamo_lite.compile(fn, backend="eager", fullgraph=True)(make())


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_nested_tensor_that_nothing_is_done_with():
    rows = torch.nested.nested_tensor([torch.ones(3), torch.ones(1)])
    compiled = dynamo_lite.compile(lambda n, x: (n, x + 1), backend="eager", fullgraph=True)
    n, y = compiled(rows, torch.ones(2))
    assert n is rows and torch.equal(y, torch.full((2,), 2.0))
