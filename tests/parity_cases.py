"""What users write, to be run on jax and on toile: expressions over named arrays.

A case is the text of an expression over `jnp`, `lax`, `nn`, `jax` and the arrays of `DATA`, or such
a text with flags: "-grad", "-jvp", "-vmap" for what it does not have, "eager" when
shapes depend on values, "single" for what computes in float32 always. Longer programs are in
`parity_programs.py`.
"""

import ml_dtypes
import numpy as np

_RNG = np.random.default_rng(20)


def _f(*shape, low=-2.0, high=2.0):
    return _RNG.uniform(low, high, shape).astype(np.float32)


def _c(*shape):
    return (_f(*shape) + 1j * _f(*shape)).astype(np.complex64)


def _apart(*shape):
    count = int(np.prod(shape))
    return _RNG.permutation(np.linspace(-2, 2, count)).reshape(shape).astype(np.float32)


DATA = {
    "x": _f(3, 4), "y": _f(3, 4), "p": _f(3, 4, low=0.5, high=2.5),
    "q": _f(3, 4, low=-0.9, high=0.9),
    "v": _f(4), "w": _f(3), "s": _f(), "t": _f(2, 3, 4), "k": _f(4, 5), "a": _f(3, 3),
    "r": _f(2, 3, 3), "d": _apart(3, 4), "o": _apart(7), "e": _f(0, 4), "c": _c(3, 4),
    "z": _c(4, 5),
    "ca": _c(3, 3),
    "i": _RNG.integers(-5, 6, (3, 4)).astype(np.int32), "n": np.array([2, 0, 1, 2], np.int32),
    "l": np.array(1, np.int32), "u": _RNG.integers(0, 200, (3, 4)).astype(np.uint8),
    "i8": _RNG.integers(-100, 100, (3, 4)).astype(np.int8),
    "m": _RNG.random((3, 4)) < 0.5, "mv": np.array([True, False, True, True]),
    "h": _f(3, 4).astype(ml_dtypes.bfloat16), "g": _f(3, 4).astype(np.float16),
    "hk": _f(4, 5).astype(ml_dtypes.bfloat16),
    "im": _f(2, 6, 5, 3), "ke": _f(3, 2, 3, 4), "sig": _f(2, 3, 8), "sk": _f(4, 3, 3),
    "ids": np.array([[0], [2], [2], [1]], np.int32), "up": _f(4, 4),
    "far": np.array([5, -7, 1], np.int32),
    "cards": np.array([3, 1, 3, 0, 2, 1], np.int32),
}  # fmt: skip

