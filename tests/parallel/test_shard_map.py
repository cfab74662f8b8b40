"""shard_map over a mesh of devices: numbers, shardings and derivatives."""

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from toile.sharding import AbstractMesh, AxisType, NamedSharding
from toile.sharding import PartitionSpec as P

A = np.arange(8 * 6.0, dtype=np.float32).reshape(8, 6)
W = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)


def grid(shape=(4, 2), names=("x", "y")):
    return toile.make_mesh(shape, names, axis_types=(AxisType.Auto,) * len(shape))


# build(lax): function; in_specs, out_specs, arguments
MAPS = {
    "shift": (lambda lax: lambda p: p + lax.axis_index("x") * 10 + lax.axis_index("y"),
              P("x", "y"), P("x", "y"), (A,)),
    "psum_x": (lambda lax: lambda p: lax.psum(p, "x"), P("x", "y"), P(None, "y"), (A,)),
    "psum_both": (lambda lax: lambda p: lax.psum(p.sum(), ("x", "y")), P("x", "y"), P(), (A,)),
    "mixed": (lambda lax: lambda p, w: lax.psum(p @ w, "y"), (P("x", "y"), P("y")), P("x"), (A, W)),
    "gather": (lambda lax: lambda p: lax.all_gather(p, "x", tiled=True),
               P("x", "y"), P(None, "y"), (A,)),
    "scatter": (lambda lax: lambda p: lax.psum_scatter(p, "x", tiled=True),
                P(None, "y"), P("x", "y"), (A,)),
    "permute": (lambda lax: lambda p: lax.ppermute(p, "x", [(i, (i + 1) % 4) for i in range(4)]),
                P("x"), P("x"), (A,)),
    "moved": (lambda lax: lambda p: p, P("x"), P(None, "x"), (A,)),
    "joined": (lambda lax: lambda p: p * 2, P(("y", "x")), P(("y", "x")), (A,)),
    "replicated": (lambda lax: lambda p: p + 1, P(), P(), (A,)),
    "to_all": (lambda lax: lambda p: lax.all_to_all(p, "y", 1, 0, tiled=True),
               P(("x", "y")), P("x", "y"), (A,)),
}


@pytest.mark.parametrize("name", MAPS)
def test_devices_agree_with_an_abstract_mesh(name):
    """The other one computes with arrays that have an axis for each mesh axis."""
    build, ins, outs, args = MAPS[name]
    results, grads = [], []
    mesh = grid()
    for each in (mesh, AbstractMesh((4, 2), ("x", "y"))):
        f = toile.shard_map(build(toile.lax), mesh=each, in_specs=ins, out_specs=outs,
                            check_vma=False)
        results.append(f(*args))
        results.append(toile.jit(f)(*args))
        grads.append(toile.grad(lambda *a, f=f: (f(*a) ** 2).sum())(*args))
    for r in results[1:]:
        np.testing.assert_allclose(r, results[0], rtol=1e-5)
    np.testing.assert_allclose(*grads, rtol=1e-5)
    wanted = NamedSharding(mesh, outs)
    for r in results[:2]:
        assert r.sharding.is_equivalent_to(wanted, r.ndim)


def test_collectives_over_two_names():
    """Their devices count in the order of the names, whichever axis is gathered or divided."""
    x, both, lax = np.arange(64, dtype=np.float32).reshape(8, 8), ("x", "y"), toile.lax
    for f, ins, outs, wanted in (
        (lambda p: lax.all_gather(p, both, axis=1, tiled=True), P(None, both), P(), x),
        (lambda p: lax.all_gather(p, both, axis=-1, tiled=True), P(None, both), P(), x),
        (lambda p: lax.all_gather(p, both, axis=1), P(both), P(), x.reshape(8, 8)[None]),
        (lambda p: lax.psum_scatter(p, both, scatter_dimension=1, tiled=True), P(), P(None, both),
         8 * x),
        (lambda p: lax.psum_scatter(p, both, scatter_dimension=1), P(), P(both), (8 * x).T.ravel()),
    ):
        for mesh in (grid(), AbstractMesh((4, 2), both)):
            run = toile.shard_map(f, mesh=mesh, in_specs=ins, out_specs=outs, check_vma=False)
            np.testing.assert_array_equal(run(x), wanted)
    with pytest.raises(ValueError, match="psum_scatter: needed size 8, the size of "):
        toile.shard_map(lambda p: lax.psum_scatter(p, both), mesh=grid(), in_specs=P(),
                        out_specs=P(both))(x[:4])


