"""Answers to what users of other frameworks complain about, and that docs/pains.md names a test."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from toile import lax, linen, optim, random
from toile.engine.scoped_options import explicit_x64_dtypes
from toile.training.mixed_precision import Policy
from toile.training.train_state import TrainState

# ----------------------------------------------------------------- freezing parameters (row 17)

PARAMS = {"encoder": {f"w{i}": jnp.eye(8) for i in range(4)}, "head": {"w": jnp.ones((8, 2))}}
X = jnp.ones((16, 8))


def model(params, x=X):
    for w in params["encoder"].values():
        x = jnp.tanh(x @ w)
    return jnp.mean((x @ params["head"]["w"]) ** 2)


def frozen(params):
    return model(optim.stop_gradients(params, "encoder/**"))


def products(f, *args) -> int:
    """The number of matrix products in a program."""
    return str(toile.make_jaxpr(toile.jit(f))(*args)).count("dot_general")


def test_no_backward_pass_for_frozen_parameters():
    plain = lambda p: toile.value_and_grad(model)(p)
    stopped = lambda p: toile.value_and_grad(frozen)(p)

    def logged(p):
        value, grads = toile.value_and_grad(frozen)(p)
        return value, grads, optim.global_norm(grads)

    assert products(plain, PARAMS) == 14  # five forward, and nine backward
    assert products(stopped, PARAMS) == 6  # one backward
    assert products(logged, PARAMS) == 6  # logging the norm needs no more


def test_norm_over_trained_parameters():
    full, grads = toile.grad(model)(PARAMS), toile.grad(frozen)(PARAMS)
    np.testing.assert_allclose(grads["head"]["w"], full["head"]["w"], rtol=1e-6)
    assert all(not leaf.any() for leaf in grads["encoder"].values())
    np.testing.assert_allclose(
        optim.global_norm(grads), optim.global_norm(full["head"]), rtol=1e-6)


@pytest.mark.parametrize("mask", [
    "encoder/**", ["encoder/*"], {"encoder": True, "head": False},
    lambda params: {"encoder": True, "head": False},
])
def test_masks(mask):
    grads = toile.grad(lambda p: model(optim.stop_gradients(p, mask)))(PARAMS)
    assert not grads["encoder"]["w0"].any() and grads["head"]["w"].any()


def test_a_glob_that_matches_nothing():
    for use in (lambda: optim.stop_gradients(PARAMS, "decoder/**"),
                lambda: optim.freeze("decoder/**").init(PARAMS),
                lambda: optim.selective_transform(
                    optim.adam(0.1), freeze_mask="decoder/**").init(PARAMS)):
        with pytest.raises(ValueError, match=r"decoder/\*\*"):
            use()


def test_no_moments_for_frozen_parameters():
    tx = optim.selective_transform(optim.adam(0.1), freeze_mask="encoder/**")
    shapes = {leaf.shape for leaf in toile.tree.leaves(tx.init(PARAMS))}
    assert (8, 8) not in shapes and (8, 2) in shapes


# -------------------------------------------------------------------- explicit float64 (row 19)


def test_float64_beside_float32_in_one_program():
    with explicit_x64_dtypes("allow"):
        matrix = jnp.array(np.vander([1.0, 1.1, 1.2, 1.3]), dtype=jnp.float64)
        b = jnp.ones(4, dtype=jnp.float64)

        @toile.jit
        def both(x, matrix, b):
            return jnp.tanh(x @ x.T), jnp.linalg.solve(matrix, b), matrix * 2 + 1

        net, solved, scaled = both(jnp.ones((3, 3)), matrix, b)
        assert net.dtype == np.float32 and solved.dtype == scaled.dtype == np.float64
        np.testing.assert_allclose(np.asarray(matrix) @ np.asarray(solved), 1, rtol=1e-11)
        loss = lambda m: jnp.sum(jnp.linalg.solve(m, b))
        assert toile.grad(loss)(matrix).dtype == np.float64
        assert jnp.zeros(3).dtype == np.float32 and jnp.arange(3).dtype == np.int32
        assert jnp.asarray(np.ones(3)).dtype == np.float32  # not requested


@pytest.mark.parametrize("make", [
    lambda: jnp.array(np.ones(3), dtype=jnp.float64), lambda: jnp.asarray(np.ones(3), "float64"),
    lambda: jnp.array([1.0, 2.0], dtype=jnp.float64), lambda: jnp.ones(3).astype(jnp.float64),
    lambda: jnp.full(3, 2, dtype=jnp.float64), lambda: jnp.float64(1),
    lambda: random.normal(random.key(0), (3,), jnp.float64),
    lambda: jnp.zeros_like(np.ones(3), dtype=jnp.float64),
])
def test_float64_is_honored(make):
    with explicit_x64_dtypes("allow"):
        x = make()
        assert x.dtype == jnp.sin(x).dtype == (x * 2.5).dtype == np.float64
    with explicit_x64_dtypes("error"), pytest.raises(ValueError, match="float64"):
        make()


# --------------------------------------------------------------------- hyperparameters (row 24)


def test_hyperparameters_of_plain_optimizers():
    tx = optim.chain(optim.clip_by_global_norm(1.0), optim.adam(1e-2, b1=0.8))
    found = optim.get_hyperparams(tx.init(PARAMS), tx)
    assert float(found["learning_rate"]) == pytest.approx(1e-2)
    assert float(found["b1"]) == pytest.approx(0.8) and float(found["b2"]) == pytest.approx(0.999)


@pytest.mark.parametrize("name", ["adam", "adamw", "sgd", "rmsprop", "lion", "lamb", "adafactor"])
def test_schedules_are_read(name):
    tx = getattr(optim, name)(optim.linear_schedule(1.0, 0.0, transition_steps=4))
    params = {"w": jnp.ones(3)}
    state = TrainState.create(apply_fn=None, params=params, tx=tx)
    for expected in (1.0, 0.75, 0.5):
        assert float(optim.get_hyperparams(state)["learning_rate"]) == pytest.approx(expected)
        state = state.apply_gradients(grads=params)


def test_hyperparameters_are_set_without_a_new_trace():
    schedule = optim.linear_schedule(1.0, 0.0, transition_steps=4)
    tx = optim.inject_hyperparams(optim.adam)(learning_rate=0.1, b1=0.8)
    params = {"w": jnp.ones(3)}
    step = toile.jit(lambda s: tx.update(params, s, params)[1])
    state = step(step(tx.init(params)))
    state = step(optim.set_hyperparams(state, learning_rate=0.01, b1=0.7))
    assert len(step.why()) <= 1
    assert float(optim.get_hyperparams(state)["b1"]) == pytest.approx(0.7)
    scheduled = optim.inject_hyperparams(optim.adam)(learning_rate=schedule)
    found = optim.get_hyperparams(scheduled.init(params))
    assert float(found["learning_rate"]) == 1.0
    with pytest.raises(KeyError, match="inject_hyperparams"):
        optim.set_hyperparams(optim.adam(0.1).init(params), learning_rate=0.2)


# ---------------------------------------------------------------------- mixed precision (row 25)


@pytest.mark.parametrize("name", ["bf16", "f16", jnp.bfloat16, "half"])
def test_policies_keep_float32_parameters(name):
    policy = Policy(name)
    assert policy.param_dtype == policy.output_dtype == np.float32
    assert policy.compute_dtype.itemsize == 2
    layer = linen.Dense(4)
    params = layer.init(random.key(0), X)
    apply = policy.wrap(layer.apply)
    grads = toile.grad(lambda p: apply(p, X).sum())(params)
    assert {leaf.dtype for leaf in toile.tree.leaves((params, grads, apply(params, X)))} == {
        np.dtype("float32")}


def test_half_precision_parameters_on_request():
    assert Policy("bf16", "bf16", "bf16").param_dtype == jnp.bfloat16
    assert Policy("bf16", "float32").param_dtype == jnp.bfloat16
    assert Policy.parse("p=bf16").param_dtype == jnp.bfloat16
    assert Policy.parse("bfloat16").param_dtype == jnp.bfloat16
    assert Policy("f64").param_dtype == np.float64 and Policy() == Policy("float32")


def test_small_updates_are_not_lost():
    """1 + 2**-10 is 1 in bfloat16."""
    layer, tx = linen.Dense(1, use_bias=False), optim.sgd(1.0)
    apply = Policy("bf16").wrap(layer.apply)
    params = {"params": {"kernel": jnp.ones((1, 1))}}
    state = tx.init(params)
    for _ in range(64):
        grads = toile.grad(lambda p: apply(p, jnp.full((1, 1), -(2.0**-10))).sum())(params)
        updates, state = tx.update(grads, state)
        params = optim.apply_updates(params, updates)
    np.testing.assert_allclose(params["params"]["kernel"], 1 + 64 * 2.0**-10, rtol=1e-3)


# ------------------------------------------------------------------------------ nn.scan (row 26)


class Noisy(linen.Module):
    @linen.compact
    def __call__(self, carry, x):
        w = self.param("w", linen.initializers.ones, (64,))
        return carry, linen.Dropout(0.5, deterministic=False)(w * x)


@pytest.mark.parametrize("options", [{}, {"split_rngs": {"params": False}}])
def test_dropout_differs_from_step_to_step(options):
    scanned = linen.scan(Noisy, variable_broadcast="params", **options)
    rngs = {"params": random.key(0), "dropout": random.key(1)}
    given = {**options, "split_rngs": {"params": False}}
    variables = linen.scan(Noisy, variable_broadcast="params", **given)().init(
        rngs, 0.0, jnp.ones(3))
    _, ys = scanned().apply(variables, 0.0, jnp.ones(3), rngs={"dropout": random.key(1)})
    for i in range(2):
        assert (ys[i] != ys[i + 1]).any()
    listed = linen.scan(Noisy, variable_broadcast="params",
                        split_rngs={"params": False, "dropout": True})
    _, same = listed().apply(variables, 0.0, jnp.ones(3), rngs={"dropout": random.key(1)})
    np.testing.assert_array_equal(ys, same)


def test_streams_may_stay_the_same():
    scanned = linen.scan(Noisy, variable_broadcast="params", split_rngs={"dropout": False})
    variables = {"params": {"w": jnp.ones(64)}}
    _, ys = scanned().apply(variables, 0.0, jnp.ones(3), rngs={"dropout": random.key(1)})
    np.testing.assert_array_equal(ys[0], ys[1])


def test_a_scan_over_the_wrong_axis():
    """The default axis 0 is the batch here: the error names the shapes."""
    cell = linen.scan(linen.LSTMCell, variable_broadcast="params", split_rngs={"params": False})(4)
    batch = jnp.ones((2, 7, 3))
    carry = linen.LSTMCell(4).initialize_carry(random.key(0), (2, 3))
    with pytest.raises(ValueError, match=r"\(2, 4\)|\(7, 4\)"):
        cell.init(random.key(0), carry, batch)


# ------------------------------------------------------------------------- progress bars (row 29)


@pytest.mark.parametrize("length, reports", [(3, 3), (100, 100), (1000, 100), (150, 75)])
def test_progress_of_a_scan(length, reports):
    seen = []
    body = lambda c, x: (c + x, c * x)
    xs = jnp.arange(length * 1.0)
    expected = lax.scan(body, 0.0, xs)
    for run in (lambda f: f, toile.jit):
        seen.clear()
        scanned = run(lambda xs: lax.scan(body, 0.0, xs, progress=lambda *a: seen.append(a)))
        found = toile.block_until_ready(scanned(xs))
        toile.effects_barrier()
        assert len(seen) == reports and seen == sorted(seen) and seen[-1] == (length, length)
        toile.tree.map(np.testing.assert_array_equal, found, expected)


def test_progress_under_grad_and_as_text(capsys):
    def total(c, progress=False):
        return lax.scan(lambda c, x: (c * x, None), c, jnp.full(5, 2.0), progress=progress)[0]

    assert toile.grad(total)(1.0, "warmup") == toile.grad(total)(1.0) == 32
    toile.effects_barrier()
    shown = capsys.readouterr().err
    assert shown.count("warmup: 5/5 (100%)\n") == 1 and "warmup: 1/5 (20%)" in shown
    total(1.0, True)
    toile.effects_barrier()
    assert "scan: 5/5" in capsys.readouterr().err


# --------------------------------------------------------------------- while loops (row 22)


def test_gradient_of_a_newton_iteration():
    """The square root by Newton's method, until it has converged."""

    def solve(f, guess):
        step = lambda x: x - f(x) / toile.jacfwd(f)(x)
        going = lambda x: jnp.abs(f(x)) > 1e-6
        return lax.while_loop(going, step, guess)

    def root(a):
        tangent = lambda g, y: y / g(1.0)
        return lax.custom_root(lambda x: x * x - a, 1.0, solve, tangent)

    for f in (root, toile.jit(root)):
        np.testing.assert_allclose(f(3.0), np.sqrt(3), rtol=1e-6)
        np.testing.assert_allclose(toile.grad(f)(3.0), 0.5 / np.sqrt(3), rtol=1e-6)


