"""The options of `flax.nnx`, with Flax's defaults."""

import functools

from toile.configurations import bool_flag, int_flag

__all__ = ["define"]


@functools.cache
def define() -> None:
    """Define the options; later calls do nothing."""
    bool_flag("flax_use_flaxlib", default=False, help="Use flaxlib's native code.")
    bool_flag("flax_array_ref", default=False, help="Keep variables in references to arrays.")
    bool_flag("flax_pytree_module", default=True, help="Modules are pytrees.")
    bool_flag("flax_always_shard_variable", default=True, help="Shard annotated variables.")
    bool_flag("flax_hijax_variable", default=False, help="Variables have a type of their own.")
    bool_flag("nnx_graph_mode", default=True, help="Functions of nnx work on graphs, not trees.")
    bool_flag("nnx_graph_updates", default=True, help="Functions of nnx update graphs.")
    int_flag("flax_max_repr_depth", default=None, help="Most levels of objects that are shown.")
