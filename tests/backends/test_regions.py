"""Equal regions of a graph, compiled once: which are found, where a graph is cut, results as in eager execution."""

import copy
import operator
import random

import pytest
import torch

import dynamo_lite
from dynamo_lite.backends.aot import aot_eager, load_compiler
from dynamo_lite.backends.regions import aten, chain, compile_regions
from dynamo_lite.backends.regions.chain import find_chain
from dynamo_lite.backends.regions.repeats import Repeat, repeats
from dynamo_lite.record import GRAPH_RECORD, log
from dynamo_lite.testing import same


def labels(text):
    return [ord(letter) for letter in text]


@pytest.mark.parametrize(
    ("text", "shortest", "found"),
    [
        ("xabcabcabcy", 2, [((1, 4, 7), 3)]),
        ("abcdxabcdyabcd", 3, [((0, 5, 10), 4)]),
        ("abababab", 2, [((0, 2, 4, 6), 2)]),
        ("aabbaabb", 4, [((0, 4), 4)]),
        ("abcdef", 1, []),
        ("abcXabcYdefgZdefgWdefg", 3, [((8, 13, 18), 4), ((0, 4), 3)]),
        ("", 1, []),
    ],
)
def test_repeats(text, shortest, found):
    assert list(repeats(labels(text), shortest)) == [Repeat(*one) for one in found]


@pytest.mark.parametrize(
    ("toll", "found"),
    [(0, [((1, 7, 13, 19, 25, 31, 37, 43), 5)]), (5, [((0, 18, 36), 12), ((13, 31), 5)])],
)
def test_where_each_place_costs_something_longer_repeats_come_first(toll, found):
    text = "PabcdeQabcdeRabcdePabcdeQabcdeSabcdePabcdeQabcde"
    assert list(repeats(labels(text), 4, toll)) == [Repeat(*one) for one in found]


def test_repeats_of_random_texts_are_equal_and_do_not_overlap():
    rng = random.Random(3)
    for _ in range(300):
        text = [rng.randrange(3) for _ in range(rng.randrange(60))]
        taken = set()
        for repeat in repeats(text, 3):
            stretches = [text[start : start + repeat.length] for start in repeat.starts]
            assert len(stretches) > 1 and all(s == stretches[0] for s in stretches)
            for start in repeat.starts:
                places = set(range(start, start + repeat.length))
                assert len(places) >= 3 and not places & taken
                taken |= places


class Block(torch.nn.Module):
    def __init__(self, width=8, dropout=0.0):
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)
        self.query, self.key, self.value, self.out, self.up = (torch.nn.Linear(width, width) for _ in range(5))
        self.dropout = torch.nn.Dropout(dropout)

    def forward(self, x, mask):
        h = self.norm(x)
        scores = (self.query(h) @ self.key(h).transpose(-1, -2)).masked_fill(mask, -1e9)
        x = x + self.dropout(self.out(scores.softmax(-1) @ self.value(h)))
        return x + torch.nn.functional.gelu(self.up(x)).mul_(2)


class Stack(torch.nn.Module):
    def __init__(self, blocks=4, dropout=0.0):
        super().__init__()
        self.embed = torch.nn.Linear(8, 8)
        self.blocks = torch.nn.ModuleList(Block(dropout=dropout) for _ in range(blocks))
        self.head = torch.nn.Linear(8, 3)

    def forward(self, x, mask):
        x = self.embed(x)
        for block in self.blocks:
            x = block(x, mask)
        return self.head(x)


class TwoStacks(torch.nn.Module):
    """Layers of two kinds, of which the second has the operators of the first, with a mask of another size, and more."""

    def __init__(self):
        super().__init__()
        self.encoder = torch.nn.ModuleList(Block() for _ in range(4))
        self.decoder = torch.nn.ModuleList(torch.nn.ModuleList([Block(), Block()]) for _ in range(4))

    def forward(self, x, mask):
        y = x
        for block in self.encoder:
            x = block(x, mask)
        for itself, other in self.decoder:
            y = other(itself(y, mask[0]).tanh() - x, mask)
        return y


class Skips(Stack):
    """What comes out of each block is used again."""

    def forward(self, x, mask):
        x, kept = self.embed(x), []
        for block in self.blocks:
            x = block(x, mask)
            kept.append(x)
        return self.head(x), sum(kept[:2]) + x, kept[0]


