"""Finding the differences between two state dicts, and filling one with values from the other.

A state dict is a nested dict with leaves. A path consists of keys joined by slashes. If a leaf of
the target is an array or another object with a shape and a dtype, a value fits only if it passes
the requested checks of shape and dtype. If the leaf is None, a Python number or a string, any value
fits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from toile.dtypes import issubdtype
from toile.engine.records import dataclass


@dataclass(frozen=True)
class Differences:
    """The differences between a state dict and a target: missing, unexpected and misshaped entries.

    An object of this class is true if there is any difference, and `str` lists all differences.

    Args:
        missing: paths of entries that exist only in the target.
        unexpected: paths of entries that exist only in the state dict.
        misshaped: one line for each array whose shape or dtype differs. The line contains the path,
            the shape and dtype in the target, and those in the state dict.
        restored: number of entries that fit the target.
    """

    missing: tuple[str, ...] = ()
    unexpected: tuple[str, ...] = ()
    misshaped: tuple[str, ...] = ()
    restored: int = 0

    def __bool__(self) -> bool:
        return bool(self.missing or self.unexpected or self.misshaped)

    def __str__(self) -> str:
        lines = [
            f"{self.restored} restored, {len(self.missing)} missing,"
            f" {len(self.unexpected)} unexpected, {len(self.misshaped)} misshaped"
        ]
        for kind in ("missing", "unexpected", "misshaped"):
            lines += [f"  {kind}: {each}" for each in getattr(self, kind)]
        return "\n".join(lines)


def fill(
    target: Any, state: Any, *, check_shapes: bool = True, check_dtypes: bool = True
) -> tuple[Any, Differences]:
    """A pair: the target's state dict with the leaves of `state` that fit, and the differences."""
    missing: list[str] = []
    unexpected: list[str] = []
    misshaped: list[str] = []
    restored = 0

    def visit(path: str, want: Any, got: Any) -> Any:
        nonlocal restored
        if not isinstance(want, Mapping):
            problem = leaf_mismatch(want, got, check_shapes, check_dtypes)
            if problem:
                misshaped.append(f"{path or '.'}: {problem}")
                return want
            restored += 1
            return got
        if not isinstance(got, Mapping):
            misshaped.append(f"{path or '.'}: needed {describe(want)}, got {describe(got)}")
            return want
        got = by_field(got, want)
        out = {}
        for key, value in want.items():
            below = f"{path}/{key}" if path else str(key)
            if key in got:
                out[key] = visit(below, value, got[key])
            else:
                missing.extend(leaf_paths(below, value))
                out[key] = value
        for key in got:
            if key not in want:
                unexpected.extend(leaf_paths(f"{path}/{key}" if path else str(key), got[key]))
        return out

    merged = visit("", target, state)
    return merged, Differences(tuple(missing), tuple(unexpected), tuple(misshaped), restored)


def leaf_paths(path: str, x: Any) -> list[str]:
    """The paths of the leaves below a path; an empty dict counts as a leaf."""
    if not isinstance(x, Mapping) or not x:
        return [path]
    return [leaf for key, value in x.items() for leaf in leaf_paths(f"{path}/{key}", value)]


def by_field(state: Mapping[str, Any], fields: Any) -> Mapping[str, Any]:
    """A named tuple's state by field name, even if it is in the format used before 2022."""
    if set(state) != {"name", "fields", "values"} or set(fields) == set(state):
        return state
    names, values = state["fields"], state["values"]
    if not isinstance(names, Mapping) or not isinstance(values, Mapping):
        return state  # something else that has these names
    numbers = [str(i) for i in range(len(names))]
    if not set(numbers) == set(names) == set(values):
        return state
    return {str(names[i]): values[i] for i in numbers}


def leaf_mismatch(want: Any, got: Any, check_shapes: bool, check_dtypes: bool) -> str | None:
    """The text `needed ..., got ...` if a leaf does not fit the target's leaf, otherwise None."""
    if not _is_array(want):
        return None
    if _is_array(got):
        fits = not check_shapes or tuple(want.shape) == tuple(got.shape)
        fits = fits and (not check_dtypes or want.dtype == got.dtype)
    elif isinstance(got, (bool, int, float, complex)):
        fits = not check_shapes or want.shape == ()
        fits = fits and (not check_dtypes or _holds(want.dtype, got))
    else:
        fits = not check_shapes
    return None if fits else f"needed {describe(want)}, got {describe(got)}"


def describe(x: Any) -> str:
    """A short description of a leaf or a level of a state dict."""
    if _is_array(x):
        return f"{np.dtype(x.dtype).name}[{','.join(map(str, x.shape))}]" if _plain(x) else str(x)
    if isinstance(x, Mapping):
        keys = [repr(key) for key in list(x)[:6]] + ["..."] * (len(x) > 6)
        return f"a dict with {', '.join(keys)}" if keys else "an empty dict"
    return "None" if x is None else f"a Python {type(x).__name__}"


def _is_array(x: Any) -> bool:
    return hasattr(x, "shape") and hasattr(x, "dtype")


def _plain(x: Any) -> bool:
    return isinstance(x.dtype, np.dtype)


def _holds(dtype: Any, number: bool | int | float | complex) -> bool:
    """Whether an array of this dtype can store a Python number without a change of kind."""
    for kind, above in ((bool, np.bool_), (int, np.number), (float, np.inexact)):
        if isinstance(number, kind):
            return issubdtype(dtype, above)
    return issubdtype(dtype, np.complexfloating)
