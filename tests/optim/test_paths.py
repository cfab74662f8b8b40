"""Globs of parameter paths where masks and labels are taken, and hyperparameters set in mid-run."""

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from toile import optim
from toile.core import freeze as frozen
from toile.optim import paths

PARAMS = {
    "encoder": {"layer_0": {"kernel": jnp.ones(2), "bias": jnp.ones(1)}, "scale": jnp.ones(1)},
    "head": [jnp.ones(1), {"kernel": jnp.ones(2)}],
}


def _ones(tree):
    """The paths whose mask is True."""
    found, _ = paths.paths(tree)
    return {p for p, m in zip(found, toile.tree.leaves(tree)) if m}


@pytest.mark.parametrize(
    ("glob", "chosen"),
    [
        ("encoder/**", {"encoder/layer_0/kernel", "encoder/layer_0/bias", "encoder/scale"}),
        ("**/kernel", {"encoder/layer_0/kernel", "head/1/kernel"}),
        (
            "**",
            {
                "encoder/layer_0/kernel",
                "encoder/layer_0/bias",
                "encoder/scale",
                "head/0",
                "head/1/kernel",
            },
        ),
        ("*/scale", {"encoder/scale"}),
        ("head/0", {"head/0"}),
        ("encoder/layer_?/b*", {"encoder/layer_0/bias"}),
        ("**/layer_[0-3]/*", {"encoder/layer_0/kernel", "encoder/layer_0/bias"}),
        ("**/layer_[!1]/bias", {"encoder/layer_0/bias"}),
        (["head/**", "**/bias"], {"head/0", "head/1/kernel", "encoder/layer_0/bias"}),
    ],
)
def test_masks(glob, chosen):
    assert _ones(paths.mask_tree(glob, PARAMS)) == chosen


def test_a_name_with_special_characters_is_a_name():
    assert _ones(paths.mask_tree("a.b/(c)+", {"a.b": {"(c)+": 1.0}, "axb": {"(c)+": 2.0}})) == {
        "a.b/(c)+"
    }


@pytest.mark.parametrize(
    "use",
    [
        lambda mask: optim.masked(optim.adam(0.1), mask),
        lambda mask: optim.freeze(mask),
        lambda mask: optim.add_decayed_weights(0.1, mask),
        lambda mask: optim.adamw(0.1, mask=mask),
        lambda mask: optim.lars(0.1, 0.1, mask, trust_ratio_mask=mask),
        lambda mask: optim.adafactor(0.1, weight_decay_rate=0.1, weight_decay_mask=mask),
        lambda mask: optim.selective_transform(optim.adam(0.1), freeze_mask=mask),
    ],
)
def test_a_glob_is_the_mask_that_it_means(use):
    by_glob, by_mask = use("**/kernel"), use(paths.mask_tree("**/kernel", PARAMS))
    results = []
    for tx in (by_glob, by_mask):
        updates, state = toile.jit(tx.update)(PARAMS, tx.init(PARAMS), PARAMS)
        results.append(toile.tree.flatten((updates, state)))
    assert results[0][1] == results[1][1]
    for x, y in zip(results[0][0], results[1][0]):
        np.testing.assert_array_equal(x, y)


def test_an_idle_glob_is_named_with_the_paths_that_exist():
    with pytest.raises(ValueError, match=r"decoder/\*\*'.*matches none.*encoder/layer_0/bias"):
        optim.freeze("decoder/**").init(PARAMS)
    with pytest.raises(ValueError, match=r"did you mean 'encoder/\*\*'"):
        optim.freeze("encoder").init(PARAMS)
    with pytest.raises(ValueError, match="'nothing'"):
        optim.masked(optim.sgd(0.1), ["**/kernel", "nothing"]).init(PARAMS)


