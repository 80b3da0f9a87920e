"""What `compile` and `disable` make of a Python function is a function for everybody who asks: the program, CPython, torch."""

from __future__ import annotations

import copy
import doctest
import functools
import gc
import inspect
import pickle
import pickletools
import sys
import threading
import traceback
import types
import typing
import unittest.mock
import weakref

import pytest
import torch
import torch._dynamo

import dynamo_lite
from dynamo_lite.testing import CompileCounter
from tests.helpers import processes
from tests.helpers.classes import kinds_of_methods, with_wrapped_methods


def plain(x, y=1, *, z: int = 2) -> int:
    """Adds.

    >>> plain(1)
    4
    """
    return x + y + z


def generator(x):
    yield x


async def coroutine(x):
    return x


async def async_generator(x):
    yield x


def factory(n):
    def inner(x):
        return x + n

    return inner


plain.tag = ["mine"]
KINDS = {
    "function": plain,
    "lambda": lambda x: x,
    "closure": factory(1),
    "generator": generator,
    "coroutine": coroutine,
    "async generator": async_generator,
    "builtin function": len,
    "function of torch's": torch.sin,
    "module": torch.nn.Linear(2, 2),
    "class": torch.nn.Linear,
}


def _eager(fn):
    return dynamo_lite.compile(fn, backend="eager")


