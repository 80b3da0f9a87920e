"""The C part: callables, caches, argument binding, the frame hook, lifetimes. Needs no torch."""

import ast
import copy
import functools
import gc
import inspect
import os
import pathlib
import pickle
import subprocess
import sys
import textwrap
import threading
import traceback
import types
import weakref

import pytest

from dynamo_lite import _eval_frame
from dynamo_lite._eval_frame import (
    COMPILE,
    RUN_ONLY,
    RUN_ONLY_ALL,
    SKIP,
    SKIP_ALL,
    Cache,
    Callable,
    Entry,
    GuardProgram,
    Region,
    Uncaptured,
    set_region,
)
from dynamo_lite.guards.kinds import KINDS
from tests.helpers.classes import kinds_of_methods, with_wrapped_methods

LONG = bool(os.environ.get("DYNAMO_LITE_SOAK"))

ALWAYS = GuardProgram(((), (), 0))


def guard_types(*types_):
    """A program that checks the exact types of the first arguments."""
    nodes = tuple((KINDS["LOCAL"], i, ((KINDS["TYPE_IS"], t, i),), ()) for i, t in enumerate(types_))
    return GuardProgram((nodes, (), 0))


def marked(code, mark):
    """The same code with the string constant 'original' replaced."""
    consts = tuple(mark if c == "original" else c for c in code.co_consts)
    return code.replace(co_consts=consts)


class Recorder(Region):
    """Compiles everything to the same code, marked 'compiled', guarded on argument types; keeps what it was asked."""

    def __init__(self, **options):
        super().__init__()
        self.asked = []
        self.options = options

    def callback(self, cache, fn, values):
        assert set_region(None) is None, "the region is switched off while compiling"
        assert cache.region is self and cache.code is fn.__code__
        if "original" not in cache.code.co_consts and fn.__name__ not in ("caller", "predicate", "helper", "m", "fact"):
            cache.state = SKIP  # pytest, the standard library, helpers
            return None
        self.asked.append((fn.__name__, values))
        entry = Entry(guard_types(*map(type, values)), marked(cache.code, "compiled"), None, **self.options)
        cache.add(entry)
        return entry

    def optimize(self, fn):
        return Callable(fn, self.cache_for(fn.__code__))


class Active:
    """with Active(region): frames on this thread are offered to it."""

    def __init__(self, region):
        self.region = region

    def __enter__(self):
        self.region.cache_for(Active.__exit__.__code__).state = SKIP
        self.previous = set_region(self.region)

    def __exit__(self, *exc):
        assert set_region(self.previous) is self.region


def add(a, b):
    return "original", a + b


# ----------------------------------------------------------------------------------------------------------------------
# Calls through a Callable.


def test_miss_asks_once_then_hits():
    region = Recorder()
    f = region.optimize(add)
    assert f(1, 2) == ("compiled", 3)
    assert f(3, 4) == ("compiled", 7)
    assert region.asked == [("add", (1, 2))]
    assert f("a", "b") == ("compiled", "ab")
    assert len(region.asked) == 2
    assert [entry.hits for entry in f.cache.entries] == [0, 1]
    assert f(1, 2) == ("compiled", 3)
    assert [entry.hits for entry in f.cache.entries] == [2, 0], "most recently hit first"


def test_none_runs_the_original_each_time():
    asked = []
    region = Region(lambda cache, fn, values: asked.append(values))
    f = Callable(add, region.cache_for(add.__code__))
    assert f(1, 2) == ("original", 3)
    assert f(1, 2) == ("original", 3)
    assert asked == [(1, 2), (1, 2)]


def test_states():
    region = Recorder()
    f = region.optimize(add)
    assert f.cache.state == COMPILE
    f.cache.state = SKIP
    assert f(1, 2) == ("original", 3) and not region.asked
    f.cache.state = COMPILE
    assert f(1, 2) == ("compiled", 3)
    f.cache.state = RUN_ONLY
    assert f(1, 2) == ("compiled", 3)
    assert f("a", "b") == ("original", "ab")
    f.cache.state = RUN_ONLY_ALL
    assert f(1, 2) == ("compiled", 3)
    assert f("a", "b") == ("original", "ab")
    f.cache.state = SKIP_ALL
    assert f(1, 2) == ("original", 3)
    assert len(region.asked) == 1
    for bad in (-1, 17, "x"):
        with pytest.raises((ValueError, TypeError)):
            f.cache.state = bad


def test_exceptions_of_the_callback_propagate_and_leave_no_trace():
    class Stop(BaseException):
        pass

    def callback(cache, fn, values):
        raise (Stop if values[0] == 0 else KeyboardInterrupt)

    region = Region(callback)
    f = Callable(add, region.cache_for(add.__code__))
    other = Region(lambda cache, fn, values: None)
    with Active(other):
        for _ in range(3):
            with pytest.raises(Stop):
                f(0, 1)
            with pytest.raises(KeyboardInterrupt):
                f(1, 1)
            assert set_region(other) is other
    region.callback = lambda cache, fn, values: None
    assert f(0, 1) == ("original", 1)


