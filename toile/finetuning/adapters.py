"""Functions that add low-rank adapters to the parameters in a tree, and take them out again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from toile import numpy as jnp
from toile import random
from toile import tree as trees
from toile.engine.annotations import Array, DTypeLike, PyTree
from toile.engine.source import here
from toile.finetuning.lora_arrays import LoRAArray
from toile.optim.paths import mask_tree, path_of
from toile.quantization import QuantizedArray
from toile.tree_util import tree_flatten_with_path

__all__ = [
    "adapter_mask", "adapters_of", "lora", "merge_adapters", "with_adapters", "without_adapters",
]  # fmt: skip


def lora(
    params: PyTree, select: str | Sequence[str] = "**/kernel", *, key: Array, rank: int = 8,
    alpha: float | None = None, inputs: int | None = None, stacked: int = 0,
    dtype: DTypeLike | None = None,
) -> PyTree:
    """Add low-rank adapters to selected parameters in a tree.

    Each selected array `w` is replaced with a `LoRAArray`, which represents the array
    `w + alpha / rank * (a @ b)`. The result can be passed to `apply` instead of `params`, because
    modules use these arrays like ordinary arrays. Initially, `b` contains zeros, so the results of
    the module do not change. To train only `a` and `b`, pass `trainable=adapter_mask` to
    `TrainState.create`.

    Args:
        params: tree of parameters, or of variables. Selected parameters may be quantized arrays.
        select: one or more globs that match the paths of the parameters to select. These parameters
            must have at least two axes. `*` matches any characters within one name, and `**`
            matches any number of names.
        key: key for the random values of `a`, which are uniform between -1 / sqrt(n) and
            1 / sqrt(n) for n inputs.
        rank: number of columns of `a` and of rows of `b`.
        alpha: numerator of the factor `alpha / rank` by which the product `a @ b` is multiplied. If
            `alpha` is None, the factor is 1.
        inputs: number of input axes of the parameters; the axes after them are output axes. If
            None, the axes are divided so that `a` and `b` are as small as possible.
        stacked: number of leading axes along which parameters are stacked, such as 1 for the
            kernels of layers in `nn.scan`. Each of the stacked arrays gets its own adapter.
        dtype: dtype of `a` and `b`; None for the dtype of the parameter.

    Returns:
        A tree with a `LoRAArray` in place of each selected array.

    Raises:
        ValueError: a glob matches no parameter, or a selected parameter cannot have an adapter.

    >>> import toile.linen as nn
    >>> from toile.finetuning import lora
    >>> layer = nn.Dense(4)
    >>> x = jnp.ones((2, 8))
    >>> variables = layer.init(key(0), x)
    >>> adapted = lora(variables, "**/kernel", key=key(1), rank=2, alpha=4)
    >>> adapted["params"]["kernel"]
    LoRAArray(float32[8,4], rank=2, scale=2)
    >>> bool((layer.apply(adapted, x) == layer.apply(variables, x)).all())
    True
    """
    if rank < 1:
        raise ValueError(f"lora: needed a rank of at least 1, got {rank}{here()}")
    scale = 1.0 if alpha is None else float(alpha) / rank
    named, mask, structure = _selected(params, select)
    problems = [problem for (path, x), chosen in zip(named, mask, strict=True) if chosen
                for problem in _problem(path, x, inputs, stacked)]
    if problems:
        raise ValueError(f"lora: needed floating-point arrays without adapters and with input and "
                         f"output axes, got {', '.join(problems[:8])} (select other parameters, or "
                         f"call without_adapters first){here()}")
    new = []
    for i, ((_, x), chosen) in enumerate(zip(named, mask, strict=True)):
        if chosen:
            n = _input_axes(x.shape[stacked:]) if inputs is None else inputs
            new.append(_adapted(x, random.fold_in(key, i), rank, scale, n, stacked, dtype))
        else:
            new.append(x)
    return trees.unflatten(structure, new)


def _is_array(x: Any) -> bool:
    return isinstance(x, (LoRAArray, QuantizedArray))


def _is_adapted(x: Any) -> bool:
    return isinstance(x, LoRAArray)


def _selected(params: PyTree, select: str | Sequence[str]) -> tuple[list[Any], list[bool], Any]:
    """Return the arrays of a tree with their paths, which ones are selected, and the structure."""
    plain = trees.map(lambda x: 0, params, is_leaf=_is_array)
    leaves, structure = tree_flatten_with_path(params, is_leaf=_is_array)
    return ([(path_of(keys), x) for keys, x in leaves], trees.leaves(mask_tree(
        select, plain, "lora")), structure)


def _problem(path: str, x: Any, inputs: int | None, stacked: int) -> list[str]:
    """Why a parameter cannot have an adapter; an empty list if it can."""
    if _is_adapted(x):
        return [f"{path} with an adapter"]
    axes = len(x.shape) - stacked
    if axes < 2 or (inputs is not None and not 0 < inputs < axes):
        return [f"{path} of shape {tuple(x.shape)}"]
    return [] if jnp.issubdtype(x.dtype, jnp.floating) else [f"{path} of dtype {x.dtype}"]


def _input_axes(shape: Sequence[int]) -> int:
    """Return how many axes are input axes, so that the factors are small."""
    sizes = [int(n) for n in shape]
    return min(range(len(sizes) - 1, 0, -1),
               key=lambda i: int(np.prod(sizes[:i])) + int(np.prod(sizes[i:])))


def _adapted(
    x: Any, key: Array, rank: int, scale: float, inputs: int, stacked: int, dtype: Any
) -> LoRAArray:
    shape = tuple(x.shape)
    split = stacked + inputs
    dtype = np.dtype(x.dtype if dtype is None else dtype)
    limit = float(np.prod(shape[stacked:split])) ** -0.5
    a = random.uniform(key, (*shape[:split], rank), jnp.float32, -limit, limit).astype(dtype)
    b = jnp.zeros((*shape[:stacked], rank, *shape[split:]), dtype)
    return LoRAArray(x, a, b, scale, inputs, len(shape) - split)


def adapter_mask(params: PyTree) -> PyTree:
    """Create a tree of bools that are True for the arrays `a` and `b` of adapters.

    Args:
        params: tree that contains objects of the class `LoRAArray`.

    Returns:
        A tree with the structure of `params`. Pass this function as `trainable=` to
        `TrainState.create`, or as a mask to functions of `toile.optim`.

    >>> import toile.linen as nn
    >>> from toile import optim
    >>> from toile.finetuning import adapter_mask, lora
    >>> from toile.training.train_state import TrainState
    >>> params = lora(nn.Dense(4).init(key(0), jnp.ones(8))["params"], "kernel", key=key(1))
    >>> state = TrainState.create(
    ...     apply_fn=None, params=params, tx=optim.sgd(0.1), trainable=adapter_mask)
    """
    def flags(x: Any) -> Any:
        if not _is_adapted(x):
            return False
        return replace(x, base=trees.map(lambda _: False, x.base, is_leaf=_is_none),
                       a=x.a is not None, b=x.b is not None)

    return trees.map(flags, params, is_leaf=lambda x: _is_adapted(x) or x is None)


def _is_none(x: Any) -> bool:
    return x is None


def adapters_of(params: PyTree) -> dict[str, dict[str, Any]]:
    """Return the adapters in a tree, without the other parameters, for example to save them.

    Args:
        params: tree that contains objects of the class `LoRAArray`.

    Returns:
        A dict that maps paths of parameters to dicts with the arrays `a`, `b` and `scale`.

    >>> import toile.linen as nn
    >>> from toile.finetuning import adapters_of, lora
    >>> params = lora(nn.Dense(4).init(key(0), jnp.ones(8)), key=key(1), rank=2)
    >>> toile.tree.map(jnp.shape, adapters_of(params))
    {'params/kernel': {'a': (8, 2), 'b': (2, 4), 'scale': ()}}
    """
    leaves, _ = tree_flatten_with_path(params, is_leaf=_is_array)
    return {path_of(keys): {"a": x.a, "b": x.b, "scale": np.float32(x.scale)}
            for keys, x in leaves if _is_adapted(x)}


def with_adapters(params: PyTree, adapters: Mapping[str, Mapping[str, Any]]) -> PyTree:
    """Add adapters, such as the result of `adapters_of`, to the parameters in a tree.

    Args:
        params: tree of parameters, with the same paths as the tree passed to `adapters_of`. If a
            parameter already has an adapter, that adapter is replaced.
        adapters: dict that maps paths to dicts with the arrays `a`, `b` and `scale`.

    Returns:
        A tree with a `LoRAArray` for each of the paths.

    Raises:
        ValueError: there is no parameter at a path, or an adapter does not fit the shape of its
            parameter.

    >>> import toile.linen as nn
    >>> from toile.finetuning import adapters_of, lora, with_adapters
    >>> variables = nn.Dense(4).init(key(0), jnp.ones(8))
    >>> saved = adapters_of(lora(variables, key=key(1), rank=2))
    >>> with_adapters(variables, saved)["params"]["kernel"]
    LoRAArray(float32[8,4], rank=2, scale=1)
    """
    leaves, structure = tree_flatten_with_path(params, is_leaf=_is_array)
    new, problems, left = [], [], dict(adapters)
    for keys, x in leaves:
        path = path_of(keys)
        found = left.pop(path, None)
        base = x.base if _is_adapted(x) and found is not None else x
        made = base if found is None else _joined(base, **found)
        if found is not None and made is None:
            a, b = (tuple(jnp.shape(found[name])) for name in "ab")
            problems.append(f"{path}: {a} and {b} for a parameter of shape {tuple(base.shape)}")
        new.append(made)
    problems += [f"{path}: no such parameter" for path in left]
    if problems:
        raise ValueError(f"with_adapters: needed adapters that fit the parameters, got "
                         f"{'; '.join(problems[:8])} (adapters_of must have been called for the "
                         f"same model){here()}")
    return trees.unflatten(structure, new)


def _joined(base: Any, a: Any, b: Any, scale: Any = 1.0) -> LoRAArray | None:
    """Return an array with an adapter; None if the shapes do not fit."""
    a, b = jnp.asarray(a), jnp.asarray(b)
    shape = tuple(base.shape)
    batch = a.ndim + b.ndim - 2 - len(shape)
    inputs, outputs = a.ndim - 1 - batch, b.ndim - 1 - batch
    if min(batch, inputs - 1, outputs - 1) < 0:
        return None
    split, rank = batch + inputs, a.shape[-1]
    if a.shape != (*shape[:split], rank) or b.shape != (*shape[:batch], rank, *shape[split:]):
        return None
    return LoRAArray(base, a, b, float(scale), inputs, outputs)


def without_adapters(params: PyTree) -> PyTree:
    """Remove the adapters from a tree of parameters.

    Args:
        params: tree that contains objects of the class `LoRAArray`.

    Returns:
        The tree that was passed to `lora`.

    >>> import toile.linen as nn
    >>> from toile.finetuning import lora, without_adapters
    >>> variables = nn.Dense(4).init(key(0), jnp.ones(8))
    >>> adapted = lora(variables, key=key(1))
    >>> without_adapters(adapted)["params"]["kernel"] is variables["params"]["kernel"]
    True
    """
    return trees.map(lambda x: x.base if _is_adapted(x) else x, params, is_leaf=_is_array)


def merge_adapters(params: PyTree) -> PyTree:
    """Replace each array that has an adapter with an ordinary array of the same values.

    The sum of the array and its adapter is computed in float32 and then converted to the dtype of
    the parameter. The result is not quantized, even if the parameter is. To store it in fewer bits
    again, pass it to `toile.quantization.quantize`.

    Args:
        params: tree that contains objects of the class `LoRAArray`.

    Returns:
        A tree without adapters. Models that use it compute no additional matrix products.

    >>> from toile.finetuning import LoRAArray, merge_adapters
    >>> w = LoRAArray(jnp.eye(2), jnp.ones((2, 1)), jnp.array([[0.0, 1.0]]))
    >>> merge_adapters({"kernel": w})
    {'kernel': Array([[1., 1.],
           [0., 2.]], dtype=float32)}
    """
    def merged(x: Any) -> Any:
        if not _is_adapted(x):
            return x
        wide = np.promote_types(x.dtype, np.float32)
        base = jnp.asarray(x.base)
        whole = replace(x, base=base.astype(wide), a=x.a.astype(wide), b=x.b.astype(wide))
        return whole.merge().astype(base.dtype)

    return trees.map(merged, params, is_leaf=_is_array)
