"""Whatever differs between two processes is seen: no version of another program is used, and results are right."""

import pytest
import torch

import dynamo_lite
from dynamo_lite import config
from dynamo_lite.record import STATS
from tests.warm_cache.cache_programs import Run, load, new_process

HEADER = "import torch\nfrom torch import nn\nfrom torch.nn import functional as F\nimport enum, functools, math\n"

# Two versions of a program, as a text in which «a|b» are the places that differ.
CHANGES = {
    "body": "def f(x):\n    return x «+|-» 1\ndef main(): return f, (torch.ones(3),)",
    "constant": "def f(x):\n    return x * «2|3»\ndef main(): return f, (torch.ones(3),)",
    "constant of another type": "def f(x):\n    return x.sum() * «1|True»\ndef main(): return f, (torch.ones(3),)",
    "constant tuple": "def f(x):\n    return x.reshape(«(2, 3)|(3, 2)»)\ndef main(): return f, (torch.ones(6),)",
    "slice": "def f(x):\n    return x[«1:2|0:2»].sum()\ndef main(): return f, (torch.ones(3),)",
    "zero": "def f(x):\n    return math.copysign(1.0, Z) * x\nZ = «0.0|-0.0»\ndef main(): return f, (torch.ones(3),)",
    "helper": "def g(x): return x «+|-» 1\ndef f(x): return g(x) * 2\ndef main(): return f, (torch.ones(3),)",
    "helper of a helper": """
def h(x): return x «+|*» 5
def g(x): return h(x)
def f(x): return g(x) * 2
def main(): return f, (torch.ones(3),)""",
    "nested function": """
def f(x):
    def g(y): return y «+|-» 1
    return g(x) * 2
def main(): return f, (torch.ones(3),)""",
    "default": "def g(x, k=«2|3»): return x * k\ndef f(x): return g(x)\ndef main(): return f, (torch.ones(3),)",
    "own default": "def f(x, k=«2|3»): return x * k\ndef main(): return f, (torch.ones(3),)",
    "keyword default": "def g(x, *, k=«2|3»): return x * k\ndef f(x): return g(x)\ndef main(): return f, (torch.ones(3),)",
    "global": "K = «2|3»\ndef f(x): return x * K\ndef main(): return f, (torch.ones(3),)",
    "global list": "K = [1, «2|3»]\ndef f(x): return x * K[1]\ndef main(): return f, (torch.ones(3),)",
    "global dictionary": "K = {'a': «2|3»}\ndef f(x): return x * K['a']\ndef main(): return f, (torch.ones(3),)",
    "keys of a dictionary": """
K = {«'a': 1, 'b': 2|'b': 1, 'a': 2»}
def f(x): return x * (10 if list(K)[0] == 'a' else 20)
def main(): return f, (torch.ones(3),)""",
    "which function": """
def g(x): return x + 1
def h(x): return x - 1
K = «g|h»
def f(x): return K(x)
def main(): return f, (torch.ones(3),)""",
    "which torch function": "K = torch.«sin|cos»\ndef f(x): return K(x)\ndef main(): return f, (torch.ones(3),)",
    "a class registered with an abstract class": """
import collections.abc
class A: pass
class B: pass
K = A()
collections.abc.Sequence.register(«A|B»)
def f(x): return x * (2 if isinstance(K, collections.abc.Sequence) else 3)
def main(): return f, (torch.ones(3),)""",
    "method that a protocol asks for": """
import typing
@typing.runtime_checkable
class P(typing.Protocol):
    def «go|no»(self): ...
class A:
    def go(self): pass
K = A()
def f(x): return x * (2 if isinstance(K, P) else 3)
def main(): return f, (torch.ones(3),)""",
    "variable that a protocol asks for": """
import typing
@typing.runtime_checkable
class P(typing.Protocol):
    «k|q»: int
class A:
    k = 3
K = A()
def f(x): return x * (2 if isinstance(K, P) else 3)
def main(): return f, (torch.ones(3),)""",
    "method that an abstract class asks for": """
import collections.abc
class A:
    def send(self, value): pass
    def throw(self, *error): pass
    def «close|shut»(self): pass
    def __await__(self): pass
K = A()
def f(x): return x * (2 if isinstance(K, collections.abc.Coroutine) else 3)
def main(): return f, (torch.ones(3),)""",
    "special method that is None": """
import collections.abc
class A:
    def __iter__(self): return iter(())
    «|__iter__ = None»
K = A()
def f(x): return x * (2 if isinstance(K, collections.abc.Iterable) else 3)
def main(): return f, (torch.ones(3),)""",
    "hash and comparison of a class": """
class A:
    __eq__ = «object.__eq__|lambda self, other: True»
    __hash__ = «object.__hash__|lambda self: 1»
K, J = A(), A()
def f(x): return x * {K: 4, J: 5}[K]
def main(): return f, (torch.ones(3),)""",
    "which class": """
class A:
    k = 2
class B:
    k = 3
K = «A|B»
def f(x): return x * K().k
def main(): return f, (torch.ones(3),)""",
    "closure": """
def make(k):
    def f(x): return x * k
    return f
def main(): return make(«2|3»), (torch.ones(3),)""",
    "function in a closure": """
def make(g):
    def f(x): return g(x)
    return f
def main(): return make(lambda x: x «+|-» 1), (torch.ones(3),)""",
    "decorator": """
def twice(fn):
    @functools.wraps(fn)
    def run(x): return fn(fn(x)) «+|-» 1
    return run
@twice
def g(x): return x * 2
def f(x): return g(x)
def main(): return f, (torch.ones(3),)""",
    "decorated": """
def twice(fn):
    @functools.wraps(fn)
    def run(x): return fn(fn(x)) + 1
    return run
@twice
def g(x): return x * «2|3»
def f(x): return g(x)
def main(): return f, (torch.ones(3),)""",
    "class attribute": """
class A:
    k = «2|3»
def f(x): return x * A.k
def main(): return f, (torch.ones(3),)""",
    "method": """
class A:
    def g(self, x): return x «+|-» 1
a = A()
def f(x): return a.g(x)
def main(): return f, (torch.ones(3),)""",
    "inherited method": """
class B:
    def g(self, x): return x «+|-» 1
class A(B): pass
a = A()
def f(x): return a.g(x)
def main(): return f, (torch.ones(3),)""",
    "bases": """
class B:
    def g(self, x): return x + 1
class C:
    def g(self, x): return x - 1
class A(«B|C»): pass
a = A()
def f(x): return a.g(x)
def main(): return f, (torch.ones(3),)""",
    "method that overrides": """
class B:
    def g(self, x): return x + 1
class A(B):
    «pass|def g(self, x): return x - 1»
a = A()
def f(x): return a.g(x)
def main(): return f, (torch.ones(3),)""",
    "property": """
class A:
    @property
    def k(self): return «2|3»
a = A()
def f(x): return x * a.k
def main(): return f, (torch.ones(3),)""",
    "static method": """
class A:
    @«staticmethod|classmethod»
    def g(*args): return len(args)
a = A()
def f(x): return x * a.g(1)
def main(): return f, (torch.ones(3),)""",
    "special method": """
class A:
    def __add__(self, x): return x + «2|3»
a = A()
def f(x): return a + x
def main(): return f, (torch.ones(3),)""",
    "special method more": """
class A:
    k = 2
    «pass|def __bool__(self): return False»
a = A()
def f(x): return x + 1 if a else x - 1
def main(): return f, (torch.ones(3),)""",
    "metaclass": """
class M(type):
    def __call__(cls, *args): return «2|3»
class A(metaclass=M): pass
def f(x): return x * A()
def main(): return f, (torch.ones(3),)""",
    "name of a class": """
class «A|Bc»: pass
K = «A|Bc»
def f(x): return x * len(K.__name__)
def main(): return f, (torch.ones(3),)""",
    "enumeration": """
class E(enum.Enum):
    A = «2|3»
def f(x): return x * E.A.value
def main(): return f, (torch.ones(3),)""",
    "attribute of an instance": """
class A:
    def __init__(self): self.k = «2|3»
a = A()
def f(x): return x * a.k
def main(): return f, (torch.ones(3),)""",
    "slots": """
class A:
    «pass|__slots__ = ()»
def f(x):
    a = A()
    try: a.k = 2
    except AttributeError: return x - 1
    return x + 1
def main(): return f, (torch.ones(3),)""",
    "argument": "def f(x, k): return x * k\ndef main(): return f, (torch.ones(3), «2|3»)",
    "text argument": "def f(x, k): return x * len(k)\ndef main(): return f, (torch.ones(3), «'a'|'ab'»)",
    "dtype": "def f(x): return x * x.element_size()\ndef main(): return f, (torch.ones(3, dtype=torch.«float32|float64»),)",
    "requires_grad": """
def f(x): return x * 2 if x.requires_grad else x * 3
def main(): return f, (torch.ones(3, requires_grad=«True|False»),)""",
    "layout of memory": """
def f(x): return x * x.stride(0)
def main(): return f, (torch.ones(3, 2)«|.t().contiguous().t()»,)""",
    "kind of tensor": """
def f(x): return x * 2 if isinstance(x, nn.Parameter) else x * 3
def main(): return f, («nn.Parameter|»(torch.ones(3)),)""",
    "shape of a parameter": """
class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(3, «2|4»)
    def forward(self, x): return self.l(x) * self.l.weight.shape[0]
def main(): return M(), (torch.ones(1, 3),)""",
    "dtype of a parameter": """
class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.p = nn.Parameter(torch.ones(3, dtype=torch.«float32|float64»))
    def forward(self, x): return self.p * self.p.element_size()
def main(): return M(), (torch.ones(1, 3),)""",
    "a parameter that is frozen": """
class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.p = nn.Parameter(torch.ones(3), requires_grad=«True|False»)
    def forward(self, x): return x * 2 if self.p.requires_grad else x * 3
def main(): return M(), (torch.ones(3),)""",
    "train and eval": """
def main(): return nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5)).«train|eval»(), (torch.ones(1, 3),)""",
    "which modules": "def main(): return nn.Sequential(nn.Linear(3, 3), nn.«ReLU|Tanh»()), (torch.ones(1, 3),)",
    "how many modules": "def main(): return nn.Sequential(nn.Tanh()«|, nn.Tanh()»), (torch.ones(1, 3),)",
    "setting of a module": """
def main(): return nn.Sequential(nn.LeakyReLU(«0.1|0.2»)), (-torch.ones(1, 3),)""",
    "hook of a module": """
def main():
    m = nn.Sequential(nn.Tanh())
    «pass|m[0].register_forward_hook(lambda m, a, r: r + 1)»
    return m, (torch.ones(1, 3),)""",
    "no bias": "def main(): return nn.Sequential(nn.Linear(3, 3«|, bias=False»)), (torch.ones(1, 3),)",
    "replaced method of an instance": """
class M(nn.Module):
    def forward(self, x): return self.g(x)
    def g(self, x): return x + 1
def main():
    m = M()
    «pass|m.g = lambda x: x - 1»
    return m, (torch.ones(3),)""",
    "after a break": """
def f(x):
    y = x.sin()
    torch._dynamo.graph_break()
    return y «+|-» 1
def main(): return f, (torch.ones(3),)""",
    "before a break": """
def f(x):
    y = x.«sin|cos»()
    torch._dynamo.graph_break()
    return y + 1
def main(): return f, (torch.ones(3),)""",
    "bases of a class": """
class A: pass
class B: pass
class C(«A|B»): pass
def f(x): return x + 1 if isinstance(K, A) else x - 1
K = C()
def main(): return f, (torch.ones(3),)""",
    "bases of a class, assigned": """
class A: pass
class B: pass
class C(A): pass
C.__bases__ = («A|B»,)
def f(x): return x + 1 if isinstance(K, A) else x - 1
K = C()
def main(): return f, (torch.ones(3),)""",
    "name of a class in a message": """
class C: pass
C.__name__ = «'A'|'BB'»
def f(x):
    try:
        K.missing
    except AttributeError as error:
        return x + len(str(error))
K = C()
def main(): return f, (torch.ones(3),)""",
    "where the break is": """
def g(x):
    «|torch._dynamo.graph_break()»
    return x + 1
def f(x):
    return g(x.sin()) + 1
def main(): return f, (torch.ones(3),)""",
}


