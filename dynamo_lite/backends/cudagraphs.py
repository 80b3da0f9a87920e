"""The backend `cudagraphs`: the operators of eager execution, recorded once per size and launched as one. For inference.

Input: a graph as `registry` describes it. Output: a callable on the flat inputs; AOTAutograd makes the graph functional but for what it
writes to its inputs. A size is run plainly when it comes for the first time (which warms up), recorded at the second, replayed from then
on. Whatever is not recorded runs plainly, and the graph's record says why (`notes`).
Invariant: results are copies, so they outlive the next replay; random numbers are those of eager execution; a parameter that moves is
recorded anew; the recordings go with the callable. All calls of the device are in `cuda_device`.
"""

from __future__ import annotations

import bisect
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dynamo_lite.record import GRAPH_RECORD

from .aot import FLOATS, aot_autograd, boxed
from .cuda_device import cuda_device
from .difference import problem
from .options import refuse_unknown
from .parts import reason_of, refuse_gradients
from .requirements import Requirements
from .tensor_copies import copy_of
from .undefined_gradients import UNDEFINED

if TYPE_CHECKING:
    from torch.fx import GraphModule

OPTIONS = ("padding", "max_recordings")
MAX_RECORDINGS = 64

_wrappers: weakref.WeakSet[CudaGraphRecorder] = weakref.WeakSet()


def cudagraphs(
    gm: GraphModule,
    example_inputs: list[Any],
    *,
    options: Mapping[str, Any] | None = None,
    device: Callable[[Any], Any] = cuda_device,
) -> Callable[..., Any]:
    """`options`: "padding": sizes (ascending), to the next of which the symbolic ones are rounded up: the program says that elements along
    these do not depend on each other (the first padded call of a size is compared with a plain one); "max_recordings": sizes that
    are recorded at most."""
    options = options or {}
    record = gm.meta.get(GRAPH_RECORD)
    notes = record.notes.setdefault("cudagraphs", []) if record is not None else []

    def inference(graph: Any, fakes: list[Any]) -> Callable[..., Any]:
        move_constants(graph)
        reason = why_not(graph, device.type)
        if reason is not None:
            notes.append(f"recording: {reason}")
            return boxed(graph.forward)
        recorder = CudaGraphRecorder(
            graph,
            static_inputs(),
            device(fakes_of_tensors(graph)[0].device),
            options.get("padding") or (),
            options.get("max_recordings", MAX_RECORDINGS),
            lambda text: notes.append(f"recording: {text}"),
        )
        _wrappers.add(recorder)
        return boxed(recorder)

    backend = aot_autograd(refuse_gradients, inference_compiler=inference, keep_inference_input_mutations=True)
    return backend(gm, example_inputs)


def validate(options: Mapping[str, Any] | None = None) -> None:
    """Check the arguments that the user gave to `compile`. Raises RuntimeError."""
    refuse_unknown("cudagraphs", options, OPTIONS)
    options = options or {}
    ladder = list(options.get("padding") or ())
    if ladder != sorted(set(ladder)) or not all(type(size) is int and size > 0 for size in ladder):
        raise RuntimeError(f"padding={ladder!r}: expected ascending sizes")


def reset() -> None:
    """Drop all recordings."""
    for recorder in list(_wrappers):
        recorder.drop()


# ----------------------------------------------------------------------------------------------------------------------
# Graphs that can be recorded.


def fakes_of_tensors(graph: Any) -> list[Any]:
    """The fakes of all tensors that the graph takes."""
    import torch

    values = [node.meta["val"] for node in graph.graph.find_nodes(op="placeholder")]
    return [value for value in values if isinstance(value, torch.Tensor)]


def move_constants(graph: Any) -> None:
    """Put numbers that the program writes down, tensors of the CPU in the graph, on the device of the operators that take them."""
    import torch
    from torch._subclasses.fake_tensor import unset_fake_temporarily

    inputs = fakes_of_tensors(graph)
    device = inputs[0].device if inputs else torch.device("cpu")
    if device.type == "cpu":
        return
    for node in graph.graph.find_nodes(op="get_attr"):
        value, copies = getattr(graph, node.target, None), list(node.users)
        if (
            type(value) is torch.Tensor
            and value.dim() == 0
            and value.device.type == "cpu"
            and all(copy.target is torch.ops.aten.lift_fresh_copy.default for copy in copies)
            and all(_is_made_on(user, device) for copy in copies for user in copy.users)
        ):
            with unset_fake_temporarily():
                setattr(graph, node.target, value.to(device))
            for made in (node, *copies):
                if isinstance(made.meta.get("val"), torch.Tensor):
                    made.meta["val"] = made.meta["val"].to(device)


