"""Buffers of one integer: known where the program asks for them, guarded, and data again once they change. Numbers that
operators take out of other tensors."""

import pytest
import torch

import dynamo_lite
from dynamo_lite.record import log
from dynamo_lite.testing import CompileCounter, CompileCounterWithBackend, same


class Module(torch.nn.Module):
    def __init__(self, body, n=3):
        super().__init__()
        self.body = body
        self.register_buffer("n", torch.tensor(n))
        self.register_buffer("flag", torch.tensor(True))
        self.register_buffer("scale", torch.tensor(2.0))

    def forward(self, x):
        return self.body(self, x)


def check(body, *, graphs, change=lambda module, call: None):
    """Several calls, `change` after each; compares results, inputs, buffers and how many graphs there are after each call."""
    expected, actual = Module(body), Module(body)
    log.reset()
    counter = CompileCounter()
    compiled = dynamo_lite.compile(actual, backend=counter)
    counts = []
    for call in range(len(graphs)):
        x, y = torch.arange(5.0), torch.arange(5.0)
        assert same(expected(x), compiled(y)), call
        assert same(x, y)
        assert same(dict(expected.named_buffers()), dict(actual.named_buffers()))
        counts.append(counter.frame_count)
        change(expected, call)
        change(actual, call)
    assert counts == graphs, [str(b) for b in log.breaks()]


def padded(module, x):
    return torch.nn.functional.pad(x, (module.n, 2 * module.n - 1)), x[: module.n], torch.arange(module.n)


def branch(module, x):
    return x + module.n if module.flag else x - module.n


def loop(module, x):
    for i in range(module.n):
        x = x + i
    return x


