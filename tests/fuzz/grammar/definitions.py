"""Functions, classes and context managers of the module."""

from .scope import CAUGHT, Scope
from .statements import Statements

DUNDERS = (
    "__add__", "__radd__", "__iadd__", "__eq__", "__lt__", "__len__", "__bool__", "__getitem__", "__setitem__", "__delitem__",
    "__contains__", "__iter__", "__call__", "__getattr__", "__repr__", "__setattr__", "__neg__", "__hash__",
    "__sub__", "__rsub__", "__rmul__", "__gt__", "__enter__", "__next__", "__index__", "__str__", "__format__", "__getattribute__",
    "__delattr__", "__new__", "__init_subclass__", "__reversed__",
)  # fmt: skip


class Definitions(Statements):
    """Definitions at the top of a program."""

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
        self.declare_global(s)
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

    def declare_global(self, s):
        if self.chance(15):
            self.put("global G")
            s.add("int", "G")

    def make_class(self):
        name = self.fresh("C")
        bases = [c for c in self.classes if self.chance(50)][:2]
        keywords = []
        if not bases:
            keywords = [[], [], ["Items"], ["dict"], ["Base"], ["metaclass=Meta"], ["Custom"], ["Base", "tag=2"]][
                self.choose(8)
            ]
        members = {m for b in bases for m in self.classes[b]}
        slots = not bases and not keywords and self.chance(15)
        self.put(f"class {name}{'(' + ', '.join([*reversed(bases), *keywords]) + ')' if bases or keywords else ''}:")
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
        if self.chance(20):
            self.put(
                f"named = {self.pick(['Named()', 'functools.cached_property(lambda self: stop(1, self.v))', 'property(len)'])}"
            )
        self.simple_method("m", ["x"], self.pick(["self.v + x", "stop('m', x)", "len(self.items)"]), bases)
        for member in ("p", "c", "s", "g", "d", *DUNDERS):
            if self.chance(22):
                members.add(member)
                self.member(member)
        self.more_members()
        self.indent -= 1
        self.classes[name] = sorted(members)

    def more_members(self):
        """Members that only some modes add."""

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
            self.put(
                f"__hash__ = {self.pick(['object.__hash__', 'object.__hash__', 'lambda self: -1', 'lambda self: self.v'])}"
            )
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
            self.simple_method(
                member, [], value(self.pick(["hash(self.v)", "self.v", "-1", "2**61 + self.v", "self.v > 1"]))
            )
        elif member == "__len__":
            self.simple_method(member, [], value("len(self.items)"))
        elif member == "__bool__":
            self.simple_method(member, [], value("self.v > 1"))
        elif member == "__neg__":
            self.simple_method(member, [], value("-self.v"))
        elif member in ("__sub__", "__rsub__", "__rmul__"):
            self.simple_method(member, ["other"], self.pick([value("self.v - other"), "NotImplemented"]))
        elif member == "__gt__":
            self.simple_method(member, ["other"], self.pick([value("self.v > other"), "NotImplemented"]))
        elif member == "__enter__":
            self.simple_method(member, [], value("self.v"))
            self.put("def __exit__(self, kind, error, tb):")
            self.put(f"    return {value(self.pick(['kind is KeyError', 'False', 'None']))}")
        elif member == "__next__":
            self.put("def __next__(self):")
            self.put("    self.v -= 1")
            self.put("    if self.v < 0: raise StopIteration")
            self.put(f"    return {value('self.v % 5')}")
        elif member == "__index__":
            self.simple_method(member, [], value("len(self.items)"))
        elif member == "__str__":
            self.simple_method(member, [], value("'s' * (self.v % 3)"))
        elif member == "__format__":
            self.simple_method(member, ["spec"], value("spec + '!'"))
        elif member == "__getattribute__":
            self.put("def __getattribute__(self, name):")
            self.put(f"    {self.pick(['GL.append(1); del GL[4:]', 'pass', 'bump(1)'])}")
            self.put("    return super().__getattribute__(name)")
        elif member == "__delattr__":
            self.put("def __delattr__(self, name):")
            self.put(f"    {value('name')}")
            self.put("    super().__delattr__(name)")
        elif member == "__new__":
            self.put("def __new__(cls, *args, **kwargs):")
            self.put(f"    return {value('super().__new__(cls)')}")
        elif member == "__init_subclass__":
            self.put("def __init_subclass__(cls, **kwargs):")
            self.put("    super().__init_subclass__(**kwargs)")
            self.put(f"    cls.k = {value('9')}")
        elif member == "__reversed__":
            self.put("def __reversed__(self):")
            self.put("    yield from self.items[::-1]")

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
