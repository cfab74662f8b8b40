"""Derivatives with respect to the stored values of sparse arrays."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import toile.api as api
from toile.api import vmap
from toile.engine.source import here
from toile.engine.trees import flatten, unflatten
from toile.experimental.sparse.storage import JAXSparse
from toile.staging.flat_functions import index_tuple, is_index

_NOTE = """

Derivatives with respect to sparse arguments are sparse arrays with the same indices."""


def _is_sparse(x: Any) -> bool:
    return isinstance(x, JAXSparse)


class _Selected:
    """A function of the buffers that are differentiated: the data of sparse arguments, and the
    leaves of other ones."""

    def __init__(self, fun: Callable[..., Any], nums: Sequence[int], args: Sequence[Any]):
        if not all(0 <= n < len(args) for n in nums):
            raise ValueError(
                f"argnums: needed positions of the {len(args)} positional arguments, got "
                f"{tuple(nums)}{here()}"
            )
        self.fun, self.nums, self.args = fun, nums, list(args)
        self.leaves, self.tree = flatten([args[n] for n in nums], _is_sparse)
        self.buffers = [x.data if _is_sparse(x) else x for x in self.leaves]

    def __call__(self, buffers: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        args = list(self.args)
        found = [_with_data(x, b) for x, b in zip(self.leaves, buffers, strict=True)]
        for n, value in zip(self.nums, unflatten(self.tree, found), strict=True):
            args[n] = value
        return self.fun(*args, **kwargs)

    def result(self, grads: Sequence[Any], one: bool) -> Any:
        """The derivatives as trees like the arguments; Jacobians have batch axes in front."""
        found = []
        for x, g in zip(self.leaves, grads, strict=True):
            if _is_sparse(x):
                made: Callable[..., Any] = functools.partial(_with_data, x)
                for _ in range(g.ndim - x.data.ndim):
                    made = vmap(made)
                g = made(g)
            found.append(g)
        trees = unflatten(self.tree, found)
        return trees[0] if one else tuple(trees)


def _with_data(x: Any, data: Any) -> Any:
    if not _is_sparse(x):
        return data
    buffers, aux = x.tree_flatten()
    return x.tree_unflatten(aux, (data, *buffers[1:]))


def _derived(
    transform: Callable[..., Any], fun: Callable[..., Any], argnums: int | Sequence[int],
    has_aux: bool, kwargs: dict[str, Any], has_value: bool = False,
) -> Callable[..., Any]:
    """The derivative of a function; `transform` is that of the functions of dense arrays."""
    plain = transform(fun, argnums=argnums, has_aux=has_aux, **kwargs)
    nums, one = index_tuple(argnums), is_index(argnums)

    def derivative(*args: Any, **keywords: Any) -> Any:
        chosen = _Selected(fun, nums, args)
        out = transform(chosen, has_aux=has_aux, **kwargs)(chosen.buffers, keywords)
        if has_value:
            return out[0], chosen.result(out[1], one)
        return (chosen.result(out[0], one), out[1]) if has_aux else chosen.result(out, one)

    derivative.__name__, derivative.__doc__ = plain.__name__, f"{plain.__doc__}{_NOTE}"
    return derivative


def grad(
    fun: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False,
    **kwargs: bool,
) -> Callable[..., Any]:
    """Create a function that computes gradients with respect to dense or sparse arrays.

    The gradient with respect to a sparse array is a sparse array with the same indices. It contains
    the derivatives with respect to the stored values.

    Args:
        fun: function that returns a number.
        argnums: positions of the arguments to differentiate with respect to.
        has_aux: whether `fun` returns a pair `(result, aux)`; `aux` is not differentiated.
        **kwargs: other arguments of `toile.grad`.

    Returns:
        A function of the same arguments that returns the gradient.

    >>> from toile.experimental import sparse
    >>> mat = sparse.BCOO.fromdense(jnp.array([0.0, 2.0, 3.0]))
    >>> g = sparse.grad(lambda mat, v: (mat @ v) ** 2)(mat, jnp.ones(3))
    >>> g, g.data
    (BCOO(float32[3], nse=2), Array([10., 10.], dtype=float32))
    """
    return _derived(api.grad, fun, argnums, has_aux, kwargs)


def value_and_grad(
    fun: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False,
    **kwargs: bool,
) -> Callable[..., Any]:
    """Create a function that computes a value and its gradient; see `sparse.grad`.

    Args:
        fun: function that returns a number.
        argnums: positions of the arguments to differentiate with respect to.
        has_aux: whether `fun` returns a pair `(result, aux)`; `aux` is not differentiated.
        **kwargs: other arguments of `toile.value_and_grad`.

    Returns:
        A function of the same arguments that returns the pair (value, gradient).
    """
    return _derived(api.value_and_grad, fun, argnums, has_aux, kwargs, has_value=True)


def jacfwd(
    fun: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False,
    **kwargs: bool,
) -> Callable[..., Any]:
    """Create a function that computes a Jacobian in forward mode; see `sparse.grad`.

    Args:
        fun: function that returns a dense array.
        argnums: positions of the arguments to differentiate with respect to.
        has_aux: whether `fun` returns a pair `(result, aux)`; `aux` is not differentiated.
        **kwargs: other arguments of `toile.jacfwd`.

    Returns:
        A function of the same arguments that returns the Jacobian. The Jacobian with respect to a
        sparse array is a sparse array whose first batch axes are the axes of the result of `fun`.
    """
    return _derived(api.jacfwd, fun, argnums, has_aux, kwargs)


def jacrev(
    fun: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False,
    **kwargs: bool,
) -> Callable[..., Any]:
    """Create a function that computes a Jacobian in reverse mode; see `sparse.grad`.

    Args:
        fun: function that returns a dense array.
        argnums: positions of the arguments to differentiate with respect to.
        has_aux: whether `fun` returns a pair `(result, aux)`; `aux` is not differentiated.
        **kwargs: other arguments of `toile.jacrev`.

    Returns:
        A function of the same arguments that returns the Jacobian. The Jacobian with respect to a
        sparse array is a sparse array whose first batch axes are the axes of the result of `fun`.
    """
    return _derived(api.jacrev, fun, argnums, has_aux, kwargs)


jacobian = jacrev
