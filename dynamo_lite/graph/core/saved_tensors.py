"""Hooks of the tensors that autograd saves: `torch.autograd.graph.saved_tensors_hooks` inside of a graph and around it.

Input: for a block inside, the hooks as bodies, one for each tensor that operators save there. Output: two functions for the nodes of the
block, which install these hooks in autograd while the block runs, for real or in a compiler's trace. For hooks around a compiled graph:
the graph as it was captured, which runs in place of the compiled one.
Invariant: hooks see the tensors that operators save in eager execution, in that order. A compiled graph is one node of autograd and saves
other tensors: it runs only under hooks that are known to return what they got.
Mirrors `torch/csrc/autograd/saved_variable.cpp` and `torch/csrc/autograd/python_saved_variable_hooks.cpp`.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch.fx.node import has_side_effect

from .modes import as_now

_A = torch._C._autograd


class Saved(NamedTuple):
    """The facts that a block has about one tensor that an operator saves: the number of the bodies that take it. `outer`: its place among
    the tensors from outside, if it is one of them; else its type, and its sizes if they are fixed."""

    body: int
    outer: int | None
    dtype: torch.dtype | None
    shape: tuple[int, ...] | None


class Packed(NamedTuple):
    """The object that autograd keeps in the place of a tensor."""

    unpack: Callable[..., Any]
    tensors: tuple[Any, ...]


class Hooks:
    """The hooks of one block while its operators run."""

    def __init__(self, saved: tuple[Any, ...], bodies: tuple[Any, ...], lifted: tuple[Any, ...]) -> None:
        self.saved = [Saved(*s) for s in saved]
        self.bodies = bodies
        self.lifted = lifted
        self.n = 0

    def pack(self, tensor: object) -> Packed:
        """Called by autograd when an operator saves a tensor."""
        pack, unpack = self.bodies[self._next(tensor).body]
        return Packed(unpack, tuple(pack(tensor, *self.lifted)))

    def _next(self, tensor: Any) -> Saved:
        """The facts about the tensor: the next ones in order, or, where operators go other ways for real tensors, those with its
        metadata."""
        if self.n < len(self.saved) and self._fits(self.saved[self.n], tensor):
            self.n += 1
            return self.saved[self.n - 1]
        for known in self.saved:
            if self._fits(known, tensor) and (known.outer is not None or known.shape is not None):
                return known
        raise RuntimeError(
            f"an operator saves a tensor of {tensor.dtype}, {tuple(tensor.shape)} which hooks were not followed for"
        )

    def _fits(self, known: Saved, tensor: Any) -> bool:
        if known.outer is not None:
            return tensor is self.lifted[known.outer]
        return known.dtype is tensor.dtype and (known.shape is None or known.shape == tuple(tensor.shape))

    def unpack(self, packed: Packed) -> Any:
        """Called by autograd when the tensor is needed again."""
        return packed.unpack(*packed.tensors, *self.lifted)[0]


class Recorder:
    """Hooks that change nothing and remember what they get: `(tensor, ambient())`."""

    def __init__(self, ambient: Callable[[], Any]) -> None:
        self.ambient = ambient
        self.seen: list[tuple[Any, Any]] = []

    def pack(self, tensor: object) -> Any:
        self.seen.append((tensor, self.ambient()))
        return tensor

    def unpack(self, tensor: object) -> Any:
        return tensor


class _Open(threading.local):
    def __init__(self) -> None:
        self.priors: deque[bool] = deque()


_open = _Open()


def enter(hooks: Any) -> None:
    """Make these the hooks of this thread. Compilers hide the program's while they trace, but these are part of the graph."""
    priors = _open.priors
    n = len(priors)
    try:
        priors.extend(map(_A._saved_tensors_hooks_set_tracing, (False,)))  # at once, whatever handlers of signals raise
        _A._push_saved_tensors_default_hooks(hooks.pack, hooks.unpack)
    except BaseException:
        if len(priors) > n:
            _A._saved_tensors_hooks_set_tracing(priors.pop())
        raise


def leave() -> None:
    """Undo the last `enter` of this thread."""
    _A._pop_saved_tensors_default_hooks()
    _A._saved_tensors_hooks_set_tracing(_open.priors.pop())


def push_hooks(saved: Any = (), bodies: Any = (), lifted: Any = ()) -> None:
    """A node: the block begins. `bodies` are pairs which take, and end with, `lifted`."""
    enter(Hooks(tuple(saved), tuple([(pack, as_now(unpack)) for pack, unpack in bodies]), tuple(lifted)))


def pop_hooks() -> None:
    """A node: the block ends."""
    leave()


has_side_effect(push_hooks)
has_side_effect(pop_hooks)


@contextlib.contextmanager
def closed() -> Iterator[None]:
    """Leave, at the end, what was entered inside and not left because of an error."""
    n = len(_open.priors)
    try:
        yield
    finally:
        while len(_open.priors) > n:
            leave()


# -- around a graph

_LOSSLESS = frozenset({"torch.utils.checkpoint", "torch.autograd.graph"})
"""Modules whose hooks give back the very values that they got, whatever tensors these are: checkpoints, `save_on_cpu`."""


def are_lossless(pack: object) -> bool:
    return getattr(pack, "__module__", None) in _LOSSLESS


def hooks_around() -> Any:
    """The hooks that the program has around what runs now, `(pack, unpack)` or None."""
    return _A._top_saved_tensors_default_hooks(True)


def see_every_operator() -> bool:
    """Whether the program has hooks now that may do anything with what each operator saves, at the time when it does."""
    hooks = hooks_around()
    return hooks is not None and torch.is_grad_enabled() and not are_lossless(hooks[0])
