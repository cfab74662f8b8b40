"""Ways to run a generated program: on toile, on JAX, and with its nests taken apart in Python.

`function(p, names)` makes the function of a program anew at each call, so that all of it is traced
and planned again. `plain_names()` gives scan, cond, vmap, jit and others as Python loops and calls:
what a program means, said without the machinery under test.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from tests.generated.data import HELPERS, IMPORTS, WIDE, Program, source

Function = Callable[..., Any]
SPECIAL = (np.nan, np.inf, -np.inf, -0.0, 0.0, 1.0, -1.0, 2.5)


@functools.cache
def names_of(lib: str) -> dict[str, Any]:
    """What the names in sources mean on toile or on jax."""
    found: dict[str, Any] = {}
    exec(IMPORTS.format(lib=lib), found)
    if lib == "jax":
        from jax._src.custom_derivatives import linear_call

        found["linear_call"] = linear_call
    return found


@functools.cache
def jax_names() -> dict[str, Any]:
    """Names on jax with a linear_call that has tangents of its residuals, as toile's has."""
    import jax

    def linear_call(f: Function, transposed: Function, r: Any, x: Any) -> Any:
        def rule(primals: Any, tangents: Any) -> Any:
            (r, x), (dr, dx) = primals, tangents
            return f(r, x), f(r, dx) + jax.jvp(lambda r: f(r, x), (r,), (dr,))[1]

        g = jax.custom_jvp(f)
        g.defjvp(rule)
        return g(r, x)

    return names_of("jax") | {"linear_call": linear_call}


class _WithTanh:
    """toile.numpy with another tanh."""

    def __init__(self, tanh: Function):
        self.tanh = tanh

    def __getattr__(self, name: str) -> Any:
        import toile.numpy

        return getattr(toile.numpy, name)


def accurate_names() -> dict[str, Any]:
    """Names on toile with a tanh whose slope is not 1 - y * y of a rounded y."""
    import toile.numpy as jnp

    def tanh(x: Any) -> Any:
        far = 1 - 2 / (1 + jnp.exp(2 * jnp.clip(x, -20, 20)))
        return jnp.where(jnp.abs(x) < 1, jnp.tanh(x), far)

    return names_of("toile") | {"jnp": _WithTanh(tanh)}


def nudged_names(amount: float) -> dict[str, Any]:
    """Names on toile with a tanh that is off by a small part, and whose slope is 1 - y * y of that.

    Near y = 1 no other value of x gives the neighbors of y: moved arguments do not show what
    another rounding of y does to the slope."""
    import toile
    import toile.numpy as jnp

    @toile.custom_jvp
    def tanh(x: Any) -> Any:
        y = jnp.tanh(x)
        return y + y * amount

    def slope(xs: Any, dxs: Any) -> Any:
        y = tanh(*xs)
        return y, (1 - y * y) * dxs[0]

    tanh.defjvp(slope)
    return names_of("toile") | {"jnp": _WithTanh(tanh)}


def function(p: Program, names: dict[str, Any], name: str = "f", wide: bool = False) -> Function:
    """A function of the program, made anew."""
    env = dict(names)
    if "with_jvp" not in names:
        exec(_helpers(), env)
    exec(compile(source(p, wide), f"<program {p.seed}:{p.index}>", "exec"), env)
    return env[name]


@functools.cache
def _helpers() -> Any:
    return compile(HELPERS, "<helpers>", "exec")


# ------------------------------------------------------------------------------------ nests apart


def _scan(f: Function, init: Any, xs: Any, length: int | None = None, reverse: bool = False,
          unroll: Any = 1) -> Any:
    import toile.numpy as jnp

    n = len(xs[0]) if length is None else length
    carry, kept = init, []
    for i in reversed(range(n)) if reverse else range(n):
        carry, ys = f(carry, None if xs is None else tuple(x[i] for x in xs))
        kept.append(ys)
    if not kept:
        raise NotImplementedError("a loop of no turns has no types in Python")
    kept = kept[::-1] if reverse else kept
    if kept[0] is None:
        return carry, None
    return carry, tuple(jnp.stack(column) for column in zip(*kept))


def _map(f: Function, xs: Any, batch_size: int | None = None) -> Any:
    import toile.numpy as jnp

    rows = [f(xs[i]) for i in range(len(xs))]
    if not rows:
        raise NotImplementedError("a loop of no turns has no types in Python")
    return tuple(jnp.stack(column) for column in zip(*rows))


def _fori(low: Any, high: Any, f: Function, init: Any) -> Any:
    for i in range(int(low), int(high)):
        init = f(i, init)
    return init


