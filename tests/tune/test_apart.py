"""Races in another process, and what comes of them in this one."""

import functools
import os
import sys
import textwrap
import threading
import time
import warnings

import pytest
import torch

import dynamo_lite
from dynamo_lite.api import settings_of
from dynamo_lite.backends import registry
from dynamo_lite.backends.compiled import artifact
from dynamo_lite.backends.eager import eager
from dynamo_lite.config import config
from dynamo_lite.exc import InvalidBackend
from dynamo_lite.record import log
from dynamo_lite.tune import apart, portable, switching
from dynamo_lite.tune.apart import RaceApart
from dynamo_lite.tune.portable import CannotCarry
from dynamo_lite.tune.results import Store
from tests.helpers import processes
from tests.tune import failing_backends
from tests.tune.fresh import new_process

STEPS = 300


def steps(x):
    for _ in range(STEPS):
        x = x + 1
    return x


@pytest.fixture(autouse=True)
def backends(monkeypatch):
    monkeypatch.setattr(registry, "_backends", dict(registry._backends))
    monkeypatch.setattr(registry, "_tags", dict(registry._tags))
    for name in ("crashing", "leaving", "crashing_when_called", "hanging", "printing", "fast", "inferring"):
        registry.register_backend(getattr(failing_backends, name))
    log.reset()


def tuned(path, *names, fn=steps, **options):
    return dynamo_lite.compile(fn, backend="autotune", options={"store": path, "candidates": names, **options})


def told():
    return {name: text for name, _, text in log.frames[-1].graphs[0].race}


def captured(fn, *inputs, dynamic=False):
    """A race over the graph of a function, made where a backend gets the graph."""
    found = []

    def backend(gm, examples):
        found.append(RaceApart.of(gm, examples, False))
        return gm.forward

    dynamo_lite.compile(fn, backend=backend, dynamic=dynamic)(*inputs)
    return found.pop()


def test_backends_that_end_the_process_drop_out_and_the_others_race(tmp_path):
    race = captured(steps, torch.randn(5))
    choice = race.run(["crashing", "fast", "leaving"], 20)
    assert choice.backend == "fast"
    assert choice.problem_of("crashing") == "crashed: SIGSEGV"
    assert choice.problem_of("leaving") == "ended its process with status 3"
    assert choice.problem_of("fast") is None and choice.speedup > 1


def test_gradients_are_recorded_there_as_here(tmp_path):
    with torch.no_grad():
        race = captured(steps, torch.randn(5))
    assert race.run(["inferring"], 20).backend == "inferring"
    race = captured(steps, torch.randn(5))
    assert race.run(["inferring"], 20).problem_of("inferring") == "failed: NotImplementedError: gradients"


def test_heavy_candidates_are_tried_before_the_race(tmp_path):
    x = torch.randn(5)
    fn = tuned(tmp_path / "store", "crashing_when_called", "printing", "fast", budget="5min")
    torch.testing.assert_close(fn(x), steps(x))
    assert told()["crashing_when_called"] == "crashed: SIGABRT"
    assert told()["printing"].endswith(" s") or told()["printing"].endswith("slower")
    assert log.frames[-1].graphs[0].backend == "fast"


def test_what_hangs_is_ended(monkeypatch):
    monkeypatch.setattr(apart, "GRACE_SECONDS", 1.0)
    race = captured(steps, torch.randn(5))
    assert race.run(["hanging"], 1.0).problem_of("hanging") == "hung: its time was up"


def test_what_only_this_program_knows_cannot_be_carried():
    @torch.library.custom_op("dynamo_lite_tests::only_here", mutates_args=())
    def only_here(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    only_here.register_fake(lambda x: torch.empty_like(x))
    race = captured(lambda x: only_here(x) * 2, torch.randn(3))
    with pytest.raises(CannotCarry, match="can't be made again.*only_here"):
        race.run(["aot_eager"], 5)


def test_symbolic_sizes_shared_memory_and_bodies_are_carried():
    base = torch.randn(6, 4)

    def fn(x, y):
        z = torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))
        return z.reshape(-1, x.shape[0]) * y.sum() + x.shape[0]

    race = captured(fn, base, base[1:], dynamic=True)
    choice = race.run(["aot_eager"], 20)
    assert choice.problem_of("aot_eager") in (None, "slower")
    path = race.path
    del race
    assert not path.exists()


