"""Comparison of results, and of a function run eagerly and compiled.

Input: functions and arguments, or two results. Output: differences with their paths; `Run` records. A difference of a run raises
AssertionError that names the place.
"""

from __future__ import annotations

import copy
import dataclasses
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import Any

import torch

from dynamo_lite.api import compile
from dynamo_lite.random_states import Generator, named_in, of_process
from dynamo_lite.record import BreakRecord, FrameRecord, log

from .backends import CompileCounterWithBackend, count_ops


def same(ref: object, res: object, tol: float = 1e-4, equal_nan: bool = False, exact_dtype: bool = True) -> bool:
    """Whether two results agree: tensors and floats within `tol` (absolute and relative), all else exactly.

    Lists, tuples, dicts, sets and objects with a `__dict__` are compared element by element. `exact_dtype=False` lets
    dtypes differ.
    """
    return not any(differences(ref, res, tol=tol, equal_nan=equal_nan, exact_dtype=exact_dtype))


def differences(
    ref: object,
    res: object,
    *,
    tol: float = 0.0,
    equal_nan: bool = True,
    exact_dtype: bool = True,
    by_largest: bool = False,
    path: str = "result",
) -> Iterator[str]:
    """One line for every place where `res` differs from `ref`, with the path to it. Nothing if they agree.

    With `tol` 0 tensors have to be equal bit by bit in value, dtype, device, strides, `requires_grad` and `grad`;
    otherwise strides are not compared. `by_largest`: `tol` is a part of the largest element of a tensor.
    """
    yield from _Comparison(tol, equal_nan, exact_dtype, by_largest).compare(ref, res, path)


class _Comparison:
    """One walk over two structures, with the pairs visited so far: cyclic structures end there."""

    def __init__(self, tol: float, equal_nan: bool, exact_dtype: bool, by_largest: bool = False) -> None:
        self.tol = tol
        self.equal_nan = equal_nan
        self.exact_dtype = exact_dtype
        self.by_largest = by_largest
        self.visited: set[tuple[int, int]] = set()

    def compare(self, ref: Any, res: Any, path: str) -> Iterator[str]:
        if isinstance(ref, torch.Tensor) and isinstance(res, torch.Tensor):
            yield from self._tensors(ref, res, path)
            return
        if type(ref) is not type(res):
            yield f"{path}: {type(ref).__name__} became {type(res).__name__}"
            return
        if ref is res or (id(ref), id(res)) in self.visited:
            return
        self.visited.add((id(ref), id(res)))
        if isinstance(ref, Mapping):
            yield from self._mappings(ref, res, path)
        elif isinstance(ref, Set):
            if ref != res:
                yield f"{path}: {ref!r} became {res!r}"
        elif isinstance(ref, float | complex):
            if not self._close(ref, res):
                yield f"{path}: {ref!r} became {res!r}"
        elif isinstance(ref, list | tuple):
            yield from self._sequences(ref, res, path)
        elif hasattr(ref, "__array_interface__"):
            yield from self._arrays(ref, res, path)
        elif _has_plain_state(ref):
            yield from self._mappings(vars(ref), vars(res), path + ".__dict__")
        elif not _equal(ref, res):
            yield f"{path}: {ref!r} became {res!r}"

    def _close(self, ref: complex, res: complex) -> bool:
        if ref != ref or res != res:
            return self.equal_nan and ref != ref and res != res
        if isinstance(ref, float) and math.isinf(ref):
            return ref == res
        return abs(ref - res) <= self.tol * (1 + abs(ref))

    def _arrays(self, ref: Any, res: Any, path: str) -> Iterator[str]:
        """Arrays and scalars of numpy, which torch may compute in another order: equal up to rounding."""
        if ref.dtype != res.dtype or ref.shape != res.shape:
            yield f"{path}: {ref.dtype}{list(ref.shape)} became {res.dtype}{list(res.shape)}"
        elif ref.dtype.kind not in "fc":
            if not _equal(ref, res):
                yield f"{path}: {ref!r} became {res!r}"
        else:
            tol = max(self.tol, 10 * sys.modules["numpy"].finfo(ref.dtype).eps)
            if not sys.modules["numpy"].allclose(ref, res, tol, tol, self.equal_nan):
                yield f"{path}: {ref!r} became {res!r}"

    def _tensors(self, ref: torch.Tensor, res: torch.Tensor, path: str) -> Iterator[str]:
        names = ["shape", "device", "requires_grad", "layout"]
        if self.exact_dtype:
            names.append("dtype")
        if self.tol == 0 and ref.layout is torch.strided and res.layout is torch.strided:
            ref_stride, res_stride = ref.stride(), res.stride()
            if ref_stride != res_stride and ref.numel() > 1:
                yield f"{path}: stride {ref_stride} became {res_stride}"
        for name in names:
            if getattr(ref, name) != getattr(res, name):
                yield f"{path}: {name} {getattr(ref, name)} became {getattr(res, name)}"
                if name != "requires_grad":
                    return
        if type(ref) is not type(res):
            yield f"{path}: {type(ref).__name__} became {type(res).__name__}"
        tol = self.tol if ref.dtype.itemsize > 1 else 0.0
        try:
            torch.testing.assert_close(
                res.detach(), ref.detach(), rtol=tol, atol=tol * _largest(ref) if self.by_largest else tol,
                equal_nan=self.equal_nan, check_dtype=self.exact_dtype, check_stride=False,
            )  # fmt: skip
        except AssertionError as error:
            yield f"{path}: " + " ".join(str(error).split())
        if ref.is_leaf and res.is_leaf and (ref.grad is not None or res.grad is not None):
            yield from self.compare(ref.grad, res.grad, path + ".grad")

    def _mappings(self, ref: Mapping[Any, Any], res: Mapping[Any, Any], path: str) -> Iterator[str]:
        if list(ref) != list(res):
            yield f"{path}: keys {list(ref)!r} became {list(res)!r}"
            return
        for key in ref:
            yield from self.compare(ref[key], res[key], f"{path}[{key!r}]")

    def _sequences(self, ref: Any, res: Any, path: str) -> Iterator[str]:
        if len(ref) != len(res):
            yield f"{path}: length {len(ref)} became {len(res)}"
            return
        for i, (one, other) in enumerate(zip(ref, res, strict=True)):
            yield from self.compare(one, other, f"{path}[{i}]")


