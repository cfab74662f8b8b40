"""`flax.training`: the modules of `toile.training`, and `orbax_utils`, which needs Orbax."""

from importlib import import_module
from typing import Any

STANDS_FOR = "toile.training"


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    place = __name__ if name == "orbax_utils" else STANDS_FOR
    try:
        return import_module(f"{place}.{name}")
    except ModuleNotFoundError as error:
        if error.name != f"{place}.{name}":
            raise
        raise AttributeError(f"module 'flax.training' of toile has no attribute {name!r}") from None
