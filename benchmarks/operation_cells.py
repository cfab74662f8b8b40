"""The operations that `benchmarks.operations` measures: public functions and their arguments.

A `Cell` contains a function written with JAX's names and the kinds of its arguments. The first
argument of the function is a library (with `L.jnp`, `L.lax`, `L.nn`, ...). A kind is a word: "x"
stands for an array of normally distributed numbers, "positive" for an array of positive numbers,
"matrix" for a well-conditioned square matrix, and so on (see `made`). Every library receives the
same arrays. If PyTorch has an equivalent function, the cell contains it.
"""

from __future__ import annotations

import importlib
import math
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

Function = Callable[..., Any]
DTYPES = {"f": "float32", "h": "bfloat16", "i": "int32", "c": "complex64", "b": "bool"}


@dataclass(frozen=True)
class Cell:
    """A function to measure.

    `dtypes` contains the letters of dtypes (see `DTYPES`). `modes` can contain "forward",
    "gradient" and "per example", the gradient for each example of a batch. `shrink` is a divisor
    for the sizes, used for slow functions."""

    name: str
    fun: Function
    args: tuple[str, ...]
    dtypes: str = "f"
    modes: tuple[str, ...] = ("forward", "gradient", "per example")
    torch: Function | None = None
    shrink: int = 1
    fixed: tuple[Any, ...] = field(default=(), compare=False)


FORWARD = ("forward",)


def library(name: str) -> Any:
    """The modules of toile, or those of jax, flax and optax, under the same names."""
    load = importlib.import_module
    ours = name == "toile"
    return types.SimpleNamespace(
        name=name, jax=load(name), jnp=load(f"{name}.numpy"), lax=load(f"{name}.lax"),
        nn=load(f"{name}.nn"), random=load(f"{name}.random"), ops=load(f"{name}.ops"),
        linalg=load(f"{name}.numpy.linalg"), fft=load(f"{name}.numpy.fft"),
        image=load(f"{name}.image"), special=load(f"{name}.scipy.special"),
        stats=load(f"{name}.scipy.stats"), signal=load(f"{name}.scipy.signal"),
        slinalg=load(f"{name}.scipy.linalg"), ndimage=load(f"{name}.scipy.ndimage"),
        linen=load("toile.linen" if ours else "flax.linen"),
        optim=load("toile.optim" if ours else "optax"),
    )


# ------------------------------------------------------------------------------------ arguments


