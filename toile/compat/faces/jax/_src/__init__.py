"""The modules of `jax._src` that packages import, with the names that they use.

A module that is not here is toile's module of the same name, such as `jax._src.tree_util`.
"""

from toile.interop.lookup import fallback_to

STANDS_FOR = "toile"

__getattr__ = fallback_to(__name__, STANDS_FOR)
