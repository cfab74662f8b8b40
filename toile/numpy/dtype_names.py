"""Dtypes, constants and printing functions under their NumPy names.

The scalar types come from `engine.dtypes`, and the printing functions from NumPy. This module may
import the engine and `api.devices`.
"""
# ruff: noqa: F403, F405 -- __all__ says which names of the engine are public here

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from typing import Any as _Any

import numpy as np

from toile.api.devices import devices as _devices
from toile.engine import dtypes as _d
from toile.engine.arrays import Array as ndarray
from toile.engine.config import flags as _flags
from toile.engine.dtypes import *
from toile.engine.dtypes import bool_, isdtype

if TYPE_CHECKING:
    from toile.engine.annotations import DTypeLike as _DTypeLike
    from toile.engine.devices import Device as _Device

bool = bool_
dtype = np.dtype  # type: ignore[assignment]
ComplexWarning = np.exceptions.ComplexWarning

e = np.e
euler_gamma = np.euler_gamma
inf = np.inf
nan = np.nan
newaxis = None
pi = np.pi

array_repr = np.array_repr
array_str = np.array_str
get_printoptions = np.get_printoptions
printoptions = np.printoptions
set_printoptions = np.set_printoptions
iterable = np.iterable

__array_api_version__ = "2024.12"


class ArrayNamespaceInfo:
    """The devices, dtypes and limits of `toile.numpy`, as defined by the array API standard.

    >>> jnp.__array_namespace_info__().default_dtypes()["integral"]
    dtype('int32')
    """

    def capabilities(self) -> dict[str, _Any]:
        """Report which features arrays support in traced functions.

        Returns:
            A dictionary in which "boolean indexing" and "data-dependent shapes" are False, and "max
            dimensions" is 64.
        """
        return {"boolean indexing": False, "data-dependent shapes": False, "max dimensions": 64}

    def default_device(self) -> None:
        """Return None, because the configuration of toile determines where arrays are placed."""

    def devices(self) -> list[_Device | None]:
        """List the values that functions accept as `device`.

        Returns:
            A list that contains None, which means the default device, and all devices.
        """
        return [None, *_devices()]

    def default_dtypes(self, *, device: _Device | None = None) -> dict[str, np.dtype]:
        """Report the default dtypes of results.

        Args:
            device: ignored; all devices have the same dtypes.

        Returns:
            A dictionary with the keys "real floating", "complex floating", "integral" and
            "indexing".
        """
        integral = _d.default_int_dtype()
        return {
            "real floating": _d.default_float_dtype(),
            "complex floating": _d.default_complex_dtype(),
            "integral": integral,
            "indexing": integral,
        }

    def dtypes(
        self, *, device: _Device | None = None,
        kind: _DTypeLike | tuple[_DTypeLike, ...] | None = None,
    ) -> dict[str, np.dtype]:
        """List the dtypes of the array API standard that arrays can have.

        Args:
            device: ignored; all devices have the same dtypes.
            kind: kind of the dtypes to list, as in `isdtype`; None for all kinds.

        Returns:
            A dictionary that maps names to dtypes. 64-bit dtypes and complex128 are included only
            if x64 is enabled.
        """
        known = map(np.dtype, _STANDARD[: None if _flags.enable_x64 else 9])
        return {d.name: d for d in known if kind is None or isdtype(d, kind)}


_STANDARD = (
    *("bool", "int8", "int16", "int32", "uint8", "uint16", "uint32", "float32", "complex64"),
    *("int64", "uint64", "float64", "complex128"),
)


def __array_namespace_info__() -> ArrayNamespaceInfo:
    """Return the information about this module that the array API standard defines.

    Returns:
        An object with the methods `capabilities`, `default_device`, `default_dtypes`, `devices` and
        `dtypes`.
    """
    return ArrayNamespaceInfo()


