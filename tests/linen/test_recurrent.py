"""Recurrent layers beyond their table: flipping, errors, transformations, the number of traces."""

import inspect
import logging

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from tests.linen import oracle
from tests.linen.oracle import normal, on_flax
from toile.linen import recurrent
from toile.linen.methods import compact, nowrap

linen = pytest.importorskip("flax.linen")
jax = pytest.importorskip("jax")
key = toile.random.key

CELLS = {
    "LSTMCell": {"features": 3},
    "OptimizedLSTMCell": {"features": 3},
    "GRUCell": {"features": 3},
    "SimpleCell": {"features": 3},
    "MGUCell": {"features": 3},
}


@pytest.mark.parametrize("lengths", [None, [1, 4, 3], [0, 2, 4]])
@pytest.mark.parametrize("time_major", [False, True])
@pytest.mark.parametrize("features", [(), (2,), (2, 3)])
def test_flip_sequences(lengths, time_major, features):
    x = normal(*((4, 3) if time_major else (3, 4)), *features)
    flip = lambda module: module.flip_sequences(
        x, None if lengths is None else np.array(lengths), 1, time_major)
    np.testing.assert_array_equal(flip(recurrent), on_flax(lambda: flip(linen.recurrent)))


def test_flip_two_batch_axes():
    x, lengths = normal(2, 3, 4, 5), np.array([[1, 2, 3], [4, 3, 2]])
    want = on_flax(lambda: linen.recurrent.flip_sequences(x, lengths, 2, False))
    np.testing.assert_array_equal(recurrent.flip_sequences(x, lengths, 2, False), want)


def test_base_class_is_abstract():
    cell = recurrent.RNNCellBase()
    with pytest.raises(NotImplementedError):
        cell.initialize_carry(key(0), (2, 3))
    with pytest.raises(NotImplementedError):
        _ = cell.num_feature_axes