class TestBackground:
    def wait(self, record, text="chosen"):
        for _ in range(600):
            if record.race is not None and any(text in row[2] for row in record.race):
                return
            time.sleep(0.1)
        pytest.fail(f"{record.race}")

    def test_the_winner_comes_in_later(self, tmp_path):
        x = torch.randn(5)
        fn = tuned(tmp_path / "store", "fast", background=True)
        torch.testing.assert_close(fn(x), steps(x))
        record = log.frames[-1].graphs[0]
        assert record.backend == "eager" and told() == {"eager": "the race is in the background"}
        self.wait(record)
        while threading.active_count() > 1 and not any(r.winner for r in _alive()):
            time.sleep(0.01)
        torch.testing.assert_close(fn(x), steps(x))
        assert record.backend == "fast" and [r.run.__qualname__ for r in _alive()] == ["fast.<locals>.<lambda>"]
        assert [c.backend for c in Store(tmp_path / "store").all().values()] == ["fast"]

    @pytest.mark.parametrize("wrap", [dynamo_lite.compile, lambda fn, **kwargs: dynamo_lite.optimize(**kwargs)(fn)])
    def test_the_keyword(self, wrap, tmp_path):
        x = torch.randn(5)
        with config.patch(tune_store=str(tmp_path / "store")):
            fn = wrap(steps, backend="fast", background=True)
            torch.testing.assert_close(fn(x), steps(x))
        record = log.frames[-1].graphs[0]
        assert record.backend == "eager"
        self.wait(record)
        while threading.active_count() > 1 and not any(r.winner for r in _alive()):
            time.sleep(0.01)
        torch.testing.assert_close(fn(x), steps(x))
        assert record.backend == "fast"

    @pytest.mark.parametrize(
        ("keywords", "message"),
        [
            ({"backend": lambda gm, examples: gm}, "needs the name of a backend"),
            ({"backend": "inductor", "options": {"triton.cudagraphs": False}}, "takes no options of 'inductor'"),
            ({"backend": "inductor", "mode": "lite"}, "takes no mode='lite' of 'inductor'"),
            ({"backend": "inductor", "regions": True}, "takes no regions"),
            ({"backend": "inductorr"}, "inductorr"),
            ({"backend": "autotune", "options": {"budgett": 3}}, "Unexpected option budgett"),
        ],
    )
    def test_what_the_keyword_does_not_go_with(self, keywords, message):
        with pytest.raises((RuntimeError, InvalidBackend), match=message):
            dynamo_lite.compile(steps, background=True, **keywords)
        with pytest.raises(TypeError, match="background"):
            dynamo_lite.compile(steps, background="yes")

    @pytest.mark.parametrize(
        ("keywords", "candidates"),
        [
            ({}, ("inductor",)),
            ({"mode": "default"}, ("inductor",)),
            ({"mode": "max-autotune"}, ("inductor_max_autotune",)),
            ({"backend": "aot_eager"}, ("aot_eager",)),
            ({"backend": "autotune", "options": {"candidates": ["fast"]}}, ["fast"]),
            ({"backend": "autotune"}, None),
        ],
    )
    def test_the_candidates_of_the_keyword(self, keywords, candidates):
        compiler = settings_of(dynamo_lite.compile(lambda x: x, background=True, **keywords)).compiler()
        options = compiler.keywords["options"]
        assert (options["background"], options.get("candidates")) == (True, candidates)

    def test_eager_execution_has_nothing_behind_it(self):
        assert settings_of(dynamo_lite.compile(lambda x: x, backend="eager", background=True)).compiler() is eager
        with pytest.warns(UserWarning, match="options={'a': 1} have no effect: the backend eager takes none"):
            dynamo_lite.compile(lambda x: x, backend="eager", background=True, options={"a": 1})

    def test_a_winner_that_fails_here(self, tmp_path, monkeypatch):
        x = torch.randn(5)
        fn = tuned(tmp_path / "store", "fast", background=True)
        fn(x)
        record = log.frames[-1].graphs[0]
        self.wait(record)

        def fails(gm, examples):
            raise RuntimeError("not here")

        monkeypatch.setitem(registry._backends, "fast", fails)
        time.sleep(0.1)
        torch.testing.assert_close(fn(x), steps(x))
        assert told() == {"eager": "the winner failed: RuntimeError: not here"} and record.backend == "eager"
        torch.testing.assert_close(fn(x), steps(x))

    def test_what_cannot_be_carried_runs_eagerly(self, monkeypatch):
        def refuse(*args):
            raise CannotCarry("too heavy")

        monkeypatch.setattr(portable, "dump", refuse)
        fn = tuned(False, "fast", background=True)
        assert fn(torch.zeros(2)).tolist() == [300.0, 300.0]
        self.wait(log.frames[-1].graphs[0], "no race")
        assert told() == {"eager": "no race in the background: too heavy"}

    def test_the_winner_comes_compiled(self, tmp_path, monkeypatch):
        """Inductor's graph, from the other process; torch's compilers are not asked again."""
        monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
        monkeypatch.setattr(apart, "GIVEN_WAY", 0)
        # `conftest` sets variables
        monkeypatch.setattr(artifact, "_environment", lambda: artifact._of_interest(os.environ))

        def wave(x):
            for _ in range(3):
                x = torch.sin(x) * 1.01 + torch.cos(x) * 0.3
            return x

        x = torch.randn(500, 999)
        with torch.no_grad():
            fn = tuned(tmp_path / "store", "inductor", fn=wave, background=True)
            torch.testing.assert_close(fn(x), wave(x))
            record = log.frames[-1].graphs[0]
            self.wait(record)
            assert record.backend == "inductor"
            while threading.active_count() > 1 and not any(r.winner for r in _alive()):
                time.sleep(0.01)

            def refuse(*args, **kwargs):
                raise AssertionError("compiled again")

            monkeypatch.setitem(
                registry._backends, "inductor", functools.update_wrapper(refuse, registry._backends["inductor"])
            )
            torch.testing.assert_close(fn(x), wave(x))
        assert [r.run is not r.gm.forward for r in _alive()] == [True]
        assert record.backend == "inductor"

    def test_a_program_that_ends_meanwhile_leaves_nothing(self, tmp_path):
        program = """
            import torch, dynamo_lite
            options = {"store": STORE, "background": True, "candidates": ["inductor"]}
            fn = dynamo_lite.compile(lambda x: x.sin() + 1, backend="autotune", options=options)
            print(fn(torch.zeros(2)).tolist())
        """
        environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
        text = textwrap.dedent(program).replace("STORE", repr(str(tmp_path / "store")))
        done = processes.run(["-c", text], env=environment, timeout=120)
        assert (done.returncode, done.stdout, done.stderr) == (0, "[1.0, 1.0]\n", "")
        assert [p.name for p in tmp_path.glob("dynamo_lite-race-*")] == []


