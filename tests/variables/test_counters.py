"""Numbers that a function itself changes: one version, whatever they are; also as keys of dicts."""

from collections import OrderedDict

import pytest
import torch

import dynamo_lite
from dynamo_lite.testing import CompileCounter


class Klass:
    count = 0
    rate = 1.5


class Slots:
    __slots__ = ("n",)


step = 0


def on_class(x, o):
    Klass.count += 1
    return x + 1, Klass.count


def on_class_float(x, o):
    Klass.rate *= 1.25
    return x + 1, Klass.rate


def on_object(x, o):
    o["object"].n += 2
    return x * 2, o["object"].n - 1


def on_module(x, o):
    o["module"].n += 1
    return x * 2


def in_dict(x, o):
    o["n"] += 1
    return x * 2, o["n"] * o["n"]


def in_list(x, o):
    o["list"][1] += 1
    return x * 2


def in_global(x, o):
    global step
    step += 3
    return x * step


def behind_replaced_object(x, o):
    held = o["held"]
    o["held"] = Slots()
    o["held"].n = held.n + 1
    return x + 1


def as_key(x, o):
    n = o["n"]
    table = {1: "one", n: "n"}
    other = {**table, n + 1: "next"}
    o["n"] += 1
    found = (n in table, n + 1 in table, 1 in table, table.get(n), table.get(n + 5), table.setdefault(n, 3))
    return x + 1, list(table), other, table == other, found, table.pop(n), table, dict.fromkeys(other)


def as_key_in_order(x, o):
    n = o["n"]
    table = OrderedDict([(1, 2), (n, 3)])
    table.move_to_end(n, last=False)
    o["n"] += 1
    return x + 1, table, table == OrderedDict([(n, 3), (1, 2)]), table == OrderedDict([(1, 2), (n, 3)])


def registered(x, o):
    n = o["n"]
    o["table"][n] = x
    o["n"] += 1
    size = len(o["table"])
    del o["table"][n]
    return x * size


def in_new_set(x, o):
    seen = {7}
    seen.add(o["n"])
    o["n"] += 1
    return x + 1


SELF_CHANGING = [
    on_class, on_class_float, on_object, on_module, in_dict, in_list, in_global, behind_replaced_object, as_key,
    as_key_in_order, registered, in_new_set,
]  # fmt: skip


def called(call, times=5):
    """What calls give, and what they leave."""
    global step
    step, Klass.count, Klass.rate = 5, 3, 1.5
    o = {"n": 10, "object": Slots(), "module": torch.nn.Module(), "list": [1, 2], "held": Slots(), "table": {3: 4}}
    o["object"].n = o["module"].n = o["held"].n = 4
    results = [repr(call(torch.ones(2) * i, o)) for i in range(times)]
    left = step, Klass.count, Klass.rate, o["n"], o["object"].n, o["module"].n, o["list"], o["held"].n, o["table"]
    return results, repr(left)


@pytest.mark.parametrize("dynamic", [None, False], ids=["dynamic=None", "dynamic=False"])
@pytest.mark.parametrize("fn", SELF_CHANGING, ids=lambda fn: fn.__name__)
def test_one_version(fn, dynamic):
    counter = CompileCounter()
    opt = dynamo_lite.compile(fn, backend=counter, fullgraph=True, dynamic=dynamic)
    assert called(opt) == called(fn)
    assert counter.frame_count == 1


def test_numbers_of_the_program_are_not_computed_in_the_graph():
    counter = CompileCounter()
    opt = dynamo_lite.compile(on_class, backend=counter)
    assert called(opt) == called(on_class)
    assert counter.op_count == 1


def test_a_state_that_is_asked_for_is_a_version():
    def fn(x, o):
        if o.n == 0:
            o.n = 1
            return x - 1
        return x + 1

    counter = CompileCounter()
    opt = dynamo_lite.compile(fn, backend=counter, fullgraph=True)
    o = Slots()
    o.n = 0
    assert [opt(torch.ones(1), o).item() for _ in range(4)] == [0, 2, 2, 2]
    assert o.n == 1
    assert counter.frame_count == 2


def test_switched_off():
    counter = CompileCounter()
    opt = dynamo_lite.compile(on_class, backend=counter)
    with dynamo_lite.config.patch(automatic_dynamic_shapes=False):
        assert called(opt, 3) == called(on_class, 3)
    assert counter.frame_count == 3


def test_what_the_key_is_not_is_guarded():
    def fn(x, n):
        return x * len({n: 1, 5: 2})

    counter = CompileCounter()
    opt = dynamo_lite.compile(fn, backend=counter, fullgraph=True)
    assert [opt(torch.ones(1), n).item() for n in (3, 4, 6, 5, 7, 5)] == [2, 2, 2, 1, 2, 1]
    assert counter.frame_count == 3


@pytest.mark.parametrize("make", [dict, OrderedDict])
def test_keys_of_a_dict_that_vary(make):
    def fn(x, d, n):
        for key, value in d.items():
            x = x + key * value
        d[n] = 1
        return x, d.pop(2, None), list(d)

    def results(call):
        found = []
        for key, n in [(3, 4), (5, 6), (7, 8), (9, 9), (2, 11), (12, 2), (13, 14)]:
            d = make({key: 10})
            found.append((repr(call(torch.zeros(1), d, n)), d))
        return found

    counter = CompileCounter()
    opt = dynamo_lite.compile(fn, backend=counter, fullgraph=True)
    assert results(opt) == results(fn)
    assert counter.frame_count == 5  # 3; any; the same number twice; 2 as the key; 2 as the number


def test_keys_in_the_order_of_an_ordered_dict():
    class Key:
        pass

    def fn(x, d):
        x = x + len(list(d))
        key = next(iter(d))
        d.clear()
        return x, key

    d = OrderedDict([(Key(), 1), (Key(), 2)])
    last = list(d)[1]
    d.move_to_end(last, last=False)
    assert dynamo_lite.compile(fn, backend="eager")(torch.zeros(1), d)[1] is last


def test_an_argument_that_becomes_a_list_of_the_frame():
    """A number is demanded at a place in a list that the frame replaces by one of its own, in a cell."""

    def fn(x, values):
        dynamo_lite.graph_break()  # from here on the variable is a cell
        y = x * values[0]
        values = sorted(values)

        def inner():
            return values

        return y, inner

    opt = dynamo_lite.compile(fn, backend="eager")
    with dynamo_lite.config.patch(debug=True):
        for given in ([2, 1], [2, 1], [3, 1, 2], [2, 5]):
            y, inner = opt(torch.ones(1), list(given))
            assert y.item() == given[0] and inner() == sorted(given)
