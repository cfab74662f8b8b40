"""Many devices: pmap and shard_map, meshes and shardings over them.

A mapped function is one Program that every device runs; each CPU device is a thread. Collectives
are operations of that Program, which communicate with the other devices through an exchange. May
import staging and below.
"""

import typing as _typing

from toile.engine.lazy import attach as _attach

if _typing.TYPE_CHECKING:
    from toile.parallel.meshes import AbstractMesh, AxisType, Mesh, make_mesh, set_mesh
    from toile.parallel.placement import put
    from toile.parallel.pmaps import pmap
    from toile.parallel.shard_maps import Infer, shard_map, smap
    from toile.parallel.specs import NamedSharding, P, PartitionSpec

_FROM = {
    "meshes": "AbstractMesh AxisType Mesh make_mesh set_mesh",
    "placement": "put",
    "pmaps": "pmap",
    "shard_maps": "Infer shard_map smap",
    "specs": "NamedSharding P PartitionSpec",
}
_MODULES = (
    "buckets exchange launch meshes placement process_exchange processes specs spmd varying_values"
)
__getattr__, __dir__ = _attach(__name__, _FROM, _MODULES)

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
