"""Loops over the positions of a mask: one graph with a branch for each position, with the results of eager execution."""

import copy
import functools

import pytest
import torch
from torch.nn import functional as F

import dynamo_lite
from dynamo_lite.config import config
from dynamo_lite.exc import Unsupported
from dynamo_lite.record import log
from dynamo_lite.testing import CompileCounterWithBackend, differences

torch.manual_seed(0)
EXPERTS = torch.nn.ModuleList([torch.nn.Linear(4, 4) for _ in range(3)])
NAMED = torch.nn.ModuleDict({f"expert_{i}": torch.nn.Linear(4, 4) for i in range(4)})


def experts_by_item(x):
    mask = F.one_hot(x[:, :3].argmax(1), 3).T
    result = torch.zeros_like(x)
    for i in (mask.sum(-1) > 0).nonzero():
        (token,) = torch.where(mask[i.item()])
        result = result.index_add(0, token, EXPERTS[i.item()](x[token]))
    return result


def experts_by_name(x):
    """As in transformers' models."""
    weights, chosen = x.softmax(-1).topk(2)
    mask = F.one_hot(chosen, 4).permute(2, 1, 0)
    result = torch.zeros_like(x)
    for expert in torch.greater(mask.sum(dim=(-1, -2)), 0).nonzero():
        slot, token = torch.where(mask[expert].squeeze(0))
        made = NAMED[f"expert_{expert[0]}"](x[None, token].reshape(-1, 4)) * weights[token, slot, None]
        result.index_add_(0, token, made)
    return result


class Experts(torch.nn.Module):
    """As in transformers' models of 2026: the parameters of all experts in one tensor, or each its own."""

    def __init__(self, stacked):
        super().__init__()
        torch.manual_seed(0)
        self.stacked, self.gate = stacked, torch.nn.Linear(4, 3)
        self.weights = torch.nn.ParameterList([torch.randn(3, 4, 4)] if stacked else list(torch.randn(3, 4, 4)))

    def forward(self, x):
        weights, chosen = self.gate(x).softmax(-1).topk(1)
        result = torch.zeros_like(x)
        with torch.no_grad():
            mask = F.one_hot(chosen, 4).permute(2, 1, 0)
            hit = torch.greater(mask.sum(dim=(-1, -2)), 0).nonzero()
        for expert in hit:
            expert = expert[0]
            if expert == 3:
                continue
            slot, token = torch.where(mask[expert])
            weight = self.weights[0][expert] if self.stacked else self.weights[expert]
            result.index_add_(0, token, F.linear(x[token], weight).relu() * weights[token, slot, None])
        return result


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_experts_in_training_whose_sum_is_another_tensor_in_each_turn(backend):
    counter = CompileCounterWithBackend(backend)
    compiled = dynamo_lite.compile(experts_by_item, backend=counter, fullgraph=True)
    for x in torch.randn(5, 2, 4, generator=torch.Generator().manual_seed(2)):
        grads = []
        for call in (experts_by_item, compiled):
            EXPERTS.zero_grad()
            call(x).square().sum().backward()
            grads.append([p.grad for p in EXPERTS.parameters()])
        assert not list(differences(*grads, tol=1e-5)) and any(grad is None for grad in grads[0])
    assert counter.frame_count == 1


def test_an_earlier_value_that_is_kept():
    """Whether it takes part in autograd hangs on fewer turns."""
    weight = torch.ones(4, requires_grad=True)

    def fn(x):
        result = torch.zeros(4)
        seen = []
        for i in (x.sum(-1) > 0).nonzero():
            seen.append(result)
            result = result + weight * x[i.item()]
        return result, [t.requires_grad for t in seen]

    compiled = dynamo_lite.compile(fn, backend="eager")
    for x in (torch.ones(2, 4), torch.tensor([[-1.0], [1.0]]).expand(2, 4)):
        assert not list(differences(fn(x), compiled(x)))


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("stacked", [True, False])
def test_experts_in_training(stacked, backend):
    """One graph for all routings; an expert without tokens has no gradient."""
    net = Experts(stacked)
    twin = copy.deepcopy(net)
    counter = CompileCounterWithBackend(backend)
    compiled = dynamo_lite.compile(net, backend=counter, fullgraph=True)
    for x in 3 * torch.randn(6, 2, 4, generator=torch.Generator().manual_seed(2)):
        for model, call in ((twin, twin), (net, compiled)):
            model.zero_grad()
            call(x).square().sum().backward()
        grads = [[p.grad for p in model.parameters()] for model in (twin, net)]
        assert not list(differences(*grads, tol=1e-5))
        assert stacked or any(grad is None for grad in grads[0])
    assert counter.frame_count == 1


