import pytest
import torch

import dynamo_lite
from dynamo_lite.backends import registry
from dynamo_lite.exc import InvalidBackend
from dynamo_lite.record import log
from dynamo_lite.tune.autotune import default_candidates, seconds_of
from dynamo_lite.tune.key import graph_key
from tests.tune.fresh import new_process


@pytest.fixture(autouse=True)
def backends(monkeypatch):
    """`fused`, which is faster than the graph below, `wrong` and `broken`; the list says which were asked to compile."""
    asked = []
    monkeypatch.setattr(registry, "_backends", dict(registry._backends))
    monkeypatch.setattr(registry, "_tags", dict(registry._tags))

    def fused(gm, example_inputs):
        asked.append("fused")
        return lambda x: (x + STEPS,)

    def wrong(gm, example_inputs):
        asked.append("wrong")
        return lambda x: (x,)

    def broken(gm, example_inputs):
        asked.append("broken")
        raise RuntimeError("no such kernel")

    for backend in (fused, wrong, broken):
        registry.register_backend(backend)
    log.reset()
    return asked


STEPS = 300


def steps(x):
    for _ in range(STEPS):
        x = x + 1
    return x


def tuned(path, *names, **options):
    return dynamo_lite.compile(steps, backend="autotune", options={"store": path, "candidates": names, **options})


def test_the_winner_runs_and_the_report_says_why(tmp_path, backends):
    x = torch.randn(5)
    fn = tuned(tmp_path / "store", "broken", "wrong", "fused")
    torch.testing.assert_close(fn(x), steps(x))
    record = log.frames[-1].graphs[0]
    assert record.backend == "fused"
    told = {name: text for name, _, text in record.race}
    assert told["wrong"].startswith("wrong: result 0: off by")
    assert told["broken"] == "failed: RuntimeError: no such kernel"
    assert told["fused"].endswith("chosen") and "eager" in told
    assert backends == ["broken", "wrong", "fused"]


def test_an_earlier_choice_is_taken_without_a_race(tmp_path, backends):
    x = torch.randn(5)
    tuned(tmp_path / "store", "wrong", "fused")(x)
    backends.clear()
    new_process()
    torch.testing.assert_close(tuned(tmp_path / "store", "wrong", "fused")(x), steps(x))
    assert backends == ["fused"]
    assert log.frames[-1].graphs[0].backend == "fused"


def test_a_choice_that_fails_now_is_forgotten(tmp_path, backends, monkeypatch):
    x = torch.randn(5)
    tuned(tmp_path / "store", "fused")(x)
    new_process()

    def fails(gm, example_inputs):
        raise RuntimeError("the library has gone")

    monkeypatch.setitem(registry._backends, "fused", fails)
    with pytest.warns(UserWarning, match="'fused', chosen earlier, fails now and is left: the library has gone"):
        torch.testing.assert_close(tuned(tmp_path / "store", "fused")(x), steps(x))
    assert log.frames[-1].graphs[0].backend == "eager"


def test_what_cannot_be_copied_is_not_raced(tmp_path):
    s = torch.eye(3).to_sparse()
    fn = dynamo_lite.compile(
        lambda s, x: torch.sparse.mm(s, x), backend="autotune", options={"store": False, "candidates": ["eager"]}
    )
    torch.testing.assert_close(fn(s, torch.ones(3, 3)), torch.ones(3, 3))
    assert log.frames[-1].graphs[0].race[0][2].startswith("no race: input 0 is no plain dense tensor")


def test_parameters_and_buffers_are_left_alone(tmp_path):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
    twin = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
    twin.load_state_dict(model.state_dict())
    x = torch.randn(8, 4)
    fn = dynamo_lite.compile(model, backend="autotune", options={"store": False, "candidates": ["aot_eager"]})
    for _ in range(3):
        fn(x).sum().backward()
        twin(x).sum().backward()
    for mine, other in zip(model.state_dict().values(), twin.state_dict().values(), strict=True):
        torch.testing.assert_close(mine, other)
    for mine, other in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, other.grad)


def test_options():
    assert (seconds_of("500ms"), seconds_of("2min"), seconds_of(3), seconds_of(None)) == (0.5, 120.0, 3.0, 20.0)
    with pytest.raises(RuntimeError, match="budget='soon': expected seconds"):
        dynamo_lite.compile(steps, backend="autotune", options={"budget": "soon"})
    with pytest.raises(
        RuntimeError,
        match="Unexpected option budgett of autotune; known: background, budget, candidates, shadow, store",
    ):
        dynamo_lite.compile(steps, backend="autotune", options={"budgett": 3})
    with pytest.warns(UserWarning, match="mode='max-autotune' has no effect: the backend autotune has no modes"):
        dynamo_lite.compile(steps, backend="autotune", mode="max-autotune")


@pytest.mark.parametrize(
    ("option", "value"),
    [("budget", "0s"), ("budget", 0), ("shadow", float("inf")), ("shadow", 5e-324), ("candidates", [steps])],
)
def test_options_of_no_use(option, value):
    with pytest.raises(RuntimeError, match=f"{option}=.*: expected "):
        dynamo_lite.compile(steps, backend="autotune", options={option: value})


def test_an_unknown_candidate(tmp_path):
    with pytest.raises(InvalidBackend, match="indcutor"):
        tuned(tmp_path / "store", "indcutor")


def test_candidates_depend_on_devices_and_training():
    x = torch.ones(2)
    assert default_candidates([x], False)[:2] == ["torchscript", "inductor"]
    assert "torchscript" not in default_candidates([x], True)
    assert "inductor_reduce_overhead" not in default_candidates([x], False)
    assert "autotune" not in default_candidates([x], False)


class TestKey:
    def key(self, fn, *examples, training=False):
        return graph_key(torch.fx.symbolic_trace(fn), examples, training)

    def test_names_do_not_matter(self):
        x = torch.ones(3)
        assert self.key(lambda a: (a + 1).sin(), x) == self.key(lambda b: (b + 1).sin(), x)

    @pytest.mark.parametrize(
        "other",
        [lambda a: (a + 2).sin(), lambda a: (a + 1).cos(), lambda a: (a + 1).sin() + a, lambda a: (1 + a).sin() * 1],
    )
    def test_operators_and_constants_do(self, other):
        x = torch.ones(3)
        assert self.key(lambda a: (a + 1).sin(), x) != self.key(other, x)

    def test_inputs(self):
        def fn(a):
            return a + 1

        x = torch.ones(100, 3)
        assert self.key(fn, x) == self.key(fn, torch.zeros(120, 3)) != self.key(fn, torch.ones(300, 3))
        for other in (x.double(), torch.ones(100, 4), x.t(), torch.nn.Parameter(x)):
            assert self.key(fn, x) != self.key(fn, other)
        assert self.key(fn, x) != self.key(fn, x, training=True)


def test_reset_forgets_the_choices_of_this_process(tmp_path, backends):
    x = torch.randn(5)
    tuned(tmp_path / "store", "wrong", "fused")(x)
    backends.clear()
    dynamo_lite.reset()
    tuned(tmp_path / "store", "wrong", "fused")(x)
    assert backends == ["wrong", "fused"]  # raced again
    backends.clear()
    new_process()
    tuned(tmp_path / "store", "wrong", "fused")(x)
    assert backends == ["fused"]
