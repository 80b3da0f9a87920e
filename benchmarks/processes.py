"""Measurements that have a process each.

Input: a function that can be pickled, and what it is called with. Output: what it returns, as it comes. Invariant: a process that dies
or takes too long gives a record that says so; none outlives the loop that asked for it.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

Record = dict[str, Any]


def each(
    context: Any,
    function: Callable[..., Record],
    calls: Sequence[tuple[Any, tuple[Any, ...]]],
    *,
    at_a_time: int = 1,
    timeout: float,
) -> Iterator[tuple[Any, Record]]:
    """For each call, given as what it is known by and its arguments: what it is known by, and its record. They come as they end."""
    waiting = list(calls)[::-1]
    running: dict[Connection, tuple[Any, Any, float]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < max(at_a_time, 1):
                key, arguments = waiting.pop()
                process, connection = _start(context, function, *arguments)
                running[connection] = key, process, time.monotonic() + timeout
            ready = wait(list(running), timeout=1.0)
            for connection, (key, process, deadline) in list(running.items()):
                if connection in ready:
                    record = _receive(connection, process)
                elif time.monotonic() > deadline:
                    process.kill()
                    record = failure(f"no result after {timeout:.0f} s")
                else:
                    continue
                process.join()
                connection.close()
                del running[connection]
                yield key, record
    finally:
        for connection, (_, process, _) in running.items():
            process.kill()
            process.join()
            connection.close()


def answered(context: Any, function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function returns in another process. Raises SystemExit, with that process's exit code, if it ends without an answer."""
    process, connection = _start(context, function, *arguments)
    try:
        return connection.recv()
    except EOFError:
        process.join()
        raise SystemExit(process.exitcode) from None
    finally:
        process.join()


def failure(text: str) -> Record:
    """The record of a measurement that gave none."""
    return {"pass": False, "error": text}


def _start(context: Any, function: Callable[..., Any], *arguments: Any) -> tuple[Any, Connection]:
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(sender, function, *arguments))
    process.start()
    sender.close()
    return process, receiver


def _answer(sender: Connection, function: Callable[..., Any], *arguments: Any) -> None:
    """What runs in the other process. Ctrl-C is for the one that waits, which then ends this."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sender.send(function(*arguments))
    sender.close()


def _receive(connection: Connection, process: Any) -> Record:
    try:
        return connection.recv()
    except EOFError:
        process.join()
        return failure(f"the process ended with {process.exitcode}")
