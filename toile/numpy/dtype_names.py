"""Dtypes, constants and printing under their NumPy names.

The scalar types are those of `engine.dtypes`; printing is NumPy's own. May import the engine and
`api.devices`.
"""
# ruff: noqa: F403, F405 -- __all__ says which names of the engine are public here

from __future__ import annotations

from typing import Any as _Any

import numpy as np

from toile.api.devices import devices as _devices
from toile.engine import dtypes as _d
from toile.engine.arrays import Array as ndarray
from toile.engine.config import flags as _flags
from toile.engine.dtypes import *
from toile.engine.dtypes import bool_, isdtype

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
    """What the Python array API standard lets a program ask of `toile.numpy`."""

    def capabilities(self) -> dict[str, _Any]:
        """What arrays can do inside of transformed functions, and their highest rank."""
        return {"boolean indexing": False, "data-dependent shapes": False, "max dimensions": 64}

    def default_device(self) -> None:
        """None: arrays are where toile puts them."""

    def devices(self) -> list[_Any]:
        """What may be passed as `device`."""
        return [None, *_devices()]

    def default_dtypes(self, *, device: _Any = None) -> dict[str, np.dtype]:
        """The dtypes that results have where none is asked for."""
        integral = _d.default_int_dtype()
        return {
            "real floating": _d.default_float_dtype(),
            "complex floating": _d.default_complex_dtype(),
            "integral": integral,
            "indexing": integral,
        }

    def dtypes(self, *, device: _Any = None, kind: _Any = None) -> dict[str, np.dtype]:
        """The standard's dtypes that arrays can have, by name; `kind` as in `isdtype`."""
        known = map(np.dtype, _STANDARD[: None if _flags.enable_x64 else 9])
        return {d.name: d for d in known if kind is None or isdtype(d, kind)}


_STANDARD = (
    *("bool", "int8", "int16", "int32", "uint8", "uint16", "uint32", "float32", "complex64"),
    *("int64", "uint64", "float64", "complex128"),
)


def __array_namespace_info__() -> ArrayNamespaceInfo:
    """The object that answers questions about this module."""
    return ArrayNamespaceInfo()


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
