"""Small programs that look at one object `x` in one way each: an expression, or statements that end by `return`.

Input: nothing. Output: `LOOKS`, a list of texts. Most of them raise for most objects, which is an observation too.
"""

EXPRESSIONS = """
type(x)
type(x) is int
x is KEPT
x is not None
x is x
id(x) == id(KEPT)
len(x)
bool(x)
not x
x and 1
x or 1
x == 3
x != 3
3 == x
x == KEPT
x != KEPT
x < 4
x >= KEPT
x == x
x.__class__.__name__
type(x).__name__, type(x).__qualname__, type(x).__module__
type(x).__mro__
type(x).__bases__
type(x).__doc__
type(x).__dict__.keys()
type(x).a
type(type(x))
hasattr(x, 'a')
hasattr(type(x), 'a')
getattr(x, 'a', None)
x.a
x.a is KEPT
x.b
hasattr(x, '__len__')
hasattr(x, '__iter__'), hasattr(x, '__call__'), hasattr(x, '__dict__')
isinstance(x, int)
isinstance(x, (list, tuple, dict))
isinstance(x, type(KEPT))
isinstance(x, collections.abc.Sequence)
isinstance(x, collections.abc.Hashable)
isinstance(x, collections.abc.Iterable)
isinstance(x, typing.Callable)
isinstance(3, x)
issubclass(x, object)
issubclass(bool, x)
issubclass(type(x), collections.abc.Sized)
callable(x)
iter(x) is x
next(iter(x))
next(x)
next(x, 'none')
next(x), next(x, 'none')
1 in x
'a' in x
None in x
KEPT in [x]
x in (1, 2.5, 'ab')
x in {3: 1, 'ab': 2}
{3: 1, 'ab': 2, (1, 2): 3}.get(x)
[1, 'ab', 3].index(x)
[1, 'ab', 3, 3].count(x)
list(x)
tuple(x)
set(x)
frozenset(x)
dict(x)
sorted(x)
sorted(x, key=str)
list(reversed(x))
sum(x)
min(x), max(x)
any(x), all(x)
list(enumerate(x))
list(zip(x, 'abc'))
list(map(type, x))
[v for v in x if v]
{k: 1 for k in x}
[*x, *x]
{**x}
(lambda *p, **q: (p, q))(*x)
(lambda *p, **q: (p, q))(**x)
list(x.keys())
list(x.values())
list(x.items())
x.keys() & {'a', 1}
x.items() == KEPT
next(reversed(x.items()))
x.get('a'), x.get(1, 'none')
x['a']
x[0]
x[-1]
x[1:]
x[::-1]
x[0][0]
x['b']['c']
x.index(1)
x.count(1)
x.copy()
x.pop()
x.append(1)
x.add(1)
x.update({'z': 1})
x.clear()
x.setdefault('q', [])
x | x
x & x
x - x
x + x
x + 1
1 + x
x * 2
2 ** x
x ** 2
x / 2
x // 2, x % 2
divmod(7, x)
-x
+x
abs(x)
~x
x << 1
x @ x
round(x)
int(x)
float(x)
complex(x)
str(x)
repr(x)
ascii(x)
bytes(x)
hash(x) == hash(x)
hash(x) == hash(3)
hash(x) == hash(KEPT)
format(x)
f'{x}'
f'{x!r:>20}'
f'{x:5}'
'%s' % (x,)
'%d' % x
'%(a)s' % x
'{0.a}'.format(x)
'{0[0]}'.format(x)
'{}'.format(x)
', '.join(x)
x.upper()
x.split('b')
x.startswith('a')
x.bit_length()
x.is_integer()
x.real, x.imag
dir(x)
'a' in dir(x)
vars(x)
x.__dict__
x.__dict__.get('a')
list(x.__dict__)
'a' in x.__dict__
x.__dict__ == KEPT
x.__doc__
x.__name__
x.__qualname__
x.__module__
x.__annotations__
inspect.signature(x).parameters.keys()
str(inspect.signature(x))
inspect.getdoc(x)
inspect.isfunction(x), inspect.isclass(x), inspect.ismethod(x), inspect.isgenerator(x)
inspect.getattr_static(x, 'a')
inspect.unwrap(x)
x.func, x.args, x.keywords
x.__defaults__
x.__kwdefaults__
x.__closure__
x.__closure__[0].cell_contents
x.cell_contents
x.__code__.co_consts
x.__code__.co_name, x.__code__.co_varnames
x.__code__ is KEPT
x.co_consts, x.co_firstlineno
x.__globals__['__name__']
x.__globals__.get('a')
x.__func__
x.__self__
x.__self__ is KEPT
x.__wrapped__
x.__mro__
x.__bases__
x.__base__
x.__subclasses__()
x.__dict__['a']
x.__slots__
x.__isabstractmethod__
x.__abstractmethods__
x.fget, x.fset, x.fdel
x.cache_info()
x()
x(1)
x(1, 2)
x(a=1)
x.meth()
x.meth
x.meth is x.meth
x.meth(1)
x.meth.__self__ is x
type(x).meth(x)
x.__call__()
x.__len__()
x.__eq__(3)
x.__lt__(4)
x.__hash__ is None
x.__repr__()
x.__str__()
x.__iter__().__class__
x.__contains__(1)
x.__getitem__(0)
x.__reduce_ex__(2)
x.__init_subclass__
x.__set_name__
x.__sizeof__() > 0
x.__length_hint__()
operator.length_hint(x)
super(type(x), x).a
super(type(x), x).__repr__()
object.__repr__(x)[:4]
object.__getattribute__(x, 'a')
type.__getattribute__(x, 'a')
type.__call__(x)
operator.attrgetter('a')(x)
operator.itemgetter(0)(x)
operator.methodcaller('meth')(x)
operator.index(x)
operator.truth(x)
operator.concat(x, x)
operator.contains(x, 1)
operator.eq(x, KEPT)
math.floor(x), math.ceil(x)
math.sqrt(x)
math.isnan(x)
math.copysign(1.0, x)
math.gcd(x, 12)
math.prod(x)
math.isclose(x, 1.5)
x.name, x.value
x._value_, x._name_
list(x.__members__)
x._fields
x._asdict()
x._replace(a=9)
[f.name for f in dataclasses.fields(x)]
[(f.name, f.default, f.type) for f in dataclasses.fields(x)]
dataclasses.asdict(x)
dataclasses.astuple(x)
dataclasses.replace(x, a=9)
dataclasses.is_dataclass(x)
x.__dataclass_fields__.keys()
x.__match_args__
copy.copy(x)
copy.deepcopy(x)
copy.copy(x) is x
copy.copy(x) == x
x.args
x.__cause__, x.__context__, x.__suppress_context__
x.__notes__
x.__traceback__
x.errno
str(x.__cause__)
x.__origin__
x.__args__
x.__parameters__
x[int]
x | None
typing.get_origin(x), typing.get_args(x)
typing.get_type_hints(x)
x.__bound__, x.__constraints__
x.start, x.stop, x.step
x.indices(5)
range(5)[x]
[0, 1, 2, 3][x]
'abcd'[x]
x.maxlen
x.most_common()
x.total()
x.default_factory
x['missing']
x.missing
x.maps
x.nbytes, x.format, x.readonly
x.tobytes()
x.hex()
x.obj
x.locked()
x.acquire(False)
x.name
x.get()
x.get(5)
x.gi_frame is None, x.gi_running
x.gi_code.co_name
x.gi_yieldfrom
x.send(None)
x.close()
x.cr_frame is None
x.read()
x.tell()
x.getvalue()
x.closed
x.pattern, x.flags
x.match('ab')
x.group()
x.span()
x.numerator, x.denominator
x.year
x.parts
x.registry.keys()
x.dispatch(int)
x.__get__(3)
x.__get__(None, int)
x.__objclass__
x.__text_signature__
x.__thisclass__
x.__instancecheck__(3)
functools.reduce(operator.add, x)
functools.partial(x, 1).args
functools.partial(x, 1)()
list(itertools.chain(x, x))
list(itertools.islice(x, 2))
list(itertools.accumulate(x))
list(itertools.combinations(x, 2))
collections.Counter(x)
collections.deque(x, 2)
collections.OrderedDict(x)
collections.ChainMap(x).get('a')
contextlib.nullcontext(x).enter_result
weakref.ref(x)() is x
enum.auto is x
slice(x)
slice(x) == slice(3)
range(x)
bytearray(x)
memoryview(x).nbytes
chr(x)
ord(x)
bin(x)
hex(x)
pow(x, 2, 5)
print(x, file=OUT)
setattr(x, 'new', 1)
delattr(x, 'a')
""".strip().splitlines()

