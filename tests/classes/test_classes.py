"""A sample of torch's classes; `python -m tests.classes` runs all of them."""

import importlib.util
from typing import Any

import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("needs torch", allow_module_level=True)

import torch

import dynamo_lite
from tests.classes import cases, check, tables

KNOWN = cases.by_class()

# One or two of each kind: convolutions, normalisation, random numbers, losses, recurrent and lazy modules, containers.
MODULES = [
    "nn.Conv2d",
    "nn.BatchNorm1d",
    "nn.Dropout2d",
    "nn.CrossEntropyLoss",
    "nn.GRUCell",
    "nn.LazyLinear",
    "nn.WithContainers",
]
DISTRIBUTIONS = ["distributions.Laplace", "distributions.OneHotCategorical", "distributions.TanhTransform"]
TRAINING = ["optim.SGD", "optim.RMSprop", "lr_scheduler.StepLR", "lr_scheduler.OneCycleLR"]
BREAKS = {
    "LazyLinear": "call-skipped-function",  # lazy modules made inside
}


@pytest.fixture(autouse=True)
def fresh():
    yield
    dynamo_lite.reset()


def is_expected(text: str, line: str) -> bool:
    return any(part in text and slug in line for part, slug in BREAKS.items())


@pytest.mark.parametrize("name", [*MODULES, *DISTRIBUTIONS, *TRAINING])
def test_compiled_equals_eager(name: str) -> None:
    """The first case of each form, with the backend `eager`; whole but where it is known why not."""
    forms: set[str] = set()
    for case in KNOWN[name]:
        if case.form in forms:
            continue
        forms.add(case.form)
        record = check.check(case, "eager")
        assert not record["problems"], (case.text, case.form, record["problems"])
        assert record["raised"] or record["seen"]
        left = [line for line in record["breaks"] + record["internal"] if not is_expected(case.text, line)]
        assert record["raised"] or not left, (case.text, case.form, left)


def test_a_difference_is_found() -> None:
    """The comparison sees a result, a state and a random generator that are not those of eager execution."""
    count = 0

    def make() -> cases.Program:
        nonlocal count
        count += 1
        changed = torch.zeros(2)

        def function(x: torch.Tensor) -> torch.Tensor:
            torch.rand(count)
            changed.add_(count)
            return x + count

        return cases.Program(function, [(torch.ones(2),)], state=lambda: changed)

    problems = check.check(cases.Case("nn.None", "training", "none", make), "eager")["problems"]
    assert [problem.partition(":")[0] for problem in problems] == [
        "result[0]",
        "arguments[1][0]",
        "a random generator is in another state",
    ]


@pytest.mark.parametrize("kind", ["nn", "distributions", "optim", "lr_scheduler"])
def test_every_class_has_cases(kind: str) -> None:
    module: Any = cases.KINDS[kind][0]
    called = {name.rpartition(".")[2] for name in KNOWN} | set(tables.NOT_CALLED)
    defined = {
        name
        for name, value in vars(module).items()
        if isinstance(value, type) and name[0] != "_" and value.__module__.startswith(module.__name__)
    }
    assert len(defined) > 10
    assert defined <= called


def test_nothing_is_left_out_that_has_cases() -> None:
    assert not {name.rpartition(".")[2] for name in KNOWN} & set(tables.NOT_CALLED)
