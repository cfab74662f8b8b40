"""Every collective over the devices of all processes, against what NumPy says of all values."""

import importlib
import sys

import ml_dtypes
import numpy as np

import toile
import toile.numpy as jnp
from toile import lax, training
from toile.experimental import multihost_utils as hosts
from toile.sharding import PartitionSpec as P

toile.distributed.initialize(initialization_timeout=60)
rank, ranks = toile.process_index(), toile.process_count()
count, local = toile.device_count(), toile.local_device_count()
own = [d.id for d in toile.local_devices()]
assert ranks == int(sys.argv[1]) and count == ranks * local
assert [d.process_index for d in toile.devices()] == [i // local for i in range(count)]
assert toile.local_devices() == [d for d in toile.devices() if d.process_index == rank]
assert toile.local_devices(process_index=1)[0].process_index == 1
assert [d.local_hardware_id for d in toile.local_devices()] == list(range(local))


def values(shape, dtype=np.float32):
    """One array for each device of all processes."""
    return np.random.default_rng(0).normal(size=(count, *shape)).astype(dtype)


def check(fun, x, expected, exact=True):
    """`pmap(fun)` of this process's part gives this process's part of what is expected."""
    for _ in range(2):
        found = np.asarray(toile.pmap(fun, "i")(x[own]))
    if exact:
        np.testing.assert_array_equal(found, np.asarray(expected)[own])
    else:
        np.testing.assert_allclose(found, np.asarray(expected)[own], rtol=1e-5, atol=1e-5)


x = values((3, 2))
everywhere = np.broadcast_to
check(lambda x: lax.psum(x, "i"), x, everywhere(x.sum(0), x.shape), exact=False)
check(lambda x: lax.pmean(x, "i"), x, everywhere(x.mean(0), x.shape), exact=False)
check(lambda x: lax.pmax(x, "i"), x, everywhere(x.max(0), x.shape))
check(lambda x: lax.pmin(x, "i"), x, everywhere(x.min(0), x.shape))
check(lambda x: lax.all_gather(x, "i"), x, everywhere(x, (count, *x.shape)))
check(lambda x: lax.axis_index("i") + 0 * x.astype(int)[0, 0], x, np.arange(count))
check(lambda x: x * lax.axis_size("i"), x, x * count)
ring = [(k, (k + 1) % count) for k in range(count)]
check(lambda x: lax.ppermute(x, "i", ring), x, np.roll(x, 1, 0))
first = np.zeros_like(x)
first[0] = x[-1]
check(lambda x: lax.ppermute(x, "i", [(count - 1, 0)]), x, first)
y = values((count, 2))
check(lambda y: lax.all_to_all(y, "i", 0, 0), y, np.swapaxes(y, 0, 1))
check(lambda y: lax.psum_scatter(y, "i"), y, y.sum(0), exact=False)

# Groups: here across processes, there within them.
half = count // 2
across = [[k, k + half] for k in range(half)]
pairs = np.concatenate([x[:half] + x[half:]] * 2)
check(lambda x: lax.psum(x, "i", axis_index_groups=across), x, pairs)
if local % 2 == 0:
    within = [[k, k + 1] for k in range(0, count, 2)]
    sums = np.repeat(x[0::2] + x[1::2], 2, 0)
    check(lambda x: lax.psum(x, "i", axis_index_groups=within), x, sums)
    swapped = [[k, count - 1 - k] for k in range(half)]
    check(lambda x: lax.psum(lax.psum(x, "i", axis_index_groups=across), "i",
                             axis_index_groups=swapped), x, pairs + pairs[::-1])

# Larger than what is sent at once, of several dtypes, in one sum.
big = values((70001,))
tree = {"a": big, "b": big.astype(ml_dtypes.bfloat16), "c": np.arange(count)[:, None] + 7}
found = toile.pmap(lambda t: lax.psum(t, "i"), "i")(toile.tree.map(lambda v: v[own], tree))
np.testing.assert_allclose(found["a"][0], big.sum(0), atol=1e-5)
exact = tree["b"].astype(np.float32).sum(0).astype(ml_dtypes.bfloat16).astype(np.float32)
np.testing.assert_allclose(found["b"][0].astype(np.float32), exact, rtol=1e-2, atol=1e-2)
np.testing.assert_array_equal(found["c"][0], [7 * count + sum(range(count))])
training.check_replicas(toile.tree.map(lambda v: v[0], found))

# Derivatives: of a mapped function, and through one.
check(toile.grad(lambda x: lax.psum((x**2).sum(), "i")), x, 2 * count * x, exact=False)
whole = toile.grad(lambda x: toile.pmap(lambda x: lax.pmean(x, "i") ** 2, "i")(x).sum())(x[own])
np.testing.assert_allclose(whole, everywhere(2 * x.mean(0), x[own].shape), rtol=1e-4)
jitted = toile.jit(lambda x: toile.pmap(lambda x: lax.psum(x, "i"), "i")(x) + 1)(x[own])
np.testing.assert_allclose(jitted, everywhere(x.sum(0) + 1, x[own].shape), rtol=1e-5, atol=1e-5)
alone = toile.pmap(lambda x: lax.psum(x, "i"), "i", devices=toile.local_devices())(x[own])
np.testing.assert_allclose(alone[0], x[own].sum(0), rtol=1e-5, atol=1e-5)

# Values of processes.
assert hosts.broadcast_one_to_all({"a": np.arange(3) + rank})["a"].tolist() == [0, 1, 2]
assert hosts.broadcast_one_to_all(np.float32(rank), is_source=rank == 1) == 1
gathered = hosts.process_allgather({"r": np.full(2, rank), "x": jnp.ones((1, 2)) * rank})
assert gathered["r"].tolist() == [[r, r] for r in range(ranks)]
assert hosts.process_allgather(np.full(2, rank), tiled=True).shape == (2 * ranks,)
hosts.sync_global_devices("here")
hosts.assert_equal({"same": np.ones(3)})
for call in (lambda: hosts.assert_equal(rank), lambda: hosts.sync_global_devices(f"{rank}"),
             lambda: training.check_replicas({"w": jnp.ones(2) * rank})):
    try:
        call()
    except (AssertionError, ValueError) as error:
        assert "process 1" in str(error) or "[1" in str(error), error
    else:
        raise SystemExit("processes with different values agreed")
try:
    toile.pmap(lambda x: x)(np.ones((local + 1, 2)))
except ValueError as error:
    assert f"needed a mapped axis of size {local}" in str(error)
if count % 2 == 0:
    importlib.import_module("tests.distributed.programs.meshes")
try:
    mesh = toile.make_mesh((1, count), ("x", "y"))
    toile.shard_map(lambda x: x, mesh=mesh, in_specs=P("y"), out_specs=P("y"), axis_names={"y"})(
        jnp.ones(count))
except NotImplementedError as error:
    assert "needed all axes of a mesh" in str(error)
else:
    raise SystemExit("some axes of a mesh over processes were accepted")
print(f"rank {rank} agrees")
