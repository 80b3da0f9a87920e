# ruff: noqa: E501  (one rule, one line)
"""What happens to a program from outside: changes of classes, functions, modules and builtins; signals; weak references and finalizers;
too little memory and too little stack.

Input: the modes of the program, keys of MODES. Output, in the text of the program: statements that use what changes; the function
`change(n)`, of which the harness runs step n after call n, and `disturb(tag, n)` runs step n in the midst of a call; `on_signal`, which
the harness installs; DISTURBED, the calls that the harness disturbs beforehand, in a namespace of their own.
"""

from .definitions import Definitions

MODES = {
    "changes": "classes, functions, modules and builtins change between the calls and in their midst",
    "signals": "signal handlers run and raise, some while the engine analyses",
    "weakrefs": "weak references and finalizers say what dies, and when",
    "limits": "too little memory or stack, most of it while the engine analyses",
}
STEPS = 6
METHODS = {
    "__add__": "lambda self, other: {n}",
    "__radd__": "lambda self, other: other",
    "__eq__": "lambda self, other: {b}",
    "__lt__": "lambda self, other: {b}",
    "__len__": "lambda self: {n}",
    "__bool__": "lambda self: {b}",
    "__getitem__": "lambda self, key: stop('item', key)",
    "__setitem__": "lambda self, key, value: stop('set', key)",
    "__contains__": "lambda self, item: {b}",
    "__iter__": "lambda self: iter([{n}, 2])",
    "__call__": "lambda self, x=1: {n}",
    "__getattr__": "lambda self, name: len(name) + {n}",
    "__getattribute__": "lambda self, name: object.__getattribute__(self, name)",
    "__setattr__": "lambda self, name, value: object.__setattr__(self, name, stop('setattr', value))",
    "__delattr__": "lambda self, name: stop('delattr', name)",
    "__repr__": "lambda self: 'r{n}'",
    "__str__": "lambda self: 's{n}'",
    "__hash__": "lambda self: {n}",
    "__init__": "lambda self, v=1: self.__dict__.update(v={n}, items=[])",
    "__new__": "lambda cls, *args: object.__new__(cls)",
    "__index__": "lambda self: {n}",
    "__neg__": "lambda self: {n}",
    "__enter__": "lambda self: {n}",
    "__exit__": "lambda self, *error: {b}",
    "__next__": "lambda self: {n}",
    "__instancecheck__": "lambda cls, instance: {b}",
}  # fmt: skip
ATTRIBUTES = {
    "k": "{n}",
    "v": "property(lambda self: {n})",
    "m": "lambda self, x: x + {n}",
    "p": "property(lambda self: {n})",
    "s": "staticmethod(lambda x: {n})",
    "c": "classmethod(lambda cls, x: cls.__name__)",
    "extra": "{n}",
    "items": "Descriptor()",
    "d": "stop",
    "g": "lambda self, x: iter([x])",
}
PIECES = ("CM", "Descriptor", "Items", "Meta", "Base", "Named", "Pair", "Point", "Defaults", "Countdown", "Custom")
BUILTINS = ("abs", "sum", "divmod", "round", "ord")


