"""Indices out of bounds are reported where a program is divided among devices, too."""

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from toile.engine.out_of_bounds import forget_places
from toile.errors import OutOfBoundsWarning
from toile.sharding import Mesh, NamedSharding
from toile.sharding import PartitionSpec as P

pytestmark = pytest.mark.cpu  # a GPU reports later
X = np.arange(16, dtype=np.float32).reshape(8, 2)
GOOD, BAD = np.array([0, 1, 2, -3, 4, 5, 6, 7]), np.array([0, 1, 2, 3, 4, 5, 6, 99])


def placed(mesh, i):
    return (toile.device_put(X, NamedSharding(mesh, P())),
            toile.device_put(i, NamedSharding(mesh, P("d"))))


def on_a_mesh(mesh, f, i):
    return toile.jit(f)(*placed(mesh, i))


def at_once(mesh, f, i):
    return f(*placed(mesh, i))


def shard_map(mesh, f, i):
    mapped = toile.shard_map(f, mesh=mesh, in_specs=(P(), P("d")), out_specs=P("d"))
    return toile.jit(mapped)(X, i)


def pmap(mesh, f, i):
    return toile.pmap(f, in_axes=(None, 0))(X, i.reshape(8, 1))


@pytest.mark.parametrize("run", [on_a_mesh, at_once, shard_map, pmap])
def test_reported_once(run, devices, recwarn):
    mesh = Mesh(np.array(devices), ("d",))
    f = lambda x, i: jnp.take(x, i, axis=0)
    forget_places()
    run(mesh, f, GOOD)
    assert not recwarn.list
    with pytest.warns(OutOfBoundsWarning, match="index 99 is out of bounds for axis 0 with size 8"):
        run(mesh, f, BAD)
    run(mesh, f, BAD)
    assert not recwarn.list
    with toile.checks("index"):
        run(mesh, f, GOOD)
        with pytest.raises(IndexError, match="index 99 is out of bounds for axis 0 with size 8"):
            run(mesh, f, BAD)
