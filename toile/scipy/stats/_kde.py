"""Gaussian kernel density estimation.

An estimate is a pytree of arrays, so that transformed functions can create it and accept it as an
argument.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NoReturn

import numpy as np

from toile import numpy as jnp
from toile import random
from toile.api import vmap
from toile.engine.annotations import Array, ArrayLike
from toile.engine.source import here
from toile.nn._promote import inexact, is_complex
from toile.scipy.linalg import cho_factor, cho_solve, cholesky
from toile.scipy.special import logsumexp, ndtr
from toile.tree_util import register_pytree_node_class

_FIELDS = ("neff", "dataset", "weights", "covariance", "inv_cov")


@register_pytree_node_class
class gaussian_kde:
    """An estimate of a probability density: the average of normal densities centered at samples.

    Call the estimate with points to get the density at these points. The estimate is an immutable
    pytree of arrays, so transformed functions can create it and accept it as an argument.

    Args:
        dataset: samples, an array of shape `(d, n)` with `n` samples in `d` dimensions, or a vector
            of samples in one dimension.
        bw_method: the bandwidth: a number, the name of a rule (`"scott"` or `"silverman"`), or a
            function that is called with the estimate and returns a number. The default is
            `"scott"`. The covariance of each normal density is the covariance of the samples times
            the square of the bandwidth.
        weights: weights of the samples; the weights are divided by their sum. If `weights` is None,
            all weights are equal.

    Differences:
        SciPy's estimates can be changed with `set_bandwidth`. SciPy's `resample` has an argument
        `size` instead of a key and a shape.

    >>> from toile.scipy.stats import gaussian_kde
    >>> estimate = gaussian_kde(jnp.array([0.0, 1.0, 2.0]))
    >>> estimate(jnp.array([0.0, 1.0])).round(3)
    Array([0.249, 0.318], dtype=float32)
    """

    neff: Array
    dataset: Array
    weights: Array
    covariance: Array
    inv_cov: Array

    def __init__(self, dataset: ArrayLike,
                 bw_method: str | ArrayLike | Callable[[gaussian_kde], ArrayLike] | None = None,
                 weights: ArrayLike | None = None):
        data = jnp.atleast_2d(jnp.asarray(dataset))
        if is_complex(data):
            raise NotImplementedError("gaussian_kde does not support complex data" + here())
        if not data.size > 1:
            raise ValueError("`dataset` input should have multiple elements." + here())
        d, n = data.shape
        if weights is None:
            (data,) = inexact("gaussian_kde", data)
            shares = jnp.full(n, 1.0 / n, dtype=data.dtype)
        else:
            data, shares = inexact("gaussian_kde", data, jnp.asarray(weights))
            shares = jnp.atleast_1d(shares)
            shares = shares / jnp.sum(shares)
            if shares.ndim != 1:
                raise ValueError("`weights` input should be one-dimensional." + here())
            if len(shares) != n:
                raise ValueError("`weights` input should be of length n" + here())
        neff = 1 / jnp.sum(shares**2)
        self._set(neff=neff, dataset=data, weights=shares)
        factor = self._bandwidth(bw_method, d, neff)
        spread = jnp.cov(data, rowvar=True, bias=False, aweights=shares)
        spread = jnp.atleast_2d(spread)
        self._set(covariance=spread * factor**2, inv_cov=jnp.linalg.inv(spread) / factor**2)

    def _bandwidth(self, method, d, neff):
        if method is None or (isinstance(method, str) and method == "scott"):
            return jnp.power(neff, -1.0 / (d + 4))
        if isinstance(method, str) and method == "silverman":
            return jnp.power(neff * (d + 2) / 4.0, -1.0 / (d + 4))
        if not isinstance(method, str) and jnp.isscalar(method):
            return method
        if callable(method):
            return method(self)
        raise ValueError("`bw_method` should be 'scott', 'silverman', a scalar, or a "
                         "callable." + here())

    def _set(self, **values):
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def __setattr__(self, name, value):
        raise AttributeError(f"gaussian_kde is immutable: cannot set {name}")

    def tree_flatten(self) -> tuple[tuple[Array, ...], None]:
        """Return the arrays of the estimate, and None in place of static data."""
        return tuple(getattr(self, name) for name in _FIELDS), None

    @classmethod
    def tree_unflatten(cls, aux_data: None, children: Sequence[Array]) -> gaussian_kde:
        """Build an estimate from its arrays.

        Args:
            aux_data: not used.
            children: the arrays that `tree_flatten` returns.
        """
        out = cls.__new__(cls)
        out._set(**dict(zip(_FIELDS, children)))
        return out

    @property
    def d(self) -> int:
        """The number of dimensions."""
        return self.dataset.shape[0]

    @property
    def n(self) -> int:
        """The number of samples."""
        return self.dataset.shape[1]

    def evaluate(self, points: ArrayLike) -> Array:
        """Compute the density at the given points.

        Args:
            points: array of shape `(d, m)` with `m` points in `d` dimensions. A one-dimensional
                array is treated as `m` points if `d` is 1, and otherwise as a single point.

        Returns:
            A vector of `m` densities.

        Raises:
            ValueError: the points and the samples have different numbers of dimensions.
        """
        return jnp.sum(self.weights[None] * jnp.exp(self._log_kernels(points)), axis=-1)

    __call__ = evaluate

    def pdf(self, x: ArrayLike) -> Array:
        """Compute the density at the given points, as `evaluate` does.

        Args:
            x: array of shape `(d, m)` with `m` points in `d` dimensions. A one-dimensional
                array is treated as `m` points if `d` is 1, and otherwise as a single point.

        Returns:
            A vector of `m` densities.
        """
        return self.evaluate(x)

    def logpdf(self, x: ArrayLike) -> Array:
        """Compute the logarithm of the density at the given points.

        Args:
            x: array of shape `(d, m)` with `m` points in `d` dimensions. A one-dimensional
                array is treated as `m` points if `d` is 1, and otherwise as a single point.

        Returns:
            A vector of `m` logarithms.
        """
        return logsumexp(jnp.log(self.weights)[None] + self._log_kernels(x), axis=-1)

    def _log_kernels(self, points):
        """Compute the logarithm of the kernel of each sample (last axis) at each point."""
        points = self._reshape_points(points)
        data, points, precision = inexact("gaussian_kde", self.dataset, points, self.inv_cov)
        whitening = cholesky(precision, lower=True)
        data, points = jnp.dot(data.T, whitening), jnp.dot(points.T, whitening)
        constant = jnp.sum(jnp.log(jnp.diag(whitening))) - 0.5 * self.d * math.log(2 * math.pi)
        return constant - 0.5 * jnp.sum(jnp.square(points[:, None] - data[None]), axis=-1)

    def _reshape_points(self, points):
        points = jnp.asarray(points)
        if is_complex(points):
            raise NotImplementedError("gaussian_kde does not support complex coordinates" + here())
        points = jnp.atleast_2d(points)
        d, m = points.shape
        if d == self.d:
            return points
        if d == 1 and m == self.d:
            return jnp.reshape(points, (self.d, 1))
        raise ValueError(f"points have dimension {d}, dataset has dimension {self.d}{here()}")

    def _against(self, covariance):
        """Return the Cholesky factor of the sum of two covariances, and the normalization."""
        factor = cho_factor(self.covariance + covariance)
        root = jnp.sqrt(2 * np.pi) ** self.d * jnp.prod(jnp.diag(factor[0]))
        return factor, 1.0 / root

    def integrate_gaussian(self, mean: ArrayLike, cov: ArrayLike) -> Array:
        """Integrate the product of the estimate and a normal density over the whole space.

        Args:
            mean: mean of the normal density, a vector of length `d`, or a number if `d` is 1.
            cov: covariance of the normal density, a matrix of shape `(d, d)`, or a number if `d` is
                1.

        Returns:
            A scalar array.
        """
        center, spread = jnp.atleast_1d(jnp.squeeze(mean)), jnp.atleast_2d(cov)
        if center.shape != (self.d,):
            raise ValueError(f"mean does not have dimension {self.d}{here()}")
        if spread.shape != (self.d, self.d):
            raise ValueError(f"covariance does not have dimension {self.d}{here()}")
        factor, norm = self._against(spread)
        return _convolve(factor, norm, self.dataset, self.weights, center)

    def integrate_box_1d(self, low: ArrayLike, high: ArrayLike) -> Array:
        """Integrate the density over an interval; the estimate must be one-dimensional.

        Args:
            low, high: ends of the interval, which are numbers.

        Returns:
            A scalar array.
        """
        if self.d != 1:
            raise ValueError("integrate_box_1d() only handles 1D pdfs" + here())
        if jnp.ndim(low) != 0 or jnp.ndim(high) != 0:
            raise ValueError("the limits of integration in integrate_box_1d must be "
                             "scalars" + here())
        sigma = jnp.squeeze(jnp.sqrt(self.covariance))
        low = jnp.squeeze((low - self.dataset) / sigma)
        high = jnp.squeeze((high - self.dataset) / sigma)
        return jnp.sum(self.weights * (ndtr(high) - ndtr(low)))

    def integrate_kde(self, other: gaussian_kde) -> Array:
        """Integrate the product of this estimate and another estimate over the whole space.

        Args:
            other: another estimate, with the same number of dimensions.

        Returns:
            A scalar array.
        """
        if other.d != self.d:
            raise ValueError("KDEs are not the same dimensionality" + here())
        factor, norm = self._against(other.covariance)
        small, large = (self, other) if self.n < other.n else (other, self)

        def at(mean):
            return _convolve(factor, norm, large.dataset, large.weights, mean)

        return jnp.sum(vmap(at, in_axes=1)(small.dataset) * small.weights)

    def resample(self, key: Array, shape: Sequence[int] = ()) -> Array:
        """Draw random samples from the estimate.

        Args:
            key: random key, from `toile.random.key`.
            shape: `()` for one sample, or `(m,)` for `m` samples.

        Returns:
            An array of shape `(d, *shape)`.
        """
        index_key, noise_key = random.split(key)
        index = random.choice(index_key, self.n, shape=shape, p=self.weights)
        mean = jnp.zeros(self.d, self.covariance.dtype)
        noise = random.multivariate_normal(noise_key, mean, self.covariance, shape=shape,
                                           dtype=self.dataset.dtype)
        return self.dataset[:, index] + noise.T

    def integrate_box(self, low_bounds: ArrayLike, high_bounds: ArrayLike,
                      maxpts: int | None = None) -> NoReturn:
        """Raise NotImplementedError, because only `integrate_box_1d` is supported.

        Args:
            low_bounds, high_bounds, maxpts: not used.
        """
        raise NotImplementedError("only 1D box integrations are supported; use "
                                  "`integrate_box_1d`" + here())

    def set_bandwidth(self, bw_method: object = None) -> NoReturn:
        """Raise NotImplementedError, because an estimate cannot be changed.

        Args:
            bw_method: not used.
        """
        raise NotImplementedError("dynamically changing the bandwidth method is not "
                                  "supported" + here())


def _convolve(factor: tuple[Array, bool], norm: Array, target: Array, weights: Array,
              mean: Array) -> Array:
    diff = target - mean[:, None]
    energy = 0.5 * jnp.sum(diff * cho_solve(factor, diff), axis=0)
    return norm * jnp.sum(jnp.exp(-energy) * weights)
