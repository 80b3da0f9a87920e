"""Every function, method and attribute of numpy that `torch._numpy` has, called in many ways, eagerly and captured.

`python -m tests.graph.numpy_sweep [NAME …]` prints each call that is not one graph, with the reason, and how many there are of each kind.
A sample runs in the tests. Compared are results, arguments afterwards, the layout of arrays and whether they may be written to; values up
to rounding, since numpy and torch round differently.
"""

import sys
import types
import warnings
from collections import Counter

import numpy as np
import torch._numpy as tnp

import dynamo_lite
from dynamo_lite.record import log
from dynamo_lite.testing import CompileCounter, differences

CALLS = """
f(a); f(v); f(i); f(vi); f(b); f(a, c); f(v, w); f(i, j); f(b, ~b); f(a, 0); f(a, axis=0); f(a, -1); f(a, axis=1, keepdims=True); f(a, 2)
f(v, 2); f(vi, 2); f([a, c]); f((v, w)); f([a, c], axis=1); f([v, w], 0); f(a > 0.4, a, c); f(b, v, w); f(v, vi); f(v, vi, 0); f(a, (1, 0))
f(a, 0, 1); f(a, (3, 3)); f(a, (9,)); f(a, [1], axis=0); f(3); f((2, 3)); f(3, dtype=np.float32); f((2, 3), dtype=a.dtype)
f(a, dtype=np.float32); f(a, 0.2, 0.8); f(0, 5, 6); f(2, 3); f(a, 7); f(i, dtype=a.dtype); f(a, v); f(v, a); f(a.sum(), 2)
f(v, [0.25, 0.75]); f(a, 0.5, axis=0); f('ij,jk', a, c); f(v, w, v); f(2.5, v); f(v, 2.5); f(a, 1, axis=0); f(a, k=1)
f(a, out=np.zeros((3, 3))); f(v, b); f(b, v); f(vi, (3, 3)); f(vi, vi, 3); f(vi, minlength=5); f(v, return_counts=True); f(v, 1)
f(a, UPLO='U'); f(v, n=8); f(a, ord=1); f(a, 'fro'); f(v, 1, 2); f(a, c, rtol=1e-3); f((3, 3), 7.0); f(v, w, indexing='ij'); f(a, a.dtype)
f(np.float32, np.float64); f(a.dtype, np.float32); f(a, initial=1.0); f(a, bins=3); f(v, bins=3, range=(0.0, 4.0)); f(v, decimals=1)
f(v, kind='stable'); f(v, 3.0, side='right'); f(i, -1); f(i, 300); f(a, -1, 1); f(-a); f(-i); f(v - 2); f(v, w - 3)
"""
_TEMPLATES = [call.strip() for call in CALLS.replace("\n", ";").split(";") if call.strip()]
_RANDOM = frozenset({"empty", "empty_like"})
_SINGULAR = frozenset({"linalg.cond", "linalg.det", "linalg.pinv"})


def functions():
    """`(name, function or attribute)` of what numpy and `torch._numpy` have."""
    for prefix in ("", "linalg.", "fft.", "ndarray."):
        ours, theirs = (eval(f"module.{prefix}"[:-1], {"module": module}) for module in (tnp, np))
        for name in sorted(dir(ours)):
            real = getattr(theirs, name, None)
            if name[0] != "_" and real is not None and not isinstance(real, type | types.ModuleType):
                yield prefix + name, real


def calls():
    """The calls as Python expressions."""
    for name, real in functions():
        if name in _RANDOM | _SINGULAR:
            continue
        for template in _TEMPLATES:
            if not name.startswith("ndarray."):
                if callable(real):
                    yield template.replace("f(", f"np.{name}(", 1)
                continue
            first, _, rest = template[2:-1].partition(",")
            if first.isalpha() and (callable(real) or not rest):
                yield f"{first}.{name[8:]}" + (f"({rest.strip()})" if callable(real) else "")


def arguments():
    a = np.array([[0.9, 0.2, 0.3], [0.4, 0.5, 0.8], [0.7, 0.1, 0.6]])
    i = np.arange(9).reshape(3, 3) - 3
    v, vi, b = np.array([3.0, 1.0, 2.0]), np.array([2, 0, 1]), np.array([True, False, True])
    return {"a": a, "c": a.T + 0.5, "i": i, "j": i + 4, "v": v, "w": v * 2, "vi": vi, "b": b}


def layouts(value):
    """How the arrays within a result lie in memory."""
    if isinstance(value, tuple | list):
        return [layouts(item) for item in value]
    if not isinstance(value, np.ndarray):
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # broadcast arrays warn of their flag
        return (value.strides if value.size > 1 else None), value.flags.writeable


def run(function):
    given = arguments()
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return function(**given), list(given.values())


def check(expression):
    """None for a call that numpy refuses, "whole", the differences, or why there is more than one graph."""
    namespace = {"np": np}
    body = f"def f({', '.join(arguments())}):\n    s = a + 1\n    return {expression}, a * 2, s"
    exec(body, namespace)
    try:
        expected = run(namespace["f"])
    except Exception:
        return None
    counter = CompileCounter()
    log.reset()
    found = run(dynamo_lite.compile(namespace["f"], backend=counter))
    different = list(differences(expected, found, tol=1e-6))
    if different or layouts(expected) != layouts(found):
        return "WRONG: " + "; ".join(different or [f"layout {layouts(expected)} became {layouts(found)}"])
    if counter.frame_count == 1 and not log.breaks():
        return "whole"
    return "; ".join(dict.fromkeys(f"{found.slug}: {found.context}" for found in log.breaks()))


def main(names):
    counts = Counter()
    for expression in calls():
        if not names or any(name in expression for name in names):
            outcome = check(expression)
            if outcome is not None:
                counts["whole" if outcome == "whole" else outcome.partition(":")[0]] += 1
                if outcome != "whole":
                    print(expression, "--", outcome)
            dynamo_lite.reset()
    print(dict(counts))


if __name__ == "__main__":
    main(sys.argv[1:])
