"""What must be equal: a program run eagerly, compiled, compiled from a copy, in Python loops, in
JAX, and its gradient by finite differences.

Where no operation rounds, results agree bit for bit. Elsewhere they may differ by rounding: a
difference of more than a few units in the last place counts only if it is also large against what
rounding the arguments otherwise, or computing in float64, does to the same program.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

import toile
from tests.closeness import is_inexact, spacing
from tests.generated.data import DIFFERENTIATES, FLOATS, Program, source
from tests.generated.running import (
    accurate_names,
    alias,
    arguments,
    dtype_of,
    function,
    jax_names,
    names_of,
    nudged_names,
    perturbed,
    plain_names,
    strided,
)

ULPS = {"value": 32, "vmap": 32}
DERIVED_ULPS = 256
SPECIAL_ULPS = 1024
NOISE = 32  # how many times what rounding does an error may be


@dataclass
class Failure:
    """What went wrong with a program, and how."""

    kind: str
    detail: str


class Differs(Exception):
    """Results that should agree do not."""


class Skipped(Exception):
    """A comparison that means nothing for this program."""


def leaves(result: Any) -> list[Any]:
    return toile.tree_util.tree_leaves(result)


def _eps(p: Program) -> float:
    """The spacing of the narrowest floats in a program."""
    text = source(p)
    return max(spacing(dtype_of(t)) for t in FLOATS if f"'{t}'" in text or t == p.dtype)


def _wide(x: np.ndarray) -> np.ndarray:
    return x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)


def _same(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Where elements are equal, NaN to NaN."""
    return (a == b) | ((a != a) & (b != b))


def matching(got: np.ndarray, want: np.ndarray, ulps: float, eps: float) -> np.ndarray:
    """Where two results of one shape are equal up to rounding."""
    if not is_inexact(want.dtype):
        return np.asarray(got == want)
    a, b = _wide(got), _wide(want)
    if a.dtype.kind == "c":
        both = np.isnan(a) & np.isnan(b)
        a, b = np.where(both, 0, a), np.where(both, 0, b)
    finite = np.isfinite(b)
    scale = np.abs(b[finite]).max(initial=0.0)
    with np.errstate(all="ignore"):
        bound = ulps * eps * (np.abs(b) + scale)
        near = np.abs(a - b) <= bound
    return _same(a, b) | (near & finite & np.isfinite(a))


def difference(got: np.ndarray, want: np.ndarray, ulps: float, eps: float) -> str | None:
    """How two results differ beyond rounding; None: they do not."""
    good = matching(got, want, ulps, eps)
    if good.all():
        return None
    if not is_inexact(want.dtype):
        return f"{got} is not {want}"
    return f"{got[~good][:6]} is not {want[~good][:6]}"


def compare(got: Any, want: Any, ulps: float, eps: float, what: str, weak: bool = True) -> None:
    """Raise Differs where structure, types or values of results differ."""
    gs, ws = leaves(got), leaves(want)
    if len(gs) != len(ws):
        raise Differs(f"{what}: {len(gs)} results, not {len(ws)}")
    for i, (g, w) in enumerate(zip(gs, ws)):
        if (g.shape, np.dtype(g.dtype)) != (w.shape, np.dtype(w.dtype)):
            raise Differs(f"{what}: result {i} is {g.dtype}{g.shape}, not {w.dtype}{w.shape}")
        kinds = [bool(getattr(x, "weak_type", False)) for x in (g, w)]
        if weak and kinds[0] != kinds[1]:
            raise Differs(f"{what}: result {i} has weak_type {kinds[0]}, not {kinds[1]}")
        found = difference(np.asarray(g), np.asarray(w), ulps, eps)
        if found:
            raise Differs(f"{what}: result {i}: {found}")


