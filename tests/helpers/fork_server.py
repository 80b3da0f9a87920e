"""The process that `processes` forks from: it has imported torch, or what its arguments name, and nothing else.

Input: the number of a socket's file descriptor and the modules to import, as arguments; then one message for each
process that is to start: `arguments`, `cwd` and `env` as JSON, with the descriptors of standard input, output and
error and of a pipe. Output: into the pipe, first the process's id, then its status when it has ended, as `os.waitpid`
gives it. Each process ends as an interpreter ends that was started with the same arguments: the code runs as
`__main__`, exceptions are printed without the frames of this file, and the interpreter is finalized.
"""

import array
import contextlib
import faulthandler
import gc
import importlib
import importlib.machinery
import json
import linecache
import os
import runpy
import socket
import sys
import tempfile
import types

MESSAGE = 1 << 18
DESCRIPTORS = 4
SITE = sys.path[1:]  # the first is this file's directory


def serve(connection: socket.socket) -> dict | None:
    """Fork for each message. Returns the message in each process forked, None in the server once nobody can ask any more."""
    while True:
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        data, ancillary, _, _ = connection.recvmsg(MESSAGE, socket.CMSG_SPACE(DESCRIPTORS * 4))
        if not data:
            return None
        descriptors = array.array("i")
        for _, _, content in ancillary:
            descriptors.frombytes(content)
        if os.fork() == 0:
            connection.close()
            return _supervised(json.loads(data), list(descriptors))
        for descriptor in descriptors:
            os.close(descriptor)


def _supervised(message: dict, descriptors: list[int]) -> dict:
    """Fork once more and wait, so that the server does not; returns in the process asked for only."""
    *standard, pipe = descriptors
    child = os.fork()
    if child:
        for descriptor in standard:
            os.close(descriptor)
        os.write(pipe, f"{child}\n".encode())
        os.write(pipe, f"{os.waitpid(child, 0)[1]}\n".encode())
        os._exit(0)
    os.close(pipe)
    for number, descriptor in enumerate(standard):
        os.dup2(descriptor, number)
        os.close(descriptor)
    return message


def become(arguments: list[str], cwd: str, env: dict[str, str]) -> None:
    """Run what `python ARGUMENTS` runs."""
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    tempfile.tempdir = None
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    while arguments[0] == "-X":
        assert arguments[1] == "faulthandler", arguments
        faulthandler.enable()
        arguments = arguments[2:]
    first = {"-c": "", "-m": cwd}.get(arguments[0], os.path.dirname(os.path.realpath(arguments[0])))
    sys.path[:] = [first, *filter(None, env.get("PYTHONPATH", "").split(os.pathsep)), *SITE]
    sys.path_importer_cache.clear()
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    main.__dict__.update(
        {"__builtins__": sys.modules["builtins"]} | {name: {} for name in ("__annotations__",) if name in globals()}
    )
    main.__loader__ = importlib.machinery.BuiltinImporter
    if arguments[0] == "-m":
        sys.argv = ["-m", *arguments[2:]]
        runpy._run_module_as_main(arguments[1])
    elif arguments[0] == "-c":
        sys.argv = ["-c", *arguments[2:]]
        if sys.version_info >= (3, 13):  # tracebacks show the lines
            lines = arguments[1].splitlines(keepends=True)
            linecache.cache["<string>"] = len(arguments[1]), None, lines, "<string>"
        exec(compile(arguments[1], "<string>", "exec"), main.__dict__)
    else:
        sys.argv = list(arguments)
        main.__file__, main.__cached__ = arguments[0], None
        main.__loader__ = importlib.machinery.SourceFileLoader("__main__", arguments[0])
        with open(arguments[0], "rb") as file:
            code = compile(file.read(), arguments[0], "exec")
        exec(code, main.__dict__)


def _told(error: BaseException) -> None:
    """Print an exception as the interpreter does at the end of its main module."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_frame.f_code.co_filename in (
        _told.__code__.co_filename,
        runpy.__file__,
    ):
        traceback = traceback.tb_next
    hook = sys.__excepthook__ if isinstance(error, KeyboardInterrupt) else sys.excepthook
    hook(type(error), error.with_traceback(traceback), traceback)


if __name__ == "__main__":
    for module in sys.argv[2:]:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()
    asked = serve(socket.socket(fileno=int(sys.argv[1])))
    if asked is not None:
        try:
            become(**asked)
        except SystemExit:
            raise
        except KeyboardInterrupt:  # with which the interpreter ends by the signal
            sys.excepthook = lambda kind, error, traceback: _told(error)
            raise
        except BaseException as failure:
            _told(failure)
            sys.exit(1)
