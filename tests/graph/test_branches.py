"""Branches on tensor data: both sides in one graph, with the results, gradients, objects and random numbers of eager execution."""

import types
import weakref

import pytest
import torch
from torch import nn

import dynamo_lite
from dynamo_lite.config import config
from dynamo_lite.exc import Unsupported
from dynamo_lite.record import log
from dynamo_lite.testing import CompileCounter, CompileCounterWithBackend, differences

LINEAR, OTHER = nn.Linear(3, 3), nn.Linear(3, 3)


def statement(x):
    if x.sum() > 0:
        y = x * 2
    else:
        y = x - 1
    return y.sin()


def without_else(x):
    if x.sum() > 0:
        x = x * 2
    return x + 1


def leaves_its_argument(x):
    if x.sum() > 0:
        x = x * 2
    return x


def leaves_one_of_two(x):
    y = x * 2
    z = x * 3
    w = y if x.sum() > 0 else z
    return w, y, w + 1


def early_returns(x):
    if x.sum() > 0:
        return x + 1
    y = x * 2
    if y.sum() < -10:
        return y
    return y.exp()


def in_a_loop(x):
    for _ in range(3):
        if x.sum() > 0:
            x = x - 1
        else:
            x = x + 2
    return x


def chooses_numbers(x):
    n, scale, found = 1, 0.1, False
    if x.sum() > 0:
        n, scale, found = 2, 0.3, True
    y = x * n * scale
    if found:
        y = y + 1
    return y


def chooses_an_int(x):
    n = 1
    if x.sum() > 0:
        n = 2
    return x * n


def expression_on_the_stack(x):
    return torch.add(x, x * 2 if x.sum() > 0 else x.cos(), alpha=2)


def conjunction(x):
    if x.sum() > 0 and x.max() < 5:
        return x + 1
    return x - 1


def value_of_and(x):
    return x + (x.sum() > 0 and x.max() < 5)


def number_of_a_tensor(x):
    n = x.sum().item()
    if n > 3:
        return x * 2
    return x.cos()


def in_a_callee(x):
    return early_returns(early_returns(x)) * 2


def within_try(x):
    try:
        y = x + 1 if x.mean() > 0 else x + 2
    except ValueError:
        y = x
    return y


def fresh_values_and_views(x):
    y = x.clone()
    if x.mean() > 0:
        y = y + 1
    return y.view(-1), y


def old_value_is_kept(x):
    y = x * 2
    old = y
    if x.mean() > 0:
        y = y + 1
    return y.sin(), old


def same_object_twice(x):
    y = z = x * 0
    if x.mean() > 0:
        y = z = x + 1
    return y + 1, z + 2


def one_element_of_a_row(x):
    return x * 2 if x[:1] > 0 else x * 3


def new_tensors_changed(x):
    y = torch.zeros(3)
    if x.mean() > 0:
        y = torch.ones(3)
        y.mul_(3)
    return x + y


STRICTER = ("leaves_one_of_two", "same_object_twice")
"""Whose sides give gradients to different tensors."""

WHOLE = {f.__name__: f for f in list(globals().values()) if getattr(f, "__module__", "") == __name__}
"""Captured whole with gradients and without."""


def containers(x):
    a, b = (x + 1, [x * 2]) if x.mean() > 0 else (x - 1, [x * 3])
    return a + b[0]


def draws(x):
    y = nn.functional.dropout(x, 0.5) if x.mean() > 0 else x.relu()
    return y + torch.rand(3)


def layers(x):
    return LINEAR(x) if x.mean() > 0 else OTHER(x)


WITHOUT_GRADIENTS = {f.__name__: f for f in (containers, draws, layers)}
WITHOUT_GRADIENTS |= {name: WHOLE.pop(name) for name in STRICTER}


def changes_a_list(x):
    found = []
    for i in range(3):
        if x[i] > 0:
            found.append(x[i])
    return torch.stack(found) if found else x


def writes_to_one_of_two(x):
    y = x.detach()
    if x.mean() > 0:
        y = x + 1
    y.detach().add_(1)
    return y


def returns_views(x):
    y = x
    if x.mean() > 0:
        y = x + 1
    return y.view(-1)


def asks_which(x):
    y = x
    if x.mean() > 0:
        y = x + 1
    return y is x, y * 2


def other_sizes(x):
    return x[:2] + 1 if x.mean() > 0 else x + 1


def other_strides(x):
    y = x.expand(3, 3)
    return y + 1 if x.mean() > 0 else (y.t().contiguous() + 1).t()


