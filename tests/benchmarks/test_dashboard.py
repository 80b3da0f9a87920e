"""The dashboard: what is read from results, the page, the plots, the README's part."""

import json
import os
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree
from importlib.util import find_spec

import pytest

if find_spec("torch") is None or find_spec("jinja2") is None:
    pytest.skip("torch or jinja2 is not installed", allow_module_level=True)

from benchmarks import dashboard, plots
from benchmarks.history import OURS, THEIRS, Point, read
from tests.helpers import page_structure as structure

SETTINGS = {
    "device": "cpu", "dtype": "float32", "training": False, "dynamic": False, "backend": "autotune",
    "rivals": ["torch.compile"], "parts": ["coverage", "accuracy", "speed"],
}  # fmt: skip


def bench(speedup, **more):
    record = {
        "pass": True,
        "speedup": speedup,
        "compile_s": 2.0,
        "mib": 10.0,
        "overhead_us": 3.0,
        "backends": {"eager": 1},
    }
    theirs = {"torch.compile speedup": 1.0, "torch.compile compile_s": 8.0, "torch.compile mib": 40.0}
    return {"environment": {"date": "today"}, "settings": SETTINGS, "models": {"hf/a<b>": {**record, **theirs, **more}}}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "README.md").write_text(f"# Title\n\n{dashboard.BEGIN}\nold\n{dashboard.END}\n\nrest\n")
    results = tmp_path / "results"
    results.mkdir()

    def write(name, data):
        (results / name).write_text(json.dumps(data))

    write("bench-cpu-inference-autotune-20260101.json", bench(1.5))
    write("bench-cpu-inference-autotune-20260201.json", bench(2.0, **{"pass": False}))
    inference = {"pass": True, "trace": 0.5}
    zoo = {"a": {"suite": "hf", OURS: {"inference": inference}, THEIRS: {"inference": {"pass": False, "trace": 5.0}}}}
    write("zoo-20260101.json", {"models": zoo, "environment": {}})
    write("overhead-20260101.json", {"environment": {}, "rows": [{"model": "m", OURS: 1e-6, THEIRS: 20e-6}]})
    write("other-20260101.json", {"environment": {}, "rows": []})
    (results / "trace-20260101.json").write_text("{")
    return results


def test_results_become_points(folder):
    history = read(folder)
    suite = "hf (cpu, inference, autotune)"
    assert history.over_time("speedup", suite) == {
        OURS: [
            ("2026-01-01 not committed, 1 models", pytest.approx(1.5)),
            ("2026-02-01 not committed, 1 models", pytest.approx(2.0)),
        ],
        THEIRS: [("2026-01-01 not committed, 1 models", 1.0)],  # the second is the same
    }
    assert Point("pass", suite, OURS, "2026-02-01", 0.0, 1) in history.points
    assert Point("pass", suite, THEIRS, "2026-02-01", 100.0, 1) in history.points
    assert Point("pass", "zoo, hf (inference)", THEIRS, "2026-01-01", 0.0, 1) in history.points
    latest = {(p.suite, p.side): p.value for p in history.latest("overhead")}
    assert latest[("real models", THEIRS)] == pytest.approx(20.0)
    assert history.backends == {"cpu, inference, autotune": {"eager": 1}}
    (problem,) = history.problems
    assert problem.startswith("trace-20260101.json: JSONDecodeError")


def test_files_are_written_and_checked(folder, capsys):
    readme = folder.parent / "README.md"
    arguments = ["--results", str(folder), "--readme", str(readme)]
    assert dashboard.main([*arguments, "--check"]) == 1 and not (folder / "dashboard.html").exists()
    assert dashboard.main(arguments) == 0
    assert dashboard.main([*arguments, "--check"]) == 0
    text = readme.read_text()
    assert text.startswith("# Title\n\n<!-- results") and text.endswith("\n\nrest\n") and "old" not in text
    assert "| Speedup | hf (cpu, inference, autotune) | 2 x | 1 x | 1 |" in text
    assert "![Speedup](results/speedup.svg)" in text
    page = (folder / "dashboard.html").read_text()
    assert (
        "over commits" in page
        and "<b>" in page
        and "http" not in page.replace("http-equiv", "").replace("http://www.w3.org/2000/svg", "")
    )
    assert "left out: trace-20260101.json" in capsys.readouterr().err
    readme.write_text("no marks")
    with pytest.raises(SystemExit, match="has no marks"):
        dashboard.main(arguments)