FORMS = {
    "compile": _eager,
    "compile as a decorator": dynamo_lite.compile(backend="eager"),
    "compile twice": lambda fn: _eager(_eager(fn)),
    "optimize": dynamo_lite.optimize("eager"),
    "bare optimize": dynamo_lite.optimize,
    "disable": dynamo_lite.disable,
    "disable of compile": lambda fn: dynamo_lite.disable(_eager(fn)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_is_a_function_where_torchs_is(kind):
    target = KINDS[kind]
    if kind == "class":  # is changed in place
        target = type("Layer", (torch.nn.Linear,), {})
    ours, theirs = _eager(target), torch.compile(target, backend="eager")
    assert inspect.isfunction(ours) is inspect.isfunction(theirs)
    assert isinstance(ours, types.FunctionType) is isinstance(theirs, types.FunctionType)
    assert inspect.isroutine(ours) is inspect.isroutine(theirs)
    assert type(ours).__name__ == type(theirs).__name__ or isinstance(ours, torch.nn.Module)


@pytest.mark.parametrize("form", FORMS)
def test_has_what_functions_have(form):
    wrapped = FORMS[form](plain)
    assert inspect.isfunction(wrapped)
    own = {"__dict__", "__class__"}
    for name in set(dir(plain)) - own:
        value = getattr(plain, name)
        if not isinstance(value, types.MethodWrapperType | types.BuiltinFunctionType):
            assert getattr(wrapped, name) == value, name
    assert wrapped.tag is plain.tag and vars(wrapped)["tag"] is plain.tag
    assert type(wrapped.__dict__) is dict
    assert inspect.signature(wrapped) == inspect.signature(plain)
    assert inspect.getsource(wrapped) == inspect.getsource(plain)
    assert inspect.getfile(wrapped) == __file__
    assert inspect.unwrap(wrapped) is plain is wrapped.__wrapped__ is wrapped._torchdynamo_orig_callable
    assert typing.get_type_hints(wrapped) == typing.get_type_hints(plain)
    assert wrapped == wrapped != plain and hash(wrapped) == hash(wrapped)
    assert weakref.ref(wrapped)() is wrapped
    assert wrapped(torch.zeros(1)).item() == 3
    with pytest.raises(TypeError, match=r"unsupported operand type\(s\) for \+: 'function' and 'int'"):
        wrapped + 1
    with pytest.raises(AttributeError, match="'function' object has no attribute 'missing'"):
        wrapped.missing


@pytest.mark.parametrize("form", FORMS)
def test_says_what_calling_gives(form):
    """As in eager execution. (torch.compile's wrapper denies it.)"""
    wrap = FORMS[form]
    assert inspect.iscoroutinefunction(wrap(coroutine))
    assert inspect.isgeneratorfunction(wrap(generator))
    assert inspect.isasyncgenfunction(wrap(async_generator))
    assert not inspect.iscoroutinefunction(wrap(plain))


def test_attributes_are_the_wrappers_or_shared_with_the_function():
    def fn(x, y=1):
        return x + y

    wrapped = _eager(fn)
    wrapped.mine = 1
    assert not hasattr(fn, "mine")
    del wrapped.mine
    assert not hasattr(wrapped, "mine")
    wrapped.__defaults__ = (5,)
    assert fn.__defaults__ == (5,) and wrapped(torch.zeros(1)).item() == 5
    fn.__defaults__ = (6,)
    assert wrapped.__defaults__ == (6,) and wrapped(torch.zeros(1)).item() == 6
    del wrapped.__defaults__
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'y'"):
        wrapped(torch.zeros(1))
    wrapped.__dict__ = {"other": 1}
    assert wrapped.other == 1


decorated = _eager(factory(3))
decorated.__qualname__ = "decorated"
off = dynamo_lite.disable(factory(3))
off.__qualname__ = "off"


def test_annotations_of_another_function():
    """`functools.wraps` takes over annotations, or from 3.14 on what makes them."""

    def described(x: int) -> float: ...

    fn = functools.wraps(described)(_eager(plain))
    assert fn.__annotations__ == described.__annotations__ != plain.__annotations__
    assert fn.__annotations__ is fn.__annotations__
    fn.__annotations__ = {"y": int}
    assert fn.__annotations__ == {"y": int}
    assert functools.wraps(described)(fn).__annotations__ == described.__annotations__


@pytest.mark.parametrize("wrapped", [decorated, off])
def test_copies_and_pickles(wrapped):
    assert copy.copy(wrapped) is wrapped and copy.deepcopy({"f": [wrapped]})["f"][0] is wrapped
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(wrapped, protocol)) is wrapped
        assert pickle.loads(pickle._dumps(wrapped, protocol)) is wrapped


def test_pickles_of_a_function_compiled_under_another_name_are_compiled_elsewhere():
    wrapped = _eager(plain)
    data = pickle.dumps(wrapped)
    assert "plain" in {arg for _, arg, _ in pickletools.genops(data)}
    code = (
        f"import pickle, sys, torch; f = pickle.loads({data!r})\n"
        "print(type(f).__name__, f(torch.zeros(1)).item(), f.cache.region.settings.backend)"
    )
    result = processes.run(["-c", code], check=True)
    assert result.stdout.split() == ["function", "3.0", "eager"]


def test_library_functions_that_take_functions():
    counter = CompileCounter()
    wrapped = dynamo_lite.compile(plain, backend=counter)

    class Container:
        method = wrapped

    assert ("method", wrapped) in inspect.getmembers(Container, inspect.isfunction)
    assert functools.partial(wrapped, y=3)(torch.zeros(1)).item() == 5
    results = []
    thread = threading.Thread(target=lambda: results.append(wrapped(torch.zeros(1)).item()))
    thread.start()
    thread.join()
    assert results == [3] and counter.frame_count >= 1
    mock = unittest.mock.create_autospec(wrapped, return_value=7)
    assert inspect.isfunction(mock) and mock(1) == 7
    with pytest.raises(TypeError):
        mock(1, 2, 3)
    (example,) = doctest.DocTestFinder().find(wrapped, "wrapped", module=sys.modules[__name__], globs={})
    assert example.examples[0].source == "plain(1)\n"
    generic = functools.singledispatch(lambda x: "object")
    generic.register(types.FunctionType, lambda x: "function")
    assert generic(wrapped) == "function"


def test_a_copy_of_the_parts_is_the_function_not_compiled():
    counter = CompileCounter()
    for target in (plain, factory(2)):
        wrapped = dynamo_lite.compile(target, backend=counter)
        copied = types.FunctionType(
            wrapped.__code__, wrapped.__globals__, wrapped.__name__, wrapped.__defaults__, wrapped.__closure__
        )
        copied.__kwdefaults__ = wrapped.__kwdefaults__
        assert copied(torch.ones(1)).item() == target(torch.ones(1)).item()
    assert counter.frame_count == 0


def test_members_of_the_base_type():
    """What finds the members of functions without asking our type gets values too."""
    wrapped = _eager(factory(2))
    members = types.FunctionType.__dict__
    for name in ("__code__", "__globals__", "__closure__", "__name__", "__qualname__", "__builtins__"):
        assert members[name].__get__(wrapped) == getattr(wrapped, name), name
    assert types.FunctionType.__repr__(wrapped).startswith("<function factory.<locals>.inner at ")
    assert types.FunctionType.__call__(wrapped, torch.ones(1)).item() == 3
    assert types.FunctionType.__get__(wrapped, torch.ones(1))().item() == 3
    with pytest.raises(TypeError):
        type(wrapped)(wrapped.__code__, {})
    with pytest.raises(TypeError):
        type("Sub", (type(wrapped),), {})


WARM = 64
"""Calls after which the interpreter has specialised an instruction."""


def _class_of(wrap):
    class Program:
        @wrap
        def __init__(self, n):
            self.n = torch.full((1,), float(n))

        @property
        @wrap
        def prop(self):
            return self.n + 1

        @wrap
        def __getitem__(self, i):
            return self.n + i

        @wrap
        def __getattr__(self, name):
            return self.n + len(name)

        @wrap
        def __contains__(self, x):
            return x == 3

        @wrap
        def __call__(self, x, k=2):
            return self.n * x * k

        @wrap
        def method(self, x):
            return self.n - x

        @classmethod
        @wrap
        def of_class(cls, x):
            return x + 2.0

        @staticmethod
        @wrap
        def static(x):
            return x + 3.0

    return Program


def _uses(cls):
    """Results of all these functions, many times by the same instructions, so that they are specialised: some run the code of a property,
    `__getitem__`, `__getattr__` or `__init__` without a call."""
    seen = []
    one = torch.ones(1)
    for _ in range(WARM):
        o = cls(2)
        seen.append((o.prop.item(), o[3].item(), o.absent.item(), 3 in o, o(one).item(), o(one, k=3).item()))
        seen.append((o.method(one).item(), o.of_class(one).item(), o.static(one).item(), cls.static(one).item()))
        seen.append((cls.method(o, one).item(), o(*(one,)).item(), o.method(*[one], **{}).item()))
    return seen


def test_instructions_that_run_a_functions_code_call_the_compiled_version():
    expected = _uses(_class_of(lambda fn: fn))
    compiled = _class_of(_eager)
    assert _uses(compiled) == expected
    for wrapped in (compiled.prop.fget, compiled.__getitem__, compiled.__call__, compiled.method, compiled.static):
        assert sum(entry.hits for entry in wrapped.cache.entries) >= WARM - 2, wrapped
    assert _uses(_class_of(dynamo_lite.disable)) == expected


def test_one_call_instruction_that_saw_the_function_first():
    """The instruction has specialised for the function; then it gets the compiled one, and the other way round."""
    counter = CompileCounter()
    wrapped = dynamo_lite.compile(plain, backend=counter)

    def call(fn, n):
        for _ in range(n):
            result = fn(torch.zeros(1))
        return result.item()

    assert [call(fn, WARM) for fn in (plain, wrapped, plain, wrapped)] == [3] * 4
    assert sum(entry.hits for entry in wrapped.cache.entries) >= 2 * WARM - 2 and counter.frame_count == 1


@pytest.mark.parametrize("wrap", [_eager, dynamo_lite.disable], ids=["compile", "disable"])
def test_names_that_make_static_and_class_methods(wrap):
    """Of compiled functions, which are called as such methods."""
    base = with_wrapped_methods(wrap)

    class Derived(base, size=3):
        pass

    assert Derived.keywords == {"size": 3} and Derived[5] == (Derived, 5)
    assert Derived(4).n == 4 and Derived(4).__new__(Derived, 6).n == 6
    assert kinds_of_methods(base) == [staticmethod, classmethod, classmethod]


def test_a_traceback_has_no_frame_more():
    def fails(x):
        y = x + 1
        raise ValueError(y.item())

    def entries(fn):
        with pytest.raises(ValueError) as caught:
            fn(torch.zeros(1))
        return [(e.name, e.lineno) for e in traceback.extract_tb(caught.value.__traceback__)]

    wrapped = _eager(fails)
    expected = entries(fails)
    assert [entries(wrapped), entries(wrapped), entries(dynamo_lite.disable(fails))] == [expected] * 3


def test_what_a_profiler_sees():
    def events(fn):
        seen = []
        sys.setprofile(lambda frame, event, arg: seen.append((event, frame.f_code.co_name)))
        try:
            fn(1, 2)
        finally:
            sys.setprofile(None)
        return seen

    expected = events(plain)
    assert events(_eager(plain)) == events(dynamo_lite.disable(plain)) == expected


def test_a_dropped_function_dies_at_once():
    def fn(x):
        return x + 1

    for wrap in FORMS.values():
        copied = types.FunctionType(fn.__code__, fn.__globals__)
        wrapped = wrap(copied)
        gc.disable()
        try:
            refs = weakref.ref(wrapped), weakref.ref(copied)
            del wrapped
            assert refs[0]() is None
        finally:
            gc.enable()
        del copied
        gc.collect()
        assert refs[1]() is None


def test_cycles_through_a_wrapper_are_collected():
    for wrap in (_eager, dynamo_lite.disable):
        wrapped = wrap(factory(0))
        wrapped.itself = wrapped
        wrapped.__closure__[0].cell_contents = wrapped
        ref = weakref.ref(wrapped)
        assert wrapped.__closure__ in gc.get_referents(wrapped)
        del wrapped
        gc.collect()
        assert ref() is None


# ----------------------------------------------------------------------------------------------------------------------
# Inside of captured code.


def test_captured_code_sees_a_function():
    inner, uncaptured = _eager(plain), dynamo_lite.disable(plain)

    def f(x):
        kinds = isinstance(inner, types.FunctionType), inspect.isfunction(inner), inspect.isfunction(uncaptured)
        return kinds, type(inner).__name__, inner.__name__, inner.__defaults__, inner.tag, inner(x)

    counter = CompileCounter()
    result = dynamo_lite.compile(f, backend=counter, fullgraph=True)(torch.zeros(1))
    assert result[:-1] == ((True, True, True), "function", "plain", (1,), ["mine"]) and result[-1].item() == 3
    assert counter.frame_count == 1


@pytest.mark.parametrize("wrap", [_eager, dynamo_lite.disable], ids=["compile", "disable"])
def test_a_class_made_under_capture_with_wrapped_methods(wrap):
    first, second = wrap(lambda self, x: x + self.n), wrap(lambda cls, **keywords: setattr(cls, "seen", keywords))

    def f(x):
        class Made:
            n = 2
            method = first

        return x * 2, Made

    def g(x):
        class Made:
            __init_subclass__ = second

        class Derived(Made, k=1):
            pass

        return x * 2, Derived

    x = torch.ones(1)
    y, made = dynamo_lite.compile(f, backend="eager")(x)
    assert y.item() == 2 and made().method(x).item() == 3
    y, made = dynamo_lite.compile(g, backend="eager")(x)
    assert y.item() == 2 and made.seen == {"k": 1}


# ----------------------------------------------------------------------------------------------------------------------
# Inside of what torch.compile captures.


class Holder:
    def __init__(self):
        self.k = 1

    @_eager
    def method(self, x, y):
        return x * 2 + self.k + y

    @_eager
    def with_default(self, x, y=1):
        return x * 2 + self.k + y

    @dynamo_lite.disable
    def disabled(self, x, y=1):
        return x * 2 + self.k + y

    @_eager
    def __getitem__(self, i):
        return torch.ones(2) * i

    @property
    @_eager
    def prop(self):
        return torch.ones(2) * self.k


holder = Holder()
compiled_plain, disabled_plain = _eager(plain), dynamo_lite.disable(plain)


@functools.wraps(compiled_plain)
def wraps_compiled(x):
    return compiled_plain(x) * 100


@functools.wraps(disabled_plain)
def wraps_disabled(x):
    return disabled_plain(x) * 100


AROUND = {
    "function": (lambda x: compiled_plain(x) * 2, 1),
    "function with keywords": (lambda x: compiled_plain(x, y=3, z=4) * 2, 1),
    "method": (lambda x: holder.method(x, 1) * 2, 1),
    "method with a default": (lambda x: holder.with_default(x, 3) * 2, 1),
    "bound method": (lambda x, m=holder.method: m(x, 2) * 2, 1),
    "item": (lambda x: holder[3] * x, 1),
    "property": (lambda x: holder.prop * x, 1),
    "wraps": (lambda x: wraps_compiled(x) * 2, 1),
    "is a function": (
        lambda x: x + inspect.isfunction(compiled_plain) + isinstance(disabled_plain, types.FunctionType),
        1
        if torch.__version__ >= (2, 12)
        else 2,  # torch 2.11 breaks where it asks for the type of a function with `_torchdynamo_inline`
    ),
    "disabled": (lambda x: x * 2 + disabled_plain(x) + compiled_plain(x), None),
    "disabled after another": (lambda x: compiled_plain(x, z=3) + disabled_plain(x), None),
    "disabled method": (lambda x: x * 2 + holder.disabled(x) + holder.disabled(x, y=2), None),
    "disabled bound method": (lambda x, m=holder.disabled: x * 2 + m(x), None),
    "wraps disabled": (lambda x: wraps_disabled(x) * 2, None),
}


@pytest.mark.parametrize("name", AROUND)
def test_torch_compile_around(name):
    f, graphs = AROUND[name]
    torch._dynamo.reset()
    try:
        x = torch.arange(2.0)
        expected, counter = f(x), CompileCounter()
        compiled = torch.compile(f, backend=counter)
        for _ in range(2):
            torch.testing.assert_close(compiled(x), expected)
        assert graphs is None or counter.frame_count == graphs
    finally:
        torch._dynamo.reset()


def test_torch_compile_sees_other_defaults():
    def inner(x, y=1):
        return x + y

    def results(wrapped):
        def f(x, wrapped=wrapped):
            return wrapped(x) * 2

        found, compiled = [], torch.compile(f, backend="eager")
        for default in (1, 5, 7):
            inner.__defaults__ = (default,)
            found.append(compiled(torch.zeros(1)).item())
        torch._dynamo.reset()
        return found

    assert results(dynamo_lite.disable(inner)) == [2, 10, 14]
    # torch 2.11 guards the defaults of no function that it inlines.
    assert results(_eager(inner)) == results(inner) == ([2, 10, 14] if torch.__version__ >= (2, 12) else [2, 2, 2])


def test_the_outermost_compiler_decides():
    ours, theirs = CompileCounter(), CompileCounter()
    wrapped = torch.compile(dynamo_lite.compile(plain, backend=ours), backend=theirs)
    assert wrapped(torch.zeros(1)).item() == 3 and (ours.frame_count, theirs.frame_count) == (0, 1)
    wrapped = dynamo_lite.compile(wrapped, backend=ours)
    assert wrapped(torch.zeros(1)).item() == 3 and (ours.frame_count, theirs.frame_count) == (1, 1)
    assert torch.compile(wraps_compiled, backend=theirs)(torch.zeros(1)).item() == 300
    torch._dynamo.reset()


def test_a_class_is_compiled_again():
    first, second = CompileCounter(), CompileCounter()

    class Doubles:
        def __call__(self, x):
            return x * 2

    for backend in (first, second):
        assert dynamo_lite.compile(Doubles, backend=backend) is Doubles
        assert Doubles()(torch.ones(1)).item() == 2
    assert (first.frame_count, second.frame_count) == (1, 1)


def test_scripting_takes_the_function():
    def double(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    assert torch.jit.script(_eager(double))(torch.ones(1)).item() == 2
