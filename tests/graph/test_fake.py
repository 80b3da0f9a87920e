"""Propagation of metadata: the memo gives what running the operator gives, and nothing leaks into the process."""

import subprocess
import sys
import textwrap
import threading
import types
import warnings

import pytest
import torch
import torch.nn.functional as F

import dynamo_lite
from dynamo_lite.exc import Unsupported
from dynamo_lite.graph.core import fake
from dynamo_lite.graph.core.meta import intern, meta_of_fake, meta_of_input
from dynamo_lite.messages import ignored, unshown
from dynamo_lite.record import STATS
from tests.helpers.stub_trace import StubTrace


@pytest.fixture(autouse=True)
def _fresh_memo():
    fake.MEMO.clear()
    STATS.reset()


def x():
    return torch.arange(12.0).reshape(3, 4)


def test_equal_metadata_is_one_object():
    assert meta_of_input(x()) is meta_of_input(x() + 1)
    assert meta_of_input(x()) is not meta_of_input(x().T)
    assert meta_of_input(x()) is not meta_of_input(x().double())
    assert meta_of_input(x()).replace(requires_grad=True, is_leaf=True) is meta_of_input(x().requires_grad_())


def test_fake_of_a_meta_has_that_meta():
    propagator = fake.Propagator()
    layouts = [((3, 4), (4, 1), 0), ((4, 3), (1, 4), 0), ((2, 2), (4, 1), 5), ((0, 3), (3, 1), 0), ((), (), 2)]
    for shape, stride, offset in layouts:
        for grad, leaf in [(False, True), (True, True), (True, False)]:
            meta = intern(shape, stride, offset, torch.float32, torch.device("cpu"), grad, leaf)
            assert meta_of_fake(propagator.make_fake(meta)) is meta


def test_second_call_is_remembered():
    tr = StubTrace()
    a, b = tr.input(x()), tr.input(x() * 2)
    first = tr.call(F.softplus, a)
    second = tr.call(F.softplus, b)
    assert (STATS.fake_calls, STATS.memo_hits) == (1, 1)
    assert first.proxy.meta is second.proxy.meta
    assert second.proxy.fake is None
    assert tr.graph.propagator.fake_of(second.proxy).shape == (3, 4)


@pytest.mark.parametrize("other", [1.0, True, 1 + 0j])
def test_numbers_that_are_equal_are_different_arguments(other):
    tr = StubTrace()
    a = tr.input(torch.tensor([1, 2]))
    one = tr.call(torch.add, a, 1)
    two = tr.call(torch.mul, a, 1)
    three = tr.call(torch.mul, a, other)
    assert one.proxy.meta.dtype is two.proxy.meta.dtype is torch.int64
    assert three.proxy.meta.dtype is torch.mul(torch.tensor([1, 2]), other).dtype


def test_memo_knows_the_grad_mode():
    a = x().requires_grad_()
    tr = StubTrace()
    assert tr.call(F.relu, tr.input(a)).proxy.meta.requires_grad
    with torch.no_grad():
        tr = StubTrace()
        assert not tr.call(F.relu, tr.input(a)).proxy.meta.requires_grad


def test_remembered_change_of_an_argument():
    for _ in range(2):
        tr = StubTrace()
        a = tr.call(torch.zeros, 3, 4)
        view = tr.call("view", a, -1)
        tr.call("add_", a, tr.input(x().requires_grad_()))
        assert a.proxy.meta.requires_grad and not a.proxy.meta.is_leaf
        assert view.proxy.meta.requires_grad
        tr.call("t_", a)
        assert a.proxy.meta.shape == (4, 3)
        tr.call("resize_", tr.call(torch.zeros, 2), 5)
    assert STATS.memo_hits >= 4


def test_known_numbers_are_not_remembered():
    tr = StubTrace()
    for value in (2, 3):
        t = tr.call(torch.tensor, value)
        assert tr.call("item", t).value == value
    t = tr.call(torch.tensor, 1)
    tr.call("add_", t, 1)
    assert tr.call("item", t).value == 2


