"""Random Python programs as source text.

Input: `choose(n)`, which returns a number in range(n); 0 leads to the simplest alternative, so that a source of choices that
can shrink (hypothesis) shrinks the program. Output: the text of a module with `program(...)` and `make_args(k)`.
Invariant: a program ends: loops are bounded, functions call only functions defined before them, containers stay small.

The module's namespace is given by `harness.namespace`: `stop(tag, value)` logs its arguments and the handled exception and returns
the value, `poke(tag, container)` changes its argument, `fail(tag, value)` raises sometimes. None of them can be captured.
Variables have a kind (int, str, list of ints, dict of int to int, ...) which most uses respect; a few do not, for the exceptions.
"""

KINDS = ("int", "list", "str", "dict", "set", "tuple", "func")
ERRORS = (
    "ValueError",
    "KeyError",
    "TypeError",
    "IndexError",
    "Custom",
    "LookupError",
    "ZeroDivisionError",
    "RuntimeError",
)
CAUGHT = (
    "Exception", "ValueError", "KeyError", "TypeError", "IndexError", "Custom", "LookupError", "(ValueError, KeyError)",
    "ArithmeticError", "RuntimeError", "(TypeError, LookupError)", "StopIteration",
)  # fmt: skip
DUNDERS = (
    "__add__", "__radd__", "__iadd__", "__eq__", "__lt__", "__len__", "__bool__", "__getitem__", "__setitem__", "__delitem__",
    "__contains__", "__iter__", "__call__", "__getattr__", "__repr__", "__setattr__", "__neg__", "__hash__",
)  # fmt: skip


class Scope:
    """The names that a function body may use: kind → names. `own` ones can be assigned without a declaration."""

    def __init__(self, parent=None, generator=False):
        self.names = (
            {k: list(v) for k, v in parent.names.items()}
            if parent
            else {k: [] for k in (*KINDS, "obj", "gen", "tensor")}
        )
        self.own = set()
        self.declared = set()
        self.classes = dict(parent.classes) if parent else {}  # object variable → class name
        self.generator = generator
        self.generators = set(parent.generators) if parent else set()
        self.loops = 0
        self.handler = 0
        self.finals = 0
        self.parent = parent

    def add(self, kind, name):
        if name not in self.names[kind]:
            self.names[kind].append(name)
        self.own.add(name)


