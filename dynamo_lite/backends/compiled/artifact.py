"""Graphs compiled by Inductor, as plain data and back, without Inductor.

Input: the callable that `compile_fx` returned, and the settings under which it did. Output: data for `marshal`; in another process a
callable on the flat inputs, while torch's compilers are not even imported: that import is most of what their caches leave of a warm start.
Invariant: only what is known through and through is written (`Refused` otherwise, and torch's own caches do the work): graphs on the CPU
that `compiled_graph` knows, made of C++ kernels and functions of torch.

Data may be used where `settings` is the same. It holds what the key of torch's own caches holds beside the graph and its inputs, which the
guards compare: the settings of the compilers, the variables of the environment that they read, torch's global flags, the processor.
"""

from __future__ import annotations

import functools
import os
import platform
import sys
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from .compiled_graph import label_of, records_of, runner
from .generated import Generated, alias_of, resolved
from .kernels import library_of, loaded, tell_address

# ----------------------------------------------------------------------------------------------------------------------
# Settings.

CONFIGS = tuple(
    f"torch.{name}"
    for name in """
    _inductor.config _inductor.config_comms _functorch.config _dynamo.config fx.experimental._config compiler.config
    """.split()
)
"""Modules with settings of torch's compilers."""

VARIABLES = tuple(
    """
    TORCH PYTORCH PT2 INDUCTOR AOT TRITON TVM HALIDE CUTLASS CUTEDSL CUDA CUBLAS CUDNN ROCM HIP ATEN MKL DNNL ONEDNN ONEAPI OMP KMP GOMP CXX
    CC= CPATH CPLUS C_INCLUDE FX_ FAKE_ TENSORIFY PARTITIONER ENABLE_ UNSAFE_ ROLE_RANK _SPLITTER
    """.split()
)
"""The beginnings of the names of environment variables that torch's compilers read."""

WITHOUT_EFFECT = frozenset({"TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"})
"""Where files lie; Inductor sets these itself."""

FLAGS = tuple(
    """
    cuda.matmul.fp32_precision cuda.matmul.allow_tf32 cuda.matmul.allow_fp16_reduced_precision_reduction
    cuda.matmul.allow_bf16_reduced_precision_reduction mkldnn.enabled mkldnn.deterministic mkldnn.matmul.fp32_precision
    mkldnn.conv.fp32_precision mkldnn.rnn.fp32_precision
    """.split()
)
"""Flags of `torch.backends` that decide which code is made."""

PLAIN = (str, int, float, bool, type(None))


def settings(mode: str | None = None, options: Mapping[str, Any] | None = None) -> list[Any] | None:
    """All settings on which Inductor's code depends; None if they can't be listed."""
    import torch

    options = dict(options or {})
    environment = _environment()
    if environment is None or not _are_default() or not all(type(value) in PLAIN for value in options.values()):
        return None
    if torch._C._is_any_autocast_enabled():  # AOTAutograd switches it off around compiled graphs
        return None
    return [mode, sorted(options.items()), environment, _flags(), processor()]


def _environment() -> dict[str, str] | None:
    """The variables that torch's compilers have read, or will; None if they have been changed since they may have been read."""
    now = _of_interest(os.environ)
    if CONFIGS[0] not in sys.modules:
        return now
    try:
        with open("/proc/self/environ", "rb") as file:  # as the process began
            first = dict(os.fsdecode(item).partition("=")[::2] for item in file.read().split(b"\0") if item)
    except OSError:
        return None
    return now if _of_interest(first) == now else None


def _of_interest(variables: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in sorted(variables.items())
        if f"{name}=".startswith(VARIABLES) and name not in WITHOUT_EFFECT
    }


def _are_default() -> bool:
    """Whether nobody has changed the compilers' settings: nobody can have who has not loaded them."""
    modules = [sys.modules[name] for name in CONFIGS if name in sys.modules]
    return all(
        module._is_default(setting)
        or getattr(module, setting) == module._config[setting].default  # set, to its default
        for module in modules
        for setting in module._config
    )


def _flags() -> list[Any]:
    import torch

    found: list[Any] = [
        torch.get_num_threads(),
        str(torch.get_default_dtype()),
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        torch.utils.deterministic.fill_uninitialized_memory,
        torch.get_float32_matmul_precision(),
    ]
    for path in FLAGS:
        found.append(str(functools.reduce(lambda at, name: getattr(at, name, None), path.split("."), torch.backends)))
    return found


@functools.cache
def processor() -> str:
    """The kind of processor: kernels are compiled for exactly this one."""
    try:
        with open("/proc/cpuinfo") as file:
            lines = []
            for line in file:
                if not line.strip():
                    break  # the others are alike
                if line.partition(":")[0].strip() in ("model name", "flags", "Features", "CPU part", "isa"):
                    lines.append(line)
    except OSError:
        lines = []
    return "".join(lines) or platform.processor()


# ----------------------------------------------------------------------------------------------------------------------
# Writing.


def write(compiled: object) -> dict[str, Any]:
    """The data of what `compile_fx` returned. Raises `Refused`."""
    metadata, graph = records_of(compiled)
    code = Generated(graph.source_code)
    names = graph.current_callable.__func__.__globals__
    kernels = {name: library_of(names[name]) for name in code.kernels}
    libraries = list(dict.fromkeys(path for path, _ in kernels.values()))
    return {
        "code": code.compile(f"<inductor {graph.cache_key}>"),
        "kernels": [(name, libraries.index(path), entry) for name, (path, entry) in kernels.items()],
        "libraries": list(map(_contents, libraries)),
        "extern": [(name, alias_of(names["extern_kernels"], name)) for name in code.extern],
        "chains": code.chains,
        "outputs": len(metadata.output_info),
        "label": label_of(graph),
    }


def _contents(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


# ----------------------------------------------------------------------------------------------------------------------
# Reading.


def read(data: dict[str, Any], library: Callable[[bytes], str]) -> Callable[..., Any]:
    """The callable again; `library` puts a shared library into a file. Raises `Mismatch`, and OSError."""
    import torch

    tell_address()
    names: dict[str, Any] = {"__name__": __name__, "torch": torch}
    paths = [library(contents) for contents in data["libraries"]]
    for name, place, entry in data["kernels"]:
        names[name] = loaded(paths[place], entry)
    extern = {name: resolved(torch, path) for name, path in data["extern"]}
    if extern:
        names["extern_kernels"] = SimpleNamespace(**extern)
    for path in data["chains"]:
        resolved(torch, path)
    exec(data["code"], names)
    return runner(names["call"], data["outputs"], data["label"])
