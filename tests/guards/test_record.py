"""The fast path: whatever is changed between two calls, `check` says what a full evaluation says. Needs no torch.

`first_failure` always evaluates in full, so it is the oracle.
"""

import collections
import functools
import gc
import random
import sys
import types
import weakref

import pytest

from dynamo_lite._eval_frame import GuardProgram
from dynamo_lite.guards import ir
from dynamo_lite.guards.ir import GuardSet
from dynamo_lite.guards.mirror import Mirror
from dynamo_lite.guards.program import build_program


class Base:
    inherited = "inherited"


class Other(Base):
    pass


class Leaf(Base):
    flag = "class flag"

    def __init__(self):
        self.eps = 1e-5
        self.name = "leaf"

    def forward(self, x):
        return x


class Twin(Leaf):
    """Can be assigned to the __class__ of a Leaf."""


class Slots:
    __slots__ = ("value", "__weakref__")


def function(a, b=17, *, c=18):
    return a


class Root(Base):
    def __init__(self):
        self.leaf = Leaf()
        self.other_leaf = Leaf()
        self.training = True
        self.numbers = [1, 2, 3]
        self.nested = [[Leaf()], (Leaf(), [4])]
        self.table = {"a": 1, "b": {"deep": Leaf()}, 3: "three"}
        self.ordered = collections.OrderedDict(a=1, b=2)
        self.default = collections.defaultdict(int, a=1)
        self.method = self.leaf.forward
        self.function = self.make_function()
        self.closure = self.make_closure()
        self.module = types.ModuleType("m")
        self.module.value = 5
        self.pair = (1, "two", (3.0, None))
        self.big = 10**30
        self.kind = Leaf
        self.slots = Slots()
        self.slots.value = 1
        self.set = {1, 2}
        self.partial = functools.partial(function, 1)

    @staticmethod
    def make_function():
        return types.FunctionType(function.__code__, {}, "function", (17,))

    @staticmethod
    def make_closure():
        total, leaf = 1000, Leaf()

        def closure(new=None):
            nonlocal total
            if new is not None:
                total = new
            return total, leaf

        return closure


def item(guards, node, key):
    return guards.node(guards.node(node, ir.INSTANCE_DICT), ir.DICT_ITEM, key)


def attribute_of_class(guards, node, name):
    return guards.node(guards.node(node, ir.TYPE), ir.TYPE_ATTR, name)


def same_class(guards, node, cls):
    """What a tracer guards about an instance that it knows by type only."""
    guards.check(node, ir.TYPE_IS, cls)
    guards.check(attribute_of_class(guards, node, "flag"), ir.EQUALS, "class flag")
    guards.check(attribute_of_class(guards, node, "forward"), ir.IS, Leaf.forward)
    guards.check(attribute_of_class(guards, node, "hook"), ir.ABSENT)
    guards.check(item(guards, node, "eps"), ir.EQUALS, 1e-5)
    guards.check(item(guards, node, "hook"), ir.ABSENT)


