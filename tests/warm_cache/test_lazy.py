"""Of a version that was read, the guards, the nodes and the lines are made when somebody asks for them."""

import copy
import pickle

import pytest
import torch

import dynamo_lite
from dynamo_lite._eval_frame import GuardProgram
from dynamo_lite.graph.serialized import StoredModule
from dynamo_lite.guards import ir
from dynamo_lite.record import STATS, log
from tests.warm_cache.cache_programs import load, new_process

TEXT = """
import torch
def g(x): return (x @ x).relu()
def f(x): return g(x) + x.reshape(3, -1).sum(1, keepdim=True)
def main(): return f, (torch.randn(3, 3),)
"""


def captured(text=TEXT):
    """A program captured in an earlier process: its function and arguments, and the modules that the backend gets now."""
    modules = []

    def keep(gm, args):
        modules.append(gm)
        return gm.forward

    for _ in range(2):
        new_process()
        modules.clear()
        fn, args = load(prog=text).main()
        result = dynamo_lite.compile(fn, backend=keep)(*args)
        torch.testing.assert_close(result, fn(*args))
    assert STATS.cache_hits == 1
    return fn, args, modules


def test_nobody_asks():
    _, _, (module,) = captured()
    assert isinstance(module, StoredModule) and "_graph" not in module.__dict__


def test_the_nodes():
    fn, args, (module,) = captured()
    assert [node.op for node in module.graph.nodes][0] == "placeholder"
    assert module.graph is module.graph and module.graph.owning_module is module
    lines = [node.meta.get("stack_trace", "") for node in module.graph.nodes if node.op.startswith("call")]
    assert all("/somewhere/prog.py" in line for line in lines)
    shapes = {tuple(n.meta["example_value"].shape) for n in module.graph.nodes if n.op.startswith("call")}
    assert shapes == {(3, 3), (3, 1)}


@pytest.mark.parametrize("copied", (copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))))
def test_copies(copied):
    _, args, (module,) = captured()
    module.meta.clear()  # the record, which is of this process
    twin = copied(module)
    torch.testing.assert_close(twin(*args), module.forward(*args))
    assert len(twin.graph.nodes) == len(module.graph.nodes)


def test_a_changed_graph_is_compiled_anew():
    _, args, (module,) = captured()
    for node in module.graph.nodes:
        if node.op == "call_method" and node.target == "relu":
            node.target = "abs"
    module.recompile()
    x = args[0]
    torch.testing.assert_close(module.forward(*args)[0], (x @ x).abs() + x.sum(1, keepdim=True))


def test_reports():
    _, _, (module,) = captured()
    (frame,) = log.snapshot()
    assert frame.from_cache and "relu" in frame.graphs[0].code_text()
    assert "prog" not in frame.guards.text() or frame.guards.text()
    assert len(frame.guards) == len(frame.guards.guards()) > 0


def test_a_graph_that_raises_names_the_line():
    text = """
import torch
def g(x, i): return x[i]
def f(x, i):
    x.add_(1)
    return g(x, i) * 2
def main(): return f, (torch.arange(3.0), torch.tensor([1, 2]))
"""
    for _ in range(2):
        new_process()
        fn, (x, i) = load(prog=text).main()
        compiled = dynamo_lite.compile(fn, backend="eager")
        compiled(x, i)
    assert STATS.cache_hits == 1
    with pytest.raises(IndexError) as caught:
        compiled(x, torch.tensor([1, 7]))
    assert "g" in [entry.name for entry in caught.traceback]


def test_objects_beside_a_spec():
    node = (ir.LOCAL, 0, ((ir.TYPE_IS, (..., 1), 0), (ir.EQUALS, (..., 0), 1)), ())
    program = GuardProgram(((node,), (), 0), objects=("a text", str))
    assert program.check(("a text",), None) and not program.check(("another",), None) and not program.check((1,), None)
    with pytest.raises(TypeError, match="no such object"):
        GuardProgram(((node,), (), 0), objects=("a text",))
    literal = GuardProgram((((ir.LOCAL, 0, ((ir.EQUALS, (..., 0), 0),), ()),), (), 0))
    assert literal.check(((..., 0),), None)


SEVERAL = """
import torch
def f(x):
    values, indices = x.topk(2)
    first, *rest = x.unbind(0)
    return values + first[:2], indices, torch.aminmax(x).max + rest[0].sum()
def main(): return f, (torch.randn(3, 3),)
"""


def test_nodes_with_several_results():
    _, args, (module,) = captured(SEVERAL)
    examples = {n.name: n.meta["example_value"] for n in module.graph.nodes if n.op.startswith("call")}
    assert type(examples["topk"]) is torch.return_types.topk and examples["topk"].indices.dtype is torch.int64
    assert type(examples["unbind"]) is tuple and [t.shape for t in examples["unbind"]] == [(3,)] * 3
    for _ in range(2):
        new_process()
        fn, args = load(prog=SEVERAL).main()
        torch.testing.assert_close(dynamo_lite.compile(fn, backend="aot_eager")(*args), fn(*args))
    assert STATS.cache_hits == 1