UFUNCS = [
    *(f"jnp.{f}(x)" for f in (
        "abs sin cos tan sinh cosh tanh arctan arcsinh exp exp2 expm1 floor ceil trunc sign square "
        "negative positive reciprocal rint deg2rad rad2deg fabs sinc isfinite isnan isinf "
        "signbit logical_not i0 conj real angle nan_to_num").split()),
    ("jnp.spacing(x)", "-grad -jvp"),
    *(f"jnp.{f}(p)" for f in "log log2 log10 log1p sqrt cbrt".split()),
    *(f"jnp.{f}(q)" for f in "arcsin arccos arctanh".split()),
    "jnp.arccosh(p + 1)",
    *(f"jnp.{f}(x, y)" for f in (
        "add subtract multiply divide maximum minimum fmax fmin hypot copysign logaddexp "
        "logaddexp2 arctan2 heaviside equal not_equal less less_equal greater greater_equal "
        "logical_and logical_or logical_xor isclose allclose array_equal").split()),
    ("jnp.nextafter(x, y)", "-grad -jvp"), "jnp.float_power(p, y)", "jnp.power(p, y)",
    "jnp.power(x, 3)", "jnp.power(x, i)", "x ** 2", "x ** 3.0", "2.0 ** x", "p ** -1.5",
    "jnp.mod(x, p)", "jnp.fmod(x, p)", "jnp.remainder(i, 3)", "jnp.floor_divide(x, p)",
    "jnp.divmod(x, p)", "jnp.divmod(i, 3)", "jnp.modf(x)", "jnp.frexp(x)", "jnp.ldexp(x, i)",
    "jnp.round(x)", "jnp.round(x, 1)", "jnp.around(i, 1)", "jnp.clip(x, -1, 1)",
    "jnp.clip(x, y - 1, y + 1)", "jnp.clip(i, 0)", "jnp.where(m, x, y)", "jnp.where(m, x, 0)",
    "jnp.where(x > 0, x, y)", "jnp.where(m, 1, 2.5)", "jnp.select([m, x > 0], [x, y], s)",
    "jnp.sin(c)", "jnp.exp(c)", "jnp.log(c)", "jnp.abs(c)", "jnp.sqrt(c)", "jnp.tanh(c)", "c * c",
    "jnp.conj(c)", "c.real * c.imag", "jnp.angle(c)", "c / (c + 2)", "jnp.real(c)", "jnp.imag(c)",
    "jnp.power(c, 2)", "c ** 3", "jnp.reciprocal(c)",
    ("jnp.sign(c)", "-grad -jvp"),  # jax takes it for a constant, toile derives x/|x|
    "lax.complex(x, y)",
    "jnp.iscomplexobj(c)", "jnp.isreal(c)", "jnp.gcd(i, 6)", "jnp.lcm(i, 4)",
    "jnp.bitwise_and(i, 6)", "jnp.bitwise_or(i, u)", "jnp.bitwise_xor(i, i8)", "~i",
    "jnp.invert(m)",
    "jnp.left_shift(i, 2)", "i >> 1", "jnp.bitwise_count(u)", "u + i8", "u * 2", "i // 3", "i % 4",
    "-u", "i / 2", "i ** 2", "abs(i)", "jnp.sign(i)", "jnp.sin(i)", "jnp.exp(h)",
    "jnp.log1p(abs(h))",
    "jnp.tanh(g)", "h * 3", "h + x", "g + h", "h @ hk", "jnp.sum(h)", "jnp.mean(h, axis=0)",
    "jnp.logaddexp(x, s)", "jnp.unwrap(x)", "jnp.ediff1d(x)", "jnp.diff(x, axis=0)",
    "jnp.diff(x, 2)",
    "jnp.gradient(x)", "jnp.gradient(v)", "jnp.trapezoid(x, axis=1)", "jnp.interp(v, o.sort(), o)",
    "jnp.heaviside(x, 0.5)", "jnp.polyval(w, x)", "jnp.convolve(v, w)",
    "jnp.correlate(v, w, 'same')",
    "jnp.cross(w, 2 * w[::-1])", "jnp.vecdot(x, y)", "jnp.sinc(x + 3)",
]  # fmt: skip