def guard_everything(root, global_names, identity=True):
    """Guards of every kind on a Root, found in local 0 (pinned by its identity, or known by type only)."""
    guards = GuardSet(["self", "x"])
    me = guards.node(None, ir.LOCAL, 0)
    guards.check(me, ir.IS, root) if identity else guards.check(me, ir.TYPE_IS, Root)
    guards.check(attribute_of_class(guards, me, "inherited"), ir.EQUALS, "inherited")
    guards.check(item(guards, me, "training"), ir.EQUALS, True)
    guards.check(item(guards, me, "training"), ir.TRUTH, True)
    guards.check(item(guards, me, "missing"), ir.ABSENT)
    for name in ("leaf", "other_leaf"):
        same_class(guards, item(guards, me, name), Leaf)
    leaf = item(guards, me, "leaf")
    numbers = item(guards, me, "numbers")
    guards.check(numbers, ir.TYPE_IS, list)
    guards.check(numbers, ir.LEN, 3)
    for i in range(3):
        guards.check(guards.node(numbers, ir.INDEX, i), ir.EQUALS, i + 1)
    nested = item(guards, me, "nested")
    same_class(guards, guards.node(guards.node(nested, ir.INDEX, 0), ir.INDEX, 0), Leaf)
    pair = guards.node(nested, ir.INDEX, 1)
    same_class(guards, guards.node(pair, ir.INDEX, 0), Leaf)
    guards.check(guards.node(guards.node(pair, ir.INDEX, 1), ir.INDEX, 0), ir.EQUALS, 4)
    table = item(guards, me, "table")
    guards.check(table, ir.DICT_KEYS, ("a", "b", 3))
    guards.check(table, ir.LACKS_KEY, "c")
    guards.check(table, ir.HAS_KEY, "a")
    guards.check(guards.node(table, ir.DICT_ITEM, 3), ir.EQUALS, "three")
    guards.check(guards.node(table, ir.DICT_KEY, 1), ir.EQUALS, "b")
    guards.check(guards.node(table, ir.DICT_VALUE, 2), ir.EQUALS, "three")
    same_class(guards, guards.node(guards.node(table, ir.DICT_ITEM, "b"), ir.DICT_ITEM, "deep"), Leaf)
    ordered = item(guards, me, "ordered")
    guards.check(ordered, ir.DICT_KEYS, ("a", "b"))
    guards.check(guards.node(ordered, ir.DICT_KEY, 0), ir.EQUALS, "a")
    guards.check(guards.node(ordered, ir.DICT_ITEM, "b"), ir.EQUALS, 2)
    default = item(guards, me, "default")
    guards.check(default, ir.LEN, 1)
    guards.check(guards.node(default, ir.DICT_ITEM, "zzz"), ir.ABSENT)
    method = item(guards, me, "method")
    guards.check(guards.node(guards.node(method, ir.METHOD_SELF), ir.TYPE), ir.IS, Leaf)
    guards.check(guards.node(guards.node(method, ir.METHOD_FUNC), ir.FUNC_CODE), ir.IS, Leaf.forward.__code__)
    fn = item(guards, me, "function")
    guards.check(guards.node(fn, ir.FUNC_CODE), ir.IS, function.__code__)
    guards.check(guards.node(guards.node(fn, ir.FUNC_DEFAULTS), ir.INDEX, 0), ir.EQUALS, 17)
    guards.check(guards.node(fn, ir.FUNC_KWDEFAULTS), ir.EQUALS, None)
    closure = item(guards, me, "closure")
    cells = guards.node(closure, ir.FUNC_CLOSURE)
    names = root.closure.__code__.co_freevars
    total = guards.node(guards.node(cells, ir.INDEX, names.index("total")), ir.CELL_CONTENTS)
    guards.check(total, ir.EQUALS, 1000)
    same_class(guards, guards.node(guards.node(cells, ir.INDEX, names.index("leaf")), ir.CELL_CONTENTS), Leaf)
    module = item(guards, me, "module")
    guards.check(module, ir.TYPE_IS, types.ModuleType)
    guards.check(item(guards, module, "value"), ir.EQUALS, 5)
    guards.check(item(guards, me, "pair"), ir.EQUALS, (1, "two", (3.0, None)))
    guards.check(item(guards, me, "big"), ir.EQUALS, 10**30)
    guards.check(guards.node(item(guards, me, "kind"), ir.TYPE_ATTR, "flag"), ir.EQUALS, "class flag")
    guards.check(guards.node(item(guards, me, "slots"), ir.ATTR, "value"), ir.EQUALS, 1)
    guards.check(item(guards, me, "set"), ir.HAS_KEY, 1)
    guards.check(guards.node(item(guards, me, "partial"), ir.CALL, lambda p: p.args), ir.EQUALS, (1,))
    guards.check(item(guards, me, "leaf"), ir.PYTHON, lambda leaf: leaf.name == "leaf")
    guards.distinct([leaf, item(guards, me, "other_leaf"), guards.node(None, ir.LOCAL, 1)])
    guards.predicate(lambda a, b: a.name == b.name, [leaf, item(guards, me, "other_leaf")], "names")
    globals_ = guards.node(None, ir.CONST, global_names)
    guards.check(guards.node(globals_, ir.DICT_ITEM, "flag"), ir.IS, True)
    guards.check(guards.node(globals_, ir.DICT_ITEM, "lost"), ir.ABSENT)
    same_class(guards, guards.node(globals_, ir.DICT_ITEM, "leaf"), Leaf)
    return guards