def test_labels():
    groups = {"train": optim.adam(0.1), "slow": optim.sgd(0.01), "rest": optim.set_to_zero()}
    globs = {"head/**": "train", "**/kernel": "slow", "**": "rest"}
    tx = optim.partition(groups, globs)
    updates, _ = tx.update(PARAMS, tx.init(PARAMS), PARAMS)
    np.testing.assert_allclose(updates["head"][1]["kernel"], -0.1, rtol=1e-4)
    np.testing.assert_allclose(updates["encoder"]["layer_0"]["kernel"], -0.01, rtol=1e-6)
    np.testing.assert_array_equal(updates["encoder"]["scale"], 0.0)
    with pytest.raises(ValueError, match=r"no.*encoder/scale"):
        optim.partition(groups, {"head/**": "train", "**/kernel": "slow"}).init(PARAMS)
    with pytest.raises(ValueError, match="body"):
        optim.partition(groups, {"body/**": "train", "**": "rest"}).init(PARAMS)


def test_labels_by_the_parameters_own_names_are_a_tree():
    params = {"net/~/linear": {"w": jnp.ones(1)}, "out": {"w": jnp.ones(1)}}
    groups = {"a": optim.sgd(1.0), "b": optim.set_to_zero()}
    tx = optim.partition(groups, {"net/~/linear": "a", "out": "b"})
    updates, _ = tx.update(params, tx.init(params))
    assert float(updates["net/~/linear"]["w"][0]) == -1.0
    assert float(updates["out"]["w"][0]) == 0.0


def test_a_glob_inside_a_group_may_match_leaves_of_other_groups():
    groups = {"a": optim.adamw(0.1, mask="**/kernel"), "b": optim.sgd(0.1)}
    tx = optim.partition(groups, {"encoder/scale": "a", "**": "b"})
    tx.update(PARAMS, tx.init(PARAMS), PARAMS)


def test_other_containers_and_missing_gradients():
    params = frozen({"a": {"kernel": jnp.ones(1), "bias": jnp.ones(1)}})
    updates, _ = (tx := optim.freeze("a/bias")).update(params, tx.init(params))
    assert float(updates["a"]["bias"][0]) == 0.0 and float(updates["a"]["kernel"][0]) == 1.0
    tx = optim.masked(optim.sgd(1.0), "a/*")
    updates, _ = tx.update(
        {"a": {"w": None, "b": jnp.ones(1)}}, tx.init({"a": {"w": None, "b": jnp.ones(1)}})
    )
    assert updates["a"]["w"] is None and float(updates["a"]["b"][0]) == -1.0


def test_map_params_sees_through_globs():
    tx = optim.chain(
        optim.masked(optim.adam(0.1), "**/kernel"),
        optim.partition(
            {"a": optim.trace(0.9), "b": optim.identity()}, {"head/**": "a", "**": "b"}
        ),
        optim.selective_transform(optim.trace(0.5), freeze_mask="encoder/**"),
    )
    marked = optim.tree_map_params(
        tx, lambda x: "p", tx.init(PARAMS), transform_non_params=lambda x: "n"
    )
    leaves = toile.tree.leaves(marked)
    assert leaves.count("n") == 1  # Adam's counter
    assert leaves.count("p") == 2 * 2 + 2 + 2


def test_hyperparameters_set_in_mid_run_trace_nothing_anew():
    traces = []
    inner = optim.inject_hyperparams(optim.adamw)(0.1, weight_decay=lambda count: 0.1 / (1 + count))
    tx = optim.chain(optim.clip(1.0), inner)

    @toile.jit
    def step(params, state):
        traces.append(1)
        updates, state = tx.update(params, state, params)
        return optim.apply_updates(params, updates), state

    params, state = step(PARAMS, tx.init(PARAMS))
    assert float(optim.get_hyperparams(state)["learning_rate"]) == pytest.approx(0.1)
    assert float(optim.get_hyperparams(state)["weight_decay"]) == pytest.approx(0.1)
    before = params
    params, state = step(params, optim.set_hyperparams(state, learning_rate=0.0))
    assert len(traces) == 1
    assert float(optim.get_hyperparams(state)["weight_decay"]) == pytest.approx(0.05)
    np.testing.assert_array_equal(params["head"][0], before["head"][0])
    with pytest.raises(KeyError, match=r"learning_rate.*got \['rate'\]"):
        optim.set_hyperparams(state, rate=1.0)


