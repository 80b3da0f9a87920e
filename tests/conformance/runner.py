"""Runs test modules of CPython in subprocesses, plainly and captured, and compares.

Input: the name of a module of `Lib/test`. Output: a dictionary of plain values (see `run_module`).
A test that kills or hangs its process is noted, and the rest of the module is run in a new one.
"""

import collections
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MODULE_TIMEOUT = 1800


def exists(name):
    """True if this interpreter comes with the test module."""
    return importlib.util.find_spec(f"test.{name}") is not None


def run_module(name, only="", timeout=60.0):
    """`plain`: tests that pass plainly; `regressions`: id → text; `crashes`, `hangs`: ids; `whole`: tests captured whole;
    `breaks`: number → tests that it kept from being captured whole; `contexts`: what broke → tests."""
    empty = {
        "plain": 0,
        "whole": 0,
        "regressions": {},
        "crashes": {},
        "hangs": [],
        "breaks": {},
        "contexts": {},
        "seconds": 0.0,
    }
    if not exists(name):
        return {**empty, "missing": True}
    started = time.perf_counter()
    plain = run_mode(name, "plain", only, timeout)
    good = {t for t, r in plain.items() if r["outcome"] in ("passed", "expected failure")}
    captured = run_mode(name, "captured", only, timeout, skip=[t for t in plain if t not in good])
    breaks, contexts = collections.Counter(), collections.Counter()
    regressions, crashes, hangs, whole = {}, {}, [], 0
    for test in sorted(good):
        record = captured.get(test, {"outcome": "not run", "text": "", "breaks": []})
        outcome = record["outcome"]
        if outcome == "crashed":
            crashes[test] = record["text"]
        elif outcome == "hung":
            hangs.append(test)
        elif outcome != plain[test]["outcome"]:
            regressions[test] = f"{outcome}\n{record['text']}"
        if record.get("whole"):
            whole += 1
        breaks.update({f"DL{b['number']:03d} {b['slug']}" for b in record.get("breaks", ())})
        contexts.update({f"{b['slug']}: {b['context']}" for b in record.get("breaks", ())})
        if record.get("eager") and not record.get("breaks"):
            breaks["not captured"] += 1
    return {
        "plain": len(good),
        "whole": whole,
        "regressions": regressions,
        "crashes": crashes,
        "hangs": hangs,
        "breaks": dict(breaks.most_common()),
        "contexts": dict(contexts.most_common(60)),
        "seconds": round(time.perf_counter() - started, 1),
    }


def run_hooked(name, only="", timeout=60.0):
    """How the module's tests end under the frame evaluation hook where that is not how they end plainly: id → text."""
    if not exists(name):
        return None
    plain = run_mode(name, "plain", only, timeout)
    hooked = run_mode(name, "hooked", only, timeout)
    missing = {"outcome": "not run", "text": ""}
    differences = {}
    for test in sorted({*plain, *hooked}):
        before, after = plain.get(test, missing), hooked.get(test, missing)
        if before["outcome"] != after["outcome"]:
            differences[test] = f"{before['outcome']} plainly, {after['outcome']} with the hook\n{after['text']}"
    return len(plain), differences


def run_mode(name, mode, only, timeout, skip=()):
    """test id → record of its end; a test during which the process died has the outcome "crashed" or "hung"."""
    records = {}
    skip = list(skip)
    with tempfile.TemporaryDirectory() as folder:
        deadline, known = time.monotonic() + MODULE_TIMEOUT, 0
        while True:
            out, skip_file = os.path.join(folder, "out.jsonl"), os.path.join(folder, "skip")
            with open(skip_file, "w") as file:
                file.write("\n".join(skip))
            open(out, "w").close()
            text = _spawn(name, mode, only, timeout, out, skip_file, folder, deadline)
            running, done = None, False
            with open(out) as file:
                for line in file:
                    record = json.loads(line)
                    if record["event"] == "start":
                        running = record["test"]
                    elif record["event"] == "end":
                        records[record["test"]] = record
                        running = None
                    else:
                        done = True
            if running is not None:
                outcome = "hung" if "Timeout (" in text else "crashed"
                records[running] = {"outcome": outcome, "text": text[-3000:]}
            elif not done and len(records) > known:
                # It died between two tests: the last one has done something to the interpreter.
                records[next(reversed(records))] |= {"outcome": "crashed", "text": text[-3000:]}
            stuck, known = len(records) == known, len(records)
            skip = [*skip, *records]
            if done or stuck or time.monotonic() > deadline:
                return records