def set_class_attribute(cls, name, value):
    def change(root, names):
        setattr(cls, name, value)

    return change


def set_(path, name, value):
    """setattr on root.path."""

    def change(root, names):
        obj = functools.reduce(lambda o, n: o[n] if isinstance(n, int | slice) else getattr(o, n), path, root)
        setattr(obj, name, value)

    return change


def do(code):
    def change(root, names):
        exec(code, globals(), {"root": root, "names": names})

    change.__name__ = code
    return change


# Each of these changes something that a guard may depend on; some are harmless.
CHANGES = [
    "root.training = False",
    "root.training = 1",
    "del root.training",
    "root.missing = 1",
    "root.irrelevant = 1",
    "root.__dict__['training'] = 0",
    "root.__dict__.update(training=0)",
    "root.__dict__.pop('training')",
    "root.__dict__.clear()",
    "root.__dict__ = dict(root.__dict__)",
    "root.__dict__ = dict(root.__dict__, training=False)",
    "root.__dict__ = {}",
    "root.__class__ = Other",
    "root.leaf.__class__ = Twin",
    "root.leaf.__class__ = Other",
    "root.leaf.eps = 2e-5",
    "root.leaf.eps = 1e-5",
    "root.leaf.eps = float('1e-5')",
    "root.leaf.flag = 'instance flag'",
    "root.leaf.hook = 1",
    "root.leaf.name = 'renamed'",
    "root.leaf.name = root.other_leaf.name = 'renamed'",
    "root.leaf = Leaf()",
    "root.leaf = root.other_leaf",
    "root.leaf, root.other_leaf = root.other_leaf, root.leaf",
    "root.leaf = None",
    "root.leaf.__dict__ = {'eps': 1e-5, 'name': 'leaf'}",
    "root.leaf.__dict__ = {'eps': 1.0, 'name': 'leaf'}",
    "Leaf.flag = 'changed'",
    "Leaf.hook = 1",
    "Leaf.forward = lambda self, x: x",
    "Leaf.irrelevant = 1",
    "Leaf.forward.__code__ = (lambda self, x: 0).__code__",
    "Base.flag = 'base flag'",
    "Base.hook = 1",
    "Base.inherited = 'changed'",
    "Root.inherited = 'changed'",
    "Leaf.__bases__ = (type('Mixin', (Base,), {'hook': 1}),)",
    "root.numbers[1] = 20",
    "root.numbers[1] = True",
    "root.numbers[1] = int('2')",
    "root.numbers.append(4)",
    "root.numbers.pop()",
    "root.numbers.clear()",
    "root.numbers.reverse()",
    "root.numbers = [1, 2, 3]",
    "root.numbers = (1, 2, 3)",
    "root.nested[0][0] = Leaf()",
    "root.nested[0][0] = Other()",
    "root.nested[0][0].eps = 3",
    "root.nested[0] = []",
    "root.nested[1] = (Leaf(), [5])",
    "root.nested[1][1][0] = 5",
    "root.nested[1][0].eps = 5",
    "root.table['a'] = 2",
    "root.table['c'] = 2",
    "root.table['b'] = root.table.pop('b')",
    "root.table['b']['deep'].eps = 3",
    "root.table['b']['deep'] = Leaf()",
    "root.table['b'] = {'deep': Leaf()}",
    "root.table['b'] = {'deep': Other()}",
    "root.table['b'] = {}",
    "root.table[3] = 'four'",
    "root.table[3.0] = 'three'",
    "root.ordered.move_to_end('a')",
    "root.ordered['b'] = 3",
    "root.default['zzz']",
    "root.default = {'a': 1}",
    "root.method = root.other_leaf.forward",
    "root.method = Other().__init__",
    "root.function.__code__ = (lambda a, b: a).__code__",
    "root.function.__defaults__ = (18,)",
    "root.function.__defaults__ = (17,)",
    "root.function.__defaults__ = None",
    "root.function.__kwdefaults__ = {'c': 1}",
    "root.function.attribute = 1",
    "root.function = Root.make_function()",
    "root.closure(2000)",
    "root.closure(int('1000'))",
    "root.closure()[1].eps = 7",
    "root.closure = Root.make_closure()",
    "root.closure = lambda: 0",
    "root.module.value = 6",
    "root.module.__class__ = type('M', (types.ModuleType,), {})",
    "del root.module.value",
    "root.module.__dict__['value'] = 6",
    "root.pair = (1, 'two', (3.0, None))",
    "root.pair = (1, 'two', (-3.0, None))",
    "root.big = 10**30",
    "root.big = 10**30 + 1",
    "root.kind = Twin",
    "root.kind = Other",
    "root.slots.value = 2",
    "root.set.remove(1)",
    "root.set.add(3)",
    "root.partial = functools.partial(function, 2)",
    "root.partial = functools.partial(function, 1)",
    "names['flag'] = False",
    "names['flag'] = 1",
    "names['unrelated'] = 1",
    "names['lost'] = 1",
    "del names['flag']",
    "names['leaf'] = Leaf()",
    "names['leaf'] = Other()",
    "names['leaf'].eps = 3",
    "names.clear()",
]