class Disturbances(Definitions):
    """Statements about what changes, and the changes themselves."""

    def __init__(self, choose, tensors=False, modes=()):
        super().__init__(choose, tensors)
        self.modes = modes
        if modes:
            self.careful = True

    def statement(self, s, depth):
        if self.modes and self.chance(30):
            self.size -= 1
            self.attempt(getattr(self, "s_" + self.pick(self.modes))(s))
        else:
            super().statement(s, depth)

    def attempt(self, text):
        """A simple statement, whose exception is mostly caught."""
        if self.chance(70):
            self.put(f"try: {text}")
            self.put(f"except Exception as error: {self.pick(['stop(' + self.tag() + ', error)', 'pass'])}")
        else:
            self.put(text)

    def more_members(self):
        if "weakrefs" in self.modes and self.chance(40):
            self.put("def __del__(self):")
            self.put(f"    {self.pick(['stop(0, 1)', 'GL.append(9); del GL[5:]', 'bump(1)', 'stop(0, vars(self))'])}")

    def lasting(self):
        """Objects that outlive a call."""
        if "changes" in self.modes:
            for name in ("KEPT", "OTHER"):
                made = f"{self.pick([*self.classes, 'Point', 'Base', 'Named'])}({self.choose(4)})"
                self.put(f"try: {name} = {made}")
                self.put(f"except Exception: {name} = Base(1)")
            self.put("COUNTER = make_counter(2)")
        if "signals" in self.modes:
            self.signal_handler()

    def signal_handler(self):
        self.put("def on_signal(signum, frame):")
        self.put("    global G")
        self.put(
            f"    {self.pick(['stop(0, G)', 'GL.append(int(signum)); del GL[6:]', 'pass', 'stop(0, frame is None)'])}"
        )
        self.put("    G = (G + 1) % 50")
        if self.chance(50):
            self.put(
                f"    if G % {2 + self.choose(4)} == 0: raise {self.pick(['Custom', 'ValueError', 'StopIteration'])}(G)"
            )
        if self.chance(30):
            self.put("    signal.signal(signum, other_handler)")

    def afterwards(self):
        """The function of changes and the list of disturbed calls."""
        if "changes" in self.modes:
            self.change_function()
        if "signals" in self.modes:
            self.put(f"TICKS = {self.pick(['0.004', '0.008', '0.02'])}")
        steps = []
        if "signals" in self.modes:
            steps += [f"('interrupt', {self.choose(400) / 10000 + 0.0002}, {self.choose(2)})" for _ in range(3)]
        if "limits" in self.modes:
            steps += [
                f"('memory', {self.choose(10 ** (2 + self.choose(4)))}, {self.pick([1, 1, 5, 100, 3000])})"
                for _ in range(3)
            ]
            steps += [f"('recursion', {self.choose(60)})"]
        if steps:
            self.put(f"DISTURBED = [{', '.join(steps)}]")

    def change_function(self):
        self.put("def change(n):")
        self.put("    global G, GL, GD, KEPT, OTHER, COUNTER")
        self.indent += 1
        for step in range(STEPS):
            self.put(f"if n == {step}:")
            self.indent += 1
            for _ in range(1 + self.choose(2)):
                text = self.change()
                self.put(f"try: {text}")
                self.put(f"except Exception as error: stop({self.tag()}, type(error).__name__)")
            self.indent -= 1
        self.indent -= 1

    def change(self):
        """One change, on one line."""
        kinds = [
            self.change_class, self.change_class, self.change_dunder, self.change_dunder, self.change_object, self.change_object,
            self.change_function_parts, self.change_globals, self.change_module, self.change_builtins,
        ]  # fmt: skip
        if self.tensors:
            kinds += [self.change_torch_module] * 4
        return self.pick(kinds)()

    def filled(self, template):
        return template.format(n=self.choose(9), b=self.pick(["True", "False"]))

    def some_class(self):
        return self.pick([*self.classes, *self.classes, *self.classes, "type(KEPT)", "type(OTHER)", self.pick(PIECES)])

    def change_class(self):
        c = self.some_class()
        name = self.pick(list(ATTRIBUTES))
        return self.pick([
            lambda: f"{c}.{name} = {self.filled(ATTRIBUTES[name])}",
            lambda: f"{c}.{name} = {self.filled(ATTRIBUTES[name])}",
            lambda: f"del {c}.{name}",
            lambda: f"{c}.__bases__ = ({self.some_class()},)",
            lambda: f"{c}.__bases__ = ({self.some_class()}, *{c}.__bases__)",
            lambda: f"{c}.__bases__ = {c}.__bases__[::-1]",
            lambda: f"{c}.__name__ = {c}.__name__",
            lambda: f"{c}.__qualname__ = 'Q.R'",
            lambda: f"{c}.__match_args__ = ('v',)",
            lambda: f"{c}.m.__code__ = (lambda self, x: {self.choose(9)}).__code__",
            lambda: f"{c}.m.__defaults__ = ({self.choose(9)},)",
            lambda: f"{c}.__init__.__code__ = (lambda self, v: self.__dict__.update(v={self.choose(9)}, items=[1])).__code__",
        ])()  # fmt: skip

    def change_dunder(self):
        c = self.some_class()
        name = self.pick(list(METHODS))
        return self.pick([
            lambda: f"{c}.{name} = {self.filled(METHODS[name])}",
            lambda: f"{c}.{name} = {self.filled(METHODS[name])}",
            lambda: f"{c}.{name} = None",
            lambda: f"del {c}.{name}",
            lambda: f"{self.pick(['Meta', 'type(' + c + ')'])}.{name} = {self.filled(METHODS[name])}",
            lambda: f"Descriptor.{self.pick(['__get__', '__set__', '__delete__'])} = lambda *args: stop('descriptor', len(args))",
            lambda: f"del Descriptor.{self.pick(['__get__', '__set__'])}",
        ])()  # fmt: skip

    def change_object(self):
        o = self.pick(["KEPT", "KEPT", "OTHER"])
        return self.pick([
            lambda: f"{o}.__class__ = {self.some_class()}",
            lambda: f"{o}.v = {self.pick(['2.5', 'None', '[1]', 'True', repr('v'), '10'])}",
            lambda: f"del {o}.{self.pick(['v', 'items', 'extra', 'm'])}",
            lambda: f"{o}.__dict__ = {self.pick(['{}', 'dict(v=1, items=[3])', 'vars(OTHER)', 'vars(KEPT)'])}",
            lambda: f"{o}.__dict__.update({self.pick(['m=abs', 'k=7', 'extra=1', 's=len', 'v=KEPT', '__len__=len'])})",
            lambda: f"{o}.__dict__.{self.pick(['clear()', 'popitem()', 'pop(' + repr('v') + ', 0)', 'setdefault(' + repr('k') + ', 5)'])}",
            lambda: f"{o}.m = lambda x: {self.choose(9)}",
            lambda: f"{o}.items.append({self.choose(9)})",
            lambda: f"{o}.items = {self.pick(['GL', '(1, 2)', 'Items([1])', 'None'])}",
            lambda: "KEPT, OTHER = OTHER, KEPT",
            lambda: f"{o} = {self.pick(['Base(3)', 'Point(1)', 'None', 'Items([4])', *(c + '(1)' for c in self.classes)])}",
        ])()  # fmt: skip

    def change_function_parts(self):
        plain = [name for name, _ in self.functions] or ["bump"]
        f = self.pick([*plain, *plain, "bump", "rec", "spread", "wrapper", "COUNTER", *self.generator_functions])
        return self.pick([
            lambda: f"{f}.__code__ = (lambda *args, **more: {self.choose(9)}).__code__",
            lambda: f"{f}.__code__ = {self.pick(plain)}.__code__",
            lambda: f"{f}.__defaults__ = {self.pick(['(3,)', 'None', '(1, 2)'])}",
            lambda: f"{f}.__kwdefaults__ = {self.pick(['dict(c=5, key=6)', 'None', 'dict(key=0)'])}",
            lambda: f"{f}.__kwdefaults__['key'] = {self.choose(9)}",
            lambda: f"{f}.mark = {self.choose(9)}",
            lambda: f"globals()['{f}'] = lambda *args, **more: {self.choose(9)}",
            lambda: f"globals()['{f}'] = {self.pick([*plain, 'abs', 'Custom', 'None', 'Items'])}",
            lambda: f"del globals()['{f}']",
            lambda: f"COUNTER.__closure__[0].cell_contents = {self.pick(['5', '1.5', 'None', 'True', '[]'])}",
            lambda: "del COUNTER.__closure__[0].cell_contents",
        ])()  # fmt: skip

    def change_globals(self):
        return self.pick([
            lambda: f"G = {self.pick(['4', 'True', '2.5', 'None', repr('g'), '10 ** 20', 'KEPT', '-1'])}",
            lambda: f"GL = {self.pick(['[5]', 'Items([1, 2])', '(1, 2)', 'collections.deque([1])', 'list(range(5))', 'GL[:]'])}",
            lambda: f"GL{self.pick(['.append(2.5)', '[0] = None', '.clear()', '[:] = [KEPT]', '[0] = GL'])}",
            lambda: f"GD = {self.pick(['Defaults(GD)', 'collections.OrderedDict(GD)', 'collections.defaultdict(list)', '{1: 5}', 'vars(KEPT)'])}",
            lambda: f"GD{self.pick(['[1] = 2', '[0] = KEPT', '.clear()', '[G] = GL', '[True] = None'])}",
            lambda: f"globals()['{self.pick(['len', 'abs', 'range', 'print', 'sorted', 'list', 'isinstance', 'missing', 'super'])}'] = {self.pick(['lambda *args: ' + str(self.choose(9)), 'abs', 'str', '4'])}",
            lambda: f"globals().pop('{self.pick(['len', 'abs', 'range', 'missing', 'Custom', 'COUNT', 'G'])}', None)",
            lambda: f"globals()['{self.pick(PIECES)}'] = {self.some_class()}",
        ])()  # fmt: skip

    def change_module(self):
        return self.pick([
            lambda: f"MOD.value = {self.pick(['3', '2.5', 'None', 'KEPT', '[1]', 'True'])}",
            lambda: f"MOD.fn = {self.pick(['lambda x: ' + str(self.choose(9)), 'abs', 'None', 'rec'])}",
            lambda: f"del MOD.{self.pick(['value', 'fn', 'more'])}",
            lambda: "MOD.__getattr__ = lambda name: len(name)",
            lambda: f"MOD.__dict__['more'] = {self.choose(9)}",
            lambda: f"MOD.__class__ = type('Sub', (types.ModuleType,), dict(value={self.choose(9)}))",
            lambda: "sys.modules['fuzz_mod'] = types.SimpleNamespace(value=8, fn=abs)",
            lambda: "globals()['MOD'] = types.SimpleNamespace(value=6, fn=str)",
        ])()  # fmt: skip

    def change_builtins(self):
        name = self.pick(BUILTINS)
        return self.pick([
            lambda: f"builtins.{name} = lambda *args: {self.choose(9)}",
            lambda: f"builtins.{name} = stop_builtin",
            lambda: f"del builtins.{name}",
            lambda: f"builtins.missing = {self.pick(['4', 'len', 'KEPT'])}",
        ])()  # fmt: skip

    def change_torch_module(self):
        return self.pick([
            lambda: f"MODULE.forward = lambda x: x * {self.choose(5)}",
            lambda: "del MODULE.forward",
            lambda: f"MODULE_CLASS.forward = lambda self, x: x + self.weight * {self.choose(5)}",
            lambda: f"HANDLES.append(MODULE.register_forward_hook(lambda m, args, out: out + {self.choose(5)}))",
            lambda: f"HANDLES.append(MODULE.register_forward_pre_hook(lambda m, args: (args[0] * {self.choose(5)},)))",
            lambda: "HANDLES.append(MODULE.register_full_backward_hook(lambda m, i, o: stop('backward', len(o)) and None))",
            lambda: f"HANDLES.append(torch.nn.modules.module.register_module_forward_hook(lambda m, args, out: out - {self.choose(5)}))",
            lambda: "HANDLES.pop().remove()",
            lambda: f"MODULE.weight = torch.nn.Parameter({self.pick(['torch.ones(3)', 'torch.ones(1)', 'torch.ones(3).double()', 'torch.ones(2, 3)'])})",
            lambda: f"MODULE.weight.requires_grad_({self.pick(['True', 'False'])})",
            lambda: f"MODULE.weight.data = torch.full(({self.pick(['3', '1'])},), 2.)",
            lambda: f"MODULE.{self.pick(['eval()', 'train()', 'double()', 'float()', 'requires_grad_(False)', 'zero_grad()'])}",
            lambda: f"MODULE.seen = {self.pick(['torch.ones(3)', 'None', 'torch.zeros(1)'])}",
            lambda: "del MODULE.seen",
            lambda: f"MODULE.register_buffer('extra', {self.pick(['None', 'torch.ones(3)'])})",
            lambda: "MODULE.sub = torch.nn.Linear(3, 3)",
            lambda: f"MODULE.calls = {self.pick(['0', '2', '2.5', 'True'])}",
            lambda: f"MODULE.__class__ = {self.pick(['torch.nn.Identity', 'MODULE_CLASS'])}",
            lambda: "MODULE.weight.mark = 1",
            lambda: "torch.nn.utils.parametrize.register_parametrization(MODULE, 'weight', torch.nn.Tanh())",
            lambda: f"torch.set_grad_enabled({self.pick(['True', 'False'])})",
            lambda: f"torch.set_default_dtype(torch.float{self.pick(['32', '64'])})",
        ])()  # fmt: skip

    # statements, one line each

    def s_changes(self, s):
        o = self.pick(["KEPT", "KEPT", "OTHER"])
        e = lambda kind="int": self.expr(s, kind, 1)  # noqa: E731
        uses = [
            f"{o}.{self.pick(['v', 'k', 'items', 'extra', 'm', 'p', 'named', 'x', 'tags'])}", f"{o}.m({e()})", f"len({o})", f"{o} + {e()}",
            f"{e()} + {o}", f"{o} == {self.pick([e(), 'OTHER', 'KEPT'])}", f"bool({o})", f"{o}[{e()}]", f"{o}({e()})", f"{e()} in {o}",
            f"[*{o}][:3]", f"isinstance({o}, {self.some_class()})", f"type({o}) is {self.some_class()}", f"repr({o})", f"str({o})",
            f"hash({o})", f"hasattr({o}, 'extra')", f"getattr({o}, 'extra', {e()})", f"COUNTER({e()})", "MOD.value", f"MOD.fn({e()})",
            "MOD.more", f"{self.some_class()}.k", f"{self.some_class()}({e()})", f"{self.some_class()}.s({e()})", f"abs({e()})",
            f"sum({e('list')})", f"divmod({e()}, 2)", "missing", f"range({e()})", "G", "GL", "GD", f"spread({e()})", f"rec({e()})",
            f"bump({e()})", f"{o} < {e()}", f"-{o}", f"[1, 2, 3][{o}]", f"f'{{{o}}}'", f"{o} is OTHER", f"vars({o})", f"type({o}).__name__",
            f"issubclass(type({o}), {self.some_class()})", f"sorted([{o}, OTHER])", f"{o}.c({e()})", f"[*{o}.g({e()})]", f"dir({o})[-2:]",
        ]  # fmt: skip
        for name, (positional, *_) in self.functions:
            uses.append(f"{name}({', '.join(e() for _ in range(positional))})")
        if self.tensors:
            uses += [f"MODULE({self.variable(s, 'tensor', 'torch.ones(3)')})", "MODULE.weight", "MODULE.training"] * 5
        return self.pick([
            lambda: f"disturb({self.tag()}, {self.choose(STEPS)})",
            *[lambda: f"stop({self.tag()}, {self.pick(uses)})"] * 4,
            lambda: f"l0.append({self.pick(uses)})",
            lambda: f"{self.pick(['GL', 'l0'])}[0:1] = [{self.pick(uses)}]",
            lambda: f"{o}.{self.pick(['v', 'extra', 'k', 'p'])} = {e()}",
            lambda: f"{o}.v += {e()}",
            lambda: f"del {o}.{self.pick(['v', 'extra', 'k'])}",
            lambda: f"{o}[{e()}] = {e()}",
            lambda: f"import fuzz_mod as M; stop({self.tag()}, M.value)",
            lambda: f"from fuzz_mod import fn as imported; stop({self.tag()}, imported({e()}))",
        ])()  # fmt: skip

    def s_signals(self, s):
        e = lambda: self.expr(s, "int", 1)  # noqa: E731
        return self.pick([
            lambda: f"interrupt({self.tag()})",
            lambda: f"interrupt({self.tag()})",
            lambda: "signal.raise_signal(signal.SIGUSR1)",
            lambda: f"l0.append({e()}); interrupt({self.tag()}); l0.append({e()})",
            lambda: f"signal.signal(signal.SIGUSR1, {self.pick(['on_signal', 'other_handler', 'signal.SIG_IGN'])})",
            lambda: f"stop({self.tag()}, signal.getsignal(signal.SIGUSR1) is on_signal)",
            lambda: f"stop({self.tag()}, G)",
            lambda: f"stop({self.tag()}, [interrupt({self.tag()}), {e()}])",
        ])()  # fmt: skip

    def s_weakrefs(self, s):
        e = lambda kind="int": self.expr(s, kind, 1)  # noqa: E731
        classes = [*self.classes, "Watched", "Watched", "Items", "Custom"]
        mine = [n for n in s.names["obj"] if n in s.own and n not in s.declared]
        o = self.pick(mine) if mine else None
        r = self.variable(s, "ref", "R0")
        made = self.pick([
            f"{self.pick(classes)}({e()})", f"(lambda: {e()})", f"(x for x in {e('list')})", "set()", "collections.deque()",
            f"Items({e('list')})",
        ])  # fmt: skip
        form = self.choose(13)
        if form < 3 or o is None:
            name = self.fresh("o")
            cls = self.pick(classes)
            text = f"{name} = watch({self.tag()}, {cls}({e()}))"
            s.add("obj", name)
            s.classes[name] = cls
            return text
        if form == 3:
            name = self.fresh("r")
            text = f"{name} = weakref.ref({self.pick([o, made])}{self.pick(['', '', ', stop_ref'])})"
            s.add("ref", name)
            return text
        return self.pick([
            lambda: f"del {o}",
            lambda: f"{o} = None",
            lambda: f"{o} = watch({self.tag()}, {self.pick(classes)}({e()}))",
            lambda: f"alive({self.tag()})",
            lambda: f"alive({self.tag()})",
            lambda: f"watch({self.tag()}, {made})",
            lambda: f"{self.pick(['l0', 'GL', 'l1'])}.append(watch({self.tag()}, {made}))",
            lambda: f"{self.pick(['l0', 'GL', 'l1'])}.pop()",
            lambda: f"{self.pick(['l0', 'GL', 'l1'])}{self.pick(['.clear()', '[:] = []', '[0] = 1'])}",
            lambda: f"GD[{e()}] = watch({self.tag()}, {made})",
            lambda: "GD.clear()",
            lambda: f"weakref.finalize({o}, stop, {self.tag()}, {e()})",
            lambda: f"weakref.finalize({self.pick([o, made])}, GL.append, 1)",
            lambda: f"stop({self.tag()}, {r}() is {self.pick(['None', o])})",
            lambda: f"stop({self.tag()}, {r}())",
            lambda: f"WD[{e()}] = {self.pick([o, made])}",
            lambda: f"stop({self.tag()}, len(WD)); stop({self.tag()}, sorted(WD))",
            lambda: f"WS.add({self.pick([o, made])})",
            lambda: f"stop({self.tag()}, (len(WS), {o} in WS))",
            lambda: f"{o}.{self.pick(['v', 'extra'])} = watch({self.tag()}, {made})",
            lambda: f"{o}.{self.pick(['me', 'v'])} = {o}",
            lambda: f"(lambda q: alive({self.tag()}))({made})",
            lambda: f"for {self.fresh('o')} in [watch({self.tag()}, Watched(i)) for i in range(3)]: alive({self.tag()})",
            lambda: f"[watch({self.tag()}, Watched(1)), alive({self.tag()})]; alive({self.tag()})",
        ])()  # fmt: skip

    def s_limits(self, s):
        e = lambda: self.expr(s, "int", 1)  # noqa: E731
        return self.pick([
            lambda: f"stop({self.tag()}, rec({e()}))",
            lambda: f"l0.append([x for x in range({e()} % 50)][:3])",
            lambda: f"stop({self.tag()}, [{{i: str(i)}} for i in range(3)])",
            lambda: f"l0.append(endless({e()}))",
            lambda: f"l0.extend([*map(lambda q: q + {e()}, l0[:3])]); del l0[5:]",
        ])()  # fmt: skip
