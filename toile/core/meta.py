"""Boxes, which store information about the axes of variables, such as the names of mesh axes.

A box is a tree node whose child is its value. Lifted transforms that add or remove an axis of a
variable call a method of the variable's box. Modules see the value inside the box. `Partitioned` is
a box that names mesh axes.
"""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast

from toile import errors, struct
from toile.engine import trees
from toile.engine.annotations import PyTree
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
    """Base class of boxes. A box attaches information about axes to a variable.

    A subclass must be registered as a tree node whose child is the value inside. Transforms that
    add or remove an axis of a variable call the box's `add_axis` or `remove_axis`.
    """

    @abc.abstractmethod
    def unbox(self) -> A:
        """Return the value inside this box; the value may itself be a box."""

    @abc.abstractmethod
    def replace_boxed(self, val: B) -> AxisMetadata[B]:
        """Return a box with the same information around another value."""

    @abc.abstractmethod
    def add_axis(self: TAxisMetadata, index: int, params: dict[Any, Any]) -> TAxisMetadata:
        """Return a box for a value to which an axis was added.

        Args:
            index: position of the new axis.
            params: `metadata_params` of the transform that adds the axis.
        """

    @abc.abstractmethod
    def remove_axis(self: TAxisMetadata, index: int, params: dict[Any, Any]) -> TAxisMetadata:
        """Return a box for a value from which an axis was removed: the inverse of `add_axis`.

        Args:
            index: position of the axis.
            params: `metadata_params` of the transform that removes the axis.
        """


def is_axis_metadata(val: Any) -> bool:
    """Return whether a value is a box."""
    return isinstance(val, AxisMetadata)


def map_axis_meta(fn: Callable[[AxisMetadata[Any]], Any], tree: PyTree) -> PyTree:
    """Apply a function to each box in a tree.

    Args:
        fn: function `f(box)`, where the box is, for example, an `nn.Partitioned`.
        tree: tree of arrays, some of them in boxes.

    Returns:
        A tree in which each box is replaced by `fn(box)`. Other leaves are unchanged.

    >>> import toile.linen as nn
    >>> from toile.core import map_axis_meta
    >>> tree = {"kernel": nn.Partitioned(jnp.ones((2, 3)), (None, "model")), "step": 1}
    >>> map_axis_meta(lambda box: box.names, tree)
    {'kernel': (None, 'model'), 'step': 1}
    """
    if isinstance(tree, AxisMetadata):
        return fn(tree)
    if trees.is_leaf_tree(tree):  # a single array, as most parameters are
        return tree
    return trees.tree_map(
        lambda x: fn(x) if isinstance(x, AxisMetadata) else x, tree, is_leaf=is_axis_metadata
    )


def add_axis(tree: Any, index: int, params: dict[Any, Any]) -> Any:
    """Return the tree with an axis added to each box."""
    return map_axis_meta(lambda box: box.add_axis(index, params), tree)


def remove_axis(tree: Any, index: int, params: dict[Any, Any]) -> Any:
    """Return the tree with an axis removed from each box."""
    return map_axis_meta(lambda box: box.remove_axis(index, params), tree)


def unbox(tree: PyTree) -> PyTree:
    """Replace each box in a tree with the value inside the box.

    Args:
        tree: tree of arrays, some of them inside boxes, which may be nested.

    Returns:
        The tree without boxes.

    >>> import toile.linen as nn
    >>> nn.unbox({"bias": nn.Partitioned(jnp.ones(2), ("model",))})
    {'bias': Array([1., 1.], dtype=float32)}
    """
    return map_axis_meta(lambda box: unbox(box.unbox()), tree)


def replace_boxed(tree: Any, updates: Any) -> Any:
    """Return `updates` with each value put into the box that `tree` has at the same position."""

    def update(old: Any, new: Any) -> Any:
        if isinstance(old, AxisMetadata):
            return old.replace_boxed(replace_boxed(old.unbox(), new))
        return new

    return trees.tree_map(update, tree, updates, is_leaf=is_axis_metadata)


def get_global_mesh() -> AbstractMesh | Mesh | None:
    """Return the current mesh, or None if there is none."""
    mesh = get_abstract_mesh()
    return None if mesh.empty else mesh


def global_mesh_defined() -> bool:
    """Return whether there is a current mesh."""
    return get_global_mesh() is not None


