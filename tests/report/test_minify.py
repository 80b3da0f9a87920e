"""Failing graphs are reduced to what fails, as scripts that show it."""

import os
import sys

import pytest
import torch

import dynamo_lite
from dynamo_lite.__main__ import main
from dynamo_lite.backends import registry
from dynamo_lite.exc import InvalidBackend
from dynamo_lite.report.minify import minify, problem_of
from tests.helpers import processes
from tests.report.faulty_backends import bad_gradient, crashing, failing, wrong


@pytest.fixture(autouse=True)
def backends(monkeypatch):
    monkeypatch.setattr(registry, "_backends", dict(registry._backends))
    monkeypatch.setattr(registry, "_tags", dict(registry._tags))
    for backend in (wrong, failing, crashing, bad_gradient):
        registry.register_backend(backend)


def program(x, w):
    y = x @ w
    for i in range(4):
        y = y.sin() + i
    a, b = y.chunk(2)
    z = a.cos().tanh() * b
    x.add_(1)
    for i in range(4):
        z = z * 1.1 - i
    return z, y


def captured(fn, *inputs):
    found = []

    def backend(gm, example_inputs):
        found.append((gm, example_inputs))
        return gm.forward

    dynamo_lite.compile(fn, backend=backend)(*inputs)
    return found[0]


def operators(repro):
    return [node.target for node in repro.gm.graph.nodes if node.op.startswith("call_")]


@pytest.mark.parametrize(
    "backend, left, said",
    [
        ("wrong", ["tanh"], "wrong: result 0: off by "),
        ("failing", ["tanh"], "failed: NotImplementedError: no tanh"),
    ],
)
def test_what_is_left(backend, left, said):
    x = torch.randn(10, 8)
    gm, inputs = captured(program, x, torch.randn(8, 8))
    before, state = x.clone(), torch.get_rng_state()
    steps = []
    repro = minify(gm, inputs, backend, tell=steps.append)
    assert torch.equal(x, before) and torch.equal(torch.get_rng_state(), state)
    assert repro.problem.startswith(said) and steps
    assert operators(repro)[-len(left) :] == left and repro.op_count == 1
    assert problem_of(repro.gm, repro.inputs, backend, False).startswith(said[:5])


def test_what_is_wrong_in_the_backward_pass():
    x = torch.randn(10, 8, requires_grad=True)
    gm, inputs = captured(lambda x: (x.exp().cos().tanh() * 2).sin() + 1, x)
    repro = minify(gm, inputs, "bad_gradient")
    assert repro.training and "tanh" in operators(repro) and repro.op_count <= 2 and x.grad is None
    assert "torch.autograd.backward" in repro.script


def test_nothing_is_wrong():
    gm, inputs = captured(program, torch.randn(10, 8), torch.randn(8, 8))
    assert minify(gm, inputs, "eager") is None


def test_a_failure_that_is_another_one_is_not_followed():
    """A part of the graph on which the backend fails differently is no step."""

    def both(gm, example_inputs):
        if not gm.graph.find_nodes(op="call_method", target="exp"):
            raise RuntimeError("no exp")
        return wrong(gm, example_inputs)

    registry.register_backend(both)
    gm, inputs = captured(lambda x: x.cos().tanh() + x.exp(), torch.randn(3))
    repro = minify(gm, inputs, "both")
    assert {"tanh", "exp"} <= set(operators(repro)) and repro.problem.startswith("wrong")


PROGRAM = """
import torch
from tests.report import faulty_backends
from dynamo_lite.backends import registry
for backend in (faulty_backends.wrong, faulty_backends.crashing):
    registry.register_backend(backend)
fn = torch.compile(lambda x: (x + 1).cos().tanh() * 2)
print("values", fn(torch.ones(3)).shape)
"""


