"""Each pass keeps the meaning of Programs and does what it is for."""

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from tests.closeness import nearly_equal
from toile import lax
from toile.compiler import pipeline
from toile.compiler.passes.algebra import simplify
from toile.compiler.passes.calls import inline_calls
from toile.compiler.passes.constants import fold_constants
from toile.compiler.passes.subexpressions import merge_common
from toile.compiler.verify.programs import MalformedProgramError, verify
from toile.engine.program import Equation, Literal, Program, without_dead_code
from toile.platforms.reference import Executable
from toile.primitives import simplification
from toile.primitives.families import Elementwise, Identity

X = jnp.linspace(-2, 2, 6).reshape(2, 3)


def program(f, *args):
    """The Program of a function; what it closes over is an input."""
    return toile.make_jaxpr(f)(*args).jaxpr


def names(p):
    return [e.op.name for e in p.equations]


def same(p, *args, ulps=0):
    """The optimized Program gives what the plain one does, and is well formed."""
    raws = [np.asarray(a) for a in args]
    after = pipeline.optimize(p, check=verify)
    for a, b in zip(Executable(p)(raws), Executable(after)(raws), strict=True):
        nearly_equal(b, np.asarray(a), ulps=ulps)
        assert ulps or a.tobytes() == b.tobytes()
    return after


IDENTITIES = {
    "x * 1": lambda x: x * 1.0,
    "1 * x": lambda x: 1.0 * x,
    "x / 1": lambda x: x / 1.0,
    "x - 0": lambda x: x - 0.0,
    "x + -0": lambda x: x + -0.0,
    "-(-x)": lambda x: jnp.negative(jnp.negative(x)),
    "stop_gradient": lax.stop_gradient,
    "convert": lambda x: lax.convert_element_type(x, np.float32),
    "reshape": lambda x: lax.reshape(lax.reshape(x, (6,)), (2, 3)),
    "transpose": lambda x: x.T.T,
    "broadcast": lambda x: lax.broadcast_in_dim(x, (2, 3), (0, 1)),
    "select": lambda x: lax.select(jnp.ones((2, 3), bool), x, x),
    "max": lambda x: lax.max(x, x),
    "select a known case": lambda x: lax.select(jnp.ones((2, 3), bool), x, x * 2),
    "select by a number": lambda x: lax.select_n(jnp.int32(1), x * 2, x, x * 3),
    "a slice of a concatenation": lambda x: jnp.concatenate([x * 2, x, x * 3], 1)[:, 3:6],
}


@pytest.mark.parametrize("f", IDENTITIES.values(), ids=IDENTITIES)
def test_identity_is_removed(f):
    x = jnp.array([[0.0, -0.0, np.nan], [np.inf, -np.inf, 1.5]])
    assert same(program(f, x), x).equations == []


def test_zero_that_is_not_neutral_stays():
    """-0.0 + 0.0 is 0.0."""
    x = jnp.array([-0.0, 1.0])
    assert names(same(program(lambda x: x + 0.0, x), x)) == ["add"]


def test_integers_have_one_zero():
    x = jnp.arange(3)
    assert same(program(lambda x: x + 0, x), x).equations == []


def test_transposes_and_reshapes_are_joined():
    x = jnp.ones((2, 3, 4))
    p = program(lambda x: lax.transpose(lax.transpose(x, (1, 2, 0)), (1, 2, 0)), x)
    assert names(same(p, x)) == ["transpose"]
    p = program(lambda x: x.reshape(6, 4).reshape(24).reshape(2, 12), x)
    assert names(same(p, x)) == ["reshape"]


# Rearranged numbers are numbers: nothing but a broadcast is left.
NUMBERS = {
    "a broadcast": lambda: jnp.broadcast_to(jnp.full((3,), 2.0), (2, 3)),
    "mapped": lambda: toile.vmap(lambda x: jnp.full((3,), 2.0), axis_size=2)(None),
    "a reshape": lambda: jnp.full((6,), 2.0).reshape(2, 3),
    "a transpose": lambda: jnp.full((3, 2), 2.0).T,
    "a slice": lambda: jnp.full((7, 9), 2.0)[1:3, ::4],
    "all of them": lambda: jnp.broadcast_to(jnp.full((4, 3, 2), 2.0)[1].T[None], (5, 2, 3))[3],
}


