"""Which sizes and ints are symbolic.

Input: a real tensor or int with its access path, the marks on the tensor, and what earlier compilations of the same
code saw.
Output: the dimensions that become symbolic, or whether an int does.
Invariant: static first; a size or int becomes symbolic when it differs from that of an earlier compilation, when it is
marked, or when everything was asked to be (except for buffers); a number that the frame itself changes does at once. 0 and 1
are constants unless `config.specialize_zero_one` is off (or for ints that changed). Nothing here imports torch.

`tr.dynamic_hints` is the memory: (NUMBER, access path) → number, (rank, access path) → tuple of sizes, (STRIDES, access path) → tuple of
strides, (_OF_OTHER_KIND, access path) → number, (_OF_MODULES, access path) → {address of a module: (weak reference to it, the float that
it had)}; None in place of a number says that it varies. Access paths are `GuardNode.steps`.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from dynamo_lite._eval_frame import Reference, can_refer_weakly
from dynamo_lite.config import config
from dynamo_lite.guards import ir
from dynamo_lite.guards.ir import Steps
from dynamo_lite.isa.resume import is_resumed
from dynamo_lite.markers import DYNAMIC, PROPAGATED_DYNAMIC, STATIC, STRICT_UNBACKED, UNBACKED, WEAK_DYNAMIC

if TYPE_CHECKING:
    from dynamo_lite.frontend.tracing import Trace
    from dynamo_lite.guards.ir import GuardNode

NUMBER, STRIDES = "number", "strides"
"""In `tr.dynamic_hints`, the kinds of what is remembered of a number and of a tensor's strides. Of the strides that is for each dimension a
number, `(d,)` for a stride that follows from dimension d, None for one that varies by itself, and `_UNSEEN`."""

_OF_MODULES = "of modules"
"""In `tr.dynamic_hints`, the kind of floats that are attributes of modules."""

_OF_OTHER_KIND = "of the other kind"
"""There, the kind of floats at a path that had an int first, and of ints at one that had a float."""

_OBJECTS = "objects"
"""There, the kind of objects that tables know by their identity: a list of weak references, or None if they vary."""

NONE: frozenset[int] = frozenset()


def dynamic_dims(
    tr: Trace, tensor: Any, source: GuardNode, is_parameter: bool, of_buffer: bool | None = None
) -> frozenset[int]:
    """The dimensions of an input tensor that become symbolic. Remembers its sizes for the next compilation.

    Sizes that are no ints are none of them: they are symbolic anyway. `of_buffer`: whether it is a buffer, or part of one.
    """
    wanted = tr.dynamic
    if is_parameter and config.force_parameter_static_shapes:
        return NONE
    marked = tensor.__dict__
    chosen = {dim for mark in _DYNAMIC_MARKS for dim in marked.get(mark, ())} if marked else set()
    sizes = tensor.shape
    of_buffer = is_buffer(source) if of_buffer is None else of_buffer
    of_module = config.force_nn_module_property_static_shapes and of_buffer
    if not of_module and _is_dynamic_at_once(tr):
        chosen.update(range(len(sizes)))
    elif wanted is not False and config.automatic_dynamic_shapes:
        known = tuple([n if type(n) is int else None for n in sizes])
        chosen.update(changed_dims(tr.dynamic_hints, source.steps, known))
    if not chosen:
        return NONE
    chosen.difference_update(set(marked.get(STATIC, ())) - set(marked.get(DYNAMIC, ())))
    chosen.difference_update(tr.dynamic_hints.get((_FIXED_SIZES, source.steps), NONE) - set(marked.get(DYNAMIC, ())))
    chosen.difference_update(unbacked_dims(tensor))
    constant = (0, 1) if config.specialize_zero_one else ()
    return frozenset(dim for dim in chosen if type(sizes[dim]) is int and sizes[dim] not in constant)


def fix(tr: Trace, source: GuardNode, dim: int, of_stride: bool = False) -> None:
    """The number at an access path, or a size or stride of the tensor that it is read from, is a constant in later compilations."""
    hints = tr.dynamic_hints
    if source.kind == ir.CALL and source.parent is not None:
        key = (_FIXED_STRIDES if of_stride else _FIXED_SIZES, source.parent.steps)
        hints[key] = hints.get(key, NONE) | {dim}
    else:
        hints[NUMBER, source.steps] = FIXED


def is_fixed(key: Any, value: object) -> bool:
    """Whether an item of `tr.dynamic_hints` says that something is a constant for good."""
    return value is FIXED or key[0] in (_FIXED_SIZES, _FIXED_STRIDES)


_FIXED_SIZES, _FIXED_STRIDES = "fixed", "fixed strides"


_DYNAMIC_MARKS = (DYNAMIC, WEAK_DYNAMIC, PROPAGATED_DYNAMIC)


def _is_dynamic_at_once(tr: Trace) -> bool:
    """Whether sizes and ints are symbolic from the first compilation on."""
    wanted = tr.dynamic
    return bool(wanted) or (wanted is None and not config.assume_static_by_default)


def unbacked_dims(tensor: Any) -> frozenset[int]:
    """The dimensions that `mark_unbacked` makes symbolic without a look at their size."""
    marked = tensor.__dict__
    return frozenset((*marked.get(UNBACKED, ()), *marked.get(STRICT_UNBACKED, ()))) if marked else NONE


def automatic_unbacked_dims(tr: Trace, tensor: Any, source: GuardNode, is_parameter: bool) -> frozenset[int]:
    """The dimensions that have changed, if `automatic_dynamic_shapes_mark_as` has them symbolic without a look at their size."""
    if config.automatic_dynamic_shapes_mark_as == "dynamic":
        return NONE
    if config.automatic_dynamic_shapes_mark_as != "unbacked":
        raise ValueError(f"invalid automatic_dynamic_shapes_mark_as: {config.automatic_dynamic_shapes_mark_as!r}")
    fixed = is_parameter and config.force_parameter_static_shapes
    if fixed or tr.dynamic is not None or not config.automatic_dynamic_shapes or is_buffer(source):
        return NONE
    sizes = tuple([n if type(n) is int else None for n in tensor.shape])
    marked = tensor.__dict__
    return frozenset(changed_dims(tr.dynamic_hints, source.steps, sizes)).difference(
        *[marked.get(mark, ()) for mark in (STATIC, *_DYNAMIC_MARKS)]
    )


def is_buffer(source: GuardNode) -> bool:
    """True for the access path of a module's buffer, whose sizes are the module's and not the data's."""
    return source.kind == ir.DICT_ITEM and source.parent is not None and source.parent.arg == "_buffers"