REDUCTIONS = [
    *(f"jnp.{f}({a})" for f in ("sum", "mean", "max", "min", "var", "std", "ptp", "median")
      for a in ("d", "d, axis=1", "d, axis=0, keepdims=True")),
    *(f"jnp.{f}(p, axis=1)" for f in ("prod", "cumsum", "cumprod", "nansum", "nanmean", "nanprod")),
    "jnp.sum(t, axis=(0, 2))", "jnp.sum(x, where=m)", "jnp.sum(x, axis=1, where=m, initial=2.0)",
    "jnp.mean(x, axis=1, where=mv)", "jnp.max(x, axis=1, where=m, initial=-9)",
    "jnp.min(d, initial=0.0)", "jnp.var(x, axis=1, ddof=1)", "jnp.std(x, where=mv)",
    "jnp.prod(x, axis=(0, 1))", "jnp.sum(i)", "jnp.sum(u)", "jnp.sum(m)", "jnp.mean(i)",
    "jnp.prod(i8, axis=0)", "jnp.max(i, axis=0)", "jnp.sum(c, axis=0)", "jnp.mean(c)", "jnp.var(c)",
    "jnp.sum(x, dtype='bfloat16')", "jnp.sum(i, dtype=float)", "jnp.all(m, axis=0)",
    "jnp.any(x > 1)",
    "jnp.count_nonzero(i, axis=1)", "jnp.argmax(d)", "jnp.argmax(d, axis=1)",
    "jnp.argmin(d, axis=0)",
    "jnp.nanmax(x)", "jnp.nanmin(x, axis=0)", "jnp.nanargmax(d, axis=1)", "jnp.nanvar(x)",
    "jnp.nanstd(x, axis=1)", "jnp.nanmedian(d, axis=1)", "jnp.cumsum(x)", "jnp.cumsum(t, axis=1)",
    "jnp.cumsum(i, axis=0)", "jnp.cumprod(x, axis=0)", "jnp.nancumsum(x)", "jnp.cumulative_sum(v)",
    "jnp.average(x, axis=1)", "jnp.average(x, axis=1, weights=v)", "jnp.quantile(o, 0.3)",
    "jnp.quantile(d, jnp.array([0.2, 0.7]), axis=1)", "jnp.percentile(o, 40, method='nearest')",
    "jnp.nanquantile(d, 0.5, axis=0)", "jnp.cov(x)", "jnp.corrcoef(x)", "jnp.linalg.norm(x)",
    "jnp.linalg.norm(x, axis=1)", "jnp.linalg.norm(x, ord=1)", "jnp.linalg.norm(v, ord=3)",
    "jnp.linalg.norm(d, ord=jnp.inf, axis=1)", "nn.logsumexp(x)", "nn.logsumexp(x, axis=1)",
    "nn.logsumexp(x, axis=0, b=p, keepdims=True)", "nn.logsumexp(x, axis=1, where=mv)",
    "jnp.histogram(x, bins=4)[0]", "jnp.bincount(cards, length=5)",
    "jnp.digitize(x, jnp.array([-1., 0., 1.]))",
    "jnp.searchsorted(jnp.sort(o), v)", "jnp.sum(e, axis=0)", "jnp.sum(e)", "jnp.max(e, axis=1)",
    "x.sum()", "x.mean(axis=0)", "d.max(1)", "x.std()", "p.prod()", "m.all()", "d.argmax(axis=0)",
    "x.cumsum(1)", "d.ptp() if hasattr(d, 'ptp') else jnp.ptp(d)", "x.var(keepdims=True)",
]  # fmt: skip