def test_the_gradients_of_a_meta_parameter_pass_through_an_update():
    def after(rate):
        tx = optim.inject_hyperparams(optim.sgd)(learning_rate=rate)
        w = jnp.array([1.0, 2.0])
        updates, _ = tx.update(2 * w, tx.init(w), w)
        return jnp.sum(optim.apply_updates(w, updates) ** 2)

    assert float(toile.grad(after)(0.1)) == pytest.approx(-16.0)


def test_errors():
    with pytest.raises(ValueError, match="needed the current parameters"):
        optim.add_decayed_weights(0.1).update(PARAMS, optim.EmptyState())
    with pytest.raises(ValueError, match="needed 2 states, got 1"):
        optim.sgd(0.1).update(PARAMS, (optim.EmptyState(),))
    with pytest.raises(ValueError, match="different names"):
        optim.named_chain(("a", optim.clip(1.0)), ("a", optim.clip(1.0)))
    with pytest.raises(ValueError, match="static_args"):
        optim.inject_hyperparams(optim.sgd, static_args="rate")
    with pytest.raises(TypeError, match="value_fn takes"):
        tx = optim.scale_by_zoom_linesearch(3)
        w = jnp.ones(1)
        loss = lambda w: jnp.sum(w**2)
        tx.update(w, tx.init(w), w, value=1.0, grad=w, value_fn=loss, batch=3)
    with pytest.warns(UserWarning, match="no key"):
        optim.noisy_sgd(0.1)
    with pytest.warns(DeprecationWarning, match="use `key`"):
        optim.add_noise(0.1, 0.5, seed=1)


def test_verbose_searches_say_why_they_failed(capfd):
    w = jnp.array([1.0])
    loss = lambda w: jnp.sum(w**2)
    searches = (
        optim.scale_by_zoom_linesearch(3, verbose=True),
        optim.scale_by_backtracking_linesearch(3, verbose=True),
    )
    for tx in searches:
        tx.update(w, tx.init(w), w, value=1.0, grad=2 * w, value_fn=loss)  # uphill
    toile.effects_barrier()
    text = capfd.readouterr().out
    assert "not a descent direction" in text
    assert "no step size decreases the loss enough" in text


def test_scale_by_path():
    params = {"body": {"w": jnp.ones(2), "b": jnp.ones(1)}, "head": {"w": jnp.ones(2), "b": None}}
    tx = optim.scale_by_path({"**/b": 3.0, "head/**": 2.0, "**": 0.5})
    updates, state = tx.update(params, tx.init(params), params)
    assert updates["body"]["w"][0] == 0.5 and updates["body"]["b"][0] == 3.0
    assert updates["head"]["w"][0] == 2.0 and updates["head"]["b"] is None
    masked = optim.masked(tx, {"body": {"w": True, "b": False}, "head": {"w": True, "b": True}})
    updates, _ = masked.update(params, masked.init(params), params)
    assert updates["body"]["b"][0] == 1.0 and updates["body"]["w"][0] == 0.5
    with pytest.raises(ValueError, match="scale_by_path: needed globs that match some parameter"):
        optim.scale_by_path({"tail/**": 2.0, "**": 1.0}).update(params, state)
    with pytest.raises(ValueError, match="scale_by_path: needed a label for every parameter"):
        optim.scale_by_path({"head/**": 2.0}).update(params, state)
    with pytest.raises(TypeError, match="scale_by_path: needed a dict from globs to factors"):
        optim.scale_by_path(0.5)
