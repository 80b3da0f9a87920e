# ruff: noqa: E501  (one rule, one line)
"""Statements about containers and iterators: deques, views, iterators left half-way, unpacking, attributes, scopes, deletions."""

from .expressions import Expressions
from .scope import ERRORS


class Containers(Expressions):
    """Simple statements, one line each."""

    def s_deque(self, s):
        q = self.variable(s, "deque", "")
        e = lambda kind="int": self.expr(s, kind, 1)  # noqa: E731
        if not q or self.chance(25):
            name = self.fresh("q")
            self.put(f"{name} = {e('deque')}")
            s.add("deque", name)
            return
        self.put(
            self.pick([
                lambda: f"{q}.{self.pick(['append', 'appendleft', 'remove', 'rotate'])}({e()})",
                lambda: f"{q}.{self.pick(['extend', 'extendleft'])}({e('list')}[:3])",
                lambda: f"{q}.{self.pick(['pop()', 'popleft()', 'reverse()', 'clear()'])}",
                lambda: f"{q}[{e()}] = {e()}",
                lambda: f"del {q}[{self.pick(['0', '-1', e()])}]",
                lambda: f"{q}.insert({e()}, {e()})",
                lambda: f"stop({self.tag()}, {q})",
            ])()
        )  # fmt: skip

    def s_view(self, s):
        """A view or an iterator over something that changes afterwards."""
        e = lambda kind="int": self.expr(s, kind, 1)  # noqa: E731
        form = self.choose(4)
        if form == 0:
            name = self.fresh("v")
            self.put(f"{name} = {self.variable(s, 'dict', 'GD')}.{self.pick(['keys', 'values', 'items'])}()")
            s.add("view", name)
        elif form == 1:
            name = self.fresh("g")
            kind = self.pick(["dict", "list", "view", "deque", "set"])
            self.put(f"{name} = {self.pick(['iter', 'iter', 'reversed', 'enumerate'])}({self.variable(s, kind, 'GL')})")
            s.add("gen", name)
        elif form == 2:
            dct = self.variable(s, "dict", "GD")
            self.put(
                self.pick([
                    lambda: f"{dct}.{self.pick(['clear()', 'popitem()'])}",
                    lambda: f"{dct}.setdefault({e()}, {e(self.pick(['int', 'list']))})",
                    lambda: f"{dct}[{e()}] = {e('list')}",
                    lambda: f"{dct} = {dct} | {e('dict')}",
                    lambda: f"{dct}.pop({e()})",
                    lambda: f"{dct}.update(z={e()})",
                ])()
            )  # fmt: skip
        else:
            self.put(f"stop({self.tag()}, {self.pick(['len', 'list', '', 'sorted'])}({e('view')}))")

    def s_drive(self, s):
        """Drive an iterator, here and out of sight."""
        g = self.generator(s, 1)
        self.put(
            self.pick([
                lambda: f"stop({self.tag()}, next({g}, None))",
                lambda: f"advance({self.tag()}, {g})",
                lambda: f"stop({self.tag()}, {g})",
                lambda: f"{self.pick(['l0', 'GL'])}.append({g})",
                lambda: f"for {self.fresh('x')} in {g}: break",
                lambda: f"stop({self.tag()}, [*zip({g}, range(2))])",
                lambda: f"stop({self.tag()}, {self.expr(s, 'int', 1)} in {g})",
                lambda: f"l0.extend([*itertools.islice({g}, 4)]); del l0[6:]",
            ])()
        )  # fmt: skip

    def s_nested_targets(self, s):
        a, b, rest = self.target(s, "int"), self.target(s, "int"), self.target(s, "list")
        e = lambda kind="int": self.expr(s, kind, 1)  # noqa: E731
        l = self.variable(s, "list", "GL")
        self.put(
            self.pick([
                lambda: f"({a}, (*{rest}, {b})) = {e()}, {e('list')}",
                lambda: f"[{a}, {b}] = {e(self.pick(['list', 'tuple', 'deque', 'view', 'str']))}",
                lambda: f"{a}, {b}, *{rest} = {self.generator(s, 1)}",
                lambda: f"{l}[0], {l}[-1] = {l}[-1], {e()}",
                lambda: f"{l}[0], {a}, {self.variable(s, 'dict', 'GD')}[1] = {e('list')}",
                lambda: f"{a} = {l}[0] = {b} = {e()}",
                lambda: f"{a}: int = {e()}",
                lambda: f"for {l}[0] in {e('list')}[:3]: {a} = {e()}",
                lambda: f"for {a}, *{rest} in [{e('list')}, {e('tuple')}]: stop({self.tag()}, {rest})",
                lambda: f"with CM({e()}) as {l}[0]: {a} = {e()}",
                lambda: f"{rest} = {l} = {e('list')}" if l != "GL" and l in s.own else f"{rest} = {e('list')}",
            ])()
        )  # fmt: skip
        s.add("int", a)
        s.add("int", b)
        s.add("list", rest)

    def s_attributes(self, s):
        o = self.variable(s, "obj", "Custom")
        e = lambda kind="int": self.expr(s, kind, 1)  # noqa: E731
        name = self.pick(["'v'", "'extra'", "'k'", "'items'"])
        self.put(
            self.pick([
                lambda: f"setattr({o}, {name}, {e()})",
                lambda: f"delattr({o}, {name})",
                lambda: f"stop({self.tag()}, getattr({o}, {name}, {e()}))",
                lambda: f"vars({o}).update(extra={e()})",
                lambda: f"{o}.__dict__['v'] = {e(self.pick(['int', 'list', 'func']))}",
                lambda: f"{o}.m = {e('func')}",
                lambda: f"stop({self.tag()}, sorted(vars({o})))",
                lambda: f"type({o}).m = lambda self, x: stop({self.tag()}, x)",
                lambda: f"stop({self.tag()}, isinstance({o}, {self.pick([*self.classes, 'Custom', 'int'])}))",
                lambda: f"{o}.__class__ = {self.pick([*self.classes, 'Custom'])}",
                lambda: f"{o}.{self.pick(['v', 'extra'])} = {self.pick([o, e('list'), e('func')])}",
            ])()
        )  # fmt: skip

    def s_remove(self, s):
        """Unbind a variable, which a closure may see."""
        names = [
            n for k in ("int", "list", "func", "gen", "obj") for n in s.names[k] if n in s.own and n not in s.declared
        ]
        if not names:
            return self.s_mutate(s)
        name = self.pick(names)
        if self.chance(50):
            self.put(f"del {name}")
        else:
            self.put(f"if {self.expr(s, 'bool', 1)}: del {name}")
        return None

    def s_print(self, s):
        if self.tensors and self.chance(60):
            self.put(self.printed_tensor(s))
            return
        self.put(
            self.pick([
                lambda: f"print({self.expr(s, 'int', 1)}, {self.expr(s, 'str', 1)}, file=OUT)",
                lambda: f"print({self.variable(s, 'list', 'GL')}, file=OUT, end='')",
                lambda: f"OUT.write(str({self.expr(s, 'int', 1)}))",
            ])()
        )  # fmt: skip

    def s_compact(self, s):
        """A compound statement on one line, or one that does much at once."""
        e = lambda kind="int": self.expr(s, kind, 1)  # noqa: E731
        x, n = self.fresh("x"), self.fresh("n")
        loop = s.loops and self.chance(40)
        self.put(
            self.pick([
                lambda: f"for {x} in {e('list')}[:4]: {self.variable(s, 'list', 'GL')}.append({self.inner(s, x, 1)})",
                lambda: f"for {x} in {self.variable(s, 'dict', 'GD')}: {self.variable(s, 'dict', 'GD')}[{x}] = {e()}",
                lambda: f"for {x} in {self.variable(s, 'set', 'set()')}.copy(): {self.variable(s, 'set', 'set()')}.discard({self.inner(s, x, 1)})",
                lambda: f"if ({n} := {e()}) > 1: {self.pick(['break', 'continue']) if loop else 'stop(' + self.tag() + ', ' + n + ')'}",
                lambda: f"while {self.variable(s, 'list', '[]')}: stop({self.tag()}, {self.variable(s, 'list', '[]')}.pop()); break",
                lambda: f"with contextlib.suppress({self.pick(ERRORS[:4])}): stop({self.tag()}, {e()})",
                lambda: f"with contextlib.ExitStack() as {n}: {n}.callback(stop, {self.tag()}, {e()}); {n}.enter_context(CM({e()}))",
                lambda: f"with contextlib.nullcontext({e()}) as {n}: stop({self.tag()}, {n})",
                lambda: f"with contextlib.closing({self.pick(self.generator_functions)}({e()})) as {n}: stop({self.tag()}, next({n}))"
                if self.generator_functions
                else f"stop({self.tag()}, {e()})",
                lambda: f"{x} = [{n} for {n} in {e('list')}] or {e('list')}",
                lambda: f"global_counter({e()})",
            ])()
        )  # fmt: skip
