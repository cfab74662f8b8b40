"""All the rules of one operation against a JAX function of the same meaning.

`check(op, reference, *arrays)` compares the eager result, the inferred avals, jvp for every choice
of moving operands, the transposed linearization, and vmap over every choice of mapped operands, at
the first and the last axis. Second derivatives are compared where asked. JAX compiles each of
these comparisons as one program: operation by operation, compiling takes most of the time.
"""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np

from tests.golden.recorded import Record
from tests.quick_jax import OPTIONS
from toile.engine.avals import Zero, aval_of
from toile.engine.conversion import as_array
from toile.engine.operation import infer_list
from toile.engine.program import evaluate, trace_program
from toile.primitives.families import instantiate
from toile.transforms.jvp import jvp_flat
from toile.transforms.linearize import linearize_flat
from toile.transforms.transpose import backward
from toile.transforms.vmap import vmap_flat

RECORD = Record("primitives")

float0 = jax.dtypes.float0
# Narrow floats are rounded after each operation, as they are without jit.
EXACT = {**OPTIONS, "xla_allow_excess_precision": False}


def is_inexact(x):
    return jnp.issubdtype(x.dtype, jnp.inexact)


def random_like(rng, x):
    x = np.asarray(x)
    if np.iscomplexobj(x):
        return (rng.normal(size=x.shape) + 1j * rng.normal(size=x.shape)).astype(x.dtype)
    return rng.normal(size=x.shape).astype(x.dtype)


def flat(op):
    """The operation as a function from arrays to a list."""
    def call(*xs):
        out = op(*xs)
        return list(out) if isinstance(out, (list, tuple)) else [out]

    return call


def flat_reference(reference):
    def call(*xs):
        out = reference(*xs)
        return list(out) if isinstance(out, (list, tuple)) else [out]

    return call


def same(got, want, rtol, atol, what):
    assert len(got) == len(want), what
    for g, w in zip(got, want, strict=True):
        w = np.asarray(w)
        if w.dtype == float0:
            assert isinstance(g, Zero) or np.asarray(g).dtype == float0, what
            continue
        g = instantiate(g)
        g = getattr(g, "_data", g)
        assert g.shape == w.shape, f"{what}: {g.shape} against {w.shape}"
        assert g.dtype == w.dtype, f"{what}: {g.dtype} against {w.dtype}"
        if g.dtype.kind == "V":
            g, w = g.astype(np.float32), w.astype(np.float32)
        np.testing.assert_allclose(g, w, rtol=rtol, atol=atol, err_msg=what)


def choices(flags, limit=3):
    """Non-empty subsets of the true positions: all of them, or singles and the whole."""
    places = [i for i, f in enumerate(flags) if f]
    if len(places) <= limit:
        for n in range(1, len(places) + 1):
            yield from itertools.combinations(places, n)
    else:
        yield from ((p,) for p in places)
        yield tuple(places)


def compiled(f, *args):
    """What a function of JAX gives, compiled as one program: by the record or asked."""
    return RECORD.in_test(lambda: jax.jit(f, compiler_options=EXACT)(*args), *arrays_of(args))


def asked(f, *args, **options):
    """What a function of JAX gives for NumPy's arrays: by the record or asked."""
    return RECORD.in_test(lambda: f(*args, **options), *arrays_of(args))


def arrays_of(args):
    return [x for x in jax.tree.leaves(args) if isinstance(x, (np.ndarray, np.generic))]


def random_cotangents(rng, out):
    """Cotangents of results with these shapes and dtypes; None for those that are not floats."""
    return [random_like(rng, np.zeros(o.shape, o.dtype)) if is_inexact(o) else None for o in out]


def with_float0(cts, out):
    """Cotangents as JAX wants them: float0 instead of None."""
    return [np.zeros(o.shape, float0) if c is None else c for c, o in zip(cts, out, strict=True)]


def placed(values, places, full):
    """`full` with `values` in the given places."""
    full = list(full)
    for i, value in zip(places, values, strict=True):
        full[i] = value
    return full


def check_eager(op, reference, arrays, rtol, atol):
    xs = [as_array(a) for a in arrays]
    got, want = flat(op)(*xs), compiled(flat_reference(reference), *arrays)
    same(got, want, rtol, atol, f"{op}: eager")
    if hasattr(op, "infer"):
        avals = infer_list(op, [aval_of(x) for x in xs])
        assert [(a.shape, a.dtype) for a in avals] == [(g.shape, g.dtype) for g in got], op
        mine = [a.weak_type for a in avals]
        assert mine == [w.weak_type for w in want] or not any(mine)


def check_derivatives(op, reference, arrays, moving, rtol, atol):
    rng = np.random.default_rng(1)
    xs = [as_array(a) for a in arrays]
    run, ref = flat(op), flat_reference(reference)
    shapes = jax.eval_shape(ref, *arrays)
    subsets = list(choices(moving))
    given = [([random_like(rng, arrays[i]) for i in chosen], random_cotangents(rng, shapes))
             for chosen in subsets]

    def everything(arrays, given):
        return [derivatives(ref, arrays, chosen, *each)
                for chosen, each in zip(subsets, given, strict=True)]

    answers = compiled(everything, arrays, given)
    for chosen, (dots, cts), answer in zip(subsets, given, answers, strict=True):
        what = f"{op}: moving {chosen}"
        want, dwant, back = answer
        mine = placed(map(as_array, dots), chosen, map(Zero, xs))
        got, dgot = jvp_flat(run, xs, mine)
        same(got, want, rtol, atol, f"{what}: jvp, result")
        same(dgot, dwant, rtol, atol, f"{what}: jvp, tangent")
        check_staged(run, xs, mine, [*got, *dgot], what)
        results, tape = linearize_flat(run, xs, [i in chosen for i in range(len(xs))])
        mine = [Zero(r) if c is None else as_array(c) for c, r in zip(cts, results, strict=True)]
        same(backward(tape, mine), back, rtol, atol, f"{what}: vjp")


