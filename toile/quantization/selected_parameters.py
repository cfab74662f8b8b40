"""Functions that select the parameters to quantize, and the axes of their groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toile import tree as trees
from toile.engine.annotations import PyTree
from toile.engine.source import here
from toile.optim.paths import mask_tree, path_of
from toile.quantization.arrays import QuantizedArray
from toile.tree_util import tree_flatten_with_path


def is_quantized(x: Any) -> bool:
    """Whether a node of a tree is a quantized array."""
    return isinstance(x, QuantizedArray)


def selected(params: PyTree, select: str | Sequence[str]) -> tuple[list[Any], list[bool], Any]:
    """Return the leaves of a tree with their paths, which ones are selected, and the structure."""
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
    """Return the default axis of the groups of a parameter."""
    if len(shape) < 2 or path.rpartition("/")[2] == "embedding":
        return -1
    # If a kernel has several input axes, use the longest one, because groups fit into it.
    return max(range(-2, -len(shape) - 1, -1), key=lambda i: (shape[i], i))
