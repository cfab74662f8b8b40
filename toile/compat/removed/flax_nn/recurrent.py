"""Recurrent cells of `flax.nn`, whose size is that of their carry."""

from __future__ import annotations

from typing import Any

from toile import numpy as jnp
from toile import random
from toile.compat.removed.flax_nn.linear import Conv, Dense, default_kernel_init
from toile.compat.removed.flax_nn.module_class import Module
from toile.core.nn import initializers
from toile.core.nn.activation import sigmoid, tanh

__all__ = ["ConvLSTM", "GRUCell", "LSTMCell", "OptimizedLSTMCell"]

_orthogonal = initializers.orthogonal()


def _pair(rng: Any, batch_dims: Any, size: Any, init_fn: Any) -> tuple[Any, Any]:
    first, second = random.split(rng)
    size = (size,) if isinstance(size, int) else tuple(size)
    shape = (*batch_dims, *size)
    return init_fn(first, shape), init_fn(second, shape)


class LSTMCell(Module):
    """One step of an LSTM: carry (c, h) and inputs give a new carry and h."""

    def apply(self, carry: Any, inputs: Any, gate_fn: Any = sigmoid, activation_fn: Any = tanh,
              kernel_init: Any = default_kernel_init, recurrent_kernel_init: Any = _orthogonal,
              bias_init: Any = initializers.zeros) -> Any:
        c, h = carry

        def gate(name: str) -> Any:
            x = Dense(inputs, h.shape[-1], bias=False, kernel_init=kernel_init, name=f"i{name}")
            return x + Dense(h, h.shape[-1], kernel_init=recurrent_kernel_init,
                             bias_init=bias_init, name=f"h{name}")

        c = gate_fn(gate("f")) * c + gate_fn(gate("i")) * activation_fn(gate("g"))
        h = gate_fn(gate("o")) * activation_fn(c)
        return (c, h), h

    @staticmethod
    def initialize_carry(rng: Any, batch_dims: Any, size: Any,
                         init_fn: Any = initializers.zeros) -> tuple[Any, Any]:
        """The carry of the first step: two arrays of shape (*batch_dims, size)."""
        return _pair(rng, batch_dims, size, init_fn)


class OptimizedLSTMCell(LSTMCell):
    """The same with the same parameters; the compiler joins the products of the gates."""


class GRUCell(Module):
    """One step of a GRU: carry h and inputs give a new h, twice."""

    def apply(self, carry: Any, inputs: Any, gate_fn: Any = sigmoid, activation_fn: Any = tanh,
              kernel_init: Any = default_kernel_init, recurrent_kernel_init: Any = _orthogonal,
              bias_init: Any = initializers.zeros) -> Any:
        h, size = carry, carry.shape[-1]

        def of_inputs(name: str) -> Any:
            return Dense(inputs, size, kernel_init=kernel_init, bias_init=bias_init, name=name)

        def of_carry(name: str, bias: bool = False) -> Any:
            return Dense(h, size, bias=bias, kernel_init=recurrent_kernel_init,
                         bias_init=bias_init, name=name)

        reset = gate_fn(of_inputs("ir") + of_carry("hr"))
        update = gate_fn(of_inputs("iz") + of_carry("hz"))
        new = activation_fn(of_inputs("in") + reset * of_carry("hn", bias=True))
        h = (1.0 - update) * new + update * h
        return h, h

    @staticmethod
    def initialize_carry(rng: Any, batch_dims: Any, size: int,
                         init_fn: Any = initializers.zeros) -> Any:
        """The carry of the first step: an array of shape (*batch_dims, size)."""
        return init_fn(rng, (*batch_dims, size))


class ConvLSTM(Module):
    """One step of an LSTM whose products are convolutions."""

    def apply(self, carry: Any, inputs: Any, features: int, kernel_size: Any, strides: Any = None,
              padding: Any = "SAME", bias: bool = True, dtype: Any = jnp.float32) -> Any:
        c, h = carry
        of = Conv.partial(features=4 * features, kernel_size=kernel_size, strides=strides,
                          padding=padding, bias=bias, dtype=dtype)
        i, g, f, o = jnp.split(of(inputs, name="ih") + of(h, name="hh"), 4, axis=-1)
        c = sigmoid(f + 1) * c + sigmoid(i) * jnp.tanh(g)
        h = sigmoid(o) * jnp.tanh(c)
        return (c, h), h

    @staticmethod
    def initialize_carry(rng: Any, batch_dims: Any, size: Any,
                         init_fn: Any = initializers.zeros) -> tuple[Any, Any]:
        """The carry of the first step: two arrays of shape (*batch_dims, *size)."""
        return _pair(rng, batch_dims, size, init_fn)
