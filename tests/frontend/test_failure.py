"""Errors that only the running graph raises: the program sees them as in eager execution, or is told what was lost."""

import contextlib
import gc
import logging
import math
import re
import sys
import traceback
import warnings
import weakref

import pytest
import torch

import dynamo_lite
from dynamo_lite.record import STATS
from dynamo_lite.testing import CompileCounter, same

X = torch.arange(3.0)
GOOD, BAD = torch.tensor([0]), torch.tensor([7])


def outcome(fn, *args):
    """(result or exception, the program's lines in the traceback)."""
    try:
        return fn(*args), []
    except Exception as error:
        assert error.__context__ is None
        places = [(f.name, f.lineno) for f in traceback.extract_tb(error.__traceback__) if f.filename == __file__]
        return (type(error), error.args, getattr(error, "__notes__", None)), places[1:]


def same_as_eager(fn, make_args, backend=None, calls=(GOOD, BAD, GOOD, BAD)):
    """Both ways, with fresh arguments; results, lines and arguments afterwards are the same. The backend that counted."""
    backend = backend or CompileCounter()
    captured = dynamo_lite.compile(fn, backend=backend)
    for index in calls:
        expected_args, args = make_args(index), make_args(index)
        expected, got = outcome(fn, *expected_args), outcome(captured, *args)
        assert repr(got) == repr(expected)
        assert repr(args) == repr(expected_args)
    return backend


def test_changes_before_the_operator_are_there():
    def f(x, i, seen):
        seen.append("before")
        y = x + 1
        seen.append(y)
        z = y.index_select(0, i)
        seen.append("after")
        return z

    assert same_as_eager(f, lambda i: [X, i, []]).frame_count == 1


def test_the_function_catches_it():
    def f(x, i, seen):
        try:
            seen.append(x * 2)
            return torch.nn.functional.embedding(i, x.view(3, 1))
        except IndexError as error:
            seen.append((type(error), error.args))
            return x - 1
        finally:
            seen.append("end")

    assert same_as_eager(f, lambda i: [X, i, []]).frame_count == 1


def test_in_an_inlined_function_and_a_generator():
    def pick(x, i, log):
        log["picked"] = True
        return x[i]

    def each(x, indices, log):
        for i in indices:
            yield pick(x, i, log)

    def f(x, i, log):
        log["begun"] = len(log)
        return [v + 1 for v in each(x, [torch.tensor([1]), i], log)]

    assert same_as_eager(f, lambda i: [X, i, {}]).frame_count == 1


def test_after_a_graph_break():
    def f(x, i, seen):
        y = x + 1
        seen.append(y)
        print(end="")
        seen.append(2)
        try:
            return y.gather(0, i)
        except RuntimeError:
            seen.append(3)
            print(end="")
            return y[i]  # the second error has the first one as its context
        finally:
            seen.append(4)

    counter = CompileCounter()
    captured = dynamo_lite.compile(f, backend=counter)
    for index in (GOOD, BAD, BAD):
        seen = []
        with contextlib.suppress(IndexError):
            captured(X, index, seen)
        assert seen[1:] == ([2, 4] if index is GOOD else [2, 3, 4])
    assert counter.frame_count >= 2


def test_a_break_in_an_inlined_function():
    def inner(x, i, seen):
        seen.append("in")
        print(end="")
        seen.append("still in")
        return x[i]

    def f(x, i, seen):
        try:
            return inner(x + 1, i, seen)
        except IndexError:
            seen.append("caught")

    same_as_eager(f, lambda i: [X, i, []])


def test_in_a_frame_that_the_hook_replaces():
    outside = {}

    def each(match):
        outside[match.group()] = len(outside)
        try:
            picked = torch.neg(outside["x"])[outside["i"]]
        except IndexError:
            return "caught"
        outside["done"] = True
        return str(picked.item())

    def f(x, i):
        outside.update(x=x, i=i)
        return re.sub("a", each, "banana")

    counter = CompileCounter()
    captured = dynamo_lite.compile(f, backend=counter)
    for index in (GOOD, GOOD, BAD, BAD):
        outside.clear()
        expected, left = f(X, index), dict(outside)
        outside.clear()
        assert captured(X, index) == expected
        assert list(outside) == list(left)
    assert counter.frame_count


