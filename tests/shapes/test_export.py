"""`export`: whole graphs that stand by themselves, and the errors where there is none."""

import functools
import io
import linecache
import logging
import random

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export import Dim
from torch.overrides import TorchFunctionMode
from torch.utils.hooks import RemovableHandle

import dynamo_lite
import dynamo_lite.compiler
from dynamo_lite import export
from dynamo_lite.exc import Unsupported, UserError
from dynamo_lite.graph.core.state import STATE_TEXT
from dynamo_lite.messages import short_path
from dynamo_lite.testing import differences


def nested(x, y, *, k=2):
    return {"sum": x + y["b"] * k, "n": x.shape[0] * 2, "x": x, "constants": (1, "text", None)}


def model(**options):
    return torch.nn.Sequential(
        torch.nn.Linear(4, 5, **options), torch.nn.BatchNorm1d(5, **options), torch.nn.ReLU()
    ).eval()


def targets(exported):
    return [node.target for node in exported.graph.nodes if node.op.startswith("call_")]


def test_trees_of_inputs_and_outputs():
    exported = export(
        nested,
        torch.ones(3, 4),
        {"b": torch.ones(3, 4)},
        dynamic_shapes={"x": {0: "dynamic"}, "y": {"b": {0: "dynamic"}}},
    )
    for n in (3, 5, 9):
        x, y = torch.randn(n, 4), {"b": torch.randn(n, 4)}
        result = exported(x, y)
        assert not list(differences(nested(x, y), result))
        assert result["x"] is x
    leaves = exported.graph_module(x, y["b"])
    assert len(leaves) == 6 and torch.equal(leaves[0], result["sum"])
    assert any("x.size(0) == y['b'].size(0)" in text for text in exported.preconditions)


def test_preconditions_hold_calls_back():
    exported = export(lambda x: x * 2, torch.ones(3, 4), dynamic_shapes=[{0: Dim("batch", max=8)}])
    assert torch.equal(exported(torch.ones(8, 4)), torch.full((8, 4), 2.0))
    with pytest.raises(ValueError, match="do not meet the preconditions:\n.*x.size\\(0\\) <= 8, found 9"):
        exported(torch.ones(9, 4))
    with pytest.raises(ValueError, match="shape .*4"):
        exported(torch.ones(3, 5))
    with pytest.raises(ValueError, match="another structure"):
        exported([torch.ones(3, 4)])


def test_a_module():
    module = model()
    exported = export(module, torch.ones(3, 4), dynamic_shapes={"input": {0: Dim("batch")}})
    x = torch.randn(7, 4)
    assert torch.equal(exported(x), module(x))
    assert dict(exported.graph_module.named_parameters()).keys() == {"0_weight", "0_bias", "1_weight", "1_bias"}
    assert exported.graph_module.get_parameter("0_weight") is module[0].weight
    with torch.no_grad():
        module[0].weight.mul_(2)
    assert torch.equal(exported.graph_module(x)[0], module(x))


def test_nothing_is_run():
    module = torch.nn.BatchNorm1d(4)
    export(module, torch.randn(5, 4))
    assert module.num_batches_tracked == 0 and torch.equal(module.running_mean, torch.zeros(4))


def test_the_arguments_are_as_before():
    x = torch.ones(3, 4)
    export(lambda x: x + 1, x, dynamic_shapes=[{0: "dynamic"}])
    assert x.__dict__ == {}


def test_fake_modules_and_inputs():
    with FakeTensorMode():
        fake, x = model(), torch.ones(3, 4)
    exported = export(fake, x, dynamic_shapes=[{0: "dynamic"}])
    assert targets(exported) == targets(export(model(), torch.ones(3, 4), dynamic_shapes=[{0: "dynamic"}]))
    assert exported.graph_module.get_parameter("0_weight") is fake[0].weight


def test_meta_modules_and_inputs():
    exported = export(model(device="meta"), torch.ones(3, 4, device="meta"))
    assert len(targets(exported)) == 3 and all(p.is_meta for p in exported.graph_module.parameters())


def test_tensors_that_are_no_inputs():
    scale = torch.full((4,), 3.0)
    exported = export(lambda x: (x * scale, scale, x.shape[1]), torch.ones(2, 4))
    product, same, n = exported(torch.ones(2, 4))
    assert torch.equal(product, torch.full((2, 4), 3.0)) and same is scale and n == 4


def test_sizes_of_what_is_not_in_the_graph():
    exported = export(
        lambda x, y: y + x.shape[0], torch.ones(3, 4), torch.ones(2), dynamic_shapes={"x": {0: "dynamic"}}
    )
    assert torch.equal(exported(torch.ones(7, 4), torch.ones(2)), torch.full((2,), 8.0))


