"""Part of a sweep in this process: `python -m tests.classes.worker --names FILE --out FILE …`; see `tests.ops.worker` for the protocol."""

import argparse
import faulthandler
import gc
import json
import logging
import time

import torch

import dynamo_lite
from tests.classes import cases, check


def run(name: str, found: list[cases.Case], backends: list[str]) -> list[dict]:
    """All cases of one class; one dictionary per case and backend."""
    records = []
    for case in found:
        for backend in backends:
            record = check.check(case, backend)
            records.append(
                {
                    "variant": case.form,
                    "dtype": case.text,
                    "backend_name": backend,
                    "kind": name.partition(".")[0],
                    **record,
                }
            )
            dynamo_lite.reset()
    return records


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--names", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--backend", nargs="*", default=["eager", "aot_eager"])
    parser.add_argument("--form")
    parser.add_argument("--timeout", type=float, default=300)
    options = parser.parse_args()
    torch.set_num_threads(1)
    logging.disable(logging.CRITICAL)
    with open(options.names) as file:
        names = file.read().split("\n")
    known = cases.by_class()
    with open(options.out, "a") as out:
        for name in names:
            out.write(json.dumps({"event": "start", "name": name}) + "\n")
            out.flush()
            faulthandler.dump_traceback_later(options.timeout, exit=True)
            started, records, error = time.perf_counter(), [], None
            try:
                found = [case for case in known[name] if options.form in (None, case.form)]
                records = run(name, found, options.backend)
            except Exception as failure:
                error = f"{type(failure).__name__}: {failure}"[:500]
            faulthandler.cancel_dump_traceback_later()
            seconds = round(time.perf_counter() - started, 2)
            end = {"event": "end", "name": name, "calls": records, "error": error, "seconds": seconds}
            out.write(json.dumps(end) + "\n")
            out.flush()
            gc.collect()


if __name__ == "__main__":
    main()
