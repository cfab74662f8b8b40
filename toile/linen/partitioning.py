"""Logical axis names in a separate collection, an older alternative to `LogicallyPartitioned`.

`param_with_axes` and `variable_with_axes` declare variables and store the names of their axes in a
separate collection, such as `params_axes` for `params`. `get_axis_names` reads the names from
there. The versions of scan and vmap in this file add the name of their axis to these names.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from toile import errors, struct
from toile.api.checkpoint import checkpoint
from toile.core import lift
from toile.core.filters import CollectionFilter, PRNGSequenceFilter, union_filters
from toile.core.frozen_dict import FrozenDict, freeze, unfreeze
from toile.core.lift.packing import Packed, lifted
from toile.core.lift.staging import refuse_concrete
from toile.core.scope import Scope, Variable
from toile.core.spmd import get_logical_axis_rules as get_axis_rules
from toile.core.spmd import logical_axis_rules as axis_rules
from toile.core.spmd import set_logical_axis_rules as set_axis_rules
from toile.engine.annotations import PyTree
from toile.engine.lazy import attach_table
from toile.engine.source import here
from toile.engine.trees import tree_map
from toile.linen.context import context
from toile.linen.module import Module
from toile.linen.spmd import RulesFallback, is_logical_spec, logical_to_mesh, logical_to_mesh_axes
from toile.linen.spmd import with_logical_constraint as with_sharding_constraint
from toile.linen.transforms import TransformTarget, lift_transform, map_variables
from toile.sharding import PartitionSpec
from toile.traverse_util import flatten_dict, unflatten_dict
from toile.typing import (
    Array,
    ArrayPytree,
    InOutAxis,
    InOutScanAxis,
    LogicalPartitionSpec,
    LogicalPartitionSpecPytree,
    LogicalRules,
    PartitionSpecPytree,
)
from toile.typing import In as ScanIn
from toile.typing import Out as ScanOut

__all__ = [
    "Array", "ArrayPytree", "AxisMetadata", "CollectionFilter", "InOutAxis", "InOutScanAxis",
    "LogicalPartitionSpec", "LogicalPartitionSpecPytree", "LogicalRules", "PRNGSequenceFilter",
    "PartitionSpecPytree", "PartitionedVariable", "RulesFallback", "ScanIn", "ScanOut",
    "axis_rules", "core_remat_static", "get_axis_names", "get_axis_rules", "logical_to_mesh",
    "logical_to_mesh_axes", "param_with_axes", "remat", "scan_with_axes", "set_axis_rules",
    "variable_with_axes", "vmap_with_axes", "with_sharding_constraint",
]  # fmt: skip

__getattr__, __dir__ = attach_table(__name__, {})  # Flax's private names: toile.compat

Axes = tuple[str, ...] | None
UNSHARDED = RulesFallback.AXIS_IS_UNSHARDED


@struct.dataclass
class AxisMetadata:
    """The axis names of a variable, stored in the structure of a tree rather than in its leaves.

    Args:
        names: tuple with the logical name of each axis, or a tree of such tuples.

    >>> from toile.linen import partitioning
    >>> partitioning.AxisMetadata(("embed", "mlp")).names
    ('embed', 'mlp')
    """

    names: LogicalPartitionSpecPytree = struct.field(pytree_node=False)


def _same_names(old: Any, new: Any) -> Any:
    """Check that names that are stored a second time are the same as before."""
    if not isinstance(new, AxisMetadata):
        raise TypeError(
            f"Expected newly sown value to be an AxisMetadata, got {type(new).__name__}{here()}"
        )
    if isinstance(old, AxisMetadata):
        if old != new:
            raise ValueError(
                "If axis names are sown twice, expected them to match. "
                f"Got {old} and {new}.{here()}"
            )
    elif old:
        raise AssertionError(f"Non-initial-or-AxisMetadata value encountered: {old}")
    return new


def _running(module: Any) -> Any:
    """The given module, or the module whose method is running."""
    if module is None:
        module = context.module_stack[-1]
        assert module is not None, "needed a module that runs, got none (pass module=self)"
    return module


def param_with_axes(
    name: str,
    init_fn: Callable[..., Any],
    *init_args: object,
    axes: Axes = None,
    module: Module | None = None,
    **init_kwargs: object,
) -> Any:
    """Declare a module parameter whose axes have logical names, and return its value.

    The names are stored in the collection `params_axes`.

    Args:
        name: name of the parameter.
        init_fn: initializer, a function `f(key, *init_args, **init_kwargs)`.
        *init_args, **init_kwargs: arguments of `init_fn` after the key.
        axes: tuple with the logical name of each axis; None for no names.
        module: the module; None for the module whose method is running.

    Returns:
        The value. If axis rules and a mesh are set, the names constrain the sharding of the value.

    >>> import toile.linen as nn
    >>> from toile.linen import partitioning
    >>> class Scaled(nn.Module):
    ...     @nn.compact
    ...     def __call__(self, x):
    ...         return x * partitioning.param_with_axes(
    ...             "scale", nn.initializers.ones, (3,), axes=("embed",))
    >>> Scaled().init(key(0), jnp.ones(3))["params_axes"]
    {'scale_axes': AxisMetadata(names=('embed',))}
    """
    owner = _running(module)
    value = owner.param(name, init_fn, *init_args, **init_kwargs)
    if axes is not None:
        value = with_sharding_constraint(value, PartitionSpec(*axes))
        metadata = AxisMetadata(axes)
        owner.sow("params_axes", f"{name}_axes", metadata, reduce_fn=_same_names)
    return value


class PartitionedVariable(Variable):
    """A handle to a variable whose sharding is constrained by the logical names of its axes.

    Args:
        scope: scope that contains the variable.
        collection: name of the collection.
        name: name of the variable.
        axes: tuple with the logical name of each axis; None for no names.
        fallback: how to handle a name that no rule matches; one of
            `toile.linen.spmd.RulesFallback`.

    >>> from toile.core import Scope
    >>> from toile.linen import partitioning
    >>> scope = Scope({"state": {"count": jnp.zeros(2)}}, mutable=True)
    >>> partitioning.PartitionedVariable(scope, "state", "count", axes=("embed",)).value
    Array([0., 0.], dtype=float32)
    """

    def __init__(
        self,
        scope: Scope,
        collection: str,
        name: str,
        axes: Axes = None,
        fallback: RulesFallback = UNSHARDED,
    ):
        super().__init__(scope, collection, name, unbox=False)
        self.axes = axes
        self.fallback = fallback

    @property
    def value(self) -> Any:
        """The value of the variable."""
        value = self.scope.get_variable(self.collection, self.name)
        return _constrained(value, self.axes, self.fallback)

    @value.setter
    def value(self, value: Any) -> None:
        value = _constrained(value, self.axes, self.fallback)
        self.scope.put_variable(self.collection, self.name, value)


def _constrained(value: Any, axes: Axes, fallback: RulesFallback) -> Any:
    if axes is None:
        return value
    return with_sharding_constraint(value, axes, fallback=fallback)


def variable_with_axes(
    collection: str,
    name: str,
    init_fn: Callable[..., Any],
    *init_args: object,
    axes: Axes = None,
    module: Module | None = None,
    fallback: RulesFallback = UNSHARDED,
    **init_kwargs: object,
) -> PartitionedVariable:
    """Declare a module variable whose axes have logical names.

    The names are stored in the collection `<collection>_axes`.

    Args:
        collection: name of the collection.
        name: name of the variable.
        init_fn: function that returns the initial value.
        *init_args, **init_kwargs: arguments of `init_fn`.
        axes: tuple with the logical name of each axis; None for no names.
        module: the module; None for the module whose method is running.
        fallback: how to handle a name that no rule matches; one of
            `toile.linen.spmd.RulesFallback`.

    Returns:
        A handle. Its attribute `value` can be read and assigned.

    >>> import toile.linen as nn
    >>> from toile.linen import partitioning
    >>> class Counter(nn.Module):
    ...     @nn.compact
    ...     def __call__(self):
    ...         return partitioning.variable_with_axes(
    ...             "state", "count", jnp.zeros, (2,), axes=("embed",)).value
    >>> Counter().init(key(0))["state_axes"]
    {'count_axes': AxisMetadata(names=('embed',))}
    """
    module = _running(module)
    scope = module.scope
    scope.reserve(name)
    if not scope.has_variable(collection, name):
        if not scope.is_mutable_collection(collection):
            raise errors.ScopeVariableNotFoundError(name, collection, scope.path_text)
        value = _constrained(init_fn(*init_args, **init_kwargs), axes, fallback)
        scope.put_variable(collection, name, value)
    if axes is not None:
        metadata = AxisMetadata(axes)
        module.sow(f"{collection}_axes", f"{name}_axes", metadata, reduce_fn=_same_names)
    return PartitionedVariable(scope, collection, name, axes, fallback)


def get_axis_names(axes_metadata: FrozenDict | dict[str, Any]) -> FrozenDict:
    """Turn a collection of axis names into a tree of `PartitionSpec` objects.

    Args:
        axes_metadata: collection such as `params_axes`.

    Returns:
        A tree with the structure of the variables. It contains a `PartitionSpec` of logical names
        for each variable.

    >>> from toile.linen import partitioning
    >>> names = {"scale_axes": partitioning.AxisMetadata(("embed",))}
    >>> partitioning.get_axis_names(names)["scale"]
    P('embed',)
    """

    def specs(names: Any) -> Any:
        spec = lambda x: None if x is None else PartitionSpec(*x)
        return tree_map(spec, names, is_leaf=is_logical_spec)

    flat = {
        (*path, name.removesuffix("_axes")): specs(metadata.names)
        for (*path, name), metadata in flatten_dict(unfreeze(axes_metadata)).items()
    }
    return freeze(unflatten_dict(flat))


# Transforms that add their axis to the names.


def _map_names(fn: Callable[[list[Any]], Any], tree: Any) -> Any:
    """A tree in which `fn` is applied to the names in each AxisMetadata."""
    is_metadata = lambda x: isinstance(x, AxisMetadata)

    def one(names: Any) -> Any:
        return None if names is None else fn(list(names))

    def change(x: Any) -> Any:
        if not is_metadata(x):
            return x
        return x.replace(names=tree_map(one, x.names, is_leaf=is_logical_spec))

    return tree_map(change, tree, is_leaf=is_metadata)


def _add_axis_to_metadata(
    target: Any, axis_pos: Any, axis_name: Any, axis_col: str = "params_axes"
) -> Any:
    """Transform a target so that the names include the axis outside but not inside."""
    position = getattr(axis_pos, "axis", axis_pos)  # In and Out have it

    def added(names: list[Any]) -> tuple[Any, ...]:
        names.insert(position, axis_name)
        return tuple(names)

    def removed(names: list[Any]) -> tuple[Any, ...]:
        if names[position] != axis_name:
            raise ValueError(
                f"Expected axis {axis_name} at position {position} in axis metadata {names}."
                f"{here()}"
            )
        names.pop(position)
        return tuple(names)

    running = context.module_stack[-1]
    return map_variables(
        target,
        axis_col,
        mutable=running is None or running.is_mutable_collection(axis_col),
        trans_in_fn=functools.partial(_map_names, removed),
        trans_out_fn=functools.partial(_map_names, added),
    )


def scan_with_axes(
    target: TransformTarget,
    variable_axes: Mapping[CollectionFilter, InOutScanAxis] = {},
    variable_broadcast: CollectionFilter = False,
    variable_carry: CollectionFilter = False,
    split_rngs: Mapping[PRNGSequenceFilter, bool] = {},
    in_axes: PyTree = 0,
    out_axes: PyTree = 0,
    length: int | None = None,
    reverse: bool = False,
    unroll: int = 1,
    axis_name: str = "layers",
    axes_collections: tuple[str, ...] = ("params",),
    data_transform: Callable[..., Any] | None = None,
    methods: Sequence[str] | Mapping[str, Any] | None = None,
) -> Any:
    """Transform a module as `nn.scan` does, and name the scanned axis in the stacked variables.

    Args:
        target: a module class, or a function whose first argument is a module.
        variable_axes, variable_broadcast, variable_carry, split_rngs: as in `nn.scan`.
        in_axes, out_axes, length, reverse, unroll, data_transform, methods: as in `nn.scan`.
        axis_name: logical name of the scanned axis.
        axes_collections: names of the collections in which `axis_name` is added to the axis names.

    Returns:
        A class if `target` is a class; otherwise, a function with the arguments of `target`.

    >>> import toile.linen as nn
    >>> from toile.linen import partitioning
    >>> class Block(nn.Module):
    ...     @nn.compact
    ...     def __call__(self, x, _):
    ...         scale = partitioning.param_with_axes(
    ...             "scale", nn.initializers.ones, (3,), axes=("embed",))
    ...         return x * scale, None
    >>> Blocks = partitioning.scan_with_axes(
    ...     Block, variable_axes={"params": 0}, split_rngs={"params": True}, length=2)
    >>> Blocks().init(key(0), jnp.ones(3), None)["params_axes"]
    {'scale_axes': AxisMetadata(names=('layers', 'embed'))}
    """
    options = dict(locals())
    del options["axis_name"], options["axes_collections"]
    names = tuple(f"{col}_axes" for col in axes_collections)
    options["variable_broadcast"] = union_filters(variable_broadcast, names)
    scanned = lift_transform(lift.scan, **options)
    for col in axes_collections:
        if col in variable_axes:
            scanned = _add_axis_to_metadata(scanned, variable_axes[col], axis_name, f"{col}_axes")
    return scanned


def vmap_with_axes(
    target: TransformTarget,
    variable_axes: Mapping[CollectionFilter, InOutAxis],
    split_rngs: Mapping[PRNGSequenceFilter, bool] = {},
    in_axes: PyTree = 0,
    out_axes: PyTree = 0,
    axis_size: int | None = None,
    axis_name: str | None = None,
    partitioning_axis_names: Mapping[Any, str] = {},
    spmd_axis_name: str | None = None,
    methods: Sequence[str] | Mapping[str, Any] | None = None,
) -> Any:
    """Transform a module as `nn.vmap` does, and name the mapped axis in its variables.

    Args:
        target: a module class, or a function whose first argument is a module.
        variable_axes, split_rngs, in_axes, out_axes, axis_size, axis_name: as in `nn.vmap`.
        partitioning_axis_names: dict that maps each collection to the logical name of the mapped
            axis.
        spmd_axis_name, methods: as in `nn.vmap`.

    Returns:
        A class if `target` is a class; otherwise, a function with the arguments of `target`.

    >>> import toile.linen as nn
    >>> from toile.linen import partitioning
    >>> class Scaled(nn.Module):
    ...     @nn.compact
    ...     def __call__(self, x):
    ...         return x * partitioning.param_with_axes(
    ...             "scale", nn.initializers.ones, (3,), axes=("embed",))
    >>> Many = partitioning.vmap_with_axes(
    ...     Scaled, {"params": 0}, {"params": True}, partitioning_axis_names={"params": "experts"})
    >>> Many().init(key(0), jnp.ones((4, 3)))["params_axes"]
    {'scale_axes': AxisMetadata(names=('experts', 'embed'))}
    """
    options = dict(locals())
    del options["partitioning_axis_names"]
    shared = {f"{name}_axes": None for name in partitioning_axis_names}
    options["variable_axes"] = {**variable_axes, **shared}
    mapped = lift_transform(lift.vmap, **options)
    for col, axis in variable_axes.items():
        if col in partitioning_axis_names:
            mapped = _add_axis_to_metadata(
                mapped, axis, partitioning_axis_names[col], f"{col}_axes"
            )
    return mapped


def core_remat_static(
    fn: Callable[..., Any],
    variables: CollectionFilter = True,
    rngs: PRNGSequenceFilter = True,
    concrete: bool = False,
    prevent_cse: bool = True,
    static_argnums: tuple[int, ...] = (),
    policy: Callable[..., bool] | None = None,
) -> Callable[..., Any]:
    """Recompute a function of a scope in the backward pass, with static arguments of any type.

    The static arguments need not be hashable.

    Args:
        fn: function `f(scope, *args)`.
        variables: filter that selects the collections visible inside the transform; True selects
            all.
        rngs: filter that selects the random streams visible inside the transform; True selects all.
        concrete: must be False; use `static_argnums` instead.
        prevent_cse: whether to prevent the compiler from merging the recomputation with the
            original computation.
        static_argnums: positions of arguments that are not traced; the first argument after the
            scope has position 0.
        policy: function that selects the intermediate results to keep; if None, no results are
            kept.

    Returns:
        A function with the arguments of `fn`.

    >>> from toile.core import init, nn
    >>> from toile.linen import partitioning
    >>> dense = partitioning.core_remat_static(lambda scope, x: nn.dense(scope, x, 3))
    >>> y, variables = init(dense)(key(0), jnp.ones((2, 4)))
    >>> y.shape
    (2, 3)
    """
    static = frozenset(static_argnums)

    def inner(packed: Packed, *args: Any) -> Any:
        refuse_concrete(concrete)
        moving = [i for i in range(len(args)) if i not in static]

        @functools.partial(checkpoint, prevent_cse=prevent_cse, policy=policy)
        @functools.wraps(fn)
        def run(variables: Any, rngs: Any, *values: Any) -> Any:
            given = list(args)
            for i, x in zip(moving, values, strict=True):
                given[i] = x
            return packed.run(fn, variables, rngs, *given)

        return run(packed.variables, packed.rngs, *(args[i] for i in moving))

    return lifted(inner, (variables,), (variables,), (rngs,), name="remat")


def remat(
    target: TransformTarget,
    variables: CollectionFilter = True,
    rngs: PRNGSequenceFilter = True,
    concrete: bool = False,
    prevent_cse: bool = True,
    static_argnums: tuple[int, ...] = (),
    policy: Callable[..., bool] | None = None,
    methods: Sequence[str] | Mapping[str, Any] | None = None,
) -> Any:
    """Recompute a module in the backward pass instead of storing its intermediate results.

    Unlike in `nn.remat`, the positions in `static_argnums` are counted without the module.

    Args:
        target: a module class, or a function whose first argument is a module.
        variables: filter that selects the collections visible inside the transform; True selects
            all.
        rngs: filter that selects the random streams visible inside the transform; True selects all.
        concrete: must be False; use `static_argnums` instead.
        prevent_cse: whether to prevent the compiler from merging the recomputation with the
            original computation.
        static_argnums: positions of arguments that are not traced; the first argument after the
            module has position 0. These arguments need not be hashable.
        policy: function that selects the intermediate results to keep; if None, no results are
            kept.
        methods: names of the methods to transform, or a dict that maps each name to the options for
            that method. If `methods` is None, `__call__` is used.

    Returns:
        A class if `target` is a class; otherwise, a function with the arguments of `target`.

    >>> import toile.linen as nn
    >>> from toile.linen import partitioning
    >>> variables = partitioning.remat(nn.Dense)(2).init(key(0), jnp.ones((1, 3)))
    >>> toile.tree.map(jnp.shape, variables)
    {'params': {'bias': (2,), 'kernel': (3, 2)}}
    """
    return lift_transform(core_remat_static, **locals())
