import collections
import contextlib
import functools
import random
import traceback
import weakref

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

import dynamo_lite
from dynamo_lite import graph_break
from dynamo_lite.report.coverage import Measurement


def fn(a, b):
    x = a / (torch.abs(a) + 1)
    if b.sum() < 0:
        b = b * -1
    return x * b


A, B = torch.ones(3), -torch.ones(3)


def test_fields_and_text():
    output = dynamo_lite.explain(fn)(A, B)
    assert output.graph_count == 2 == len(output.graphs) == len(output.ops_per_graph)
    assert output.graph_break_count == 1 == len(output.break_reasons)
    assert output.op_count == sum(map(len, output.ops_per_graph)) == 7
    (reason,) = output.break_reasons
    assert reason.reason.startswith("DL001") and reason.user_stack[-1].function == "fn" and reason.graph_break
    (told,) = traceback.format_list(reason.user_stack)
    assert told.startswith(f'  File "{__file__}"') and "if b.sum() < 0:" in told
    assert output.out_guards and "TIMING: entire_frame_compile" in output.compile_times
    text = str(output)
    assert "2 graphs" in text and "if b.sum() < 0:" in text and "guards" in text


def test_old_form_and_isolation():
    from dynamo_lite.testing import CompileCounter

    counter = CompileCounter()
    compiled = dynamo_lite.compile(fn, backend=counter)
    compiled(A, B)
    count = counter.frame_count
    assert dynamo_lite.explain(compiled, A, B).graph_count == 2
    assert counter.frame_count == 2 * count  # its own backend compiles what is explained
    compiled(A, B)
    assert counter.frame_count == 2 * count


def test_module():
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU())
    output = dynamo_lite.explain(model)(A)
    assert (output.graph_count, output.graph_break_count) == (1, 0)


@contextlib.contextmanager
def noted(events):
    events.append("begin")
    try:
        yield
    finally:
        events.append("end")


def test_what_follows_a_break_inside_of_a_managers_block():
    """The manager is a suspended generator: leaving the block is one more break, which the report names."""

    def within(x, events):
        with noted(events):
            y = x * 2
            graph_break()
            y = y + 1
        return y * 3

    output = dynamo_lite.explain(within)(A, [])
    assert output.ops_per_graph and output.graph_count == 3 and output.op_count == 3
    assert [reason.reason.partition(" ")[0] for reason in output.break_reasons] == ["DL025", "DL061"]
    assert "next() of a generator made outside" in str(output)
    for raises in (False, True):

        def within_or_raise(x, events, raises=raises):
            with noted(events):
                y = x * 2
                graph_break()
                events.append("inside")
                if raises:
                    raise ValueError(events)
            return y * 3

        expected, events = [], []
        for call, seen in (
            (within_or_raise, expected),
            (dynamo_lite.compile(within_or_raise, backend="eager"), events),
        ):
            try:
                call(A, seen)
            except ValueError:
                seen.append("raised")
        assert events == expected


def test_the_rest_of_a_block_of_sdpa_kernel():
    def attention(x):
        with sdpa_kernel(SDPBackend.MATH):
            y = torch.nn.functional.scaled_dot_product_attention(x, x, x)
            graph_break()
            y = y * 2
        return y + 1

    x = torch.randn(1, 2, 3, 4)
    output = dynamo_lite.explain(attention)(x)
    assert output.graph_count == 3 and output.graph_break_count == 2
    enabled = torch.backends.cuda.flash_sdp_enabled()
    torch.testing.assert_close(dynamo_lite.compile(attention, backend="eager")(x), attention(x))
    assert torch.backends.cuda.flash_sdp_enabled() is enabled


@pytest.mark.parametrize(
    "fn, name", [(torch.relu, torch.relu.__qualname__), (len, "len"), (functools.partial(torch.add, 1), "partial")]
)
def test_a_builtin_has_its_own_name(fn, name):
    output = dynamo_lite.explain(fn)(torch.ones(3))
    assert [(frame.name, frame.filename) for frame in output.frames] == [(name, f"<built-in {name}>")]
    assert "api.py" not in str(output.coverage) and "_trampoline" not in str(output.coverage)


def test_builtins_are_counted_apart():
    with Measurement() as measurement:
        for fn in (torch.sin, torch.cos):
            dynamo_lite.compile(fn, backend="eager")(torch.ones(3))
    assert [function.calls for function in measurement.coverage().functions] == [1, 1]


def prints_and_branches(x):
    print(x.sum())
    return x * 2 if x.sum() + random.random() > 0 else x


@dynamo_lite.config.patch(stitch="auto")
def test_no_frame_of_a_named_tuple_of_torch_is_shown():
    for _ in range(2):
        dynamo_lite.compile(prints_and_branches, backend="eager")(torch.ones(3))
    names = {frame.name.partition(" ")[0] for frame in dynamo_lite.explain(prints_and_branches)(torch.ones(3)).frames}
    assert names == {"prints_and_branches"}


def ends_with_a_callback(x, farewells):
    held = collections.UserList()
    weakref.finalize(held, farewells.append, "bye")
    graph_break()
    return x * 2


def test_operators_left_out_for_the_end_of_an_object_have_a_reason():
    farewells = []
    output = dynamo_lite.explain(ends_with_a_callback)(torch.ones(3), farewells)
    assert farewells == ["bye"] and not output.graph_count
    *_, reason = output.break_reasons
    assert (
        reason.reason
        == "DL048 object with a finalizer: an object whose weak reference has a callback ends before the frame does"
    )
    assert reason.user_stack[-1].lineno == ends_with_a_callback.__code__.co_firstlineno + 4