def test_headline_numbers_stand_beside_those_of_torch_compile(folder):
    cards = {card.title: card for card in dashboard.cards(read(folder))}
    assert cards["Speedup"] == ("Speedup", "2 x", "1 x", 1, True)
    assert cards["Memory"] == ("Memory", "10 MiB", "40 MiB", 1, True)
    assert cards["Cost per call"][1:3] == ("1 µs", "20 µs")  # not of the suite that has no measurement of torch.compile
    page = dashboard.page(read(folder))
    assert page.count('<div class="card">') == page.count('<span class="theirs">torch.compile') == len(cards)


def test_every_table_scrolls_or_folds_and_links_resolve(folder):
    structure.check(dashboard.page(read(folder)))


@pytest.mark.skipif(structure.chromium() is None, reason="no Chromium to lay the page out")
def test_nothing_is_wider_than_a_phone(folder, tmp_path):
    assert structure.overflowing(dashboard.page(read(folder)), tmp_path) == []
    assert (
        structure.overflowing(dashboard.page(read(folder)).replace("<h1>", '<h1 style="width: 500px">'), tmp_path) != []
    )


def test_history_over_commits(folder):
    def git(*arguments):
        environment = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null", "PATH": os.environ["PATH"]}
        names = ["-c", "user.name=n", "-c", "user.email=e@example.org"]
        subprocess.run(["git", *names, *arguments], cwd=folder, check=True, env=environment)

    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    git("init", "-q")
    for name in ("bench-cpu-inference-autotune-20260101.json", "bench-cpu-inference-autotune-20260201.json"):
        git("add", name)
        git("commit", "-q", "-m", name)
    arguments = ["--results", str(folder), "--readme", str(folder.parent / "README.md")]
    assert dashboard.main([*arguments, "--commits"]) == 0
    history = read(folder)
    first, second = [point for point in history.earlier if (point.metric, point.side) == ("speedup", OURS)]
    assert (first.value, second.value) == (pytest.approx(1.5), pytest.approx(2.0)) and first.commit != second.commit
    assert len([p for p in history.earlier if (p.metric, p.side) == ("speedup", THEIRS)]) == 1
    over_time = history.over_time("speedup", "hf (cpu, inference, autotune)")[OURS]
    assert [when for when, _ in over_time][:2] == [f"{p.day} {p.commit}, 1 models" for p in (first, second)]
    assert history.latest("speedup")[0].commit == ""  # what counts now is in the files
    assert second.commit in (folder / "dashboard.html").read_text()
    assert dashboard.main([*arguments, "--check"]) == 0


def test_an_empty_folder(tmp_path):
    (tmp_path / "README.md").write_text(f"{dashboard.BEGIN}\n{dashboard.END}")
    results = tmp_path / "results"
    results.mkdir()
    assert dashboard.main(["--results", str(results), "--readme", str(tmp_path / "README.md")]) == 0
    assert "There are no results yet." in (results / "dashboard.html").read_text()


def test_plots_are_whole_and_escaped():
    value = plots.Value("<ours>", 2.0, "2 & more")
    series = {"<ours>": [("2026-01-01", 1.0), ("2026-01-02", 3.0)], "theirs": [("2026-01-02", 2.0)]}
    for svg, kind, count in (
        (plots.bars("t<", [("a<b", [value, plots.Value("theirs", 1.0, "1")])]), "rect", 2 + 2),
        (plots.lines("t<", series, ["2026-01-01", "2026-01-02"]), "circle", 3),
        (plots.dots("t<", {"<ours>": {"a<": 0.1, "b": 3.0}}), "circle", 2),
        (plots.bars("empty", []), "rect", 0),
    ):
        root = ElementTree.fromstring(plots.standalone(svg))
        assert len(list(root.iter("{http://www.w3.org/2000/svg}" + kind))) == count
    bars = ElementTree.fromstring(plots.bars("t", [("a", [plots.Value("s", 2.0, ""), plots.Value("u", 1.0, "")])]))
    widths = [float(rect.get("width")) for rect in bars.iter("{http://www.w3.org/2000/svg}rect")][-2:]
    assert widths[0] == pytest.approx(2 * widths[1])
