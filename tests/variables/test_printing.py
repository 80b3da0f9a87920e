"""`config.stitch`: `print` behind the graph. What is written, in which order, and what still ends the graph."""

import contextlib
import io
import re
import sys
import types
import weakref

import pytest
import torch
from torch._tensor_str import PRINT_OPTS
from torch.utils.checkpoint import checkpoint

import dynamo_lite
from dynamo_lite.record import log


@pytest.fixture(autouse=True)
def stitched():
    with dynamo_lite.config.patch(stitch=True):
        yield


def written(fn, calls):
    """What the calls write, and what they return or raise."""
    stream, results = io.StringIO(), []
    with contextlib.redirect_stdout(stream):
        for args in calls:
            try:
                results.append(fn(*args))
            except (ValueError, ZeroDivisionError) as error:
                results.append(str(error))
            print("--")
    return stream.getvalue(), [r.tolist() if isinstance(r, torch.Tensor) else r for r in results]


def check(fn, *calls, slugs=()):
    """The program writes and returns what it does in eager execution, with these breaks."""
    expected = written(fn, [[a.clone() if isinstance(a, torch.Tensor) else a for a in args] for args in calls])
    log.reset()
    assert written(dynamo_lite.compile(fn, backend="eager"), calls) == expected
    assert {b.slug for b in log.breaks()} == set(slugs)
    return expected[0]


X = torch.arange(3.0)


def test_constants():
    def f(x):
        print("a", 1, None, [2.5, "b"], {"k": (1,)}, sep="-", end="|")
        print()
        print("c", flush=True)
        print(*"xy", sep=None, end=None)
        return x + 1

    assert check(f, [X], [X]) == "a-1-None-[2.5, 'b']-{'k': (1,)}|\nc\nx y\n--\n" * 2


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_numbers_of_the_graph(backend):
    state = types.SimpleNamespace(total=0.0)

    def f(x, i):
        loss = x.square().mean()
        state.total += loss.item()
        print(f"step {i:03d}: loss {loss.item():.4f} {loss.item()} ({state.total:8.2e})", x.shape[0])
        return loss * 2

    def run(fn, calls):
        state.total = 0.0
        return written(fn, calls)

    calls = [[X + i, i] for i in range(5)]
    expected = run(f, calls)
    log.reset()
    assert run(dynamo_lite.compile(f, backend=backend), calls) == expected
    assert not log.breaks() and len(log.snapshot()) == 2, "one version for i = 0, one for all others"


def test_tensors_are_written_as_they_were():
    def f(x):
        print(x, "before")
        x.add_(1)
        print("after", x[:2], (x > 1).sum())
        x.mul_(2)
        return x

    text = check(f, [X.clone()], [X.clone() + 5])
    assert "tensor([0., 1., 2.]) before\nafter tensor([1., 2.]) tensor(2)\n" in text


def test_order_with_other_effects():
    seen = []

    def f(x):
        print("one")
        seen.append(len(seen))
        print("two", seen)
        return x + 1

    expected = written(f, [[X], [X]])
    seen.clear()
    log.reset()
    assert written(dynamo_lite.compile(f, backend="eager"), [[X], [X]]) == expected
    assert not log.breaks()


class Plain:
    def __str__(self):
        return "plain"


class Noisy:
    def __str__(self):
        print("inner")
        return "outer"


class Raising:
    def __str__(self):
        raise ValueError("no text")


@pytest.mark.parametrize("thing, slugs", [(Plain(), ()), (Noisy(), ("call-print",)), (Raising(), ("call-print",))])
def test_texts_of_the_program(thing, slugs):
    """What stands before an object is written before its method runs."""

    def f(x):
        print("one", thing)
        return x + 1

    check(f, [X], [X], slugs=slugs)


def test_text_is_there_when_somebody_may_look():
    """A foreign call ends the graph, behind what was printed before."""

    def f(x):
        print("one", x.sum())
        y = x * 2
        n = len(sys.stdout.getvalue().splitlines())
        print("two", n)
        return y + n

    check(f, [X], [X], slugs=["call-io"])


def test_text_is_there_before_an_exception():
    def f(x, n):
        print("one", x.sum().item())
        if n == 0:
            raise ValueError("none")
        y = x / n
        print("two")
        return y, 1 / (n - 1)

    check(lambda x, n: f(x, n)[0], [X, 2], [X, 0], [X, 1], [X, 3], slugs=["uncaught-exception"])


