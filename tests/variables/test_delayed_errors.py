"""`config.stitch`: errors of what is written behind the graph. The handlers around the call see them, or the graph ends before it."""

import contextlib
import io
import sys

import pytest
import torch
import tqdm.auto

import dynamo_lite
from dynamo_lite.record import log


@pytest.fixture(autouse=True, params=["auto", True])
def stitched(request):
    with dynamo_lite.config.patch(stitch=request.param):
        yield


X = torch.arange(3.0)


def closed():
    stream = io.StringIO()
    stream.close()
    return stream


def ascii_only():
    return io.TextIOWrapper(io.BytesIO(), encoding="ascii", write_through=True)


def outcome(fn, make):
    """What the function returns or raises, what it has done, and the state it leaves; `make` makes its stream."""
    seen = []
    try:
        result = fn(X, make(), seen)
        result = result.tolist() if isinstance(result, torch.Tensor) else result
    except Exception as error:
        result = f"{type(error).__name__}: {error}"
    state = torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"), torch.is_inference_mode_enabled()
    torch.set_grad_enabled(True)
    return result, seen, state


def check(fn, make=ascii_only, breaks=None):
    """The function does what it does in eager execution, at both calls; `breaks`: calls that are breaks, in any number."""
    expected = outcome(fn, make)
    compiled = dynamo_lite.compile(fn, backend="eager")
    log.reset()
    assert [outcome(compiled, make), outcome(compiled, make)] == [expected] * 2
    found = {b.slug for b in log.breaks()}
    if breaks is not None:
        assert found == set(breaks)
    return expected[0]


def catches(x, stream, seen):
    y = x + 1
    try:
        print("é", file=stream)
    except ValueError:
        seen.append("caught")
        return y * 2
    return y


def finishes(x, stream, seen):
    y = x + 1
    try:
        print("é", file=stream)
    finally:
        seen.append("finished")
    return y


def suppresses(x, stream, seen):
    y = x + 1
    with contextlib.suppress(ValueError):
        print("é", file=stream)
        y = y * 2
    return y


def catches_outside(x, stream, seen):
    def inner(x):
        print("é", file=stream)
        return x * 2

    y = x + 1
    try:
        return inner(y)
    except (KeyError, UnicodeError, io.UnsupportedOperation):
        seen.append("caught")
    return y


@contextlib.contextmanager
def watching(seen):
    try:
        yield
    finally:
        seen.append("watched")


def generator_sees(x, stream, seen):
    with watching(seen):
        y = x + 1
        print("é", file=stream)
    return y


class Noting:
    def __init__(self, seen):
        self.seen = seen

    def __enter__(self):
        return self

    def __exit__(self, *args):
        self.seen.append(args[0])


def exit_sees(x, stream, seen):
    with Noting(seen):
        y = x + 1
        print("é", file=stream)
    return y


SEEING = [catches, finishes, suppresses, catches_outside, generator_sees, exit_sees]


@pytest.mark.parametrize("fn", SEEING)
@pytest.mark.parametrize("make", [ascii_only, closed])
def test_a_block_that_notices_the_error(fn, make):
    check(fn, make, breaks=["call-print"])


def test_read_only_file(tmp_path):
    (tmp_path / "file").write_text("")
    with open(tmp_path / "file") as file:
        assert check(catches, lambda: file, breaks=["call-print"]) == [2.0, 4.0, 6.0]


@pytest.mark.parametrize("fn", SEEING)
def test_a_stream_that_takes_any_text_is_no_reason(fn):
    """One version for the open stream; a closed one at a later call is another."""
    check(fn, io.StringIO, breaks=[])
    compiled = dynamo_lite.compile(fn, backend="eager")
    assert outcome(compiled, io.StringIO) == outcome(fn, io.StringIO)
    assert outcome(compiled, closed) == outcome(fn, closed)


@pytest.mark.parametrize("make", [io.StringIO, closed, ascii_only])
def test_stdout(make):
    def f(x, stream, seen):
        try:
            print("é")
        except ValueError as error:
            return str(error)
        return x * 2

    def redirected(fn):
        def run(x, stream, seen):
            before, sys.stdout = sys.stdout, stream
            try:
                return fn(x, stream, seen)
            finally:
                sys.stdout = before

        return run

    compiled = redirected(dynamo_lite.compile(f, backend="eager"))
    for each in (io.StringIO, make, io.StringIO, make):
        assert outcome(compiled, each) == outcome(redirected(f), each)


def other_class(x, stream, seen):
    y = x + 1
    try:
        print("é", file=stream)
        y = y * 2
    except (KeyError, torch.OutOfMemoryError):
        seen.append("never")
    except StopIteration:
        return None
    return y


def passing_generator(x, stream, seen):
    @contextlib.contextmanager
    def scope():
        with torch.no_grad():
            yield 1

    with scope() as n:
        print("é", n, file=stream)
    return x * 2


@torch.no_grad()
def decorated(x, stream, seen):
    y = x * 2
    print("é", file=stream)
    return y


