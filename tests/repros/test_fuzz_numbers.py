"""What `tests/fuzz` found about numbers that are symbolic from the second value on: results and errors are those of ints."""

import functools

import pytest

torch = pytest.importorskip("torch")

import dynamo_lite  # noqa: E402
from dynamo_lite import _eval_frame  # noqa: E402
from dynamo_lite.config import config  # noqa: E402
from dynamo_lite.frontend import convert  # noqa: E402

VALUES = (4, 2, 1, 3, 0, -1, 6)


def named_slots(a):
    return (7).__add__(a), (2).__pow__(a), a.__divmod__(3), a.__floordiv__(2.5), a.__add__("x")


def remainder(a):
    return 0 % a


def quotients(a):
    return 5 // a, 5 / a, divmod(-5, a)


def left_shift(a):
    return 1 << a


def right_shift(a):
    return 64 >> a


def with_booleans(a):
    return True > a, True + a, a & True, False | a, a ^ True, min(a, True), sum([a, True]), a == True, a is True  # noqa: E712


def identity(a):
    return a in {1: a}.values(), a is None, a in [9, a], a == "a", a != 2.0


def with_float(a):
    return a ^ 1.5


INFINITY = float("inf")


def float_quotients(a):
    return 0.3 // a, INFINITY % a, -1.5 // a


def formatted(a):
    return "%s-%d" % ("x", a), "{:>3}".format(a), f"{a:+d}", "%(a)x" % {"a": a}  # noqa: UP031, UP032


def unused_float_quotient(a):
    1.5 // a
    return 2.0 % (a + 1)


def quotient_of_infinity(a):
    return INFINITY // a


@pytest.mark.parametrize(
    "function",
    [
        named_slots,
        remainder,
        quotients,
        left_shift,
        right_shift,
        with_booleans,
        identity,
        with_float,
        float_quotients,
        quotient_of_infinity,
        unused_float_quotient,
        formatted,
    ],
)
def test_symbolic_numbers_behave_as_ints(function):
    def outcome(call, a):
        try:
            return call(a)
        except Exception as error:
            return repr(error)

    with config.patch(capture_pure_python=True, suppress_errors=False, debug=True):
        compiled = convert.Region(lambda gm, inputs: gm.forward).wrap(function)
        for a in VALUES:
            assert repr(outcome(compiled, a)) == repr(outcome(function, a))


def test_which_argument_a_result_is_does_not_come_from_a_call_with_one_tensor_twice():
    def one(t):
        return torch.add(t, 1, out=t)

    def two(t, u):
        return torch.add(t, 1, out=u)

    compile_ = convert.Region(lambda gm, inputs: gm.forward).wrap
    t, u = torch.tensor([1.0, 2.0]), torch.tensor([5.0, 6.0])
    assert compile_(one)(t) is t
    assert compile_(two)(t, u) is u
    assert u.tolist() == [3.0, 4.0]


def test_deleting_a_tensors_attribute_that_is_not_there():
    def program(t):
        try:
            del t.mark
        except AttributeError as error:
            return str(error)

    with config.patch(capture_pure_python=True):
        assert convert.Region(lambda gm, inputs: gm.forward).wrap(program)(torch.ones(1)) == program(torch.ones(1))


def test_a_mode_that_is_no_bool():
    def program(t):
        try:
            with torch.set_grad_enabled(1):
                return t + 1
        except TypeError as error:
            return str(error)

    with config.patch(capture_pure_python=True, suppress_errors=False, debug=True):
        assert convert.Region(lambda gm, inputs: gm.forward).wrap(program)(torch.ones(1)) == program(torch.ones(1))


@pytest.mark.parametrize(
    "value", [0, torch.ones(3), torch.ones(2, dtype=torch.float64), None], ids=["int", "shape", "dtype", "itself"]
)
def test_gradient_that_does_not_fit_is_refused_where_it_is_assigned(value):
    def program(t, value):
        try:
            t.grad = t if value is None else value
        except (TypeError, RuntimeError) as error:
            return str(error)

    with config.patch(capture_pure_python=True, suppress_errors=False, debug=True):
        assert convert.Region(lambda gm, inputs: gm.forward).wrap(program)(torch.ones(2), value) == program(
            torch.ones(2), value
        )


def test_generator_that_has_not_started_keeps_what_its_closure_needs():
    def program(t):
        doubled = t * 2

        def generator(*more):
            yield doubled

        return generator(1)

    with config.patch(capture_pure_python=True, suppress_errors=False, debug=True):
        made = convert.Region(lambda gm, inputs: gm.forward).wrap(program)(torch.ones(2))
    assert [t.tolist() for t in made] == [[2.0, 2.0]]


def test_a_quotient_by_a_float_that_becomes_zero():
    def program(t, x):
        1.0 / x
        return t * (2.0**x)

    compiled = convert.Region(lambda gm, inputs: gm.forward).wrap(program)
    t = torch.ones(2)
    for x in (1.0, 2.5, 3.5, 0.5):
        assert torch.equal(compiled(t, x), program(t, x))
    with pytest.raises(ZeroDivisionError):
        compiled(t, 0.0)
    with pytest.raises(OverflowError):
        compiled(t, 5000.0)


def test_guards_on_varying_numbers_are_not_captured():
    """The functions that these guards call were frames like any others: each was captured with a guard that called its equal."""
    seen = []

    def note(value):
        seen.append(value)
        return value

    note._torchdynamo_disable = True
    stop = _eval_frame.Uncaptured(note)

    def program(items, start):
        return functools.reduce(lambda x, y: stop(x) + y, items, start)

    with config.patch(capture_pure_python=True, debug=True):
        captured = convert.Region(lambda gm, inputs: gm.forward).wrap(program)
        for start in (3, 3, 3, 3, 3, 3, 4, 3):
            assert captured([3, 4, 5], start) == start + 12
            assert seen[-3:] == [start, start + 3, start + 7]


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_methods_of_varying_floats_are_nodes(backend):
    """torch.fx cannot write a call of `float.__round__`."""

    def program(x, a):
        b = round(a, 1)
        return x * b, b, a.__round__(2)

    with config.patch(debug=True):
        captured = dynamo_lite.compile(program, backend=backend, fullgraph=True)
        for a in (0.0, -1.26, 2.345, 3.9999):
            x = torch.ones(2, dtype=torch.float64)
            (t, *numbers), (u, *expected) = captured(x, a), program(x, a)
            assert torch.equal(t, u) and numbers == expected
