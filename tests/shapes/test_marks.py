"""Marks on dimensions: what they make of a call, and the text of every error: the dimension, the user's line, the fix."""

import linecache

import pytest
import torch

import dynamo_lite
from dynamo_lite import mark_dynamic, mark_static, mark_unbacked, maybe_mark_dynamic
from dynamo_lite.exc import Unsupported, UserError
from dynamo_lite.messages import short_path
from dynamo_lite.record import log
from dynamo_lite.testing import CompileCounter, differences


def marked(n, *marks, m=4, dim=0, **options):
    tensor = torch.arange(float(n * m)).reshape(n, m)
    for mark in marks:
        mark(tensor, dim, **options)
    return tensor


def versions(fn, tensors, fullgraph=True):
    """Run on each and compare with eager; the number of graphs."""
    dynamo_lite.reset()
    counter = CompileCounter()
    compiled = dynamo_lite.compile(fn, backend=counter, fullgraph=fullgraph)
    for args in tensors:
        args = args if isinstance(args, tuple) else (args,)
        assert not list(differences(fn(*args), compiled(*args)))
    return counter.frame_count


def error_of(fn, *args, kind=UserError):
    dynamo_lite.reset()
    with pytest.raises(kind) as info:
        dynamo_lite.compile(fn, backend="eager", fullgraph=kind is Unsupported)(*args)
    return str(info.value)


def line_in(fn, offset=1):
    """How errors show a line of a function."""
    lineno = fn.__code__.co_firstlineno + offset
    return f'  File "{__file__}", line {lineno}\n    {linecache.getline(__file__, lineno).strip()}'


def constant(x):
    return x * 2 if x.shape[0] == 5 else x * 3


def up_to_eight(x):
    return x * 2 if x.shape[0] <= 8 else x * 3


def even(x):
    return x * 2 if x.shape[0] % 2 == 0 else x * 3


def looped(x):
    for i in range(x.shape[0]):
        x = x + i
    return x


def helper(x):
    return x.shape[0] == 5


def calls_helper(x):
    return x * 2 if helper(x) else x


def scaled(x):
    return x * x.shape[0]


# -- errors


@pytest.mark.parametrize("fn", [constant, looped])
def test_marked_dynamic_but_made_constant(fn):
    assert error_of(fn, marked(5, mark_dynamic)) == (
        "dimension 0 of x was marked dynamic, but the code makes it the constant 5\n"
        f"{line_in(fn)}\n"
        "  do:  remove the use that needs the number, or the mark (maybe_mark_dynamic allows both)"
    )
    assert versions(fn, [marked(5, maybe_mark_dynamic), marked(6)]) == 2


def test_the_line_is_that_of_the_callee():
    assert line_in(helper) in error_of(calls_helper, marked(5, mark_dynamic))


def test_the_dimension_of_an_attribute():
    class Batch:
        def __init__(self, images):
            self.images = images

    def fn(batch):
        return batch.images * 2 if batch.images.shape[1] == 4 else batch.images

    message = error_of(fn, Batch(marked(3, mark_dynamic, dim=1)))
    assert message.startswith("dimension 1 of batch.images was marked dynamic, but the code makes it the constant 4\n")


def test_range_smaller_than_promised():
    assert error_of(up_to_eight, marked(5, mark_dynamic, min=4, max=100)) == (
        "dimension 0 of x was marked dynamic from 4 to 100, but the compiled code holds for sizes from 4 to 8 only\n"
        f"{line_in(up_to_eight)}\n"
        "  do:  mark it dynamic from 4 to 8, or let the code treat all sizes alike"
    )
    assert "from 9 on only" in error_of(up_to_eight, marked(50, mark_dynamic, min=4))
    assert versions(up_to_eight, [marked(5, mark_dynamic, min=4, max=8), marked(8), marked(4)]) == 1
    assert versions(up_to_eight, [marked(5, mark_dynamic), marked(8), marked(3)]) == 1


