"""Layers around a layer that normalize its parameters: SpectralNorm and WeightNorm.

Both run the layer under `map_variables`, so that it sees normalized parameters while those that
are stored, and trained, stay as they are.
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

__all__ = ["SpectralNorm", "WeightNorm"]


def _l2_normalize(x: Any, axis: Any = None, eps: float = 1e-12) -> Any:
    """x / √(Σ x² + ε), the sum over `axis`; ε keeps the derivative finite at 0."""
    return x * lax.rsqrt((x * x).sum(axis=axis, keepdims=True) + eps)


class SpectralNorm(Module):
    """Divide the matrices of a layer by their largest singular value.

    The singular value is approached by power iteration, `n_steps` steps in each call, from the
    vector `u` that the last call with `update_stats=True` left in `batch_stats`.

    >>> import toile, toile.linen as nn, toile.numpy as jnp
    >>> model, x = nn.SpectralNorm(nn.Dense(4)), jnp.ones((1, 3))
    >>> variables = model.init(toile.random.key(0), x, update_stats=False)
    >>> toile.tree.map(jnp.shape, variables["params"])
    {'layer_instance': {'bias': (4,), 'kernel': (3, 4)}}
    >>> toile.tree.map(jnp.shape, variables["batch_stats"])
    {'layer_instance/kernel/sigma': (), 'layer_instance/kernel/u': (1, 4)}
    >>> y, updated = model.apply(variables, x, update_stats=True, mutable=["batch_stats"])
    >>> y = model.apply({**variables, **updated}, x, update_stats=False)

    Args:
      layer_instance: the layer.
      n_steps: of power iteration in each call.
      epsilon: added under the root of norms.
      dtype: of the normalized parameters; by default what the statistics promote them to.
      param_dtype: of the statistics.
      error_on_non_matrix: refuse arrays of three axes and more, which otherwise are taken as
        matrices with the last axis as columns. Vectors and numbers are never touched.
      collection_name: where `u` and `sigma` are kept.
    """

    layer_instance: Module
    n_steps: int = 1
    epsilon: float = 1e-12
    dtype: Any = None
    param_dtype: Any = jnp.float32
    error_on_non_matrix: bool = False
    collection_name: str = "batch_stats"

    @compact
    def __call__(self, *args: Any, update_stats: bool, **kwargs: Any) -> Any:
        """Call the layer with normalized parameters; `update_stats` keeps the new `u`, `sigma`."""
        normalize = functools.partial(self._spectral_normalize, update_stats=update_stats)
        return map_variables(
            lambda layer: layer(*args, **kwargs),
            trans_in_fn=lambda variables: tree_map_with_path(normalize, variables),
            init=self.is_initializing(),
            mutable=True,
        )(self.layer_instance)

    def _spectral_normalize(self, path: Any, vs: Any, update_stats: bool) -> Any:
        """One parameter divided by its largest singular value."""
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
    """Give the parameters of a layer norm 1 for each feature, times a learned scale.

    >>> import toile, toile.linen as nn, toile.numpy as jnp
    >>> model, x = nn.WeightNorm(nn.Dense(4)), jnp.ones((1, 3))
    >>> variables = model.init(toile.random.key(0), x)
    >>> toile.tree.map(jnp.shape, variables["params"])
    {'layer_instance': {'bias': (4,), 'kernel': (3, 4)}, 'layer_instance/kernel/scale': (4,)}
    >>> y = model.apply(variables, x)

    Args:
      layer_instance: the layer.
      epsilon: added under the root of norms.
      dtype: of the normalized parameters; by default what the scale promotes them to.
      param_dtype: of the scale.
      use_scale: whether there is a scale.
      scale_init: its initializer.
      feature_axes: the axes that the scale has; norms are over the others. None: one norm for all.
      variable_filter: normalize only parameters whose path ('layer/sub/kernel') contains one of
        these words; None or nothing: all of them.
    """

    layer_instance: Module
    epsilon: float = 1e-12
    dtype: Any = None
    param_dtype: Any = jnp.float32
    use_scale: bool = True
    scale_init: Initializer = initializers.ones
    feature_axes: Axes | None = -1
    variable_filter: Iterable[str] | None = field(default_factory=lambda: {"kernel"})

    @compact
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the layer with normalized parameters."""
        return map_variables(
            lambda layer: layer(*args, **kwargs),
            trans_in_fn=lambda variables: tree_map_with_path(self._l2_normalize, variables),
            init=self.is_initializing(),
        )(self.layer_instance)

    def _l2_normalize(self, path: Any, vs: Any) -> Any:
        """One parameter with norm 1 along the feature axes, times its scale."""
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
    """What a parameter of the wrapped layer is called: the layer's name and the path in it."""
    inner = keystr(path[1:], simple=True, separator="/")  # path[0] is the collection
    return f"{module.layer_instance.name}/{inner}"