class Counts(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return x + self.calls


def test_effects_on_python_objects_are_refused():
    module = Counts()
    with pytest.raises(UserError) as info:
        export(module, torch.ones(3))
    line = Counts.forward.__code__.co_firstlineno + 1
    assert str(info.value) == (
        f'the program changes attributes of self\n  File "{short_path(__file__)}", line {line}, in forward\n'
        "    self.calls += 1\n    ^^^^^^^^^^\n"
        "  do:  return the new value instead: an exported graph has results only"
    )
    assert module.calls == 0


GENERATOR = random.Random(3)
NUMBERS = [1, 2, 3]


def draws_again_and_back(x):
    state = random.getstate()
    y = x + random.random()
    random.setstate(state)
    return y


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x + random.random(),
        lambda x: x * random.uniform(1, 2),
        lambda x: [random.shuffle(NUMBERS), x][1],
        lambda x: x * random.randint(0, 9),
        lambda x: x * random.choice([1, 2]),
        lambda x: x + random.getrandbits(3),
        lambda x: x.new_zeros(random.randint(2, 10)),
        lambda x: x if random.random() < 2 else x + 1,
        lambda x: x + GENERATOR.random(),
        lambda x: random.seed(1) or x,
        lambda x: x * (random.seed(1) or random.random()),
        draws_again_and_back,
    ],
)
def test_random_numbers_of_python_are_refused(fn):
    states = random.getstate(), GENERATOR.getstate()
    with pytest.raises(UserError) as info:
        export(fn, torch.ones(3))
    first, place, _, _, do = str(info.value).splitlines()[:5]
    assert first == "the program changes the state of a random number generator of Python"
    assert place.startswith(f'  File "{short_path(__file__)}", line ')
    assert do == "  do:  draw with torch (torch.rand, torch.randint), or draw outside and pass the number in a tensor"
    assert (random.getstate(), GENERATOR.getstate(), NUMBERS) == (*states, [1, 2, 3])


def test_random_numbers_that_are_always_the_same_are_constants():
    exported = export(lambda x: x + random.Random(0).random(), torch.ones(3))
    assert torch.equal(exported(torch.ones(3)), torch.ones(3) + random.Random(0).random())


BUFFER = io.StringIO()


def prints_twice(x):
    print("one", x.shape, file=BUFFER)
    y = x + 1
    print("two", file=BUFFER)
    return y


def test_output_is_refused():
    with dynamo_lite.config.patch(stitch="auto"), pytest.raises(UserError) as info:
        export(prints_twice, torch.ones(3))
    line = prints_twice.__code__.co_firstlineno + 1
    assert str(info.value) == (
        "the program calls print, and an exported graph writes nothing\n"
        f'  File "{short_path(__file__)}", line {line}, in prints_twice\n'
        '    print("one", x.shape, file=BUFFER)\n    ' + "^" * 34 + "\n"
        f'  File "{short_path(__file__)}", line {line + 2}, in prints_twice\n'
        '    print("two", file=BUFFER)\n    ^^^^^^^^^^^^^^^^^^^^^^^^^\n'
        "  do:  give it to a logger, whose messages are left out, or write it outside of what is exported"
    )
    assert BUFFER.getvalue() == ""


MARKED = torch.ones(6, 4)
dynamo_lite.mark_dynamic(MARKED, 0)


def test_sizes_of_tensors_that_are_no_inputs():
    exported = export(lambda x: x * MARKED.shape[0], torch.ones(3))
    assert torch.equal(exported(torch.ones(3)), torch.full((3,), 6.0))


class Switched(torch.nn.Module):
    """Which sets attributes for the time of a call."""

    def __init__(self):
        super().__init__()
        self.active = None
        self.seen = {}

    def forward(self, x):
        self.active = x
        self.seen["x"] = True
        try:
            return x + len(self.seen)
        finally:
            self.active = None
            del self.seen["x"]


def test_effects_that_are_undone_are_none():
    module = Switched()
    assert torch.equal(export(module, torch.ones(3))(torch.ones(3)), torch.full((3,), 2.0))
    assert module.active is None and not module.seen


class Buffered(torch.nn.Module):
    """Whose buffer becomes what it is: `nn.Module` puts its name into a set again."""

    def __init__(self):
        super().__init__()
        self.table = torch.nn.Buffer(torch.arange(3.0), persistent=False)

    def forward(self, x):
        self.table = self.table
        return x + self.table


def test_a_buffer_that_is_stored_again():
    module = Buffered()
    assert torch.equal(export(module, torch.ones(3))(torch.ones(3)), torch.arange(3.0) + 1)
    assert module._non_persistent_buffers_set == {"table"}


class Remembers(torch.nn.Module):
    """Which leaves something behind that it never reads."""

    def forward(self, x):
        self.last = x * 2
        self.count = x.shape[0]
        return self.last + self.count


def test_attributes_that_nobody_reads_are_left_out():
    module = Remembers()
    exported = export(module, torch.ones(3))
    assert torch.equal(exported(torch.ones(3)), torch.full((3,), 5.0))
    assert exported.left_out == ["self"] and "last" not in module.__dict__
    holder = Counts()
    with pytest.raises(UserError, match="the program changes attributes of holder\n"):
        export(lambda x, holder: setattr(holder, "calls", 3) or x, torch.ones(3), holder)


class RemembersTensor(torch.nn.Module):
    def forward(self, x):
        self.last = x * 2
        return self.last + 1


def test_a_tensor_in_a_new_attribute_is_named_as_left_out():
    module = RemembersTensor()
    exported = export(module, torch.ones(3))
    assert torch.equal(exported(torch.ones(3)), torch.full((3,), 3.0))
    assert exported.left_out == ["self"] and "last" not in module.__dict__


