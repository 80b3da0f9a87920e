"""What the documentation quotes is what the tool prints."""

import pathlib
import re

import torch

import dynamo_lite
from dynamo_lite.__main__ import main

DOCS = pathlib.Path(__file__).parent.parent / "docs"


def test_table_of_breaks(capsys):
    assert main(["explain", "all"]) == 0
    assert (DOCS / "breaks.md").read_text() == capsys.readouterr().out


def test_links_lead_somewhere():
    for page in [DOCS.parent / "README.md", *DOCS.glob("*.md")]:
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
