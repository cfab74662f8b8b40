"""Logical axes: names for the meaning of array axes, and rules that map these names to mesh axes.

`LogicallyPartitioned` boxes store logical names in a model's variables, `logical_to_mesh` converts
the names to mesh axes, and `with_logical_constraint` shards a value according to the names. The
current rules are in `toile.core.spmd`. On one device, a constraint is checked but has no other
effect.
"""

from __future__ import annotations

import collections
import dataclasses
import enum
import functools
from collections.abc import Callable, Sequence
from typing import Any

from toile import struct
from toile.core import meta
from toile.core.meta import LogicalNames
from toile.core.spmd import (
    LogicalRules,
    get_logical_axis_rules,
    logical_axis_rules,
    set_logical_axis_rules,
)
from toile.engine.annotations import PyTree
from toile.engine.source import here
from toile.engine.trees import leaves, tree_map
from toile.lax import with_sharding_constraint
from toile.sharding import Mesh, NamedSharding, PartitionSpec
from toile.typing import Array, ArrayPytree, LogicalPartitionSpec, LogicalPartitionSpecPytree

__all__ = [
    "Array", "ArrayPytree", "LogicalNames", "LogicalPartitionSpec", "LogicalPartitionSpecPytree",
    "LogicalRules", "LogicallyPartitioned", "RulesFallback", "get_logical_axis_rules",
    "is_logical_spec", "logical_axis_rules", "logical_to_mesh", "logical_to_mesh_axes",
    "logical_to_mesh_sharding", "set_logical_axis_rules", "with_logical_constraint",
    "with_logical_partitioning",
]  # fmt: skip


class _Unassigned:
    """Stands for the mesh axis of a logical axis that no rule matches."""

    def __repr__(self) -> str:
        return "UnassignedAxis"

    def __bool__(self) -> bool:
        return False


_unassigned = _Unassigned()


def _is_free(mesh_names: Any, assigned: list[Any]) -> bool:
    """Whether none of these mesh axes is assigned to an axis of the array."""
    wanted = set(leaves(mesh_names)) - {None, PartitionSpec.UNCONSTRAINED}
    return wanted.isdisjoint(x for x in leaves(assigned) if x is not _unassigned)


def _assign(names: Sequence[Any] | None, rules: LogicalRules | None) -> list[Any] | None:
    """The mesh axes of each axis; `_unassigned` for names that no rule matches."""
    if names is None:
        return None
    rules = get_logical_axis_rules() if rules is None else rules
    counts = collections.Counter(names)
    twice = tuple(k for k, n in counts.items() if n > 1 and isinstance(k, str))
    if twice:
        raise ValueError(
            f"Unsupported: Dimensions {twice} occur more than once in array names.{here()}"
        )
    if not isinstance(rules, tuple | list):
        raise ValueError(
            f"Unknown axis rule specification type. (needed a tuple or list of pairs, got "
            f"{type(rules).__name__}){here()}"
        )
    found = [_unassigned if isinstance(name, str) else name for name in names]
    where = {name: i for i, name in reversed(list(enumerate(names)))}
    for name, mesh_names in rules:  # the first rule that matches applies
        i = where.get(name)
        if i is not None and found[i] is _unassigned and _is_free(mesh_names, found):
            found[i] = mesh_names
    return found


def logical_to_mesh_axes(
    array_dim_names: Sequence[str | None] | None, rules: LogicalRules | None = None
) -> PartitionSpec | None:
    """Find the mesh axes for an array whose axes have logical names.

    The rules are tried in order. A rule assigns its mesh axes to the array axis that has the rule's
    logical name, but only if no earlier rule applied to that array axis and no other array axis
    uses these mesh axes.

    Args:
        array_dim_names: for each axis of the array, its logical name, or None for an axis that is
            not split. Pass None for an array without names.
        rules: (logical name, mesh axes) pairs, where the mesh axes are one name, a tuple of names,
            or None. Earlier pairs take precedence. If `rules` is None, the current rules are used.

    Returns:
        A `PartitionSpec` of mesh axes, with None for each axis to which no rule applies. If
        `array_dim_names` is None, the result is None.

    Raises:
        ValueError: a name occurs twice, or `rules` is not a list or tuple.

    >>> import toile.linen as nn
    >>> rules = (("batch", "X"), ("features", "X"), ("heads", "Y"), ("batch", "Z"))
    >>> nn.logical_to_mesh_axes(("batch", "length", "heads", "features"), rules)
    P('X', None, 'Y', None)
    """
    found = _assign(array_dim_names, rules)
    if found is None:
        return None
    return PartitionSpec(*(None if x is _unassigned else x for x in found))