def _while(test: Function, f: Function, init: Any) -> Any:
    while bool(test(init)):
        init = f(init)
    return init


def _vmap(f: Function, in_axes: Any = 0, out_axes: int = 0, axis_name: Any = None) -> Function:
    import toile.numpy as jnp

    if axis_name is not None:
        raise NotImplementedError("a loop has no named axis")

    def mapped(*xs: Any) -> Any:
        axes = in_axes if isinstance(in_axes, tuple) else (in_axes,) * len(xs)
        n = next(x.shape[a] for x, a in zip(xs, axes) if a is not None)
        rows = [f(*[x if a is None else jnp.take(x, i, axis=a) for x, a in zip(xs, axes)])
                for i in range(n)]
        return tuple(jnp.stack(column, axis=out_axes) for column in zip(*rows))

    return mapped


class _Lax:
    """toile.lax, but for its loops."""

    map = staticmethod(_map)

    def __getattr__(self, name: str) -> Any:
        import toile.lax

        return getattr(toile.lax, name)


@functools.cache
def plain_names() -> dict[str, Any]:
    """Names of which the nests are Python loops and calls."""
    same = lambda f, **options: f
    found = dict(names_of("toile"))
    exec(_helpers(), found)
    found |= {
        "scan": _scan, "fori_loop": _fori, "while_loop": _while, "vmap": _vmap, "jit": same,
        "checkpoint": same, "with_jvp": same, "with_vjp": same, "lax": _Lax(),
        "cond": lambda test, f, g, *xs: f(*xs) if bool(test) else g(*xs),
        "switch": lambda i, fs, *xs: fs[min(max(int(i), 0), len(fs) - 1)](*xs),
        "linear_call": lambda f, transposed, r, x: f(r, x),
    }
    # The helpers look names up in their own globals: bind them to these.
    for name in ("wrap", "bounded", "matrix", "split", "flat"):
        helper = found[name]
        found[name] = types.FunctionType(helper.__code__, found)
    return found


# --------------------------------------------------------------------------------------- arguments


def dtype_of(name: str) -> np.dtype:
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def _values(rng: np.random.Generator, shape: tuple[int, ...], name: str, regime: str) -> Any:
    if name == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if "int" in name:
        low = 0 if name.startswith("u") else -3
        return rng.integers(low, 8, shape)
    if regime == "exact":
        return rng.integers(-4, 5, shape)
    x = rng.uniform(-1, 1, shape)
    if name.startswith("complex"):
        return x + 1j * rng.uniform(-1, 1, shape)
    if regime == "special":
        info = ml_dtypes.finfo(dtype_of(name))
        few = [*SPECIAL, float(info.max), float(info.tiny), float(info.tiny) / 4]
        return np.where(rng.random(shape) < 0.6, rng.choice(few, shape), x)
    return x


def arguments(p: Program, wide: bool = False) -> list[np.ndarray]:
    """The arguments of a program, the same at each call."""
    found = []
    rng = np.random.default_rng([p.seed, p.index])
    for v in p.main.params:
        name = p.types[v][1]
        with np.errstate(all="ignore"):
            x = np.asarray(_values(rng, p.shape(v), name, p.regime)).astype(dtype_of(name))
        found.append(x.astype(WIDE[name]) if wide and name in WIDE else x)
    if p.passing == "aliased":
        alias(p, found)
    return found


def alias(p: Program, args: list[np.ndarray]) -> None:
    """Make arguments of one type one array."""
    first: dict[Any, np.ndarray] = {}
    for i, v in enumerate(p.main.params):
        args[i] = first.setdefault(p.types[v], args[i])


def perturbed(p: Program, salt: int, amount: float) -> list[np.ndarray]:
    """Arguments whose floats are moved by a few units in the last place."""
    rng = np.random.default_rng([p.seed, p.index, salt])
    found = []
    for x in arguments(p):
        if x.dtype.kind in "iub":
            found.append(x)
            continue
        noise = 1 + amount * rng.choice((-1.0, 1.0), x.shape)
        with np.errstate(all="ignore"):
            found.append((x * noise).astype(x.dtype))
    return found


def strided(x: np.ndarray) -> np.ndarray:
    """The same values, not one after the other in memory."""
    if not x.ndim:
        return x
    room = np.zeros((*x.shape[:-1], 2 * x.shape[-1] + 1), x.dtype)
    view = room[..., 1::2][..., ::-1] if x.shape[-1] else room[..., :0]
    view[...] = x
    return view
