"""Access paths: how generated code reloads a value that guards can check.

Input: a path (`guards.ir.GuardNode`). Output: instructions that push the value it leads to.
Invariant: a reload runs no user code beyond what the path says, and gives the object that the guard program checked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dynamo_lite.isa.typeobject import lookup, read_field, read_member

from . import ir, mirror

if TYPE_CHECKING:
    from dynamo_lite.frontend.codegen import Codegen


def emit_source(cg: Codegen, node: Any) -> None:
    """Push the value at `node`."""
    RELOAD[node.kind](cg, node)


def _local(cg: Codegen, node: Any) -> None:
    cg.asm.load_fast(cg.code.co_varnames[node.arg])


def _freevar(cg: Codegen, node: Any) -> None:
    cg.asm.load_cell(cg.code.co_freevars[node.arg])


def _const(cg: Codegen, node: Any) -> None:
    cg.load_const(node.arg)


def _attribute(name: str) -> Callable[[Any, Any], None]:
    def emit(cg: Codegen, node: Any) -> None:
        cg.load_source(node.parent)
        cg.asm.load_attr(name)

    return emit


def _instance_dict(cg: Codegen, node: Any) -> None:
    exact = next((check.arg for check in node.parent.checks if check.kind == ir.TYPE_IS), None)
    if exact is not None and lookup(exact, "__getattribute__") is object.__getattribute__:
        cg.load_source(node.parent)
        cg.asm.load_attr("__dict__")
    else:
        cg.load_callable(own_dict)
        cg.load_source(node.parent)
        cg.asm.call(1)


def own_dict(value: object) -> dict[str, Any]:
    """An object's `__dict__`, past a `__getattribute__` of the program."""
    return object.__getattribute__(value, "__dict__")


def _attr(cg: Codegen, node: Any) -> None:
    cg.load_source(node.parent)
    cg.asm.load_attr(node.arg)


def _dict_item(cg: Codegen, node: Any) -> None:
    """The storage of the dictionary itself: a subclass may override subscripts."""
    parent = node.parent
    if parent.kind == ir.CONST and parent.arg is cg.globals and type(node.arg) is str:
        cg.asm.load_global(node.arg)
        return
    if parent.kind == ir.INSTANCE_DICT or parent.kind == ir.CONST or _is_exactly(parent, dict):
        cg.load_source(parent)
        cg.load_const(node.arg)
        cg.asm.binary_subscr()
        return
    cg.load_callable(dict.__getitem__)
    cg.load_source(parent)
    cg.load_const(node.arg)
    cg.asm.call(2)


def _is_exactly(node: Any, cls: type) -> bool:
    """True if the guards say that the value at `node` is of this very type."""
    return any(check.kind == ir.TYPE_IS and check.arg is cls for check in node.checks)


def _index(cg: Codegen, node: Any) -> None:
    if _is_exactly(node.parent, list) or _is_exactly(node.parent, tuple):
        cg.load_source(node.parent)
        cg.load_const(node.arg)
        cg.asm.binary_subscr()
    else:
        _helper(_get_index)(cg, node)


def _get_index(sequence: Any, i: int) -> Any:
    return (list if issubclass(type(sequence), list) else tuple).__getitem__(sequence, i)


def _helper(function: Callable[..., Any]) -> Callable[[Any, Any], None]:
    def emit(cg: Codegen, node: Any) -> None:
        cg.load_callable(function)
        cg.load_source(node.parent)
        cg.load_const(node.arg)
        cg.asm.call(2)

    return emit


def _cell_contents(cg: Codegen, node: Any) -> None:
    if node.parent.kind == ir.FREEVAR:
        cg.asm.load_deref(cg.code.co_freevars[node.parent.arg])
    else:
        cg.load_source(node.parent)
        cg.asm.load_attr("cell_contents")


def _type(cg: Codegen, node: Any) -> None:
    cg.load_callable(type)
    cg.load_source(node.parent)
    cg.asm.call(1)


def _call(cg: Codegen, node: Any) -> None:
    cg.load_callable(node.arg)
    cg.load_source(node.parent)
    cg.asm.call(1)


def _made(cg: Codegen, node: Any) -> None:
    """The same object each time."""
    cg.load_callable(node.arg)
    cg.asm.call(0)
    cg.asm.copy(1)
    name = cg.sources[id(node)] = cg.new_local()
    cg.asm.store_fast(name)


RELOAD: dict[int, Callable[[Any, Any], None]] = {
    ir.LOCAL: _local,
    ir.FREEVAR: _freevar,
    ir.CONST: _const,
    ir.ATTR: _attr,
    ir.FIELD: _helper(read_field),
    ir.MEMBER: _helper(read_member),
    ir.INSTANCE_DICT: _instance_dict,
    ir.DICT_ITEM: _dict_item,
    ir.INDEX: _index,
    ir.CELL_CONTENTS: _cell_contents,
    ir.TYPE: _type,
    ir.TYPE_ATTR: _helper(lookup),
    ir.FUNC_CODE: _attribute("__code__"),
    ir.FUNC_DEFAULTS: _attribute("__defaults__"),
    ir.FUNC_KWDEFAULTS: _attribute("__kwdefaults__"),
    ir.FUNC_CLOSURE: _attribute("__closure__"),
    ir.METHOD_SELF: _attribute("__self__"),
    ir.METHOD_FUNC: _attribute("__func__"),
    ir.ITER_ITEM: _helper(mirror.iter_item),
    ir.DICT_KEY: _helper(mirror.dict_key),
    ir.DICT_VALUE: _helper(mirror.dict_value),
    ir.CALL: _call,
    ir.MADE: _made,
}


# Paths of such steps are loaded by code. Whatever hangs on other objects (parameters, buffers, globals) the guards have at hand.
_LOADED = frozenset({ir.LOCAL, ir.FREEVAR, ir.CELL_CONTENTS, ir.INDEX, ir.DICT_ITEM, ir.MADE})


def is_handed_over(node: Any) -> bool:
    """Whether the guards pass this value to the graph; else the code loads it."""
    while node is not None:
        if node.kind not in _LOADED:
            return True
        node = node.parent
    return False