def test_every_kind_of_parameter_and_free_variables():
    outside = []

    def f(x, /, i, *rest, flag, other=2, **named):
        outside.append((len(rest), flag, other, sorted(named)))

        def add(v):
            return v + other

        named["new"] = 1
        return add(x[i]), rest

    def call(x, i, *rest):
        return captured(x, i, *rest, flag=True, more=3)

    captured = dynamo_lite.compile(f, backend="eager")
    assert torch.equal(call(X, GOOD, 1, 2)[0], torch.tensor([2.0]))
    with pytest.raises(IndexError):
        call(X, BAD, 1, 2)
    assert outside == [(2, True, 2, ["more"])] * 2


def test_arguments_are_not_kept():
    class Thing:
        pass

    def f(x, i, thing):
        ref = weakref.ref(thing)
        del thing
        try:
            return x[i]
        except IndexError:
            return ref

    captured = dynamo_lite.compile(f, backend="eager")
    gc.disable()
    try:
        for index in (GOOD, BAD):
            f(X, index, Thing())
            result = captured(X, index, Thing())
        assert result() is None
    finally:
        gc.enable()


def test_inputs_of_a_graph_of_aotautograd_are_not_kept():
    """Before the function starts again the graph runs without the backend, and raises a second time."""

    def f(x, i):
        return x[i]

    captured = dynamo_lite.compile(f, backend="aot_eager")
    gc.disable()
    try:
        for index in (GOOD, BAD, BAD):
            x = X.clone()
            outcome(captured, x, index)
            given = weakref.ref(x)
            del x
            assert given() is None
    finally:
        gc.enable()


def test_a_tensor_changed_before_it_raises():
    def f(x, i, seen):
        seen.append(1)
        x.add_(1)
        return x[i]

    captured = dynamo_lite.compile(f, backend="eager")
    captured(X.clone(), GOOD, [])
    x, seen = X.clone(), []
    with pytest.raises(IndexError) as caught:
        captured(x, BAD, seen)
    assert torch.equal(x, X + 1)  # once
    assert seen == []
    (note,) = caught.value.__notes__
    assert "changed a tensor in place" in note
    (entry,) = [e for e in traceback.extract_tb(caught.tb) if e.name == "f"]
    assert entry.line == "return x[i]"


def test_random_numbers_consumed_before_it_raises():
    def f(x, i):
        return torch.nn.functional.dropout(x)[i]

    captured = dynamo_lite.compile(f, backend="eager")
    captured(X, GOOD)
    torch.manual_seed(0)
    torch.nn.functional.dropout(X)
    expected = torch.rand(1)
    torch.manual_seed(0)
    with pytest.raises(IndexError, match="out of bounds") as caught:
        captured(X, BAD)
    assert torch.equal(torch.rand(1), expected)
    assert "random numbers" in caught.value.__notes__[0]


def test_the_line_in_an_inlined_function():
    def inner(x, i):
        return x[i]

    def f(x, i):
        x.mul_(2)
        return inner(x, i)

    captured = dynamo_lite.compile(f, backend="eager")
    captured(X.clone(), GOOD)
    with pytest.raises(IndexError) as caught:
        captured(X.clone(), BAD)
    found = [(e.name, e.line) for e in traceback.extract_tb(caught.tb) if e.filename == __file__]
    assert found[1:] == [("f", "return inner(x, i)"), ("inner", "return x[i]")]


def scaled_and_changed(x, v, i):
    y = x * v
    x.add_(1)
    return y[i]


def calls_scaled_and_changed(x, v, i):
    return [scaled_and_changed(x, v, i)]


def check_place(error):
    """The traceback has the lines of both functions above that eager execution names, and none of dynamo_lite."""
    found = traceback.extract_tb(error.__traceback__)
    first = scaled_and_changed.__code__.co_firstlineno
    lines = [(t.name, t.lineno - first) for t in found[1:] if t.filename == __file__]
    assert lines == [("calls_scaled_and_changed", 7), ("scaled_and_changed", 3)]
    assert not any("dynamo_lite/" in t.filename for t in found if t.filename != __file__)


