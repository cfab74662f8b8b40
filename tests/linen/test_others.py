"""Pooling, Dropout, Sequential, BatchApply, activations, initializers: errors and properties.

Rows of configurations are in the table `others`."""

import inspect

import flax.linen
import jax
import numpy as np
import pytest

import toile
import toile.linen as nn
import toile.numpy as jnp
from tests.linen import oracle
from tests.quick_jax import OPTIONS
from toile import errors

LIBRARIES = (oracle.flax_library, oracle.toile_library)


@pytest.mark.parametrize(
    "window, strides, padding",
    [
        ((2, 2), (1,), "VALID"),
        ((2, 2), (1, 1, 1), "VALID"),
        ((2, 2), None, ((0, 0),)),
        ((2, 2), None, ((0, 0), (1,))),
        ((2, 2, 2, 2), None, "VALID"),
    ],
)
def test_pool_refuses(window, strides, padding):
    """Windows, strides and padding that do not fit, as flax refuses them."""
    for library in LIBRARIES:
        lib = library()
        with pytest.raises(AssertionError):
            lib.nn.max_pool(lib.jnp.ones((2, 4, 4, 3)), window, strides, padding)


def test_pool_says_what_does_not_fit():
    """The window and what was given with it."""
    with pytest.raises(AssertionError, match=r"pool: needed as many strides as window axes, "
                                             r"got \(1,\) with the window \(2, 2\)"):
        nn.avg_pool(jnp.ones((2, 4, 4, 3)), (2, 2), (1,))


def test_pool_pads_with_many_batch_axes():
    """Pairs of padding are for window axes, however many axes stand before them."""
    x = oracle.normal(2, 3, 5, 4)
    got = nn.max_pool(jnp.asarray(x), (3,), padding=((1, 1),))
    want = nn.max_pool(jnp.asarray(x.reshape(6, 5, 4)), (3,), padding=((1, 1),))
    np.testing.assert_array_equal(got.reshape(6, 5, 4), want)


def test_pool_with_a_function_of_the_user():
    """Any associative function of two arrays."""
    x = np.arange(24, dtype=np.float32).reshape(1, 4, 6, 1) % 7
    outs = [
        np.asarray(
            lib.nn.pool(lib.jnp.asarray(x), 1.0, lambda a, b: a * b, (2, 2), None, "SAME")
        )
        for lib in (library() for library in LIBRARIES)
    ]
    np.testing.assert_allclose(outs[1], outs[0], rtol=1e-6)


def test_dropout_needs_a_key():
    """The error names the stream."""
    with pytest.raises(errors.InvalidRngError, match="dropout"):
        nn.Dropout(0.5, deterministic=False).apply({}, jnp.ones(3))


def test_dropout_needs_deterministic_once():
    """In the constructor or at the call."""
    with pytest.raises(ValueError, match="deterministic.*must be passed"):
        nn.Dropout(0.5).apply({}, jnp.ones(3))
    with pytest.raises(ValueError, match="deterministic.*just once"):
        nn.Dropout(0.5, deterministic=True).apply({}, jnp.ones(3), True)


def test_dropout_needs_no_key_when_nothing_is_random():
    """Rates 0 and 1, and evaluation."""
    x = jnp.arange(3.0)
    assert nn.Dropout(0.0, deterministic=False).apply({}, x) is x
    assert nn.Dropout(0.5, deterministic=True).apply({}, x) is x
    everything = nn.Dropout(1.0, deterministic=False)
    assert (toile.grad(lambda x: everything.apply({}, x).sum())(x) == 0).all()


def test_dropout_keeps_the_mean():
    """About `rate` of the elements are zero, the others are divided by what is kept."""
    x = jnp.ones((100, 100))
    y = nn.Dropout(0.3, deterministic=False).apply({}, x, rngs={"dropout": toile.random.key(0)})
    assert abs(float((y == 0).mean()) - 0.3) < 0.02
    assert set(np.unique(y)) == {np.float32(0), np.float32(1) / np.float32(0.7)}