# ------------------------------------------------------------------ updates in place (row 32)


def test_loops_update_their_carry_in_place():
    def fill(x):
        return lax.fori_loop(0, 8, lambda i, x: x.at[i].set(i + 1.0), x)

    def keeps_the_old(x):
        return lax.fori_loop(0, 8, lambda i, c: (c[0].at[i].set(i + 1.0), c[0]), (x, x))

    x = jnp.zeros(1 << 16)
    temporary = lambda f: toile.jit(f).lower(x).compile().memory_analysis().temp_size_in_bytes
    assert temporary(fill) < x.nbytes // 2  # the result's own memory is the carry's only buffer
    assert temporary(keeps_the_old) >= x.nbytes  # there are two arrays, so one is copied
    assert float(toile.jit(fill)(x).sum()) == 36


def test_donated_memory_is_used_for_results():
    step = toile.jit(lambda x: x + 1, donate_argnums=0)
    x = jnp.zeros(1 << 12)
    places = []
    for _ in range(20):
        x = step(x)
        places.append(x.unsafe_buffer_pointer())
    assert len(set(places[-8:])) <= 2  # the same one or two, however long the loop is


# --------------------------------------------------------------------------------- docs/pains.md

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "pains.md"


def rows() -> list[list[str]]:
    lines = [line for line in PAGE.read_text().splitlines() if re.match(r"\| \d+ \|", line)]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def test_all_rows_are_there():
    assert [int(row[0]) for row in rows()] == list(range(1, 35))
    assert all(len(row) == 4 and all(row) for row in rows())


@pytest.mark.parametrize("number", range(1, 35))
def test_each_row_names_tests(number):
    cells = rows()[number - 1]
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", cells[3])
    assert named, f"row {number} names no test"
    for file, name in named:
        source = (ROOT / file).read_text()
        assert re.search(rf"^\s*def {name}\(", source, re.M), f"{file} has no {name}"
