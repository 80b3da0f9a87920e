"""Small types of torch, numpy scalars, pytrees: constants, sizes, what is rebuilt after the graph."""

import operator

import numpy as np
import pytest
import torch
from torch.utils import _pytree as pytree

import dynamo_lite
from dynamo_lite.testing import CompileCounter, run_both
from tests.helpers.graph_counts import check


def x():
    return torch.arange(6.0).reshape(2, 3)


SIZES = {
    "result": lambda a: a.shape,
    "slice": lambda a: (a.shape[:1], a.shape[-1:], type(a.shape[:1])),
    "concatenate": lambda a: (a.shape + (1,), (1,) + a.shape, type(a.shape + a.shape)),
    "repeat": lambda a: (a.shape * 2, 2 * a.shape),
    "numel": lambda a: (a.shape.numel(), torch.Size([]).numel()),
    "compare": lambda a: (a.shape == (2, 3), a.shape == torch.Size([2, 3]), a.shape != [2, 3], a.shape < (3,)),
    "iterate": lambda a: ([n + 1 for n in a.shape], list(a.shape), sum(a.shape), max(a.shape)),
    "unpack": lambda a: (lambda r, c: r * c)(*a.shape),
    "make": lambda a: (torch.Size((1, 2)), torch.Size(list(a.shape)), torch.Size(range(3))),
    "contains": lambda a: (3 in a.shape, a.shape.index(3), a.shape.count(2), hash(a.shape) == hash((2, 3))),
    "key": lambda a: {a.shape: 1}[torch.Size([2, 3])],
    "text": lambda a: (str(a.shape), f"{a.shape}", repr(a.size())),
    "isinstance": lambda a: (isinstance(a.shape, tuple), isinstance(a.shape, torch.Size), type(a.shape)),
}


@pytest.mark.parametrize("name", SIZES)
def test_size(name):
    fn = SIZES[name]
    check(lambda a: (a + 1, fn(a)), x())


class Five:
    def __index__(self):
        return 5


class Failing:
    def __index__(self):
        raise ZeroDivisionError


class Adding(tuple):
    def __add__(self, other):
        return "add"

    def __radd__(self, other):
        return "radd"


NOT_OF_INTS = {
    "add": lambda s: s + ("a",),
    "reflected": lambda s: (1.5,) + s,
    "operator.iadd": lambda s: operator.iadd(s, (None,)),
    "operator.concat": lambda s: operator.concat(s, ("a",)),
    "concat of a tuple": lambda s: operator.concat(("a",), s),
    "method": lambda s: s.__radd__(("a",)),
    "method of tuples": lambda s: (tuple.__add__(s, ("a",)), tuple.__mul__(s, 2), tuple.__getitem__(s, slice(1))),
    "slice": lambda s: s[:1] + ("a",),
    "new": lambda s: torch.Size([1, "a"]),
    "list": lambda s: s + [1],
    "concat of a list": lambda s: operator.concat(s, [1]),
    "number": lambda s: s + 3,
    "to a text": lambda s: "a" + s,
    "index": lambda s: s + (Five(), True),
    "failing": lambda s: s + (Failing(),),
    "subclass": lambda s: (s + Adding((1,)), Adding((1,)) + s),
    "int": lambda s: int(s),
    "complex": lambda s: complex(s),
}


@pytest.mark.parametrize("name", NOT_OF_INTS)
@pytest.mark.parametrize("used", [True, False])
def test_size_of_other_things_than_ints(name, used):
    fn = NOT_OF_INTS[name]

    def program(a):
        seen = ["before"]
        try:
            result = fn(a.shape)
            seen.append((type(result), list(map(type, result)), result) if used else None)
        except TypeError as error:
            seen.append(error.args)
        return a + 1, seen

    check(program, x())


def test_size_as_input_and_attribute():
    class Config:
        def __init__(self):
            self.size = torch.Size([3, 2])
            self.dtype = torch.float64
            self.device = torch.device("cpu")

    check(lambda a, c: a.view(c.size).to(c.dtype).to(c.device), x(), Config())
    check(lambda a, s: a.reshape(s) + len(s), x(), torch.Size([3, 2]))