def test_the_line_where_a_float_is_an_input():
    """The backend was given a graph with tensors in the place of floats."""
    compiled = dynamo_lite.compile(calls_scaled_and_changed, backend=lambda gm, inputs: gm.forward)
    for v in (2.0, 3.0, 4.0):
        x = X.clone()
        compiled(x, v, GOOD)
        with pytest.raises(IndexError) as caught:
            compiled(x, v, BAD)
        check_place(caught.value)
        assert x.tolist() == [2.0, 3.0, 4.0]


def test_an_operator_that_refuses_a_float_that_is_an_input():
    def f(x, v, seen):
        seen.append(v)
        try:
            x &= v
        except NotImplementedError:
            return "caught"
        return x

    same_as_eager(f, lambda v: [X.clone(), v, []], calls=(2.0, 3.0, 4.0), backend=lambda gm, inputs: gm.forward)


def test_a_float_that_cannot_be_computed():
    """No operator has run before the floats are known."""

    def f(x, v, seen):
        try:
            x.add_(1)
            seen.append(v)
            return x * math.exp(v)
        except OverflowError:
            return "caught", x

    same_as_eager(f, lambda v: [X.clone(), v, []], calls=(2.0, 3.0, 4.0, 1e9), backend=lambda gm, inputs: gm.forward)


def test_the_line_in_a_graph_of_aotautograd():
    compiled = dynamo_lite.compile(calls_scaled_and_changed, backend="aot_eager")
    for v in (2.0, 3.0, 4.0):
        compiled(X.clone(), v, GOOD)
        with pytest.raises(IndexError) as caught:
            compiled(X.clone(), v, BAD)
        check_place(caught.value)


def test_the_operator_that_raises_is_an_assignment():
    def f(x, i, seen):
        seen.append(0)
        try:
            x[i] = 5.0
        except IndexError:
            seen.append(1)

    same_as_eager(f, lambda i: [X.clone(), i, []])


def test_overlapping_memory():
    def f(x, y, seen):
        seen.append(0)
        try:
            x.expand(3).add_(y)
        except RuntimeError:
            seen.append(1)
            raise

    same_as_eager(f, lambda i: [torch.zeros(1), X, []], calls=(0, 1))


def test_an_operator_that_adds_up_is_not_repeated():
    def f(x, i):
        return x.index_add_(0, i, torch.ones(2))

    captured = dynamo_lite.compile(f, backend="eager")
    captured(X.clone(), torch.tensor([0, 1]))
    eager, x, bad = X.clone(), X.clone(), torch.tensor([0, 9])
    with pytest.raises(IndexError):
        f(eager, bad)
    with pytest.raises(IndexError) as caught:
        captured(x, bad)
    assert torch.equal(x, eager)
    assert caught.value.__notes__


def assigned_too_few(x, i):
    x[x + 1 > 0] = x[~(x + 7 > i)][:2]


def assigned_a_list_too_short(x, i):
    x[x + 1 > i] = torch.zeros(7)


def added_of_another_shape(x, i):
    x.view(3, 1).index_put_(((x * 0).long(),), x[x > i], accumulate=True)


def mask_of_another_length(x, i):
    x[(x > -1)[x + 7 > i]] = 1


@pytest.mark.parametrize(
    "write",
    [
        assigned_too_few,
        assigned_a_list_too_short,
        added_of_another_shape,
        mask_of_another_length,
    ],
)
def test_an_operator_that_refuses_its_arguments_has_changed_nothing(write):
    def f(x, i, seen):
        try:
            seen.append(x * 2)
            write(x, i)
        except (RuntimeError, IndexError) as error:
            seen.append((type(error), error.args))
        return x + 1

    same_as_eager(f, lambda i: [X.clone(), i, []])


