"""Everything that is measured on a CUDA device, in chunks that resume: `python -m benchmarks.gpu.run [CHUNK …]`.

Input: names of chunks (default: all; `--list` prints them). Output: a line per job when it is done; each record is at once appended to
`benchmarks/results/gpu-<date>.jsonl`, so that nothing is lost when the time is cut. Called again, what the file has is left out.
The tests for the device are `pytest tests/cuda` and `python -m tests.ops --device cuda`. `--device cpu` tries the script itself.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import pathlib
import re
import sys
import time
from typing import Any

from benchmarks.processes import answered, each

RESULTS = pathlib.Path(__file__).resolve().parents[1] / "results"


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("chunks", nargs="*", metavar="CHUNK")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("-k", default="", metavar="PATTERN", help="only jobs whose key matches")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="each Nth job of a chunk only")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time, in chunks that take no times")
    parser.add_argument("--seconds", type=float, default=1e9, help="start nothing after so long")
    parser.add_argument("--timeout", type=float, default=150.0, help="seconds for one job")
    parser.add_argument("--json", type=pathlib.Path, help="the file of results")
    parser.add_argument("--list", action="store_true", help="print the jobs and end")
    return parser.parse_args()


def main() -> int:
    options = parse_options()
    path = options.json or RESULTS / f"gpu-{time.strftime('%Y%m%d')}.jsonl"
    done = {json.loads(line)["key"] for line in path.read_text().splitlines()} if path.exists() else set()
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["benchmarks.gpu.cases", "benchmarks.zoo_measure"])
    deadline = time.monotonic() + options.seconds
    catalogue = answered(context, jobs_of, options.chunks, options.device)
    if options.list:
        print("\n".join(job[0] for _, _, jobs in catalogue for job in jobs))
        return 0
    failed = 0
    with path.open("a") as file:
        if not done:
            file.write(json.dumps({"key": "environment", **answered(context, environment, options.device)}) + "\n")
        for chunk, timed, jobs in catalogue:
            wanted = [job for job in jobs[:: options.every] if job[0] not in done and re.search(options.k, job[0])]
            at_a_time = 1 if timed else options.jobs
            calls = [(key, (options.device, deadline, case, *args)) for key, case, args in wanted]
            started = time.monotonic()
            for key, record in each(context, run, calls, at_a_time=at_a_time, timeout=options.timeout):
                if record.get("cut"):
                    continue
                failed += not record.get("pass")
                file.write(json.dumps({"key": key, **record}) + "\n")
                file.flush()
                print(f"{key}: {text_of(record)}", flush=True)
            print(f"-- {chunk}: {time.monotonic() - started:.0f} s", flush=True)
    return 1 if failed else 0


def jobs_of(chunks: list[str], device: str) -> list[tuple[str, bool, list[tuple[Any, ...]]]]:
    """The jobs of chunks as plain values; asked for in a process of its own, since it imports the zoo."""
    from .queue import CHUNKS

    unknown = set(chunks) - set(CHUNKS)
    if unknown:
        print(f"unknown chunk {', '.join(sorted(unknown))} (known: {', '.join(CHUNKS)})", file=sys.stderr)
        raise SystemExit(2)
    chosen = [name for name in CHUNKS if name in chunks or not chunks]
    return [(name, CHUNKS[name].timed, [tuple(job) for job in CHUNKS[name].jobs(device)]) for name in chosen]


def run(device: str, deadline: float, case: str, *args: Any) -> dict[str, Any]:
    """One job in this process."""
    if time.monotonic() > deadline:
        return {"cut": True}
    from .cases import guarded

    return guarded(case, *args)


def environment(device: str) -> dict[str, Any]:
    """Date, versions and the device."""
    import torch

    from benchmarks.common import surroundings

    found: dict[str, Any] = {**surroundings(1), "cuda": torch.version.cuda}
    if device != "cpu":
        found["device"] = torch.cuda.get_device_name()
    return found


def text_of(record: dict[str, Any]) -> str:
    """A record on one line."""
    left_out = ("pass", "where", "races", "timing", "break_reasons")
    shown = {key: value for key, value in record.items() if key not in left_out and value not in ([], None)}
    return ("pass " if record.get("pass") else "FAIL ") + json.dumps(shown)[:900]


if __name__ == "__main__":
    raise SystemExit(main())