def test_callback_may_be_missing_or_wrong():
    region = Region()
    f = Callable(add, region.cache_for(add.__code__))
    with pytest.raises(AttributeError):
        f(1, 2)
    region.callback = lambda cache, fn, values: 17
    with pytest.raises(TypeError, match="callback returned 17"):
        f(1, 2)
    region.callback = lambda cache, fn, values: Entry(ALWAYS, (lambda a: 0).__code__, None)
    with pytest.raises(TypeError, match="parameters differ"):
        f(1, 2)


def test_optimized_functions_called_while_compiling_run_as_they_are():
    region = Region()
    f = Callable(add, region.cache_for(add.__code__))
    region.callback = lambda cache, fn, values: seen.append(f(1, 2))
    seen = []
    assert f(3, 4) == ("original", 7)
    assert seen == [("original", 3)]


def test_same_code_under_other_globals_is_compiled_anew():
    region = Recorder()
    cache = region.cache_for(add.__code__)
    other = types.FunctionType(add.__code__, {})
    assert Callable(add, cache)(1, 2) == ("compiled", 3)
    assert Callable(other, cache)(1, 2) == ("compiled", 3)
    assert len(region.asked) == 2
    assert Callable(add, cache)(1, 2) == ("compiled", 3)
    assert len(region.asked) == 2


def test_globals_builtins_and_names_of_the_function():
    namespace = {"__builtins__": {"len": lambda x: 42}, "seen": []}
    exec("def f(x): seen.append(len(x)); return 'original', seen", namespace)
    f = Recorder().optimize(namespace["f"])
    assert f("abc") == ("compiled", [42])


def test_code_reassigned():
    def f(x):
        return "original", x

    def g(x):
        return "original", x, x

    region = Recorder()
    opt = region.optimize(f)
    assert opt(1) == ("compiled", 1)
    f.__code__ = g.__code__
    assert opt(1) == ("compiled", 1, 1)
    assert opt.cache is region.cache_for(g.__code__)


# ----------------------------------------------------------------------------------------------------------------------
# Closures.


def make_counter(start):
    total = start

    def count(n):
        nonlocal total
        total += n
        return "original", total

    return count


def test_each_call_uses_its_own_closure():
    region = Recorder()
    first, second = make_counter(0), make_counter(100)
    cache = region.cache_for(first.__code__)
    f, g = Callable(first, cache), Callable(second, cache)
    assert f(1) == ("compiled", 1)
    assert g(1) == ("compiled", 101)
    assert f(1) == ("compiled", 2)
    assert first(1) == ("original", 3)
    assert len(region.asked) == 1


def test_closure_does_not_outlive_the_function():
    class Payload:
        pass

    def make():
        payload = Payload()

        def f(n):
            return f(n - 1) if n else ("original", payload)

        return f, weakref.ref(payload)

    region = Recorder()
    for _ in range(3):
        fn, ref = make()
        assert Callable(fn, region.cache_for(fn.__code__))(0)[0] == "compiled"
        del fn
        gc.collect()
        assert ref() is None


def test_recursive_calls_with_closure():
    region = Recorder()

    def make():
        def fact(n):
            return 1 if n == 0 else n * fact(n - 1)

        fact = region.optimize(fact)
        return fact

    assert make()(20) == 2432902008176640000


def test_frames_that_survive_the_call_keep_their_closure():
    value = 17

    def f(x):
        return "original", sys._getframe(), value

    opt = Recorder().optimize(f)
    opt(0)
    _, frame, _ = opt(0)
    opt(0)
    assert frame.f_locals["value"] == 17
    assert frame.f_locals["x"] == 0


# ----------------------------------------------------------------------------------------------------------------------
# Arguments.

SIGNATURES = [
    "",
    "a",
    "a, b=2",
    "a, b=2, *rest",
    "*rest",
    "*, k",
    "*, k=3, j",
    "a, /, b, *, k=3",
    "a, b=2, /, c=3, *rest, k=4, **kw",
    "**kw",
    "a, **kw",
    "*rest, **kw",
    "a, b=[], /, **kw",
    ", ".join(f"p{i}" for i in range(20)),
    ", ".join(f"p{i}={i}" for i in range(20)) + ", *rest, k0=0, k1=1, **kw",
]

CALLS = [
    ((), {}),
    ((1,), {}),
    ((1, 2), {}),
    ((1, 2, 3, 4, 5), {}),
    ((), {"a": 1}),
    ((1,), {"b": 5}),
    ((1,), {"a": 5}),
    ((1,), {"k": 5}),
    ((1, 2), {"k": 5, "j": 6}),
    ((), {"k": 5, "j": 6, "z": 7}),
    ((1, 2, 3), {"c": 5, "z": 7, "self": 8}),
    ((1,), {"b": 5, "k": 6, "z": 7}),
    (tuple(range(20)), {}),
    (tuple(range(30)), {"k1": 5, "z": 6}),
    (tuple(range(3)), {"p7": 5, "p19": 6}),
]


def outcome(fn, args, kwargs):
    try:
        return fn(*args, **kwargs)
    except TypeError as error:
        return str(error)