def test_failing_operator():
    """The frame starts again: what it prints before the operator is there once."""

    def f(x, i):
        print("one")
        y = x.index_select(0, i)
        print("two")
        return y

    compiled = dynamo_lite.compile(f, backend="eager")
    stream = io.StringIO()
    with contextlib.redirect_stdout(stream):
        compiled(X, torch.tensor([1]))
        with pytest.raises((IndexError, RuntimeError), match="out of range"):
            compiled(X, torch.tensor([5]))
    assert stream.getvalue() == "one\ntwo\none\n"


def test_sides_of_a_branch_on_data():
    def f(x):
        if x.sum() > 2:
            print("large")
            y = x + 1
        else:
            y = x - 1
        return y * 2

    with dynamo_lite.config.patch(capture_branches=True):
        assert check(f, [X], [-X], [X], slugs=["data-dependent-branch"]).count("large") == 2


def test_bodies_of_operators():
    def body(x):
        print("body")
        return x.sin()

    def f(x):
        return checkpoint(body, x, use_reentrant=False) + 1

    log.reset()
    stream = io.StringIO()
    with contextlib.redirect_stdout(stream):
        x = X.clone().requires_grad_()
        f(x).sum().backward()
        expected, stream_at = stream.getvalue(), stream.tell()
        dynamo_lite.compile(f, backend="eager")(x.detach().requires_grad_()).sum().backward()
    assert stream.getvalue()[stream_at:] == expected


class Shouting(io.StringIO):
    def write(self, text):
        return super().write(text.upper())


@pytest.mark.parametrize("make", [Shouting, io.StringIO])
def test_streams_of_the_program(make):
    """A stream whose methods are the program's is written to at the moment of the call."""

    def f(x):
        print("one")
        return x + 1

    compiled = dynamo_lite.compile(f, backend="eager")
    compiled(X)  # another stream
    log.reset()
    with contextlib.redirect_stdout(make()) as stream:
        compiled(X)
        compiled(X)
    assert stream.getvalue() == ("ONE\n" if make is Shouting else "one\n") * 2
    assert [b.slug for b in log.breaks()] == (["call-print"] if make is Shouting else [])


def test_streams_that_are_named(tmp_path):
    def f(x, file):
        print("one", x.sum().item(), file=file)
        return x + 1

    compiled = dynamo_lite.compile(f, backend="eager", fullgraph=True)
    for name in "ab":
        with open(tmp_path / name, "w") as file:
            compiled(X, file)
            compiled(X, file)
        assert (tmp_path / name).read_text() == "one 3.0\none 3.0\n"


def printed_and_written(x, out):
    y = x + 1
    print("step", y.sum().item(), file=out)
    out.write("end\n")
    return y * 2


@pytest.mark.parametrize("kept", [True, False])
def test_another_stream_at_each_call(kept):
    """A version does not rest on the stream, but on what kind it is."""
    log.reset()
    compiled, streams = dynamo_lite.compile(printed_and_written, backend="eager", fullgraph=True), []
    for i in range(12):
        stream = io.StringIO()
        assert torch.equal(compiled(X + i, stream), (X + i + 1) * 2)
        assert stream.getvalue() == f"step {6.0 + 3 * i}\nend\n"
        streams += [stream] if kept else []
    assert len(log.snapshot()) == 1 and not log.breaks()


def test_other_streams_in_attributes():
    """An attribute that names another stream from the second line on."""

    def f(x, thing):
        print("one", file=thing.out)
        thing.out, thing.other = thing.other, thing.out
        print("two", file=thing.out)
        thing.other.write("three")
        return x + 1

    log.reset()
    compiled = dynamo_lite.compile(f, backend="eager", fullgraph=True)
    for _ in range(3):
        first, second = io.StringIO(), io.StringIO()
        compiled(X, types.SimpleNamespace(out=first, other=second))
        assert (first.getvalue(), second.getvalue()) == ("one\nthree", "two\n")
    assert len(log.snapshot()) == 1


