"""Every operation keeps its word: each row of the table through every transformation.

Eager results equal NumPy's, inferred avals equal eager ones, jit agrees to the last bits and traces
once; jvp equals finite differences in float64, reverse mode is its adjoint, second derivatives
equal finite differences of first ones, transposes are adjoint, and vmap over any axis equals a
loop.
"""

import dataclasses
import itertools

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from tests.cases import Row, noted
from tests.cases_control import INTERNAL, ROWS
from tests.closeness import nearly_equal
from toile.engine.operation import Operation
from toile.engine.program import Program
from toile.primitives.elementwise import convert
from toile.primitives.linalg_eigen import Eigh, Svd

WEAK = ("float32", "int32", "complex64")
NARROW = {"float16": 4e-3, "bfloat16": 2e-2}
BATCH = 3


def wide(dtype):
    """Whether a dtype needs the x64 mode."""
    return dtype in ("float64", "int64", "uint64", "complex128")


def listed(out):
    """Results as a flat list of arrays."""
    return toile.tree_util.tree_leaves(out)


def plain(x):
    """A NumPy array that NumPy's own functions compare."""
    x = np.asarray(x)
    return x.astype(np.float32) if x.dtype.kind == "V" or x.dtype.name in NARROW else x


def close(got, want, rtol, what):
    """Values agree relative to the largest; integers and booleans exactly."""
    got, want = plain(got), plain(want)
    assert got.shape == want.shape, f"{what}: shape {got.shape}, needed {want.shape}"
    if want.dtype.kind in "biu":
        np.testing.assert_array_equal(got, want, err_msg=what)
        return
    finite = np.abs(want[np.isfinite(want)])
    scale = finite.max(initial=0.0)
    np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol * max(scale, 1e-3), err_msg=what)


def equal(got, want, what):
    """What is staged first gives the very results of what runs at once, or nearly."""
    for g, w in zip(got, want, strict=True):
        assert (g.shape, g.dtype) == (w.shape, w.dtype), what
        close(g, w, 1e-12, what)


def derived(row):
    """The dtypes in which to differentiate: of double precision."""
    return [d for d in ("float64", "complex128") if d in row.dtypes and row.differentiable(d)]


def classes():
    """Every concrete operation class of the package."""
    found, todo = [], list(Operation.__subclasses__())
    while todo:
        one = todo.pop()
        todo += one.__subclasses__()
        own = one.__module__.startswith("toile.")
        # Primitives of packages that are loaded onto toile have the rules that those give them.
        own = own and not one.__module__.startswith(("toile.interop.", "toile.compat."))
        concrete = one.infer is not Operation.infer and "eager" in dir(one)
        if own and concrete and one not in found:
            found.append(one)
    return found


def is_family(one):
    """Whether a class is there to be derived from: others derive from it and nothing is it."""
    return bool(one.__subclasses__()) and not any(type(row.run) is one or row.op is one
                                                  for row in ROWS)


def test_every_operation_has_a_row():
    covered = {row.op for row in ROWS}
    missing = [
        c.__name__ for c in classes()
        if c not in covered and not c.__name__.startswith("_") and c.__name__ not in INTERNAL
        and not is_family(c)
    ]
    assert not missing, f"no row in tests/cases_*.py for {sorted(missing)}"


def test_labels_are_unique():
    labels = [str(row) for row in ROWS]
    assert len(labels) == len(set(labels)), {x for x in labels if labels.count(x) > 1}


def operations_in(program):
    """Classes of the operations of a Program, of those it carries too."""
    found = set()
    for equation in program.equations:
        op = equation.op
        found.add(type(op))
        for inner in op.programs():
            found |= operations_in(inner)
        if dataclasses.is_dataclass(op):
            for field in dataclasses.fields(op):
                value = getattr(op, field.name)
                if isinstance(value, Program):
                    found |= operations_in(value)
    return found


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_value(row: Row):
    """Eager against NumPy; inferred against eager; jit against eager, traced once."""
    for dtype in row.dtypes:
        with noted(dtype):
            check_value(row, dtype)


def check_value(row, dtype):
    """The same of one dtype."""
    with toile.enable_x64(wide(dtype) or "64" in row.label):
        raw = row.arguments(dtype)
        xs = [jnp.asarray(x) for x in raw]
        got = listed(row.run(*xs))
        if row.oracle is not None:
            want = row.oracle(*raw)
            want = list(want) if isinstance(want, (list, tuple)) else [want]
            assert len(got) == len(want)
            for g, w in zip(got, want):
                assert row.oracle is None or g.dtype == np.asarray(w).dtype, (g.dtype, w.dtype)
                close(g, w, NARROW.get(dtype, row.rtol if not wide(dtype) else 1e-9), "value")
        if row.check is not None:
            row.check([np.asarray(g) for g in got], *raw)
        inferred = listed(toile.eval_shape(row.run, *xs))
        for g, aval in zip(got, inferred, strict=True):
            assert (g.shape, g.dtype) == (aval.shape, aval.dtype)
            assert g.weak_type == aval.weak_type
        check_jit(row, xs, got)


