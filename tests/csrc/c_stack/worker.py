"""Runs programs in this process: `python -m tests.csrc.c_stack.worker KIB LIMIT NAME …`.

Input: the size of the stack of the thread to run in (0: the main thread), the recursion limit, names of `programs`. Output: of each
program the line "name, tab, what eager execution gives, tab, what capture gives", written as soon as it is known.
"""

import os
import sys
import threading
from collections.abc import Callable
from typing import Any

import torch

import dynamo_lite

from .programs import PROGRAMS


def outcome(program: Callable[[Any], object], compile_: Any) -> str:
    try:
        return repr(program(compile_)).replace("\n", " ")
    except Exception as error:
        return type(error).__name__


def compiled(fn: Any, backend: Any = "eager") -> Any:
    return dynamo_lite.compile(fn, backend=backend)


def run(limit: int, names: list[str]) -> None:
    for name in names:
        print(name, end="\t", flush=True)
        for compile_ in (lambda fn, backend=None: fn, compiled):
            sys.setrecursionlimit(limit)
            print(outcome(PROGRAMS[name], compile_), end="\t", flush=True)
        print(flush=True)
        dynamo_lite.reset()


def main() -> None:
    size, limit, *names = sys.argv[1:]
    torch.set_num_threads(1)
    if int(size) == 0:
        run(int(limit), names)
    else:
        threading.stack_size(int(size) * 1024)
        thread = threading.Thread(target=run, args=(int(limit), names))
        thread.start()
        thread.join()
    os._exit(0)  # CPython 3.11 itself may run out of stack where it frees what is nested deep


if __name__ == "__main__":
    main()
