"""Activations: the functions of `toile.core.nn.activation`, and PReLU, which has a parameter."""

from __future__ import annotations

import numpy as np

from toile import numpy as jnp
from toile.core.nn import activation as _activation
from toile.core.nn.activation import *  # noqa: F403
from toile.linen.methods import compact
from toile.linen.module import Module
from toile.nn.initializers import constant
from toile.typing import Array, Dtype

__all__ = _activation.__all__ + ["PReLU"]


class PReLU(Module):
    """Leaky ReLU with one learned slope: `max(x, 0) + slope * min(x, 0)`.

    The result has the shape of the input. The parameter `negative_slope` is a scalar.

    Args:
        param_dtype: dtype of the slope when it is created.
        negative_slope_init: initial value of the slope.

    >>> import toile.linen as nn
    >>> variables = nn.PReLU().init(key(0), jnp.ones(3))
    >>> toile.tree.map(jnp.shape, variables)
    {'params': {'negative_slope': ()}}
    >>> nn.PReLU().apply(variables, jnp.array([-1.0, 2.0]))
    Array([-0.01,  2.  ], dtype=float32)
    """

    param_dtype: Dtype = jnp.float32
    negative_slope_init: float = 0.01

    @compact
    def __call__(self, inputs: Array) -> Array:
        """Apply the activation function to each element.

        Args:
            inputs: array of any shape.

        Returns:
            An array with the shape of `inputs`.
        """
        start = self.negative_slope_init
        slope = self.param("negative_slope", constant(start), np.shape(start), self.param_dtype)
        return jnp.where(inputs >= 0, inputs, jnp.asarray(slope, inputs.dtype) * inputs)