@pytest.mark.parametrize("divided", [lambda n, x: n / x, lambda n, x: n / (x + 1).sum()])
def test_python_code_of_torch_that_raises_behind_an_operator(divided):
    """`Tensor.__rdiv__` multiplies the reciprocal, which has written nothing that was there before."""

    def f(x, n, seen):
        seen.append(n)
        return divided(n, x)

    def catches(x, n, seen):
        try:
            return f(x, n, seen)
        except OverflowError as error:
            return str(error)

    for fn in (f, catches):
        same_as_eager(fn, lambda n: [X + 1, n, []], calls=(10**25, 2, 10**25, 3))


def test_an_operator_that_raises_half_way_is_not_repeated():
    """It has written 9.0 at position 1, which the second run would take for an index."""

    def f(x, i):
        try:
            x[(x + 1).long()] = 9.0
        except IndexError:
            return "caught"

    x = torch.tensor([0.0, 7.0, 8.0])
    with pytest.raises(IndexError) as info:
        dynamo_lite.compile(f, backend="eager")(x, 0)
    assert "changed a tensor in place" in info.value.__notes__[0]
    assert x.tolist() == [0.0, 9.0, 8.0]


def test_integer_division_by_zero():
    def f(x, y):
        x //= y
        return x

    captured = dynamo_lite.compile(f, backend="eager")
    two, zero = torch.tensor([2, 2, 2]), torch.tensor([2, 2, 0])
    captured(torch.tensor([8, 8, 8]), two)
    eager, x = torch.tensor([8, 8, 8]), torch.tensor([8, 8, 8])
    for fn, value in ((f, eager), (captured, x)):
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            fn(value, zero)
    assert torch.equal(x, eager)


def test_buffers_of_batch_norm():
    norm = torch.nn.BatchNorm1d(3)

    def f(x, target):
        return torch.nn.functional.cross_entropy(norm(x), target)

    captured = dynamo_lite.compile(f, backend="eager")
    x = torch.arange(6.0).view(2, 3)
    captured(x, torch.tensor([0, 1]))
    with pytest.raises(IndexError) as caught:
        captured(x, torch.tensor([0, 9]))
    assert norm.num_batches_tracked == 2
    assert "changed a tensor in place" in caught.value.__notes__[0]


def test_ambient_state_is_as_before():
    def f(x, i, seen):
        with torch.no_grad():
            seen.append(torch.is_grad_enabled())
            return x[i]

    same_as_eager(f, lambda i: [X, i, []])
    assert torch.is_grad_enabled()


def failing(error, when=lambda: True):
    """A backend whose graphs raise."""
    calls = []

    def backend(gm, inputs):
        def run(*args):
            calls.append(1)
            if when():
                raise error
            return gm.forward(*args)

        return run

    backend.calls = calls
    return backend


def test_a_backend_that_fails_at_run_time():
    def f(x, seen):
        seen.append(1)
        return x + 1

    backend = failing(ValueError("no kernel"))
    captured = dynamo_lite.compile(f, backend=backend)
    seen = []
    with pytest.warns(UserWarning, match="failed at run time.*no kernel"):
        assert torch.equal(captured(X, seen), X + 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(captured(X, []), X + 1)
    assert seen == [1]
    assert len(backend.calls) == 1


def test_a_backend_that_fails_under_fullgraph():
    captured = dynamo_lite.compile(lambda x: x + 1, backend=failing(ValueError("no kernel")), fullgraph=True)
    with pytest.raises(ValueError, match="no kernel") as caught:
        captured(X)
    assert "eager execution succeeds" in caught.value.__notes__[0]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), MemoryError(), SystemExit()])
def test_interrupts_are_passed_on(error):
    def f(x, seen):
        try:
            seen.append(1)
            return x + 1
        except BaseException:
            seen.append(2)

    backend = failing(error)
    captured = dynamo_lite.compile(f, backend=backend)
    seen = []
    with pytest.raises(type(error)):
        captured(X, seen)
    assert seen == []
    assert len(backend.calls) == 1


def test_a_function_that_torch_does_not_know_is_not_run_twice():
    calls = []

    @torch.compiler.allow_in_graph
    def noted(x):
        calls.append(type(x).__name__)
        return x + 1

    def f(x, i):
        return noted(x)[i]

    captured = dynamo_lite.compile(f, backend="eager")
    captured(X, GOOD)
    calls.clear()
    with pytest.raises(IndexError) as caught:
        captured(X, BAD)
    assert calls == ["Tensor"]
    assert "torch does not know" in caught.value.__notes__[0]


