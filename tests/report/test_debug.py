"""The debugger: where it stops, what it shows, and that it changes nothing."""

import io
import itertools

import pytest
import torch

import dynamo_lite
from dynamo_lite.__main__ import main
from dynamo_lite.interp.frame import OPS
from dynamo_lite.messages import short_path
from dynamo_lite.record import log
from dynamo_lite.report.debug import Debugger, Quit


def helper(a):
    b = a + 1
    if b.sum() > 0:
        b = b * 2
    return b.sin()


def program(x, flag=True):
    n = [1, 2, x]
    y = helper(x * 2)
    return y * len(n)


HELPER, PROGRAM = helper.__code__.co_firstlineno, program.__code__.co_firstlineno


def session(*commands, fn=program, at_start=False, args=None):
    """What each command printed; the first text is that of the first stop."""
    out = io.StringIO()
    debugger = Debugger(io.StringIO("".join(f"{c}\n" for c in commands)), out, at_start=at_start)
    args = (torch.ones(3),) if args is None else args
    with debugger.watching():
        result = dynamo_lite.compile(fn, backend="eager")(*args)
    torch.testing.assert_close(result, fn(*args))
    return [text.strip() for text in out.getvalue().split(Debugger.prompt)]


def test_a_break_and_what_is_known_there():
    stop, where, source, known, graph, guards, why, _ = session(
        "where", "list", "locals", "graph", "guards", "why", "continue"
    )
    assert stop.startswith("DL001 data-dependent branch") and "if b.sum() > 0:" in stop and why == stop
    assert where.splitlines()[::2] == [
        f"{short_path(__file__)}:{PROGRAM + 2} in program",
        f"{short_path(__file__)}:{HELPER + 2} in helper",
    ]
    assert f"-> {HELPER + 2:4}     if b.sum() > 0:" in source.splitlines() or f"->   {HELPER + 2}" in source
    assert known.splitlines() == ["a = Tensor: torch.float32[3] on cpu", "b = Tensor: torch.float32[3] on cpu"]
    assert [line.split()[0] for line in graph.splitlines()] == ["l_x_:", "mul", "add", "sum_1", "gt"]
    assert "mul = mul(l_x_, 2)" in graph
    assert "first_failure" in guards and "# x" in guards and "flag" not in guards.split("def ")[1]


def test_looking_adds_no_guards():
    session("c")
    plain = log.snapshot()[-1].guards.text()
    dynamo_lite.reset()
    session("locals", "stack", "guards", "graph", "c")
    assert log.snapshot()[-1].guards.text() == plain


def test_steps():
    """`next` stays in the function but for a break in what it calls; then the analysis begins again, and `step` follows calls."""
    told = session("s", "locals", "n", "s", "s", "s", "r", "c", at_start=True)
    lines = [
        int(text.partition(" in ")[0].rpartition(":")[2]) for text in told if text.startswith(short_path(__file__))
    ]
    assert lines == [PROGRAM + 1, PROGRAM + 2, PROGRAM + 1, PROGRAM + 2, HELPER + 1]
    assert told[3].startswith("DL001")
    assert "x = Tensor at x, not looked at" in told[2] and "flag = bool at flag, not looked at" in told[2]


def test_next_at_a_break():
    """The next line of the function that broke, and then of its caller, when they go on behind the break."""
    told = session("n", "n", "n", "c")
    lines = [
        int(text.partition(" in ")[0].rpartition(":")[2]) for text in told if text.startswith(short_path(__file__))
    ]
    assert told[0].startswith("DL001") and lines == [HELPER + 3, HELPER + 4, PROGRAM + 3]


def test_a_line():
    told = session(f"break {HELPER + 1}", "break", "s", "c", "c", "c", at_start=True)
    assert told[2] == f"{short_path(__file__)}:{HELPER + 1}"
    assert (
        sum(f":{HELPER + 1} in helper" in text for text in told[3:]) == 2
    )  # the analysis begins again after the break


def test_instructions_and_the_stack():
    told = session("si", "si", "si", "si", "stack", "p x", "p nothing", "c", at_start=True)
    assert told[5].split()[0].isupper()
    assert told[6] == "Tensor at x, not looked at" and told[7] == "nothing is not a variable of program"


def test_the_end_of_the_input_goes_on():
    assert session("frob")[1] == "no command 'frob'; help lists them"


def test_quit():
    with pytest.raises(Quit):
        session("quit")
    assert all(handler is None or "_watched" not in handler.__qualname__ for handler in OPS)


def test_help_names_all_commands():
    (_, text, *_) = session("help", "c")
    for name in (
        "step",
        "next",
        "stepi",
        "return",
        "continue",
        "break",
        "quit",
        "where",
        "list",
        "locals",
        "graph",
        "guards",
    ):
        assert f"{name} (" in text or f"{name}:" in text


def test_no_break_no_stop():
    assert session("c", fn=lambda x: x + 1) == [""]


def test_command(tmp_path, capsys, monkeypatch):
    (tmp_path / "program.py").write_text(
        "import torch\nfn = torch.compile(lambda x: x if x.sum() > 0 else -x, backend='eager')\nprint(fn(torch.ones(1)))\n"
    )
    monkeypatch.setattr("sys.stdin", io.StringIO("w\nc\n"))
    assert main(["debug", str(tmp_path / "program.py")]) == 0
    out = capsys.readouterr().out
    assert out.startswith("DL001") and out.endswith("tensor([1.])\n") and "program.py:2 in <lambda>" in out
    monkeypatch.setattr("sys.stdin", io.StringIO("q\n"))
    assert main(["debug", "--start", str(tmp_path / "program.py")]) == 1


def test_handlers_are_put_back():
    before = list(OPS)
    session("c")
    assert all(one is other for one, other in itertools.zip_longest(OPS, before))
