"""Metadata boxes beside Flax's, on the same trees."""

import dataclasses
import types

import flax
import flax.core.meta
import jax
import numpy as np
import pytest

import toile
import toile.core.meta
from toile import errors, struct

OURS = types.SimpleNamespace(
    meta=toile.core.meta,
    struct=struct,
    tree=toile.tree,
    sharding=toile.sharding,
    errors=errors,
    core=toile.core,
    util=toile.tree_util,
    root=toile,
)
THEIRS = types.SimpleNamespace(
    meta=flax.core.meta,
    struct=flax.struct,
    tree=jax.tree,
    sharding=jax.sharding,
    errors=flax.errors,
    core=flax.core,
    util=jax.tree_util,
    root=jax,
)


def variables(lib, names=(None, "model")):
    value = np.arange(6.0).reshape(2, 3)
    return {"a": {"kernel": lib.meta.Partitioned(value, names), "bias": np.ones(3)}, "n": "text"}


def box(lib):
    return variables(lib)["a"]["kernel"]


PROGRAMS = {
    "repr": lambda lib: repr(box(lib)),
    "unbox": lambda lib: lib.meta.unbox(variables(lib)),
    "unbox twice": lambda lib: lib.meta.unbox(box(lib).replace_boxed(box(lib))),
    "unbox once": lambda lib: type(box(lib).replace_boxed(box(lib)).unbox()).__name__,
    "unbox plain": lambda lib: lib.meta.unbox(3.0),
    "replace": lambda lib: repr(
        lib.meta.replace_boxed(variables(lib), {"a": {"kernel": 1, "bias": 2}, "n": 3})
    ),
    "add": lambda lib: [
        box(lib).add_axis(i, {lib.meta.PARTITION_NAME: "layers"}).names for i in (0, 1, 2, 4, -1)
    ],
    "remove tree": lambda lib: repr(
        lib.meta.remove_axis(variables(lib, ("x", None)), 0, {lib.meta.PARTITION_NAME: "x"})
    ),
    "add tree": lambda lib: repr(
        lib.meta.add_axis(variables(lib), 0, {lib.meta.PARTITION_NAME: None})
    ),
    "remove": lambda lib: [
        box(lib).replace(names=names).remove_axis(i, {lib.meta.PARTITION_NAME: "x"}).names
        for i, names in ((0, ("x", None)), (1, ("y", "x")), (-1, ("y", None, "x")))
    ],
    "spec": lambda lib: [
        None if p is None else tuple(p)
        for p in lib.tree.leaves(
            lib.meta.get_partition_spec({**variables(lib), "count": 3}),
            is_leaf=lambda x: x is None or isinstance(x, lib.sharding.PartitionSpec),
        )
    ],
    "map": lambda lib: repr(lib.meta.map_axis_meta(lambda b: b.names, variables(lib))),
    "is": lambda lib: [lib.meta.is_axis_metadata(x) for x in (box(lib), 3, None)],
    "paths": lambda lib: [
        lib.util.keystr(path) for path, _ in lib.util.tree_leaves_with_path(variables(lib))
    ],
    "mesh": lambda lib: (lib.meta.global_mesh_defined(), lib.meta.get_global_mesh()),
    "with_partitioning": lambda lib: repr(
        lib.meta.with_partitioning(lambda *shape: np.ones(shape), ("a", None))(2, 1)
    ),
    "frozen": lambda lib: repr(lib.meta.unbox(lib.core.freeze(variables(lib)))),
}


def same(x, y):
    if isinstance(x, dict):
        return x.keys() == y.keys() and all(same(x[k], y[k]) for k in x)
    return np.array_equal(x, y) if isinstance(x, np.ndarray) else x == y


@pytest.mark.parametrize("name", PROGRAMS)
def test_same_as_flax(name):
    got, want = PROGRAMS[name](OURS), PROGRAMS[name](THEIRS)
    assert same(got, want), (got, want)


@pytest.mark.parametrize("method", ["add_axis", "remove_axis"])
def test_axis_needs_a_name(method):
    for lib in (OURS, THEIRS):
        with pytest.raises(lib.errors.PartitioningUnspecifiedError, match="partition_name"):
            getattr(box(lib), method)(0, {})


def test_removing_another_axis():
    with pytest.raises(AssertionError, match=r"axis 1 of \(None, 'model'\).*'layers', got 'model'"):
        box(OURS).remove_axis(1, {toile.core.meta.PARTITION_NAME: "layers"})


def test_meshes():
    for lib in (OURS, THEIRS):
        mesh = lib.sharding.Mesh(np.array(lib.root.devices()[:1]).reshape(1, 1), ("data", "model"))
        found = lib.meta.get_sharding({**variables(lib), "n": 3}, mesh)
        assert tuple(found["a"]["kernel"].spec) == (None, "model")
        assert tuple(found["a"]["bias"].spec) == () and found["n"] is None
        assert found["a"]["kernel"].mesh == mesh
        placed = dataclasses.replace(box(lib), mesh=mesh)
        assert np.array_equal(placed.unbox(), box(lib).value)
        assert placed.unbox(apply_constraint=False) is placed.value
        with lib.root.set_mesh(mesh):
            assert lib.meta.global_mesh_defined()
            assert np.array_equal(box(lib).unbox(), box(lib).value)


def test_box_under_transformations():
    x = toile.core.meta.Partitioned(toile.numpy.ones(3), ("model",))
    grads = toile.jit(toile.grad(lambda b: (b.unbox() ** 2).sum()))(x)
    assert grads.names == ("model",) and grads.value.tolist() == [2.0, 2.0, 2.0]


def test_abstract_base():
    with pytest.raises(TypeError):
        toile.core.meta.AxisMetadata()


def test_public_names():
    public = {
        n
        for n, v in vars(flax.core.meta).items()
        if getattr(v, "__module__", "").startswith("flax.core.meta")
    } | {"PARTITION_NAME", "TAxisMetadata"}
    missing = {n for n in public if not n.startswith("_")} - set(vars(toile.core.meta))
    assert not missing
