"""A drawn case: an expression of NumPy arguments that runs on toile or on JAX, and its checks.

The results of both are compared in structure, dtypes, weak types and values, or in what they raise.
On toile alone, the ways to run one expression must agree: compiled, batched and in a loop.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import random
import types
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import jax
import ml_dtypes
import numpy as np

import toile
from tests.quick_jax import OPTIONS

FLOATS = ("float32", "bfloat16", "float16", "float64")
INTS = ("int32", "int8", "uint8", "int16", "uint32", "int64", "uint64")
SMALL = ("float8_e4m3fn", "float8_e5m2", "int4", "uint4")
COMPLEX = ("complex64", "complex128")


def dtype_of(name: str) -> np.dtype[Any]:
    """The dtype with a name, which may be one of ml_dtypes."""
    return np.dtype(getattr(ml_dtypes, name, name))


@dataclass
class Case:
    """The text of an expression in `a[0]`, `a[1]`, ..., and what is checked of it."""

    text: str
    arrays: list[np.ndarray] = field(default_factory=list)
    x64: bool = False
    ways: tuple[str, ...] = ()  # of WAYS
    rtol: float = 1.0  # times the usual tolerance
    setup: str = ""  # statements before the expression
    zeros: bool = False  # whether the signs of zeros count
    floor: float = 1e-3  # the scale of values that are smaller

    def narrow(self) -> float:
        """The rounding of the narrowest floats in the case, 0 where all are wide."""
        kinds = self.text + (self.setup if self.setup.startswith("def chain") else "") + " ".join(str(x.dtype) for x in self.arrays)
        return max((e for name, e in EPS.items() if e > 1e-4 and name in kinds), default=0.0)

    def difference(self, got: Any, want: Any, factor: float = 1.0, **options: Any) -> str | None:
        """How two results of this case differ, with its tolerances; None if they agree."""
        return difference(got, want, self.rtol * factor, floor=self.floor, least=self.narrow(),
                          **options)

    def __str__(self) -> str:
        shown = ", ".join(f"{x.dtype}{list(x.shape)}" for x in self.arrays)
        return f"{self.setup if len(self.setup) < 999 else ''}{self.text}   a = {shown}; x64={self.x64}; {self.ways}"


class Draw:
    """Draws the parts of a case: choices, shapes, arrays."""

    def __init__(self, seed: object) -> None:
        self.rng = random.Random(str(seed))
        self.np = np.random.default_rng(self.rng.randrange(2**32))
        self.arrays: list[np.ndarray] = []
        self.x64 = self.rng.random() < 0.3

    def choice(self, *options: Any) -> Any:
        return self.rng.choice(options)

    def chance(self, p: float) -> bool:
        return self.rng.random() < p

    def int(self, low: int, high: int) -> int:
        """An integer, both ends included."""
        return self.rng.randint(low, high)

    def dtype(self, *kinds: str) -> str:
        """A dtype of some kinds: float, int, small, complex, bool; 64 bits where x64 is on."""
        names: list[str] = []
        for kind in kinds or ("float", "int", "bool"):
            names += {"float": FLOATS, "int": INTS, "small": SMALL, "complex": COMPLEX,
                      "bool": ("bool",), "wide": ("float32", "float64")}[kind]
        if not self.x64:
            names = [n for n in names if n not in ("float64", "int64", "uint64", "complex128")]
        return self.choice(*names)

    def shape(self, low: int = 0, high: int = 3, empty: float = 0.08) -> tuple[int, ...]:
        rank = self.int(low, high)
        sizes = [self.choice(1, 2, 3, 4, 5) for _ in range(rank)]
        if rank and self.chance(empty):
            sizes[self.rng.randrange(rank)] = 0
        return tuple(sizes)

    def values(self, shape: tuple[int, ...], dtype: str, special: float = 0.0,
               low: float = -2.0, high: float = 2.0) -> np.ndarray:
        """Values of a dtype; with a probability, NaN, infinities and zeros among floats."""
        t = dtype_of(dtype)
        if dtype == "bool":
            return self.np.integers(0, 2, shape).astype(bool)
        if "int" in dtype:
            n = self.np.integers(-3 if dtype[0] != "u" else 0, 7, shape)
            if special and self.chance(special) and dtype not in ("int4", "uint4"):
                info = np.iinfo(t)
                ends = np.array([info.min, info.max, 0, info.max - 1], t)
                return np.where(self.np.random(shape) < 0.3, self.np.choice(ends, shape),
                                n.astype(t)).astype(t)
            return np.asarray(n).astype(t)
        x = self.np.uniform(low, high, shape)
        if "complex" in dtype:
            return np.asarray(x + 1j * self.np.uniform(low, high, shape)).astype(t)
        if special and self.chance(special):
            ends = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0])
            x = np.where(self.np.random(shape) < 0.4, self.np.choice(ends, shape), x)
        return np.asarray(x).astype(t)

    def arr(self, shape: tuple[int, ...], dtype: str, **options: Any) -> str:
        """A new argument, as text."""
        self.arrays.append(self.values(shape, dtype, **options))
        return f"a[{len(self.arrays) - 1}]"

    def given(self, value: np.ndarray) -> str:
        """An argument of given values, as text."""
        self.arrays.append(np.asarray(value))
        return f"a[{len(self.arrays) - 1}]"

    def axis(self, rank: int) -> int:
        """An axis of an array, counted from either end."""
        return self.int(-rank, rank - 1)

    def ways(self, *names: str) -> tuple[str, ...]:
        return (self.choice(*names),) if names else ()


@functools.cache
def names(library: types.ModuleType) -> dict[str, Any]:
    """What an expression sees of a library."""
    import importlib

    name = library.__name__
    load = importlib.import_module
    scope = {"np": np, "jax": library, "functools": functools, "jnp": load(f"{name}.numpy"),
             "lax": load(f"{name}.lax"), "nn": load(f"{name}.nn"), "random": load(f"{name}.random"),
             "jsp": load(f"{name}.scipy"), "ops": load(f"{name}.ops"), "tree": load(f"{name}.tree"),
             "ml_dtypes": ml_dtypes, "partial": functools.partial}
    for part in ("linalg", "special", "stats", "signal", "ndimage", "fft"):
        load(f"{name}.scipy.{part}")
    load(f"{name}.tree_util")
    scope["linen"] = load("flax.linen" if name == "jax" else "toile.linen")
    scope["o"] = load("optax" if name == "jax" else "toile.optim")
    load(f"{name}.custom_batching"), load(f"{name}.experimental"), load(f"{name}.flatten_util")
    load(f"{name}.ad_checkpoint")
    return scope


def function(case: Case, library: types.ModuleType) -> Callable[..., Any]:
    """The expression of a case as a function of its arrays."""
    scope = dict(names(library))
    exec(case.setup, scope)
    code = compile(f"lambda *a: ({case.text})", "<case>", "eval")
    return eval(code, scope)


@dataclass
class Raised:
    """What an expression raised."""

    error: Exception

    @property
    def base(self) -> type:
        """The most specific builtin class of the error."""
        return next(c for c in type(self.error).__mro__ if c.__module__ == builtins.__name__)


def attempt(f: Callable[[], Any]) -> Any:
    """What f returns or raises."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return f()
    except Exception as error:
        return Raised(error)


