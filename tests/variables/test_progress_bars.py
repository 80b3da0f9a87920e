"""`config.stitch`: progress bars that move behind the graph, and what still ends it."""

import io
import subprocess
import sys

import numpy
import pytest
import torch
import tqdm
import tqdm.auto

import dynamo_lite
from dynamo_lite.config import config
from dynamo_lite.record import log


@pytest.fixture(autouse=True)
def stitched():
    with config.patch(stitch="auto"):
        yield


def shown(fn, cls=tqdm.tqdm, stream=io.StringIO):
    """What six calls write to a bar's stream, where the bar is then, and what they return."""
    out = stream()
    bar = cls(total=20, file=out, mininterval=0, miniters=1, bar_format="{desc}|{n_fmt}/{total_fmt}|{postfix}")
    results = [fn(torch.full((3,), i / 2), bar, i) for i in range(6)]
    state = bar.n, bar.desc, bar.postfix, bar.total
    bar.close()
    return out.getvalue(), state, [r.tolist() for r in results]


RUNS_EAGERLY = {"del-finalizer"}
"""tqdm keeps its bars in a weak set: what follows a break while a variable holds one is left to eager execution."""


def check(fn, breaks=0, **kwargs):
    """The function shows what it does in eager execution; with so many breaks in a first version of each frame."""
    expected = shown(fn, **kwargs)
    log.reset()
    assert shown(dynamo_lite.compile(fn, backend="eager"), **kwargs) == expected
    records = log.snapshot()
    assert [b.slug for b in log.breaks() if b.slug not in RUNS_EAGERLY] == ["call-print"] * breaks
    return [place for record in records for place in record.delayed]


@pytest.mark.parametrize("cls", [tqdm.tqdm, tqdm.auto.tqdm])
def test_moves_and_labels(cls):
    def step(x, bar, i):
        loss = x.sin().mean()
        bar.set_description(f"step {i}")
        bar.set_postfix(loss=loss.item(), rate=0.1, tensor=loss, text="a ")
        bar.update(1)
        bar.update()
        bar.set_description_str(None)
        bar.set_postfix_str(f"{loss:.3f}", refresh=False)
        bar.update(n=i)
        return loss.cos()

    places = check(step, cls=cls)
    assert [place.rsplit(".", 1)[1] for place in places][:4] == ["set_description", "set_postfix", "update", "update"]


def test_order_with_other_texts():
    texts = []

    def step(x, bar, i):
        y = x + i
        print("before", i, file=bar_stream)
        bar.update(1)
        print("behind", i, file=bar_stream)
        return y * 2

    for run in (step, dynamo_lite.compile(step, backend="eager", fullgraph=True)):
        bar_stream = io.StringIO()
        bar = tqdm.tqdm(total=4, file=bar_stream, mininterval=0, miniters=1, bar_format="{n_fmt}\n")
        for i in range(3):
            run(torch.ones(2), bar, i)
        texts.append(bar_stream.getvalue())
        bar.close()
    assert texts[0] == texts[1]
    assert "before 0\n\r1\nbehind 0" in texts[0]


def reads(x, bar, i):
    y = x.sin()
    bar.update(2)
    return y * bar.n


def sets_after(x, bar, i):
    y = x.sin()
    bar.update(2)
    bar.total = 30 + i
    return y + 1


def sets_before(x, bar, i):
    y = x.sin()
    bar.n += 1
    bar.update(2)
    return y + 1


def uses_the_result(x, bar, i):
    y = x.sin()
    return y if bar.update(2) else y + 1


def hands_it_to_map(x, bar, i):
    y = x.sin()
    list(map(bar.update, [1, 2]))
    return y + 1


@pytest.mark.parametrize("program", [reads, sets_after, sets_before, uses_the_result, hands_it_to_map])
def test_what_asks_for_a_bar_ends_the_graph(program):
    def breaks():
        expected = shown(program)
        log.reset()
        assert shown(dynamo_lite.compile(program, backend="eager")) == expected
        return {b.slug for b in log.breaks()} - RUNS_EAGERLY

    assert breaks() == {"call-print"}


class Loud(io.StringIO):
    def write(self, text):
        return super().write(text.upper())


class Own(tqdm.tqdm):
    def display(self, *args, **kwargs):
        return super().display(*args, **kwargs)


LABELS = [
    lambda bar, i: bar.set_postfix({"a": i}),
    lambda bar, i: bar.set_postfix(ordered_dict={"a": i}),
    lambda bar, i: bar.set_postfix(a=numpy.float64(i)),
    lambda bar, i: bar.set_postfix(a=i + 2j),
    lambda bar, i: bar.set_description(desc="a" if i else 5),
    lambda bar, i: bar.set_postfix_str(s=i),
    lambda bar, i: bar.set_postfix(a="b", refresh=bool(i % 2)),
    lambda bar, i: bar.set_description(desc=f"{i}", refresh=False),
    lambda bar, i: bar.set_description(),
    lambda bar, i: bar.set_description("a", 1, 2),
]


@pytest.mark.parametrize("label", LABELS)
def test_labels_of_all_kinds(label):
    def step(x, bar, i):
        y = x.sin()
        try:
            label(bar, i)
        except (TypeError, ValueError) as error:
            return y, str(error)
        return y.cos(), ""

    def run(fn):
        out = io.StringIO()
        bar = tqdm.tqdm(
            total=20, file=out, mininterval=0, miniters=1, bar_format="{desc}|{n_fmt}/{total_fmt}|{postfix}"
        )
        results = [fn(torch.full((3,), i / 2), bar, i) for i in range(4)]
        return out.getvalue(), [(y.tolist(), text) for y, text in results]

    assert run(dynamo_lite.compile(step, backend="eager")) == run(step)


@pytest.mark.parametrize("kwargs", [{"stream": Loud}, {"cls": Own}])
def test_a_bar_that_runs_code_of_the_program_ends_the_graph(kwargs):
    def step(x, bar, i):
        y = x.sin()
        bar.set_postfix(a=1)
        return y.cos()

    assert check(step, breaks=1, **kwargs) == []


def test_a_disabled_bar():
    def step(x, bar):
        y = x.sin()
        bar.update(1)
        bar.set_description("a")
        return y.cos()

    log.reset()
    bar = tqdm.tqdm(total=3, disable=True)
    dynamo_lite.compile(step, backend="eager", fullgraph=True)(torch.ones(2), bar)
    assert (bar.n, log.breaks()) == (0, [])


def test_a_program_that_imports_tqdm_alone():
    """`from tqdm import tqdm` brings no other class of bars."""
    code = """
import io, sys, torch
from tqdm import tqdm
import dynamo_lite
from dynamo_lite.record import log

dynamo_lite.config.stitch = "auto"
bar = tqdm(total=3, file=io.StringIO())

def step(x):
    y = x * 2
    bar.update(1)
    return y + 1

compiled = dynamo_lite.compile(step, backend="eager")
for _ in range(3):
    compiled(torch.ones(2))
print(bar.n, log.breaks(), "tqdm.asyncio" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "3 [] False\n", done.stderr
