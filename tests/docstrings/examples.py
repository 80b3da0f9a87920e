"""The examples of torch's docstrings, as programs.

Input: the name of a documented object. Output: its `Program`: statements, with what they expect to be defined. A statement that a
docstring shows but that is not Python is left out.
"""

import ast
import functools
import importlib
import inspect
import re
import types
from collections.abc import Iterator
from dataclasses import dataclass, field

MODULES = (
    "torch",
    "torch.nn",
    "torch.nn.functional",
    "torch.nn.init",
    "torch.nn.attention",
    "torch.nn.parameter",
    "torch.nn.utils",
    "torch.nn.utils.fusion",
    "torch.nn.utils.parametrizations",
    "torch.nn.utils.parametrize",
    "torch.nn.utils.prune",
    "torch.nn.utils.rnn",
    "torch.nn.utils.stateless",
    "torch.optim",
    "torch.optim.lr_scheduler",
    "torch.optim.swa_utils",
    "torch.func",
    "torch.distributions",
    "torch.distributions.constraint_registry",
    "torch.distributions.constraints",
    "torch.distributions.kl",
    "torch.distributions.transforms",
    "torch.sparse",
    "torch.special",
    "torch.linalg",
    "torch.fft",
    "torch.autograd",
    "torch.autograd.forward_ad",
    "torch.autograd.function",
    "torch.autograd.functional",
    "torch.autograd.graph",
    "torch.amp",
    "torch.library",
    "torch.masked",
    "torch.nested",
    "torch.overrides",
    "torch.random",
    "torch.signal.windows",
    "torch.utils._pytree",
    "torch.utils.checkpoint",
    "torch.utils.data",
)
"""Where documented objects are looked for, with the methods of their classes."""

PRELUDE = """
import math, random, os, sys, time, functools, copy, collections, warnings, operator, itertools
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
import torch.autograd.forward_ad as fwAD
import torch.distributions as dist
import torch.nn.utils.prune as prune
import torch.nn.utils.parametrize as P
from torch import Tensor
from torch.nn.parameter import Parameter
from typing import *
"""
"""What docstrings take as imported."""

STAND_INS = {
    "model": "model = nn.Linear(4, 4)",
    "optimizer": "optimizer = torch.optim.SGD(nn.Linear(4, 4).parameters(), lr=0.05, momentum=0.9)",
    "input": "input = torch.randn(2, 4)",
    "inputs": "inputs = torch.randn(2, 4)",
    "target": "target = torch.randn(2, 4)",
    "loss_fn": "loss_fn = nn.MSELoss()",
    "train": "def train(*args): optimizer.step()",
    "validate": "def validate(*args): return 0.5",
    "dataset": "dataset = [(torch.randn(2, 4), torch.randn(2, 4)) for _ in range(3)]",
    "loader": "loader = [(torch.randn(2, 4), torch.randn(2, 4)) for _ in range(3)]",
    "data_loader": "data_loader = [(torch.randn(2, 4), torch.randn(2, 4)) for _ in range(3)]",
    "sz": "sz = 4",
    "dataloader": "dataloader = [(torch.randn(2, 4), torch.randn(2, 4)) for _ in range(3)]",
}
"""Names that several docstrings use and do not define: statements that define them."""


LEFT_OUT = frozenset(
    {
        "torch.nn.CircularPad3d",
        "torch.nn.ReflectionPad3d",
        "torch.nn.ReplicationPad3d",
        "torch.optim.swa_utils.AveragedModel",
        "torch.optim.swa_utils.SWALR",
    }
)
"""They take too long for a sweep: these pad sixty million numbers, and those make nine hundred training steps in one function."""


@dataclass
class Program:
    """The statements of one docstring; `module` is where the documented object is from."""

    name: str
    module: str
    statements: list[ast.stmt] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)


@functools.cache
def docstrings() -> dict[str, tuple[str, str]]:
    """Name → module and docstring, of everything with examples; a docstring that several have is taken once."""
    found, known = {}, set()
    for name, module, value in _public():
        text = getattr(value, "__doc__", None)
        if isinstance(text, str) and ">>>" in text and text not in known and name not in LEFT_OUT:
            known.add(text)
            found[name] = module, text
    return found


def _public() -> Iterator[tuple[str, str, object]]:
    torch = importlib.import_module("torch")
    for name in dir(torch.Tensor):
        yield f"torch.Tensor.{name}", "torch", getattr(torch.Tensor, name)
    for module_name in MODULES:
        module = importlib.import_module(module_name)
        yield module_name, module_name, module
        for name, value in sorted(vars(module).items()):
            if name.startswith("_") or isinstance(value, types.ModuleType):
                continue
            if isinstance(value, type) and value.__name__.endswith("Tensor") and value is not torch.Tensor:
                continue
            owner = getattr(value, "__module__", None) or module_name
            if not isinstance(owner, str) or not owner.startswith("torch"):
                continue
            home = owner if owner.startswith(module_name) else module_name
            yield f"{module_name}.{name}", home, value
            if inspect.isclass(value):
                for key, item in sorted(vars(value).items()):
                    if not key.startswith("__") and not isinstance(item, type):
                        yield f"{module_name}.{name}.{key}", home, item


def names() -> list[str]:
    """Everything with examples."""
    return list(docstrings())


def program(name: str) -> Program:
    """The examples of one documented object."""
    module, text = docstrings()[name]
    found = Program(name, module)
    for chunk in _chunks(text):
        for statement in _statements(chunk):
            if isinstance(statement, str):
                found.unreadable.append(statement)
            else:
                found.statements.append(statement)
    return found


_prompt = re.compile(r"\s*(>>>|\.\.\.)( ?)(.*)")


def _chunks(text: str) -> Iterator[list[str]]:
    """Lines behind prompts that follow one another."""
    lines: list[str] = []
    for line in text.splitlines():
        match = _prompt.fullmatch(line)
        if match and (match[1] == ">>>" or lines):
            lines.append(match[3])
        else:
            if lines:
                yield lines
            lines = []
    if lines:
        yield lines


def _statements(lines: list[str]) -> Iterator[ast.stmt | str]:
    """The statements of a chunk, and the lines that are not Python."""
    first = 0
    while first < len(lines):
        end, found = first + 1, None
        for last in range(len(lines), first, -1):
            try:
                found, end = ast.parse("\n".join(lines[first:last])).body, last
                break
            except SyntaxError:
                continue
        if found is None:
            yield lines[first]
        else:
            yield from found
        first = end
