"""threading: locks made by the program, attributes of a thread. Needs no torch."""

import threading
from concurrent.futures import ThreadPoolExecutor

from dynamo_lite.record import log
from tests.helpers.capturing import captured, same, stop


class PerThread(threading.local):
    kind = "own"

    def __init__(self):
        self.depth = 0


OWN, PLAIN = PerThread(), threading.local()


class TestThreadLocals:
    def in_threads(self, program):
        """What the program gives plainly and captured, each in this thread and in another; both begin with `PLAIN.x == 1`."""

        def outcome(fn):
            OWN.depth, PLAIN.x = 0, 1
            return fn(), vars(OWN).copy(), vars(PLAIN).copy()

        def outcomes():
            return [outcome(program), outcome(run), outcome(run)]

        run = captured(program)
        log.reset()
        with ThreadPoolExecutor(1) as other:
            plain, first, again = outcomes()
            assert first == again == plain
            assert other.submit(outcomes).result() == [plain] * 3

    def test_attributes_are_those_of_the_thread(self):
        def program():
            return OWN.depth, OWN.kind, PLAIN.x, getattr(PLAIN, "missing", None), hasattr(OWN, "x")

        self.in_threads(program)
        assert not log.breaks()

    def test_stores(self):
        def program():
            OWN.depth += 1
            PLAIN.x, PLAIN.y = OWN.depth, 5
            result = OWN.depth, PLAIN.y, vars(PLAIN) is PLAIN.__dict__
            del PLAIN.y
            return result

        self.in_threads(program)
        assert not log.breaks()

    def test_dictionary_of_the_thread(self):
        def program():
            found = getattr(PLAIN, "__dict__", {"x": -1})["x"], hasattr(PLAIN, "__dict__"), "x" in dir(PLAIN)
            PLAIN.__dict__["z"] = OWN.__dict__.setdefault("w", 7)
            PLAIN.__dict__["__class__"] = 3
            found += PLAIN.z, PLAIN.__class__
            del PLAIN.__dict__["__class__"], OWN.w, PLAIN.z
            return found

        self.in_threads(program)
        assert not log.breaks()

    def test_dictionary_of_the_thread_is_read_only(self):
        def program():
            messages = []
            for holder in (PLAIN, OWN, threading.local()):
                try:
                    holder.__dict__ = {}
                except AttributeError as error:
                    messages.append(str(error))
                try:
                    del holder.__dict__
                except AttributeError as error:
                    messages.append(str(error))
            return messages

        self.in_threads(program)

    def test_dictionary_that_object_finds(self):
        self.in_threads(lambda: len(object.__getattribute__(OWN, "__dict__")))

    def test_break_between_stores(self):
        def program():
            OWN.depth = 2
            stop()
            OWN.depth += 1
            return OWN.depth

        self.in_threads(program)
        assert log.breaks()


class TestLocks:
    def test_a_lock_made_here(self):
        def program():
            lock = threading.RLock()
            with lock, lock:
                held = lock._is_owned()
            stop()
            return held, lock._is_owned()

        same(program)
