"""All type families, registered.

Input: nothing. Output: filled tables of builders, handlers and native models; importing this module is what fills them.
Invariant: a builtin type is registered as a base for user classes only if an empty instance of its model can be made.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from importlib.util import find_spec
from typing import Any

from .builtin import code_object, dictview, genericalias, iter, number, slice, text, zip  # noqa: F401
from .builtin.deque import DequeVariable
from .builtin.dict import DictVariable
from .builtin.list import ListVariable
from .builtin.odict import DefaultDictVariable, OrderedDictVariable
from .builtin.set import FrozenSetVariable, SetVariable
from .builtin.tuple import TupleVariable
from .generators import foreign_generator, generator  # noqa: F401
from .objects import (  # noqa: F401
    atom,
    callables,
    cell,
    compiled,
    enum_member,
    exception_instance,
    exceptions,
    frame_object,
    function,
    instance,
    instancecheck,
    module,
    thread_local,
    traceback_object,
    type,
    type_new,
)
from .objects.property import ClassMethodVariable, PropertyVariable, StaticMethodVariable
from .objects.subclass import NATIVE_MODELS, register_native
from .objects.super import SuperVariable
from .protocol import markers  # noqa: F401
from .protocol.native import NativeVariable
from .stdlib import (  # noqa: F401
    app_level,
    builtins,
    combinatorics,
    contextvars,
    functools,
    inspect,
    logging,
    lru_cache,
    printing,
    random,
    sysmodule,
    typing,
)

for _cls, _model in {
    list: ListVariable,
    tuple: TupleVariable,
    dict: DictVariable,
    set: SetVariable,
    frozenset: FrozenSetVariable,
    deque: DequeVariable,
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

if find_spec("torch") is not None:
    from .torch import (  # noqa: F401
        dispatcher_ops,
        foreach,
        functions,
        graph_args,
        late_models,
        nested_int,
        nn_module,
        numpy_indexing,
        optim,
        overrides,
        profiler,
        pybind,
        symnode,
        tensor,
        tensor_methods,
        tensor_new,
        value_types,
    )
    from .torch.autograd import (  # noqa: F401
        autograd_function,
        checkpoint,
        gradients,
        hooks,
        module_hooks,
        saved_tensors,
    )
    from .torch.data import (  # noqa: F401
        branches,
        clocks,
        extremes,
        late_lists,
        late_numbers,
        masked,
        nonzero_rows,
        spelled_out,
        truths,
    )
    from .torch.higher_order import attention, control_flow, func, operators  # noqa: F401
    from .torch.numpy import models  # noqa: F401