@pytest.fixture
def restore_classes():
    saved = [
        (cls, {k: v for k, v in vars(cls).items() if k not in ("__dict__", "__weakref__")}, cls.__bases__)
        for cls in (Base, Leaf, Twin, Other, Root)
    ]
    code = Leaf.forward.__code__
    yield
    for cls, attributes, bases in saved:
        for name in [n for n in vars(cls) if n not in attributes and n not in ("__dict__", "__weakref__")]:
            delattr(cls, name)
        for name, value in attributes.items():
            if vars(cls).get(name) is not value:
                setattr(cls, name, value)
        if cls.__bases__ != bases:
            cls.__bases__ = bases
    Leaf.forward.__code__ = code


class Setup:
    def __init__(self, identity=True):
        self.root, self.names, self.x = Root(), {"flag": True, "leaf": Leaf()}, object()
        self.guards = guard_everything(self.root, self.names, identity)
        self.program, self.mirror = build_program(self.guards), Mirror(self.guards)
        assert self.agree(), self.why()

    def why(self):
        index = self.program.first_failure((self.root, self.x))
        return index if index is None else self.guards.guards[index]

    def agree(self):
        args = (self.root, self.x)
        expected = self.program.first_failure(args) is None
        for _ in range(3):
            assert self.program.check(args) is expected, self.why()
        assert self.mirror.check(args) is expected
        return expected


@pytest.mark.parametrize("identity", [True, False], ids=["pinned", "by type"])
@pytest.mark.parametrize("change", CHANGES)
def test_one_change(change, identity, restore_classes):
    setup = Setup(identity)
    try:
        do(change)(setup.root, setup.names)
    except TypeError as error:
        pytest.skip(str(error))  # this CPython refuses some assignments to __class__ or __bases__
    setup.agree()


