"""The results of a sweep for people.

Input: the records of `worker`, by name. Output: lines and a page of Markdown.
A call is whole if nothing in it broke the graph and no part of it was left to run eagerly. Calls that raise in eager execution are not
counted: they run as they are.
"""

import collections
import platform
import subprocess
import sys
import time


def add(records, found):
    """Add newer records: they stand for older ones with the same operator and backend."""
    for name, record in found.items():
        again = {call.get("backend_name") for call in record["calls"]}
        older = [call for call in records.get(name, record)["calls"] if call.get("backend_name") not in again]
        records[name] = {**record, "calls": older + record["calls"]}


def counted(record):
    """The calls of a record for which being captured whole means something."""
    calls = record["calls"]
    return [c for c in calls if "sampling" not in c and not c["raised"] and c["variant"] != "error"]


def is_call_whole(call):
    return not call["breaks"] and not call["internal"]


def ran(record):
    """Whether the worker came to the end."""
    return not any(record.get(how) for how in ("crashed", "hung", "error"))


def is_whole(record):
    return ran(record) and all(map(is_call_whole, counted(record)))


def is_whole_besides(record):
    """Whether all calls are captured whole but those that resize a tensor of the caller's, where torch.compile breaks the graph too."""
    calls = [call for call in record["calls"] if call.get("variant") != "out resized"]
    return is_whole({**record, "calls": calls})


def is_wrong(record):
    """A crash, a hang, or a call whose outcome differs."""
    return "crashed" in record or "hung" in record or any(call.get("problems") for call in record["calls"])


def inherited(record):
    """A call whose outcome differs, and does so under torch.compile with the same backend too."""
    return any(call.get("inherited") for call in record["calls"])


def reasons(record):
    """Why calls of an operator are not whole: reason → calls."""
    found = collections.Counter()
    for call in counted(record):
        found.update({reason for reason in [*call["breaks"], *call["internal"]]})
    return found


def lines_of(record):
    """One operator, where there is something to say."""
    name = record["name"]
    for how in ("crashed", "hung", "error"):
        if record.get(how):
            yield f"{name}: {how}: {record[how].strip().splitlines()[-1][:300]}"
    for call in record["calls"]:
        for problem in call.get("problems", ()):
            yield f"{name} ({call['variant']}, {call['dtype']}, {call['backend_name']}): {cell(problem)}"
    for reason, n in reasons(record).items():
        yield f"{name}: not whole ({n} of {len(counted(record))} calls): {cell(reason)}"


def share(part, whole):
    return f"{part} of {whole} ({100 * part / whole:.1f} %)" if whole else "none"


def totals(records):
    """What is counted over all operators."""
    calls = [call for record in records.values() for call in counted(record)]
    raised = sum(bool(call.get("raised")) for record in records.values() for call in record["calls"])
    return {
        "operators and modules": len(records),
        "calls that return": len(calls),
        "calls that raise": raised,
        "operators captured whole in every call": share(sum(map(is_whole, records.values())), len(records)),
        "the same without `out=` of size 0, where torch.compile breaks too": share(
            sum(map(is_whole_besides, records.values())), len(records)
        ),
        "calls captured whole": share(sum(map(is_call_whole, calls)), len(calls)),
        "operators with a wrong outcome": sum(map(is_wrong, records.values())),
        "operators for which AOTAutograd itself has another outcome": sum(map(inherited, records.values())),
        "crashes": sum("crashed" in record for record in records.values()),
        "hangs": sum("hung" in record for record in records.values()),
        "internal errors": sum(bool(call["internal"]) for call in calls),
        "graphs that the backend refused": sum(bool(call["backend"]) for call in calls),
    }


def summary(records):
    return "; ".join(f"{what}: {n}" for what, n in totals(records).items())


def environment():
    """Versions, asked for in a process of its own: torch is not loaded here."""
    code = "import torch; print(torch.__version__)"
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True)
    return {"torch": done.stdout.strip(), "python": platform.python_version(), "date": time.strftime("%Y-%m-%d")}


def command_of(options):
    """How the operators were swept."""
    command = f"python -m tests.ops --count {options.count}" + (" --dynamic" if options.dynamic else "")
    command += " --data-dependent" if options.data_dependent else ""
    return command + (f" --every {options.every} --offset {options.offset}" if options.every > 1 else "")


def page(records, where, options, there_are, what="Operators and modules", command=None):
    """The committed page. `there_are`: how many can be swept."""
    command = command or command_of(options)
    parts = f", put together from {len(options.add)} runs, some with fewer samples" if options.add else ""
    lines = [f"# {what} of torch {where['torch']}", ""]
    lines += [
        f"{where['date']}, CPython {where['python']}, engine {options.record}, `{command}`{parts}.",
        "",
    ]
    if len(records) < there_are:
        lines += [f"A sample: {len(records)} of {there_are}.", ""]
    lines += ["| | |", "|---|---:|", *(f"| {what} | {n} |" for what, n in totals(records).items()), ""]
    forms = collections.defaultdict(list)
    for record in records.values():
        for call in counted(record):
            forms[call["variant"]].append(is_call_whole(call))
    lines += ["| form | calls captured whole |", "|---|---:|"]
    lines += [f"| {form} | {share(sum(found), len(found))} |" for form, found in forms.items()] + [""]
    backends = collections.Counter(call["backend_name"] for record in records.values() for call in counted(record))
    lines += ["| backend | calls |", "|---|---:|", *(f"| {name} | {n} |" for name, n in backends.items()), ""]
    lines += ["## Not whole", "", "| operator | calls | reason |", "|---|---:|---|"]
    for name, record in records.items():
        for reason, n in reasons(record).items():
            lines.append(f"| `{name}` | {n} of {len(counted(record))} | {cell(reason)} |")
    wrong = [
        line for record in records.values() if is_wrong(record) for line in lines_of(record) if "not whole" not in line
    ]
    lines += ["", "## Wrong", "", *([f"- {cell(line)}" for line in wrong] or ["Nothing."])]
    lines += ["", "## Another outcome under torch.compile with the same backend too", ""]
    for name, record in records.items():
        for call in record["calls"]:
            if call.get("inherited"):
                lines.append(f"- `{name}` ({call['variant']}, {call['dtype']}): {cell(call['inherited'][0])}")
    refused = collections.defaultdict(set)
    for name, record in records.items():
        for call in counted(record):
            for text in call["backend"]:
                refused[name].add(cell(f"{call['backend_name']}: {text}"))
    lines += ["", "## Graphs that the backend refused", ""]
    lines += [f"- `{name}`: {'; '.join(sorted(texts)[:2])}" for name, texts in refused.items()] or ["None."]
    unmade = [f"- `{name}`: {cell(record['error'])}" for name, record in records.items() if record.get("error")]
    lines += ["", "## Samples that could not be made", "", *(unmade or ["None."])]
    return "\n".join(lines) + "\n"


def cell(text):
    """One line without what Markdown reads as the end of a cell."""
    return " ".join(text.split()).replace("|", "\\|")[:240]
