"""`valid_sizes(fn, *args)`: the sizes of inputs for which one captured program holds.

Input: a function or module, and arguments as an example. Output: a `ValidSizes`: the conditions of the guards on each size, membership,
and an enumeration of members.
Invariant: membership is decided by the guards themselves, on numbers instead of tensors.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from dynamo_lite.api import compile
from dynamo_lite.config import config
from dynamo_lite.dynamism.mark_constraints import spoken_path
from dynamo_lite.graph.core.varying_floats import is_drawn
from dynamo_lite.graph.shapes.sizes import Number
from dynamo_lite.guards import ir
from dynamo_lite.messages import short_path
from dynamo_lite.record import Specialization, log


@dataclass
class ValidSizes:
    """The set of sizes for which a captured program holds, all else being as in the example: other values, data types, layouts.

    `numbers`: the sizes and ints that may differ, by name (`"x.size(0)"`, `"k"`); `constants`: those that may not, with their values;
    `relations`: conditions on several numbers; `specializations`: which line made constants of numbers. `compiled` is the captured
    program, which compiles nothing more for members. Random numbers are as in the example, too.
    """

    numbers: dict[str, Number]
    constants: dict[str, int]
    relations: list[str]
    specializations: list[Specialization]
    compiled: Callable[..., Any]
    predicates: list[tuple[Callable[..., bool], tuple[str, ...]]]

    def __contains__(self, sizes: Mapping[str, int]) -> bool:
        """Whether the program holds for these sizes. Sizes that are left out are as in the example. Raises KeyError for an
        unknown name."""
        names = [*self.numbers, *self.constants]
        for name in sizes.keys() - set(names):
            raise KeyError(f"no size {name!r}; there are {', '.join(names)}")
        example = {n.text: n.present for n in self.numbers.values()}
        if any(sizes.get(name, value) != value for name, value in self.constants.items()):
            return False
        sizes = {**example, **sizes}
        return all(holds(*[sizes[name] for name in names]) for holds, names in self.predicates)

    def members(self, up_to: int = 32) -> Iterator[dict[str, int]]:
        """All members in which no number that is free is above `up_to`, the smallest first."""
        free = [n for n in self.numbers.values() if n.equals is None]
        spans = [range(max(n.low or 0, 0), min(up_to, n.high if n.high is not None else up_to) + 1) for n in free]
        for values in sorted(itertools.product(*spans), key=lambda row: (sum(row), row)):
            sizes = dict(zip([n.text for n in free], values, strict=True))
            for number in self.numbers.values():
                if number.follows is not None:
                    sizes[number.text] = number.follows(*[sizes[part] for part in number.parts])
            if sizes in self:
                yield sizes

    def __str__(self) -> str:
        lines = [str(number) for number in self.numbers.values()]
        lines += [f"{name} == {value}" for name, value in self.constants.items()]
        lines += self.relations
        lines += [
            f"{s.text} was made constant by {short_path(s.user[0])}:{s.user[1]}" for s in self.specializations if s.user
        ]
        return "\n".join(lines) or "no size is looked at"


def valid_sizes(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> ValidSizes:
    """The sizes for which the program captured from `fn(*args, **kwargs)` holds.

    `fn` really runs, once, captured afresh in one graph with all sizes symbolic that may be: those above 1, but not of parameters and
    buffers, nor of dimensions under `mark_static`; `mark_unbacked` makes them all symbolic. Raises `Unsupported` where the function is
    not one graph, and what `fn` raises.
    """
    compiled = compile(fn, backend="eager", fullgraph=True, dynamic=True, isolate_recompiles=True)
    # That two sizes are equal in the example means nothing; layouts are those of the example.
    with log.recording() as frames, config.patch(use_duck_shape=False, automatic_dynamic_strides=False):
        compiled(*args, **kwargs)
    frame = next((f for f in frames if f.guards is not None), None)
    guards = frame.guards.guards() if frame is not None else None
    if guards is None:
        raise ValueError(f"nothing was captured: {frames[0].skipped if frames else 'the function is not compiled'}")
    return _of_guards(fn, guards, frame.specializations, compiled)


def _of_guards(fn: Any, guards: ir.GuardSet, specializations: list[Specialization], compiled: Any) -> ValidSizes:
    made_constant = {s.text: s.value for s in specializations if type(s.value) is int}
    drawn = {n.node: n.present for n in guards.sizes if is_drawn(n.node)}
    numbers = {n.text: n for n in guards.sizes if n.text not in made_constant and n.node not in drawn}
    names = {n.node: n.text for n in guards.sizes}
    constants = {**_constant_sizes(fn, guards), **made_constant}
    predicates, relations = [], []
    for guard in guards:
        if guard.kind != ir.PREDICATE or not all(node in names for node in guard.nodes):
            continue
        involved = tuple([names[node] for node in guard.nodes])
        if not made_constant.keys() & set(involved):
            known = [drawn.get(node) for node in guard.nodes]
            sizes = tuple([names[node] for node in guard.nodes if node not in drawn])
            predicates.append((_for_drawn(guard.arg, known) if drawn else guard.arg, sizes))
        if len(involved) > 1 and not guard.text.startswith(involved[0] + " == "):
            relations.append(guard.text)
    return ValidSizes(numbers, constants, relations, specializations, compiled, predicates)


def _for_drawn(holds: Callable[..., bool], known: list[int | None]) -> Callable[..., bool]:
    """A condition with random numbers, which are as in the example, as one on sizes: those of which no number is known."""

    def holds_for(*sizes: int) -> bool:
        given = iter(sizes)
        return holds(*[next(given) if number is None else number for number in known])

    return holds_for


def _constant_sizes(fn: Callable[..., Any], guards: ir.GuardSet) -> dict[str, int]:
    """The sizes of the arguments' tensors that are compared with a number; parameters and buffers are not arguments."""
    found = {}
    for guard in guards:
        if guard.kind == ir.TENSOR and guard.node.root.kind == ir.LOCAL and not _is_of_module(guard):
            sizes = guard.arg[5]
            path = spoken_path(guard.node, fn)
            found.update({f"{path}.size({i})": n for i, n in enumerate(sizes) if n is not None})
    return found


def _is_of_module(guard: ir.Guard) -> bool:
    parent = guard.node.parent
    of_module = guard.node.kind == ir.DICT_ITEM and parent is not None and parent.arg in ("_parameters", "_buffers")
    return of_module or issubclass(guard.arg[0], torch.nn.Parameter)