class Caches(torch.nn.Module):
    kept = None

    def forward(self, x):
        if self.kept is None:
            self.kept = x * 2
        return self.kept + x


class CachesIfNew(torch.nn.Module):
    def forward(self, x):
        if not hasattr(self, "kept"):
            self.kept = x * 2
        return self.kept + x


class CachesInDict(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.kept = {}

    def forward(self, x):
        if "x" not in self.kept:
            self.kept["x"] = x * 2
        return self.kept["x"] + x


class CountsRows(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.rows = {}

    def forward(self, x):
        for name in list(self.rows):
            del self.rows[name]
        self.rows["x"] = x.shape[0]
        return x + 1


@pytest.mark.parametrize("cls", [Caches, CachesIfNew, CachesInDict, CountsRows])
def test_what_later_calls_find_is_refused(cls):
    module = cls()
    with pytest.raises(UserError, match="the program changes (attributes of self|self.kept|self.rows)\n"):
        export(module, torch.ones(3), dynamic_shapes=[{0: "dynamic"}])
    assert not module.__dict__.get("kept") and not module.__dict__.get("rows")


class InitialisedLater(torch.nn.Module):
    def forward(self, x):
        if not hasattr(self, "scale"):
            self.scale = 2
            return x
        return x * self.scale


def test_attributes_that_later_calls_read_are_not():
    with pytest.raises(UserError, match="the program changes attributes of self\n"):
        export(InitialisedLater(), torch.ones(3))


class Hooked(torch.nn.Module):
    """Which sets itself up in the first call, as models of transformers do."""

    def __init__(self, again=False, shared=None):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.again = again
        self.ready = False
        self.shared = shared

    def forward(self, x):
        if not self.ready:
            self.linear.register_forward_hook(lambda module, args, result: result * 2)
            self.ready = not self.again
            if self.shared is not None:
                self.shared.ready = True
        return self.linear(x)


def test_what_only_the_first_call_changes_is_left_out():
    module, x = Hooked(), torch.randn(3, 4)
    next_id = RemovableHandle.next_id
    exported = export(module, x, dynamic_shapes=[{0: "dynamic"}])
    assert exported.left_out == ["RemovableHandle", "self.linear._forward_hooks", "attributes of self"]
    assert not module.ready and not module.linear._forward_hooks and RemovableHandle.next_id == next_id
    assert exported.graph_module.get_parameter("linear_weight") is module.linear.weight
    assert len(targets(exported)) == 2
    for _ in range(2):  # the first call, and one more
        assert torch.equal(exported(x), module(x))
    with FakeTensorMode():
        fake = Hooked()
    assert len(targets(export(fake, torch.ones(3, 4)))) == 2


def shared():
    """A function is not copied with the module that has it."""


def test_what_every_call_changes_is_refused():
    with pytest.raises(UserError, match="the program registers hooks .RemovableHandle, self.linear._forward"):
        export(Hooked(again=True), torch.ones(3, 4))
    with pytest.raises(UserError, match="the program changes"):
        export(Hooked(shared=shared), torch.ones(3, 4))
    assert not hasattr(shared, "ready")


class CountsTo(torch.nn.Module):
    def __init__(self, last):
        super().__init__()
        self.calls, self.last = 0, last

    def forward(self, x):
        if self.calls < self.last:
            self.calls += 1
        return x + (self.calls == 3)


def test_what_is_not_settled_after_one_call_is_refused():
    assert export(CountsTo(1), torch.ones(3)).left_out == ["attributes of self"]
    with pytest.raises(UserError, match="attributes of self"):
        export(CountsTo(2), torch.ones(3))


def raises_for_data(x):
    if x.sum() > 100:
        raise ValueError("too large")
    return x + 1


def test_where_the_program_raises_the_graph_does(capsys):
    exported = export(raises_for_data, torch.ones(3))
    assert torch.equal(exported(torch.arange(3.0)), torch.arange(3.0) + 1)
    line = raises_for_data.__code__.co_firstlineno + 1
    with pytest.raises(
        RuntimeError, match=rf'raises at\nFile "{short_path(__file__)}", line {line}, in raises_for_data\nif x.sum'
    ):
        exported(torch.full((3,), 50.0))
    assert capsys.readouterr().err == ""


def cut(x, n):
    return x[: n.max().item()] * 2, x[x > 0]


def test_numbers_and_sizes_that_data_decide():
    exported = export(cut, torch.arange(5.0), torch.tensor([1, 3]))
    for n in (1, 4):
        x, several = torch.arange(5.0) - n, torch.tensor([0, n])
        assert not list(differences(list(cut(x, several)), list(exported(x, several))))


SCALE = 2


def test_globals_are_as_they_were(monkeypatch):
    exported = export(lambda x: x * SCALE, torch.ones(3))
    monkeypatch.setitem(globals(), "SCALE", 3)
    assert torch.equal(exported(torch.ones(3)), torch.full((3,), 2.0))


def filled(x):
    y = torch.zeros(3)
    y[0] = x[0]
    return y


def added_to_if(x):
    y = x * 2
    if x.sum() > 6:
        y.add_(1)
    return y


def changed_view(x):
    y = x * 2
    y[1:].add_(1)
    return y, y[1:]


def result_whose_gradients_are_used_up(x):
    y = x * WEIGHT * WEIGHT
    return torch.autograd.grad(y.sum(), WEIGHT)[0], y


def parts_of_a_result(x):
    y = x * WEIGHT
    return y, *y.unbind(0)


@pytest.mark.parametrize(
    "fn",
    [
        filled,
        added_to_if,
        changed_view,
        parts_of_a_result,
        lambda x: (x * 2).add_(1),
        lambda x: torch.nn.functional.relu(x - 2, inplace=True),
        lambda x: torch.zeros(3).scatter_(0, torch.tensor([1]), x[:1]),
        lambda x: torch.empty(3).copy_(x),
        lambda x: torch.add(x, 1, out=torch.zeros(3)),
        lambda x: (x * 2).unsqueeze_(0),
        lambda x: (x * torch.ones(2, 3)).t_(),
        lambda x: torch.zeros(3).resize_(2).fill_(x[0]),
        lambda x: (x.data, x + 1),
        lambda x: (x.detach(), (x * WEIGHT).detach(), x * WEIGHT),
        lambda x: (x * 2, (x * 2).detach()),
        result_whose_gradients_are_used_up,
    ],
)
def test_results_that_are_written_in_place_or_share_memory(fn):
    exported = export(fn, torch.ones(3))
    for x in (torch.ones(3), torch.arange(3.0) + 2):
        expected = fn(x)
        assert not list(differences(expected, exported(x)))
    several, made = (result if type(result) is tuple else (result,) for result in (expected, exported(x)))
    for one, other in zip(made, several, strict=True):
        assert (one._version, one.requires_grad, one.is_leaf) == (other._version, other.requires_grad, other.is_leaf)


def test_messages_are_left_out():
    logger = logging.getLogger("a program")

    def fn(x):
        logger.warning("called with %s", x.shape)
        return x + 1

    assert torch.equal(export(fn, torch.ones(3))(torch.ones(3)), torch.full((3,), 2.0))


def raises_while_captured(x):
    y = x + 1
    mask = None if dynamo_lite.compiler.is_compiling() else y
    return mask[0]


def test_a_program_that_raises():
    line = raises_while_captured.__code__.co_firstlineno + 3
    with pytest.raises(UserError) as info:
        export(raises_while_captured, torch.ones(3))
    assert str(info.value) == (
        "the program raises TypeError: 'NoneType' object is not subscriptable\n"
        f'  File "{short_path(__file__)}", line {line}, in raises_while_captured\n    return mask[0]'
    )


class Pair:
    def __init__(self, *values):
        self.values = values


def test_objects_in_the_result_are_refused():
    with pytest.raises(UserError) as info:
        export(lambda x: (x, Pair(x + 1)), torch.ones(3))
    first, place, *_, do = str(info.value).splitlines()
    assert (
        first == "the result holds a Pair, which is no tensor, no constant and no container that torch's pytrees know"
    )
    assert place.startswith(f'  File "{short_path(__file__)}", line ')
    assert do == "  do:  return what is in it, or register Pair by torch.utils._pytree.register_pytree_node"
    assert export(lambda x: (x + 1).shape, torch.ones(3, 4))(torch.ones(3, 4)) == (3, 4)


class WithSize:
    """Whose size is no leaf of it for pytrees."""

    def __init__(self, x, size):
        self.x, self.size = x, size


torch.utils._pytree.register_pytree_node(
    WithSize, lambda made: ([made.x], made.size), lambda leaves, size: WithSize(*leaves, size)
)


class Named(torch.nn.Module):
    def forward(self, x):
        y = x + 1
        return {"n": x.size(0), "text": f"{x.size(0)} rows", "y": y}


def tagged(x):
    y = x + 1
    y.tag = 3
    return y


@pytest.mark.parametrize(
    ("fn", "does"),
    [
        (lambda x: f"{x.size(0)}", "makes a text"),
        (lambda x: str(x.shape), "makes a text"),
        (lambda x: f"{x.sum().item():.1f}", "makes a text"),
        (lambda x: {x.size(0): x}, "makes a key of a dictionary"),
        (lambda x: range(x.size(0)), "needs the number"),
        (lambda x: np.sin(x.numpy()), "makes an array of numpy of it"),
        (lambda x: x.numpy().sum(), "makes an array of numpy of it"),
        (lambda x: torch.nn.Parameter(torch.zeros(3)), "makes a tensor of it that requires gradients by itself"),
        (lambda x: torch.zeros(3).requires_grad_(), "makes a tensor of it that requires gradients by itself"),
        (tagged, "sets its attribute tag"),
        (lambda x: WithSize(x + 1, x.size(0)), "has a result of the graph outside of the leaves"),
        (lambda x: WithSize(x + 1, {"n": [x.size(0)]}), "has a result of the graph outside of the leaves"),
    ],
)
def test_what_is_made_of_a_result_behind_the_graph_is_refused(fn, does):
    with pytest.raises(UserError) as info:
        export(fn, torch.ones(4), dynamic_shapes={"x": {0: "dynamic"}})
    first, place, *_ = str(info.value).splitlines()
    assert does in first
    line = fn.__code__.co_firstlineno + (3 if fn is tagged else 0)
    assert place == f'  File "{short_path(__file__)}", line {line}, in {fn.__name__}'


def chosen_by_data(x):
    y = x * 2
    if x.sum() > 0:
        z = y.sin()
    else:
        z = y
    w = z * 2
    return z, w


def test_which_object_a_result_is_must_not_hang_on_data():
    line = chosen_by_data.__code__.co_firstlineno + 2
    assert error_of(chosen_by_data, torch.ones(4)) == (
        "what the program does with a result of the graph is not in the graph: "
        "it decides by it which of two objects it returns or keeps\n"
        f'  File "{short_path(__file__)}", line {line}, in chosen_by_data\n    if x.sum() > 0:\n       ^^^^^^^^^^^\n'
        "  do:  have both sides make a new tensor (y.clone()), or choose by torch.where"
    )


class Steps(torch.nn.Module):
    def __init__(self, in_place):
        super().__init__()
        self.register_buffer("n", torch.zeros(1))
        self.in_place = in_place

    def forward(self, x):
        if self.in_place:
            self.n += 1
        else:
            self.n = self.n + 1
        return x + self.n


def test_a_buffer_may_be_changed_in_place():
    message = error_of(Steps(False), torch.ones(3))
    assert message.startswith("the program changes self._buffers\n") and message.endswith(
        "do:  change a buffer in place (self.n += 1, self.n.copy_(…)), or return the new value"
    )
    module = Steps(True)
    exported = export(module, torch.ones(3))
    assert [exported(torch.ones(3))[0].item() for _ in range(2)] == [2, 3] and module.n == 2


def test_hooks_of_tensors_are_refused():
    message = error_of(lambda x: [WEIGHT.register_hook(lambda g: g * 2), x * WEIGHT][1], torch.ones(3))
    assert message.startswith("the program registers hooks (RemovableHandle, tensors that get hooks)\n")
    assert message.endswith("  do:  register hooks outside of what is exported")


def test_the_error_names_the_return_of_the_module():
    lines = error_of(Named(), torch.ones(4), dynamic_shapes={"x": {0: "dynamic"}}).splitlines()
    assert lines[:2] == [
        "what the program does with a result of the graph is not in the graph: it makes a text",
        f'  File "{short_path(__file__)}", line {Named.forward.__code__.co_firstlineno + 2}, in forward',
    ]
    assert lines[-1] == "  do:  return the tensor or the number itself, and do this outside of what is exported"


def test_shapes_in_the_result_vary():
    exported = export(
        lambda x: {"s": x.size(), "t": [x.shape[1:]], "n": len(x)}, torch.ones(4, 2), dynamic_shapes=[{0: "dynamic"}]
    )
    assert exported(torch.ones(6, 2)) == {"s": (6, 2), "t": [(2,)], "n": 6}


def leaves_no_grad(x):
    torch.set_grad_enabled(False)
    return x + 1


def leaves_autocast(x):
    torch.autocast("cpu", dtype=torch.bfloat16).__enter__()
    return x + 1


@pytest.mark.parametrize(
    ("fn", "read"),
    [
        (leaves_no_grad, torch.is_grad_enabled),
        (leaves_autocast, torch._C._is_any_autocast_enabled),
        (lambda x: [torch.set_default_dtype(torch.float64), x + 1][1], torch.get_default_dtype),
        (lambda x: [torch.use_deterministic_algorithms(True), x][1], torch.are_deterministic_algorithms_enabled),
        (lambda x: [torch.backends.cuda.enable_flash_sdp(False), x][1], torch.backends.cuda.flash_sdp_enabled),
    ],
)
def test_settings_of_torch_that_are_left_changed_are_refused(fn, read):
    before = read()
    with pytest.raises(UserError) as info:
        export(fn, torch.ones(3))
    first, place, *_, do = str(info.value).splitlines()
    assert first.startswith("the program leaves a setting of torch changed, by ")
    assert place.startswith(f'  File "{short_path(__file__)}", line ')
    assert do.startswith("  do:  set it for a block only")
    assert read() == before


CURRENT = None


def sets_global_for_a_while(x):
    global CURRENT
    before, CURRENT = CURRENT, x
    with torch.device("cpu"):
        y = CURRENT + torch.ones(3)
    CURRENT = before
    return y


def test_globals_and_modes_that_are_put_back_are_no_changes():
    assert torch.equal(export(sets_global_for_a_while, torch.ones(3))(torch.ones(3)), torch.full((3,), 2.0))
    with pytest.raises(UserError, match="the program changes .*the stack of torch's function modes"):
        export(lambda x: [torch.set_default_device("cpu"), x + 1][1], torch.ones(3))


class Passes(TorchFunctionMode):
    def __torch_function__(self, fn, types, args=(), kwargs=None):
        return fn(*args, **(kwargs or {}))


WEIGHT = torch.ones(3, requires_grad=True)


def asks_for_grad_mode(x):
    return x * 2 if torch.is_grad_enabled() else x * 3


def asks_a_result(x):
    y = x * WEIGHT
    return y * 2 if y.requires_grad else y


def enables(x):
    with torch.enable_grad():
        return x * WEIGHT


@pytest.mark.parametrize(
    ("around", "expected", "found"),
    [
        (lambda: torch.autocast("cpu"), "is_autocast_enabled('cpu') == False", "is_autocast_enabled('cpu') == True"),
        (Passes, "unchanged", "changed"),
    ],
)
def test_settings_of_torch_are_preconditions(around, expected, found):
    exported = export(lambda x: x * 2, torch.ones(3))
    assert exported.preconditions[:2] == [STATE_TEXT, "the same modes are active"]
    with around(), pytest.raises(ValueError, match=r"do not meet the preconditions") as info:
        exported(torch.ones(3))
    assert f"expected {expected}" in str(info.value) and str(info.value).endswith(f"found {found}")


class AsksWhatItNeeds(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * (2 if ctx.needs_input_grad[0] else 3)

    @staticmethod
    def backward(ctx, grad):
        return grad * 7


def branches_on_data(x):
    y = x * WEIGHT
    return y.sin() if y.sum() > 0 else y.cos()


@pytest.mark.parametrize(
    "fn", [lambda x: AsksWhatItNeeds.apply(x * WEIGHT), lambda x: AsksWhatItNeeds.apply(WEIGHT), branches_on_data]
)
@pytest.mark.parametrize("enabled", [True, False])
def test_the_grad_mode_is_a_precondition_of_what_the_analysis_decides_by_it(fn, enabled):
    with torch.set_grad_enabled(enabled):
        exported = export(fn, torch.ones(3))
        assert not list(differences(fn(torch.ones(3)), exported(torch.ones(3))))
    with torch.set_grad_enabled(not enabled), pytest.raises(ValueError, match=r"expected is_grad_enabled\(\) == "):
        exported(torch.ones(3))


@pytest.mark.parametrize("fn", [asks_for_grad_mode, asks_a_result, enables])
def test_the_grad_mode_is_a_precondition_of_what_hangs_on_it(fn):
    exported = export(fn, torch.ones(3))
    assert torch.equal(exported(torch.ones(3)), fn(torch.ones(3)))
    with torch.no_grad(), pytest.raises(ValueError, match=r"expected is_grad_enabled\(\) == True, as when it was exp"):
        exported(torch.ones(3))


def no_grad_in_between(x):
    with torch.no_grad():
        y = x * WEIGHT
    return y * 3 + WEIGHT


@torch.no_grad()
def without_grad(x):
    return x * WEIGHT


@pytest.mark.parametrize("fn", [lambda x: x * WEIGHT, no_grad_in_between, without_grad])
def test_both_grad_modes_are_fine_where_none_of_it_hangs_on_them(fn):
    exported = export(fn, torch.ones(3))
    for enabled in (True, False):
        with torch.set_grad_enabled(enabled):
            result, expected = exported(torch.ones(3)), fn(torch.ones(3))
            assert torch.is_grad_enabled() is enabled
        assert torch.equal(result, expected) and result.requires_grad is expected.requires_grad


def doubling(fn):
    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        return fn(*args, **kwargs) * 2

    return wrapper


class Adds:
    def __call__(self, x, *, k=1):
        return x + k

    method = doubling(__call__)


@pytest.mark.parametrize("fn", [doubling(lambda x, *, k: x + k), Adds(), Adds().method])
def test_wrappers_and_objects_that_are_called(fn):
    exported = export(fn, torch.ones(3), k=2, dynamic_shapes={"x": {0: "dynamic"}})
    assert torch.equal(exported(torch.ones(5), k=2), fn(torch.ones(5), k=2))
    with pytest.raises(ValueError, match="expected 2, found 3"):
        exported(torch.ones(5), k=3)


def scaled(x, k):
    return x * k


@functools.wraps(scaled)
def with_fewer(x):
    return scaled(x, 2)


@functools.wraps(scaled)
def with_more(x, k, more):
    return scaled(x, k) + more


@pytest.mark.parametrize(("fn", "rest"), [(with_fewer, ()), (with_more, (2, 3))])
def test_wrappers_with_other_parameters(fn, rest):
    exported = export(fn, torch.ones(3), *rest, dynamic_shapes={"x": {0: Dim("n")}})
    assert torch.equal(exported(torch.ones(5), *rest), fn(torch.ones(5), *rest))
    anything = functools.wraps(scaled)(lambda *args: scaled(*args, 2))
    shapes = {"args": [{0: Dim("n")}]}
    assert torch.equal(export(anything, torch.ones(3), dynamic_shapes=shapes)(torch.ones(5)), torch.full((5,), 2.0))


def by_key(x, *, a, b):
    return x * a["one"] + a["two"] * b


def in_turn(x, **values):
    for value in values.values():
        x = x * 2 + value
    return x


class ByKey(torch.nn.Module):
    def forward(self, x, a=None, b=None):
        return by_key(x, a=a, b=b)


@pytest.mark.parametrize("fn", [by_key, ByKey()])
def test_keys_in_another_order(fn):
    one, two, b = torch.arange(9.0).reshape(3, 3)
    exported = export(fn, torch.ones(3), a={"one": one, "two": two}, b=b)
    args = {"b": one + 1, "a": {"two": b, "one": two}}
    assert torch.equal(exported(torch.ones(3), **args), fn(torch.ones(3), **args))
    with pytest.raises(ValueError, match="another structure"):
        exported(torch.ones(3), b=b, a={"one": one, "three": two})


def test_functions_without_a_signature_are_refused():
    message = error_of(torch.sin, torch.ones(3))
    assert message.endswith(
        " does not tell its parameters\n  do:  export a Python function that calls it (lambda x: f(x))"
    )


def test_an_order_of_keys_that_the_program_sees():
    one, two = torch.arange(6.0).reshape(2, 3)
    exported = export(in_turn, torch.ones(3), a=one, b=two)
    with pytest.raises(ValueError, match=r"values: expected keys \['a', 'b'\], found keys \['b', 'a'\]"):
        exported(torch.ones(3), b=two, a=one)


def indexes_in_no_grad(x, i):
    with torch.no_grad():
        y = x[i]
    return y * WEIGHT[0]


def indexes_in_autocast(x, i):
    with torch.autocast("cpu"):
        y = x[i]
    return y * 2


@pytest.mark.parametrize("fn", [indexes_in_no_grad, indexes_in_autocast])
@pytest.mark.parametrize("enabled", [True, False])
def test_a_graph_that_raises_leaves_the_settings_of_torch(fn, enabled):
    exported = export(fn, torch.ones(3), torch.tensor([1]))
    with torch.set_grad_enabled(enabled):
        with pytest.raises(IndexError):
            exported(torch.ones(3), torch.tensor([7]))
        assert (torch.is_grad_enabled(), torch._C._is_any_autocast_enabled()) == (enabled, False)
        assert exported(torch.ones(3), torch.tensor([1])).requires_grad is (enabled and fn is indexes_in_no_grad)


def test_each_condition_that_holds_calls_back_is_named():
    exported = export(lambda x, y, k, o: x * k + y[0] if o is None else o, torch.ones(3, 4), [torch.ones(4)], 3, None)
    x = "Tensor torch.float32 shape (3, 4) stride (4, 1) on cpu"
    assert exported.preconditions[0] == STATE_TEXT
    assert {f"x: {x}", "y[0]: " + x.replace("(3, 4)", "(4)").replace("(4, 1)", "(1)"), "k: 3"} < set(
        exported.preconditions
    )
    assert any(text.startswith("o: ") for text in exported.preconditions)
    same = export(lambda x, y: x + y, *[torch.ones(3)] * 2)
    assert "x, y: the same object" in same.preconditions
    sized = export(torch.nn.Linear(4, 4), torch.ones(3, 4), dynamic_shapes=[{0: Dim("n", max=9)}])
    assert "2 <= input.size(0) and input.size(0) <= 9" in sized.preconditions


def test_a_second_export_sees_the_changes_too(tmp_path):
    with dynamo_lite.config.patch(cache=True, cache_dir=str(tmp_path)):
        for _ in range(2):
            with pytest.raises(UserError, match="the program changes attributes of self"):
                export(Counts(), torch.ones(3))


def prints(x):
    y = x + 1
    print(y.sum())
    return y


def test_a_break_names_the_line():
    with pytest.raises(Unsupported, match=r"print\(y.sum\(\)\)") as info:
        export(prints, torch.ones(3))
    assert info.value.user_stack[-1].lineno == prints.__code__.co_firstlineno + 2


def added(x, y):
    z = x * 2
    return z + y


def sums(x, y):
    return x.sum() + y.sum()


def shifted(x, y):
    return x[1:] + y


def error_of(fn, *args, **options):
    with pytest.raises(UserError) as info:
        export(fn, *args, **options)
    return str(info.value)


def line_in(fn, offset):
    lineno = fn.__code__.co_firstlineno + offset
    return f'  File "{__file__}", line {lineno}\n    {linecache.getline(__file__, lineno).strip()}\n'


def test_one_dim_for_several_sizes():
    batch = Dim("batch")
    shapes = {"x": {0: batch}, "y": {0: batch}}
    exported = export(sums, torch.ones(3, 4), torch.ones(3, 2), dynamic_shapes=shapes)
    assert "x.size(0) == y.size(0)" in exported.preconditions
    assert exported(torch.ones(5, 4), torch.ones(5, 2)) == 30
    with pytest.raises(ValueError, match=r"x.size\(0\): expected x.size\(0\) == y.size\(0\), found 5, 3"):
        exported(torch.ones(5, 4), torch.ones(3, 2))
    assert torch.equal(
        export(added, *[torch.ones(3)] * 2, dynamic_shapes=shapes)(*[torch.ones(7)] * 2), torch.full((7,), 3.0)
    )
    assert error_of(sums, torch.ones(3, 4), torch.ones(5, 4), dynamic_shapes=shapes) == (
        "one Dim, batch, is given to sizes that differ: dimension 0 of x is 3, dimension 0 of y is 5\n"
        "  do:  use a Dim for each, or sizes that agree"
    )


def test_sizes_with_dims_of_their_own_that_are_not_independent():
    shapes = {"x": {0: Dim("n")}, "y": {0: Dim("m")}}
    assert error_of(added, torch.ones(3), torch.ones(3), dynamic_shapes=shapes) == (
        "dimension 0 of y and dimension 0 of x were to vary independently, "
        "but the compiled code holds only where y.size(0) == x.size(0)\n"
        f"{line_in(added, 2)}"
        "  do:  give dimensions that are always equal the same Dim, or say Dim.AUTO for one of them"
    )
    assert "only where x.size(0) == 1 + y.size(0)\n" in error_of(
        shifted, torch.ones(4), torch.ones(3), dynamic_shapes=shapes
    )
    shapes["y"] = {0: Dim.AUTO}
    assert torch.equal(
        export(added, *[torch.ones(3)] * 2, dynamic_shapes=shapes)(*[torch.ones(7)] * 2), torch.full((7,), 3.0)
    )


def test_derived_dims_are_refused():
    assert error_of(added, torch.ones(4), torch.ones(4), dynamic_shapes={"x": {0: 2 * Dim("n")}}) == (
        "dimension 0 of x is given the derived Dim 2*n, which is not supported\n"
        "  do:  give it a Dim of its own; what the code demands of it becomes a precondition"
    )


def test_a_named_size_that_is_made_equal_to_a_constant():
    assert error_of(added, torch.ones(3), torch.ones(3), dynamic_shapes={"x": {0: Dim("n")}}) == (
        "dimension 0 of x was marked dynamic, but the code makes it the constant 3\n"
        f"{line_in(added, 2)}"
        "  do:  remove the use that needs the number, or the mark (maybe_mark_dynamic allows both)"
    )


@pytest.mark.parametrize("spec", ["dynamic", Dim("n"), Dim.DYNAMIC])
def test_examples_of_sizes_that_cannot_vary(spec):
    for n in (0, 1):
        assert error_of(lambda x: x + 1, torch.ones(n), dynamic_shapes={"x": {0: spec}}) == (
            f"dimension 0 of x is to vary, but is {n} in the example, and sizes of 0 and 1 are constants\n"
            "  do:  give an example in which it is 2 or more, or say Dim.AUTO or None"
        )


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (7, "dynamic_shapes is 7"),
        ("dynamic", "dynamic_shapes is 'dynamic'"),
        ([None] * 3, "dynamic_shapes has 3 items; the arguments are x, d"),
        ({"x": 5}, "dynamic_shapes has 5 for x, which is a tensor"),
        ({"x": "dynamic"}, "dynamic_shapes has 'dynamic' for x, which is a tensor"),
        ({"x": [None, None]}, "dynamic_shapes has 2 items for x, which has 1 dimensions"),
        ({"x": {"0": None}}, "dynamic_shapes has a size for dimension '0' of x"),
        ({"x": {0: "dynamc"}}, "dynamic_shapes has 'dynamc' for dimension 0 of x"),
        ({"x": {0: 2.5}}, "dynamic_shapes has 2.5 for dimension 0 of x"),
        ({"x": {0: 4}}, "dynamic_shapes says that dimension 0 of x is 4, but it is 3"),
        ({"d": {"b": None}}, "dynamic_shapes names d['b']; the keys of d are 'a'"),
        ({"d": [None]}, "dynamic_shapes has [None] for d, which is of type dict"),
        ({"d": {"a": 5}}, "dynamic_shapes has 5 for d['a'], which is of type list"),
        ({"d": {"a": [None]}}, "dynamic_shapes has 1 items for d['a'], which has 2"),
        ({"d": {"a": {2: None}}}, "dynamic_shapes names d['a'][2]; the keys of d['a'] are 0, 1"),
    ],
)
def test_mistakes_in_dynamic_shapes(shapes, message):
    args = torch.ones(3), {"a": [torch.ones(3), torch.ones(3)]}
    first, do = error_of(lambda x, d: x + d["a"][0], *args, dynamic_shapes=shapes).splitlines()
    assert first == message and do.startswith("  do:  ")


def test_promises_about_sizes():
    def fn(x):
        return x * 2 if x.shape[0] == 3 else x

    with pytest.raises(UserError, match=r"(?s)dimension 0 of x was marked dynamic.*the constant 3\n.*return x \* 2 if"):
        export(fn, torch.ones(3), dynamic_shapes=[{0: "dynamic"}])
    exported = export(fn, torch.ones(3), dynamic_shapes=[{0: Dim.AUTO}])
    assert [str(s).split(",")[0] for s in exported.specializations] == ["x.size(0) = 3"]
    with pytest.raises(UserError, match="dynamic_shapes names 'z'; the arguments are x"):
        export(fn, torch.ones(3), dynamic_shapes={"z": {0: "dynamic"}})
    with pytest.raises(
        UserError, match="has sizes for k, which is no tensor but of type int, and a constant of the graph"
    ):
        export(lambda x, k: x * k, torch.ones(3), 2, dynamic_shapes={"k": {0: "dynamic"}})
    assert dynamo_lite.export is export
