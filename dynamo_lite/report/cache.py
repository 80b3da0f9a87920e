"""The sub-commands of `python -m dynamo_lite cache`.

Input: the files of the cache. Output: lines on standard output; the status of the command.
Invariant: only `clear` and `import` change anything. Reading a file runs nothing that is in it.
"""

from __future__ import annotations

import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

from dynamo_lite import warm_cache
from dynamo_lite.exc import many
from dynamo_lite.warm_cache import keys
from dynamo_lite.warm_cache.store import Damaged, OtherFormat


def ls() -> int:
    """One line for each version and each compiled graph of a backend: age, size, description, and the differences if this installation
    would not use it."""
    print(f"{warm_cache.directory()}")
    now = time.time()
    for path in warm_cache.files():
        try:
            about, payload = warm_cache.read(path)
        except (Damaged, OSError) as error:
            print(f"{path.name}  ignored: {error}")
            continue
        age = _age(now - about.get("made", now))
        if "compiled by" in about:
            what = f"compiled by {about['compiled by']}, {many(about.get('kernels', 0), 'kernel')}"
        else:
            what = ", ".join(many(about.get(f"{noun}s", 0), noun) for noun in ("operator", "guard", "break"))
        place = f"{about.get('name')} {about.get('file')}:{about.get('line')}"
        print(f"{age:>4} {len(payload) / 1024:7.0f} KiB  {what:<44} {place}{_differences(about.get('facts'))}")
    return 0


def _age(seconds: float) -> str:
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f}{unit}"
    return f"{max(seconds, 0):.0f}s"


def _differences(facts: object) -> str:
    """The parts that differ in this installation."""
    here = keys.facts()
    if not isinstance(facts, dict):
        return "  (made elsewhere)"
    other = [name for name in here if facts.get(name) != here[name]]
    return f"  (not used here: other {', '.join(other)})" if other else ""


def verify() -> int:
    """Read all files; 1 if one is damaged. Those that another version of dynamo_lite has written are counted."""
    damaged = others = 0
    found = warm_cache.files()
    for path in found:
        try:
            warm_cache.read(path)
        except OtherFormat:
            others += 1
        except (Damaged, OSError) as error:
            damaged += 1
            print(f"{path}: {error}")
    print(f"{many(len(found), 'file')}, {damaged} damaged" + f", {others} of another version" * (others > 0))
    return int(damaged > 0)


def clear() -> int:
    """Remove everything."""
    print(f"{many(warm_cache.clear(), 'file')} removed from {warm_cache.directory()}")
    return 0


def export(file: str) -> int:
    """Write a tar file; 1 if that fails."""
    try:
        print(f"{many(warm_cache.export_to(Path(file)), 'file')} written to {file}")
    except OSError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def import_(file: str) -> int:
    """Take over a tar file; 1 if it can't be read or something in it was refused."""
    try:
        taken, refused = warm_cache.import_from(Path(file))
    except tarfile.TarError:
        print(f"{file} is no archive that `cache export` has written", file=sys.stderr)
        return 1
    except OSError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{many(taken, 'file')} taken over, {len(refused)} refused")
    for line in refused:
        print(line, file=sys.stderr)
    return int(bool(refused))


COMMANDS: dict[str, Callable[..., int]] = {
    "ls": ls,
    "verify": verify,
    "clear": clear,
    "export": export,
    "import": import_,
}
"""Name of a sub-command → its function."""
