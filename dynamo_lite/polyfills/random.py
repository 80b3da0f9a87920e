"""The part of `random.Random` that is Python code and draws until a number fits.

Input: a generator with `getrandbits`. Output: what the method of `Lib/random.py` returns, by the same draws.
"""

from typing import Any


def below(generator: Any, n: int) -> int:
    """`Random._randbelow_with_getrandbits`: an int from 0 to `n` - 1."""
    bits = n.bit_length()
    number: int = generator.getrandbits(bits)
    while number >= n:
        number = generator.getrandbits(bits)
    return number