def changed_dims(hints: Any, path: Steps, sizes: tuple[int | None, ...]) -> Iterable[int]:
    """The dimensions of a tensor that have been of other sizes. Remembers these; None is one that varies."""
    key = len(sizes), path
    seen = hints.setdefault(key, sizes)
    if seen != sizes:
        hints[key] = seen = tuple([a if a == b else None for a, b in zip(seen, sizes, strict=True)])
    return [dim for dim, size in enumerate(seen) if size is None]


def symbolic_strides(
    tr: Trace, source: GuardNode, sizes: Sequence[int], strides: Sequence[int], has_symbols: bool
) -> frozenset[int]:
    """The dimensions of an input tensor whose stride becomes a symbol of its own. Remembers what the strides follow from.

    Such a tensor is a part of another one, whose sizes are no inputs: the stride follows from no size of its own. It has been another one,
    or sizes of the tensor are symbolic (`has_symbols`). Strides 0 and 1 are constants: an expanded dimension, and elements side by side,
    are treated differently from others.
    """
    if tr.dynamic is False or not (config.automatic_dynamic_strides and config.automatic_dynamic_shapes):
        return NONE
    hints, path = tr.dynamic_hints, source.steps
    key = STRIDES, path
    dims = followed_dims(sizes, strides)
    seen = hints.get(key, ())
    if len(seen) != len(strides):
        seen = [_UNSEEN] * len(strides)
    now = list(seen)
    chosen = set()
    for dim, followed in dims:
        stride = strides[dim]
        if stride in (0, 1):
            continue
        if seen[dim] is _UNSEEN:
            now[dim] = stride if followed is None else (followed,)
        elif stride != _expected(seen[dim], sizes, strides):
            now[dim] = None
        if now[dim] is None or (followed is None and has_symbols):
            chosen.add(dim)
    hints[key] = tuple(now)
    return frozenset(chosen - hints.get((_FIXED_STRIDES, path), NONE))


