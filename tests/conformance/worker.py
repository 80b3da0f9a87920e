"""One test module of CPython, run in this process: `python -m tests.conformance.worker MODULE --mode plain|captured|hooked --out FILE`.

Writes one JSON line when a test starts and one when it ends, so that the process that started this one knows which test
crashed or hung it. Captured, each test method is called through a region of its own, whose backend runs graphs as they
are; what `setUp` and the test runner do stays plain.
"""

import argparse
import faulthandler
import importlib
import json
import sys
import time
import traceback
import unittest


def call_captured(case, method):
    """What `TestCase._callTestMethod` is replaced by; leaves what capture did in `CURRENT`."""
    from dynamo_lite.frontend import convert  # imports torch, which the plain run does without
    from dynamo_lite.record import log

    log.reset()
    # One analysis per frame and call: a test method is called once, and a limit hit must not hide a wrong entry.
    region = convert.Region(lambda gm, inputs: gm.forward)
    function = getattr(method, "__func__", None)
    try:
        region.wrap(method)()
    finally:
        CURRENT.update(describe(region, function))


def hooked(run):
    """`TestCase.run` inside a region that captures nothing: each frame that begins is offered to it once."""
    from dynamo_lite import _eval_frame

    def refuse(cache, fn, values):
        cache.state = _eval_frame.SKIP

    region = _eval_frame.Region(refuse)

    def run_hooked(case, result=None):
        previous = _eval_frame.set_region(region)
        try:
            return run(case, result)
        finally:
            _eval_frame.set_region(previous)

    return run_hooked


def describe(region, function):
    """How a test was captured: whole, with which breaks, or not at all."""
    from dynamo_lite.record import log

    frames = log.snapshot()
    breaks = [{"number": b.number, "slug": b.slug, "context": b.context[:200]} for f in frames for b in f.breaks]
    internal = [f.skipped for f in frames if f.skipped and f.skipped.startswith("internal error")]
    entries = region.cache_for(function.__code__).entries if hasattr(function, "__code__") else ()
    ran_eagerly = not entries or any(entry.code is function.__code__ for entry in entries)
    return {
        "whole": not breaks and not internal and not ran_eagerly,
        "breaks": breaks,
        "internal": internal,
        "eager": ran_eagerly,
    }


CURRENT = {}

STEPS = 1_000_000
"""Instructions followed in one test: what the engine does with a long loop is asked here, not whether it pays to."""


class Result(unittest.TestResult):
    """Reports each test as it starts and ends."""

    def __init__(self, out, timeout):
        super().__init__()
        self.out = out
        self.timeout = timeout
        # Some versions end a skipped test without having started it.
        self.started, self.outcome, self.text = time.perf_counter(), "skipped", ""

    def say(self, **record):
        self.out.write(json.dumps(record) + "\n")
        self.out.flush()

    def startTest(self, test):
        super().startTest(test)
        CURRENT.clear()
        self.outcome, self.text = "passed", ""
        self.started = time.perf_counter()
        self.say(event="start", test=test.id())
        faulthandler.dump_traceback_later(self.timeout, exit=True)

    def stopTest(self, test):
        faulthandler.cancel_dump_traceback_later()
        super().stopTest(test)
        seconds = round(time.perf_counter() - self.started, 3)
        self.say(event="end", test=test.id(), outcome=self.outcome, text=self.text, seconds=seconds, **CURRENT)

    def _failed(self, kind, err):
        self.outcome = kind
        self.text = "".join(traceback.format_exception(*err))[-3000:]
        if err[0].__name__ == "InternalTorchDynamoError":
            self.outcome = "internal"

    def addError(self, test, err):
        super().addError(test, err)
        self._failed("error", err)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self._failed("failure", err)

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            self._failed("failure", err)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.outcome = "skipped"

    def addExpectedFailure(self, test, err):
        super().addExpectedFailure(test, err)
        self.outcome = "expected failure"

    def addUnexpectedSuccess(self, test):
        super().addUnexpectedSuccess(test)
        self.outcome = "unexpected success"


def methods(suite):
    """The test methods of a suite; doctests and failed imports of the loader are none."""
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from methods(item)
        elif type(item).__module__.startswith("test."):
            yield item


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("module")
    parser.add_argument("--mode", choices=["plain", "captured", "hooked"], required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--only", default="", help="part of the test ids to run")
    parser.add_argument("--skip", default="", help="file with test ids not to run")
    parser.add_argument("--timeout", type=float, default=60)
    parser.add_argument("--internal-errors-fall-back", action="store_true")
    options = parser.parse_args()
    sys.argv[1:] = []
    support = importlib.import_module("test.support")
    support.use_resources = []
    module = importlib.import_module(f"test.{options.module}")
    if options.mode == "captured":
        from dynamo_lite.config import config

        config.capture_pure_python = True
        config.max_idle_steps = config.max_steps = STEPS
        config.debug = not options.internal_errors_fall_back
        unittest.TestCase._callTestMethod = call_captured
    elif options.mode == "hooked":
        unittest.TestCase.run = hooked(unittest.TestCase.run)
    skip = set()
    if options.skip:
        with open(options.skip) as file:
            skip = set(file.read().split("\n"))
    tests = unittest.TestLoader().loadTestsFromModule(module)
    chosen = [t for t in methods(tests) if options.only in t.id() and t.id() not in skip]
    with open(options.out, "a") as out:
        # A TestSuite of each class in turn keeps setUpClass and setUpModule.
        result = Result(out, options.timeout)
        unittest.TestSuite(chosen).run(result)
        result.say(event="done")


if __name__ == "__main__":
    main()