class Counted(Stack):
    """Each block leaves something behind in a buffer."""

    def __init__(self):
        super().__init__()
        self.register_buffer("sums", torch.zeros(4))

    def forward(self, x, mask):
        x = self.embed(x)
        for i, block in enumerate(self.blocks):
            x = block(x, mask)
            self.sums[i] += x.detach().sum()
        return self.head(x)


class Shared(Stack):
    """One block in all places, and the same input twice."""

    def forward(self, x, mask):
        for _ in range(4):
            x = self.blocks[0](x, mask)
        return x, x


class NoGradBetween(Stack):
    def forward(self, x, mask):
        x = self.embed(x)
        for i, block in enumerate(self.blocks):
            with torch.set_grad_enabled(i != 1):
                x = block(x, mask)
        return self.head(x)


class Sections(Stack):
    """A list of tensors is made before the blocks and read behind them."""

    def forward(self, x, mask):
        parts = x.split(4, dim=-1)
        x = self.embed(x)
        for block in self.blocks:
            x = block(x, mask)
        return x[..., :4] + parts[1]


class RootsInVain(Stack):
    """Roots of 0 are read a block later, by what gives them no gradient: zeros in its place would be nan behind them."""

    def forward(self, x, mask, read):
        x, roots = self.embed(x), []
        for i, block in enumerate(self.blocks):
            root = block.norm.bias.sqrt()
            x = block(x + 1, mask)
            roots.append(root)
            if i > 0:
                x = read(x, roots[i - 1])
        return self.head(x)


def arguments():
    return torch.randn(2, 5, 8), torch.ones(5, 5, dtype=torch.bool).triu(1)


class Regions:
    """A backend that compiles regions wherever there are some, and what it has compiled: nodes of each graph."""

    def __init__(self, compile_graph=aot_eager):
        self.compile_graph, self.sizes, self.chains, self.notes = compile_graph, [], [], []

    def __call__(self, gm, example_inputs):
        self.chains.append(find_chain(gm, True))
        self.notes.append(gm.meta[GRAPH_RECORD].notes.get("regions"))
        with dynamo_lite.config.patch(compile_regions=True):
            return compile_regions(gm, example_inputs, self._compile)

    def _compile(self, gm, example_inputs):
        self.sizes.append(len(gm.graph.nodes))
        return self.compile_graph(gm, example_inputs)


def outcome(model, fn, args, train):
    """Results, gradients, buffers, the state of the generator, and the inputs after the call."""
    args = copy.deepcopy(args)
    args[0].requires_grad_(train)
    model.zero_grad()
    torch.manual_seed(5)
    with torch.set_grad_enabled(train):
        result = fn(*args)
    results = [r for r in (result if isinstance(result, tuple) else (result,)) if r.requires_grad]
    if results:
        sum(r.square().sum() for r in results).backward()
    grads = [p.grad for p in (*model.parameters(), args[0])]
    return result, grads, list(model.buffers()), torch.get_rng_state(), args


def check(model, backend, args, train):
    model.train(train)
    twin = copy.deepcopy(model)
    compiled = dynamo_lite.compile(model, backend=backend, fullgraph=True)
    for _ in range(2):
        assert same(outcome(twin, twin, args, train), outcome(model, compiled, args, train))


