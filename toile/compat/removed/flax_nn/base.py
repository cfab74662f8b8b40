"""`flax.nn.base`: modules, models and collections."""

from toile.compat.removed.flax_nn.module_class import (
    Model,
    Module,
    TransparentModule,
    TruncatedModule,
    module,
    module_method,
)
from toile.compat.removed.flax_nn.module_state import (
    Collection,
    ModuleState,
    capture_module_outputs,
    get_state,
    is_stateful,
    stateful,
)

__all__ = [
    "Collection", "Model", "Module", "ModuleState", "TransparentModule", "TruncatedModule",
    "capture_module_outputs", "get_state", "is_stateful", "module", "module_method", "stateful",
]
