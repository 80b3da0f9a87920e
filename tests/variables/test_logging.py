"""Methods of loggers: records that are dropped, and with `config.stitch` records that are handled behind the graph."""

import io
import logging
import sys

import pytest
import torch

import dynamo_lite
from dynamo_lite.record import log

X = torch.arange(3.0)
FORMAT = "%(levelname)s %(name)s %(filename)s:%(lineno)d %(funcName)s: %(message)s"


@pytest.fixture
def logger():
    made = logging.getLogger("program")
    made.parent = None
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter(FORMAT))
    made.addHandler(handler)
    made.stream = stream
    made.setLevel(logging.INFO)
    yield made
    made.handlers.clear()
    made.filters.clear()


def text_of(logger, fn, *calls):
    """What the calls have the logger write; it must be what they have it write eagerly."""
    texts = []
    for run in (fn, dynamo_lite.compile(fn, backend="eager")):
        logger.stream.seek(0)
        logger.stream.truncate()
        log.reset()
        for args in calls:
            run(*args)
        texts.append(logger.stream.getvalue())
    assert texts[0] == texts[1]
    return texts[0]


def test_dropped_records_are_no_break(logger):
    def f(x):
        logger.debug("never %s", x)
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug("never either")
        return x + 1

    assert text_of(logger, f, [X], [X]) == ""
    assert not log.breaks()


def test_a_level_that_changes(logger):
    def f(x):
        y = x * 2
        logger.debug("now")
        return y + 1

    compiled = dynamo_lite.compile(f, backend="eager")
    log.reset()
    with dynamo_lite.config.patch(stitch=False):
        for level, lines in ((logging.INFO, 0), (logging.DEBUG, 1), (logging.INFO, 1), (logging.DEBUG, 2)):
            logger.setLevel(level)
            compiled(X)
            assert len(logger.stream.getvalue().splitlines()) == lines
    assert [b.slug for b in log.breaks()] == ["call-print"]
    logging.disable(logging.DEBUG)
    try:
        compiled(X)
        assert len(logger.stream.getvalue().splitlines()) == 2
    finally:
        logging.disable(logging.NOTSET)


@pytest.mark.parametrize("choice, breaks", [(False, 1), ("auto", 0), (True, 0)])
def test_records_by_setting(logger, choice, breaks):
    def f(x):
        logger.info("one")
        return x + 1

    with dynamo_lite.config.patch(stitch=choice):
        assert text_of(logger, f, [X], [X]).count("one") == 2
    assert [b.slug for b in log.breaks()] == ["call-print"] * breaks


