"""Graphs as bytes, by torch's own pickler, which imports Inductor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch.fx import GraphModule


def dumps(gm: GraphModule) -> bytes:
    """Raises what pickling raises."""
    from torch.fx._graph_pickler import GraphPickler, Options

    return GraphPickler.dumps(gm, Options(ops_filter=None))


def loads(data: bytes, mode: object) -> Any:
    """The graph again, with fakes of this mode."""
    from torch.fx._graph_pickler import GraphPickler

    return GraphPickler.loads(data, mode)