@pytest.mark.parametrize("signature", SIGNATURES)
def test_arguments_are_bound_as_by_cpython(signature):
    namespace = {}
    exec(f"def f({signature}): return 'original', sorted(locals().items())", namespace)
    f = namespace["f"]
    region = Recorder()
    opt = region.optimize(f)
    for args, kwargs in CALLS * 2:
        expected, actual = outcome(f, args, kwargs), outcome(opt, args, kwargs)
        if isinstance(expected, tuple):
            assert actual == ("compiled", expected[1])
        else:
            assert actual == expected
    names = inspect.getfullargspec(f)
    for _, values in region.asked:
        assert len(values) == f.__code__.co_argcount + f.__code__.co_kwonlyargcount + bool(names.varargs) + bool(
            names.varkw
        )


def test_changed_defaults_are_honoured():
    def f(a, b=2, *, c=3):
        return "original", a, b, c

    opt = Recorder().optimize(f)
    assert opt(1) == ("compiled", 1, 2, 3)
    f.__defaults__ = (20,)
    f.__kwdefaults__["c"] = 30
    assert opt(1) == ("compiled", 1, 20, 30)
    opt.__defaults__ = (200,)
    opt.__kwdefaults__ = {"c": 300}
    assert f(1) == ("original", 1, 200, 300)
    assert opt(1) == ("compiled", 1, 200, 300)
    f.__defaults__ = f.__kwdefaults__ = None
    with pytest.raises(TypeError, match=r"missing 1 required positional argument: 'b'"):
        opt(1)


def test_keyword_names_need_not_be_interned():
    def f(alpha, *, beta):
        return "original", alpha, beta

    opt = Recorder().optimize(f)
    kwargs = {"".join(["al", "pha"]): 1, "".join(["be", "ta"]): 2}
    assert opt(**kwargs) == ("compiled", 1, 2)


# ----------------------------------------------------------------------------------------------------------------------
# Entering a resume function through its cache.


def test_cache_is_callable_with_a_function():
    region = Recorder()
    first, second = make_counter(0), make_counter(100)
    cache = region.cache_for(first.__code__)
    assert cache(first, 1) == ("compiled", 1)
    assert cache(second, 1) == ("compiled", 101)
    assert cache(first, n=1) == ("compiled", 2)
    assert len(region.asked) == 1
    for bad in ((), (1,), (add, 1)):
        with pytest.raises(TypeError):
            cache(*bad)


def test_cache_interface():
    region = Region()
    cache = region.cache_for(add.__code__)
    assert region.cache_for(add.__code__) is cache
    assert (cache.code, cache.region, cache.entries) == (add.__code__, region, ())
    assert region.caches == (cache,)
    a, b = Entry(ALWAYS, add.__code__, "owner"), Entry(ALWAYS, add.__code__, None, True)
    assert (a.guards, a.code, a.owner, a.needs_hook, a.hits) == (ALWAYS, add.__code__, "owner", False, 0)
    assert b.needs_hook
    cache.add(a)
    cache.add(b)
    assert cache.entries == (b, a)
    cache.remove(b)
    assert cache.entries == (a,)
    with pytest.raises(ValueError):
        cache.remove(b)
    cache.clear()
    assert cache.entries == ()
    with pytest.raises(TypeError):
        cache.add(17)
    with pytest.raises(TypeError):
        Cache()


def test_equal_code_objects_have_their_own_caches():
    codes = [compile("lambda x: x", "<same>", "eval").co_consts[0] for _ in range(2)]
    assert codes[0] == codes[1] and codes[0] is not codes[1]
    region = Region()
    assert region.cache_for(codes[0]) is not region.cache_for(codes[1])
    assert region.cache_for(codes[0]).code is codes[0]


def test_regions_do_not_see_each_others_caches():
    first, second = Recorder(), Recorder()
    f, g = first.optimize(add), second.optimize(add)
    assert f(1, 2) == g(1, 2) == ("compiled", 3)
    assert len(first.asked) == len(second.asked) == 1
    del f, g, first
    gc.collect()
    assert second.cache_for(add.__code__) is second.caches[0]


@pytest.mark.parametrize(
    "source",
    [
        "def f(a): return 0",
        "def f(a, b, c): return 0",
        "def f(a, *b): return 0",
        "def f(a, b, *, c): return 0",
        "def f(a, b, **kw): return 0",
        "def f(a, b): yield",
        "async def f(a, b): return 0",
        "class f: a = 0",
        "def outer():\n y = 1\n def f(a, b): return y\n",
    ],
)
def test_code_that_does_not_fit_is_refused(source):
    consts = compile(source, "<x>", "exec").co_consts
    code = next(c for c in consts if isinstance(c, types.CodeType))
    if code.co_name == "outer":
        code = next(c for c in code.co_consts if isinstance(c, types.CodeType))
    cache = Region().cache_for(add.__code__)
    with pytest.raises(ValueError, match="cannot replace the code of add"):
        cache.add(Entry(ALWAYS, code, None))


def test_keyword_only_names_and_free_variables_must_agree():
    def f(*, a, b):
        return 0

    def g(*, b, a):
        return 0

    with pytest.raises(ValueError, match="keyword-only"):
        Region().cache_for(f.__code__).add(Entry(ALWAYS, g.__code__, None))
    x = y = 0
    with pytest.raises(ValueError, match="free variables"):
        Region().cache_for((lambda: x).__code__).add(Entry(ALWAYS, (lambda: y).__code__, None))
    Region().cache_for((lambda: x).__code__).add(Entry(ALWAYS, (lambda: 0).__code__, None))