SHAPES = [
    "jnp.reshape(x, (2, 6))", "x.reshape(-1)", "jnp.ravel(x)", "x.T", "jnp.transpose(t, (2, 0, 1))",
    "jnp.swapaxes(t, 0, 2)", "jnp.moveaxis(t, 0, -1)", "jnp.expand_dims(x, 1)",
    "jnp.squeeze(x[None], 0)", "jnp.broadcast_to(v, (3, 4))", "jnp.concatenate([x, y], axis=1)",
    "jnp.concatenate([x, i])", "jnp.stack([x, y], axis=2)", "jnp.vstack([v, x])",
    "jnp.hstack([x, y])",
    "jnp.dstack([x, y])", "jnp.column_stack([v, v])", "jnp.block([[x, y], [y, x]])",
    "jnp.tile(x, (2, 1))",
    "jnp.repeat(x, 2, axis=1)", "jnp.repeat(v, jnp.array([1, 2, 0, 1]), total_repeat_length=4)",
    "jnp.flip(x)", "jnp.flip(x, 0)", "jnp.fliplr(x)", "jnp.flipud(x)", "jnp.rot90(x)",
    "jnp.roll(x, 2)",
    "jnp.roll(x, (1, -1), (0, 1))", "jnp.split(x, 2, axis=1)", "jnp.array_split(x, 3, axis=1)",
    "jnp.hsplit(x, 2)", "jnp.pad(x, 1)", "jnp.pad(x, ((1, 2), (0, 1)), constant_values=3)",
    *(f"jnp.pad(v, (2, 1), mode='{mode}')" for mode in
      "edge reflect symmetric wrap linear_ramp maximum mean minimum".split()),
    "jnp.tril(x)", "jnp.triu(x, 1)", "jnp.diag(v)", "jnp.diag(x)",
    "jnp.diagonal(t, axis1=1, axis2=2)",
    "jnp.trace(x)", "jnp.diagflat(v)", "jnp.kron(x, a)", "jnp.outer(v, w)", "jnp.meshgrid(v, w)",
    "jnp.append(v, w)", "jnp.insert(v, 1, 9.0)", "jnp.delete(v, 2)", "jnp.resize(v, (2, 3))",
    "jnp.atleast_2d(v)", "jnp.atleast_3d(v)", "jnp.vander(v, 3)", "jnp.unstack(x)",
    "jnp.apply_along_axis(jnp.sum, 1, x)", "jnp.vectorize(lambda a, b: a * b)(x, v)",
    "jnp.piecewise(x, [x < 0, x >= 1], [lambda a: -a, lambda a: a * 2, 0.5])",
    "jnp.arange(5)", "jnp.arange(0.0, 1.0, 0.25)", "jnp.arange(s.size, dtype='int8')",
    "jnp.linspace(0, 1, 5)",
    "jnp.linspace(s, 2, 4)", "jnp.logspace(0, 2, 4)", "jnp.geomspace(1, 8, 4)",
    "jnp.eye(3, 4, k=1)",
    "jnp.identity(3)", "jnp.zeros((2, 3))", "jnp.ones(3, int)", "jnp.full((2, 2), s)",
    "jnp.full(3, 7)",
    "jnp.zeros_like(i)", "jnp.ones_like(h)", "jnp.full_like(x, 2)", "jnp.tri(3)",
    "jnp.indices((2, 3))",
    "jnp.array(2.5)", "jnp.array([1, 2.5])", "jnp.asarray(3)", "jnp.array([True, 2])",
    "jnp.hanning(5)",
    "jnp.kaiser(4, 2.0)", "x.astype(int)", "i.astype(float)", "x.astype('bfloat16')",
    "m.astype('float32')",
    "u.view('int8')", "x.flatten()", "jnp.matrix_transpose(t)", "t.mT",
    "lax.broadcast(v, (2,))", "lax.broadcast_in_dim(v, (3, 4, 2), (1,))", "lax.reshape(x, (4, 3))",
    "lax.rev(x, (1,))", "lax.pad(x, 0.0, ((1, 0, 1), (0, -1, 0)))", "lax.concatenate([x, y], 0)",
    "lax.expand_dims(x, (0, 2))", "lax.squeeze(t[:, :1], (1,))", "lax.collapse(t, 1, 3)",
    "lax.iota('int32', 4)",
    "lax.broadcasted_iota('float32', (2, 3), 1)", "lax.convert_element_type(x, 'int32')",
    ("lax.bitcast_convert_type(x, 'int32') if x.dtype == 'float32' else x", "-grad -jvp"),
    "lax.split(x, (1, 3), axis=1)", "lax.transpose(x, (1, 0))", "lax.full_like(x, 3)",
]  # fmt: skip

