"""Looking at values in traced code: print, callback, breakpoint."""

import builtins
from collections.abc import Callable
from typing import Any

from toile.api.callbacks import debug_breakpoint as breakpoint
from toile.api.callbacks import debug_callback as callback
from toile.api.callbacks import debug_print as print
from toile.api.devices import sharding_of


def visualize_array_sharding(arr: Any, **kwargs: Any) -> None:
    """Print on which device an array is."""
    builtins.print(f"{arr.shape} on {sharding_of(arr)}")


def inspect_array_sharding(value: Any, *, callback: Callable[[Any], None]) -> None:
    """Call `callback` with the sharding of a value."""
    callback(sharding_of(value))


__all__ = ["breakpoint", "callback", "inspect_array_sharding", "print", "visualize_array_sharding"]