# ----------------------------------------------------------------------------------------------------------------------
# A Callable looks like its function.


@functools.lru_cache(None)
def _region():
    return Recorder()


def _wrap(fn):
    return _region().optimize(fn)


@_wrap
def documented(a: int, b="x", *, c=1) -> str:
    """A docstring."""
    return "original"


@Uncaptured
def uncaptured(a: int, b=1) -> str:
    """Another docstring."""
    return "original"


@pytest.mark.parametrize("wrapper", [documented, uncaptured])
def test_metadata(wrapper):
    fn = wrapper.__wrapped__
    for name in (
        "__name__",
        "__qualname__",
        "__doc__",
        "__module__",
        "__annotations__",
        "__defaults__",
        "__kwdefaults__",
    ):
        assert getattr(wrapper, name) == getattr(fn, name)
    for name in ("__code__", "__globals__", "__closure__"):
        assert getattr(wrapper, name) is getattr(fn, name)
    assert wrapper._torchdynamo_orig_callable is fn
    assert inspect.signature(wrapper) == inspect.signature(fn)
    assert inspect.unwrap(wrapper) is fn
    assert inspect.getdoc(wrapper) == fn.__doc__
    assert inspect.getsource(wrapper) == inspect.getsource(fn)
    assert repr(fn) in repr(wrapper)
    assert weakref.ref(wrapper)() is wrapper
    assert callable(wrapper)
    with pytest.raises(AttributeError):
        wrapper.no_such_attribute
    assert documented(1) == "compiled"


@pytest.mark.parametrize("wrapper", [documented, uncaptured])
def test_is_a_function(wrapper):
    fn = wrapper.__wrapped__
    assert inspect.isfunction(wrapper) and type(wrapper).__mro__[1:] == (types.FunctionType, object)
    assert type(wrapper).__name__ == "function" and set(dir(fn)) <= set(dir(wrapper))
    for name in ("__code__", "__globals__", "__closure__", "__name__", "__qualname__", "__builtins__"):
        assert types.FunctionType.__dict__[name].__get__(wrapper) is getattr(fn, name)
    assert types.FunctionType.__repr__(wrapper).startswith(f"<function {fn.__name__} at ")
    assert types.FunctionType.__call__(wrapper, 1) == wrapper(1)
    if hasattr(fn, "__type_params__"):
        assert wrapper.__type_params__ == ()
    wrapper.__defaults__ = fn.__defaults__
    for call in (lambda: type(wrapper)(fn.__code__, {}), lambda: type("Sub", (type(wrapper),), {})):
        with pytest.raises(TypeError):
            call()


@pytest.mark.parametrize("wrapper", [documented, uncaptured])
def test_what_only_a_static_look_finds_is_not_copied(wrapper):
    def more(a, b="x", *, c=1):
        return wrapper(a), "and more"

    target = inspect.getattr_static(wrapper, "_torchdynamo_inline")
    assert target(1) == "original" and target is wrapper._torchdynamo_inline
    assert inspect.isfunction(target) is (wrapper is documented)
    wraps = functools.wraps(wrapper)(more)
    assert not {"_torchdynamo_inline", "_torchdynamo_orig_callable", "_torchdynamo_wrapper_id"} & set(vars(wraps))
    assert "_torchdynamo_inline" not in vars(wrapper) and vars(wrapper) is wrapper.__dict__
    assert wraps(1) == (wrapper(1), "and more")


@pytest.mark.parametrize("wrap", [_wrap, Uncaptured])
def test_set_name_makes_static_and_class_methods(wrap):
    """Of wrappers themselves; it refuses arguments that `type` does not give it."""
    made = with_wrapped_methods(wrap)
    assert kinds_of_methods(made) == [staticmethod, classmethod, classmethod] and inspect.isfunction(
        vars(made)["plain"]
    )
    for arguments in ((), (made,), (made, 1), (made, "a", "b")):
        with pytest.raises(TypeError):
            vars(made)["plain"].__set_name__(*arguments)


@pytest.mark.parametrize("wrapper", [documented, uncaptured])
def test_copies_and_pickles_by_name(wrapper):
    assert copy.copy(wrapper) is wrapper
    assert copy.deepcopy([wrapper])[0] is wrapper
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(wrapper, protocol)) is wrapper


def test_uncaptured_without_a_name_pickles_its_callable():
    wrapper = pickle.loads(pickle.dumps(Uncaptured(functools.partial(max, 1))))
    assert type(wrapper) is Uncaptured and wrapper(5) == 5


