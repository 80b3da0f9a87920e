"""From `import` done to the first result in a new process, with empty caches and with those of an earlier process.

Input: the models of `examples.models`; backend `inductor` unless told otherwise. Output: a table, medians and ratios, and
`results/warm-DATE.json` with `.md`. Each measurement is a process of its own; both engines take turns, and both have caches of
their own, theirs those of torch alone. `imports` is the part that goes into importing the compilers of torch, which either engine does in
its first call; `frontend` is our capture, or what reading the cache takes, without the backend.

    python -m benchmarks.warm [--models bert,resnet50] [--backend inductor] [--quick]
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
from typing import Any

ENGINES = ("dynamo_lite", "torch.compile")


def measure(engine: str, model: str, backend: str) -> dict[str, float]:
    """In the process that is measured: one first call."""
    import torch

    import dynamo_lite
    from examples.models import BENCHMARKS

    torch.set_num_threads(1)
    torch.manual_seed(0)
    module, args, kwargs = BENCHMARKS[model]()
    with torch.no_grad():
        started = time.perf_counter()
        compiled = (dynamo_lite.compile if engine == "dynamo_lite" else torch.compile)(module, backend=backend)
        compiled(*args, **kwargs)
        total = time.perf_counter() - started
    frames = dynamo_lite.record.log.snapshot()
    return {
        "first call": total,
        "frontend": sum(frame.trace_seconds for frame in frames),
        "from cache": sum(frame.from_cache for frame in frames),
        "frames": len(frames),
    }


def imports() -> dict[str, float]:
    """What importing torch's compilers takes by itself."""
    import torch

    started = time.perf_counter()
    import torch._inductor.compile_fx  # noqa: F401

    return {"imports": time.perf_counter() - started}


def in_process(folder: str, *what: str) -> dict[str, float]:
    """The numbers of a new process whose caches are in `folder`."""
    environment = {
        **os.environ,
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


def row(model: str, backend: str, repeats: int) -> dict[str, Any]:
    """Medians of one model."""
    found: dict[str, Any] = {"model": model}
    folders = {engine: tempfile.mkdtemp(prefix="warm-") for engine in ENGINES}
    try:
        for state, times in (("cold", 1), ("warm", repeats)):
            seen: dict[str, list[dict[str, float]]] = {engine: [] for engine in ENGINES}
            for _ in range(times):
                for engine in ENGINES:
                    seen[engine].append(in_process(folders[engine], engine, model, backend))
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
        print(json.dumps(imports() if sys.argv[2] == "imports" else measure(*sys.argv[2:5])))
        return
    from benchmarks.common import RESULTS, surroundings

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", default="linear_relu,bert,gpt2,t5,qwen3,vit,resnet50,hrnet_w18")
    parser.add_argument("--backend", default="inductor")
    parser.add_argument("--quick", action="store_true", help="one repetition: for a look, not for a record")
    parser.add_argument("--no-save", action="store_true", help="print only")
    options = parser.parse_args()
    alone = statistics.median(in_process(".", "imports")["imports"] for _ in range(1 if options.quick else 3))
    print(f"importing torch's compilers alone: {alone:.2f} s\n\n{HEADER}", flush=True)
    rows = []
    for model in options.models.split(","):
        rows.append(row(model, options.backend, 1 if options.quick else 5))
        print(line(rows[-1]), flush=True)
    for name in ("warm ratio", "frontend ratio"):
        print(f"\ngeometric mean of the {name}: {statistics.geometric_mean(r[name] for r in rows):.3f}")
    if options.no_save or options.quick:
        return
    about = surroundings(1)
    stem = RESULTS / f"warm-{time.strftime('%Y%m%d')}"
    data = {"environment": about, "backend": options.backend, "imports": alone, "rows": rows}
    stem.with_suffix(".json").write_text(json.dumps(data, indent=1) + "\n")
    facts = ", ".join(f"{key} {value}" for key, value in about.items())
    table = "\n".join([HEADER, *map(line, rows)])
    text = f"# warm\n\n{facts}\n\nImporting torch's compilers takes {alone:.2f} s of each first call.\n\n{table}\n"
    stem.with_suffix(".md").write_text(text)


if __name__ == "__main__":
    main()
