"""Runs parts of a sweep in subprocesses: operators of torch's database, or examples of its docstrings.

Input: names, and the module that is the worker. Output: name → record of the worker. What kills or hangs its process is noted with what
the process said, and the rest is run in a new one.
"""

import json
import os
import subprocess
import sys
import tempfile

FILLED = {"MALLOC_PERTURB_": "165"}
"""glibc fills memory with it: what an operator leaves uninitialised is mostly the same in each run."""

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def all_names(module="tests.ops.database"):
    """Everything that can be swept; asked for in a process of its own, because it loads a lot and changes settings of torch."""
    code = f"import {module}; print('\\n'.join({module}.names()))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.split()


def run_batch(names, arguments=(), timeout=300.0, worker="tests.ops.worker"):
    """Sweep what has these names; `arguments` are those of the worker. Raises RuntimeError if it does not start."""
    records = {}
    with tempfile.TemporaryDirectory() as folder:
        out, list_file = os.path.join(folder, "out"), os.path.join(folder, "names")
        open(out, "w").close()
        while names:
            with open(list_file, "w") as file:
                file.write("\n".join(names))
            text = _spawn(worker, ["--names", list_file, "--out", out, "--timeout", str(timeout), *arguments], folder)
            running = None
            with open(out) as lines:
                for record in map(json.loads, lines):
                    running = record["name"] if record["event"] == "start" else None
                    if record["event"] == "end":
                        records[record["name"]] = record
            if running is not None and running not in records:
                how = "hung" if "Timeout (" in text else "crashed"
                records[running] = {"name": running, "calls": [], how: text[-3000:]}
            left = [name for name in names if name not in records]
            if left == names:
                raise RuntimeError(f"the worker does not start:\n{text[-3000:]}")
            names = left
    return records


def _spawn(worker, arguments, folder):
    """Run the worker to its end; what it printed."""
    log_file = os.path.join(folder, "log")
    with open(log_file, "wb") as log:
        command = [sys.executable, "-X", "faulthandler", "-m", worker, *arguments]
        # Without the cache: what is counted is what this process captures.
        environment = {**os.environ, "DYNAMO_LITE_CACHE": "0", **FILLED}
        subprocess.run(command, cwd=ROOT, env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    with open(log_file, errors="replace") as log:
        return log.read()
