"""`check` forecasts what capture then does, without running the script."""

import importlib.util
import json
import os
import pathlib

import pytest

from dynamo_lite.__main__ import main
from dynamo_lite.breaks import BREAKS
from dynamo_lite.config import config
from dynamo_lite.frontend import convert
from dynamo_lite.record import log
from dynamo_lite.report.check import check_source
from tests.helpers import processes

NEEDS_TORCH = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch")


def found(source):
    return [(f.frame.lineno, f.frame.function, f.slug) for f in check_source(source, "x.py").breaks]


CALLS = {
    "print(x)": "call-print",
    "open('x')": "call-io",
    "time.time()": "time-dependent",
    "clock()": "time-dependent",
    "os.listdir('.')": "call-io",
    "memoryview(b'a')": "call-c-function",
    "logging.info('x')": None,
    "LOG.warning('x')": "call-print",
    "breakpoint()": "debugger",
    "helper(x)": None,
    "len([x])": None,
    "[x].append(x)": None,
    "collections.deque([x]).popleft()": None,
    "functools.reduce(lambda a, b: a, [x])": None,
    "'a'.join(['b', 'c'])": None,
    "unknown(x)": None,
    "x.method()": None,
    "x + 1": None,
}
HEADER = """
import collections, functools, logging, os
import time
from time import perf_counter as clock
LOG = logging.getLogger(__name__)
def helper(a):
    return a
def f(x):
    return """


@pytest.mark.parametrize("expression", CALLS)
def test_a_call(expression):
    slug = CALLS[expression]
    assert found(HEADER + expression) == ([(9, "f", slug)] if slug else [])


@pytest.mark.parametrize("expression", sorted(CALLS.keys() - {"open('x')", "unknown(x)", "x.method()", "breakpoint()"}))
def test_the_forecast_is_what_capture_does(expression):
    space = {"__name__": "forecast"}
    exec(compile(HEADER + expression, "x.py", "exec"), space)
    log.reset()
    with config.patch(capture_pure_python=True, debug=True):
        convert.Region(lambda gm, inputs: gm.forward).wrap(space["f"])(1)
    assert [b.slug for b in log.breaks()] == ([CALLS[expression]] if CALLS[expression] else [])


def test_nothing_of_the_script_runs():
    assert found("import os\nif os.environ.get('never', 1):\n    raise SystemExit('ran')\ndef f():\n    print()\n") == [
        (5, "f", "call-print")
    ]


def test_nor_does_a_module_beside_it(tmp_path):
    (tmp_path / "this_script.py").write_text(
        "import nntplib, sndhdr, chunk, calendar, local\ndef f():\n    calendar.prmonth(1, 1)\n    print()\n"
    )
    for name in ("nntplib", "sndhdr", "chunk", "calendar", "local"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('ran')")
    command = ["-m", "dynamo_lite", "check", "this_script.py"]
    root = pathlib.Path(__file__).parents[2]
    done = processes.run(command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(root)})
    assert (done.returncode, done.stderr) == (1, "")
    assert "DL020" in done.stdout


def test_what_is_not_known_is_not_said():
    source = """
import nowhere, time as t
from elsewhere import print as output
def f(time, print):
    print(time.time())
    output(nowhere.sleep())
    g = print
    g()
def g(t):
    for len in (t.time, open):
        len()
print = 5
def h():
    print("a")
"""
    assert found(source) == []


def test_names_of_locals_and_closures():
    source = """
def outer():
    show = print
    def inner():
        show()
        [show(i) for i in range(3)]
        yield show()
    class Local:
        def method(self):
            import time
            with self.lock:
                try:
                    self.work()
                except ValueError:
                    time.sleep(1)
            return print(*self, **self)
    return inner
"""
    inner, method = "outer.<locals>.inner", "outer.<locals>.Local.method"
    assert found(source) == [
        (5, inner, "call-print"),
        (6, inner, "call-print"),
        (7, inner, "call-print"),
        (15, method, "time-dependent"),
        (16, method, "call-print"),
    ]


def test_inside_of_library_functions():
    """What every path through a function of the library meets is said of its call."""
    assert found("import tempfile\ndef f():\n    return tempfile.mkdtemp()\n") == [(3, "f", "call-skipped-function")]
    report = check_source("import contextlib, os\ndef f():\n    return os.makedirs('a'), os.getenv('b')\n")
    assert all(item.frame.lineno == 3 for item in report.breaks)


@NEEDS_TORCH
def test_functions_that_are_not_compiled():
    source = """
import dynamo_lite
def leaf():
    print("in")
@dynamo_lite.compile
def step():
    leaf()
    def nested():
        print("nested")
    out()
@dynamo_lite.disable
def out():
    print("disabled")
def driver():
    print("outside", step())
"""
    assert found(source) == [
        (4, "leaf", "call-print"),
        (9, "step.<locals>.nested", "call-print"),
        (10, "step", "call-skipped-function"),
    ]


@NEEDS_TORCH
@pytest.mark.parametrize("decorator", ["@torch.compile", "@torch.compile(fullgraph=True)", "@torch.compile()"])
def test_a_decorator_with_options_compiles_as_one_without(decorator):
    source = f"import torch\n{decorator}\ndef f(x):\n    print(x)\ndef driver():\n    print(f(1))\n"
    assert found(source) == [(4, "f", "call-print")]


@NEEDS_TORCH
def test_a_method_of_an_object_that_may_be_a_tensor_is_no_tensor():
    """`mode` is a name that only tensors have; the comparison is not with a tensor."""
    source = "import torch\ndef f(self):\n    if self.mode != 'tanh':\n        return 1\n    return 2\n"
    assert found(source) == []


