"""The long run: `python -m tests.fuzz --seed S --count N [--tensors] [--data] [--stitch] [--changes] [--signals] [--weakrefs]
[--limits] [--observations] [--device D] [--first I] [--jobs J] [--json FILE]`.

Program number I of seed S is always the same; batches run in subprocesses, so that a crash costs one program and is reported with
it. Every mismatch is shrunk and printed. Exit code 1 if there is any. With `--observations` the programs are not random: they are those of
`observations`, in the order of the seed; `--count` larger than their number runs them all.
"""

import argparse
import faulthandler
import functools
import itertools
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

from . import grammar, harness, observations
from .shrink import shrink

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LIMIT = 60  # seconds for one program before its process is given up
INDICES = re.compile(r"torch\.tensor\(\[(?!1\.|float)[^]]*(\b[A-Za-z3-9]|-)")
"""Where a program computes an index, or has one that may be out of range: that ends a process which works on a CUDA device."""


@functools.cache
def combinations(seed):
    """Those of `observations`, ordered once."""
    return observations.combinations(seed)


def chosen_modes(options):
    """What happens to the programs from outside."""
    return [mode for mode in grammar.MODES if getattr(options, mode)]


def program(options, index):
    """The text of one program of a long run."""
    if options.observations:
        return observations.text(combinations(options.seed)[index])
    seed, tensors, modes = options.seed, options.tensors, chosen_modes(options)
    source = random.Random("/".join([f"{seed}/{index}/{tensors}", *modes]))
    while True:
        text = grammar.build(source.randrange, tensors, modes)
        if harness.compiles(text) is not None and not (options.device != "cpu" and INDICES.search(text)):
            return text


def worker(options):
    """Run a batch in this process; one JSON line per event on the file `--out`."""
    if options.tensors:
        import torch

        torch.set_num_threads(1)
        if options.device != "cpu":
            torch.set_default_device(options.device)
    if options.data:
        from dynamo_lite.config import config

        config.capture_branches = True
        config.capture_scalar_outputs = config.capture_dynamic_output_shape_ops = None
    if options.stitch:
        from dynamo_lite.config import config

        config.stitch = True
    with open(options.out, "a") as out:

        def say(**record):
            out.write(json.dumps(record) + "\n")
            out.flush()

        for index in range(options.first, options.first + options.count):
            say(event="start", index=index)
            faulthandler.dump_traceback_later(LIMIT, exit=True)
            text = program(options, index)
            try:
                if options.observations:
                    problem = observations.difference(combinations(options.seed)[index])
                else:
                    problem = harness.difference(text)
            except harness.TooLong:
                say(event="end", index=index, problem=None, eager_too_long=True)
                continue
            faulthandler.cancel_dump_traceback_later()
            captured, skipped = harness.captured_share()
            if problem is not None:
                say(event="problem", index=index, problem=problem, text=text)
                if options.shrink and not options.observations:
                    text, problem = minimal(text, problem, options.shrink)
            say(
                event="end",
                index=index,
                problem=problem,
                text=text if problem else None,
                captured=captured,
                skipped=skipped,
            )


def minimal(text, problem, seconds):
    """The shrunk program and its problem."""
    kind = harness.kind_of(problem)
    faulthandler.dump_traceback_later(seconds + 2 * LIMIT, exit=True)

    def fails(smaller):
        try:
            found = harness.difference(smaller, seconds=5.0)
        except (harness.TooLong, Exception):
            return False
        return found is not None and harness.kind_of(found) == kind

    text = shrink(text, fails, seconds)
    faulthandler.cancel_dump_traceback_later()
    return text, harness.difference(text) or problem