def test_failures_are_not_remembered_and_leave_nothing():
    tr = StubTrace()
    a = tr.input(x())
    for _ in range(2):
        with pytest.raises(Unsupported):
            tr.call(torch.mm, a, a)
    assert not [k for k in fake.MEMO if k[0] is torch.mm]
    assert torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is None


def test_random_generator_is_untouched():
    state = torch.get_rng_state()
    tr = StubTrace()
    tr.call(torch.rand, 3)
    tr.call(F.dropout, tr.input(x()), 0.5, True)
    tr.call(torch.randperm, 4)
    assert torch.equal(state, torch.get_rng_state())


def test_live_metadata():
    tr = StubTrace()
    a = tr.input(torch.randn(3, dtype=torch.complex64))
    conjugate = tr.call("conj", a)
    assert conjugate.proxy.meta.live
    assert tr.call("imag_" if False else torch.imag, conjugate).proxy.meta.dtype is torch.float32


def test_capture_does_not_import_torchs_compiler():
    program = """
        import sys
        import torch, torch.nn.functional as F
        import dynamo_lite
        def fn(x, w):
            y = F.gelu(F.layer_norm(F.linear(x, w), (8,)))
            return F.softmax(y @ w.T, -1), torch.tensor([1, 2]), torch.einsum("ij,kj->ik", y, y), y.var(0), x.shape[0]
        compiled = dynamo_lite.compile(fn, backend="eager", fullgraph=True)
        w = torch.randn(8, 8, requires_grad=True)
        for n in (3, 4, 5):
            compiled(torch.randn(n, 8), w)
        assert not [m for m in sys.modules if m.startswith(("torch._dynamo", "torch._inductor"))]
        assert "_dynamo" not in torch.__dict__
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True)


def test_what_a_first_capture_imports():
    """No part of a package that neither the program nor the graph needs: they take longer than the capture itself."""
    program = """
        import sys
        import torch
        import dynamo_lite
        before = set(sys.modules)
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
        dynamo_lite.compile(model, backend="eager", fullgraph=True)(torch.randn(2, 4))
        late = ("sympy", "mpmath", "torch._refs", "torch._decomp", "torch.distributed.tensor", "torch.onnx", "torch.fx.experimental",
                "torch._dynamo", "torch._inductor", "torch._functorch", "numpy.fft")
        found = [name for name in set(sys.modules) - before if name.startswith(late)]
        assert not found, found
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True)


def test_stand_in_gives_way_to_the_real_package():
    program = """
        import torch
        from dynamo_lite.graph.core import keep_dynamo_unloaded
        with keep_dynamo_unloaded.without_compiler:
            import torch._dynamo.config
            assert torch._dynamo.config._custom_ops_profile is None
            from torch._dynamo.source import ConstantSource
            assert ConstantSource.__module__ == "torch._dynamo.source"
        import torch._dynamo
        assert torch._dynamo.__file__
        f = keep_dynamo_unloaded._disable(lambda: 3)
        assert f() == 3 and torch.compile(lambda x: x + f(), backend="eager")(torch.ones(1)) == 4
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True)


@pytest.mark.parametrize("dynamic", [False, True])
def test_operators_made_of_others_in_inference_mode(dynamic):
    """They run as in eager execution there, and ask the fake tensors for their device."""
    model = torch.nn.Sequential(torch.nn.Linear(6, 3), torch.nn.Softmax(-1), torch.nn.Conv1d(4, 2, 1))
    fake.MEMO.clear()
    compiled = dynamo_lite.compile(model, backend="eager", fullgraph=True, dynamic=dynamic)
    x = torch.randn(4, 6)
    with torch.inference_mode():
        assert torch.equal(compiled(x), model(x))


# -- warnings


def written(message):
    """As `warnings` itself, which pytest has replaced."""
    sys.stderr.write(_formatwarnmsg(message))  # noqa: F821


def said(fn, *args):
    """What a function warns of at two calls: the texts as recorded."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fn(*args)
        fn(*args)
    return [str(w.message) for w in caught]