class Partitioned(struct.PyTreeNode, AxisMetadata[A]):
    """A box that contains an array and, for each axis of the array, the name of a mesh axis.

    Initializers wrapped by `with_partitioning` create such boxes, and `get_partition_spec` reads
    the names from them. Modules see only the array. In `nn.vmap` and `nn.scan`,
    `metadata_params={nn.PARTITION_NAME: ...}` names the new axis.

    Args:
        value: the array.
        names: for each axis of the array, the name of a mesh axis, or None for an axis that is not
            split.
        mesh: the mesh; None for the current mesh.

    >>> import toile.linen as nn
    >>> box = nn.Partitioned(jnp.ones((2, 3)), names=(None, "model"))
    >>> box.get_partition_spec()
    P(None, 'model')
    >>> box.add_axis(0, {nn.PARTITION_NAME: "layers"}).names
    ('layers', None, 'model')
    """

    value: Any
    names: LogicalNames = struct.field(pytree_node=False)
    mesh: Mesh | None = struct.field(default=None, pytree_node=False)

    def unbox(self, apply_constraint: bool = True) -> A:
        """Return the array; if there is a mesh, constrain the array's sharding.

        Args:
            apply_constraint: whether to apply the constraint.

        Returns:
            The array.
        """
        if not apply_constraint or (self.mesh is None and not global_mesh_defined()):
            return self.value
        spec = self.get_partition_spec()
        sharding = spec if self.mesh is None else NamedSharding(self.mesh, spec)
        return with_sharding_constraint(self.value, sharding)

    def replace_boxed(self, val: B) -> Partitioned[B]:
        """Return a box with the same names around another value."""
        return cast("Partitioned[B]", self.replace(value=val))

    def _new_name(self, params: dict[Any, Any]) -> Any:
        if PARTITION_NAME not in params:
            raise errors.PartitioningUnspecifiedError(self)
        return params[PARTITION_NAME]

    def add_axis(self, index: int, params: dict[Any, Any]) -> Partitioned[A]:
        """Return a box whose names include the name of a new axis.

        Args:
            index: position of the new axis. If the box has fewer than `index` names, None is
                inserted for each missing name.
            params: dict that contains the name under the key `PARTITION_NAME`.

        Raises:
            toile.errors.PartitioningUnspecifiedError: `params` does not contain the name.
        """
        name, names = self._new_name(params), list(self.names)
        names += [None] * (index - len(names))
        names.insert(index, name)
        return self.replace(names=tuple(names))

    def remove_axis(self, index: int, params: dict[Any, Any]) -> Partitioned[A]:
        """Return a box without the name of one axis; `params` must contain this name.

        Args:
            index: position of the axis.
            params: dict that contains the name under the key `PARTITION_NAME`.
        """
        name, names = self._new_name(params), list(self.names)
        removed = names.pop(index)
        if removed != name:
            raise AssertionError(
                f"remove_axis: needed axis {index} of {self.names} to be named {name!r}, got"
                f" {removed!r} (use the metadata_params the axis was added with){here()}"
            )
        return self.replace(names=tuple(names))

    def get_partition_spec(self) -> PartitionSpec:
        """Return the names as a `PartitionSpec`."""
        return PartitionSpec(*self.names)

    def get_sharding(self, mesh: Mesh) -> Sharding:
        """Return the sharding over `mesh` that the names describe."""
        return NamedSharding(mesh, self.get_partition_spec())


def with_partitioning(
    fn: Callable[..., Any], names: LogicalNames, mesh: Mesh | None = None
) -> Callable[..., Partitioned[Any]]:
    """Wrap an initializer so that it returns its arrays in `Partitioned` boxes.

    Args:
        fn: the initializer.
        names: for each axis of the array, the name of a mesh axis, or None for an axis that is not
            split.
        mesh: the mesh; None for the current mesh.

    Returns:
        An initializer that takes the same arguments as `fn`.

    >>> import toile.linen as nn
    >>> init = nn.with_partitioning(nn.initializers.ones, (None, "model"))
    >>> variables = nn.Dense(3, kernel_init=init).init(key(0), jnp.ones((1, 2)))
    >>> variables["params"]["kernel"].names
    (None, 'model')
    """

    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Partitioned[Any]:
        return Partitioned(fn(*args, **kwargs), names, mesh=mesh)

    return wrapper


def _spec(x: Any) -> PartitionSpec | None:
    if hasattr(x, "get_partition_spec"):
        return x.get_partition_spec()
    return PartitionSpec() if hasattr(x, "shape") else None  # arrays without a box are replicated


def get_partition_spec(tree: PyTree) -> PyTree:
    """Return the `PartitionSpec` of each array in a tree of variables.

    Args:
        tree: tree of arrays, some of them in boxes such as `nn.Partitioned`.

    Returns:
        A tree that contains a `PartitionSpec` for each box, an empty `PartitionSpec` for each
        array that is not in a box, and None for any other leaf.

    >>> import toile.linen as nn
    >>> tree = {"kernel": nn.Partitioned(jnp.ones((2, 3)), (None, "model")), "bias": jnp.ones(3)}
    >>> nn.get_partition_spec(tree)
    {'bias': P(), 'kernel': P(None, 'model')}
    """
    return trees.tree_map(_spec, tree, is_leaf=is_axis_metadata)


def get_sharding(tree: PyTree, mesh: Mesh) -> PyTree:
    """Return the sharding of each array in a tree of variables, over a given mesh.

    Args:
        tree: tree of arrays, some of them in boxes such as `nn.Partitioned`.
        mesh: the mesh.

    Returns:
        A tree that contains a sharding for each array and None for every other leaf.

    >>> import toile.linen as nn
    >>> from toile.sharding import Mesh
    >>> mesh = Mesh(toile.devices()[:1], ("model",))
    >>> nn.get_sharding(nn.Partitioned(jnp.ones((2, 3)), (None, "model")), mesh).spec
    P(None, 'model')
    """

    def sharding(x: Any) -> Sharding | None:
        if hasattr(x, "get_sharding"):
            return x.get_sharding(mesh)
        spec = _spec(x)
        return None if spec is None else NamedSharding(mesh, spec)

    return trees.tree_map(sharding, tree, is_leaf=is_axis_metadata)