def test_attributes_can_be_set_without_touching_the_function():
    def f():
        "doc"

    f.tag = [1]
    f.__wrapped__ = len
    opt = Recorder().optimize(f)
    assert opt.tag is f.tag
    assert opt.__wrapped__ is f
    opt.tag = 2
    opt.__name__ = "other"
    opt.__doc__ = "other doc"
    opt.__wrapped__ = max
    assert (f.tag, f.__name__, f.__doc__, f.__wrapped__) == ([1], "f", "doc", len)
    assert (opt.tag, opt.__name__, opt.__doc__, opt.__wrapped__) == (2, "other", "other doc", max)
    del opt.__name__, opt.__wrapped__
    assert opt.__name__ == "f" and opt.__wrapped__ is f
    f.late = 3
    assert opt.late == 3
    assert functools.wraps(opt)(lambda: 0).__wrapped__ is opt
    assert vars(opt)["tag"] == 2
    Uncaptured(f).late = 4
    assert f.late == 3


def test_as_method_classmethod_staticmethod_property():
    region = Recorder()

    class A:
        @region.optimize
        def method(self, x):
            return "original", self, x

        @classmethod
        @region.optimize
        def cls_method(cls, x):
            return "original", cls, x

        @staticmethod
        @region.optimize
        def static(x):
            return "original", x

        @property
        @region.optimize
        def prop(self):
            return "original", self

        @region.optimize
        def __getitem__(self, i):
            return "original", i

        @region.optimize
        def __getattr__(self, name):
            return "original", name

        @region.optimize
        def __call__(self, x):
            return "original", x

        @Uncaptured
        def off(self, x):
            return self, x

        off_static = Uncaptured(staticmethod(lambda x: x))
        off_class = Uncaptured(classmethod(lambda cls, x: (cls, x)))
        off_builtin = Uncaptured(len)

    a = A()
    for _ in range(64):  # the instructions specialise; some then run the code of a function without a call
        assert a[2] == ("compiled", 2) and a.missing == ("compiled", "missing") and a(3) == ("compiled", 3)
        assert a.method(1) == ("compiled", a, 1) == A.method(a, 1)
        assert A.cls_method(1) == ("compiled", A, 1) == a.cls_method(1)
        assert A.static(1) == ("compiled", 1) == a.static(1)
        assert a.prop == ("compiled", a)
        assert a.off(1) == (a, 1) == A.off(a, 1)
        assert a.off_static(1) == 1 == A.off_static(1)
        assert a.off_class(1) == (A, 1)
        assert a.off_builtin("ab") == 2
    assert isinstance(a.method, types.MethodType)
    assert str(inspect.signature(a.method)) == "(x)"


def test_wrappers_check_their_arguments():
    region = Region()
    with pytest.raises(ValueError):
        Callable(add, region.cache_for(make_counter.__code__))
    with pytest.raises(TypeError):
        Callable(len, region.cache_for(add.__code__))
    with pytest.raises(TypeError):
        Uncaptured(17)
    with pytest.raises(TypeError):
        set_region(17)


# ----------------------------------------------------------------------------------------------------------------------
# The hook.


def leaf(x):
    return "original", x


def caller(x):
    return leaf(x)


def test_inner_frames_are_offered_and_swapped():
    region = Recorder()
    with Active(region):
        assert caller(1) == ("compiled", 1)
        assert caller(1) == ("compiled", 1)
        assert caller("s") == ("compiled", "s")
    assert region.asked == [("caller", (1,)), ("leaf", (1,)), ("caller", ("s",)), ("leaf", ("s",))]
    assert caller(1) == ("original", 1)
    assert [entry.hits for entry in region.cache_for(leaf.__code__).entries] == [0, 1]


def test_needs_hook_decides_whether_inner_frames_are_offered():
    region = Recorder(needs_hook=False)
    assert region.optimize(caller)(1) == ("original", 1)
    region = Recorder(needs_hook=True)
    opt = region.optimize(caller)
    assert opt(1) == opt(1) == ("compiled", 1)
    assert [name for name, _ in region.asked] == ["caller", "leaf"]
    assert set_region(None) is None
    assert leaf(1) == ("original", 1)


def test_region_is_restored_after_an_exception():
    def fail(x):
        raise KeyError(x)

    region = Recorder(needs_hook=True)
    opt = region.optimize(fail)
    for _ in range(3):
        with pytest.raises(KeyError):
            opt(1)
        assert set_region(None) is None


def test_the_original_offers_inner_frames_but_not_itself():
    region = Recorder()
    opt = region.optimize(caller)
    states = (SKIP, "compiled"), (RUN_ONLY, "compiled"), (SKIP_ALL, "original"), (RUN_ONLY_ALL, "original")
    for state, expected in states:
        opt.cache.state = state
        assert opt(1) == (expected, 1)
        assert set_region(None) is None
    assert [name for name, _ in region.asked] == ["leaf"]


def test_skip_states_in_the_hook():
    region = Recorder()
    region.cache_for(caller.__code__).state = SKIP
    with Active(region):
        assert caller(1) == ("compiled", 1)
        region.cache_for(caller.__code__).state = SKIP_ALL
        assert caller(1) == ("original", 1)
        assert caller(1) == ("original", 1)
        for state, expected in ((RUN_ONLY, "compiled"), (RUN_ONLY_ALL, "original")):
            region.cache_for(caller.__code__).state = state
            assert caller(1) == (expected, 1)
    assert [name for name, _ in region.asked] == ["leaf"]


