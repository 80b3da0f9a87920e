"""The table of what is captured of Python: it is of this version, complete, and true."""

import builtins
import collections
import copy
import functools
import importlib.util
import itertools
import operator
import os
import pathlib
import types

import pytest

from dynamo_lite.__main__ import main
from dynamo_lite.breaks import BREAKS
from dynamo_lite.config import config
from dynamo_lite.record import log
from dynamo_lite.report import support
from dynamo_lite.variables.objects.exception_instance import WITH_MEMBERS
from dynamo_lite.variables.protocol.dispatch import REFUSED
from tests.helpers import processes
from tests.helpers.capturing import wrapped

ROOT = pathlib.Path(__file__).parents[2]
PAGE = ROOT / "docs" / "python-support.md"


def written_by():
    return PAGE.read_text().partition("on CPython ")[2].partition(";")[0]


@pytest.mark.skipif(
    written_by() != support.VERSION or importlib.util.find_spec("torch") is None,
    reason="the page is of another version",
)
def test_the_page_is_what_the_command_writes():
    settings = {name: value for name, value in os.environ.items() if name != "DYNAMO_LITE_STITCH"}
    printed = processes.run(["-m", "dynamo_lite", "support"], cwd=ROOT, env=settings, check=True).stdout
    assert printed == PAGE.read_text(), "run `python -m dynamo_lite support --write`"


def test_a_page_that_cannot_be_written(tmp_path, capsys):
    assert main(["support", "--write", str(tmp_path / "missing" / "page.md")]) == 1
    assert "No such file or directory" in capsys.readouterr().err


def test_every_callable_has_its_row():
    owners = set()
    for _, what, rows in support.rows():
        owners.add(what)
        for row in rows:
            assert row.support.how in support.KINDS, row
            if row.support.how == support.ENDS:
                assert row.support.slug in BREAKS and row.reason, row
            else:
                assert not row.support.slug, row
    assert owners >= {*support.MODULES, "list", "dict_keys", "generator", "collections.deque", "functools.partial"}


# Of these types and modules only what is named in `support.REASONS`, refused, or called by no program with tensors breaks.
RARE = {
    range: ["count", "index"],
    collections.deque: ["count", "index", "insert", "remove"],
    collections.OrderedDict: ["fromkeys"],
}
MODELLED = [
    *(int, float, complex, bool, str, bytes, list, tuple, dict, set, frozenset, range, slice),
    *(collections.deque, collections.OrderedDict, collections.defaultdict, types.MappingProxyType),
    *(type({}.keys()), type({}.items()), type({}.values())),
]


@pytest.mark.parametrize("cls", MODELLED, ids=lambda cls: cls.__name__)
def test_modelled_types_have_all_their_methods(cls):
    broken = [row.name for row in support.methods(cls) if row.support.how == support.ENDS]
    assert sorted(name for name in broken if name not in support.REASONS) == RARE.get(cls, [])


@pytest.mark.parametrize("module", [builtins, itertools, operator], ids=lambda module: module.__name__)
def test_modelled_modules_have_all_their_functions(module):
    classes = {name: cls for name, cls in vars(builtins).items() if isinstance(cls, type)}
    exceptions = [name for name, cls in classes.items() if issubclass(cls, WITH_MEMBERS)]
    unmodelled = {"bytearray", "memoryview", "countOf", "indexOf", "length_hint", "aiter", "anext", *exceptions}
    unmodelled |= {"classmethod", "property", "staticmethod"}
    values = {
        row.name: getattr(module, row.name) for row in support.functions(module) if row.support.how == support.ENDS
    }
    assert {name for name, value in values.items() if value not in REFUSED} <= unmodelled


class Plain:
    pass


def generator():
    yield 1


SAMPLES = [
    object(), Plain, None, NotImplemented, ..., True, 5, 2.5, 1j, "ab", b"ab", bytearray(b"ab"), [1, 2], (1, 2), range(3),
    slice(1, 2), {"a": 1}, types.MappingProxyType({"a": 1}), {1, 2}, frozenset({1}), generator, Plain().__init__, len,
    list.append, int.__add__, property(lambda s: 1), types.CellType(1),
    generator.__code__, list[int], int | str, types.SimpleNamespace(a=1), ValueError(1), OSError(1, "x"),
    ImportError("a"), StopIteration(3), KeyError(1), collections.deque([1]), collections.OrderedDict(a=1),
    collections.defaultdict(list), functools.partial(len),
]  # fmt: skip
SHARED = (type, types.CodeType, types.CellType, types.MappingProxyType)
NEW = [
    lambda: iter([1]),
    lambda: reversed([1]),
    lambda: iter((1,)),
    lambda: iter("a"),
    lambda: iter(range(2)),
    lambda: iter({1: 2}),
    lambda: {1: 2}.keys(),
    lambda: {1: 2}.values(),
    lambda: {1: 2}.items(),
    lambda: enumerate([1]),
    lambda: zip([1]),
    lambda: map(str, [1]),
    lambda: filter(None, [1]),
    lambda: itertools.count(),
    lambda: itertools.chain([1]),
    lambda: staticmethod(len),
    lambda: classmethod(len),
    lambda: types.ModuleType("own"),  # a new one each time: `__init__` renames it
    generator,
]
MAKERS = {type(sample): (lambda s=sample: s if isinstance(s, SHARED) else copy.copy(s)) for sample in SAMPLES}
MAKERS |= {type(make()): make for make in NEW}
ARGUMENTS = [(), None, (0,), ("a",), (0, 1), ([],), ({},), ("a", 1)]  # None: another object of the type
CLASS_METHODS = (staticmethod, classmethod, types.ClassMethodDescriptorType, types.BuiltinFunctionType)


def arguments(make, raw):
    """The first arguments that the method takes, with a new object as self."""
    for args in ARGUMENTS:
        args = (make(),) if args is None else args
        try:
            raw(make(), *args)
        except TypeError:
            continue
        except Exception:
            pass
        return args
    return None


def breaks_of(raw, self, args):
    log.reset()
    with config.patch(capture_pure_python=True, debug=True):
        captured = wrapped(lambda self, args: raw(self, *args))
        try:
            captured(self, args)
        except Exception:
            pass
    return [(found.slug, found.context) for found in log.breaks()]


@pytest.mark.parametrize("cls", MAKERS, ids=lambda cls: cls.__qualname__)
@pytest.mark.filterwarnings("ignore")
def test_the_table_is_true(cls):
    """Each method is called in captured code: it breaks exactly if the table says so."""
    make = MAKERS[cls]
    wrong = []
    for row in support.methods(cls):
        raw = cls.__dict__[row.name]
        args = None if isinstance(raw, CLASS_METHODS) else arguments(make, raw)
        if args is None:
            continue
        found = breaks_of(raw, make(), args)
        if row.support.how == support.ENDS:
            as_said = any(slug == row.support.slug for slug, _ in found)
        else:
            as_said = ("call-c-function", support.qualified(raw)) not in found
        if not as_said:
            wrong.append((row.name, row.support, found))
    assert wrong == []


@pytest.mark.parametrize(
    ("value", "how"),
    [
        (len, support.NATIVE),
        (list.append, support.NATIVE),
        ([].append, support.NATIVE),
        (dict.fromkeys, support.NATIVE),
        (list, support.NATIVE),
        (Plain, support.INLINED),
        (int.bit_length, None),
        (functools.wraps, support.INLINED),
        (print, support.ENDS),
        (memoryview, support.ENDS),
    ],
)
def test_resolve(value, how):
    found = support.resolve(value)
    assert found.how == (how or found.how) and found.how in support.KINDS
