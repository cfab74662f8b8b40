"""toile against the real jax: value, dtype, weak type, grad, jvp and vmap of each case.

Both libraries run the same text on the same arrays, in float32 and with x64 on. jax compiles each
case once, with everything that is compared as its results; toile runs op by op. Most answers of
jax are on file (`tests/golden`); `python -m tests.test_parity` records those that are new.
"""

import functools
import hashlib
import inspect
import types

import jax
import jax.numpy
import numpy as np
import pytest

import toile
import toile.nn
import toile.numpy
import toile.ops
import toile.scipy
from tests import golden, parity_cases, parity_cases_more
from tests.parity_programs import PROGRAMS
from tests.quick_jax import OPTIONS as QUICK

DATA = parity_cases.DATA
WIDE = {"float32": "float64", "complex64": "complex128"}
# The least tolerance for results of a dtype, whatever the mode.
LEAST = {"bfloat16": 2**-7, "float16": 2**-10, "float32": 2e-5, "complex64": 2e-5}
LIBRARIES = {
    "jax": types.SimpleNamespace(jax=jax, jnp=jax.numpy, lax=jax.lax, nn=jax.nn),
    "toile": types.SimpleNamespace(jax=toile, jnp=toile.numpy, lax=toile.lax, nn=toile.nn),
}


class Case:
    """One expression or program, the names of its arrays, and its flags."""

    def __init__(self, given):
        if callable(given):
            self.label, self.flags = given.__name__, given.flags
            self.names = list(inspect.signature(given).parameters)[1:]
            self.call = given
            return
        text, flags = given if isinstance(given, tuple) else (given, "")
        self.label, self.flags = text, flags
        code = compile(text, text, "eval")
        self.names = sorted(names_in(code) & set(DATA))
        self.call = functools.partial(evaluate, code, self.names)

    def has(self, what):
        """Whether a comparison applies: no flag forbids it."""
        return f"-{what}" not in self.flags

    def __repr__(self):
        return self.label


def names_in(code):
    """Global names of a code object, those of its lambdas too."""
    found = set(code.co_names)
    for const in code.co_consts:
        if inspect.iscode(const):
            found |= names_in(const)
    return found


def evaluate(code, names, ns, *arrays):
    """The expression's value on one library."""
    scope = {"jnp": ns.jnp, "lax": ns.lax, "nn": ns.nn, "jax": ns.jax, "np": np}
    return eval(code, {**scope, **dict(zip(names, arrays))})


CASES = [Case(c) for c in (*parity_cases.CASES, *parity_cases_more.CASES, *PROGRAMS)]


def arguments(case, x64):
    """The case's arrays; with x64 floats are double."""
    arrays = [DATA[n] for n in case.names]
    return [a.astype(WIDE.get(a.dtype.name, a.dtype)) if x64 else a for a in arrays]


def leaves(ns, out):
    """Results that are arrays or numbers, as arrays."""
    return [ns.jnp.asarray(x) for x in ns.jax.tree_util.tree_leaves(out)]


def inexact(a):
    return a.dtype.kind in "fc" or a.dtype.name in ("bfloat16", "float16")


def tangent(a):
    """A fixed direction in the space of an operand, different in each element."""
    steps = np.cos(np.arange(a.size, dtype=np.float64) + 1).reshape(a.shape)
    return (steps * (1 - 0.5j) if a.dtype.kind == "c" else steps).astype(a.dtype)


def weighted(ns, outs):
    """A number whose gradient tells the elements of inexact results apart."""
    total = 0.0
    for o in outs:
        if inexact(o):
            real = ns.jnp.real(o * tangent(np.zeros(o.shape, o.dtype)))
            total = total + ns.jnp.sum(real.astype("float32" if real.dtype.itemsize < 4
                                                   else real.dtype))
    return total


def everything(ns, case, arrays):
    """All that is compared, from the case's arrays."""
    f = functools.partial(case.call, ns)
    found = {"value": f(*arrays)}
    moving = [i for i, a in enumerate(arrays) if inexact(a)]
    outs = leaves(ns, found["value"])
    if moving and any(inexact(o) for o in outs):
        def at(*ys):
            full = list(arrays)
            for i, y in zip(moving, ys):
                full[i] = y
            return [o for o in leaves(ns, f(*full)) if inexact(o)]

        point = [arrays[i] for i in moving]
        if case.has("grad"):
            number = lambda *ys: weighted(ns, at(*ys))
            found["grad"] = ns.jax.grad(number, tuple(range(len(moving))))(*point)
        if case.has("jvp"):
            found["jvp"] = ns.jax.jvp(at, tuple(point), tuple(tangent(p) for p in point))[1]
    if arrays and case.has("vmap"):
        found["vmap"] = batched(ns, f, arrays)
    return found


