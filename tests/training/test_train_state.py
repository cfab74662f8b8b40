"""TrainState against flax's; what is frozen costs nothing; ModelState carries the rest."""

import numpy as np
import pytest

import toile
from tests.quick_jax import OPTIONS
from toile import linen as nn
from toile import numpy as jnp
from toile import optim, random, serialization, struct, training, tree
from toile.linen.fp8_ops import OVERWRITE_WITH_GRADIENT
from toile.training.train_state import ModelState, TrainState


class Net(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.Dense(8, name="encoder")(x))
        x = nn.relu(nn.Dense(8, name="middle")(x))
        return nn.Dense(3, name="head")(x)


X = np.random.RandomState(0).normal(size=(4, 5)).astype(np.float32)
MODEL = Net()
PARAMS = MODEL.init(random.key(0), X)["params"]


def loss(params, x):
    return jnp.mean(MODEL.apply({"params": params}, x) ** 2)


def state_with(trainable=None, tx=None):
    return TrainState.create(
        apply_fn=MODEL.apply, params=PARAMS, tx=tx or optim.adam(0.1), trainable=trainable
    )


def step(state, x, log_norm=False):
    value, grads = training.value_and_grad(loss, state, x)
    norm = optim.global_norm(grads) if log_norm else None
    return state.apply_gradients(grads=grads), value, norm


def test_steps_are_those_of_flax():
    import jax
    import optax
    from flax.training import train_state

    def run(lib, state, steps=3):
        def one(state):
            def squares(p):
                y = lib.nn.relu(X @ p["encoder"]["kernel"] + p["encoder"]["bias"])
                return lib.numpy.mean((y @ p["middle"]["kernel"]) ** 2)

            return state.apply_gradients(grads=lib.grad(squares)(state.params))

        one = lib.jit(one, **({"compiler_options": OPTIONS} if lib is jax else {}))
        for _ in range(steps):
            state = one(state)
        return state

    params = tree.map(np.asarray, PARAMS)
    ours = TrainState.create(apply_fn=None, params=params, tx=optim.adam(0.1))
    theirs = train_state.TrainState.create(apply_fn=None, params=params, tx=optax.adam(0.1))
    ours, theirs = run(toile, ours), run(jax, theirs)
    assert int(ours.step) == int(theirs.step) == 3
    for a, b in zip(tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6)


def test_replaces_fields_of_subclasses():
    class WithStats(TrainState):
        batch_stats: dict  # a field without default after those of TrainState

    state = WithStats.create(
        apply_fn=None, params={"w": jnp.ones(2)}, tx=optim.sgd(1.0), batch_stats={"m": 0}
    )
    state = state.apply_gradients(grads={"w": jnp.ones(2)}, batch_stats={"m": 1})
    assert state.batch_stats == {"m": 1} and state.step == 1
    assert state.params["w"].tolist() == [0.0, 0.0]
    assert "trainable" not in repr(state)


def test_overwrites_with_gradient():
    params = {"params": {"w": jnp.ones(2)}, OVERWRITE_WITH_GRADIENT: {"s": jnp.zeros(1)}}
    grads = {"params": {"w": jnp.ones(2)}, OVERWRITE_WITH_GRADIENT: {"s": jnp.full(1, 7.0)}}
    for trainable in (None, "w"):
        state = TrainState.create(
            apply_fn=None, params=params, tx=optim.sgd(0.5), trainable=trainable
        ).apply_gradients(grads=grads)
        assert state.params["params"]["w"].tolist() == [0.5, 0.5]
        assert state.params[OVERWRITE_WITH_GRADIENT]["s"].tolist() == [7.0]

    def product(p):
        return (p["params"]["w"] * (1 + p[OVERWRITE_WITH_GRADIENT]["s"])).sum()

    _, found = training.value_and_grad(product, state.replace(params=params))
    assert found[OVERWRITE_WITH_GRADIENT]["s"].tolist() == [2.0]