@pytest.mark.parametrize("identity", [True, False], ids=["pinned", "by type"])
@pytest.mark.parametrize("seed", range(30))
def test_many_changes_in_a_row(seed, identity, restore_classes):
    """Also drives nodes through all degrees of trust."""
    rng = random.Random(seed)
    setup = Setup(identity)
    held = 0
    for _ in range(150):
        change = rng.choice(CHANGES)
        if setup.why() is not None and rng.random() < 0.7:  # repair, so that records are made again
            setup.root.__class__ = Root
            setup.root.__dict__ = Root().__dict__
            setup.names.clear()
            setup.names.update(flag=True, leaf=Leaf())
            for cls, name in ((Base, "flag"), (Base, "hook"), (Leaf, "hook"), (Root, "inherited")):
                if name in vars(cls):
                    delattr(cls, name)
            Leaf.flag, Base.inherited = "class flag", "inherited"
            continue
        if "__bases__" in change or "forward" in change:
            continue
        try:
            do(change)(setup.root, setup.names)
        except (TypeError, AttributeError, KeyError, IndexError):
            continue
        held += setup.agree()
    assert held > 10


class Thing:
    def __init__(self, value):
        self.value = value

    def method(self):
        pass


def closure_over(value):
    return lambda: value


GOOD, BAD = Thing(1), Thing(2)

# What a slot holds: how to make it, and the path below it that must lead to GOOD.
REUSED = {
    "int": (lambda thing: 10**9 + thing.value, ()),
    "float": (lambda thing: thing.value + 0.5, ()),
    "tuple": (lambda thing: (thing,), ((ir.INDEX, 0),)),
    "constant tuple": (lambda thing: (thing.value, 10**9 + thing.value), ((ir.INDEX, 1),)),
    "method": (lambda thing: thing.method, ((ir.METHOD_SELF, None),)),
    "function": (closure_over, ((ir.FUNC_CLOSURE, None), (ir.INDEX, 0), (ir.CELL_CONTENTS, None))),
    "cell": (lambda thing: types.CellType(thing), ((ir.CELL_CONTENTS, None),)),
    "dict": (lambda thing: {"x": thing}, ((ir.DICT_ITEM, "x"),)),
    "list": (lambda thing: [thing], ((ir.INDEX, 0),)),
    "object": (lambda thing: Thing(thing), ((ir.INSTANCE_DICT, None), (ir.DICT_ITEM, "value"))),
}


@pytest.mark.parametrize("slot", ["list", "cell", "dict"])
@pytest.mark.parametrize("kind", REUSED)
def test_a_new_object_at_an_old_address_is_noticed(kind, slot):
    make, path = REUSED[kind]
    parent = {"list": [None], "cell": types.CellType(None), "dict": {"x": None}}[slot]
    guards = GuardSet()
    accessor = {"list": (ir.INDEX, 0), "cell": (ir.CELL_CONTENTS, None), "dict": (ir.DICT_ITEM, "x")}[slot]
    node = guards.node(guards.node(None, ir.CONST, parent), *accessor)
    for step in path:
        node = guards.node(node, *step)
    expected = make(GOOD) if not path else GOOD if kind != "constant tuple" else 10**9 + 1
    # An IS check would make the program own the object.
    guards.check(node, ir.EQUALS if expected is not GOOD else ir.PYTHON, expected if expected is not GOOD else is_good)

    def store(value):
        if slot == "cell":
            parent.cell_contents = value
        else:
            parent[0 if slot == "list" else "x"] = value

    program = build_program(guards)
    for round_ in range(300):
        store(make(GOOD))
        address = id(read(parent))
        assert program.check(()) is (program.first_failure(()) is None) is True
        store(None)
        store(make(BAD))
        same_address = id(read(parent)) == address
        assert program.check(()) is (program.first_failure(()) is None) is False, (round_, same_address)


def is_good(thing):
    return thing is GOOD


def read(parent):
    return (
        parent.cell_contents
        if isinstance(parent, types.CellType)
        else next(iter(parent.values()))
        if isinstance(parent, dict)
        else parent[0]
    )


def test_order_of_an_ordered_dict():
    ordered = collections.OrderedDict(a=1, b=2)
    guards = GuardSet()
    guards.check(guards.node(None, ir.CONST, ordered), ir.DICT_KEYS, ("a", "b"))
    program = build_program(guards)
    assert program.check(()) and program.check(())
    ordered.move_to_end("a")
    assert not program.check(())


