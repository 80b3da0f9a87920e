"""The benchmark driver: which models, what a line says, files, what goes on from where, errors."""

import csv
import json
import sys
from importlib.util import find_spec

import pytest

if find_spec("torch") is None or find_spec("scipy") is None:
    pytest.skip("torch or scipy is not installed", allow_module_level=True)

import torch

from benchmarks import driver, measure, results, suites
from benchmarks.significance import compare, verdict
from benchmarks.zoo_inputs import Entry
from dynamo_lite.__main__ import main as command_line
from tests.helpers import processes

SETTINGS = {**measure.Settings()._asdict(), "rivals": ["torch.compile"], "parts": ["coverage", "accuracy", "speed"]}


class Broken(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x):
        x = self.linear(x)
        if x.sum() > 0:
            x = x + 1
        return x.relu()


def entry(model, shape=(4,)):
    return Entry(lambda: (model(), lambda batch: (torch.ones(batch, *shape),)), True)


def settings(**changes):
    return measure.Settings(backend="eager", repeats=6, seconds=0.1)._replace(**changes)


def test_a_model_is_measured():
    record = measure.measure(entry(Broken), settings(rivals=("aot_eager",)))
    assert record["pass"] and (record["graphs"], record["breaks"], record["recompiles"]) == (2, 1, 0)
    assert record["frames_ok"] == record["frames"] >= 2
    assert record["graph_calls"] == 6 and 0 < record["captured_ops"] < record["total_ops"]
    assert record["backends"] == {"eager": 2} and record["timing"].startswith("TIMING: entire_frame_compile:")
    assert record["rounds"] == 6 and record["speedup"] > 0 and 0 < record["p"] <= 1 and record["aot_eager ms"] > 0
    assert "overhead_us" not in record  # told of models without breaks only
    json.dumps(record, allow_nan=False)


def test_the_parts_can_be_chosen():
    record = measure.measure(entry(lambda: torch.nn.Linear(4, 4)), settings(parts=("coverage",)))
    assert record["overhead_us"] > 0 and "speedup" not in record and "compile_s" not in record
    record = measure.measure(entry(Broken), settings(parts=("accuracy",)))
    assert record["pass"] and "graphs" not in record and "speedup" not in record


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_training_steps_are_compared(dtype):
    def model():
        return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))

    record = measure.measure(entry(model), settings(training=True, dtype=dtype, backend="aot_eager"))
    assert record["pass"], record
    assert record["graphs"] == 1 and record["ms"] > 0


def test_other_sizes_are_tried_where_they_are_symbolic():
    record = measure.measure(entry(lambda: torch.nn.Linear(4, 4)), settings(dynamic=True, parts=("accuracy",)))
    assert record["pass"] and record["recompiled_for_sizes"] == 0


def test_what_is_wrong_fails():
    def wrong(gm, inputs):
        return lambda *args: [value + 1 for value in gm.forward(*args)]

    record = measure.measure(entry(Broken), settings(backend=wrong, parts=("accuracy",)))
    assert not record["pass"] and record["differences"]


def test_what_raises_is_a_record(monkeypatch):
    monkeypatch.setattr(measure, "entries", lambda *args, **kwargs: {"a": Entry(lambda: 1 / 0)})
    record = measure.guarded("micro", "a", settings())
    assert not record["pass"] and record["error"] == "ZeroDivisionError: division by zero"


def test_significance():
    slow, fast = [2.0, 2.1, 2.2, 1.9, 2.0, 2.1, 2.2, 1.9], [1.0, 1.1, 1.0, 1.0, 1.1, 1.0, 1.0, 1.1]
    faster = compare(slow, fast)
    assert 1.7 < faster.low <= faster.speedup <= faster.high < 2.3 and faster.p < 0.01
    assert str(compare(fast, fast)) == "1.000x SAME"
    assert (verdict(0.05), verdict(0.02), verdict(1e-5)) == ("SAME", "p=0.02", "p<0.001")