class Checked:
    """One program and the results of its ways to run."""

    def __init__(self, p: Program, args: list[np.ndarray] | None = None):
        self.p = p
        self.args = arguments(p) if args is None else args
        self.names = names_of("toile")
        self.eps = _eps(p)
        self.ulps = 0 if p.regime == "exact" else ULPS.get(p.outer, DERIVED_ULPS)
        self.noises: list[Any] | None = None
        self.eager = self.run(function(p, self.names))

    def run(self, f: Callable[..., Any], args: Any = None) -> Any:
        args = [toile.numpy.asarray(x) for x in (self.args if args is None else args)]
        return f(*args)

    def close(self, got: Any, what: str, weak: bool = True, more: float = 1.0) -> None:
        """Compare with the eager result; large errors count if the program is not noisy."""
        ulps = self.ulps
        if not ulps and not (_exact(got) and _exact(self.eager)):
            ulps = ULPS["value"]  # 17 elements that share a cotangent: 1/17 is rounded
        try:
            compare(got, self.eager, ulps * more, self.eps, what, weak)
        except Differs as e:
            if not self._only_noise(got, more):
                raise e

    def close_by(self, run: Callable[[Checked], Any], what: str, weak: bool = True,
                 more: float = 1.0) -> None:
        """Compare what `run` gives with the eager result.

        Of the largest numbers and infinities the order of a sum makes NaN or an infinity. Where
        results differ in those alone, the same program must agree on smaller numbers. A program
        that makes the largest numbers of infinities may add those, and lose all others."""
        got = run(self)
        try:
            self.close(got, what, weak, more)
        except Differs:
            replaces = "nan_to_num(" in source(self.p)
            smaller = [_bounded(x, replaces) for x in self.args]
            finite = where_finite(got, self.eager)
            same = all(x.tobytes() == y.tobytes() for x, y in zip(smaller, self.args))
            if same or (finite is None and not replaces):
                raise
            if not replaces:
                self.close(finite, what, weak, more)
            other = Checked(self.p, smaller)
            other.close(run(other), what, weak, more)

    # ---- what rounding does
    def _only_noise(self, got: Any, more: float) -> bool:
        gs, ws = leaves(got), leaves(self.eager)
        if [(g.shape, str(g.dtype)) for g in gs] != [(w.shape, str(w.dtype)) for w in ws]:
            return False
        for g, w, noise in zip(gs, ws, self._noise()):
            g, w = np.asarray(g), np.asarray(w)
            if not is_inexact(w.dtype):
                if g.tobytes() != w.tobytes() and not noise:
                    return False
                continue
            with np.errstate(all="ignore"):
                error = np.abs(_wide(g) - _wide(w))
            bad = ~_same(g, w)
            if not np.isfinite(error[bad]).all():
                return bool(noise == np.inf)
            if error[bad].max(initial=0.0) > NOISE * more * noise:
                return False
        return True

    def _noise(self) -> list[float]:
        """For each result the most that rounding otherwise changes it by."""
        if self.noises is None:
            f = function(self.p, self.names)
            found = [self.run(f, perturbed(self.p, salt, 2 * self.eps)) for salt in range(3)]
            if self.p.regime == "exact":
                if self._rounds():
                    self.noises = [np.inf] * len(leaves(self.eager))
                    return self.noises
                found = []  # nothing rounds: float64 must give the same
            with toile.enable_x64(True):
                found.append(self.run(function(self.p, self.names, wide=True),
                                      arguments(self.p, wide=True)))
            if self.eps <= np.finfo(np.float64).eps and found[:-1]:  # no wider floats to compare
                ulp = self.eps / 2  # of numbers close to 1
                others = (accurate_names(), nudged_names(ulp), nudged_names(-ulp))
                found += [self.run(function(self.p, names)) for names in others]
            # Integers beyond these are rounded in exact programs too.
            most = max([_largest(w) for r in (self.eager, found[-1]) for w in leaves(r)], default=0)
            least = self.eps * most if most * self.eps > 0.125 else 0.0
            if self.p.regime == "smooth":  # 1 - y * y near y = 1: inner values are of order 1
                least = max(least, self.eps * gain(self.p))
            self.noises = [max([least, *[_distance(leaves(r)[i], w) for r in found]])
                           for i, w in enumerate(leaves(self.eager))]
        return self.noises

    def round_tanh_otherwise(self) -> None:
        """Add to the noise what a tanh that is off by one unit in the last place changes.

        XLA's tanh never reaches 1, so that its slope 1 - y * y is not 0 for large arguments."""
        noises = self._noise()
        for amount in (self.eps, -self.eps):
            found = leaves(self.run(function(self.p, nudged_names(amount))))
            for i, (got, want) in enumerate(zip(found, leaves(self.eager))):
                noises[i] = max(noises[i], _distance(got, want))


    def _rounds(self) -> bool:
        """Whether integers of an exact program outgrow its floats somewhere."""
        names = dict(plain_names())
        right, most = names["wrap"], [0.0]

        def wrap(x: Any) -> Any:
            known = x.concrete() if hasattr(x, "concrete") else x
            if known is not None:
                most[0] = max(most[0], _largest(known))
            return right(x)

        names["wrap"] = wrap
        with toile.enable_x64(True):
            try:
                self.run(function(self.p, names, wide=True), arguments(self.p, wide=True))
            except NotImplementedError:  # what has run up to there counts
                pass
        return most[0] * self.eps > 1