STATEMENTS = """
for v in x: return v
---
found = []
for v in x: found.append(v)
return found
---
total = 0
for v in x:
    total += v
return total
---
a, b = x
return a, b
---
a, *rest = x
return a, rest
---
(a,) = x
return a
---
while x: return 'true'
return 'false'
---
if x is KEPT: return 'kept'
return 'other'
---
try: return x.a
except AttributeError: return 'none'
---
try: return x['a']
except (KeyError, TypeError, IndexError) as e: return type(e), e.args
---
try: raise x
except Exception as e: return type(e), e.args, e.__cause__
---
try: raise KeyError(1)
except x: return 'caught'
except KeyError: return 'passed'
---
try: raise ValueError from x
except ValueError as e: return e.__cause__, e.__suppress_context__
---
match x:
    case int(): return 'int'
    case [a, *b]: return 'sequence', a, b
    case {'a': v, **rest}: return 'mapping', v, rest
    case str(s): return s
    case None: return 'none'
    case _: return 'other'
---
match x:
    case [1, 2] | (2, 1): return 'numbers'
    case {'a': 1}: return 'one'
    case {}: return 'empty or not'
---
match x:
    case object(a=1): return 'one'
    case object(a=v): return v
---
match x:
    case 3: return 'three'
    case 'ab': return 'text'
    case True: return 'true'
---
with x as v: return v
---
with x: pass
return 'after'
---
x.new = 1
return x.new
---
x.a = 5
return x.a
---
del x.a
return hasattr(x, 'a')
---
x[0] = 9
return x[0]
---
x['a'] = 9
return len(x)
---
del x[0]
return list(x)
---
y = x
y += x
return y, y is x
---
y = x
y |= x
return y is x, y
---
y = x
y *= 2
return y is x
---
y = x
return y is x, y == x
---
class C(x): pass
return C.__mro__, hasattr(C, 'a'), C.__name__
---
class C:
    p = x
return C().p, C.p
---
class C(metaclass=x): pass
return type(C)
---
@x
def g(): return 1
return g
---
def g(a=x): return a
return g(), g.__defaults__
---
def g(): return x
return g(), g.__closure__[0].cell_contents
---
def g(a: x) -> x: pass
return g.__annotations__
---
def g(*p, **q): return p, q
return g(*x), g(*x, **{})
---
def g():
    yield from x
return list(g())
---
def g():
    got = yield 1
    yield x
return list(g())
---
items = [3, 1, 2]
items.sort(key=x)
return items
---
return list(filter(x, [0, 1, 2])), list(map(x, [0, 1, 2]))
---
items = {1: 2}
items[x] = 3
return items, len(items)
---
return {x}, {x: 1}, len({x, 3})
---
it = iter(x)
return next(it), next(it, 'none'), list(it)
---
it = iter(x)
return type(it).__name__, operator.length_hint(it)
---
it = zip(x, x)
return next(it, 'none'), list(x)
---
global SEEN
SEEN = x
return SEEN is x, SEEN
---
box = [x]
return box, box[0] is x, x in box
---
o = types.SimpleNamespace(p=x)
return o.p is x, o
---
return [getattr(x, n, 'none') for n in ('a', 'b', 'name')]
---
return {n: hasattr(x, n) for n in ('a', 'b', 'meth', '__len__')}
---
return sorted(n for n in dir(x) if not n.startswith('_'))
---
return [k for k in x if k != 'a'], [k for k in x if k is KEPT]
---
return functools.singledispatch(lambda v: 'object')(x)
---
assert x, 'false'
return 'true'
---
assert x == KEPT
""".strip().split("\n---\n")

LOOKS = [f"return {line}" for line in EXPRESSIONS] + STATEMENTS