def versions(name):
    text = HEADER + CHANGES[name] + "\n"
    made = ["", ""]
    while text:
        before, mark, text = text.partition("«")
        made = [part + before for part in made]
        if mark:
            inside, _, text = text.partition("»")
            made = [part + choice for part, choice in zip(made, inside.split("|"), strict=True)]
    return made


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_seen(name):
    first, second = versions(name)
    run = Run(prog=first)
    assert run.is_right and run.hits == 0 and run.kept >= 1, run.refusals
    again = Run(prog=first)
    assert again.is_right and again.misses == 0 and again.hits == len(again.frames)
    changed = Run(prog=second)
    assert changed.is_right
    assert changed.misses > 0, "the other program's version was used"
    back = Run(prog=first)
    assert back.is_right and back.misses == 0


def test_the_folder_of_a_file_of_code_may_be_another_one():
    text = """
def g(): pass
g.__code__ = g.__code__.replace(co_filename='/{}/prog.py')
def f(x): return x * len(g.__code__.co_filename)
def main(): return f, (torch.ones(3),)"""
    for folder in ("one", "another"):
        run = Run(prog=HEADER + text.format(folder))
        assert run.is_right and run.kept == 0


def test_another_file():
    helper = HEADER + "def g(x): return x {} 1\n"
    main = HEADER + "from helpers import g\ndef f(x): return g(x) * 2\ndef main(): return f, (torch.ones(3),)\n"
    assert Run(helpers=helper.format("+"), prog=main).kept == 1
    again = Run(helpers=helper.format("+"), prog=main)
    assert again.is_right and again.hits == 1
    changed = Run(helpers=helper.format("-"), prog=main)
    assert changed.is_right and changed.hits == 0


