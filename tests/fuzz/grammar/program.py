"""Random Python programs as source text.

Input: `choose(n)`, which returns a number in range(n); 0 leads to the simplest alternative, so that a source of choices that
can shrink (hypothesis) shrinks the program. Output: the text of a module with `program(...)` and `make_args(k)`.
Invariant: a program ends: loops are bounded, functions call only functions defined before them, containers stay small.

The module's namespace is given by `harness.namespace`: `stop(tag, value)` logs its arguments and the handled exception and returns
the value, `poke(tag, container)` changes its argument, `fail(tag, value)` raises sometimes. None of them can be captured.
Variables have a kind (int, str, list of ints, dict of int to int, ...) which most uses respect; a few do not, for the exceptions.
"""

from .disturbances import Disturbances
from .header import header
from .scope import Scope


class Writer(Disturbances):
    """One program."""

    def program(self):
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
        self.lasting()
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
        for name, kind in (
            ("q0", "deque"),
            ("it0", "gen"),
            ("f0", "func"),
            ("fl", "float"),
            ("dd", "dict"),
            ("x0", "int"),
        ):
            if self.chance(30):
                parameters[name] = kind
                s.add(kind, name)
        self.put(f"def program({', '.join(parameters)}):")
        self.indent += 1
        self.declare_global(s)
        self.indent -= 1
        self.size = 6 + self.choose(12)
        self.body(s, 3, 9)
        self.indent += 1
        every = sum(s.names.values(), [])
        returned = [self.pick(every if self.chance(20) else list(parameters)) for _ in range(self.choose(6))]
        result = ", ".join(["a", *returned])
        self.put(f"return [{result}]" if self.chance(85) else f"return {self.expr(s, 'list', 2)}")
        self.indent -= 1
        self.arguments(parameters, s)
        self.afterwards()
        text = "\n".join(self.lines) + "\n"
        return header(text) + text

    def arguments(self, parameters, s):
        """`make_args(k)`: the arguments of call k, with aliases among them; some change their type with k."""
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
        lists = ["l", "[1, 2, 3]"]
        values["deque"] = lambda: f"collections.deque({self.pick(lists)}, {self.pick(['None', '3'])})"
        values["float"] = lambda: self.pick(["1.5", "0.0 - k", "float('inf')", "2"])
        values["func"] = lambda: self.pick(["make_counter(k)", "abs", "lambda q: q + k", "l.count", "wrapper(abs)"])
        values["gen"] = lambda: self.pick([
            f"iter({self.pick(lists)})", "advanced(iter(d.items()))", "advanced(iter(l))", "iter(d)", "zip(l, d)",
            "(x for x in l)", "map(abs, l)", "advanced(enumerate(l))", "iter(d.values())", "reversed(l)", "Countdown(2)",
            "itertools.chain(l, d)", "iter(range(3))", "filter(None, l)",
        ])  # fmt: skip
        self.put("d = {1: 2, 3: k}")
        for name, kind in parameters.items():
            if name == "l0":
                text = "l"
            elif name == "l1" and alias == 1:
                text = "l"
            elif name == "d0" and alias == 2:
                text = "{1: l}"
            elif name == "dd":
                text = self.pick(
                    [
                        "d",
                        "collections.defaultdict(int, d)",
                        "collections.Counter('aab')",
                        "collections.OrderedDict(d)",
                        "GD",
                    ]
                )
            elif name == "x0":
                text = f"[{', '.join(self.pick(['1', 'True', 'None', '2.5', repr('q'), 'l', '(1, 2)', '7', 'len']) for _ in range(3))}][k]"
            elif name not in ("t0", "t1") and self.chance(10):
                text = (
                    f"({values[kind]()} if k else {self.pick([values[kind](), 'None', '1', 'l'])})"
                    if kind != "obj"
                    else f"{s.classes[name]}(k)"
                )
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


def build(choose, tensors=False, modes=()):
    """The text of one program. `modes` are of `MODES`: what happens to it from outside."""
    return Writer(choose, tensors, modes).program()
