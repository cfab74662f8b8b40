"""The optimizers of flax.optim: the known answers, their rules in NumPy, states, overrides."""

import warnings

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from tests.optim.recorded import normal
from toile import jax_utils, serialization
from toile.core import FrozenDict, freeze
from toile.optim import classic
from toile.optim.classic.adam import AdamParamState
from toile.optim.classic.momentum import MomentumParamState

close = np.testing.assert_allclose


def traversal(condition):
    with warnings.catch_warnings(action="ignore"):  # traversals are deprecated
        return classic.ModelParamTraversal(condition)


# Known answers, of flax's own tests.


def test_adam_known_answer():
    definition = classic.Adam(learning_rate=0.1, beta1=0.2, beta2=0.9, eps=0.01)
    state = classic.OptimizerState(1, AdamParamState(jnp.array([0.1]), jnp.array([0.9])))
    hyper_params = definition.update_hyper_params()
    p, state = definition.apply_gradient(hyper_params, jnp.ones(1), state, jnp.array([4.0]))
    close(p, [0.906085], rtol=1e-6)
    assert state.step == 2
    close(state.param_states.grad_ema, [3.22], rtol=1e-6)
    close(state.param_states.grad_sq_ema, [2.41], rtol=1e-6)


def test_momentum_known_answer():
    definition = classic.Momentum(learning_rate=0.1, beta=0.2)
    state = classic.OptimizerState(0, MomentumParamState(jnp.ones(1)))
    hyper_params = definition.update_hyper_params()
    p, state = definition.apply_gradient(hyper_params, jnp.ones(1), state, jnp.array([3.0]))
    close(p, [0.68], rtol=1e-6)
    close(state.param_states.momentum, [3.2], rtol=1e-6)


def test_weight_norm_known_answer():
    params = freeze({"x": {"kernel": 2.0 * jnp.ones((2, 2)), "bias": jnp.ones(2)}})
    optimizer = classic.WeightNorm(classic.Momentum(learning_rate=0.1)).create(params)
    optimizer = optimizer.apply_gradient(toile.tree.map(jnp.ones_like, params))
    close(optimizer.target["x"]["kernel"], np.full((2, 2), 1.9), rtol=1e-6)
    close(optimizer.target["x"]["bias"], [0.9, 0.9], rtol=1e-6)


def test_dynamic_scale_known_answer():
    scaled, p = classic.DynamicScale(growth_interval=2), jnp.array(1.0, jnp.float16)
    scales = []
    for _ in range(6):
        scaled, finite, loss, grad = scaled.value_and_grad(lambda p: p**2)(p)
        scales.append(float(scaled.scale))
    assert scales == [32768.0, 16384.0, 16384.0, 16384.0, 32768.0, 16384.0]


# The rules, in NumPy with float64: (parameter, state, gradient, t) -> parameter; states are dicts.


def momentum(beta=0.9, decay=0.0, nesterov=False, lr=0.1):
    def rule(p, s, g, t):
        g = g + decay * p
        s["m"] = beta * s.get("m", 0) + g
        return p - lr * (g + beta * s["m"] if nesterov else s["m"])

    return rule


def adam(eps=1e-8, decay=0.0, belief=False, lamb=False, lr=0.1, b1=0.9, b2=0.999):
    def rule(p, s, g, t):
        s["m"] = b1 * s.get("m", 0) + (1 - b1) * g
        square = (g - s["m"]) ** 2 if belief else g**2
        s["v"] = b2 * s.get("v", 0) + (1 - b2) * square + (eps if belief else 0)
        u = s["m"] / (1 - b1**t) / (np.sqrt(s["v"] / (1 - b2**t)) + eps)
        u = u + decay * p
        if lamb:
            u = u * (np.linalg.norm(p) / np.linalg.norm(u))
        return p - lr * u

    return rule


def adagrad(p, s, g, t):
    s["G"] = s.get("G", 0) + g**2
    return p - 0.1 * g / (np.sqrt(s["G"]) + 1e-8)