def _is_spec(x: Any) -> bool:
    return isinstance(x, PartitionSpec)


def logical_to_mesh(tree: PyTree, rules: LogicalRules | None = None) -> PyTree:
    """Replace logical names with mesh axes in a tree of `PartitionSpec` objects.

    Args:
        tree: tree of `PartitionSpec` objects with logical names, such as the result of
            `get_partition_spec`.
        rules: (logical name, mesh axes) pairs, where the mesh axes are one name, a tuple of names,
            or None. Earlier pairs take precedence. If `rules` is None, the current rules are used.

    Returns:
        A tree of `PartitionSpec` objects with mesh axes.

    >>> import toile.linen as nn
    >>> from toile.sharding import PartitionSpec
    >>> tree = {"kernel": PartitionSpec("embed", "mlp"), "bias": PartitionSpec("mlp")}
    >>> nn.logical_to_mesh(tree, (("mlp", "model"),))
    {'bias': P('model',), 'kernel': P(None, 'model')}
    """
    return tree_map(lambda x: logical_to_mesh_axes(x, rules), tree, is_leaf=_is_spec)


def logical_to_mesh_sharding(
    tree: PyTree, mesh: Mesh, rules: LogicalRules | None = None
) -> PyTree:
    """Turn a tree of `PartitionSpec` objects with logical names into shardings over a mesh.

    Args:
        tree: tree of `PartitionSpec` objects with logical names, such as the result of
            `get_partition_spec`.
        mesh: the mesh.
        rules: (logical name, mesh axes) pairs, where the mesh axes are one name, a tuple of names,
            or None. Earlier pairs take precedence. If `rules` is None, the current rules are used.

    Returns:
        A tree of `NamedSharding` objects.

    >>> import toile.linen as nn
    >>> from toile.sharding import Mesh, PartitionSpec
    >>> mesh = Mesh(toile.devices()[:1], ("model",))
    >>> tree = {"kernel": PartitionSpec("embed", "mlp")}
    >>> nn.logical_to_mesh_sharding(tree, mesh, (("mlp", "model"),))["kernel"].spec
    P(None, 'model')
    """
    specs = logical_to_mesh(tree, rules)
    return tree_map(lambda x: NamedSharding(mesh, x), specs, is_leaf=_is_spec)


class RulesFallback(enum.Enum):
    """Ways in which a constraint can handle a logical name that no rule matches.

    `AXIS_IS_UNSHARDED` does not split the axis, `RAISE_ERROR` raises a ValueError, and
    `NO_CONSTRAINT` does not constrain the value at all.
    """

    AXIS_IS_UNSHARDED = "axis_is_unsharded"
    RAISE_ERROR = "raise_error"
    NO_CONSTRAINT = "no_constraint"


def _with_sharding_constraint(x: Any, spec: PartitionSpec | None, mesh: Mesh | None = None) -> Any:
    """Shard a value if there is a mesh; otherwise, return it unchanged."""
    if mesh is None and not meta.global_mesh_defined():
        return x
    if mesh is not None and spec is not None:
        return with_sharding_constraint(x, NamedSharding(mesh, spec))
    return with_sharding_constraint(x, spec)


def _constrain_by_names(
    names: Any, x: Any, fallback: RulesFallback, rules: LogicalRules | None, mesh: Mesh | None
) -> Any:
    found = _assign(names, rules)
    if found is None:
        return _with_sharding_constraint(x, None, mesh=mesh)
    if fallback != RulesFallback.AXIS_IS_UNSHARDED and any(a is _unassigned for a in found):
        if fallback == RulesFallback.RAISE_ERROR:
            raise ValueError(f"Axis names {names} did not match a rule{here()}")
        return x
    spec = PartitionSpec(*(None if a is _unassigned else a for a in found))
    return _with_sharding_constraint(x, spec, mesh=mesh)


def is_logical_spec(x: Any) -> bool:
    """Return whether `x` describes one array: None, or a tuple or `PartitionSpec` of axis names."""
    return x is None or (
        isinstance(x, tuple | PartitionSpec)
        and all(a is None or isinstance(a, str) or a is PartitionSpec.UNCONSTRAINED for a in x)
    )


