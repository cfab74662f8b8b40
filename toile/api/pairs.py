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
    """Split a function into two: its forward pass, and the backward pass that computes cotangents.

    Each call to `vjp` returns a new function. Here, by contrast, the backward pass is a single
    function that is compiled once and used for all calls.

    Args:
        fun: the function, which is called with positional arguments only.
        argnums: the position, or a sequence of positions, of the arguments to differentiate with
            respect to.
        has_aux: whether `fun` returns a pair `(result, aux)`; `aux` is not differentiated.
        jitted: whether to compile both functions with `jit`.

    Returns:
        The pair `(fwd, bwd)`. `fwd(*args)` returns `(result, residuals)`; if `has_aux` is True,
        `(result, residuals, aux)`. `bwd(residuals, ct)`, where `ct` is a cotangent of the result,
        returns the cotangent of the argument, or a tuple of cotangents if `argnums` is a sequence.

    >>> fwd, bwd = toile.fwd_and_bwd(lambda x, y: x * y, argnums=(0, 1))
    >>> result, residuals = fwd(2.0, 3.0)
    >>> [float(ct) for ct in bwd(residuals, 1.0)]
    [3.0, 2.0]
    """

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
