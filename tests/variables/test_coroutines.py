"""Coroutines and async generators break the graph where they are made. Needs no torch."""

import types
import warnings

import pytest

from dynamo_lite.config import config
from dynamo_lite.exc import Unsupported
from tests.helpers.capturing import same
from tests.helpers.differential import capture


@types.coroutine
def suspend(value):
    return (yield value)


def drive(coroutine):
    out = []
    try:
        while True:
            out.append(coroutine.send(len(out) or None))
    except StopIteration as e:
        return out, e.value


class TestCoroutines:
    def test_coroutine_is_no_generator(self):
        async def coroutine():
            return 1

        def program():
            c = coroutine()
            try:
                c.send(None)
            except StopIteration as stopped:
                return type(c).__name__, stopped.value

        same(program)

    def test_await(self):
        async def inner(x):
            return await suspend(x) or 1

        async def outer():
            return [await inner(k) for k in "ab"]

        same(lambda: drive(outer()))

    def test_async_for_and_with(self):
        class Manager:
            async def __aenter__(self):
                return await suspend("enter")

            async def __aexit__(self, kind, value, tb):
                await suspend(kind)
                return True

        async def numbers(n):
            for i in range(n):
                await suspend(i)
                yield i * 10

        async def outer():
            seen = []
            async with Manager() as m:
                seen.append(m)
                raise KeyError
            async for n in numbers(3):
                seen.append(n)
            return seen, [n async for n in numbers(2)]

        same(lambda: drive(outer()))

    def test_async_for_over_an_iterator_of_the_program(self):
        class Numbers:
            def __init__(self, n):
                self.left = n

            def __aiter__(self):
                return self

            async def __anext__(self):
                if not self.left:
                    raise StopAsyncIteration
                self.left -= 1
                return await suspend(self.left)

        async def outer():
            return [n async for n in Numbers(3)]

        same(lambda: drive(outer()))

    def test_where_it_breaks(self):
        async def coroutine():
            return 1

        async def numbers():
            yield 1

        for function in (coroutine, numbers):
            with pytest.raises(Unsupported) as caught, config.patch(capture_pure_python=True):
                capture(lambda function=function: function())()
            assert caught.value.slug == "async"

    def test_a_call_breaks_where_it_is(self):
        """What stands around it in the same frame is captured."""

        async def coroutine():
            return 1

        async def generator():
            yield 1

        def helper(make, seen):
            seen.append(1)
            made = make()
            seen.append(2)
            return made

        def program(make):
            seen = []
            return type(helper(make, seen)).__name__, seen

        for make in (coroutine, generator):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # nobody awaits it
                same(program, make, breaks=["async"])

    def test_methods_of_async_generators(self):
        async def numbers():
            try:
                got = yield 1
                yield got
            except ValueError:
                yield "caught"
            finally:
                await suspend("finally")

        async def outer():
            g = numbers()
            seen = [await g.__anext__(), await g.asend(5), await g.athrow(ValueError), await g.aclose()]
            try:
                await anext(g)
            except StopAsyncIteration:
                seen.append("end")
            return seen

        same(lambda: drive(outer()))

    @pytest.mark.parametrize("what", [None, 1, "text"])
    def test_what_can_not_be_awaited(self, what):
        async def outer():
            try:
                await what
            except TypeError as e:
                return str(e)

        same(lambda: drive(outer()))

    def test_finished_coroutine(self):
        async def nothing():
            return 1

        def program():
            c = nothing()
            first = drive(c)
            try:
                c.send(None)
            except RuntimeError as e:
                return first, str(e)

        same(program)