def test_uncaptured_switches_the_region_off():
    region = Recorder()
    off = Uncaptured(caller)
    with Active(region):
        assert off(1) == ("original", 1)
        assert set_region(region) is region
        with pytest.raises(TypeError):
            off()
        assert set_region(region) is region
    assert region.asked == []


def test_replacement_code_is_never_offered():
    region = Recorder(needs_hook=True)
    with Active(region):
        opt = region.optimize(add)
        assert opt(1, 2) == opt(1, 2) == ("compiled", 3)
    assert len(region.asked) == 1


def test_an_entry_may_keep_the_original_code():
    """Guards that say: for these arguments there is nothing to gain."""
    checked = []

    def predicate(x):
        checked.append(x)
        return True

    program = GuardProgram((((KINDS["LOCAL"], 0, ((KINDS["PYTHON"], predicate, 0),), ()),), (), 0))

    def callback(cache, fn, values):
        asked.append(fn.__name__)
        cache.add(Entry(program, fn.__code__, None, True))
        return cache.entries[0]

    asked = []
    region = Region(callback)
    opt = Callable(caller, region.cache_for(caller.__code__))
    for _ in range(3):
        assert opt(1) == ("original", 1)
    assert asked == ["caller", "leaf"]
    assert len(checked) == 4, "once for each later call of each function"
    with Active(region):
        assert caller(2) == ("original", 2)
    count = make_counter(0)
    opt = Callable(count, region.cache_for(count.__code__))
    assert [opt(1)[1], opt(1)[1], opt(n=1)[1]] == [1, 2, 3]


def test_guards_run_with_the_region_off():
    def predicate(x):
        return helper(x)

    def helper(x):
        return True

    program = GuardProgram((((KINDS["LOCAL"], 0, ((KINDS["PYTHON"], predicate, 0),), ()),), (), 0))

    def callback(cache, fn, values):
        asked.append(fn.__name__)
        entry = Entry(program, marked(fn.__code__, "compiled"), None)
        cache.add(entry)
        return entry

    asked = []
    region = Region(callback)
    with Active(region):
        results = [leaf(1), leaf(2)]
    assert results == [("compiled", 1), ("compiled", 2)]
    assert asked == ["leaf"]


def test_callback_errors_in_the_hook():
    class Boom(Exception):
        pass

    def callback(cache, fn, values):
        cache.state = SKIP
        if fn.__name__ == "leaf":
            cache.state = COMPILE
            raise Boom

    with Active(Region(callback)):
        for _ in range(100):
            with pytest.raises(Boom) as info:
                caller(1)
    names = [frame.name for frame in traceback.extract_tb(info.value.__traceback__)]
    assert names == ["test_callback_errors_in_the_hook", "caller", "callback"]


def test_generators_coroutines_and_classes_are_left_alone():
    def gen(n):
        for i in range(n):
            yield leaf(i)

    async def coro(n):
        return leaf(n)

    region = Recorder()
    with Active(region):
        assert list(gen(2)) == [("compiled", 0), ("compiled", 1)]
        c = coro(1)
        with pytest.raises(StopIteration) as info:
            c.send(None)
        assert info.value.value == ("compiled", 1)

        class A:
            x = leaf(5)

    assert A.x == ("compiled", 5)
    assert {name for name, _ in region.asked} == {"leaf"}


def test_all_argument_shapes_through_the_hook():
    for signature in SIGNATURES:
        namespace = {}
        exec(f"def f({signature}): return 'original', sorted(locals().items())", namespace)
        f = namespace["f"]
        region = Recorder()
        for args, kwargs in CALLS * 2:
            expected = outcome(f, args, kwargs)
            with Active(region):
                actual = outcome(f, args, kwargs)
            if isinstance(expected, tuple):
                expected = ("compiled", expected[1])
            assert actual == expected


def test_cells_closures_and_super():
    class Base:
        def m(self, x):
            return "original", x

    class Derived(Base):
        def m(self, x):
            def inner():
                return x + 1

            return super().m(inner())

    region = Recorder()
    with Active(region):
        for _ in range(3):
            assert Derived().m(1) == ("compiled", 2)
            count = make_counter(5)
            assert count(1) == ("compiled", 6) and count(1) == ("compiled", 7)


def test_a_tracer_sees_the_original():
    lines = []

    def tracer(frame, event, arg):
        if frame.f_code is leaf.__code__:
            lines.append(event)
        return tracer

    region = Recorder()
    with Active(region):
        assert leaf(1) == ("compiled", 1)
        sys.settrace(tracer)
        try:
            assert leaf(1) == ("original", 1)
        finally:
            sys.settrace(None)
        assert leaf(1) == ("compiled", 1)
    assert lines == ["call", "line", "return"]


def test_profiler_sees_one_call():
    region = Recorder()
    events = []
    with Active(region):
        leaf(1)
        sys.setprofile(lambda frame, event, arg: events.append(event) if frame.f_code.co_name == "leaf" else None)
        try:
            leaf(1)
        finally:
            sys.setprofile(None)
    assert events == ["call", "return"]