def test_one_stream_by_two_names():
    def f(x, a, b):
        print("one", file=a)
        b.write("two")
        print("three", file=a)
        return x + 1 if a is b else x - 1

    compiled, stream = dynamo_lite.compile(f, backend="eager", fullgraph=True), io.StringIO()
    for a, b in ((io.StringIO(), stream), (stream, stream), (stream, io.StringIO()), (stream, stream)):
        stream.seek(0), stream.truncate()
        assert torch.equal(compiled(X, a, b), X + 1 if a is b else X - 1)
        assert a.getvalue() == ("one\ntwothree\n" if a is b else "one\nthree\n") and "two" in b.getvalue()


def test_streams_that_become_the_programs(tmp_path):
    """The next call shows it: a method in the stream's own dictionary or in its class, another handler of errors."""

    class Own(io.StringIO):
        pass

    def f(x, out):
        print("one", file=out)
        return x + 1

    compiled, seen = dynamo_lite.compile(f, backend="eager"), []
    with open(tmp_path / "a", "w") as file:
        for stream in (io.StringIO(), Own(), file):
            compiled(X, stream)
            log.reset()
            stream.write = lambda text: seen.append(text)
            compiled(X, stream)
            assert seen == ["one", "\n"] and [b.slug for b in log.breaks()] == ["call-print"]
            seen.clear()
    stream = Own()
    compiled(X, stream)
    Own.write = lambda self, text: seen.append(text)
    compiled(X, stream)
    assert seen == ["one", "\n"] and stream.getvalue() == "one\n"


def test_a_method_that_the_frame_gives_a_stream():
    def f(x, out, seen):
        out.write = seen.append
        print("one", file=out)
        return x + 1

    log.reset()
    seen = []
    dynamo_lite.compile(f, backend="eager")(X, io.StringIO(), seen)
    assert seen == ["one", "\n"] and [b.slug for b in log.breaks()] == ["call-print"]


def test_methods_of_streams(tmp_path):
    """`write` whose result nobody wants, and `flush`, of streams of C."""

    def f(x, out):
        loss = x.square().mean()
        out.write(f"loss {loss.item():.3f}\n")
        print("between", file=out)
        write = out.write
        write("b")
        sys.stdout.write(f"{x.shape[0]} {x}\n")
        sys.stdout.flush()
        out.flush()
        return loss * 2

    texts = []
    for fn in (f, dynamo_lite.compile(f, backend="eager", fullgraph=True)):
        with open(tmp_path / "out", "w") as file:
            for stream in (io.StringIO(), file):
                shown = written(fn, [[X, stream], [X + 1, stream]])
                texts.append((shown, (tmp_path / "out").read_text() if stream is file else stream.getvalue()))
    assert texts[0][1] == texts[1][1] == "loss 1.667\nbetween\nbloss 4.667\nbetween\nb"
    assert texts[:2] == texts[2:]


def number_of_characters(x, out):
    return x + out.write("four")


def no_text(x, out):
    try:
        out.write(1)
    except (TypeError, AttributeError) as error:
        out.write(str(error))
    return x + 1


def made_inside(x, out):
    mine = io.StringIO()
    mine.write("a")
    mine.flush()
    out.write(mine.getvalue())
    return x + 1


def applied(x, out):
    list(map(out.write, ["a", "b"]))
    return x * 2


def read_again(x, out):
    out.write("a")
    return x + len(out.getvalue())


@pytest.mark.parametrize("fn", [number_of_characters, no_text, made_inside, applied, read_again])
@pytest.mark.parametrize("make", [io.StringIO, Shouting])
def test_uses_of_streams_that_break(fn, make):
    streams = [make(), make()]
    log.reset()
    found = [
        run(X, stream) for run, stream in zip((fn, dynamo_lite.compile(fn, backend="eager")), streams, strict=True)
    ]
    assert torch.equal(*found) and streams[0].getvalue() == streams[1].getvalue() != ""
    assert {b.slug for b in log.breaks()} <= {"call-print", "call-io", "call-c-function"}


def test_redirection_inside_of_the_frame():
    def f(x):
        print("one")
        with contextlib.redirect_stdout(io.StringIO()) as inner:
            print("two")
        print("three", repr(inner.getvalue()))
        return x + 1

    log.reset()
    text = written(dynamo_lite.compile(f, backend="eager"), [[X], [X]])[0]
    assert text == "one\nthree 'two\\n'\n--\n" * 2


def test_tensors_whose_text_is_known_at_the_moment_only():
    thing = torch.ones(2000)

    def f(x):
        print(thing)
        return x + 1

    check(f, [X], [X], slugs=["format"])


