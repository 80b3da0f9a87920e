"""One model of the zoo exported: is it a whole graph, is that right, and does it hold for another batch size?

Input: an engine of `zoo_engines`, an entry of the zoo. Output: a record of plain values.
"""

from __future__ import annotations

import copy
import time
from typing import Any

import torch
from torch.export import Dim

from dynamo_lite.testing import differences

from .zoo_engines import BATCHES, SHOWN_TEXT, TOLERANCE, Record, call, verdict
from .zoo_inputs import Entry


def export(engine: Any, entry: Entry) -> Record:
    """With constant sizes, then with the sizes left open that another batch size changes."""
    model, make = entry.build()
    model.eval()
    without_cache(model)
    first, other = BATCHES[:2]
    expected = call(copy.deepcopy(model), make(first))[0]
    start = time.process_time()
    with torch.no_grad():
        exported = engine.export(copy.deepcopy(model), make(first))
    record: Record = {"pass": True, "trace_cpu": time.process_time() - start, "varies": False}
    found = list(differences(expected, call(exported, make(first))[0], tol=TOLERANCE))
    expected = call(copy.deepcopy(model), make(other))[0]
    try:
        with torch.no_grad():
            exported = engine.export(model, make(first), varying(make(first), make(other)))
        differ = list(differences(expected, call(exported, make(other))[0], tol=TOLERANCE))
        record["varies"] = not differ
    except Exception as error:
        record["constant"] = f"{type(error).__name__}: {error}"[:SHOWN_TEXT]
    else:
        if differ:
            record["constant"] = "; ".join(differ)[:SHOWN_TEXT]
    return verdict(record, found)


def without_cache(model: torch.nn.Module) -> None:
    """Have a model of transformers return no cache, which is an object that neither engine takes for a result."""
    for module in model.modules():
        if getattr(getattr(module, "config", None), "use_cache", False):
            module.config.use_cache = False


def varying(inputs: Record, others: Record) -> dict[str, Any]:
    """The sizes that are not the same in both, as ones that may vary."""
    return {
        name: {i: Dim.AUTO for i, size in enumerate(value.shape) if size != others[name].shape[i]} or None
        for name, value in inputs.items()
    }