def test_code_that_the_interpreter_calls_is_not_captured():
    """A profiler and an audit hook are called by the interpreter, not by the program."""
    source = """
        import sys
        from dynamo_lite._eval_frame import Region, set_region
        asked = []
        def f():
            pass
        def profiler(frame, event, arg):
            f()
        def audit(event, args):
            f()
        def callback(cache, fn, values):
            asked.append(fn.__name__)
            cache.state = 1
        sys.addaudithook(audit)
        set_region(Region(callback))
        sys.audit("test")
        sys.setprofile(profiler)
        id(0)
        sys.setprofile(None)
        seen = list(asked)
        f()
        set_region(None)
        print(seen, asked)
    """
    assert _run(source) == "[] ['f']"


BIGGER = textwrap.dedent("""
    def f(n, depth):
        if depth:
            return f(n, depth - 1)
        return 'original'
    def g(n, depth):
        a = b = c = d = e = h = i = j = k = l = m = o = 0
        if depth:
            return f(n, depth - 1) + str((a, (b, (c, (d, (e, (h, (i, (j, (k, (l, (m, o))))))))))))[:0]
        return 'compiled'
""")


def test_bigger_frames_find_room_at_every_depth():
    namespace = {}
    exec(BIGGER, namespace)
    f, g = namespace["f"], namespace["g"]

    def callback(cache, fn, values):
        if fn is not f:
            cache.state = SKIP
            return None
        entry = Entry(ALWAYS, g.__code__, None)
        cache.add(entry)
        return entry

    region = Region(callback)
    with Active(region):
        results = {f(1, depth)[:8] for depth in range(300)}
    assert results == {"compiled"}
    hits = region.cache_for(f.__code__).entries[0].hits
    assert hits == sum(range(1, 301)) - 1


def test_the_first_frame_is_already_big_enough():
    """It was pushed before its code was known to need a bigger one."""
    namespace = {}
    exec(
        f"def f(x): return 'original', leaf(x)\ndef leaf(x): return [x, [x, [x]]]\n"
        f"def g(x): return [{'x, ' * 60} leaf(x), leaf(leaf(x)), 'compiled']",
        namespace,
    )
    f, g = namespace["f"], namespace["g"]

    def callback(cache, fn, values):
        if fn is not f:
            cache.state = SKIP
            return None
        cache.add(Entry(ALWAYS, g.__code__, None))
        return cache.entries[0]

    expected = g("x")
    with Active(Region(callback)):
        results = [f("x"), f("x")]
    assert results == [expected, expected]


@pytest.mark.parametrize("limit", [1000, 5000])
def test_recursion_limit_is_pythons_own(limit):
    source = f"""
        import sys
        from dynamo_lite._eval_frame import Region, set_region
        sys.setrecursionlimit({limit})
        deepest = 0
        def f(n):
            global deepest
            deepest = n
            f(n + 1)
        def callback(cache, fn, values):
            cache.state = 1
        set_region(Region(callback))
        try:
            f(0)
        except RecursionError:
            print(deepest)
    """
    deepest = int(_run(source))
    assert limit - 20 < deepest < limit


def test_very_deep_recursion_does_not_overflow_the_c_stack():
    source = """
        import sys
        from dynamo_lite._eval_frame import Region, set_region
        sys.setrecursionlimit(200_000)
        def f(n):
            return f(n - 1) if n else "done"
        def callback(cache, fn, values):
            cache.state = 1
        set_region(Region(callback))
        try:
            print(f(150_000))
        except RecursionError:
            print("RecursionError")
    """
    assert _run(source) == "done" or sys.version_info >= (3, 12)


def _run(source):
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(source)], capture_output=True, text=True, timeout=120, check=False
    )
    assert result.returncode == 0, result.stderr[-2000:]
    return result.stdout.strip()


def test_frames_and_tracebacks_of_swapped_code():
    def f(x):
        y = x + 1
        raise ValueError(sys._getframe(), y)

    region = Recorder()
    frames = []
    with Active(region):
        for _ in range(5):
            try:
                f(1)
            except ValueError as error:
                frames.append((error.args[0], error.__traceback__))
    for frame, tb in frames:
        assert frame.f_locals["y"] == 2
        assert [t.name for t in traceback.extract_tb(tb)][-1] == "f"
        assert len(traceback.extract_tb(tb)) == 2


# ----------------------------------------------------------------------------------------------------------------------
# Threads.


def test_regions_are_per_thread():
    region = Recorder()
    results = {}
    ready, go = threading.Event(), threading.Event()

    def other():
        results["inactive"] = caller(1)
        ready.set()
        go.wait(10)
        results["still inactive"] = caller(1)

    thread = threading.Thread(target=other)
    with Active(region):
        thread.start()
        ready.wait(10)
        assert caller(1) == ("compiled", 1)
        go.set()
        thread.join()
    assert results == {"inactive": ("original", 1), "still inactive": ("original", 1)}


def test_many_threads_toggle_and_call():
    region = Recorder(needs_hook=True)
    opt = region.optimize(caller)
    assert opt(1)[1] == 1
    failures = []

    def work():
        for i in range(2000):
            if opt(i) != ("compiled", i):
                failures.append(i)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


# ----------------------------------------------------------------------------------------------------------------------
# Lifetimes.