def other_dtypes(x):
    return x.double() if x.mean() > 0 else x * 2


def other_kinds(x):
    y = None if x.mean() > 0 else x + 1
    return x if y is None else y


def iterates(x):
    numbers = iter([1.0, 2.0, 3.0])
    y = x + next(numbers) if x.mean() > 0 else x
    return y + next(numbers)


BREAKS = {
    f.__name__: f
    for f in (
        *(changes_a_list, writes_to_one_of_two, returns_views, asks_which),
        *(other_sizes, other_strides, other_dtypes, iterates),
    )
}


@torch.no_grad()
def records_on_one_side(x):
    if x.sum() > 0:
        with torch.enable_grad():
            y = x * 2
    else:
        y = x * 3
    return y


@torch.no_grad()
def records_what_it_writes(x):
    with torch.enable_grad():
        y = x * 2
    if x.sum() > 0:
        with torch.enable_grad():
            y.add_(x)
    return y


@torch.no_grad()
def records_in_turns(x):
    y = x
    while y.sum().abs() < 10:
        with torch.enable_grad():
            y = y * x.abs() + 1
    return y


def makes_parameters(x):
    return nn.Parameter(x.detach() * 2) if x.sum() > 0 else nn.Parameter(x.detach() * 3)


def makes_a_leaf_of_what_existed(x):
    y = x.detach() * 2
    if x.sum() > 0:
        y.requires_grad_()
    return y * 1


GRADIENT_BREAKS = {
    records_on_one_side: "a side that enables gradients",
    records_what_it_writes: "a side that enables gradients",
    records_in_turns: "a side that enables gradients",
    makes_parameters: "a leaf of autograd",
    makes_a_leaf_of_what_existed: "a leaf of autograd",
}


def inputs(grad):
    return [(n * torch.ones(3)).requires_grad_(grad) for n in (1.0, -1.0, -10.0, 7.0)]


def outcome(fn, x):
    """The results, which of them are the argument, strides, gradients, the argument afterwards, the next random number."""
    torch.manual_seed(3)
    for p in (*LINEAR.parameters(), *OTHER.parameters()):
        p.grad = None
    result = fn(x)
    results = result if isinstance(result, tuple) else (result,)
    tensors = [t for t in results if isinstance(t, torch.Tensor)]
    if any(t.requires_grad for t in tensors):
        sum(t.sum() for t in tensors if t.requires_grad).backward()
    grads = [t.grad for t in (x, *LINEAR.parameters(), *OTHER.parameters())]
    kinds = [(t is x, type(t), t.stride(), t.requires_grad, t.is_leaf) for t in tensors]
    return results, kinds, grads, x.detach(), torch.rand(2)


def check(fn, grad, backend="eager", **options):
    """Compare calls with each input with eager execution; how many graphs were compiled."""
    dynamo_lite.reset()
    counter = CompileCounterWithBackend(backend)
    compiled = dynamo_lite.compile(fn, backend=counter, **options)
    for x, y in zip(inputs(grad), inputs(grad), strict=True):
        assert not list(differences(outcome(fn, x), outcome(compiled, y), tol=1e-6))
    return counter.frame_count


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", WHOLE)
def test_whole(name, grad):
    assert check(WHOLE[name], grad, fullgraph=True) == 1
    assert check(WHOLE[name], grad, "aot_eager", fullgraph=True) == 1


@pytest.mark.parametrize("choice", ["cond", "where"])
@pytest.mark.parametrize("name", {**WHOLE, **WITHOUT_GRADIENTS})
def test_choices(name, choice):
    with config.patch(capture_branches=choice), torch.no_grad():
        assert check({**WHOLE, **WITHOUT_GRADIENTS}[name], False, fullgraph=True) == 1


@pytest.mark.parametrize("name", WITHOUT_GRADIENTS)
def test_whole_without_gradients(name):
    with torch.no_grad():
        assert check(WITHOUT_GRADIENTS[name], False, "aot_eager", fullgraph=True) == 1
    with config.patch(capture_branches=True):
        assert check(WITHOUT_GRADIENTS[name], True) >= 1


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", BREAKS)
def test_breaks(name, grad):
    with config.patch(capture_branches=True):
        check(BREAKS[name], grad)
    with pytest.raises((Unsupported, AttributeError)):
        dynamo_lite.compile(BREAKS[name], backend="eager", fullgraph=True)(inputs(grad)[0])