def test_a_bare_array_is_a_parameter():
    state = TrainState.create(apply_fn=None, params=jnp.ones(2), tx=optim.sgd(1.0))
    value, grads = training.value_and_grad(lambda p: (p**2).sum(), state)
    assert float(value) == 2.0
    assert state.apply_gradients(grads=grads).params.tolist() == [-1.0, -1.0]


def counts(trainable, log_norm):
    """Equations of a step, and how many of them are matrix products."""
    program = toile.make_jaxpr(lambda s, x: step(s, x, log_norm))(state_with(trainable), X)
    return len(program.eqns), sum("DotGeneral" in str(e) for e in program.eqns)


def test_frozen_parameters_leave_no_equations():
    full, full_dots = counts(None, False)
    assert full_dots == 3 + 3 + 2  # forward; kernels; activations
    head, head_dots = counts("head/**", False)
    assert head_dots == 3 + 1
    _, encoder_dots = counts("encoder/**", False)
    assert encoder_dots == 3 + 1 + 2
    # The norm adds what its two leaves need, which is a third of what six leaves need.
    assert counts("head/**", True)[0] - head <= (counts(None, True)[0] - full) // 2
    assert counts("head/**", True)[1] == head_dots
    assert head < full // 2


@pytest.mark.parametrize(
    "trainable",
    [
        "head/**",
        ["head/kernel", "*/bias"],
        {"encoder": False, "middle": False, "head": True},
        lambda p: {name: name == "head" for name in p},
    ],
    ids=["glob", "globs", "tree", "function"],
)
def test_only_what_is_trainable_moves(trainable):
    state = state_with(trainable)
    jitted = toile.jit(step)
    before = jitted._cache_size()
    for _ in range(2):
        state, value, _ = jitted(state, X)
    assert jitted._cache_size() == before + 1
    moved = tree.map(lambda a, b: bool((a != b).any()), state.params, PARAMS)
    biases = isinstance(trainable, list)
    assert moved["head"] == {"kernel": True, "bias": True}
    assert moved["middle"] == {"kernel": False, "bias": biases}
    sizes = sum(np.size(x) for x in tree.leaves(state.opt_state))
    assert sizes < 2 * sum(np.size(x) for x in tree.leaves(PARAMS))  # adam keeps two of each
    _, grads = training.value_and_grad(loss, state, X)
    assert grads["middle"]["kernel"] is None


def test_full_gradients_are_pruned():
    grads = toile.grad(loss)(PARAMS, X)
    by_hand = state_with("head/**").apply_gradients(grads=grads)
    state, _, _ = step(state_with("head/**"), X)
    for a, b in zip(tree.leaves(by_hand), tree.leaves(state), strict=True):
        np.testing.assert_array_equal(a, b)


def test_what_matches_nothing_is_refused():
    with pytest.raises(ValueError, match=r"'head'.*did you mean 'head/\*\*'"):
        state_with("head")
    with pytest.raises(ValueError, match="needed a trainable parameter"):
        state_with({"encoder": False, "middle": False, "head": False})


def test_value_and_grad_has_aux_and_averages_over_an_axis():
    state = state_with("head/**")

    def each(x):
        return training.value_and_grad(
            lambda p, x: (loss(p, x), x.sum()), state, x, has_aux=True, axis_name="i"
        )

    (values, sums), grads = toile.vmap(each, axis_name="i")(X.reshape(2, 2, 5))
    assert values.shape == (2,) and sums.shape == (2,)
    _, whole = training.value_and_grad(loss, state, X)
    for a, b in zip(tree.leaves(grads), tree.leaves(whole), strict=True):
        np.testing.assert_allclose(a[0], b, rtol=1e-4, atol=1e-6)
        np.testing.assert_array_equal(a[0], a[1])


