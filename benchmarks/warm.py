"""From `import` done to the first result in a new process, with empty caches and with those of an earlier process.

Input: the models of `examples.models`; backend `inductor` unless told otherwise. Output: a table, medians and ratios, and
`results/warm-DATE.json` with `.md`. Each measurement is a process of its own; both engines take turns, and both have caches of
their own, theirs those of torch alone. `imports` is what importing the compilers of torch takes: torch.compile always does, we do
where we have nothing that they made; `frontend` is our capture, or what reading the cache takes, without the backend. Times are those of
the processor (`--clock wall`: of the clock), of this process alone: kernels are compiled by others, which counts for cold caches only.

What is measured is written at once, beside what the day's file already has of other models. The key of our cache has the digest of the
package: no file of it may change meanwhile.

    python -m benchmarks.warm [--models bert,resnet50] [--backend inductor] [--clock wall] [--quick]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

ENGINES = ("dynamo_lite", "torch.compile")


CLOCKS = {"processor": time.process_time, "wall": time.perf_counter}


def measure(engine: str, model: str, backend: str, clock: str) -> dict[str, float]:
    """In the process that is measured: one first call."""
    import torch

    import dynamo_lite
    from dynamo_lite.record import log
    from examples.models import BENCHMARKS

    now = CLOCKS[clock]

    torch.set_num_threads(1)
    torch.manual_seed(0)
    module, args, kwargs = BENCHMARKS[model]()
    with torch.no_grad():
        started = now()
        compiled = (dynamo_lite.compile if engine == "dynamo_lite" else torch.compile)(module, backend=backend)
        frontend = _watch(now) if engine == "dynamo_lite" else []
        compiled(*args, **kwargs)
        total = now() - started
    frames = log.snapshot()
    return {
        "first call": total,
        "frontend": sum(frontend),
        "from cache": sum(frame.from_cache for frame in frames),
        "frames": len(frames),
    }


def _watch(now: Callable[[], float]) -> list[float]:
    """From now on: how long each frame takes without its backend."""
    from dynamo_lite.frontend import analysis, convert

    compile_frame, compile_graph = convert.Region._compile, analysis.Analysis.compile_graph
    seconds: list[float] = []

    def frame(*args: Any) -> Any:
        position = len(seconds)
        seconds.append(-now())
        try:
            return compile_frame(*args)
        finally:
            seconds[position] += now()

    def graph(*args: Any) -> Any:
        started = now()
        try:
            return compile_graph(*args)
        finally:
            seconds.append(started - now())

    convert.Region._compile, analysis.Analysis.compile_graph = frame, graph
    return seconds


def imports(clock: str) -> dict[str, float]:
    """What importing torch's compilers takes by itself."""
    import torch

    started = CLOCKS[clock]()
    import torch._inductor.compile_fx  # noqa: F401

    return {"imports": CLOCKS[clock]() - started}


def in_process(folder: str, *what: str) -> dict[str, float]:
    """The numbers of a new process whose caches are in `folder`."""
    environment = {
        **{
            name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"
        },  # as it is for users
        "DYNAMO_LITE_CACHE": "1",
        "DYNAMO_LITE_CACHE_DIR": os.path.join(folder, "ours"),
        "TORCHINDUCTOR_CACHE_DIR": os.path.join(folder, "torch"),
    }
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.warm", "--measure", *what],
        env=environment,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def row(model: str, backend: str, clock: str, repeats: int) -> dict[str, Any]:
    """Medians of one model."""
    found: dict[str, Any] = {"model": model}
    folders = {engine: tempfile.mkdtemp(prefix="warm-") for engine in ENGINES}
    try:
        for state, times in (("cold", 1), ("warm", repeats)):
            seen: dict[str, list[dict[str, float]]] = {engine: [] for engine in ENGINES}
            for _ in range(times):
                for engine in ENGINES:
                    seen[engine].append(in_process(folders[engine], engine, model, backend, clock))
            for engine in ENGINES:
                for name in seen[engine][0]:
                    found[f"{engine} {state} {name}"] = statistics.median(one[name] for one in seen[engine])
    finally:
        for folder in folders.values():
            shutil.rmtree(folder, ignore_errors=True)
    found["warm ratio"] = found["dynamo_lite warm first call"] / found["torch.compile warm first call"]
    found["frontend ratio"] = found["dynamo_lite warm frontend"] / found["dynamo_lite cold frontend"]
    return found


