"""Type expressions inside of captured functions: every form of `typing` and of generic aliases, between two operators of one graph."""

import collections
import collections.abc
import functools
import re
import sys
import types
import typing

import pytest

torch = pytest.importorskip("torch")

import dynamo_lite  # noqa: E402
from dynamo_lite.testing import CompileCounter, run_both  # noqa: E402

T = typing.TypeVar("T")
P = typing.ParamSpec("P")
Ts = typing.TypeVarTuple("Ts")


class Box(typing.Generic[T]):
    def __init__(self, value):
        self.value = value


class Ints(Box[int]):
    pass


class HasF(typing.Protocol[T]):
    def f(self) -> T: ...


class Record(typing.TypedDict):
    a: int


FORMS = """
Callable[[T], T]; Callable[[int], torch.Tensor]; Callable[..., int]; Callable[[], None]; Callable[P, T]; Callable[Concatenate[int, P], T]
collections.abc.Callable[[T], T]; collections.abc.Callable[..., T]; collections.abc.Callable[P, T]; collections.abc.Callable[[T], T][int]
Callable[P, T][[int, str], int]; Callable[[T], T][int]; Callable[[T], T].__args__; Callable[[T], T].__parameters__
get_args(Callable[[int], str]); get_origin(Callable[[int], str]); repr(Callable[[int], str]); Callable[[T], T] == Callable[[T], T]
list[T]; dict[str, T]; tuple[T, ...]; tuple[()]; List[T]; Dict[str, int]; Tuple[T, ...]; Tuple[()]; Optional[T]; Union[int, T]; int | None
T | None; list[int] | None; Annotated[int, 3]; Annotated[T, "a", 4]; Literal["a", 2]; Literal[True]; Type[T]; type[T]; Set[int]
FrozenSet[int]; frozenset[int]; set[T]; Sequence[T]; collections.abc.Sequence[T]; Mapping[str, T]; Iterable[T]; Generator[int, None, T]
Deque[int]; DefaultDict[str, int]; collections.defaultdict[str, int]; collections.deque[int]; ClassVar[int]; Final[int]; Required[int]
Unpack[tuple[int, ...]]; Unpack[Ts]; tuple[Unpack[Ts]]; tuple[*Ts]; TypeGuard[int]; Union["int", str]; List["Foo"]; list["Foo"]
Pattern[str]; re.Pattern[str]; IO[str]; ContextManager[T]; SupportsInt; Any; Self; Never; AnyStr
Box[int]; Box[T]; Box[T][int]; Ints; HasF[int]; Generic[T]; Protocol[T]; Generic[*Ts]; list[T][int]; Dict[str, T][int]; Union[T, int][str]
Annotated[T, 3][int]; Annotated[int, 3].__metadata__; Box[int].__origin__; Box.__parameters__; Box.__class_getitem__(int); Box[int].__name__
list.__class_getitem__(int); types.GenericAlias(list, (int,)); functools.partial[int](int, 3)(); {List[int]: 3}[List[int]]; [*List[int]]
NewType("N", int)(3); cast(int, 3); get_args(Box[int]); get_origin(list[int]); is_typeddict(Record); Record(a=3); final(Ints)
list[int](); dict[str, int](a=3); Box[int](3).value; Box[int](3).__orig_class__; collections.defaultdict[str, int](list)
isinstance(3, Union[int, str]); isinstance(3, Optional[int]); isinstance(len, Callable); isinstance(3, SupportsInt)
"""


NAMESPACE = {
    **vars(typing),
    **{module.__name__: module for module in (collections, functools, re, torch, types)},
    **{"T": T, "P": P, "Ts": Ts, "Box": Box, "Ints": Ints, "HasF": HasF, "Record": Record},
}


@pytest.mark.parametrize("form", [form.strip() for form in FORMS.replace("\n", ";").split(";") if form.strip()])
def test_form(form):
    namespace = dict(NAMESPACE)
    exec(f"def f(x):\n    y = x + 1\n    form = {form}\n    return y * 2, form", namespace)
    counter = CompileCounter()
    tensor, found = dynamo_lite.compile(namespace["f"], backend=counter)(torch.ones(3))
    expected = namespace["f"](torch.ones(3))[1]
    assert found == expected and type(found) is type(expected) and repr(found) == repr(expected)
    assert torch.equal(tensor, torch.full((3,), 4.0))
    assert (counter.frame_count, counter.op_count) == (1, 2)


def test_lists_that_stay_in_the_alias_break():
    """`Annotated` keeps the very list."""

    def f(x):
        note = [3]
        form = typing.Annotated[int, note]
        note.append(4)
        return x * 2, form.__metadata__, form.__metadata__[0] is note

    run = run_both(f, torch.ones(3))
    assert [b.slug for b in run.breaks] == ["call-c-function"]


def test_annotations_of_functions_made_inside():
    def f(x):
        y = x + 1

        def call(g: typing.Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
            return g(*args, **kwargs)

        def first(v: list[T], g: typing.Callable[[T], T], z: typing.Concatenate[int, P] = None) -> T | None:
            return g(v[0])

        return call(lambda q: q * 2, y), first([y], lambda q: q + 3), first.__annotations__

    run = run_both(f, torch.ones(3))
    assert run.graph_count == 1 and not run.breaks


def test_annotations_are_kept_with_what_makes_them():
    """From 3.14 on they are made when they are first asked for; an assignment to either takes the other away."""

    def f(x):
        def g(v: list[int]) -> float:
            return v

        kept = g.__annotations__
        h = functools.wraps(g)(lambda v: v)
        return x + 1, g, kept, h, h.__annotations__

    compiled = dynamo_lite.compile(f, backend=(counter := CompileCounter()), fullgraph=True)
    y, g, kept, h, copied = compiled(torch.ones(3))
    assert counter.frame_count == 1 and torch.equal(y, torch.full((3,), 2.0))
    assert g.__annotations__ is kept == {"v": list[int], "return": float}
    assert h.__annotations__ is copied == kept
    assert getattr(g, "__annotate__", lambda form: kept)(1) == kept


def test_iteration_over_what_is_not_iterable():
    def f(x):
        try:
            iter(T)
        except TypeError as error:
            return x + 1, str(error)

    run = run_both(f, torch.ones(3))
    assert run.graph_count == 1 and not run.breaks


def test_tree_map_only_is_one_graph():
    from torch.utils._pytree import tree_map_only

    def f(x):
        y = x + 1
        return tree_map_only(torch.Tensor, lambda t: t * 2, {"a": [y, 3], "b": (x,)}), tree_map_only(int, abs, [y, -3])

    run = run_both(f, torch.ones(3))
    assert run.graph_count == 1 and not run.breaks


TEMPLATES = """
def f(x):
    n = 3
    template = t"a{n}b{n!r:>5}{x}"
    first, second, third = template.interpolations
    return x + len(template.strings), first.value, second.conversion, second.format_spec, third.expression, template.strings
"""


@pytest.mark.skipif(sys.version_info < (3, 14), reason="template strings")
def test_template_strings():
    names = {}
    exec(TEMPLATES, names)
    assert {b.slug for b in run_both(names["f"], torch.ones(3)).breaks} == {"call-c-function"}
