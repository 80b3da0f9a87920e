"""Statements; compound ones with their blocks."""

from .containers import Containers
from .scope import CAUGHT, ERRORS, KINDS, Scope


class Statements(Containers):
    """Lines of a function body."""

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
        if self.chance(45):
            simple = [
                self.s_deque, self.s_view, self.s_view, self.s_drive, self.s_nested_targets, self.s_attributes, self.s_remove,
                self.s_compact, self.s_compact, self.s_print, self.s_object,
            ]  # fmt: skip
        if self.tensors:
            simple += [self.s_tensor] * 7
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
            self.s_forever,
            self.s_class,
            self.s_finally_return,
        ]
        if depth > 0 and self.chance(40):
            self.pick(compound)(s, depth - 1)
        elif self.careful and self.chance(50):
            self.put("try:")
            self.indent += 1
            self.pick(simple)(s)
            self.indent -= 1
            self.put(
                f"except Exception as error: {self.pick(['stop(' + self.tag() + ', error)', 'l0.append(repr(error))', 'pass'])}"
            )
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

    def s_forever(self, s, depth):
        """`while True` left by break, return or an exception, at the latest in the fourth round."""
        n = self.fresh("n")
        self.put(f"{n} = 0")
        self.put("while True:")
        self.indent += 1
        self.put(f"{n} += 1")
        self.put(f"if {n} > {1 + self.choose(3)}: {self.pick(['break', 'break', f'return {n}', 'raise Custom(4)'])}")
        self.indent -= 1
        s.loops += 1
        self.body(s, depth, 3)
        s.loops -= 1

    def s_finally_return(self, s, depth):
        """Ways out of a try whose finally block takes another."""
        self.put("try:")
        self.body(s, depth, 2)
        self.indent += 1
        ways = [f"return {self.expr(s, 'int', 1)}", f"raise {self.pick(ERRORS)}({self.expr(s, 'int', 0)})", "pass"]
        ways += ["break", "continue"] * bool(s.loops)
        self.put(self.pick(ways) if self.chance(50) else f"if {self.expr(s, 'bool', 1)}: {self.pick(ways)}")
        self.indent -= 1
        self.put("finally:")
        self.body(s, depth, 2)
        if self.chance(20):
            self.indent += 1
            self.put(f"if {self.expr(s, 'bool', 1)}: {self.pick(ways)}")
            self.indent -= 1

    def s_class(self, s, depth):
        """A class statement inside a function; its body and its methods see the variables around."""
        name = self.fresh("K")
        base = self.pick(
            ["", "", "(Items)", *(f"({c})" for c in self.classes), "(Custom)", "(metaclass=Meta)", "(Base, tag=3)"]
        )
        self.put(f"class {name}{base}:")
        self.indent += 1
        self.put(f"k = {self.expr(s, 'int', 1)}")
        if self.chance(50):
            self.put(f"values = [{self.inner(s, 'x', 1)} for x in {self.expr(s, 'list', 0)}]")
        if base != "(Items)":
            self.put("def __init__(self, v=2):")
            self.indent += 1
            if base and self.chance(50):
                self.put(self.pick(["super().__init__(v)", f"super({name}, self).__init__(v)"]))
            self.put("self.v = v")
            self.put("self.items = [v]")
            self.indent -= 1
        self.put(f"{self.pick(['', '@staticmethod'])}".strip() or f"def m(self, x): return {self.expr(s, 'int', 1)}")
        if self.lines[-1].strip() == "@staticmethod":
            self.put(f"def m(x): return {self.expr(s, 'int', 1)}")
        if self.chance(40):
            self.put(
                f"def own(self): return {self.pick(['__class__.k', 'self.__class__.__name__', 'type(self) is ' + name])}"
            )
        self.indent -= 1
        if self.chance(80):
            o = self.fresh("o")
            self.put(f"{o} = {name}({self.expr(s, 'list' if base == '(Items)' else 'int', 1)})")
            s.add("obj", o)
            s.classes[o] = name
            if self.chance(50):
                self.put(f"stop({self.tag()}, {o}{self.pick(['.m(1)', '.k', '', '.own()'])})")

    def s_try(self, s, depth):
        star = self.chance(6)
        self.put("try:")
        self.body(s, depth, 4)
        handlers = self.choose(3)
        final = self.chance(35)
        if not handlers and not final:
            handlers = 1
        for _ in range(handlers):
            self.put(f"except{'*' if star else ''} {self.pick(CAUGHT)} as err:")
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
        own = [n for kind in ("int", "list", "gen") for n in s.names[kind]]
        nonlocals = [n for n in own if n in s.own and n != "G" and self.chance(20)]
        parameter = self.fresh("p")
        if not generator and self.chance(15):
            self.put(f"@{self.pick(['wrapper', 'functools.wraps(abs)', 'stopping'])}")
        rest = self.pick(
            ["", ", q=" + self.expr(s, "int", 0), ", /, q=1", ", *r", ", q=[], **r", ", *, q=" + self.expr(s, "int", 0)]
        )
        self.put(f"def {name}({parameter}{rest}):")
        self.indent += 1
        if nonlocals:
            self.put(f"nonlocal {', '.join(nonlocals)}")
        self.indent -= 1
        inner.add("int", parameter)
        for n in nonlocals:
            inner.own.add(n)
            inner.declared.add(n)
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