INDEXING = [
    "x[1]", "x[:, 2]", "x[::-1, 1:3]", "x[-1, -2]", "x[..., 0]", "x[None, :, None]", "t[0, :, 1]",
    "x[n[:2]]", "x[:, n]", "x[n[:3], n[1:]]", "x[jnp.array([0, 2])]", "t[:, n[:3], 0]", "x[l]",
    "x[l, n]", "t[n[1:3], :, n[:2]]", "x[jnp.array([[0, 1], [2, 0]]), 1]", "x[1:, ::2]", "x[far]",
    "x[jnp.array([-1, -3])]", ("x[m]", "eager -vmap"), ("jnp.nonzero(m)", "eager -vmap"),
    ("jnp.unique(cards)", "eager -vmap"), ("jnp.where(m)", "eager -vmap"),
    ("jnp.argwhere(m)", "eager -vmap"),
    "jnp.take(x, n, axis=1)", "jnp.take(x, far, axis=0, mode='clip')",
    "jnp.take(x, far, axis=0, mode='fill')",
    "jnp.take(x, far, axis=0, mode='wrap')", "jnp.take(v, l)",
    "jnp.take_along_axis(x, i % 4, axis=1)",
    "jnp.compress(mv, x, axis=1, size=3)", "jnp.choose(n, [v, 2 * v, 3 * v], mode='clip')",
    "jnp.put_along_axis(x, n[None, :3], 9.0, axis=1, inplace=False)", "jnp.nonzero(m, size=5)",
    "jnp.unique(cards, size=5)", "jnp.extract(m, x, size=4)", "jnp.argwhere(m, size=5)",
    *(f"x.at[{at}].{do}" for at in ("1", ":, n", "n[:2], n[2:]", "0:2, 1")
      for do in ("set(2.0)", "add(s)", "multiply(3.0)", "min(0.5)", "max(s)")
      if not (do.startswith("multiply") and "n" in at)),
    "x.at[1].divide(2.0)", "x.at[0, 1].power(2.0)", "x.at[0].subtract(v)", "x.at[far].set(1.0)",
    "x.at[far].add(1.0, mode='clip')", "x.at[n].get(mode='fill', fill_value=7.0)",
    "x.at[far].get(mode='clip')",
    "x.at[:, jnp.array([0, 2])].multiply(p[:, :2], unique_indices=True)",
    ("x.at[n[:3]].apply(jnp.sin)", "-grad -jvp"),
    "i.at[0].add(2)", "i.at[n].max(3)", "m.at[0].set(True)", "c.at[1].add(1j)", "h.at[:, 0].add(1)",
    ("x.at[m].set(0.0)", "eager -vmap"), ("x.at[x > 0].multiply(2.0)", "eager -vmap -grad -jvp"),
    "x.at[n].add(up)", "x.at[n].set(up)",
    "jax.ops.segment_sum(up, n, num_segments=3)", "jax.ops.segment_max(up, n, num_segments=4)",
    "lax.dynamic_slice(x, (l, n[0]), (2, 2))", "lax.dynamic_slice_in_dim(x, l, 2, axis=1)",
    "lax.dynamic_index_in_dim(x, l, 1, keepdims=False)",
    "lax.dynamic_update_slice(x, a[:2, :2], (l, l))",
    "lax.dynamic_update_slice_in_dim(x, v[None], l, 0)",
    "lax.dynamic_update_index_in_dim(x, v, l, 0)",
    "lax.slice(x, (0, 1), (3, 4), (2, 1))", "lax.slice_in_dim(x, 0, 3, 2)",
    "lax.index_in_dim(x, 1, 1)",
    "lax.index_take(x, (n[:2],), (0,))",
    "lax.gather(x, ids, lax.GatherDimensionNumbers((1,), (0,), (0,)), (1, 4))",
    "lax.gather(x, ids + 1, lax.GatherDimensionNumbers((1,), (0,), (0,)), (1, 2), mode='clip')",
    *(f"lax.scatter{f}(x, ids, up, lax.ScatterDimensionNumbers((1,), (0,), (0,)))"
      for f in ("", "_add", "_min", "_max", "_sub")),
    "lax.scatter_mul(x, ids[:2], up[:2], lax.ScatterDimensionNumbers((1,), (0,), (0,)), "
    "unique_indices=True)",

]  # fmt: skip

CASES = [*UFUNCS, *REDUCTIONS, *SHAPES, *INDEXING]
