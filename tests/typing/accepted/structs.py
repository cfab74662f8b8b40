"""Dataclasses that are trees."""
import toile
import toile.numpy as jnp
from toile import Array, struct


class Point(struct.PyTreeNode):
    """A point with a label that is not traced."""
    x: Array
    y: Array
    label: str = struct.field(pytree_node=False, default="")

point = Point(jnp.zeros(2), jnp.ones(2), label="a")
moved = point.replace(x=point.x + 1)
norm = toile.jit(lambda p: jnp.sqrt(p.x**2 + p.y**2))(moved)
label: str = moved.label


@struct.dataclass
class Pair:
    """The same, by a decorator."""
    first: Array
    second: Array


pair = Pair(first=norm, second=norm)