@pytest.mark.parametrize("backend", ["aot_eager"])
def test_compiled_graphs(backend):
    def f(x, i, seen):
        seen.append(1)
        try:
            return (x * 2).index_select(0, i)
        except IndexError:
            seen.append(2)
            return None

    same_as_eager(f, lambda i: [X, i, []], backend)


def test_threads():
    import threading

    def f(x, i, seen):
        seen.append(1)
        try:
            return x[i]
        except IndexError:
            seen.append(2)

    captured = dynamo_lite.compile(f, backend="eager")
    captured(X, GOOD, [])
    found = []

    def work():
        for _ in range(50):
            seen = []
            captured(X, BAD, seen)
            found.append(seen)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [[1, 2]] * 200


def test_a_backward_pass_of_what_came_before():
    def f(y, w, i):
        (grad,) = torch.autograd.grad(y.sum(), w)
        return grad[i]

    captured = dynamo_lite.compile(f, backend="eager")
    w = torch.ones(3, requires_grad=True)
    assert torch.equal(captured(w * 2, w, GOOD), torch.tensor([2.0]))
    with pytest.raises(IndexError):
        captured(w * 2, w, BAD)


def scatters(x, seen):
    seen.append("before")
    x.add_(1)
    try:
        y = (x * 2).scatter(0, torch.tensor([[9, 0]]), x)
    except RuntimeError as error:
        seen.append(type(error))
        return x * 3
    return y


def leaves():
    x = torch.arange(6.0).reshape(3, 2)
    return [x, []] if not torch.is_grad_enabled() else [torch.ones(3, 2, requires_grad=True) * x, []]


class WrongGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad[:1]


def test_an_operator_whose_gradient_aotautograd_cannot_run():
    """It raises while AOTAutograd runs the gradient on fake tensors, before anything has happened."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        same_as_eager(scatters, lambda _: leaves(), backend="aot_eager", calls=(GOOD, BAD))
    assert len([w for w in told if "the function runs eagerly" in str(w.message)]) == 1

    def f(x):
        return WrongGradient.apply(x + 0)

    with pytest.warns(UserWarning, match="backend 'aot_eager' failed, the function runs eagerly: RuntimeError"):
        result = dynamo_lite.compile(f, backend="aot_eager")(torch.ones(3, requires_grad=True))
    with pytest.raises(RuntimeError, match="WrongGradientBackward returned an invalid gradient"):
        result.sum().backward()


def test_a_frame_that_runs_eagerly_and_asks_for_the_handled_exception(caplog):
    """Its guards are checked while no exception of the engine's is handled."""

    def f(x):
        return WrongGradient.apply(x + 0), sys.exc_info()[1]

    with pytest.warns(UserWarning, match="the function runs eagerly"):
        assert dynamo_lite.compile(f, backend="aot_eager")(torch.ones(3, requires_grad=True))[1] is None
    assert not [r for r in caplog.records if r.name == "dynamo_lite" and r.levelno >= logging.WARNING]


def raising(gm, inputs):
    raise ValueError("no")


@pytest.mark.parametrize("settings", [{"fullgraph": True}, {}])
def test_backends_that_raise_where_errors_are_not_suppressed(settings):
    def f(x):
        return x + 1

    with dynamo_lite.config.patch(suppress_errors=bool(settings)):
        with pytest.raises(dynamo_lite.exc.BackendCompilerFailed) as info:
            dynamo_lite.compile(f, backend=raising, **settings)(X)
        assert type(info.value.inner_exception) is ValueError
        assert info.value.__cause__ is info.value.inner_exception
        with pytest.raises(dynamo_lite.exc.BackendCompilerFailed):
            dynamo_lite.compile(lambda x: WrongGradient.apply(x + 0), backend="aot_eager", **settings)(
                torch.ones(3, requires_grad=True)
            )


