"""Classes of parameters that decide how functions that read them are run.

`apply` runs a function of a scope in a special trace if the parameters contain an object of a
registered class. For example, products with low-rank adapters are computed in such a trace.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from toile.core.frozen_dict import FrozenDict
from toile.core.meta import AxisMetadata

Runner = Callable[[Callable[[], Any]], Any]
_runners: dict[type, Runner] = {}


def register(kind: type, run: Runner) -> None:
    """Use `run(function)` to call functions without arguments that read parameters of a class."""
    _runners[kind] = run


def runner_of(params: Any) -> Runner | None:
    """Return the function that runs functions of these parameters; None to call them directly."""
    return _found(params) if _runners else None


def _found(node: Any) -> Runner | None:
    if isinstance(node, dict | FrozenDict):
        for value in node.values():
            run = _found(value)
            if run is not None:
                return run
        return None
    if isinstance(node, AxisMetadata):
        return _found(node.unbox())
    return _runners.get(node.__class__)