CONSTANTS = {
    "dtype": lambda a: (a.dtype == torch.float32, a.dtype is torch.float32, a.dtype.itemsize, str(a.dtype)),
    "dtype_methods": lambda a: (a.dtype.to_complex(), a.dtype.is_floating_point, a.dtype.is_signed),
    "device": lambda a: (a.device == torch.device("cpu"), a.device.type, a.device.index, str(a.device)),
    "layout": lambda a: (a.layout == torch.strided, a.layout is torch.strided),
    "finfo": lambda a: (torch.finfo(a.dtype).min, torch.finfo(a.dtype).tiny, torch.finfo(torch.float16).bits),
    "iinfo": lambda a: (torch.iinfo(torch.int64).max, torch.iinfo(torch.uint8).min),
    "tables": lambda a: {torch.float32: "single", torch.float64: "double"}[a.dtype],
    "membership": lambda a: (a.dtype in (torch.float16, torch.bfloat16), a.dtype in {torch.float32}),
    "getattr": lambda a: (getattr(torch, "float16"), torch.__name__, hasattr(torch, "no_such_name")),
    "returned": lambda a: [torch.int8, torch.device("cpu"), torch.contiguous_format, torch.finfo(torch.float32)],
}


@pytest.mark.parametrize("name", CONSTANTS)
def test_constants(name):
    fn = CONSTANTS[name]
    check(lambda a: (a + 1, fn(a)), x())


def test_dtype_argument_is_guarded():
    def fn(a, dtype):
        return a.to(dtype)

    for dtype in (torch.float64, torch.float16):
        check(fn, x(), dtype)


def test_numpy_scalars():
    check(lambda a: a * np.float64(2.0) + np.int64(3), x())
    check(lambda a: a * np.sqrt(4.0) + np.pi, x())
    check(lambda a, s: a * s, x(), np.float32(1.5))


def test_pytree():
    def fn(tree):
        doubled = pytree.tree_map(lambda t: t * 2, tree)
        leaves, spec = pytree.tree_flatten(doubled)
        return pytree.tree_unflatten([t + 1 for t in leaves], spec)

    check(fn, {"a": x(), "b": [x(), (x(), x())]})


def test_return_types_are_rebuilt():
    run = check(lambda a: {"max": a.max(0), "pair": torch.linalg.qr(a)}, x())
    assert type(run.result["max"]) is torch.return_types.max
    assert type(run.result["pair"]) is torch.return_types.linalg_qr


def test_generator_argument_is_a_break():
    def fn(a, generator):
        return a + torch.rand(3, generator=generator)

    generator = torch.Generator()
    generator.manual_seed(0)
    state = generator.get_state()
    expected = fn(x(), generator)
    import dynamo_lite

    generator.set_state(state)
    assert torch.equal(dynamo_lite.compile(fn, backend="eager")(x(), generator), expected)


# -- queries, schemas, texts

QUERIES = """
torch.backends.cpu.get_cpu_capability(); torch.cpu._is_avx2_supported(); torch.cpu.get_capabilities()["architecture"]
torch.backends.mkldnn.is_available(); torch.backends.mkldnn.allow_tf32; torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction
torch.backends.quantized.engine; torch.backends.quantized.supported_engines; torch.backends.cuda.preferred_linalg_library()
torch.get_num_interop_threads(); torch.is_warn_always_enabled(); torch.__config__.show(); torch.profiler.supported_activities()
torch.ops.aten.add.Tensor._schema.name; [a.name for a in torch.ops.aten.add.Tensor._schema.arguments]
str(torch.ops.aten.add.Tensor._schema)
str(torch.ops.aten.add.Tensor); repr(torch.ops.aten.add); f"{torch.add}"; torch.ops.aten.add_.Tensor._schema.is_mutable
"""


@pytest.mark.parametrize("text", [q.strip() for q in QUERIES.replace("\n", ";").split(";") if q.strip()])
def test_queries(text):
    namespace = {"torch": torch}
    exec(f"def f(x):\n    y = x + 1\n    found = {text}\n    return y * 2, str(found)", namespace)
    run = run_both(namespace["f"], torch.ones(2))
    assert run.graph_count == 1 and not run.breaks