# What the scalar types hold, if not integers: bits of exponent and of fraction, greatest number.
_HOLDS = {
    "bool": "booleans",
    "float4_e2m1fn": "4-bit floats (2, 1). "
    "The largest value is 6, and there are no infinities or NaN",
    "float6_e2m3fn": "6-bit floats (2, 3). "
    "The largest value is 7.5, and there are no infinities or NaN",
    "float6_e3m2fn": "6-bit floats (3, 2). "
    "The largest value is 28, and there are no infinities or NaN",
    "float8_e3m4": "8-bit floats (3, 4). The largest finite value is 15.5",
    "float8_e4m3": "8-bit floats (4, 3). The largest finite value is 240",
    "float8_e4m3fn": "8-bit floats (4, 3). The largest value is 448, and there are no infinities",
    "float8_e4m3fnuz": "8-bit floats (4, 3). "
    "The largest value is 240, and the type has neither infinities nor -0.0",
    "float8_e4m3b11fnuz": "8-bit floats (4, 3). "
    "The largest value is 30, and the type has neither infinities nor -0.0",
    "float8_e5m2": "8-bit floats (5, 2). The largest finite value is 57344",
    "float8_e5m2fnuz": "8-bit floats (5, 2). "
    "The largest value is 57344, and the type has neither infinities nor -0.0",
    "float8_e8m0fnu": "8-bit floats that are powers of 2, from 2**-127 to 2**127, or NaN",
    "bfloat16": "16-bit floats (8, 7). The range is that of float32",
    "float16": "16-bit floats (5, 10). The largest finite value is 65504",
    "float32": "32-bit floats (8, 23)",
    "float64": "64-bit floats (11, 52)",
    "complex64": "complex numbers whose parts are float32",
    "complex128": "complex numbers whose parts are float64",
}


def _spelled(bits: re.Match[str]) -> str:
    """Write the numbers of exponent bits and fraction bits in words."""
    exponent, fraction = bits.groups()
    return f"with {exponent} exponent bits and {fraction} fraction bit{'s' * (fraction != '1')}"


def _describe(kind: _d.ScalarMeta) -> str:
    """Write the docstring of a scalar type."""
    name = kind.__name__
    if name in _HOLDS:
        holds = re.sub(r"\((\d+), (\d+)\)", _spelled, _HOLDS[name]).replace(". ", ".\n\n")
    else:
        bits = int(name.lstrip("uint"))
        least, end = (0, 2**bits) if name[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1))
        sign = "unsigned " * (name[0] == "u")
        holds = f"{bits}-bit {sign}integers, from {least} to {end - 1}"
    wide = name in ("int64", "uint64", "float64", "complex128")
    half = name.replace("64", "32").replace("128", "64")
    note = f"\nIf x64 is not enabled, the array's dtype is {half}, and a warning is issued." * wide
    return (
        f"The scalar type of {holds}.\n\nThe type can be used wherever a dtype is expected. "
        f"Calling it creates an array of that dtype.{note}\n\n"
        "Args:\n    x: array, number or nested list to convert.\n"
    )


for _type in [t for t in vars(_d).values() if isinstance(t, _d.ScalarMeta)]:
    _type.__doc__ = _describe(_type)

__all__ = [
    "__array_api_version__", "__array_namespace_info__",
    "ComplexWarning", "array_repr", "array_str", "bfloat16", "bool", "bool_", "can_cast",
    "cdouble", "character", "complex128", "complex64", "complex_", "complexfloating", "csingle",
    "double", "dtype", "e", "euler_gamma", "finfo", "flexible", "float16", "float32",
    "float4_e2m1fn", "float64", "float6_e2m3fn", "float6_e3m2fn", "float8_e3m4", "float8_e4m3",
    "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz",
    "float8_e8m0fnu", "float_", "floating", "generic", "get_printoptions", "iinfo", "inexact",
    "inf", "int16", "int2", "int32", "int4", "int64", "int8", "int_", "integer", "isdtype",
    "issubdtype", "iterable", "nan", "ndarray", "newaxis", "number", "object_", "pi",
    "printoptions", "promote_types", "result_type", "set_printoptions", "signedinteger", "single",
    "uint", "uint16", "uint2", "uint32", "uint4", "uint64", "uint8", "unsignedinteger",
]

# Types that only recent versions of ml_dtypes have.
for _name in ("int1", "uint1"):
    if hasattr(_d, _name):
        globals()[_name] = getattr(_d, _name)
        __all__.append(_name)