HEADER = """| model | ours cold | theirs cold | ours warm | theirs warm | ratio warm | frontend cold | warm | ratio | from cache |
|---|---|---|---|---|---|---|---|---|---|"""


def line(found: dict[str, Any]) -> str:
    """One row of the table."""
    ours, theirs = ENGINES
    cells = [
        found["model"],
        *(f"{found[f'{engine} {state} first call']:.2f} s" for state in ("cold", "warm") for engine in (ours, theirs)),
        f"{found['warm ratio']:.2f}",
        f"{found[f'{ours} cold frontend'] * 1e3:.0f} ms",
        f"{found[f'{ours} warm frontend'] * 1e3:.0f} ms",
        f"{found['frontend ratio']:.3f}",
        f"{found[f'{ours} warm from cache']:.0f} of {found[f'{ours} warm frames']:.0f}",
    ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Measure, print, write."""
    if sys.argv[1:2] == ["--measure"]:
        print(json.dumps(imports(sys.argv[3]) if sys.argv[2] == "imports" else measure(*sys.argv[2:6])))
        return
    from benchmarks.common import RESULTS, surroundings

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", default="linear_relu,bert,gpt2,t5,qwen3,vit,resnet50,hrnet_w18")
    parser.add_argument("--backend", default="inductor")
    parser.add_argument("--clock", choices=CLOCKS, default="processor")
    parser.add_argument("--quick", action="store_true", help="one repetition: for a look, not for a record")
    parser.add_argument("--no-save", action="store_true", help="print only")
    options = parser.parse_args()
    repeats = 1 if options.quick else 3
    with tempfile.TemporaryDirectory() as folder:
        alone = statistics.median(in_process(folder, "imports", options.clock)["imports"] for _ in range(repeats))
    print(f"importing torch's compilers alone: {alone:.2f} s\n\n{HEADER}", flush=True)
    stem = RESULTS / f"warm-{time.strftime('%Y%m%d')}"
    saves = not (options.no_save or options.quick)
    file = stem.with_suffix(".json")
    rows = json.loads(file.read_text())["rows"] if saves and file.exists() else []
    for model in options.models.split(","):
        rows = [r for r in rows if r["model"] != model]
        rows.append(row(model, options.backend, options.clock, 1 if options.quick else 5))
        print(line(rows[-1]), flush=True)
        if saves:
            about = surroundings(1)
            settings = {"backend": options.backend, "clock": options.clock, "imports": alone}
            data = {"environment": about, **settings, "rows": rows}
            file.write_text(json.dumps(data, indent=1) + "\n")
            stem.with_suffix(".md").write_text(page(about, alone, rows))
    print(means(rows))


def means(rows: list[dict[str, Any]]) -> str:
    """The last lines."""
    names = ("warm ratio", "frontend ratio")
    return "\n".join(
        f"Geometric mean of the {name}: {statistics.geometric_mean(r[name] for r in rows):.3f}." for name in names
    )


def page(about: dict[str, Any], alone: float, rows: list[dict[str, Any]]) -> str:
    """The file with the table."""
    facts = ", ".join(f"{key} {value}" for key, value in about.items())
    table = "\n".join([HEADER, *map(line, rows)])
    return f"# warm\n\n{facts}\n\nImporting torch's compilers alone takes {alone:.2f} s.\n\n{table}\n\n{means(rows)}\n"


if __name__ == "__main__":
    main()
