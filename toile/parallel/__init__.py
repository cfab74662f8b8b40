"""Many devices: pmap and shard_map, meshes and shardings over them.

A mapped function is one Program that every device runs, each CPU device a thread; collectives are
operations of it, which meet the other devices through an exchange. May import staging and below.
"""

from toile.parallel.meshes import AbstractMesh, AxisType, Mesh, make_mesh, set_mesh
from toile.parallel.placing import put
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
    "put",
    "set_mesh",
    "shard_map",
    "smap",
]