def test_values_are_not_kept_alive():
    setup = Setup()
    assert setup.program.check((setup.root, setup.x))
    for name in ("leaf", "other_leaf", "function", "closure", "module"):
        ref = weakref.ref(getattr(setup.root, name))
        delattr(setup.root, name)
        if name == "leaf":
            del setup.root.method
        gc.collect()
        assert ref() is None, name
    leaf = weakref.ref(setup.names["leaf"])
    setup.names.clear()
    gc.collect()
    assert leaf() is None


def test_a_guard_may_call_the_guarded_function():
    root = Root()
    guards = GuardSet(["self"])
    me = guards.node(None, ir.LOCAL, 0)
    guards.check(me, ir.IS, root)
    depth = [0]

    def predicate(value):
        if depth[0] < 3:
            depth[0] += 1
            root.leaf = Leaf()
            assert program.check((root,))
            depth[0] -= 1
        return value.eps == 1e-5

    guards.check(item(guards, me, "leaf"), ir.PYTHON, predicate)
    guards.check(item(guards, item(guards, me, "leaf"), "eps"), ir.EQUALS, 1e-5)
    program = build_program(guards)
    for _ in range(10):
        assert program.check((root,))


def test_a_guard_may_destroy_what_is_guarded():
    class Fragile:
        pass

    root = types.SimpleNamespace()
    guards = GuardSet()
    node = guards.node(None, ir.CONST, root)

    def destroy(value):
        if armed[0]:
            root.__dict__.clear()
            gc.collect()
        return True

    for i in range(20):
        guards.check(item(guards, node, f"x{i}"), ir.PYTHON, destroy)
        guards.check(item(guards, node, f"x{i}"), ir.TYPE_IS, Fragile)
        guards.check(guards.node(item(guards, node, f"x{i}"), ir.ATTR, "a"), ir.EQUALS, "a")
    program = build_program(guards)
    for _ in range(5):
        root.__dict__.update({f"x{i}": Fragile() for i in range(20)})
        for i in range(20):
            getattr(root, f"x{i}").a = "a"
        armed = [False]
        for _ in range(3):
            assert program.check(())
        armed = [True]
        program.check(())
        assert not program.check(())


def test_dicts_with_user_defined_keys():
    class Key:
        def __init__(self, equal_to):
            self.equal_to = equal_to

        def __hash__(self):
            return hash("a")

        def __eq__(self, other):
            return other == self.equal_to

    key = Key("nothing")
    table = {key: 1}
    guards = GuardSet()
    guards.check(guards.node(guards.node(None, ir.CONST, table), ir.DICT_ITEM, "a"), ir.ABSENT)
    program = build_program(guards)
    assert program.check(()) and program.check(())
    key.equal_to = "a"
    assert not program.check(())


def test_counters_in_globals_do_not_cost_a_full_evaluation():
    names = {"f": function, "counter": 0}
    calls = []
    guards = GuardSet()
    globals_ = guards.node(None, ir.CONST, names)
    guards.check(guards.node(globals_, ir.DICT_ITEM, "f"), ir.IS, function)
    # CALL is evaluated at each call, once by the fast path and twice if that turns out to be stale after it.
    guards.check(guards.node(None, ir.LOCAL, 0), ir.PYTHON, lambda x: calls.append(x) or True)
    program = build_program(guards)
    for i in range(100):
        names["counter"] += 1
        assert program.check((i,))
    assert len(calls) < 110
    names["f"] = len
    assert not program.check((0,))


def test_many_distinct_values():
    objects = [types.SimpleNamespace() for _ in range(50)]
    for n_open in (1, 5, 30):
        guards = GuardSet()
        table = guards.node(None, ir.CONST, dict(enumerate(objects)))
        nodes = [guards.node(table, ir.DICT_ITEM, i) for i in range(50)]
        nodes += [guards.node(None, ir.LOCAL, i) for i in range(n_open)]
        guards.distinct(nodes)
        program = build_program(guards)
        for _ in range(3):
            values = [object() for _ in range(n_open)]
            assert program.check(tuple(values))
            assert program.check(tuple(values))
            assert not program.check((*values[:-1], objects[17]))
            if n_open > 1:
                assert not program.check((*values[:-1], values[0]))