class Writer:
    """One program under construction."""

    def __init__(self, choose, tensors=False, size=14):
        self.choose = choose
        self.tensors = tensors
        self.size = size  # statements left in the body under construction
        self.lines = []
        self.indent = 0
        self.counter = 0
        self.functions = []  # (name, number of parameters), callable with ints
        self.generator_functions = []
        self.classes = {}  # name → members
        self.managers = []

    # -- choices

    def pick(self, items):
        return items[self.choose(len(items))]

    def chance(self, percent):
        return self.choose(100) >= 100 - percent

    def fresh(self, prefix):
        self.counter += 1
        return f"{prefix}{self.counter}"

    def tag(self):
        self.counter += 1
        return str(self.counter)

    def put(self, text):
        self.lines.append("    " * self.indent + text)

    # -- expressions

    def expr(self, s, kind, depth=2):
        if self.chance(2):
            kind = self.pick(KINDS)
        return getattr(self, "e_" + kind)(s, depth)

    def variable(self, s, kind, default):
        names = s.names[kind]
        return self.pick(names) if names else default

    def e_int(self, s, depth):
        if depth <= 0:
            return self.pick(["0", "1", "2", "-1", "3", "7"]) if self.chance(40) else self.variable(s, "int", "1")
        d = depth - 1
        e = lambda kind="int": self.expr(s, kind, d)  # noqa: E731
        options = [
            lambda: self.variable(s, "int", "1"),
            lambda: self.pick(["0", "1", "2", "-1", "5"]),
            lambda: f"({e()} {self.pick(['+', '-', '&', '^', '|'])} {e()})",
            lambda: f"({e()} * {e()}) % 97",
            lambda: f"stop({self.tag()}, {e()})",
            lambda: f"({e()} if {e('bool')} else {e()})",
            lambda: f"len({e(self.pick(['list', 'dict', 'str', 'set', 'tuple']))})",
            lambda: f"{self.variable(s, 'list', '[1]')}[{self.pick(['0', '-1', '1', e()])}]",
            lambda: f"{self.variable(s, 'dict', '{}')}.get({e()}, {e()})",
            lambda: f"{self.variable(s, 'dict', '{1: 1}')}[{e()}]",
            lambda: self.call(s, d),
            lambda: f"({e()} // {e()})",
            lambda: f"sum({e('list')})",
            lambda: (
                f"sum({self.pick(['x', 'x * 2', 'stop(' + self.tag() + ', x)'])} for x in {e('list')}{self.pick(['', ' if x % 2'])})"
            ),
            lambda: f"-{e()}",
            lambda: f"int({e('bool')})",
            lambda: self.walrus(s, e()),
            lambda: f"{self.variable(s, 'func', 'abs')}({e()})",
            lambda: f"(lambda q, r={e()}: q + r)({e()})",
            lambda: f"max({e()}, {e()})",
            lambda: f"fail({self.tag()}, {e()})",
            lambda: f"({e()} {self.pick(['and', 'or'])} {e()})",
            lambda: f"next({self.generator(s, d)}, {e()})",
            lambda: f"{self.variable(s, 'list', '[1]')}.pop()",
            lambda: "G",
        ]
        if s.names["obj"]:
            options += [lambda: self.use_object(s, d)] * 4
        if self.tensors and s.names["tensor"]:
            options += [lambda: f"int({self.e_tensor(s, d)}.sum())", lambda: f"{self.e_tensor(s, 0)}.shape[0]"]
        if s.generator:
            options += [lambda: f"(yield {e()})"] * 3
        return self.pick(options)()

    def e_bool(self, s, depth):
        d = depth - 1
        e = lambda kind="int": self.expr(s, kind, d)  # noqa: E731
        options = [
            lambda: f"{e()} {self.pick(['<', '>', '==', '!=', '<=', '>='])} {e()}",
            lambda: f"{e()} % 2",
            lambda: f"{e(self.pick(['list', 'dict', 'set']))}",
            lambda: f"stop({self.tag()}, {e()} > {e()})",
        ]
        if depth > 0:
            options += [
                lambda: f"not {e('bool')}",
                lambda: f"({e('bool')} {self.pick(['and', 'or'])} {e('bool')})",
                lambda: f"{e()} {self.pick(['in', 'not in'])} {e(self.pick(['list', 'dict', 'set', 'tuple']))}",
                lambda: f"{e()} < {e()} <= {e()}",
                lambda: f"{e('list')} {self.pick(['==', '<', '!=', 'is', 'is not'])} {e('list')}",
                lambda: f"isinstance({e(self.pick(KINDS))}, {self.pick(['int', 'list', '(str, dict)'])})",
            ]
        if self.tensors and s.names["tensor"]:
            options += [lambda: f"{self.e_tensor(s, d)}.sum() > {e()}"]
        return self.pick(options)()

    def e_str(self, s, depth):
        if depth <= 0:
            return self.variable(s, "str", "'ab'")
        d = depth - 1
        e = lambda kind="str": self.expr(s, kind, d)  # noqa: E731
        return self.pick([
            lambda: self.variable(s, "str", "'ab'"),
            lambda: self.pick(["'x'", "''", "'abc'"]),
            lambda: f"f\"{{{self.variable(s, 'int', '1')}:>{self.pick([1, 3, 5])}}}-{{{self.variable(s, 'list', '[]')}!r}}\"",
            lambda: f"{e()}[:6].upper()",
            lambda: f"({e()} + {e()})[-6:]",
            lambda: f"str({e(self.pick(KINDS[:5]))})[:9]",
            lambda: f"{e()}[{e('int')}:{e('int')}]",
            lambda: f"'-'.join(map(str, {e('list')}))[:9]",
            lambda: f"stop({self.tag()}, {e()})",
            lambda: f"'%s' % ({e('int')},)",
        ])()  # fmt: skip

    def e_list(self, s, depth):
        if depth <= 0:
            return self.variable(s, "list", "[1, 2]")
        d = depth - 1
        e = lambda kind="list": self.expr(s, kind, d)  # noqa: E731
        x = self.fresh("x")
        return self.pick([
            lambda: self.variable(s, "list", "[1, 2]"),
            lambda: f"[{e('int')}, {e('int')}]",
            lambda: f"[{e('int')}, *{e()}][:6]",
            lambda: f"[{self.inner(s, x, d)} for {x} in {e()}{self.condition(s, x)}]",
            lambda: f"{e()}[{self.pick(['1', '-1', ''])}:{self.pick(['', '2', '-1'])}{self.pick(['', ':2', ':-1'])}]",
            lambda: f"sorted({e()}, key=lambda {x}: {self.pick(['-' + x, x + ' % 3', 'stop(' + self.tag() + ', ' + x + ')'])})",
            lambda: f"({e()} + {e()})[:6]",
            lambda: f"list({e('dict')}{self.pick(['', '.values()'])})",
            lambda: f"list(range({e('int')} % 5))",
            lambda: f"stop({self.tag()}, {e()})",
            lambda: f"poke({self.tag()}, {e()})",
            lambda: f"list(map({self.variable(s, 'func', 'abs')}, {e()}))",
            lambda: f"[{x} + y for {x}, y in zip({e()}, {e()})]",
            lambda: f"[{x} for y in ({e()}, {e()}) for {x} in y][:6]",
            lambda: f"list({self.generator(s, d)})",
            lambda: f"list(reversed({e()}))",
            lambda: f"[i * {x} for i, {x} in enumerate({e()})]",
            lambda: f"sorted({e('set')})",
            lambda: f"({e()} if {e('bool')} else {e()})",
            lambda: f"list(filter(lambda {x}: {self.inner(s, x, 0)}, {e()}))",
        ])()  # fmt: skip

    def inner(self, s, x, depth):
        """An int expression of a loop variable."""
        return self.pick([
            lambda: x,
            lambda: f"{x} + {self.variable(s, 'int', '1')}",
            lambda: f"stop({self.tag()}, {x})",
            lambda: f"{self.variable(s, 'func', 'abs')}({x})",
            lambda: f"fail({self.tag()}, {x})",
            lambda: f"({x} * 2) % 11",
            lambda: self.call(s, 0, x),
        ])()  # fmt: skip

    def condition(self, s, x):
        return self.pick(
            ["", "", f" if {x} % 2", f" if {x} > {self.variable(s, 'int', '1')}", f" if stop({self.tag()}, {x})"]
        )

    def e_dict(self, s, depth):
        if depth <= 0:
            return self.variable(s, "dict", "{1: 2}")
        d = depth - 1
        e = lambda kind="int": self.expr(s, kind, d)  # noqa: E731
        return self.pick([
            lambda: self.variable(s, "dict", "{1: 2}"),
            lambda: f"{{{e()}: {e()}, {e()}: {e()}}}",
            lambda: f"{{**{e('dict')}, {e()}: {e()}}}",
            lambda: f"{{x: {self.inner(s, 'x', d)} for x in {e('list')}}}",
            lambda: f"({e('dict')} | {e('dict')})",
            lambda: f"dict(zip({e('list')}, {e('list')}))",
            lambda: f"stop({self.tag()}, {e('dict')})",
            lambda: f"dict({e('dict')})",
            lambda: f"{{v: k for k, v in {e('dict')}.items()}}",
        ])()  # fmt: skip

    def e_set(self, s, depth):
        if depth <= 0:
            return self.variable(s, "set", "{1, 2}")
        d = depth - 1
        e = lambda kind="set": self.expr(s, kind, d)  # noqa: E731
        return self.pick([
            lambda: self.variable(s, "set", "{1, 2}"),
            # No expression of another kind: a function's place in a set depends on its address.
            lambda: f"{{{self.e_int(s, 0)}, {self.e_int(s, 0)}}}",
            lambda: f"{{{self.inner(s, 'x', d)} for x in {e('list')}}}",
            lambda: f"({e()} {self.pick(['|', '&', '-', '^'])} {e()})",
            lambda: f"set({e('list')})",
            lambda: f"({e('dict')}.keys() {self.pick(['|', '&', '-'])} {e()})",
        ])()  # fmt: skip

    def e_tuple(self, s, depth):
        if depth <= 0:
            return self.variable(s, "tuple", "(1, 2)")
        d = depth - 1
        e = lambda kind="int": self.expr(s, kind, d)  # noqa: E731
        return self.pick([
            lambda: self.variable(s, "tuple", "(1, 2)"),
            lambda: f"({e()}, {e('list')})",
            lambda: f"({e()}, {e('str')}, {e()})",
            lambda: f"tuple({e('list')})",
            lambda: f"divmod({e()}, {e()})",
            lambda: f"stop({self.tag()}, ({e()}, {e()}))",
            lambda: f"(*{e('list')}, {e()})",
        ])()  # fmt: skip

    def e_func(self, s, depth):
        return self.pick([
            lambda: self.variable(s, "func", "abs"),
            lambda: f"(lambda q: {self.pick(['q', 'q + ' + self.variable(s, 'int', '1'), 'stop(' + self.tag() + ', q)'])})",
            lambda: f"functools.partial(max, {self.expr(s, 'int', depth - 1)})",
            lambda: "abs",
        ])()  # fmt: skip

    def e_obj(self, s, depth):
        return self.variable(s, "obj", "None")

    def e_tensor(self, s, depth):
        if depth <= 0 or not s.names["tensor"]:
            return self.variable(s, "tensor", "torch.ones(3)")
        d = depth - 1
        e = lambda kind="tensor": getattr(self, "e_" + kind)(s, d)  # noqa: E731
        return self.pick([
            lambda: self.variable(s, "tensor", "torch.ones(3)"),
            lambda: f"({e()} {self.pick(['+', '-', '*'])} {self.pick([lambda: e('int'), e])()})",
            lambda: f"torch.relu({e()})",
            lambda: f"{e()}.{self.pick(['clone()', 'abs()', 'view(3)', 'neg()', 'detach()'])}",
            lambda: f"{self.variable(s, 'tensor', 'torch.ones(3)')}.{self.pick(['add_', 'mul_', 'sub_'])}({self.pick(['1', '2', '0.5'])})",
            lambda: f"torch.stack([{e()}, {e()}]).sum(0)",
            lambda: f"stop({self.tag()}, {e()})",
            lambda: f"torch.where({e()} > 0, {e()}, {e()})",
            lambda: f"({e()} if {self.expr(s, 'bool', d)} else {e()})",
            lambda: f"{e()}[{self.pick(['[2, 0, 1]', ':', '...'])}]",
        ])()  # fmt: skip

    def walrus(self, s, value):
        name = self.fresh("w")
        text = f"({name} := {value})"
        s.add("int", name)
        return text

    def call(self, s, depth, first=None):
        if not self.functions:
            return f"abs({first or self.expr(s, 'int', depth)})"
        name, (positional, defaults, star, keyword) = self.pick(self.functions)
        args = [first or self.expr(s, "int", depth)] if positional else []
        args += [self.expr(s, "int", depth) for _ in range(max(0, positional - 1))]
        if defaults and self.chance(40):
            args.append(self.expr(s, "int", depth))
        if star and self.chance(40):
            args.append(
                f"*{self.expr(s, 'list', 0)}" if defaults == 0 or len(args) > positional else self.expr(s, "int", 0)
            )
        if keyword and self.chance(50):
            args.append(f"key={self.expr(s, 'int', depth)}")
        return f"{name}({', '.join(args)})"

    def generator(self, s, depth):
        options = [lambda: f"({self.inner(s, 'x', depth)} for x in {self.expr(s, 'list', depth)})"]
        if self.generator_functions:
            options.append(lambda: f"{self.pick(self.generator_functions)}({self.expr(s, 'int', depth)})")
        options.append(lambda: f"iter({self.expr(s, 'list', depth)})")
        if s.names["gen"]:
            options += [lambda: self.variable(s, "gen", "iter(())")] * 2
        return self.pick(options)()

    def use_object(self, s, depth):
        o = self.pick(s.names["obj"])
        members = self.classes.get(s.classes.get(o), ())
        e = lambda kind="int": self.expr(s, kind, depth)  # noqa: E731
        options = [lambda: f"{o}.v", lambda: f"{o}.m({e()})", lambda: f"{o}.k", lambda: f"len({o}.items)"]
        extra = {
            "__add__": lambda: f"({o} + {e()})",
            "__radd__": lambda: f"({e()} + {o})",
            "__lt__": lambda: f"int({o} < {e()})",
            "__eq__": lambda: f"int({o} == {self.pick([o, e()])})",
            "__len__": lambda: f"len({o})",
            "__bool__": lambda: f"(1 if {o} else 2)",
            "__getitem__": lambda: f"{o}[{e()}]",
            "__contains__": lambda: f"int({e()} in {o})",
            "__iter__": lambda: f"sum({o})",
            "__call__": lambda: f"{o}({e()})",
            "__getattr__": lambda: f"{o}.unknown",
            "__neg__": lambda: f"(-{o})",
            "__repr__": lambda: f"len(repr({o}))",
            "__hash__": lambda: f"{{{o}: {e()}}}[{o}]",
            "p": lambda: f"{o}.p",
            "c": lambda: f"{o}.c({e()})",
            "s": lambda: f"{o}.s({e()})",
            "g": lambda: f"sum({o}.g({e()}))",
            "d": lambda: f"{o}.d",
        }
        options += [extra[m] for m in members if m in extra]
        return self.pick(options)()

    # -- statements

    def body(self, s, depth, most=4):
        """An indented block with at least one statement."""
        self.indent += 1
        before = len(self.lines)
        for _ in range(1 + self.choose(most)):
            if self.size <= 0:
                break
            self.statement(s, depth)
        if len(self.lines) == before:
            self.put("pass")
        self.indent -= 1

    def statement(self, s, depth):
        self.size -= 1
        simple = [
            self.s_stop, self.s_assign, self.s_assign, self.s_augmented, self.s_mutate, self.s_mutate, self.s_unpack, self.s_global,
            self.s_object, self.s_generator, self.s_exc_info, self.s_delete, self.s_raise,
        ]  # fmt: skip
        if self.tensors:
            simple += [self.s_tensor] * 5
        if s.loops:
            simple += [self.s_break]
        if s.generator:
            simple += [self.s_yield] * 3
        if self.chance(6):
            simple += [self.s_return]
        compound = [
            self.s_if,
            self.s_for,
            self.s_try,
            self.s_with,
            self.s_while,
            self.s_def,
            self.s_match,
            self.s_try,
            self.s_for,
        ]
        if depth > 0 and self.chance(40):
            self.pick(compound)(s, depth - 1)
        else:
            self.pick(simple)(s)

    def target(self, s, kind):
        """A variable to assign: an own one, one of the enclosing function (nonlocal), or a new one."""
        known = [n for n in s.names[kind] if n in s.own]
        if known and self.chance(70):
            return self.pick(known)
        return self.fresh(kind[0])

    def s_stop(self, s):
        if self.chance(20):
            self.put(f"{self.pick(['poke', 'fail'])}({self.tag()}, {self.expr(s, self.pick(['list', 'int']), 1)})")
        else:
            self.put(f"stop({self.tag()}, {self.expr(s, self.pick(KINDS[:5]), 1)})")

    def s_assign(self, s):
        kind = self.pick(KINDS)
        name = self.target(s, kind)
        self.put(f"{name} = {self.expr(s, kind, 2)}")
        s.add(kind, name)

    def s_augmented(self, s):
        kind = self.pick(["int", "int", "list", "set", "dict", "str"])
        names = [n for n in s.names[kind] if n in s.own]
        op = {
            "int": self.pick(["+=", "-=", "^="]),
            "list": "+=",
            "set": self.pick(["|=", "&=", "-="]),
            "dict": "|=",
            "str": "+=",
        }[kind]
        value = self.expr(s, kind, 1)
        if kind in ("list", "str"):
            value = f"({value})[:2]"
        if kind == "int" and self.chance(30):
            self.put(f"{self.variable(s, 'list', '[0]')}[{self.pick(['0', '-1'])}] {op} {value}")
        elif kind == "int" and self.chance(20):
            self.put(f"{self.variable(s, 'dict', '{}')}[{self.expr(s, 'int', 0)}] {op} {value}")
        elif names:
            self.put(f"{self.pick(names)} {op} {value}")
        else:
            self.s_assign(s)

    def s_mutate(self, s):
        lst, dct, st = self.variable(s, "list", "[]"), self.variable(s, "dict", "{}"), self.variable(s, "set", "set()")
        e = lambda kind="int": self.expr(s, kind, 1)  # noqa: E731
        self.put(
            self.pick([
                lambda: f"{lst}.append({e()})",
                lambda: f"{dct}[{e()}] = {e()}",
                lambda: f"{lst}[{self.pick(['0', '-1', e()])}] = {e()}",
                lambda: f"{lst}.extend({e('list')}[:3])",
                lambda: f"{lst}.insert({e()}, {e()})",
                lambda: f"{lst}[{self.pick(['1:', ':1', '::2', '1:2'])}] = {e('list')}[:2]",
                lambda: f"{lst}.{self.pick(['pop()', 'reverse()', 'sort()', 'clear()'])}",
                lambda: f"{dct}.update({e('dict')})",
                lambda: f"{dct}.{self.pick(['pop', 'setdefault'])}({e()}, {e()})",
                lambda: f"{st}.{self.pick(['add', 'discard', 'remove'])}({e()})",
                lambda: f"del {lst}[{self.pick(['0', '-1', '1:', e()])}]",
                lambda: f"del {dct}[{e()}]",
                lambda: f"GL.append({e()})",
                lambda: f"GD[{e()}] = {e()}",
            ])()
        )  # fmt: skip

    def s_unpack(self, s):
        a, b = self.target(s, "int"), self.target(s, "int")
        rest = self.target(s, "list")
        value = self.expr(s, self.pick(["list", "list", "tuple", "dict"]), 1)
        form = self.choose(4)
        if form == 0:
            self.put(f"{a}, {b} = {self.expr(s, 'int', 1)}, {self.expr(s, 'int', 1)}")
        elif form == 1:
            self.put(f"{a}, *{rest} = {value}")
            s.add("list", rest)
        elif form == 2:
            self.put(f"*{rest}, {b} = {value}")
            self.put(f"{a} = {b}")
            s.add("list", rest)
        else:
            self.put(f"{a} = {b} = {self.expr(s, 'int', 2)}")
        s.add("int", a)
        s.add("int", b)

    def s_global(self, s):
        self.put(self.pick([f"bump({self.expr(s, 'int', 1)})", f"GL[0] += {self.expr(s, 'int', 0)}", "GL.append(G)"]))

    def s_object(self, s):
        if not self.classes:
            return self.s_assign(s)
        if not s.names["obj"] or self.chance(30):
            cls = self.pick(list(self.classes))
            name = self.fresh("o")
            self.put(f"{name} = {cls}({self.expr(s, 'int', 1)})")
            s.add("obj", name)
            s.classes[name] = cls
            return None
        o = self.pick(s.names["obj"])
        members = self.classes.get(s.classes.get(o), ())
        e = lambda kind="int": self.expr(s, kind, 1)  # noqa: E731
        options = [
            lambda: f"{o}.v = {e()}",
            lambda: f"{o}.v += {e()}",
            lambda: f"{o}.items.append({e()})",
            lambda: f"stop({self.tag()}, {o})",
            lambda: f"{o}.items = {e('list')}",
            lambda: f"stop({self.tag()}, {self.use_object(s, 1)})",
            lambda: f"{o}.{self.pick(['k', 'extra'])} = {e()}",
            lambda: f"del {o}.{self.pick(['k', 'extra', 'v'])}",
            lambda: f"{self.variable(s, 'list', '[]')}.append({o})",
            lambda: f"type({o}).k = {e()}",
        ]
        if "__setitem__" in members:
            options.append(lambda: f"{o}[{e()}] = {e()}")
        if "__delitem__" in members:
            options.append(lambda: f"del {o}[{e()}]")
        if "__iadd__" in members and o in s.own:
            options.append(lambda: f"{o} += {e()}")
        if "p" in members:
            options.append(lambda: f"{o}.p = {e()}")
        if "d" in members:
            options.append(lambda: f"{o}.d = {e()}")
        return self.put(self.pick(options)())

    def s_generator(self, s):
        if not s.names["gen"] or self.chance(30):
            name = self.fresh("g")
            value = self.generator(s, 1)
            self.put(f"{name} = {value}")
            s.add("gen", name)
            if not value.startswith("iter(") and value not in s.names["gen"]:
                s.generators.add(name)
            return
        g = self.pick(s.names["gen"])
        e = lambda: self.expr(s, "int", 1)  # noqa: E731
        options = [
            lambda: f"stop({self.tag()}, next({g}, None))",
            lambda: f"{self.pick(['l0', 'GL'])}.append(next({g}))",
            lambda: f"stop({self.tag()}, list({g}))",
        ]
        if g in s.generators:
            options += [
                lambda: f"stop({self.tag()}, {g}.send({self.pick(['None', e()])}))",
                lambda: f"{g}.close()",
                lambda: f"stop({self.tag()}, {g}.throw({self.pick(ERRORS)}({e()})))",
            ]
        self.put(self.pick(options)())

    def s_exc_info(self, s):
        self.put(self.pick([f"stop({self.tag()}, sys.exc_info()[0])", f"stop({self.tag()}, repr(sys.exc_info()[1]))"]))

    def s_delete(self, s):
        names = [n for n in s.names["int"] if n in s.own and n not in s.declared]
        if names and self.chance(30):
            self.put(f"del {self.pick(names)}")
        else:
            self.s_mutate(s)

    def s_raise(self, s):
        if not self.chance(25):
            return self.s_stop(s)
        error = f"{self.pick(ERRORS)}({self.expr(s, 'int', 1)})"
        options = [f"raise {error}", f"if {self.expr(s, 'bool', 1)}: raise {error}", f"raise {self.pick(ERRORS)}"]
        if s.handler:
            options += [
                "raise",
                f"raise {error} from err",
                f"raise {error} from None",
                "err.add_note('n')",
                "raise err",
            ]
        options += [f"assert {self.expr(s, 'bool', 1)}, {self.expr(s, 'int', 0)}"]
        return self.put(self.pick(options))

    def s_break(self, s):
        word = self.pick(["break", "continue"])
        self.put(f"if {self.expr(s, 'bool', 1)}: {word}" if self.chance(80) else word)

    def s_yield(self, s):
        self.put(
            self.pick([
                lambda: f"yield {self.expr(s, 'int', 1)}",
                lambda: f"stop({self.tag()}, (yield {self.expr(s, 'int', 1)}))",
                lambda: f"yield from {self.pick([lambda: self.expr(s, 'list', 1), lambda: self.generator(s, 1)])()}",
                lambda: f"stop({self.tag()}, (yield from {self.generator(s, 1)}))",
            ])()
        )  # fmt: skip

    def s_return(self, s):
        self.put(f"return {self.expr(s, self.pick(['int', 'list']) if not s.finals else 'int', 1)}")

    def s_tensor(self, s):
        t = self.variable(s, "tensor", "torch.ones(3)")
        form = self.choose(6)
        if form == 0:
            name = self.fresh("t")
            self.put(f"{name} = {self.e_tensor(s, 2)}")
            s.add("tensor", name)
        elif form == 1:
            self.put(f"{t}.{self.pick(['add_', 'mul_', 'sub_'])}({self.e_tensor(s, 1)})")
        elif form == 2:
            self.put(f"{t}[{self.pick(['0', '-1', '1:'])}] = {self.expr(s, 'int', 1)}")
        elif form == 3:
            own = [n for n in s.names["tensor"] if n in s.own] or [t]
            self.put(
                f"{self.pick(own)} {self.pick(['+=', '*=', '-='])} {self.e_tensor(s, 1)}"
                if t in s.own
                else f"stop({self.tag()}, {t})"
            )
        elif form == 4:
            self.put(f"{self.pick(['GL', 'l0'])}.append({self.e_tensor(s, 1)})")
        else:
            self.put(f"stop({self.tag()}, {self.e_tensor(s, 2)})")

    # compound statements

    def s_if(self, s, depth):
        self.put(f"if {self.expr(s, 'bool', 2)}:")
        self.body(s, depth, 3)
        if self.chance(30):
            self.put(f"elif {self.expr(s, 'bool', 1)}:")
            self.body(s, depth, 2)
        if self.chance(50):
            self.put("else:")
            self.body(s, depth, 3)

    def s_for(self, s, depth):
        x = self.fresh("x")
        e = lambda kind: self.expr(s, kind, 1)  # noqa: E731
        form = self.choose(7)
        if form == 0:
            self.put(f"for {x} in range({self.pick(['2', '3', '1'])}):")
        elif form == 1:
            self.put(f"for {x} in {e('list')}[:4]:")
        elif form == 2:
            y = self.fresh("y")
            self.put(f"for {x}, {y} in {self.pick(['list(', '('])}{self.variable(s, 'dict', '{}')}.items()):")
            s.add("int", y)
        elif form == 3:
            self.put(f"for {x} in {self.generator(s, 1)}:")
        elif form == 4:
            y = self.fresh("y")
            self.put(f"for {y}, {x} in enumerate({e('list')}[:3], {self.choose(3)}):")
            s.add("int", y)
        elif form == 5:
            y = self.fresh("y")
            self.put(f"for {x}, {y} in zip({e('list')}[:3], {e('list')}):")
            s.add("int", y)
        else:
            self.put(f"for {x} in sorted({e('set')})[:3]:")
        s.add("int", x)
        s.loops += 1
        self.body(s, depth, 3)
        s.loops -= 1
        if self.chance(25):
            self.put("else:")
            self.body(s, depth, 2)

    def s_while(self, s, depth):
        n = self.fresh("n")
        self.put(f"{n} = 0")
        condition = f" and {self.expr(s, 'bool', 1)}" if self.chance(40) else ""
        self.put(f"while {n} < {1 + self.choose(3)}{condition}:")
        self.indent += 1
        self.put(f"{n} += 1")
        self.indent -= 1
        s.loops += 1
        self.body(s, depth, 3)
        s.loops -= 1
        if self.chance(25):
            self.put("else:")
            self.body(s, depth, 2)

    def s_try(self, s, depth):
        self.put("try:")
        self.body(s, depth, 4)
        handlers = self.choose(3)
        final = self.chance(35)
        if not handlers and not final:
            handlers = 1
        for _ in range(handlers):
            self.put(f"except {self.pick(CAUGHT)} as err:")
            s.handler += 1
            self.indent += 1
            self.put(f"stop({self.tag()}, err)" if self.chance(50) else "l0.append(len(err.args))")
            self.indent -= 1
            self.body(s, depth, 2)
            s.handler -= 1
        if handlers and self.chance(20):
            self.put("else:")
            self.body(s, depth, 2)
        if final:
            self.put("finally:")
            loops, s.loops = s.loops, s.loops if self.chance(30) else 0
            self.body(s, depth, 2)
            s.loops = loops

    def s_with(self, s, depth):
        managers = ["CM"] + self.managers
        name = self.fresh("i")
        use = f"{self.pick(managers)}({self.expr(s, 'int', 1)})"
        if self.chance(20):
            use += f", {self.pick(managers)}({self.expr(s, 'int', 0)})"
        self.put(f"with {use} as {name}:")
        s.add("int", name)
        self.body(s, depth, 3)

    def s_match(self, s, depth):
        self.put(f"match {self.expr(s, self.pick(['int', 'list', 'tuple', 'dict']), 1)}:")
        self.indent += 1
        for _ in range(1 + self.choose(3)):
            a, rest = self.fresh("i"), self.fresh("l")
            guard = f" if {self.expr(s, 'bool', 1)}" if self.chance(30) else ""
            form = self.choose(6)
            pattern = [
                "0 | 1", f"[{a}, *{rest}]", f"{{1: {a}, **_r}}", f"int({a})", f"({a}, str())", f"[{a}, 2]",
            ][form]  # fmt: skip
            if form:
                s.add("int", a)
            self.put(f"case {pattern}{guard}:")
            self.body(s, depth, 2)
        if self.chance(50):
            self.put("case _:")
            self.body(s, depth, 2)
        self.indent -= 1

    def s_def(self, s, depth):
        """A closure over the names so far, added to the callable names."""
        generator = self.chance(25)
        name = self.fresh("gf" if generator else "f")
        inner = Scope(s, generator)
        nonlocals = [n for n in s.names["int"] if n in s.own and self.chance(25)]
        outer = list(s.own)
        parameter = self.fresh("p")
        if not generator and self.chance(15):
            self.put(f"@{self.pick(['wrapper', 'functools.wraps(abs)', 'stopping'])}")
        self.put(f"def {name}({parameter}{self.pick(['', ', q=' + self.expr(s, 'int', 0)])}):")
        self.indent += 1
        if nonlocals:
            self.put(f"nonlocal {', '.join(nonlocals)}")
        self.indent -= 1
        inner.add("int", parameter)
        for n in nonlocals:
            inner.own.add(n)
            inner.declared.add(n)
        del outer
        self.body(inner, depth, 3)
        self.indent += 1
        if generator:
            self.put(f"yield {parameter}")
        self.put(f"return {self.expr(inner, 'int', 1)}")
        self.indent -= 1
        if generator:
            variable = self.fresh("g")
            self.put(f"{variable} = {name}({self.expr(s, 'int', 0)})")
            s.add("gen", variable)
            s.generators.add(variable)
        else:
            s.add("func", name)

    # -- the module

    def function(self, name, generator=False, method=None, size=5):
        """A module-level function or a method that takes ints and returns one."""
        s = Scope(generator=generator)
        positional, defaults, star, keyword = (
            (1, 0, 0, 0) if method or generator else (self.pick([1, 1, 2, 0]), *(self.choose(2) for _ in range(3)))
        )
        parameters = ["self"] if method == "self" else ["cls"] if method == "cls" else []
        names = [self.fresh("a") for _ in range(positional)]
        parameters += names
        if defaults:
            names.append(self.fresh("a"))
            parameters.append(f"{names[-1]}={self.pick(['1', 'len(GL)'])}")
        if star:
            parameters.append("*rest")
            s.add("list", "list_rest")
        if keyword:
            parameters.append("key=4" if star else "*, key=4")
            s.add("int", "key")
        for n in names:
            s.add("int", n)
        self.put(f"def {name}({', '.join(parameters)}):")
        self.indent += 1
        if star:
            self.put("list_rest = list(rest)")
        self.put("l0 = [1, 2]")
        s.add("list", "l0")
        self.indent -= 1
        self.size = size
        self.body(s, 2, 4)
        self.indent += 1
        if generator and not any("yield" in line for line in self.lines[-6:]):
            self.put(f"yield {self.expr(s, 'int', 1)}")
        if method == "self" and self.chance(60):
            self.put(self.pick(["self.v = ", "self.v += "]) + self.expr(s, "int", 1))
        self.put(f"return {self.expr(s, 'int', 2)}")
        self.indent -= 1
        return positional, defaults, star, keyword

    def make_class(self):
        name = self.fresh("C")
        bases = [c for c in self.classes if self.chance(50)][:2]
        members = {m for b in bases for m in self.classes[b]}
        slots = not bases and self.chance(15)
        self.put(f"class {name}{'(' + ', '.join(reversed(bases)) + ')' if bases else ''}:")
        self.indent += 1
        if slots:
            self.put("__slots__ = ('v', 'items', 'extra')")
        else:
            self.put(f"k = {self.choose(5)}")
        self.put("def __init__(self, v):")
        self.indent += 1
        if bases and self.chance(60):
            self.put("super().__init__(v)")
        self.put(self.pick(["self.v = v", "self.v = stop('init', v)"]))
        self.put("self.items = [v]")
        self.indent -= 1
        self.simple_method("m", ["x"], self.pick(["self.v + x", "stop('m', x)", "len(self.items)"]), bases)
        for member in ("p", "c", "s", "g", "d", *DUNDERS):
            if self.chance(22):
                members.add(member)
                self.member(member)
        self.indent -= 1
        self.classes[name] = sorted(members)

    def simple_method(self, name, parameters, value, bases=()):
        self.put(f"def {name}({', '.join(['self', *parameters])}):")
        self.indent += 1
        if self.chance(30):
            self.put(
                self.pick(
                    [
                        "self.items.append(len(self.items))",
                        "self.v = self.v + 1",
                        f"stop('{name}', self.v)",
                        f"fail('{name}', self.v)",
                    ]
                )
            )
        if bases and self.chance(50):
            self.put(f"return super().{name}({', '.join(parameters)})")
        self.put(f"return {value}")
        self.indent -= 1

    def member(self, member):
        stop = self.chance(30)

        def value(text):
            return f"stop('{member}', {text})" if stop else text

        if member == "p":
            self.put("@property")
            self.simple_method("p", [], value("self.v"))
            self.put("@p.setter")
            self.put("def p(self, value):")
            self.put(f"    self.v = {value('value')}")
        elif member == "c":
            self.put("@classmethod")
            self.put("def c(cls, x):")
            self.put(f"    return {value('x + len(cls.__name__)')}")
        elif member == "s":
            self.put("@staticmethod")
            self.put("def s(x):")
            self.put(f"    return {value('x * 2 % 7')}")
        elif member == "g":
            self.put("def g(self, x):")
            self.put(f"    yield {value('self.v')}")
            self.put("    yield from self.items")
            self.put("    return x")
        elif member == "d":
            self.put("d = Descriptor()")
        elif member == "__iter__":
            self.put("def __iter__(self):")
            self.put(f"    {self.pick(['return iter(self.items)', 'yield self.v', 'yield from self.items'])}")
        elif member == "__setattr__":
            self.put("def __setattr__(self, name, value):")
            self.put("    object.__setattr__(self, name, value)")
            if stop:
                self.put("    stop('setattr', name)")
        elif member == "__getattr__":
            self.put("def __getattr__(self, name):")
            self.put(f"    {self.pick(['return len(name)', 'raise AttributeError(name)'])}")
        elif member == "__iadd__":
            self.simple_method(member, ["other"], value("self"))
        elif member in ("__add__", "__radd__", "__getitem__"):
            self.simple_method(member, ["other"], value("self.v + other"))
        elif member == "__eq__":
            self.simple_method(member, ["other"], value("self.v == other"))
            self.put("__hash__ = object.__hash__")
        elif member in ("__lt__", "__contains__"):
            self.simple_method(member, ["other"], value("self.v < other"))
        elif member == "__setitem__":
            self.simple_method(member, ["key", "value"], value("self.items.append(value)"))
        elif member == "__delitem__":
            self.simple_method(member, ["key"], value("self.items.pop()"))
        elif member == "__call__":
            self.simple_method(member, ["x"], value("x + 1"))
        elif member == "__repr__":
            self.simple_method(member, [], value("f'<{self.v}>'"))
        elif member == "__hash__":
            self.simple_method(member, [], value("hash(self.v)"))
        elif member == "__len__":
            self.simple_method(member, [], value("len(self.items)"))
        elif member == "__bool__":
            self.simple_method(member, [], value("self.v > 1"))
        elif member == "__neg__":
            self.simple_method(member, [], value("-self.v"))

    def make_manager(self):
        name = self.fresh("M")
        self.put(f"class {name}:")
        self.indent += 1
        self.put("def __init__(self, v):")
        self.put("    self.v = v")
        self.put("def __enter__(self):")
        self.indent += 1
        if self.chance(40):
            self.put(self.pick(["stop('enter', self.v)", "GL.append(self.v)", "fail('enter', self.v)"]))
        self.put("return self.v")
        self.indent -= 1
        self.put("def __exit__(self, kind, error, tb):")
        self.indent += 1
        if self.chance(60):
            self.put(
                self.pick(
                    [
                        "stop('exit', error)",
                        "GL.append(self.v)",
                        "stop('exit', sys.exc_info()[0])",
                        "fail('exit', self.v)",
                    ]
                )
            )
        self.put(f"return {self.pick(['False', 'True', 'self.v > 1', 'stop(0, kind is ValueError)', 'None'])}")
        self.indent -= 1
        self.indent -= 1
        self.managers.append(name)

    def make_contextmanager(self):
        name = self.fresh("cm")
        self.put("@contextlib.contextmanager")
        self.put(f"def {name}(v):")
        self.indent += 1
        self.put(self.pick(["stop('enter', v)", "GL.append(v)", "pass"]))
        form = self.choose(3)
        if form == 0:
            self.put("yield v")
            self.put(self.pick(["GL.append(v)", "stop('exit', v)"]))
        else:
            self.put("try:")
            self.put("    yield v")
            self.put("finally:" if form == 1 else f"except {self.pick(CAUGHT)} as err:")
            self.put(
                "    "
                + self.pick(
                    ["stop('exit', sys.exc_info()[0])", "GL.append(v)", "raise Custom(v)" if form == 2 else "pass"]
                )
            )
        self.indent -= 1
        self.managers.append(name)

    def program(self):
        for line in HEADER.strip("\n").split("\n"):
            self.put(line)
        for _ in range(self.choose(3)):
            self.make_class()
        if self.chance(50):
            self.make_manager()
        if self.chance(25):
            self.make_contextmanager()
        for _ in range(self.choose(4)):
            if self.chance(30):
                name = self.fresh("gen")
                self.function(name, generator=True)
                self.generator_functions.append(name)
            else:
                name = self.fresh("fn")
                self.functions.append((name, self.function(name)))
        s = Scope()
        parameters = {"a": "int", "b": "int", "l0": "list", "l1": "list", "d0": "dict", "s0": "str", "st": "set"}
        if self.tensors:
            parameters |= {"t0": "tensor", "t1": "tensor"}
        for name, kind in parameters.items():
            s.add(kind, name)
        if self.classes:
            parameters["o0"] = "obj"
            s.add("obj", "o0")
            s.classes["o0"] = self.pick(list(self.classes))
        self.put(f"def program({', '.join(parameters)}):")
        self.size = 6 + self.choose(12)
        self.body(s, 3, 9)
        self.indent += 1
        every = sum(s.names.values(), [])
        returned = [self.pick(every if self.chance(20) else list(parameters)) for _ in range(self.choose(6))]
        result = ", ".join(["a", *returned])
        self.put(f"return [{result}]" if self.chance(85) else f"return {self.expr(s, 'list', 2)}")
        self.indent -= 1
        self.arguments(parameters, s)
        return "\n".join(self.lines) + "\n"

    def arguments(self, parameters, s):
        """`make_args(k)`: three sets of arguments, with aliases among them."""
        self.put("def make_args(k):")
        self.indent += 1
        alias = self.choose(3)
        self.put(f"l = [{', '.join(str(self.choose(6)) for _ in range(self.choose(4) + 1))}]")
        values = {
            "int": lambda: f"{self.choose(6)}{self.pick([' + k', '', ' - k'])}",
            "list": lambda: f"[{', '.join(str(self.choose(6)) for _ in range(self.choose(4)))}]",
            "dict": lambda: f"{{{', '.join(f'{self.choose(6)}: {self.choose(6)}' for _ in range(self.choose(4)))}}}",
            "str": lambda: f"'{self.pick(['', 'ab', 'Xyz'])}'",
            "set": lambda: self.pick(["set()", "{1}", "{1, 2, 5}"]),
            "tensor": lambda: f"torch.tensor([1., {self.choose(4)}. - k, -{self.choose(4)}.5])",
        }
        parts = []
        for name, kind in parameters.items():
            if name == "l0":
                text = "l"
            elif name == "l1" and alias == 1:
                text = "l"
            elif name == "d0" and alias == 2:
                text = "{1: l}"
            elif kind == "obj":
                text = f"{s.classes[name]}({self.choose(4)})"
            elif name == "t1" and alias:
                text = f"t{self.pick(['', '.view(3)', '[:]'])}"
            else:
                text = values[kind]()
            if name == "t0":
                self.put(f"t = {text}")
                text = "t"
            parts.append(text)
        self.put(f"return [{', '.join(parts)}]")
        self.indent -= 1


HEADER = """
G = 3
GL = [1, 2]
GD = {}
class Custom(Exception):
    pass
class Descriptor:
    def __get__(self, obj, owner):
        return self if obj is None else len(obj.items)
    def __set__(self, obj, value):
        obj.items.append(value)
class CM:
    def __init__(self, v):
        self.v = v
    def __enter__(self):
        GL.append(self.v)
        return self.v
    def __exit__(self, kind, error, tb):
        GL.append(-1)
        return self.v == 2
def bump(n):
    global G
    G = (G + n) % 50
    return G
def wrapper(fn):
    @functools.wraps(fn)
    def inner(*args, **kwargs):
        GL.append(len(args))
        return fn(*args, **kwargs)
    return inner
def stopping(fn):
    def inner(*args):
        try:
            return stop('call', fn(*args))
        finally:
            stop('done', args)
    return inner
"""


def build(choose, tensors=False):
    """The text of one program."""
    return Writer(choose, tensors).program()