def _is_made_on(node: Any, device: object) -> bool:
    import torch

    value = node.meta.get("val")
    return node.op == "call_function" and isinstance(value, torch.Tensor) and value.device == device


def why_not(graph: Any, kind: str) -> str | None:
    """Why a graph can't be recorded on a device of this kind, or None."""
    import torch

    inputs = fakes_of_tensors(graph)
    if not inputs:
        return "no tensor goes in"
    devices = {value.device for value in inputs}
    if len(devices) > 1:
        return f"inputs on several devices: {', '.join(sorted(map(str, devices)))}"
    if inputs[0].device.type != kind:
        return f"inputs on {inputs[0].device}"
    if any(value.layout is not torch.strided for value in inputs):
        return "an input that is no dense tensor"
    for node in graph.graph.nodes:
        reason = _why_not_node(node, inputs[0].device)
        if reason is not None:
            return f"{node.target}: {reason}"
    if not any(node.op == "call_function" for node in graph.graph.nodes):
        return "no operator"
    return None


def _why_not_node(node: Any, device: object) -> str | None:
    import torch
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
    from torch.utils._pytree import tree_leaves

    if node.op != "call_function":
        return None
    for value in tree_leaves(node.meta.get("val")):
        if isinstance(value, torch.Tensor | torch.SymInt) and free_unbacked_symbols(value):
            return "sizes that depend on data"
        if isinstance(value, torch.Tensor) and value.device != device:
            return f"it works on {value.device}"
    if not isinstance(node.target, torch._ops.OpOverload):
        return None if getattr(node.target, "__module__", "") in ("_operator", "math") else "no operator of torch"
    if any(isinstance(arg, torch.Generator) for arg in tree_leaves((node.args, node.kwargs))):
        return "a random generator of its own"
    if node.target in (torch.ops.aten._local_scalar_dense.default, torch.ops.aten._linalg_check_errors.default):
        return "the program waits for a number"
    unsafe = getattr(torch.Tag, "cudagraph_unsafe", None)
    if unsafe is not None and unsafe in node.target.tags:
        return "marked as unsafe to record"
    written = _written(node)
    if any(one.op == "placeholder" for one in written) and node.target is not torch.ops.aten.copy_.default:
        return "it writes to an input in a way that is not known here"
    return None


def _written(node: Any) -> list[Any]:
    """The nodes that an operator writes to."""
    import torch

    arguments = node.target._schema.arguments if isinstance(node.target, torch._ops.OpOverload) else ()
    given = [*node.args, *(node.kwargs.get(a.name) for a in arguments[len(node.args) :])]
    return [
        value
        for argument, value in zip(arguments, given, strict=False)
        if argument.is_write and isinstance(value, torch.fx.Node)
    ]


def static_inputs() -> frozenset[int]:
    """The numbers of the inputs that keep their addresses from call to call."""
    from torch._guards import TracingContext

    context = TracingContext.try_get()
    known = context.fw_metadata.static_input_indices if context is not None and context.fw_metadata else ()
    return frozenset(known or ())


def mutated_inputs(graph: Any) -> frozenset[int]:
    """The numbers of the inputs that the graph writes to."""
    number = {node: i for i, node in enumerate(graph.graph.find_nodes(op="placeholder"))}
    written = (one for node in graph.graph.nodes if node.op == "call_function" for one in _written(node))
    return frozenset(number[one] for one in written if one in number)


# ----------------------------------------------------------------------------------------------------------------------
# Recording.


@dataclass
class Recording:
    """The recording of one size: the memory of its inputs, and of its results."""

    graph: Any
    slots: list[Any]
    outputs: Sequence[Any]


