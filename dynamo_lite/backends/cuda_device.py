"""The calls that `cudagraphs` makes to a CUDA device. Nothing here decides anything.

Input: functions that enqueue work. Output: recordings of it, made in one pool of memory for all recordings of a device.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any


class CudaDevice:
    """One device, by `torch.cuda.graph`."""

    def __init__(self, device: Any) -> None:
        self.device = device
        self.lock = threading.RLock()
        self.stream: Any = None
        self.pool: Any = None
        self.graphs: weakref.WeakSet[Any] = weakref.WeakSet()

    def is_recording(self) -> bool:
        """Whether the program itself records at the moment."""
        import torch

        return torch.cuda.is_current_stream_capturing()

    def record(self, run: Callable[[], Sequence[Any]]) -> tuple[Any, Sequence[Any]]:
        """A graph of what `run` enqueues, and its results, which have no values before the first replay. Raises what torch raises."""
        import torch

        if not self.graphs:  # a pool ends with its last recording
            self.pool = torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize(self.device)
        with torch.cuda.device(self.device):
            stream = torch.cuda.current_stream()
            try:
                with torch.cuda.graph(graph, pool=self.pool, capture_error_mode="thread_local"):
                    outputs = run()
            except BaseException:
                self._recover(stream)
                raise
        self.graphs.add(graph)
        return graph, outputs

    def _recover(self, stream: Any) -> None:
        """Undo what torch leaves behind where CUDA refuses to end a recording: its stream is current, the allocator serves its pool, and
        the random generator counts as recorded. The end of another recording, of one operator, sets the generator right."""
        import torch

        torch.cuda.set_stream(stream)
        end_allocations = getattr(torch._C, "_cuda_endAllocateToPool", None)
        if end_allocations is not None:
            with contextlib.suppress(RuntimeError):  # it was ended
                end_allocations(torch.cuda.current_device(), self.pool)
        self.graphs.clear()  # the next recording has another pool
        with torch.cuda.graph(torch.cuda.CUDAGraph(), capture_error_mode="thread_local"):
            torch.zeros(1, device=self.device)

    def enter(self) -> None:
        """Before buffers are written to: wait for the stream that has used them last."""
        import torch

        current = torch.cuda.current_stream(self.device)
        if self.stream is not None and self.stream != current:
            current.wait_stream(self.stream)
        self.stream = current

    def replay(self, graph: Any) -> None:
        """Enqueue a recording on the current stream."""
        import torch

        with torch.cuda.device(self.device):
            graph.replay()

    def random_state(self) -> Any:
        """The state of the device's random generator."""
        import torch

        return torch.cuda.get_rng_state(self.device)

    def set_random_state(self, state: object) -> None:
        """Put it back."""
        import torch

        torch.cuda.set_rng_state(state, self.device)


@functools.cache
def cuda_device(device: object) -> CudaDevice:
    """The one object for a device of torch's."""
    return CudaDevice(device)


cuda_device.type = "cuda"