def gain(p: Program) -> float:
    """What multiplies an inner value of order 1 in a derivative: forward, tangents of ones that are
    summed over an argument; backward, the largest weight of a result."""
    if p.outer == "jvp":
        return max([1.0, *[float(np.prod(p.shape(p.main.params[i]))) for i in p.floats()]])
    if p.outer in DIFFERENTIATES:
        sizes = [float(np.prod(p.shape(p.main.outs[i]))) for i in p.float_outs()]
        return 1.0 + 0.125 * (max([1.0, *sizes]) - 1.0)
    return 1.0


def _largest(x: Any) -> float:
    """The largest finite magnitude."""
    x = np.asarray(x)
    if not is_inexact(x.dtype):
        return 0.0
    x = np.abs(_wide(x))
    return float(x[np.isfinite(x)].max(initial=0.0))


def _exact(result: Any) -> bool:
    """Whether all results are integers, or fractions whose denominators are small powers of 2."""
    for x in map(np.asarray, leaves(result)):
        if is_inexact(x.dtype):
            wide = _wide(x)
            for part in (wide.real, wide.imag):
                finite = part[np.isfinite(part)] * 2**16
                if (finite != np.rint(finite)).any():
                    return False
    return True


def _bounded(x: np.ndarray, infinities: bool) -> np.ndarray:
    """An argument whose finite elements are at most 1/64 of the largest number; of its infinities,
    if those are bounded too, only the signs are left."""
    if not is_inexact(x.dtype) or x.dtype.kind == "c":
        return x
    most = float(ml_dtypes.finfo(x.dtype).max) / 64
    wide = _wide(x)
    if infinities:
        wide = np.where(np.isinf(wide), np.sign(wide), wide)
    return np.where(np.isfinite(wide), np.clip(wide, -most, most), wide).astype(x.dtype)


def _distance(a: Any, b: Any) -> float:
    """The largest difference; infinite where one is a NaN or an infinity and the other is not."""
    a, b = np.asarray(a), np.asarray(b)
    if not is_inexact(b.dtype):
        return float(not np.array_equal(a, b))
    a, b = _wide(a), _wide(b)
    bad = ~_same(a, b)
    with np.errstate(all="ignore"):
        error = np.abs(a - b)[bad]
    return float(error.max(initial=0.0)) if np.isfinite(error).all() else np.inf


@contextmanager
def environment(name: str, value: str | None) -> Iterator[None]:
    """Another value of an environment variable, which the compiler reads each time."""
    before = os.environ.pop(name, None)
    if value is not None:
        os.environ[name] = value
    try:
        yield
    finally:
        os.environ.pop(name, None)
        if before is not None:
            os.environ[name] = before


def _passed(p: Program, args: list[np.ndarray]) -> list[Any]:
    """Arguments as the program wants them passed."""
    if p.passing == "strided":
        return [strided(x) for x in args]
    if p.passing == "donated":
        return [toile.numpy.array(x) for x in args]
    return [x.copy() for x in args]


def _jitted(c: Checked, f: Callable[..., Any]) -> Any:
    p = c.p
    donate = tuple(range(len(c.args))) if p.passing == "donated" else ()
    compiled = toile.jit(f, donate_argnums=donate)
    given = _passed(p, c.args)
    if p.passing == "aliased":
        alias(p, given)
    kept = [np.array(x) for x in given]
    with warnings.catch_warnings():  # what cannot be donated is said
        warnings.simplefilter("ignore")
        found = leaves(compiled(*given))
    got = [np.asarray(x).copy() if p.passing == "donated" else x for x in found]
    if p.passing != "donated":
        for x, y in zip(given, kept):
            if np.asarray(x).tobytes() != y.tobytes():
                raise Differs(f"argument changed: {x} was {y}")
    again = leaves(compiled(*_passed(p, kept)))
    for x, y in zip(got, again):
        if np.asarray(x).tobytes() != np.asarray(y).tobytes():
            raise Differs(f"second call: {y} was {x}")
    return again


