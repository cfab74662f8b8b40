"""Cases that were wrong once, as rows: a text, its arrays, and how it is run."""

from __future__ import annotations

import numpy as np

from tests.drawn.calls import Case

F, H = np.linspace(0.1, 0.9, 6, dtype=np.float32), np.linspace(0.1, 0.9, 3, dtype=np.float32)
INT8 = ("int8", "uint8")
NONE = np.zeros((0,), np.int16)


def row(text: str, *arrays: np.ndarray, x64: bool = False, ways: tuple[str, ...] = ()) -> Case:
    """A case of given arrays."""
    return Case(text, list(arrays), x64, ways, rtol=20)


CASES = [
    # transposes of products whose result has the axes of one operand only
    *(row(f"jnp.einsum('{spec}', a[0], a[1])", np.ones(shape, dtype), np.asarray(3, dtype),
          ways=("jit",))
      for dtype in ("float32", "int8")
      for spec, shape in (("ab,->ba", (2, 3)), ("cba,->acb", (2, 3, 4)), ("cba,->cab", (2, 1, 3)))),
    row("jnp.einsum('ab,b->ba', a[0], a[1])", F.reshape(2, 3), H, ways=("jit", "vmap", "grad")),
    row("jnp.einsum('ab,ab->ba', a[0], a[0])", F.reshape(2, 3), ways=("jit", "jit_vmap", "grad")),
    # numbers of buckets that the dtype of the ids cannot hold
    *(row("ops.segment_sum(a[0], a[1], num_segments=3, bucket_size=1)",
          np.ones(300, np.float32), (np.arange(300) % 3).astype(dtype)) for dtype in INT8),
    # limits of integers that a default integer cannot hold
    *(row(f"ops.{name}(a[0], a[1], num_segments=3)", np.ones(2, dtype), np.zeros(2, np.int32),
          x64=True, ways=("jit",))
      for name in ("segment_min", "segment_max") for dtype in ("uint64", "int64", "bool")),
    # float32 stays float32 where float64 is enabled
    *(row(text, H, x64=True) for text in (
        "jsp.stats.chi2.logpdf(a[0], a[0])", "jsp.stats.wrapcauchy.logpdf(a[0], a[0])",
        "jsp.stats.multivariate_normal.logpdf(a[0], a[0], jnp.eye(3, dtype='float32'))",
        "jsp.stats.multivariate_normal.logpdf(a[0], a[0], a[0][0])",
        "jsp.stats.gaussian_kde(a[0])(a[0])", "jsp.special.multigammaln(a[0] + 3, 2)",
        "jsp.linalg.polar(jnp.eye(3, dtype='float32') + a[0])", "jnp.tri(2, 3, 1, dtype=float)",
    )),
    *(row("jax.vmap(lambda v: lax.pmean(v, 'i'), axis_name='i')(a[0])", np.arange(3).astype(t),
          x64=True) for t in ("int8", "int32", "int64", "bool")),
    # small integers become the default float
    *(row(f"{name}(a[0])", np.arange(3).astype(t), x64=True)
      for name in ("jnp.unwrap", "jnp.linalg.vector_norm") for t in ("int8", "int32", "bool")),
    # dtypes and weak types of results that are not floats
    *(row(text, H, x64=True) for text in (
        "jnp.argpartition(a[0], 1)", "jnp.array_equal(1, 2)", "jnp.array_equiv(1.5, a[0][0])",
        "jnp.array_equal(1.5, 1.5, equal_nan=True)",
    )),
    # windows of a number of points that is no int
    *(row(f"jnp.{name}({points})") for name in ("bartlett", "blackman", "hanning", "hamming")
      for points in ("3.5", "True", "np.int64(4)", "np.float32(4.0)")),
    # empty arrays
    row("jnp.digitize(a[0], a[1])", np.arange(3), NONE, x64=True),
    row("jnp.setdiff1d(a[0], 3, size=2)", NONE, ways=("jit",)),
    row("jnp.setdiff1d(a[0], 3, size=2, fill_value=5)", NONE, ways=("jit",)),
    row("jnp.setxor1d(a[0], a[0], size=2)", NONE), row("jnp.union1d(a[0], a[0], size=2)", NONE),
]
