"""Part of a sweep in this process: `python -m tests.ops.worker --names FILE --out FILE …`.

Writes one JSON line before each operator and one after it, so that the process that started this one knows which operator crashed
or hung it.
"""

import argparse
import faulthandler
import gc
import json
import logging
import time

import torch

import dynamo_lite
from dynamo_lite.config import config
from tests.ops import check, database

ONCE = frozenset({"method", "keyword", "method keyword", "operator", "in place operator", "error"})
"""Forms whose graph is that of another form, or that have none: one backend is enough for them."""


def dtype_name(dtype):
    return str(dtype).removeprefix("torch.")


def run(name, options):
    """All calls of one operator with all dtypes and backends; one dictionary per call."""
    records = []
    with_values = database.OPERATORS[name].name not in database.UNINITIALISED if name in database.OPERATORS else True
    for dtype in database.dtypes(name):
        if options.dtype and dtype_name(dtype) not in options.dtype:
            continue
        try:
            for call in database.calls(name, dtype, options.count):
                for backend in options.backend:
                    if call.variant in ONCE and backend != "eager":
                        continue
                    torch.manual_seed(check.SEED)
                    record = check.check(call, dtype, backend, with_values, True if options.dynamic else None)
                    records.append(
                        {"variant": call.variant, "dtype": dtype_name(dtype), "backend_name": backend, **record}
                    )
        except Exception as error:
            if not records or options.verbose:
                raise
            records.append({"dtype": dtype_name(dtype), "sampling": f"{type(error).__name__}: {error}"[:300]})
    return records


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--names", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--count", type=int, default=3)
    parser.add_argument("--dtype", nargs="*")
    parser.add_argument("--backend", nargs="*", default=["eager", "aot_eager"])
    parser.add_argument("--dynamic", action="store_true")
    parser.add_argument("--data-dependent", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--timeout", type=float, default=300)
    options = parser.parse_args()
    torch.set_num_threads(1)
    config.capture_scalar_outputs = config.capture_dynamic_output_shape_ops = options.data_dependent
    logging.disable(logging.CRITICAL)
    with open(options.names) as file:
        names = file.read().split("\n")
    with open(options.out, "a") as out:

        def say(**record):
            out.write(json.dumps(record) + "\n")
            out.flush()

        for name in names:
            say(event="start", name=name)
            faulthandler.dump_traceback_later(options.timeout, exit=True)
            started = time.perf_counter()
            try:
                records, error = run(name, options), None
            except Exception as failure:
                if options.verbose:
                    raise
                records, error = [], f"{type(failure).__name__}: {failure}"[:500]
            faulthandler.cancel_dump_traceback_later()
            say(event="end", name=name, calls=records, error=error, seconds=round(time.perf_counter() - started, 2))
            dynamo_lite.reset()
            gc.collect()


if __name__ == "__main__":
    main()
