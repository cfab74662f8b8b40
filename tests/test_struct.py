"""Dataclasses that are trees, beside Flax's."""

import dataclasses
import pickle
import types
from typing import Any, Generic, TypeVar

import flax.struct
import jax
import pytest

import toile
from toile import struct

OURS = types.SimpleNamespace(
    struct=struct, tree=toile.tree, util=toile.tree_util, jit=toile.jit, grad=toile.grad
)
THEIRS = types.SimpleNamespace(
    struct=flax.struct, tree=jax.tree, util=jax.tree_util, jit=jax.jit, grad=jax.grad
)
T = TypeVar("T")


def point(lib, **kwargs):
    @lib.struct.dataclass(**kwargs)
    class Point:
        x: float
        y: Any = 2.0
        meta: Any = lib.struct.field(pytree_node=False, default="m", metadata={"unit": "s"})

    return Point


def node(lib, **kwargs):
    class Node(lib.struct.PyTreeNode, **kwargs):
        a: Any
        b: Any = lib.struct.field(pytree_node=False, default=0)

    return Node


def generic(lib):
    class Box(lib.struct.PyTreeNode, Generic[T]):
        value: T

    class Wide(Box[int]):
        extra: Any = 1

    return Wide


def outcome(program, lib):
    try:
        return program(lib)
    except Exception as error:
        return type(error).__name__


def paths(lib, x):
    return [(lib.util.keystr(p), v) for p, v in lib.util.tree_leaves_with_path(x)]


PROGRAMS = {
    "repr": lambda lib: repr(point(lib)(1.0)),
    "replace": lambda lib: repr(point(lib)(1.0).replace(y=5, meta="k")),
    "replace unknown": lambda lib: point(lib)(1.0).replace(z=5),
    "frozen": lambda lib: setattr(point(lib)(1.0), "x", 3),
    "not frozen": lambda lib: setattr(point(lib, frozen=False)(1.0), "x", 3),
    "kw_only": lambda lib: point(lib, kw_only=True)(1.0),
    "kw_only by name": lambda lib: repr(point(lib, kw_only=True)(x=1.0)),
    "equal": lambda lib: (lambda c: (c(1.0) == c(1.0), c(1.0) == c(2.0)))(point(lib)),
    "hash": lambda lib: (lambda c: hash(c(1.0)) == hash(c(1.0)))(point(lib)),
    "paths": lambda lib: paths(lib, {"p": point(lib)([1.0, 2.0])}),
    "map": lambda lib: repr(lib.tree.map(lambda v: 2 * v, point(lib)(1.0))),
    "static": lambda lib: (
        lambda c: lib.tree.structure(c(1.0)) == lib.tree.structure(c(1.0, meta="other"))
    )(point(lib)),
    "structure": lambda lib: str(lib.tree.structure(point(lib)(1.0))),
    "metadata": lambda lib: dict(dataclasses.fields(point(lib))[2].metadata),
    "twice": lambda lib: (lambda c: lib.struct.dataclass(c) is c)(point(lib)),
    "node": lambda lib: repr(node(lib)(1, b=2).replace(a=4)),
    "node paths": lambda lib: paths(lib, node(lib)({"k": 1})),
    "node kw_only": lambda lib: node(lib, kw_only=True)(1),
    "node frozen": lambda lib: setattr(node(lib)(1), "a", 2),
    "node thawed": lambda lib: setattr(node(lib, frozen=False)(1), "a", 2),
    "base": lambda lib: lib.struct.PyTreeNode(),
    "generic": lambda lib: (repr(generic(lib)(3)), paths(lib, generic(lib)(3))),
    "no init": lambda lib: lib.struct.dataclass(
        type("C", (), {"__annotations__": {"x": int}, "x": dataclasses.field(init=False)})
    ),
    "flag": lambda lib: (point(lib)._flax_dataclass, node(lib)._flax_dataclass),
    "grad": lambda lib: float(
        lib.jit(lib.grad(lambda p: p.x**2 * p.y))(point(lib)(3.0)).x
    ),
    "subclass": lambda lib: paths(lib, type("Plain", (point(lib),), {})(1.0))[0][0],
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_same_as_flax(name):
    assert outcome(PROGRAMS[name], OURS) == outcome(PROGRAMS[name], THEIRS)


class Picklable(struct.PyTreeNode):
    a: Any
    b: Any = struct.field(pytree_node=False, default=0)


def test_pickle_and_data_fields():
    assert pickle.loads(pickle.dumps(Picklable(1, 2))) == Picklable(1, 2)
    assert Picklable._toile_dataclass_fields == ("a",)
    assert Picklable.replace.__name__ == "replace"


def test_static_field_decides_about_retracing():
    traces = []

    @toile.jit
    def double(node):
        traces.append(1)
        return node.a * 2

    for static in (0, 0, 1):
        double(Picklable(3.0, static))
    assert len(traces) == 2
