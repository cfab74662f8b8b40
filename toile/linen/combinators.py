"""The layer Sequential, which combines other layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from toile.engine.extra_warnings import doubt
from toile.engine.source import describe, here
from toile.linen.methods import compact
from toile.linen.module import Module

__all__ = ["Sequential"]


class Sequential(Module):
    """Applies layers or functions one after another.

    If a layer returns a tuple, the elements of the tuple become the positional arguments of the
    next layer. If it returns a dict, the items of the dict become the keyword arguments of the next
    layer. A function in `layers` can create layers whose sizes depend on its input. The parameters
    of a module `layers[i]` are stored under `layers_i`.

    Args:
        layers: modules or functions, in the order in which they are applied.

    Raises:
        ValueError: `layers` is not a sequence, or is empty.

    >>> import toile.linen as nn
    >>> model = nn.Sequential([nn.Dense(4), nn.relu, lambda x: nn.Dense(2 * x.shape[-1])(x)])
    >>> variables = model.init(key(0), jnp.ones((1, 3)))
    >>> toile.tree.map(jnp.shape, variables["params"])
    {'Dense_0': {'bias': (8,), 'kernel': (4, 8)}, 'layers_0': {'bias': (4,), 'kernel': (3, 4)}}
    >>> model.apply(variables, jnp.ones((2, 3))).shape
    (2, 8)
    """

    layers: Sequence[Callable[..., Any]]

    def __post_init__(self) -> None:
        if not isinstance(self.layers, Sequence):
            raise ValueError(
                f"'layers' must be a sequence, got '{type(self.layers).__name__}' "
                f"(write Sequential([a, b])).{here()}"
            )
        for layer in self.layers:
            if isinstance(layer, type) and issubclass(layer, Module):
                doubt(TypeError(
                    f"Sequential: needed layers, got the class {layer.__name__} in "
                    f"{describe(self.layers)} (make a layer: {layer.__name__}(...)){here()}"
                ))
        super().__post_init__()

    @compact
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Apply the layers in order.

        Args:
            *args, **kwargs: arguments of the first layer.

        Returns:
            The result of the last layer.
        """
        if not self.layers:
            raise ValueError(f"Empty Sequential module {self.name}.{here()}")
        first, *rest = self.layers
        out = first(*args, **kwargs)
        for layer in rest:
            if isinstance(out, tuple):
                out = layer(*out)
            elif isinstance(out, dict):
                out = layer(**out)
            else:
                out = layer(out)
        return out