def test_everything_dies_with_the_region():
    class Payload:
        pass

    def make():
        payload, region = Payload(), Recorder()

        def f(x):
            return "original", x, payload

        opt = region.optimize(f)
        opt(1)
        opt.self_reference = opt
        region.payload = payload
        region.keep = opt
        refs = [weakref.ref(payload), weakref.ref(region), weakref.ref(opt), weakref.ref(f)]
        return refs

    refs = make()
    gc.collect()
    assert [ref() for ref in refs] == [None] * 4


def test_cycle_through_the_constants_of_replacement_code_is_collected():
    class Graph:
        def __call__(self, x):
            return x

    def make():
        region = Recorder()
        graph = Graph()
        graph.region = region  # Region -> Cache -> Entry -> code -> constants -> Graph -> Region

        def callback(cache, fn, values):
            entry = Entry(ALWAYS, marked(fn.__code__, graph), None)
            cache.add(entry)
            return entry

        class Local(Region):
            pass

        local = Local(callback)
        graph.region = local

        def f(x):
            return "original"

        opt = Callable(f, local.cache_for(f.__code__))
        assert opt(1) is graph
        assert opt(1) is graph
        return weakref.ref(graph)

    ref = make()
    gc.collect()
    assert ref() is None


def test_constants_live_as_long_as_somebody_may_run_them():
    class Graph:
        pass

    graph = Graph()
    ref = weakref.ref(graph)

    def f():
        return "original"

    def make(graph):
        entry = Entry(ALWAYS, marked(f.__code__, graph), None)
        region = Region()
        region.callback = region  # a cycle that only the collector can free
        region.cache_for(f.__code__).add(entry)
        return entry.code

    code = make(graph)
    del graph
    gc.collect()
    assert ref() is not None
    assert types.FunctionType(code, {})() is ref()
    del code
    gc.collect()
    assert ref() is None


def test_entry_may_be_removed_while_it_runs():
    region = Region()

    def f(x):
        region.cache_for(f.__code__).clear()
        gc.collect()
        return x

    def callback(cache, fn, values):
        cache.add(Entry(ALWAYS, fn.__code__, None))
        return cache.entries[0]

    region.callback = callback
    opt = Callable(f, region.cache_for(f.__code__))
    assert [opt(i) for i in range(5)] == list(range(5))


def test_guards_may_change_the_cache():
    region = Region()

    def f(x):
        return "original"

    def clear(x):
        region.cache_for(f.__code__).clear()
        return x == 2

    cache = region.cache_for(f.__code__)
    program = GuardProgram((((KINDS["LOCAL"], 0, ((KINDS["PYTHON"], clear, 0),), ()),), (), 0))
    region.callback = lambda cache, fn, values: None
    for x, expected in ((1, "original"), (2, "compiled")):
        for _ in range(3):
            cache.add(Entry(program, marked(f.__code__, "compiled"), None))
        assert Callable(f, cache)(x) == expected


def _soak(step, calls):
    """Memory growth over many calls, in allocated blocks."""
    for _ in range(2000):
        step()
    gc.collect()
    before = sys.getallocatedblocks()
    for _ in range(calls):
        step()
    gc.collect()
    return sys.getallocatedblocks() - before


def test_no_leaks_in_calls():
    region = Recorder(needs_hook=True)
    opt = region.optimize(caller)
    count = make_counter(0)
    counter_cache = region.cache_for(count.__code__)

    def varied(a, b=2, *rest, c=3, **kw):
        return "original"

    varied = region.optimize(varied)

    def failing(cache, fn, values):
        if fn is add:
            raise KeyError

    bad = Region(failing)
    bad_call = Callable(add, bad.cache_for(add.__code__))
    arguments = [object() for _ in range(3)]

    def step():
        opt(1)
        counter_cache(count, 0)
        varied(1, 2, *arguments, c=4, z=5)
        varied(1)
        with _Swallow():
            varied()
        with _Swallow():
            bad_call(1, 2)
        with Active(bad), _Swallow():
            add(1, 2)

    step()
    references = [sys.getrefcount(x) for x in (*arguments, None, caller, caller.__code__, count, region)]
    growth = _soak(step, 1_000_000 if LONG else 5_000)
    assert growth < 50
    after = [sys.getrefcount(x) for x in (*arguments, None, caller, caller.__code__, count, region)]
    assert after[:3] == references[:3] and after[4] == references[4]
    assert abs(after[5] - references[5]) < 5 and abs(after[7] - references[7]) < 20


class _Swallow:
    def __enter__(self):
        pass

    def __exit__(self, kind, value, tb):
        return kind is not None and issubclass(kind, (TypeError, KeyError))


def test_no_leaks_in_regions():
    def step():
        region = Recorder()
        assert region.optimize(add)(1, 2) == ("compiled", 3)
        assert region.optimize(make_counter(0))(1)[0] == "compiled"

    assert _soak(step, 20_000 if LONG else 300) < 50


def test_the_stub_names_what_the_extension_defines():
    stub = ast.parse((pathlib.Path(_eval_frame.__file__).parent / "_eval_frame.pyi").read_text())
    named = {node.name for node in stub.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    named |= {node.target.id for node in stub.body if isinstance(node, ast.AnnAssign)}
    assert named == {name for name in vars(_eval_frame) if not name.startswith("__")}