def test_checks_of_replicas():
    mesh = grid()
    with pytest.raises(ValueError, match="replicated over mesh axis 'x'"):
        toile.shard_map(lambda p: p, mesh=mesh, in_specs=P("x"), out_specs=P())(A)
    with pytest.raises(ValueError, match="replicated over mesh axis 'y'"):
        toile.shard_map(lambda p: toile.lax.psum(p, "x"), mesh=mesh, in_specs=P("x", "y"),
                        out_specs=P())(A)
    with pytest.raises(ValueError, match="divisible by 4"):
        toile.shard_map(lambda p: p, mesh=mesh, in_specs=P("x"), out_specs=P("x"))(A[:6])

    def loop(p):
        return toile.lax.fori_loop(0, 3, lambda _, c: toile.lax.pmean(c, "x"), p)

    f = toile.shard_map(lambda p: toile.lax.pmean(loop(p), "x"), mesh=mesh, in_specs=P("x"),
                        out_specs=P())
    np.testing.assert_allclose(f(A), A.reshape(4, 2, 6).mean(0), rtol=1e-6)


def test_some_axes_only():
    mesh = grid()
    f = toile.shard_map(lambda p: toile.lax.psum(p, "x"), mesh=mesh, in_specs=P("x"),
                        out_specs=P(), axis_names={"x"})
    out = f(A)
    np.testing.assert_allclose(out, A.reshape(4, 2, 6).sum(0))
    assert out.devices() == set(mesh.devices.flat)
    put = toile.device_put(A, NamedSharding(mesh, P("x", "y")))
    np.testing.assert_allclose(f(put), out)


def test_traced_once_and_without_copies():
    traces = []
    mesh = grid((8,), ("x",))

    @toile.shard_map(mesh=mesh, in_specs=P("x"), out_specs=P("x"))
    def f(p):
        traces.append(1)
        return jnp.tanh(p)

    x = f(A)
    y = f(x)
    f(y)
    assert len(traces) == 1 and x.sharding == NamedSharding(mesh, P("x"))
    assert all(s.data.shape == (1, 6) for s in y.addressable_shards)


def test_own_shardings_of_the_arguments():
    mesh = grid((4,), ("x",))
    x = toile.device_put(A, NamedSharding(mesh, P("x")))
    with toile.set_mesh(mesh):
        f = toile.shard_map(lambda p: toile.lax.psum(p, "x"), out_specs=P())
        np.testing.assert_allclose(f(x), A.reshape(4, 2, 6).sum(0))
        g = toile.smap(lambda p: p * 2, in_axes=0, out_axes=0, axis_name="x")
        np.testing.assert_allclose(g(A), 2 * A)


def test_vmap_and_second_derivatives():
    mesh = grid((4,), ("x",))
    f = toile.shard_map(lambda p: toile.lax.psum(jnp.sin(p), "x"), mesh=mesh, in_specs=P("x"),
                        out_specs=P())
    batch = np.stack([A, A + 1])
    np.testing.assert_allclose(toile.vmap(f)(batch), np.stack([f(a) for a in batch]), rtol=1e-5)
    x = A[:4, 0]
    hessian = toile.hessian(lambda v: f(v).sum())(x)
    np.testing.assert_allclose(hessian, np.diag(-np.sin(x)), atol=1e-5)


# ------------------------------------------------------------- derivatives inside, with check_vma

lax = toile.lax
X = np.arange(8.0, dtype=np.float32) + 1


def train(w, x):
    def body(w, _):
        g = toile.grad(lambda w: lax.pmean(((w * x) ** 2).mean(), "x"))(w)
        return w - 0.01 * g, g

    return lax.scan(body, w, None, length=3)[0]


