"""The guard IR: interning, deduplication, readable paths. Needs no torch."""

import marshal

from dynamo_lite import _eval_frame
from dynamo_lite.guards import ir, kinds
from dynamo_lite.guards.ir import GuardSet
from dynamo_lite.guards.program import build_spec


def test_kinds_are_those_of_the_c_file():
    """An extension that was built from another table is refused when the package is imported."""
    assert _eval_frame.GUARD_KINDS == {
        name: (number, kinds.ROWS[number].argument) for name, number in kinds.KINDS.items()
    }
    assert ir.IS == kinds.IS and set(kinds.KINDS) <= vars(ir).keys()


def test_each_check_is_explained():
    checks = {name: kinds.ROWS[number] for name, number in kinds.KINDS.items() if kinds.SAVE != number >= kinds.IS}
    assert all(row.python and row.expected for name, row in checks.items() if kinds.KINDS[name] < kinds.SAME)


def test_nodes_are_interned():
    guards = GuardSet(["x"])
    x = guards.node(None, ir.LOCAL, 0)
    assert guards.node(None, ir.LOCAL, 0) is x
    assert guards.node(x, ir.ATTR, "a") is guards.node(x, ir.ATTR, "".join(["a"]))
    assert guards.node(x, ir.ATTR, "a") is not guards.node(x, ir.TYPE_ATTR, "a")
    keys = [1, True, 1.0, "1", b"1", None, (1,)]
    assert len({guards.node(x, ir.DICT_ITEM, key) for key in keys}) == len(keys)
    first, second = [], []
    assert guards.node(None, ir.CONST, first) is guards.node(None, ir.CONST, first)
    assert guards.node(None, ir.CONST, first) is not guards.node(None, ir.CONST, second)


def test_checks_are_deduplicated():
    guards = GuardSet(["x", "y"])
    x, y = guards.node(None, ir.LOCAL, 0), guards.node(None, ir.LOCAL, 1)
    for _ in range(3):
        guards.check(x, ir.TYPE_IS, int, ("f.py", 3))
        guards.check(x, ir.EQUALS, 1)
        guards.check(x, ir.EQUALS, True)
        guards.check(y, ir.TYPE_IS, int)
        guards.same(x, y)
        guards.same(x, x)
        guards.distinct([x, y])
        guards.distinct([x])
    assert guards.checks == len(guards) == len(list(guards)) == 6
    assert [guard.index for guard in guards] == list(range(6))
    assert guards.guards[0].user == ("f.py", 3)


def test_nodes_without_checks_are_left_out():
    guards = GuardSet(["x", "y"])
    x, y = guards.node(None, ir.LOCAL, 0), guards.node(None, ir.LOCAL, 1)
    guards.node(guards.node(x, ir.INSTANCE_DICT), ir.DICT_ITEM, "a")
    guards.check(guards.node(y, ir.ATTR, "b"), ir.IS, None)
    assert build_spec(guards) == (((ir.LOCAL, 1, (), ((ir.ATTR, "b", ((ir.IS, None, 0),), ()),)),), (), 0)


def test_very_deep_paths():
    guards = GuardSet(["x"])
    node = guards.node(None, ir.LOCAL, 0)
    for _ in range(5000):
        node = guards.node(node, ir.INDEX, 0)
    guards.check(node, ir.IS, None)
    assert node.path == "x" + "[0]" * 5000
    assert node.steps == ((ir.LOCAL, "x"),) + ((ir.INDEX, 0),) * 5000
    depth, spec = 0, build_spec(guards)[0]
    while spec:
        depth, spec = depth + 1, spec[0][3]
    assert depth == 5001


