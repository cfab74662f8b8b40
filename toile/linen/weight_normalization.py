"""SpectralNorm and WeightNorm, which wrap a layer and normalize its parameters.

Both run the layer under `map_variables`. The layer sees normalized parameters, while the parameters
that are stored and trained are not normalized.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import field
from typing import Any

from toile import lax, random
from toile import numpy as jnp
from toile.core.nn.normalization import Axes, canonical_axes
from toile.engine.source import here
from toile.linen.dtypes import canonicalize_dtype
from toile.linen.methods import compact
from toile.linen.module import Module
from toile.linen.transforms import map_variables
from toile.nn import initializers
from toile.nn.initializers import Initializer
from toile.tree_util import keystr, tree_map_with_path
from toile.typing import Dtype

__all__ = ["SpectralNorm", "WeightNorm"]


def _l2_normalize(x: Any, axis: Any = None, eps: float = 1e-12) -> Any:
    """The quotient `x / sqrt(sum(x**2, axis) + eps)`; `eps` keeps the derivative finite at 0."""
    return x * lax.rsqrt((x * x).sum(axis=axis, keepdims=True) + eps)


class SpectralNorm(Module):
    """Wraps a layer so that each kernel is divided by its largest singular value.

    The singular value is approximated by power iteration: each call performs `n_steps` iterations,
    starting from the stored vector `u`. For each kernel, the vector `u` of shape (1, features) and
    the singular value `sigma`, a scalar, are stored in the collection `batch_stats`. The parameters
    are those of the layer, stored under `layer_instance`. The kernels are stored undivided.
    Parameters that are vectors or scalars, such as biases, are never divided.

    Args:
        layer_instance: the layer to wrap.
        n_steps: number of power iterations in each call; 0 for no normalization.
        epsilon: small number that is added to the sum of squares under the square root when a
            vector of the power iteration is normalized.
        dtype: dtype of the normalized kernels; None for the dtype that the kernels and the
            statistics promote to.
        param_dtype: dtype of the statistics when they are created.
        error_on_non_matrix: whether to raise an error for kernels with three or more axes. If
            False, all axes except the last are merged to make a matrix.
        collection_name: name of the collection in which the statistics are stored.

    Raises:
        ValueError: a kernel has three or more axes, and `error_on_non_matrix` is True.

    >>> import toile.linen as nn
    >>> model, x = nn.SpectralNorm(nn.Dense(4)), jnp.ones((1, 3))
    >>> variables = model.init(key(0), x, update_stats=False)
    >>> toile.tree.map(jnp.shape, variables["params"])
    {'layer_instance': {'bias': (4,), 'kernel': (3, 4)}}
    >>> toile.tree.map(jnp.shape, variables["batch_stats"])
    {'layer_instance/kernel/sigma': (), 'layer_instance/kernel/u': (1, 4)}
    >>> y, updated = model.apply(variables, x, update_stats=True, mutable=["batch_stats"])
    >>> model.apply({**variables, **updated}, x, update_stats=False).shape
    (1, 4)
    """

    layer_instance: Module
    n_steps: int = 1
    epsilon: float = 1e-12
    dtype: Dtype | None = None
    param_dtype: Dtype = jnp.float32
    error_on_non_matrix: bool = False
    collection_name: str = "batch_stats"

    @compact
    def __call__(self, *args: Any, update_stats: bool, **kwargs: Any) -> Any:
        """Call the layer with normalized kernels.

        Args:
            *args, **kwargs: arguments of the layer.
            update_stats: whether to store the new `u` and `sigma`. Use True in training; this
                requires `mutable=["batch_stats"]`. Use False in evaluation.

        Returns:
            The result of the layer.
        """
        normalize = functools.partial(self._spectral_normalize, update_stats=update_stats)
        return map_variables(
            lambda layer: layer(*args, **kwargs),
            trans_in_fn=lambda variables: tree_map_with_path(normalize, variables),
            init=self.is_initializing(),
            mutable=True,
        )(self.layer_instance)

    def _spectral_normalize(self, path: Any, vs: Any, update_stats: bool) -> Any:
        """A parameter divided by its largest singular value."""
        matrix = jnp.asarray(vs)
        shape = matrix.shape
        if matrix.ndim <= 1 or self.n_steps < 1:
            return matrix
        if matrix.ndim > 2:
            if self.error_on_non_matrix:
                raise ValueError(
                    f"SpectralNorm: Input is {matrix.ndim}D but error_on_non_matrix is True "
                    f"(parameter {_name(self, path)}){here()}"
                )
            matrix = matrix.reshape((-1, shape[-1]))
        name = _name(self, path)
        known = self.has_variable(self.collection_name, f"{name}/u")
        kept_u = self.variable(
            self.collection_name, f"{name}/u", random.normal,
            None if known else self.make_rng("params"), (1, shape[-1]), self.param_dtype,
        )  # fmt: skip
        kept_sigma = self.variable(
            self.collection_name, f"{name}/sigma", jnp.ones, (), self.param_dtype
        )
        u = kept_u.value
        for _ in range(self.n_steps):
            v = _l2_normalize(jnp.matmul(u, matrix.T), eps=self.epsilon)
            u = _l2_normalize(jnp.matmul(v, matrix), eps=self.epsilon)
        # The iteration is not differentiated: d sigma = v dW uᵀ for singular vectors.
        u, v = lax.stop_gradient(u), lax.stop_gradient(v)
        sigma = jnp.matmul(jnp.matmul(v, matrix), u.T)[0, 0]
        normalized = (matrix / jnp.where(sigma != 0, sigma, 1)).reshape(shape)
        if update_stats:
            kept_u.value = u
            kept_sigma.value = sigma
        return jnp.asarray(normalized, canonicalize_dtype(vs, u, v, sigma, dtype=self.dtype))


class WeightNorm(Module):
    """Wraps a layer so that each feature of its kernels is normalized and multiplied by a scale.

    The parameters are those of the layer, stored under `layer_instance`, and one trainable scale
    for each normalized kernel. The shape of the scale consists of the sizes of the axes in
    `feature_axes`. The kernels are stored without normalization.

    Args:
        layer_instance: the layer to wrap.
        epsilon: small number that is added to the sum of squares under the square root when a norm
            is computed.
        dtype: dtype of the normalized kernels; None for the dtype that the kernels and the scales
            promote to.
        param_dtype: dtype of the scales when they are created.
        use_scale: whether to multiply the normalized kernels by scales.
        scale_init: initializer of the scales.
        feature_axes: axis or axes of the features; the norms are computed over all other axes. If
            `feature_axes` is None, there is a single norm for the whole kernel.
        variable_filter: set of strings, by default `{"kernel"}`. A parameter is normalized if its
            path, such as `layer_instance/kernel`, contains one of these strings. If the set is
            empty or None, all parameters are normalized.

    >>> import toile.linen as nn
    >>> model, x = nn.WeightNorm(nn.Dense(4)), jnp.ones((1, 3))
    >>> variables = model.init(key(0), x)
    >>> toile.tree.map(jnp.shape, variables["params"])
    {'layer_instance': {'bias': (4,), 'kernel': (3, 4)}, 'layer_instance/kernel/scale': (4,)}
    >>> model.apply(variables, x).shape
    (1, 4)
    """

    layer_instance: Module
    epsilon: float = 1e-12
    dtype: Dtype | None = None
    param_dtype: Dtype = jnp.float32
    use_scale: bool = True
    scale_init: Initializer = initializers.ones
    feature_axes: Axes | None = -1
    variable_filter: Iterable[str] | None = field(default_factory=lambda: {"kernel"})

    @compact
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the layer with normalized kernels.

        Args:
            *args, **kwargs: arguments of the layer.

        Returns:
            The result of the layer.
        """
        return map_variables(
            lambda layer: layer(*args, **kwargs),
            trans_in_fn=lambda variables: tree_map_with_path(self._l2_normalize, variables),
            init=self.is_initializing(),
        )(self.layer_instance)

    def _l2_normalize(self, path: Any, vs: Any) -> Any:
        """A parameter normalized for each feature and multiplied by its scale."""
        value = jnp.asarray(vs)
        name = _name(self, path)
        if self.variable_filter and not any(word in name for word in self.variable_filter):
            return value
        features: tuple[int, ...] = ()
        if self.feature_axes is not None:
            features = canonical_axes(value.ndim, self.feature_axes)
        rest = tuple(i for i in range(value.ndim) if i not in features)
        normalized = _l2_normalize(value, axis=rest, eps=self.epsilon)
        scale = None
        if self.use_scale:
            sizes = tuple(value.shape[axis] for axis in features)
            scale = self.param(f"{name}/scale", self.scale_init, sizes, self.param_dtype)
            spread = tuple(n if i in features else 1 for i, n in enumerate(value.shape))
            scale = scale.reshape(spread)
            normalized = normalized * scale
        return jnp.asarray(normalized, canonicalize_dtype(vs, scale, dtype=self.dtype))


def _name(module: Any, path: Any) -> str:
    """The name of a parameter of the wrapped layer: the layer's name and the path inside it."""
    inner = keystr(path[1:], simple=True, separator="/")  # path[0] is the collection
    return f"{module.layer_instance.name}/{inner}"
