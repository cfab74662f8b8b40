"""BatchApply, which lets a function that expects one batch axis accept several."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from toile.engine.annotations import PyTree
from toile.engine.source import here
from toile.engine.trees import leaves, tree_map

__all__ = ["BatchApply"]


def ndim_at_least(x: Any, num_dims: int) -> bool:
    """Whether an array or a number has at least `num_dims` axes."""
    return np.ndim(x) >= num_dims


def arbitrary_mergeable_leaf(min_num_dims: int, args: Any, kwargs: Any) -> Any:
    """The first array with enough axes, or None if there is none."""
    found = (x for x in leaves((args, kwargs)) if ndim_at_least(x, min_num_dims))
    return next(found, None)


def merge_leading_dims(x: Any, num_dims: int) -> Any:
    """Merge the first axes into one; arrays with fewer axes are returned unchanged."""
    if not ndim_at_least(x, num_dims):
        return x
    return x.reshape((math.prod(x.shape[:num_dims]), *x.shape[num_dims:]))


def split_leading_dim(x: Any, to_dim: tuple[int, ...]) -> Any:
    """Split the first axis into several."""
    return x.reshape((*to_dim, *x.shape[1:]))


class BatchApply:
    """Adapts a function that expects one batch axis to arguments with several batch axes.

    The first `num_dims` axes of each argument are merged into one axis, and the first axis of each
    result is split into axes of the original sizes. Arrays with fewer than `num_dims` axes are
    passed unchanged.

    Args:
        f: function or layer whose arguments are trees of arrays.
        num_dims: number of leading axes to merge.

    >>> import toile.linen as nn
    >>> a, b = jnp.ones((2, 3, 4)), jnp.ones(4)
    >>> def weigh(rows, weights):
    ...     print(rows.shape, weights.shape)
    ...     return jnp.dot(rows, weights)
    >>> nn.BatchApply(weigh)(a, b).shape
    (6, 4) (4,)
    (2, 3)
    """

    def __init__(self, f: Callable[..., Any], num_dims: int = 2) -> None:
        self._f = f
        self.num_dims = num_dims

    def __call__(self, *args: PyTree, **kwargs: PyTree) -> PyTree:
        """Call the function with merged axes, and split the first axis of its results.

        The first array with at least `num_dims` axes determines the sizes into which the first axis
        of the results is split.

        Args:
            *args, **kwargs: arguments of the function, trees of arrays.

        Returns:
            The result of the function, a tree of arrays. The first axis of each array is split.

        Raises:
            ValueError: no array has at least `num_dims` axes.
        """
        example = arbitrary_mergeable_leaf(self.num_dims, args, kwargs)
        if example is None:
            raise ValueError(
                f"BatchApply requires at least one input with ndim >= {self.num_dims}.{here()}"
            )
        leading = tuple(example.shape[: self.num_dims])
        args, kwargs = tree_map(lambda x: merge_leading_dims(x, self.num_dims), (args, kwargs))
        return tree_map(lambda x: split_leading_dim(x, leading), self._f(*args, **kwargs))