def test_no_turn_is_taken_in_training():
    """Then the result takes no part in autograd: the trace has assumed that it does, and the call runs as ordinary Python."""
    weight = torch.ones(4, requires_grad=True)

    def fn(x):
        result = torch.zeros_like(x)
        for i in (x.sum(-1) > 0).nonzero():
            result[i] += weight * x[i]
        return result, result.requires_grad

    counter = CompileCounterWithBackend("eager")
    compiled = dynamo_lite.compile(fn, backend=counter, fullgraph=True)
    for x in (torch.ones(2, 4), -torch.ones(2, 4), torch.ones(2, 4)):
        assert not list(differences(fn(x), compiled(x)))
        assert compiled(x)[0].requires_grad is compiled(x)[1] is bool((x > 0).any())
    assert counter.frame_count == 1


def leaves_out_a_turn(x):
    s, n = x[0] * 0, 0
    for i in torch.nonzero(x[0] > 0):
        if i.item() == 1:
            continue
        s, n = s + i * x[i.item()], n + 1
    return s, n


def loop_in_a_loop(x):
    s = x[0] * 0
    for i in (x[0] > 0).nonzero():
        for j in (x[1] > 0).nonzero():
            s = s + (i + 1) * (j + 2)
    return s


def positions_change_the_mask(x):
    """The positions are those of the beginning."""
    mask, s = x[0] > 0, x[0] * 0
    for i in mask.nonzero():
        mask.fill_(True)
        s = s + i
    return s, mask


WHOLE = [experts_by_item, experts_by_name, leaves_out_a_turn, loop_in_a_loop, positions_change_the_mask]


def ends_before(x):
    s = x[0] * 0
    for i in (x[0] > 0).nonzero():
        s = s + i
        if i.item() == 1:
            break
    return s


def returns(x):
    for i in (x[0] > 0).nonzero():
        return x * i
    return x


def makes_a_list(x):
    found = []
    for i in (x[0] > 0).nonzero():
        found.append(i * 2)
    return found


def grows(x):
    s = x.sum() * 0
    for i in (x[0] > 0).nonzero():
        s = s + i
    return s


def long(x):
    s = x[0] * 0
    for i in (x.repeat(40, 1)[:, 0] > 0).nonzero():
        s = s + i
    return s


def of_two_dimensions(x):
    s = x[0] * 0
    for i, j in (x > 0).nonzero():
        s = s + i * j
    return s


def written_by_data(x):
    rows, s = (x[0] > -9).nonzero(), x[0] * 0
    rows.data[0] = 2
    for i in rows:
        s = s * 2 + i
    return s


BREAKS = [written_by_data, ends_before, returns, makes_a_list, grows, long, of_two_dimensions]


def inputs():
    for seed in range(6):
        torch.manual_seed(seed)
        yield torch.randn(5, 4)
    yield -torch.ones(5, 4)
    yield torch.ones(5, 4)


def check(fn, backend, tol=0.0, **options):
    """The number of graphs."""
    counter = CompileCounterWithBackend(backend)
    compiled = dynamo_lite.compile(fn, backend=counter, **options)
    for x in inputs():
        given = x.clone()
        assert not list(differences(fn(x), compiled(given), tol=tol))
        assert torch.equal(x, given)
    return counter.frame_count


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("fn", WHOLE)
@torch.no_grad()
def test_whole(fn, backend):
    assert check(fn, backend, tol=0.0 if backend == "eager" else 1e-5, fullgraph=True) == 1
    told = [text for frame in log.frames for graph in frame.graphs for text in graph.branches]
    assert any("branches, one for each position of a mask" in text for text in told)


