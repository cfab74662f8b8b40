"""The public names of this package: loaded when they are first used, and known to type checkers."""

from toile.api.callbacks import io_callback as io_callback
from toile.engine.config import Override
from toile.engine.scoped_options import enable_x64 as enable_x64
from toile.experimental import (
    checkify as checkify,
    compilation_cache as compilation_cache,
    jet as jet,
    key_reuse as key_reuse,
    layout as layout,
    mesh_utils as mesh_utils,
    multihost_utils as multihost_utils,
    ode as ode,
    pjit as pjit,
    random as random,
    shard_map as shard_map,
    sparse as sparse,
)

def disable_x64() -> Override: ...