@pytest.mark.parametrize("f", NUMBERS.values(), ids=NUMBERS)
def test_rearranged_numbers_are_broadcast_once(f):
    after = same(program(f))
    assert names(after) == ["broadcast_in_dim"] and not after.equations[0].ins[0].aval.shape


def test_broadcasts_are_joined():
    x = jnp.arange(3.0).reshape(1, 3, 1)
    f = lambda x: lax.broadcast_in_dim(lax.broadcast_in_dim(x, (2, 3, 1), (0, 1, 2)), (
        5, 2, 3, 4), (1, 2, 3))
    assert names(same(program(f, x), x)) == ["broadcast_in_dim"]


@pytest.mark.parametrize("divisor", [2, -2, 0.5, 8, -0.125, 3, 16, 0, -0.0, np.inf, np.nan])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_divisions_by_powers_of_two_are_products(dtype, divisor):
    with toile.enable_x64(dtype == "float64"), np.errstate(all="ignore"):
        limits = jnp.finfo(dtype)
        small = float(limits.smallest_subnormal)
        x = jnp.array([0.0, -0.0, np.nan, np.inf, 1.1, -3.3, float(limits.max), small, 3 * small,
                       float(limits.tiny)], dtype)
        exact = abs(divisor) in (0.125, 0.5, 2, 8)
        for f in (lambda x: x / divisor, lambda x: x / jnp.full(x.shape, divisor, dtype)):
            assert names(same(program(f, x), x))[-1] == ("mul" if exact else "div")


def test_a_batch_size_is_no_factor():
    """A mean is computed by the same kernels for any number of examples."""
    kinds = [names(pipeline.optimize(program(lambda x: x.mean(0), jnp.ones((n, 4)))))
             for n in (48, 64)]
    assert kinds[0] == kinds[1]


@pytest.mark.parametrize("there, kept", [("bfloat16", False), ("float64", True), ("int32", False)])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_conversions_that_are_undone(dtype, there, kept):
    with toile.enable_x64(), np.errstate(all="ignore"):
        x = jnp.array([0.1, -0.0, np.inf, np.nan, 3e4, 1e-7], dtype)
        after = same(program(lambda x: x.astype(there).astype(dtype), x), x)
        assert (after.equations == []) == (kept or dtype == there)


BRANCHES = {
    "the first": lambda x: lax.cond(False, jnp.sin, jnp.cos, x),
    "by index": lambda x: lax.switch(jnp.int32(3) - 1, [jnp.sin, jnp.tan, jnp.cos, jnp.exp], x),
    "below": lambda x: lax.switch(-5, [jnp.cos, jnp.sin], x),
    "a call": lambda x: lax.cond(True, toile.jit(lambda x: toile.jit(jnp.cos)(x)), jnp.sin, x),
    "inside a branch": lambda x: lax.cond(
        True, lambda x: lax.cond(jnp.float32(2) > 3, jnp.sin, jnp.cos, x), jnp.sin, x),
    "in a loop": lambda x: lax.fori_loop(
        0, 2, lambda i, y: lax.cond(True, jnp.cos, jnp.sin, y), x),
}


@pytest.mark.parametrize("f", BRANCHES.values(), ids=BRANCHES)
def test_known_branches_are_taken(f):
    after = same(program(f, X), X)
    inner = [after, *(p for e in after.equations for p in e.op.programs())]
    found = {name for p in inner for name in names(p)}
    assert "cos" in found and not {"cond", "sin", "jit"} & found


def test_effects_of_a_known_branch(capsys):
    f = lambda x: lax.cond(True, lambda: toile.debug.print("yes"), lambda: toile.debug.print("no"))
    toile.jit(f)(X)
    toile.effects_barrier()
    assert capsys.readouterr().out == "yes\n"


def test_calls_are_inlined_each_with_its_own_variables():
    inner = toile.jit(lambda x: jnp.sin(x) + 1)
    p = program(lambda x: inner(x) * inner(x + 1), X)
    assert "jit" in names(p)
    after = inline_calls(p)
    verify(after)
    assert "jit" not in names(after) and names(after).count("sin") == 2
    same(p, X)


def test_functions_with_rules_are_inlined():
    p = program(lambda x: toile.nn.relu(x).sum(), X)
    assert not {"jit", "custom_jvp_call"} & set(names(same(p, X)))