def contexts(x, stream, seen):
    with torch.autocast("cpu"), contextlib.nullcontext(), torch.profiler.record_function("name"), torch.no_grad():
        y = x * 2
        print("é", file=stream)
        y = y + 1
    return y


def inference(x, stream, seen):
    with torch.inference_mode():
        print("é", file=stream)
        y = x * 2
    return y


def of_torch(x, stream, seen):
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH), torch.device("cpu"):
        print("é", file=stream)
        return x * 2


PASSING = [other_class, passing_generator, decorated, contexts, inference, of_torch]


@pytest.mark.parametrize("fn", PASSING)
@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_a_block_that_lets_the_error_through(fn, encoding):
    check(fn, lambda: io.TextIOWrapper(io.BytesIO(), encoding=encoding, write_through=True), breaks=[])


def ends_inside(x, stream, seen):
    with torch.no_grad():
        y = x * 2
        print("é", file=stream)
        dynamo_lite.graph_break()
        print("second", file=stream)
        y = y + 1
        dynamo_lite.graph_break()
    return y


def ends_in_a_loop(x, stream, seen):
    with torch.autocast("cpu"):
        for i in range(3):
            x = x * 2
            print("é" if i == 2 else "e", file=stream)
            dynamo_lite.graph_break()
    return x


def ends_in_a_function(x, stream, seen):
    def inner(x):
        print("é", file=stream)
        x = x + 1
        dynamo_lite.graph_break()
        return x * 2

    with torch.no_grad(), torch.autocast("cpu"):
        return inner(x)


@pytest.mark.parametrize("fn", [ends_inside, ends_in_a_loop, ends_in_a_function])
@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_a_graph_that_ends_in_the_block(fn, encoding):
    """The error goes to the block's `__exit__`, which puts the state back."""
    check(fn, lambda: io.TextIOWrapper(io.BytesIO(), encoding=encoding, write_through=True), breaks=["user-requested"])


def ends_in_another(x, stream, seen):
    with torch.no_grad():
        y = x * 2
        print("é", file=stream)
        try:
            dynamo_lite.graph_break()
        except ValueError:
            seen.append("never")
    return y


def ends_while_handling(x, stream, seen):
    with torch.no_grad():
        print("é", file=stream)
        y = x * 2
        try:
            raise KeyError
        except KeyError:
            dynamo_lite.graph_break()
    return y


@pytest.mark.parametrize("fn", [ends_in_another, ends_while_handling])
@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_a_graph_that_ends_in_another_block(fn, encoding):
    check(
        fn,
        lambda: io.TextIOWrapper(io.BytesIO(), encoding=encoding, write_through=True),
        breaks=["call-print"] + ["user-requested"] * (encoding == "utf-8"),
    )


def test_state_that_is_changed_behind_the_call():
    def f(x, stream, seen):
        print("é", file=stream)
        torch.set_grad_enabled(False)
        return x * 2

    check(f, breaks=["call-print"])
    check(f, io.StringIO, breaks=[])


def test_bars():
    bars = []

    def f(x, bar, seen):
        try:
            bar.update(1)
            bar.set_postfix(loss=x.sum().item())
        except (ValueError, OSError):
            seen.append("caught")
        return x + 1

    def make():
        bars.append(tqdm.auto.tqdm(total=10, file=ascii_only(), mininterval=0, miniters=1))
        bars[-1].set_description("é", refresh=False)
        return bars[-1]

    try:
        assert outcome(f, make)[1] == ["caught"]
        check(f, make, breaks=["call-print", "del-finalizer"])
    finally:
        for bar in bars:
            bar.disable = True  # it would raise when it dies


def with_bar(x, stream, seen):
    with tqdm.auto.tqdm(total=3, file=None, disable=True):
        for i in range(3):
            x = x * 2
            print("e" * i, file=stream)
            dynamo_lite.graph_break()
        print("é", file=stream)
        x = x + 1
    return x


def test_a_block_that_ends_a_bar():
    """The last call is a break, since the graph would end where the bar does."""
    check(with_bar)
    places = [(b.slug, b.user_stack[-1].lineno - with_bar.__code__.co_firstlineno) for b in log.breaks()]
    assert {line for slug, line in places if slug == "call-print"} == {6}


@pytest.mark.parametrize("errors", ["strict", "replace", "mine"])
def test_streams_whose_parts_are_the_programs(errors):
    import codecs

    seen = []

    class Raw(io.RawIOBase):
        def writable(self):
            return True

        def write(self, data):
            seen.append(bytes(data))
            return len(data)

    codecs.register_error("mine", lambda error: (seen.append("mine") or "?", error.end))

    def f(x, stream, _):
        seen.append("before")
        print("é", file=stream, flush=True)
        seen.append("after")
        return x * 2

    def make():
        raw = io.BytesIO() if errors == "mine" else Raw()
        return io.TextIOWrapper(raw, encoding="utf-8" if errors == "strict" else "ascii", errors=errors)

    outcome(f, make)
    expected = list(seen)
    seen.clear()
    outcome(dynamo_lite.compile(f, backend="eager"), make)
    assert seen == expected and len(seen) == 3
