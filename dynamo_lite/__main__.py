"""The command line: `python -m dynamo_lite run | coverage | explain | check | support | doctor | cache | tune | debug | minify | bench`.

One function for each.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import platform
import re
import shutil
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from . import __version__, check_python
from .breaks import BREAKS, format_break, slug_of
from .config import config, unknown_variables
from .exc import InvalidBackend, many

if TYPE_CHECKING:
    from .report.coverage import Measurement


def _say(text: str, end: str = "\n") -> None:
    """Print a part of a report. Where nobody reads it any more (`| head`), the command ends as one that SIGPIPE ends, unless an
    error of the script is on its way."""
    try:
        print(text, end=end, flush=True)
    except BrokenPipeError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the output that is flushed at exit
        if error.__context__ is None or isinstance(error.__context__, SystemExit):
            raise SystemExit(128 + signal.SIGPIPE) from None


def run(options: argparse.Namespace) -> int:
    """Run a script; with `--coverage` or `--html` end with the report, also when the script fails or exits."""
    from .report.coverage import Measurement

    if not _can_write_html(options.html) or not _can_write("--trace", options.trace):
        return 2
    wanted = options.coverage or options.html is not None
    measurement = Measurement(options.window, keep_texts=options.html is not None) if wanted else None

    def tell() -> None:
        if measurement is not None and options.html is not None:
            _write_html(measurement.coverage(), options)
        if measurement is not None and options.coverage:
            _say(str(measurement.coverage()))
        _timing(options)

    _run_and(tell, options, measurement)
    return 0


def _run_and(tell: Callable[[], None], options: argparse.Namespace, measurement: Measurement | None) -> None:
    """Run the script of a command, measured, and `tell` what was seen, also where the script fails or exits. There is no report of nothing:
    an unknown backend and a script that can't be run are raised."""
    from .backends.registry import lookup_backend
    from .report.script import NoScript, redirected, run_script

    if options.backend is not None:
        lookup_backend(options.backend)
    try:
        with measurement or nullcontext(), redirected(options.backend):
            run_script(options.target, options.arguments, as_module=options.module)
    except NoScript:
        raise
    except BaseException:
        tell()
        raise
    tell()


def _can_write_html(path: str | None) -> bool:
    """Said before the script runs, not when its results would be lost."""
    if path is None:
        return True
    if importlib.util.find_spec("jinja2") is None:
        print("--html needs jinja2: pip install 'dynamo-lite[report]'", file=sys.stderr)
        return False
    return _can_write("--html", path)


def _can_write(option: str, path: str | None, *, program: bool = False) -> bool:
    """Whether the file of an option can be written, as far as that shows beforehand; the problem is told. `program`: whether that file is a
    program."""
    if path is None:
        return True
    problem, folder = "", os.path.dirname(os.path.abspath(path))
    if not program and path.endswith((".py", ".pyc")):
        problem = f"{option} takes the file to write, and {path} is a program"
    elif not os.path.isdir(folder):
        problem = f"{option}: there is no folder {os.path.dirname(path)}"
    elif os.path.isdir(path):
        problem = f"{option}: {path} is a folder"
    elif not os.access(path if os.path.exists(path) else folder, os.W_OK):
        problem = f"{option}: {path} can't be written"
    if problem:
        print(problem, file=sys.stderr)
    return not problem


def _write_html(coverage: object, options: argparse.Namespace) -> None:
    from .report import html_report

    html_report.write(coverage, options.html, " ".join([options.target, *options.arguments]))
    print(f"report: {options.html}", file=sys.stderr)


def _timing(options: argparse.Namespace) -> None:
    """Write the totals of `--timing` and the file of `--trace`."""
    from .record import log
    from .report.timing import summary, write_trace

    if options.timing:
        print(summary(log.snapshot()), file=sys.stderr, flush=True)
    if options.trace:
        write_trace(log.snapshot(), options.trace)


def coverage(options: argparse.Namespace) -> int:
    """`run --coverage`."""
    options.coverage = True
    return run(options)


def explain(options: argparse.Namespace) -> int:
    """Explain a break number (`all`: as a table), or run a script and print graphs, breaks and guards."""
    numbers = options.target == "all" or re.fullmatch(r"DL\d+", options.target) or _is_break(options.target)
    given = {"--html": options.html, "--backend": options.backend, "-m": options.module}
    if numbers and any(given.values()):
        told = ", ".join(name for name, value in given.items() if value)
        print(f"{told}: for a script, not for the number of a break", file=sys.stderr)
        return 2
    if options.target == "all":
        _say("\n".join(_break_table()))
        return 0
    if numbers:
        return _explain_breaks([options.target, *options.arguments])
    from .record import log
    from .report.coverage import Measurement
    from .report.explain import describe_frame

    if not _can_write_html(options.html):
        return 2
    measurement = Measurement(keep_texts=True) if options.html is not None else None

    def tell() -> None:
        if measurement is not None:
            _write_html(measurement.coverage(), options)
            return
        for frame in log.snapshot():
            _say("\n".join(describe_frame(frame)), end="\n\n")

    _run_and(tell, options, measurement)
    return 0