def shown(fn, action, capsys, *args):
    """What two calls write to stderr as a program of its own would, with the lines of the program."""
    globals().pop("__warningregistry__", None)
    vars(F).pop("__warningregistry__", None)
    warnings.onceregistry.clear()
    with warnings.catch_warnings(), warnings.catch_warnings():
        warnings.showwarning = warnings._showwarning_orig
        warnings._showwarnmsg_impl = types.FunctionType(written.__code__, vars(warnings))
        warnings.resetwarnings()
        warnings.simplefilter(action)
        fn(*args)
        fn(*args)
    return capsys.readouterr().err


WARNS = {
    "mse_loss": lambda x: F.mse_loss(x, x[:1]),
    "smooth_l1_loss": lambda x: F.smooth_l1_loss(x, x[:1]),
    "kl_div": lambda x: F.kl_div(x, x),
    "size_average": lambda x: F.mse_loss(x, x, size_average=False),
    "upsample": lambda x: F.upsample(x.view(1, 1, 3), scale_factor=2),
    "grid_sample": lambda x: F.grid_sample(x.new_ones(1, 1, 2, 2), x.new_zeros(1, 2, 2, 2)),
    "softmax, twice": lambda x: F.softmax(x) + F.softmax(x),
}
GRAPH_WARNS = {
    "tensor": lambda x: torch.tensor(x),
    "range": lambda x: x.sum() + torch.range(0, 3),
    "vmap": lambda x: torch.vmap(F.softmax)(x.view(1, 3)),
    "std": lambda x: x[:1].std(),
    "out=": lambda x: torch.add(x, x, out=torch.empty(5)),
}


@pytest.mark.parametrize("action", ["default", "always", "once", "module"])
@pytest.mark.parametrize("name", WARNS)
def test_warnings_of_functions_of_torch_come_from_the_line_of_the_program(name, action, capsys):
    fn, x = WARNS[name], torch.tensor([3.0, -1.0, 2.0])
    expected = shown(fn, action, capsys, x)
    assert shown(dynamo_lite.compile(fn, backend="eager", fullgraph=True), action, capsys, x) == expected
    assert expected.count("Warning: ") > 0


@pytest.mark.parametrize("name", [*WARNS, *GRAPH_WARNS])
def test_warnings_come_as_often_as_in_eager_execution(name):
    fn, x = (WARNS | GRAPH_WARNS)[name], torch.tensor([3.0, -1.0, 2.0])
    expected = said(fn, x)
    assert said(dynamo_lite.compile(fn, backend="eager", fullgraph=True), x) == expected
    assert len(expected) >= 2


def test_a_warning_that_torch_gives_once_is_left_to_the_graph():
    code = (
        "import warnings, torch, dynamo_lite\n"
        "warnings.simplefilter('always')\n"
        "f = dynamo_lite.compile(lambda x: x.T, backend='eager', fullgraph=True)\n"
        "f(torch.ones(3)), f(torch.ones(3))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.count("The use of `x.T`") == 1


def test_other_threads_show_their_warnings_meanwhile():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with unshown() as kept:
            warnings.warn("kept", stacklevel=1)
            thread = threading.Thread(target=warnings.warn, args=("shown",))
            thread.start()
            thread.join()
        warnings.warn("after", stacklevel=1)
    assert [str(w.message) for w in kept] == ["kept"]
    assert [str(w.message) for w in caught] == ["shown", "after"]


def test_what_is_ignored_is_that_of_one_thread():
    def other():
        with pytest.raises(UserWarning, match="raised"):
            warnings.warn("raised", stacklevel=1)
        raised.append(True)

    before, raised = list(warnings.filters), []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with ignored():
            warnings.warn("ignored", stacklevel=1)
            thread = threading.Thread(target=other)
            thread.start()
            thread.join()
            with warnings.catch_warnings():  # of another thread, say, that goes on meanwhile
                warnings.warn("ignored", stacklevel=1)
        with pytest.raises(UserWarning, match="after"):
            warnings.warn("after", stacklevel=1)
    assert raised and warnings.filters == before


def test_threads_put_back_what_torch_warns_of():
    """The one that came second finds the flag as the first one has set it."""
    first, second = fake.warnings_kept(), fake.warnings_kept()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert torch.is_warn_always_enabled()
    second.__exit__(None, None, None)
    assert not torch.is_warn_always_enabled()