def _square(n: int) -> int:
    """The side of a matrix of about `n` elements, a multiple of 8."""
    return max(8, int(math.sqrt(n)) // 8 * 8)


def made(kind: str, n: int, dtype: str, batch: int, seed: int) -> np.ndarray:
    """An argument of about `n` elements; with a batch, `batch` arguments of `n / batch`
    elements."""
    rng = np.random.default_rng([seed, n])
    lead = (batch,) if batch else ()
    each = n // batch if batch else n
    side = _square(each)
    kind, _, more = kind.partition(":")
    if kind == "key":
        return rng.integers(0, 2**32, (*lead, 2), dtype=np.uint32)
    kind, many, _ = kind.partition(" of 16")
    small = {"matrix": 16, "definite": 16, "triangular": 16}.get(kind, 1)  # n^3 work
    side = 16 if many else max(8, side // small)
    if many:
        lead = (*lead, max(1, each // 4096))
    shape = {
        "vector": (each,), "matrix": (side, side), "definite": (side, side),
        "triangular": (side, side), "images": (max(1, each // (32 * 32 * 16)), 32, 32, 16),
        "kernel": (3, 3, 16, 16), "rows": (max(1, each // 1024), min(1024, each)),
        "row": (side,), "signal": (max(1, each // 4096), min(4096, each)),
        "labels": (side,), "places": (each,), "segments": (each,), "short": (65,),
        "tokens": (max(1, each // 64),), "sequence": (max(1, each // (64 * 64)), 64, 64),
    }.get(kind, (side, side))
    shape = (*lead, *shape)
    if kind in ("labels", "places", "segments", "tokens"):
        most = {"labels": side, "places": each, "segments": max(1, each // 16)}
        return rng.integers(0, most.get(kind, 1000), shape).astype("int32")
    if kind == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    x = rng.standard_normal(shape)
    if kind == "positive":
        x = np.abs(x) + 0.5
    elif kind in ("inside", "probability"):
        x = np.tanh(x) * 0.9
        x = x if kind == "inside" else (x + 1) / 2
    elif kind == "integer" or dtype == "int32":
        x = rng.integers(1, 100, shape)
    elif kind == "matrix":
        x = x / math.sqrt(side) + 2 * np.eye(side)
    elif kind == "definite":
        x = x @ np.swapaxes(x, -1, -2) / side + np.eye(side)
    elif kind == "triangular":
        x = np.tril(x) / math.sqrt(side) + 2 * np.eye(side)
    if dtype == "complex64":
        x = x + 1j * rng.standard_normal(shape)
    if dtype == "bool":
        return x > 0
    if kind == "integer":
        return x.astype("int32")
    return x.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


# ------------------------------------------------------------------------------------ the cells


def _attribute(path: str) -> Function:
    """A function of a library, given by its path, such as "jnp.exp"."""
    module, name = path.split(".", 1)

    def call(L: Any, *args: Any) -> Any:
        return getattr(getattr(L, module), name)(*args)

    return call


def _torch(name: str) -> Function:
    return lambda torch, *args: getattr(torch, name)(*args)


def _named(
    module: str, names: str, args: tuple[str, ...], dtypes: str = "f",
    modes: tuple[str, ...] = ("forward", "gradient", "per example"), torch: str = "",
    shrink: int = 1,
) -> Iterator[Cell]:
    """Cells for functions with the same kinds of arguments; PyTorch also has those in `torch`."""
    also = set(torch.split())
    for name in names.split():
        yield Cell(f"{module}.{name}", _attribute(f"{module}.{name}"), args, dtypes, modes,
                   _torch(name) if name in also else None, shrink)


def _elementwise() -> Iterator[Cell]:
    smooth = ("exp exp2 expm1 sin cos tan arctan sinh cosh tanh arcsinh abs square negative sign "
              "sinc cbrt deg2rad rad2deg positive")
    both = "exp exp2 expm1 sin cos tan arctan sinh cosh tanh arcsinh abs square negative sign sinc"
    yield from _named("jnp", smooth, ("x",), "fh", torch=both)
    yield from _named("jnp", "log log2 log10 log1p sqrt reciprocal", ("positive",), "fh",
                      torch="log log2 log10 log1p sqrt reciprocal")
    yield from _named("jnp", "arcsin arccos arctanh i0", ("inside",), "f",
                      torch="arcsin arccos arctanh i0")
    yield from _named("jnp", "floor ceil rint trunc round isnan isfinite isinf signbit nan_to_num "
                      "logical_not frexp modf", ("x",), "f", FORWARD,
                      torch="floor ceil trunc round isnan isfinite isinf signbit nan_to_num "
                      "logical_not")
    yield from _named("jnp", "bitwise_count invert", ("integer",), "i", FORWARD)
    yield from _named("jnp", "add subtract multiply maximum minimum arctan2 hypot logaddexp "
                      "logaddexp2 fmax fmin copysign", ("x", "x"), "fh",
                      torch="add subtract multiply maximum minimum arctan2 hypot logaddexp "
                      "logaddexp2 fmax fmin copysign")
    yield from _named("jnp", "divide power float_power", ("positive", "positive"), "f",
                      torch="divide")
    yield from _named("jnp", "mod fmod remainder floor_divide nextafter heaviside",
                      ("x", "positive"), "f", FORWARD,
                      torch="fmod remainder floor_divide nextafter")
    yield from _named("jnp", "equal less greater_equal logical_and logical_or logical_xor isclose",
                      ("x", "x"), "f", FORWARD, torch="logical_and logical_or logical_xor isclose")
    yield from _named("jnp", "add multiply floor_divide mod bitwise_and bitwise_or bitwise_xor gcd "
                      "left_shift right_shift", ("integer", "integer"), "i", FORWARD,
                      torch="add multiply bitwise_and bitwise_or bitwise_xor gcd")
    yield from _named("jnp", "abs exp angle conj real sqrt", ("x",), "c", FORWARD)
    yield Cell("jnp.where", lambda L, b, x, y: L.jnp.where(b, x, y), ("bool", "x", "x"), "fh",
               torch=lambda t, b, x, y: t.where(b, x, y))
    yield Cell("jnp.clip", lambda L, x: L.jnp.clip(x, -1, 1), ("x",), "fh",
               torch=lambda t, x: t.clip(x, -1, 1))
    yield Cell("lax.integer_pow", lambda L, x: L.lax.integer_pow(x, 5), ("x",), "f")
    yield from _named("lax", "erf erfc logistic rsqrt", ("positive",), "fh")
    yield from _named("lax", "erf_inv lgamma digamma bessel_i0e bessel_i1e", ("probability",), "f")
    yield Cell("lax.igamma", lambda L, a, x: L.lax.igamma(a, x), ("positive", "positive"), "f",
               FORWARD, shrink=16)
    yield Cell("lax.convert", lambda L, x: x.astype("bfloat16"), ("x",), "f")
    yield Cell("chain", lambda L, x, y: L.jnp.tanh(x * y + 1) * L.jnp.exp(-x * x) - y, ("x", "x"),
               "fh")


def _reductions() -> Iterator[Cell]:
    names = "sum mean max min var std prod logsumexp"
    for name in names.split():
        for axis, text in ((None, "all"), (0, "axis 0"), (-1, "axis -1")):
            def reduce(L: Any, x: Any, name: str = name, axis: Any = axis) -> Any:
                f = L.special.logsumexp if name == "logsumexp" else getattr(L.jnp, name)
                return f(x, axis=axis)

            yield Cell(f"jnp.{name}, {text}", reduce, ("x",),
                       "fh" if name in ("sum", "max", "mean") else "f")
    for name in "any all argmax argmin count_nonzero nansum nanmean median ptp".split():
        yield Cell(f"jnp.{name}", lambda L, x, name=name: getattr(L.jnp, name)(x, axis=-1),
                   ("x",), "f", FORWARD)
    for name in "cumsum cumprod cummax cumlogsumexp".split():
        for axis in (0, 1):
            def run(L: Any, x: Any, name: str = name, axis: int = axis) -> Any:
                where = L.jnp if name in ("cumsum", "cumprod") else L.lax
                return getattr(where, name)(x, axis)

            yield Cell(f"{name}, axis {axis}", run, ("inside",), "f")
    yield Cell("jnp.quantile", lambda L, x: L.jnp.quantile(x, 0.3, axis=-1), ("x",), "f")
    yield Cell("jnp.percentile", lambda L, x: L.jnp.percentile(x, L.jnp.array([10.0, 50.0])),
               ("x",), "f", FORWARD)
    yield Cell("jnp.histogram", lambda L, x: L.jnp.histogram(x, 50)[0], ("x",), "f", FORWARD)
    yield Cell("jnp.bincount", lambda L, x: L.jnp.bincount(x, length=100), ("segments",), "f",
               FORWARD)
    yield Cell("jnp.average", lambda L, x, w: L.jnp.average(x, weights=w), ("x", "positive"), "f")
    yield Cell("jnp.cov", lambda L, x: L.jnp.cov(x), ("matrix",), "f")
    yield Cell("jnp.corrcoef", lambda L, x: L.jnp.corrcoef(x), ("matrix",), "f")
    yield Cell("lax.associative_scan", lambda L, a, b: L.lax.associative_scan(
        lambda p, q: (p[0] * q[0], p[1] * q[0] + q[1]), (a, b)), ("inside", "x"), "f")
    yield Cell("lax.reduce_window", lambda L, x: L.lax.reduce_window(
        x, -np.inf, L.lax.max, (3, 3), (1, 1), "SAME"), ("x",), "f")


def _shapes() -> Iterator[Cell]:
    yield Cell("transpose", lambda L, x: L.jnp.transpose(x) + 1, ("x",), "fhi")
    yield Cell("reshape and transpose", lambda L, x: x.reshape(8, -1, 8).transpose(2, 1, 0) * 2,
               ("vector",), "f")
    yield Cell("jnp.concatenate", lambda L, x, y: L.jnp.concatenate([x, y], 1), ("x", "x"), "fh")
    yield Cell("jnp.stack", lambda L, x, y: L.jnp.stack([x, y]), ("x", "x"), "f")
    yield Cell("jnp.split", lambda L, x: L.jnp.split(x, 4, axis=1), ("x",), "f")
    yield Cell("jnp.pad", lambda L, x: L.jnp.pad(x, 3), ("x",), "fh")
    yield Cell("jnp.pad, reflect", lambda L, x: L.jnp.pad(x, 3, mode="reflect"), ("x",), "f")
    yield Cell("jnp.tile", lambda L, x: L.jnp.tile(x, (2, 2)), ("x",), "f")
    yield Cell("jnp.repeat", lambda L, x: L.jnp.repeat(x, 3, axis=0), ("x",), "f")
    yield Cell("jnp.flip", lambda L, x: L.jnp.flip(x, 1), ("x",), "f")
    yield Cell("jnp.roll", lambda L, x: L.jnp.roll(x, 5, 1), ("x",), "f")
    yield Cell("jnp.rot90", lambda L, x: L.jnp.rot90(x), ("x",), "f", FORWARD)
    yield Cell("jnp.tril", lambda L, x: L.jnp.tril(x), ("x",), "f")
    yield Cell("jnp.diag", lambda L, x: L.jnp.diag(x), ("row",), "f")
    yield Cell("jnp.diagonal", lambda L, x: L.jnp.diagonal(x), ("x",), "f")
    yield Cell("jnp.broadcast_to", lambda L, x: L.jnp.broadcast_to(x, (64, *x.shape)) * 2,
               ("row",), "f")
    yield Cell("jnp.outer", lambda L, x, y: L.jnp.outer(x, y), ("row", "row"), "fh")
    yield Cell("jnp.kron", lambda L, x, y: L.jnp.kron(x[:8, :8], y), ("matrix", "matrix"), "f")
    yield Cell("strided slice", lambda L, x: x[::2, 1::3] * 2, ("x",), "f")
    yield Cell("jnp.meshgrid", lambda L, x, y: L.jnp.meshgrid(x, y), ("row", "row"), "f", FORWARD)
    yield Cell("jnp.arange", lambda L, x: L.jnp.arange(x.size) + x, ("vector",), "f", FORWARD)
    yield Cell("nn.one_hot", lambda L, i: L.nn.one_hot(i, 128), ("labels",), "f", FORWARD)


def _indexing() -> Iterator[Cell]:
    rows = "x", "labels"
    yield Cell("take rows", lambda L, x, i: x[i], rows, "fh")
    yield Cell("jnp.take, axis 1", lambda L, x, i: L.jnp.take(x, i, axis=1), rows, "f")
    yield Cell("jnp.take_along_axis", lambda L, x, i: L.jnp.take_along_axis(x, i[:, None], 1),
               rows, "f")
    yield Cell("elements", lambda L, x, i: x[i], ("vector", "places"), "f")
    yield Cell("embedding", lambda L, i: L.jnp.zeros((1000, 64))[i] + 1, ("tokens",), "f", FORWARD)
    yield Cell("at.set", lambda L, x, i: x.at[i].set(0), rows, "f")
    yield Cell("at.add", lambda L, x, i: x.at[i].add(1), rows, "f")
    yield Cell("at.add of elements", lambda L, x, i: L.jnp.zeros_like(x).at[i].add(x),
               ("vector", "places"), "f")
    yield Cell("at.max", lambda L, x, i: x.at[i].max(0.5), ("vector", "places"), "f", FORWARD)
    yield Cell("segment_sum", lambda L, x, i: L.ops.segment_sum(x, i, num_segments=x.size // 16),
               ("vector", "segments"), "f")
    yield Cell("segment_max", lambda L, x, i: L.ops.segment_max(x, i, num_segments=x.size // 16),
               ("vector", "segments"), "f", FORWARD)
    yield Cell("dynamic_slice", lambda L, x: L.lax.dynamic_slice(x, (3, 1), (4, 4)), ("x",), "f")
    yield Cell("dynamic_update_slice", lambda L, x: L.lax.dynamic_update_slice(
        x, x[:4, :4], (2, 1)), ("x",), "f")
    yield Cell("jnp.select", lambda L, x: L.jnp.select([x > 1, x < -1], [x * 2, -x], 0), ("x",),
               "f")
    yield Cell("jnp.searchsorted", lambda L, x, y: L.jnp.searchsorted(x, y), ("short", "vector"),
               "f", FORWARD)
    yield Cell("jnp.interp", lambda L, y, x, z: L.jnp.interp(y, L.jnp.sort(x), z),
               ("vector", "short", "short"), "f")
    yield Cell("boolean mask", lambda L, x: L.jnp.where(x > 0, size=x.size // 4)[0], ("vector",),
               "f", FORWARD)


def _sorts() -> Iterator[Cell]:
    for axis in (0, -1):
        yield Cell(f"jnp.sort, axis {axis}", lambda L, x, a=axis: L.jnp.sort(x, axis=a), ("x",),
                   "fi", torch=lambda t, x, a=axis: t.sort(x, dim=a)[0])
    yield Cell("jnp.sort of all", lambda L, x: L.jnp.sort(x), ("vector",), "f",
               torch=lambda t, x: t.sort(x)[0])
    yield Cell("jnp.argsort", lambda L, x: L.jnp.argsort(x, axis=-1), ("x",), "f", FORWARD,
               torch=lambda t, x: t.argsort(x, dim=-1))
    yield Cell("lax.sort of pairs", lambda L, x, y: L.lax.sort((x, y), num_keys=1), ("x", "x"), "f")
    for k in (1, 8, 64):
        yield Cell(f"lax.top_k, {k}", lambda L, x, k=k: L.lax.top_k(x, min(k, x.shape[-1]))[0],
                   ("rows",), "f", torch=lambda t, x, k=k: t.topk(x, min(k, x.shape[-1]))[0])
    yield Cell("jnp.unique", lambda L, x: L.jnp.unique(x, size=64), ("segments",), "f", FORWARD)
    yield Cell("jnp.partition", lambda L, x: L.jnp.partition(x, 3), ("rows",), "f", FORWARD)
    yield Cell("jnp.lexsort", lambda L, x, y: L.jnp.lexsort((x, y)), ("vector", "vector"), "f",
               FORWARD)


def _products() -> Iterator[Cell]:
    two = "x", "x"
    yield Cell("jnp.matmul", lambda L, x, y: x @ y, two, "fh", torch=lambda t, x, y: x @ y)
    yield Cell("jnp.matmul, transposed", lambda L, x, y: x @ y.T, two, "f",
               torch=lambda t, x, y: x @ y.T)
    yield Cell("matrix and vector", lambda L, x, y: x @ y, ("x", "row"), "f",
               torch=lambda t, x, y: x @ y)
    yield Cell("jnp.dot", lambda L, x, y: L.jnp.dot(x, y), ("vector", "vector"), "f",
               torch=lambda t, x, y: t.dot(x, y))
    yield Cell("batched products", lambda L, x, y: L.jnp.einsum("bij,bjk->bik", x, y),
               ("sequence", "sequence"), "fh", torch=lambda t, x, y: t.bmm(x, y))
    yield Cell("jnp.einsum, bij,bkj->ik", lambda L, x, y: L.jnp.einsum("bij,bkj->ik", x, y),
               ("sequence", "sequence"), "f")
    yield Cell("jnp.tensordot", lambda L, x, y: L.jnp.tensordot(x, y, ((0, 2), (0, 2))),
               ("sequence", "sequence"), "f")
    yield Cell("jnp.matmul of integers", lambda L, x, y: x @ y, ("integer",) * 2, "i", FORWARD)
    yield Cell("jnp.vdot", lambda L, x, y: L.jnp.vdot(x, y), ("vector", "vector"), "f")
    yield Cell("jnp.inner", lambda L, x, y: L.jnp.inner(x, y), two, "f")
    yield Cell("jnp.cross", lambda L, x, y: L.jnp.cross(x.reshape(-1, 4)[:, :3],
                                                      y.reshape(-1, 4)[:, :3]), two, "f")


def _linalg() -> Iterator[Cell]:
    t = lambda name: lambda torch, *a: getattr(torch.linalg, name)(*a)
    for many in (False, True):
        suffix = " of 16 x 16" if many else ""
        for name, kind, f, torch in (
            ("cholesky", "definite", lambda L, x: L.linalg.cholesky(x), t("cholesky")),
            ("inv", "matrix", lambda L, x: L.linalg.inv(x), t("inv")),
            ("det", "matrix", lambda L, x: L.linalg.det(x / 2), None),
            ("slogdet", "matrix", lambda L, x: L.linalg.slogdet(x)[1], t("slogdet")),
            ("solve", "matrix", lambda L, x: L.linalg.solve(x, x), None),
            ("qr", "matrix", lambda L, x: L.linalg.qr(x), t("qr")),
            ("eigh", "definite", lambda L, x: L.linalg.eigh(x)[0], t("eigvalsh")),
            ("svd", "matrix", lambda L, x: L.linalg.svd(x, compute_uv=False), t("svdvals")),
            ("lu", "matrix", lambda L, x: L.lax.linalg.lu(x)[0], None),
            ("triangular_solve", "triangular", lambda L, x: L.lax.linalg.triangular_solve(
                x, x, left_side=True, lower=True), None),
            ("pinv", "matrix", lambda L, x: L.linalg.pinv(x), None),
            ("matrix_power", "matrix", lambda L, x: L.linalg.matrix_power(x / 3, 5), None),
            ("expm", "matrix", lambda L, x: L.slinalg.expm(x / 3), None),
        ):
            yield Cell(f"{name}{suffix}", f, (f"{kind} of 16" if many else kind,), "f",
                       torch=torch)
    yield Cell("norm", lambda L, x: L.linalg.norm(x), ("x",), "f")
    yield Cell("norm of rows", lambda L, x: L.linalg.norm(x, axis=-1), ("x",), "f")
    yield Cell("eig", lambda L, x: L.linalg.eig(x)[0], ("matrix",), "f", FORWARD)
    yield Cell("lstsq", lambda L, x: L.linalg.lstsq(x, x[:, 0])[0], ("matrix",), "f", FORWARD)
    yield Cell("cho_solve", lambda L, x: L.slinalg.cho_solve((L.linalg.cholesky(x), True), x),
               ("definite",), "f")


def _fft() -> Iterator[Cell]:
    for name, kind in (("fft", "signal"), ("ifft", "signal"), ("rfft", "signal"), ("fft2", "x"),
                       ("rfft2", "x"), ("fftn", "sequence")):
        def run(L: Any, x: Any, name: str = name) -> Any:
            return L.jnp.abs(getattr(L.fft, name)(x))

        yield Cell(f"fft.{name}", run, (kind,), "f",
                   torch=lambda t, x, name=name: getattr(t.fft, name)(x).abs())
    yield Cell("fft.irfft", lambda L, x: L.fft.irfft(x), ("signal",), "f",
               torch=lambda t, x: t.fft.irfft(x))
    yield Cell("fft.fftshift", lambda L, x: L.fft.fftshift(x), ("x",), "f", FORWARD)
    yield Cell("signal.fftconvolve", lambda L, x, y: L.signal.fftconvolve(x, y, mode="same"),
               ("vector", "vector"), "f")
    yield Cell("jnp.convolve", lambda L, x, y: L.jnp.convolve(x, y, mode="same"),
               ("vector", "short"), "f")
    yield Cell("signal.stft", lambda L, x: L.jnp.abs(L.signal.stft(x)[2]), ("vector",), "f",
               FORWARD)


def _neural() -> Iterator[Cell]:
    names = "relu sigmoid softplus silu elu selu gelu leaky_relu celu log_sigmoid hard_tanh mish"
    yield from _named("nn", names, ("x",), "fh")
    for name in "softmax log_softmax standardize logsumexp".split():
        yield Cell(f"nn.{name}", lambda L, x, name=name: getattr(L.nn, name)(x), ("rows",), "fh",
                   torch={"softmax": lambda t, x: t.softmax(x, -1),
                          "log_softmax": lambda t, x: t.log_softmax(x, -1)}.get(name))
    yield Cell("nn.glu", lambda L, x: L.nn.glu(x), ("x",), "f")
    yield Cell("attention", lambda L, q, k, v: L.nn.dot_product_attention(
        q[..., None, :], k[..., None, :], v[..., None, :]), ("sequence",) * 3, "fh")
    conv = lambda strides, **more: lambda L, x, w: L.lax.conv_general_dilated(
        x, w, strides, "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"), **more)
    yield Cell("convolution", conv((1, 1)), ("images", "kernel"), "fh")
    yield Cell("convolution, strides 2", conv((2, 2)), ("images", "kernel"), "f")
    yield Cell("convolution, dilated", conv((1, 1), rhs_dilation=(2, 2)), ("images", "kernel"), "f")
    yield Cell("convolution, transposed", lambda L, x, w: L.lax.conv_general_dilated(
        x, w, (1, 1), [(1, 1)] * 2, lhs_dilation=(2, 2),
        dimension_numbers=("NHWC", "HWIO", "NHWC")), ("images", "kernel"), "f")
    yield Cell("convolution by channel", lambda L, x, w: L.lax.conv_general_dilated(
        x, w[:, :, :1, :], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=16), ("images", "kernel"), "f")
    yield Cell("convolution in 1 dimension", lambda L, x, w: L.lax.conv_general_dilated(
        x.reshape(x.shape[0], -1, 16), w[0], (1,), "SAME",
        dimension_numbers=("NWC", "WIO", "NWC")), ("images", "kernel"), "f")
    yield Cell("max pool", lambda L, x: L.linen.max_pool(x, (2, 2), (2, 2)), ("images",), "fh")
    yield Cell("average pool", lambda L, x: L.linen.avg_pool(x, (2, 2), (2, 2)), ("images",), "f")
    for name, layer, kind in (
        ("Dense", lambda nn: nn.Dense(64), "x"), ("LayerNorm", lambda nn: nn.LayerNorm(), "x"),
        ("RMSNorm", lambda nn: nn.RMSNorm(), "x"),
        ("GroupNorm", lambda nn: nn.GroupNorm(4), "images"),
        ("BatchNorm", lambda nn: nn.BatchNorm(use_running_average=True), "images"),
        ("Conv", lambda nn: nn.Conv(16, (3, 3)), "images"),
        ("ConvTranspose", lambda nn: nn.ConvTranspose(16, (3, 3)), "images"),
        ("MultiHeadDotProductAttention",
         lambda nn: nn.MultiHeadDotProductAttention(4), "sequence"),
        ("LSTM", lambda nn: nn.RNN(nn.LSTMCell(64)), "sequence"),
        ("GRU", lambda nn: nn.RNN(nn.GRUCell(64)), "sequence"),
    ):
        def run(L: Any, x: Any, layer: Any = layer) -> Any:
            model = layer(L.linen)
            shapes = L.jax.eval_shape(model.init, L.random.key(0), x)
            variables = L.jax.tree_util.tree_map(
                lambda s: L.jnp.full(s.shape, 0.05, s.dtype), shapes)
            return model.apply(variables, x)

        yield Cell(f"linen.{name}", run, (kind,), "f", shrink=4)
    yield Cell("image.resize", lambda L, x: L.image.resize(x, (*x.shape[:1], 48, 48, 16), "linear"),
               ("images",), "f")
    yield Cell("image.resize, cubic, smaller", lambda L, x: L.image.resize(
        x, (*x.shape[:1], 16, 16, 16), "cubic"), ("images",), "f")
    yield Cell("ndimage.map_coordinates", lambda L, x, y: L.ndimage.map_coordinates(
        x, [y * 3 + 5, y * 2 + 4], order=1), ("x", "x"), "f")


def _random() -> Iterator[Cell]:
    size = lambda x: x.shape
    plain = ("uniform normal bits gumbel exponential laplace logistic cauchy bernoulli rademacher "
             "maxwell")
    for name in plain.split():
        def draw(L: Any, key: Any, x: Any, name: str = name) -> Any:
            return getattr(L.random, name)(L.random.wrap_key_data(key), shape=size(x))

        yield Cell(f"random.{name}", draw, ("key", "x"), "f", FORWARD)
    for name, given, shrink in (
        ("truncated_normal", (-2.0, 2.0), 1), ("gamma", (2.0,), 4), ("beta", (2.0, 3.0), 4),
        ("poisson", (4.0,), 16), ("t", (3.0,), 4), ("dirichlet", (np.ones(4, "f4"),), 16),
        ("categorical", (np.zeros(16, "f4"),), 4), ("binomial", (10.0, 0.4), 16),
    ):
        def sample(L: Any, key: Any, x: Any, name: str = name, given: Any = given) -> Any:
            args = [L.jnp.asarray(g) if isinstance(g, np.ndarray) else g for g in given]
            return getattr(L.random, name)(L.random.wrap_key_data(key), *args, shape=size(x))

        yield Cell(f"random.{name}", sample, ("key", "x"), "f", FORWARD, shrink=shrink)
    yield Cell("random.randint", lambda L, k, x: L.random.randint(
        L.random.wrap_key_data(k), size(x), 0, 1000), ("key", "x"), "f", FORWARD)
    yield Cell("random.permutation", lambda L, k, x: L.random.permutation(
        L.random.wrap_key_data(k), x), ("key", "vector"), "f", FORWARD)
    yield Cell("random.choice", lambda L, k, x: L.random.choice(
        L.random.wrap_key_data(k), x, (x.size // 2,)), ("key", "vector"), "f", FORWARD)
    yield Cell("random.split", lambda L, k: L.random.key_data(L.random.split(
        L.random.wrap_key_data(k), 1000)), ("key",), "f", FORWARD)


def _special() -> Iterator[Cell]:
    yield from _named("special", "erf erfc expit gammaln digamma ndtr log_ndtr i0 i0e i1 i1e "
                      "logit entr", ("probability",), "f")
    yield from _named("special", "erfinv ndtri", ("probability",), "f")
    for name in "betainc gammainc gammaincc zeta xlogy xlog1py betaln rel_entr kl_div".split():
        two = name not in ("betainc",)
        def run(L: Any, *xs: Any, name: str = name) -> Any:
            xs = [x + 1 for x in xs] if name == "zeta" else xs
            return getattr(L.special, name)(*xs)

        kinds = ("positive", "positive") if two else ("positive", "positive", "probability")
        modes = FORWARD if name in ("betainc", "gammainc", "gammaincc", "zeta") else (
            "forward", "gradient", "per example")
        yield Cell(f"special.{name}", run, kinds, "f", modes, shrink=16)
    for name in "norm.logpdf norm.cdf laplace.logpdf expon.logpdf uniform.logpdf".split():
        family, what = name.split(".")
        yield Cell(f"stats.{name}", lambda L, x, f=family, w=what: getattr(
            getattr(L.stats, f), w)(x), ("probability",), "f")
    for name, given in (("gamma.logpdf", (2.0,)), ("beta.logpdf", (2.0, 3.0)), ("t.logpdf", (3.0,)),
                        ("poisson.logpmf", (4.0,))):
        family, what = name.split(".")
        kind = "integer" if what == "logpmf" else "probability"
        yield Cell(f"stats.{name}", lambda L, x, f=family, w=what, g=given: getattr(
            getattr(L.stats, f), w)(x, *g), (kind,), "f", FORWARD)


def _loops() -> Iterator[Cell]:
    yield Cell("lax.scan, rows", lambda L, x: L.lax.scan(
        lambda c, r: (L.jnp.tanh(c + r), c.sum()), x[0], x), ("x",), "f", shrink=16)
    yield Cell("lax.fori_loop", lambda L, x: L.lax.fori_loop(
        0, 20, lambda i, y: L.jnp.sin(y) + i, x), ("x",), "f", shrink=16)
    yield Cell("lax.while_loop", lambda L, x: L.lax.while_loop(
        lambda c: c[0] < 20, lambda c: (c[0] + 1, c[1] * 0.9), (0, x)), ("x",), "f", FORWARD,
        shrink=16)
    yield Cell("lax.cond", lambda L, x: L.lax.cond(x.reshape(-1)[0] > 0, L.jnp.sin, L.jnp.cos, x),
               ("x",), "f")
    yield Cell("lax.switch", lambda L, x: L.lax.switch(
        (x.reshape(-1)[0] > 0).astype("int32"), [L.jnp.sin, L.jnp.cos, L.jnp.tanh], x), ("x",), "f")
    yield Cell("lax.map", lambda L, x: L.lax.map(lambda r: r / L.jnp.sum(r * r), x), ("x",), "f",
               shrink=16)


def _optim() -> Iterator[Cell]:
    rules: dict[str, Function] = {
        name: (lambda o, name=name: getattr(o, name)(1e-3))
        for name in ("sgd adam adamw adagrad adadelta adamax rmsprop lion lamb lars nadam radam "
                     "yogi novograd adabelief sm3 adafactor").split()
    }
    rules["momentum"] = lambda o: o.sgd(1e-3, momentum=0.9)
    rules["clip_by_global_norm"] = lambda o: o.clip_by_global_norm(1.0)
    for name, rule in rules.items():
        def update(L: Any, p: Any, g: Any, rule: Any = rule) -> Any:
            tree = {"a": p, "b": p[0]}
            tx = rule(L.optim)
            return tx.update({"a": g, "b": g[0]}, tx.init(tree), tree)[0]

        yield Cell(f"optim.{name}", update, ("x", "x"), "f", FORWARD)
    losses = "l2_loss huber_loss log_cosh hinge_loss cosine_similarity sigmoid_binary_cross_entropy"
    for name in losses.split():
        yield Cell(f"optim.{name}", lambda L, x, y, name=name: getattr(L.optim, name)(x, y),
                   ("rows", "rows"), "f")
    yield Cell("optim.softmax_cross_entropy_with_integer_labels", lambda L, x, i:
               L.optim.softmax_cross_entropy_with_integer_labels(x, i), ("x", "labels"), "fh")


GROUPS: dict[str, Callable[[], Iterator[Cell]]] = {
    "elementwise": _elementwise, "reductions": _reductions, "shapes": _shapes,
    "indexing": _indexing, "sorts": _sorts, "products": _products, "linalg": _linalg, "fft": _fft,
    "neural": _neural, "random": _random, "special": _special, "loops": _loops, "optim": _optim,
}