def test_same_and_predicates_over_pinned_values():
    root = Root()
    root.alias = root.leaf
    guards = GuardSet(["x"])
    node = guards.node(None, ir.CONST, root)
    leaf, alias, x = item(guards, node, "leaf"), item(guards, node, "alias"), guards.node(None, ir.LOCAL, 0)
    guards.same(leaf, alias)
    guards.predicate(lambda a, b, c: a is b and c == 1, [leaf, alias, x], "text")
    program = build_program(guards)
    for _ in range(3):
        assert program.check((1,))
        assert not program.check((2,))
    root.alias = Leaf()
    assert not program.check((1,))
    root.leaf = root.alias
    for _ in range(3):
        assert program.check((1,))


def test_no_leaks():
    setup = Setup()
    args = (setup.root, setup.x)
    changes = [do(code) for code in ("root.leaf = Leaf()", "root.closure(5)", "root.closure(1000)", "names['n'] = []")]

    def step(i):
        changes[i % len(changes)](setup.root, setup.names)
        setup.program.check(args)
        program = build_program(setup.guards)
        program.check(args)
        program.check(args)

    for i in range(40):
        step(i)
    gc.collect()
    before = sys.getallocatedblocks()
    for i in range(400):
        step(i)
    gc.collect()
    assert sys.getallocatedblocks() - before < 60


def test_cycles_through_programs_are_collected():
    class Owner:
        pass

    owner = Owner()
    owner.const = (1, 2)
    guards = GuardSet(["x"])
    node = guards.node(None, ir.LOCAL, 0)
    guards.check(node, ir.IS, owner)
    guards.check(item(guards, node, "const"), ir.EQUALS, (1, 2))
    owner.program = build_program(guards)
    assert owner.program.check((owner,)) and owner.program.check((owner,))
    ref = weakref.ref(owner)
    assert isinstance(owner.program, GuardProgram)
    del owner, guards, node
    gc.collect()
    assert ref() is None


# ----------------------------------------------------------------------------------------------------------------------
# Records about objects that the guards do not fix.


def layer_program(log=None):
    """Guards as on `self` of a method that many instances share."""
    guards = GuardSet(["self"])
    me = guards.node(None, ir.LOCAL, 0)
    same_class(guards, me, Leaf)
    guards.check(guards.node(item(guards, me, "parts"), ir.INDEX, 0), ir.TYPE_IS, Leaf)
    same_class(guards, guards.node(item(guards, me, "parts"), ir.INDEX, 0), Leaf)
    return build_program(guards)


def make_layer():
    layer = Leaf()
    layer.parts = [Leaf()]
    return layer


def test_instances_in_turn():
    program = layer_program()
    layers = [make_layer() for _ in range(100)]  # more than there may be records
    bad = random.Random(0).sample(range(100), 10)
    for i in bad:
        layers[i].parts[0].eps = 2
    for _ in range(5):
        for i, layer in enumerate(layers):
            assert program.check((layer,)) is (i not in bad)
    for i in bad:
        layers[i].parts[0].eps = 1e-5
    for layer in layers[:20]:
        layer.hook = 1
    for _ in range(3):
        for i, layer in enumerate(layers):
            assert program.check((layer,)) is (i >= 20)


@pytest.mark.parametrize("parts", [[Leaf()], None], ids=["shared parts", "own parts"])
def test_a_new_instance_for_each_call(parts):
    """At the same address more often than not."""
    program = layer_program()
    for i in range(500):
        layer = make_layer()
        if parts is not None:
            layer.parts = parts
        if i % 3 == 0:
            layer.eps = 2
        assert program.check((layer,)) is (i % 3 != 0)
        ref = weakref.ref(layer)
        del layer
        assert ref() is None


