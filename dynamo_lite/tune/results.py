"""Results of races, and the file that keeps them for all processes of a user.

Input: the key of a graph. Output: its `Choice`. A file that can't be read or written costs one warning; from then on choices are kept in
this process. Invariant: an entry is whole or not there (SQLite's transactions; a killed process leaves none half done).
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import pathlib
import re
import sqlite3
import threading
import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from dynamo_lite.messages import warn_user

SCHEMA = """
CREATE TABLE IF NOT EXISTS choices (
    key TEXT PRIMARY KEY, backend TEXT NOT NULL, speedup REAL NOT NULL, measured TEXT NOT NULL, created REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS graphs (key TEXT PRIMARY KEY, place TEXT NOT NULL, operators INTEGER NOT NULL, job BLOB NOT NULL);
"""
BUSY_SECONDS = 15.0


def not_tried(seconds: float) -> str:
    """The reason of a candidate that comes when the seconds of its race are used up."""
    return f"not tried: the {seconds:g} s for this graph were used up"


def _seconds_without(text: str) -> float:
    """The length of a race that was too short for a candidate, of which it tells this text; infinite if the candidate was tried."""
    found = re.match(r"not tried: the (\S+) s ", text)
    return math.inf if found is None else float(found[1]) * (1 + 1e-5)  # the text has six digits


class Choice(NamedTuple):
    """The result of a race, in plain data: the winner, its speedup over eager execution, and of all candidates, fastest first, (name,
    microseconds or None, text for people). `dropped`: candidates that dropped out → the reason; it is not stored."""

    backend: str
    speedup: float
    measured: list[tuple[str, float | None, str]]
    created: float = 0.0
    dropped: Mapping[str, str] = MappingProxyType({})

    @classmethod
    def of_json(cls, fields: Sequence[Any]) -> Choice:
        """The choice again, of the values that JSON has for it. Raises TypeError and ValueError for others."""
        backend, speedup, measured, *others = fields
        return cls(backend, speedup, [(name, time, text) for name, time, text in measured], *others)

    def settles(self, names: Sequence[str], seconds: float) -> bool:
        """Whether another race of so many seconds between these would tell nothing new: the winner is eager execution or one of them, and
        each was tried, or came too late in a race that was as long."""
        told = {name: text for name, _, text in self.measured}
        return self.backend in ("eager", *names) and all(
            name == "eager" or (name in told and seconds <= _seconds_without(told[name])) for name in names
        )

    def problem_of(self, name: str) -> str | None:
        """Why a candidate is out of the race, or None."""
        known = any(name == other for other, _, _ in self.measured)
        return self.dropped.get(name) if known else "not tried"


class Store:
    """The file at `path`; None keeps everything in this process."""

    def __init__(self, path: str | os.PathLike[str] | None) -> None:
        self.path = pathlib.Path(path) if path is not None else None
        self.lock = threading.Lock()
        self.known: dict[str, Choice] = {}
        self.met: set[str] = set()  # keys of the choices that this process has made or used
        self.forgotten: set[str] = set()

    def reset(self) -> None:
        """Choices that this process has made or used so far stay in the file, but are none for it any more."""
        self.forgotten |= self.met
        self.known.clear()
        self.met.clear()

    def get(self, key: str) -> Choice | None:
        """The choice for a graph, or None."""
        if key in self.forgotten:
            return None
        self.met.add(key)
        try:
            stored = self._choices("WHERE key = ?", key)
        except (TypeError, ValueError) as error:
            self._give_up(error)
            stored = None
        return (stored or self.known).get(key)

    def put(self, key: str, choice: Choice) -> None:
        """Remember a choice, in place of an earlier one."""
        choice = choice._replace(created=time.time())
        self.known[key] = choice
        self.met.add(key)
        self.forgotten.discard(key)
        row = (key, choice.backend, choice.speedup, json.dumps(choice.measured), choice.created)
        self._execute("INSERT OR REPLACE INTO choices VALUES (?, ?, ?, ?, ?)", row)

    def forget(self, key: str | None = None) -> None:
        """Drop one choice, or all and the graphs that were collected."""
        if key is None:
            self.known.clear()
            self._execute("DELETE FROM choices")
            self._execute("DELETE FROM graphs")
        else:
            self.known.pop(key, None)
            self._execute("DELETE FROM choices WHERE key = ?", (key,))

    def collect(self, key: str, place: str, operators: int, job: bytes) -> None:
        """Keep a graph for a race later. Raises OSError if there is no file."""
        if self._execute("INSERT OR REPLACE INTO graphs VALUES (?, ?, ?, ?)", (key, place, operators, job)) is None:
            raise OSError(f"graphs can't be collected in {self.path}")

    def collected(self) -> dict[str, tuple[str, int]]:
        """Key → place in the program and number of operators, of all graphs that were collected."""
        return {k: (place, n) for k, place, n in self._execute("SELECT key, place, operators FROM graphs") or ()}

    def job(self, key: str) -> bytes | None:
        """The bytes of a collected graph, or None."""
        rows = self._execute("SELECT job FROM graphs WHERE key = ?", (key,))
        return rows[0][0] if rows else None

    def all(self) -> dict[str, Choice]:
        """Every choice, newest last."""
        stored = self._choices("ORDER BY created")
        return dict(self.known) if stored is None else stored

    def _choices(self, condition: str, *parameters: str) -> dict[str, Choice] | None:
        """Key → choice of the rows, or None where there is no file (any more)."""
        rows = self._execute(f"SELECT key, backend, speedup, measured, created FROM choices {condition}", parameters)
        return None if rows is None else {k: Choice.of_json((b, s, json.loads(m), c)) for k, b, s, m, c in rows}

    def _execute(self, statement: str, parameters: tuple[Any, ...] = ()) -> list[Any] | None:
        """The rows, or None where there is no file (any more)."""
        with self.lock:
            if self.path is None:
                return None
            try:
                # A connection for each statement: SQLite's may not be shared with a forked child, and these are rare.
                self.path.parent.mkdir(parents=True, exist_ok=True)
                with contextlib.closing(sqlite3.connect(self.path, timeout=BUSY_SECONDS)) as connection, connection:
                    connection.executescript(SCHEMA)
                    return connection.execute(statement, parameters).fetchall()
            except (sqlite3.Error, OSError) as error:
                self._give_up(error)
                return None

    def _give_up(self, error: Exception) -> None:
        warn_user(f"the tuner's store {self.path} is not used: {error}; choices are kept in this process")
        self.path = None