def derivatives(ref, arrays, chosen, dots, cts):
    """JAX's results, their tangents, and the cotangents of the chosen operands."""
    at = lambda *ys: ref(*placed(ys, chosen, arrays))
    point = [arrays[i] for i in chosen]
    out, pull = jax.vjp(at, *point)
    return *jax.jvp(at, point, dots), pull(with_float0(cts, out))


def check_staged(run, xs, tangents, want, what):
    """The jvp as a Program, replayed, gives what it gave at once."""
    moving = [t for t in tangents if t.__class__ is not Zero]

    def both(*args):
        rest = iter(args[len(xs):])
        dots = [t if t.__class__ is Zero else next(rest) for t in tangents]
        outs, douts = jvp_flat(run, args[:len(xs)], dots)
        return [*outs, *(d for d in douts if d.__class__ is not Zero)]

    program, consts = trace_program(both, [aval_of(a) for a in (*xs, *moving)])
    got = evaluate(program, [*consts, *xs, *moving])
    want = [w for w in want if w.__class__ is not Zero]
    assert [aval_of(g) for g in got] == [aval_of(w) for w in want], what
    for g, w in zip(got, want, strict=True):
        np.testing.assert_array_equal(g._data, w._data, err_msg=f"{what}: staged")


def check_vmap(op, reference, arrays, rtol, atol, size=3, mappable=None):
    rng = np.random.default_rng(2)
    run, ref = flat(op), flat_reference(reference)
    flags = mappable or [True] * len(arrays)
    cases = []
    for chosen in choices(flags):
        for last in (False, True):
            dims = [None] * len(arrays)
            batched = list(arrays)
            for i in chosen:
                a = np.asarray(arrays[i])
                dims[i] = a.ndim if last else 0
                rows = [a if j == 0 else perturbed(rng, a) for j in range(size)]
                batched[i] = np.stack(rows, axis=dims[i])
            cases.append((dims, batched))

    def everything(inputs):
        return [jax.vmap(ref, tuple(dims))(*batched)
                for (dims, _), batched in zip(cases, inputs, strict=True)]

    answers = compiled(everything, [batched for _, batched in cases])
    for (dims, batched), want in zip(cases, answers, strict=True):
        outs, out_dims = vmap_flat(run, (None, size), [as_array(b) for b in batched], dims)
        got = [np.broadcast_to(o._data, (size, *o.shape)) if d is None
               else np.moveaxis(o._data, d, 0) for o, d in zip(outs, out_dims, strict=True)]
        same(got, want, rtol, atol, f"{op}: vmap {dims}")


def perturbed(rng, a):
    """Other values of the same kind: a permutation along all axes keeps their range."""
    return rng.permutation(a.reshape(-1)).reshape(a.shape)


def second_order(op, reference, arrays, moving, rtol, atol):
    """jvp of the gradient of a weighted sum of squares."""
    rng = np.random.default_rng(3)
    places = [i for i, m in enumerate(moving) if m]
    ref, run = flat_reference(reference), flat(op)
    weights = random_cotangents(rng, jax.eval_shape(ref, *arrays))
    dots = [random_like(rng, arrays[i]) for i in places]

    def twice(arrays, weights, dots):
        def pull(*ys):
            out, back = jax.vjp(lambda *zs: ref(*placed(zs, places, arrays)), *ys)
            return back(with_float0(weights, out))

        return jax.jvp(pull, [arrays[i] for i in places], dots)

    want, dwant = compiled(twice, arrays, weights, dots)
    xs = [as_array(a) for a in arrays]

    def mine(*ys):
        results, tape = linearize_flat(run, placed(ys, places, xs), moving)
        return [instantiate(c) for c in backward(
            tape, [Zero(r) if w is None else as_array(w)
                   for r, w in zip(results, weights, strict=True)])]

    got, dgot = jvp_flat(mine, [xs[i] for i in places], [as_array(d) for d in dots])
    same(got, want, rtol, atol, f"{op}: gradient under jvp")
    same(dgot, dwant, rtol, atol, f"{op}: second derivative")


def check(op, reference, *arrays, moving=None, rtol=1e-5, atol=1e-5, grad=True, vmap=True,
          second=False, mappable=None):
    """Compare all rules of `op` with `reference` at `arrays`."""
    arrays = [np.asarray(a) for a in arrays]
    check_eager(op, reference, arrays, rtol, atol)
    moving = moving or [is_inexact(a) for a in arrays]
    if grad and any(moving):
        check_derivatives(op, reference, arrays, moving, rtol, atol)
    if vmap:
        check_vmap(op, reference, arrays, rtol, atol, mappable=mappable)
    if second:
        second_order(op, reference, arrays, moving, rtol, atol)