def test_what_is_checkpointed_is_computed_again():
    """A barrier keeps the second computation from being merged with the first."""
    f = toile.checkpoint(lambda x: jnp.sin(jnp.sin(x)))
    p = program(toile.value_and_grad(lambda x: f(x).sum()), X)
    after = names(same(p, X))
    assert "optimization_barrier" in after and after.count("sin") == 3


def test_common_subexpressions_are_computed_once():
    p = program(lambda x: jnp.exp(x) * 2 + jnp.exp(x) * 3, X)
    assert names(merge_common(p)).count("exp") == 1
    p = program(lambda x: lax.optimization_barrier(x) + lax.optimization_barrier(x), X)
    assert names(same(p, X)).count("optimization_barrier") == 2


def test_constants_are_folded():
    p = program(lambda x: x * (jnp.float32(2) * 3 + jnp.sin(0.5)), X)
    after = fold_constants(p)
    assert names(after)[-1] == "mul" and len(after.equations) <= 2
    same(p, X)
    assert np.isnan(Executable(fold_constants(program(lambda: jnp.log(-1.0))))([])[0])


def test_outputs_may_be_inputs_and_constants():
    p = program(lambda x: (x * 1, jnp.float32(2) + 1, x), X)
    after = same(p, X)
    assert after.equations == [] and after.outputs[1].__class__ is Literal


def test_effects_stay_in_order(capsys):
    def f(x):
        toile.debug.print("a {}", x[0])
        toile.debug.print("a {}", x[0])
        return x

    toile.jit(f)(jnp.ones(2))
    assert capsys.readouterr().out == "a 1.0\na 1.0\n"


def test_passes_are_shown(monkeypatch, capsys):
    monkeypatch.setenv("TOILE_DEBUG", "passes")
    pipeline.optimize(program(lambda x: x * 1, X))
    assert "after simplify" in capsys.readouterr().err


@pytest.mark.parametrize("broken", ["undefined", "twice", "aval", "output"])
def test_verifier_refuses(broken):
    p = program(lambda x: jnp.sin(x) + x, X)
    first, second = p.equations
    if broken == "undefined":
        p = Program(p.inputs, [second, first], p.outputs)
    elif broken == "twice":
        p = Program(p.inputs, [first, first, second], p.outputs)
    elif broken == "aval":
        other = program(lambda x: x.sum(), X).equations[0]
        p = Program(p.inputs, [Equation(first.op, first.ins, other.outs)], other.outs)
    else:
        p = Program(p.inputs, [first], p.outputs)
    with pytest.raises(MalformedProgramError):
        verify(p)


MODELS = {
    "mlp": lambda w, x: jnp.mean(jnp.tanh(x @ w) ** 2),
    "softmax": lambda w, x: toile.nn.log_softmax(x @ w)[0, 1],
    "scan": lambda w, x: lax.scan(lambda c, y: (jnp.tanh(c @ w), c.sum()), x, None, 3)[0].sum(),
    "norm": lambda w, x: (toile.nn.standardize(x @ w) * 2).sum(),
    "cond": lambda w, x: lax.cond(x[0, 0] > 0, jnp.sin, jnp.cos, x @ w).sum(),
    "sort": lambda w, x: jnp.sort(x @ w)[..., 0].sum(),
}


@pytest.mark.parametrize("f", MODELS.values(), ids=MODELS)
def test_gradients_keep_their_bits(f):
    w = jnp.cos(jnp.arange(9.0)).reshape(3, 3)
    p = program(toile.value_and_grad(f), w, X)
    scans = any(e.op.name == "scan" for e in inline_calls(p).equations)
    after = same(p, w, X, ulps=4 if scans else 0)  # sums over steps are taken after the loop
    assert scans or len(after.equations) <= len(without_dead_code(inline_calls(p)).equations)


def test_simplify_gives_back_what_it_cannot_improve():
    p = program(lambda x: jnp.sin(x), X)
    assert simplify(p) is p


def gates(x, b):
    y = jnp.tanh(x + b) * 2
    return y[:, :2] * y[:, 2:]


def test_slices_of_elementwise_results_are_results_of_slices():
    x, b = jnp.linspace(-2, 2, 12).reshape(3, 4), jnp.arange(4.0)
    after = same(program(gates, x, b), x, b)
    shapes = [e.outs[0].aval.shape for e in after.equations if e.op.name in ("add", "tanh", "mul")]
    assert set(shapes) == {(3, 2)}