def _largest(value: torch.Tensor) -> float:
    """The largest magnitude among the finite elements; at least what float32 can tell from zero beside one."""
    size = value.detach().abs().double()
    size = size[size.isfinite()]
    return max(size.max().item() if size.numel() else 0.0, 1e-6)


def _has_plain_state(value: object) -> bool:
    """Objects of user classes that compare by identity, and dataclasses (whose `__eq__` may meet tensors): equal if their
    attributes are."""
    by_fields = type(value).__eq__ is object.__eq__ or dataclasses.is_dataclass(value)
    return by_fields and isinstance(getattr(value, "__dict__", None), dict)


def _equal(ref: object, res: object) -> bool:
    result = ref == res
    return bool(result.all()) if hasattr(result, "all") else bool(result)


def identities(*roots: Any) -> dict[str, str]:
    """For every mutable object reached from `roots` by more than one path: each further path → the first one.

    Two runs of one function on equal inputs have equal identities if aliasing is kept; tensors that share memory count
    as the same object if they are the same tensor, and as `storage of` it otherwise.
    """
    first_path: dict[int, str] = {}
    storage_path: dict[int, str] = {}
    found: dict[str, str] = {}
    keep: list[Any] = []

    def visit(value: Any, path: str) -> None:
        if isinstance(value, torch.Tensor | list | dict | set | bytearray) or _has_plain_state(value):
            known = first_path.get(id(value))
            if known is not None:
                found[path] = known
                return
            first_path[id(value)] = path
            keep.append(value)
        if isinstance(value, torch.Tensor):
            if value.layout is torch.strided and value.numel():
                storage = value.untyped_storage()._cdata
                if storage in storage_path:
                    found[path] = "storage of " + storage_path[storage]
                else:
                    storage_path[storage] = path
        elif isinstance(value, dict):
            for key, item in value.items():
                visit(item, f"{path}[{key!r}]")
        elif isinstance(value, list | tuple):
            for i, item in enumerate(value):
                visit(item, f"{path}[{i}]")
        elif _has_plain_state(value) and not isinstance(value, type):
            visit(vars(value), path + ".__dict__")

    for i, root in enumerate(roots):
        visit(root, f"<{i}>")
    return found