@pytest.mark.parametrize("name", CELLS)
def test_sequence_is_a_loop_of_steps(name):
    """RNN over time equals its cell called step by step; the same under jit."""
    x = jnp.asarray(normal(2, 5, 4))
    cell = getattr(recurrent, name)(**CELLS[name])
    rnn = recurrent.RNN(cell, return_carry=True)
    variables = rnn.init(key(0), x)
    carry, y = rnn.apply(variables, x)
    step = {"params": variables["params"]["cell"]}
    state, outputs = cell.initialize_carry(key(0), (2, 4)), []
    for t in range(5):
        state, out = cell.apply(step, state, x[:, t])
        outputs.append(out)
    np.testing.assert_allclose(y, jnp.stack(outputs, 1), rtol=1e-5, atol=1e-6)
    for a, b in zip(toile.tree.leaves(carry), toile.tree.leaves(state), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    _, jitted = toile.jit(rnn.apply)(variables, x)
    np.testing.assert_allclose(jitted, y, rtol=1e-6, atol=1e-6)


def test_optimized_is_lstm():
    """Both LSTM cells make the same parameters and results."""
    x = jnp.asarray(normal(2, 5, 4))
    plain, fast = (recurrent.RNN(c(3)) for c in (recurrent.LSTMCell, recurrent.OptimizedLSTMCell))
    variables = plain.init(key(0), x)
    toile.tree.map(np.testing.assert_array_equal, fast.init(key(0), x), variables)
    np.testing.assert_allclose(
        fast.apply(variables, x), plain.apply(variables, x), rtol=1e-5, atol=1e-6
    )


def test_vmap_and_grad():
    """A mapped RNN is an RNN of a batch; gradients agree with differences."""
    x = jnp.asarray(normal(3, 5, 4))
    rnn = recurrent.RNN(recurrent.GRUCell(3))
    variables = rnn.init(key(0), x)
    mapped = toile.vmap(lambda x: rnn.apply(variables, x))(x)
    np.testing.assert_allclose(mapped, rnn.apply(variables, x), rtol=1e-5, atol=1e-6)
    f = lambda s: jnp.sum(jnp.sin(rnn.apply(variables, x * s)))
    difference = (f(1.01) - f(0.99)) / 0.02
    np.testing.assert_allclose(toile.grad(f)(1.0), difference, rtol=2e-2)
    per_example = toile.vmap(toile.grad(lambda x: jnp.sum(rnn.apply(variables, x) ** 2)))(x)
    together = toile.grad(lambda x: jnp.sum(rnn.apply(variables, x) ** 2))(x)
    np.testing.assert_allclose(per_example, together, rtol=1e-4, atol=1e-6)


def test_carry_is_of_the_last_real_element():
    x, lengths = jnp.asarray(normal(3, 5, 4)), jnp.array([2, 5, 3])
    rnn = recurrent.RNN(recurrent.LSTMCell(3), return_carry=True)
    variables = rnn.init(key(0), x)
    (c, h), y = rnn.apply(variables, x, seq_lengths=lengths)
    for i, n in enumerate((2, 5, 3)):
        np.testing.assert_array_equal(h[i], y[i, n - 1])
        (c_one, _), _ = rnn.apply(variables, x[i, :n])
        np.testing.assert_allclose(c[i], c_one, rtol=1e-5, atol=1e-6)


def test_padding_does_not_matter_both_ways():
    x, lengths = normal(2, 6, 4), jnp.array([4, 6])
    layer = recurrent.Bidirectional(*(recurrent.RNN(recurrent.GRUCell(3)) for _ in range(2)))
    variables = layer.init(key(0), x)
    y = layer.apply(variables, x, seq_lengths=lengths)
    x[0, 4:] = 100.0
    z = layer.apply(variables, x, seq_lengths=lengths)
    np.testing.assert_array_equal(y[0, :4], z[0, :4])
    np.testing.assert_allclose(y[0, :4], layer.apply(variables, x[0, :4]), rtol=1e-5, atol=1e-6)


def test_the_cell_runs_few_times():
    """A step is traced, not repeated for each element; a second call traces nothing."""
    calls = []

    class Counted(recurrent.GRUCell):
        @compact
        def __call__(self, carry, inputs):
            calls.append(1)
            return super().__call__(carry, inputs)

    x = jnp.ones((2, 50, 3))
    rnn = recurrent.RNN(Counted(3))
    variables = toile.jit(rnn.init)(key(0), x)
    assert len(calls) <= 4
    apply = toile.jit(rnn.apply)
    apply(variables, x)
    calls.clear()
    apply(variables, x)
    assert not calls


def test_init_key_is_given_to_the_cell():
    got = []

    class Drawn(recurrent.SimpleCell):
        @nowrap
        def initialize_carry(self, rng, input_shape):
            got.append(np.asarray(toile.random.key_data(rng)))
            assert input_shape == (2, 3)
            return super().initialize_carry(rng, input_shape)

    rnn, x = recurrent.RNN(Drawn(3)), jnp.ones((2, 4, 3))
    variables = rnn.init(key(0), x)
    rnn.apply(variables, x, init_key=key(7))
    np.testing.assert_array_equal(got[0], toile.random.key_data(key(0)))
    np.testing.assert_array_equal(got[1], toile.random.key_data(key(7)))


def test_bidirectional_of_one_network_says_so(caplog):
    rnn, x = recurrent.RNN(recurrent.GRUCell(3)), jnp.ones((2, 4, 3))
    with caplog.at_level(logging.WARNING, logger="toile"):
        variables = recurrent.Bidirectional(rnn, rnn).init(key(0), x)
    assert "share parameters" in caplog.text
    assert list(variables["params"]) == ["forward_rnn"]


def test_wrong_carry_raises_as_in_flax():
    """The carry must come out of a step as it went in: here float32 becomes bfloat16."""
    for lib in (oracle.flax_library(), oracle.toile_library()):
        module = linen.recurrent if lib.name == "jax" else recurrent
        rnn, x = module.RNN(module.SimpleCell(3, dtype=lib.jnp.bfloat16)), lib.jnp.ones((2, 4, 3))
        with pytest.raises(TypeError, match="carry"):
            lib.jax.eval_shape(rnn.init, lib.random.key(0), x)
        with pytest.raises(ValueError, match="unpack"):
            module.LSTMCell(3).init(lib.random.key(0), lib.jnp.ones((3, 2)), x)


def test_orthogonal_of_bfloat16_raises_as_in_jax():
    """There are no orthogonal matrices of bfloat16: another recurrent_kernel_init is needed."""
    for lib in (oracle.flax_library(), oracle.toile_library()):
        module = linen.recurrent if lib.name == "jax" else recurrent
        cell = module.GRUCell(3, param_dtype=lib.jnp.bfloat16)
        with pytest.raises((NotImplementedError, TypeError)):  # as the version of jax has it
            cell.init(lib.random.key(0), lib.jnp.zeros((2, 3)), lib.jnp.zeros((2, 3)))


def test_names_and_signatures():
    public = [n for n, v in vars(linen.recurrent).items()
              if getattr(v, "__module__", "") == "flax.linen.recurrent"]  # fmt: skip
    for name in (n for n in public if not n.startswith("_")):
        want, got = getattr(linen.recurrent, name), getattr(recurrent, name)
        if not callable(want) or name in ("A", "RNNBase"):
            continue
        assert list(inspect.signature(got).parameters) == list(inspect.signature(want).parameters)
        for method in ("__call__", "initialize_carry"):
            if method in vars(want):
                a, b = (inspect.signature(getattr(c, method)).parameters for c in (got, want))
                assert list(a) == list(b), (name, method)
