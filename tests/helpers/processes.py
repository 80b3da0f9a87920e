"""Processes that run Python, forked from one that has imported torch already: 0.1 s instead of the 2 s that `import
torch` takes.

Input: what `subprocess.run` and `subprocess.Popen` take, without the interpreter: arguments, `cwd`, `env`, streams,
time limits. Output: what those return. Processes forked from one server have the hash seed, the addresses and the
modules of the server in common. What is about these, about the start of the interpreter or about variables that it,
libc or torch reads at the start uses `subprocess` with `sys.executable`.
"""

import functools
import json
import os
import select
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

TORCH = ("torch",)
INDUCTOR = ("torch", "torch._dynamo", "torch._inductor.compile_fx")
"""What a server imports: a process forked from it finds these modules, and has nothing of this project."""

READ_AT_THE_START = ("PYTHON", "MALLOC_", "LD_", "OMP_", "MKL_")
"""Variables that act when a process begins: those of a process forked have to be those of its server."""


@functools.cache
def _server(modules: tuple[str, ...]) -> socket.socket:
    """The connection to the server; it ends when this process does."""
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    script = str(Path(__file__).with_name("fork_server.py"))
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with there:
        subprocess.Popen(
            [sys.executable, script, str(there.fileno()), *modules],
            env=environment,
            pass_fds=[there.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        ).returncode = 0  # nobody waits for it: it ends after this process
    return here


class Popen(subprocess.Popen):
    """`subprocess.Popen([sys.executable, *arguments])`, forked from the server that has imported `modules`."""

    def __init__(self, arguments: Sequence[str], modules: tuple[str, ...] = TORCH, **options: Any) -> None:
        self._modules, self._status = modules, -1
        super().__init__([str(argument) for argument in arguments], **options)

    def _execute_child(self, args: list[str], *given: Any) -> None:
        # After `args`: executable, preexec_fn, close_fds, pass_fds, cwd, env, startupinfo, creationflags, shell, streams…
        cwd, env = given[4], given[5]
        child_in, parent_in, parent_out, child_out, parent_error, child_error = given[9:15]
        environment = dict(os.environ if env is None else env)
        _refuse(environment)
        message = {"arguments": args, "cwd": os.path.abspath(cwd or os.getcwd()), "env": environment}
        self._status, theirs = os.pipe()
        standard = [stream if stream != -1 else n for n, stream in enumerate((child_in, child_out, child_error))]
        socket.send_fds(_server(self._modules), [json.dumps(message).encode()], [*standard, theirs])
        os.close(theirs)
        self.pid = int(self._line())
        self._child_created = True
        self._close_pipe_fds(child_in, parent_in, parent_out, child_out, parent_error, child_error)

    def _line(self) -> bytes:
        """The next line of the server: the id, then the status."""
        line = b""
        while not line.endswith(b"\n"):
            read = os.read(self._status, 1)
            if not read:
                raise RuntimeError("the server of tests.helpers.processes has ended")
            line += read
        return line

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:
        if self.returncode is None and select.select([self._status], [], [], 0)[0]:
            self._ended()
        return self.returncode

    def _wait(self, timeout: float | None) -> int:
        if self.returncode is None:
            if not select.select([self._status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            self._ended()
        return self.returncode

    def _ended(self) -> None:
        self.returncode = os.waitstatus_to_exitcode(int(self._line()))
        os.close(self._status)

    def __del__(self) -> None:
        if self.returncode is None and self._status != -1:
            os.close(self._status)
            self.returncode = 0


def _refuse(environment: Mapping[str, str]) -> None:
    """A process forked can't have other variables of those that act at its start."""
    for name in {*environment, *os.environ}:
        if name.startswith(READ_AT_THE_START) and name != "PYTHONPATH":
            if environment.get(name, os.environ.get(name)) != os.environ.get(name):
                raise ValueError(f"{name} acts when a process begins: start one with subprocess")


def run(
    arguments: Sequence[str],
    *,
    modules: tuple[str, ...] = TORCH,
    timeout: float | None = None,
    check: bool = False,
    text: bool = True,
    **options: Any,
) -> subprocess.CompletedProcess:
    """`subprocess.run([sys.executable, *arguments], capture_output=True, text=True, …)`."""
    with Popen(arguments, modules, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=text, **options) as process:
        try:
            out, error = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(process.args, process.returncode, out, error)
    if check:
        done.check_returncode()
    return done


def start_anew(arguments: Sequence[str], **options: Any) -> subprocess.CompletedProcess:
    """The same with an interpreter of its own: another hash seed, other addresses."""
    return subprocess.run([sys.executable, *map(str, arguments)], capture_output=True, text=True, **options)


GENERATOR_WITHOUT_MEMORY = """
import _testcapi
for n in range(40):
    try:
        _testcapi.set_nomemory(n, n + 1)
        any(x for x in (0, 0))
    except MemoryError:
        pass
    finally:
        _testcapi.remove_mem_hooks()
"""


@functools.cache
def crashes_without_memory() -> bool:
    """Whether this CPython itself crashes where it cannot allocate a generator (3.12.1, 3.13.0)."""
    return subprocess.run([sys.executable, "-c", GENERATOR_WITHOUT_MEMORY], capture_output=True).returncode < 0
