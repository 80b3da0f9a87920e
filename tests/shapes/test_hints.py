"""What varies is known of a variable, whichever frames a break makes of the rest of the program."""

from types import SimpleNamespace

import torch

import dynamo_lite
from dynamo_lite.config import config
from dynamo_lite.dynamism.automatic_dynamic import hints_of, item_of, path_of, paths_of_waiting, seen_by
from dynamo_lite.dynamism.dynamic_shapes import NUMBER, _seen_in
from dynamo_lite.guards import ir
from dynamo_lite.record import Function
from dynamo_lite.testing import CompileCounter
from tests.helpers.counting import graphs_per_call


def test_a_variable_of_a_frame_that_waits_in_another_chain():
    """Each break of `inner` has frames of its own that go on for `middle`, and other code."""

    def inner(x):
        x = x + 1
        dynamo_lite.graph_break()
        x = x + 2
        dynamo_lite.graph_break()
        x = x + 3
        dynamo_lite.graph_break()
        x = x + 4
        dynamo_lite.graph_break()
        return x

    def middle(x, y):
        x = inner(x)
        return x, y * 2

    def f(x, y):
        x, y = middle(x, y)
        return x.sum() - y.sum()

    found = graphs_per_call(f, [(torch.ones(n), torch.randn(2, n)) for n in range(3, 9)])
    assert found == [5, 5, 0, 0, 0, 0]


def resumed(name, names, lines="1"):
    """A function that looks like one that goes on for another."""
    scope = {}
    exec(f"def go({', '.join(names)}): pass", scope)
    code = scope["go"].__code__
    scope["go"].__code__ = code.replace(co_qualname=f"{name} (resumed at line {lines})", co_filename="f.py")
    return scope["go"]


def test_paths_lead_to_the_frame_whose_variable_it_is():
    innermost = resumed("c", ["__stack_0", "z"])
    middle = resumed("b", ["y", "__inner", "__inner_args"])
    outer = resumed("a", ["x", "__inner", "__inner_args"])
    values = (1, middle, [2, innermost, [3, 4]])
    rest = path_of("__inner_args")
    inner_rest = item_of(rest, ir.INDEX, 2)
    assert list(paths_of_waiting(outer.__code__, values)) == [
        (rest, middle.__code__, values[-1]),
        (inner_rest, innermost.__code__, [3, 4]),
    ]
    known = {}
    hints = hints_of(known, outer, values)
    asked = {
        (NUMBER, path_of("x")): 1,
        ("fixed", (*item_of(rest, ir.INDEX, 0), (ir.ATTR, "shape"))): 2,
        (NUMBER, (*item_of(inner_rest, ir.INDEX, 1), (ir.ITER_ITEM, 0))): 3,
        (NUMBER, item_of(inner_rest, ir.INDEX, 0)): 4,
    }
    for key, value in asked.items():
        hints[key] = value
    first_of_z = NUMBER, (*path_of("z"), (ir.ITER_ITEM, 0))
    assert known == {
        Function.of(outer.__code__): {(NUMBER, path_of("x")): 1},
        Function.of(middle.__code__): {("fixed", (*path_of("y"), (ir.ATTR, "shape"))): 2},
        Function.of(innermost.__code__): {first_of_z: 3},
        (Function.of(innermost.__code__), next((p for p in innermost.__code__.co_positions() if p[3]), None)): {
            (NUMBER, path_of("__stack_0")): 4
        },
    }
    assert [value for _, value in seen_by(known, outer.__code__, values)] == [1, 2, 4, 3]
    assert dict(hints) == asked
    assert hints_of(known, resumed("c", ["z", "w"]), (1, 2)).get(first_of_z) == 3  # other code for the same line
    assert hints_of(known, resumed("c", ["z"], lines="2"), (1,)).get(first_of_z) is None
    assert (NUMBER, path_of("y")) not in hints and len(hints) == 4