@pytest.mark.parametrize("fn", GRADIENT_BREAKS)
def test_gradients_that_break(fn):
    """A node is recorded or not by the mode around it, and its results are no leaves."""
    with config.patch(capture_branches=True):
        check(fn, True)
    with pytest.raises(Unsupported, match=GRADIENT_BREAKS[fn]):
        dynamo_lite.compile(fn, backend="eager", fullgraph=True)(inputs(True)[0])


def test_a_side_may_record_what_stays_in_it():
    @torch.no_grad()
    def fn(x):
        if x.sum() > 0:
            with torch.enable_grad():
                y = (x * 2).detach()
        else:
            y = x * 3
        return y

    assert check(fn, True, fullgraph=True) == 1


@pytest.mark.parametrize("name", ["leaves_its_argument", "statement", "in_a_loop", "chooses_an_int", "chooses_numbers"])
def test_inductor(name):
    assert check(WHOLE[name], True, "inductor", fullgraph=True) == 1


def test_a_backend_that_cannot_take_it_gets_a_break():
    """AOTAutograd refuses a `cond` whose results have gradients in one memory."""
    with config.patch(capture_branches=True):
        assert check(containers, True, "aot_eager") > 1


def test_partial_graphs_break_by_default():
    assert check(statement, False) == 3


