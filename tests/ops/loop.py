"""The loop of a sweep's worker: one JSON line before each name and one after it, so that the process that started this one knows what
crashed or hung it."""

import argparse
import faulthandler
import gc
import json
import time

import dynamo_lite


def parser():
    """The options of every worker."""
    made = argparse.ArgumentParser()
    made.add_argument("--names", required=True)
    made.add_argument("--out", required=True)
    made.add_argument("--backend", nargs="*", default=["eager", "aot_eager"])
    made.add_argument("--verbose", action="store_true")
    made.add_argument("--timeout", type=float, default=300)
    return made


def work(options, run, nothing):
    """Write down `run(name)`, a dictionary, for each name; `nothing` where it raises."""
    with open(options.names) as file:
        names = file.read().split("\n")
    gc.collect()
    gc.freeze()  # the collections below look at what the names leave, not at torch
    with open(options.out, "a") as out:

        def say(**record):
            out.write(json.dumps(record) + "\n")
            out.flush()

        for name in names:
            say(event="start", name=name)
            faulthandler.dump_traceback_later(options.timeout, exit=True)
            started = time.perf_counter()
            try:
                record, error = run(name), None
            except Exception as failure:
                if options.verbose:
                    raise
                record, error = nothing, f"{type(failure).__name__}: {failure}"[:700]
            faulthandler.cancel_dump_traceback_later()
            say(event="end", name=name, error=error, seconds=round(time.perf_counter() - started, 2), **record)
            if error is not None and "device-side assert" in error:
                return  # after it CUDA does nothing more in this process; the rest is run in another
            dynamo_lite.reset()
            gc.collect()
