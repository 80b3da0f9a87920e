"""What stands for the functions of bisect and heapq: errors, comparisons that fail, protocols. Needs no torch."""

from tests.helpers.program_texts import agrees


def test_messages_of_stand_ins_name_classes_as_c_does():
    agrees("""
    class Own:
        pass
    def program(values):
        found = []
        for value in values:
            for call in (lambda: heapq.heappop(value), lambda: bisect.bisect([], 1, hi=value)):
                try:
                    found.append(call())
                except TypeError as error:
                    found.append(str(error))
        return found
    def make_args(k):
        return [[collections.deque([1]), None, (1,), Own(), collections.OrderedDict(), functools.partial(len)]]
    """)


def test_heap_after_a_comparison_that_fails():
    agrees("""
    class Odd:
        def __init__(self, heap):
            self.heap = heap
        def __lt__(self, other):
            self.heap.append(7)
            return False
    def program(l, m):
        found = []
        for call in (
            lambda: heapq.heappushpop(l, 4), lambda: heapq.heapify(l), lambda: heapq.heappush(m, 'x'), lambda: heapq.heappop(l),
            lambda: heapq.heappush(m, Odd(m)),
        ):
            try:
                found.append(call())
            except (TypeError, RuntimeError) as error:
                found.append(str(error))
            found.append(list(map(str, l)))
            found.append(len(m))
        return found
    def make_args(k):
        return [[2, 1, 4, 0, 'a', None], [1, 2, 3]]
    """)


def test_bisect_asks_the_sequence_slots():
    agrees("""
    class Own(dict):
        def __len__(self):
            return 3
        def __getitem__(self, i):
            return i
    class Numbers:
        def __getitem__(self, i):
            return i
    def program(sources):
        found = []
        for a in sources:
            for bounds in ({}, {'hi': 2}, {'hi': 0}, {'lo': 5}, {'lo': -1}, {'hi': -1}, {'lo': 1.0}, {'hi': 'a'}, {'lo': 2, 'hi': -5}):
                for function in (bisect.bisect_right, bisect.bisect_left):
                    try:
                        found.append(function(a, 1, **bounds))
                    except (TypeError, ValueError, IndexError) as error:
                        found.append(str(error))
        return found
    def make_args(k):
        return [[{1: 2}, collections.defaultdict(int, {1: 0}), {1, 2}, 5, None, dict, [0, 1, 2], (0, 1), Own(), Numbers(), range(4)]]
    """)
