"""Packed sequences and recurrent layers of them: one graph for all lengths."""

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import (
    PackedSequence,
    pack_padded_sequence,
    pack_sequence,
    pad_packed_sequence,
    unpack_sequence,
)

import dynamo_lite
from dynamo_lite.testing import CompileCounterWithBackend

LENGTHS = ([5, 3, 2], [4, 4, 1], [2, 5, 3])


def layers(make, batch_first=True, initial=False, total=False, as_list=False, train=True):
    def program():
        torch.manual_seed(0)
        layer = make().train(train)

        def f(x, lengths):
            given = lengths.tolist() if as_list else lengths
            packed = pack_padded_sequence(x, given, batch_first=batch_first, enforce_sorted=False)
            h = None
            if initial:
                n = layer.num_layers * (1 + layer.bidirectional)
                h = torch.ones(n, x.shape[0 if batch_first else 1], layer.hidden_size)
                h = (h, h * 2) if isinstance(layer, nn.LSTM) else h
            output, state = layer(packed, h)
            length = x.shape[1 if batch_first else 0] if total else None
            padded, n = pad_packed_sequence(output, batch_first, padding_value=0.5, total_length=length)
            return (padded, *(state if isinstance(state, tuple) else (state,)), n)

        return layer, f

    return program


def of_function(f):
    return lambda: (nn.Linear(4, 4), f)


def rows_of_a_network():
    torch.manual_seed(0)
    net = nn.Linear(4, 8)

    def f(x, lengths):
        packed = pack_padded_sequence(x, lengths, True, False)
        rows = net(packed.data).relu()
        padded, n = pad_packed_sequence(PackedSequence(rows, *packed[1:]), True)
        return padded, n, rows

    return net, f


