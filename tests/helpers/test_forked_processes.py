"""Processes forked from a server do what processes do that are started anew."""

import os
import signal
import subprocess
import sys

import pytest

from tests.helpers import processes

pytest.importorskip("torch", reason="the server imports it")

SEES = """
import atexit, os, sys, threading
atexit.register(print, "at exit")
print(__name__, sys.argv, os.getcwd(), sys.path[0], os.environ.get("MINE"), globals().get("__file__"), sorted(globals()))
threading.Thread(target=lambda: print("a thread")).start()
print("said", file=sys.stderr)
"""
ENDS = {
    "the end": SEES,
    "an exit": "raise SystemExit(3)",
    "words": "raise SystemExit('no')",
    "an exception": "def f():\n    raise KeyError('x')\nf()",
    "an exception of another": "try:\n    1 / 0\nexcept Exception as e:\n    raise KeyError('x') from e",
    "os._exit": "import os; os._exit(7)",
    "abort": "import os; os.abort()",
    "an interrupt": "import os, signal; os.kill(os.getpid(), signal.SIGINT)",
    "a syntax error": "x = = 3",
    "no module": "import nothing_like_this",
    "input": "print(input())",
}


@pytest.mark.parametrize("form", ["-c", "-m", "script"])
@pytest.mark.parametrize("name", ENDS)
def test_as_if_started_anew(tmp_path, form, name):
    script = tmp_path / "mine.py"
    script.write_text(ENDS[name])
    arguments = {"-c": ["-c", ENDS[name]], "-m": ["-m", "mine"], "script": [str(script)]}[form]
    given = {"cwd": tmp_path, "env": {**os.environ, "MINE": "1"}, "text": True}
    expected = subprocess.run([sys.executable, *arguments, "a", "-b"], input="in", capture_output=True, **given)
    with processes.Popen([*arguments, "a", "-b"], stdin=-1, stdout=-1, stderr=-1, **given) as process:
        out, error = process.communicate("in")
    if form == "-m" and "frozen runpy" in expected.stderr:  # the frames of runpy are left out
        error, expected.stderr = error.splitlines()[-1], expected.stderr.splitlines()[-1]
    assert (process.returncode, out, error) == (expected.returncode, expected.stdout, expected.stderr)


def test_torch_is_there_and_nothing_of_this_project():
    code = "import sys; print('torch' in sys.modules, [m for m in sys.modules if m.startswith(('dynamo_lite', 'torch._dynamo.'))])"
    assert processes.run(["-c", code]).stdout == "True []\n"


def test_time_limits_and_signals():
    with pytest.raises(subprocess.TimeoutExpired):
        processes.run(["-c", "import time; time.sleep(100)"], timeout=0.2)
    with processes.Popen(["-c", "import time; print(flush=True); time.sleep(100)"], stdout=-1) as process:
        process.stdout.read(1)
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == process.poll() == -signal.SIGTERM


def test_several_at_once():
    started = [processes.Popen(["-c", f"print({i})"], stdout=-1, text=True) for i in range(3)]
    assert [process.communicate()[0] for process in started] == ["0\n", "1\n", "2\n"]


def test_a_status_that_is_checked():
    with pytest.raises(subprocess.CalledProcessError):
        processes.run(["-c", "raise SystemExit(1)"], check=True)


def test_what_acts_at_the_start_is_refused():
    with pytest.raises(ValueError, match="PYTHONHASHSEED"):
        processes.run(["-c", ""], env={**os.environ, "PYTHONHASHSEED": "77"})