def test_settings_that_are_asked_for_are_guarded():
    def f(x):
        return x + 1, torch.is_warn_always_enabled()

    compiled = dynamo_lite.compile(f, backend="eager", fullgraph=True)
    before = torch.is_warn_always_enabled()
    try:
        for wanted in (False, True, False):
            torch.set_warn_always(wanted)
            assert compiled(torch.ones(2))[1] is wanted
    finally:
        torch.set_warn_always(before)


class Point(metaclass=torch.fx._symbolic_trace.ProxyableClassMeta):
    def __init__(self, a, b=2):
        self.a, self.b = a, b


def test_classes_that_torch_fx_can_trace():
    def f(x):
        p = Point(x + 1, b=x)
        try:
            Point()
        except TypeError as error:
            return p.a * p.b, str(error), type(p) is Point

    run = run_both(f, torch.ones(3))
    assert run.graph_count == 1 and not run.breaks


def test_methods_without_a_hash_as_hash():
    """What pybind11 gives a class as `__hash__` cannot be looked up in a table."""
    kind = torch._C._profiler.ProfilerActivity
    run = run_both(lambda x: (x + 1, {kind.CPU: 3}[kind.CPU], kind.CPU in {kind.CUDA}), torch.ones(3))
    assert run.graph_count == 1 and not run.breaks


def test_is_storage():
    """Of storages that a function gets, and of what is none. (Asking a tensor for its storage breaks the graph.)"""
    storages = [torch.ones(2).untyped_storage(), torch.ones(2).storage()]

    def f(x):
        return x + 1, [torch.is_storage(value) for value in (*storages, x, [x], int)]

    run = run_both(f, torch.ones(2))
    assert run.result[1] == [True, True, False, False, False]
    assert not run.breaks


@pytest.mark.skipif(torch.cuda.is_available(), reason="about what raises without CUDA")
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize(
    "fn", [lambda x: x.cuda() + 1, lambda x: x.to("cuda:0"), lambda x: torch.rand(3, device=torch.device("cuda"))]
)
def test_devices_that_are_not_there(fn, backend):
    # A torch that was built with CUDA misses the driver.
    with pytest.raises((AssertionError, RuntimeError), match=r"not compiled with CUDA|no NVIDIA driver") as expected:
        fn(torch.ones(2))
    with pytest.raises(expected.type) as found:
        dynamo_lite.compile(fn, backend=backend)(torch.ones(2))
    assert str(found.value) == str(expected.value)


def test_paths_into_a_pytree():
    # torch.return_types holds a class that is no named result.
    def f(x):
        leaves, _ = torch.utils._pytree.tree_flatten_with_path(([x, x + 1], {"a": x}))
        return [torch.utils._pytree.keystr(path) for path, _ in leaves], leaves[1][1]

    run = run_both(f, torch.randn(3))
    assert run.result[0] == ["[0][0]", "[0][1]", "[1]['a']"]
    assert run.graph_count == 1


WITH_GENERATORS = {
    "an operator": lambda x, g: x.clone().normal_(generator=g) + x,
    "a question": lambda x, g: x * 2 if g is not None and g.device.type == "cpu" else x,
    "another one": lambda x, g: x * 2 if g is torch.default_generator else x * 3,
    "a key": lambda x, g: {g: x * 2}[g],
    "seeded again": lambda x, g: torch.rand(3, generator=g.manual_seed(3)) * x,
}


@pytest.mark.parametrize("name", WITH_GENERATORS)
def test_a_version_is_for_any_generator(name):
    """As pipelines are called with a new one each time."""
    fn, counter = WITH_GENERATORS[name], CompileCounter()
    compiled = dynamo_lite.compile(fn, backend=counter)
    graphs = []
    for seed in range(3):
        results = [call(torch.ones(3), torch.Generator().manual_seed(seed)) for call in (fn, compiled)]
        assert torch.equal(*results)
        graphs.append(counter.frame_count)
    assert graphs[0] == graphs[-1]
