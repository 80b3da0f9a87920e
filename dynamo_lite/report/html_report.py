"""The coverage of a program as one HTML file.

Input: a `Coverage` whose measurement has kept its texts. Output: HTML without anything from elsewhere. Needs jinja2, the extra `report`.
Invariant: texts of the program are escaped; the page works without its script.
"""

from __future__ import annotations

import importlib
import os
import platform
import sys
import time
from typing import Any

import torch

from dynamo_lite import __version__
from dynamo_lite.exc import many
from dynamo_lite.messages import short_path

from .coverage import MAX_EVENTS, Coverage
from .page import page_of
from .timeline import KINDS, duration


def environment(*folders: str) -> Any:
    """The templates of this package, and those in other folders. Raises ModuleNotFoundError that says what to install."""
    try:
        jinja2 = importlib.import_module("jinja2")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("the HTML report needs jinja2: pip install 'dynamo-lite[report]'") from error
    own = os.path.join(os.path.dirname(__file__), "templates")
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader([*folders, own]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals.update(duration=duration, many=many, short_path=short_path)
    return made


def render(coverage: Coverage, title: str | None = None) -> str:
    """The report. `title` defaults to the program's name."""
    return (
        environment()
        .get_template("report.html")
        .render(
            page=page_of(coverage),
            title=title or os.path.basename(sys.argv[0]) or "dynamo_lite",
            made=time.strftime("%Y-%m-%d %H:%M"),
            version_of_package=__version__,
            versions=[("Python", platform.python_version()), ("torch", torch.__version__)],
            max_events=MAX_EVENTS,
            kinds=KINDS,
        )
    )


def write(coverage: Coverage, path: str | os.PathLike[str], title: str | None = None) -> None:
    """Write the report to a file. Raises OSError."""
    text = render(coverage, title)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
