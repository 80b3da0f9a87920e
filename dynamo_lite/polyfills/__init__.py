"""Python functions that stand for functions written in C, so that capture can follow them.

`registry` has the tables; each other module is named after the module that it stands for and is imported when a
function of that module is first called in captured code. The functions and classes here are plain Python: they import
neither torch nor the engine.

Entry: `registry.find_polyfill`. Tests: `tests/polyfills/`.
"""

from __future__ import annotations

from .registry import find_polyfill, polyfill, substitute_in_graph

__all__ = ["find_polyfill", "polyfill", "substitute_in_graph"]
