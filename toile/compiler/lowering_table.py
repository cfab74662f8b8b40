"""Which module of a backend has the lowering of an operation's class.

Backends name most of them alike: these are here, and a backend adds its own.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping

from toile.compiler.messages import EdgesByTarget, GatherScatter
from toile.control.cond import Cond
from toile.control.scan import Scan
from toile.control.while_loop import While
from toile.engine.program import Equation
from toile.primitives import contractions, conv, cumulative, indexing, shapes, sorting, windows
from toile.primitives.families import Reshape

Lowering = Callable[..., bool]
Places = Mapping[type, tuple[str, str]]  # module and function

COMMON: Places = {
    contractions.DotGeneral: ("contractions", "lower"),
    conv.ConvGeneralDilated: ("convolution", "lower"),
    windows.ReduceWindowSum: ("pooling", "lower"),
    windows.ReduceWindowMax: ("pooling", "lower"),
    windows.ReduceWindowMin: ("pooling", "lower"),
    windows.ReduceWindowProd: ("pooling", "lower"),
    windows.SelectAndScatterAdd: ("pooling", "lower_scatter"),
    windows.SelectAndGatherAdd: ("pooling", "lower"),
    indexing.Gather: ("gathering", "lower_gather"),
    indexing.Scatter: ("scattering", "lower_scatter"),
    EdgesByTarget: ("messages", "lower_edges"),
    GatherScatter: ("messages", "lower_messages"),
    indexing.DynamicSlice: ("slicing", "lower_dynamic_slice"),
    indexing.DynamicUpdateSlice: ("slicing", "lower_dynamic_update_slice"),
    shapes.Copy: ("slicing", "lower_copy"),
    shapes.Rev: ("slicing", "lower_rev"),
    shapes.Concatenate: ("slicing", "lower_concatenate"),
    shapes.Pad: ("slicing", "lower_pad"),
    Reshape: ("slicing", "lower_reshape"),
    cumulative.Cumsum: ("cumulative", "lower_cumulative"),
    cumulative.Cumprod: ("cumulative", "lower_cumulative"),
    cumulative.Cummax: ("cumulative", "lower_cumulative"),
    cumulative.Cummin: ("cumulative", "lower_cumulative"),
    cumulative.Cumlogsumexp: ("cumulative", "lower_cumulative"),
    sorting.Sort: ("sorting", "lower_sort"),
    sorting.TopK: ("sorting", "lower_top_k"),
    Scan: ("control", "lower_scan"),
    While: ("control", "lower_while"),
    Cond: ("control", "lower_cond"),
}


def finder(package: str, *tables: Places) -> Callable[[Equation], Lowering | None]:
    """The function that finds an equation's lowering, or None, in modules of a package.

    A class in several tables has the lowerings of all, of which later ones take what earlier ones
    decline. Modules are loaded when a Program has an operation of theirs."""

    @functools.cache
    def lowering(cls: type) -> Lowering | None:
        found = [_function(package, *table[cls]) for table in tables if cls in table]
        if len(found) < 2:
            return found[0] if found else None
        return lambda *args: any(lower(*args) for lower in found)

    return lambda e: lowering(e.op.__class__)


def _function(package: str, module: str, name: str) -> Lowering:
    return getattr(importlib.import_module(f"{package}.{module}"), name)
