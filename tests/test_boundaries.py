"""What holds exactly at a boundary: kinks, ties, halves, first and last elements, options that are
easily ignored. Found by planting faults (tools/planted_faults.py); the answers are those of JAX."""

import jax
import numpy as np
import pytest

import toile
import toile.numpy as jnp
from tests.golden.recorded import CORNERS
from toile import lax

Z = np.array([-1.5, -0.0, 0.0, 2.0], np.float32)
TIES = np.array([[1, 3, 3, 2], [5, 5, 5, 0]], np.float32)



def both(run):
    """What `run` gives for toile and, by the record or asked, for jax."""
    return run(toile), CORNERS.in_test(lambda: run(jax))


# Functions at points where their derivative jumps, or is shared between several elements.
KINKS = {
    "abs": (lambda m: m.numpy.abs, Z),
    "sign": (lambda m: m.numpy.sign, Z),
    "relu": (lambda m: m.nn.relu, Z),
    "relu6": (lambda m: lambda x: m.nn.relu6(x * 3), Z),
    "maximum": (lambda m: lambda x: m.numpy.maximum(x, 0.0), Z),
    "minimum": (lambda m: lambda x: m.numpy.minimum(x, x * 2), Z),
    "clip": (lambda m: lambda x: m.numpy.clip(x, -1.5, 2.0), Z),
    "clamp": (lambda m: lambda x: m.lax.clamp(np.float32(-1.5), x, np.float32(2)), Z),
    "max": (lambda m: lambda x: m.numpy.max(x, axis=1), TIES),
    "min": (lambda m: lambda x: m.numpy.min(x, axis=0), TIES),
    "sort": (lambda m: lambda x: m.numpy.sort(x, axis=1) * np.arange(4, dtype=np.float32), TIES),
    "cummax": (lambda m: lambda x: m.lax.cummax(x, axis=1), TIES),
    "max_pool": (lambda m: lambda x: m.lax.reduce_window(
        x, -np.inf, m.lax.max, (1, 2), (1, 1), "VALID"), TIES),
    "rem": (lambda m: lambda x: m.lax.rem(x * 3.3, x - 0.7), Z),
    "rem of a negative quotient": (lambda m: lambda x: m.lax.rem(
        np.float32(-7.5), x), np.array([2, 3.5, -2, 0.6], np.float32)),
    "floor_divide": (lambda m: lambda x: m.numpy.floor_divide(x, 2.0) + x, Z),
}


@pytest.mark.parametrize("name", KINKS)
def test_derivatives_at_kinks(name):
    make, x = KINKS[name]
    weights = lambda y: np.cos(np.arange(y.size, dtype=np.float32)).reshape(y.shape)

    def derivatives(lib):
        y, back = lib.vjp(make(lib), x)
        return [back(weights(y))[0], lib.jvp(make(lib), (x,), (np.cos(x),))[1]]

    found, wanted = both(derivatives)
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    y, back = toile.vjp(make(toile), x)
    np.testing.assert_allclose(toile.jit(back)(weights(y))[0], wanted[0], rtol=1e-6)


METHODS = ("linear", "lower", "higher", "midpoint", "nearest")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", ["quantile", "nanquantile"])
def test_quantiles_between_two_elements(name, method):
    """Halfway between two elements, at one of them, and at both ends."""
    x = np.array([[4, 1, 3, 2, 7], [0, np.nan, 5, 5, 1]], np.float32)
    q = np.array([0, 0.125, 0.25, 0.375, 0.5, 0.625, 1], np.float32)
    ours, theirs = both(lambda lib: getattr(lib.numpy, name)(x, q, axis=1, method=method))
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int32", "float16"])
@pytest.mark.parametrize("name", ["sum", "prod", "cumsum", "mean", "max", "nansum"])
def test_dtypes_of_reductions(name, dtype):
    x = np.array([[1, 0, 3], [2, 2, 2]]).astype(dtype)
    options = [{}, {"axis": 1, "dtype": "float32"}] if name != "max" else [{}]
    if name in ("sum", "prod"):
        options += [{"promote_integers": False}, {"promote_integers": False, "keepdims": True}]
    for given in options:
        ours, theirs = both(lambda lib, given=given: getattr(lib.numpy, name)(x, **given))
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape), given
        np.testing.assert_allclose(ours, theirs, rtol=1e-3)


