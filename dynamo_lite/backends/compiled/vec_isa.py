"""The vector instructions that kernels are made for: only the best set is tried.

Input: Inductor's list of sets, the best first. Output: the first that works.
Invariant: Inductor picks the same. Where a setting may make it take another one, all are tried.

For each set Inductor compiles and loads a test. On a processor with AMX these are ten runs of g++ and seven of Python, twelve seconds
before the first kernel of a machine (its caches keep the answers), of which the first set needs three.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

from dynamo_lite.backends.rewrites.patches import Substitute


def substitutes() -> Iterator[Substitute]:
    """For `Patches`."""
    from torch._inductor import cpu_vec_isa

    yield Substitute(cpu_vec_isa, "valid_vec_isa_list", _instead_of)


def _instead_of(original: Any) -> Callable[[], list[Any]]:
    from torch._inductor import config

    def valid_vec_isa_list() -> list[Any]:
        any_may_do = config.cpp.simdlen is not None or os.environ.get("ATEN_CPU_CAPABILITY")
        if any_may_do or sys.platform != "linux" or original.cache_info().currsize:
            return original()
        return _best(original)

    return valid_vec_isa_list


@functools.cache
def _best(original: Any) -> list[Any]:
    from torch._inductor import cpu_vec_isa

    flags = cpu_vec_isa.x86_isa_checker()
    known = (isa for isa in cpu_vec_isa.supported_vec_isa_list if all(flag in flags for flag in str(isa).split()))
    first = next((isa for isa in known if isa), None)
    return original() if first is None else [first]
