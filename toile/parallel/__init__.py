"""Many devices: pmap and shard_map, meshes and shardings over them.

So far there is one CPU device; collectives run as operations on an array axis of the mapped
program. May import staging and below.
"""

from toile.parallel.meshes import AbstractMesh, AxisType, Mesh, make_mesh, set_mesh
from toile.parallel.pmap import pmap
from toile.parallel.shard_map import Infer, shard_map, smap
from toile.parallel.specs import NamedSharding, P, PartitionSpec

__all__ = [
    "AbstractMesh",
    "AxisType",
    "Infer",
    "Mesh",
    "NamedSharding",
    "P",
    "PartitionSpec",
    "make_mesh",
    "pmap",
    "set_mesh",
    "shard_map",
    "smap",
]