class TestStitched:
    @pytest.fixture(autouse=True)
    def stitched(self):
        with dynamo_lite.config.patch(stitch=True):
            yield

    def test_records(self, logger):
        def inner(x, i):
            logger.warning("inner %d of %s", i, "three")

        def f(x, i):
            loss = x.square().mean()
            logger.info("step %03d: loss %.4f, %s", i, loss.item(), None)
            inner(x, i)
            logger.info(f"{loss.item():.2e} {i}")
            logger.error("no arguments 100%")
            return loss * 2

        text = text_of(logger, f, [X, 1], [X + 1, 2], [X + 2, 3])
        assert not log.breaks() and len(log.snapshot()) == 2
        assert f"WARNING program test_logging.py:{inner.__code__.co_firstlineno + 1} inner: inner 2 of three" in text

    def test_order_with_print(self, logger):
        def f(x):
            print("one", file=logger.stream)
            logger.info("two")
            print("three", x.sum().item(), file=logger.stream)
            return x + 1

        one, two, three = text_of(logger, f, [X]).splitlines()
        assert (one, two.endswith("two"), three) == ("one", True, "three 3.0")
        assert not log.breaks()

    def test_what_runs_code_of_the_program_breaks(self, logger):
        seen = []

        def f(x):
            seen.append("before")
            logger.info("record")
            seen.append("after")
            return x + 1

        logger.addFilter(lambda record: seen.append(record.getMessage()) or True)
        compiled = dynamo_lite.compile(f, backend="eager")
        log.reset()
        compiled(X)
        compiled(X)
        assert seen == ["before", "record", "after"] * 2
        assert [b.slug for b in log.breaks()] == ["call-print"]

    def test_a_handler_that_comes_later(self, logger):
        def f(x):
            logger.info("record")
            return x + 1

        compiled = dynamo_lite.compile(f, backend="eager")
        log.reset()
        compiled(X)
        assert not log.breaks()
        records = []

        class Keeping(logging.Handler):
            def emit(self, record):
                records.append((record.lineno, record.funcName, record.filename))

        logger.addHandler(Keeping())
        compiled(X)
        assert records == [(f.__code__.co_firstlineno + 1, "f", "test_logging.py")]
        assert [b.slug for b in log.breaks()] == ["call-print"]

    @pytest.mark.parametrize(
        "arguments, kwargs",
        [
            (("%d", "text"), {}),
            (("%r", [1]), {}),
            (("%d", [1]), {}),
            (("%s", torch.ones(2000)), {}),
            (("text",), {"exc_info": True}),
            (("text",), {"stack_info": True}),
            (("text",), {"extra": {"a": [1]}}),
            (("text",), {"extra": {1: 1}}),
            (("text",), {"stacklevel": 2}),
            (("text",), {"stacklevel": 0}),
        ],
    )
    def test_records_that_may_fail_or_change_break(self, logger, arguments, kwargs, monkeypatch):
        monkeypatch.setattr(logging, "raiseExceptions", False)

        def f(x):
            logger.info(*arguments, **kwargs)
            return x + 1

        compiled = dynamo_lite.compile(f, backend="eager")
        log.reset()
        compiled(X)
        assert {b.slug for b in log.breaks()} == {"call-print"}

    def test_objects_and_tensors_as_they_are_at_the_call(self, logger):
        def f(x):
            metrics, last = {"loss": x.sum().item()}, x.clone()
            logger.info("%s after %s", metrics, last)
            logger.info(f"{last}")
            metrics["loss"] = 0
            last.zero_()
            logger.info(metrics)
            return last

        text = text_of(logger, f, [X], [X])
        assert text.count("{'loss': 3.0} after tensor([0., 1., 2.])") == 2 and not log.breaks()

    @pytest.mark.parametrize(
        "change, back",
        [
            (lambda g, h, m: setattr(g, "disabled", True), lambda g, h, m: setattr(g, "disabled", False)),
            (lambda g, h, m: setattr(g, "level", 50), lambda g, h, m: setattr(g, "level", 20)),
            (lambda g, h, m: setattr(g, "name", "x"), lambda g, h, m: setattr(g, "name", "program")),
            (lambda g, h, m: setattr(g, "handlers", []), lambda g, h, m: setattr(g, "handlers", [h])),
            (lambda g, h, m: g.handlers.clear(), lambda g, h, m: g.handlers.append(h)),
            (lambda g, h, m: g.filters.append(lambda record: False), lambda g, h, m: g.filters.clear()),
            (lambda g, h, m: setattr(g.parent, "disabled", True), lambda g, h, m: setattr(g.parent, "disabled", False)),
            (lambda g, h, m: setattr(h, "level", 50), lambda g, h, m: setattr(h, "level", 0)),
            (lambda g, h, m: setattr(h, "terminator", "|"), lambda g, h, m: setattr(h, "terminator", "\n")),
            (
                lambda g, h, m: setattr(h.formatter, "_style", None),
                lambda g, h, m: setattr(h.formatter, "_style", style),
            ),
            (lambda g, h, m: setattr(m, "raiseExceptions", False), lambda g, h, m: setattr(m, "raiseExceptions", True)),
        ],
    )
    def test_a_change_before_the_call(self, logger, change, back):
        """The record is handled with what is stored at its call; what is stored behind it is no reason to break."""
        logger.parent = logging.Logger("parent")

        def f(x, handler):
            logger.error("before %d", 1)
            change(logger, handler, logging)
            logger.error("changed")
            logger.isEnabledFor(logging.INFO)
            back(logger, handler, logging)
            return x + 1

        global style
        (handler,), style = logger.handlers, logger.handlers[0].formatter._style
        stream, sys.stderr = sys.stderr, io.StringIO()  # where a formatter without a style is told of
        try:
            text_of(logger, f, [X, handler], [X, handler])
        finally:
            sys.stderr = stream
        # logging keeps weak references with a callback to its handlers: the rest, with the handler in a variable, runs eagerly
        assert {b.slug for b in log.breaks()} <= {"call-print", "del-finalizer"}

    def test_errors_of_handlers(self, monkeypatch):
        """What logging tells of them names the frames and the arguments of eager execution."""
        failing = logging.Logger("failing")
        failing.addHandler(logging.StreamHandler(io.TextIOWrapper(io.BytesIO(), encoding="ascii")))

        class Named:
            def __str__(self):
                return "é"

            def __repr__(self):
                return "Named()"

        named = Named()

        def f(x):
            y = x * 3
            failing.error("é %s", y)
            failing.error("é %s", {"a": y, "b": 1})
            failing.error({"é": [y]})
            failing.error("é %s", {})
            failing.error("é %s %d %s", named, 3, "text", extra={"k": 1})
            return y

        texts = []
        for fn in (f, dynamo_lite.compile(f, backend="eager")):
            log.reset()
            monkeypatch.setattr(sys, "stderr", io.StringIO())
            fn(X)
            texts.append(sys.stderr.getvalue())
        assert texts[0] == texts[1] and not log.breaks()
        assert "Arguments: (tensor([0., 3., 6.]),)\n" in texts[0] and "Arguments: (Named(), 3, 'text')\n" in texts[0]

    def test_an_argument_whose_repr_raises(self, logger):
        class Bad:
            def __str__(self):
                return "text"

            def __repr__(self):
                raise ValueError

        bad = Bad()

        def f(x):
            logger.error("%s", bad)
            return x + 1

        assert text_of(logger, f, [X], [X]).count("text") == 2
        assert [b.slug for b in log.breaks()] == ["call-print"]

    def test_a_change_behind_the_call(self, logger):
        def f(x):
            logger.error("one")
            logger.disabled = True
            y = x + 1
            logger.disabled = False
            return y

        assert text_of(logger, f, [X], [X]).count("one") == 2 and not log.breaks()

    def test_the_last_resort(self, monkeypatch):
        bare = logging.Logger("bare")

        def f(x):
            logging.lastResort = None
            bare.error("nobody writes it")
            logging.lastResort = resort
            return x + 1

        resort = logging.lastResort
        monkeypatch.setattr(sys, "stderr", io.StringIO())
        monkeypatch.setattr(logging, "raiseExceptions", False)
        compiled = dynamo_lite.compile(f, backend="eager")
        compiled(X)
        assert sys.stderr.getvalue() == "" and logging.lastResort is resort

    def test_an_attribute_that_records_have_raises(self, logger):
        def f(x):
            y = x + 1
            logger.info("text", extra={"name": "taken"})
            return y

        with pytest.raises(KeyError, match="Attempt to overwrite 'name'"):
            dynamo_lite.compile(f, backend="eager")(X)

    def test_attributes_and_the_frame_that_is_named(self, logger):
        def helper(step):
            logger.warning("helper", stacklevel=2, extra={"step": step})
            logger.log(logging.ERROR, "log", exc_info=None, stack_info=False, extra=None)

        def f(x, step):
            loss = x.sum()
            helper(step)
            adapter.info("loss %.1f", loss.item())
            return loss

        logger.handlers[0].setFormatter(
            logging.Formatter("%(message)s %(funcName)s:%(lineno)d %(step)s", defaults={"step": "-"})
        )
        adapter = logging.LoggerAdapter(logger, {"step": "adapted"})
        text = text_of(logger, f, [X, 1], [X, 2], [X, 3])
        first, line = f.__code__.co_firstlineno, helper.__code__.co_firstlineno + 2
        expected = [f"helper f:{first + 2} 3", f"log helper:{line} -", f"loss 3.0 f:{first + 3} adapted"]
        assert text.splitlines()[-3:] == expected and not log.breaks()

    def test_subclasses_run_their_own_methods(self):
        class Counting(logging.Logger):
            calls = 0

            def isEnabledFor(self, level):
                Counting.calls += 1
                return False

        counting = Counting("counting")

        def f(x):
            counting.info("record")
            return x + 1

        compiled = dynamo_lite.compile(f, backend="eager")
        compiled(X)
        compiled(X)
        assert Counting.calls == 2


def test_functions_of_the_root(monkeypatch):
    root = logging.RootLogger(logging.WARNING)
    stream = io.StringIO()
    root.addHandler(logging.StreamHandler(stream))
    monkeypatch.setattr(logging, "root", root)

    def f(x):
        logging.info("dropped")
        logging.warning("taken %d", 1)
        return x + 1

    with dynamo_lite.config.patch(stitch=True):
        compiled = dynamo_lite.compile(f, backend="eager")
        log.reset()
        compiled(X)
        compiled(X)
        assert stream.getvalue() == "taken 1\n" * 2 and not log.breaks()
        root.handlers.clear()
        compiled(X)
    assert root.handlers and [b.slug for b in log.breaks()] == ["call-print"]
    root.handlers.clear()