_UNSEEN = 0


def _expected(seen: Any, sizes: Sequence[int], strides: Sequence[int]) -> int | None:
    """The stride that a dimension has by what is remembered of it; None: any."""
    return strides[seen[0]] * sizes[seen[0]] if type(seen) is tuple else seen


def followed_dims(sizes: Sequence[int], strides: Sequence[int]) -> list[tuple[int, int | None]]:
    """The dimensions of a tensor, those with smaller strides first, each with the one that its stride follows from: it is as long as that
    one reaches. None: it follows from none."""
    reaches: dict[int, int] = {}  # how far a dimension reaches → the dimension
    found = []
    for dim in sorted(range(len(strides)), key=lambda d: (strides[d], sizes[d])):
        found.append((dim, reaches.get(strides[dim])))
        reaches[strides[dim] * sizes[dim]] = dim
    return found


def strict_dims(tensor: Any) -> frozenset[int]:
    """The dimensions that `mark_dynamic` promises to vary: it is an error if the code makes them constant. A size of 0 or 1 is one."""
    return frozenset(tensor.__dict__.get(DYNAMIC, ()))


def is_dynamic_int(tr: Trace, value: int, source: GuardNode) -> bool:
    """Whether an int from outside becomes symbolic. Remembers it for the next compilation."""
    if config.specialize_int or type(value) is not int or not -(2**63) <= value < 2**63:
        return False
    if _is_counted(tr, source):
        return True
    if tr.dynamic is False or not may_vary(tr, source) or tr.dynamic_hints.get((NUMBER, source.steps)) is FIXED:
        return False
    if _is_dynamic_at_once(tr) and is_data(source):
        return True
    hints = tr.dynamic_hints
    key = NUMBER, source.steps
    seen = _seen_of_kind(hints, source, hints.setdefault(key, value), value)
    if seen is None or type(seen) is not int:
        return seen is None
    if seen != value and config.automatic_dynamic_shapes:
        hints[key] = None
        return True
    return False


def _seen_of_kind(hints: Any, source: GuardNode, seen: Any, value: int | float) -> Any:
    """The number of this kind, int or float, that was seen first. A sum begins as the int 0 and goes on as floats; a setting that is 0
    where it is off is a float for good where it is on."""
    if type(seen) in (int, float) and type(seen) is not type(value):
        return hints.setdefault((_OF_OTHER_KIND, source.steps), value)
    return seen


def is_dynamic_float(tr: Trace, value: float, source: GuardNode) -> bool:
    """Whether a float from outside is one that varies: it was another one in an earlier compilation."""
    if config.specialize_float or not math.isfinite(value):
        return False
    if _is_counted(tr, source):
        return True
    if tr.dynamic is False:
        return False
    is_part_of_program, module = _owner_of(tr, source)
    if is_part_of_program:
        return False
    hints = tr.dynamic_hints
    key = NUMBER, source.steps
    if hints.get(key) is STATIC_FLOAT:
        return False
    if module is None:
        seen = _seen_of_kind(hints, source, hints.setdefault(key, value), value)
    else:
        seen = _seen_in(hints, source, module, value)
    if seen != value and type(seen) is float and config.automatic_dynamic_shapes:
        hints[key] = None
        hints.pop((_OF_MODULES, source.steps), None)
        return True
    return False


def _seen_in(hints: Any, source: GuardNode, module: Any, value: float) -> float:
    """The float that a module has had at an access path. Modules of one class share the code, and hence the path, but are made with
    numbers of their own (rates that grow with the depth), which are constants as long as each keeps its own."""
    key = _OF_MODULES, source.steps
    seen = hints.get(key, {})
    if id(module) not in seen or seen[id(module)][0]() is not module:
        seen = {address: item for address, item in seen.items() if item[0]() is not None}
        seen[id(module)] = weakref.ref(module), value
        hints[key] = seen
    number: float = seen[id(module)][1]
    return number