@pytest.mark.parametrize("f", [
    lambda x: (jnp.sin(x)[:2], jnp.sin(x)),  # all of it is needed as well
    lambda x: jnp.sin(x)[:-1] + jnp.sin(x)[1:],  # slices that overlap
    lambda x: jnp.sin(x),
], ids=["all", "overlap", "none"])
def test_what_slices_would_compute_twice_stays(f):
    x = jnp.linspace(-2, 2, 12)
    after = same(program(f, x), x)
    assert [e.outs[0].aval.shape for e in after.equations if e.op.name == "sin"] == [(12,)]


class Plus(Elementwise):
    """A sum that passes know by its answers only."""

    is_sum = True
    simplified = simplification.without_neutral(0.0)

    def eager(self, xp, x, y):
        return x + y


class Mirror(Identity):
    """An operation that undoes itself."""

    simplified = simplification.undone
    commutes_with_sums = True

    def eager(self, xp, x):
        return -x


def test_an_operation_takes_part_by_its_answers():
    plus, mirror = Plus(), Mirror()
    p = program(lambda x: mirror(mirror(plus(x, jnp.float32(0.0)))), X)
    assert len(p.equations) == 3
    assert without_dead_code(simplify(p)).equations == [] and simplify(p).outputs == p.inputs

    def halves(x, y):  # the sum of two padded arrays
        return plus(jnp.pad(x, ((0, 2), (0, 0))), jnp.pad(y, ((2, 0), (0, 0))))

    assert "concatenate" in names(pipeline.optimize(program(halves, X, X)))

    def steps(x):  # a sum of sums: one after the loop
        return lax.scan(lambda c, y: (plus(c, mirror(jnp.sum(y))), None), jnp.float32(0), x)[0]

    assert "scan" not in names(pipeline.optimize(program(steps, X)))


# Rearrangements, elementwise operations, and the same backward: nothing is left to rearrange.
UNDONE = {
    "transpose": lambda x: (jnp.sin(x.T) * 2 + 1).T,
    "three axes": lambda x: jnp.exp(x.reshape(1, 2, 3).transpose(2, 0, 1)).transpose(1, 2, 0),
    "reverse": lambda x: jnp.flip(jnp.tanh(jnp.flip(x, 1)) / 3, 1),
    "reshape": lambda x: jnp.where(x.ravel() > 0, x.ravel(), -2.0).reshape(2, 3),
    "gradient of a transpose": toile.grad(lambda x: (x.T**2).sum()),
    "gradient of a reversal": toile.grad(lambda x: jnp.sin(x[::-1]).sum()),
    "gradient of padding": toile.grad(lambda x: (jnp.pad(x, 2) ** 2).sum()),
}


@pytest.mark.parametrize("f", UNDONE.values(), ids=UNDONE)
def test_moves_that_are_undone(f):
    after = same(program(f, X), X)
    assert not {"transpose", "rev", "pad"} & {*names(after)}
    shaped = [e for e in after.equations if e.op.name == "reshape"]
    assert len(shaped) <= 1  # one that makes the operand three-dimensional


KEPT = {
    "other axes": lambda x: jnp.sin(x.reshape(1, 2, 3).transpose(2, 0, 1)).transpose(2, 0, 1),
    "other direction": lambda x: jnp.flip(jnp.sin(jnp.flip(x, 1)), 0),
    "a second reader": lambda x: (lambda y: (y.T, y @ x))(jnp.sin(x.T)),
    "an iota": lambda x: (x.T * lax.broadcasted_iota(np.float32, (3, 2), 0)).T,
    "a padded part": lambda x: lax.slice(jnp.sin(jnp.pad(x, 1)), (0, 1), (3, 4)),
    "mostly other operands": lambda x: (x.T + jnp.full((3, 2), 2.0) @ x @ x.T).T,
    "a reshaped view": lambda x: (x.reshape(3, 2) * x.T).reshape(2, 3),
}


@pytest.mark.parametrize("f", KEPT.values(), ids=KEPT)
def test_moves_that_matter(f):
    same(program(f, X), X)


def test_moves_around_long_chains():
    """Only so many operations are computed before a rearrangement; longer chains are kept."""

    def f(x):
        y = x.T
        for i in range(2000):
            y = y + i
        return (x.T * y).T

    same(program(f, X), X)
