"""pmap and shard_map: one device now, so a mapped axis of size one, and collectives over it."""

import jax
import numpy as np
import pytest

import toile
import toile.numpy as jnp
from toile.sharding import AbstractMesh, AxisType
from toile.sharding import PartitionSpec as P

X = np.arange(6.0, dtype=np.float32).reshape(1, 6)
N = len(toile.devices())

SAME = {
    "plain": (lambda lib: lambda x: x + 1, {}, (X,)),
    "broadcast": (lambda lib: lambda x, y: x + y, {"in_axes": (0, None)}, (X, X[0])),
    "constant": (lambda lib: lambda x: 3, {"out_axes": None}, (X,)),
    "first": (lambda lib: lambda x: x, {"out_axes": None}, (X,)),
    "static": (lambda lib: lambda x, n: x * n, {"static_broadcasted_argnums": 1}, (X, 3)),
    "static_last": (
        lambda lib: lambda x, y, n: x * n + y,
        {"in_axes": (0, None), "static_broadcasted_argnums": 2}, (X, 1.0, 3),
    ),
    "static_first": (
        lambda lib: lambda n, t, y: t["a"] * n + t["b"] + y,
        {"in_axes": (None, {"a": 0, "b": None}, 1), "static_broadcasted_argnums": (0,)},
        (3, {"a": X, "b": 2.0}, X.T),
    ),
    "static_two": (
        lambda lib: lambda x, n, y, m: x * n + y * m,
        {"in_axes": (0, None, None), "static_broadcasted_argnums": (3, 1)}, (X, 3, X[0], 4),
    ),
    "entries_of_no_argument": (
        lambda lib: lambda x, n: x * n,
        {"in_axes": (0, None, 0, 1), "static_broadcasted_argnums": 1}, (X, 3),
    ),
    "psum": (lambda lib: lambda x: lib.lax.psum(x, "i"), {"axis_name": "i"}, (X,)),
    "pmean_tree": (
        lambda lib: lambda t: lib.lax.pmean({"a": t["a"] * 2, "b": t["b"]}, "i"),
        {"axis_name": "i"}, ({"a": X, "b": X[:, 0]},),
    ),
    "axis_index": (
        lambda lib: lambda x: x + lib.lax.axis_index("i"), {"axis_name": "i"}, (X,),
    ),
    "other_axis": (lambda lib: lambda x: x, {"in_axes": 1, "out_axes": 1}, (X.T,)),
    "gather": (lambda lib: lambda x: lib.lax.all_gather(x, "i"), {"axis_name": "i"}, (X,)),
    "grad": (
        lambda lib: lambda x: lib.grad(lambda v: (v**2).sum())(x), {"axis_name": "i"}, (X,),
    ),
}


