"""Order-preserving unsigned keys of numbers.

The bits of a float, read as an integer, have the same order as floats once the order of negative
numbers is reversed.
"""

from __future__ import annotations

from typing import Any

from toile.kernels.sort.shared import INFINITY


def bits_type(dtype: Any) -> str:
    return f"u{8 * dtype.itemsize}"


def key_type(dtype: Any) -> str:
    """The type of a key in registers, shared memory and scratch: 32 or 64 bits."""
    return "u64" if dtype.itemsize == 8 else "u32"


def key_bytes(dtype: Any) -> int:
    """The bytes of a key in scratch."""
    return 8 if dtype.itemsize == 8 else 4


def key_bits(dtype: Any) -> int:
    """How many low bits of a key are used."""
    return 1 if dtype.kind == "b" else 8 * dtype.itemsize


def key_function(dtype: Any, use: str, name: str = "key_of") -> str:
    """`key_type key_of(bits)`: the unsigned key of a number given as its bits.

    `use`: "sort" (zeros equal, NaN last), "values" (the same, -0 just below +0), "top"
    (descending; the total order of bits), "max" and "min" (zeros equal, NaN the best; "min" is
    reversed, so that the greatest key is the least number)."""
    bits, type = 8 * dtype.itemsize, bits_type(dtype)
    out = key_type(dtype)
    sign, every = 1 << (bits - 1), (1 << bits) - 1
    suffix = "ull"
    lines = [f"__device__ inline {out} {name}({type} x) {{"]
    if dtype.name not in INFINITY:
        key = f"({type})(x ^ {sign:#x}{suffix})" if dtype.kind == "i" else "x"
        if use in ("top", "min"):
            key = f"({type})~({type})({key})"
        return "\n".join([*lines, f"  return {key};", "}\n"])
    if use in ("sort", "max", "min"):  # -0 counts as 0
        lines.append(f"  if (x == ({type}){sign:#x}{suffix}) x = 0;")
    if use != "top":
        lines.append(f"  if (({type})(x & {sign - 1:#x}{suffix}) > "
                     f"({type}){INFINITY[dtype.name]:#x}{suffix}) return {every:#x}{suffix};")
    # The bits of negative numbers are in reverse order: invert them all; else only the sign.
    lines.append(f"  {type} key = x & {sign:#x}{suffix} ? ({type})~x : "
                 f"({type})(x | {sign:#x}{suffix});")
    if use in ("top", "min"):
        lines.append(f"  key = ({type})~key;")
    return "\n".join([*lines, "  return key;", "}\n"])


def number_function(dtype: Any) -> str:
    """`bits number_of(key)`: the bits of the number that has a "values" key."""
    bits, type, out = 8 * dtype.itemsize, bits_type(dtype), key_type(dtype)
    sign = f"{1 << (bits - 1):#x}ull"
    head = f"__device__ inline {type} number_of({out} key) {{\n"
    if dtype.name not in INFINITY:
        return head + f"  return ({type}){f'(key ^ {sign})' if dtype.kind == 'i' else 'key'};\n}}\n"
    return head + f"  return ({type})(key & {sign} ? key ^ {sign} : ~key);\n}}\n"


def below_zero(dtype: Any) -> int | None:
    """The "values" key of -0, which must compare equal to that of +0; None if there is none."""
    return (1 << (8 * dtype.itemsize - 1)) - 1 if dtype.name in INFINITY else None
