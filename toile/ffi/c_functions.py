"""C functions, which are described by their prototypes."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from toile.engine.annotations import ArrayLike, PyTree
from toile.engine.conversion import as_array
from toile.engine.source import describe, here
from toile.engine.structs import ShapeDtypeStruct
from toile.engine.trees import flatten, unflatten
from toile.ffi.pointers import results_of, symbol_of
from toile.numpy import broadcast_arrays
from toile.primitives.foreign_calls import ElementCall, PrototypeCall, bits_of

_C_NAMES = {
    "float": "float32", "double": "float64", "bool": "bool", "_Bool": "bool", "int": "int32",
    "long long": "int64", "unsigned": "uint32", "unsigned int": "uint32", "size_t": "uint64",
    **{f"{kind}{bits}_t": f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)},
}
_PROTOTYPE = re.compile(r"\s*([\w\s]+?)\s+(\w+)\s*\(([^()]*)\)\s*;?\s*", re.ASCII)
_PARAMETER = re.compile(r"\s*[\w\s]+(\*[\w\s]*)?", re.ASCII)


class Parameter(NamedTuple):
    """A parameter of a C function: "in" and "out" are pointers to arrays."""

    kind: str  # "in", "out" or "number"
    dtype: str
    name: str


def c_function(
    function: object, prototype: str, result_shape_dtypes: Callable[..., PyTree] | PyTree = None, *,
    thread_safe: bool = False,
) -> Callable[..., PyTree]:
    """Turn a C function into a function of arrays.

    There are two kinds of C functions:

    - A function whose parameters are all numbers, such as `double erf(double x)`, is called for
      each element. Operands are broadcast against each other.
    - A function with pointer parameters, such as
      `void scale(int64_t n, const float *x, float *y)`, gets whole arrays in row-major order.
      `const` pointers are operands, other pointers are results, and numbers are keyword arguments.

    Dtypes and the number of arguments are checked when the function is traced. Compiled programs on
    the CPU call the C function without Python. On a GPU, the arrays are copied to the host and
    back. Under `vmap`, a function with pointer parameters is called once for each example.

    Args:
        function: a function of a library that was loaded with `ctypes.CDLL`, a PyCapsule, or the
            address of the function.
        prototype: declaration of the function in C.
        result_shape_dtypes: shapes and dtypes of the results, in the order of the pointers: a
            `ShapeDtypeStruct` for one result, a sequence for several. It may also be a function
            that returns these objects and is called with a `ShapeDtypeStruct` for each operand, and
            with the numbers as keyword arguments. If `result_shape_dtypes` is None, there is one
            result, which has the shape of the first operand.
        thread_safe: whether several threads may call the function at the same time, for different
            elements or examples.

    Returns:
        A function of arrays, whose keyword arguments are the numbers of the prototype.

    Raises:
        ValueError: the prototype cannot be parsed, or contains a type for which toile has no dtype.

    >>> import ctypes, ctypes.util
    >>> libm = ctypes.CDLL(ctypes.util.find_library("m"))
    >>> cube_root = toile.ffi.c_function(libm.cbrtf, "float cbrtf(float x)", thread_safe=True)
    >>> toile.jit(cube_root)(jnp.array([1.0, 8.0, 27.0]))
    Array([1., 2., 3.], dtype=float32)
    """
    result, name, parameters = parsed(prototype)
    symbol = symbol_of("c_function", name, function)
    if result is not None:
        return _of_elements(symbol, name, result, parameters, thread_safe)
    ins = [p for p in parameters if p.kind == "in"]
    outs = [p for p in parameters if p.kind == "out"]

    def call(*args: ArrayLike, **numbers: Any) -> PyTree:
        xs = _checked(name, ins, args)
        values = _numbers(name, parameters, numbers)
        shapes = _described(name, result_shape_dtypes, xs, outs, numbers)
        flat, tree = flatten(shapes)
        avals = results_of(name, flat)
        _match(name, outs, avals)
        counts = {"in": iter(range(len(ins))), "out": iter(range(len(outs)))}
        given = tuple((p.kind, next(counts[p.kind])) if p.kind in counts else (p.dtype, values[p])
                      for p in parameters)
        return unflatten(tree, PrototypeCall(symbol, name, avals, given, thread_safe)(*xs))

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"Call the C function `{prototype.strip().rstrip(';')}`."
    return call


def parsed(prototype: str) -> tuple[str | None, str, list[Parameter]]:
    """The dtype of the result (None: void), the name, and the parameters of a C function."""
    found = _PROTOTYPE.fullmatch(prototype)
    if found is None:
        raise ValueError(
            "c_function: needed the declaration of a C function, such as 'void scale(int64_t n, "
            f"const float *x, float *y)', got {prototype!r} (leave out attributes and bodies)"
            f"{here()}"
        )
    result, name, inner = found.groups()
    parameters = [_parameter(prototype, part) for part in inner.split(",")
                  if part.strip() not in ("", "void")]
    of_numbers = all(p.kind == "number" for p in parameters)
    if (result == "void") == of_numbers or not parameters:
        raise ValueError(
            "c_function: needed a function that takes numbers and returns a number, or one that "
            f"takes pointers and returns void, got {prototype!r} (store results through pointers)"
            f"{here()}"
        )
    return None if result == "void" else _dtype(prototype, result), name, parameters


def _parameter(prototype: str, part: str) -> Parameter:
    if not _PARAMETER.fullmatch(part):
        raise ValueError(
            f"c_function: needed parameters like 'const float *x' or 'int64_t n', got "
            f"{part.strip()!r} in {prototype!r} (pass arrays as pointers to numbers){here()}"
        )
    type, star, name = part.partition("*")
    words = [word for word in type.split() if word != "const"]
    if star:
        name = name.replace("restrict", "").strip()
        kind = "in" if "const" in type.split() else "out"
        return Parameter(kind, _dtype(prototype, " ".join(words)), name)
    if " ".join(words) not in _C_NAMES and len(words) > 1:
        name = words.pop()
    return Parameter("number", _dtype(prototype, " ".join(words)), name)


def _dtype(prototype: str, type: str) -> str:
    name = " ".join(type.split())
    if name not in _C_NAMES:
        raise ValueError(
            f"c_function: needed types among {', '.join(_C_NAMES)}, got {name!r} in {prototype!r} "
            f"(use the types of stdint.h, whose sizes are known){here()}"
        )
    return _C_NAMES[name]


def _of_elements(symbol: str, name: str, result: str, parameters: list[Parameter],
                 parallel: bool) -> Callable[..., Any]:
    def call(*args: ArrayLike) -> Any:
        xs = broadcast_arrays(*_checked(name, parameters, args))
        shape = ShapeDtypeStruct(xs[0].shape, np.dtype(result))
        return ElementCall(symbol, name, results_of(name, [shape]), parallel)(*xs)[0]

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"Call the C function `{name}` for each element."
    return call


def _checked(name: str, parameters: list[Parameter], args: tuple[Any, ...]) -> list[Any]:
    """The operands as arrays of the dtypes that the prototype has."""
    if len(args) != len(parameters):
        shown = ", ".join(f"{p.dtype} {p.name}".strip() for p in parameters)
        raise TypeError(
            f"{name}: needed {len(parameters)} arrays ({shown}), got {len(args)} (pass the numbers "
            f"of the prototype as keyword arguments){here()}"
        )
    xs = [as_array(np.asarray(x, p.dtype) if isinstance(x, (bool, int, float)) else x)
          for x, p in zip(args, parameters, strict=True)]
    wrong = [f"{p.name or f'argument {i}'}: {p.dtype}, got {describe(x)}"
             for i, (x, p) in enumerate(zip(xs, parameters, strict=True))
             if x.dtype != np.dtype(p.dtype)]
    if wrong:
        raise TypeError(
            f"{name}: needed arrays of the prototype's dtypes, {'; '.join(wrong)} (convert them "
            f"with .astype, or change the prototype){here()}"
        )
    return xs


def _numbers(name: str, parameters: list[Parameter], given: dict[str, Any]) -> dict[Any, int]:
    """The numbers of the prototype as bits."""
    needed = {p.name: p for p in parameters if p.kind == "number"}
    if set(given) != set(needed):
        raise TypeError(
            f"{name}: needed the keyword arguments {sorted(needed)}, got {sorted(given)} (numbers "
            f"of the prototype are passed by their names){here()}"
        )
    for key, value in given.items():
        kinds = (int, np.integer) if needed[key].dtype[0] in "iu" else (
            int, float, np.integer, np.floating)
        if not isinstance(value, kinds):
            raise TypeError(
                f"{name}: {key} needed to be a Python number for {needed[key].dtype}, got "
                f"{describe(value)} (pass arrays through pointers){here()}"
            )
        _fits(name, key, needed[key].dtype, value)
    return {p: bits_of(given[p.name], p.dtype) for p in needed.values()}


def _fits(name: str, key: str, dtype: str, value: Any) -> None:
    if dtype[0] in "iu" and not np.iinfo(dtype).min <= value <= np.iinfo(dtype).max:
        raise OverflowError(
            f"{name}: {key} needed a number that fits into {dtype}, got {value} (use a wider type "
            f"in the prototype){here()}"
        )


def _described(name: str, shapes: Any, xs: list[Any], outs: list[Parameter],
               numbers: dict[str, Any]) -> Any:
    """The shapes and dtypes of the results."""
    if callable(shapes):
        return shapes(*(ShapeDtypeStruct(x.shape, x.dtype) for x in xs), **numbers)
    if shapes is not None:
        return shapes
    if len(outs) != 1 or not xs:
        raise ValueError(
            f"{name}: needed result_shape_dtypes, because there are {len(xs)} operands and "
            f"{len(outs)} results, got None (pass a toile.ShapeDtypeStruct for each result)"
            f"{here()}"
        )
    return ShapeDtypeStruct(xs[0].shape, np.dtype(outs[0].dtype))


def _match(name: str, outs: list[Parameter], avals: tuple[Any, ...]) -> None:
    needed = [np.dtype(p.dtype) for p in outs]
    if [a.dtype for a in avals] != needed:
        raise TypeError(
            f"{name}: needed results of the prototype's dtypes {[str(d) for d in needed]}, got "
            f"{[a.str_short() for a in avals]} (change result_shape_dtypes){here()}"
        )
