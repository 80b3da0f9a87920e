"""A race in a process of its own: `python -m dynamo_lite.tune.worker FILE REQUEST`.

Input: a file that `portable.dump` has written; candidates and seconds as JSON. Output: lines of JSON on standard output, one
before each candidate (so that whoever reads knows which one has brought the process down) and one with the choice. What
backends print goes to standard error.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch._guards import TracingContext, detect_fake_mode, tracing

from dynamo_lite.backends.registry import lookup_backend
from dynamo_lite.exc import InvalidBackend

from . import portable
from .race import Dropped, Race, race

if TYPE_CHECKING:
    from torch.fx import GraphModule


def main(path: str, request: str) -> int:
    """Run the race of a file. The status is 0 also if no candidate has won."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as told:
        os.dup2(2, 1)
        candidates, seconds = json.loads(request)

        def tell(**line: Any) -> None:
            print(json.dumps(line), file=told, flush=True)

        try:
            with open(path, "rb") as file:
                job = portable.load(file)
            result = _race(job, candidates, seconds, tell)
        except portable.CannotCarry as reason:
            tell(problem=str(reason))
        else:
            tell(**result.outcome()._asdict())
    return 0


def _race(job: portable.PortableGraph, candidates: dict[str, Any], seconds: float, tell: Callable[..., None]) -> Race:
    portable.apply(job.settings)
    fakes = [node.meta["example_value"] for node in job.gm.graph.find_nodes(op="placeholder")]

    def told(name: str, where: tuple[str, str] | None) -> Callable[..., Any]:
        def compiler(gm: GraphModule, examples: list[Any]) -> Any:
            tell(candidate=name)
            return _compiler(name, where)(gm, examples)

        return compiler

    compilers = {name: told(name, where) for name, where in candidates.items()}
    with tracing(TracingContext(detect_fake_mode(fakes))):
        result = race(job.gm, job.examples, compilers, seconds=seconds, training=job.training)
    return result


def _compiler(name: str, where: tuple[str, str] | None) -> Callable[..., Any]:
    """The backend of that name; else, of one that the program itself has registered, what its module calls so."""
    try:
        return lookup_backend(name)
    except InvalidBackend:
        if where is None:
            raise Dropped("known to this program only, so it can't be tried in a process of its own") from None
    found: Any = importlib.import_module(where[0])
    for part in where[1].split("."):
        found = getattr(found, part)
    return found


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
