"""Every public name of torch's compiler has a counterpart that works, or an error that says what to use."""

import importlib
import inspect
import sys
import types
import typing

import pytest
import torch
import torch.compiler

import dynamo_lite
from dynamo_lite.exc import InvalidBackend, Unsupported
from dynamo_lite.testing import CompileCounter


def is_own(module, name):
    value = getattr(module, name)
    if isinstance(value, types.ModuleType | typing.TypeVar) or name.startswith("_"):
        return False
    return getattr(value, "__module__", "").startswith("torch") and (callable(value) or inspect.isclass(value))


NAMES = [name for name in dir(torch.compiler) if is_own(torch.compiler, name)]


@pytest.mark.parametrize("name", NAMES)
def test_name_of_torch_compiler(name):
    there, here = getattr(torch.compiler, name), getattr(dynamo_lite, name)
    assert getattr(dynamo_lite.compiler, name) is here
    assert name in dir(dynamo_lite) and name in dir(dynamo_lite.compiler)
    if name in ("compile", "load_compiled_function"):
        return
    accepted = inspect.signature(here).parameters
    for parameter in inspect.signature(there).parameters.values():
        assert parameter.name in accepted or parameter.kind is parameter.POSITIONAL_OR_KEYWORD


def test_keywords_of_compile():
    ours = inspect.signature(dynamo_lite.compile).parameters
    for parameter in inspect.signature(torch.compile).parameters.values():
        wanted = None if parameter.default == "inductor" else parameter.default  # which is what None means
        assert ours[parameter.name].default == wanted
        assert ours[parameter.name].kind is parameter.kind


def test_names_of_the_other_namespace():
    for name in importlib.import_module("torch." + "_dynamo").__all__:
        try:
            getattr(dynamo_lite, name)
        except AttributeError as error:
            assert "; use " in str(error), name


def test_unknown_name():
    with pytest.raises(AttributeError, match="has no attribute 'nothing'$"):
        dynamo_lite.nothing
    with pytest.raises(AttributeError, match="use dynamo_lite.explain"):
        dynamo_lite.replay


def test_default_backend():
    graphs = []

    def backend(gm, example_inputs):
        graphs.append(gm)
        return gm.forward

    assert dynamo_lite.get_default_backend() == "inductor"
    dynamo_lite.set_default_backend(backend)
    try:
        assert dynamo_lite.get_default_backend() is backend
        dynamo_lite.compile(lambda x: x + 1)(torch.ones(1))
        with pytest.raises(InvalidBackend):
            dynamo_lite.set_default_backend("nothing")
    finally:
        dynamo_lite.set_default_backend(None)
    assert len(graphs) == 1
    assert dynamo_lite.get_default_backend() == "inductor"


def test_error_on_graph_break():
    def fn(x):
        x = x + 1
        dynamo_lite.graph_break()
        return x * 2

    with dynamo_lite.error_on_graph_break(True), pytest.raises(Unsupported):
        dynamo_lite.compile(fn, backend="eager")(torch.ones(1))
    with dynamo_lite.patch_dynamo_config((("error_on_graph_break", True),)):
        with dynamo_lite.error_on_graph_break(False):
            assert dynamo_lite.compile(fn, backend="eager")(torch.ones(1)).item() == 4


def breaking(x):
    dynamo_lite.graph_break()
    return x + 1


def block(x):
    with dynamo_lite.error_on_graph_break(True):
        return breaking(x)


def inner_true(x):
    with dynamo_lite.error_on_graph_break(False), dynamo_lite.error_on_graph_break(True):
        return breaking(x)


def inner_false(x):
    with dynamo_lite.error_on_graph_break(True), dynamo_lite.error_on_graph_break(False):
        return breaking(x)


def behind_the_block(x):
    with dynamo_lite.error_on_graph_break(True):
        x = x * 2
    return breaking(x)


def strict_callee(x):
    return dynamo_lite.error_on_graph_break(True)(breaking)(x)


def lenient_callee(x):
    with dynamo_lite.error_on_graph_break(True):
        return dynamo_lite.error_on_graph_break(False)(breaking)(x * 2)


@pytest.mark.parametrize("fn", [block, inner_true, strict_callee, dynamo_lite.error_on_graph_break(True)(breaking)])
def test_breaks_are_errors_inside(fn):
    """The setting holds for the code that it encloses, compiled or not yet."""
    with pytest.raises(Unsupported, match="DL025"):
        dynamo_lite.compile(fn, backend="eager")(torch.ones(1))
    assert not dynamo_lite.config.error_on_graph_break


