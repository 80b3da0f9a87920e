"""Modules and their backward hooks, which the results of a graph keep alive.

Input: the registrations of hooks that the graph calls by number (`core.module_hooks`), which hold modules and hooks weakly. Output: a
wrapper around the compiled graph.
Invariant: a module and its hooks live as long as somebody may ask for the gradients of a result of the graph.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dynamo_lite.graph.core.effect import Compiled, GraphEffect, Wrapper
from dynamo_lite.graph.core.module_hooks import Registration

if TYPE_CHECKING:
    pass


@dataclass(eq=False)
class HookLifetimes(GraphEffect):
    """`registrations`: those of the calls of modules in the graph."""

    registrations: list[Registration] = field(default_factory=list)

    def call_wrapper(self) -> Wrapper | None:
        return functools.partial(with_hooks, self.registrations) if self.registrations else None


def with_hooks(registrations: list[Registration], compiled: Compiled) -> Compiled:
    """A graph whose results keep the modules and hooks alive."""

    def run(*args: Any) -> Any:
        made = compiled(*args)
        held = [registration.objects() for registration in registrations]
        for result in made:
            if getattr(result, "grad_fn", None) is not None:
                result.grad_fn.metadata.setdefault("dynamo_lite_hooks", []).append(held)
        return made

    return run