def test_dropout_of_numpy_arrays():
    """NumPy arrays pass as inputs."""
    keys = lambda lib: {"dropout": lib.random.key(0)}
    outs = []
    for library in LIBRARIES:
        lib = library()
        model = lib.nn.Dropout(0.3, deterministic=False)
        outs.append(np.asarray(model.apply({}, oracle.normal(3, 4), rngs=keys(lib))))
    np.testing.assert_allclose(outs[1], outs[0], rtol=1e-6)


def test_dropout_of_integers_is_refused():
    """Division would change their dtype: an error here and there."""
    for library in LIBRARIES:
        lib = library()
        model = lib.nn.Dropout(0.3, deterministic=False)
        with pytest.raises(TypeError):
            model.apply({}, lib.jnp.arange(3), rngs={"dropout": lib.random.key(0)})


def test_sequential_refuses():
    """What is no sequence, and an empty one."""
    for library in LIBRARIES:
        lib = library()
        with pytest.raises(ValueError, match="'layers' must be a sequence, got 'Dense'"):
            lib.nn.Sequential(lib.nn.Dense(3))
        with pytest.raises(ValueError, match="Empty Sequential module"):
            lib.nn.Sequential([]).init(lib.random.key(0), 1)


def test_sequential_passes_keywords_to_the_first():
    """Arguments of the call are those of the first layer."""
    model = nn.Sequential([lambda a, b: (a, a - b), lambda a, b: {"x": a * b}, lambda x: [x, x]])
    assert model.apply({}, 3, b=1) == [6, 6]


def test_batch_apply_needs_an_array():
    """Without enough axes anywhere there is nothing to merge."""
    for library in LIBRARIES:
        lib = library()
        with pytest.raises(ValueError, match="at least one input with ndim >= 3"):
            lib.nn.BatchApply(lambda x: x, 3)(lib.jnp.ones((2, 2)), k=1)


def test_batch_apply_of_trees():
    """Trees in, trees out; what has too few axes passes."""
    x = jnp.arange(12.0).reshape(2, 3, 2)
    seen = []

    def f(tree, n, *, k):
        seen.append((tree["a"].shape, n, k.shape))
        return [tree["a"] * n, k]

    a, b = nn.BatchApply(f)({"a": x}, 2, k=np.ones((2, 3)))
    assert seen == [((6, 2), 2, (6,))]
    np.testing.assert_array_equal(b, np.ones((2, 3)))
    np.testing.assert_array_equal(a, 2 * x)


def test_activation_names():
    """Every function of flax's module, with the same parameters."""
    theirs = flax.linen.activation
    for name in dir(theirs):
        value = getattr(theirs, name)
        if name.startswith("_") or not callable(value) or name in ("Any", "Array", "Dense"):
            continue
        if name in ("Dtype", "Optional", "Module", "compact", "PReLU"):
            continue
        mine = getattr(nn.activation, name)
        assert getattr(nn, name) is mine
        ours, wanted = (list(inspect.signature(f).parameters) for f in (mine, value))
        assert ours[: len(wanted)] == wanted, name  # newer ones may have more


def test_initializer_names_and_values():
    """Every initializer of flax's module gives the same numbers for the same key."""
    theirs, mine = flax.linen.initializers, nn.initializers
    names = {name for name in dir(theirs) if not name.startswith("_")}
    assert names <= set(dir(mine))
    options = {"constant": (0.5,), "variance_scaling": (2.0, "fan_avg", "normal")}
    builders = sorted(names - {"Initializer", "zeros", "ones"})

    def draw(module, random):
        return {
            name: getattr(module, name)(*options.get(name, ()))(random.key(1), (3, 4, 6))
            for name in builders
        }

    wanted = oracle.on_flax(jax.jit(lambda: draw(theirs, jax.random), compiler_options=OPTIONS))
    for name, got in draw(mine, toile.random).items():
        np.testing.assert_allclose(got, wanted[name], rtol=1e-5, atol=1e-6, err_msg=name)
        assert got.dtype == np.float32
    assert mine.zeros_init() is mine.zeros is nn.zeros and mine.ones_init() is nn.ones