def _run_jitted(c: Checked) -> Any:
    return _jitted(c, function(c.p, c.names))


def _compiled(c: Checked) -> None:
    c.close_by(_run_jitted, "jit")


def _copy(c: Checked) -> None:
    c.close_by(_run_jitted, "jit of a copy")


def _disk(c: Checked) -> None:
    with environment("TOILE_PLANS", None):
        for what in ("jit, plan written", "jit, plan read"):
            c.close_by(_run_jitted, what)


def _optimized(c: Checked) -> None:
    with environment("TOILE_OPTIMIZE", "1"):
        c.close_by(_run_jitted, "jit with LLVM's passes")


def _emulated(c: Checked) -> None:
    """The plan for a GPU, whose kernels run on the host and may not use a misaligned address."""
    from tests.gpu.host_driver import results_of

    def run(c: Checked) -> Any:
        with toile.default_matmul_precision("highest"):
            return results_of(function(c.p, c.names), c.args)

    c.close_by(run, "kernels of a GPU", weak=False, more=4)


def _plain(c: Checked) -> None:
    """Zero times infinity may be NaN in a loop or a rule and not in Python: there JAX decides.

    A transform drops the tangents and cotangents that are zero in Python, but the carry of a loop
    and the tangents that a custom rule takes are arrays of zeros if any of them is not zero."""
    try:
        got = c.run(function(c.p, plain_names()))
    except NotImplementedError as e:
        raise Skipped(str(e)) from e
    try:
        c.close(got, "loops in Python", weak=False, more=4)
    except Differs as e:
        finite = where_finite(got, c.eager)
        if finite is None:
            raise
        c.close(finite, "loops in Python", weak=False, more=4)
        try:
            _jax(c)
        except (Skipped, Differs, ImportError):
            raise e from None
        raise Skipped("JAX has these infinities and NaNs too") from e


def where_finite(got: Any, want: Any) -> list[np.ndarray] | None:
    """A result with what is wanted where either is not finite; None: no such place differs."""
    gs, ws = ([np.asarray(x) for x in leaves(r)] for r in (got, want))
    if [(g.shape, g.dtype) for g in gs] != [(w.shape, w.dtype) for w in ws]:
        return None
    found, differs = [], False
    for g, w in zip(gs, ws):
        if is_inexact(w.dtype):
            special = ~(np.isfinite(_wide(g)) & np.isfinite(_wide(w)))
            differs |= bool((special & ~_same(g, w)).any())
            g = np.where(special, w, g)
        found.append(g)
    return found if differs else None


def _differences(c: Checked) -> None:
    """The gradient along a direction against central differences of two steps, in float64."""
    p = c.p
    name = {"grad": "total", "checkpoint_grad": "total", "twice": "slope"}.get(p.outer)
    if name is None or not p.smooth or p.regime != "smooth":
        raise Skipped("no finite differences")
    with toile.enable_x64(True):
        args = arguments(p, wide=True)
        slopes = c.run(function(p, c.names, wide=True), args)[1]
        f = function(p, c.names, name, wide=True)
        rng = np.random.default_rng([p.seed, p.index, 7])
        ds = {i: rng.uniform(-1, 1, args[i].shape) for i in p.floats()}

        def central(h: float) -> float:
            ends = [c.run(f, [x + s * h * ds[i] if i in ds else x for i, x in enumerate(args)])
                    for s in (1, -1)]
            return (float(ends[0]) - float(ends[1])) / (2 * h)

        coarse, fine = central(1e-4), central(2.5e-5)
    got = sum(float(np.sum(np.asarray(s) * d)) for s, d in zip(slopes, ds.values()))
    size = 1e-5 * (1 + abs(got) + sum(float(np.abs(np.asarray(s)).sum()) for s in slopes))
    if not abs(coarse - fine) <= size:
        raise Skipped("finite differences do not converge")
    if not abs(fine - got) <= 4 * size:
        raise Differs(f"finite differences: {got} is not {fine}")


