"""Functions that choose the dtype in which a layer computes.

A layer computes in the dtype that the user chose or, if the user did not choose one, in the dtype
that the inputs and parameters promote to. Layers call `promote_dtype` every time they run, so this
function returns immediately if all arrays already have the same dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from toile import numpy as jnp
from toile.engine import dtypes
from toile.engine.annotations import ArrayLike, DTypeLike
from toile.engine.arrays import DeviceArray
from toile.engine.promotion import COMPLEXES, FLOATS, NARROWED
from toile.engine.source import here
from toile.engine.trace import Array

__all__ = ["canonicalize_dtype", "promote_dtype"]

Dtype = DTypeLike
T = TypeVar("T", bound=tuple)
# `promote_dtype`, or a user's function that layers call in its place. (`typing.PromoteDtypeFn`
# takes one tuple of arrays, as Flax declares it.)
DtypePromotion = Callable[..., Sequence[Any]]

_INEXACT = frozenset((*FLOATS, *COMPLEXES))
# The usual ways to name the dtypes to compute in, except those whose meaning depends on x64.
_NAMED = {
    name: d
    for d in _INEXACT - NARROWED.keys()
    for name in (d, d.type, d.name, getattr(jnp, d.name, d))
}


def canonicalize_dtype(
    *args: ArrayLike | None, dtype: Dtype | None = None, inexact: bool = True
) -> Dtype:
    """Choose the dtype in which a layer computes.

    Args:
        *args: arrays and numbers, such as the input and the parameters. Arguments that are None are
            skipped.
        dtype: the dtype to use; if None, the dtype that `args` promote to is used.
        inexact: whether the result must be floating or complex. If True, integers promote to a
            floating dtype.

    Returns:
        The dtype. If `dtype` is not None, this is `dtype`.

    Raises:
        ValueError: `inexact` is True, and `dtype` is neither floating nor complex.

    >>> from toile.linen.dtypes import canonicalize_dtype
    >>> canonicalize_dtype(jnp.ones(2, jnp.bfloat16), None, jnp.ones(2, jnp.float32))
    dtype('float32')
    >>> canonicalize_dtype(jnp.arange(3)), canonicalize_dtype(jnp.arange(3), inexact=False)
    (dtype('float32'), dtype('int32'))
    """
    if dtype is None:
        # The dtype of a NumPy array is known without a copy of it.
        values = [x if hasattr(x, "dtype") else jnp.asarray(x) for x in args if x is not None]
        dtype = dtypes.result_type(*values)
        if inexact and not jnp.issubdtype(dtype, jnp.inexact):
            dtype = jnp.promote_types(jnp.float32, dtype)
    if inexact and not jnp.issubdtype(dtype, jnp.inexact):
        raise ValueError(
            f"Dtype must be inexact: needed a floating or complex dtype, got {dtype} (layers "
            f"compute in float32, bfloat16, …; cast the result instead){here()}"
        )
    return dtype


def _has_dtype(x: Any, dtype: Any) -> bool:
    return isinstance(x, Array) and x.dtype is dtype and not x.weak_type


def _converted(args: tuple[Any, ...], dtype: Any) -> list[Any]:
    return [x if x is None or _has_dtype(x, dtype) else jnp.asarray(x, dtype) for x in args]


def promote_dtype(
    *args: ArrayLike | None, dtype: Dtype | None = None, inexact: bool = True
) -> list[Any]:
    """Convert arrays to the common dtype that `canonicalize_dtype` chooses.

    Args:
        *args: arrays and numbers. Arguments that are None stay None.
        dtype: the dtype to convert to; if None, the dtype that `args` promote to is used.
        inexact: whether the dtype must be floating or complex. If True, integers promote to a
            floating dtype.

    Returns:
        A list with one entry for each argument: an array, or None if the argument is None.

    Raises:
        ValueError: `inexact` is True, and `dtype` is neither floating nor complex.

    >>> from toile.linen.dtypes import promote_dtype
    >>> x, k, b = promote_dtype(jnp.ones(2), jnp.ones(2, jnp.bfloat16), None)
    >>> x.dtype, k.dtype, b
    (dtype('float32'), dtype('float32'), None)
    """
    if dtype is None:
        common = None
        for x in args:
            if x is None:
                continue
            if not (x.__class__ is DeviceArray or isinstance(x, Array)) or x.weak_type:
                break
            found = x.dtype
            if found is not common:
                if common is not None:
                    break
                common = found
        else:
            if common in _INEXACT or (common is not None and not inexact):
                return list(args)
    elif dtype.__hash__ is not None and (wanted := _NAMED.get(dtype)) is not None:
        return _converted(args, wanted)
    return _converted(args, canonicalize_dtype(*args, dtype=dtype, inexact=inexact))
