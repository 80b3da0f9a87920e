"""What earlier races have shown, kept in a file for all processes of a user.

Input: the key of a graph. Output: the choice made for it. A file that can't be read or written costs one warning; from then on the process
remembers for itself. Invariant: an entry is whole or not there (SQLite's transactions; a killed process leaves none half done).
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import sqlite3
import threading
import time
import warnings
from typing import Any, NamedTuple

SCHEMA = """
CREATE TABLE IF NOT EXISTS choices (
    key TEXT PRIMARY KEY, backend TEXT NOT NULL, speedup REAL NOT NULL, measured TEXT NOT NULL, created REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS graphs (key TEXT PRIMARY KEY, place TEXT NOT NULL, operators INTEGER NOT NULL, job BLOB NOT NULL);
"""
BUSY_SECONDS = 15.0


class Choice(NamedTuple):
    """The winner of a race; `measured` holds (candidate, microseconds or None, what happened) of all."""

    backend: str
    speedup: float
    measured: list[tuple[str, float | None, str]]
    created: float = 0.0


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
        rows = self._execute("SELECT backend, speedup, measured, created FROM choices WHERE key = ?", (key,))
        for backend, speedup, measured, created in rows or ():
            try:
                return Choice(backend, speedup, [(n, t, s) for n, t, s in json.loads(measured)], created)
            except (TypeError, ValueError) as error:
                self._give_up(error)
        return self.known.get(key)

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

    def has_graph(self, key: str) -> bool:
        """Whether a graph has been collected."""
        return bool(self._execute("SELECT 1 FROM graphs WHERE key = ?", (key,)))

    def collected(self) -> dict[str, tuple[str, int]]:
        """Key → place in the program and number of operators, of all graphs that were collected."""
        return {k: (place, n) for k, place, n in self._execute("SELECT key, place, operators FROM graphs") or ()}

    def job(self, key: str) -> bytes | None:
        """The bytes of a collected graph."""
        rows = self._execute("SELECT job FROM graphs WHERE key = ?", (key,))
        return rows[0][0] if rows else None

    def all(self) -> dict[str, Choice]:
        """Every choice, newest last."""
        rows = self._execute("SELECT key, backend, speedup, measured, created FROM choices ORDER BY created")
        if rows is None:
            return dict(self.known)
        return {k: Choice(b, s, [(n, t, x) for n, t, x in json.loads(m)], c) for k, b, s, m, c in rows}

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
        warnings.warn(
            f"the tuner's store {self.path} is not used: {error}; choices are kept in this process", stacklevel=2
        )
        self.path = None
