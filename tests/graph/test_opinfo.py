"""Every operator of torch's operator database: metadata that is propagated, or remembered, is the real result's."""

import warnings

import pytest
import torch
from torch.utils import _pytree as pytree

from dynamo_lite.exc import Unsupported
from dynamo_lite.variables import register_models  # noqa: F401
from dynamo_lite.variables.protocol.constant import ConstantVariable
from dynamo_lite.variables.torch import graph_args
from dynamo_lite.variables.torch.functions import call_in_graph, enters_graph
from dynamo_lite.variables.torch.tensor import TensorVariable
from tests.helpers import seeds
from tests.helpers.graph_lint import verify
from tests.helpers.stub_trace import StubTrace

op_db = pytest.importorskip("tests.helpers.operator_database").op_db


SAMPLES = 2
FAKE_STRIDES_DIFFER = ("nn.functional.max_unpool2d", "fft.")  # there torch's own shape rules are not exact


def wrap(tr, value):
    if isinstance(value, torch.Tensor):
        return tr.input(value)
    if type(value) in (tuple, list):
        model = graph_args.TupleVariable if type(value) is tuple else graph_args.ListVariable
        return model([wrap(tr, item) for item in value])
    if isinstance(value, slice):
        return graph_args.SliceVariable(*[wrap(tr, part) for part in (value.start, value.stop, value.step)])
    return ConstantVariable(value)


def fresh(value):
    """A copy of the arguments: tensors are leaves again."""
    copy = lambda t: t.detach().clone().requires_grad_(t.requires_grad) if isinstance(t, torch.Tensor) else t  # noqa: E731
    return pytree.tree_map(copy, value)


def tensors_of(vt):
    if isinstance(vt, TensorVariable):
        return [vt]
    return [t for item in getattr(vt, "items", ()) for t in tensors_of(item)]


def known(numbers, real):
    """The numbers, with the real ones in the place of those that only the graph knows."""
    return tuple(r if isinstance(n, torch.SymInt) else n for n, r in zip(numbers, real, strict=True))


def compare(op, args, kwargs):
    seeds.seed()
    expected = [t for t in pytree.tree_leaves(op.op(*fresh(args), **fresh(kwargs))) if isinstance(t, torch.Tensor)]
    tr = StubTrace()
    tr.guards.local_names = [f"x{i}" for i in range(200)]
    result = call_in_graph(
        tr.thread.frame, op.op, [wrap(tr, a) for a in fresh(args)], {k: wrap(tr, a) for k, a in fresh(kwargs).items()}
    )
    found = tensors_of(result)
    assert len(found) == len(expected)
    for vt, real in zip(found, expected, strict=True):
        meta = vt.proxy.meta
        assert (meta.ndim, meta.dtype, meta.requires_grad) == (real.ndim, real.dtype, real.requires_grad)
        assert known(meta.shape, real.shape) == tuple(real.shape)
        if not meta.live and real.numel() and not op.name.startswith(FAKE_STRIDES_DIFFER):
            assert known(meta.stride, real.stride()) == real.stride()
    seeds.seed()
    results = tr.run(*found)
    assert not verify(tr.graph)
    if "empty" not in op.name:
        for got, real in zip(results, expected, strict=True):
            torch.testing.assert_close(got, real, equal_nan=True)


OPERATORS = [op for op in op_db if torch.float32 in op.dtypes and enters_graph(op.op)]  # the others are followed


@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.formatted_name)
def test_operator(op):
    warnings.simplefilter("ignore")
    samples = list(op.sample_inputs("cpu", torch.float32, requires_grad=op.supports_autograd))
    for sample in samples[:: max(1, len(samples) // SAMPLES)][:SAMPLES]:
        args, kwargs = (sample.input, *sample.args), sample.kwargs
        for grad in (True, False):
            with torch.set_grad_enabled(grad):
                for _ in range(2):  # the second time from the memo
                    try:
                        compare(op, args, kwargs)
                    except Unsupported as error:
                        assert error.slug != "internal-error"
