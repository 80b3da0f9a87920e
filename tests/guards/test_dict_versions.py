"""Versions of dicts: each way to change a dict, or to let it die, is noticed. Needs no torch."""

import gc
import subprocess
import sys
import weakref

import pytest

from dynamo_lite.guards import ir
from dynamo_lite.guards.ir import GuardSet
from dynamo_lite.guards.program import build_program


class Holder:
    def __init__(self, **attributes):
        self.__dict__.update(attributes)


def store(holder, value):
    holder.x = value


def delete(holder):
    del holder.x


def specialize():
    """Have CPython store and delete attributes by the instructions that it specializes."""
    holders = [Holder(x=1, y=2) for _ in range(64)]
    for holder in holders:
        vars(holder)
        store(holder, 3)


def program_for(node_kinds, checks):
    guards = GuardSet(["holder"])
    node = guards.node(None, ir.LOCAL, 0)
    for kind in node_kinds:
        node = guards.node(node, *kind)
    for check in checks:
        kind, path, arg = check
        guards.check(guards.node(node, *path) if path else node, kind, arg)
    return build_program(guards)


ITEM = (ir.EQUALS, (ir.DICT_ITEM, "x"), 1)
ATTRIBUTES = [(ir.INSTANCE_DICT,)]
TABLE = [(ir.INSTANCE_DICT,), (ir.DICT_ITEM, "table")]

CHANGES = {
    "store": lambda d: d.__setitem__("x", 2),
    "of the same value": lambda d: d.__setitem__("x", 1),
    "another": lambda d: d.__setitem__("z", 2),
    "delete": lambda d: d.__delitem__("x"),
    "pop": lambda d: d.pop("x"),
    "popitem": lambda d: d.popitem(),
    "clear": lambda d: d.clear(),
    "clear and update": lambda d: (d.clear(), d.update({"x": 2, "y": 2})),
    "update": lambda d: d.update(x=2),
    "update from pairs": lambda d: d.update([("x", 2)]),
    "setdefault": lambda d: d.setdefault("z", 1),
    "or": lambda d: d.__ior__({"x": 2}),
    "init": lambda d: d.__init__({"x": 2}),
    "exec": lambda d: exec("x = 2", d),
    "exec of a deletion": lambda d: exec("del x", d),
    "a key that is no str": lambda d: d.__setitem__(1, 2),
}


def outcome(make, change, kinds):
    """What a program says of a dict that is changed after a record of it has been made, and what a new one says."""
    holder, d = make()
    checks = [ITEM, (ir.LEN, None, 2), (ir.LACKS_KEY, None, "z")]
    program = program_for(kinds, checks)
    assert all(program.check((holder,)) for _ in range(4))
    change(d)
    found = [program.check((holder,)) for _ in range(3)]
    return found, program_for(kinds, checks).check((holder,))


def instance():
    holder = Holder(x=1, y=2)
    return holder, vars(holder)


def table():
    holder = Holder(table={"x": 1, "y": 2})
    return holder, holder.table


@pytest.mark.parametrize("make, kinds", [(instance, ATTRIBUTES), (table, TABLE)], ids=["instance", "table"])
@pytest.mark.parametrize("name", CHANGES)
def test_every_change_is_noticed(name, make, kinds):
    found, expected = outcome(make, CHANGES[name], kinds)
    assert found == [expected] * 3


@pytest.mark.parametrize("change", [lambda h: store(h, 2), delete, lambda h: setattr(h, "x", 2)])
def test_attributes_are_stored_by_specialized_instructions(change):
    specialize()

    def make():
        holder = Holder(x=1, y=2)
        return holder, holder

    found, expected = outcome(make, change, ATTRIBUTES)
    assert found == [expected] * 3 == [False] * 3


def test_a_dict_that_dies():
    holder, program = Holder(table={"x": 1}), program_for(TABLE, [ITEM])
    for value in [1, 2, 1, 1, 2] * 20:
        holder.table = {"x": value}  # often at the address of the dict before
        assert [program.check((holder,)) for _ in range(3)] == [value == 1] * 3


def test_a_table_of_another_type_at_the_address():
    class Table(dict):
        pass

    guards = GuardSet(["holder"])
    node = guards.node(guards.node(guards.node(None, ir.LOCAL, 0), ir.INSTANCE_DICT), ir.DICT_ITEM, "table")
    guards.check(node, ir.TYPE_IS, dict)
    guards.check(node, ir.LEN, 0)
    program, holder = build_program(guards), Holder(table={})
    for cls in [dict, Table, dict, dict, Table] * 20:
        holder.table = cls()
        assert [program.check((holder,)) for _ in range(3)] == [cls is dict] * 3


def test_many_dicts_and_programs():
    """Versions are kept as long as a record wants them, and are found again among many."""
    holders = [Holder(table={"x": 1, "n": i}) for i in range(3000)]
    programs = [program_for(TABLE, [ITEM]) for _ in range(6)]
    for program in programs:
        for holder in holders[::7]:
            assert all(program.check((holder,)) for _ in range(3))
    del programs[:3]
    for i, holder in enumerate(holders[::7]):
        holder.table["x"] = 1 + i % 2
    for program in programs:
        assert [program.check((holder,)) for holder in holders[::7]] == [i % 2 == 0 for i in range(len(holders[::7]))]
    dead = [weakref.ref(holder) for holder in holders]
    del holders, holder
    gc.collect()
    assert not any(reference() for reference in dead)


def test_without_a_watcher():
    """An interpreter has eight since 3.12; before, dicts have versions of their own."""
    code = """
import ctypes
callback = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)(lambda *_: 0)
def add():
    try:
        return ctypes.pythonapi.PyDict_AddWatcher(callback)
    except RuntimeError:
        return -1
assert not hasattr(ctypes.pythonapi, 'PyDict_AddWatcher') or -1 in [add() for _ in range(9)]
from tests.guards.test_dict_versions import *
for name in CHANGES:
    for make, kinds in [(instance, ATTRIBUTES), (table, TABLE)]:
        found, expected = outcome(make, CHANGES[name], kinds)
        assert found == [expected] * 3, name
test_a_dict_that_dies()
test_a_table_of_another_type_at_the_address()
print("done")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "done\n", done.stderr
