"""Everything that waits for a CUDA device, in one command.

Captures small models on the device with each backend, compares results and gradients with eager, measures microseconds per call beside
eager and torch.compile (`autotune`: what each candidate took, and which won), and writes `benchmarks/results/gpu-<date>.json` with a
summary on the terminal. Run it with `python -m benchmarks.gpu.run [--device cpu] [--backends eager,inductor]`; `--device cpu` tries the
script itself. Backends for inference (`--inference cudagraphs,onnxruntime,tensorrt`) are compared at several sizes, with what they
write and the random numbers they draw; what is not installed is told. Needs torch alone.
"""

from __future__ import annotations

import argparse
import copy
import datetime
import json
import pathlib
import platform
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

import dynamo_lite
from dynamo_lite.backends.registry import requirements_of
from dynamo_lite.record import log
from dynamo_lite.testing import CompileCounterWithBackend, differences

RESULTS = pathlib.Path(__file__).resolve().parents[1] / "results"
ROUNDS, CALLS = 7, 50


def mlp() -> tuple[torch.nn.Module, torch.Tensor]:
    layers = [layer for _ in range(8) for layer in (torch.nn.Linear(256, 256), torch.nn.GELU())]
    return torch.nn.Sequential(*layers), torch.randn(64, 256)


def convolutions() -> tuple[torch.nn.Module, torch.Tensor]:
    layers: list[torch.nn.Module] = []
    for channels in (3, 16, 32):
        layers += [torch.nn.Conv2d(channels, max(16, channels * 2 % 66), 3), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()), torch.randn(8, 3, 32, 32)


def transformer() -> tuple[torch.nn.Module, torch.Tensor]:
    layer = torch.nn.TransformerEncoderLayer(128, 4, 256, dropout=0.0, batch_first=True)
    return torch.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False), torch.randn(8, 32, 128)


MODELS: dict[str, Callable[[], tuple[torch.nn.Module, torch.Tensor]]] = {
    "mlp": mlp,
    "convolutions": convolutions,
    "transformer": transformer,
}


def synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def microseconds(call: Callable[[], Any], device: str) -> float:
    """Median over the rounds of the time per call, device work included."""
    times = []
    for _ in range(ROUNDS):
        synchronize(device)
        start = time.perf_counter()
        for _ in range(CALLS):
            call()
        synchronize(device)
        times.append((time.perf_counter() - start) / CALLS * 1e6)
    return statistics.median(times)


def check(name: str, backend: str, device: str) -> dict[str, Any]:
    """One model under one backend: graphs, differences from eager, gradients, times."""
    torch.manual_seed(0)
    dynamo_lite.reset()
    torch.compiler.reset()
    model, x = MODELS[name]()
    model, x = model.to(device), x.to(device)
    counter = CompileCounterWithBackend(backend)
    compiled = dynamo_lite.compile(model, backend=counter)
    grads = []
    for run in (model, compiled):
        model.zero_grad()
        run(x).square().mean().backward()
        grads.append([p.grad.clone() for p in model.parameters()])
    with torch.no_grad():
        different = list(differences((model(x), grads[0]), (compiled(x), grads[1]), tol=1e-3))
        theirs = torch.compile(model, backend="inductor" if backend == "autotune" else backend)
        theirs(x)
        result = {
            "model": name,
            "backend": backend,
            "graphs": counter.frame_count,
            "differences": different[:3],
            "eager_us": microseconds(lambda: model(x), device),
            "dynamo_lite_us": microseconds(lambda: compiled(x), device),
            "torch_compile_us": microseconds(lambda: theirs(x), device),
        }
        if backend == "autotune":  # each candidate in the race without gradients, and how it ended
            result["race"] = [(name, text) for name, _, text in log.snapshot()[-1].graphs[-1].race or ()]
    return result


def inference(name: str, backend: str, device: str) -> dict[str, Any]:
    """One model under a backend for inference: its results in five calls at three sizes, what it writes, random numbers, and times."""
    torch.manual_seed(0)
    dynamo_lite.reset()
    model, x = MODELS[name]()
    model = torch.nn.Sequential(model, torch.nn.Dropout(0.1)).to(device)
    x = x.to(device)
    requirement = requirements_of(backend)
    missing = requirement.missing([device]) if requirement is not None else None
    if missing is not None:
        return {"model": name, "backend": backend, "missing": missing, "differences": []}
    twin = copy.deepcopy(model)
    compiled = dynamo_lite.compile(model, backend=backend)
    different: list[Any] = []
    with torch.no_grad():
        for i, rows in enumerate((len(x), len(x), len(x), len(x) // 2, len(x) // 2, len(x) // 2, len(x))):
            results = []
            for run in (twin, compiled):
                torch.manual_seed(i)
                results.append((run(x[:rows]), torch.rand(1, device=device)))
            different += differences(*results, tol=1e-3)
        different += differences(list(twin.state_dict().values()), list(model.state_dict().values()), tol=1e-3)
        graph = log.snapshot()[-1].graphs[-1]
        return {
            "model": name,
            "backend": backend,
            "differences": different[:3],
            "notes": graph.notes.get(backend, []),
            "eager_us": microseconds(lambda: twin(x), device),
            "dynamo_lite_us": microseconds(lambda: compiled(x), device),
        }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--backends", default="eager,aot_eager,inductor,autotune")
    parser.add_argument("--inference", default="cudagraphs,onnxruntime,tensorrt")
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        print("no CUDA device here; --device cpu tries the script itself")
        return 2
    rows = []
    for backend in options.backends.split(","):
        for name in MODELS:
            rows.append(check(name, backend, options.device))
            print(json.dumps(rows[-1]), flush=True)
    for backend in filter(None, options.inference.split(",")):
        for name in MODELS:
            rows.append(inference(name, backend, options.device))
            print(json.dumps(rows[-1]), flush=True)
    if options.device == "cuda":
        summary = {
            "date": datetime.date.today().isoformat(),
            "python": platform.python_version(),
            "torch": torch.__version__,
            "device": torch.cuda.get_device_name(),
            "rows": rows,
        }
        RESULTS.mkdir(exist_ok=True)
        path = RESULTS / f"gpu-{summary['date']}.json"
        path.write_text(json.dumps(summary, indent=1) + "\n")
        print(f"written to {path.name}")
    return 1 if any(row["differences"] for row in rows) else 0


if __name__ == "__main__":
    raise SystemExit(main())
