"""The results of the sweep over docstrings for people.

Input: the records of `worker`, by name. Output: lines and a page of Markdown.
A run is whole if nothing in it broke the graph and no part of it was left to run eagerly.
"""

import collections

from tests.ops.page import cell, ran, share


def is_whole_run(run):
    return not any(run[how] for how in ("breaks", "internal", "skipped"))


def is_whole(record):
    return ran(record) and all(map(is_whole_run, record["runs"]))


def is_wrong(record):
    """A crash, a hang, or a run whose outcome differs."""
    return "crashed" in record or "hung" in record or any(run["problems"] for run in record.get("runs", ()))


def is_inherited(record):
    """A run whose outcome differs, and does so under torch.compile with the same backend too."""
    return any(run.get("inherited") for run in record.get("runs", ()))


def counted(record):
    """The runs for which being captured whole means something: those in which a statement raises are not."""
    return [run for run in record.get("runs", ()) if not run["raised"]]


def reasons(run):
    """Why a run is not whole."""
    return [*run["breaks"], *run["internal"], *run["skipped"]]


def add(records, found):
    """Add newer records."""
    records.update(found)


def lines_of(record):
    """One docstring, where there is something to say."""
    name = record["name"]
    for how in ("crashed", "hung", "error"):
        if record.get(how):
            yield f"{name}: {how}: {record[how].strip().splitlines()[-1][:300]}"
    for run in record.get("runs", ()):
        for problem in run["problems"]:
            yield f"{name} ({run['form']}, {run['backend']}): {cell(problem)}"
    for reason in dict.fromkeys(reason for run in counted(record) for reason in reasons(run)):
        yield f"{name}: not whole: {cell(reason)}"


def totals(records):
    """What is counted over all docstrings."""
    runs = [run for record in records.values() for run in record.get("runs", ())]
    found = {
        "docstrings with examples": len(records),
        "statements": sum(record.get("statements", 0) for record in records.values()),
        "statements that raise eagerly": sum(len(record.get("skipped", ())) for record in records.values()),
        "docstrings with a wrong outcome": sum(map(is_wrong, records.values())),
        "crashes": sum("crashed" in record for record in records.values()),
        "hangs": sum("hung" in record for record in records.values()),
        "docstrings with the same outcome under torch.compile, but not in eager execution": sum(
            map(is_inherited, records.values())
        ),
        "internal errors": sum(bool(run["internal"]) for run in runs),
        "graphs that the backend refused": sum(bool(run["refused"]) for run in runs),
        "runs that are not the same twice in eager execution": sum(bool(run["unsteady"]) for run in runs),
    }
    for form, backend in dict.fromkeys((run["form"], run["backend"]) for run in runs):
        some = [
            run
            for record in records.values()
            for run in counted(record)
            if (run["form"], run["backend"]) == (form, backend)
        ]
        found[f"{NAMES[form]}, `{backend}`: captured whole"] = share(sum(map(is_whole_run, some)), len(some))
    return found


NAMES = {"body": "the statements as one function", "statement": "each statement as a function"}


def summary(records):
    return "; ".join(f"{what}: {n}" for what, n in totals(records).items())


def page(records, where, engine, there_are):
    """The committed page."""
    lines = [f"# Examples in the docstrings of torch {where['torch']}", ""]
    lines += [f"{where['date']}, CPython {where['python']}, engine {engine}, `python -m tests.docstrings`.", ""]
    if len(records) < there_are:
        lines += [f"{len(records)} of the {there_are} docstrings that have examples.", ""]
    lines += ["| | |", "|---|---:|", *(f"| {what} | {n} |" for what, n in totals(records).items()), ""]
    lines += ["## Wrong", ""]
    wrong = [
        line for record in records.values() if is_wrong(record) for line in lines_of(record) if "not whole" not in line
    ]
    lines += [f"- {line}" for line in wrong] or ["Nothing."]
    lines += ["", "## Another outcome under torch.compile with the same backend too", ""]
    lines += [f"- `{name}`: {cell(text)}" for name, text in _said(records, "inherited")] or ["None."]
    lines += _not_whole(records)
    lines += ["", "## Graphs that the backend refused", ""]
    lines += [f"- `{name}`: {cell(text)}" for name, text in _said(records, "refused")] or ["None."]
    unsteady = sorted({name for name, _ in _said(records, "unsteady")})
    lines += ["", "## Not the same twice in eager execution", "", ", ".join(f"`{n}`" for n in unsteady) or "None."]
    unmade = [f"- `{name}`: {cell(record['error'])}" for name, record in records.items() if record.get("error")]
    lines += ["", "## Could not be run", "", *(unmade or ["None."])]
    return "\n".join(lines) + "\n"


def _said(records, what):
    """The first thing that each docstring has under this key in its runs."""
    found = {}
    for record in records.values():
        for run in record.get("runs", ()):
            for text in run.get(what, ()):
                found.setdefault(record["name"], text)
    return sorted(found.items())


def breaks_beside(record):
    """Whether torch.compile breaks the graph of the same function, too; None if it was not asked."""
    found = [
        run["torch_compile_breaks"] for run in record.get("runs", ()) if run.get("torch_compile_breaks") is not None
    ]
    return any(found) if found else None


def _slug(reason):
    """The kind of a reason: the code and the name of a break, or that a function was left to run eagerly."""
    return reason.partition(":")[0]


def _not_whole(records):
    """Tables of the reasons: by kind, with what torch.compile does, and one by one."""
    kinds, reasons_of = collections.defaultdict(dict), collections.defaultdict(dict)
    for record in records.values():
        for reason in dict.fromkeys(reason for run in counted(record) for reason in reasons(run)):
            kinds[_slug(reason)][record["name"]] = breaks_beside(record)
            reasons_of[cell(reason)][record["name"]] = None
    lines = ["", "## Not whole, by kind", ""]
    lines += ["| kind | docstrings | torch.compile breaks the function of all statements too | has one graph |"]
    lines += ["|---|---:|---:|---:|"]
    for kind, found in sorted(kinds.items(), key=lambda item: (-len(item[1]), item[0])):
        beside = list(found.values())
        lines.append(f"| {kind} | {len(found)} | {beside.count(True)} | {beside.count(False)} |")
    lines += ["", "## Not whole, by reason", "", "| reason | docstrings | of |", "|---|---:|---|"]
    for reason, names in sorted(reasons_of.items(), key=lambda item: (-len(item[1]), item[0])):
        some = ", ".join(f"`{name}`" for name in list(names)[:6]) + (", …" if len(names) > 6 else "")
        lines.append(f"| {reason} | {len(names)} | {some} |")
    one_graph = sorted(r["name"] for r in records.values() if breaks_beside(r) is False)
    lines += ["", "## torch.compile has one graph where dynamo_lite breaks", ""]
    return [*lines, ", ".join(f"`{name}`" for name in one_graph) or "None."]
