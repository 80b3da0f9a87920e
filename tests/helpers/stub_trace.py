"""A trace without an interpreter: what `GraphBuilder` needs of one."""

from types import SimpleNamespace

import torch

from dynamo_lite.frontend.facts import Facts
from dynamo_lite.graph.builder import GraphBuilder
from dynamo_lite.guards import ir
from dynamo_lite.isa.eager_fallback import Place
from dynamo_lite.variables import register_models  # noqa: F401
from dynamo_lite.variables.protocol.base import MISSING
from dynamo_lite.variables.protocol.constant import ConstantVariable
from dynamo_lite.variables.torch import graph_args, symnode, tensor, tensor_methods, value_types  # noqa: F401
from dynamo_lite.variables.torch.numpy import models  # noqa: F401


class StubTrace:
    def __init__(self, dynamic=None, hints=None):
        backend = SimpleNamespace(dynamo_lite_computes=False)  # `run` calls the bare graph
        self.dynamic = dynamic
        self.backend = backend
        self.breaks_raise = False
        self.failing_branches = set()
        self.facts = Facts()
        self.dynamic_hints = {} if hints is None else hints
        self.guards = ir.GuardSet([f"x{i}" for i in range(20)])
        self.heap = {}
        place = Place(StubTrace.__init__.__code__, 1)
        self.frame = SimpleNamespace(tr=self, code=place.code, lineno=1, place=lambda: place, raises=self.raises)
        self.thread = SimpleNamespace(
            frame=self.frame, here=self.here, failing_step=lambda: 0, functions=tuple, user_stack=list
        )
        self.region = SimpleNamespace(strikes=SimpleNamespace(without_data=set()))
        self.root = SimpleNamespace(call=SimpleNamespace(fn=StubTrace.run))
        self.graph = GraphBuilder(self)
        self.state = self.graph.state
        self.n = 0

    def source(self, parent, kind, arg=None):
        return self.guards.node(parent, kind, arg)

    def guard(self, source, kind, arg=None):
        self.guards.check(source, kind, arg, self.here())

    def here(self):
        return ("file.py", 1)

    def wrap_new(self, value):
        if isinstance(value, torch.Size):
            return graph_args.make_sequence(self.frame, torch.Size, [ConstantVariable(n) for n in value])
        return ConstantVariable(value)

    def raises(self, cls, *args):
        raise cls(*args)

    # conveniences of the tests

    def input(self, value):
        source = self.source(None, ir.LOCAL, self.n)
        self.n += 1
        if isinstance(value, int):
            return self.graph.outside.int_if_dynamic(value, source)
        return self.graph.outside.tensor(value, source)

    def call(self, target, *args, **kwargs):
        op = "call_method" if isinstance(target, str) else "call_function"
        wrapped = [as_tracker(a) for a in args]
        return self.graph.call(self.frame, op, target, wrapped, {k: as_tracker(v) for k, v in kwargs.items()})

    def run(self, *outputs):
        """Finish the graph and run it on the real inputs."""
        indices = [self.graph.output(vt) for vt in outputs]
        self.state.restore()
        gm = self.graph.finish()
        results = gm(*self.graph.example_inputs())
        return [results[i] for i in indices]


def as_tracker(value):
    if hasattr(value, "python_type"):
        return value
    if isinstance(value, tuple):
        return graph_args.TupleVariable([as_tracker(v) for v in value])
    if isinstance(value, list):
        return graph_args.ListVariable([as_tracker(v) for v in value])
    if isinstance(value, slice):
        return graph_args.SliceVariable(*[as_tracker(v) for v in (value.start, value.stop, value.step)])
    return ConstantVariable(value)


__all__ = ["MISSING", "StubTrace", "as_tracker"]
