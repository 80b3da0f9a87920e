"""Run an unmodified script with torch's compile entry points redirected here.

Input: the path of a script or the name of a module, and its arguments. Output: its exit status as if run by Python. The
redirection ends with the script.
"""

from __future__ import annotations

import contextlib
import os
import runpy
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

import torch

from dynamo_lite import markers
from dynamo_lite.api import compile, compile_module_, disable, overriding, reset


@contextlib.contextmanager
def redirected(backend: str | Callable[..., Any] | None = None) -> Iterator[None]:
    """Within the block `torch.compile`, `nn.Module.compile` and the functions of `torch.compiler` that belong to them are ours, and
    `backend` takes the place of every one that the program asks for, in these and in our own functions."""

    def redirected_compile(model: object = None, **options: Any) -> Any:
        return compile(model, **{"backend": "inductor", **options})

    def redirected_module_compile(self: torch.nn.Module, **options: Any) -> None:
        compile_module_(self, **{"backend": "inductor", **options})

    replacements: list[tuple[Any, str, Callable[..., Any]]] = [
        (torch, "compile", redirected_compile),
        (torch.nn.Module, "compile", redirected_module_compile),
        (torch.compiler, "reset", reset),
        (torch.compiler, "disable", disable),
        (torch.compiler, "set_stance", markers.set_stance),
        (torch.compiler, "allow_in_graph", markers.allow_in_graph),
        (torch.compiler, "assume_constant_result", markers.assume_constant_result),
    ]
    with contextlib.ExitStack() as stack:
        stack.enter_context(overriding(backend))
        for owner, name, replacement in replacements:
            stack.enter_context(mock.patch.object(owner, name, replacement))
        yield


def run_script(target: str, arguments: Sequence[str], *, as_module: bool = False) -> None:
    """Run a script, or with `as_module` what `python -m` would run, as `__main__`. Its exceptions propagate."""
    with mock.patch.object(sys, "argv", [target, *arguments]), mock.patch.object(sys, "path", list(sys.path)):
        if as_module:
            sys.path[0] = os.getcwd()
            runpy.run_module(target, run_name="__main__", alter_sys=True)
        else:
            sys.path[0] = os.path.dirname(os.path.abspath(target))
            runpy.run_path(target, run_name="__main__")
