"""Memory of a capture: the peak resident set of the first call, and what is left when model and wrapper are gone.

Each side captures each model in a process of its own, after an eager call. `dynamo_lite MiB` and `torch.compile MiB` are the growth of the
peak over the resident set before the capture; `kept` is the number of the model's parameters and modules that something still holds
after `del` and a collection, `objects` how many more objects the collector knows after a second capture than after a first.
Run it with `python -m benchmarks.memory [--models a,b]`.
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import weakref
from typing import Any

from .common import call, examples, finish, parse_options, row


def resident_mib(field: str) -> float:
    """`VmRSS`, the resident set, or `VmHWM`, its peak since `forget_peak`."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith(field))


def forget_peak() -> None:
    with open("/proc/self/clear_refs", "w") as clear:
        clear.write("5")


def capture(side: str, name: str) -> tuple[float, list[weakref.ref[Any]]]:
    """Capture a model and forget it: the growth of the peak, and references to what the model was made of."""
    from .trace import SIDES, forward_only

    compile_with, reset = SIDES[side]
    ((_, example),) = examples([name])
    call(example[0], example)
    parts = [weakref.ref(part) for part in (*example[0].modules(), *example[0].parameters())]
    gc.collect()
    forget_peak()
    start = resident_mib("VmRSS")
    compiled = compile_with(example[0], backend=forward_only, fullgraph=True)
    call(compiled, example)
    peak = resident_mib("VmHWM") - start
    del compiled, example
    reset()
    gc.collect()
    return peak, parts


def measure(side: str, name: str) -> dict[str, Any]:
    """Two captures, in this process: the first fills caches that are nobody's."""
    from .trace import prime

    prime()
    peak, parts = capture(side, name)
    before = len(gc.get_objects())
    kept = sum(part() is not None for part in parts) + sum(part() is not None for part in capture(side, name)[1])
    return {"peak": peak, "kept": kept, "objects": len(gc.get_objects()) - before}


def measured(side: str, name: str) -> dict[str, Any]:
    """One capture, in a process of its own."""
    command = [
        sys.executable,
        "-c",
        f"import json; from benchmarks.memory import measure; print(json.dumps(measure({side!r}, {name!r})))",
    ]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])


def main() -> None:
    options = parse_options(__doc__)
    rows = []
    for name in options.models:
        ours, theirs = measured("dynamo_lite", name), measured("torch.compile", name)
        more = {
            f"{what}{suffix}": found[key]
            for suffix, found in (("", ours), (" torch", theirs))
            for what, key in (("kept", "kept"), ("objects", "objects"))
        }
        rows.append(row(name, [ours["peak"]], [theirs["peak"]], **more))
        print(f"{name}: {rows[-1]}", flush=True)
    finish("memory", "MiB", 1.0, rows, options)


if __name__ == "__main__":
    main()