def adadelta(p, s, g, t):
    s["v"] = 0.9 * s.get("v", 0) + 0.1 * g**2
    d = np.sqrt(s.get("d", 0) + 1e-6) / np.sqrt(s["v"] + 1e-6) * g
    s["d"] = 0.9 * s.get("d", 0) + 0.1 * d**2
    return p - 0.1 * d - 0.1 * 0.2 * p


def rmsprop(centered):
    def rule(p, s, g, t):
        s["v"] = 0.9 * s.get("v", 0) + 0.1 * g**2
        s["m"] = 0.9 * s.get("m", 0) + 0.1 * g
        return p - 0.1 * g / (np.sqrt(s["v"] - (s["m"] ** 2 if centered else 0)) + 1e-8)

    return rule


def lars(decay=0.0, nesterov=False):
    def rule(p, s, g, t):
        ratio = 0.001 * np.linalg.norm(p) / (np.linalg.norm(g) + decay * np.linalg.norm(p))
        g = 0.1 * ratio * (g + decay * p)
        s["m"] = 0.9 * s.get("m", 0) + g
        return p - (g + 0.9 * s["m"] if nesterov else s["m"])

    return rule


def adafactor(beta1=None, decay=None, scaled=True, clip=1.0):
    def rule(p, s, g, t):
        rate = 0.1 * (max(np.sqrt(np.mean(p**2)), 1e-3) if scaled else 1.0)
        mix = lambda name, x: s.setdefault(name, 0) * (1 - t**-0.8) + t**-0.8 * x
        if g.ndim > 1 and min(g.shape) >= 4:  # rows and columns over the last two axes
            s["r"] = mix("r", np.mean(g**2 + 1e-30, axis=-1))
            s["c"] = mix("c", np.mean(g**2 + 1e-30, axis=-2))
            v = s["r"][:, None] * s["c"] / np.mean(s["r"])
        else:
            v = s["v"] = mix("v", g**2 + 1e-30)
        u = g / np.sqrt(v)
        u = rate * (u / max(1.0, np.sqrt(np.mean(u**2)) / clip) if clip else u)
        if beta1:
            u = s["m"] = beta1 * s.get("m", 0) + (1 - beta1) * u
        return (1 - (decay or 0)) * p - u

    return rule


RULES = {
    "GradientDescent": (classic.GradientDescent(0.1), lambda p, s, g, t: p - 0.1 * g),
    "Momentum": (classic.Momentum(0.1), momentum()),
    "Momentum_decay": (classic.Momentum(0.1, 0.8, weight_decay=0.1), momentum(0.8, 0.1)),
    "Momentum_nesterov": (classic.Momentum(0.1, nesterov=True), momentum(nesterov=True)),
    "Adam": (classic.Adam(0.1), adam()),
    "Adam_decay": (classic.Adam(0.1, 0.8, 0.9, 1e-3, 0.1), adam(1e-3, 0.1, b1=0.8, b2=0.9)),
    "AdaBelief": (classic.AdaBelief(0.1, weight_decay=0.1), adam(1e-16, 0.1, belief=True)),
    "LAMB": (classic.LAMB(0.1), adam(1e-6, lamb=True)),
    "LAMB_decay": (classic.LAMB(0.1, weight_decay=0.1), adam(1e-6, 0.1, lamb=True)),
    "Adagrad": (classic.Adagrad(0.1), adagrad),
    "Adadelta": (classic.Adadelta(0.1, weight_decay=0.2), adadelta),
    "RMSProp": (classic.RMSProp(0.1), rmsprop(False)),
    "RMSProp_centered": (classic.RMSProp(0.1, centered=True), rmsprop(True)),
    "LARS": (classic.LARS(0.1), lars()),
    "LARS_options": (classic.LARS(0.1, weight_decay=0.1, nesterov=True), lars(0.1, True)),
    "Adafactor": (classic.Adafactor(0.1, min_dim_size_to_factor=4), adafactor()),
    "Adafactor_options": (
        classic.Adafactor(
            0.1, min_dim_size_to_factor=4, beta1=0.8, weight_decay_rate=0.01,
            multiply_by_parameter_scale=False, clipping_threshold=0.5,
        ),
        adafactor(0.8, 0.01, False, 0.5),
    ),
}  # fmt: skip

