"""The public names of this package: loaded when they are first used, and known to type checkers."""

from toile.parallel.meshes import (
    AbstractMesh as AbstractMesh,
    AxisType as AxisType,
    Mesh as Mesh,
    make_mesh as make_mesh,
    set_mesh as set_mesh,
)
from toile.parallel.placement import put as put
from toile.parallel.pmaps import pmap as pmap
from toile.parallel.shard_maps import Infer as Infer, shard_map as shard_map, smap as smap
from toile.parallel.specs import (
    NamedSharding as NamedSharding,
    P as P,
    PartitionSpec as PartitionSpec,
)