def with_logical_constraint(
    x: PyTree,
    logical_axis_resources: PyTree,
    rules: LogicalRules | None = None,
    mesh: Mesh | None = None,
    fallback: RulesFallback = RulesFallback.AXIS_IS_UNSHARDED,
) -> PyTree:
    """Constrain how arrays inside a model are split over a mesh, using logical names of their axes.

    If there are no rules or no mesh, or if the names are None, the arrays are returned unchanged.

    Args:
        x: tree of arrays.
        logical_axis_resources: logical names of the axes: a tree of tuples or `PartitionSpec`
            objects. The structure of this tree must be a prefix of the structure of `x`.
        rules: (logical name, mesh axes) pairs, where the mesh axes are one name, a tuple of names,
            or None. Earlier pairs take precedence. If `rules` is None, the current rules are used.
        mesh: the mesh; None for the current mesh.
        fallback: how to handle a name that no rule matches; one of
            `toile.linen.spmd.RulesFallback`.

    Returns:
        A tree with the same values as `x`.

    >>> import toile.linen as nn
    >>> with nn.logical_axis_rules((("batch", "data"),)):
    ...     nn.with_logical_constraint(jnp.ones((2, 3)), ("batch", "embed"))
    Array([[1., 1., 1.],
           [1., 1., 1.]], dtype=float32)
    """
    rules = get_logical_axis_rules() if rules is None else rules
    if not rules or logical_axis_resources is None:
        return x
    constrain = functools.partial(_constrain_by_names, fallback=fallback, rules=rules, mesh=mesh)
    return tree_map(constrain, logical_axis_resources, x, is_leaf=is_logical_spec)


class LogicallyPartitioned(meta.Partitioned):
    """A box that contains an array and a logical name for each axis.

    Initializers wrapped by `with_logical_partitioning` create such boxes, and `get_partition_spec`
    reads the names from them. Modules see only the array.

    Args:
        value: the array.
        names: for each axis, its logical name, or None for an axis that is not split.
        mesh: mesh over which the array is split; None for the current mesh.
        rules: (logical name, mesh axes) pairs, where the mesh axes are one name, a tuple of names,
            or None. Earlier pairs take precedence. If `rules` is None, the current rules are used.

    >>> import toile.linen as nn
    >>> box = nn.LogicallyPartitioned(jnp.ones((2, 3)), ("embed", "mlp"))
    >>> nn.logical_to_mesh(nn.get_partition_spec(box), (("mlp", "model"),))
    P(None, 'model')
    """

    rules: LogicalRules | None = struct.field(default=None, pytree_node=False)

    def __eq__(self, other: Any) -> Any:
        if self is other:
            return True
        if other.__class__ is self.__class__:
            return (self.value,) == (other.value,)  # in tuples, the same array is equal to itself
        return NotImplemented

    def unbox(self, apply_constraint: bool = True) -> Any:
        """Return the array; if there is a mesh, constrain the array's sharding.

        Args:
            apply_constraint: whether to apply the constraint.

        Returns:
            The array.
        """
        if not apply_constraint or (self.mesh is None and not meta.global_mesh_defined()):
            return self.value
        spec = self.get_partition_spec()
        return with_logical_constraint(self.value, spec, rules=self.rules, mesh=self.mesh)

    def to_nnx_metadata(self) -> dict[str, Any]:
        """Return a dict of the box's fields under the names that Flax's NNX uses."""
        metadata = dict(vars(self))
        metadata["out_sharding"] = metadata.pop("names")
        metadata["sharding_rules"] = metadata.pop("rules")
        return metadata

    @classmethod
    def from_nnx_metadata(cls, metadata: dict[str, Any]) -> LogicallyPartitioned:
        """Create a box from a dict of fields under NNX's names; unknown entries are ignored."""
        fields = {f.name for f in dataclasses.fields(cls)}
        renamed = {"out_sharding": "names", "sharding_rules": "rules"}
        given = {renamed.get(k, k): v for k, v in metadata.items()}
        return cls(**{k: v for k, v in given.items() if k in fields})


def with_logical_partitioning(
    fn: Callable[..., Any],
    names: LogicalNames,
    mesh: Mesh | None = None,
    rules: LogicalRules | None = None,
) -> Callable[..., LogicallyPartitioned]:
    """Wrap an initializer so that it returns its arrays in `LogicallyPartitioned` boxes.

    Args:
        fn: the initializer.
        names: for each axis, its logical name, or None for an axis that is not split.
        mesh: mesh over which the arrays are split; None for the current mesh.
        rules: (logical name, mesh axes) pairs, as in `logical_to_mesh_axes`; if None, the current
            rules are used.

    Returns:
        An initializer that takes the same arguments as `fn`.

    >>> import toile.linen as nn
    >>> init = nn.with_logical_partitioning(nn.initializers.ones, (None, "data"))
    >>> init(key(0), (2, 3)).names
    (None, 'data')
    """

    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> LogicallyPartitioned:
        return LogicallyPartitioned(fn(*args, **kwargs), names, mesh=mesh, rules=rules)

    return wrapper