@pytest.mark.parametrize("backend, options", [("wrong", []), ("crashing", ["--isolate"])])
def test_command_and_script(tmp_path, backend, options):
    """The script says what is wrong, by itself, with status 1 (or as the backend ends it)."""
    (tmp_path / "program.py").write_text(PROGRAM)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [
        "-m",
        "dynamo_lite",
        "minify",
        "--backend",
        backend,
        "-o",
        str(tmp_path / "repro.py"),
        *options,
    ]
    done = processes.run([*command, str(tmp_path / "program.py")], env=environment, timeout=300)
    assert done.returncode == 1 and "written to" in done.stderr and "values" not in done.stdout
    script = (tmp_path / "repro.py").read_text()
    assert "tanh" in script and "from tests.report.faulty_backends import" in script
    shown = processes.run([tmp_path / "repro.py"], env=environment)
    if backend == "wrong":
        assert shown.returncode == 1 and shown.stdout.startswith("result 0: off by ")
    else:
        assert shown.returncode == -6


def test_a_backend_that_no_other_process_has(tmp_path):
    """That it can't be tried apart is no failure of it."""
    (tmp_path / "program.py").write_text(
        "import torch\n"
        "from dynamo_lite import register_backend\n"
        "register_backend(lambda gm, inputs: gm.forward, name='fine')\n"
        "torch.compile(lambda x: x + 1, backend='fine')(torch.ones(2))\n"
    )
    command = ["-m", "dynamo_lite", "minify", "--isolate", "--backend", "fine", "-o", tmp_path / "repro.py"]
    done = processes.run([*map(str, command), str(tmp_path / "program.py")])
    assert done.returncode == 2 and not (tmp_path / "repro.py").exists()
    (line,) = done.stderr.splitlines()
    assert line.startswith("python -m dynamo_lite: error: backend 'fine' is known to this program only")


def test_a_script_without_failures(tmp_path, capsys):
    (tmp_path / "program.py").write_text("import torch\ntorch.compile(lambda x: x + 1)(torch.ones(2))\n")
    assert main(["minify", "--backend", "aot_eager", str(tmp_path / "program.py")]) == 0
    assert capsys.readouterr().out == "aot_eager does as eager execution on all 1 graph\n"


def editing(gm, example_inputs):
    """A backend that empties the graph that it gets, and is wrong."""
    compiled = wrong(gm, example_inputs)
    result = next(iter(gm.graph.nodes))
    for node in reversed(gm.graph.nodes):
        if node.op == "output":
            node.args = ((result,) * len(node.args[0]),)
        elif node.op != "placeholder":
            gm.graph.erase_node(node)
    return compiled


def test_a_backend_that_edits_its_graph():
    registry.register_backend(editing)
    gm, inputs = captured(program, torch.randn(10, 8), torch.randn(8, 8))
    before = str(gm.graph)
    repro = minify(gm, inputs, "editing")
    assert str(gm.graph) == before and operators(repro)[-1] == "tanh"
    assert ".tanh()" in repro.script


def test_a_backend_that_only_the_program_knows(tmp_path, capsys):
    script = tmp_path / "program.py"
    script.write_text(
        "import torch\nfrom dynamo_lite.backends import registry\n"
        "def own(gm, example_inputs):\n    raise NotImplementedError('no kernels')\n"
        "registry.register_backend(own)\ntorch.compile(lambda x: x + 1)(torch.ones(2))\n"
    )
    with pytest.raises(SystemExit) as ended:
        main(["minify", "--backend", "own", "-o", str(tmp_path / "repro.py"), str(script)])
    told = capsys.readouterr().err
    assert ended.value.code == 3 and "the backend 'own' is defined by the program alone" in told
    assert "class Repro" in (tmp_path / "repro.py").read_text()


def test_an_unknown_backend(tmp_path, capsys):
    """It is not known before the program has registered its own."""
    script = tmp_path / "program.py"
    script.write_text("import torch\ntorch.compile(lambda x: x + 1)(torch.ones(2))\nprint('went on')\n")
    with pytest.raises(SystemExit) as ended:
        main(["minify", "--backend", "nosuch", "-o", str(tmp_path / "repro.py"), str(script)])
    said = capsys.readouterr()
    assert ended.value.code == 2 and said.out == "" and not (tmp_path / "repro.py").exists()
    assert said.err.startswith("python -m dynamo_lite: error: Invalid backend: 'nosuch'") and said.err.count("\n") == 1
    script.write_text("")
    assert main(["minify", "--backend", "nosuch", str(script)]) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.startswith("python -m dynamo_lite: error: Invalid backend: 'nosuch'")
    with pytest.raises(InvalidBackend):
        minify(*captured(program, torch.randn(10, 8), torch.randn(8, 8)), "nosuch")