def _alive():
    import gc

    return [o for o in gc.get_objects() if type(o) is switching.Background]


class TestShadow:
    def test_a_wrong_result_is_never_seen(self, tmp_path):
        """The backend goes wrong after the race; the third call is checked."""
        store = Store(tmp_path / "store")
        x = torch.randn(5)
        fn = tuned(tmp_path / "store", "fast", shadow=3)
        fn(x)
        (key,) = store.all()
        good = registry._backends["fast"]

        def worse(gm, examples):
            calls = iter(range(2))
            return lambda x: (x + (300 if next(calls, None) is not None else 299),)

        new_process()
        registry._backends["fast"] = worse
        fn = tuned(tmp_path / "store", "fast", shadow=3)
        with pytest.warns(
            UserWarning,
            match="'fast' is left for graph 0 \\(test_apart.py:\\d+ in steps\\), which runs eagerly from now on: wrong: result 0: off by 1",
        ):
            for _ in range(5):
                torch.testing.assert_close(fn(x), steps(x))
        assert told()["fast"].startswith("quarantined: wrong: result 0: off by 1")
        assert store.get(key).backend == "eager"
        new_process()
        registry._backends["fast"] = good
        fn = tuned(tmp_path / "store", "fast", shadow=3)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            torch.testing.assert_close(fn(x), steps(x))
        assert log.frames[-1].graphs[0].backend == "eager"

    def test_one_that_becomes_slower_is_left(self, tmp_path, monkeypatch):
        slow = []

        def sometimes(gm, examples):
            def run(x):
                if slow:
                    time.sleep(0.02)
                return (x + 300,)

            return run

        monkeypatch.setitem(registry._backends, "fast", sometimes)
        fn = tuned(tmp_path / "store", "fast", shadow="1/2")
        x = torch.randn(5)
        fn(x)
        assert log.frames[-1].graphs[0].backend == "fast"
        slow.append(True)
        with pytest.warns(UserWarning, match="slower: .* µs where eager execution takes"):
            for _ in range(20):
                torch.testing.assert_close(fn(x), steps(x))
        assert log.frames[-1].graphs[0].backend == "eager"

    def test_checks_change_nothing(self, tmp_path):
        def changing(x, y):
            y.add_(x)
            return x + torch.rand(1)

        fn = tuned(tmp_path / "store", "aot_eager", fn=changing, shadow=1)
        torch.manual_seed(3)
        x, y, other = torch.ones(2), torch.zeros(2), torch.zeros(2)
        found = [fn(x, y).tolist() for _ in range(4)]
        torch.manual_seed(3)
        assert found == [changing(x, other).tolist() for _ in range(4)] and torch.equal(y, other)

    @pytest.mark.parametrize("shadow, every", [(None, 0), (0, 0), ("1/1000", 1000), ("50", 50), (0.001, 1000), (7, 7)])
    def test_how_often(self, shadow, every):
        from dynamo_lite.tune.autotune import every_of

        assert every_of(shadow) == every

    def test_nonsense(self):
        with pytest.raises(RuntimeError, match="shadow='often': expected '1/1000'"):
            tuned(False, "fast", shadow="often")
        for option, nonsense in (("background", "yes"), ("candidates", "inductor"), ("store", 3)):
            with pytest.raises(RuntimeError, match=f"{option}={nonsense!r}: expected"):
                dynamo_lite.compile(torch.neg, backend="autotune", options={option: nonsense})