def runs_out_of_memory(x, seen):
    y = x + 1
    print(end="")
    seen.append(1)
    y = y * 2
    y = y.repeat(1 << 50)
    return y.sum()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_graph_that_has_let_go_of_its_inputs(backend):
    captured = dynamo_lite.compile(runs_out_of_memory, backend=backend)
    for _ in range(2):
        seen = []
        with pytest.raises(RuntimeError, match="allocate memory") as caught:
            captured(X, seen)
        assert seen == []  # it is what the graph would have been followed by
        (note,) = caught.value.__notes__
        assert "let go of its inputs" in note
        lines = [e.line for e in traceback.extract_tb(caught.tb) if e.name == runs_out_of_memory.__name__]
        if backend == "eager":
            assert lines == ["y = y.repeat(1 << 50)"]


def test_a_graph_in_a_try_statement_keeps_its_inputs():
    def f(x, seen):
        y = x + 1
        print(end="")
        try:
            seen.append(1)
            y = (y * 2).repeat(1 << 50)
        except RuntimeError as error:
            seen.append(type(error))
        return y

    same_as_eager(f, lambda i: [X, []], backend="eager")


def test_a_try_statement_of_a_caller_in_the_same_frame():
    def f(x, seen):
        try:
            x = runs_out_of_memory(x, seen)
        except RuntimeError as error:
            seen.append(type(error))
        return x

    same_as_eager(f, lambda i: [X, []], backend="eager")


def test_a_graph_of_aotautograd_that_raises_before_it_writes_anything():
    def written_behind(a, b):
        try:
            return torch.linalg.solve(a, b)
        except torch.linalg.LinAlgError:
            return "singular"
        finally:
            b.add_(1)

    def written_before(a, b, seen):
        b.add_(1)
        try:
            return torch.linalg.solve(a, b)
        except torch.linalg.LinAlgError:
            seen.append("singular")

    for grad in (False, True):
        for fn, more in ((written_behind, ()), (written_before, ([],))):

            def make(i, grad=grad, more=more):
                return [(torch.eye(2) * (1 - i)).requires_grad_(grad), torch.ones(2, 1), *map(list, more)]

            for run in (fn, dynamo_lite.compile(fn, backend="aot_eager")):
                results = []
                for i in range(2):
                    args = make(i)
                    result = run(*args)
                    results.append((result, *args[1:]))
                if run is fn:
                    expected = results
            assert same(expected, results)


def test_a_graph_of_aotautograd_that_raises_behind_random_numbers():
    def f(a, b):
        r = torch.rand(2)
        try:
            return torch.linalg.solve(a, b) + r
        finally:
            b.add_(1)

    compiled = dynamo_lite.compile(f, backend="aot_eager")
    compiled(torch.eye(2), torch.ones(2, 1))
    with pytest.raises(torch.linalg.LinAlgError) as caught:
        compiled(torch.zeros(2, 2), torch.ones(2, 1))
    assert "could not start again" in caught.value.__notes__[0]


def fails_under_aot(x):
    """Fake tensors have other strides here than those of the kernel (torch 2.13)."""
    return torch.nn.functional.logsigmoid(x.mT).mT.reshape(-1) * 1


def fails_under_aot_and_writes(x):
    result = fails_under_aot(x)
    x.add_(1)
    return result


@pytest.mark.parametrize(("fn", "warnings_", "again"), [(fails_under_aot, 1, 0), (fails_under_aot_and_writes, 0, 8)])
def test_a_graph_that_only_fails_under_aotautograd(fn, warnings_, again):
    """It leaves it; if it writes to inputs, the function starts again each time: the program may be to blame as well."""
    compiled = dynamo_lite.compile(fn, backend="aot_eager")
    before, told = STATS.started_again, []
    for _ in range(8):
        mine, theirs = (torch.arange(4096.0).reshape(64, 64).sin() for _ in range(2))
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            assert torch.equal(compiled(mine), fn(theirs)) and torch.equal(mine, theirs)
        told += [str(w.message) for w in found if "failed at run time" in str(w.message)]
    assert len(told) == warnings_ and STATS.started_again - before == again
