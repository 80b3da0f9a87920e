"""`valid_sizes`: members run without a recompile, their neighbours outside recompile or raise."""

import random

import pytest
import torch
import torch.nn.functional as F

import dynamo_lite
from dynamo_lite import valid_sizes
from dynamo_lite.exc import RecompileError, Unsupported
from dynamo_lite.messages import short_path


def ones(*shape):
    return torch.ones(shape)


def elementwise(x):
    return x * x.shape[0]


def added(x, y):
    return x + y


def even_rows(x):
    return x.view(x.shape[0] // 2, 2, 4).sum(1) if x.shape[0] % 2 == 0 else x


def at_most_six(x):
    return x * 2 if x.shape[0] <= 6 else x * 3


def sliced(x, k):
    return x[:k] * 2


def looped(x):
    for i in range(x.shape[1]):
        x = x + i
    return x


def joined(x, y):
    return torch.cat([x, y]).sum(0)


def product(x, y):
    return x @ y


def longer(x, y):
    return x.sum() - y.sum() if x.shape[0] > y.shape[0] else y.sum() - x.sum()


def pooled(x):
    return F.max_pool2d(x, 2).flatten(1)


def shorter_than_drawn(x):
    return x * 2 if random.randint(0, 1000) > x.shape[0] else x


def padded(x):
    return F.pad(x, (0, 0, 0, -x.shape[0] % 4))


def rows(n):
    return (ones(n, 4),)


# function, sizes of the example, how arguments are made of sizes, names of these sizes, the text
PROGRAMS = {
    "elementwise": (
        elementwise,
        (3, 4),
        lambda n, m: (ones(n, m),),
        ("x.size(0)", "x.size(1)"),
        "x.size(0): 2 …\nx.size(1): 2 …",
    ),
    "added": (
        added,
        (3, 3),
        lambda n, m: (ones(n), ones(m)),
        ("x.size(0)", "y.size(0)"),
        "x.size(0): 2 …\ny.size(0) == x.size(0)",
    ),
    "broadcast": (
        added,
        (3, 1),
        lambda n, m: (ones(n), ones(m)),
        ("x.size(0)", "y.size(0)"),
        "x.size(0): 2 …\ny.size(0) == 1",
    ),
    "at_most_six": (at_most_six, (3,), rows, ("x.size(0)",), None),
    "even_rows": (even_rows, (4,), rows, ("x.size(0)",), None),
    "sliced": (sliced, (5, 3), lambda n, k: (ones(n), k), ("x.size(0)", "k"), None),
    "looped": (looped, (3, 4), lambda n, m: (ones(n, m),), ("x.size(0)", "x.size(1)"), None),
    "joined": (
        joined,
        (3, 5),
        lambda n, m: (ones(n), ones(m)),
        ("x.size(0)", "y.size(0)"),
        "x.size(0): 2 …\ny.size(0): 2 …",
    ),
    "product": (
        product,
        (3, 4, 4, 5),
        lambda a, b, c, d: (ones(a, b), ones(c, d)),
        ("x.size(0)", "x.size(1)", "y.size(0)", "y.size(1)"),
        None,
    ),
    "longer": (longer, (5, 3), lambda n, m: (ones(n), ones(m)), ("x.size(0)", "y.size(0)"), None),
    "pooled": (pooled, (8, 6), lambda n, m: (ones(2, 3, n, m),), ("x.size(2)", "x.size(3)"), None),
    "padded": (padded, (5,), rows, ("x.size(0)",), None),
}


def runs(program, args):
    with dynamo_lite.set_stance("fail_on_recompile"):
        try:
            program(*args)
        except (RecompileError, RuntimeError, IndexError):
            return False
    return True


@pytest.mark.parametrize("name", PROGRAMS)
def test_members_run_and_their_neighbours_do_not(name):
    fn, example, make, names, text = PROGRAMS[name]
    dynamo_lite.reset()
    found = valid_sizes(fn, *make(*example))
    if text is not None:
        assert "\n".join(line for line in str(found).split("\n") if "made constant" not in line).startswith(text)

    def sizes_of(values):
        return {n: v for n, v in zip(names, values, strict=True)}

    def is_member(values):
        return sizes_of(values) in found

    members = sorted({tuple((m | found.constants)[n] for n in names) for m in found.members(8)})
    assert example in members and len(members) >= 3
    neighbours = set()
    for values in members[:40]:
        assert is_member(values)
        assert runs(found.compiled, make(*values)), values
        for i in range(len(values)):
            for step in (-1, 1):
                neighbour = (*values[:i], max(values[i] + step, 0), *values[i + 1 :])
                if not is_member(neighbour):
                    neighbours.add(neighbour)
    assert neighbours
    for values in sorted(neighbours):
        assert not runs(found.compiled, make(*values)), values


def test_ranges_divisibility_constants():
    assert str(valid_sizes(at_most_six, ones(3, 4)).numbers["x.size(0)"]) == "x.size(0): 2 … 6"
    even = valid_sizes(lambda x: x + 1 if x.shape[0] % 4 == 2 else x, ones(6, 4)).numbers["x.size(0)"]
    assert (even.divisor, even.remainder) == (4, 2)
    constant = valid_sizes(looped, ones(3, 4))
    assert constant.constants == {"x.size(1)": 4}
    assert f"x.size(1) was made constant by {short_path(__file__)}:{looped.__code__.co_firstlineno + 1}" in str(
        constant
    )
    assert valid_sizes(longer, ones(5), ones(3)).relations == ["x.size(0) > y.size(0)"]


def test_parameters_are_not_sizes():
    module = torch.nn.Linear(4, 3)
    found = valid_sizes(module, ones(5, 4))
    assert found.numbers.keys() == {"input.size(0)"} and found.constants == {"input.size(1)": 4}


def test_unbacked_sizes_have_no_end():
    x = ones(3, 4)
    dynamo_lite.mark_unbacked(x, 0)
    found = valid_sizes(lambda x: x.relu() + x.shape[0], x)
    assert [m["x.size(0)"] for m in found.members(3) if m["x.size(1)"] == 2] == [0, 1, 2, 3]


def test_errors():
    def broken(x):
        print(x.sum())
        return x + 1

    with pytest.raises(Unsupported):
        valid_sizes(broken, ones(3))
    with pytest.raises(KeyError, match="no size 'y.size"):
        {"y.size(0)": 3} in valid_sizes(elementwise, ones(3, 4))


def test_random_numbers_are_no_sizes():
    found = valid_sizes(lambda x: x.new_zeros(random.randint(2, 10)) + random.randint(0, 1), ones(3))
    assert found.numbers.keys() <= {"x.size(0)"} and not found.constants and "random" not in str(found)
    random.seed(5)
    drawn = random.randint(0, 1000)
    random.seed(5)
    found = valid_sizes(shorter_than_drawn, ones(3))
    assert found.numbers.keys() == {"x.size(0)"}
    assert {"x.size(0)": drawn - 1} in found and {"x.size(0)": drawn} not in found
    assert next(found.members()) == {"x.size(0)": 2}
