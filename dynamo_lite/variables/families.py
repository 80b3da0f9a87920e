"""All type families, registered.

Input: nothing. Output: filled tables of builders, handlers and native models; importing this module is what fills them.
Invariant: a builtin type is registered as a base for user classes only if an empty instance of its model can be made.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from importlib.util import find_spec
from typing import Any

from . import (  # noqa: F401
    atom,
    attribute_slots,
    build_class,
    builtins,
    callables,
    cell,
    classes,
    code,
    compiled,
    context,
    coroutine,
    dictview,
    enum,
    exc,
    exc_members,
    exceptions,
    foreign_generator,
    frame,
    function,
    functools,
    gcmodule,
    generator,
    genericalias,
    inspect,
    instance,
    instancecheck,
    iter,
    itertools,
    itertools_groupby,
    itertools_product,
    itertools_select,
    lru_cache,
    markers,
    memoryfile,
    module,
    number,
    operator,
    pickle,
    pythonrun,
    random,
    reduce,
    resumption,
    sequence_slots,
    slice,
    sysmodule,
    text,
    thread,
    traceback,
    type,
    typing,
    unpickler,
    zip,
)
from .bytearray import BytearrayVariable
from .constant import ATOMIC_TYPES
from .deque import DequeVariable
from .dict import DictVariable
from .list import ListVariable
from .native import NativeVariable
from .odict import DefaultDictVariable, OrderedDictVariable
from .property import ClassMethodVariable, PropertyVariable, StaticMethodVariable
from .set import FrozenSetVariable, SetVariable
from .subclass import NATIVE_MODELS, register_native
from .super import SuperVariable
from .tuple import TupleVariable
from .wrap import BUILDERS

for _cls, _model in {
    list: ListVariable,
    tuple: TupleVariable,
    dict: DictVariable,
    set: SetVariable,
    frozenset: FrozenSetVariable,
    deque: DequeVariable,
    bytearray: BytearrayVariable,
    OrderedDict: OrderedDictVariable,
    defaultdict: DefaultDictVariable,
    property: PropertyVariable,
    staticmethod: StaticMethodVariable,
    classmethod: ClassMethodVariable,
    super: SuperVariable,
}.items():
    register_native(_cls, _model)


def _register_models(model: Any) -> None:
    if "cls" in model.__dict__ and model.cls is not object:
        NATIVE_MODELS.setdefault(model.cls, model)
    for sub in model.__subclasses__():
        _register_models(sub)


_register_models(NativeVariable)
attribute_slots.register([*ATOMIC_TYPES, *NATIVE_MODELS, *BUILDERS])

if find_spec("torch") is not None:
    from . import (  # noqa: F401
        graph_args,
        masked,
        nested_int,
        nn_module,
        numpy,
        numpy_indexing,
        symnode,
        tensor,
        tensor_extreme,
        tensor_methods,
        tensor_new,
        torch_attention,
        torch_autograd,
        torch_checkpoint,
        torch_control_flow,
        torch_foreach,
        torch_func,
        torch_function,
        torch_gradients,
        torch_higher_order,
        torch_hooks,
        torch_misc,
        torch_module_hooks,
        torch_ops,
        torch_optim,
        torch_overrides,
        torch_profiler,
        torch_saved_tensors,
    )
