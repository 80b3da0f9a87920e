"""`with` blocks that set parts of torch's state, nested around a graph break: results, the state in the blocks and behind them, and what
function modes are told, as in eager execution."""

import contextlib
import itertools

import pytest
import torch
from torch.overrides import TorchFunctionMode

import dynamo_lite

told = []


class Mode(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        told.append(func)
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def default_dtype():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


BLOCKS = {
    "inference": torch.inference_mode,
    "no-inference": lambda: torch.inference_mode(False),
    "no-grad": torch.no_grad,
    "enable-grad": torch.enable_grad,
    "bfloat16": lambda: torch.autocast("cpu", torch.bfloat16),
    "float16": lambda: torch.autocast("cpu", torch.float16),
    "no-autocast": lambda: torch.autocast("cpu", enabled=False),
    "default-dtype": default_dtype,
    "device": lambda: torch.device("cpu"),
    "other-device": lambda: torch.device("meta"),
    "function-mode": Mode,
}


def here():
    """The state of torch that the blocks set."""
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.get_autocast_dtype("cpu"),
        torch.get_default_dtype(),
        torch.get_default_device(),
    )


def nested(blocks, depth, where):
    """A function that multiplies in each of the blocks, and breaks in the one at this depth, before or behind what is within it."""

    def inside(x, states, level):
        if level == len(blocks):
            return x
        with BLOCKS[blocks[level]]():
            x = x @ x
            states.append(here())
            if (level, where) == (depth, "before"):
                dynamo_lite.graph_break()
            x = inside(x, states, level + 1) * x
            if (level, where) == (depth, "behind"):
                dynamo_lite.graph_break()
            states.append(here())
            return x @ x

    def program(x):
        states = []
        return inside(x, states, 0), states

    return program


def outcome(fn):
    told.clear()
    results = []
    for _ in range(2):
        try:
            x, states = fn(torch.full((2, 2), 0.5, requires_grad=True))
        except RuntimeError as error:  # a gradient through what was made in inference mode
            results.append(str(error))
        else:
            results.append((x.dtype, x.device, x.requires_grad, x.is_inference(), states))
            results.append(x.tolist() if x.device.type == "cpu" else None)
    return results, here(), torch._C._len_torch_function_stack(), list(told)


def check(blocks):
    for depth, where in itertools.product(range(len(blocks)), ("before", "behind")):
        program = nested(blocks, depth, where)
        compiled = dynamo_lite.compile(program, backend="eager")
        assert outcome(compiled) == outcome(program), (blocks, depth, where)


@pytest.mark.parametrize("outer", BLOCKS)
def test_two_blocks(outer):
    for inner in BLOCKS:
        check([outer, inner])


@pytest.mark.parametrize("inner", BLOCKS)
@pytest.mark.parametrize("outer", BLOCKS)
def test_three_blocks(outer, inner):
    for innermost in BLOCKS:
        if [outer, inner, innermost].count("function-mode") < 2:
            check([outer, inner, innermost])