def _explain_breaks(numbers: list[str]) -> int:
    unknown = [number for number in numbers if not _is_break(number)]
    for number in unknown:
        told = f"no break has the number {number}; `python -m dynamo_lite explain all` lists them"
        print(told, file=sys.stderr)
    if unknown:
        return 2
    _say("\n\n".join(format_break(slug_of(number)).rpartition("\n")[0] for number in numbers))
    return 0


def _break_table() -> Iterator[str]:
    """`docs/breaks.md`."""
    yield "# Graph breaks"
    yield ""
    yield "What ends a graph, by number. Printed by `python -m dynamo_lite explain all`."
    yield ""
    yield "| number | what | why | what to do |"
    yield "|---|---|---|---|"
    for kind in sorted(BREAKS.values()):
        yield f'| <a id="{kind.code.lower()}"></a>{kind.code} | {kind.title} | {kind.why} | {kind.what_to_do} |'


def _is_break(text: str) -> bool:
    try:
        slug_of(text)
    except KeyError:
        return False
    return True


def check(options: argparse.Namespace) -> int:
    """Forecast the graph breaks of scripts without running them. The status is 1 if there are any, 2 if a script can't be read;
    the others are looked at all the same."""
    reports, unread = [], 0
    with _without_current_directory():
        from .report.check import check as look_at

        for path in options.paths:
            try:
                reports.append(look_at(path))
            except SyntaxError as error:
                unread += 1
                print("".join(traceback.format_exception_only(error)), end="", file=sys.stderr)
            except (OSError, ValueError) as error:
                unread += 1
                print(error, file=sys.stderr)
    if importlib.util.find_spec("torch") is None:
        print("torch is not installed here: of calls of torch and of tensors nothing is known", file=sys.stderr)
    if options.json:
        _say(json.dumps([report.as_dict() for report in reports], indent=2))
    elif reports:
        _say("\n\n".join(map(str, reports)))
    return 2 if unread else int(any(report.breaks for report in reports))


@contextlib.contextmanager
def _without_current_directory() -> Iterator[None]:
    """Files beside the script that have names of standard modules are not imported in their place."""
    path = sys.path
    sys.path = [entry for entry in path if entry and os.path.abspath(entry) != os.getcwd()]
    try:
        yield
    finally:
        sys.path = path


def support(options: argparse.Namespace) -> int:
    """Print the table of builtin methods and library functions with the effect of their calls in captured code, or write it to a file."""
    from .report.support import table

    text = "\n".join(table()) + "\n"
    if options.write is None:
        _say(text, end="")
    else:
        try:
            Path(options.write).write_text(text, encoding="utf-8")
        except OSError as error:
            print(error, file=sys.stderr)
            return 1
    return 0


def cache(options: argparse.Namespace) -> int:
    """List, check or empty the cache of compiled versions, or carry it to another machine. `verify` ends with status 1 if a file is
    damaged."""
    from .report import cache as report

    return report.COMMANDS[options.action](*([options.file] if options.file else []))


def bench(arguments: list[str]) -> int:
    """Run the benchmarks, which are part of the repository and not of the installed package."""
    root = Path(__file__).resolve().parent.parent
    if not (root / "benchmarks" / "driver.py").exists():
        print(
            "the benchmarks are not part of the installed package: run this in a checkout of dynamo_lite's repository, "
            "or install that with `pip install -e '.[bench]'`",
            file=sys.stderr,
        )
        return 2
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    return importlib.import_module("benchmarks.driver").main(arguments)


def tune(options: argparse.Namespace) -> int:
    """Race the graphs that were collected; `--collect` runs a script and keeps its graphs, `--stats` shows all choices."""
    from .report import tune as report

    if (options.collect or options.stats or options.forget) and (options.budget or options.candidates):
        told = "--budget and --candidates are for a race, not for --collect, --stats and --forget"
        print(told, file=sys.stderr)
        return 2
    if options.collect:
        if options.target is None:
            print("tune --collect needs a script", file=sys.stderr)
            return 2
        return report.collect(options.target, options.arguments, as_module=options.module)
    if options.target is not None:
        print(f"tune races what was collected: {options.target} is run by tune --collect", file=sys.stderr)
        return 2
    if options.stats:
        return report.stats()
    if options.forget:
        return report.forget()
    return report.race(options.budget, options.candidates.split(",") if options.candidates else None)


