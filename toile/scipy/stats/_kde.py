"""Gaussian kernel density estimation.

The estimate is a pytree of arrays, so it can be built inside and passed through any transformation.
"""

from typing import Any

import numpy as np

from toile import numpy as jnp
from toile import random
from toile.api import vmap
from toile.engine.source import here
from toile.nn._promote import inexact, is_complex
from toile.scipy.linalg import cho_factor, cho_solve, cholesky
from toile.scipy.special import logsumexp, ndtr
from toile.tree_util import register_pytree_node_class

_FIELDS = ("neff", "dataset", "weights", "covariance", "inv_cov")


@register_pytree_node_class
class gaussian_kde:
    """Density estimate from `dataset` of shape (d, n); bandwidth by Scott's rule unless given."""

    neff: Any
    dataset: Any
    weights: Any
    covariance: Any
    inv_cov: Any

    def __init__(self, dataset, bw_method=None, weights=None):
        dataset = jnp.atleast_2d(jnp.asarray(dataset))
        if is_complex(dataset):
            raise NotImplementedError("gaussian_kde does not support complex data" + here())
        if not dataset.size > 1:
            raise ValueError("`dataset` input should have multiple elements." + here())
        d, n = dataset.shape
        if weights is None:
            (dataset,) = inexact("gaussian_kde", dataset)
            weights = jnp.full(n, 1.0 / n, dtype=dataset.dtype)
        else:
            dataset, weights = inexact("gaussian_kde", dataset, jnp.asarray(weights))
            weights = jnp.atleast_1d(weights)
            weights = weights / jnp.sum(weights)
            if weights.ndim != 1:
                raise ValueError("`weights` input should be one-dimensional." + here())
            if len(weights) != n:
                raise ValueError("`weights` input should be of length n" + here())
        neff = 1 / jnp.sum(weights**2)
        self._set(neff=neff, dataset=dataset, weights=weights)
        factor = self._bandwidth(bw_method, d, neff)
        spread = jnp.cov(dataset, rowvar=True, bias=False, aweights=weights)
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

    def tree_flatten(self):
        """The arrays, and no static data."""
        return tuple(getattr(self, name) for name in _FIELDS), None

    @classmethod
    def tree_unflatten(cls, aux_data, children):
        """The estimate from its arrays."""
        out = cls.__new__(cls)
        out._set(**dict(zip(_FIELDS, children)))
        return out

    @property
    def d(self):
        """Number of dimensions."""
        return self.dataset.shape[0]

    @property
    def n(self):
        """Number of data points."""
        return self.dataset.shape[1]

    def evaluate(self, points):
        """Density at `points` of shape (d, m)."""
        return jnp.sum(self.weights * jnp.exp(self._log_kernels(points)), axis=-1)

    __call__ = evaluate

    def pdf(self, x):
        """Density, as `evaluate`."""
        return self.evaluate(x)

    def logpdf(self, x):
        """Log of the density."""
        return logsumexp(jnp.log(self.weights) + self._log_kernels(x), axis=-1)

    def _log_kernels(self, points):
        """Log of the kernel of each data point (last axis) at each of the points."""
        points = self._reshape_points(points)
        data, points, precision = inexact("gaussian_kde", self.dataset, points, self.inv_cov)
        whitening = cholesky(precision, lower=True)
        data, points = jnp.dot(data.T, whitening), jnp.dot(points.T, whitening)
        constant = jnp.sum(jnp.log(jnp.diag(whitening))) - 0.5 * self.d * np.log(2 * np.pi)
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
        """(Cholesky factor, normalisation) of the sum of this covariance and another."""
        factor = cho_factor(self.covariance + covariance)
        root = jnp.sqrt(2 * np.pi) ** self.d * jnp.prod(jnp.diag(factor[0]))
        return factor, 1.0 / root

    def integrate_gaussian(self, mean, cov):
        """Integral of the estimate times a normal density."""
        mean, cov = jnp.atleast_1d(jnp.squeeze(mean)), jnp.atleast_2d(cov)
        if mean.shape != (self.d,):
            raise ValueError(f"mean does not have dimension {self.d}{here()}")
        if cov.shape != (self.d, self.d):
            raise ValueError(f"covariance does not have dimension {self.d}{here()}")
        factor, norm = self._against(cov)
        return _convolve(factor, norm, self.dataset, self.weights, mean)

    def integrate_box_1d(self, low, high):
        """Probability of the interval [low, high], in one dimension."""
        if self.d != 1:
            raise ValueError("integrate_box_1d() only handles 1D pdfs" + here())
        if jnp.ndim(low) != 0 or jnp.ndim(high) != 0:
            raise ValueError("the limits of integration in integrate_box_1d must be "
                             "scalars" + here())
        sigma = jnp.squeeze(jnp.sqrt(self.covariance))
        low = jnp.squeeze((low - self.dataset) / sigma)
        high = jnp.squeeze((high - self.dataset) / sigma)
        return jnp.sum(self.weights * (ndtr(high) - ndtr(low)))

    def integrate_kde(self, other):
        """Integral of the product with another estimate."""
        if other.d != self.d:
            raise ValueError("KDEs are not the same dimensionality" + here())
        factor, norm = self._against(other.covariance)
        small, large = (self, other) if self.n < other.n else (other, self)

        def at(mean):
            return _convolve(factor, norm, large.dataset, large.weights, mean)

        return jnp.sum(vmap(at, in_axes=1)(small.dataset) * small.weights)

    def resample(self, key, shape=()):
        """Draws from the estimate, of shape (d, *shape)."""
        index_key, noise_key = random.split(key)
        index = random.choice(index_key, self.n, shape=shape, p=self.weights)
        mean = jnp.zeros(self.d, self.covariance.dtype)
        noise = random.multivariate_normal(noise_key, mean, self.covariance, shape=shape,
                                           dtype=self.dataset.dtype)
        return self.dataset[:, index] + noise.T

    def integrate_box(self, low_bounds, high_bounds, maxpts=None):
        """Not available beyond one dimension."""
        raise NotImplementedError("only 1D box integrations are supported; use "
                                  "`integrate_box_1d`" + here())

    def set_bandwidth(self, bw_method=None):
        """Not available: the estimate is immutable."""
        raise NotImplementedError("dynamically changing the bandwidth method is not "
                                  "supported" + here())


def _convolve(factor, norm, target, weights, mean):
    diff = target - mean[:, None]
    energy = 0.5 * jnp.sum(diff * cho_solve(factor, diff), axis=0)
    return norm * jnp.sum(jnp.exp(-energy) * weights)
