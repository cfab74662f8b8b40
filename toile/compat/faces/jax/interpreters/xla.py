"""`jax.interpreters.xla`: names that packages still use; JAX has removed most of them.

Packages add their own types to the tables. toile does not read the tables: it asks a value itself
for its dtype and shape."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from toile.dtypes import canonicalize_dtype
from toile.engine.avals import aval_of
from toile.engine.trace import Array

__all__ = [
    "DeviceArray", "canonicalize_dtype", "canonicalize_dtype_handlers", "pytype_aval_mappings",
]

DeviceArray = Array
pytype_aval_mappings: dict[type, Callable[..., Any]] = {np.ndarray: aval_of}
canonicalize_dtype_handlers: dict[type, Callable[..., Any]] = {np.ndarray: np.asarray}