PROGRAMS = {
    "lstm": layers(lambda: nn.LSTM(4, 6, batch_first=True)),
    "gru, two layers, both ways, time first": layers(
        lambda: nn.GRU(4, 6, 2, bidirectional=True), batch_first=False, initial=True
    ),
    "rnn, relu": layers(lambda: nn.RNN(4, 6, nonlinearity="relu", bias=False, batch_first=True)),
    "lstm, projections": layers(lambda: nn.LSTM(4, 6, 2, proj_size=3, batch_first=True), total=True),
    "lstm, states": layers(lambda: nn.LSTM(4, 6, batch_first=True), initial=True),
    "lstm, list of lengths": layers(lambda: nn.LSTM(4, 6, batch_first=True), as_list=True),
    "lstm, dropout": layers(lambda: nn.LSTM(4, 6, 2, dropout=0.5, batch_first=True)),
    "lstm, no dropout": layers(lambda: nn.LSTM(4, 6, 2, dropout=0.5, batch_first=True), train=False),
    "rows of a network": rows_of_a_network,
    "pack_sequence": of_function(lambda x, n: tuple(pack_sequence([x[0], x[1][:2], x[2][:1]], enforce_sorted=False))),
    "unpack_sequence": of_function(lambda x, n: tuple(unpack_sequence(pack_padded_sequence(x, n, True, False)))),
    "labels": of_function(
        lambda x, n: pad_packed_sequence(pack_padded_sequence((x * 9).long(), n, True, False), True, padding_value=-1)
    ),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_whole_for_all_lengths(program, backend):
    """Results, strides, gradients and draws are those of eager execution."""
    check(program, backend, fullgraph=True)


@pytest.mark.parametrize("program", ["lstm", "lstm, dropout"])
def test_whole_where_the_graph_may_break(program):
    check(program, "eager", fullgraph=False)


def check(program, backend, fullgraph):
    layer, f = PROGRAMS[program]()
    counter = CompileCounterWithBackend(backend)
    compiled = dynamo_lite.compile(f, backend=counter, fullgraph=fullgraph)
    for lengths in LENGTHS:
        x = torch.randn(3, 5, 4)
        x = x if getattr(layer, "batch_first", True) else x.transpose(0, 1)
        expected, got = (outcome(g, layer, x, torch.tensor(lengths)) for g in (f, compiled))
        for a, b in zip(expected, got, strict=True):
            torch.testing.assert_close(b, a)
            assert a is None or (a.stride(), a.requires_grad) == (b.stride(), b.requires_grad)
    assert counter.frame_count == 1


def outcome(f, layer, x, lengths):
    x = x.detach().requires_grad_()
    layer.zero_grad(set_to_none=True)
    torch.manual_seed(1)
    results = f(x, lengths)
    recorded = [r for r in results if isinstance(r, torch.Tensor) and r.requires_grad]
    if recorded:
        sum(r.pow(2).sum() for r in recorded).backward()
    return (*results, x.grad, *[p.grad for p in layer.parameters()], torch.get_rng_state())


def test_under_inductor():
    layer, f = PROGRAMS["lstm, projections"]()
    compiled = dynamo_lite.compile(f, backend="inductor", fullgraph=True)
    for lengths in LENGTHS:
        x = torch.randn(3, 5, 4)
        expected, got = (outcome(g, layer, x, torch.tensor(lengths)) for g in (f, compiled))
        for a, b in zip(expected, got, strict=True):
            torch.testing.assert_close(b, a)


@pytest.mark.parametrize("enforce_sorted", [True, False])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_lengths_that_are_refused(backend, enforce_sorted):
    """The errors of the operators, and what they make of lengths beyond the steps."""

    def f(x, lengths):
        packed = pack_padded_sequence(x, lengths, True, enforce_sorted)
        return (*packed[:2], *pad_packed_sequence(packed, True, total_length=5))

    def told(g, lengths):
        try:
            return [t.tolist() for t in g(torch.arange(40.0).reshape(2, 5, 4), torch.tensor(lengths))]
        except (RuntimeError, ValueError, IndexError) as error:
            return type(error), str(error)

    compiled = dynamo_lite.compile(f, backend=backend, fullgraph=True)
    for lengths in ([4, 2], [3, 0], [2, 3], [0, 0], [-1, 2], [3, 3], [5, 2], [7, 2], [2, 2, 1], [1, 1]):
        assert told(compiled, lengths) == told(f, lengths)


def test_sizes_that_are_tensors_are_the_numbers_that_the_graph_has():
    """Not others of their own, which would be unrelated to what is known."""

    def f(n, x):
        k = n.sum()
        torch._check(k.item() == 3)
        return torch.zeros(2, k) + torch.ones(int(k)) + x.new_ones(2, k)

    counter = CompileCounterWithBackend("eager")
    compiled = dynamo_lite.compile(f, backend=counter, fullgraph=True)
    n, x = torch.tensor([1, 2]), torch.ones(1)
    assert torch.equal(compiled(n, x), f(n, x))
    assert not any("size" in str(node.target) for node in counter.graphs[0].graph.nodes)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_layers_under_autocast(backend):
    """They cast what they are given, which the operator for compilers does not: the graph breaks."""
    layer = nn.RNN(4, 6, batch_first=True)

    def f(x, lengths):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return layer(pack_padded_sequence(x, lengths, True, False))[0].data

    x, lengths = torch.randn(3, 5, 4), torch.tensor([5, 3, 2])
    expected, got = f(x, lengths), dynamo_lite.compile(f, backend=backend)(x, lengths)
    assert got.dtype is expected.dtype is torch.bfloat16 and torch.equal(got, expected)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_batch_sizes_of_the_program(backend):
    """Those that grow are refused; those that are written to before the backward pass are the ones of the call."""
    layer = nn.LSTM(4, 6)
    compiled = dynamo_lite.compile(lambda data, sizes: layer(PackedSequence(data, sizes))[0].data, backend=backend)
    gradients = []
    for f in (compiled, lambda data, sizes: layer(PackedSequence(data, sizes))[0].data):
        data, sizes = torch.ones(5, 4).requires_grad_(), torch.tensor([3, 2])
        result = f(data, sizes)
        sizes.zero_()
        result.sum().backward()
        gradients.append(data.grad)
    assert torch.allclose(*gradients)
    padded = dynamo_lite.compile(lambda data, sizes: pad_packed_sequence(PackedSequence(data, sizes)), backend=backend)
    with pytest.raises(RuntimeError):
        padded(torch.ones(5, 4), torch.tensor([2, 3]))