def gradient(loss):
    """The gradient with respect to w, which all devices have alike, of a function of w and x."""
    return lambda w, x: toile.grad(lambda w: loss(w, x))(w)


# name: (function of w and x, spec of the result, what JAX 0.10.2 gives for w = 3 on 4 devices)
INSIDE = {
    "psum_by_x": (lambda w, x: toile.grad(lambda x: lax.psum((x**2).sum(), "x"))(x), P("x"), 2 * X),
    "local_by_x": (lambda w, x: toile.grad(lambda x: (x**2).sum())(x), P("x"), 2 * X),
    "local": (gradient(lambda w, x: (w * x).sum()), P(), 36.0),
    "pmean": (gradient(lambda w, x: lax.pmean((w * x).sum(), "x")), P(), 9.0),
    "pcast": (lambda w, x: gradient(lambda w, x: (w * x).sum())(
        lax.pcast(w, "x", to="varying"), x)[None], P("x"), [3.0, 7.0, 11.0, 15.0]),
    "pvary_and_psum": (lambda w, x: lax.psum(gradient(lambda w, x: (w * x).sum())(
        lax.pvary(w, "x"), x), "x"), P(), 36.0),
    "no_x": (gradient(lambda w, x: w**2), P(), 6.0),
    "jit": (lambda w, x: toile.jit(gradient(lambda w, x: lax.pmean((w * x).sum(), "x")))(w, x),
            P(), 9.0),
    "scan": (gradient(lambda w, x: lax.scan(
        lambda c, _: (c * 0.5 + lax.pmean((w * x).sum(), "x"), None), 0.0 * w, None, length=3)[0]),
        P(), 15.75),
    "in_scan": (train, P(), 0.352947),
    "vjp": (lambda w, x: toile.vjp(lambda w: lax.psum(w * x, "x"), w)[1](jnp.ones(2))[0],
            P(), 36.0),
    "index": (gradient(lambda w, x: w * lax.axis_index("x")), P(), 6.0),
    "second": (lambda w, x: toile.grad(toile.grad(
        lambda w: lax.psum(((w * x) ** 3).sum(), "x")))(w), P(), 23328.0),
    "aux": (lambda w, x: toile.value_and_grad(
        lambda w: (lax.pmean((w * x).sum(), "x"), x), has_aux=True)(w)[1], P(), 9.0),
    "custom": (gradient(lambda w, x: lax.pmean(toile.nn.relu(w * x - 5).sum(), "x")), P(), 8.75),
    "gather": (lambda w, x: toile.grad(lambda x: lax.all_gather(x**2, "x").sum())(x),
               P("x"), 8 * X),
    "cond": (gradient(lambda w, x: lax.cond(
        w > 0, lambda w: lax.pmean((w * x).sum(), "x"), lambda w: w * 2, w)), P(), 9.0),
    "vmap": (lambda w, x: toile.vmap(toile.grad(lambda w: lax.pmean((w * x).sum(), "x")))(
        jnp.stack([w, w * 2])), P(), [9.0, 9.0]),
    "remat": (gradient(lambda w, x: lax.pmean(
        toile.checkpoint(lambda w: jnp.sin(w * x))(w).sum(), "x")), P(), 0.3238),
}


@pytest.mark.parametrize("name", INSIDE)
def test_values_that_all_devices_have_alike_count_once(name):
    f, spec, wanted = INSIDE[name]
    mapped = toile.shard_map(f, mesh=grid((4,), ("x",)), in_specs=(P(), P("x")), out_specs=spec)
    np.testing.assert_allclose(mapped(np.float32(3.0), X), wanted, rtol=1e-4)


def test_without_the_check_each_device_counts():
    f = toile.shard_map(toile.grad(lambda x: lax.psum((x**2).sum(), "x")),
                        mesh=grid((4,), ("x",)), in_specs=P("x"), out_specs=P("x"), check_vma=False)
    np.testing.assert_allclose(f(X), 8 * X)