# Where the function has zeros, series of other forms differ in more than the last bits, and so do
# sums of many terms, such as SciPy's continued fractions.
ULPS = {"Lgamma": 2**10, "Digamma": 2**10, "Igamma": 2**8, "Igammac": 2**10, "IgammaGradA": 2**10,
        "RandomGammaGrad": 2**10, "RegularizedIncompleteBeta": 2**7}


def check_jit(row, xs, want):
    """jit gives the same to a few last bits, traces once, and the operation is really there."""
    run = lambda *args: row.run(*args)
    f = toile.jit(run)
    # Small arrays are decomposed on the host outside jit, where vectors may have other signs.
    either = row.op in (Eigh, Svd) and row.check is not None and toile.default_backend() == "gpu"
    for _ in range(2):
        found = listed(f(*xs))
        for g, w in zip(found, want, strict=True):
            assert (g.dtype, g.weak_type) == (w.dtype, w.weak_type)
            if not either:
                nearly_equal(g, w, "jit differs from eager", ULPS.get(row.op.__name__, 8))
        if either:
            row.check([np.asarray(g) for g in found], *map(np.asarray, xs))
    assert len(f.why()) == 1, f.why()
    if row.staged:
        staged = operations_in(toile.make_jaxpr(run)(*xs).program)
        assert row.op in staged, f"the row applies {[c.__name__ for c in staged]}"


def weak_dtype(row):
    """A dtype of the row that Python scalars have, or None."""
    return next((d for d in row.dtypes if d in WEAK), None) if row.operands else None


@pytest.mark.parametrize("row", [r for r in ROWS if weak_dtype(r)], ids=str)
def test_weak_operands(row: Row):
    """Inferred weak types equal eager ones when operands are weak."""
    dtype = weak_dtype(row)
    xs = [weak(x) for x in row.arguments(dtype)]
    with toile.enable_x64("64" in row.label):
        got, inferred = listed(row.run(*xs)), listed(toile.eval_shape(row.run, *xs))
        assert [g.weak_type for g in got] == [a.weak_type for a in inferred]
        jitted = listed(toile.jit(lambda *args: row.run(*args))(*xs))
        assert [g.weak_type for g in got] == [g.weak_type for g in jitted]


def weak(x):
    """The array as a weakly typed one, where its dtype has such a form."""
    x = jnp.asarray(x)
    return convert(x, x.dtype, weak=True) if x.dtype.name in WEAK else x


# ------------------------------------------------------------------------------------ derivatives


def direction(rng, x):
    """A random tangent of an operand."""
    d = rng.uniform(-1, 1, x.shape)
    if x.dtype.kind == "c":
        d = d + 1j * rng.uniform(-1, 1, x.shape)
    return d.astype(x.dtype)


def pairing(a, b):
    """The bilinear form of cotangents and tangents: the real part of the sum of products."""
    total = 0.0
    for x, y in zip(a, b, strict=True):
        x, y = np.asarray(x), np.asarray(y)
        if x.dtype.kind in "fc" and y.dtype.kind in "fc":
            total += np.sum(x * y).real
    return total


def along(row, raw, moving):
    """The row as a function of its moving operands, giving its inexact results."""

    def run(*ys):
        full = [jnp.asarray(x) for x in raw]
        for i, y in zip(moving, ys):
            full[i] = y
        return [o for o in listed(row.run(*full)) if o.dtype.kind in "fc"]

    return run


def slope(f, xs, ds, h=1e-5):
    """Central difference of a function of arrays along a direction."""
    up = f(*[jnp.asarray(x + h * d) for x, d in zip(xs, ds)])
    down = f(*[jnp.asarray(x - h * d) for x, d in zip(xs, ds)])
    return [(np.asarray(a) - np.asarray(b)) / (2 * h) for a, b in zip(up, down)]


@pytest.mark.parametrize("row", [r for r in ROWS if derived(r)], ids=str)
def test_derivatives(row: Row):
    """jvp against finite differences, reverse mode against jvp, second order against both."""
    for dtype in derived(row):
        with noted(dtype):
            check_derivatives(row, dtype)


def check_derivatives(row, dtype):
    """The same in one dtype."""
    with toile.enable_x64(True):
        raw, moving = row.arguments(dtype), row.differentiable(dtype)
        rng = row.rng("tangents")
        f, xs = along(row, raw, moving), [raw[i] for i in moving]
        for chosen in {(k,) for k in range(len(moving))} | {tuple(range(len(moving)))}:
            ds = [direction(rng, x) if k in chosen else np.zeros_like(x)
                  for k, x in enumerate(xs)]
            check_first(row, f, xs, ds, chosen, rng)


