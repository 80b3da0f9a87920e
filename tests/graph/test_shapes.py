"""Which sizes are symbolic, what stays symbolic, and the guards that are left."""

import pytest
import torch

import dynamo_lite
from dynamo_lite.exc import UserError
from dynamo_lite.record import log
from dynamo_lite.testing import CompileCounter, differences, run_both


def compile_counts(fn, inputs, **options):
    """Run on each input and compare with eager; (graphs, ops)."""
    dynamo_lite.reset()
    counter = CompileCounter()
    compiled = dynamo_lite.compile(fn, backend=counter, fullgraph=True, **options)
    for args in inputs:
        args = args if isinstance(args, tuple) else (args,)
        assert not list(differences(fn(*args), compiled(*args)))
    return counter.frame_count, counter.op_count


def rows(*sizes, n=4):
    return [torch.randn(size, n) for size in sizes]


PROGRAMS = {
    # name: (function, inputs, graphs, ops of all graphs together)
    "matmul": (lambda x: torch.relu(x @ x.T + x.shape[0]), rows(3, 5, 7, 9), 2, 8),
    "view": (lambda x: x.view(x.size(0) * 2, -1).sum(-1) / x.size(0), rows(3, 5, 7), 2, 7),
    "int": (lambda x, n: x[:n] * n + n // 2, [(torch.randn(9), n) for n in (3, 4, 5, 6)], 2, 7),
    "two inputs": (lambda x, y: torch.cat([x, y]).mean(0), list(zip(rows(3, 5, 7), rows(4, 6, 9), strict=True)), 2, 4),
    "loop": (lambda x: sum(x[i] for i in range(x.shape[0])), rows(3, 4, 5), 3, 24),
    "factory": (lambda x: (torch.zeros(x.shape[0]), x.new_ones(x.shape), x.shape), rows(3, 4, 5), 2, 4),
    "numel": (lambda x: (x + x.numel(), len(x), x.stride(0)), rows(3, 4, 5), 2, None),
    "reshape": (
        lambda x: x.reshape(x.shape[0], 2, x.shape[1] // 2).transpose(1, 2).flatten(1) + torch.arange(x.shape[1]),
        rows(3, 4, 5),
        2,
        10,
    ),
    "expand": (lambda x: x.unsqueeze(1).expand(-1, x.shape[0], -1).sum(1), rows(3, 4, 5), 2, None),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_second_size_makes_it_symbolic(name):
    fn, inputs, graphs, ops = PROGRAMS[name]
    assert compile_counts(fn, inputs)[0] == graphs
    if ops is not None:
        assert compile_counts(fn, inputs)[1] == ops


def test_branches_on_sizes_are_guarded():
    fn = lambda x: x + 1 if x.shape[0] > 5 else x - 1  # noqa: E731
    assert compile_counts(fn, rows(3, 4, 8, 9, 5, 20))[0] == 3
    reason = [frame.recompile_reason for frame in log.snapshot() if frame.recompile_reason][-1]
    assert "x.size(0) <= 5" in reason


def test_arithmetic_in_guards():
    fn = lambda x: x.view(-1, 2, x.shape[1]) if x.shape[0] % 2 == 0 else x  # noqa: E731
    assert compile_counts(lambda x: fn(x) + 1, rows(4, 6, 8, 3, 10))[0] == 3


def test_zero_and_one_are_constants():
    assert compile_counts(lambda x: x.sum(0) * x.shape[0], rows(3, 4, 1, 5, 0, 7))[0] == 4


def test_dynamic_true_and_false():
    fn = lambda x: x @ x.T  # noqa: E731
    assert compile_counts(fn, rows(3, 4, 5), dynamic=True)[0] == 1
    assert compile_counts(fn, rows(3, 4, 5), dynamic=False)[0] == 3


def test_equal_sizes_are_one_symbol():
    pairs = [(torch.randn(n, 4), torch.randn(n, 4)) for n in (3, 4, 5)]
    assert compile_counts(lambda x, y: x + y, pairs)[0] == 2
    # Two sizes that were equal by chance: the guard notices.
    more = [*pairs, (torch.randn(6, 4), torch.randn(1, 4))]
    assert compile_counts(lambda x, y: x.sum(0) + y.sum(0), [*pairs, (torch.randn(6, 4), torch.randn(7, 4))])[0] == 3
    assert compile_counts(lambda x, y: x + y, more)[0] == 3


def test_strides_follow_sizes():
    inputs = [torch.randn(2, n, 4) for n in (3, 5, 7)]
    assert compile_counts(lambda x: x.transpose(0, 1) + 1, inputs)[0] == 2
    assert compile_counts(lambda x: x.contiguous().view(-1), [t.transpose(0, 1) for t in inputs])[0] == 2
    mixed = [*inputs, torch.randn(2, 4, 9).transpose(1, 2)]
    assert compile_counts(lambda x: x + 1, mixed)[0] == 3


def test_parameters_stay_constant():
    def fn(x, w):
        return x @ w

    inputs = [(torch.randn(2, n), torch.nn.Parameter(torch.randn(n, 3))) for n in (3, 4, 5)]
    assert compile_counts(fn, inputs)[0] == 3


def test_module_ints_stay_constant():
    class M(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.k = 2

        def forward(self, x):
            return x * self.k

    model = M()
    counter = CompileCounter()
    compiled = dynamo_lite.compile(model, backend=counter)
    for k in (2, 3, 4):
        model.k = k
        assert torch.equal(compiled(torch.ones(2)), torch.ones(2) * k)
    assert counter.frame_count == 3


def test_marks():
    def marked(mark, n=5):
        t = torch.randn(n, 4)
        mark(t, 0)
        return t

    fn = lambda x: x * x.shape[0]  # noqa: E731
    assert compile_counts(fn, [marked(dynamo_lite.mark_dynamic), *rows(6, 7)])[0] == 1
    assert compile_counts(fn, [marked(dynamo_lite.maybe_mark_dynamic), *rows(6, 7)])[0] == 1
    statics = [marked(dynamo_lite.mark_static, n) for n in (3, 4, 5)]
    assert compile_counts(fn, statics)[0] == 3
    constant = lambda x: x * 2 if x.shape[0] == 5 else x * 3  # noqa: E731
    assert compile_counts(constant, [marked(dynamo_lite.maybe_mark_dynamic), *rows(6)])[0] == 2
    with pytest.raises(UserError, match="marked dynamic"):
        compile_counts(constant, [marked(dynamo_lite.mark_dynamic)])


def test_marked_range():
    t = torch.randn(5, 4)
    dynamo_lite.mark_dynamic(t, 0, min=4, max=8)
    fn = lambda x: x * 2 if x.shape[0] <= 8 else x * 3  # noqa: E731
    assert compile_counts(fn, [t, *rows(8, 4, 9)])[0] == 2


def test_symbolic_numbers_as_values():
    def fn(x, n):
        sizes = {"n": n, "rows": x.shape[0]}
        pairs = [(k, v + 1) for k, v in sizes.items()]
        return x + n, n, x.shape, pairs, n * 2, -n, n / 2, n % 3, max(n, x.shape[0]), divmod(n, 2), float(n), abs(-n)

    assert compile_counts(fn, [(torch.randn(r, 2), n) for r, n in ((3, 5), (4, 7), (6, 11), (7, 13))])[0] <= 3


def test_none_test_does_not_fix_a_size():
    def fn(x, n=None):
        size = x.shape[0]
        if size is None or n is None:
            return x
        return x * n

    assert compile_counts(fn, [(torch.randn(r, 2), n) for r, n in ((3, 5), (4, 7), (6, 11))])[0] == 2


def test_symbolic_uses_that_need_the_number():
    def fn(x, n):
        text = f"{n}"
        names = ["a", "b", "c", "d", "e", "f", "g", "h"]
        return x + 1, text, names[n], {n: 1}, (1,) * n

    compile_counts(fn, [(torch.randn(2), n) for n in (2, 3, 4)])


def test_output_of_a_size():
    assert compile_counts(lambda x: (x.shape[0] * 2, x.shape, x + 1, x.t().shape[1]), rows(3, 4, 5))[0] == 2


DATA_DEPENDENT = {
    "item": lambda x: (x * x.sum().item(), x.max().item()),
    "int": lambda x: x * int(x.sum()) + float(x.min()),
    "mask": lambda x: x[x > 0] * 2,
    "nonzero": lambda x: (torch.nonzero(x).shape[0] + 1, torch.nonzero(x) * 2),
    "unique": lambda x: (x.unique().sum(), x.unique().numel()),
}


@pytest.mark.parametrize("name", DATA_DEPENDENT)
def test_numbers_that_depend_on_data(name):
    inputs = [torch.tensor([1.0, -2.0, 3.0]), torch.tensor([4.0, 0.0, 3.0])]
    with dynamo_lite.config.patch(capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True):
        assert compile_counts(DATA_DEPENDENT[name], inputs)[0] == 1


def test_check_on_a_number_that_depends_on_data():
    def fn(x):
        n = int(x.sum())
        torch._check(n > 2)
        torch._check_is_size(n)
        return torch.ones(n), n

    with dynamo_lite.config.patch(capture_scalar_outputs=True):
        assert compile_counts(fn, [torch.tensor([4.0]), torch.tensor([3.0])])[0] == 1
        compiled = dynamo_lite.compile(fn, backend="eager", fullgraph=True)
        compiled(torch.tensor([4.0]))
        with pytest.raises(RuntimeError):
            compiled(torch.tensor([1.0]))


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compilers_get_numbers_and_sizes_that_depend_on_data(backend):
    def fn(x):
        n = int(x.abs().sum())
        torch._check(n >= 0)
        return x * x.sum().item(), x[x > 0] * 2, torch.ones(n), x.max().item() + 1

    with dynamo_lite.config.patch(capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True):
        compiled = dynamo_lite.compile(fn, backend=backend, fullgraph=True)
        for x in (torch.tensor([1.0, -2.0, 3.0]), torch.tensor([-1.0, -2.0, -3.0])):
            torch.testing.assert_close(compiled(x), fn(x))


POWERS = {
    "n ** -1": lambda x, n: n**-1 if n else 0,
    "n ** -2": lambda x, n: n**-2 if n else 0,
    "n ** 0.5": lambda x, n: n**0.5,
    "n ** n": lambda x, n: n**n if n else 1,
    "2 ** n": lambda x, n: 2**n,
    "2 ** -n": lambda x, n: 2**-n,
    "(-2) ** n": lambda x, n: (-2) ** n,
    "0 ** n": lambda x, n: 0**n,
    "n ** 2": lambda x, n: n**2,
    "n ** -n": lambda x, n: n**-n,
    "pow": lambda x, n: pow(n, 3) + pow(-3, abs(n)),
    "in a tensor": lambda x, n: x * n**-1 * (-2) ** abs(n),
    "of a size": lambda x, n: (x * (-2) ** x[:n].shape[0], torch.full((2,), (-3) ** x[:n].shape[0])),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", POWERS)
def test_powers_of_numbers_that_vary(name, dynamic, backend):
    power, frames = POWERS[name], []

    def call(x, n):
        return x[:n], power(x, n)

    compiled, x = dynamo_lite.compile(call, backend=backend, dynamic=dynamic), torch.arange(12.0)
    stop = log.listen(frames.append)
    try:
        for n in (3, 4, 5, 9, 0, 1, -2, 7, 2):
            outcomes = []
            for fn in (call, compiled):
                try:
                    outcomes.append(fn(x, n))
                except ZeroDivisionError as error:
                    outcomes.append(str(error))
            assert not list(differences(*outcomes, tol=1e-6)), n
    finally:
        stop()
    breaks = {record.slug for frame in frames for record in frame.breaks}
    assert not any(frame.skipped for frame in frames) and breaks <= {"uncaught-exception"}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_powers_of_negative_constants(backend):
    for base in (-2, -2.5, -float("inf"), 2, True):
        run = run_both(
            lambda x, base=base: (base**x, pow(base, x.long()), -(3**x)), torch.tensor([2.0, 3.0]), _backend=backend
        )
        assert run.graph_count == 1 and not run.breaks
