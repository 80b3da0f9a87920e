"""Effects around a graph that are no operators of it: one class each, in the table `Passes`.

Entry: `Passes`, called by `graph.builder`, `graph.serialized` and `graph.torch_runtime`. Tests: `tests/graph/`.
A new effect is one module here and one row in the table.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

from dynamo_lite.graph.core.effect import GraphEffect
from dynamo_lite.graph.core.state import AmbientState

from .assigned_data import AssignedData
from .backward_split import BackwardSplit
from .checks import Checks
from .fake_tensors import FakeTensors
from .function_modes import FunctionModes
from .hook_lifetimes import HookLifetimes
from .input_aliasing import InputAliasing
from .leaves import Leaves
from .output_aliasing import OutputAliasing
from .random_numbers import RandomNumbers
from .result_versions import ResultVersions
from .saved_tensor_hooks import SavedTensorHooks
from .symbolic_sizes import SymbolicSizes
from .unseen_state import UnseenState
from .used_gradients import UsedGradients
from .wrapper_classes import WrapperClasses
from .written_data import WrittenData

if TYPE_CHECKING:
    from dynamo_lite.graph.builder import GraphBuilder


class Passes(NamedTuple):
    """The effects around one graph, in the order in which they finish it and are put around its call, from the innermost to the outermost.

    - `checks` sees the results that it has added before anything else takes them for results of the program.
    - `sizes` adds assertions before `state` puts the ambient state back, at the end of the graph.
    - `unseen` puts an inference mode around what is in the graph alone.
    - `gradients` gives results their used-up history before `outputs` makes others of them; it also tells `backward` about which of them
      it need not care.
    - `outputs` makes the results that `versions` counts.
    - `modes` comes behind those whose wrappers call torch functions, of which no mode of the program is told.
    - `wrappers` and `fakes` come last: each may tell compilers to leave the graph alone.
    """

    checks: Checks
    sizes: SymbolicSizes
    state: AmbientState
    unseen: UnseenState
    saved_hooks: SavedTensorHooks
    inputs: InputAliasing
    gradients: UsedGradients
    outputs: OutputAliasing
    versions: ResultVersions
    assigned: AssignedData
    leaves: Leaves
    data: WrittenData
    backward: BackwardSplit
    hooks: HookLifetimes
    random: RandomNumbers
    modes: FunctionModes
    wrappers: WrapperClasses
    fakes: FakeTensors


def effects_of(builder: "GraphBuilder | None") -> Passes:
    """The effects around the graph of this builder; None: around a graph that was read from the warm cache."""
    return Passes._make([cls(builder) for cls in CLASSES])


CLASSES: tuple[Any, ...] = tuple(Passes.__annotations__.values())


def overriding(name: str) -> tuple[int, ...]:
    """The rows whose class overrides a method of `GraphEffect`."""
    default = getattr(GraphEffect, name)
    return tuple(i for i, cls in enumerate(CLASSES) if getattr(cls, name) is not default)


ON_WRITE = overriding("on_write")
ON_NODE = overriding("on_node")