def leaves(x: Any) -> list[Any]:
    """The leaves of a tree of either library."""
    if isinstance(x, dict):
        return [y for k in sorted(x, key=str) for y in leaves(x[k])]
    if isinstance(x, (tuple, list)):
        return [y for part in x for y in leaves(part)]
    return [] if x is None else [x]


def plain(x: Any) -> tuple[np.ndarray, bool]:
    """A leaf as an array, and whether it is weakly typed."""
    dtype = getattr(x, "dtype", None)
    if dtype is not None and str(dtype).startswith("key<"):
        for library in (jax, toile):
            with contextlib.suppress(Exception):
                return np.asarray(library.random.key_data(x)), False
    return np.asarray(x), bool(getattr(x, "weak_type", False))


# Units of rounding; intermediate values may be wider than the dtypes say.
EPS = {"float16": 1e-3, "bfloat16": 8e-3, "float32": 1.2e-7, "float64": 2.3e-16,
       "complex64": 1.2e-7, "complex128": 2.3e-16, "float8_e4m3fn": 0.125, "float8_e5m2": 0.25}


def difference(got: Any, want: Any, rtol: float = 1.0, zeros: bool = False, weak: bool = True,
               floor: float = 1e-3, least: float = 0.0) -> str | None:
    """How two results differ; None if they agree."""
    if isinstance(want, Raised) or isinstance(got, Raised):
        if isinstance(want, Raised) and isinstance(got, Raised):
            if isinstance(got.error, want.base):
                return None
            return f"raised {got.error!r:.300}, expected {want.error!r:.300}"
        show = lambda r: f"raised {r.error!r:.300}" if isinstance(r, Raised) else f"{r!r:.200}"
        return f"{show(got)}; expected {show(want)}"
    g, w = leaves(got), leaves(want)
    if len(g) != len(w):
        return f"{len(g)} leaves, expected {len(w)}"
    for i, (a, b) in enumerate(zip(g, w, strict=True)):
        if isinstance(b, (str, bytes, type)) or b is None:
            if str(a).replace("toile", "jax") != str(b):
                return f"leaf {i}: {a!r}, expected {b!r}"
            continue
        (a, wa), (b, wb) = plain(a), plain(b)
        if a.dtype != b.dtype or a.shape != b.shape:
            return f"leaf {i}: {a.dtype}{list(a.shape)}, expected {b.dtype}{list(b.shape)}"
        if weak and wa != wb:
            return f"leaf {i}: weak_type={wa}, expected {wb}"
        found = unequal(a, b, rtol, zeros, floor, least)
        if found:
            return f"leaf {i}: {found}"
    return None


