"""What the programs have in common: globals, classes and functions; each is only there if the program names it."""

import re

ALWAYS = """G = 3
GL = [1, 2]
GD = {}
"""

PIECES = """
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
def global_counter(n):
    global COUNT
    try:
        COUNT += n
    except NameError:
        COUNT = n
    GL[:] = GL[-4:]
def rec(n):
    if n <= 0 or n > 6:
        return stop('rec', n)
    try:
        return n + rec(n - 2)
    finally:
        GL[0] = n
def spread(a, *rest, c=3, **more):
    return a + len(rest) * c
def make_counter(n):
    def counter(step=1):
        nonlocal n
        n += step
        return n
    return counter
def advanced(iterator):
    next(iterator, None)
    return iterator
@functools.lru_cache(maxsize=4)
def cached(n):
    return stop('cached', n)
class Items(list):
    k = 8
    def first(self):
        return self[0]
    def m(self, x):
        self.append(x)
        return len(self)
class Defaults(dict):
    def __missing__(self, key):
        self[key] = key
        return stop('missing', key)
class Meta(type):
    seen = 4
    def __call__(cls, *args):
        made = super().__call__(*args)
        made.extra = len(args)
        return made
    def __len__(cls):
        return 11
class Base:
    tags = ()
    def __init_subclass__(cls, tag=None, **kwargs):
        super().__init_subclass__(**kwargs)
        cls.tags = cls.tags + (tag,)
    def __init__(self, v):
        self.v = v
class Named:
    def __set_name__(self, owner, name):
        self.name = name
    def __get__(self, obj, owner=None):
        return self.name
class Pair(collections.namedtuple('Pair', 'x y')):
    __slots__ = ()
    def total(self):
        return self.x + self.y
@dataclasses.dataclass(order=True)
class Point:
    x: int
    y: int = 2
    tags: list = dataclasses.field(default_factory=list, compare=False)
    def norm(self):
        self.tags.append(1)
        return self.x * self.x + self.y
class Color(enum.Enum):
    RED = 1
    BLUE = 2
    def next(self):
        return Color(3 - self.value)
class MODULE_CLASS(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor([1., 2., -1.]))
        self.register_buffer('seen', torch.zeros(3))
        self.calls = 0
    def forward(self, x):
        self.calls += 1
        self.seen.add_(1)
        if self.calls == 3:
            stop('module', x)
        return x * self.weight + self.calls
def MASK_OF():
    return torch.tensor([True, False, True])
class Watched:
    def __init__(self, v=None):
        self.v = v
        self.items = [v]
def stop_ref(reference):
    stop('ref', reference() is None)
def stop_builtin(*args):
    return stop('builtin', len(args))
def other_handler(signum, frame):
    stop('other', int(signum))
    signal.signal(signum, on_signal)
def endless(n):
    try:
        return endless(n + 1)
    except RecursionError:
        return 1
def WEAK_DICT():
    return weakref.WeakValueDictionary()
def WEAK_SET():
    return weakref.WeakSet()
def FIRST_REF():
    return weakref.ref(Custom)
class Countdown:
    def __init__(self, n):
        self.n = min(n, 4)
    def __iter__(self):
        return self
    def __next__(self):
        if self.n <= 0:
            raise StopIteration
        self.n -= 1
        return self.n
"""

MADE = {"MODULE": "MODULE_CLASS", "MASK": "MASK_OF", "WD": "WEAK_DICT", "WS": "WEAK_SET", "R0": "FIRST_REF"}
_START = re.compile(r"^(?:@.*\n)?(?:class|def) (\w+)", re.MULTILINE)
_WORD = re.compile(r"\w+")


def _pieces():
    starts = list(_START.finditer(PIECES))
    ends = [m.start() for m in starts[1:]] + [len(PIECES)]
    return [(m[1], PIECES[m.start() : end]) for m, end in zip(starts, ends, strict=True)]


NAMED = _pieces()


def header(text):
    """The pieces that a program needs, in their order."""
    needed = set(_WORD.findall(text))
    needed |= {maker for name, maker in MADE.items() if name in needed}
    chosen = []
    for name, piece in reversed(NAMED):
        if name in needed:
            needed.update(_WORD.findall(piece))
            chosen.append(piece)
    made = [f"{name} = {maker}()\n" for name, maker in MADE.items() if name in needed]
    return ALWAYS + "".join(reversed(chosen)) + "".join(made)
