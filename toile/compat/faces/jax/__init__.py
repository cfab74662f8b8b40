"""toile as `jax`: what redirected code imports under that name."""

import functools
import traceback
from collections.abc import Callable
from typing import Any

from toile import tree_util
from toile.api.callbacks import pure_callback as _pure_callback
from toile.engine.errors import JaxRuntimeError
from toile.engine.trace import runs_at_once
from toile.interop.lookup import fallback_to

# JAX had these at its top level until 0.4.26; packages that were last released before use them.
__all__ = [
    "tree_all", "tree_flatten", "tree_leaves", "tree_map", "tree_reduce", "tree_structure",
    "tree_transpose", "tree_unflatten", "treedef_is_leaf", "treedef_tuple",
]
globals().update({name: getattr(tree_util, name) for name in __all__})

# The release of JAX whose names and results toile has.
__version__ = "0.10.2"
__version_info__ = (0, 10, 2)

STANDS_FOR = "toile"


def pure_callback(callback: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Like `toile.pure_callback`, but an error in a staged callback is raised as JAX's error."""
    if runs_at_once():
        return _pure_callback(callback, *args, **kwargs)

    @functools.wraps(callback)
    def reporting(*xs: Any, **options: Any) -> Any:
        try:
            return callback(*xs, **options)
        except Exception as error:
            text = "".join(traceback.format_exception(error))
            raise JaxRuntimeError(f"INTERNAL: error calling callback: {text}") from error

    return _pure_callback(reporting, *args, **kwargs)


__getattr__ = fallback_to(__name__, STANDS_FOR)