def test_where_is_for_few_elements_that_cannot_raise():
    def operators(fn, x):
        dynamo_lite.reset()
        counter = CompileCounterWithBackend("eager")
        dynamo_lite.compile(fn, backend=counter, fullgraph=True)(x)
        (graph,) = counter.graphs
        return {getattr(node.target, "__name__", node.target) for node in graph.graph.nodes if "call" in node.op}

    assert {"where"} < operators(statement, torch.ones(3)) and "branch" not in operators(statement, torch.ones(3))
    assert "branch" in operators(statement, torch.ones(300, 300))
    assert "branch" in operators(lambda x: x // 2 if x.sum() > 0 else x, torch.ones(3, dtype=torch.int64))
    assert "branch" in operators(statement, torch.ones(3, requires_grad=True))


def test_sides_with_gradients_for_different_tensors_are_captured_where_asked_for():
    """One graph would cost a training step more than several: by default it is for inference."""

    class Fuses(CompileCounter):
        dynamo_lite_fuses_branches = True

    weights = [torch.ones(3, requires_grad=True) for _ in range(2)]

    def fn(x):
        y = x * weights[0] if x.sum() > 0 else x * weights[1]
        return y + 1

    def graphs(choice, grad):
        counter = Fuses()
        with config.patch(capture_branches=choice), torch.set_grad_enabled(grad):
            compiled = dynamo_lite.compile(fn, backend=counter)
            for x in (torch.ones(3), -torch.ones(3)):
                assert torch.equal(fn(x), compiled(x))
        return counter.frame_count

    assert (graphs(None, False), graphs(True, True)) == (1, 1)
    assert graphs(None, True) == graphs(False, True) > 1


def test_the_error_names_the_branch_and_the_reason():
    with pytest.raises(
        Unsupported, match=r"(?s)the sides leave tensors of other shape.*x\[:2\] \+ 1 if x.mean\(\) > 0"
    ):
        dynamo_lite.compile(other_sizes, backend="eager", fullgraph=True)(torch.ones(3))


@pytest.mark.parametrize(("backend", "graphs"), [("eager", 3), ("aot_eager", 3), ("inductor", 1)])
def test_the_default_is_by_backend(backend, graphs):
    """Where a compiler makes one program of both sides, they are in the graph; elsewhere a break is faster."""
    counter = CompileCounterWithBackend(backend)

    def fn(x):
        y = x * 2
        if y[0] > 0:
            y = y.sin()
        else:
            y = y.cos() + 1
        return y + 1

    compiled = dynamo_lite.compile(fn, backend=counter)
    with torch.no_grad():
        for x in (torch.ones(3), -torch.ones(3), torch.ones(100_000), -torch.ones(100_000)):
            torch.testing.assert_close(compiled(x), fn(x))
    assert counter.frame_count == 2 * graphs  # and once more for all sizes
    kept = [text for frame in log.frames for graph in frame.graphs for text in graph.branches]
    assert all("torch.where" in text for text in kept) and bool(kept) is (graphs == 1)


BEHIND = {
    "as it arrives": lambda x, d: (x * d).sum() if x.sum() > 0 else (d * d).sum(),
    "spread from one number": lambda x, d: (x + d).sum() if x.sum() > 0 else (x - d).sum(),
    "spread on one side": lambda x, d: (x + d).sum() if x.sum() > 0 else (x * d).sum(),
    "behind the other one": lambda x, d: (d if x[0] > 0 else d * 2).sum() * (x.sum() if x[1] > 0 else x.mean()),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("kind", BEHIND)
def test_where_gradients_behind_a_branch_lie(kind, backend):
    """In the memory of the leaf's layout, which the program may write to, whatever the taken side makes of them."""
    loss = BEHIND[kind]

    def leaf_made_inside(x):
        d = torch.zeros(3, requires_grad=True)
        loss(x, d).backward()
        d.grad[0] = 7
        return d.grad, d.grad.stride()

    def parameter_made_inside(x):
        d = nn.Parameter(torch.ones(3))
        loss(x, d).backward()
        d.grad[0] = 7
        return d.grad, d.grad.stride()

    for fn in (leaf_made_inside, parameter_made_inside):
        dynamo_lite.reset()
        counter = CompileCounterWithBackend(backend)
        compiled = dynamo_lite.compile(fn, backend=counter, fullgraph=True)
        for n in (1.0, -1.0):
            assert not list(differences(fn(torch.full((3,), n)), compiled(torch.full((3,), n))))
        assert counter.frame_count == 1


def test_counters_of_gradients_behind_a_branch():
    weight = torch.ones(3, requires_grad=True)

    def fn(x, taken, other):
        weight.grad = None
        (taken(x) if x.sum() > 0 else other(x)).backward()
        return weight.grad

    def spread(x):
        return (x + weight).sum()

    def computed(x):
        return (x * weight).sum()

    for side in (spread, computed):
        compiled = dynamo_lite.compile(fn, backend="eager", fullgraph=True)
        expected, found = fn(torch.ones(3), side, side), compiled(torch.ones(3), side, side)
        assert (found.tolist(), found._version) == (expected.tolist(), expected._version)


def test_grad_behind_a_branch_that_decides_its_strides():
    weight = torch.ones(3, requires_grad=True)

    def spread(x):
        y = x + weight if x.sum() > 0 else x - weight
        return torch.autograd.grad(y.sum(), weight)[0].stride()

    def computed(x):
        y = x * weight if x.sum() > 0 else weight * 2
        return torch.autograd.grad((y * y).sum(), weight)[0].stride()

    with config.patch(capture_branches=True):
        for fn in (spread, computed):
            compiled = dynamo_lite.compile(fn, backend="eager")
            for x in (torch.ones(3), -torch.ones(3)):
                assert compiled(x) == fn(x)
    with pytest.raises(Unsupported, match="through a branch, which decides how they lie in memory"):
        dynamo_lite.compile(spread, backend="eager", fullgraph=True)(torch.ones(3))
    assert dynamo_lite.compile(computed, backend="eager", fullgraph=True)(torch.ones(3)) == (1,)


def test_a_hook_sees_a_gradient_behind_a_branch():
    """As it comes, which is known only for graphs of which all ways are alike."""
    seen = []

    def fn(x):
        d = torch.ones(3, requires_grad=True)
        y = d * 2
        y.register_hook(lambda g: seen.append(g.stride()))
        ((x + y).sum() if x.sum() > 0 else (x - y).sum()).backward()
        return d.grad

    with config.patch(capture_branches=True):
        compiled = dynamo_lite.compile(fn, backend="eager")
        for x in (torch.ones(3), -torch.ones(3)):
            assert torch.equal(compiled(x), fn(x))
    assert seen[0::2] == seen[1::2]


def loop_until(x):
    while x.sum().abs() < 50:
        x = x * 2
    return x


def changes_its_own(x):
    if x.sum() > 0:
        y = x.clone()
        y[0] = 9
        y.add_(1)
    else:
        y = x * 2
    return y


@torch.inference_mode()
def decorated(x):
    return x * 2 if x.sum() > 0 else x * 3


def torch_cond(x):
    return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))


def inference_outcomes(fn, x):
    with torch.inference_mode():
        y = fn(x)
        return y, y is x, y.is_inference(), x


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize(
    "fn", [statement, leaves_its_argument, in_a_loop, loop_until, changes_its_own, decorated, torch_cond]
)
def test_inference_mode(fn, backend):
    for choice in ("cond", "where"):
        dynamo_lite.reset()
        with config.patch(capture_branches=choice):
            compiled = dynamo_lite.compile(fn, backend=backend, fullgraph=True)
            for x, y in zip(inputs(False), inputs(False), strict=True):
                assert not list(differences(inference_outcomes(fn, x), inference_outcomes(compiled, y)))