def test_same_code_with_other_globals():
    """Two helpers with the same text in files that say something else."""
    helper = "K = {}\ndef g(x): return x * K\n"
    main = HEADER + "from {} import g\ndef f(x): return g(x) * 2\ndef main(): return f, (torch.ones(3),)\n"
    texts = {"one": helper.format(2), "other": helper.format(3)}
    Run(**texts, prog=main.format("one"))
    changed = Run(**texts, prog=main.format("other"))
    assert changed.is_right and changed.hits == 0


def test_a_function_of_torch_is_replaced(monkeypatch):
    text = HEADER + "def f(x): return F.relu(x) * 2\ndef main(): return f, (-torch.ones(3),)\n"
    Run(prog=text)
    assert Run(prog=text).hits == 1
    monkeypatch.setattr(torch.nn.functional, "relu", lambda x, inplace=False: x - 5)
    changed = Run(prog=text)
    assert changed.is_right and changed.hits == 0


def test_a_method_of_torch_is_replaced(monkeypatch):
    text = HEADER + "def main(): return nn.Sequential(nn.ReLU()), (-torch.ones(3),)\n"
    Run(prog=text)
    assert Run(prog=text).hits == 1
    monkeypatch.setattr(torch.nn.ReLU, "forward", lambda self, x: x - 5)
    changed = Run(prog=text)
    assert changed.is_right and changed.hits == 0


