"""Tensors: operators, attributes, methods, mutation. Each program runs eagerly and captured; graphs are counted."""

import copy
import dataclasses
import enum
import operator

import pytest
import torch

import dynamo_lite
from dynamo_lite.config import config
from dynamo_lite.testing import CompileCounter, run_both, same
from tests.helpers.capturing import wrapped
from tests.helpers.graph_counts import check

T = torch.tensor


def x():
    return torch.arange(12.0).reshape(3, 4) + 1


BINARY = ["+", "-", "*", "/", "//", "%", "**", "@", "<", "<=", "==", "!=", ">", ">="]


@pytest.mark.parametrize("symbol", BINARY)
def test_binary_operators(symbol):
    fn = eval(f"lambda a, b: a {symbol} b")
    check(fn, x(), x().T if symbol == "@" else x(), ops=1)
    if symbol != "@":
        check(fn, x(), 2, ops=1)
        check(fn, 2, x(), ops=1)
        check(fn, 2.5, x(), ops=1)


@pytest.mark.parametrize("symbol", ["&", "|", "^", "<<", ">>"])
def test_bit_operators(symbol):
    fn = eval(f"lambda a, b: a {symbol} b")
    check(fn, T([1, 2, 3]), T([3, 1, 2]), ops=1)
    check(fn, T([1, 2, 3]), 1, ops=1)
    check(fn, 1, T([1, 2, 3]), ops=1)


@pytest.mark.parametrize("fn", [operator.neg, operator.pos, abs])
def test_unary_operators(fn):
    check(lambda a: fn(a), x(), ops=1)


def test_invert():
    check(lambda a: ~a, T([True, False]), ops=1)


@pytest.mark.parametrize("symbol", ["+=", "-=", "*=", "/=", "**="])
def test_inplace_operators_keep_identity(symbol):
    namespace = {}
    exec(f"def fn(a, b):\n    c = a\n    a {symbol} b\n    return a, c, c is a", namespace)
    check(namespace["fn"], x(), x(), ops=1)


def test_comparison_with_other_types():
    check(lambda a: (a + 1, a == None, a != "x", a == [1]), x())  # noqa: E711


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Half(float, enum.Enum):
    HALF = 0.5


class Odd(int):
    """torch reads the number past these."""

    def __int__(self):
        return 7

    __index__ = __int__


class Turn(complex):
    pass


class Name(str):
    pass


NUMBERS = [Level.HIGH, Half.HALF, Odd(2), Turn(1j)]


@pytest.mark.parametrize("number", NUMBERS, ids=repr)
@pytest.mark.parametrize("symbol", ["+", "*", "-", "**", "=="])
def test_objects_that_are_numbers_are_operands(symbol, number):
    namespace = {"number": number}
    check(eval(f"lambda a: a {symbol} number", namespace), x(), ops=1)
    check(eval(f"lambda a: number {symbol} a", namespace), x(), ops=1)
    check(eval(f"lambda a, b: a {symbol} b"), x(), number, ops=1)


def test_objects_that_are_numbers_or_texts_are_arguments():
    check(lambda a, n: (a.view(n, 6), torch.mul(a, n), a[n], a.add(a, alpha=n)), x(), Odd(2), ops=4)
    check(lambda a, n: a.mul(n), x(), Turn(1j), ops=1)
    check(lambda a, s: a.scatter_reduce(0, torch.zeros(1, 4).long(), a, reduce=s), x(), Name("sum"))


def test_mask_of_an_enum_member_and_assignment_in_place():
    def fn(a, labels):
        chosen = a[labels == Level.LOW].sum()
        try:
            a += Level.HIGH
        except TypeError:
            pass
        return a, chosen

    check(fn, torch.arange(3.0), T([1, 2, 1]), ops=4)


