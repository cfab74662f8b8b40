"""Boxes around variables that say something about their axes, such as the mesh axis of each.

A box is a tree node whose child is its value. Lifted transformations that add or remove an axis of
a variable tell the box; modules see what is in it. `Partitioned` names mesh axes.
"""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast

from toile import errors, struct
from toile.engine import trees
from toile.engine.source import here
from toile.lax import with_sharding_constraint
from toile.sharding import (
    AbstractMesh,
    Mesh,
    NamedSharding,
    PartitionSpec,
    Sharding,
    get_abstract_mesh,
)

A = TypeVar("A")
B = TypeVar("B")
TAxisMetadata = TypeVar("TAxisMetadata", bound="AxisMetadata[Any]")
LogicalNames = tuple[str | None, ...]

PARTITION_NAME = "partition_name"


class AxisMetadata(Generic[A], metaclass=abc.ABCMeta):
    """Base of boxes; a subclass is registered as a tree node whose child is the value in it."""

    @abc.abstractmethod
    def unbox(self) -> A:
        """What is in this box, which may be a box again."""

    @abc.abstractmethod
    def replace_boxed(self, val: B) -> AxisMetadata[B]:
        """The same box around another value."""

    @abc.abstractmethod
    def add_axis(self: TAxisMetadata, index: int, params: dict[Any, Any]) -> TAxisMetadata:
        """The box after its value got a new axis at `index`; the inverse of `remove_axis`.

        `params` are the `metadata_params` of the transformation that adds the axis.
        """

    @abc.abstractmethod
    def remove_axis(self: TAxisMetadata, index: int, params: dict[Any, Any]) -> TAxisMetadata:
        """The box after the axis at `index` was taken from its value."""


def is_axis_metadata(val: Any) -> bool:
    """Whether a value is a box."""
    return isinstance(val, AxisMetadata)


def map_axis_meta(fn: Callable[[AxisMetadata[Any]], Any], tree: Any) -> Any:
    """The tree with fn(box) in place of each box."""
    if isinstance(tree, AxisMetadata):
        return fn(tree)
    if trees.is_leaf_tree(tree):  # a single array, as in most parameters
        return tree
    return trees.tree_map(
        lambda x: fn(x) if isinstance(x, AxisMetadata) else x, tree, is_leaf=is_axis_metadata
    )


def add_axis(tree: Any, index: int, params: dict[Any, Any]) -> Any:
    """The tree with an axis added to each box."""
    return map_axis_meta(lambda box: box.add_axis(index, params), tree)


def remove_axis(tree: Any, index: int, params: dict[Any, Any]) -> Any:
    """The tree with an axis removed from each box."""
    return map_axis_meta(lambda box: box.remove_axis(index, params), tree)


def unbox(tree: Any) -> Any:
    """The tree with every box, and every box in a box, replaced by what is in it."""
    return map_axis_meta(lambda box: unbox(box.unbox()), tree)


def replace_boxed(tree: Any, updates: Any) -> Any:
    """The values of `updates` in the boxes that `tree` has at the same places."""

    def update(old: Any, new: Any) -> Any:
        if isinstance(old, AxisMetadata):
            return old.replace_boxed(replace_boxed(old.unbox(), new))
        return new

    return trees.tree_map(update, tree, updates, is_leaf=is_axis_metadata)


def get_global_mesh() -> AbstractMesh | Mesh | None:
    """The mesh in force, or None."""
    mesh = get_abstract_mesh()
    return None if mesh.empty else mesh


def global_mesh_defined() -> bool:
    """Whether a mesh is in force."""
    return get_global_mesh() is not None


class Partitioned(struct.PyTreeNode, AxisMetadata[A]):
    """A value with the name of the mesh axis that each of its axes is split along, or None.

    Initializers wrapped by `with_partitioning` make such boxes; `get_partition_spec` reads them
    from variables. Under `nn.vmap` and `nn.scan` the new axis is called what
    `metadata_params={nn.PARTITION_NAME: ...}` says.

    Example::

        >>> import toile.numpy as jnp
        >>> box = Partitioned(jnp.ones((2, 3)), names=(None, "model"))
        >>> box.get_partition_spec()
        P(None, 'model')
        >>> box.add_axis(0, {PARTITION_NAME: "layers"}).names
        ('layers', None, 'model')
    """

    value: Any
    names: LogicalNames = struct.field(pytree_node=False)
    mesh: Mesh | None = struct.field(default=None, pytree_node=False)

    def unbox(self, apply_constraint: bool = True) -> A:
        """The value, constrained to its sharding where there is a mesh."""
        if not apply_constraint or (self.mesh is None and not global_mesh_defined()):
            return self.value
        spec = self.get_partition_spec()
        sharding = spec if self.mesh is None else NamedSharding(self.mesh, spec)
        return with_sharding_constraint(self.value, sharding)

    def replace_boxed(self, val: B) -> Partitioned[B]:
        """The same names around another value."""
        return cast("Partitioned[B]", self.replace(value=val))

    def _new_name(self, params: dict[Any, Any]) -> Any:
        if PARTITION_NAME not in params:
            raise errors.PartitioningUnspecifiedError(self)
        return params[PARTITION_NAME]

    def add_axis(self, index: int, params: dict[Any, Any]) -> Partitioned[A]:
        """The box with the name of a new axis at `index`; axes without names before it get None."""
        name, names = self._new_name(params), list(self.names)
        names += [None] * (index - len(names))
        names.insert(index, name)
        return self.replace(names=tuple(names))

    def remove_axis(self, index: int, params: dict[Any, Any]) -> Partitioned[A]:
        """The box without the name at `index`, which has to be the one that was added."""
        name, names = self._new_name(params), list(self.names)
        removed = names.pop(index)
        if removed != name:
            raise AssertionError(
                f"remove_axis: needed axis {index} of {self.names} to be named {name!r}, got"
                f" {removed!r} (use the metadata_params the axis was added with){here()}"
            )
        return self.replace(names=tuple(names))

    def get_partition_spec(self) -> PartitionSpec:
        """The names as a PartitionSpec."""
        return PartitionSpec(*self.names)

    def get_sharding(self, mesh: Mesh) -> Sharding:
        """The names as a sharding on `mesh`."""
        return NamedSharding(mesh, self.get_partition_spec())


def with_partitioning(
    fn: Callable[..., Any], names: LogicalNames, mesh: Mesh | None = None
) -> Callable[..., Partitioned[Any]]:
    """An initializer whose values come in Partitioned boxes with these names."""

    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Partitioned[Any]:
        return Partitioned(fn(*args, **kwargs), names, mesh=mesh)

    return wrapper


def _spec(x: Any) -> PartitionSpec | None:
    if hasattr(x, "get_partition_spec"):
        return x.get_partition_spec()
    return PartitionSpec() if hasattr(x, "shape") else None  # arrays without a box: everywhere


def get_partition_spec(tree: Any) -> Any:
    """The tree of PartitionSpecs of a tree of boxes and arrays; None for anything else."""
    return trees.tree_map(_spec, tree, is_leaf=is_axis_metadata)


def get_sharding(tree: Any, mesh: Mesh) -> Any:
    """The tree of shardings on `mesh` of a tree of boxes and arrays; None for anything else."""

    def sharding(x: Any) -> Sharding | None:
        if hasattr(x, "get_sharding"):
            return x.get_sharding(mesh)
        spec = _spec(x)
        return None if spec is None else NamedSharding(mesh, spec)

    return trees.tree_map(sharding, tree, is_leaf=is_axis_metadata)
