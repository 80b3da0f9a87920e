"""Part of a sweep in this process: `python -m tests.classes.worker --names FILE --out FILE …`; see `tests.ops.loop`."""

import logging

import torch

import dynamo_lite
from tests.classes import cases, check
from tests.ops import loop


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
    parser = loop.parser()
    parser.add_argument("--form")
    options = parser.parse_args()
    torch.set_num_threads(1)
    logging.disable(logging.CRITICAL)
    known = cases.by_class()

    def calls(name: str) -> dict:
        found = [case for case in known[name] if options.form in (None, case.form)]
        return {"calls": run(name, found, options.backend)}

    loop.work(options, calls, {"calls": []})


if __name__ == "__main__":
    main()
