"""Modules: attribute lookup, state, hooks, containers, mutation."""

import copy

import pytest
import torch
from torch import nn

import dynamo_lite
from dynamo_lite.testing import CompileCounter, run_both, same
from tests.helpers.graph_counts import check


def x():
    torch.manual_seed(0)
    return torch.randn(2, 4)


class Block(nn.Module):
    scale = 3

    def __init__(self, n=4):
        super().__init__()
        self.linear = nn.Linear(n, n)
        self.norm = nn.LayerNorm(n)
        self.register_buffer("offset", torch.ones(n))
        self.register_buffer("nothing", None)
        self.register_parameter("bias", None)
        self.act = nn.ReLU()
        self.factor = 2.0

    @property
    def doubled(self):
        return self.factor * 2

    def forward(self, a):
        assert self.nothing is None and self.bias is None
        return self.act(self.norm(self.linear(a))) * self.doubled + self.offset * self.scale


def test_attributes_of_every_kind():
    check(Block().eval(), x(), ops=6)
    check(Block().train(), x(), ops=6)


CONTAINERS = {
    "sequential": lambda: nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.Sequential(nn.Linear(4, 2))),
    "dropout": lambda: nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)),
    "norms": lambda: nn.Sequential(nn.LayerNorm(4), nn.Unflatten(1, (4, 1)), nn.GroupNorm(2, 4), nn.Flatten()),
    "attention": lambda: nn.TransformerEncoderLayer(4, 2, 8, batch_first=True).eval(),
    "bilinear": lambda: nn.Sequential(nn.Linear(4, 8), nn.Softmax(dim=-1), nn.Identity()),
}


@pytest.mark.parametrize("name", CONTAINERS)
def test_containers(name):
    module = CONTAINERS[name]()
    check(module, x() if name != "attention" else x()[None])


@pytest.mark.parametrize("train", [False, True])
def test_batch_norm_updates_its_buffers(train):
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).train(train)
    check(model, torch.randn(2, 3, 8, 8))


@pytest.mark.parametrize("cls", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent(cls):
    check(cls(4, 3, batch_first=True), torch.randn(2, 5, 4))


def test_embedding_and_loss():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(10, 4, padding_idx=0)
            self.loss = nn.CrossEntropyLoss()

        def forward(self, ids):
            return self.loss(self.embed(ids).flatten(0, 1), ids.flatten() % 4)

    check(M(), torch.tensor([[1, 2], [3, 4]]))


def test_module_list_and_dict():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
            self.heads = nn.ModuleDict({"a": nn.Linear(4, 2), "b": nn.Linear(4, 3)})
            self.scales = nn.ParameterList([nn.Parameter(torch.ones(4)) for _ in range(3)])

        def forward(self, a, which="b"):
            for i, layer in enumerate(self.layers):
                a = layer(a) * self.scales[i]
            assert len(self.layers) == 3 and "a" in self.heads
            results = {k: head(a) for k, head in self.heads.items()}
            return results[which], self.layers[-1](a), self.layers[1:][0](a)

    check(M(), x())


def test_assignments():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("total", torch.zeros(4))
            self.count = 0
            self.cache = None
            self.weight = nn.Parameter(torch.ones(4))

        def forward(self, a):
            self.total = self.total + a.sum(0)
            self.count += 1
            self.cache = a * self.weight
            self.seen = [self.count]
            return self.cache + self.total

    model = M()
    run = run_both(model, x(), _calls=3)
    assert run.graph_count >= 1


def test_in_place_buffer_update():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("total", torch.zeros(4))

        def forward(self, a):
            self.total.add_(a.sum(0))
            self.total[0] = 1
            return a + self.total

    check(M(), x())


def test_missing_attribute():
    class M(nn.Module):
        def forward(self, a):
            if hasattr(self, "nope"):
                return a
            try:
                return self.nope
            except AttributeError as error:
                return a + 1, str(error)

    check(M(), x())


def test_getattr_of_a_class():
    class M(nn.Module):
        def __getattr__(self, name):
            if name == "virtual":
                return super().__getattr__("linear")
            return super().__getattr__(name)

        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, a):
            return self.virtual(a)

    check(M(), x(), ops=1)


def test_hooks():
    model = Block()
    model.linear.register_forward_hook(lambda module, args, output: output + 1)
    model.register_forward_pre_hook(lambda module, args: (args[0] * 2,))
    compiled = dynamo_lite.compile(model, backend="eager")
    assert torch.equal(compiled(x()), model(x()))