@pytest.fixture
def options():
    yield PRINT_OPTS
    torch.set_printoptions(profile="default")
    torch.set_default_dtype(torch.float32)


class TestTextsOfTensors:
    """They are made with what is set at the call. What is set behind it is no reason to break."""

    @pytest.mark.parametrize("is_set_back", [True, False])
    def test_options(self, options, is_set_back):
        def f(x):
            torch.set_printoptions(precision=2)
            print(x, [x * 2])
            if is_set_back:
                torch.set_printoptions(profile="default")
            return x + 1

        args = [[torch.ones(n) / 3] for n in (3, 3, 4, 3)]
        assert check(f, *args, slugs=["format"]).count("tensor([0.33, 0.33, 0.33]) [tensor([0.67, 0.67, 0.67])]") == 3

    @pytest.mark.parametrize("make", [str, repr, lambda x: f"{x}", lambda x: "%s" % x])  # noqa: UP031
    def test_texts_that_are_printed_later(self, options, make):
        def f(x):
            with torch._tensor_str.printoptions(precision=1):
                first = make(x)
            second = make(x)
            options.linewidth = 20
            third = make(x)
            options.linewidth = 80
            print(first, second, third, sep="\n")
            return x + 1

        text = check(f, [torch.ones(3) / 3], [torch.ones(3) / 3], slugs=["format", "generator-escapes"])
        assert text.startswith("tensor([0.3, 0.3, 0.3])\ntensor([0.3333, 0.3333, 0.3333])\ntensor([0.3333,\n")

    def test_a_parameter(self, options):
        weight = torch.nn.Parameter(torch.ones(2) / 3)

        def f(x):
            vars(options)["precision"] = 2
            print(weight, weight * 2, f"{weight.sum():.3f}")
            vars(options)["precision"] = 4
            return x + 1

        assert "tensor([0.33, 0.33], requires_grad=True)" in check(f, [X], [X], slugs=["format"])

    def test_what_is_set_behind_the_call(self, options):
        def f(x):
            print(x, f"{x.sum():.2f}")
            torch.set_printoptions(precision=2)
            torch.set_default_dtype(torch.float64)
            return x + 1

        compiled = dynamo_lite.compile(f, backend="eager")
        log.reset()
        for _ in range(2):
            with contextlib.redirect_stdout(io.StringIO()) as stream:
                compiled(torch.ones(2) / 3)
            assert stream.getvalue() == "tensor([0.3333, 0.3333]) 0.67\n"
            assert (options.precision, torch.get_default_dtype()) == (2, torch.float64)
            torch.set_printoptions(profile="default")
            torch.set_default_dtype(torch.float32)
        assert not log.breaks()

    def test_default_dtype(self, options):
        def f(x):
            print(x)
            torch.set_default_dtype(torch.float64)
            print(x)
            torch.set_default_dtype(torch.float32)
            return x + 1

        text = check(f, [X], [X], slugs=["format"])
        assert text.startswith("tensor([0., 1., 2.])\ntensor([0., 1., 2.], dtype=torch.float32)\n--")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 9, 10, 11, 40])
def test_tensors_with_gradients(size, dtype):
    """The line is broken where torch breaks it."""
    weight = torch.nn.Parameter(torch.ones(size, dtype=dtype) / 3)
    leaf = torch.ones(size, dtype=dtype, requires_grad=True)
    layer = torch.nn.Linear(3, size)

    def f(x):
        print(weight, leaf, layer.weight, sep="\n")
        y = weight * 2
        print(y, y[:1], y.exp().mean(), [leaf.square()], layer(x), layer(x.expand(2, 3)).view(-1))
        y.add_(1)
        print(y, y.detach())
        with torch.no_grad():
            print(y * 2)
        y.sum().backward()
        return x + 1

    texts = check(f, [X], [X])
    for name in ("MulBackward0", "MeanBackward0", "SliceBackward0", "AddBackward0", "ViewBackward0", "PowBackward0"):
        assert f"grad_fn=<{name}>" in texts


def test_tensors_whose_history_is_not_known():
    before = torch.ones(2, requires_grad=True) * 2

    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            return gradient * 2

    def outside(x):
        print(before)
        return x + 1

    def own(x):
        print(Double.apply(before))
        return x + 1

    def changed(x):
        y = before * 2
        z = y.view(-1)
        y.add_(1)
        print(z)
        return x + 1

    check(outside, [X], [X], slugs=["format"])
    check(changed, [X], [X], slugs=["format"])
    check(own, [X], [X], slugs=["format"])


