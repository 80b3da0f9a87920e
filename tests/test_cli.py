"""The command line, in processes of their own."""

import pathlib
import re
import signal
import subprocess
import sys
import zipapp

import pytest
import torch

from dynamo_lite.__main__ import main
from tests.helpers import processes

ROOT = pathlib.Path(__file__).parent.parent
TRAIN = str(ROOT / "examples" / "train.py")
TOY = str(ROOT / "examples" / "toy.py")


def command(*arguments, status=0):
    done = processes.run(arguments, cwd=ROOT)
    assert done.returncode == status, done.stderr
    return done.stdout


def test_training_script_unchanged():
    report = command("-m", "dynamo_lite", "run", "--coverage", TRAIN)
    losses = [line for line in report.splitlines() if line.startswith("step")]
    assert losses == command(TRAIN, "--eager").splitlines() and len(losses) == 20
    assert "dynamo_lite coverage: 1 function, 1 frame, 1 graph, 20 graph calls" in report
    assert "captured 80 of 80 (100.0%) operators" in report
    assert "0 graph breaks, 0 recompiles" in report


def test_coverage_of_the_toy_example():
    report = command("-m", "dynamo_lite", "coverage", "--backend", "eager", TOY)
    assert "3 graphs" in report.splitlines()[0]
    assert re.search(r"toy: 100 calls, captured \d+ of \d+ \(\d+\.\d%\) operators", report)
    assert re.search(r"DL001 data-dependent branch.*\n\s+.*toy\.py:9  if b\.sum\(\) < 0:", report)


def test_the_report_is_printed_when_the_script_exits(tmp_path):
    script = "import torch\ntorch.compile(torch.sin)(torch.ones(2))\nraise SystemExit(3)"
    path = tmp_path / "exits.py"
    path.write_text(script)
    assert "1 graph" in command("-m", "dynamo_lite", "run", "--coverage", "--backend", "eager", str(path), status=3)


@pytest.mark.parametrize(
    "arguments", [["explain", TOY], ["explain", "all"], ["run", "--coverage", "--backend=eager", TOY]]
)
def test_a_report_that_nobody_reads_to_its_end(arguments):
    running = processes.Popen(
        ["-m", "dynamo_lite", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT
    )
    running.stdout.close()
    assert (running.wait(), running.stderr.read()) == (128 + signal.SIGPIPE, b"")


def test_an_error_of_the_script_is_told_where_nobody_reads_the_report(tmp_path):
    path = tmp_path / "fails.py"
    path.write_text("import torch\ntorch.compile(torch.sin)(torch.ones(2))\nraise KeyError('mine')")
    command = ["-m", "dynamo_lite", "run", "--coverage", "--backend", "eager", str(path)]
    running = processes.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT)
    running.stdout.close()
    assert running.wait() == 1
    said = running.stderr.read().decode()
    assert said.endswith("KeyError: 'mine'\n") and "BrokenPipeError" not in said


@pytest.mark.parametrize("how", ["import torch._dynamo", "from torch._dynamo import optimize"])
def test_optimize_of_torchs_package_is_ours(how, tmp_path, capsys):
    script = tmp_path / "program.py"
    name = "optimize" if how.startswith("from") else "torch._dynamo.optimize"
    script.write_text(
        f"import torch\n{how}\n@{name}('eager')\ndef f(x): return x.sin() + 1\nf(torch.ones(2))\n"
        f"{name}('eager', nopython=True)(lambda x: x.cos())(torch.ones(2))\n"
    )
    before = torch._dynamo.optimize
    assert main(["run", "--coverage", str(script)]) == 0
    assert capsys.readouterr().out.startswith("dynamo_lite coverage: 2 functions, 2 frames, 2 graphs, 2 graph calls\n")
    assert torch._dynamo.optimize is before


