"""A graph as a program of its own.

Input: a graph, its inputs, a backend. Output: the text of a script that needs torch and this package, and for inputs that can't be written
down shortly a note that they are random.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule
from torch.fx.graph_module import _format_import_block
from torch.package import sys_importer

from dynamo_lite.exc import many
from dynamo_lite.tune.distribution import Distribution

SHORT = 64
"""Elements of a tensor that is written down."""


@dataclass(frozen=True)
class RandomInput:
    """A tensor that is made anew, of a `Distribution`."""

    seed: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: str
    requires_grad: bool
    distribution: tuple[float, float]

    @classmethod
    def like(cls, value: torch.Tensor, seed: int) -> RandomInput:
        """Data of the same kind and distribution as those of a tensor."""
        about = (tuple(value.shape), tuple(value.stride()), value.dtype, str(value.device), value.requires_grad)
        first, second = Distribution.of(value)
        return cls(seed, *about, (round(first, 4), round(second, 4)))

    def make(self) -> torch.Tensor:
        """The tensor."""
        generator = torch.Generator().manual_seed(self.seed)
        value = torch.empty_strided(self.shape, self.stride, dtype=self.dtype, device=self.device)
        Distribution(*self.distribution).fill(value, generator)
        return value.requires_grad_(self.requires_grad)

    def expression(self) -> str:
        """The call that makes it, in a script."""
        fields = ", ".join(repr(getattr(self, name)) for name in self.__dataclass_fields__)
        return f"RandomInput({fields}).make()"


def script_of(
    gm: GraphModule, inputs: Sequence[Any], backend: str, where: tuple[str, str] | None, training: bool, problem: str
) -> str:
    """The text. `where`: module and name of a backend that is known to the program only."""
    values = list(map(_expression, inputs))
    random = any("RandomInput" in text for text in values)
    classes = list(_classes(gm, "Repro"))
    names, code = {}, "\n".join(classes)
    for part in [gm, *(m for m in gm.modules() if isinstance(m, GraphModule))]:
        used = part.graph.python_code("self").globals
        names.update({name: value for name, value in used.items() if re.search(rf"\b{name}\b", code)})
    operators = sum(node.op.startswith("call_") for node in gm.graph.nodes)
    lines = [
        f'"""The backend {backend} on a graph of {many(operators, "operator")}.',
        "",
        *textwrap.wrap(problem, 118),
        "",
        "Written by `python -m dynamo_lite minify`.",
        '"""',
        "",
        "import sys",
        "",
        "import torch",
        _format_import_block({k: v for k, v in names.items() if k != "torch"}, sys_importer).strip(),
        "",
        "import dynamo_lite",
        "from dynamo_lite.backends.difference import problem",
        *(["from dynamo_lite.report.repro import RandomInput"] if random else []),
        *([f"from {where[0]} import {where[1].partition('.')[0]}"] if where is not None else []),
        "",
        "",
        *classes,
        "",
        "def inputs():",
        "    return [",
        *(f"        {text}," for text in values),
        "    ]",
        "",
        "",
        "def outcome(model):",
        "    torch.manual_seed(0)",
        "    values = inputs()",
        "    results = model(*values)",
    ]
    lines += [
        *(_BACKWARD if training else []),
        *_COMPARISON,
        f"found = outcome({_compiled(backend, where)})",
        *_VERDICT,
    ]
    text = "\n".join(line.rstrip() for line in lines) + "\n"
    while "\n\n\n\n" in text:
        text = text.replace("\n\n\n\n", "\n\n\n")
    return text


_BACKWARD = [
    "    ends = [r for r in results if r.requires_grad]",
    "    torch.autograd.backward(ends, [torch.ones_like(r) for r in ends])",
    "    results = [*results, *(v.grad for v in values if isinstance(v, torch.Tensor) and v.grad is not None)]",
]
_COMPARISON = ["    return [*results, *values]", "", "", "expected = outcome(Repro())"]
_VERDICT = [
    "difference = problem(expected, found)",
    'print(difference or "as in eager execution")',
    "sys.exit(difference is not None)",
]
"""The end of a script: behind the call of the model, and behind both outcomes."""


def _compiled(backend: str, where: tuple[str, str] | None) -> str:
    """The expression of the compiled model."""
    return f"dynamo_lite.compile(Repro(), backend={where[1] if where else repr(backend)}, fullgraph=True)"


def _classes(gm: GraphModule, name: str) -> Iterator[str]:
    """The classes of a graph and of the graphs inside, inner ones first."""
    inner = {}
    for child_name, child in gm.named_children():
        if isinstance(child, GraphModule):
            inner[child_name] = f"{name}_{child_name}"
            yield from _classes(child, inner[child_name])
    yield f"class {name}(torch.nn.Module):"
    if inner:
        yield "    def __init__(self):"
        yield "        super().__init__()"
        for child_name, class_name in inner.items():
            yield f"        self.{child_name} = {class_name}()"
        yield ""
    yield textwrap.indent(gm.graph.python_code("self").src.strip(), "    ")
    yield ""
    yield ""


def _expression(value: Any) -> str:
    if isinstance(value, RandomInput):
        return value.expression()
    if not isinstance(value, torch.Tensor):
        return repr(value)
    if value.numel() > SHORT or not value.is_contiguous():
        return RandomInput.like(value, 0).expression() + "  # other values than those that failed"
    data = value.detach().cpu().tolist()
    numbers = re.sub(r"\b(nan|inf)\b", r"float('\1')", repr(data))
    return f"torch.tensor({numbers}, dtype={value.dtype}, device={str(value.device)!r}, requires_grad={value.requires_grad})"
