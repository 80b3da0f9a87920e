"""Expressions, by the kind of their value; most are of the kind that is asked for."""

from .library import Library
from .scope import KINDS
from .tensors import Tensors


class Expressions(Library, Tensors):
    """Text of expressions."""

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
        if self.chance(40):
            options = self.more_int(s, d)
        if s.names["obj"]:
            options += [lambda: self.use_object(s, d)] * 4
        if self.tensors and s.names["tensor"]:
            options += [lambda: self.tensor_int(s, d)] * 3
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
            if self.chance(30):
                options = self.more_bool(s, d)
        if self.tensors and s.names["tensor"]:
            options += [lambda: self.tensor_bool(s, d)] * 2
        return self.pick(options)()

    def e_str(self, s, depth):
        if depth <= 0:
            return self.variable(s, "str", "'ab'")
        d = depth - 1
        e = lambda kind="str": self.expr(s, kind, d)  # noqa: E731
        if self.chance(40):
            return self.pick(self.more_str(s, d))()
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
        if self.chance(40):
            return self.pick(self.more_list(s, d, x))()
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
        if self.chance(40):
            return self.pick(self.more_dict(s, d))()
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
        if self.chance(40):
            return self.pick(self.more_set(s, d))()
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
        if self.chance(40):
            return self.pick(self.more_tuple(s, d))()
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
        if depth > 0 and self.chance(40):
            return self.pick(self.more_func(s, depth - 1))()
        return self.pick([
            lambda: self.variable(s, "func", "abs"),
            lambda: f"(lambda q: {self.pick(['q', 'q + ' + self.variable(s, 'int', '1'), 'stop(' + self.tag() + ', q)'])})",
            lambda: f"functools.partial(max, {self.expr(s, 'int', depth - 1)})",
            lambda: "abs",
        ])()  # fmt: skip

    def e_obj(self, s, depth):
        return self.variable(s, "obj", "None")

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
        if depth > 0 and self.chance(40):
            options = self.iterators(s, depth - 1)
        if s.names["gen"]:
            options += [lambda: self.variable(s, "gen", "iter(())")] * 2
        return self.pick(options)()

    def use_object(self, s, depth):
        o = self.pick(s.names["obj"])
        if self.chance(10):
            return f"{o}.{self.pick(['named', '__class__.k', '__class__.__mro__', '__dict__', 'm.__self__.v', 'seen'])}"
        members = self.classes.get(s.classes.get(o), ())
        e = lambda kind="int": self.expr(s, kind, depth)  # noqa: E731
        options = [lambda: f"{o}.v", lambda: f"{o}.m({e()})", lambda: f"{o}.k", lambda: f"len({o}.items)"]
        extra = {
            "__add__": lambda: f"({o} + {e()})",
            "__radd__": lambda: f"({e()} + {o})",
            "__lt__": lambda: f"int({o} < {e()})",
            "__eq__": lambda: self.pick(
                [f"int({o} == {self.pick([o, e()])})", f"len({{{o}, {o}}})", f"{{{o}: {e()}, {o}: {e()}}}[{o}]"]
            ),
            "__len__": lambda: f"len({o})",
            "__bool__": lambda: f"(1 if {o} else 2)",
            "__getitem__": lambda: f"{o}[{e()}]",
            "__contains__": lambda: f"int({e()} in {o})",
            "__iter__": lambda: f"sum({o})",
            "__call__": lambda: f"{o}({e()})",
            "__getattr__": lambda: f"{o}.unknown",
            "__neg__": lambda: f"(-{o})",
            "__repr__": lambda: f"len(repr({o}))",
            "__hash__": lambda: self.pick(
                [
                    f"{{{o}: {e()}}}[{o}]",
                    f"hash({o}) % 9",
                    f"int({o} in {{{o}, {e()}}})",
                    f"int(collections.OrderedDict([({o}, {e()})]) == {{{o}: {e()}}})",
                ]
            ),
            "__sub__": lambda: f"({o} - {e()})",
            "__rsub__": lambda: f"({e()} - {o})",
            "__rmul__": lambda: f"({e()} * {o})",
            "__gt__": lambda: f"int({o} > {self.pick([o, e()])})",
            "__next__": lambda: f"next({o}, {e()})",
            "__index__": lambda: f"[4, 5, 6][{o}]",
            "__str__": lambda: f"len(str({o}))",
            "__format__": lambda: f"len(f'{{{o}:>4}}')",
            "__reversed__": lambda: f"sum(reversed({o}))",
            "__delattr__": lambda: f"delattr({o}, 'extra')",
            "p": lambda: f"{o}.p",
            "c": lambda: f"{o}.c({e()})",
            "s": lambda: f"{o}.s({e()})",
            "g": lambda: f"sum({o}.g({e()}))",
            "d": lambda: f"{o}.d",
        }
        options += [extra[m] for m in members if m in extra]
        return self.pick(options)()