def test_optimize_is_ours_where_the_script_is_the_first_to_load_it(tmp_path):
    script = tmp_path / "program.py"
    script.write_text(
        "import sys, torch\nassert 'torch._dynamo' not in sys.modules\n"
        "torch._dynamo.optimize('eager')(lambda x: x.sin() + 1)(torch.ones(2))\n"
        "from dynamo_lite.record import log\nprint(len(log.graphs()))\n"
    )
    command = [sys.executable, "-m", "dynamo_lite", "run", str(script)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr


def test_arguments_module_and_redirection(tmp_path):
    (tmp_path / "prog.py").write_text(
        "import sys, torch\n"
        "class M(torch.nn.Module):\n"
        "    def forward(self, x): return x + 1\n"
        "m = M(); m.compile(backend='eager'); m(torch.ones(2))\n"
        "print(__name__, sys.argv[1:], 'torch._dynamo' in sys.modules, 'dynamo_lite.frontend.convert' in sys.modules)\n"
    )
    expected = "__main__ ['--a', 'b'] False True\n"
    assert command("-m", "dynamo_lite", "run", str(tmp_path / "prog.py"), "--a", "b") == expected
    done = processes.run(
        ["-m", "dynamo_lite", "run", "-m", "prog", "--a", "b"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
    )
    assert done.stdout == expected, done.stderr


@pytest.mark.parametrize("arguments", [[], ["--"], ["--", "b"], ["a", "--", "--coverage"], ["--window", "3", "--"]])
def test_a_script_finds_what_it_finds_in_python(tmp_path, arguments):
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\n"
        "print(sys.argv[1:], sorted(globals()), type(__builtins__), __cached__, type(__loader__), __spec__, __package__)\n"
    )
    assert command("-m", "dynamo_lite", "run", str(script), *arguments) == command(str(script), *arguments)


def test_wrong_arguments_of_tune(capsys):
    assert main(["tune", "nosuch.py", "--budget", "1ms"]) == 2
    assert capsys.readouterr().err == "tune races what was collected: nosuch.py is run by tune --collect\n"
    with pytest.raises(SystemExit):
        main(["tune", "--budget", "2x"])
    assert "--budget: budget='2x': expected seconds" in capsys.readouterr().err


def test_explain_a_number(capsys):
    assert main(["explain", "DL001"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("DL001 data-dependent branch\n  why: ") and "\n  do:  " in text


def test_explain_several_numbers(capsys):
    assert main(["explain", "DL001"]) == main(["explain", "DL002"]) == 0
    apart = capsys.readouterr().out
    assert main(["explain", "DL001", "DL002"]) == 0
    assert capsys.readouterr().out.replace("\n\n", "\n") == apart


def test_explain_a_script():
    text = command("-m", "dynamo_lite", "explain", TOY)
    assert "graph break\nDL001 data-dependent branch" in text
    assert "torch.abs" in text or "abs" in text
    assert "guards" in text


def test_doctor(capsys, monkeypatch):
    assert main(["doctor"]) == 0
    text = capsys.readouterr().out
    assert torch.__version__.split("+")[0] in text and "backend      inductor " in text and "no CUDA device" in text
    assert "no: " in next(line for line in text.splitlines() if "tensorrt" in line)
    monkeypatch.setenv("DYNAMO_LITE_RECOMPIL_LIMIT", "3")
    assert main(["doctor"]) == 1
    assert "DYNAMO_LITE_RECOMPIL_LIMIT is no setting" in capsys.readouterr().out


def test_doctor_imports_no_compiler():
    script = (
        "import sys; from dynamo_lite.__main__ import main; main(['doctor']);"
        "print([m for m in ('torch._inductor', 'torch._dynamo', 'onnxruntime', 'openvino') if m in sys.modules])"
    )
    assert command("-c", script).splitlines()[-1] == "[]"


def test_usage_errors():
    with pytest.raises(SystemExit):
        main([])
    with pytest.raises(SystemExit):
        main(["run"])


def test_timing_and_trace(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import torch\nprint(torch.compile(lambda x: x + 1, backend='eager')(torch.ones(2)).sum())\n")
    trace = tmp_path / "trace.json"
    arguments = ["-m", "dynamo_lite", "run", "--timing", "--trace", str(trace), str(script)]
    done = processes.run(arguments, cwd=ROOT, check=True)
    assert "tensor(4.)" in done.stdout
    assert "TIMING: entire_frame_compile:" in done.stderr and "STATS: frames:1 | call_* op count:1" in done.stderr
    assert trace.read_text().startswith('{"traceEvents"')


# -- scripts as plain Python runs them, mistakes in one line


def written(tmp_path, text):
    path = tmp_path / "script.py"
    path.write_text(text)
    return path


FAILING = "import torch\n\ndef f():\n    raise KeyError('x')\n\ntorch.compile(lambda x: x + 1)(torch.ones(2))\nf()\n"


def test_a_script_that_fails_shows_the_traceback_of_plain_python(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(
        sys, "excepthook", sys.__excepthook__
    )  # torch.distributed replaces it in a process that has used it
    path = written(tmp_path, FAILING)
    plain = processes.run([str(path)]).stderr
    plain = plain[plain.index("Traceback") :]  # torch's compiler may have logged that there is no CUDA device
    assert main(["run", "--backend", "eager", str(path)]) == 1
    assert capsys.readouterr().err == plain and "KeyError: 'x'" in plain


@pytest.mark.parametrize(
    "text, told, status", [("def f(:", "SyntaxError", 1), ("raise KeyboardInterrupt", "KeyboardInterrupt", 130)]
)
def test_scripts_that_do_not_end_well(text, told, status, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)
    assert main(["run", str(written(tmp_path, text))]) == status
    shown = capsys.readouterr().err
    assert told in shown and "dynamo_lite" not in shown and "runpy" not in shown


def test_what_a_script_sees(tmp_path, capsys, monkeypatch):
    text = "import sys; print(__file__, sys.argv, __name__, sys.path[0], sys.modules['__main__'].__file__)"
    path = written(tmp_path, text)
    before = sys.modules["__main__"], list(sys.path), dict(sys.modules)
    assert main(["run", str(path), "a"]) == 0
    assert capsys.readouterr().out == f"{path} {[str(path), 'a']} __main__ {tmp_path} {path}\n"
    assert (sys.modules["__main__"], list(sys.path)) == before[:2] and sys.modules.keys() >= before[2].keys()
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text("import sys; print(__file__, repr(__package__), sys.argv[1:])")
    monkeypatch.chdir(tmp_path)
    assert main(["run", "-m", "package", "b"]) == main(["run", str(package), "b"]) == 0
    file = package / "__main__.py"
    assert capsys.readouterr().out == f"{file} 'package' ['b']\n{file} '' ['b']\n"


@pytest.mark.parametrize("kind", ["folder", "archive", "link to a file"])
def test_a_script_imports_what_lies_beside_it(kind, capsys, tmp_path, monkeypatch):
    """A folder or an archive is itself the place of imports; of a link it is the folder of the file that it leads to."""
    folder = tmp_path / "app"
    folder.mkdir()
    (folder / "beside_main.py").write_text("v = 1")
    (folder / "__main__.py").write_text("import sys, beside_main; print(sys.path[0], beside_main.v)")
    target, place = folder, folder
    if kind == "archive":
        target = place = tmp_path / "app.pyz"
        zipapp.create_archive(folder, target)
    elif kind != "folder":
        target = tmp_path / "link.py"
        target.symlink_to(folder / "__main__.py")
    monkeypatch.delitem(sys.modules, "beside_main", raising=False)
    try:
        assert main(["run", str(target)]) == 0
    finally:
        sys.modules.pop("beside_main", None)
    assert capsys.readouterr().out == f"{place} 1\n"


MISTAKES = {
    "run": "the following arguments are required: target",
    "run /no/such/file.py": "can't open file '/no/such/file.py': [Errno 2] No such file or directory",
    "run -m no_such_module": "No module named no_such_module",
    "frobnicate": "invalid choice: 'frobnicate'",
    "run --window x script.py": "argument --window: invalid float value: 'x'",
    f"run --backend nix {TRAIN}": "Invalid backend: 'nix'",
    f"coverage --backend nix {TRAIN}": "Invalid backend: 'nix'",
    f"explain --backend nix {TRAIN}": "Invalid backend: 'nix'",
    "coverage nosuch.py": "nosuch.py",
    f"run --trace /nonexistent/x.json {TRAIN}": "--trace: there is no folder /nonexistent",
    f"coverage --trace {ROOT} {TRAIN}": f"--trace: {ROOT} is a folder",
    f"run --trace {TOY} {TRAIN}": f"--trace takes the file to write, and {TOY} is a program",
    f"minify -o /nonexistent/x.py {TRAIN}": "-o: there is no folder /nonexistent",
    "explain DL999": "no break has the number DL999",
    "explain DL001 DL998": "no break has the number DL998",
    "explain --html /tmp/r.html DL001": "--html: for a script, not for the number of a break",
    "explain --backend eager -m all": "--backend, -m: for a script, not for the number of a break",
    f"debug --html /tmp/r.html {TRAIN}": "unrecognized arguments: --html",
    f"minify --html /tmp/r.html {TRAIN}": "unrecognized arguments: --html",
    "tune --stats --budget 1s": "--budget and --candidates are for a race",
    f"tune --candidates eager --collect {TRAIN}": "--budget and --candidates are for a race",
    "cache": "the following arguments are required: action",
}


@pytest.mark.parametrize("line", MISTAKES)
def test_mistakes_are_one_line(line, capsys):
    try:
        status = main(line.split())
    except SystemExit as ended:
        status = ended.code
    told = capsys.readouterr()
    assert status == 2 and told.out == "" and MISTAKES[line] in told.err and told.err.count("\n") == 1


NO_TORCH = """if True:
    import sys
    class Finder:
        def find_spec(self, name, path=None, target=None):
            if name == "torch":
                raise ModuleNotFoundError("No module named 'torch'", name="torch")
    sys.meta_path.insert(0, Finder())
    from dynamo_lite.__main__ import main
    statuses = [main([*line.split(), "script.py"]) for line in ("run", "coverage", "explain", "debug", "minify", "tune --collect")]
    statuses += [main(line.split()) for line in ("tune", "tune --budget 20s", "bench")]
    print(statuses)
"""


def test_tools_without_torch_say_so():
    done = processes.start_anew(["-c", NO_TORCH], cwd=ROOT)
    assert done.stdout == f"{[2] * 9}\n"
    assert (
        done.stderr.splitlines()
        == [
            "python -m dynamo_lite: error: torch is not installed; needs dynamo-lite[torch], or the build of torch for your devices"
        ]
        * 9
    )


def test_version(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert not ended.value.code and re.fullmatch(r"dynamo_lite \d+\.\d+.*\n", capsys.readouterr().out)


def test_frames_have_the_names_of_the_users_classes(tmp_path, capsys):
    text = """
import torch
class Block(torch.nn.Module):
    def forward(self, x):
        print(end="")
        return x + 1
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block()
    def forward(self, x):
        return self.block(x.sin()).cos()
torch.compile(Net())(torch.ones(2))
"""
    path = written(tmp_path, text)
    assert main(["coverage", "--backend", "eager", str(path)]) == 0
    rows = [line.split("  ") for line in capsys.readouterr().out.splitlines() if "script.py:11" in line]
    assert [[cell for cell in row if cell][0] for row in rows] == [
        "Net.forward",
        "Net.forward (in forward, resumed at line 6)",
    ]
