"""NaNs and infinities in arrays: whether there are any, how many, and the range of the others.

`non_finite` answers quickly, because checks ask it about every result. `describe_values` is for
error messages. This module may import engine.arrays, engine.dtypes, engine.fp_errors and
engine.platform_registry.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from toile.engine import dtypes
from toile.engine.arrays import DeviceArray
from toile.engine.fp_errors import ignore_errors, restore_errors
from toile.engine.platform_registry import platform_of, platform_of_device, registry


def non_finite(x: Any) -> tuple[bool, bool]:
    """Whether a value is an array that contains a NaN, and whether it contains an infinity."""
    return all_non_finite([x])[0]


def all_finite(xs: Sequence[Any]) -> bool:
    """Whether no value is an array with a NaN or an infinity; the quickest answer."""
    elsewhere: dict[Any, list[Any]] = {}
    for x in xs:
        if isinstance(x, DeviceArray) and dtypes.is_inexact(x.dtype):
            device = x._signature.device
            if device is None:
                if any(all_non_finite([x])[0]):
                    return False
            else:
                elsewhere.setdefault(device.platform, []).append(x)
    return all(registry.names[name].all_finite(given) for name, given in elsewhere.items())


def all_non_finite(xs: Sequence[Any]) -> list[tuple[bool, bool]]:
    """`non_finite` for several values; those on another device are looked at together."""
    found = [(False, False)] * len(xs)
    elsewhere: dict[Any, list[int]] = {}
    for i, x in enumerate(xs):
        if isinstance(x, DeviceArray) and dtypes.is_inexact(x.dtype):
            device = x._signature.device
            platform = platform_of(x._data) if device is None else platform_of_device(device)
            if platform is None:
                found[i] = non_finite_host(x._data)
            else:
                elsewhere.setdefault(platform, []).append(i)
    for platform, places in elsewhere.items():
        answers = platform.non_finite([xs[i] for i in places])
        for i, answer in zip(places, answers, strict=True):
            found[i] = answer
    return found


def non_finite_host(data: np.ndarray) -> tuple[bool, bool]:
    """`non_finite` for a NumPy array of floating-point or complex numbers."""
    if data.dtype.char in "fd" and data.flags.c_contiguous:
        flat = data.reshape(-1)
        square = _square(flat)
        # Squares are not negative, so only a NaN makes the sum NaN; large numbers make it infinite.
        if square == square:
            return False, square == math.inf and bool(np.isinf(flat).any())
    return bool(np.isnan(data).any()), bool(np.isinf(data).any())


_ROW = 8192  # numbers in one product: BLAS starts threads for longer ones


def _square(flat: np.ndarray) -> float:
    """The sum of the squares of some numbers, which is the fastest pass over memory.

    Threads would be slower when other programs use the processor."""
    token = ignore_errors()
    try:
        if flat.size <= _ROW or not hasattr(np, "vecdot"):
            return float(np.dot(flat, flat))
        whole = flat.size - flat.size % _ROW
        rows, rest = flat[:whole].reshape(-1, _ROW), flat[whole:]
        return float(np.vecdot(rows, rows).sum() + np.dot(rest, rest))
    finally:
        restore_errors(token)


def values_of(x: Any) -> np.ndarray:
    """The elements of an array in a dtype that NumPy can print and compare."""
    data = np.asarray(x)
    return data.astype(np.float32) if dtypes.kind(x.dtype) == "f" and data.itemsize < 4 else data


def describe_values(x: Any) -> str:
    """Shape, dtype, range and numbers of NaNs and infinities: `float32[3] in [0.0, 1.0], 1 NaN`."""
    if not isinstance(x, DeviceArray):
        return repr(x)
    text = x.aval.str_short()
    kind = dtypes.kind(x.dtype)
    if not x.size or kind not in "iufc":
        return text
    data = values_of(x)
    if not data.shape:
        return f"{text} = {data[()]!s}"
    if kind in "iu":
        return f"{text} in [{data.min()}, {data.max()}]"
    nans, infinities = int(np.isnan(data).sum()), int(np.isinf(data).sum())
    finite = data[np.isfinite(data)]
    if finite.size:
        sized = np.abs(finite) if kind == "c" else finite
        name = " with absolute values" if kind == "c" else ""
        text += f"{name} in [{sized.min()!s}, {sized.max()!s}]"
    counts = [f"{n} {name}" for n, name in ((nans, "NaN"), (infinities, "inf")) if n]
    return ", ".join([text, *counts])


def is_huge(x: Any) -> bool:
    """Whether the square of an element overflows although the element is finite."""
    if not isinstance(x, DeviceArray) or dtypes.kind(x.dtype) != "f" or not x.size:
        return False
    data = values_of(x)
    finite = data[np.isfinite(data)]
    limit = math.sqrt(float(dtypes.finfo(x.dtype).max))
    return bool(finite.size) and float(np.abs(finite).max()) > limit


def first_at(x: Any, kind: str) -> tuple[int, ...]:
    """The index of the first NaN or infinity of an array."""
    found = {"nan": np.isnan, "inf": np.isinf}[kind](values_of(x))
    return tuple(int(i) for i in np.unravel_index(int(found.argmax()), found.shape))


def count(x: Any, kind: str) -> int:
    """The number of NaNs or infinities in an array."""
    return int({"nan": np.isnan, "inf": np.isinf}[kind](values_of(x)).sum())
