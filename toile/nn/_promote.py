"""Argument promotion shared by the packages above `toile.numpy`.

`inexact(name, *xs)` converts its arguments to one floating or complex dtype, as all special
functions do. Integers become float32, or float64 if they have 64 bits. The result is weakly typed
only if all arguments are weak. The functions here call only public functions, so they work under
any trace.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.engine import dtypes
from toile.engine.annotations import Array
from toile.engine.source import here
from toile.numpy._axes import canonicalize_axis

canonical_axis = canonicalize_axis
default_float = dtypes.default_float_dtype
to_complex = dtypes.to_complex_dtype
to_inexact = dtypes.to_inexact_dtype


def is_complex(x: Any) -> bool:
    """Whether `x`, an array or a dtype, is complex."""
    return np.dtype(getattr(x, "dtype", x)).kind == "c"


def is_integer(x: Any) -> bool:
    """Whether `x`, an array or a dtype, is of an integer type; bool does not count."""
    return jnp.issubdtype(getattr(x, "dtype", x), np.integer)


def _arrays(name: str, xs: Any) -> list[Array]:
    for i, x in enumerate(xs):
        if isinstance(x, (list, tuple)) or x is None:
            raise TypeError(f"{name} requires ndarray or scalar arguments, got {type(x)} at "
                            f"position {i}.{here()}")
    return [jnp.asarray(x) for x in xs]


def array(name: str, x: Any) -> Array:
    """`x` as an array; raise a TypeError for lists and None, as `jax.nn` and `jax.scipy` do."""
    return _arrays(name, (x,))[0]


def _convert(x: Array, dtype: Any, weak: bool) -> Array:
    if x.dtype == dtype and (weak or not x.weak_type):
        return x
    if weak:  # only arithmetic with a Python scalar keeps a value weak
        return x * (1j if np.dtype(dtype).kind == "c" else 1.0) ** 0
    return lax.convert_element_type(x, dtype)


def inexact(name: str, *xs: Any) -> list[Array]:
    """The arguments as arrays of one inexact dtype, weak only if all were weak."""
    arrays = _arrays(name, xs)
    dtype = to_inexact(jnp.result_type(*arrays))
    weak = all(x.weak_type for x in arrays)
    return [_convert(x, dtype, weak) for x in arrays]


def promoted(name: str, *xs: Any) -> list[Array]:
    """The arguments as arrays of their common dtype."""
    arrays = _arrays(name, xs)
    dtype, weak = jnp.result_type(*arrays), all(x.weak_type for x in arrays)
    return [_convert(x, dtype, weak) for x in arrays]


def real_inexact(name: str, *xs: Any) -> list[Array]:
    """Like `inexact`, but raise a ValueError for complex arguments."""
    out = inexact(name, *xs)
    if is_complex(out[0]):
        raise ValueError(f"{name} does not support complex-valued inputs.{here()}")
    return out


def inexact_broadcast(name: str, *xs: Any) -> list[Array]:
    """Like `inexact`, but also broadcast the arguments to one shape, as `lax` functions require."""
    arrays = inexact(name, *xs)
    if len({x.shape for x in arrays}) == 1:
        return arrays
    shape = jnp.broadcast_shapes(*(x.shape for x in arrays))
    return [jnp.broadcast_to(x, shape) for x in arrays]


def clamp(low: Any, x: Array, high: Any) -> Array:
    """`x` limited to [low, high]; unlike in `jnp.clip`, the gradient outside is 0, never NaN."""
    low, high = jnp.array(low, x.dtype), jnp.array(high, x.dtype)
    return jnp.where(x <= low, low, jnp.where(x >= high, high, x))