def check_first(row, f, xs, ds, chosen, rng):
    """Derivatives with respect to the chosen operands, the others being constants."""
    def part(*ys):
        full = [jnp.asarray(x) for x in xs]
        for k, y in zip(chosen, ys):
            full[k] = y
        return f(*full)

    point, dots = [xs[k] for k in chosen], [ds[k] for k in chosen]
    args, tangents = [jnp.asarray(x) for x in point], [jnp.asarray(d) for d in dots]
    want = slope(part, point, dots)
    if row.forward:
        outs, got = toile.jvp(part, tuple(args), tuple(tangents))
        for o, g, w in zip(outs, got, want, strict=True):
            assert g.dtype == o.dtype
            close(g, w, row.slack, f"jvp in {chosen}")
        want = got
        staged = toile.jit(lambda xs, ts: toile.jvp(part, xs, ts)[1])(tuple(args), tuple(tangents))
        equal(staged, got, "jit of jvp")
    outs, pull = toile.vjp(part, *args)
    cts = [jnp.asarray(direction(rng, np.asarray(o))) for o in outs]
    back = pull(cts)
    assert [b.dtype for b in back] == [a.dtype for a in args]
    staged = toile.jit(lambda xs, cs: toile.vjp(part, *xs)[1](cs))(tuple(args), cts)
    equal(staged, back, "jit of vjp")
    left, right = pairing(back, dots), pairing(cts, want)
    limit = (1e-9 if row.forward else row.slack) * (1 + abs(left) + abs(right))
    assert abs(left - right) <= limit, f"vjp in {chosen}: {left} against {right}"
    if row.second:
        check_second(row, part, point, dots, cts, chosen)


def check_second(row, part, point, dots, cts, chosen):
    """jvp of the vjp against finite differences of the vjp."""
    def gradient(*ys):
        return toile.vjp(part, *ys)[1](cts)

    args, tangents = [jnp.asarray(x) for x in point], [jnp.asarray(d) for d in dots]
    _, got = toile.jvp(gradient, tuple(args), tuple(tangents))
    want = slope(gradient, point, dots)
    for g, w in zip(got, want, strict=True):
        close(g, w, 10 * row.slack, f"second derivative in {chosen}")


@pytest.mark.parametrize("row", [r for r in ROWS if r.linear], ids=str)
def test_transpose(row: Row):
    """<f(x), ct> = <x, fᵀ(ct)> in the linear operands."""
    dtype = "float64" if "float64" in row.dtypes else "complex128"
    with toile.enable_x64(True):
        raw = row.arguments(dtype)
        f = along(row, raw, row.linear)
        xs = [jnp.asarray(raw[i]) for i in row.linear]
        outs = f(*xs)
        rng = row.rng("cotangents")
        cts = [jnp.asarray(direction(rng, np.asarray(o))) for o in outs]
        back = toile.linear_transpose(f, *xs)(cts)
        assert [(b.shape, b.dtype) for b in back] == [(x.shape, x.dtype) for x in xs]
        left, right = pairing(outs, cts), pairing(xs, back)
        assert abs(left - right) <= 1e-9 * (1 + abs(left)), f"{left} against {right}"


# ------------------------------------------------------------------------------------------ vmap


def choices(row):
    """in_axes to try: each operand at each axis, and pairs and all of them at both ends."""
    places = row.mappable()
    rank = [len(o.shape) for o in row.operands]
    for i in places:
        for axis in range(rank[i] + 1):
            yield {i: axis}
    groups = list(itertools.combinations(places, 2))
    if len(places) > 2:
        groups = [*groups[:6], tuple(places)]
    for group in groups:
        yield dict.fromkeys(group, 0)
        yield {i: rank[i] if k % 2 else 0 for k, i in enumerate(group)}


def batched(row, dtype, axes, raw):
    """The operands, those at `axes` with an axis of other draws."""
    rng = row.rng("batch")
    rows = [list(raw)]
    for _ in range(BATCH - 1):
        rows.append([o.draw(rng, dtype) for o in row.operands])
    columns = [[rows[b][i] if i in axes else raw[i] for b in range(BATCH)]
               for i in range(len(raw))]
    stacked = [np.stack(column, axes[i]) if i in axes else column[0]
               for i, column in enumerate(columns)]
    return stacked, list(zip(*columns))


@pytest.mark.parametrize("row", [r for r in ROWS if r.mappable()], ids=str)
def test_vmap(row: Row):
    """vmap over every axis of every operand equals a loop over examples."""
    dtype = row.dtypes[0]
    with toile.enable_x64(wide(dtype) or "64" in row.label):
        raw = row.arguments(dtype)
        loops = {}  # results of each example, by which operands differ from one to the next
        for axes in choices(row):
            stacked, examples = batched(row, dtype, axes, raw)
            in_axes = tuple(axes.get(i) for i in range(len(raw)))
            got = listed(toile.vmap(row.run, in_axes)(*[jnp.asarray(x) for x in stacked]))
            if tuple(axes) not in loops:
                loops[tuple(axes)] = [listed(row.run(*[jnp.asarray(x) for x in xs]))
                                      for xs in examples]
            each = loops[tuple(axes)]
            for k, g in enumerate(got):
                want = np.stack([np.asarray(e[k]) for e in each])
                assert g.dtype == want.dtype, f"{in_axes}: {g.dtype} against {want.dtype}"
                tol = NARROW.get(dtype, 1e-5 if not wide(dtype) else 1e-10)
                close(g, want, tol, f"vmap {in_axes}")
