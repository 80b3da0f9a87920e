"""Tensors made from Python values, legacy classes, lists of bools as indices, `.data`, hooks of modules, scripted modules."""

import collections

import numpy as np
import pytest
import torch

import dynamo_lite
from dynamo_lite.testing import CompileCounter, CompileCounterWithBackend, differences, run_both
from tests.helpers.graph_counts import whole


def x():
    return torch.arange(16.0).reshape(4, 4)


def test_tensor_of_tensors():
    whole(
        lambda a: (torch.tensor([a[0, 0], a[1, 1]]), torch.tensor([[a[0, 0], 2], [3, a[0, 1]]], dtype=torch.float64)),
        x(),
    )


def test_legacy_classes():
    whole(lambda a: (torch.FloatTensor([1.0]) + a[0], torch.LongTensor([1, 2]), torch.Tensor(2, 2).zero_()), x())
    whole(lambda a: (a + 1, isinstance(a, torch.FloatTensor), isinstance(a, torch.cuda.FloatTensor)), x())
    whole(lambda a: (a + 1, isinstance(a, torch.DoubleTensor)), x().double())


LEGACY = {
    "size": lambda a: torch.LongTensor([a.size(0), 2]) + 1,
    "size-of-data": lambda a: torch.LongTensor([[a[a > 3].size(0), 2], [a.size(0), 1]]),
    "default-dtype": lambda a: torch.Tensor([a.size(0), 2, a[a > 3].size(0)]) * 2,
    "item": lambda a: torch.DoubleTensor([a.sum().item(), 0.5]),
    "new": lambda a: a.new([a[a > 3].size(0), 2]),
    "shapes": lambda a: (torch.LongTensor(a.shape).shape, a.new(a.size()).shape, torch.Tensor(a.shape).shape),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", LEGACY.values(), ids=LEGACY)
def test_legacy_classes_of_numbers_that_vary(fn, backend):
    counter = CompileCounterWithBackend(backend)
    compiled = dynamo_lite.compile(fn, backend=counter, fullgraph=True)
    for n in (4, 6, 7, 9):
        assert not list(differences(compiled(torch.arange(n * 4.0).view(n, 4)), fn(torch.arange(n * 4.0).view(n, 4))))
    assert counter.frame_count <= 2


def test_lists_of_bools():
    def index(a):
        b = a.clone()
        b[:, [True, False, True, False]] = 0
        return a[[True, False, False, True]], a[:, [False, True, False, True]], a[None, [True, False, False, True]], b

    whole(index, x())


def test_a_list_of_bools_of_another_length_is_an_error():
    with pytest.raises(IndexError):
        dynamo_lite.compile(lambda a: a[[True, False]], backend="eager")(x())


def test_data_of_a_new_tensor():
    def replace(a):
        b = a.clone()
        view = b[0]
        b.data = a + 1
        view += 100
        return b, view

    whole(replace, x())


def test_operators_return_the_argument_itself():
    whole(lambda a: (a.contiguous() is a, a.view(4, 4) is a, a * 2), x())


def test_backward_hook_of_a_module():
    def seen_by_hook(compiled):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
        seen = []
        model[0].register_full_backward_hook(lambda module, gi, go: seen.append(go[0].clone()))
        model = dynamo_lite.compile(model, backend="eager") if compiled else model
        model(x()).sum().backward()
        return seen

    (eager,), (captured,) = seen_by_hook(False), seen_by_hook(True)
    assert torch.equal(eager, captured)


def test_scripted_module_runs_as_it_is():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.scripted = torch.jit.script(torch.nn.Linear(4, 4))

        def forward(self, a):
            return self.scripted(a + 1) * 2

    model = Model()
    assert torch.equal(dynamo_lite.compile(model, backend="eager")(x()), model(x()))


def test_attributes_of_modules_that_are_computed():
    whole(lambda a: (a * 2, torch.backends.cudnn.enabled, torch.backends.cudnn.version()), x())


def test_a_module_has_no_builtins():
    with pytest.raises(AttributeError, match="module 'torch' has no attribute 'print'"):
        dynamo_lite.compile(lambda a: torch.print(a), backend="eager")(x())


# -- every constructor with every form of arguments

EMPTY = torch.Size([])
SIZES = {
    "size": lambda a: ((a.size(),), {}),
    "slice": lambda a: ((a.shape[1:],), {}),
    "sum": lambda a: ((a.shape + (2,),), {}),
    "empty size": lambda a: ((EMPTY,), {}),
    "named size": lambda a: ((), {"size": a.shape}),
    "named tuple": lambda a: ((), {"size": (a.shape[0], 2)}),
    "ints": lambda a: ((a.shape[0], 3), {}),
    "nothing": lambda a: ((), {}),
    "device": lambda a: ((a.shape,), {"device": "cpu"}),
    "size and int": lambda a: ((a.shape, 2), {}),
    "numpy ints": lambda a: ((np.int64(2), np.int64(3)), {}),
}
DATA = {
    "list": lambda a: (([1, 2],), {}),
    "nested": lambda a: (([[1, 2], [3, 4]],), {}),
    "tuple": lambda a: (((1, 2),), {}),
    "empty tuple": lambda a: (((),), {}),
    "list of sizes": lambda a: (([a.shape[0], 4],), {}),
    "list of a size": lambda a: ((list(a.shape),), {}),
    "tuple of a size": lambda a: ((tuple(a.shape),), {}),
    "sizes": lambda a: (([a.shape, a.shape],), {}),
    "numpy ints": lambda a: (([np.int64(3), np.int64(4)],), {}),
    "numpy floats": lambda a: (([np.float32(3), np.float32(4)],), {}),
    "array": lambda a: ((np.array([1, 2]),), {}),
    "arrays": lambda a: (([np.array([1, 2]), np.array([1, 2])],), {}),
    "tensor": lambda a: ((a,), {}),
    "named tensor": lambda a: ((), {"other": a}),
    "tensors": lambda a: (([a[0, 0], a[0, 1]],), {}),
    "range": lambda a: ((range(3),), {}),
    "floats": lambda a: (([1.5, 2.5],), {}),
    "bools": lambda a: (([True, False],), {}),
    "float": lambda a: ((1.5,), {}),
    "None": lambda a: ((None,), {}),
    "text": lambda a: (("ab",), {}),
    "named data": lambda a: ((), {"data": [1]}),
}
LEGACY = ("Tensor", *sorted(cls.__name__ for cls in torch._tensor_classes if cls.__module__ == "torch"))  # a set
METHODS = ("new", "new_tensor", "new_zeros", "new_ones", "new_empty")
FACTORIES = ("zeros", "ones", "empty", "tensor", "as_tensor")
CONSTRUCTORS = {
    **{name: lambda a, name=name: getattr(torch, name) for name in (*LEGACY, *FACTORIES)},
    **{f"x.{name}": lambda a, name=name: getattr(a, name) for name in METHODS},
    **{f"long.{name}": lambda a, name=name: getattr(a.long(), name) for name in METHODS},
    "x.new_full": lambda a: lambda *args, **kwargs: a.new_full(*args, 3, **kwargs),
    "x.new_empty_strided": lambda a: lambda *args, **kwargs: a.new_empty_strided(*args, (3, 1), **kwargs),
}
RARE = ("BFloat16Tensor", "ByteTensor", "CharTensor", "DoubleTensor", "HalfTensor", "IntTensor", "ShortTensor")


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", [name for name in CONSTRUCTORS if name not in RARE])
def test_constructors_make_what_they_make_in_eager_execution(name, dynamic):
    """Shape, dtype, data where there are any, or the error; and a size is no reason for a break."""
    constructor, wrong = CONSTRUCTORS[name], []
    for forms in (SIZES, DATA):
        for form in forms:
            has_data = forms is DATA and "empty" not in name

            def make(a, arguments=forms[form], has_data=has_data):
                args, kwargs = arguments(a)
                made = constructor(a)(*args, **kwargs)
                return made if has_data else made.zero_()

            try:
                run = run_both(make, torch.arange(6.0).reshape(2, 3), _dynamic=dynamic)
            except AssertionError as error:
                wrong.append((form, str(error)))
                continue
            if forms is SIZES and run.exception is None and (run.breaks or run.graph_count != 1):
                wrong.append((form, run.breaks))
    assert not wrong, wrong


@pytest.mark.parametrize("dynamic", [False, True])
def test_functions_that_are_allowed_in_the_graph_get_the_classes_that_they_are_given(dynamic):
    pair = collections.namedtuple("pair", "one two")
    seen = []

    def described(value):
        if isinstance(value, list | tuple):
            return (type(value).__name__, *map(described, value))
        if isinstance(value, dict):
            return (type(value).__name__, *map(described, value.values()))
        return "tensor" if isinstance(value, torch.Tensor) else "int"

    @dynamo_lite.allow_in_graph
    def look(a, value):
        seen.append(described(value))
        return a + 1

    forms = (
        lambda a: a.shape,
        lambda a: [a.shape, a],
        lambda a: pair(a, a.shape[0]),
        lambda a: a.max(0),
        lambda a: collections.OrderedDict(one=a, two=a.shape[1]),
        lambda a: {"one": [a], "two": (a,)},
    )
    for form in forms:
        seen.clear()
        whole(lambda a, form=form: look(a, form(a)), x(), _dynamic=dynamic)
        assert len(set(seen)) == 1, seen


def test_a_container_of_another_class_is_no_argument_of_a_function_that_is_allowed_in_the_graph():
    class Two(list):
        pass

    @dynamo_lite.allow_in_graph
    def count(a, value):
        return a + value.__class__.__name__.count("w")

    run = run_both(lambda a: count(a, Two([a])), x())
    assert run.graph_count == 1 and not run.breaks  # it is followed


def test_type_of_legacy_classes():
    whole(lambda a: (a.type(torch.DoubleTensor), a.type(dtype=torch.LongTensor), a.long().type(torch.Tensor)), x())
    whole(lambda a: (a.type("torch.DoubleTensor"), a.type(torch.int32), a.type(), a + 1), x())
    run = run_both(lambda a: a.type(int), x())
    assert isinstance(run.exception, RuntimeError | TypeError | ValueError), run.exception


OF_BOOLS = {
    "bool": lambda t: torch.tensor(bool(t.sum() > 0)),
    "item": lambda t: torch.tensor((t.sum() > 0).item(), device="cpu"),
    "not": lambda t: torch.as_tensor(not (t.sum() > 0).item()),
    "list": lambda t: torch.tensor([[bool(t.sum() > 0)], [True]]),
    "with ints": lambda t: torch.tensor([bool(t.sum() > 0), 2]),
    "with floats": lambda t: torch.asarray([bool(t.sum() > 0), 2.5]),
    "dtype": lambda t: (torch.tensor(bool(t.sum() > 0), dtype=torch.uint8), t.new_tensor(bool(t.sum() > 0))),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", OF_BOOLS.values(), ids=OF_BOOLS)
def test_bools_that_data_decide(fn, backend):
    compiled = dynamo_lite.compile(fn, backend=backend, fullgraph=True)
    for t in (torch.ones(3), -torch.ones(3)):
        torch.testing.assert_close(compiled(t), fn(t), rtol=0, atol=0)


@pytest.mark.parametrize("fn", [torch.asarray, lambda n: torch.asarray([n, 1]), lambda n: torch.as_tensor(n)])
def test_ints_of_more_than_32_bits(fn):
    """AOTAutograd takes what `torch.asarray` makes of a symbolic int for 32 bits."""
    compiled = dynamo_lite.compile(lambda n: fn(n), backend="aot_eager", fullgraph=True)
    for n in (3, 5, 2**40 + 1):
        assert torch.equal(compiled(n), fn(n))


WIDE = {
    "copy": lambda n: torch.asarray(n, copy=True),
    "no gradients": lambda n: torch.asarray([n, 1], copy=None, requires_grad=False),
    "gradients": lambda n: torch.asarray([n], dtype=torch.float64, requires_grad=True),
    "bool": lambda n: torch.asarray([n], dtype=torch.bool),
    "new_tensor": lambda n: torch.ones(1).new_tensor([[n]], dtype=torch.bool),
    "complex": lambda n: torch.asarray([n, 1 + 2j]),
}


@pytest.mark.parametrize("fn", WIDE.values(), ids=WIDE)
def test_options_for_ints_of_more_than_32_bits(fn):
    compiled = dynamo_lite.compile(lambda n: fn(n), backend="aot_eager", fullgraph=True)
    for n in (3, 5, 2**33, 2**40 + 1):
        got, expected = compiled(n), fn(n)
        assert (
            torch.equal(got, expected) and got.dtype is expected.dtype and got.requires_grad is expected.requires_grad
        )


def test_copies_of_ints_that_vary_have_one_version():
    compiled = dynamo_lite.compile(lambda n: torch.asarray(n, copy=True), backend=(counter := CompileCounter()))
    for n in (3, 5, 2**33):
        assert compiled(n) == n
    assert counter.frame_count <= 2


class Sevens:
    def __getitem__(self, i):
        return 7.0 if i < 2 else super().__getitem__(i)

    def __len__(self):
        return 2


class SevensList(Sevens, list):
    pass


class NumberOfTwo(float, Sevens):
    pass


def test_sequences_by_methods_of_their_class():
    for make in (torch.tensor, torch.as_tensor, torch.asarray):
        for cls, value in ((SevensList, [1.0, 2.0, 3.0]), (NumberOfTwo, 1.5)):
            for wrap in (lambda v: v, lambda v: [v]):

                def f(x, make=make, cls=cls, value=value, wrap=wrap):
                    return x + make(wrap(cls(value))).sum()

                run_both(f, torch.ones(2))