def test_earlier_text_of_data():
    def f(x):
        text = str(x)
        x.add_(1)
        print(text)
        return x * 2

    assert check(f, [X.clone()], slugs=["format"]).startswith("tensor([0., 1., 2.])")


def test_formats_of_numbers_of_tensors():
    weight = torch.ones(3, requires_grad=True)

    def f(x):
        loss, hits = (x * weight).sum(), (x > 0).sum()
        text = f"loss {loss:.3f} {loss} hits {hits} {hits:>3} {hits.bool()}"
        loss = loss * 2
        print(text, f"{loss:e}")
        return loss.detach()

    expected = "loss 3.000 3.0 hits 2   2 True 6.000000e+00\n--\nloss 6.000 6.0 hits 3   3 True 1.200000e+01"
    assert check(f, [X], [X + 1]).startswith(expected)


def test_earlier_text_of_data_that_are_the_same():
    def f(x):
        text = f"{x} of {str(x * 2)}"
        y = x + 1
        print(text)
        y.add_(1)
        return y

    assert check(f, [X], [X + 1]).startswith("tensor([0., 1., 2.]) of tensor([0., 2., 4.])\n--\ntensor([1., 2., 3.])")


@pytest.mark.parametrize(
    "call", [lambda: print(1, sep=2), lambda: print(1, end=b""), lambda: print(1, fil=None)], ids=["sep", "end", "name"]
)
def test_wrong_arguments(call):
    def f(x):
        y = x + 1
        try:
            call()
        except TypeError as error:
            return y, str(error)

    assert dynamo_lite.compile(f, backend="eager")(X)[1] == f(X)[1]


@pytest.mark.parametrize("may_raise", [False, True])
@pytest.mark.parametrize("change", ["none", "write", "random"])
@pytest.mark.parametrize("choice", ["auto", True])
def test_operators_that_may_raise_behind_lasting_changes(choice, change, may_raise):
    """With "auto" no text is lost where the frame can't start again."""

    def f(x, i, count):
        y = x * 2
        if change == "write":
            count.add_(1)
        if change == "random":
            y = y + torch.rand(3)
        print("one")
        y = y.index_select(0, i) if may_raise else y * i
        print("two", count.item())
        return y

    with dynamo_lite.config.patch(stitch=choice):
        compiled = dynamo_lite.compile(f, backend="eager")
        log.reset()
        stream, count = io.StringIO(), torch.zeros(())
        with contextlib.redirect_stdout(stream):
            compiled(X, torch.tensor([1]), count)
            if may_raise:
                with pytest.raises((IndexError, RuntimeError), match="out of range"):
                    compiled(X, torch.tensor([5]), count)
    breaks = choice == "auto" and may_raise and change != "none"
    assert [b.slug for b in log.breaks()] == ["call-print"] * breaks
    is_lost = choice is True and may_raise and change != "none"
    assert stream.getvalue() == f"one\ntwo {float(change == 'write')}\n" + "one\n" * (may_raise and not is_lost)
    assert count.item() == (1 + may_raise) * (change == "write")


def test_views_raise_for_no_data():
    def f(x, count):
        count.add_(1)
        print("one", count.item())
        return x.T @ x.mT.real

    with dynamo_lite.config.patch(stitch="auto"):
        check(f, [torch.ones(2, 2), torch.zeros(())])


def test_off():
    with dynamo_lite.config.patch(stitch=False):

        def f(x):
            print("one")
            return x + 1

        check(f, [X], [X], slugs=["call-print"])


def test_nobody_keeps_what_was_printed():
    def f(x):
        y = x * 2
        print(y)
        return y + 1

    compiled = dynamo_lite.compile(f, backend="eager")
    x = X.clone()
    alive = weakref.ref(x)
    written(compiled, [[x]])
    del x
    assert alive() is None


def test_explain_tells_what_runs_behind_the_graph():
    def f(x):
        print("one")
        return x + 1

    with contextlib.redirect_stdout(io.StringIO()):
        text = str(dynamo_lite.explain(f, X))
    assert re.search(rf"behind the graph: \S*test_printing.py:{f.__code__.co_firstlineno + 1}: print\n", text)
    assert " 0 graph breaks" in text
