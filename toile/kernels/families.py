"""Finds the kernels of operations.

An operation names a folder here as its `kernel_family`. The function `lower(op, ins, outs, plan)`
of the folder's module for a device adds the stages of an equation to a plan and returns True, or
returns False if it has no kernel. In a folder with several such functions, "folder.name" means
`lower_name`.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from importlib.util import find_spec

Lowering = Callable[..., bool]


@functools.cache
def lowering(kernel: str | None, device: str) -> Lowering | None:
    """The function of a kernel for a kind of device ("cpu" or "gpu"); None if there is none.

    Modules are loaded when a Program first has one of their operations."""
    if kernel is None:
        return None
    family, _, name = kernel.partition(".")
    module = f"toile.kernels.{family}.{device}"
    if find_spec(module) is None:
        return None
    return getattr(importlib.import_module(module), f"lower_{name}" if name else "lower")