TENSORS = """
import torch
import torch.nn.functional as F
def f(x, y: torch.Tensor, n: int, s: "torch.Tensor"):
    h = F.relu(x)
    if h.sum() > 0:
        h = h + 1
    while y:
        s.item()
    if n:
        y.data_ptr()
    if x.mean() < 0:
        return float(torch.sin(s))
    if y.size() and x.dim():
        torch.nonzero(y)
        torch._dynamo.graph_break()
    return "a".strip(), x.unknown(), s.shape[0]
"""


@NEEDS_TORCH
@pytest.mark.parametrize("setting", [None, False])
def test_tensors(setting):
    with config.patch(capture_scalar_outputs=setting, capture_dynamic_output_shape_ops=setting):
        seen = [(line, slug) for line, _, slug in found(TENSORS)]
    with_data = [(9, "data-dependent-operator"), (13, "data-dependent-operator"), (15, "dynamic-shape-operator")]
    assert seen == sorted(
        [
            (6, "data-dependent-branch"),
            (8, "data-dependent-branch"),
            (11, "tensor-attribute"),
            (12, "data-dependent-branch"),
            (16, "user-requested"),
            *([] if setting is None else with_data),
        ]
    )


@NEEDS_TORCH
def test_branches_that_may_be_captured():
    """With the setting, no branch ends a graph; `bool` and `not` never do."""
    source = "import torch\ndef f(x: torch.Tensor):\n    if x.sum() > 0:\n        x = x + 1\n    return bool(x.max()), not x.max()\n"
    assert [line for line, _, _ in found(source)] == [3]
    with config.patch(capture_branches=True):
        assert not found(source)


NUMBERS = {
    "x.max().item() * 2": None,
    "x + int(x.max())": None,
    "x.tolist()": None,
    "torch.nonzero(x).shape[0]": None,
    "1 if x.max().item() > 1 else 2": "data-dependent-size",
    "1 if float(x.max()) + 1 else 2": "data-dependent-size",
    "[i for i in range(int(x.max()))]": "data-dependent-size",
    "bool(x.max().item())": None,
    "bool(x.max())": None,
    "1 if bool(x.max()) else 2": "data-dependent-size",
}


@NEEDS_TORCH
@pytest.mark.parametrize("expression", NUMBERS)
def test_numbers_from_data(expression):
    """The forecast names the use that needs the number, as capture does."""
    import torch

    source = f"import torch\ndef f(x: torch.Tensor):\n    return {expression}\n"
    slugs = [NUMBERS[expression]] if NUMBERS[expression] else []
    assert [slug for _, _, slug in found(source)] == slugs
    space = {}
    exec(compile(source, "x.py", "exec"), space)
    log.reset()
    convert.Region(lambda gm, inputs: gm.forward).wrap(space["f"])(torch.tensor([1.0, 2.0]))
    assert [b.slug for b in log.breaks()] == slugs


def test_a_branch_that_only_raises():
    source = """
import torch

@torch.compile
def f(x):
    h = torch.relu(x)
    assert h.sum() > 0
    if torch.any(h > 9):
        raise ValueError
    return h
"""
    assert found(source) == []


def test_the_command(tmp_path, capsys):
    path = tmp_path / "script.py"
    path.write_text("def f():\n    print('é', 1)\n")
    assert main(["check", str(path)]) == 1
    text = capsys.readouterr().out
    assert "DL020 print or logging: print()" in text and "^" * 13 in text and "do:" in text
    assert text.endswith("1 call, of which 0 of something that is known only when the program runs\n")
    assert main(["check", "--json", str(path)]) == 1
    (report,) = json.loads(capsys.readouterr().out)
    (item,) = report["breaks"]
    assert (item["line"], item["function"], item["number"]) == (2, "f", "DL020")
    assert item["what_to_do"] == BREAKS["call-print"].what_to_do
    path.write_text("def f():\n    return 1\n")
    assert main(["check", str(path)]) == 0
    bad = tmp_path / "bad.py"
    bad.write_text("def f(:\n")
    capsys.readouterr()
    assert main(["check", "--json", str(bad), str(path), str(tmp_path / "none.py")]) == 2
    told = capsys.readouterr()
    assert [report["path"] for report in json.loads(told.out)] == [str(path)]
    assert "    def f(:\n" in told.err and "none.py" in told.err


@NEEDS_TORCH
def test_the_quickstart_quotes_what_is_printed(capsys, monkeypatch):
    root = pathlib.Path(__file__).parents[2]
    monkeypatch.chdir(root)
    assert main(["check", "examples/toy.py"]) == 1
    printed = capsys.readouterr().out
    quoted = (root / "docs" / "quickstart.md").read_text().partition("check examples/toy.py\n")[2].partition("```")[0]
    for part in quoted.split("…\n"):
        assert part in printed


def test_a_warning_of_a_constant_is_no_break():
    assert found("import warnings\n\ndef f(x):\n    warnings.warn('hi')\n    return x + 1\n") == []


WITHOUT_TORCH = """
import sys

class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, NoTorch())
import importlib.util
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name == "torch" else find_spec(name, package)
from dynamo_lite.__main__ import main
sys.exit(main(sys.argv[1:]))
"""


def test_without_torch(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("def f(x):\n    print(x)\n")
    done = processes.run(["-c", WITHOUT_TORCH, "check", str(script)])
    assert done.returncode == 1 and "DL020 print" in done.stdout
    assert done.stderr == "torch is not installed here: of calls of torch and of tensors nothing is known\n"