def chosen(module, x):
    extra = max(module.n // 2, module.n - 4)
    return x * 2 if extra > 1 else x * extra.item()


@pytest.mark.parametrize("body", [padded, branch, loop, chosen])
def test_known(body):
    check(body, graphs=[1, 1, 1])


def test_known_with_a_compiler():
    module = Module(padded)
    x = torch.arange(5.0)
    assert same(dynamo_lite.compile(module, backend="aot_eager")(x), module(x))


def test_one_that_changes_is_data():
    def grow(module, call):
        module.n.fill_(call + 4)

    check(loop, graphs=[1, 2, 3, 3], change=lambda module, call: grow(module, min(call, 1)))


def test_branches_on_one_that_changes():
    """Each way that the program goes is a version."""
    check(branch, graphs=[1, 2, 2, 2], change=lambda module, call: module.flag.logical_not_())

    def counted(module, x):
        first = bool(module.n == 0)
        if module.n + 1 > 3 and not first:
            x = x * 2
        module.n += 1
        return (x - 1 if first else x + module.n) / module.n

    counter = Module(counted, n=0)
    twin = Module(counted, n=0)
    graphs = CompileCounter()
    compiled = dynamo_lite.compile(counter, backend=graphs, fullgraph=True)
    for _ in range(8):
        assert same(compiled(torch.ones(3)), twin(torch.ones(3)))
    assert graphs.frame_count == 3 and counter.n == 8


def test_a_branch_on_what_the_graph_has_written():
    def body(module, x):
        module.n += 1
        view = module.n.view(1)
        view.mul_(2)
        return x * 2 if module.n > 8 else x

    check(body, graphs=[1, 3, 3, 3])


def test_a_branch_on_memory_that_others_share():
    module, twin = Module(branch_on_n, n=0), Module(branch_on_n, n=0)
    compiled = dynamo_lite.compile(module, backend="eager")
    for n in (0, 1, 2):
        module.n.fill_(n), twin.n.fill_(n)
        assert same(compiled(torch.ones(1).long()), twin(torch.ones(1).long()))
    assert same(compiled(module.n.view(1)), twin(twin.n.view(1)))
    assert same(module.n, twin.n)


def branch_on_n(module, x):
    x.add_(1)
    return x * 2 if module.n > 3 or module.n == 1 else x


def test_written_in_the_graph():
    def body(module, x):
        y = module.n.view(1).add_(1)
        return x * module.n.item(), y

    check(body, graphs=[1, 2, 2])


def test_replaced():
    def body(module, x):
        module.n = module.n + 1
        return x * int(module.n)

    check(body, graphs=[1, 2, 2])


def test_overwritten_with_data():
    def body(module, x):
        module.n.fill_(x.sum().long())
        return x + module.n.item()

    check(body, graphs=[1, 1])


def test_floats_and_other_data_stay_data():
    check(lambda module, x: x * module.scale.item(), graphs=[1, 1])
    check(lambda module, x: x * 2 if (x.sum() + module.n) > 0 else x, graphs=[2, 2])


def test_shared_memory():
    def body(module, x):
        x.add_(1)
        return x * 2, module.n.item()

    module, twin = Module(body), Module(body)
    compiled = dynamo_lite.compile(module, backend="eager")
    assert same(compiled(torch.ones(1).long()), twin(torch.ones(1).long()))
    assert same(compiled(module.n.view(1)), twin(twin.n.view(1)))
    assert same(module.n, twin.n)


# -- numbers that operators take out of tensors


def rows(x, start):
    return x.narrow(0, start, 2) * 1, torch.narrow(x, dim=0, start=start, length=1) + 1


def changed_later(x, start):
    found = x.narrow(0, start, 2) * 1
    start.add_(1)
    return found, start


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", [rows, changed_later])
def test_a_position_in_an_input(fn, backend):
    counter = CompileCounterWithBackend(backend)
    compiled = dynamo_lite.compile(fn, backend=counter, fullgraph=True)
    x = torch.arange(24.0).reshape(8, 3)
    for start in (2, 2, 3, 4, 5, 6):
        given, same_given = torch.tensor(start), torch.tensor(start)
        assert same(compiled(x, given), fn(x, same_given))
        assert torch.equal(given, same_given)
    assert counter.frame_count == 2


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_number_of_parts_in_an_input(backend):
    compiled = dynamo_lite.compile(lambda x, n: [*torch.tensor_split(x, n)], backend=backend, fullgraph=True)
    x = torch.arange(24.0).reshape(8, 3)
    for n in (2, 3, 2):
        assert same(compiled(x, torch.tensor(n)), [*torch.tensor_split(x, n)])


def test_a_position_that_the_graph_changes_or_computes():
    def before(x, start):
        start.add_(1)
        return x.narrow(0, start, 2) * 1

    def computed(x, start):
        return x.narrow(0, start + 1, 2) * 1

    x = torch.arange(24.0).reshape(8, 3)
    for fn in (before, computed):
        compiled = dynamo_lite.compile(fn, backend="eager")
        for start in (1, 2, 3, 4):
            assert torch.equal(compiled(x, torch.tensor(start)), x[start + 1 : start + 3])
        with (
            dynamo_lite.config.patch(capture_scalar_outputs=False),
            pytest.raises(dynamo_lite.exc.Unsupported, match="data-dependent"),
        ):
            dynamo_lite.compile(fn, backend="eager", fullgraph=True)(x, torch.tensor(1))


def test_a_position_whose_memory_others_share():
    starts = torch.tensor([1, 2, 3])
    x = torch.arange(24.0).reshape(8, 3)
    compiled = dynamo_lite.compile(lambda x, start: x.narrow(0, start, 2) * 1, backend="eager")
    for start in starts:
        assert torch.equal(compiled(x, start), x.narrow(0, int(start), 2))
    assert torch.equal(compiled(x, torch.tensor(4)), x[4:6])
    assert torch.equal(compiled(x, starts[0]), x[1:3])


def test_a_position_out_of_range():
    compiled = dynamo_lite.compile(lambda x, start: x.narrow(0, start, 2) * 1, backend="eager")
    x = torch.arange(24.0).reshape(8, 3)
    for start in (1, 2, 3, -2):
        assert torch.equal(compiled(x, torch.tensor(start)), x.narrow(0, start, 2))
    for start in (7, -9):
        with pytest.raises((RuntimeError, IndexError)) as error:
            x.narrow(0, start, 2)
        with pytest.raises(type(error.value)) as found:
            compiled(x, torch.tensor(start))
        assert str(found.value) == str(error.value)