def batch(options, first, count):
    """Run programs in a subprocess; (last index run, records, crash text)."""
    with tempfile.NamedTemporaryFile("r", suffix=".jsonl") as out:
        command = [sys.executable, "-X", "faulthandler", "-m", "tests.fuzz", "--worker", "--seed", str(options.seed)]
        command += ["--first", str(first), "--count", str(count), "--shrink", str(options.shrink), "--out", out.name]
        command += ["--device", options.device]
        command += [
            f"--{mode}"
            for mode in ("tensors", "data", "stitch", "observations", *grammar.MODES)
            if getattr(options, mode)
        ]
        environment = {**os.environ, "PYTHONHASHSEED": "0", "DYNAMO_LITE_CACHE": "0"}
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        records = [json.loads(line) for line in out.read().splitlines()]
    ended = [r for r in records if r["event"] == "end"]
    started = [r["index"] for r in records if r["event"] == "start"]
    crash = None
    if done.returncode != 0 or len(ended) != count:
        last = started[-1] if started else first
        if last not in {r["index"] for r in ended}:
            found = next((r for r in records if r["event"] == "problem" and r["index"] == last), None)
            crash = {"index": last, "text": program(options, last), "captured": 0, "skipped": 0}
            crash["problem"] = f"crash: exit code {done.returncode}: {done.stdout[-1500:]}"
            if found is not None:  # the shrinking died, not the program
                crash["problem"] = found["problem"] + "\n    (shrinking it: " + crash["problem"] + ")"
        return last + 1, ended, crash
    return first + count, ended, crash


def places(options):
    """(first index, count) of each batch."""
    end = options.first + options.count
    return [(index, min(options.batch, end - index)) for index in range(options.first, end, options.batch)]


def stretch(options, index, count, started):
    """Run one batch to its end, whatever crashes on the way; its records."""
    records, end = [], index + count
    while index < end and not (options.seconds and time.perf_counter() - started > options.seconds):
        index, ended, crash = batch(options, index, end - index)
        records += [*ended, *([crash] if crash else [])]
    return records


def report(record):
    print(f"=== program {record['index']}: {record['problem']}\n{record['text']}", flush=True)


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="index of the first program")
    parser.add_argument("--tensors", action="store_true", help="with tensors among the arguments")
    parser.add_argument(
        "--data",
        action="store_true",
        help="branches, numbers and sizes that data decide are part of graphs wherever they can be",
    )
    parser.add_argument("--stitch", action="store_true", help="`print` runs behind the graphs")
    parser.add_argument(
        "--device", default="cpu", help="where programs make tensors; no computed indices elsewhere than on the CPU"
    )
    parser.add_argument("--observations", action="store_true", help="one look at A, at B and at A again")
    for mode in grammar.MODES:
        parser.add_argument(f"--{mode}", action="store_true", help=grammar.MODES[mode])
    parser.add_argument("--batch", type=int, default=100, help="programs per subprocess")
    parser.add_argument("--shrink", type=float, default=40, help="seconds to shrink one failure; 0: do not")
    parser.add_argument("--jobs", type=int, default=1, help="subprocesses at a time")
    parser.add_argument("--seconds", type=float, default=0, help="start no batch after so many seconds")
    parser.add_argument("--json", help="write a summary here")
    parser.add_argument("--show", action="store_true", help="print program --first and end")
    parser.add_argument("--out", help=argparse.SUPPRESS)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.observations:
        options.count = max(0, min(options.count, len(combinations(options.seed)) - options.first))
    if options.show:
        print(program(options, options.first))
        return 0
    if options.worker:
        worker(options)
        return 0
    started = time.perf_counter()
    failures, ran, captured, skipped, slow, reported = [], 0, 0, 0, 0, 0
    with ThreadPoolExecutor(options.jobs) as pool:
        for record in itertools.chain.from_iterable(
            pool.map(lambda place: stretch(options, *place, started), places(options))
        ):
            ran += 1
            captured += record.get("captured", 0)
            skipped += record.get("skipped", 0)
            slow += record.get("eager_too_long", False)
            if record["problem"] is not None:
                failures.append(record)
                report(record)
            if ran - reported >= 1000:
                reported = ran
                print(f"{ran} programs, {len(failures)} mismatches", file=sys.stderr, flush=True)
    summary = {
        **harness.environment(),
        "hash_seed": "0",
        "seed": options.seed,
        "first": options.first,
        "programs": ran,
        "tensors": options.tensors,
        "device": options.device,
        "data": options.data,
        "observations": options.observations,
        "modes": chosen_modes(options),
        "failures": [{k: f[k] for k in ("index", "problem", "text")} for f in failures],
        "frames_captured": captured,
        "frames_left_eager": skipped,
        "eager_too_long": slow,
        "seconds": round(time.perf_counter() - started, 1),
    }
    print(json.dumps({k: v if k != "failures" else len(v) for k, v in summary.items()}))
    if options.json:
        with open(options.json, "w") as out:
            json.dump(summary, out, indent=1)
            out.write("\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