def test_the_pinned_object_may_die_while_guards_run():
    holder, armed = types.SimpleNamespace(), [False]

    def destroy(value):
        if armed[0]:
            holder.layers.clear()
            gc.collect()
        return True

    guards = GuardSet(["layers", "x"])
    me = guards.node(guards.node(None, ir.LOCAL, 0), ir.INDEX, 0)
    same_class(guards, me, Leaf)
    guards.check(guards.node(None, ir.LOCAL, 1), ir.PYTHON, destroy)
    program = build_program(guards)
    for _ in range(5):
        holder.layers = [Leaf()]
        armed[0] = False
        for _ in range(3):
            assert program.check((holder.layers, 1))
        armed[0] = True
        program.check((holder.layers, 1))
        armed[0] = False
        assert not program.check((holder.layers, 1))


def test_closures_in_turn():
    guards = GuardSet([], ["model"])
    me = guards.node(guards.node(None, ir.FREEVAR, 0), ir.CELL_CONTENTS)
    same_class(guards, me, Leaf)
    program = build_program(guards)
    cells = [closure_over(Leaf()).__closure__ for _ in range(5)]
    cells[3][0].cell_contents.eps = 2
    for _ in range(3):
        assert [program.check((), closure) for closure in cells] == [True, True, True, False, True]
    cells[1][0].cell_contents = cells[3][0].cell_contents
    assert [program.check((), closure) for closure in cells] == [True, False, True, False, True]


def test_globals_of_functions():
    fn = types.FunctionType(function.__code__, {"a": 1})
    guards = GuardSet(["f"])
    globals_ = guards.node(guards.node(None, ir.LOCAL, 0), ir.ATTR, "__globals__")
    guards.check(guards.node(guards.node(None, ir.LOCAL, 0), ir.FUNC_CODE), ir.IS, function.__code__)
    guards.check(guards.node(globals_, ir.DICT_ITEM, "a"), ir.EQUALS, 1)
    program = build_program(guards)
    for value, expected in ((1, True), (2, False), (1, True), (True, False)):
        fn.__globals__["a"] = value
        assert program.check((fn,)) is program.check((fn,)) is expected
    assert not program.check((function,))


@pytest.mark.parametrize("make", [dict, list, set, collections.OrderedDict], ids=lambda t: t.__name__)
def test_truth_of_containers(make):
    holder = types.SimpleNamespace(value=make())
    guards = GuardSet(["x"])
    guards.check(item(guards, guards.node(None, ir.CONST, holder), "value"), ir.TRUTH, False)
    program = build_program(guards)
    for _ in range(8):
        assert program.check(()) and program.check(())
        holder.value.update({1: 1}) if hasattr(holder.value, "keys") else make.__init__(holder.value, [1])
        assert not program.check(())
        holder.value.clear()


class SlottedDict(dict):
    __slots__ = ()


class Meta(type):
    pass


def _make_class(meta):
    return meta("Made", (), {"__slots__": ()})


@pytest.mark.parametrize(
    "make, make_other, kind",
    [(dict, SlottedDict, dict), (lambda: _make_class(type), lambda: _make_class(Meta), type)],
    ids=["dict", "class"],
)
def test_a_dict_or_class_at_a_reused_address_may_have_another_type(make, make_other, kind):
    """Pointer steps do not notice when one of these dies, so its type is looked at in every call."""
    reused = 0
    for _ in range(8):
        holder = [make()]
        guards = GuardSet()
        guards.check(guards.node(guards.node(None, ir.CONST, holder), ir.INDEX, 0), ir.TYPE_IS, kind)
        program = build_program(guards)
        assert program.check(()) and program.check(())
        address = id(holder[0])
        filler = [{} for _ in range(200)]
        del filler  # the free list of dicts is full: the next one goes back to the allocator
        holder[0] = None
        gc.collect()
        others = [make_other() for _ in range(50)]
        twin = next((other for other in others if id(other) == address), None)
        if twin is not None:
            reused += 1
            holder[0] = twin
            assert not program.check(())
    if not reused:
        pytest.skip("the allocator gave no address again")