def test_paths():
    guards = GuardSet(["self", "x"], ["total"])
    me, x = guards.node(None, ir.LOCAL, 0), guards.node(None, ir.LOCAL, 1)
    members = guards.node(me, ir.INSTANCE_DICT)
    modules = guards.node(members, ir.DICT_ITEM, "_modules")
    layer = guards.node(modules, ir.DICT_ITEM, "layer")
    cell = guards.node(None, ir.FREEVAR, 0)
    own_globals = guards.node(None, ir.CONST, {"__name__": "__main__"})
    other_globals = guards.node(None, ir.CONST, {"__name__": "pkg.mod"})
    function = guards.node(members, ir.DICT_ITEM, "f")

    def shape_of(x):
        return x.shape

    expected = {
        guards.node(members, ir.DICT_ITEM, "eps"): "self.eps",
        guards.node(members, ir.DICT_ITEM, "not a name"): "self.__dict__['not a name']",
        layer: "self.layer",
        guards.node(modules, ir.DICT_ITEM, "0"): "self._modules['0']",
        guards.node(guards.node(layer, ir.INSTANCE_DICT), ir.DICT_ITEM, "w"): "self.layer.w",
        guards.node(
            guards.node(guards.node(members, ir.DICT_ITEM, "layers"), ir.INDEX, 3), ir.ATTR, "e"
        ): "self.layers[3].e",
        guards.node(x, ir.DICT_ITEM, 4): "x[4]",
        guards.node(x, ir.DICT_KEY, 4): "list(x)[4]",
        guards.node(x, ir.DICT_VALUE, 4): "list(x.values())[4]",
        guards.node(x, ir.TYPE): "type(x)",
        guards.node(guards.node(x, ir.TYPE), ir.TYPE_ATTR, "f"): "type(x).f",
        guards.node(x, ir.FIELD, "__cause__"): "x.__cause__",
        guards.node(x, ir.CALL, shape_of): "shape_of(x)",
        guards.node(cell, ir.CELL_CONTENTS): "total",
        guards.node(own_globals, ir.DICT_ITEM, "flag"): "flag",
        guards.node(other_globals, ir.DICT_ITEM, "flag"): "pkg.mod.flag",
        guards.node(guards.node(function, ir.FUNC_DEFAULTS), ir.INDEX, 0): "self.f.__defaults__[0]",
        guards.node(function, ir.METHOD_SELF): "self.f.__self__",
        guards.node(None, ir.CONST, int): "int",
        guards.node(None, ir.CONST, [1]): "<list>",
        guards.node(None, ir.LOCAL, 7): "argument 7",
        guards.node(None, ir.FREEVAR, 7): "free variable 7 (cell)",
    }
    assert {node.path: None for node in expected} == dict.fromkeys(expected.values())
    guards.distinct([x, layer])
    assert guards.guards[-1].path == "x, self.layer"
    assert "self.layer" in repr(layer) and "DISTINCT" in repr(guards.guards[-1])


def test_dicts_that_are_no_modules_have_no_attributes():
    guards = GuardSet(["x"])
    items = guards.node(guards.node(None, ir.LOCAL, 0), ir.DICT_ITEM, "_buffers")
    assert guards.node(items, ir.DICT_ITEM, "w").path == "x['_buffers']['w']"


def test_paths_as_values():
    class Key:
        def __eq__(self, other):
            raise AssertionError("comparing paths runs no code of the program")

        __hash__ = object.__hash__

    key = Key()
    guards, other = GuardSet(["self", "x"], ["total"]), GuardSet(["x", "y"])
    x, same_x = guards.node(None, ir.LOCAL, 1), other.node(None, ir.LOCAL, 0)
    item = guards.node(guards.node(x, ir.INDEX, 2), ir.DICT_ITEM, key)
    same = other.node(other.node(same_x, ir.INDEX, 2), ir.DICT_ITEM, key)
    assert item.steps == same.steps == ((ir.LOCAL, "x"), (ir.INDEX, 2), (ir.DICT_ITEM, ir.plain(key)))
    assert guards.node(x, ir.INDEX, 2).steps == item.steps[:2] != guards.node(x, ir.INDEX, 20).steps
    cell = guards.node(guards.node(None, ir.FREEVAR, 0), ir.CELL_CONTENTS)
    assert cell.steps == ((ir.FREEVAR, "total"), (ir.CELL_CONTENTS, None))
    assert guards.node(None, ir.CONST, len).steps == ((ir.CONST, "len"),)
    assert guards.node(x, ir.CALL, test_paths_as_values).steps == ((ir.LOCAL, "x"), (ir.CALL, "test_paths_as_values"))
    marshal.loads(marshal.dumps(item.steps))
