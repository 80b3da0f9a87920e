"""Kinds of variables, the names in reach of a statement, and the source of choices."""

KINDS = ("int", "list", "str", "dict", "set", "tuple", "func", "float", "deque", "view")
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


class Scope:
    """The names that a function body may use: kind → names. `own` ones can be assigned without a declaration."""

    def __init__(self, parent=None, generator=False):
        self.names = (
            {k: list(v) for k, v in parent.names.items()}
            if parent
            else {k: [] for k in (*KINDS, "obj", "gen", "tensor", "cls", "ref")}
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


class Chooser:
    """A program under construction: the choices, the lines so far, what has been defined."""

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
        self.careful = self.chance(50)  # errors of single statements are caught: what comes after them runs too

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
