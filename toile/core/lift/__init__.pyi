"""The public names of this package: loaded when they are first used, and known to type checkers."""

from toile.core.filters import (
    CollectionFilter as CollectionFilter,
    DenyList as DenyList,
    Filter as Filter,
    PRNGSequenceFilter as PRNGSequenceFilter,
    group_collections as group_collections,
    in_filter as in_filter,
    intersect_filters as intersect_filters,
    is_filter_empty as is_filter_empty,
    subtract_filters as subtract_filters,
    union_filters as union_filters,
)
from toile.core.frozen_dict import freeze as freeze, unfreeze as unfreeze
from toile.core.lift.autodiff import (
    custom_vjp as custom_vjp,
    jvp as jvp,
    value_and_grad as value_and_grad,
    vjp as vjp,
)
from toile.core.lift.axes import (
    In as In,
    InOutAxis as InOutAxis,
    InOutScanAxis as InOutScanAxis,
    Out as Out,
    tree_map_rngs as tree_map_rngs,
)
from toile.core.lift.control import cond as cond, switch as switch, while_loop as while_loop
from toile.core.lift.mapping import remat_scan as remat_scan, scan as scan, vmap as vmap
from toile.core.lift.packing import pack as pack
from toile.core.lift.staging import (
    checkpoint as checkpoint,
    fold_rngs as fold_rngs,
    jit as jit,
    remat as remat,
)
from toile.core.lift.variables import (
    id_fn as id_fn,
    map_variables as map_variables,
    swap_collection as swap_collection,
)
from toile.core.rng import LazyRng as LazyRng
from toile.core.scope import Scope as Scope