def test_a_builtin_is_replaced(monkeypatch):
    text = HEADER + "def f(x): return x * len('abc')\ndef main(): return f, (torch.ones(3),)\n"
    Run(prog=text)
    replaced = text + "def len(x): return 7\n"
    changed = Run(prog=replaced)
    assert changed.is_right and changed.hits == 0


@pytest.mark.parametrize(
    "state",
    [
        torch.no_grad,
        lambda: torch.autocast("cpu", torch.bfloat16),
        torch.inference_mode,
    ],
)
def test_torch_has_another_state(state):
    text = HEADER + "def f(x): return x @ x\ndef main(): return f, (torch.ones(3, 3, requires_grad=True),)\n"
    Run(prog=text)
    with state():
        changed = Run(prog=text)
        assert changed.hits == 0
        assert [r.dtype for r in changed.results] == [r.dtype for r in changed.expected]
        assert [r.requires_grad for r in changed.results] == [r.requires_grad for r in changed.expected]
        assert Run(prog=text).hits == 1


def test_modes_are_not_kept():
    text = HEADER + "def f(x): return x @ x\ndef main(): return f, (torch.ones(3, 3),)\n"
    Run(prog=text)
    with torch.device("cpu"):
        changed = Run(prog=text)
        assert changed.is_right and (changed.hits, changed.kept) == (0, 0)


def test_default_dtype():
    text = HEADER + "def f(x): return torch.ones(3) + x\ndef main(): return f, (torch.ones(3, dtype=torch.float16),)\n"
    Run(prog=text)
    torch.set_default_dtype(torch.float64)
    try:
        changed = Run(prog=text)
        assert changed.is_right and changed.hits == 0
    finally:
        torch.set_default_dtype(torch.float32)


def test_settings():
    text = HEADER + "def f(x): return x + 1\ndef main(): return f, (torch.ones(3),)\n"
    Run(prog=text)
    with config.patch(assume_static_by_default=False):
        assert Run(prog=text).hits == 0
    with config.patch(recompile_limit=3, timing=False):
        assert Run(prog=text).hits == 1


