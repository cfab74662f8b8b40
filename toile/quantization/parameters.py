"""Functions that quantize the parameters in a tree, and convert them back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from toile import numpy as jnp
from toile import tree as trees
from toile.engine.annotations import DTypeLike, PyTree
from toile.engine.source import here
from toile.quantization.arrays import QuantizedArray
from toile.quantization.calibrated import awq, gptq
from toile.quantization.input_statistics import InputStatistics
from toile.quantization.rounding import (
    Form,
    check_group,
    checked_array,
    form_of,
    most_stored,
    quantize_array,
)
from toile.quantization.selected_parameters import axis_of, is_quantized, selected

__all__ = ["dequantize", "quantize", "size_of"]


def quantize(
    params: PyTree, select: str | Sequence[str] = "**/kernel", *, bits: int = 8,
    group: int | None = None, axis: int | None = None, symmetric: bool = True,
    dtype: DTypeLike | None = None, method: Literal["round", "gptq", "awq"] = "round",
    statistics: Mapping[str, InputStatistics] | None = None, act_order: bool = False,
    static_inputs: bool = False,
) -> PyTree:
    """Replace selected parameters in a tree with quantized arrays.

    The result can be passed to `apply` instead of `params`, because modules use quantized arrays
    like ordinary arrays. Parameters that are not selected stay the same.

    Args:
        params: tree of parameters, or of variables.
        select: one or more globs that match the paths of the parameters to quantize. `*` matches
            any characters within one name, and `**` matches any number of names.
        bits: number of bits of an element, 8 or 4.
        group: number of adjacent elements along `axis` that share a scale; None for all
            elements along the axis. The last group may be shorter.
        axis: the axis of the groups. If None, the last axis is used for parameters that are named
            "embedding", and otherwise the longest of all axes except the last. If kernels are
            stacked by `nn.scan` or `nn.vmap`, pass the axis explicitly.
        symmetric: whether all zero points are 0; see `quantize_array`.
        dtype: float8_e4m3fn or float8_e5m2 to store float8 numbers; None for integers.
        method: "round" rounds each number to the nearest stored number. "gptq" rounds the weights
            of one input after another, and changes the weights of later inputs to cancel the
            error. "awq" stores the weights of large inputs more accurately.
        statistics: the result of `calibrate`, which "gptq", "awq" and `static_inputs` require.
        act_order: whether "gptq" rounds the weights of the largest inputs first.
        static_inputs: whether to store the largest input as `input_scale`, for `quantize_inputs`.

    Returns:
        A tree with a `QuantizedArray` in place of each selected array.

    Raises:
        ValueError: a glob matches no parameter, or a selected parameter cannot be quantized.

    >>> import toile.linen as nn
    >>> from toile.quantization import quantize
    >>> layer = nn.Dense(4)
    >>> x = jnp.ones((2, 8))
    >>> variables = layer.init(key(0), x)
    >>> quantized = quantize(variables, "**/kernel", bits=4, group=4)
    >>> quantized["params"]["kernel"]
    QuantizedArray(float32[8,4], bits=4, group=4, axis=-2)
    >>> error = layer.apply(quantized, x) - layer.apply(variables, x)
    >>> bool((jnp.abs(error) < 0.3).all())
    True
    """
    if method not in ("round", "gptq", "awq"):
        raise ValueError(f"quantize: needed method='round', 'gptq' or 'awq', got {method=} (use "
                         f"'round' if there are no statistics){here()}")
    named, mask, structure = selected(params, select)
    if method != "round" or static_inputs:
        wanted = [path for (path, _), chosen in zip(named, mask, strict=True) if chosen]
        _check_statistics(wanted, statistics or {}, method)

    def one(path: str, x: Any) -> QuantizedArray:
        where = axis_of(path, x.shape) if axis is None else axis
        seen = None if statistics is None else statistics.get(path)
        if method == "round" or seen is None:
            q = quantize_array(x, bits=bits, group=group, symmetric=symmetric, dtype=dtype,
                               axis=where)
        else:
            q = quantize_for(seen, x, method, form_of(bits, symmetric, dtype), group, where,
                             act_order)
        if static_inputs and seen is not None:
            scale = jnp.full((1,) * q.ndim, max(seen.largest, 1e-30) / most_stored(q.values.dtype))
            q = replace(q, input_scale=scale)
        return q

    return trees.unflatten(structure, [
        one(path, x) if chosen else x for (path, x), chosen in zip(named, mask, strict=True)])


def quantize_for(
    seen: InputStatistics, x: Any, method: str, form: Form, group: int | None, axis: int,
    act_order: bool,
) -> QuantizedArray:
    """Round a parameter so that its products with typical inputs change little."""
    check_group(group)
    w, axis = checked_array(x, axis)
    q = gptq(w, form, group, axis, seen, act_order) if method == "gptq" else awq(
        w, form, group, axis, seen)
    return replace(q, dtype=np.dtype(jnp.asarray(x).dtype))


def _check_statistics(paths: Sequence[str], statistics: Mapping[str, Any], method: str) -> None:
    """Raise an error unless there are statistics for all selected parameters."""
    missing = [path for path in paths if path not in statistics]
    if missing:
        raise ValueError(
            f"quantize: method={method!r} and static_inputs needed statistics of the inputs of each"
            f" selected parameter, got none of {', '.join(missing[:8])} (pass statistics=calibrate("
            f"apply, params, batches, select)){here()}")


def dequantize(params: PyTree) -> PyTree:
    """Replace the quantized arrays in a tree with the arrays that they represent.

    Args:
        params: tree that `quantize` returned.

    Returns:
        A tree of arrays.

    >>> from toile.quantization import dequantize, quantize
    >>> dequantize(quantize({"w": jnp.array([[1.0], [-1.0]])}, "w"))
    {'w': Array([[ 1.],
           [-1.]], dtype=float32)}
    """
    return trees.map(lambda x: x.dequantize() if is_quantized(x) else x, params,
                     is_leaf=is_quantized)


def size_of(params: PyTree) -> int:
    """Return the number of bytes of the arrays in a tree.

    Args:
        params: tree of arrays and quantized arrays.

    Returns:
        The number of bytes.

    >>> from toile.quantization import quantize, size_of
    >>> params = {"w": jnp.ones((256, 64))}
    >>> size_of(params), size_of(quantize(params, "w", bits=4, group=128))
    (65536, 8704)
    """
    return sum(x.nbytes for x in trees.leaves(params))