@pytest.mark.parametrize(("fn", "graphs"), [(inner_false, 1), (behind_the_block, 2), (lenient_callee, 2)])
def test_breaks_are_allowed_inside(fn, graphs):
    counter = CompileCounter()
    compiled = dynamo_lite.compile(fn, backend=counter)
    for _ in range(2):
        assert torch.equal(compiled(torch.ones(1)), fn(torch.ones(1)))
    assert counter.frame_count == graphs
    assert not dynamo_lite.config.error_on_graph_break
    with pytest.raises(Unsupported, match="DL025"):
        dynamo_lite.compile(fn, backend="eager", fullgraph=True)(torch.ones(1))


def test_questions_inside():
    def fn(x):
        return x + 1, dynamo_lite.is_dynamo_compiling(), dynamo_lite.is_exporting(), torch.compiler.is_exporting()

    assert fn(1) == (2, False, False, False)
    assert dynamo_lite.compile(fn, backend="eager", fullgraph=True)(torch.ones(1))[1:] == (True, False, False)


LAZY = ("is_compiling", "counters", "testing", "set_stance", "compiler.is_exporting")


@pytest.mark.parametrize("name", LAZY)
def test_first_use_of_a_name_inside(name, monkeypatch):
    """Names of the package are loaded when they are first used, which is no break."""
    owner, _, own_name = name.rpartition(".")
    module = getattr(dynamo_lite, owner) if owner else dynamo_lite
    fn = eval(f"lambda x: (x + 1, dynamo_lite.{name})", globals())
    compiled = dynamo_lite.compile(fn, backend="eager", fullgraph=True)
    expected = getattr(module, own_name)
    monkeypatch.delitem(vars(module), own_name)
    if own_name == "testing":
        monkeypatch.delitem(sys.modules, "dynamo_lite.testing")
    result, found = compiled(torch.ones(1))
    assert result.item() == 2
    assert found is vars(module)[own_name]
    assert found is expected or own_name == "testing"


def test_first_use_of_a_marker_inside(monkeypatch):
    def fn(x):
        dynamo_lite.graph_break("here")
        return x + 1

    monkeypatch.delitem(vars(dynamo_lite), "graph_break", raising=False)
    with pytest.raises(Unsupported, match="DL025"):
        dynamo_lite.compile(fn, backend="eager", fullgraph=True)(torch.ones(1))


def test_names_that_the_package_has_not():
    def fn(x):
        return x + 1, hasattr(dynamo_lite, "no_such_name"), hasattr(dynamo_lite.compiler, "no_such_name")

    assert dynamo_lite.compile(fn, backend="eager", fullgraph=True)(torch.ones(1))[1:] == (False, False)


def test_nested_region_is_captured():
    @dynamo_lite.nested_compile_region
    def inner(x):
        return x.sin()

    compiled = dynamo_lite.compile(lambda x: inner(x) + inner(x + 1), backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(torch.ones(2)), torch.ones(2).sin() + torch.full((2,), 2.0).sin())


def test_guards_always_run():
    with pytest.warns(UserWarning, match="guards always run"):
        compiled = dynamo_lite.compile(
            lambda x, n: x + n, backend="eager", options={"guard_filter_fn": dynamo_lite.skip_all_guards_unsafe}
        )
    assert [compiled(torch.ones(1), n).item() for n in (1, 2, 3)] == [2, 3, 4]


def test_guard_collectives_of_one_process():
    counter = CompileCounter()
    compiled = dynamo_lite.compile(lambda x: x + 1, backend=counter)
    assert dynamo_lite.set_enable_guard_collectives(True) is False
    try:
        assert [compiled(torch.ones(2))[0].item() for _ in range(2)] == [2, 2]
        assert counter.frame_count == 1
    finally:
        assert dynamo_lite.set_enable_guard_collectives(False) is True


def test_what_there_is_not():
    with pytest.raises(NotImplementedError, match=r"torch\.export"):
        dynamo_lite.load_compiled_function(None)


@pytest.mark.parametrize(
    "stance",
    [
        "default",
        "force_eager",
        "eager_on_recompile",
        "fail_on_recompile",
        "eager_then_compile",
        "aot_eager_then_compile",
    ],
)
def test_stance(stance):
    compiled = dynamo_lite.compile(lambda x: x + 1, backend="eager")
    compiled(torch.ones(1))
    with dynamo_lite.set_stance(stance, skip_guard_eval_unsafe=False):
        assert compiled(torch.ones(1)).item() == 2


def test_supported():
    assert dynamo_lite.is_dynamo_supported()
    assert dynamo_lite.is_inductor_supported() in (True, False)