def test_function_mode_sees_an_enum_member_as_it_is():
    class Seeing(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append((func.__name__, repr(args[1])))
            return func(*args, **(kwargs or {}))

    seen = []

    def fn(a):
        with Seeing():
            return Level.HIGH - a, a == Level.LOW

    run_both(fn, x())
    assert len(seen) > 2 and seen == seen[:2] * (len(seen) // 2)


def test_unsupported_operands_raise_typeerror():
    def fn(a):
        try:
            return a + "x"
        except TypeError as error:
            return a + 1, str(error)

    check(fn, x())


@pytest.mark.parametrize(
    "key",
    [0, -1, slice(None), slice(1, None), slice(None, None, 2), None, ..., (0, 1), (slice(None), 2), (..., 1), (None, 0)]
    + [[0, 2], ([0, 1], slice(1, 3)), True],
    ids=str,
)
def test_subscripts(key):
    check(lambda a: a[key], x(), ops=1)

    def store(a):
        a[key] = 7.0
        return a

    check(store, x(), ops=1)


def test_tensor_subscripts():
    check(lambda a, i: a[i], x(), T([0, 2]), ops=1)
    check(lambda a, i: a[:, i], x(), T([0, 2]), ops=1)
    check(lambda a, i: a[i, i], x(), T([0, 2]), ops=1)

    def store(a, i, v):
        a[i] = v
        return a.sum()

    check(store, x(), T([0, 2]), torch.ones(4), ops=2)
    check(store, x(), x() > 5, 0.0, ops=2)


def test_boolean_mask():
    run = check(lambda a: (a + 1)[a > 5] + 1, x(), graphs=1)
    assert not run.breaks


def test_iteration_and_unpacking():
    def fn(a):
        p, q, r = a
        total = 0
        for row in a:
            total = total + row
        return p, r, total, len(a)

    check(fn, x())
    assert isinstance(run_both(lambda a: list(a.sum()), x()).exception, TypeError)


METADATA = {
    "shape": lambda a: (
        a.shape,
        a.size(),
        a.size(0),
        a.size(-1),
        a.shape[0],
        a.shape[1:],
        len(a.shape),
        a.shape.numel(),
    ),
    "dims": lambda a: (
        a.dim(),
        a.ndim,
        a.ndimension(),
        a.numel(),
        a.nelement(),
        a.element_size(),
        a.nbytes,
        a.itemsize,
    ),
    "types": lambda a: (a.dtype, a.device, a.layout, a.is_cuda, a.is_cpu, a.is_sparse, a.is_quantized, a.type()),
    "flags": lambda a: (a.is_floating_point(), a.is_complex(), a.is_signed(), a.is_contiguous(), a.T.is_contiguous()),
    "grad": lambda a: (a.requires_grad, a.is_leaf, a.grad, a.grad_fn, a.get_device()),
    "stride": lambda a: (a.stride(), a.stride(0), a.T.stride(), a.is_contiguous(memory_format=torch.contiguous_format)),
    "functions": lambda a: (torch.is_tensor(a), torch.is_floating_point(a), torch.numel(a), torch.is_complex(a)),
    "isinstance": lambda a: (isinstance(a, torch.Tensor), isinstance(a, torch.nn.Parameter), type(a) is torch.Tensor),
    "hasattr": lambda a: (hasattr(a, "shape"), hasattr(a, "no_such"), getattr(a, "no_such", 3)),
    "sizes": lambda a: (list(a.shape), tuple(a.size()), [*a.shape], a.shape == (3, 4), a.shape + (1,), a.shape * 2),
}


@pytest.mark.parametrize("name", METADATA)
def test_metadata_is_constant(name):
    read = METADATA[name]
    check(lambda a: (a + 1, read(a), read(a * 2)), x())


@pytest.mark.parametrize("name", ["T", "mT", "H", "mH", "real", "data"])
def test_attributes_that_are_tensors(name):
    check(lambda a: getattr(a, name) + 1, x(), ops=2)


METHODS = {
    "view": lambda a: a.view(4, 3),
    "view_tuple": lambda a: a.view((2, -1)),
    "view_shape": lambda a: a.view(a.shape),
    "split": lambda a: a.split(2),
    "chunk": lambda a: a.chunk(2, dim=1),
    "unbind": lambda a: a.unbind(1),
    "max": lambda a: a.max(1).values + a.max(dim=0)[0].sum(),
    "sort": lambda a: a.sort(descending=True),
    "topk": lambda a: a.topk(2)[1],
    "to": lambda a: a.to(torch.float64).to("cpu"),
    "type_as": lambda a: a.type_as(a.double()),
    "norm": lambda a: a.norm(dim=1),
    "unflatten": lambda a: a.unflatten(1, (2, 2)),
    "expand": lambda a: a.unsqueeze(0).expand(2, -1, -1),
    "masked_fill": lambda a: a.masked_fill(a > 3, float("-inf")),
    "contiguous": lambda a: (a.contiguous() is a, a.t().contiguous()),
    "new": lambda a: (a.new_zeros(2), a.new_ones(a.shape), a.new_full((2,), 1.5)),
    "named": lambda a: a.std_mean() if hasattr(a, "std_mean") else torch.std_mean(a),
    "unbound": lambda a: torch.Tensor.add(a, 1) + torch.Tensor.sum(a, dim=1, keepdim=True),
    "dunder": lambda a: a.__add__(1) + a.__radd__(2) + a.__rsub__(1) + a.__getitem__(0),
    "reversed": lambda a: reversed(a),
    "detach": lambda a: a.detach().clone(),
    "inplace": lambda a: (a.add_(1) is a, a.mul_(2)),
    "einsum": lambda a: torch.einsum("ij,ij->i", a, a),
    "starred": lambda a: a.reshape(*a.shape[:1], 2, 2),
}


@pytest.mark.parametrize("name", METHODS)
def test_methods(name):
    check(METHODS[name], x())


def test_return_types():
    run = check(lambda a: torch.max(a, 0), x())
    assert type(run.result) is torch.return_types.max

    def fn(a):
        result = a.sort()
        values, indices = result
        return result.values is values, type(result) is torch.return_types.sort, indices[0], isinstance(result, tuple)

    check(fn, x())


@pytest.mark.parametrize(
    ("fn", "slug"),
    [
        (lambda a: [a] * int(a.sum()), "data-dependent-size"),
        (lambda a: a if a.sum() > 0 else -a, "data-dependent-branch"),
        (lambda a: f"{a + 1}", "format"),
        (lambda a: (a + 1, a.data_ptr() != 0), "tensor-attribute"),
        (lambda a: 3.0 in a + 1, "data-dependent-operator"),
        (lambda a: list(torch.nonzero(a + 1)), "data-dependent-size"),
        (lambda a: a + torch.zeros(5), "fake-tensor-error"),
    ],
)
def test_breaks(fn, slug):
    run = run_both(fn, x())
    assert slug in [b.slug for b in run.breaks]


def test_text_of_data_that_nobody_needs():
    def fn(a):
        total = a.sum()
        unused = f"{total:.2f} of {a!r}, {[a]}", str(a)
        if a.shape[0] == 7:
            raise ValueError(f"not {total}")
        try:
            raise KeyError(f"of {a}")
        except KeyError:
            return a + len(unused)

    check(fn, x())


@pytest.mark.parametrize("text", [lambda a: "%s" % a, lambda a: "{}".format(a.sum())])  # noqa: UP031, UP032
def test_formats_of_data_break(text):
    run = check(lambda a: (a * 2, text(a), a + 1), x(), graphs=2)
    assert [b.slug for b in run.breaks] == ["format"]


def test_text_of_data_is_that_of_the_moment():
    def fn(a):
        y = a * 2
        text = f"{y}"
        y.add_(1)
        return y, text, text.startswith("tensor"), bool(text), text == "tensor"

    run = check(fn, x(), graphs=2)
    assert [b.slug for b in run.breaks] == ["format"]


def test_text_of_data_as_a_key():
    def fn(a):
        table = {"78.0": 1, "other": 2}
        name = f"{a.sum()}"
        return a * 2 + table[name]

    assert [b.slug for b in check(fn, x(), graphs=2).breaks] == ["format"]


def test_texts_that_raise():
    def raised(function):
        try:
            return function()
        except (TypeError, ValueError) as error:
            return str(error)

    def fn(a):
        number = a.sum().long()
        return a + 1, raised(lambda: f"{number:.2s}"), raised(lambda: f"{a:.1f}"), raised(lambda: format(a, 3))

    check(fn, x())


def test_text_of_a_known_number():
    check(lambda a: (a + 1, f"{torch.tensor(3)} {torch.tensor(2.5):.2f}"), x())


def test_shape_error_is_the_eager_error():
    run = run_both(lambda a: a @ a, x())
    assert isinstance(run.exception, RuntimeError)
    assert "mat1 and mat2" in str(run.exception)


def test_error_inside_try():
    def fn(a):
        try:
            return a @ a
        except RuntimeError:
            return a + 1

    run_both(fn, x())


def test_known_numbers():
    check(lambda a: a + torch.tensor(3).item(), x())
    check(lambda a: a * 2 if torch.tensor(True) else a, x())


def test_inputs_are_mutated():
    def fn(a, b):
        a.add_(1)
        b[0] = a[1]
        c = a.view(-1)
        c.mul_(2)
        return c

    check(fn, x(), x(), ops=5)


def test_out_argument():
    def fn(a, out):
        torch.add(a, 1, out=out)
        return out

    check(fn, x(), torch.zeros(3, 4), ops=1)


def test_views_gain_grad_by_a_write():
    def fn(w):
        a = torch.zeros(3, 4)
        b = a.view(-1)
        flags = [a.requires_grad, b.requires_grad]
        b.mul_(w)
        return a, b, flags, a.requires_grad, b.requires_grad, b.is_leaf

    check(fn, torch.ones(12, requires_grad=True))


def test_attributes_of_tensors():
    def fn(a):
        b = a + 1
        b.note = "made"
        a.note = 3
        return b, b.note, a.note, hasattr(b, "other")

    check(fn, x())

    def deletes(a):
        del a.note
        return a + 1, hasattr(a, "note")

    a = x()
    a.note = 1
    run_both(deletes, a, _calls=1)


def test_reading_an_attribute_of_an_input():
    def fn(a):
        return a * a.scale if hasattr(a, "scale") else a

    a = x()
    a.scale = 3
    check(fn, a, ops=1)
    check(fn, x(), graphs=0)


def test_grad_attribute():
    def fn(p):
        p.grad = None
        return p * 2

    p = x().requires_grad_()
    p.grad = torch.ones_like(p)
    run = run_both(fn, p)
    assert run.graph_count == 1

    def reads(p):
        return p + p.grad if p.grad is not None else p

    check(reads, p, ops=1)


def test_requires_grad_of_a_new_tensor():
    def fn(a):
        b = a * 2
        b.requires_grad = True
        return b.detach() + 1, b.requires_grad

    check(fn, x())


def test_leaf_in_place_raises():
    def fn(p):
        p.add_(1)
        return p

    run = run_both(fn, torch.nn.Parameter(x()))
    assert isinstance(run.exception, RuntimeError)


def test_tensor_as_key():
    def fn(a, b):
        seen = {a: 1}
        seen[b] = 2
        return seen[a], b in seen, len({a, b, a}), a + b

    check(fn, x(), x())


def test_one_tensor_under_two_names():
    def fn(a, b):
        a.add_(1)
        return b + 1, a is b

    a = x()
    run_both(fn, a, a)
    run_both(fn, x(), x())


def test_backward_outside():
    def fn(a, w):
        return (a @ w).relu().sum()

    w = torch.randn(4, 2, requires_grad=True)
    run = check(fn, x(), w)
    assert run.result.requires_grad


def test_noncontiguous_input_and_stride_guard():
    fn = lambda a: a.stride()[0] + a  # noqa: E731
    check(fn, x().T)
    check(fn, x()[:, ::2])
    check(lambda a: a.view(12) if a.is_contiguous() else a.reshape(12), x().T)


def test_complex_and_lazy_conjugate():
    check(lambda a: (a.conj() * a).real + a.conj().imag, torch.randn(3, dtype=torch.complex64))


def test_sparse_input():
    run_both(lambda a, b: a @ b, x().to_sparse(), x().T.contiguous())


def test_scalar_arguments_keep_their_type():
    check(lambda a: (a + 1, a + 1.0, a + True), torch.tensor([1, 2]))
    check(lambda a: (a + 1.0, a + 1), torch.tensor([1, 2]))


def test_attribute_stored_and_deleted():
    def once(t):
        t.note = 1
        del t.note
        return hasattr(t, "note"), t * 2

    run_both(once, torch.ones(2), _fullgraph=True)


def test_lazy_conjugation_is_known():
    def flags(t):
        c = torch.complex(t, t)
        return c.is_conj(), c.conj().is_conj(), c.conj().imag.is_neg(), c.conj().resolve_conj().is_conj()

    assert run_both(flags, torch.ones(2), _fullgraph=True).result == (False, True, True, False)


def test_deleting_a_tensors_attribute_that_is_not_there():
    def program(t):
        try:
            del t.mark
        except AttributeError as error:
            return str(error)

    with config.patch(capture_pure_python=True):
        assert wrapped(program)(torch.ones(1)) == program(torch.ones(1))


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
        assert wrapped(program)(torch.ones(2), value) == program(torch.ones(2), value)


@pytest.mark.parametrize("tensor", [torch.tensor([1.0]), torch.tensor(2.0), torch.tensor([1, 2]), torch.tensor([1j])])
def test_tensors_that_are_no_index(tensor):
    """What numbers of the graph take their place says nothing of tensors."""

    def f(x, t):
        texts = []
        for use in (lambda: t * [1], lambda: [1] * t, lambda: range(t), lambda: [1, 2][t], lambda: [1, 2][:t]):
            try:
                texts.append(str(use()))
            except TypeError as error:
                texts.append(str(error))
        return x + 1, texts

    compiled = dynamo_lite.compile(f, backend="eager")
    with config.patch(capture_scalar_outputs=True):
        assert compiled(torch.ones(1), tensor)[1] == f(torch.ones(1), tensor)[1]


def test_methods_of_results_are_methods_of_c():
    def f(x):
        texts = []
        add = (x + 1).add
        for use in (lambda: 0 / add, lambda: add.of_no_name, lambda: len(add)):
            try:
                use()
            except (TypeError, AttributeError) as error:
                texts.append(str(error))
        return add(2), texts, type(add), add.__qualname__, add.__name__

    check(f, x(), ops=2)
    method = dynamo_lite.compile(lambda x: (x + 1).add, backend="eager")(x())
    assert type(method) is type([].append) and torch.equal(method(1), x() + 2)


@pytest.mark.parametrize("branches", [None, True])
def test_a_bool_of_data_as_a_float(branches):
    def f(x):
        is_large = (x.sum() > 1).item()
        y = x * float(is_large)
        if float(is_large):
            return y + 1
        return y - int(is_large)

    with config.patch(capture_scalar_outputs=True, capture_branches=branches):
        compiled = dynamo_lite.compile(f, backend="eager")
        for n in (3.0, 0.0):
            assert torch.equal(compiled(torch.tensor(n)), f(torch.tensor(n)))


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("divide", [operator.truediv, operator.floordiv, operator.mod])
def test_a_division_by_data_raises_where_nobody_wants_the_quotient(divide, backend):
    def dropped(x):
        divide(1, x.argmax().item())
        return x + 1

    def unread(x):
        x = x + 1
        kept = divide(5, x.argmax().item())  # noqa: F841
        return x

    for f in (dropped, unread):
        compiled = dynamo_lite.compile(f, backend=backend)
        assert torch.equal(compiled(T([1.0, 2.0])), T([2.0, 3.0]))
        with pytest.raises(ZeroDivisionError) as expected:
            f(T([2.0, 1.0]))
        with pytest.raises(ZeroDivisionError) as found:
            compiled(T([2.0, 1.0]))
        assert str(found.value) == str(expected.value)


@pytest.mark.parametrize("divide", [operator.truediv, operator.floordiv, operator.mod, divmod])
@pytest.mark.parametrize("times", [0, 1, 2])
def test_a_division_by_data_raises_where_the_algebra_knows_the_quotient(divide, times):
    def f(x):
        n = x.argmax().item()
        return x + 1, divide(times * n, n)

    compiled = dynamo_lite.compile(f, backend="eager")
    assert compiled(T([1.0, 2.0]))[1] == divide(times, 1)
    with pytest.raises(ZeroDivisionError) as expected:
        f(T([2.0, 1.0]))
    with pytest.raises(ZeroDivisionError) as found:
        compiled(T([2.0, 1.0]))
    assert str(found.value) == str(expected.value)


@dataclasses.dataclass
class _Batch:
    data: object
    more: object


def _twice(x):
    y = x + 1
    return copy.deepcopy([y, y, {"y": y}])


def _changed_later(x):
    y = x * 2
    z = copy.deepcopy(y)
    y.add_(1)
    return y, z


CONSTANT = torch.arange(3.0)
NORM = torch.nn.BatchNorm1d(3)

COPIED = {
    "made": lambda x: copy.deepcopy([copy.deepcopy(x + 1)])[0] * 2,
    "an input": lambda x: copy.deepcopy(x) + 1,
    "two inputs": lambda x: copy.deepcopy([x, CONSTANT, x])[:2],
    "a module with buffers": lambda x: copy.deepcopy(NORM)(x),
    "one object": _twice,
    "changed later": _changed_later,
    "asdict": lambda x: dataclasses.asdict(_Batch(x, [x + 1, 2])),
    "astuple": lambda x: dataclasses.astuple(_Batch({"a": x * 2}, x)),
}


@pytest.mark.parametrize("name", COPIED)
def test_deep_copies(name):
    """They are part of the graph, which is used again."""
    fn, counter = COPIED[name], CompileCounter()
    compiled = dynamo_lite.compile(fn, backend=counter, fullgraph=True)
    for i in range(3):
        x = torch.arange(6.0).reshape(2, 3) + i
        found = compiled(x)
        assert same(fn(x), found)
        leaves = torch.utils._pytree.tree_leaves(found)
        assert not any(t is x or t._is_view() for t in leaves if isinstance(t, torch.Tensor))
    assert counter.frame_count == 1
    assert name != "one object" or (found[0] is found[1] is found[2]["y"])


class _WithBreak:
    def __deepcopy__(self, memo):
        torch._dynamo.graph_break()
        return _WithBreak()


NOT_COPIED = {
    "transposed": lambda x, y: copy.deepcopy((x + 1).T),
    "a break between two that share memory": lambda x, y: copy.deepcopy([x, _WithBreak(), y])[::2],
    "a view of an input": lambda x, y: copy.deepcopy(x[0]),
    "a view that there is": lambda x, y: copy.deepcopy([z := x + 1, z[0]]),
    "two inputs": lambda x, y: copy.deepcopy([x, y]),
    "gaps": lambda x, y: copy.deepcopy(x.new_empty_strided((2, 2), (4, 1)).zero_()),
}


@pytest.mark.parametrize("name", NOT_COPIED)
def test_deep_copies_that_may_share_memory(name):
    """They are made by torch, outside of the graph, with what they share."""
    fn, x = NOT_COPIED[name], torch.arange(6.0).reshape(2, 3)
    compiled = dynamo_lite.compile(fn, backend="eager")
    for y in (x + 1, x.detach(), x[0], x + 1):
        expected, found = fn(x, y), compiled(x, y)
        assert same(expected, found)
        for results in (expected, found):
            if isinstance(results, list):
                results[0].add_(1)
        assert same(expected, found)


def test_a_deep_copy_of_what_is_no_leaf_is_the_error_of_torch():
    def fn(x):
        try:
            return copy.deepcopy(x * 2)
        except RuntimeError as error:
            return str(error)

    x = torch.ones(2, requires_grad=True)
    assert dynamo_lite.compile(fn, backend="eager", fullgraph=True)(x) == fn(x)
    assert same(dynamo_lite.compile(copy.deepcopy, backend="eager")(x), x)
