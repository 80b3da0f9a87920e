"""The benchmark driver: models of `hf`, `timm`, `micro` or `torchbench` eagerly and compiled.

One line for each model when it is done, results as CSV and JSON, and a summary. By default each model's coverage is counted, its results
are compared with eager execution, and its speed is measured; --coverage, --accuracy choose among these. Called again with the same
settings on the same day, it goes on where it was stopped.

    python -m dynamo_lite bench [hf] [timm] [micro] [torchbench --torchbench PATH] [-d cpu|cuda] [-k PATTERN] [-x PATTERN]
    python -m dynamo_lite bench --fast --autotune --compare torch.compile
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import pathlib
import re
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from . import results
from .common import RESULTS, surroundings
from .measure import Settings, guarded
from .processes import answered, each
from .suites import DEFAULT, SUITES, entries, sample

Record = dict[str, Any]


def parse_options(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m dynamo_lite bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("suites", nargs="*", metavar="suite", help=f"of: {', '.join(SUITES)}")
    parser.add_argument("--torchbench", metavar="PATH", help="a checkout of pytorch/benchmark")
    which = parser.add_argument_group("which models")
    which.add_argument("-k", action="append", default=[], metavar="PATTERN", help="only names that match (repeatable)")
    which.add_argument("-x", action="append", default=[], metavar="PATTERN", help="leave out names that match")
    which.add_argument("--only", metavar="A,B", help="only these names")
    which.add_argument("--fast", action="store_true", help="a sample that takes a few minutes")
    which.add_argument("--list", action="store_true", help="print the names and end")
    how = parser.add_argument_group("how they run")
    how.add_argument("-d", "--device", default="cpu", metavar="DEVICE", help="cpu (default) or cuda")
    how.add_argument("--training", action="store_true", help="forward, loss and backward; models that the suite trains")
    how.add_argument("--dynamic-shapes", action="store_true", help="sizes are symbolic; two more batch sizes are tried")
    backend = how.add_mutually_exclusive_group()
    backend.add_argument("--backend", default="inductor", help="compile graphs with this one (default: inductor)")
    backend.add_argument("--autotune", action="store_true", help="the backend that is fastest for each graph")
    how.add_argument("--budget", metavar="TIME", help="for each graph's race under --autotune (default 20s)")
    how.add_argument(
        "--compare",
        action="append",
        default=[],
        metavar="OTHER",
        help="beside it: torch.compile, or dynamo_lite with another backend (repeatable)",
    )
    how.add_argument("--float16", action="store_const", dest="dtype", const="float16", default="float32")
    how.add_argument("--bfloat16", action="store_const", dest="dtype", const="bfloat16")
    how.add_argument("--threads", type=int, default=1, help="threads of torch (default 1: less noise)")
    what = parser.add_argument_group("what is measured")
    what.add_argument("--coverage", action="store_true", help="only graphs, operators and breaks")
    what.add_argument("--accuracy", action="store_true", help="only whether results are those of eager execution")
    what.add_argument("--timing", action="store_true", help="print what captures took (TIMING, STATS) as well")
    what.add_argument("-n", "--repeats", type=int, default=20, help="rounds in which the sides take turns (default 20)")
    what.add_argument(
        "--seconds", type=float, default=20.0, help="end the rounds of a model after so long (default 20)"
    )
    where = parser.add_argument_group("processes and files")
    where.add_argument("--isolate", action="store_true", help="a process for each model")
    where.add_argument("--timeout", type=float, default=1800.0, help="seconds for one model's process")
    where.add_argument(
        "--json", type=pathlib.Path, help="the file of results (default: benchmarks/results/bench-….json)"
    )
    where.add_argument("--again", action="store_true", help="measure also what the file already has")
    where.add_argument("--no-save", action="store_true", help="print only")
    options = parser.parse_args(arguments)
    options.suites = options.suites or list(DEFAULT)
    unknown = sorted(set(options.suites) - set(SUITES))
    if unknown:
        parser.error(f"unknown suite {', '.join(unknown)} (known: {', '.join(SUITES)})")
    for pattern in (*options.k, *options.x):
        try:
            re.compile(pattern)
        except re.error as error:
            parser.error(f"{pattern!r} is no regular expression: {error}")
    if options.repeats < 1:
        parser.error("-n takes at least one round")
    if options.budget is not None:
        _check_budget(parser, options)
    return options


def _check_budget(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    from dynamo_lite.tune.autotune import seconds_of

    if not options.autotune:
        parser.error("--budget is for --autotune")
    try:
        seconds_of(options.budget)
    except RuntimeError as error:
        parser.error(str(error))


def settings_of(options: argparse.Namespace) -> Settings:
    """What the options say of how a model is measured. Raises SystemExit where this machine or installation can't."""
    import torch

    if torch.device(options.device).type == "cuda" and not torch.cuda.is_available():
        raise SystemExit("-d cuda: torch finds no CUDA device here")
    chosen = tuple(part for part in ("coverage", "accuracy") if getattr(options, part))
    return Settings(
        device=options.device,
        dtype=options.dtype,
        training=options.training,
        dynamic=options.dynamic_shapes,
        backend="autotune" if options.autotune else options.backend,
        budget=options.budget,
        rivals=tuple(dict.fromkeys(options.compare)),
        parts=chosen or ("coverage", "accuracy", "speed"),
        repeats=options.repeats,
        seconds=options.seconds,
        threads=options.threads,
        torchbench=options.torchbench,
    )