PARAMS = {"dense": {"kernel": normal(4, 5), "bias": normal(5, seed=1)}, "scale": normal(3, seed=2)}


def gradient(step):
    return toile.tree.map(lambda p: normal(*p.shape, seed=10 + step + p.ndim), PARAMS)


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("stage", [lambda f: f, toile.jit], ids=["eager", "jit"])
def test_rule(name, stage):
    """Seven steps of a nested tree follow the rule."""
    definition, rule = RULES[name]
    optimizer = definition.create(toile.tree.map(jnp.asarray, PARAMS))
    step = stage(lambda optimizer, grads: optimizer.apply_gradient(grads))
    leaves = [p.astype(np.float64) for p in toile.tree.leaves(PARAMS)]
    states = [{} for _ in leaves]
    for t in range(1, 8):
        grads = gradient(t)
        optimizer = step(optimizer, toile.tree.map(jnp.asarray, grads))
        each = zip(leaves, states, toile.tree.leaves(grads), strict=True)
        leaves = [rule(p, s, g.astype(np.float64), t) for p, s, g in each]
    assert int(optimizer.state.step) == 7
    for got, want in zip(toile.tree.leaves(optimizer.target), leaves, strict=True):
        assert got.dtype == jnp.float32
        close(got, want, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("name", RULES)
def test_bfloat16_stays(name):
    """Parameters and states keep their dtypes, so that a step can be repeated under jit."""
    definition, _ = RULES[name]
    params = toile.tree.map(lambda p: jnp.asarray(p, jnp.bfloat16), PARAMS)
    before = definition.create(params)
    after = before.apply_gradient(toile.tree.map(jnp.ones_like, params))
    kinds = lambda x: [(p.shape, p.dtype) for p in toile.tree.leaves(x.target)]
    assert kinds(before) == kinds(after)


def test_adafactor_factors_the_largest_axes():
    definition = classic.Adafactor(0.1, beta1=0.9, dtype_momentum=jnp.bfloat16)
    state = definition.create({"w": jnp.ones((2, 130, 128)), "b": jnp.ones(130)}).state
    w, b = state.param_states["w"], state.param_states["b"]
    assert (w.v_row.shape, w.v_col.shape, w.v.shape) == ((2, 128), (2, 130), (1,))
    assert (b.v_row.shape, b.v_col.shape, b.v.shape) == ((1,), (1,), (130,))
    assert w.m.shape == (2, 130, 128) and w.m.dtype == jnp.bfloat16
    off = classic.Adafactor(0.1, factored=False).create(jnp.ones((130, 130))).state.param_states
    assert off.v.shape == (130, 130) and off.m.shape == (1,)


def test_zero_norms():
    """LAMB and LARS move a parameter that is zero, and stand still without a gradient."""
    lamb = classic.LAMB(0.1).create(jnp.zeros(3)).apply_gradient(jnp.zeros(3))
    assert lamb.target.tolist() == [0.0] * 3
    lars = classic.LARS(0.1).create(jnp.zeros(3)).apply_gradient(jnp.ones(3))
    close(lars.target, [-0.1] * 3, rtol=1e-6)


# What optimizers share.


def test_overrides():
    """A learning rate for one step, also traced; without one there is an error."""
    optimizer = classic.Momentum(beta=0.0).create(jnp.ones(2))
    with pytest.raises(ValueError, match="Momentum: needed a learning rate"):
        optimizer.apply_gradient(jnp.ones(2))
    moved = toile.jit(lambda o, lr: o.apply_gradient(jnp.ones(2), learning_rate=lr))(optimizer, 0.5)
    assert moved.target.tolist() == [0.5, 0.5]
    decay = toile.jit(
        lambda o, wd: o.apply_gradient(jnp.ones(2), learning_rate=0.5, weight_decay=wd)
    )
    assert decay(optimizer, 1.0).target.tolist() == [0.0, 0.0]
    whole = optimizer.optimizer_def.hyper_params.replace(learning_rate=1.0)
    assert optimizer.apply_gradient(jnp.ones(2), hyper_params=whole).target.tolist() == [0.0, 0.0]


def test_base_class_says_what_is_missing():
    with pytest.raises(NotImplementedError, match="init_param_state"):
        classic.OptimizerDef(None).create(jnp.ones(2))
    with pytest.raises(NotImplementedError, match="apply_param_gradient"):
        classic.OptimizerDef(None).apply_param_gradient(0, None, None, None, None)


def test_empty_target():
    optimizer = classic.Adam(0.1).create({})
    assert optimizer.apply_gradient({}).target == {}


@pytest.mark.parametrize("frozen", [False, True])
def test_state_dict(frozen):
    """State dicts have flax's structure, restore, and pass through bytes."""
    params = toile.tree.map(jnp.asarray, PARAMS)
    params = freeze(params) if frozen else params
    optimizer = classic.Adam(0.1).create(params)
    optimizer = optimizer.apply_gradient(toile.tree.map(jnp.ones_like, params))
    state = serialization.to_state_dict(optimizer)
    assert set(state) == {"target", "state"} and set(state["state"]) == {"step", "param_states"}
    assert set(state["state"]["param_states"]["dense"]["bias"]) == {"grad_ema", "grad_sq_ema"}
    fresh = classic.Adam(0.1).create(toile.tree.map(jnp.zeros_like, params))
    for restored in (
        fresh.restore_state(state),
        serialization.from_state_dict(fresh, state),
        serialization.from_bytes(fresh, serialization.to_bytes(optimizer)),
    ):
        assert isinstance(restored.target, FrozenDict if frozen else dict)
        for x, y in zip(toile.tree.leaves(restored), toile.tree.leaves(optimizer), strict=True):
            np.testing.assert_array_equal(x, y)


def test_multi_optimizer():
    params = {"kernel": jnp.ones(2), "bias": jnp.ones(2), "other": {"scale": jnp.ones(1)}}
    kernels = traversal(lambda path, _: path == "/kernel")
    biases = traversal(lambda path, value: path == "/bias" and value.shape == (2,))
    definition = classic.MultiOptimizer(
        (kernels, classic.GradientDescent(0.5)), (biases, classic.Momentum(0.25))
    )
    optimizer = definition.create(params)
    assert optimizer.state.param_states["other"]["scale"] is None
    step = toile.jit(lambda o, **kw: o.apply_gradient(toile.tree.map(jnp.ones_like, params), **kw))
    moved = step(optimizer)
    assert moved.target["kernel"].tolist() == [0.5, 0.5]
    assert moved.target["bias"].tolist() == [0.75, 0.75]
    assert moved.target["other"]["scale"].tolist() == [1.0]
    all_over = step(optimizer, learning_rate=1.0).target
    assert all_over["kernel"].tolist() == all_over["bias"].tolist() == [0.0, 0.0]
    first, second = definition.hyper_params
    each = [first.replace(learning_rate=0.0), second.replace(learning_rate=1.0)]
    apart = optimizer.apply_gradient(params, hyper_params=each).target
    assert apart["kernel"].tolist() == [1.0, 1.0] and apart["bias"].tolist() == [0.0, 0.0]
    restored = optimizer.restore_state(moved.state_dict())
    assert restored.state.param_states["other"]["scale"] is None
    np.testing.assert_array_equal(restored.target["bias"], moved.target["bias"])


def test_multi_optimizer_overlap():
    everything = traversal(lambda path, _: True)
    definition = classic.MultiOptimizer(
        (everything, classic.GradientDescent(0.5)), (everything, classic.Momentum(0.25))
    )
    with pytest.raises(ValueError, match="Multiple optimizers match the same leaves"):
        definition.create({"a": jnp.ones(1)})


def test_focus():
    params = {"a": jnp.ones(1), "b": jnp.ones(1)}
    focus = traversal(lambda path, _: path == "/a")
    optimizer = classic.GradientDescent(0.5).create(params, focus=focus)
    target = optimizer.apply_gradient(params).target
    assert target["a"].tolist() == [0.5] and target["b"].tolist() == [1.0]


def test_deprecated_methods():
    optimizer = classic.GradientDescent(0.5).create(jnp.array(2.0))
    with pytest.warns(DeprecationWarning):
        loss, grad = optimizer.compute_gradient(lambda p: p**2)
    assert (float(loss), float(grad)) == (4.0, 4.0)
    with pytest.warns(DeprecationWarning):
        loss, aux, grad = optimizer.compute_gradients(lambda p: (p**2, {"p": p}))
    assert (float(loss), float(aux["p"]), float(grad)) == (4.0, 2.0, 4.0)
    with pytest.warns(DeprecationWarning):
        moved, loss, aux = optimizer.optimize(lambda p: (p**2, "aux"), learning_rate=0.25)
    assert (float(moved.target), float(loss), aux) == (1.0, 4.0, "aux")


def test_replicated():
    """A copy per device; a step takes the mean gradient; the state dict is that of one."""
    count = toile.local_device_count()
    optimizer = classic.Momentum(0.5).create({"w": jnp.ones(2)})
    copies = optimizer.replicate()
    assert copies.target["w"].shape == (count, 2)
    step = toile.pmap(lambda o, g: o.apply_gradient({"w": g}), axis_name="batch")
    moved = step(copies, jnp.stack([jnp.full(2, 2.0 * i) for i in range(count)]))
    want = 1 - 0.5 * (count - 1)
    close(jax_utils.unreplicate(moved).target["w"], [want, want])
    assert moved.state_dict()["target"]["w"].shape == (2,)
    again = copies.restore_state(moved.state_dict())
    np.testing.assert_array_equal(again.target["w"], moved.target["w"])
    close(moved.unreplicate().target["w"], [want, want])
    with pytest.raises(ValueError, match="not replicated"):
        optimizer.unreplicate()


def test_weight_norm_keeps_the_product_of_direction_and_scale():
    """With a rate of 0 the parameter stays; a decay alone does not change it."""
    params = toile.tree.map(jnp.asarray, PARAMS)
    optimizer = classic.WeightNorm(classic.Adam(0.0), wn_decay=0.1).create(params)
    for step in range(3):
        optimizer = optimizer.apply_gradient(toile.tree.map(jnp.asarray, gradient(step)))
    for x, y in zip(toile.tree.leaves(optimizer.target), toile.tree.leaves(params), strict=True):
        close(x, y, rtol=1e-5)
    faster = optimizer.apply_gradient(params, learning_rate=0.1, wn_decay=0.0, wn_eps=1e-6)
    assert not np.allclose(faster.target["dense"]["kernel"], params["dense"]["kernel"])


def test_dynamic_scale_options():
    """aux passes through, gradients of several arguments, means over an axis."""
    scaled = classic.DynamicScale(scale=8.0)
    function = lambda x, y: (jnp.sum(x * y), {"n": 3})
    result = scaled.value_and_grad(function, argnums=(0, 1), has_aux=True)(jnp.ones(2), jnp.ones(2))
    assert float(result.aux[0]) == 2.0 and result.aux[1] == {"n": 3}
    assert [g.tolist() for g in result.grad] == [[1.0, 1.0], [1.0, 1.0]]
    mapped = lambda x: scaled.value_and_grad(jnp.square, axis_name="i")(x).grad
    assert toile.vmap(mapped, axis_name="i")(jnp.array([1.0, 3.0])).tolist() == [4.0, 4.0]
    bad = scaled.value_and_grad(lambda x: x / 0)(jnp.array(1.0))
    assert not bool(bad.finite) and float(bad.dynamic_scale.scale) == 4.0
