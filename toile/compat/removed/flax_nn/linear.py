"""Layers of `flax.nn` with a kernel: the functions of `toile.core.nn.linear` as modules."""

from __future__ import annotations

from typing import Any

from toile import numpy as jnp
from toile.compat.removed.flax_nn.module_class import Module, module_method
from toile.compat.removed.flax_nn.module_scope import scope_of
from toile.core import nn as functions
from toile.core.nn.linear import default_embed_init, default_kernel_init
from toile.engine.source import here

__all__ = ["Conv", "ConvTranspose", "Dense", "DenseGeneral", "Embed", "default_kernel_init"]


class Dense(Module):
    """A linear map of the last axis."""

    def apply(self, inputs: Any, features: int, *args: Any, **kwargs: Any) -> Any:
        return functions.dense(scope_of(self), inputs, features, *args, **kwargs)


class DenseGeneral(Module):
    """A linear map that sums over several axes."""

    def apply(self, inputs: Any, features: Any, *args: Any, **kwargs: Any) -> Any:
        return functions.dense_general(scope_of(self), inputs, features, *args, **kwargs)


def _sizes(kernel_size: Any) -> tuple[int, ...]:
    return (kernel_size,) if isinstance(kernel_size, int) else tuple(kernel_size)


class Conv(Module):
    """A convolution of the axes between the first one and the last one."""

    def apply(self, inputs: Any, features: int, kernel_size: Any, *args: Any,
              **kwargs: Any) -> Any:
        return functions.conv(scope_of(self), inputs, features, _sizes(kernel_size), *args,
                              **kwargs)


class ConvTranspose(Module):
    """A transposed convolution."""

    def apply(self, inputs: Any, features: int, kernel_size: Any, *args: Any,
              **kwargs: Any) -> Any:
        return functions.conv_transpose(scope_of(self), inputs, features,
                                        _sizes(kernel_size), *args, **kwargs)


class Embed(Module):
    """Vectors for integers; `attend` multiplies a query by all of them."""

    def apply(self, inputs: Any, num_embeddings: int, features: int,
              embedding_init: Any = default_embed_init) -> Any:
        if not jnp.issubdtype(inputs.dtype, jnp.integer):
            raise ValueError(
                "Embed: Input type must be an integer or unsigned integer, got "
                f"{inputs.dtype} (convert with astype){here()}"
            )
        return self.param("embedding", (num_embeddings, features), embedding_init)[inputs]

    @module_method
    def attend(self, query: Any, **_: Any) -> Any:
        """The products of the queries and all vectors."""
        return query @ self.get_param("embedding").T
