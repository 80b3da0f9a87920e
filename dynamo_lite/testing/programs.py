"""Helpers of tests that are written against `torch._dynamo.testing`: text of graphs, losses, inputs, variants of test classes.

Input and output: see each function. Names and meanings are torch's.
"""

from __future__ import annotations

import functools
import random
import re
import sys
import unittest
from collections.abc import Callable, Sequence
from typing import Any

import torch

from dynamo_lite.api import compile, reset
from dynamo_lite.config import config

from .backends import AotEagerAndRecordGraphs, CompileCounter
from .comparison import same

# -- text of graphs


def strip_comment(code: str) -> str:
    """The text without what follows `#` on each line."""
    return re.sub(r"(?m)#.*$", "", code)


def remove_trailing_space(code: str) -> str:
    """The text without spaces at the ends of its lines."""
    return re.sub(r"(?m)[ \t]+$", "", code)


def empty_line_normalizer(code: str) -> str:
    """The text with runs of empty lines as one line end."""
    return re.sub(r"[\r\n]+", "\n", code)


def normalize_gm(code: str) -> str:
    """The text of a printed graph without comments, trailing spaces and empty lines, for comparison with an expected one."""
    return remove_trailing_space(strip_comment(empty_line_normalizer(code)))


def extract_graph(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[Any, list[Any], list[Any]]:
    """Run `fn` compiled with `aot_eager`: its result, the captured graphs, and the ATen graphs of the forward pass."""
    backend = AotEagerAndRecordGraphs()
    result = compile(fn, backend=backend, fullgraph=True)(*args, **kwargs)
    return result, backend.graphs, backend.fw_graphs


# -- results


def _tensors_within(value: object) -> list[torch.Tensor]:
    leaves, _ = torch.utils._pytree.tree_flatten(value)
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


def requires_bwd_pass(out: object) -> bool:
    """True if a tensor in a result takes part in autograd."""
    return any(t.requires_grad for t in _tensors_within(out))


def reduce_to_scalar_loss(out: object) -> torch.Tensor:
    """A scalar to differentiate: the mean over the tensors in a result. Raises NotImplementedError if there are none."""
    tensors = _tensors_within(out)
    if not tensors:
        raise NotImplementedError(f"a loss from {type(out).__name__}")
    return sum((t.sum() / t.numel() for t in tensors), torch.zeros(())) / len(tensors)


def collect_results(
    model: torch.nn.Module, prediction: object, loss: object, example_inputs: Sequence[Any]
) -> list[Any]:
    """Prediction, loss, gradients, parameters, buffers and the gradients of the inputs, for comparison."""
    parameters = dict(model.named_parameters())
    results = [prediction, loss, {name: p.grad for name, p in parameters.items()}]
    results += [{n: p.detach().clone() for n, p in parameters.items()}, dict(model.named_buffers())]
    results.append([x.grad for x in _tensors_within(example_inputs)])
    return results


def rand_strided(
    size: Sequence[int],
    stride: Sequence[int],
    dtype: torch.dtype = torch.float32,
    device: str | torch.device = "cpu",
    extra_size: int = 0,
) -> torch.Tensor:
    """Random numbers with the given sizes and strides, in a storage `extra_size` elements longer than needed."""
    needed = sum((n - 1) * s for n, s in zip(size, stride, strict=True)) + 1 + extra_size
    if dtype.is_floating_point or dtype.is_complex:
        storage = torch.randn(needed, dtype=dtype, device=device)
    else:
        storage = torch.zeros(needed, dtype=dtype, device=device)
    return torch.as_strided(storage, size, stride)


def reset_rng_state() -> None:
    """Seed torch's, Python's and (if it is loaded) numpy's generators alike."""
    torch.manual_seed(1337)
    random.seed(1337)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(1337)


def standard_test(
    self: unittest.TestCase,
    fn: Callable[..., Any],
    nargs: int,
    expected_ops: int | None = None,
    expected_ops_dynamic: int | None = None,
    expected_frame_count: int = 1,
) -> None:
    """Run `fn` on two sets of random arguments, eagerly and compiled, and compare results and counts."""
    if config.assume_static_by_default is False and expected_ops_dynamic is not None:
        expected_ops = expected_ops_dynamic
    sets = [[torch.randn(10, 10) for _ in range(nargs)] for _ in range(2)]
    expected = [fn(*args) for args in sets]
    reset()
    counter = CompileCounter()
    compiled = compile(fn, backend=counter, fullgraph=expected_frame_count == 1)
    for args, wanted in zip(sets, expected, strict=True):
        self.assertTrue(same(compiled(*args), wanted))
    self.assertEqual(counter.frame_count, expected_frame_count)
    if expected_ops is not None:
        self.assertEqual(counter.op_count, expected_ops)


# -- variants of tests


def make_test_cls_with_patches(
    cls: type, cls_prefix: str, fn_suffix: str, *patches: Any, xfail_prop: str | None = None, decorator: Any = None
) -> type:
    """A copy of a test class whose tests run under patches `(config module, key, value)` and have another name."""
    variant = type(f"{cls_prefix}{cls.__name__}", cls.__bases__, {"__qualname__": f"{cls_prefix}{cls.__name__}"})
    for name, member in vars(cls).items():
        if name in ("__dict__", "__weakref__", "__qualname__", "__name__"):
            continue
        if not name.startswith("test_") or not callable(member):
            setattr(variant, name, member)
            continue
        test = member
        for module, key, value in patches:
            test = _under(module.patch(key, value), test)
        if xfail_prop is not None and hasattr(member, xfail_prop):
            test = unittest.expectedFailure(test)
        test = decorator(test) if decorator is not None else test
        setattr(variant, f"{name}{fn_suffix}", test)
    variant.__module__ = cls.__module__
    return variant


def _under(patch: Any, test: Any) -> Any:
    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> Any:
        with patch:
            return test(*args, **kwargs)

    return run


def expectedFailureDynamic(fn: Any) -> Any:
    """Mark a test that is known to fail with dynamic shapes."""
    fn._expected_failure_dynamic = True
    return fn


def expectedFailureDynamicWrapper(fn: Any) -> Any:
    """Mark a test that is known to fail with dynamic shapes and a wrapped backend."""
    fn._expected_failure_dynamic_wrapper = True
    return fn


def _skip(condition: bool, reason: str) -> Callable[[Any], Any]:
    return unittest.skipIf(condition, reason)


skipIfNotPy311 = _skip(sys.version_info < (3, 11), "needs Python 3.11")
skipIfNotPy312 = _skip(sys.version_info < (3, 12), "needs Python 3.12")
skipIfPy312 = _skip(sys.version_info >= (3, 12), "not for Python 3.12")


def xfailIfPy312(fn: Callable[..., Any]) -> Any:
    """Expect a test to fail on Python 3.12 and later."""
    return unittest.expectedFailure(fn) if sys.version_info >= (3, 12) else fn