BUFFER = torch.zeros(3)


def inference_adds(x):
    if x.sum() > 0:
        BUFFER.add_(x)
    return x + 1


def inference_sets_an_item(x):
    if x.sum() > 0:
        BUFFER[0] = 5
    return x + 1


def inference_writes_out(x):
    if x.sum() > 0:
        torch.add(x, 1, out=BUFFER)
    return x + 1


def inference_on_one_side(x):
    if x.sum() > 0:
        with torch.inference_mode():
            y = x * 2
    else:
        y = x * 3
    return y


@pytest.mark.parametrize(
    "fn",
    [inference_adds, inference_sets_an_item, inference_writes_out, inference_on_one_side],
    ids=lambda fn: fn.__name__,
)
def test_inference_mode_breaks(fn):
    """No counter of an inference tensor tells that it is changed."""

    def outcome(fn, x):
        BUFFER.zero_()
        with torch.inference_mode(mode):
            y = fn(x)
        return y, y.is_inference(), BUFFER.clone()

    mode = fn is not inference_on_one_side
    with config.patch(capture_branches=True):
        compiled = dynamo_lite.compile(fn, backend="eager")
        for x in inputs(False):
            assert not list(differences(outcome(fn, x), outcome(compiled, x)))
    with torch.inference_mode(mode), pytest.raises(Unsupported, match="inference mode|changes a tensor from outside"):
        dynamo_lite.compile(fn, backend="eager", fullgraph=True)(torch.ones(3))


def chunks(x):
    a, b = x.chunk(2)
    return (a * b).exp().cumsum(0) if x.sum() > 0 else (x[: len(a)] + a).cumsum(0)


def strided(x):
    a = x.view(10, 20).t()
    b = a[3:13, ::2]
    return b.cumsum(0) * a[:10, ::2] if x.sum() > 0 else x.view(10, 20).t()[3:13, ::2].cumsum(1)


def detached(x):
    a = x[:100]
    d = a.detach()
    return (a * d).cumsum(0) if x.sum() > 0 else (a + d + x[100:]).cumsum(0)


def written_before(x):
    y = x * 1
    a = y[:100]
    y[0] = 5
    return (a * y[100:]).cumsum(0) if x.sum() > 0 else (a + y[100:]).cumsum(0)


def views_of_a_side(x):
    if x.sum() > 0:
        return x[1] * 10
    for v in x[:2]:
        if v > -0.5:
            return v * 10
    return x.sum()


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("function", [chunks, strided, detached, written_before, views_of_a_side])
def test_sides_use_several_views_of_a_tensor(function, requires_grad, backend):
    compiled = dynamo_lite.compile(function, backend=backend, fullgraph=True)
    for x in (torch.rand(200), -torch.rand(200)):
        mine, theirs = (x.clone().requires_grad_(requires_grad) for _ in range(2))
        found, expected = compiled(mine), function(theirs)
        torch.testing.assert_close(found, expected)
        if requires_grad:
            found.sum().backward()
            expected.sum().backward()
            torch.testing.assert_close(mine.grad, theirs.grad)


def none_on_one_side(x):
    y = None
    if x.max() > 3:
        y = x * 2
    return x if y is None else y + 1


def another_class_on_each_side(x):
    scale = torch.ones(2) if x.max() > 3 else 2
    x = x + 1
    if isinstance(scale, torch.Tensor):
        x = x * scale.sum()
    return x * 3


def optional_item(x):
    extra = {}
    if x.max() > 3:
        extra["bias"] = x.mean()
    y = x.sin()
    for value in extra.values():
        y = y + value
    return y


def bound_with_a_flag(x):
    found = False
    if x.max() > 3:
        found, position = True, x.argmax()
    return x.sum() + position if found is True else x.sum()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize(
    "function", [none_on_one_side, another_class_on_each_side, optional_item, bound_with_a_flag, other_kinds]
)
def test_sides_that_leave_other_objects_meet_where_the_function_ends(function, backend):
    compiled = dynamo_lite.compile(function, backend=backend, fullgraph=True)
    for x in (torch.ones(2), torch.tensor([1.0, 5.0]), torch.tensor([7.0, -5.0])):
        torch.testing.assert_close(compiled(x), function(x))


