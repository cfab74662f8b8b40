"""Meshes over the devices of all processes: shard_map, jit of sharded arguments, training.

Every process computes what one alone would and compares its own parts with it.
"""

import numpy as np

import toile
import toile.numpy as jnp
import toile.training
from toile import lax
from toile.sharding import AxisType, NamedSharding
from toile.sharding import PartitionSpec as P

if not toile.distributed.is_initialized():
    toile.distributed.initialize()
rank, count = toile.process_index(), toile.device_count()
mesh = toile.make_mesh((count // 2, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
random = np.random.default_rng(0)
a, w = (random.normal(size=s).astype("float32") for s in ((24, 12), (12, 16)))


def put(x, *spec):
    return toile.device_put(x, NamedSharding(mesh, P(*spec)))


def check(found, wanted):
    """This process's parts are those of the whole."""
    assert found.shape == wanted.shape
    for shard in found.addressable_shards:
        assert shard.device in toile.local_devices()
        part = wanted[shard.index]
        np.testing.assert_allclose(np.asarray(shard.data), part, rtol=1e-4, atol=1e-5)


x = put(a, "x", "y")
assert not x.is_fully_addressable and len(x.addressable_shards) == toile.local_device_count()
check(x, a)
try:
    np.asarray(x)
except RuntimeError as error:
    assert "non-addressable" in str(error)
else:
    raise SystemExit("an array of which one part is here was read")

# shard_map over all axes
f = toile.shard_map(lambda x: lax.psum(x * 2, "x"), mesh=mesh, in_specs=P("x", "y"),
                    out_specs=P(None, "y"))
check(f(x), (a * 2).reshape(count // 2, -1, 12).sum(0))
check(toile.jit(f)(a), (a * 2).reshape(count // 2, -1, 12).sum(0))
g = toile.shard_map(lambda x: lax.all_gather(x, ("y"), axis=1, tiled=True), mesh=mesh,
                    in_specs=P("x", "y"), out_specs=P("x"), check_vma=False)
check(g(x), a)

# jit divides the work
h = toile.jit(lambda a, w: (jnp.tanh(a @ w), (a @ w).sum()))
out, total = h(x, put(w, "y"))
check(out, np.tanh(a @ w))
np.testing.assert_allclose(float(total), (a @ w).sum(), rtol=1e-3)
whole = toile.jit(lambda x: x + 1, out_shardings=NamedSharding(mesh, P()))(x)
np.testing.assert_allclose(np.asarray(whole), a + 1, rtol=1e-6)
check(toile.jit(jnp.sin, in_shardings=NamedSharding(mesh, P("x")))(a), np.sin(a))

# each process brings its block; a step with weights that lie along "y"
block = toile.make_array_from_callback((24, 12), NamedSharding(mesh, P("x")), lambda i: a[i])
rows = NamedSharding(mesh, P("x"))
own = sorted({(s.index[0].start, s.index[0].stop) for s in block.addressable_shards})
mine = a[own[0][0] : own[-1][1]]
check(toile.make_array_from_process_local_data(rows, mine), a)
check(toile.make_array_from_process_local_data(rows, mine, (24, 12)), a)
check(toile.make_array_from_process_local_data(rows, a, (24, 12)), a)  # each takes its part
for wrong in (np.ones((5, 12)), np.ones(12)):
    try:
        toile.make_array_from_process_local_data(rows, wrong, (24, 12))
    except ValueError as error:
        assert "needed this process's block" in str(error), error
    else:
        raise AssertionError(wrong.shape)


@toile.jit
def step(w, x):
    loss, grad = toile.value_and_grad(lambda w: jnp.mean((jnp.tanh(x @ w)) ** 2))(w)
    return w - 0.1 * grad, loss


weights, plain = put(w, None, "y"), w
for _ in range(3):
    weights, loss = step(weights, block)
    with toile.default_device(toile.local_devices()[0]):
        wanted = np.tanh(a @ plain)
    np.testing.assert_allclose(float(loss), (wanted**2).mean(), rtol=1e-3)
    plain = plain - 0.1 * a.T @ (2 * wanted * (1 - wanted**2)) / wanted.size
check(weights, plain)
toile.training.check_replicas({"w": weights, "loss": loss})