def test_lines_csv_and_summary():
    good = {
        "pass": True, "frames_ok": 1, "frames": 2, "graphs": 3, "graph_calls": 9, "captured_ops": 9, "total_ops": 10,
        "pct_ops": 90.0, "pct_time": 80.0, "breaks": 2, "recompiles": 0, "trace_s": 0.5, "speedup": 2.0, "p": 0.001,
        "compile_s": 1.0, "torch.compile speedup": 1.0, "torch.compile p": 0.5, "torch.compile compile_s": 4.0,
        "backends": {"inductor": 2, "eager": 1},
    }  # fmt: skip
    records = {
        "hf/a": good,
        "timm/b": {**good, "speedup": 0.5},
        "timm/c": {"pass": False, "error": "OSError: no\nmore"},
    }
    text = results.line("hf/a", good, SETTINGS)
    assert "1/  2 frames   3 graphs  90.0% ops 2.000x p=0.001" in text and "torch.compile 1.000x SAME" in text
    assert text.endswith("inductor:2 eager:1 pass")
    assert results.line("timm/c", records["timm/c"], SETTINGS).endswith("FAIL OSError: no more")
    rows = list(csv.DictReader(results.as_csv(records, SETTINGS).splitlines()))
    assert list(rows[0])[:12] == [
        "dev", "name", "graphs", "graph_calls", "captured_ops", "total_ops", "pct_ops", "pct_time",
        "breaks", "recompiles", "trace_s", "overhead_us",
    ]  # fmt: skip
    assert (rows[0]["dev"], rows[0]["name"], rows[0]["pct_ops"], rows[0]["backends"]) == (
        "cpu",
        "a",
        "90",
        "inductor:2 eager:1",
    )
    lines = list(results.summary(records, SETTINGS))
    assert lines[0] == "hf: 1/1 passed (100%), torch.compile 1/1 passed (100%)"
    assert "timm: 1/2 passed (50%), torch.compile 1/2 passed (50%)" in lines
    assert lines[-1] == "backends of the graphs: inductor 4, eager 2"
    speedup = [line.split() for line in lines if line.split()[0] == "speedup"]
    assert speedup[-1] == ["speedup", "2", "1.250", "1.000"]


