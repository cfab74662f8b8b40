"""The recurrent cells of `flax.linen` until 2022, whose size is that of their carry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from toile import linen as nn
from toile import random, tree
from toile.linen import recurrent_cells as cells

__all__ = ["ConvLSTM", "GRUCell", "LSTMCell", "OptimizedLSTMCell"]

_zeros = nn.initializers.zeros


class _Carry:
    """`initialize_carry`: (rng, batch_dims, size) of the class, or (rng, input_shape) of a cell."""

    def __init__(self, count: int):
        self.count = count

    def __get__(self, cell: Any, cls: type) -> Callable[..., Any]:
        def initialize_carry(rng: Any, batch_dims: Any, size: Any = None,
                             init_fn: Any = _zeros) -> Any:
            """Create the carry of the first step: arrays of shape (*batch_dims, size)."""
            if size is None:
                base: Any = cls.__mro__[1]
                return base.initialize_carry(cell, rng, batch_dims)
            sizes = (size,) if isinstance(size, int) else tuple(size)
            shape = (*batch_dims, *sizes)
            if self.count == 1:
                return init_fn(rng, shape)
            return tuple(init_fn(key, shape) for key in random.split(rng, self.count))

        return initialize_carry


def _sized_by_carry(base: Any, count: int) -> Any:
    """A cell without `features`; the last array of the carry has its size."""

    class Cell(base):
        features: int | None = None
        initialize_carry = _Carry(count)

        @nn.compact
        def __call__(self, carry: Any, inputs: Any) -> Any:
            object.__setattr__(self, "features", tree.leaves(carry)[-1].shape[-1])
            return base.__call__(self, carry, inputs)

    Cell.__name__ = Cell.__qualname__ = base.__name__
    Cell.__doc__ = base.__doc__
    return Cell


LSTMCell = _sized_by_carry(cells.LSTMCell, 2)
OptimizedLSTMCell = _sized_by_carry(cells.OptimizedLSTMCell, 2)
GRUCell = _sized_by_carry(cells.GRUCell, 1)


class ConvLSTM(cells.ConvLSTMCell):
    """An LSTM cell whose products are convolutions; its carry is made by the class."""

    initialize_carry: Any = _Carry(2)
