"""Part of a sweep in this process: `python -m tests.ops.worker --names FILE --out FILE …`; see `loop`."""

import logging

import torch

from dynamo_lite.config import config
from tests.helpers import seeds
from tests.ops import check, database, loop

ONCE = frozenset({"method", "keyword", "method keyword", "operator", "in place operator", "error"})
"""Forms whose graph is that of another form, or that have none: one backend is enough for them."""


def dtype_name(dtype):
    return str(dtype).removeprefix("torch.")


def run(name, options):
    """All calls of one operator with all dtypes and backends; one dictionary per call."""
    records = []
    with_values = database.OPERATORS[name].name not in database.UNINITIALISED if name in database.OPERATORS else True
    for dtype in database.dtypes(name, options.device):
        if options.dtype and dtype_name(dtype) not in options.dtype:
            continue
        try:
            for call in database.calls(name, dtype, options.count, options.device):
                for backend in options.backend:
                    if call.variant in ONCE and backend != "eager":
                        continue
                    seeds.seed(check.SEED)
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
    parser = loop.parser()
    parser.add_argument("--count", type=int, default=3)
    parser.add_argument("--dtype", nargs="*")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dynamic", action="store_true")
    parser.add_argument("--data-dependent", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    config.capture_scalar_outputs = config.capture_dynamic_output_shape_ops = options.data_dependent
    logging.disable(logging.CRITICAL)
    loop.work(options, lambda name: {"calls": run(name, options)}, {"calls": []})


if __name__ == "__main__":
    main()
