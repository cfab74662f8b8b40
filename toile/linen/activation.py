"""Activations: those of `toile.core.nn.activation`, and PReLU, which learns."""

from __future__ import annotations

from typing import Any

import numpy as np

from toile import numpy as jnp
from toile.core.nn import activation as _activation
from toile.core.nn.activation import *  # noqa: F403
from toile.linen.methods import compact
from toile.linen.module import Module
from toile.nn.initializers import constant

__all__ = _activation.__all__ + ["PReLU"]


class PReLU(Module):
    """max(x, 0) + slope · min(x, 0) with one learned slope.

    >>> import toile, toile.linen as nn, toile.numpy as jnp
    >>> variables = nn.PReLU().init(toile.random.key(0), jnp.ones(3))
    >>> toile.tree.map(jnp.shape, variables)
    {'params': {'negative_slope': ()}}
    >>> nn.PReLU().apply(variables, jnp.array([-1.0, 2.0]))
    Array([-0.01,  2.  ], dtype=float32)

    Args:
      param_dtype: of the slope.
      negative_slope_init: the slope at first.
    """

    param_dtype: Any = jnp.float32
    negative_slope_init: float = 0.01

    @compact
    def __call__(self, inputs: Any) -> Any:
        """Apply it to each element."""
        start = self.negative_slope_init
        slope = self.param("negative_slope", constant(start), np.shape(start), self.param_dtype)
        return jnp.where(inputs >= 0, inputs, jnp.asarray(slope, inputs.dtype) * inputs)