def unequal(a: np.ndarray, b: np.ndarray, rtol: float, zeros: bool, floor: float,
            least: float) -> str | None:
    """How two arrays of one dtype differ in their values."""
    eps = EPS.get(b.dtype.name, 0.0)
    if b.dtype == object or b.dtype.itemsize == 0:  # float0
        return None
    if not eps:
        same = np.array_equal(a.astype(np.int64) if a.dtype.kind == "V" else a,
                              b.astype(np.int64) if b.dtype.kind == "V" else b)
        return None if same else f"{a.ravel()[:12]}, expected {b.ravel()[:12]}"
    if a.dtype.kind == "c":
        return (unequal(a.real, b.real, rtol * _spread(b), zeros, floor, least)
                or unequal(a.imag, b.imag, rtol * _spread(b), zeros, floor, least))
    narrow = 64 * eps * rtol if eps < 1e-4 else 4 * eps * rtol
    narrow = max(narrow, 8 * least)
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    if zeros and not np.array_equal(np.signbit(wide_a) & ~np.isnan(wide_a),
                                    np.signbit(wide_b) & ~np.isnan(wide_b)):
        return f"signs of {wide_a.ravel()[:12]}, expected {wide_b.ravel()[:12]}"
    finite = np.isfinite(wide_b)
    scale = np.abs(wide_b[finite]).max(initial=0.0)
    bad = ~np.isclose(wide_a, wide_b, rtol=narrow * 4, atol=narrow * max(scale, floor),
                      equal_nan=True)
    if bad.any():
        return f"{wide_a[bad].ravel()[:6]}, expected {wide_b[bad].ravel()[:6]}"
    return None


def _spread(b: np.ndarray) -> float:
    """How much larger the complex values are than their parts."""
    f = b[np.isfinite(b)]
    if not f.size:
        return 1.0
    part = max(min(np.abs(f.real).max(), np.abs(f.imag).max()), 1e-3)
    return float(min(np.abs(f).max() / part, 1e4)) if part else 1.0


# ---------------------------------------------------------------------------------- ways to run


def _is_float(x: Any) -> bool:
    return str(x.dtype) in (*FLOATS, *COMPLEX)


def total(library: types.ModuleType, f: Callable[..., Any]) -> Callable[..., Any]:
    """A number that all float results of f have a part in."""
    jnp = library.numpy

    def number(*args: Any) -> Any:
        parts = []
        for y in leaves(f(*args)):
            if not hasattr(y, "dtype") or not _is_float(y):
                continue
            for z in (y.real, y.imag) if str(y.dtype) in COMPLEX else (y,):
                wide = z.astype(jnp.promote_types(z.dtype, "float32"))
                weights = np.cos(np.arange(z.size, dtype=np.float32)).reshape(z.shape)
                parts.append(jnp.sum(wide * weights.astype(wide.dtype)))
        return sum(parts, jnp.zeros((), "float32"))

    return number


def _jit(library: types.ModuleType, f: Callable[..., Any]) -> Callable[..., Any]:
    if library is jax:
        return jax.jit(f, compiler_options=OPTIONS)
    return library.jit(f)