def test_condition_on_a_promised_range():
    assert error_of(even, marked(6, mark_dynamic, min=4, max=8)) == (
        "dimension 0 of x was marked dynamic from 4 to 8, but the compiled code holds only where (x.size(0) % 2) == 0\n"
        f"{line_in(even)}\n"
        "  do:  remove the range from the mark, or let the code treat all sizes alike"
    )
    assert versions(even, [marked(6, mark_dynamic), marked(8), marked(4)]) == 1


def test_size_outside_of_the_range():
    assert error_of(scaled, marked(3, mark_dynamic, min=4, max=8)) == (
        "dimension 0 of x was marked dynamic from 4 to 8, but its size is 3\n"
        "  do:  widen min and max, or pass another size"
    )
    assert error_of(scaled, marked(9, mark_unbacked, max=8)) == (
        "dimension 0 of x was marked unbacked up to 8, but its size is 9\n"
        "  do:  widen min and max, or pass another size"
    )


@pytest.mark.parametrize("n", [0, 1])
def test_sizes_zero_and_one_are_constants_whatever_the_marks(n):
    assert versions(scaled, [marked(n, mark_dynamic), marked(5), marked(7)]) == 2
    assert versions(scaled, [marked(n, mark_unbacked), marked(5), marked(7)]) == 1


def test_broken_promises_raise_torchs_error():
    error = torch.fx.experimental.symbolic_shapes.ConstraintViolationError
    for x, fn in ((marked(5, mark_dynamic), constant), (marked(3, mark_dynamic, min=4, max=8), scaled)):
        with pytest.raises(error) as caught:
            dynamo_lite.compile(fn, backend="eager")(x)
        assert isinstance(caught.value, UserError) and isinstance(caught.value, RuntimeError)


def test_of_several_marks_unbacked_comes_before_dynamic_and_dynamic_before_static():
    assert versions(scaled, [marked(3, mark_dynamic, mark_static), marked(5)]) == 1
    assert versions(scaled, [marked(3, mark_static), marked(5)]) == 2
    assert versions(scaled, [marked(3, mark_unbacked, mark_static), marked(5), marked(1)]) == 1
    assert versions(scaled, [marked(3, mark_dynamic, mark_unbacked), marked(5), marked(1)]) == 1
    assert error_of(scaled, marked(3, mark_dynamic, min=9, max=8)) == (
        "dimension 0 of x was marked dynamic from 9 to 8, which no size is\n  do:  give a min that is not above max"
    )


def test_a_parameter_is_not_dynamic():
    weight = torch.nn.Parameter(torch.ones(5, 4))
    mark_dynamic(weight, 0)
    assert versions(scaled, [weight, torch.nn.Parameter(torch.ones(6, 4))]) == 2


def test_dimensions_are_counted_from_both_ends():
    x = torch.ones(3, 5)
    mark_dynamic(x, -1)
    assert x._dynamo_dynamic_indices == {1}
    with pytest.raises(IndexError, match="cannot mark dimension 2: the tensor has 2 dimensions"):
        mark_dynamic(x, 2)


def test_a_question_to_an_unbacked_size():
    assert versions(up_to_eight, [marked(n, mark_unbacked) for n in (5, 9)]) == 1
    with dynamo_lite.config.patch(capture_branches=False):
        message = error_of(up_to_eight, marked(5, mark_unbacked), kind=Unsupported)
    assert "x.size(0) <= 8 (x.size(0) is marked unbacked: no guard may depend on it)" in message
    assert "return x * 2 if x.shape[0] <= 8 else x * 3" in message and "torch._check" in message


# -- unbacked sizes

UNBACKED = {
    "scaled": scaled,
    "view": lambda x: x.view(x.shape[0] * 2, 2).sum(1) + 1,
    "matmul": lambda x: (x @ torch.ones(4, 3)).relu().sum(),
    "factory": lambda x: x.new_zeros(x.shape[0]) + x.sum(1),
    "strides": lambda x: (x + 1, x.stride(0)),
}