def test_results_name_no_folders_of_this_machine(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend("/here/lib")
    file = results.File(tmp_path / "r.json", {**SETTINGS, "parts": ["coverage"]})
    file.add("hf/a", {"pass": True, "break_reasons": ["/here/lib/package/model.py:3 no model"]}, {})
    assert json.loads(file.path.read_text())["models"]["hf/a"]["break_reasons"] == ["package/model.py:3 no model"]


def test_the_races_are_a_table():
    races = [
        [["inductor", 50.0, "50 µs, chosen"], ["eager", 100.0, ""], ["torchscript", None, "failed: E: e"]],
        [["eager", 100.0, "chosen"], ["inductor", 200.0, "slower"], ["torchscript", None, "not tried: no time"]],
    ]
    head, *rows = list(results.candidates([{"races": races}, {"pass": True}]))
    assert head.split() == ["candidate", "timed", "chosen", "best", "median", "not", "timed"]
    assert [row.split() for row in rows] == [
        ["inductor", "2", "1", "2.00x", "1.25x"],
        ["torchscript", "0", "0", "–", "–", "failed", "1,", "not", "tried", "1"],
    ]
    assert list(results.candidates([{"pass": True}])) == []


def test_a_race_has_the_budget_that_was_asked_for():
    changes = {"backend": "autotune", "budget": "1ms", "parts": ("accuracy",)}
    record = measure.measure(entry(lambda: torch.nn.Linear(4, 4)), settings(**changes))
    assert any("the 0.001 s for this graph were used up" in text for race in record["races"] for _, _, text in race)


def test_the_chains_are_a_table():
    record = {"pass": True, "eager_ms": 3.0, "ms": 1.0, "speedup": 3.0, "p": 0.01}
    (_, *_, head, row) = results.summary({"micro/chain_8_10": record}, SETTINGS)
    assert head.split() == ["chain", "eager", "ms", "dynamo_lite", "ms", "ratio", "torch.compile", "ms", "ratio"]
    assert row.split() == ["chain_8_10", "3.0000", "1.0000", "3.00", "–", "–"]


def run(*arguments, monkeypatch, models=("a", "b"), measured=None):
    made = []

    def guarded(suite, name, settings):
        made.append(name)
        if name == measured:
            raise KeyboardInterrupt
        return {"pass": True, "speedup": 2.0, "p": 0.01, "ms": 1.0}

    monkeypatch.setattr(driver, "guarded", guarded)
    monkeypatch.setattr(driver, "entries", lambda *a, **k: {name: Entry(lambda: None) for name in models})
    return driver.main(["micro", "--backend", "eager", *arguments]), made


def test_it_goes_on_where_it_was_stopped(tmp_path, monkeypatch, capsys):
    path = tmp_path / "deep" / "r.json"
    status, made = run("--json", str(path), monkeypatch=monkeypatch, measured="b")
    assert (status, made) == (130, ["a", "b"])
    assert "stopped after 1 of 2 models; the same command goes on from there" in capsys.readouterr().out
    assert list(json.loads(path.read_text())["models"]) == ["micro/a"]
    status, made = run("--json", str(path), monkeypatch=monkeypatch)
    assert (status, made) == (0, ["b"])
    assert "GEOMEAN" in capsys.readouterr().out and path.with_suffix(".csv").read_text().count("\n") == 3
    with pytest.raises(SystemExit, match="other settings .repeats."):
        run("--json", str(path), "-n", "3", monkeypatch=monkeypatch)
    assert run("--json", str(path), "-n", "3", "--again", monkeypatch=monkeypatch)[1] == ["a", "b"]
    path.write_text("{")
    with pytest.raises(SystemExit, match="can't be read"):
        run("--json", str(path), monkeypatch=monkeypatch)


def test_names_are_chosen(monkeypatch, capsys):
    names = ("bert", "gpt2", "gpt_neo", "vit")

    def choose(*a):
        return run("--no-save", *a, monkeypatch=monkeypatch, models=names)[1]

    assert choose() == list(names)
    assert choose("-k", "GPT", "-k", "vit", "-x", "neo") == ["gpt2", "vit"]
    assert choose("--only", "bert") == ["bert"]
    for arguments, message in (
        (["--only", "brt"], "not in micro: brt"),
        (["-k", "nothing"], "no model is chosen"),
        (["--compare", "indoctor"], "indoctor"),
    ):
        with pytest.raises(SystemExit, match=message):
            choose(*arguments)
    with pytest.raises(SystemExit):
        choose("-k", "(")
    assert "is no regular expression" in capsys.readouterr().err
    for arguments, message in (
        (["--budget", "20s"], "--budget is for --autotune"),
        (["--autotune", "--budget", "soon"], "budget='soon': expected seconds"),
    ):
        with pytest.raises(SystemExit):
            driver.main(["micro", *arguments])
        assert message in capsys.readouterr().err
    with pytest.raises(SystemExit):
        driver.main(["nlp"])
    assert "unknown suite nlp (known: hf, timm, micro, torchbench)" in capsys.readouterr().err


def test_the_micro_suite():
    assert list(suites.entries("micro"))[:2] == ["chain_8_10", "chain_16_10"] and len(suites.entries("micro")) == 16
    function, make = suites.entries("micro")["chain_24_100"].build()
    inputs = make(1)
    assert inputs["x"].shape == (100, 100)
    assert torch.allclose(function(**inputs), inputs["x"] + 6 * (inputs["y"] - 1), atol=1e-4)


def test_torchbench_from_a_checkout(tmp_path, monkeypatch):
    folder = tmp_path / "torchbenchmark" / "models" / "tiny"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(
        "import torch\n"
        "class Model:\n"
        "    def __init__(self, test, device): self.test = test\n"
        "    def get_module(self): return torch.nn.Linear(3, 2), (torch.ones(4, 3),)\n"
    )
    monkeypatch.setattr(sys, "path", list(sys.path))
    ((name, found),) = suites.entries("torchbench", str(tmp_path)).items()
    assert name == "tiny" and measure.measure(found, settings(parts=("accuracy",)))["pass"]
    with pytest.raises(SystemExit, match="is no checkout of torchbench"):
        suites.entries("torchbench", str(folder))
    with pytest.raises(SystemExit, match="needs --torchbench PATH"):
        suites.entries("torchbench")


def test_processes_of_their_own(tmp_path):
    path = tmp_path / "r.json"
    arguments = ["micro", "--only", "chain_8_10", "--accuracy", "--backend", "eager", "--isolate", "--json", str(path)]
    done = processes.run(["-m", "dynamo_lite", "bench", *arguments], timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "cpu micro chain_8_10" in done.stdout and json.loads(path.read_text())["models"]["micro/chain_8_10"]["pass"]


def test_without_the_repository(monkeypatch, tmp_path, capsys):
    import dynamo_lite.__main__ as module

    monkeypatch.setattr(module, "__file__", str(tmp_path / "site-packages" / "dynamo_lite" / "__main__.py"))
    assert command_line(["bench", "--fast"]) == 2
    assert "not part of the installed package" in capsys.readouterr().err