def slopes(library: types.ModuleType, f: Callable[..., Any], args: list[Any], way: str,
           compiled: bool = True) -> Any:
    """Derivatives by the float arguments."""
    where = tuple(i for i, x in enumerate(args) if str(x.dtype) in FLOATS)
    if not where:
        return ()
    number = total(library, f)
    of = lambda *xs: number(*[xs[where.index(i)] if i in where else x for i, x in enumerate(args)])
    xs = [args[i] for i in where]
    by = tuple(range(len(xs)))
    ds = [np.sin(np.arange(x.size) + 1.0).reshape(x.shape).astype(x.dtype) for x in xs]
    jit = functools.partial(_jit, library) if compiled else lambda g: g
    if way == "grad":
        return jit(library.grad(of, by))(*xs)
    if way == "eager_grad":
        run = library.grad(of, by)
        return run(*xs) if library is toile else jit(run)(*xs)
    if way == "jvp":
        run = lambda *xs: library.jvp(of, tuple(xs), tuple(ds))
        return jit(run)(*xs)
    if way == "linearize":
        run = lambda *xs: library.linearize(of, *xs)[1](*ds)
        return jit(run)(*xs)
    if way == "second":
        run = lambda *xs: library.jvp(library.grad(of, by), tuple(xs), tuple(ds))
        return jit(run)(*xs)
    if way == "twice":
        inner = library.grad(of, by)
        outer = lambda *xs: sum(library.numpy.sum(g.astype("float32") * d.astype("float32"))
                                for g, d in zip(inner(*xs), ds, strict=True))
        return jit(library.grad(outer, by))(*xs)
    assert way == "vmap_grad", way
    stack = [np.stack([x, x * x.dtype.type(0.5)]) for x in xs]
    run = library.vmap(library.grad(of, by))
    return jit(run)(*stack)


SLOPES = ("grad", "eager_grad", "jvp", "linearize", "second", "twice", "vmap_grad")


@contextlib.contextmanager
def precision(x64: bool) -> Iterator[None]:
    with toile.enable_x64(x64), jax.enable_x64(x64):
        yield


def examine_shapes(case: Case) -> list[str]:
    """What is wrong with the shapes, dtypes and weak types of a case, which nothing computes."""
    with precision(case.x64), np.errstate(all="ignore"):
        abstract = []
        for library in (toile, jax):
            f = function(case, library)
            args = [library.numpy.asarray(x) for x in case.arrays]
            out = attempt(lambda f=f, args=args, library=library: library.eval_shape(f, *args))
            if not isinstance(out, Raised):
                out = [str((tuple(y.shape), str(y.dtype), bool(getattr(y, "weak_type", False))))
                       if hasattr(y, "dtype") else str(y) for y in leaves(out)]
            abstract.append(out)
    wrong = difference(*abstract)
    return [f"shapes: {wrong}"] if wrong else []


EXPECTED = (toile.errors.JaxRuntimeError, TypeError, ValueError, IndexError, NotImplementedError, AttributeError)
NEEDS_VALUES = (toile.errors.ConcretizationTypeError, toile.errors.NonConcreteBooleanIndexError)


def examine_alone(case: Case) -> list[str]:
    """What disagrees between toile's own ways to run a case, without JAX."""
    found = []
    with precision(case.x64), np.errstate(all="ignore"):
        f = function(case, toile)
        load = lambda library: [library.numpy.asarray(x) for x in case.arrays]
        got = attempt(lambda: f(*load(toile)))
        if isinstance(got, Raised):
            fine = isinstance(got.error, EXPECTED)
            return [] if fine else [f"eager: {difference(got, 0)}"]
        for way in ("jit", *case.ways):
            if way not in SLOPES:
                wrong = _examine_way(case, way, f, None, load, got)
            else:
                first = attempt(lambda w=way: slopes(toile, f, load(toile), w))
                second = attempt(lambda w=way: slopes(toile, f, load(toile), w, compiled=False))
                wrong = case.difference(first, second, 8, weak=False)
                if isinstance(second, Raised) and isinstance(second.error, NotImplementedError):
                    wrong = None
                if way == "grad" and not wrong and not isinstance(first, Raised) and first:
                    wrong = _dual(case, f, load, first)
            if wrong:
                found.append(f"{way}: {wrong}")
    return found


