"""toile as `flax`: what redirected code imports under that name."""

from importlib import import_module
from typing import Any

from toile.configurations import config
from toile.interop import process
from toile.interop.lookup import fallback_to

__all__ = ["config"]

# The release of Flax whose names and results toile has.
__version__ = "0.12.8"

STANDS_FOR = "toile"

_get = fallback_to(__name__, STANDS_FOR)


def __getattr__(name: str) -> Any:
    if name == "nnx" and process.installed():
        import_module(f"{__name__}.nnx_options").define()
        try:
            return import_module("flax.nnx")  # the installed one, on toile
        except AttributeError as error:  # which would be taken for "flax has no nnx"
            raise ImportError(f"flax.nnx cannot be imported: {error}") from error
    return _get(name)
