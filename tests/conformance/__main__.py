"""CPython's own tests under capture: `python -m tests.conformance [MODULE …] [--json FILE]`.

For each module: the tests that pass plainly, those of them that fail captured (regressions), that crash or hang the
process, the share captured whole, and the numbers of the breaks that cost the rest.
"""

import argparse
import json
import pathlib
import sys
import time

from .modules import MODULES
from .runner import record_lines, report_lines, run_module, summary


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__.splitlines()[0])
    parser.add_argument("modules", nargs="*", help="names such as test_dict; default: all of them")
    parser.add_argument("--only", default="", help="part of the test ids to run")
    parser.add_argument("--timeout", type=float, default=60, help="seconds for one test")
    parser.add_argument("--json", help="write the results here")
    parser.add_argument(
        "--record", metavar="ENGINE", help="write results/python-X.Y.md, with this name of the engine's state"
    )
    parser.add_argument("--verbose", action="store_true", help="print the tracebacks of regressions")
    options = parser.parse_args()
    results = {}
    for name in options.modules or MODULES:
        results[name] = run_module(name, only=options.only, timeout=options.timeout)
        print("\n".join(report_lines(name, results[name], options.verbose)), flush=True)
    print(summary(results))
    if options.json:
        with open(options.json, "w") as out:
            json.dump({"python": sys.version.split()[0], "modules": results}, out, indent=1)
    if options.record:
        version = sys.version.split()[0]
        page = pathlib.Path(__file__).parent / "results" / f"python-{version.rpartition('.')[0]}.md"
        page.write_text("\n".join(record_lines(results, version, time.strftime("%Y-%m-%d"), options.record)) + "\n")
    bad = any(r["regressions"] or r["crashes"] or r["hangs"] for r in results.values())
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
