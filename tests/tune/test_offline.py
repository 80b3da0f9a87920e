"""`python -m dynamo_lite tune`: graphs are collected, raced later, and the choices found again."""

import io

import pytest
import torch

import dynamo_lite
from dynamo_lite.__main__ import main
from dynamo_lite.backends import registry
from dynamo_lite.config import config
from dynamo_lite.record import log
from dynamo_lite.tune import portable
from dynamo_lite.tune.autotune import store_of
from tests.tune import failing_backends
from tests.tune.fresh import new_process

PROGRAM = """
import torch

def steps(x):
    for _ in range(300):
        x = x + 1
    return x

print(torch.compile(steps)(torch.zeros(2)).tolist())
"""


@pytest.fixture(autouse=True)
def place(monkeypatch, tmp_path):
    monkeypatch.setattr(registry, "_backends", dict(registry._backends))
    monkeypatch.setattr(registry, "_tags", dict(registry._tags))
    registry.register_backend(failing_backends.fast)
    registry.register_backend(failing_backends.leaving)
    registry.register_backend(lambda gm, example_inputs: gm.forward, name="another")
    (tmp_path / "program.py").write_text(PROGRAM)
    store_of.cache_clear()
    with config.patch(tune_store=str(tmp_path / "store")):
        yield
    store_of.cache_clear()


def test_collect_race_use(tmp_path, capsys):
    script = str(tmp_path / "program.py")
    assert main(["tune", "--collect", script]) == 0
    assert capsys.readouterr().out == "[300.0, 300.0]\n1 graph collected, 0 known already\n"
    new_process()
    assert main(["tune", "--collect", script]) == 0
    assert capsys.readouterr().out == "[300.0, 300.0]\n0 graphs collected, 1 known already\n"
    assert main(["tune", "--stats"]) == 0
    assert capsys.readouterr().out == "0 graphs tuned, 1 collected and waiting\n"
    assert main(["tune", "--candidates", "leaving,fast", "--budget", "30s"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("program.py:6 in steps, 300 operators: fast, ") and told.endswith("x eager execution\n")
    for budget in ("30s", "5s"):  # as long, and shorter
        assert main(["tune", "--candidates", "leaving,fast", "--budget", budget]) == 0
        assert capsys.readouterr().out == "nothing to race: 1 graph collected, each with its choice\n"
    assert main(["tune", "--candidates", "nosuch"]) == 2
    assert "error: Invalid backend: 'nosuch'" in capsys.readouterr().err
    assert main(["tune", "--stats"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "program.py:6 in steps, 300 operators" and lines[1].startswith("  fast ")
    assert [line.split() for line in lines if "leaving" in line] == [
        ["leaving", "ended", "its", "process", "with", "status", "3"]
    ]
    assert lines[-3:-1] == ["1 graph tuned, 0 collected and waiting", f"  {'fast':26}     1"]
    new_process()
    names: dict = {}
    exec(PROGRAM.replace("print", "#"), names)
    fn = dynamo_lite.compile(names["steps"], backend="autotune", options={"candidates": ["fast"]})
    assert fn(torch.zeros(2)).tolist() == [300.0, 300.0]
    assert log.frames[-1].graphs[0].backend == "fast"
    assert main(["tune", "--candidates", "eager,fast,another", "--budget", "30s"]) == 0
    assert "steps, 300 operators: fast, " in capsys.readouterr().out
    assert main(["tune", "--forget"]) == 0
    assert capsys.readouterr().out == f"1 choice dropped from {tmp_path / 'store'}\n"
    assert main(["tune", "--stats"]) == 0
    assert capsys.readouterr().out == "0 graphs tuned, 0 collected and waiting\n"
    assert main(["tune"]) == 0
    assert capsys.readouterr().out == "nothing to race: tune --collect collects graphs\n"


def test_what_cannot_be_collected_is_told(tmp_path, capsys):
    (tmp_path / "program.py").write_text(
        "import torch\ntorch.compile(lambda s, x: torch.sparse.mm(s, x))(torch.eye(3).to_sparse(), torch.ones(3, 3))\n"
    )
    assert main(["tune", "--collect", str(tmp_path / "program.py")]) == 0
    told = capsys.readouterr()
    assert told.out == "0 graphs collected, 0 known already\n"
    assert told.err == "not collected: program.py:2 in <lambda>: input 0 is no plain dense tensor (torch.sparse_coo)\n"


def test_a_missing_script(capsys):
    assert main(["tune", "--collect"]) == 2
    assert capsys.readouterr().err == "tune --collect needs a script\n"


def test_large_inputs_are_described():
    """Values of the same distribution, sizes, strides and shared memory; small ones are kept."""
    base = torch.randn(400, 300) * 2 + 5
    weight = torch.nn.Parameter(base[:200].t())
    numbers = torch.randint(3, 9, (100_000,))
    flags = torch.ones(100_000, dtype=torch.bool)
    waves = torch.randn(50_000, dtype=torch.complex64)
    small = torch.arange(3)
    examples = [base, weight, numbers, flags, waves, small, 7]
    gm = torch.fx.symbolic_trace(lambda a, b, c, d, e, f, g: (a + 1,))
    file = io.BytesIO()
    portable.dump(portable.PortableGraph(gm, examples, False, portable.settings()), file, values=False)
    assert len(file.getvalue()) < 20_000
    file.seek(0)
    job = portable.load(file)
    for one, other in zip(examples[:-1], job.examples[:-1], strict=True):
        assert (type(one), one.shape, one.stride(), one.dtype) == (
            type(other),
            other.shape,
            other.stride(),
            other.dtype,
        )
    made, leaf, ints, _, _, same, number = job.examples
    assert (
        leaf.untyped_storage().data_ptr() == made.untyped_storage().data_ptr() and leaf.requires_grad and leaf.is_leaf
    )
    assert abs(made.mean() - 5) < 0.1 and abs(made.std() - 2) < 0.1
    assert (int(ints.min()), int(ints.max())) == (3, 8) and same.tolist() == [0, 1, 2] and number == 7


def test_a_place_that_cannot_be_written(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    store_of.cache_clear()
    with config.patch(tune_store=str(tmp_path / "file" / "store")), pytest.warns(UserWarning, match="is not used"):
        assert main(["tune", "--collect", str(tmp_path / "program.py")]) == 0
    assert "not collected: program.py:6 in steps: graphs can't be collected" in capsys.readouterr().err
