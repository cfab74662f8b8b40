"""The precision in which products and convolutions are computed, in words, for `explain`."""

from __future__ import annotations

from typing import Any

from toile.engine.program import Equation

TF32 = "TF32 (float32 rounded to 11 bits), sums in float32"
_SUMS = {"float32": "float32", "tf32": "float32", "bf16": "float32", "float64": "float64",
         "int32": "int32"}  # fmt: skip


def of_call(call: Any) -> str | None:
    """The precision of a library call; None if it only moves bytes."""
    compute = getattr(call, "compute", None)
    if compute is not None:  # a cuBLAS product
        return _in_words(call.a.type, call.b.type, compute)
    description: Any = getattr(call, "description", None)
    if hasattr(description, "tf32"):  # a cuDNN convolution
        kind = description.x.type
        wide = "float64" if kind == "float64" else "tf32" if description.tf32 else "float32"
        return _in_words(kind, kind, wide)
    if hasattr(description, "tensors"):  # a cuDNN attention
        kind = dict(description.tensors)["q"].type
        return f"{kind}, sums in float32"
    return None


def _in_words(x: str, y: str, compute: str) -> str:
    if compute == "tf32":
        return TF32 if x == "float32" else f"TF32 parts of {x}, sums in float32"
    if compute == "bf16":
        return "bfloat16 (float32 rounded to 8 bits), sums in float32"
    kinds = x if x == y else f"{x} and {y}"
    sums = _SUMS[compute]
    return kinds if sums == x else f"{kinds}, sums in {sums}"


def of_kernels(launches: list[Any], equations: list[Equation]) -> str | None:
    """The precision of products that are computed by toile's own kernels."""
    if any(x.note.endswith("(tf32)") for x in launches):
        return f"{TF32} (a kernel of toile's)"
    for e in equations:
        if e.op.multiplies:
            kinds = dict.fromkeys(str(a.aval.dtype) for a in e.ins)
            half = any(k in ("bfloat16", "float16") or k.startswith("float8") for k in kinds)
            more = ", sums in float32" if half else ""
            return f"{' and '.join(kinds)}{more} (a kernel of toile's)"
    return None
