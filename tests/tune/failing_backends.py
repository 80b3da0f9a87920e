"""Backends that bring the process down; found by other processes through the search path."""

import os
import signal
import time

import torch

from dynamo_lite.backends.requirements import Requirements


def crashing(gm, examples):
    os.kill(os.getpid(), signal.SIGSEGV)


def leaving(gm, examples):
    os._exit(3)


def crashing_when_called(gm, examples):
    def run(*inputs):
        os.abort()

    return run


def hanging(gm, examples):
    time.sleep(1000)


def printing(gm, examples):
    print("a line that is no JSON")
    os.system("echo and another")
    return gm.forward


def fast(gm, examples):
    """For graphs that add 1 to their input 300 times."""
    return lambda x: (x + 300,)


def inferring(gm, examples):
    if torch.is_grad_enabled():
        raise NotImplementedError("gradients")
    return lambda x: (x + 300,)


for _backend in (inferring, crashing, leaving, crashing_when_called, hanging, printing):
    _backend.requirements = Requirements(trains=True, isolate=True)