def debug(options: argparse.Namespace) -> int:
    """Run a script and stop where a graph breaks: `help` lists the commands."""
    from .report.debug import Debugger, Quit
    from .report.script import redirected, run_script

    debugger = Debugger(at_start=options.start)
    try:
        with config.patch(cache=False), redirected(options.backend), debugger.watching():
            run_script(options.target, options.arguments, as_module=options.module)
    except Quit:
        return 1
    return 0


def minify(options: argparse.Namespace) -> int:
    """Run a script until a backend fails, crashes or is wrong on one of its graphs; write the smallest part of that graph that still shows
    it as a script. The status is 1 if there is one."""
    from .backends.registry import lookup_backend
    from .report.minify import Finder
    from .report.script import redirected, run_script

    def tell(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    if not _can_write("-o", options.output, program=True):
        return 2
    finder = Finder(options.backend, options.output, isolate=options.isolate, seconds=options.seconds, tell=tell)
    with redirected(finder):
        run_script(options.target, options.arguments, as_module=options.module)
        lookup_backend(options.backend)  # which the script may have registered
    told = f"{options.backend} does as eager execution on all {many(finder.graphs, 'graph')}"
    _say(told if finder.graphs else "the script has compiled no graph")
    return 0


def doctor(options: argparse.Namespace) -> int:
    """List the abilities of this installation. The status is 1 if something needed is missing."""
    problems = []
    for name, value in _environment(problems):
        _say(f"{name:12} {value}")
    for problem in problems:
        _say(f"problem:     {problem}")
    return 1 if problems else 0


def _environment(problems: list[str]) -> Iterator[tuple[str, str]]:
    import importlib.metadata

    yield "dynamo_lite", __version__
    yield "python", f"{platform.python_implementation()} {platform.python_version()}"
    try:
        yield "torch", importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        problems.append(NO_TORCH)
        return
    import torch

    from .backends.registry import describe, list_backends

    yield "devices", ", ".join(["cpu", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))])
    for name in list_backends(None):
        version, devices, state = describe(name)
        yield "backend", f"{name:26} {version:14} {devices:10} {state}".rstrip()
    compiler = shutil.which(os.environ.get("CXX", "g++")) or shutil.which("clang++")
    for ability, module, extra in (("HTML reports", "jinja2", "report"), ("progress", "rich", "progress")):
        installed = importlib.util.find_spec(module) is not None
        yield (
            ability,
            f"{module} {importlib.metadata.version(module)}" if installed else f"no: needs dynamo-lite[{extra}]",
        )
    yield "C++ compiler", compiler or "none: the backend inductor cannot compile for the CPU"
    yield "settings", repr(config)
    problems += [f"environment variable {name} is no setting" for name in unknown_variables(os.environ)]