def _jax(c: Checked) -> None:
    import jax

    from tests.quick_jax import OPTIONS

    p = c.p
    if any(name in source(p) for name in ("jnp.isfinite(", "jnp.signbit(")):
        raise Skipped("XLA takes a product with a bool for a choice, where inf * 0 is not NaN")
    own = "linear_call(" in source(p)  # JAX has no tangents of its residuals
    with jax.enable_x64(p.x64):
        try:
            f = function(p, jax_names() if own else names_of("jax"))
            got = jax.tree.leaves(jax.jit(f, compiler_options=OPTIONS)(*c.args))
        except Exception as e:  # whatever jax cannot do is no reference
            raise Skipped(f"jax: {type(e).__name__}") from e
    if p.regime == "special":
        close_to_special(c, got)
        return
    try:
        c.close(got, "jax", more=8)
    except Differs:
        if "tanh(" not in source(p):
            raise
        c.round_tanh_otherwise()
        c.close(got, "jax", more=8)


def close_to_special(c: Checked, got: list[Any]) -> None:
    """Compare with what JAX makes of infinities, NaNs and denormals.

    XLA reads denormals as zeros: a result that toile gives for arguments without denormals is
    right as well. And it may round each product in a sum, which can overflow, where others round
    the sum alone: an infinity or a NaN of JAX counts only if float64 does not confirm toile."""
    got, want = [[flushed(np.asarray(x)) for x in xs] for xs in (got, leaves(c.eager))]
    try:
        compare(got, want, SPECIAL_ULPS, c.eps, "jax", weak=False)
    except Differs:
        if [(x.shape, x.dtype) for x in got] != [(x.shape, x.dtype) for x in want]:
            raise
        p = c.p
        zeros = leaves(c.run(function(p, c.names), [flushed(x) for x in c.args]))
        with toile.enable_x64(True):
            wide = leaves(c.run(function(p, c.names, wide=True), arguments(p, wide=True)))
        if not all(_explained(c, *xs).all() for xs in zip(got, want, zeros, wide)):
            raise


def _explained(c: Checked, got: np.ndarray, want: np.ndarray, zero: Any, wide: Any) -> np.ndarray:
    """Where JAX's result is toile's, toile's without denormals, or an overflow that is not one."""
    zero, wide = flushed(np.asarray(zero)), np.asarray(wide)
    near = lambda a, b: matching(a, b, SPECIAL_ULPS, c.eps)
    good = near(got, want) | near(got, zero)
    if is_inexact(want.dtype) and wide.dtype.itemsize > want.dtype.itemsize:
        with np.errstate(all="ignore"):
            confirmed = near(flushed(wide.astype(want.dtype)), want)
        good |= confirmed & ~np.isfinite(_wide(got))
    return good


def flushed(x: np.ndarray) -> np.ndarray:
    """Denormals as zeros: XLA may flush them."""
    if x.dtype.kind == "f" or x.dtype.name == "bfloat16":
        return np.where(np.abs(x) < 2 * float(spacing_tiny(x)), np.zeros_like(x), x)
    return x


def spacing_tiny(x: np.ndarray) -> float:
    return float(ml_dtypes.finfo(x.dtype).tiny)


CHECKS: dict[str, Callable[[Checked], None]] = {
    "jit": _compiled, "copy": _copy, "disk": _disk, "optimized": _optimized,
    "emulated": _emulated, "plain": _plain, "differences": _differences, "jax": _jax,
}  # fmt: skip


def chosen(p: Program, jax: bool) -> list[str]:
    """The checks of a program: some on a sample."""
    found = ["jit", "copy", "plain", "differences"]
    found += ["disk"] if p.index % 16 == 1 else []
    found += ["optimized"] if p.index % 8 == 5 else []
    found += ["jax"] if jax and p.index % 20 == 3 else []
    return found


def examine(p: Program, checks: list[str]) -> tuple[list[str], Failure | None]:
    """The checks that were made, and the first that failed."""
    made: list[str] = []
    with toile.enable_x64(p.x64):
        try:
            c = Checked(p)
        except Exception as e:
            return made, Failure("eager", f"{type(e).__name__}: {e}")
        for name in checks:
            try:
                CHECKS[name](c)
            except Skipped:
                continue
            except Differs as e:
                return made, Failure(name, str(e))
            except Exception as e:
                return made, Failure(f"{name} {type(e).__name__}", f"{type(e).__name__}: {e}")
            made.append(name)
    return made, None
