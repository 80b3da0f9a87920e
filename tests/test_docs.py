"""What the documentation quotes is what the tool prints."""

import os
import pathlib
import re
import shlex

import pytest
import torch

import dynamo_lite
from dynamo_lite.__main__ import main
from tests.helpers import processes

DOCS = pathlib.Path(__file__).parent.parent / "docs"


def test_table_of_breaks(capsys):
    assert main(["explain", "all"]) == 0
    assert (DOCS / "breaks.md").read_text() == capsys.readouterr().out


def test_links_lead_somewhere():
    for page in [DOCS.parent / "README.md", *DOCS.rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)[^)]*\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_quoted_reports_are_of_this_version():
    """Both pages quote one and the same run."""
    quoted = re.findall(r"dynamo_lite coverage: .*?if b\.sum\(\) < 0:", (DOCS / "how-it-works.md").read_text(), re.S)
    assert quoted == re.findall(
        r"dynamo_lite coverage: .*?if b\.sum\(\) < 0:", (DOCS / "quickstart.md").read_text(), re.S
    )


def test_examples_of_testing():
    """The first example of the page, with a step of as many operators as it states."""
    source = re.search(r"```python\n(.*?)```", (DOCS / "testing.md").read_text(), re.S)[1]

    def step(x):
        for _ in range(12):
            x = x + 1
        return x

    names = {"dynamo_lite": dynamo_lite, "step": step, "x": torch.ones(3)}
    exec(source, names)
    for name in ("test_step_is_one_graph", "test_step_is_the_same"):
        names[name]()


TUTORIALS = sorted((DOCS / "tutorials").glob("*.md"))
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(
    r"^\$ (?P<settings>(?:\w+=\S+ )*)python (?P<arguments>.*)\n(?P<output>(?:(?!\$ ).*\n)*)", re.MULTILINE
)


def pattern(output: str) -> str:
    """A regular expression for a quoted output: `…` stands for anything, measured numbers and the width of columns may be others."""
    told = re.escape(" ".join(output.split())).replace("…", ".*?")
    return re.sub(r"\d+\\\.\d+", r"\\d+\\.\\d+", told).replace(r"\ ", r"\s+")


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_tutorial(page, tmp_path):
    """In the order of the page: a block that begins with `# NAME.py` is that file; other Python runs with the names of these files; what a
    command prints is what is quoted."""
    environment = os.environ | {"DYNAMO_LITE_CACHE": "1", "DYNAMO_LITE_CACHE_DIR": str(tmp_path / "cache")}
    del environment["DYNAMO_LITE_STITCH"]
    files = ["import torch, dynamo_lite"]
    for language, text in BLOCK.findall(page.read_text()):
        if named := re.match(r"# (\w+)\.py\n", text):
            (tmp_path / f"{named[1]}.py").write_text(text)
            files.append(f"from {named[1]} import *")
        elif language == "python":
            done = processes.run(["-c", "\n".join([*files, text])], cwd=tmp_path, env=environment)
            assert done.returncode == 0, done.stderr
        for command in COMMAND.finditer(text) if language == "console" else ():
            settings = dict(setting.split("=") for setting in command["settings"].split())
            done = processes.run(shlex.split(command["arguments"]), cwd=tmp_path, env=environment | settings)
            printed = done.stdout + done.stderr
            assert re.fullmatch(pattern(command["output"]), printed.strip(), re.DOTALL), (
                f"{command[0]}\nprinted:\n{printed}"
            )
