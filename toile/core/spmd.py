"""Rules that map logical axis names to mesh axes, and functions that use them to shard values.

A logical axis name, such as "batch" or "embed", describes the meaning of an axis, and a rule maps
the name to one or more mesh axes. Each thread has its own current rules.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from toile.core import meta
from toile.engine.source import here
from toile.experimental.layout import Format
from toile.lax import with_sharding_constraint
from toile.sharding import NamedSharding, PartitionSpec, reshard

AxisName = str | tuple[str, ...] | None
LogicalRules = Sequence[tuple[str, AxisName]]
Sharding = tuple[AxisName, ...]


class _Rules(threading.local):
    rules: LogicalRules = ()


_in_force = _Rules()


def set_logical_axis_rules(rules: LogicalRules) -> None:
    """Set the current thread's rules, which map logical axis names to mesh axes.

    Args:
        rules: (logical name, mesh axes) pairs, where the mesh axes are one name, a tuple of names,
            or None. Earlier pairs take precedence.

    >>> import toile.linen as nn
    >>> nn.set_logical_axis_rules((("batch", "data"),))
    >>> nn.get_logical_axis_rules()
    (('batch', 'data'),)
    >>> nn.set_logical_axis_rules(())
    """
    _in_force.rules = rules


def get_logical_axis_rules() -> LogicalRules:
    """Return the current rules that map logical axis names to mesh axes.

    Returns:
        The (logical name, mesh axes) pairs, where the mesh axes are one name, a tuple of names, or
        None. If no rules are set, the result is empty.

    >>> import toile.linen as nn
    >>> nn.get_logical_axis_rules()
    ()
    """
    return _in_force.rules


@contextlib.contextmanager
def logical_axis_rules(rules: LogicalRules) -> Iterator[None]:
    """Set the rules that map logical axis names to mesh axes for the duration of a `with` block.

    Args:
        rules: (logical name, mesh axes) pairs, where the mesh axes are one name, a tuple of names,
            or None. Earlier pairs take precedence.

    Yields:
        None.

    >>> import toile.linen as nn
    >>> with nn.logical_axis_rules((("batch", "data"),)):
    ...     nn.logical_to_mesh_axes(("batch", "length"))
    P('data', None)
    """
    before = _in_force.rules
    _in_force.rules = rules
    try:
        yield
    finally:
        _in_force.rules = before


def composite_rules(rule1: LogicalRules | None, rule2: LogicalRules | None) -> LogicalRules:
    """The union of two sets of rules, which must not contradict each other."""
    if not rule1 or not rule2:
        return rule1 or rule2 or ()
    rules = dict(rule1)
    for alias, value in rule2:
        if rules.setdefault(alias, value) != value:
            raise ValueError(
                f"Inconsistent logical axis annotations for {alias}: {rules[alias]} vs {value}"
                f"{here()}"
            )
    return tuple(rules.items())


def map_sharding(f: Callable[[Any], Any], sharding: Any) -> Any:
    """Apply `f` to each axis of a PartitionSpec, a tuple, a NamedSharding or a Format."""
    if isinstance(sharding, PartitionSpec | tuple):
        return PartitionSpec(*map(f, sharding))
    if isinstance(sharding, NamedSharding):
        return NamedSharding(sharding.mesh, map_sharding(f, sharding.spec))
    if isinstance(sharding, Format):
        return Format(sharding.layout, map_sharding(f, sharding.sharding))
    return None


def get_mesh(sharding: Any) -> Any:
    """The mesh of a NamedSharding, or of a Format that contains one; None for axis names."""
    if isinstance(sharding, Format):
        return get_mesh(sharding.sharding)
    return sharding.mesh if isinstance(sharding, NamedSharding) else None


def apply_rules(sharding: Any, sharding_rules: LogicalRules | None) -> Any:
    """The sharding with its axes renamed by the current rules and the given rules."""
    rules = dict(composite_rules(get_logical_axis_rules(), sharding_rules))
    return map_sharding(lambda axis: rules.get(axis, axis), sharding)


def get_pspec(sharding: Any, sharding_rules: LogicalRules | None = None) -> PartitionSpec:
    """The axes of a sharding, renamed by the rules, as a PartitionSpec of mesh axes."""
    return apply_rules(sharding, sharding_rules)


def from_sharding_rules(sharding: Sharding, sharding_rules: LogicalRules) -> Sharding:
    """A tuple of axis names, renamed by the given rules only."""
    rules = dict(sharding_rules)
    return tuple(rules[str(s)] if s and str(s) in rules else s for s in sharding)


def shard_value(
    value: Any, out_sharding: Any, sharding_rules: LogicalRules | None, mesh: Any
) -> Any:
    """A value sharded by the names of its axes over the given mesh or the current mesh."""
    if not out_sharding:
        return value
    mesh = meta.get_global_mesh() if mesh is None else mesh
    out_sharding = apply_rules(out_sharding, sharding_rules)
    own = get_mesh(out_sharding)
    if own:
        assert not mesh or mesh == own, f"shard_value: needed one mesh, got {mesh} and {own}"
        mesh = own
    if mesh is None:
        raise ValueError(
            "An auto mesh context or metadata is required if creating a variable with annotation "
            f"{out_sharding=} (use toile.set_mesh, or name the mesh in the metadata){here()}"
        )
    if isinstance(out_sharding, PartitionSpec):
        out_sharding = NamedSharding(mesh, out_sharding)
    if isinstance(out_sharding, Format) or mesh.are_all_axes_auto:
        return with_sharding_constraint(value, out_sharding)
    if mesh.are_all_axes_explicit:
        return reshard(value, out_sharding)
    raise ValueError(
        "Mesh must have all axes as Explicit or all axes as Auto. Got mixed axis types: "
        f"{mesh.axis_types}{here()}"
    )
