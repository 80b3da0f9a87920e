"""Locks from outside: what happens under one in eager execution happens while it is held."""

import gc
import queue
import threading

import pytest
import torch

import dynamo_lite
from dynamo_lite.testing import run_both

LOCK = threading.Lock()
OTHER = threading.Lock()
REENTRANT = threading.RLock()
SEEN = []


@dynamo_lite.disable
def look():
    SEEN.append((LOCK.locked(), OTHER.locked()))


@pytest.fixture(autouse=True)
def all_free():
    SEEN.clear()
    yield
    assert not LOCK.locked() and not OTHER.locked() and not REENTRANT._is_owned()


def breaks(fn, *args):
    """The result is that of eager execution, and each operation on a lock from outside has broken the graph."""
    run = run_both(fn, *args, _calls=1)
    assert run.breaks
    return run


def test_state_made_in_the_first_call():
    class Lazy(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(3, 3)
            self.scale = None

        def forward(self, x):
            if self.scale is None:
                with LOCK:
                    if self.scale is None:
                        self.scale = x.sum()
            return self.linear(x) * self.scale

    breaks(Lazy(), torch.ones(2, 3))


def test_a_return_from_inside():
    def f(x, seen):
        with LOCK:
            seen.append(len(seen))
            return x + 1

    breaks(f, torch.ones(2), [])


def test_many_threads_count():
    totals = {"n": 0}

    def f(x):
        with LOCK:
            totals["n"] += 1
        return x + 1

    compiled = dynamo_lite.compile(f, backend="eager")
    threads = [threading.Thread(target=lambda: [compiled(torch.ones(2)) for _ in range(50)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert totals["n"] == 200


def test_a_break_inside():
    """A lock is taken where the program takes it."""

    def f(x, seen):
        y = x + 1
        with LOCK:
            seen.append(1)
            look()
            y = y * 2
        return y - 1

    breaks(f, torch.ones(2), [])
    assert SEEN == [(True, False)] * 2


def test_a_break_behind():
    def f(x, seen):
        with LOCK:
            seen.append(x + 1)
        look()
        return x * 2

    breaks(f, torch.ones(2), [])
    assert SEEN == [(False, False)] * 2


def test_a_break_in_a_call():
    def inner(seen):
        with LOCK:
            seen.append(2)
        look()

    def f(x, seen):
        inner(seen)
        return x * 2

    breaks(f, torch.ones(2), [])
    assert SEEN == [(False, False)] * 2


def test_the_graph_raises():
    def f(x, i, seen):
        with LOCK:
            seen.append(1)
            return x.index_select(0, i)

    compiled = dynamo_lite.compile(f, backend="eager")
    for i in (0, 7, 1):
        outcomes = []
        for fn in (f, compiled):
            seen = []
            try:
                outcomes.append((fn(torch.arange(3.0), torch.tensor([i]), seen).tolist(), seen))
            except IndexError as error:
                outcomes.append((str(error), seen))
            assert not LOCK.locked()
        assert outcomes[0] == outcomes[1]


def test_storing_raises():
    class Picky:
        def __setattr__(self, name, value):
            raise AttributeError(name)

    def f(x, target):
        with LOCK:
            target.y = x + 1
        return x

    with pytest.raises(AttributeError):
        dynamo_lite.compile(f, backend="eager")(torch.ones(2), Picky())


def test_the_program_raises():
    def f(x, seen):
        try:
            with LOCK:
                seen.append(1)
                raise ValueError
        except ValueError:
            seen.append(2)
        return x + 1

    breaks(f, torch.ones(2), [])

    def g(x):
        with LOCK:
            raise ValueError

    with pytest.raises(ValueError):
        dynamo_lite.compile(g, backend="eager")(torch.ones(2))


def test_reentrant():
    def f(x, seen):
        with REENTRANT, REENTRANT:
            seen.append(REENTRANT._is_owned())
        return x + 1

    breaks(f, torch.ones(2), [])
    with REENTRANT:
        breaks(f, torch.ones(2), [])
        assert REENTRANT._is_owned()


def test_nested_in_their_order():
    def f(x, seen):
        with LOCK, OTHER:
            seen.append(LOCK.locked() and OTHER.locked())
        return x + 1

    breaks(f, torch.ones(2), [])


def test_one_after_the_other():
    """Never both: who else takes them may do so in the other order."""

    def f(x, seen):
        with LOCK:
            seen.append(1)
        look()
        with OTHER:
            seen.append(2)
        with LOCK:
            seen.append(3)
        return x + 1

    run_both(f, torch.ones(2), [])

    def g(x):
        with LOCK:
            pass
        with OTHER:
            look()
        return x + 1

    run_both(g, torch.ones(2))
    assert SEEN == [(False, False)] * 4 + [(False, True)] * 4


@pytest.mark.parametrize("ask", [lambda: LOCK.locked(), lambda: LOCK.acquire(False), lambda: LOCK.acquire(timeout=0)])
def test_whether_it_is_free(ask):
    def f(x):
        taken = ask()
        if taken:
            LOCK.release()
        return x + taken

    run = run_both(f, torch.ones(2))
    assert run.breaks


def test_taken_here_and_given_back_elsewhere():
    def take(x):
        LOCK.acquire()
        return x + 1

    def give(x):
        LOCK.release()
        return x + 1

    first, second = (dynamo_lite.compile(fn, backend="eager") for fn in (take, give))
    for _ in range(2):
        first(torch.ones(2))
        assert LOCK.locked()
        second(torch.ones(2))
        assert not LOCK.locked()


def test_what_the_standard_library_makes_of_them():
    def f(x, event, jobs, gate):
        event.set()
        jobs.put(x + 1)
        with gate:
            gate.notify_all()
        return x * 2

    compiled = dynamo_lite.compile(f, backend="eager")
    event, jobs, gate = threading.Event(), queue.Queue(), threading.Condition()
    for _ in range(2):
        compiled(torch.ones(2), event, jobs, gate)
        assert event.is_set()
        assert jobs.get_nowait().tolist() == [2, 2]
        event.clear()


def test_the_lock_is_not_kept():
    import weakref

    class Holder:
        def __init__(self):
            self.lock = threading.Lock()
            self.n = 0

    def f(x, holder):
        with holder.lock:
            holder.n = 1
        return x + 1

    compiled = dynamo_lite.compile(f, backend="eager")
    first, second = Holder(), Holder()
    compiled(torch.ones(2), first)
    compiled(torch.ones(2), second)
    gone = weakref.ref(first)
    del first
    gc.collect()
    assert gone() is None