@pytest.mark.parametrize("name", UNBACKED)
def test_unbacked_sizes_have_one_version(name):
    assert versions(UNBACKED[name], [marked(n, mark_unbacked) for n in (5, 0, 1, 2, 7)]) == 1


def test_unbacked_sizes_with_bounds():
    options = {"min": 2, "max": 6}
    assert versions(scaled, [marked(5, mark_unbacked, **options), marked(2), marked(6), marked(9)]) == 2


def test_equal_unbacked_sizes():
    def fn(x, y):
        return x + y

    pairs = [(marked(n, mark_unbacked), marked(n, mark_unbacked)) for n in (5, 0, 1, 2)]
    assert versions(fn, pairs) == 1
    named = [tuple(marked(n, mark_unbacked, shape_id="batch") for _ in "xy") for n in (5, 0, 1, 2)]
    assert versions(fn, named) == 1


def test_a_question_to_an_unbacked_size_breaks():
    assert versions(up_to_eight, [marked(n, mark_unbacked) for n in (5, 9, 1)], fullgraph=False) <= 4


# -- switches


def test_zero_and_one_as_symbols():
    with dynamo_lite.config.patch(specialize_zero_one=False):
        assert versions(lambda x: x.sum(0), [marked(n, mark_dynamic) for n in (5, 0, 3)]) == 1


def test_duck_sizing_switched_off():
    def fn(x, y):
        return x.sum(0) + y.sum(0)

    pairs = [(marked(n), marked(m)) for n, m in ((3, 3), (4, 4), (5, 6))]
    assert versions(fn, pairs) == 3
    with dynamo_lite.config.patch(use_duck_shape=False):
        assert versions(fn, pairs) == 2


# -- the table of what was specialised


def test_specializations_name_the_line():
    def fn(x, k, rate):
        x = x[:k] if k == 3 else x
        return [row * rate for row in x] + [f"{rate:.2f}".strip()]

    compiled = dynamo_lite.compile(fn, backend="eager")
    dynamo_lite.reset()
    for n, k, rate in ((5, 2, 0.5), (6, 3, 0.25)):
        compiled(marked(n), k, rate)
    first = fn.__code__.co_firstlineno
    found = log.snapshot()[-1].specializations
    assert [(s.text, s.value, s.user[1] - first) for s in found] == [("k", 3, 1), ("rate", 0.25, 2)]
    assert str(found[0]) == f"k = 3, by {short_path(__file__)}:{first + 1}"


def test_arguments_of_modules_have_their_names():
    class Model(torch.nn.Module):
        def forward(self, tokens, *, weights=None):
            return tokens * 2 if tokens.shape[0] == 5 else tokens

    message = error_of(Model(), marked(5, mark_dynamic))
    assert message.startswith("dimension 0 of tokens was marked dynamic, but the code makes it the constant 5\n")
    with pytest.raises(UserError, match="dimension 0 of weights was marked dynamic from 4 on, but its size is 3"):
        dynamo_lite.compile(scale_by_weights(), backend="eager")(
            torch.ones(3, 4), weights=marked(3, mark_dynamic, min=4)
        )


def scale_by_weights():
    class Model(torch.nn.Module):
        def forward(self, tokens, *, weights=None):
            return tokens * weights

    return Model()


def test_marks_are_read_when_a_call_is_compiled():
    """A version that fits is used, even if the marked dimension is a constant in it."""

    def fn(x):
        return x * 2 if x.shape[0] == 4 else x * 3

    compiled = dynamo_lite.compile(fn, backend="eager")
    for x in (marked(4), marked(4, mark_dynamic)):
        assert torch.equal(compiled(x), x * 2)
    dynamo_lite.reset()
    with pytest.raises(UserError, match="dimension 0 of x was marked dynamic, but the code makes it the constant 4"):
        compiled(marked(4, mark_dynamic))