def validate(settings: Settings) -> None:
    """Raises SystemExit for backends that nobody knows, and without scipy where it is needed."""
    import importlib.util

    from dynamo_lite.backends.registry import lookup_backend
    from dynamo_lite.exc import InvalidBackend

    try:
        for name in (settings.backend, *settings.rivals):
            if name != "torch.compile":
                lookup_backend(name)
    except InvalidBackend as error:
        raise SystemExit(str(error))
    if "speed" in settings.parts and importlib.util.find_spec("scipy") is None:
        raise SystemExit(
            "measuring speed needs scipy: pip install 'dynamo-lite[bench]'; or choose --coverage, --accuracy"
        )


def wanted(suite: str, options: argparse.Namespace) -> list[str]:
    """The names of a suite's models that the options choose."""
    models = entries(suite, options.torchbench, training=options.training, device=options.device)
    names = [name for name, entry in models.items() if entry.train or not options.training]
    if options.only:
        names = [name for name in names if name in options.only.split(",")]
    elif options.fast:
        names = sample(suite, names)
    if options.k:
        names = [name for name in names if any(re.search(pattern, name, re.I) for pattern in options.k)]
    return [name for name in names if not any(re.search(pattern, name, re.I) for pattern in options.x)]


def jobs_of(options: argparse.Namespace) -> list[tuple[str, str]]:
    """Suite and name of all that is to be measured. Raises SystemExit if that is nothing."""
    jobs = [(suite, name) for suite in dict.fromkeys(options.suites) for name in wanted(suite, options)]
    if options.only:
        unknown = sorted(set(options.only.split(",")) - {name for _, name in jobs})
        if unknown:
            raise SystemExit(f"not in {', '.join(options.suites)}: {', '.join(unknown)}")
    if not jobs:
        raise SystemExit("no model is chosen; --list shows those that there are")
    return jobs


def default_path(options: argparse.Namespace, settings: Settings) -> pathlib.Path:
    """A name that tells settings apart."""
    kind = [
        *(["fast"] if options.fast else []),
        settings.device.replace(":", ""),
        "training" if settings.training else "inference",
        *(["dynamic"] if settings.dynamic else []),
        *([settings.dtype] if settings.dtype != "float32" else []),
        settings.backend,
        *([settings.budget.replace(" ", "")] if settings.budget else []),
        *(settings.parts if len(settings.parts) < 3 else ()),
    ]
    return RESULTS / f"bench-{'-'.join(kind)}-{time.strftime('%Y%m%d')}.json"


def measured(
    jobs: list[tuple[str, str]], settings: Settings, options: argparse.Namespace
) -> Iterator[tuple[Any, Record]]:
    """Each model's record as it comes."""
    if not options.isolate:
        for job in jobs:
            yield job, guarded(*job, settings)
        return
    calls = [(job, (*job, settings)) for job in jobs]
    yield from each(context(), guarded, calls, timeout=options.timeout)


def context() -> Any:
    """Processes that are forked from one which has imported this."""
    made = multiprocessing.get_context("forkserver")
    made.set_forkserver_preload(["benchmarks.measure"])
    return made


@contextlib.contextmanager
def progress(total: int) -> Iterator[tuple[Callable[[str], None], Callable[[str], None], Callable[[], None]]]:
    """Functions that print a line, name the model under way, and count it as done. The bar is for terminals."""
    if sys.stdout.isatty():
        try:
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
        except ImportError:
            print("(a progress bar needs rich: pip install 'dynamo-lite[bench]')")
        else:
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            with Progress(*columns, transient=True) as bar:
                task = bar.add_task("", total=total)
                yield (
                    lambda text: bar.console.print(text, markup=False, highlight=False, soft_wrap=True),
                    lambda name: bar.update(task, description=name),
                    lambda: bar.advance(task),
                )
            return
    yield (lambda text: print(text, flush=True)), (lambda name: None), (lambda: None)


def main(arguments: list[str] | None = None) -> int:
    """The exit status: 0, 1 if a model fails, 130 after Ctrl-C."""
    options = parse_options(arguments)
    # Suites import all of transformers; with --isolate that happens in other processes only.
    jobs = answered(context(), jobs_of, options) if options.isolate else jobs_of(options)
    if options.list:
        print("\n".join(f"{suite} {name}" for suite, name in jobs))
        return 0
    settings = settings_of(options)
    validate(settings)
    path = None if options.no_save else options.json or default_path(options, settings)
    told = {key: list(value) if isinstance(value, tuple) else value for key, value in settings._asdict().items()}
    del told["torchbench"]
    file = results.File(path, told, again=options.again)
    missing = [job for job in jobs if options.again or "/".join(job) not in file.records]
    if len(missing) < len(jobs):
        print(f"{len(jobs) - len(missing)} of {len(jobs)} models are in {path} already")
    environment = surroundings(options.threads)
    interrupted = False
    with progress(len(missing)) as (say, under_way, done):
        names = iter([*missing, ("", "")])
        under_way(next(names)[1])
        try:
            with contextlib.closing(measured(missing, settings, options)) as records:
                for job, record in records:
                    key = "/".join(job)
                    file.add(key, record, environment)
                    say(results.line(key, record, told))
                    if options.timing and "timing" in record:
                        say(record["timing"])
                    done()
                    under_way(next(names)[1])
        except KeyboardInterrupt:
            interrupted = True
    own = {"/".join(job): file.records["/".join(job)] for job in jobs if "/".join(job) in file.records}
    print("\n".join(["", *results.summary(own, told)]))
    if path is not None and own:
        print(f"written to {path} and .csv")
    if interrupted:
        print(f"stopped after {len(own)} of {len(jobs)} models; the same command goes on from there")
        return 130
    return 0 if all(record.get("pass") for record in own.values()) else 1
