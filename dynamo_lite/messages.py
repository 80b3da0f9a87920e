"""What is said to users: warnings at their line, values that are refused, paths as they know them.

Input: a text, a value, a file. Output: a warning, an exception in one line, a short path.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import warnings
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


def warn_user(text: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line of the program: that of the innermost frame that is neither ours nor torch's."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and not is_users(frame.f_code.co_filename):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, category, stacklevel=level + 1)


def refuse_value(what: str, value: Any, expected: str) -> NoReturn:
    """Raise TypeError: what was given, and what is accepted."""
    raise TypeError(f"{what}={value!r}: expected {expected}")


def short_path(filename: str) -> str:
    """A file as seen from the working directory, or from the entry of `sys.path` that holds it; else the full path."""
    for directory in (os.getcwd(), *sorted(filter(None, sys.path), key=len, reverse=True)):
        if filename.startswith(directory.rstrip(os.sep) + os.sep):
            return os.path.relpath(filename, directory)
    return filename
