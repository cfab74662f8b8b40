"""Transformations of functions of scopes: one mechanism, `pack`, under all of them."""
# ruff: noqa: F401

import typing as _typing

from toile.engine.lazy import attach as _attach
from toile.engine.lazy import names_of as _names_of

if _typing.TYPE_CHECKING:
    from toile.core.filters import (
        CollectionFilter,
        DenyList,
        Filter,
        PRNGSequenceFilter,
        group_collections,
        in_filter,
        intersect_filters,
        is_filter_empty,
        subtract_filters,
        union_filters,
    )
    from toile.core.frozen_dict import freeze, unfreeze
    from toile.core.lift.autodiff import custom_vjp, jvp, value_and_grad, vjp
    from toile.core.lift.axes import In, InOutAxis, InOutScanAxis, Out, tree_map_rngs
    from toile.core.lift.control import cond, switch, while_loop
    from toile.core.lift.mapping import remat_scan, scan, vmap
    from toile.core.lift.packing import pack
    from toile.core.lift.staging import checkpoint, fold_rngs, jit, remat
    from toile.core.lift.variables import id_fn, map_variables, swap_collection
    from toile.core.rng import LazyRng
    from toile.core.scope import Scope

_FROM = {
    "toile.core.filters": (
        "CollectionFilter DenyList Filter PRNGSequenceFilter group_collections in_filter "
        "intersect_filters is_filter_empty subtract_filters union_filters"
    ),
    "toile.core.frozen_dict": "freeze unfreeze",
    "autodiff": "custom_vjp jvp value_and_grad vjp",
    "axes": "In InOutAxis InOutScanAxis Out tree_map_rngs",
    "control": "cond switch while_loop",
    "mapping": "remat_scan scan vmap",
    "packing": "pack",
    "staging": "checkpoint fold_rngs jit remat",
    "variables": "id_fn map_variables swap_collection",
    "toile.core.rng": "LazyRng",
    "toile.core.scope": "Scope",
}
_MODULES = "autodiff axes control mapping packing staging variables"
__getattr__, __dir__ = _attach(__name__, _FROM, _MODULES)

__all__ = list(_names_of(_FROM))
