"""Numbers that captured code draws from `random`: values from outside, by the draws of eager execution."""

import random

import pytest
import torch

import dynamo_lite
from dynamo_lite.record import log

OWN = random.Random(5)


def factor(x):
    return x * random.random()


def uniform(x):
    return x * random.uniform(-1, 1)


def gauss(x):
    return x + random.gauss(0, 1)


def crop(x):
    i = random.randint(0, 3)
    return x[i:] * 2, i


def layer_drop(x):
    for _ in range(2):
        if random.random() < 0.3:
            continue
        x = x + 1
    return x


def own_generator(x):
    return x * OWN.random() + OWN.randrange(1000)


def in_a_list(x):
    drawn = [random.random() for _ in range(3)]
    return x + drawn[1], drawn


def small_choice(x):
    return x * random.choice([1.0, 2.0])


def seeded_after(x):
    a = random.random()
    random.seed(7)
    return x * a, random.random()


def large_choice(x):
    return x * [float(i) for i in range(50)][random.randrange(50)]


def state(x):
    a = random.random()
    return x * a, random.getstate()


def many(x):
    return x * sum([random.random() for _ in range(40)])


def text(x):
    drawn = random.random()
    return {f"{drawn:.3f}": 1}, x + 1


PROGRAMS = {
    # program → versions at most, breaks
    factor: (1, 0),
    uniform: (1, 0),
    gauss: (3, 0),  # every second number has been kept: None, the first one, others
    crop: (1, 0),
    layer_drop: (4, 0),
    own_generator: (1, 0),
    in_a_list: (1, 0),
    small_choice: (2, 0),
    seeded_after: (1, 0),
    large_choice: (9, 1),
    state: (9, 1),
    many: (9, 1),
    text: (9, 1),
}


def results(fn, x, calls=8):
    random.seed(3)
    OWN.seed(4)
    found = [repr(fn(x)) for _ in range(calls)]
    return found, random.getstate(), OWN.getstate()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", PROGRAMS)
def test_as_in_eager_execution(fn, backend):
    x = torch.arange(5.0)
    versions, breaks = PROGRAMS[fn]
    log.reset()
    compiled = dynamo_lite.compile(fn, backend=backend)
    assert results(compiled, x) == results(fn, x)
    assert len({b.slug for b in log.breaks()}) == breaks and {b.slug for b in log.breaks()} <= {"random-state"}
    assert sum(len(frame.graphs) for frame in log.snapshot()) <= versions


def test_a_graph_that_raises_draws_once():
    def f(x, i):
        drawn = random.random()
        return x.index_select(0, i) * drawn

    x = torch.arange(3.0)
    compiled = dynamo_lite.compile(f, backend="eager")
    states = []
    for run in (f, compiled):
        random.seed(1)
        run(x, torch.tensor([0]))
        with pytest.raises((IndexError, RuntimeError)):
            run(x, torch.tensor([7]))
        states.append(random.getstate())
    assert states[0] == states[1]


def test_a_class_that_draws_by_its_own_method():
    class Half(random.Random):
        def random(self):
            return super().random() / 2

    generator = Half(3)

    def f(x):
        return x * generator.random(), generator.randint(1, 6)

    x = torch.arange(3.0)
    expected = [repr(f(x)) for _ in range(5)]
    generator.seed(3)
    compiled = dynamo_lite.compile(f, backend="eager")
    assert [repr(compiled(x)) for _ in range(5)] == expected