@pytest.mark.parametrize("fn", BREAKS)
@torch.no_grad()
def test_breaks(fn):
    with config.patch(capture_branches=True):
        graphs = check(fn, "eager")
    with config.patch(capture_branches=False):
        assert graphs <= check(fn, "eager")
    with pytest.raises(Unsupported):
        dynamo_lite.compile(fn, backend="eager", fullgraph=True)(next(inputs()))


@pytest.mark.parametrize("fn", [experts_by_item, experts_by_name])
def test_gradients_break(fn):
    """`torch.cond` gives zeros to the experts of the other side, where eager execution gives none."""
    with config.patch(capture_branches=True):
        found = []
        for run in (fn, dynamo_lite.compile(fn, backend="aot_eager")):
            parameters = [*EXPERTS.parameters(), *NAMED.parameters()]
            for x in inputs():
                for parameter in parameters:
                    parameter.grad = None
                run(x).sum().backward()
                found.append([p.grad for p in parameters])
        half = len(found) // 2
        assert not list(differences(found[:half], found[half:], tol=1e-5))


def test_the_default_is_by_backend():
    counts = {}
    with torch.no_grad():
        for backend in ("eager", "inductor"):
            counts[backend] = functools.partial(check, experts_by_item, tol=1e-5)(backend)
    assert counts["inductor"] == 1 < counts["eager"]


def by_vector(x):
    result = torch.zeros(8)
    for i in (x > 0.5).nonzero().flatten():
        result[i] = x[i] * 3
    return result


def by_list(x):
    result = torch.zeros(8)
    for i in (x > 0.5).nonzero().squeeze(-1).tolist():
        result[i] = x[i] * 3
    return result


def by_where(x):
    (positions,) = torch.where(x > 0.5)
    total = torch.zeros(())
    for i in positions:
        total = total * 2 + x[i] + i.item()
    return total


def by_tuple(x):
    n, positions = 0, (x > 0.5).nonzero(as_tuple=True)[0].tolist()
    for i in positions:
        n += i
    return n, x + len(positions), positions


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("function", [by_vector, by_list, by_where, by_tuple])
def test_positions_as_a_vector_and_as_numbers(function, backend):
    compiled = dynamo_lite.compile(function, backend=backend, fullgraph=True)
    for x in (torch.ones(8), torch.arange(8.0) - 3, torch.zeros(8), torch.tensor([0, 1.0, 0, 0, 2, 0, 0, 3])):
        assert repr(compiled(x)) == repr(function(x))


def writes_to_an_item(x):
    positions, y = (x > 1).nonzero().flatten(), x
    for i in positions:
        i.add_(1)
        y = y + i
    return y, positions


def writes_to_the_positions(x):
    positions, y = (x > 1).nonzero().flatten(), x
    for i in positions:
        positions.add_(1)
        y = y + i
    return y


def exchanges_a_position(x):
    positions, y = (x > 0).nonzero().flatten(), x.clone()
    for i in positions:
        y[i] = i
        positions[0] = 2
    return y


@pytest.mark.parametrize("function", [writes_to_an_item, writes_to_the_positions, exchanges_a_position])
def test_turns_that_write_to_positions_break(function):
    with config.patch(capture_branches=True):
        compiled = dynamo_lite.compile(function, backend="eager")
        for x in (torch.tensor([1.0, 2, 3]), torch.tensor([0.0, 2, 1])):
            assert repr(compiled(x.clone())) == repr(function(x.clone()))
    with pytest.raises(Unsupported, match="a turn of the loop writes to the positions"):
        dynamo_lite.compile(function, backend="eager", fullgraph=True)(torch.ones(3) * 2)