LOOPS = {
    "scan": lambda m: m.lax.scan(lambda c, x: (c * 0.5 + x, (c, x)), 1.0, np.arange(4.0)),
    "scan reversed": lambda m: m.lax.scan(
        lambda c, x: (c * 0.5 + x, (c, x * 2)), 1.0, np.arange(4.0), reverse=True),
    "scan over a length": lambda m: m.lax.scan(lambda c, _: (c * 2, c), 1.0, None, length=3),
    "fori_loop": lambda m: m.lax.fori_loop(2, 6, lambda i, c: c * 2 + i, 1.0),
    "fori_loop of no turns": lambda m: m.lax.fori_loop(3, 3, lambda i, c: c * 2 + i, 1.0),
    "while_loop": lambda m: m.lax.while_loop(lambda c: c < 10, lambda c: c * 3 + 1, 1.0),
    "cond": lambda m: [m.lax.cond(p, lambda x: x + 1, lambda x: x * 5, 3.0) for p in (True, False)],
    "switch": lambda m: [m.lax.switch(i, [lambda x: x, lambda x: x * 2, lambda x: x * 3], 2.0)
                         for i in (-1, 0, 1, 2, 9)],
    "map": lambda m: m.lax.map(lambda x: (x * 2, x.sum()), np.arange(6.0).reshape(3, 2)),
    "map by batches": lambda m: m.lax.map(
        lambda x: x.sum(), np.arange(10.0).reshape(5, 2), batch_size=2),
    "associative_scan reversed": lambda m: m.lax.associative_scan(
        m.numpy.multiply, np.arange(1.0, 6.0), reverse=True),
}


@pytest.mark.parametrize("name", LOOPS)
def test_without_jit_loops_give_the_same(name):
    compiled, wanted = both(LOOPS[name])
    with toile.disable_jit():
        found = LOOPS[name](toile)
    for ours in (found, compiled):
        for a, b in zip(toile.tree.leaves(ours), jax.tree.leaves(wanted), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6)


def product(x, y):
    numbers = (((1,), (0,)), ((), ()))
    return lax.dot_general(x, y, numbers, preferred_element_type=jnp.float32).sum()


def convolved(x, y):
    return lax.conv_general_dilated(x[None, None], y[None, None], (1, 1), "SAME",
                                    preferred_element_type=jnp.float32).sum()


@pytest.mark.parametrize("f", [product, convolved])
def test_cotangents_have_the_dtype_of_their_operands(f):
    """Also where the result has another one."""
    x = jnp.ones((3, 3), jnp.bfloat16)
    for run in (f, toile.jit(f)):
        assert run(x, x).dtype == jnp.float32
        assert [g.dtype for g in toile.grad(run, (0, 1))(x, x)] == [jnp.bfloat16] * 2
    _, back = toile.vjp(f, x, x)
    assert [g.dtype for g in back(jnp.float32(1))] == [jnp.bfloat16] * 2


@pytest.mark.parametrize("dims", [(0, 0, 0), (1, 1, 1), (0, None, 0), (2, 0, 1)])
def test_sorts_by_several_keys_under_vmap(dims):
    rng = np.random.default_rng(0)
    x, y = (rng.integers(0, 3, (4, 4, 4)).astype(np.float32) for _ in range(2))
    given = [v[0] if d is None else v for v, d in zip((x, y, x * 10 + y), dims, strict=True)]
    sort = lambda m: lambda a, b, c: m.lax.sort((a, b, c), dimension=0, num_keys=2)
    ours, theirs = both(lambda m: m.vmap(sort(m), in_axes=dims)(*given))
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(a, b)


def test_collectives_of_values_that_are_not_mapped():
    x = np.arange(3.0, dtype=np.float32)
    f = lambda m: lambda x: [x + m.lax.psum(2.0, "i"), x * m.lax.pmean(np.float32(4), "i"),
                             m.lax.all_gather(np.float32(1), "i") + x,
                             m.lax.psum(m.numpy.ones(2), "i") + x]
    ours, theirs = both(lambda m: m.vmap(f(m), axis_name="i")(x))
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(a, b)


def test_branches_that_are_not_taken_have_no_nan():
    x = np.array([-1.0, 0.0, 2.0], np.float32)
    f = lambda m: lambda x: m.lax.cond(x > 0, lambda x: m.numpy.sqrt(x) / x, lambda x: x * 3, x)
    ours, theirs = both(lambda m: m.grad(lambda x: m.vmap(f(m))(x).sum())(x))
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    assert np.isfinite(ours).all()