def batched(ns, f, arrays):
    """Over all operands at their first axis, and over the first alone at its last."""
    flat = lambda *xs: leaves(ns, f(*xs))
    pairs = [ns.jnp.stack([a, ns.jnp.flip(a)]) for a in arrays]
    found = [ns.jax.vmap(flat)(*pairs)]
    first, *rest = arrays
    alone = ns.jnp.stack([first, ns.jnp.flip(first)], axis=-1)
    axes = (len(first.shape), *([None] * len(rest)))
    found.append(ns.jax.vmap(flat, axes)(alone, *rest))
    return found


def live(case, x64):
    """jax's answers, asked for now."""
    arrays = arguments(case, x64)
    run = lambda *xs: everything(LIBRARIES["jax"], case, xs)
    if "eager" in case.flags:
        found = run(*[jax.numpy.asarray(a) for a in arrays])
    else:
        found = jax.jit(run, compiler_options=QUICK)(*arrays)
    return {what: flat(jax.numpy, tree) for what, tree in found.items()}


def flat(xp, tree):
    """The leaves of a result."""
    arrays = [xp.asarray(x) for x in jax.tree.leaves(plain(tree))]
    return [golden.Leaf(np.asarray(x), bool(x.weak_type)) for x in arrays]


FILE = "parity.bin"
CHANGED = ("jnp.tri(3)",)  # answers that depend on the version of jax


def digest(case, x64):
    """What identifies a case: its text, its arrays and flags."""
    text = case.label if isinstance(case.call, functools.partial) else inspect.getsource(case.call)
    text = "".join(text.split()) + case.flags
    data = b"".join(DATA[n].tobytes() for n in case.names)
    mark = hashlib.sha256(text.encode() + data).hexdigest()[:12]
    return f"{case.label}-{'x64' if x64 else 'x32'}-{mark}"


@functools.cache
def recorded():
    return golden.load(FILE)


def oracle(case, x64):
    """jax's answers: those on file, or live for a sample and for what is not on file."""
    name = digest(case, x64)
    changed = case.label in CHANGED or golden.is_sampled(name)
    return (None if changed else recorded().get(name)) or live(case, x64)


def record():
    """Ask jax about the cases that are new or changed: `python -m tests.test_parity`."""
    answers = {}
    for case in CASES:
        for x64 in (False, True):
            name = digest(case, x64)
            if name not in recorded():
                print("asking jax:", name, flush=True)
            with jax.enable_x64(x64):
                answers[name] = recorded().get(name) or live(case, x64)
    golden.save(FILE, answers)


def same(got, want, rtol, what):
    """Structure, dtype, weak type, shape and value."""
    got = flat(toile.numpy, got)
    assert len(got) == len(want), f"{what}: {len(got)} results, needed {len(want)}"
    for g, w in zip(got, want):
        assert g.dtype == w.dtype, f"{what}: dtype {g.dtype}, needed {w.dtype}"
        assert g.shape == w.shape, f"{what}: shape {g.shape}, needed {w.shape}"
        assert g.weak_type == w.weak_type, f"{what}: weak_type {g.weak_type}"
        g, w = g.value, w.value
        least = LEAST.get(g.dtype.name, 0.0)
        if g.dtype.name in ("bfloat16", "float16"):
            g, w = g.astype(np.float32), w.astype(np.float32)
        scale = np.abs(w[np.isfinite(w)]).max(initial=0.0) if w.dtype.kind in "fc" else 0.0
        limit = max(rtol, least)
        np.testing.assert_allclose(g, w, rtol=limit, atol=limit * scale, err_msg=what)


def plain(x):
    """A tree whose containers jax knows, whichever library made it."""
    if isinstance(x, dict):
        return {k: plain(v) for k, v in x.items()}
    return [plain(v) for v in x] if isinstance(x, (tuple, list)) else x


@pytest.mark.parametrize("x64", [False, True], ids=["x32", "x64"])
@pytest.mark.parametrize("case", CASES, ids=repr)
def test_parity(case, x64):
    if case.label == "jnp.tri(3)" and x64 and jax.__version_info__ < (0, 11):
        pytest.skip("float32 even with x64 before 0.11")
    with toile.enable_x64(x64), jax.enable_x64(x64):
        want = oracle(case, x64)
        arrays = [toile.numpy.asarray(a) for a in arguments(case, x64)]
        got = everything(LIBRARIES["toile"], case, arrays)
        rtol = 1e-9 if x64 and "single" not in case.flags else 2e-5
        for what in ("value", "vmap", "jvp", "grad"):
            assert (what in got) == (what in want), what
            if what in got:
                same(got[what], want[what], 5 * rtol if what == "grad" else rtol, what)


def test_enough_cases():
    labels = [c.label for c in CASES]
    assert len(set(labels)) == len(labels), {x for x in labels if labels.count(x) > 1}
    assert len(labels) >= 400


if __name__ == "__main__":
    record()