def test_marks_of_functions():
    text = HEADER + "def g(x): return x + 1\ndef f(x): return g(x) * 2\ndef main(): return f, (torch.ones(3),)\n"
    Run(prog=text)
    marked = text + "import dynamo_lite\ng = dynamo_lite.disable(g)\n"
    changed = Run(prog=marked)
    assert changed.is_right and not changed.frames["f"].from_cache
    allowed = text + "import dynamo_lite\ndynamo_lite.allow_in_graph(g)\n"
    changed = Run(prog=allowed)
    assert changed.is_right and changed.hits == 0


def test_a_promise_of_constancy_is_not_kept():
    text = (
        HEADER
        + """
import dynamo_lite
@dynamo_lite.assume_constant_result
def g(): return {}
def f(x): return x * g()
def main(): return f, (torch.ones(3),)
"""
    )
    assert Run(prog=text.format(2)).kept == 0
    assert Run(prog=text.format(3)).is_right


def test_hashes_and_orders_of_sets_are_not_kept():
    """They differ from process to process."""
    for expression in (
        "hash('abc') % 7",
        "len(list({'a', 'b'})[0])",
        "hash(('a', 1)) % 5",
        "len(str(frozenset(('a', 'b'))))",
    ):
        text = HEADER + f"def f(x): return x * ({expression})\ndef main(): return f, (torch.ones(3),)\n"
        assert Run(prog=text).kept == 0, expression
    text = (
        HEADER + "def f(x, k): return x * (2 if k in {'a', 'b'} else 3)\ndef main(): return f, (torch.ones(3), 'a')\n"
    )
    assert Run(prog=text).kept == 1
    assert Run(prog=text).hits == 1


def test_custom_operators_are_not_kept():
    """The rule by which a size was found may be another one."""

    @torch.library.custom_op("cache_tests::double", mutates_args=())
    def double(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    double.register_fake(lambda x: torch.empty_like(x))
    text = HEADER + "def f(x): return torch.ops.cache_tests.double(x) + 1\ndef main(): return f, (torch.ones(3),)\n"
    assert Run(prog=text).kept == 0


def test_other_sizes_make_other_versions():
    text = HEADER + "def f(x): return x * x.shape[0]\ndef main(): return f, (torch.ones({}),)\n"
    for size in (3, 4, 5):
        run = Run(prog=text.format(size))
        assert run.is_right and run.hits == 0
    for size in (3, 4, 5):
        run = Run(prog=text.format(size))
        assert run.is_right and run.misses == 0


def test_fullgraph_is_not_served_with_breaks():
    text = (
        HEADER
        + "def f(x):\n    y = x.sin()\n    torch._dynamo.graph_break()\n    return y + 1\ndef main(): return f, (torch.ones(3),)\n"
    )
    Run(prog=text)
    new_process()
    fn, args = load(prog=text).main()
    with pytest.raises(dynamo_lite.exc.Unsupported):
        dynamo_lite.compile(fn, backend="eager", fullgraph=True)(*args)


def test_bases_and_names_assigned_after_a_version_was_read():
    text = HEADER + (
        "class A: pass\nclass B: pass\nclass C(A): pass\nK = C()\n"
        "def f(x):\n"
        "    try:\n        K.missing\n"
        "    except AttributeError as error:\n        n = len(str(error))\n"
        "    return x + n if isinstance(K, A) else x - n\n"
        "def main(): return f, (torch.ones(3),)"
    )
    assert Run(prog=text).kept == 1
    new_process()
    program = load(prog=text)
    compiled = dynamo_lite.compile(program.f, backend="eager")
    x = torch.ones(3)
    assert torch.equal(compiled(x), program.f(x)) and STATS.cache_hits == 1
    program.C.__bases__ = (program.B,)
    assert torch.equal(compiled(x), program.f(x)) and program.f(x)[0] < 0
    program.C.__name__ = "Renamed"
    assert torch.equal(compiled(x), program.f(x))
    program.C.__bases__, program.C.__name__ = (program.A,), "C"
    assert torch.equal(compiled(x), program.f(x)) and program.f(x)[0] > 0


def test_functions_that_a_version_makes_have_the_code_of_the_program():
    text = "import torch\ndef f(x):\n    def inner(y): return y + 1\n    return inner, x + 1\n"
    for hits in (0, 1):
        new_process()
        f = load(prog=text).f
        inner, result = dynamo_lite.compile(f, backend="eager")(torch.ones(2))
        assert STATS.cache_hits == hits
        assert any(inner.__code__ is constant for constant in f.__code__.co_consts)
        assert torch.equal(inner(result), torch.full((2,), 3.0))