@pytest.mark.parametrize("name", SAME)
def test_pmap_agrees_with_jax(name):
    build, options, args = SAME[name]
    mine = toile.pmap(build(toile), **options)(*args)
    other = jax.pmap(build(jax), **options)(*args)
    for a, b in zip(toile.tree.leaves(mine), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(a, b)
        assert a.shape == b.shape and a.dtype == b.dtype


@pytest.mark.parametrize("options, args", [
    ({"devices": []}, (X,)),
    ({"axis_size": 2}, (X,)),
    ({"in_axes": None}, (X,)),
    ({"axis_size": 1}, ()),
    ({"in_axes": (0, 0)}, (X,)),
    ({"in_axes": (0,)}, (X, X)),
    ({"in_axes": ({"a": 0},), "static_broadcasted_argnums": 1}, (X, 3)),
])
def test_pmap_refuses_what_jax_refuses(options, args):
    for lib in (jax, toile):
        with pytest.raises(ValueError):
            lib.pmap(lambda *xs: xs, **options)(*args)


@pytest.mark.parametrize("options", [
    {"in_axes": "a"}, {"out_axes": {"b": 1.0}}, {"in_axes": (0, "b")},
], ids=str)
def test_wrong_axes_are_refused_when_the_function_is_made(options):
    with pytest.raises(TypeError, match=f"pmap {next(iter(options))} must be an int, None, or"):
        toile.pmap(lambda x, y: x, **options)


@pytest.mark.parametrize("axes, static", [((0,), 2), ((0, None), 1), ((), 2)])
def test_an_argument_that_is_not_static_needs_its_axis(axes, static):
    for lib in (jax, toile):
        f = lib.pmap(lambda x, y, z: x, in_axes=axes, static_broadcasted_argnums=static)
        with pytest.raises(IndexError, match="tuple index out of range"):
            f(X, 3, 3)


def test_keyword_arguments_are_mapped_beside_static_ones():
    for lib in (jax, toile):
        f = lib.pmap(lambda x, n, *, y: x * n + y, in_axes=(0,), static_broadcasted_argnums=1)
        np.testing.assert_allclose(f(X, 3, y=X), 4 * X)


def test_static_arguments_are_positional():
    for lib in (jax, toile):
        f = lib.pmap(lambda x, n: x * n, static_broadcasted_argnums=1)
        with pytest.raises(ValueError, match=r"=\(1,\) but was called with only 1 positional arg"):
            f(X, n=3)


def test_more_examples_than_devices_is_an_error():
    text = rf"requires {N + 1} logical devices, but only {N}"
    with pytest.raises(ValueError, match=text):
        toile.pmap(lambda x: x)(np.ones((N + 1, 3)))
    with pytest.raises(ValueError, match="inconsistent sizes"):
        toile.pmap(lambda x, y: x + y)(np.ones((1, 3)), np.ones((2, 3)))
    with pytest.raises(TypeError, match="callable"):
        toile.pmap(3)


def test_pmap_is_traced_once_and_differentiable():
    traces = []

    @toile.pmap
    def f(x):
        traces.append(1)
        return jnp.sin(x)

    f(X)
    f(X + 1)
    assert len(traces) == 1
    np.testing.assert_allclose(toile.grad(lambda x: f(x).sum())(X), np.cos(X), rtol=1e-6)
    assert f.lower(X).out_info.shape == (1, 6)


def test_pmap_runs_the_function_without_jit():
    calls = []
    f = toile.pmap(lambda x: (calls.append(1), x + 1)[1])
    for _ in range(2):
        with toile.disable_jit():
            np.testing.assert_array_equal(f(np.ones((1, 2))), np.full((1, 2), 2.0))
    assert len(calls) == 2


def test_pmap_donates():
    x = jnp.ones((1, 3))
    toile.pmap(lambda x: x + 1, donate_argnums=0)(x)
    assert x.is_deleted()


@pytest.mark.parametrize("numbers", [0, 1, (0, 1), 5, -1], ids=str)
@pytest.mark.parametrize("positional", [0, 1, 2])
def test_pmap_donates_what_jax_donates(numbers, positional):
    """Arguments by position only, whatever the numbers say of those by keyword."""
    found = []
    for lib in (jax, toile):
        f = lib.pmap(lambda state, batch: (state + batch, batch * 2), donate_argnums=numbers)
        both = [lib.pmap(lambda x: x + 0)(X) for _ in range(2)]
        names = dict(zip(("state", "batch"), both, strict=True))
        rest = {name: names[name] for name in list(names)[positional:]}
        f(*both[:positional], **rest)
        found.append([x.is_deleted() for x in both])
        if not positional:
            np.testing.assert_array_equal(both[0] + 1, X + 1)
    assert found[0] == found[1]


# ------------------------------------------------------------------------------------ shard_map


def auto_mesh(lib, shape=(1,), names=("x",)):
    return lib.make_mesh(shape, names, axis_types=(lib.sharding.AxisType.Auto,) * len(names))


Y = np.arange(4.0, dtype=np.float32)

MAPS = {
    "psum": (lambda lib: lambda a: lib.lax.psum(a, "x"), ("x",), ()),
    "same": (lambda lib: lambda a: a * 2, ("x",), ("x",)),
    "index": (lambda lib: lambda a: a + lib.lax.axis_index("x"), ("x",), ("x",)),
    "replicated": (lambda lib: lambda a: a + 1, (), ()),
}


@pytest.mark.parametrize("name", MAPS)
def test_shard_map_agrees_with_jax(name):
    build, ins, outs = MAPS[name]
    results = []
    for lib in (toile, jax):
        spec = lib.sharding.PartitionSpec
        f = lib.shard_map(build(lib), mesh=auto_mesh(lib), in_specs=spec(*ins),
                          out_specs=spec(*outs))
        results.append(np.asarray(f(Y)))
        results.append(np.asarray(lib.jit(f)(Y)))
    for r in results[1:]:
        np.testing.assert_array_equal(results[0], r)


@pytest.mark.parametrize("build", [
    lambda lib, P: ({"in_specs": P("x"), "out_specs": P()}, lambda a: a),
    lambda lib, P: ({"in_specs": P("y"), "out_specs": P()}, lambda a: a),
    lambda lib, P: ({"in_specs": (P("x"), P()), "out_specs": P("x")}, lambda a: a),
    lambda lib, P: ({"in_specs": P("x", "x"), "out_specs": P("x")}, lambda a: a),
    lambda lib, P: ({"in_specs": P("x"), "out_specs": P("x")}, lambda a: a.sum()),
])
def test_shard_map_refuses_what_jax_refuses(build):
    for lib in (jax, toile):
        options, f = build(lib, lib.sharding.PartitionSpec)
        with pytest.raises(ValueError):
            lib.shard_map(f, mesh=auto_mesh(lib), **options)(Y)


def test_shard_map_over_sizes_that_no_machine_here_has():
    """The meaning does not depend on the devices: parts, collectives and joins are exact."""
    mesh = AbstractMesh((4, 2), ("x", "y"))
    a = np.arange(8 * 6.0).reshape(8, 6).astype(np.float32)

    def body(p):
        assert p.shape == (2, 3)
        at = toile.lax.axis_index("x") * 10 + toile.lax.axis_index("y")
        return p + at, toile.lax.psum(p, "x"), toile.lax.psum(p.sum(), ("x", "y"))

    f = toile.shard_map(body, mesh=mesh, in_specs=P("x", "y"),
                        out_specs=(P("x", "y"), P(None, "y"), P()))
    shifted, summed, total = f(a)
    blocks = np.kron(np.add.outer(10 * np.arange(4), np.arange(2)), np.ones((2, 3)))
    np.testing.assert_array_equal(shifted, a + blocks)
    np.testing.assert_array_equal(summed, a.reshape(4, 2, 6).sum(0))
    assert float(total) == a.sum()
    joined = toile.shard_map(lambda p: p, mesh=mesh, in_specs=P(("y", "x")),
                             out_specs=P(("y", "x")))(a)
    np.testing.assert_array_equal(joined, a)
    moved = toile.shard_map(lambda p: p, mesh=mesh, in_specs=P("x"), out_specs=P(None, "x"))(a)
    np.testing.assert_array_equal(moved, np.concatenate(np.split(a, 4), 1))
    with pytest.raises(ValueError, match="divisible"):
        toile.shard_map(lambda p: p, mesh=mesh, in_specs=P("x"), out_specs=P("x"))(a[:6])


def test_shard_map_contexts_and_decorator():
    with pytest.raises(ValueError, match="mesh"):
        toile.shard_map(lambda a: a, in_specs=P(), out_specs=P())(Y)
    mesh = auto_mesh(toile)
    assert mesh.axis_types == (AxisType.Auto,)

    @toile.shard_map(mesh=mesh, in_specs=P("x"), out_specs=P("x"))
    def double(a):
        return 2 * a

    np.testing.assert_array_equal(double(Y), 2 * Y)
    with toile.set_mesh(mesh):
        f = toile.smap(lambda a: a * 3, in_axes=0, out_axes=0, axis_name="x")
        np.testing.assert_array_equal(f(Y), 3 * Y)
    loose = toile.shard_map(lambda a: a, mesh=mesh, in_specs=P("x"), out_specs=P(),
                            check_vma=False)
    np.testing.assert_array_equal(loose(Y), Y)
    np.testing.assert_allclose(toile.grad(lambda a: double(a).sum())(Y), 2 * np.ones(4))