def test_modules_of_other_classes_have_a_memory_each():
    """What they share is `Module._wrapped_call_impl`; the sizes of one say nothing about those of another."""

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = torch.nn.Embedding(8, 4)
            self.dropout = torch.nn.Dropout(0.0)
            self.head = torch.nn.Linear(4, 4)

        def forward(self, indices):
            for layer in (self.embedding, self.dropout, self.head):
                indices = layer(indices)
                dynamo_lite.graph_break()
            return indices

    found = graphs_per_call(Block(), [(torch.arange(2 * n).view(2, n) % 8,) for n in range(3, 9)])
    assert found == [3, 3, 0, 0, 0, 0]


def test_sizes_are_remembered_by_rank():
    def f(x):
        return x.sum() * x.shape[0]

    found = graphs_per_call(f, [(x,) for n in range(3, 9) for x in (torch.ones(n), torch.ones(n, 2))])
    assert found == [1, 1, 1, 1] + 8 * [0]


def test_a_result_that_is_first_seen_behind_a_break_varies_with_what_it_is_computed_from():
    def layer(x):
        dynamo_lite.graph_break()
        return x.cos()

    def f(x):
        for _ in range(4):
            x = layer(x + 1)
        return x.sum()

    found = graphs_per_call(f, [(torch.randn(n, 2),) for n in range(3, 9)])
    assert found[2:] == [0, 0, 0, 0]


def test_what_changes_may_be_unbacked():
    """With `automatic_dynamic_shapes_mark_as`, nothing may depend on what the number is: sizes of 0 and 1 fit as well."""

    def plain(x, n):
        return x * 2 + n, x.view(-1, 1), x.sum() * x.shape[0], torch.ones(n)

    def branching(x, n):
        return x * 2 if x.shape[0] > 3 else x + n

    calls = [(torch.arange(float(n)), n) for n in (4, 5, 6, 1, 0, 7, 2)]
    with dynamo_lite.config.patch(automatic_dynamic_shapes_mark_as="unbacked"):
        assert graphs_per_call(plain, calls) == [1, 1, 0, 0, 0, 0, 0]
        graphs_per_call(branching, calls)
    with dynamo_lite.config.patch(automatic_dynamic_shapes_mark_as="dynamic"):
        assert graphs_per_call(plain, calls)[3:5] != [0, 0]


def test_ints_are_symbolic_at_once_if_nothing_is_static_by_default():
    """As sizes are: arguments, items of lists and of tuples, also where the first value is 0 or 1."""
    x = torch.arange(3.0)
    programs = [
        (lambda n, x: x * n, [(1, x), (3, x), (4, x)]),
        (lambda numbers, x: x * numbers[0] + numbers[1], [([1, 2], x), ([4, 0], x), ([5, 3], x)]),
        (lambda numbers, x: x * numbers["a"][0], [({"a": (2,)}, x), ({"a": (7,)}, x)]),
    ]
    for f, calls in programs:
        for setting, dynamic in ((False, None), (True, True)):
            with config.patch(assume_static_by_default=setting):
                assert graphs_per_call(f, calls, dynamic=dynamic) == [1] + [0] * (len(calls) - 1)
        with config.patch(assume_static_by_default=False):
            assert graphs_per_call(f, calls, dynamic=False) == [1] * len(calls)


SETTINGS = {"scale": 0.5, "shift": 7}


def test_numbers_to_which_a_global_leads():
    """The learning rate of an optimiser is such a one, in a script. They are constants until they change, also with `dynamic=True`."""

    def f(x):
        return x * SETTINGS["scale"] + SETTINGS["shift"]

    for dynamic in (None, True):
        counter = CompileCounter()
        compiled = dynamo_lite.compile(f, backend=counter, dynamic=dynamic)
        for i in range(6):
            SETTINGS.update(scale=0.5 + i, shift=7 + i)
            assert torch.equal(compiled(torch.ones(3)), f(torch.ones(3)))
        assert counter.frame_count == 2


def test_floats_of_modules_that_have_died_are_forgotten():
    hints, source = {}, SimpleNamespace(steps=("self", "rate"))
    kept = torch.nn.Linear(1, 1)
    assert _seen_in(hints, source, kept, 0.25) == 0.25
    for i in range(5):
        assert _seen_in(hints, source, torch.nn.Linear(1, 1), i / 2) == i / 2
    assert _seen_in(hints, source, kept, 0.5) == 0.25
    (seen,) = hints.values()
    assert len(seen) == 2
