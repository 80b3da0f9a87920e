"""Installs a wheel, or an sdist, in a new virtual environment of the interpreter that runs this file, and uses it as a user does:

    python3.11 tests/try_wheel.py dist/dynamo_lite-….whl [--torch torch==2.13.0] [--torch-index URL]

Ends with status 1 and what was printed at the first command that does something else than expected. Needs the standard library only.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent

PURE_PYTHON = """
from dynamo_lite.frontend import convert
from dynamo_lite.config import config
from dynamo_lite.record import log

with config.patch(capture_pure_python=True, debug=True):
    fn = convert.Region(lambda gm, inputs: gm.forward).wrap(lambda items, k: {i: [k] * i for i in items})
    print(fn([1, 2], 3), [frame.skipped for frame in log.snapshot()])
"""

TOY, TRAIN = (str(ROOT / "examples" / name) for name in ("toy.py", "train.py"))

# (arguments of Python, status, a part of the output)
ALWAYS = [
    (["-c", "import dynamo_lite; print(dynamo_lite.__file__)"], 0, "site-packages"),
    (["-m", "dynamo_lite", "--version"], 0, "dynamo_lite "),
    (["-m", "dynamo_lite", "explain", "DL001"], 0, "data-dependent branch"),
    (["-m", "pip", "check"], 0, "No broken requirements found"),
]
WITHOUT_TORCH = [
    (["-m", "dynamo_lite", "doctor"], 1, "dynamo-lite[torch]"),
    (["-m", "dynamo_lite", "check", TOY], 0, "torch is not installed here"),
    (["-c", PURE_PYTHON], 0, "{1: [3], 2: [3, 3]} [None]"),
]
WITH_TORCH = [
    (["-m", "dynamo_lite", "doctor"], 0, "callables and inner frames"),
    (["-m", "dynamo_lite", "check", TOY], 1, "1 graph break forecast in 1 of 1 functions"),
    (["-m", "dynamo_lite", "run", "--coverage", TOY], 0, "captured 652 of 752 (86.7%) operators"),
    (["-m", "dynamo_lite", "run", "--backend", "inductor", TRAIN], 0, "step 19  loss "),
]


def run(command: list[str], cwd: str, status: int = 0, expected: str = "") -> None:
    """Run a command; end the process with what it printed if it ends with another status or does not print what is expected."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "DYNAMO_LITE"))}
    done = subprocess.run(
        command, cwd=cwd, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    if done.returncode != status or expected not in done.stdout:
        sys.exit(f"{' '.join(command)}: status {done.returncode}, not {status}, or no {expected!r} in\n{done.stdout}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("--torch", help="what pip installs as torch; without it the parts are tried that need none")
    parser.add_argument("--torch-index", help="where pip finds torch")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run([sys.executable, "-m", "venv", "environment"], folder)
        python = os.path.join(folder, "environment", "bin", "python")
        if options.torch:
            index = ["--index-url", options.torch_index] if options.torch_index else []
            run([python, "-m", "pip", "install", "-q", *index, options.torch], folder)
        run(
            [python, "-m", "pip", "install", "-q", str(options.file.resolve()), *(["numpy"] if options.torch else [])],
            folder,
        )
        for arguments, status, expected in [*ALWAYS, *(WITH_TORCH if options.torch else WITHOUT_TORCH)]:
            run([python, *arguments], folder, status, expected)
    print(f"{options.file.name} works on Python {sys.version.split()[0]}, {options.torch or 'without torch'}")


if __name__ == "__main__":
    main()
