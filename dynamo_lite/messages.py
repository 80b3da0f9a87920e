"""What is said to users: warnings at their line, values that are refused, paths as they know them.

Input: a text, a value, a file. Output: a warning, an exception in one line, a short path.
"""

from __future__ import annotations

import contextlib
import difflib
import os
import re
import sys
import sysconfig
import threading
import types
import warnings
from collections.abc import Iterable, Iterator
from typing import Any, NoReturn

_LIBRARIES = tuple(
    os.path.join(folder, package, "")
    for folder in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    for package in ("torch", "dynamo_lite")
)
_NOT_USERS = (*_LIBRARIES, os.path.join(os.path.dirname(os.path.abspath(__file__)), ""), "<eval_with_key>", "<frozen")


def is_users(filename: str) -> bool:
    """Whether code of that file is neither ours nor torch's."""
    return not filename.startswith(_NOT_USERS)


_STDLIB = tuple(os.path.join(os.path.abspath(sysconfig.get_path(name)), "") for name in ("stdlib", "platstdlib"))
_INSTALLED = tuple(os.path.join(folder, name, "") for folder in _STDLIB for name in ("site-packages", "dist-packages"))


def is_of_program(filename: str) -> bool:
    """Whether code of that file is neither ours nor torch's nor of the standard library."""
    return is_users(filename) and (not filename.startswith(_STDLIB) or filename.startswith(_INSTALLED))


def warn_user(text: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line of the program: that of the innermost frame that is neither ours nor torch's nor of the standard library."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and not is_of_program(frame.f_code.co_filename):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, category, stacklevel=level + 1)


class _Unshown(threading.local):
    said: list[warnings.WarningMessage] | None = None  # by this thread, and shown to nobody


_unshown = _Unshown()
_hook_lock = threading.Lock()
_hidden: list[Any] = []  # one item for each thread that shows none: `_showwarnmsg` as it was


@contextlib.contextmanager
def unshown() -> Iterator[list[warnings.WarningMessage]]:
    """The warnings that this thread gives, in the place of showing them: they will be given again, and are shown then as for the first
    time. (`catch_warnings` would replace the filters of all threads, and have all modules forget what they have shown.)"""
    before, said = _unshown.said, []
    with _hook_lock:
        _hidden.append(_hidden[0] if _hidden else warnings._showwarnmsg)  # type: ignore[attr-defined]
        warnings._showwarnmsg = _show_or_keep  # type: ignore[attr-defined]
    _unshown.said = said
    try:
        yield said
    finally:
        _unshown.said = before
        with _hook_lock:
            show = _hidden.pop()
            if not _hidden:
                warnings._showwarnmsg = show  # type: ignore[attr-defined]


def _show_or_keep(message: warnings.WarningMessage) -> None:
    said = _unshown.said
    if said is None:
        if _hidden:
            _hidden[0](message)
        else:  # since this function was looked up
            warnings._showwarnmsg(message)  # type: ignore[attr-defined]
        return
    said.append(message)
    frame: Any = sys._getframe(1)
    while frame is not None and (frame.f_code.co_filename, frame.f_lineno) != (message.filename, message.lineno):
        frame = frame.f_back
    noted = {} if frame is None else frame.f_globals.get("__warningregistry__", {})
    key = (str(message.message), message.category)
    for registry in (noted, warnings.onceregistry):  # type: ignore[attr-defined]
        for place in ((), (0,), (message.lineno,)):  # of the actions "once", "module" and "default"
            registry.pop((*key, *place), None)


class _ThisThread:
    """In a filter, the pattern that all modules match when this thread warns."""

    def __init__(self) -> None:
        self.thread: int | None = threading.get_ident()

    def match(self, module: str) -> bool:
        return threading.get_ident() == self.thread


@contextlib.contextmanager
def ignored(beginning: str = "") -> Iterator[None]:
    """What this thread warns of, in texts with this `beginning`, is neither shown nor raised, whatever the program's filters say: it is no
    warning about the program.

    The filters of other threads stay (`catch_warnings` would replace them), and no module forgets what it has shown, as all would do
    when told of a new filter.
    """
    pattern = _ThisThread()
    item: Any = ("ignore", re.compile(re.escape(beginning)), Warning, pattern, 0)
    before = _filters()
    ours = [item, *before]  # another list: a thread that goes through the filters meanwhile keeps its own
    _set_filters(ours)
    try:
        yield
    finally:
        pattern.thread = None  # what remains in a copy of another thread's has no effect
        now = _filters()
        if now is ours:
            others = [one for one in ours if one is not item]
            if others != before:  # an import has added some
                before[:] = others
            _set_filters(before)
        else:  # somebody has put another list in the place of ours, and may put it back
            for held in (now, ours):
                if item in held:
                    held.remove(item)


def _filters() -> list[Any]:
    """The filters by which a warning of this thread is judged. (From 3.14 on, they may be the context's.)"""
    return getattr(warnings, "_get_filters", lambda: warnings.filters)()


def _set_filters(filters: list[Any]) -> None:
    context = getattr(warnings, "_get_context", lambda: None)()
    # There it is a property in the context that stands for the module.
    if context is None or isinstance(getattr(type(context), "_filters", None), property):
        warnings.filters = filters
    else:
        context._filters = filters


def place_of_builtin(fn: types.FunctionType) -> tuple[str, str, int] | None:
    """Name, file and line by which reports call a function of ours around a callable without Python code, or what is left of it after a
    break; None for any other function."""
    code, closure = fn.__code__, fn.__closure__ or ()
    if fn.__globals__.get("__name__") != f"{__package__}.api":
        return None
    wrapped = [
        cell.cell_contents for name, cell in zip(code.co_freevars, closure, strict=True) if name in ("target", "found")
    ]
    if not wrapped:
        return None
    name = getattr(wrapped[0], "__qualname__", None)
    name = name if isinstance(name, str) else type(wrapped[0]).__qualname__
    return name, f"<built-in {name}>", 0


def near_names(name: str, known: Iterable[str]) -> str:
    """The names that somebody may have meant: "a or b"; empty if none is like it."""
    return " or ".join(difflib.get_close_matches(name, list(known), n=3))


def refuse_value(what: str, value: Any, expected: str) -> NoReturn:
    """Raise TypeError: what was given, and what is accepted."""
    raise TypeError(f"{what}={value!r}: expected {expected}")


def short_path(filename: str) -> str:
    """A file as seen from the working directory, or from the entry of `sys.path` that holds it; else the full path."""
    for directory in (os.getcwd(), *sorted(filter(None, sys.path), key=len, reverse=True)):
        if filename.startswith(directory.rstrip(os.sep) + os.sep):
            return os.path.relpath(filename, directory)
    return filename