def _dual(case: Case, f: Any, load: Any, gradients: Any) -> str | None:
    """Whether forward and reverse mode agree."""
    forward = attempt(lambda: slopes(toile, f, load(toile), "jvp"))
    if isinstance(forward, Raised):
        return f"jvp {difference(forward, 0)}"
    gs = [np.asarray(g, np.float64) for g in gradients]
    ds = [np.sin(np.arange(g.size) + 1.0).reshape(g.shape) for g in gs]
    reverse = sum(float((g * d).sum()) for g, d in zip(gs, ds, strict=True))
    size = sum(float(np.abs(g * d).sum()) for g, d in zip(gs, ds, strict=True))
    narrow = max(EPS.get(str(g.dtype), 1e-7) for g in gradients)
    narrow = max([narrow, *(e for name, e in EPS.items() if name in case.text + case.setup)])
    got = float(np.asarray(forward[1]))
    if np.isfinite(got) and np.isfinite(reverse) and (
            abs(got - reverse) > 100 * narrow * case.rtol * (1 + size)):
        return f"reverse mode {reverse}, forward mode {got}"
    return None


def examine(case: Case) -> list[str]:
    """What is wrong with a case: one line each."""
    found = []
    with precision(case.x64), np.errstate(all="ignore"):
        ours, theirs = function(case, toile), function(case, jax)
        load = lambda library: [library.numpy.asarray(x) for x in case.arrays]
        want = attempt(lambda: theirs(*load(jax)))
        got = attempt(lambda: ours(*load(toile)))
        wrong = case.difference(got, want, zeros=case.zeros)
        if wrong:
            found.append(f"eager: {wrong}")
        if isinstance(got, Raised) or isinstance(want, Raised):
            return found
        for way in case.ways:
            wrong = _examine_way(case, way, ours, theirs, load, got)
            if wrong:
                found.append(f"{way}: {wrong}")
    return found


def _examine_way(case: Case, way: str, ours: Any, theirs: Any, load: Any, got: Any) -> str | None:
    if way == "jit":
        out = attempt(lambda: toile.jit(ours)(*load(toile)))
        if isinstance(out, Raised) and isinstance(out.error, NEEDS_VALUES):
            return None
        if any(not hasattr(y, "dtype") for y in leaves(got)):
            return None
        return case.difference(out, got, 2, zeros=case.zeros)
    if way in SLOPES:
        mine = attempt(lambda: slopes(toile, ours, load(toile), way))
        other = attempt(lambda: slopes(jax, theirs, load(jax), way))
        if isinstance(other, Raised):  # what JAX cannot differentiate, toile may
            return None
        return case.difference(mine, other, 8, weak=False)
    assert way in ("vmap", "jit_vmap"), way
    if not case.arrays:
        return None
    axes = tuple(i % (x.ndim + 1) if way == "vmap" else 0 for i, x in enumerate(case.arrays))
    if len(axes) > 1:
        keep = len(case.text) % (len(axes) + 1)
        axes = tuple(None if i == keep else d for i, d in enumerate(axes))
    rows: list[list[np.ndarray]] = [[], []]
    stacks = []
    for x, d in zip(case.arrays, axes, strict=True):
        other = x if d is None or not x.size else np.roll(x.ravel(), 1).reshape(x.shape)
        rows[0].append(x)
        rows[1].append(other)
        stacks.append(x if d is None else np.stack([x, other], axis=d))
    each = [attempt(lambda r=r: ours(*[toile.numpy.asarray(x) for x in r])) for r in rows]
    if any(isinstance(r, Raised) for r in each):
        return None
    if any(not hasattr(y, "dtype") for y in leaves(each[0])):
        return None
    run = toile.vmap(ours, in_axes=axes)
    run = toile.jit(run) if way == "jit_vmap" else run
    batched = attempt(lambda: run(*[toile.numpy.asarray(x) for x in stacks]))
    if isinstance(batched, Raised) and isinstance(batched.error, NEEDS_VALUES):
        return None
    pairs = list(zip(*[leaves(e) for e in each], strict=True))
    if any(plain(a)[0].shape != plain(b)[0].shape for a, b in pairs):
        return None
    want = [np.stack([plain(a)[0], plain(b)[0]]) for a, b in pairs]
    return case.difference(batched, want, 2, weak=False)
