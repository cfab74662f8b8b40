"""BatchApply: run a function for one batch axis on arrays that have several."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from toile.engine.source import here
from toile.engine.trees import leaves, tree_map

__all__ = ["BatchApply"]


def ndim_at_least(x: Any, num_dims: int) -> bool:
    """Whether an array or a number has that many axes."""
    return np.ndim(x) >= num_dims


def arbitrary_mergeable_leaf(min_num_dims: int, args: Any, kwargs: Any) -> Any:
    """The first array with enough axes, or None."""
    found = (x for x in leaves((args, kwargs)) if ndim_at_least(x, min_num_dims))
    return next(found, None)


def merge_leading_dims(x: Any, num_dims: int) -> Any:
    """The first axes made one; arrays with fewer axes stay as they are."""
    if not ndim_at_least(x, num_dims):
        return x
    return x.reshape((math.prod(x.shape[:num_dims]), *x.shape[num_dims:]))


def split_leading_dim(x: Any, to_dim: tuple[int, ...]) -> Any:
    """The first axis made several."""
    return x.reshape((*to_dim, *x.shape[1:]))


class BatchApply:
    """Merge the leading axes of the arguments, call `f`, and split the results again.

    Arrays of fewer than `num_dims` axes are passed as they are.

    >>> import toile, toile.linen as nn, toile.numpy as jnp
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

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """`f` of the merged arguments, with the leading axes of the first array that has them."""
        example = arbitrary_mergeable_leaf(self.num_dims, args, kwargs)
        if example is None:
            raise ValueError(
                f"BatchApply requires at least one input with ndim >= {self.num_dims}.{here()}"
            )
        leading = tuple(example.shape[: self.num_dims])
        args, kwargs = tree_map(lambda x: merge_leading_dims(x, self.num_dims), (args, kwargs))
        return tree_map(lambda x: split_leading_dim(x, leading), self._f(*args, **kwargs))