@pytest.mark.parametrize("policy", ["everything_saveable", "dots_saveable", "nothing_saveable"])
def test_checkpoints_that_save_some_values(policy):
    w = np.linspace(-1, 1, 9, dtype=np.float32).reshape(3, 3)
    x = np.array([0.3, -0.2, 0.9], np.float32)

    def slope(m):
        f = lambda w, x: (m.numpy.sin(m.numpy.tanh(w @ x) @ w) * x).sum()
        f = m.checkpoint(f, policy=getattr(m.checkpoint_policies, policy))
        return m.grad(f, (0, 1))(w, x)

    for a, b in zip(*both(slope), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


@pytest.mark.parametrize("jit", [False, True])
def test_callbacks_may_keep_what_they_are_given(jit):
    kept = []

    def f(x):
        y = x * 2 + 1
        toile.debug.callback(lambda y: kept.append(y), y)
        return jnp.sin(y).sum() + y

    run = toile.jit(f) if jit else f
    for i in range(4):
        run(jnp.full(1000, float(i)))
    toile.effects_barrier()
    assert [float(np.asarray(y)[-1]) for y in kept] == [1.0, 3.0, 5.0, 7.0]


def test_loops_take_arrays_with_gaps():
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    step = lambda m: lambda c, x: (c + x, c * x)
    for view in (x[:, ::2], x[::2], x.T, x[::-1, 1::3]):
        init = view[0] * 0
        ours, theirs = both(lambda m, init=init, view=view: m.lax.scan(step(m), init, view))
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(a, b)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32"])
def test_randint_reaches_both_ends(dtype):
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    for bounds in ((low, high + 1), (high - 1, high + 1), (low, low + 2)):
        if bounds[1] > 2**31 - 1:
            continue
        ours, theirs = both(lambda m, bounds=bounds: m.random.randint(
            m.random.key(3), (500,), *bounds, dtype))
        np.testing.assert_array_equal(ours, theirs)
        assert int(ours.max()) <= high


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("independent", [False, True])
def test_permutations_along_an_axis(axis, independent):
    x = np.arange(24).reshape(4, 6)
    ours, theirs = both(lambda m: m.random.permutation(
        m.random.key(1), x, axis=axis, independent=independent))
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("padding", ["SAME", "SAME_LOWER", "VALID"])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_where_extra_padding_goes(padding, stride):
    x = np.arange(7.0, dtype=np.float32)
    ours, theirs = both(lambda m: m.lax.reduce_window(x, 0.0, m.lax.add, (4,), (stride,), padding))
    np.testing.assert_array_equal(ours, theirs)
    kernel = np.array([1, 10, 100, 1000], np.float32)
    ours, theirs = both(lambda m: m.lax.conv(x[None, None], kernel[None, None], (stride,), padding))
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("delta", [0.0, 0.5])
def test_improvement_by_exactly_min_delta(delta):
    from flax.training import early_stopping as theirs

    from toile.training import early_stopping as ours

    stops = [m.EarlyStopping(min_delta=delta, patience=1) for m in (ours, theirs)]
    for metric in (2.0, 2.0 - delta, 1.25, 1.25 - delta, 1.25 - delta, 0.0):
        stops = [s.update(metric) for s in stops]
        fields = [(s.has_improved, s.best_metric, s.patience_count, s.should_stop) for s in stops]
        assert fields[0] == fields[1]


@pytest.mark.parametrize("dtype", ["int8", "int32", "uint16", "uint32"])
def test_integers_at_the_edges_of_arithmetic(dtype):
    """Division by zero and by -1, shifts by the width: at once and compiled."""
    info = np.iinfo(dtype)
    x = np.array([info.min, info.min + 1, 0, 1, 5, info.max], dtype)
    ys = [0, 1, 3, info.max, *((-1, info.min) if info.min else ())]
    shifts = [0, 1, info.bits - 1, info.bits, info.bits + 1]
    table = [("div", ys), ("rem", ys), ("shift_left", shifts), ("shift_right_logical", shifts),
             ("shift_right_arithmetic", shifts)]
    for name, others in table:
        for y in others:
            y = np.full_like(x, y)
            f, wanted = getattr(lax, name), getattr(jax.lax, name)(x, y)
            for run in (f, toile.jit(f)):
                np.testing.assert_array_equal(run(x, y), wanted, err_msg=f"{name} {y[0]}")


@pytest.mark.parametrize("method", ["AWAY_FROM_ZERO", "TO_NEAREST_EVEN"])
def test_halves_are_rounded_alike(method):
    x = np.array([-2.5, -1.5, -0.5, -0.49999997, 0.0, 0.49999997, 0.5, 1.5, 2.5], np.float32)
    wanted = jax.lax.round(x, getattr(jax.lax.RoundingMethod, method))
    f = lambda x: lax.round(x, getattr(lax.RoundingMethod, method))
    for run in (f, toile.jit(f)):
        np.testing.assert_array_equal(run(x), wanted)
