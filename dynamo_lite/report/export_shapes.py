"""Which sizes of an exported graph vary: `dynamic_shapes`.

Input: a function, its arguments, and the specifications as torch.export takes them. Output: marks on the tensors of the arguments, for the
time of a capture, and the preconditions that sizes with one `Dim` are equal.
Invariant: a specification that fits nothing is an error that names the way to it; none is passed over.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

import torch
from torch.export import Dim

from dynamo_lite import markers
from dynamo_lite.dynamism.mark_constraints import name_of, refuse_relation, refuse_unequal
from dynamo_lite.exc import UserError, UserErrorType
from dynamo_lite.guards.mirror import GuardFailure

Path = tuple[Any, ...]
"""The name of an argument, and the keys that lead to a tensor in it."""


class InputPlace(NamedTuple):
    """A size of an argument that has a `Dim` with a name."""

    path: Path
    tensor: torch.Tensor
    dim: int
    name: str

    @property
    def size(self) -> int:
        return int(self.tensor.shape[self.dim])

    @property
    def dimension(self) -> str:
        return name_of(self.dim, _text_of(self.path))

    def __str__(self) -> str:
        return f"{_text_of(self.path)}.size({self.dim})"


def by_name(dims: list[InputPlace]) -> dict[str, list[InputPlace]]:
    found: dict[str, list[InputPlace]] = {}
    for place in dims:
        found.setdefault(place.name, []).append(place)
    return found


class Equality:
    """The precondition that sizes with one `Dim` are equal."""

    def __init__(self, places: list[InputPlace]) -> None:
        self.places = [place._replace(tensor=None) for place in places]

    def __str__(self) -> str:
        return " == ".join(map(str, self.places))

    def failures(self, named: dict[str, Any]) -> list[GuardFailure]:
        """The failures of arguments, given by name: at most one, where sizes that have to be equal are not."""
        sizes = []
        for place in self.places:
            value: Any = named
            for key in place.path:
                value = value[key]
            sizes.append(value.shape[place.dim])
        if len(set(sizes)) == 1:
            return []
        return [GuardFailure(str(self.places[0]), None, str(self), ", ".join(map(str, sizes)))]


def check_relations(dims: list[InputPlace], numbers: Any) -> None:
    """Raise `UserError` if sizes with different names depend on each other."""
    names = {str(place): place for place in dims}
    for number in numbers:
        place = names.get(number.text)
        others = [names[part] for part in number.parts if part in names]
        if place is not None and any(other.name != place.name for other in others):
            text = f"{number.text} == {number.equals}"
            refuse_relation(place.dimension, [other.dimension for other in others], text, number.user)


@contextlib.contextmanager
def marked(fn: Callable[..., Any], args: object, kwargs: object, dynamic_shapes: Any) -> Iterator[list[InputPlace]]:
    """Marks on the tensors of the arguments, as `dynamic_shapes` says, for a while. Gives the sizes that have a `Dim` with a name."""
    pairs = list(_specified(fn, args, kwargs, dynamic_shapes))
    saved = [(tensor, dict(tensor.__dict__)) for _, tensor, _ in pairs]
    dims = []
    try:
        for path, tensor, spec in pairs:
            for dim, wanted in _by_dimension(tensor, spec, path):
                _mark(tensor, dim, wanted, path)
                if isinstance(wanted, Dim):
                    dims.append(InputPlace(path, tensor, dim, wanted.__name__))
        for name, places in by_name(dims).items():
            if len({place.size for place in places}) > 1:
                refuse_unequal(name, {place.dimension: place.size for place in places})
        yield dims
    finally:
        for tensor, attributes in saved:
            tensor.__dict__.clear()
            tensor.__dict__.update(attributes)


def signature_of(fn: Any, follow_wrapped: bool = False) -> inspect.Signature:
    """The parameters of a function or of a module, as they are called. `follow_wrapped`: as a decorator says of the function that it
    replaces."""
    return inspect.signature(fn.forward if isinstance(fn, torch.nn.Module) else fn, follow_wrapped=follow_wrapped)


def takes_any_keywords(fn: Any) -> bool:
    """Whether a function may see in which order keyword arguments are given."""
    return any(p.kind is p.VAR_KEYWORD for p in signature_of(fn).parameters.values())


def has_signature(fn: Any) -> bool:
    """Whether a function tells its parameters: those in C need not."""
    try:
        signature_of(fn)
    except ValueError:
        return False
    return True


def named(fn: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    """The arguments by the names of the parameters. Where a wrapper takes any arguments, the names are those of the wrapped function, if
    they fit it."""
    signature = signature_of(fn)
    if all(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in signature.parameters.values()):
        with contextlib.suppress(TypeError):
            return dict(signature_of(fn, follow_wrapped=True).bind(*args, **kwargs).arguments)
    return dict(signature.bind(*args, **kwargs).arguments)


# -- what is specified


def _refuse(message: str, advice: str) -> NoReturn:
    raise UserError(UserErrorType.INVALID_INPUT, f"{message}\n  do:  {advice}")


def _specified(fn: Any, args: Any, kwargs: Any, dynamic_shapes: Any) -> Iterator[tuple[Path, torch.Tensor, Any]]:
    if dynamic_shapes is None:
        return
    given = named(fn, args, kwargs)
    if not isinstance(dynamic_shapes, Mapping):
        if not _is_sequence(dynamic_shapes):
            _refuse(
                f"dynamic_shapes is {dynamic_shapes!r}",
                "pass a dict by the names of the arguments, or a list of one item for each",
            )
        dynamic_shapes = _by_position(
            dynamic_shapes,
            list(given),
            f"; the arguments are {', '.join(given)}",
            "give one item for each argument, None for one without sizes that vary",
        )
    for name, spec in dynamic_shapes.items():
        if name not in given:
            raise UserError(
                UserErrorType.INVALID_INPUT, f"dynamic_shapes names {name!r}; the arguments are {', '.join(given)}"
            )
        yield from _pairs(given[name], spec, (name,))


def _pairs(value: Any, spec: Any, path: Path) -> Iterator[tuple[Path, torch.Tensor, Any]]:
    """Each tensor of an argument with the way to it and its specification."""
    if spec is None:
        return
    if isinstance(value, torch.Tensor):
        yield path, value, spec
        return
    keys = list(value) if isinstance(value, Mapping) else range(len(value)) if _is_sequence(value) else None
    where = _text_of(path)
    if keys is None:
        _refuse(
            f"dynamic_shapes has sizes for {where}, which is no tensor but of type {type(value).__name__}, and a constant of the graph",
            "leave it out of dynamic_shapes, or pass a number that varies in a tensor",
        )
    if isinstance(spec, Mapping):
        chosen = spec
    elif _is_sequence(spec) and not isinstance(value, Mapping):
        chosen = _by_position(
            spec,
            keys,
            f" for {where}, which has {len(value)}",
            "give one item for each, None for one without sizes that vary, or a dict by position",
        )
    else:
        _refuse(
            f"dynamic_shapes has {spec!r} for {where}, which is of type {type(value).__name__}",
            f"give a {'dict by its keys' if isinstance(value, Mapping) else 'list of one item for each, or a dict by position'}",
        )
    for key, inner in chosen.items():
        if key not in keys:
            _refuse(
                f"dynamic_shapes names {_text_of((*path, key))}; the keys of {where} are {', '.join(map(repr, keys))}",
                "name one that is there",
            )
        yield from _pairs(value[key], inner, (*path, key))


def _is_sequence(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _by_position(spec: Sequence[Any], keys: Sequence[Any], where: str, advice: str) -> dict[Any, Any]:
    """A specification that is a sequence, by the keys for which its items stand; `where` says in the error which these are."""
    if len(spec) != len(keys):
        _refuse(f"dynamic_shapes has {len(spec)} items{where}", advice)
    return dict(zip(keys, spec, strict=True))


def _text_of(path: Path) -> str:
    return "".join([str(path[0]), *[f"[{key!r}]" for key in path[1:]]])


def _by_dimension(tensor: torch.Tensor, spec: Any, path: Path) -> Iterator[tuple[int, Any]]:
    """The dimensions of a tensor that are specified, counted from the first one."""
    where = _text_of(path)
    if isinstance(spec, Mapping):
        chosen = spec
    elif _is_sequence(spec):
        chosen = _by_position(
            spec,
            range(tensor.ndim),
            f" for {where}, which has {tensor.ndim} dimensions",
            "give one item for each dimension, None for one that does not vary, or a dict by dimension",
        )
    else:
        _refuse(
            f"dynamic_shapes has {spec!r} for {where}, which is a tensor",
            f'give a dict by dimension ({{0: torch.export.Dim("n")}}), or a list of one item for each of its {tensor.ndim} dimensions',
        )
    for dim, wanted in chosen.items():
        if type(dim) is not int:
            _refuse(
                f"dynamic_shapes has a size for dimension {dim!r} of {where}", "number dimensions by ints, from 0 on"
            )
        if not -tensor.ndim <= dim < tensor.ndim:
            message = f"dynamic_shapes has a size for {name_of(dim, where)}, which has {tensor.ndim} dimensions"
            raise UserError(UserErrorType.INVALID_INPUT, message)
        yield dim % tensor.ndim, wanted


SPECIFICATIONS = 'a torch.export.Dim, "dynamic", Dim.AUTO, or None'


def _mark(tensor: torch.Tensor, dim: int, wanted: Any, path: Path) -> None:
    where, size = name_of(dim, _text_of(path)), tensor.shape[dim]
    if hasattr(wanted, "root"):
        _refuse(
            f"{where} is given the derived Dim {wanted.__name__}, which is not supported",
            "give it a Dim of its own; what the code demands of it becomes a precondition",
        )
    hint = getattr(getattr(wanted, "type", None), "name", None)  # of Dim.AUTO, Dim.STATIC, Dim.DYNAMIC
    if type(wanted) is int and wanted != size:
        _refuse(
            f"dynamic_shapes says that {where} is {wanted}, but it is {size}", "say what it is in the example, or None"
        )
    if wanted is None or type(wanted) is int or hint == "STATIC":
        return
    if hint == "AUTO":
        markers.maybe_mark_dynamic(tensor, dim)
        return
    if not (wanted == "dynamic" if isinstance(wanted, str) else isinstance(wanted, Dim) or hint == "DYNAMIC"):
        _refuse(f"dynamic_shapes has {wanted!r} for {where}", f"say {SPECIFICATIONS}")
    if type(size) is int and size < 2:
        _refuse(
            f"{where} is to vary, but is {size} in the example, and sizes of 0 and 1 are constants",
            "give an example in which it is 2 or more, or say Dim.AUTO or None",
        )
    low, high = getattr(wanted, "min", None), getattr(wanted, "max", None)
    low = low if type(low) is int and low > 2 else None
    markers.mark_dynamic(tensor, dim, min=low, max=high if type(high) is int else None)
