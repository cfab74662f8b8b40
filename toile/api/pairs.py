"""A function's forward and backward passes as two functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from toile.api.linear_maps import vjp
from toile.api.programs import jit
from toile.staging.flat_functions import argnums_of


def fwd_and_bwd(
    fun: Callable[..., Any], argnums: int | Sequence[int], has_aux: bool = False,
    jitted: bool = True,
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """`fwd(*args)` returns the result and residuals, `bwd(residuals, ct)` the cotangents."""

    def fwd(*args: Any) -> Any:
        nums = argnums_of(argnums, len(args), "fwd_and_bwd")

        def chosen(*moving: Any) -> Any:
            full = list(args)
            for n, x in zip(nums, moving, strict=True):
                full[n] = x
            return fun(*full)

        return vjp(chosen, *[args[n] for n in nums], has_aux=has_aux)

    def bwd(residuals: Any, out_ct: Any) -> Any:
        found = residuals(out_ct)
        return found[0] if isinstance(argnums, int) else found

    return (jit(fwd), jit(bwd)) if jitted else (fwd, bwd)
