"""Meshes and shardings."""
import toile
import toile.numpy as jnp
from toile.sharding import Mesh, NamedSharding
from toile.sharding import PartitionSpec as P

mesh = toile.make_mesh((1,), ("data",))
sharding = NamedSharding(mesh, P("data"))
x = toile.device_put(jnp.ones((8, 2)), sharding)
y = toile.jit(lambda x: x * 2, out_shardings=sharding)(x)
f = toile.shard_map(lambda x: toile.lax.psum(x, "data"), mesh=mesh, in_specs=P("data"), out_specs=P())
used: Mesh = mesh