@pytest.mark.parametrize("train", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("compile_graph", [lambda gm, args: gm.forward, aot_eager], ids=["as captured", "aot_eager"])
@pytest.mark.parametrize(
    ("build", "copies"), [(Stack, 4), (Skips, 4), (Shared, 4), (lambda: Stack(dropout=0.5), 4)],
    ids=["stack", "skips", "shared", "dropout"],
)  # fmt: skip
def test_blocks_are_compiled_once(build, copies, compile_graph, train):
    backend = Regions(compile_graph)
    torch.manual_seed(0)
    check(build(), backend, arguments(), train)
    (chain,) = backend.chains
    numbers = [step.body for step in chain.steps]
    assert max(map(numbers.count, numbers)) == copies
    assert len(backend.sizes) == len(chain.bodies) <= 3
    assert backend.notes[0][0].endswith(f"×{copies}")


@pytest.mark.parametrize("build", [Counted, NoGradBetween, Sections])
@pytest.mark.parametrize("train", [False, True], ids=["inference", "training"])
def test_where_a_graph_cannot_be_cut_it_stays_whole(build, train):
    backend = Regions()
    torch.manual_seed(0)
    check(build(), backend, arguments(), train)
    (chain,) = backend.chains
    assert chain is None or build is NoGradBetween and not train
    assert len(backend.sizes) == (1 if chain is None else len(chain.bodies))


@pytest.mark.parametrize(
    "read",
    [
        lambda x, root: (x, torch.nn.functional.dropout(root))[0],
        lambda x, root: (x, torch._assert_async((root >= 0).all()))[0],
        lambda x, root: x + root.detach(),
    ],
    ids=["random", "assertion", "detached"],
)
def test_what_gets_no_gradient_does_not_leave_a_segment(read):
    class Roots(RootsInVain):
        def forward(self, x, mask):
            return super().forward(x, mask, read)

    torch.manual_seed(0)
    check(Roots(), Regions(), arguments(), True)


def test_sizes_that_vary():
    backend = Regions()
    model = Stack().eval()
    compiled = dynamo_lite.compile(model, backend=backend, dynamic=True)
    with torch.no_grad():
        for length in (5, 7, 3):
            x, mask = torch.randn(2, length, 8), torch.ones(length, length, dtype=torch.bool).triu(1)
            torch.testing.assert_close(compiled(x, mask), model(x, mask))
    (chain,) = backend.chains
    assert len(chain.steps) == 6 and len(chain.bodies) == 3


def test_values_die_with_their_last_use():
    alive = []

    def watch(gm, example_inputs):
        def run(*args):
            alive.append(sum(t.device.type == "cpu" and tuple(t.shape) == (2, 5, 8) for t in everything()))
            return gm.forward(*args)

        return run

    def everything():
        import gc

        return [o for o in gc.get_objects() if type(o) is torch.Tensor]

    backend = Regions(watch)
    model = Stack(8).eval()
    compiled = dynamo_lite.compile(model, backend=backend)
    args = arguments()
    with torch.no_grad():
        compiled(*args)
        alive.clear()
        compiled(*args)
    assert alive[2:-1] == [alive[2]] * (len(alive) - 3)


@pytest.mark.parametrize(("grad", "segments"), [(False, True), (True, False)])
def test_by_default_graphs_without_gradients_are_cut(grad, segments):
    bodies = []

    def compile_body(gm, example_inputs):
        bodies.append(gm)
        return gm.forward

    def backend(gm, example_inputs):
        return compile_regions(gm, example_inputs, compile_body)

    model, args = Stack(24).eval(), arguments()
    with torch.set_grad_enabled(grad):
        assert same(dynamo_lite.compile(model, backend=backend)(*args), model(*args))
    assert (len(bodies) > 1) is segments


def test_layers_of_two_kinds_with_a_part_in_common(monkeypatch):
    """Masks of other sizes make other regions."""
    monkeypatch.setattr(chain, "FIXED", 10)
    monkeypatch.setattr(chain, "WORTH", 10)
    told = []

    def backend(gm, example_inputs):
        found = find_chain(gm, "auto")
        told.append([len([n for n in body.graph.nodes if n.op.startswith("call_")]) for body in found.bodies])
        return compile_regions(gm, example_inputs, lambda body, inputs: body.forward, "auto")

    model, args = TwoStacks().eval(), arguments()
    with torch.no_grad():
        assert same(dynamo_lite.compile(model, backend=backend)(*args), model(*args))
    assert told == [[16, 19]]


def test_small_graphs_are_left_whole_unless_asked_for():
    graphs = []

    def backend(gm, example_inputs):
        graphs.append([find_chain(gm, wanted) is not None for wanted in ("auto", True, False)])
        return gm.forward

    with torch.no_grad():
        dynamo_lite.compile(Stack(), backend=backend)(*arguments())
        dynamo_lite.compile(Stack(24), backend=backend)(*arguments())
    assert graphs == [[False, True, False], [True, True, False]]


@pytest.mark.parametrize("train", [False, True], ids=["inference", "training"])
def test_inductor(train):
    model = Stack(3)
    model.train(train)
    twin = copy.deepcopy(model)
    args = arguments()
    with dynamo_lite.config.patch(compile_regions=True):
        compiled = dynamo_lite.compile(model, backend="inductor", fullgraph=True)
        for _ in range(2):
            expected, found = outcome(twin, twin, args, train), outcome(model, compiled, args, train)
            torch.testing.assert_close(found, expected)
    (record,) = [graph for function in dynamo_lite.record.log.snapshot() for graph in function.graphs]
    assert record.notes["regions"] == ["16 operators ×3"]


class TestAtenGraphs:
    """Training steps: the graph of AOTAutograd is cut, with an interpreter in the place of Inductor's compiler of one graph."""

    @pytest.fixture(autouse=True)
    def sizes(self, monkeypatch):
        load_compiler("torch._inductor.compile_fx")
        monkeypatch.setattr(aten, "SMALLEST", 20)
        monkeypatch.setattr(chain, "FIXED", 1)
        monkeypatch.setattr(chain, "WORTH", 20)
        sizes = []

        def interpret(gm, inputs, **settings):
            sizes.append(len(gm.graph.nodes))
            run = torch.fx.Interpreter(gm)

            def call(values):
                return run.run(*values)

            call._boxed_call = True
            return call

        monkeypatch.setattr("torch._inductor.compile_fx.compile_fx_inner", interpret)
        with torch._functorch.config.patch(enable_autograd_cache=False):
            yield sizes

    @staticmethod
    def step(model, parts, touch=None):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

        def step(batches):
            optimizer.zero_grad()
            total = torch.zeros(())
            for x in batches[:parts]:
                loss = model(x).square().mean()
                loss.backward()
                total += loss.detach()
            optimizer.step()
            return total, None if touch is None else touch(model)

        return step

    @pytest.mark.parametrize("touch", [None, lambda model: model[0].weight.t(), lambda model: model[0].weight.t() + 1])
    @pytest.mark.parametrize("norm", [False, True])
    def test_accumulated_gradients(self, sizes, touch, norm):
        def make():
            torch.manual_seed(0)
            layers = [torch.nn.Linear(6, 6), torch.nn.Tanh(), torch.nn.BatchNorm1d(6) if norm else torch.nn.Tanh()]
            return torch.nn.Sequential(*layers, torch.nn.Linear(6, 6), torch.nn.Tanh(), torch.nn.Linear(6, 3))

        (mine, expected), batches = (make(), make()), torch.randn(3, 5, 6)
        compiled = dynamo_lite.compile(self.step(mine, 3, touch), backend="inductor")
        eager = self.step(expected, 3, touch)
        for _ in range(4):
            assert same(eager(batches), compiled(batches), tol=1e-5)
        assert same(expected.state_dict(), mine.state_dict(), tol=1e-5)
        (told,) = [graph.notes["regions"] for frame in log.snapshot() for graph in frame.graphs if graph.notes]
        assert told[0][-2:] in ("×2", "×3") and len(sizes) < 7

    def test_a_step_without_repeats_is_compiled_as_a_whole(self, sizes):
        model = torch.nn.Linear(6, 3)
        compiled = dynamo_lite.compile(self.step(model, 1), backend="inductor")
        for _ in range(3):
            compiled(torch.randn(1, 5, 6))
        assert len(sizes) == 1

    def test_a_table_of_seeds_may_be_a_result(self):
        seeds, lookup, copy = (
            torch.ops.prims.inductor_seeds.default,
            torch.ops.prims.inductor_lookup_seed.default,
            torch.ops.aten.copy_.default,
        )
        graph = torch.fx.Graph()
        x = graph.placeholder("x")
        table = graph.call_function(seeds, (2, torch.device("cpu")))
        y = graph.call_function(torch.ops.aten.sin.default, (x,))
        seed = graph.call_function(lookup, (table, 0))
        graph.output((graph.call_function(copy, (x, y)), seed, table))
        aten._draw_seeds_first(torch.fx.GraphModule({}, graph))
        graph.lint()
        assert [node.target for node in graph.nodes][1:4] == [seeds, lookup, torch.ops.aten.sin.default]

    def test_a_part_of_what_is_written_to_is_a_view_of_it(self):
        graph = torch.fx.Graph()
        x = graph.placeholder("x")
        parts = graph.call_function(torch.ops.aten.split.Tensor, (x, 2))
        part = graph.call_function(operator.getitem, (parts, 0))
        assert aten._root(part) is x
        assert aten._root(graph.call_function(torch.ops.aten.sin.default, (part,))).target is torch.ops.aten.sin.default
