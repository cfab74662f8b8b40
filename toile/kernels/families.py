"""The kernel family of an operation's class, and the function there that lowers it.

Devices name most of them alike: these are here, and a device adds its own.
"""

from __future__ import annotations

import functools
import importlib
import operator
from collections.abc import Callable, Mapping

from toile.compiler.passes.messages import EdgesByTarget, GatherScatter
from toile.control.cond import Cond
from toile.control.scan import Scan
from toile.control.while_loop import While
from toile.engine.program import Equation
from toile.primitives import (
    contractions,
    conv,
    cumulative,
    shapes,
    windows,
)
from toile.primitives import (
    gathers as indexing,
)
from toile.primitives import (
    sorts as sorting,
)
from toile.primitives.families import Reshape

Lowering = Callable[..., bool]
Places = Mapping[type, tuple[str, str]]  # family, or a module of one, and function

COMMON: Places = {
    contractions.DotGeneral: ("contraction", "lower"),
    conv.ConvGeneralDilated: ("convolution", "lower"),
    windows.ReduceWindowSum: ("window", "lower"),
    windows.ReduceWindowMax: ("window", "lower"),
    windows.ReduceWindowMin: ("window", "lower"),
    windows.ReduceWindowProd: ("window", "lower"),
    windows.SelectAndScatterAdd: ("window", "lower_scatter"),
    windows.SelectAndGatherAdd: ("window", "lower"),
    indexing.Gather: ("gather", "lower_gather"),
    indexing.Scatter: ("scatter", "lower_scatter"),
    EdgesByTarget: ("messages", "lower_edges"),
    GatherScatter: ("messages", "lower_messages"),
    indexing.DynamicSlice: ("copy", "moves.lower_dynamic_slice"),
    indexing.DynamicUpdateSlice: ("copy", "moves.lower_dynamic_update_slice"),
    shapes.Copy: ("copy", "moves.lower_copy"),
    shapes.Rev: ("copy", "moves.lower_rev"),
    shapes.Concatenate: ("copy", "moves.lower_concatenate"),
    shapes.Pad: ("copy", "moves.lower_pad"),
    Reshape: ("copy", "moves.lower_reshape"),
    cumulative.Cumsum: ("cumulative", "lower_cumulative"),
    cumulative.Cumprod: ("cumulative", "lower_cumulative"),
    cumulative.Cummax: ("cumulative", "lower_cumulative"),
    cumulative.Cummin: ("cumulative", "lower_cumulative"),
    cumulative.Cumlogsumexp: ("cumulative", "lower_cumulative"),
    sorting.Sort: ("sort", "lower_sort"),
    sorting.TopK: ("sort", "lower_top_k"),
    Scan: ("control", "lower_scan"),
    While: ("control", "lower_while"),
    Cond: ("control", "lower_cond"),
}


def finder(device: str, *tables: Places) -> Callable[[Equation], Lowering | None]:
    """The function that finds an equation's lowering for a kind of device, or None.

    A class in several tables has the lowerings of all, of which later ones take what earlier ones
    decline. Modules are loaded when a Program has an operation of theirs."""

    @functools.cache
    def lowering(cls: type) -> Lowering | None:
        found = [_function(device, *table[cls]) for table in tables if cls in table]
        if len(found) < 2:
            return found[0] if found else None
        return lambda *args: any(lower(*args) for lower in found)

    return lambda e: lowering(e.op.__class__)


def _function(device: str, family: str, name: str) -> Lowering:
    module = family if "." in family else f"{family}.{device}"
    return operator.attrgetter(name)(importlib.import_module(f"toile.kernels.{module}"))