def _spawn(name, mode, only, timeout, out, skip_file, folder, deadline):
    command = [
        sys.executable,
        "-m",
        "tests.conformance.worker",
        name,
        "--mode",
        mode,
        "--out",
        out,
        "--skip",
        skip_file,
    ]
    command += ["--only", only, "--timeout", str(timeout)]
    environment = {**os.environ, "PYTHONPATH": ROOT, "PYTHONHASHSEED": "0", "DYNAMO_LITE_CACHE": "0"}
    log_file = os.path.join(folder, "log")
    with open(log_file, "wb") as log:
        try:
            subprocess.run(
                command,
                cwd=folder,
                env=environment,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                timeout=max(1, deadline - time.monotonic()),
            )
        except subprocess.TimeoutExpired:
            return "Timeout (of the module)"
    with open(log_file, errors="replace") as log:
        return log.read()


def share(result):
    """The share captured whole, as text."""
    return f"{100 * result['whole'] / result['plain']:.0f}%" if result["plain"] else "-"


def report_lines(name, result, verbose=False):
    """One module, for people."""
    if result.get("missing"):
        return [f"{name}: not in this Python"]
    counts = f"{len(result['regressions'])} regressions, {len(result['crashes'])} crashes, {len(result['hangs'])} hangs"
    lines = [f"{name}: {result['plain']} pass plainly; {counts}; {share(result)} whole; {result['seconds']} s"]
    lines += [f"  {n:4} {what}" for what, n in list(result["breaks"].items())[:12]]
    for kind in ("regressions", "crashes"):
        for test, text in result[kind].items():
            lines.append(f"  {kind[:-1]} {test}" + (f"\n{text}" if verbose else f": {_last_line(text)}"))
    return lines + [f"  hang {test}" for test in result["hangs"]]


def _last_line(text):
    lines = [line for line in text.strip().split("\n") if line.strip()]
    return lines[-1][:200] if lines else ""


def summary(results):
    """The totals over all modules."""
    total = {key: sum(r[key] for r in results.values()) for key in ("plain", "whole")}
    bad = {key: sum(len(r[key]) for r in results.values()) for key in ("regressions", "crashes", "hangs")}
    return f"total: {total['plain']} pass plainly, {bad}, {share(total)} whole"


def record_lines(results, version, date, engine):
    """The results of all modules as a page of Markdown, with the names of what is open."""
    yield f"# CPython {version}"
    yield ""
    yield f"{date}, engine {engine}. {summary(results)}."
    yield ""
    yield "| module | pass plainly | captured whole | regressions | crashes | hangs | what keeps most tests from being whole |"
    yield "|---|---:|---:|---:|---:|---:|---|"
    for name, result in results.items():
        if result.get("missing") or not result["plain"]:
            continue
        counts = [str(len(result[kind])) for kind in ("regressions", "crashes", "hangs")]
        costs = ", ".join(f"{what} {n}" for what, n in list(result["breaks"].items())[:3])
        yield f"| {name} | {result['plain']} | {share(result)} | {' | '.join(counts)} | {costs} |"
    failed = [test for r in results.values() for kind in ("regressions", "crashes", "hangs") for test in r[kind]]
    if failed:
        yield ""
        yield "Open:"
        yield ""
        yield from (f"- `{test}`" for test in failed)