class Block(nn.Module):
    """A model that may have BatchNorm and Dropout."""

    norm: bool
    drop: bool

    @nn.compact
    def __call__(self, x, train):
        x = nn.Dense(8)(x)
        if self.norm:
            x = nn.BatchNorm(use_running_average=not train)(x)
        if self.drop:
            x = nn.Dropout(0.5, deterministic=not train)(x)
        return nn.Dense(1)(x)


@toile.jit
def train_step(state, x):
    """The loop of all four models."""

    def squares(params):
        y, changed = state.forward(params, x, train=True)
        return jnp.mean((y - 1) ** 2), changed

    (value, changed), grads = training.value_and_grad(squares, state, has_aux=True)
    return state.apply_gradients(grads=grads, collections=changed), value


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("drop", [False, True])
def test_one_loop_for_every_model(norm, drop):
    tx = optim.sgd(0.05)
    state = ModelState.init(Block(norm, drop), tx, random.key(0), X, train=True)
    assert sorted(state.collections) == (["batch_stats"] if norm else [])
    before, losses = train_step._cache_size(), []
    for _ in range(20):
        state, value = train_step(state, X)
        losses.append(float(value))
    assert train_step._cache_size() == before + 1  # each model is traced once
    assert np.mean(losses[-5:]) < losses[0]
    assert int(state.step) == 20
    if norm:
        assert np.abs(state.collections["batch_stats"]["BatchNorm_0"]["mean"]).max() > 0
    a, b = state.predict(X, train=False), state.predict(X, train=False)
    np.testing.assert_array_equal(a, b)


def test_randomness_follows_the_step():
    state = ModelState.init(Block(False, True), optim.sgd(0.0), random.key(0), X, train=True)
    one = state.forward(state.params, X, train=True)[0]
    np.testing.assert_array_equal(one, state.forward(state.params, X, train=True)[0])
    later = state.replace(step=1)
    assert (one != later.forward(state.params, X, train=True)[0]).any()
    other = state.replace(rngs={"dropout": random.key(5)})
    assert (one != other.forward(state.params, X, train=True)[0]).any()


def test_model_state_from_variables():
    model = Block(True, True)
    variables = model.init(random.key(0), X, train=True)
    state = ModelState.create(
        apply_fn=model.apply, variables=variables, tx=optim.sgd(0.1),
        rngs={"dropout": random.key(1)}, trainable="Dense_1/**",
    )
    assert tree.structure(state.variables()) == tree.structure(dict(variables))
    new, _ = train_step(state, X)
    np.testing.assert_array_equal(
        new.params["Dense_0"]["kernel"], state.params["Dense_0"]["kernel"]
    )
    _, changed = state.forward(state.params, X, train=True, mutable=["intermediates"])
    assert "batch_stats" in changed


def test_a_state_survives_a_checkpoint():
    state = ModelState.init(Block(True, True), optim.adam(0.1), random.key(0), X, train=True)
    state, _ = train_step(state, X)
    fresh = ModelState.init(Block(True, True), state.tx, random.key(1), X, train=True)
    back = serialization.from_bytes(fresh, serialization.to_bytes(state))
    assert back.rngs["params"] == state.rngs["params"] != fresh.rngs["params"]
    for a, b in zip(
        tree.leaves(state.replace(rngs={})), tree.leaves(back.replace(rngs={})), strict=True
    ):
        np.testing.assert_array_equal(a, b)
    part = state_with("head/**")
    back = serialization.from_bytes(part, serialization.to_bytes(step(part, X)[0]))
    assert int(back.step) == 1 and back.trainable == part.trainable


def test_states_are_trees_with_their_fields_by_name():
    state = state_with("head/**")
    assert isinstance(state, struct.PyTreeNode)
    assert set(state._toile_dataclass_fields) == {"step", "params", "opt_state"}
    assert tree.structure(state) == tree.structure(state.replace(step=3))
    assert tree.structure(state) != tree.structure(state_with("encoder/**", tx=state.tx))
