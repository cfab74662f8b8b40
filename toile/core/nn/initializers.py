"""Initializers of parameters: those of `toile.nn.initializers`, `zeros_init` and `ones_init`.

`zeros` and `ones` are initializers. Other initializers are created by a call, such as
`lecun_normal()`; for consistency, `zeros_init()` and `ones_init()` return `zeros` and `ones`.
"""
# ruff: noqa: F403, F405

from toile.nn.initializers import *
from toile.nn.initializers import Initializer, ones, zeros

__all__ = [
    "Initializer", "constant", "delta_orthogonal", "glorot_normal", "glorot_uniform", "he_normal",
    "he_uniform", "kaiming_normal", "kaiming_uniform", "lecun_normal", "lecun_uniform", "normal",
    "ones", "ones_init", "orthogonal", "truncated_normal", "uniform", "variance_scaling",
    "xavier_normal", "xavier_uniform", "zeros", "zeros_init",
]  # fmt: skip


def zeros_init() -> Initializer:
    """Return an initializer that fills arrays with zeros.

    Returns:
        The initializer `zeros`, a function `f(key, shape, dtype)`.

    >>> import toile.linen as nn
    >>> nn.zeros_init()(key(0), (2,))
    Array([0., 0.], dtype=float32)
    """
    return zeros


def ones_init() -> Initializer:
    """Return an initializer that fills arrays with ones.

    Returns:
        The initializer `ones`, a function `f(key, shape, dtype)`.

    >>> import toile.linen as nn
    >>> nn.ones_init()(key(0), (2,))
    Array([1., 1.], dtype=float32)
    """
    return ones