def test_an_object_that_only_a_change_keeps_alive_is_changed():
    kept = types.SimpleNamespace(rows=None)

    def step(x, noted):
        rows, y = [1], None
        if x.sum() > 0:
            y = x * 2
            rows.append(2)
        kept.rows = rows
        noted.append(rows)
        return x if y is None else y

    compiled = dynamo_lite.compile(step, backend="eager")
    with config.patch(capture_branches=True):
        for x in (torch.ones(2), -torch.ones(2)):
            mine, theirs = [], []
            assert torch.equal(compiled(x, mine), step(x, theirs))
            assert mine == theirs == [kept.rows]


def test_a_list_that_a_side_gives_away_is_the_one_that_it_has_changed():
    def step(x, noted):
        rows, y = [x], None
        if x.sum() > 0:
            y = x * 2
            rows[0] = y
            noted.append(rows)
        else:
            noted.append(rows)
        return x if y is None else y

    compiled = dynamo_lite.compile(step, backend="eager", fullgraph=True)
    for x in (torch.ones(2), -torch.ones(2)):
        mine, theirs = [], []
        assert repr((compiled(x, mine), mine)) == repr((step(x, theirs), theirs))


class Named:
    def __init__(self, x):
        self.name, self.items = "a", []
        if x.sum() > 3:
            self.name = "b"
            self.items.append(1)


class Noted(list):
    def __init__(self, x):
        if x.sum() > 3:
            self.append(1)


def made_by_init(x):
    named = Named(x)
    return named.name, named.items, list(Noted(x)), x + 1


def item_of_a_list(x):
    items = x.tolist()
    y = x * items[0] if x.sum() > 3 else x + 1
    return y, items


def list_in_a_function_of_grad(x):
    items = x.tolist()
    return torch.func.grad(lambda z: (z * items[0]).sum())(x), items


def appends_on_both_sides(x):
    items = x.tolist()
    if x.sum() > 3:
        items.append(1)
    else:
        items.append(2)
    return items


def list_in_a_loop(x):
    items = x.tolist()
    for _ in range(3):
        if x.sum() > 10:
            break
        x = x + items[0]
    return x


def the_input_from_an_inner_side(x):
    if x.sum() > 100:
        return x + 1
    elif x.sum() > 3:
        return x - 1
    return x


def the_input_from_a_turn(x):
    for a in (x, x + 1, x - 1):
        if a.max() > 3.5:
            return a
    return x


def the_input_is_written_behind(x):
    if x.sum() > 0:
        if x[0] > 1:
            y = x
        else:
            y = x * 2
    else:
        y = x * 3
    y.add_(1)
    return y


def view_without_gradients(x):
    y = x.clone().requires_grad_()
    z = y * 1
    with torch.no_grad():
        first = z[0]
    rest = z[1:]
    result = first * rest.sum() if x.sum() > 3 else first - rest.sum()
    result.backward()
    return y.grad


def dict_that_a_turn_changes(x):
    table = {"a": 1.0, "b": 2.0}
    for v in table.values():
        x = x - v
        if x.max() < 0.9:
            return x
        table["b"] = 5.0
    return x * 2


SUBTLE = {
    made_by_init: False,
    item_of_a_list: True,
    list_in_a_function_of_grad: True,
    appends_on_both_sides: True,
    list_in_a_loop: True,
    the_input_from_an_inner_side: True,
    the_input_from_a_turn: False,
    the_input_is_written_behind: False,
    view_without_gradients: False,
    dict_that_a_turn_changes: False,
}
"""Programs, and whether they are one graph."""


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("function", SUBTLE)
def test_objects_and_views_around_branches(function, backend):
    with config.patch(capture_branches=None if SUBTLE[function] else True):
        compiled = dynamo_lite.compile(function, backend=backend, fullgraph=SUBTLE[function])
        for x in (torch.tensor([1.0, 2, 3]), torch.tensor([2.0, 0, 1]), torch.tensor([0.0, 2, 1]), -torch.ones(3)):
            mine, theirs = x.clone(), x.clone()
            found, expected = compiled(mine), function(theirs)
            assert repr((found, mine)) == repr((expected, theirs))
            assert (found is mine) == (expected is theirs)


def test_what_was_learned_of_a_branch_keeps_no_input():
    def step(x, other):
        name = "mean" if x.sum() > 3 else "sum"
        return getattr(x, name)(), other + 1

    compiled = dynamo_lite.compile(step, backend="eager", fullgraph=True)
    other = torch.zeros(10)
    watched = weakref.ref(other)
    compiled(torch.ones(2), other)
    del other
    assert watched() is None