def take_for_data(tr: Trace, source: GuardNode) -> None:
    """A number at this access path varies from the first compilation on, as the data of tensors does: a scalar of numpy's is rarely a
    setting of a program."""
    if tr.dynamic is not False and config.automatic_dynamic_shapes and is_data(source) and may_vary(tr, source):
        tr.dynamic_hints.setdefault((NUMBER, source.steps), None)


def _is_counted(tr: Trace, source: GuardNode) -> bool:
    return tr.dynamic_hints.get((NUMBER, source.steps), 0) is None


def may_count() -> bool:
    """Whether a number that a frame itself changes, such as a counter, may vary. That is no question of sizes."""
    return config.automatic_dynamic_shapes and not config.specialize_int


def varying_keys(tr: Trace, source: GuardNode, keys: tuple[Any, ...]) -> list[int]:
    """Positions of the keys of a dict of ints that were others in an earlier compilation. Remembers them for the next."""
    if not keys or not may_count() or any(type(key) is not int for key in keys):
        return []
    hints, known = tr.dynamic_hints, ("keys", source.steps)
    seen = hints.get(known, keys)
    if len(seen) != len(keys):
        seen = keys
    hints[known] = seen = tuple([a if a == b else None for a, b in zip(seen, keys, strict=True)])
    positions = [i for i, key in enumerate(seen) if key is None]
    for i in positions:
        hints[NUMBER, tr.source(source, ir.DICT_KEY, i).steps] = None
    return positions


def are_others(tr: Trace, source: GuardNode, objects: Sequence[object]) -> bool:
    """Whether the objects at an access path may be others of their kind at the next call, as they were others in an earlier compilation. So
    may, from the first one on, those that variables of a frame that goes on lead to, which may have been made in the call. Remembers them,
    and keeps none alive."""
    if source.root.kind == ir.LOCAL and is_resumed(tr.root.model.code):
        return True
    key = _OBJECTS, source.steps
    seen = tr.dynamic_hints.get(key, [])
    # An object without weak references is known by its address: the guards of the version that demands it keep it alive.
    now = [Reference(each) if can_refer_weakly(each) else id(each) for each in objects]
    if seen is None or any(not _is_one(a, b) for a, b in zip(seen, now, strict=False)):
        tr.dynamic_hints[key] = None
        return True
    if len(seen) < len(now):
        tr.dynamic_hints[key] = now
    return False


def _is_one(a: object, b: object) -> bool:
    """Whether two references are one (an object has one of this type), or two addresses; no object is asked whether it equals another."""
    return a == b if type(a) is type(b) is int else a is b


FIXED = object()
"""In `tr.dynamic_hints`, in the place of an int that takes too much reasoning."""

STATIC_FLOAT = object()
"""In `tr.dynamic_hints`, in the place of a float that the backend needs as a constant."""


def is_data(source: GuardNode) -> bool:
    """Whether an argument, or a variable of a closure, leads to a value; not a global."""
    return source.root.kind != ir.CONST


def may_vary(tr: Trace, source: GuardNode) -> bool:
    """Numbers that are part of a program rather than its data are constants, also where they change: attributes of classes, defaults,
    and, unless they are floats, attributes of modules."""
    is_part_of_program, module = _owner_of(tr, source)
    if is_part_of_program:
        return False
    return module is None or config.allow_unspec_int_on_nn_module or not config.force_nn_module_property_static_shapes


def _owner_of(tr: Trace, source: GuardNode) -> tuple[bool, Any]:
    """Whether a value is part of the program, as its access path leads through an attribute of a class, a function's default or its code;
    else the module whose attribute the value is, or is within (the nearest one on the path); None if it is in no module."""
    node: GuardNode | None = source
    modules = tr.graph.modules.nodes
    while node is not None:
        if node.kind in _FIXED_KINDS:
            return True, None
        parent = node.parent
        if node.kind == ir.INSTANCE_DICT and parent in modules:
            return False, modules[parent]
        node = parent
    return False, None


_FIXED_KINDS = frozenset({ir.FUNC_DEFAULTS, ir.FUNC_KWDEFAULTS, ir.TYPE_ATTR, ir.FUNC_CODE})