NO_TORCH = "torch is not installed; needs dynamo-lite[torch], or the build of torch for your devices"
_ABOUT = "Capture of PyTorch programs: run scripts with it, see what it makes of them, choose and check backends."


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="python -m dynamo_lite", description=_ABOUT)
    parser.add_argument("--version", action="version", version=f"dynamo_lite {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(function, summary: str, *, script: bool, backend: str | None = None) -> argparse.ArgumentParser:
        one = commands.add_parser(function.__name__, help=summary, description=function.__doc__)
        one.set_defaults(function=function)
        if script:
            default = "" if backend is None else f" (default {backend})"
            text = f"compile with this backend, whatever the script asks for{default}"
            one.add_argument("--backend", default=backend, help=text)
            if function in (run, coverage, explain):
                text = "write a report for a browser to this file (needs jinja2)"
                one.add_argument("--html", "--report", metavar="FILE", help=text)
            one.add_argument("-m", dest="module", action="store_true", help="the target is a module, as for python -m")
            one.add_argument("target", help="the script")
            one.add_argument("arguments", nargs=argparse.REMAINDER, help="its arguments")
        return one

    for function, summary in ((run, "run a script that uses torch.compile"), (coverage, "the same, with the report")):
        one = command(function, summary, script=True)
        one.add_argument("--timing", action="store_true", help="end with what captures took, on standard error")
        one.add_argument("--trace", metavar="FILE", help="write a trace of the captures for ui.perfetto.dev")
        one.add_argument("--window", type=_seconds, default=60.0, help="seconds during which operators are counted")
        if function is run:
            one.add_argument("--coverage", action="store_true", help="end with a report")
    command(explain, "what a break number means, or what capture makes of a script", script=True)
    one = command(check, "forecast the graph breaks of scripts without running them", script=False)
    one.add_argument("paths", nargs="+", metavar="script", help="a Python file")
    one.add_argument("--json", action="store_true", help="print what was found as JSON")
    one = command(support, "the table of what is captured of Python", script=False)
    one.add_argument(
        "--write", nargs="?", const="docs/python-support.md", metavar="PATH", help="into docs/python-support.md"
    )
    one = command(cache, "what was captured for later processes", script=False)
    actions = one.add_subparsers(dest="action", required=True)
    for action, summary in (("ls", "list it"), ("verify", "read all files"), ("clear", "remove it")):
        actions.add_parser(action, help=summary).set_defaults(file=None)
    for action, summary in (("export", "write it to a tar file"), ("import", "take over such a file")):
        actions.add_parser(action, help=summary).add_argument("file")
    commands.add_parser("bench", help="models eagerly and compiled, side by side", add_help=False)
    _add_tune(command(tune, "choose backends for collected graphs", script=False))
    one = command(debug, "stop where a graph breaks, and look around", script=True)
    one.add_argument("--start", action="store_true", help="stop at the first line that is captured")
    one = command(minify, "reduce a graph on which a backend fails to a small script", script=True, backend="inductor")
    one.add_argument("-o", dest="output", default="repro.py", help="the script to write (default repro.py)")
    one.add_argument("--isolate", action="store_true", help="try each part in a process of its own, for crashes")
    one.add_argument("--seconds", type=float, default=600.0, help="time for reducing (default 600)")
    command(doctor, "what this installation can do", script=False)
    return parser


def _add_tune(one: argparse.ArgumentParser) -> None:
    """The arguments of `tune`."""
    what = one.add_mutually_exclusive_group()
    what.add_argument("--collect", action="store_true", help="run a script and keep the graphs that it would compile")
    what.add_argument("--stats", action="store_true", help="print all choices and their candidates")
    what.add_argument("--forget", action="store_true", help="drop all choices and collected graphs")
    one.add_argument("--budget", type=_budget, help="time for each graph, such as 20s")
    one.add_argument("--candidates", help="names of backends, with commas between them")
    one.add_argument("-m", dest="module", action="store_true", help="the target is a module, as for python -m")
    one.add_argument("target", nargs="?", help="the script")
    one.add_argument("arguments", nargs=argparse.REMAINDER, help="its arguments")


def main(arguments: Sequence[str] | None = None) -> int:
    """The entry point. `arguments` default to those of the process. Returns the exit status."""
    check_python()
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    try:
        if arguments[:1] == ["bench"]:  # its options are the driver's own
            return bench(arguments[1:])
        options = _parser().parse_args(arguments)
        if arguments[-1 - len(getattr(options, "arguments", arguments)) :][:1] == ["--"]:
            options.arguments.insert(0, "--")  # the script's: argparse drops the first one
        return options.function(options)
    except BaseException as error:
        return _failed(error)


def _failed(error: BaseException) -> int:
    """The status after an error: one of the script is shown as Python shows it, without frames of this package; a mistake of the command
    line is one line. Raises the others, and SystemExit."""
    scripts = sys.modules.get(f"{__package__}.report.script")
    if scripts is None and isinstance(error, ModuleNotFoundError) and error.name == "torch":
        print(f"python -m dynamo_lite: error: {NO_TORCH}", file=sys.stderr)
        return 2
    if scripts is None or isinstance(error, SystemExit):
        raise error
    own = scripts.own_traceback(error)
    if own is None and isinstance(error, (scripts.NoScript, InvalidBackend)):
        print(f"python -m dynamo_lite: error: {error}", file=sys.stderr)
        return 2
    if own is None and not isinstance(error, SyntaxError):
        raise error
    sys.excepthook(type(error), error.with_traceback(own), own)
    return 128 + signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1


def _seconds(text: str) -> float:
    """A time that is not negative."""
    try:
        seconds = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"invalid float value: {text!r}") from None
    if not seconds >= 0:
        raise argparse.ArgumentTypeError(f"{text}: expected seconds, 0 or more")
    return seconds


def _budget(text: str) -> str:
    """A time for each graph, as `tune` takes it."""
    from .tune.autotune import seconds_of

    try:
        seconds_of(text)
    except RuntimeError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message} (see --help)\n")


if __name__ == "__main__":
    sys.exit(main())