def test_hook_added_later_is_noticed():
    model = Block()
    compiled = dynamo_lite.compile(model, backend="eager")
    assert torch.equal(compiled(x()), model(x()))
    handle = model.linear.register_forward_hook(lambda module, args, output: output * 0)
    assert torch.equal(compiled(x()), model(x()))
    handle.remove()
    assert torch.equal(compiled(x()), model(x()))


CHANGES = {
    "factor": lambda m: setattr(m, "factor", 5.0),
    "train": lambda m: m.train(not m.training),
    "weight": lambda m: setattr(m.linear, "weight", nn.Parameter(torch.zeros(4, 4))),
    "no bias": lambda m: setattr(m.linear, "bias", None),
    "buffer": lambda m: setattr(m, "offset", torch.zeros(4)),
    "submodule": lambda m: setattr(m, "act", nn.GELU()),
    "forward": lambda m: setattr(m.act, "forward", lambda a: a * 7),
    "class attribute": lambda m: setattr(type(m), "scale", 11),
    "dtype": lambda m: m.double().float(),
    "data": lambda m: m.linear.weight.data.zero_(),
    "instance attribute over class": lambda m: setattr(m, "scale", 13),
    "delete parameter": lambda m: (delattr(m.linear, "bias"), setattr(m.linear, "bias", torch.ones(4))),
}


@pytest.mark.parametrize("name", CHANGES)
def test_changes_from_outside_are_noticed(name):
    class Fresh(Block):
        pass

    model = Fresh()
    compiled = dynamo_lite.compile(model, backend="eager")
    assert torch.equal(compiled(x()), model(x()))
    CHANGES[name](model)
    for _ in range(2):
        assert torch.equal(compiled(x()), model(x())), name


def test_shared_submodule_and_tied_weights():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(4, 4)
            self.b = self.a
            self.c = nn.Linear(4, 4)
            self.c.weight = self.a.weight

        def forward(self, v):
            return self.c(self.b(self.a(v))), self.a is self.b, self.c.weight is self.a.weight

    run = check(M(), x(), ops=3)
    assert len(run.graphs[0].graph.find_nodes(op="placeholder")) == 4


def test_parameters_iteration():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(4, 4)
            self.b = nn.BatchNorm1d(4)

        def forward(self, v):
            total = sum(p.sum() for p in self.parameters())
            names = [n for n, _ in self.named_parameters()]
            children = [type(m).__name__ for m in self.modules()]
            buffers = sum(b.float().sum() for b in self.buffers())
            return v + total + buffers, names, children, next(self.parameters()).dtype

    check(M(), x())


def test_training_step_outside():
    model = Block()
    compiled = dynamo_lite.compile(model, backend="eager", fullgraph=True)
    compiled(x()).sum().backward()
    got = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    model(x()).sum().backward()
    assert all(torch.equal(a, p.grad) for a, p in zip(got, model.parameters(), strict=True))


def test_state_dict_inside_runs():
    model = Block()
    run_both(model.state_dict, _calls=1)


def test_two_instances_share_code():
    first, second = Block(), Block()

    def fn(model, a):
        return model(a)

    compiled = dynamo_lite.compile(fn, backend="eager", fullgraph=True)
    for model in (first, second, first, second):
        assert torch.equal(compiled(model, x()), model(x()))


def test_functional_call():
    model = Block()
    params = {k: torch.zeros_like(v) for k, v in model.named_parameters()}
    run_both(lambda p, a: torch.func.functional_call(model, p, (a,)), params, x())


def test_lazy_modules_become_ordinary_ones():
    def run(opt):
        torch.manual_seed(0)
        net = nn.Sequential(nn.LazyBatchNorm1d(), nn.LazyLinear(4), nn.ReLU(), nn.LazyLinear(2))
        call = opt(net)
        return [call(torch.arange(12.0).reshape(4, 3) + i) for i in range(4)], list(map(type, net)), net.state_dict()

    frames = CompileCounter()
    assert same(run(lambda fn: fn), run(lambda fn: dynamo_lite.compile(fn, backend=frames, fullgraph=True)), tol=1e-5)
    assert frames.frame_count == 1


class LazyNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.LazyConv2d(3, 2)
        self.head = nn.LazyLinear(4)

    def forward(self, a):
        return self.head(self.conv(a).relu().flatten(1))


def test_lazy_modules_inside_run_eagerly_once():
    def run(opt):
        torch.manual_seed(0)
        net = LazyNet()

        def fn(a):
            return net(a * 2) + 1

        call = opt(fn)
        results = []
        for i in range(3):
            results.append(call(torch.arange(32.0).reshape(1, 2, 4, 4) + i))
            results[-1].sum().backward()
        return results, [type(m) for m in net.modules()], [(p, p.grad) for p in net.parameters()]

    frames = CompileCounter()
    assert same(run(lambda fn: fn), run(lambda fn: dynamo_lite.compile(fn, backend=frames, fullgraph=True)), tol=1e-5)
    assert frames.frame_count == 1


def test_lazy_modules_in_a_loop_of_the_program():
    """What comes after the first step is captured."""

    def run(opt):
        torch.manual_seed(0)
        net = LazyNet()

        def steps(batches):
            losses = []
            for a in batches:
                losses.append(net(a).sum())
            return losses

        return opt(steps)([torch.arange(32.0).reshape(1, 2, 4, 4) + i for i in range(4)])

    frames = CompileCounter()
    assert same(run(lambda fn: fn), run(lambda fn: dynamo_lite.compile(fn, backend=frames)), tol=1e-5)
    assert frames.frame_count > 1


class Shares(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.BatchNorm1d(2), nn.BatchNorm1d(2)
        self.c, self.d = nn.Linear(2, 2), nn.Linear(2, 2)

    def forward(self, x):
        self.a.running_mean = torch.full((2,), 5.0)
        self.c.bias = None
        return self.b.running_mean * 1, self.d(x)


def test_modules_that_come_to_share_a_dictionary():
    def run(wrap):
        torch.manual_seed(0)
        net = Shares()
        call, results = wrap(net), []
        for shared in (False, True, True):
            net.a.running_mean, net.c.bias = torch.zeros(2), nn.Parameter(torch.ones(2))
            if shared:
                net.b.__dict__["_buffers"] = net.a._buffers
                net.d.__dict__["_parameters"] = net.c._parameters
            results.append(call(torch.ones(3, 2)))
        return results, dict(net.state_dict())

    assert same(run(lambda net: net), run(lambda net: dynamo_lite.compile(net, backend="eager")))


def test_lazy_modules_are_initialised_before_they_are_captured():
    module = torch.nn.LazyLinear(4)
    expected = copy.deepcopy(module)
    x = torch.randn(2, 3)
    torch.manual_seed(0)
    expected = expected(x)
    torch.manual_seed(0)
    compiled = dynamo_lite.compile(module, backend="eager", fullgraph=True)
    assert torch.equal(compiled(x), expected)
    assert type(module) is torch.nn.Linear and compiled.weight is module.weight
    with pytest.raises(AttributeError):
        dynamo_lite.compile(torch.nn.LazyLinear(4), backend="eager")(3)


class Router(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.classifier = torch.nn.Linear(3, 3)

    def forward(self, x):
        self.classifier = self.classifier.to(torch.float32)
        return self.classifier(x)


def test_a_module_moved_to_where_it_is():
    run = run_both(Router(), torch.randn(2, 3))
    assert run.graph_count == 1
    assert not run.breaks


def test_a_module_moved_to_another_type():
    def f(module, x):
        return module.to(torch.float64)(x.double())

    run_both(f, torch.nn.Linear(3, 3), torch.randn(2, 3))


@pytest.mark.filterwarnings("ignore")
def test_an_encoder_takes_the_ordinary_way_where_eager_execution_takes_nested_tensors():
    torch.manual_seed(0)
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), 2).eval()
    x, padding = torch.randn(2, 5, 16), torch.tensor([[0, 0, 0, 1, 1], [0, 0, 0, 0, 1]], dtype=torch.bool)
    with torch.no_grad():
        expected = encoder(x, src_key_padding_mask=padding)
        given = dynamo_lite.compile(encoder, backend="eager", fullgraph=True)(x, src_key_padding_mask=padding)
        encoder.use_nested_tensor = False
        ordinary = encoder(x, src_key_padding_mask=padding)
    assert not expected[padding].any() and torch.equal(given, ordinary)
    torch.testing.assert_close(given[~padding], expected[~padding])
