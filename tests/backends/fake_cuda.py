"""A device that records and replays on the CPU, as strict as the real one.

What is recorded has not happened: writes are undone and results hold nonsense until the first replay. A replay reads and writes the very
memory that was there at the recording, and fills that of all other recordings of the pool with nonsense.
"""

import contextlib
import threading
import weakref

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


def nonsense(tensor):
    value = float("nan") if tensor.is_floating_point() else 77
    tensor.untyped_storage().fill_(255) if tensor.numel() and tensor.dtype is not torch.bool else None
    if tensor.numel() and tensor.dtype is not torch.bool:
        torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage()).fill_(value)


def memory(value):
    return value.untyped_storage()._cdata


class FakeGraph:
    def __init__(self):
        self.steps = []
        self.made = {}  # memory → one tensor in it


class _Record(TorchDispatchMode):
    def __init__(self, device, graph):
        super().__init__()
        self.device, self.graph = device, graph
        self.before = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func in self.device.cannot_record:
            raise RuntimeError(f"operation not permitted when stream is capturing: {func}")
        given = [v for v in tree_leaves((args, kwargs)) if isinstance(v, torch.Tensor)]
        if func._schema.is_mutable:
            for value in given:
                if memory(value) not in self.graph.made:
                    self.before.setdefault(memory(value), (value, value.untyped_storage().clone()))
        results = func(*args, **kwargs)
        known = {memory(v) for v in given}
        new = [(i, v) for i, v in enumerate(tree_leaves(results)) if isinstance(v, torch.Tensor)]
        new = [(i, v) for i, v in new if memory(v) not in known]
        self.graph.made.update((memory(v), v) for _, v in new)
        self.graph.steps.append((func, args, kwargs, new))
        return results


class FakeDevice:
    def __init__(self, device=None):
        self.lock = threading.RLock()
        self.graphs = weakref.WeakSet()
        self.log = []
        self.cannot_record = set()
        self.recording = False

    def is_recording(self):
        return self.recording

    def record(self, run):
        self.log.append("record")
        graph = FakeGraph()
        state = torch.get_rng_state()
        mode = _Record(self, graph)
        with mode:
            outputs = run()
        torch.set_rng_state(state)
        for value, saved in mode.before.values():
            value.untyped_storage().copy_(saved)
        for value in graph.made.values():
            nonsense(value)
        self.graphs.add(graph)
        return graph, outputs

    def enter(self):
        self.log.append("enter")

    def replay(self, graph):
        self.log.append("replay")
        for other in self.graphs:
            if other is not graph:
                for value in other.made.values():
                    nonsense(value)
        for func, args, kwargs, new in graph.steps:
            results = tree_leaves(func(*args, **kwargs))
            for i, value in new:
                value.copy_(results[i])

    def random_state(self):
        return torch.get_rng_state()

    def set_random_state(self, state):
        torch.set_rng_state(state)


@contextlib.contextmanager
def recording(device):
    device.recording = True
    yield
    device.recording = False