@dataclass
class Run:
    """The result of `run_both`: the eager result, and the graphs, breaks and recompiles of the function."""

    result: Any = None
    exception: BaseException | None = None
    graphs: list[torch.fx.GraphModule] = field(default_factory=list)
    frames: list[FrameRecord] = field(default_factory=list)

    @property
    def graph_count(self) -> int:
        return len(self.graphs)

    @property
    def op_count(self) -> int:
        return sum(map(count_ops, self.graphs))

    @property
    def breaks(self) -> list[BreakRecord]:
        return [record for frame in self.frames for record in frame.breaks]

    @property
    def recompiles(self) -> list[str]:
        """The reasons for which a function was compiled again."""
        return [frame.recompile_reason for frame in self.frames if frame.recompile_reason is not None]


def run_both(
    fn: Callable[..., Any],
    *args: Any,
    _backend: str | Callable[..., Any] = "eager",
    _fullgraph: bool = False,
    _dynamic: bool | None = None,
    _calls: int = 2,
    _tol: float = 0.0,
    **kwargs: Any,
) -> Run:
    """Run `fn(*args, **kwargs)` eagerly and compiled, each on its own deep copy of the arguments, and compare.

    Compared are the results, the arguments after the call, which objects among arguments and results are the same or
    share memory, the type and arguments of an exception, and the state of random generators: those of torch, Python and numpy, and those
    that `fn` has in its closure or names among its globals. A module given as `fn` is copied as well and compared after the call; one in
    its closure is not, and runs as often as both versions are called. `_calls` says how often each version is called
    in a row, so that the second call runs the compiled code without compiling. All differences are listed in one
    AssertionError.
    """
    before = copy.deepcopy((fn if isinstance(fn, torch.nn.Module) else None, args, kwargs))
    generators = [Generator(torch.get_rng_state, torch.set_rng_state), *of_process(), *named_in(fn)]
    states = [generator.get() for generator in generators]
    counter = CompileCounterWithBackend(_backend)

    def calls(compiled: bool) -> tuple[list[Any], BaseException | None, Any]:
        module, call_args, call_kwargs = copy.deepcopy(before)
        target = fn if module is None else module
        if compiled:
            target = compile(target, backend=counter, fullgraph=_fullgraph, dynamic=_dynamic, isolate_recompiles=True)
        for generator, state in zip(generators, states, strict=True):
            generator.set(state)
        results: list[Any] = []
        caught = None
        try:
            results.extend(target(*call_args, **call_kwargs) for _ in range(_calls))
        except Exception as error:
            caught = error
        after = {"results": results, "args": call_args, "kwargs": call_kwargs, "module": module}
        return results, caught, (after, [generator.get() for generator in generators])

    with log.recording() as frames:
        expected, expected_error, expected_state = calls(compiled=False)
        actual, actual_error, actual_state = calls(compiled=True)
    found = list(_compare_errors(expected_error, actual_error))
    found += differences(expected_state[0]["results"], actual_state[0]["results"], tol=_tol, path="results")
    for name in ("args", "kwargs", "module"):
        one, other = expected_state[0][name], actual_state[0][name]
        if isinstance(one, torch.nn.Module):
            one, other = dict(one.state_dict(keep_vars=True)), dict(other.state_dict(keep_vars=True))
        found += differences(one, other, tol=_tol, path=name)
    found += differences(
        identities(expected_state[0]), identities(actual_state[0]), path="identities (further path: first path)"
    )
    if any(differences(expected_state[1], actual_state[1])):
        found.append("a random generator is in another state")
    if found:
        raise AssertionError("compiled and eager execution differ:\n  " + "\n  ".join(found)) from actual_error
    return Run(expected[-1] if expected else None, expected_error, counter.graphs, frames)


def _compare_errors(expected: BaseException | None, actual: BaseException | None) -> Iterator[str]:
    if type(expected) is not type(actual):
        yield f"exception: {expected!r} became {actual!r}"
    elif expected is not None and actual is not None and str(expected.args) != str(actual.args):
        yield f"exception arguments: {expected.args!r} became {actual.args!r}"
