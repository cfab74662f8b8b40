"""What layers with weights share: the types of their fields, the default initializer, biases.

Here and in the layers, annotations are real types, because Module makes fields of them.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.engine.config import flags
from toile.engine.source import here
from toile.engine.tracing import Array as EngineArray
from toile.nn import initializers

Array = EngineArray | Any
PRNGKey = EngineArray
Dtype = Any
Shape = Sequence[int]
Initializer = initializers.Initializer | Callable[..., Any]
PrecisionLike = (
    None | str | lax.Precision | tuple[str, str] | tuple[lax.Precision, lax.Precision]
)
DotGeneralT = Callable[..., Array]
ConvGeneralDilatedT = Callable[..., Array]
EinsumT = Callable[..., Array]
PaddingLike = str | int | Sequence[int | tuple[int, int]]
LaxPadding = str | Sequence[tuple[int, int]]


class PromoteDtypeFn(Protocol):
    """The signature of `promote_dtype`, which a layer can be given another of."""

    def __call__(
        self, *args: Array | None, dtype: Any = None, inexact: bool = True
    ) -> list[Array | None]:
        """The arguments as arrays of one dtype."""


default_kernel_init = initializers.lecun_normal()


def last_size(layer: Any, inputs: Any) -> int:
    """The number of input features: the length of the last axis."""
    try:
        shape = inputs.shape
    except AttributeError:  # a list of numbers
        shape = np.shape(inputs)
    if not shape:
        raise IndexError(
            f"{type(layer).__name__}: needed an input with a feature axis, got a scalar (reshape "
            f"it to (1,), or to (batch, features)){here()}"
        )
    return shape[-1]


def add_bias(y: Any, bias: Any) -> Any:
    """y + bias, the axes of `bias` being the last ones of `y`."""
    if bias.ndim != y.ndim and flags.numpy_rank_promotion != "allow":
        bias = jnp.reshape(bias, (1,) * (y.ndim - bias.ndim) + bias.shape)
    return y + bias