class CudaGraphRecorder:
    """A functional ATen graph and its recordings, one per size and set of parameters; they share the device's pool of memory."""

    def __init__(
        self,
        graph: Any,
        static: frozenset[int],
        device: Any,
        ladder: Sequence[int],
        limit: int,
        note: Callable[[str], None],
    ) -> None:
        self.graph = graph
        self.run = graph.forward
        self.device = device
        self.static = sorted(static)
        self.mutated = mutated_inputs(graph)
        self.limit = limit
        self.note = note
        self.inputs = [node.meta["val"] for node in graph.graph.find_nodes(op="placeholder")]
        self.outputs = [_val(node) for node in graph.graph.output_node().args[0]]
        self.places = _places(self.inputs)
        self.symbols = {expr: place for expr, place in self.places.items() if expr.is_Symbol}
        self.varying = [i for i, fake in enumerate(self.inputs) if _is_tensor(fake) and i not in static]
        self.ladder = list(ladder) if ladder and self.places and self._can_pad() else []
        self.drop()

    def drop(self) -> None:
        """Forget all recordings; the next calls record anew."""
        self.recordings: dict[Any, Recording] = {}
        self.seen: set[Any] = set()
        self.buffers: list[list[Any]] = [[] for _ in self.inputs]
        self.failed: str | None = None
        self.is_full = False

    def __call__(self, *values: Any) -> Any:
        with self.device.lock:  # one set of buffers, one pool; what follows only enqueues work
            if self.failed is not None or self.device.is_recording():
                return self.run(*values)
            key = self._key(values)
            recording = self.recordings.get(key)
            if recording is None:
                recording = self._record(key, values) if self._wants_recording(key) else None
                if recording is None:
                    return self.run(*values)
                if self.ladder and self._is_padded(values):
                    return self._first_padded(recording, values)
            return self._replay(recording, values)

    # Sizes.

    def _key(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """Equal for calls that one recording serves: sizes, and where the parameters are."""
        addresses = [values[i].data_ptr() for i in self.static]
        if self.ladder:
            return (*[self._padded(_at(values, place)) for place in self.symbols.values()], *addresses)
        return (*[_at(values, place) for place in self.places.values()], *addresses)

    def _padded(self, size: int) -> int:
        i = bisect.bisect_left(self.ladder, size)
        return self.ladder[i] if i < len(self.ladder) else size

    def _is_padded(self, values: Sequence[Any]) -> bool:
        sizes = [_at(values, place) for place in self.symbols.values()]
        return sizes != list(map(self._padded, sizes))

    def _can_pad(self) -> bool:
        """Whether each result keeps the rows of the inputs: one whose sizes are all fixed has gathered them."""
        if {symbol for expr in self.places for symbol in expr.free_symbols} - set(self.symbols):
            self.note("padding: sizes that can't be told from those of the inputs")
            return False
        if self.mutated:
            self.note("padding: the graph writes to its inputs")
            return False
        for i, fake in enumerate(self.outputs):
            if _is_tensor(fake) and all(isinstance(size, int) for size in fake.shape):
                self.note(f"padding: result {i} has no size that varies")
                return False
            if not _is_tensor(fake) and fake is not None and not isinstance(fake, int):
                self.note(f"padding: result {i} is a size")
                return False
        return True

    def _known(self, values: Sequence[Any], padded: bool) -> dict[Any, int]:
        """The number of each symbol in a call."""
        sizes = {symbol: _at(values, place) for symbol, place in self.symbols.items()}
        return {symbol: self._padded(size) for symbol, size in sizes.items()} if padded else sizes

    # Recording and replay.

    def _wants_recording(self, key: object) -> bool:
        if key in self.seen:
            return True
        if len(self.seen) < self.limit:
            self.seen.add(key)
        elif not self.is_full:
            self.is_full = True
            self.note(f"more than {self.limit} sizes")
        return False

    def _record(self, key: Any, values: Sequence[Any]) -> Recording | None:
        known = self._known(values, padded=True) if self.ladder else None
        slots = list(values)
        try:
            for i, fake in enumerate(self.inputs):
                if not _is_tensor(fake):
                    slots[i] = values[i] if known is None or isinstance(fake, int) else _size(fake, known)
            for i in self.varying:
                slots[i] = self._buffer(i, values[i], known)
                _fill(slots[i], values[i])  # no operator may see memory without values
            graph, outputs = self.device.record(lambda: self.run(*slots))
        except Exception as error:
            self.drop()
            self.failed = reason_of(error)
            self.note(self.failed)
            return None
        self.recordings[key] = Recording(graph, slots, outputs)
        return self.recordings[key]

    def _buffer(self, i: int, value: Any, known: dict[Any, int] | None) -> Any:
        """A tensor with the strides of `value` and the sizes of the recording, in memory that all sizes of this input share."""
        import torch

        shape = tuple(value.shape) if known is None else _shape(self.inputs[i], known)
        strides = list(value.stride())
        if shape != tuple(value.shape):
            width = 1
            for dim in sorted(range(len(shape)), key=lambda d: strides[d]):
                strides[dim], width = width, width * shape[dim]
        extent = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
        wanted = 0 if 0 in shape else extent * value.element_size()
        memory = next((m for m in self.buffers[i] if m.nbytes() >= wanted), None)
        if memory is None:
            memory = torch.UntypedStorage(wanted, device=value.device)
            self.buffers[i].append(memory)
        return torch.empty(0, dtype=value.dtype, device=value.device).set_(memory, 0, shape, strides)

    def _replay(self, recording: Recording, values: Sequence[Any]) -> list[Any]:
        import torch

        self.device.enter()
        for i in self.varying:
            _fill(recording.slots[i], values[i])
        self.device.replay(recording.graph)
        for i in self.mutated:
            if recording.slots[i] is values[i]:
                if not values[i].is_inference():
                    torch.autograd.graph.increment_version(values[i])
            else:
                _fill(values[i], recording.slots[i])
        copies: dict[int, Any] = {}
        if not self.ladder:
            return [copy_of(value, copies) for value in recording.outputs]
        known = self._known(values, padded=False)
        results = zip(recording.outputs, self.outputs, strict=True)
        return [_cut(value, _shape(fake, known), copies) if _is_tensor(value) else value for value, fake in results]

    def _first_padded(self, recording: Recording, values: Sequence[Any]) -> list[Any]:
        """Results of a plain run; padding ends if replay gives others."""
        state = self.device.random_state()
        expected = self.run(*values)
        after = self.device.random_state()
        self.device.set_random_state(state)
        found = problem(list(expected), self._replay(recording, values))
        self.device.set_random_state(after)
        if found is not None:
            self.note(f"padding: it changes results: {found}")
            self.ladder = []
            self.drop()
        return expected


def _places(fakes: Sequence[Any]) -> dict[Any, tuple[int, int | None]]:
    """Each size that varies → where it is seen first: the number of an input, and the dimension if that is a tensor."""
    found: dict[Any, tuple[int, int | None]] = {}
    for i, fake in enumerate(fakes):
        sizes = enumerate(fake.shape) if _is_tensor(fake) else [(None, fake)]
        for dim, size in sizes:
            if not isinstance(size, int):
                found.setdefault(size.node.expr, (i, dim))
    return found


def _at(values: Sequence[Any], place: tuple[int, int | None]) -> int:
    i, dim = place
    return values[i] if dim is None else values[i].shape[dim]


def _size(size: Any, known: dict[Any, int]) -> int:
    return size if isinstance(size, int) else int(size.node.expr.xreplace(known))


def _shape(fake: Any, known: dict[Any, int]) -> tuple[int, ...]:
    return tuple([_size(size, known) for size in fake.shape])


def _cut(value: Any, shape: tuple[int, ...], copies: dict[int, Any]) -> Any:
    """A copy of a result without the rows that were padded."""
    return copy_of(value, copies) if shape == tuple(value.shape) else _part(value, shape).clone()


def _is_tensor(value: object) -> bool:
    import torch

    return isinstance(value, torch.Tensor)


def _val(node: Any) -> Any:
    import torch

    return node.meta["val"] if isinstance(node, torch.fx.Node) else node


def _part(value: Any, shape: Sequence[int]) -> Any:
    for dim, size in enumerate(shape):
        value = value.narrow(dim, 0, size)
    return value


def _fill(target: Any, value: Any) -> None:
    """Copy `value` to the beginning of `target`, zeros behind it. Dimensions that repeat one element are written once."""
    if target.shape != value.shape:
        target.zero_()
        target = _part(target, value.shape)
    for dim, stride in enumerate(target.stride()):
        if stride == 0 and target.shape[dim] > 1:
            target, value = target.narrow(dim, 0, 1), value.narrow(dim, 0, 1)
    target.copy_(value)


cudagraphs.validate = validate
cudagraphs.reset = reset
cudagraphs.requirements = Requirements(frozenset({"cuda"}), install="a CUDA device")
setattr(cudagraphs, FLOATS, "tensors")
setattr(cudagraphs, UNDEFINED, True)
