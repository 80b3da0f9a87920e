"""Small programs that are called with inputs that vary.

Each function here makes a program anew: the function to compile and the arguments of its calls, eight or more. What a program keeps between
calls (a counter, a module, hooks) belongs to it alone, so that it runs the same each time it is made.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
from collections import OrderedDict, deque, namedtuple
from collections.abc import Callable, Iterator
from typing import Annotated, Any, get_args

import numpy as np
import torch
from torch import nn
from torch._dynamo import graph_break

Program = tuple[Callable[..., Any], list[tuple[Any, ...]]]

PROGRAMS: dict[str, Callable[[], Program]] = {}


def program(make: Callable[[], Program]) -> Callable[[], Program]:
    PROGRAMS[make.__name__] = make
    return make


def rows(*sizes: int) -> torch.Tensor:
    return torch.arange(1.0, 1 + torch.Size(sizes).numel()).reshape(sizes) / 7


NUMBERS = range(2, 12)


def with_numbers(f: Callable[..., Any], *numbers: Any, sizes: tuple[int, ...] = (16, 4)) -> Program:
    """Calls of `f` with one tensor and each of the numbers."""
    x = rows(*sizes)
    return f, [(x, *(n if type(n) is tuple else (n,))) for n in numbers or NUMBERS]


def with_sizes(f: Callable[..., Any], *sizes: Any) -> Program:
    """Calls of `f` with tensors of these sizes."""
    return f, [(rows(*(n if type(n) is tuple else (n, 4))),) for n in sizes or NUMBERS]


# ----------------------------------------------------------------------------------------------------------------------
# Positions and slices by numbers.


@program
def position():
    return with_numbers(lambda x, i: x[i] * 2)


@program
def position_from_the_end():
    return with_numbers(lambda x, i: x[i] * 2, *range(-10, -1))


@program
def position_of_either_sign():
    return with_numbers(lambda x, i: x[i] * 2, 3, -3, 5, -7, 2, -2, 9, -8, 4)


@program
def position_in_the_last_dimension():
    return with_numbers(lambda x, i: x[..., i] + 1, sizes=(4, 16))


@program
def position_and_slice():
    return with_numbers(lambda x, i: x[i, 1:3] * 2)


@program
def position_and_none():
    return with_numbers(lambda x, i: x[None, i] * 2)


@program
def two_positions():
    return with_numbers(lambda x, i, j: x[i, j] * 2, *[(i, 13 - i) for i in NUMBERS], sizes=(16, 16))


@program
def position_times_number():
    return with_numbers(lambda x, i: x[i] * i)


@program
def position_plus_one():
    return with_numbers(lambda x, i: x[i] - x[i + 1])


@program
def select():
    return with_numbers(lambda x, i: x.select(0, i) * 2)


@program
def select_from_the_end():
    return with_numbers(lambda x, i: x.select(0, -i) * 2)


@program
def index_select():
    return with_numbers(lambda x, i: torch.index_select(x, 0, torch.tensor([i, i + 1])))


@program
def stored_position():
    def f(x, i):
        y = torch.zeros(16, 4)
        y[i] = x[0]
        return y

    return with_numbers(f)


@program
def stored_slice():
    def f(x, i):
        y = torch.zeros(16, 4)
        y[:i] = x[:i] * 2
        return y

    return with_numbers(f)


@program
def slice_to():
    return with_numbers(lambda x, i: x[:i] * 2)


@program
def slice_from():
    return with_numbers(lambda x, i: x[i:] * 2)


@program
def slice_between():
    return with_numbers(lambda x, a, b: x[a:b] * 2, *[(i, i + 3 + i % 2) for i in NUMBERS])


@program
def slice_to_the_end_but():
    return with_numbers(lambda x, i: x[:-i] * 2)


@program
def slice_of_the_last():
    return with_numbers(lambda x, i: x[-i:] * 2)


@program
def slice_between_from_the_end():
    return with_numbers(lambda x, i: x[-i - 3 : -i] * 2)


@program
def slice_of_window():
    return with_numbers(lambda x, i: x[i : i + 4].sum(0))


@program
def slice_with_step():
    return with_numbers(lambda x, i: x[::i] * 2, sizes=(64, 4))


@program
def slice_object():
    return with_numbers(lambda x, s: x[s] * 2, *[slice(i, i + 3) for i in NUMBERS])


@program
def slice_beyond_the_end():
    return with_numbers(lambda x, i: x[: 2 * i].sum(), *range(4, 14))


@program
def narrow():
    return with_numbers(lambda x, i: x.narrow(0, i, 3) * 2)


@program
def narrow_of_lengths():
    return with_numbers(lambda x, i: torch.narrow(x, 0, 1, i) * 2)


@program
def split_size():
    return with_numbers(lambda x, i: torch.cat([p.sum(0) for p in x.split([i, 16 - i])]))


@program
def roll():
    return with_numbers(lambda x, i: x.roll(i, 0))


@program
def roll_back():
    return with_numbers(lambda x, i: x.roll(-i, 0) + 1)


@program
def pad():
    return with_numbers(lambda x, i: nn.functional.pad(x, (0, i)))


@program
def expand():
    return with_numbers(lambda x, i: x[:1].expand(i, 4) * 2)


@program
def repeat():
    return with_numbers(lambda x, i: x.repeat(i, 1))


@program
def arange():
    return with_numbers(lambda x, i: x[0, 0] + torch.arange(i))


@program
def arange_between():
    return with_numbers(lambda x, i: x[0, 0] + torch.arange(i, 2 * i))


@program
def zeros():
    return with_numbers(lambda x, i: torch.zeros(i, 4) + x[0])


@program
def full():
    return with_numbers(lambda x, i: torch.full((4,), i) + x[0])


@program
def view_of_parts():
    return with_numbers(lambda x, i: x.reshape(i, -1).sum(1), *[2, 4, 8, 16, 32, 2, 4, 8], sizes=(16, 32))


@program
def tril_diagonal():
    return with_numbers(lambda x, i: x.tril(i), *range(-6, 6), sizes=(8, 8))


@program
def causal_mask():
    return with_numbers(lambda x, start: torch.arange(16)[None, :] <= torch.arange(start, start + 4)[:, None], *NUMBERS)


@program
def cache_position():
    def f(cache, x, position):
        cache[:, position : position + 1] = x
        return cache[:, : position + 1].sum(1)

    return f, [(rows(2, 16, 4), rows(2, 1, 4), n) for n in NUMBERS]


# ----------------------------------------------------------------------------------------------------------------------
# Numbers beside tensors.


@program
def number_and_size():
    return (lambda x, n: x * n), [(rows(n, 4), 20 - n) for n in NUMBERS]


@program
def number_that_is_the_size():
    return (lambda x, n: x.sum() * n), [(rows(n, 4), n) for n in NUMBERS]


@program
def number_and_size_in_turn():
    return (lambda x, n: x * n), [(rows(5 + i // 2, 4), 3 + (i + 1) // 2) for i in range(10)]


@program
def float_and_size():
    return (lambda x, n: x * n), [(rows(n, 4), n / 3) for n in NUMBERS]


@program
def two_sizes():
    return (lambda x, y: x.sum(0) + y.sum(0)), [(rows(n, 4), rows(14 - n, 4)) for n in NUMBERS]


@program
def sizes_one_after_the_other():
    sizes = [(5, 4), (6, 4), (7, 4), (7, 5), (7, 6), (8, 6), (9, 7), (10, 8), (5, 4)]
    return with_sizes(lambda x: x.sum(0) + x.size(1), *sizes)


@program
def branch_on_a_size():
    return with_sizes(lambda x: x * 2 if x.size(0) > 6 else x * 3)


@program
def branch_on_a_number():
    return with_numbers(lambda x, n: x * n if n > 6 else x - n)


@program
def zero_and_one():
    return with_numbers(lambda x, n: x * n, 0, 1, 2, 3, 0, 1, 4, 5, -1, -2)


@program
def negative_numbers():
    return with_numbers(lambda x, n: x * n, *range(-5, 6))


@program
def keyword():
    def f(x, *, n=3):
        return x * n

    return (lambda x, n: f(x, n=n)), [(rows(3), n) for n in NUMBERS]


@program
def optional_number():
    return with_numbers(lambda x, n: x if n is None else x * n, None, 2, None, 3, 4, None, 5, 6, 7)


@program
def bool_that_varies():
    return with_numbers(lambda x, b: x * 2 if b else x * 3, True, False, True, True, False, False, True, False)


@program
def text_that_varies():
    return with_numbers(lambda x, s: x.add(1) if s == "add" else x.mul(2), *["add", "mul"] * 4)


# ----------------------------------------------------------------------------------------------------------------------
# Numbers in containers.


@program
def list_of_ints():
    return with_numbers(lambda x, ns: x * ns[0] + ns[1], *[[n, 20 - n] for n in NUMBERS])


@program
def tuple_of_ints():
    f, x = (lambda x, ns: x * ns[0] + ns[1]), rows(4)
    return f, [(x, (n, 20 - n)) for n in NUMBERS]


@program
def dict_of_ints():
    return with_numbers(lambda x, d: x * d["a"] + d["b"], *[{"a": n, "b": 20 - n} for n in NUMBERS])


@program
def nested_ints():
    return with_numbers(lambda x, d: x * d["a"][0] + d["b"][1]["c"], *[{"a": [n], "b": (0, {"c": n})} for n in NUMBERS])


@program
def one_of_many_ints():
    return with_numbers(lambda x, ns: x * sum(ns), *[[3, 4, n, 6] for n in NUMBERS])


@program
def sizes_in_a_list():
    return with_numbers(lambda x, ns: [p * 2 for p in x.split(ns)], *[[n, 16 - n] for n in NUMBERS])


@program
def shape_in_a_tuple():
    f, x = (lambda x, shape: torch.ones(shape) + x), rows(1)
    return f, [(x, (n, 20 - n)) for n in NUMBERS]


@program
def named_tuple_of_ints():
    Pair = namedtuple("Pair", "a b")
    f, x = (lambda x, p: x * p.a + p.b), rows(4)
    return f, [(x, Pair(n, n + 1)) for n in NUMBERS]


@program
def dataclass_of_ints():
    @dataclasses.dataclass
    class Settings:
        a: int
        b: int

    return with_numbers(lambda x, p: x * p.a + p.b, *[Settings(n, 7) for n in NUMBERS])


@program
def object_with_a_counter():
    class State:
        step = 0

    state = State()

    def f(x):
        state.step += 1
        return x * state.step

    return f, [(rows(4),)] * 9


@program
def list_that_counts():
    counts = [5, 0]

    def f(x):
        counts[0] += 1
        return x * counts[0]

    return f, [(rows(4),)] * 9


@program
def dict_that_counts():
    counts = {"calls": 5}

    def f(x):
        counts["calls"] += 1
        return x + counts["calls"]

    return f, [(rows(4),)] * 9


@program
def list_that_grows():
    seen = []

    def f(x):
        seen.append(1)
        return x * 2

    return f, [(rows(4),)] * 9


@program
def tensors_in_a_list():
    return (lambda xs: torch.cat(xs).sum(0)), [([rows(n, 4), rows(3, 4)],) for n in NUMBERS]


@program
def tensors_in_a_dict():
    return (lambda d: d["x"].sum(0) * d["n"]), [({"x": rows(n, 4), "n": n},) for n in NUMBERS]


@program
def deque_of_ints():
    return with_numbers(lambda x, d: x * d[0] + d[-1], *[deque([n, n + 1]) for n in NUMBERS])


@program
def ordered_dict_of_ints():
    return with_numbers(lambda x, d: x * d["a"], *[OrderedDict(a=n) for n in NUMBERS])


@program
def range_argument():
    return with_numbers(lambda x, r: x * r.start + r.stop, *[range(n, 2 * n) for n in NUMBERS])


@program
def index_list():
    return with_numbers(lambda x, ns: x[ns] * 2, *[[n, n + 1, 0] for n in NUMBERS])


# ----------------------------------------------------------------------------------------------------------------------
# Modules, globals, closures.


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return self.linear(x) * self.calls


def of_module(module: nn.Module, *calls: Any) -> Program:
    with torch.no_grad():
        for p in module.parameters():
            p.fill_(0.5)
    return module, [(c if type(c) is tuple else (c,)) for c in calls or [rows(3, 4)] * 9]


@program
def module_that_counts():
    return of_module(Counting())


@program
def module_that_counts_without_use():
    class Module(Counting):
        def forward(self, x):
            self.calls += 1
            return self.linear(x)

    return of_module(Module())


@program
def modules_that_count_inside():
    return of_module(nn.Sequential(Counting(), Counting()))


@program
def module_with_offset():
    """What generates writes its position to the module from outside."""
    module = Counting()

    def f(x, n):
        module.calls = n
        return module(x)

    of_module(module)
    return f, [(rows(3, 4), n) for n in NUMBERS]


@program
def module_set_from_outside():
    class Module(nn.Module):
        scale = 1

        def forward(self, x):
            return x * self.scale

    module = Module()

    class Setting:
        def __iter__(self) -> Iterator[Any]:
            for n in NUMBERS:
                module.scale = n
                yield (rows(4),)

    return module, Setting()


@program
def buffer_that_counts():
    class Module(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

        def forward(self, x):
            self.steps += 1
            return x * self.steps

    return of_module(Module())


@program
def batch_norm():
    return of_module(nn.BatchNorm1d(4), *[rows(n, 4) for n in NUMBERS])


@program
def hook_registered_again():
    module = nn.Linear(4, 4)

    def f(x):
        handle = module.register_forward_hook(lambda m, args, out: out * 2)
        try:
            return module(x)
        finally:
            handle.remove()

    of_module(module)
    return f, [(rows(3, 4),)] * 9


class EachTime:
    """Calls before each of which something is done."""

    def __init__(self, action: Callable[[int], Any], *args: Any, times: int = 9) -> None:
        self.action, self.args, self.times = action, args, times

    def __iter__(self) -> Iterator[Any]:
        for i in range(self.times):
            self.action(i)
            yield self.args


@program
def equal_hook_from_outside():
    """A new closure, equal to the last one, is registered before each call."""
    module = nn.Linear(4, 4)
    handles: list[Any] = []

    def again(i):
        while handles:
            handles.pop().remove()
        scale = 2
        handles.append(module.register_forward_hook(lambda m, args, out: out * scale))

    of_module(module)
    return module, EachTime(again, rows(3, 4))


@program
def equal_pre_hook_from_outside():
    module = nn.Sequential(nn.Linear(4, 4))
    handles: list[Any] = []

    def again(i):
        while handles:
            handles.pop().remove()
        handles.append(module[0].register_forward_pre_hook(lambda m, args: (args[0] + 1,)))

    of_module(module)
    return module, EachTime(again, rows(3, 4))


@program
def closure_made_again():
    """A callback that is made anew for each call."""
    x = rows(4)

    def callback(n):
        return lambda y: y * n

    return (lambda x, g: g(x) + 1), [(x, callback(n)) for n in NUMBERS]


@program
def equal_callbacks():
    x = rows(4)
    return (lambda x, g: g(x) + 1), [(x, lambda y: y * 2) for _ in NUMBERS]


@program
def partial_argument():
    def scaled(n, x):
        return x * n

    return (lambda x, g: g(x) + 1), [(rows(4), functools.partial(scaled, n)) for n in NUMBERS]


@program
def equal_partials():
    def scaled(n, x):
        return x * n

    return (lambda x, g: g(x) + 1), [(rows(4), functools.partial(scaled, 3)) for _ in NUMBERS]


@program
def partial_of_keywords():
    return (lambda x, g: g(x)), [(rows(16, 4), functools.partial(torch.sum, dim=n % 2)) for n in NUMBERS]


@program
def partial_with_tensors():
    return (lambda x, g: g(x)), [(rows(4), functools.partial(torch.add, rows(1) * n)) for n in NUMBERS]


@program
def compiled_partial():
    def scaled(x, n, y):
        return x * n + y

    return functools.partial(scaled, rows(4), 3), [(rows(4) * n,) for n in NUMBERS]


_calls = 0


@program
def global_counter():
    global _calls
    _calls = 3

    def f(x):
        global _calls
        _calls += 1
        return x * _calls

    return f, [(rows(4),)] * 9


_setting = 0


@program
def global_set_from_outside():
    def again(i):
        global _setting
        _setting = i + 2

    return (lambda x: x * _setting), EachTime(again, rows(4))


@program
def cell_that_counts():
    n = 3

    def f(x):
        nonlocal n
        n += 1
        return x * n

    return f, [(rows(4),)] * 9


@program
def default_argument():
    def f(x, n=3):
        return x * n

    return f, [(rows(4), *([n] if n % 2 else [])) for n in NUMBERS]


@program
def itertools_count():
    counter = itertools.count(3)

    def f(x):
        return x * next(counter)

    return f, [(rows(4),)] * 9


@program
def generator_argument():
    return (lambda x, g: x * sum(g)), [(rows(4), (i for i in (n, 2))) for n in NUMBERS]


# ----------------------------------------------------------------------------------------------------------------------
# Breaks.


@program
def break_with_a_number():
    def f(x, n):
        x = x * n
        graph_break()
        return x + n

    return with_numbers(f)


@program
def break_with_sizes():
    def f(x):
        x = x * 2
        graph_break()
        return x + x.size(0)

    return with_sizes(f)


@program
def same_arguments():
    """Which arguments are one object differs from call to call, and no graph is about it."""

    def f(a, b, c, d):
        x = a + b
        graph_break()
        return x + c + d

    parts = [rows(4) * n for n in range(1, 5)]
    return f, [
        (*[parts[i] for i in which],)
        for which in [
            (0, 1, 2, 3),
            (0, 0, 1, 2),
            (0, 1, 0, 2),
            (0, 1, 1, 0),
            (0, 1, 2, 0),
            (0, 1, 2, 1),
            (0, 1, 2, 2),
            (0, 0, 0, 0),
            (0, 0, 1, 1),
        ]
    ]


@program
def same_arguments_in_an_inlined_break():
    def inner(a, b):
        y = a * b
        graph_break()
        return y + a

    def f(a, b, c):
        return inner(a, b) + inner(b, c)

    parts = [rows(4) * n for n in range(1, 4)]
    return f, [
        (*[parts[i] for i in which],)
        for which in [(0, 1, 2), (0, 0, 1), (0, 1, 0), (0, 1, 1), (0, 0, 0), (2, 1, 2), (2, 2, 1), (1, 0, 0)]
    ]


@program
def same_lists():
    def f(a, b):
        x = a[0] * 2
        graph_break()
        return x + b[0]

    one, two = [rows(4)], [rows(4) * 2]
    return f, [(one, two), (one, one), (two, two), (two, one), (one, two), (one, one), (two, two), (two, one)]


@program
def loop_with_break():
    def f(x, n):
        for i in range(n):
            x = x + i
            graph_break()
        return x * 2

    return with_numbers(f, *range(2, 11))


@program
def nested_loops_with_break():
    def f(x, n):
        for i in range(n):
            for j in range(2):
                x = x + i * j
                graph_break()
            x = x * 2
        return x

    return with_numbers(f, *range(2, 10))


@program
def loop_in_try_with_break():
    def f(x, n):
        try:
            for i in range(n):
                x = x + i
                graph_break()
        finally:
            x = x * 2
        return x

    return with_numbers(f, *range(2, 10))


@program
def try_with_break():
    def f(x, n):
        try:
            x = x * n
            graph_break()
            x = x + n
        except ValueError:
            x = x - 1
        return x * 2

    return with_numbers(f)


@program
def raising_try_with_break():
    def f(x, n):
        try:
            x = x * n
            graph_break()
            if n > 5:
                raise ValueError(n)
            x = x + 1
        except ValueError:
            x = x - n
        return x * 2

    return with_numbers(f)


@program
def while_with_break():
    def f(x, n):
        i = 0
        while i < n:
            x = x + i
            graph_break()
            i += 1
        return x * 2

    return with_numbers(f, *range(2, 11))


@program
def enumerate_with_break():
    def f(x, names):
        for i, name in enumerate(names):
            x = x + i * len(name)
            graph_break()
        return x

    return with_numbers(f, *[["ab"] * n for n in range(2, 10)])


@program
def zip_with_break():
    def f(x, a, b):
        for i, j in zip(a, b):
            x = x * i + j
            graph_break()
        return x

    x = rows(4)
    return f, [(x, [n, 2, 3], [4, n, 6]) for n in NUMBERS]


@program
def loop_over_modules_with_break():
    layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(5)])
    of_module(layers)

    def f(x):
        for layer in layers:
            x = layer(x)
            graph_break()
        return x

    return f, [(rows(n, 4),) for n in NUMBERS]


@program
def loop_over_tensors_with_break():
    def f(xs):
        total = xs[0] * 0
        for x in xs:
            total = total + x
            graph_break()
        return total

    return f, [([rows(4)] * n,) for n in range(2, 11)]


@program
def iterator_after_a_break():
    def f(x, n):
        turns = iter(range(n))
        next(turns)
        x = x * 2
        graph_break()
        for i in turns:
            x = x + i
        return x

    return with_numbers(f, *range(2, 11))


@program
def enumerate_after_a_break():
    def f(x, ns):
        pairs = enumerate(ns)
        x = x * 2
        graph_break()
        for i, n in pairs:
            x = x + i * n
        return x

    return with_numbers(f, *[[n, 3, 4] for n in NUMBERS])


@program
def zip_after_a_break():
    def f(x, ns):
        pairs = zip(ns, (5, 6, 7))
        x = x * 2
        graph_break()
        for i, n in pairs:
            x = x + i * n
        return x

    return with_numbers(f, *[[n, 3, 4] for n in NUMBERS])


@program
def break_in_a_helper():
    def helper(x, n):
        x = x * n
        graph_break()
        return x + 1

    def f(x, n):
        return helper(x, n) * 2

    return with_numbers(f)


@program
def data_dependent_branch():
    def f(x, n):
        if x.sum() > 60:
            return x * n
        return x - n

    return f, [(rows(4) * n, n) for n in range(2, 40, 4)]


@program
def item():
    def f(x):
        n = x.sum().item()
        return x * n

    return f, [(rows(4) * n,) for n in NUMBERS]


@program
def item_as_size():
    def f(x):
        n = int(x.sum().item())
        return torch.ones(n + 3) * x[0]

    return f, [(rows(4) * n,) for n in NUMBERS]


@program
def print_in_the_middle():
    def f(x, n):
        x = x * n
        print(end="")
        return x + n

    return with_numbers(f)


@program
def locals_on_an_untaken_branch():
    def f(x, n):
        x = x * 2
        if n > 100:
            return locals()
        graph_break()
        return x + n

    return with_numbers(f)


@program
def locals_before_a_break():
    def f(x, n):
        x = x * 2
        known = len(locals())
        graph_break()
        return x + n + known

    return with_numbers(f)


@contextlib.contextmanager
def managed(values):
    values.append(1)
    try:
        yield values
    finally:
        values.pop()


@program
def break_in_a_generator_manager():
    def f(x, n):
        values: list[int] = []
        with managed(values):
            x = x * n
            graph_break()
            x = x + len(values)
        return x * 2

    return with_numbers(f)


@program
def break_in_sdpa_kernel():
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def f(x):
        with sdpa_kernel(SDPBackend.MATH):
            y = nn.functional.scaled_dot_product_attention(x, x, x)
            graph_break()
            y = y * 2
        return y + 1

    return f, [(rows(1, 2, n, 4),) for n in NUMBERS]


@program
def break_under_no_grad():
    def f(x, n):
        with torch.no_grad():
            x = x * n
            graph_break()
            x = x + 1
        return x * 2

    return with_numbers(f)


# ----------------------------------------------------------------------------------------------------------------------
# Functions that call others.


@program
def recompile_limit_of_a_caller():
    """The caller has a version for each text; what it calls is the same."""

    def inner(x):
        return x * 2 + 1

    def f(x, name):
        if name == "none":
            return x
        return inner(x) + len(name)

    return with_numbers(f, *["abcdefghijklmnopq"[:n] for n in range(1, 14)])


@program
def recompile_limit_with_helpers():
    def a(x):
        return x + 1

    def b(x):
        return a(x) * 2

    def c(x):
        return b(x) - 3

    def f(x, name):
        return c(x) + len(name)

    return with_numbers(f, *["abcdefghijklmnopq"[:n] for n in range(1, 14)])


@program
def recompile_limit_before_a_break():
    def a(x):
        return x + 1

    def f(x, name):
        y = a(x) + len(name)
        graph_break()
        return a(y) * 2

    return with_numbers(f, *["abcdefghijklmnopq"[:n] for n in range(1, 14)])


@program
def recursion():
    def f(x, n):
        return x if n == 0 else f(x, n - 1) + n

    return with_numbers(f, *range(1, 10))


@program
def lambda_in_map():
    return (lambda xs, n: sum(map(lambda x: x * n, xs))), [([rows(4), rows(4)], n) for n in NUMBERS]  # noqa: C417


# ----------------------------------------------------------------------------------------------------------------------
# Jagged tensors.


def jagged(*lengths: int) -> torch.Tensor:
    return torch.nested.nested_tensor([rows(n, 4) for n in lengths], layout=torch.jagged)


@program
def jagged_elements():
    return (lambda x: x.sin() * 2), [(jagged(n, n + 1, 3),) for n in NUMBERS]


@program
def jagged_rows():
    return (lambda x: x * 2), [(jagged(*range(2, n)),) for n in range(4, 14)]


@program
def jagged_linear():
    module = nn.Linear(4, 3)
    of_module(module)
    return module, [(jagged(n, 2, 5),) for n in NUMBERS]


@program
def jagged_sum():
    return (lambda x: x.sum(dim=-1)), [(jagged(n, 2, 5),) for n in NUMBERS]


@program
def jagged_softmax():
    return (lambda x: x.softmax(-1)), [(jagged(n, 2, 5),) for n in NUMBERS]


@program
def jagged_values():
    return (lambda x: x.values().sum() + x.offsets()[-1]), [(jagged(n, 2, 5),) for n in NUMBERS]


@program
def jagged_two():
    def make(n):
        x = jagged(n, 2, 5)
        return x, x * 2

    return (lambda x, y: x + y), [make(n) for n in NUMBERS]


@program
def jagged_padded():
    return (lambda x: torch.nested.to_padded_tensor(x, 0.0) * 2), [(jagged(n, 2, 5),) for n in NUMBERS]


@program
def jagged_from_offsets():
    def f(values, offsets):
        return torch.nested.nested_tensor_from_jagged(values, offsets).sin()

    return f, [(rows(n + 7, 4), torch.tensor([0, n, n + 2, n + 7])) for n in NUMBERS]


@program
def jagged_mean():
    return (lambda x: x.mean(dim=-1) * 2), [(jagged(n, 2, 5),) for n in NUMBERS]


@program
def jagged_sum_of_rows():
    return (lambda x: x.sum(dim=1) * 2), [(jagged(n, 2, 5),) for n in NUMBERS]


@program
def jagged_max_of_rows():
    return (lambda x: torch.amax(x, dim=1)), [(jagged(n, 2, 5),) for n in NUMBERS]


@program
def jagged_softmax_of_rows():
    return (lambda x: x.softmax(1) * 2), [(jagged(n, 2, 5),) for n in NUMBERS]


@program
def jagged_layer_norm():
    return (lambda x: nn.functional.layer_norm(x, (4,)) + 1), [(jagged(n, 2, 5),) for n in NUMBERS]


@program
def jagged_matmul():
    return (lambda x, w: x @ w), [(jagged(n, 2, 5), rows(4, 3)) for n in NUMBERS]


@program
def jagged_transposed():
    return (lambda x: x.unsqueeze(-2).transpose(1, 2) * 2), [(jagged(n, 2, 5),) for n in NUMBERS]


@program
def jagged_heads():
    return (lambda x: x.unflatten(-1, (2, 2)).transpose(1, 2).sin()), [(jagged(n, 2, 5),) for n in NUMBERS]


@program
def jagged_unbind():
    return (lambda x: [part * 2 for part in x.unbind()]), [(jagged(n, 2, 5),) for n in NUMBERS]


@program
def jagged_position():
    return (lambda x: x[0] * 2), [(jagged(n, 2, 5),) for n in NUMBERS]


@program
def jagged_chunk():
    return (lambda x: x.chunk(2, -1)[0] * 2), [(jagged(n, 2, 5),) for n in NUMBERS]


@program
def jagged_split():
    return (lambda x: x.split([1, 3], -1)[1] * 2), [(jagged(n, 2, 5),) for n in NUMBERS]


@program
def jagged_cat():
    return (lambda x: torch.cat([x, x * 2], -1)), [(jagged(n, 2, 5),) for n in NUMBERS]


@program
def jagged_dropout():
    return (lambda x: nn.functional.dropout(x, 0.5, training=False) * 2), [(jagged(n, 2, 5),) for n in NUMBERS]


@program
def jagged_size():
    return (lambda x: x * x.size(0)), [(jagged(*range(2, n)),) for n in range(4, 14)]


@program
def jagged_where():
    return (lambda x: torch.where(x > 1, x, x * 2)), [(jagged(n, 2, 5),) for n in NUMBERS]


@program
def jagged_with_dense():
    return (lambda x, y: x + y), [(jagged(n, 2, 5), rows(1, 1, 4)) for n in NUMBERS]


@program
def jagged_and_number():
    return (lambda x, n: x * n), [(jagged(n, 2, 5), n) for n in NUMBERS]


@program
def jagged_attention():
    def f(x):
        q = x.unflatten(-1, (2, 2)).transpose(1, 2)
        return nn.functional.scaled_dot_product_attention(q, q, q)

    return f, [(jagged(n, 2, 5),) for n in NUMBERS]


@program
def jagged_lengths():
    return (lambda x: x.offsets().diff() * 2), [(jagged(n, 2, 5),) for n in NUMBERS]


@program
def jagged_to():
    return (lambda x: x.to(torch.float64) * 2), [(jagged(n, 2, 5),) for n in NUMBERS]


@program
def jagged_clone():
    return (lambda x: x.clone().mul_(2)), [(jagged(n, 2, 5),) for n in NUMBERS]


@program
def jagged_like():
    return (lambda x: torch.ones_like(x) + x), [(jagged(n, 2, 5),) for n in NUMBERS]


@program
def jagged_embedding():
    def make(n):
        ids = torch.nested.nested_tensor([torch.arange(n), torch.arange(3)], layout=torch.jagged)
        return ids, rows(16, 4)

    return (lambda ids, table: nn.functional.embedding(ids, table)), [make(n) for n in NUMBERS]


# ----------------------------------------------------------------------------------------------------------------------
# More of each kind.


@program
def int_of_a_float():
    return with_numbers(lambda x, f: x[: int(f)] * 2, *[n + 0.5 for n in NUMBERS])


@program
def int_of_a_float_expression():
    return with_numbers(lambda x, f: x[: int(f * 2)].sum(), *[n / 2 + 0.25 for n in NUMBERS])


@program
def float_comparison():
    return with_numbers(lambda x, f: x * f if f > 0.5 else x + f, *[n / 12 for n in NUMBERS])


@program
def narrow_from_the_end():
    return with_numbers(lambda x, i: x.narrow(0, -i - 1, i) * 2)


@program
def slice_both_ends():
    return with_numbers(lambda x, i: x[i:-i] * 2, *range(1, 10), sizes=(32, 4))


@program
def slice_of_a_size():
    return with_sizes(lambda x: x[: x.size(0) // 2] * 2, *range(4, 14))


@program
def slice_from_the_size():
    return with_sizes(lambda x: x[x.size(0) - 2 :] * 2, *range(4, 14))


@program
def cropped_cache():
    return (lambda k, q: torch.cat([k, q], 2)), [
        (rows(2, 4, 3, 8), rows(2, 4, n, 8)[:, :, : n - 3]) for n in range(12, 22)
    ]


@program
def transposed_sizes():
    return (lambda x: x.contiguous() * 2), [(rows(n, 6).t(),) for n in range(4, 14)]


@program
def parts_of_rows():
    return (lambda x: x * 2 + 1), [(rows(6, n)[:, :4],) for n in range(5, 15)]


@program
def expanded():
    return (lambda x: x * 2), [(rows(1, 4).expand(n, 4),) for n in NUMBERS]


@program
def chunks():
    return with_sizes(lambda x: torch.stack([c.sum() for c in x.chunk(2)]), *range(4, 14))


@program
def interpolate():
    f, x = (lambda x, n: nn.functional.interpolate(x, size=(n, n))), rows(1, 1, 4, 4)
    return f, [(x, n) for n in NUMBERS]


@program
def adaptive_pool():
    return (lambda x: nn.functional.adaptive_avg_pool2d(x, 2)), [(rows(1, 2, n, n),) for n in range(4, 14)]


@program
def positions_embedding():
    def f(x, table, start):
        return x + table[start : start + x.size(1)]

    return f, [(rows(2, n, 4), rows(64, 4), 3 * n) for n in NUMBERS]


@program
def attention_mask():
    def f(x):
        n = x.size(0)
        return torch.full((n, n), -1.0).triu(1) + x @ x.t()

    return with_sizes(f)


@program
def same_modules():
    """The layers of a call are one object or two."""

    def f(x, a, b):
        x = a(x)
        graph_break()
        return b(x)

    layers = [nn.Linear(4, 4), nn.Linear(4, 4)]
    for layer in layers:
        of_module(layer)
    return f, [(rows(3, 4), layers[i], layers[j]) for i, j in [(0, 1), (0, 0), (1, 0), (1, 1)] * 2]


@program
def same_dicts():
    def f(a, b):
        x = a["x"] * 2
        graph_break()
        return x + b["x"]

    one, two = {"x": rows(4)}, {"x": rows(4) * 2}
    return f, [(one, two), (one, one), (two, two), (two, one)] * 1 + [(one, two), (one, one), (two, two), (two, one)]


@program
def same_tensors_changed():
    def f(a, b):
        c = a.clone()
        c.add_(1)
        graph_break()
        return c * 2 + b

    one, two = rows(4), rows(4) * 2
    return f, [(one, two), (one, one), (two, two), (two, one)] * 2


@program
def unused_arguments():
    def f(x, a, b, c):
        x = x * 2
        graph_break()
        return x + 1

    parts = [rows(4), [1], {"k": 2}]
    return f, [(rows(4), parts[i], parts[j], parts[k]) for i, j, k in itertools.product(range(2), range(3), range(2))][
        :10
    ]


@program
def break_then_number():
    def f(x, n):
        graph_break()
        return x * n

    return with_numbers(f)


@program
def break_then_list():
    def f(x, ns):
        graph_break()
        return x * ns[0] + ns[1]

    return with_numbers(f, *[[n, 20 - n] for n in NUMBERS])


@program
def two_breaks():
    def f(x, n):
        x = x * n
        graph_break()
        x = x + n
        graph_break()
        return x - n

    return with_numbers(f)


@program
def break_with_computed_number():
    def f(x, n):
        m = n * 2 + 1
        graph_break()
        return x * m

    return with_numbers(f)


@program
def break_with_a_size():
    def f(x):
        n = x.size(0)
        graph_break()
        return torch.ones(n) + n

    return with_sizes(f)


@program
def break_with_parts():
    def f(x):
        parts = x.split(2)
        graph_break()
        return parts[0] * 2

    return with_sizes(f, *range(4, 24, 2))


@program
def break_in_a_module():
    class Inner(nn.Module):
        def forward(self, x, n):
            x = x * n
            graph_break()
            return x + 1

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Inner()

        def forward(self, x, n):
            return self.inner(x, n) * 2

    return Outer(), [(rows(4), n) for n in NUMBERS]


@program
def break_in_a_lambda():
    def f(x, n):
        g = lambda y: (y * n, graph_break())[0]  # noqa: E731
        return g(x) + n

    return with_numbers(f)


@program
def module_counter_and_break():
    class Module(Counting):
        def forward(self, x):
            self.calls += 1
            x = self.linear(x)
            graph_break()
            return x * self.calls

    return of_module(Module())


@program
def global_counter_and_break():
    global _calls
    _calls = 3

    def f(x):
        global _calls
        _calls += 1
        x = x * 2
        graph_break()
        return x * _calls

    return f, [(rows(4),)] * 9


@program
def range_object_after_a_break():
    def f(x, n):
        turns = range(n, n + 3)
        graph_break()
        for i in turns:
            x = x + i
        return x

    return with_numbers(f)


@program
def dict_iterator_after_a_break():
    def f(x, d):
        items = iter(d.items())
        graph_break()
        for _, n in items:
            x = x * n
        return x

    return with_numbers(f, *[{"a": n, "b": 3} for n in NUMBERS])


@program
def enumerate_from_a_number():
    def f(x, n):
        for i, m in enumerate([2, 3], n):
            x = x * m + i
        return x

    return with_numbers(f)


@program
def loop_with_early_end():
    def f(x, n):
        for i in range(10):
            if i > n:
                break
            x = x + i
        return x

    return with_numbers(f)


@program
def while_on_a_number():
    def f(x, n):
        while n > 0:
            x = x + n
            n -= 3
        return x

    return with_numbers(f)


@program
def optimizer_step():
    module = nn.Linear(4, 4)
    of_module(module)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)

    def f(x):
        optimizer.zero_grad()
        module(x).sum().backward()
        optimizer.step()
        return module.weight.detach().clone()

    return f, [(rows(n, 4),) for n in NUMBERS]


@program
def learning_rate():
    module = nn.Linear(4, 4)
    of_module(module)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)

    def schedule(i):
        optimizer.param_groups[0]["lr"] = 0.1 / (i + 1)
        for p in module.parameters():
            p.grad = torch.ones_like(p)

    def f():
        optimizer.step()
        return module.weight.detach().clone()

    return f, EachTime(schedule)


@program
def strings_in_a_dict():
    return with_numbers(lambda x, d: x * d[sorted(d)[0]], *[{f"k{n % 3}": n} for n in NUMBERS])


@program
def numbers_as_text():
    return with_numbers(lambda x, n: (x * n, f"{n} rows")[0])


@program
def size_as_text():
    return with_sizes(lambda x: (x * 2, str(x.shape))[0])


@program
def numbers_as_keys():
    return with_numbers(lambda x, n: {n: x * n}[n])


@program
def min_and_max_of_numbers():
    return with_numbers(lambda x, n: x[: min(n, 20)] * max(n, 0))


@program
def numpy_numbers():
    return with_numbers(lambda x, n: x * n, *[np.int64(n) for n in NUMBERS])


@program
def number_of_a_property():
    class Box:
        def __init__(self, n):
            self._n = n

        @property
        def n(self):
            return self._n + 1

    return with_numbers(lambda x, box: x * box.n, *[Box(n) for n in NUMBERS])


@program
def variable_arguments():
    return (lambda x, *ns: x * sum(ns)), [(rows(4), n, n + 1) for n in NUMBERS]


@program
def keyword_dictionary():
    def f(x, **options):
        return x * options["scale"]

    return (lambda x, n: f(x, scale=n)), [(rows(4), n) for n in NUMBERS]


@program
def autocast_in_turn():
    def f(x, enabled):
        with torch.autocast("cpu", enabled=enabled):
            return x @ x

    return with_numbers(f, *[True, False] * 4, sizes=(4, 4))


@program
def grad_mode_in_turn():
    inner = lambda x: x * 2  # noqa: E731

    def again(i):
        torch.set_grad_enabled(i % 2 == 0)

    class Calls(EachTime):
        def __iter__(self):
            try:
                yield from super().__iter__()
            finally:
                torch.set_grad_enabled(True)

    return inner, Calls(again, rows(4))


# ----------------------------------------------------------------------------------------------------------------------
# Numbers and functions of numpy.


@program
def numpy_float_among_tensors():
    return with_numbers(lambda x, n: x * n + n, *[np.float32(n / 4) for n in NUMBERS])


@program
def arithmetic_of_numpy_numbers():
    return with_numbers(lambda x, n: x * (n * 2 + 1), *[np.int32(n) for n in NUMBERS])


@program
def numpy_int_as_position():
    return with_numbers(lambda x, n: x[n] * 2, *[np.int64(n) for n in NUMBERS])


@program
def numpy_int_as_slice():
    return with_numbers(lambda x, n: x[:n] * 2, *[np.int64(n) for n in NUMBERS])


@program
def numpy_int_as_size():
    return with_numbers(lambda x, n: x + torch.ones(n).sum(), *[np.int64(n) for n in NUMBERS])


@program
def numpy_float_as_attribute():
    class Scale:
        def __init__(self, n):
            self.by = np.float64(n / 3)

    return with_numbers(lambda x, scale: x * scale.by, *[Scale(n) for n in NUMBERS])


@program
def numpy_bool():
    return with_numbers(lambda x, flag: x * 2 if flag else x * 3, *[np.bool_(n % 2) for n in NUMBERS])


@program
def numpy_arange():
    return with_numbers(lambda x, n: x.sum() + torch.from_numpy(np.arange(n)))


@program
def numpy_full_of_a_number():
    return with_numbers(lambda x, n: x + torch.from_numpy(np.full((4,), n)), *[n / 3 for n in NUMBERS])


@program
def numpy_full_of_a_size():
    return with_numbers(lambda x, n: x.sum() + torch.from_numpy(np.full((n,), 2.0)))


@program
def numpy_zeros_and_ones():
    return with_numbers(lambda x, n: x.sum() + torch.from_numpy(np.zeros(n) + np.ones((3, n)).sum(0)))


@program
def numpy_linspace():
    return with_numbers(lambda x, n: x.sum() + torch.from_numpy(np.linspace(0, 1, n)))


@program
def numpy_eye():
    return with_numbers(lambda x, n: x.sum() + torch.from_numpy(np.eye(n)))


@program
def array_times_a_number():
    array = np.arange(16.0).reshape(4, 4)
    return with_numbers(lambda x, a, n: torch.from_numpy(a * n) + x.sum(), *[(array, n) for n in NUMBERS])


@program
def item_of_an_array():
    array = np.arange(40.0).reshape(20, 2)
    return with_numbers(lambda x, a, n: torch.from_numpy(a[n] * 2) + x.sum(), *[(array, n) for n in NUMBERS])


@program
def slice_of_an_array():
    array = np.arange(40.0).reshape(20, 2)
    return with_numbers(lambda x, a, n: torch.from_numpy(a[:n] * 2) + x.sum(), *[(array, n) for n in NUMBERS])


@program
def roll_and_repeat_of_an_array():
    array = np.arange(16.0).reshape(4, 4)
    return with_numbers(
        lambda x, a, n: torch.from_numpy(np.repeat(np.roll(a, n), n)) + x.sum(), *[(array, n) for n in NUMBERS]
    )


@program
def tile_of_an_array():
    array = np.arange(4.0)
    return with_numbers(lambda x, a, n: torch.from_numpy(np.tile(a, n)) + x.sum(), *[(array, n) for n in NUMBERS])


@program
def arrays_of_many_sizes():
    arrays = [np.arange(4.0 * n).reshape(n, 2, 2) for n in NUMBERS]
    return with_numbers(lambda x, a: torch.from_numpy(a.reshape(-1, 4) + 1).sum() + x, *arrays)


@program
def size_of_an_array():
    arrays = [np.arange(2.0 * n).reshape(n, 2) for n in NUMBERS]
    return with_numbers(lambda x, a: x * a.shape[0], *arrays)


@program
def numpy_arange_of_a_size():
    return with_sizes(lambda x: x + torch.from_numpy(np.arange(x.shape[0], dtype=np.float32))[:, None])


@program
def array_as_positions():
    return with_numbers(lambda x, i: x[i] * 2, *[np.arange(n) for n in NUMBERS])


@program
def sum_of_a_range():
    return with_numbers(lambda x, n: x * sum(range(n, 2 * n)))


@program
def sum_of_a_range_of_a_numpy_int():
    return with_numbers(lambda x, n: x * sum(range(np.int64(n))))


@program
def numpy_number_of_a_maximum():
    arrays = [np.arange(4.0 * n) for n in NUMBERS]
    return with_numbers(lambda x, a: x * np.float32(a.max()), *arrays)


# ----------------------------------------------------------------------------------------------------------------------
# Data that decides which tensor it is.


@program
def smallest_of_tensors():
    return (lambda a, b: min(a, b) * 2 + max(a, b)), [(torch.tensor(float(n % 5)), torch.tensor(2.0)) for n in NUMBERS]


@program
def smallest_tensor_of_a_list():
    return (lambda x, ns: x * min(x[n, 0] for n in ns)), [(rows(16, 4), [n, n - 1, n + 2]) for n in NUMBERS]


@program
def tensor_clipped_by_builtins():
    def f(x):
        return x * max(min(x.mean(), x.sum()), x.std())

    return with_sizes(f)


@program
def smallest_of_a_tensor_and_a_number():
    return with_sizes(lambda x: x / max(1, x.mean()) - min(x.sum(), 50.0))


@program
def scale_of_a_tensor_or_a_number():
    return with_sizes(lambda x: x * max(min(x.mean(), 2.0), 1) / (max(x.abs().max(), 1e-8) / 127))


@program
def larger_of_tensors_with_gradients():
    weight = rows(4).requires_grad_()
    return with_sizes(lambda x: max((x * weight).sum(), (x - weight).sum()) * 2)


# ----------------------------------------------------------------------------------------------------------------------
# The same mechanisms in other programs.


@program
def locals_of_a_method_with_break():
    class Model:
        def forward(self, x, n):
            scale = n + 1
            y = x * scale
            known = locals()
            graph_break()
            return y + known["scale"] + len(known)

    return with_numbers(Model().forward)


@program
def attention_without_masks():
    attention = nn.MultiheadAttention(4, 2, batch_first=True)
    of_module(attention)
    attention.eval()
    return (lambda x: attention(x, x, x, need_weights=False)[0]), [(rows(2, n, 4),) for n in NUMBERS]


@program
def attention_with_padding():
    attention = nn.MultiheadAttention(4, 2, batch_first=True)
    of_module(attention)
    return (lambda x, mask: attention(x, x, x, key_padding_mask=mask)[0]), [
        (rows(2, n, 4), torch.arange(n).repeat(2, 1) > 1) for n in NUMBERS
    ]


@program
def generator_that_is_returned():
    def parts(x, n):
        for i in range(3):
            yield x * (n + i)

    def f(x, n):
        return parts(x + 1, n)

    def run(x, n):
        return sum(f(x, n))

    return with_numbers(run)


@program
def break_in_the_inner_of_two_loops():
    def f(x, n):
        total = x
        for i in range(2):
            for j in range(2):
                total = total * (i + 1) + j
                if j:
                    graph_break()
            total = total - n
        return total

    return with_numbers(f)


@program
def finally_with_break():
    def f(x, n):
        try:
            y = x * n
            graph_break()
            y = y + 1
        finally:
            x = x - 1
        return x + y

    return with_numbers(f)


@program
def while_that_counts_down_with_break():
    def f(x, n):
        left = n % 3 + 1
        while left:
            x = x * 2 + left
            graph_break()
            left -= 1
        return x

    return with_numbers(f)


@program
def range_iterator_before_and_after_a_break():
    def f(x, n):
        numbers = iter(range(n, n + 4))
        y = x * next(numbers)
        graph_break()
        y = y + next(numbers)
        return y * sum(numbers)

    return with_numbers(f)


@program
def partial_of_a_partial():
    def scale(x, by, plus):
        return x * by + plus

    return with_numbers(
        lambda x, g: g(x), *[functools.partial(functools.partial(scale, plus=n), by=2) for n in NUMBERS]
    )


@program
def slices_in_a_tuple():
    return with_numbers(lambda x, key: x[key] * 2, *[((slice(n - 1, n + 3), slice(0, 2)),) for n in NUMBERS])


@program
def ints_in_a_list_of_tuples():
    return with_numbers(lambda x, pairs: x * sum(a * b for a, b in pairs), *[[(n, 2), (3, n + 1)] for n in NUMBERS])


@program
def constraint_of_annotated():
    Positive = Annotated[int, {"least": 1}]

    def f(x, n):
        return x * n * get_args(Positive)[1]["least"]

    return with_numbers(f)


@program
def directory_changed_inside():
    def f(x):
        x = x + 1
        with contextlib.chdir("/"):
            x = x * 2
        return x - 1

    return with_sizes(f)


@program
def module_with_a_legacy_backward_hook():
    module, seen = nn.Linear(4, 4), []
    of_module(module)
    module.register_backward_hook(lambda module, grad_in, grad_out: seen.append(len(grad_out)))
    return (lambda x: module(x) * 2), [(rows(n, 4),) for n in NUMBERS]


@program
def packed_sequence():
    module = nn.GRU(4, 3, batch_first=True)
    of_module(module)

    def f(x, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(x * 2, lengths, batch_first=True)
        result, _ = nn.utils.rnn.pad_packed_sequence(module(packed)[0], batch_first=True)
        return result + 1

    return f, [(rows(2, n, 4), torch.tensor([n, n - 1])) for n in NUMBERS]


@program
def attention_on_a_jagged_tensor():
    def f(values, offsets):
        jagged = torch.nested.nested_tensor_from_jagged(values, offsets, min_seqlen=1, max_seqlen=12)
        heads = jagged.unflatten(-1, [2, 2]).transpose(1, 2)
        return nn.functional.scaled_dot_product_attention(heads, heads, heads).values()

    return f, [(rows(n, 4), torch.tensor([0, 2, n])) for n in range(3, 12)]


@program
def checks_of_data():
    def f(x, table):
        if x.max().item() >= 1e6:
            raise ValueError("too large")
        if not torch.equal(x, x.abs()):
            raise ValueError("negative")
        return table[: x.size(0)] * x

    return f, [(rows(n, 4), rows(20, 4)) for n in NUMBERS]


@program
def hook_that_raises():
    def hook(grad):
        if grad.isnan().any():
            raise ValueError

    weight = rows(4).requires_grad_()

    def f(x):
        y = x * weight
        y.register_hook(hook)
        return y * 2 + 1

    return with_sizes(f)


@program
def cached_function_of_a_shape():
    return with_sizes(lambda x: x.reshape(_halves(2, x.shape)) + 1)


@functools.lru_cache
def _halves(n, shape):
    return [shape[0], shape[1] // n, n]


@program
def hook_registered_and_removed_inside():
    module = nn.Linear(4, 4)
    of_module(module)

    def f(x):
        handle = module.register_forward_hook(lambda module, args, result: result * 2)
        y = module(x)
        handle.remove()
        return y

    return f, [(rows(4, 4),) for n in NUMBERS]


@program
def jagged_tensor_made_inside():
    def f(values, offsets):
        return (torch.nested.nested_tensor_from_jagged(values, offsets) * 2).values() + 1

    return f, [(rows(n, 4), torch.tensor([0, 2, n])) for n in range(3, 12)]


@program
def dynamically_quantised_layers():
    module = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    of_module(module)
    quantised = torch.ao.quantization.quantize_dynamic(module, {nn.Linear}, dtype=torch.qint8)
    return (lambda x: quantised(x) * 2), [(rows(n, 4),) for n in NUMBERS]


@program
def recompile_limit_with_many_helpers():
    """The caller has a version for each text; its helpers have no part in that."""

    def f(x, name):
        y = first(x) + len(name)
        return second(third(y))

    def first(x):
        return x * 2

    def second(x):
        return x - 1

    def third(x):
        return x / 3

    return with_numbers(f, *["abcdefghijklmnopq"[:n] for n in range(1, 14)])
