"""Functions that quantize the parameters of a tree, and convert them back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from toile import tree as trees
from toile.engine.annotations import DTypeLike, PyTree
from toile.engine.source import here
from toile.optim.paths import mask_tree, path_of
from toile.quantization.arrays import QuantizedArray
from toile.quantization.rounding import quantize_array
from toile.tree_util import tree_flatten_with_path

__all__ = ["dequantize", "quantize", "size_of"]


def is_quantized(x: Any) -> bool:
    """Whether a node of a tree is a quantized array."""
    return isinstance(x, QuantizedArray)


def selected(params: PyTree, select: str | Sequence[str]) -> tuple[list[Any], list[bool], Any]:
    """The leaves of a tree with their paths, which of them are selected, and the structure."""
    mask = trees.leaves(mask_tree(select, trees.map(lambda x: 0, params, is_leaf=is_quantized),
                                  "quantize"))
    leaves, structure = tree_flatten_with_path(params, is_leaf=is_quantized)
    named = [(path_of(keys), leaf) for keys, leaf in leaves]
    again = [path for (path, leaf), chosen in zip(named, mask, strict=True)
             if chosen and is_quantized(leaf)]
    if again:
        raise ValueError(f"quantize: needed arrays, got quantized arrays: {', '.join(again[:8])} "
                         f"(call dequantize first, or select other parameters){here()}")
    return named, mask, structure


def axis_of(path: str, shape: Sequence[int]) -> int:
    """The axis along which a parameter has groups, unless the user chooses one."""
    if len(shape) < 2 or path.rpartition("/")[2] == "embedding":
        return -1
    # Of a kernel with several axes, the longest input axis: groups of neighbors fit into it.
    return max(range(-2, -len(shape) - 1, -1), key=lambda i: (shape[i], i))


def quantize(
    params: PyTree, select: str | Sequence[str] = "**/kernel", *, bits: int = 8,
    group: int | None = None, axis: int | None = None, symmetric: bool = True,
    dtype: DTypeLike | None = None, method: Literal["round"] = "round",
) -> PyTree:
    """Replace selected parameters of a tree by quantized arrays.

    The result can be passed to `apply` in place of `params`: modules read quantized arrays as
    arrays. Parameters that are not selected stay the same.

    Args:
        params: tree of parameters, or of variables.
        select: one or more globs that match the paths of the parameters to quantize. `*` matches
            any characters within one name, and `**` matches any number of names.
        bits: number of bits of an element, 8 or 4.
        group: number of neighbors along `axis` that share a scale; None for all elements along the
            axis. The last group may be shorter.
        axis: the axis of the groups. If None, the last axis is used for parameters that are named
            "embedding", and otherwise the longest of all axes except the last. For kernels that
            `nn.scan` or `nn.vmap` stacks, give the axis.
        symmetric: whether all zero points are 0; see `quantize_array`.
        dtype: float8_e4m3fn or float8_e5m2 to store float8 numbers; None for integers.
        method: "round" to round each number to the nearest.

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
    if method != "round":
        raise ValueError(f"quantize: needed method='round', got {method=} (see "
                         f"docs/quantisation.md){here()}")
    named, mask, structure = selected(params, select)
    found = [
        quantize_array(x, bits=bits, group=group, symmetric=symmetric, dtype=dtype,
                       axis=axis_of(path, x.shape) if axis is None else axis) if chosen else x
        for (path, x), chosen in zip(named, mask, strict=True)
    ]
    return trees.unflatten(structure, found)


def dequantize(params: PyTree) -> PyTree:
    """Replace the quantized arrays of a tree by the arrays that they stand for.

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
    """Return the number of bytes that the arrays of a tree need.

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
