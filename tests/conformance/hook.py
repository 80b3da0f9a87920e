"""CPython's own tests with the frame evaluation hook installed: `python -m tests.conformance.hook [MODULE …]`.

Nothing is captured: each frame that begins is offered to a region which refuses it. So every test must end as it ends plainly.
"""

import argparse
import sys

from .runner import run_hooked

# What looks at frames, is called with each of them, or lives in other threads. (Not test_monitoring: with any evaluator CPython
# 3.12+ does not inline calls of Python functions and generators, and counts them as calls of C functions.)
MODULES = """
    test_sys_settrace test_sys_setprofile test_frame test_threading test_gc test_sys test_asyncio.test_tasks
    test_asyncio.test_futures test_asyncio.test_locks test_asyncio.test_queues test_generators test_coroutines
    test_bdb test_contextlib test_traceback test_call
""".split()


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.hook", description=__doc__.splitlines()[0])
    parser.add_argument("modules", nargs="*", help="names such as test_gc; default: those most likely to notice")
    parser.add_argument("--only", default="", help="part of the test ids to run")
    parser.add_argument("--timeout", type=float, default=60, help="seconds for one test")
    options = parser.parse_args()
    bad = False
    for name in options.modules or MODULES:
        result = run_hooked(name, options.only, options.timeout)
        if result is None:
            print(f"{name}: not in this Python", flush=True)
            continue
        total, differences = result
        print(f"{name}: {total} tests, {len(differences)} differ", flush=True)
        for test, text in differences.items():
            print(f"  {test}: {text}", flush=True)
        bad |= bool(differences)
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
