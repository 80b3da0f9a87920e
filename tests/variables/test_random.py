"""Python's random numbers: drawn as eager execution would, and the state is left as it would be."""

import random

from dynamo_lite.config import config
from tests.helpers.differential import breaks, capture, check


class Half(random.Random):
    def random(self):
        return super().random() / 2


NAMES = {"random": random, "Half": Half}


def test_new_generators():
    check(
        "r = random.Random(5); [r.random(), r.randrange(10), r.choice('abc'), r.gauss(0, 1), r.uniform(1, 2)]",
        "r = random.Random(42); a = list(range(10)); r.shuffle(a); a, r.sample(a, 3), r.choices(a, k=2), r.getrandbits(70)",
        "r = random.Random(1); s = r.getstate(); x = r.random(); r.setstate(s); x == r.random(), s[0]",
        "r = Half(3); r.random(), r.randint(1, 6), r.random()",
        "r = random.Random(5); r.seed(7.5); r.random()",
        "random.Random(5).getrandbits('a')",
        "random.Random(5).setstate((3, (1, 2), None))",
        names=NAMES,
        z=1,
    )


def test_a_generator_leaves():
    def program(n):
        r = random.Random(n)
        r.random()
        r.note = "x"
        return r

    with config.patch(capture_pure_python=True, debug=True):
        captured = capture(program)(4)
    plain = program(4)
    assert captured.getstate() == plain.getstate() and captured.note == "x"
    assert captured.random() == plain.random()


def test_the_shared_generator():
    def program(n):
        return [random.random() for _ in range(n)], random.randint(0, 100), random.gauss(0, 1)

    random.seed(11)
    expected = [program(2) for _ in range(3)]
    after = random.getstate()
    random.seed(11)
    with config.patch(capture_pure_python=True, debug=True):
        captured = capture(program, fullgraph=False)
        assert [captured(2) for _ in range(3)] == expected
    assert random.getstate() == after


def test_seeding_the_shared_generator():
    check("random.seed(5); random.random()", names=NAMES, z=1)
    check("random.seed(5); print(end=''); random.random()", names=NAMES, fullgraph=False, z=1)


def test_seeds_from_the_system():
    breaks("random.Random().random()", "random-state", names=NAMES, z=1)
