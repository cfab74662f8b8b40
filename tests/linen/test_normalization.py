"""Normalization layers: axes with names, updates of averages, errors, dtypes, number of operations.

Rows of configurations are in the table `normalization`."""

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

X = 3 * oracle.normal(4, 5, 6) + 1


def both(f):
    """The same on flax and on toile, as NumPy trees."""
    theirs = jax.jit(lambda: f(oracle.flax_library()), compiler_options=OPTIONS)()
    answers = [jax.tree.map(np.asarray, x) for x in (theirs, f(oracle.toile_library()))]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(b, a, rtol=2e-5, atol=2e-5), *answers)
    return answers[1]


@pytest.mark.parametrize("fast", [True, False])
def test_batch_norm_over_a_named_axis(fast):
    """Statistics are shared by the members of the axis."""

    def run(lib):
        model = lib.nn.BatchNorm(False, axis_name="batch", use_fast_variance=fast)
        variables = model.init(lib.random.key(0), X[0])  # there is no such axis yet
        call = lambda x: model.apply(variables, x, mutable=["batch_stats"])
        return lib.jax.vmap(call, axis_name="batch")(lib.jnp.asarray(X))

    y, updated = both(run)
    mean = updated["batch_stats"]["mean"]
    assert (mean[1:] == mean[0]).all()
    np.testing.assert_allclose(y.mean((0, 1)), 0, atol=1e-5)


@pytest.mark.parametrize("groups", [[[0, 1], [2, 3]], [[0, 3], [1, 2]]])
def test_batch_norm_over_groups_of_a_named_axis(groups):
    """A group is normalized as one batch. (flax needs as many devices for it.)"""
    model = nn.BatchNorm(False, axis_name="batch", axis_index_groups=groups)
    variables = model.init(toile.random.key(0), X[0])
    call = lambda x: model.apply(variables, x, mutable=["batch_stats"])
    y, _ = toile.vmap(call, axis_name="batch")(jnp.asarray(X))
    for group in groups:
        whole, _ = nn.BatchNorm(False).apply(variables, X[group], mutable=["batch_stats"])
        np.testing.assert_allclose(np.asarray(y)[group], whole, atol=1e-5)


@pytest.mark.parametrize("name", ["LayerNorm", "RMSNorm", "GroupNorm", "InstanceNorm"])
def test_other_norms_over_a_named_axis(name):
    """The features of an example may be spread over a named axis."""

    def run(lib):
        options = {"num_groups": 3} if name == "GroupNorm" else {}
        model = getattr(lib.nn, name)(axis_name="parts", **options)
        params = getattr(lib.nn, name)(**options).init(lib.random.key(0), X[0])
        loss = lambda x: (model.apply(params, x) ** 3).sum()
        mapped = lambda x: lib.jax.vmap(loss, axis_name="parts")(x).sum()
        return lib.jax.value_and_grad(mapped)(lib.jnp.asarray(X))

    both(run)


def test_masked_statistics_over_a_named_axis():
    """The mean of the members' means, as flax has it."""
    mask = np.arange(20).reshape(4, 5, 1) % 3 > 0

    def run(lib):
        model = lib.nn.BatchNorm(use_running_average=False, axis_name="batch")
        variables = model.init(lib.random.key(0), X[0])
        call = lambda x, m: model.apply(variables, x, mask=m, mutable=["batch_stats"])
        return lib.jax.vmap(call, axis_name="batch")(lib.jnp.asarray(X), lib.jnp.asarray(mask))

    both(run)


def test_averages_stay_while_initializing():
    """`init` gives zeros and ones whatever its input."""
    stats = nn.BatchNorm(use_running_average=False).init(toile.random.key(0), X)["batch_stats"]
    assert (stats["mean"] == 0).all() and (stats["var"] == 1).all()


def test_averages_approach_those_of_the_data():
    """After many updates evaluation is as training."""
    model, x = nn.BatchNorm(momentum=0.5), X.reshape(20, 6)
    variables = model.init(toile.random.key(0), x, use_running_average=False)
    for _ in range(40):
        y, updated = model.apply(variables, x, use_running_average=False, mutable=["batch_stats"])
        variables = {**variables, **updated}
    np.testing.assert_allclose(model.apply(variables, x, use_running_average=True), y, atol=1e-4)


class Model(nn.Module):
    """A norm two levels down."""

    @nn.compact
    def __call__(self, x, train):
        return nn.Sequential([nn.Dense(3), nn.BatchNorm(use_running_average=not train)])(x)


def test_immutable_averages_are_explained():
    """The error names the layer, its path and the call to write."""
    x = jnp.ones((2, 4))
    variables = Model().init(toile.random.key(0), x, False)
    with pytest.raises(errors.ModifyScopeVariableError) as e:
        Model().apply(variables, x, True)
    text = str(e.value)
    assert '"/BatchNorm_0" (of the BatchNorm)' in text and '"batch_stats"' in text
    assert "apply(variables, ..., mutable=['batch_stats'])" in text
    assert __file__ in text and len(text.splitlines()) <= 15
    theirs = flax.linen.BatchNorm(use_running_average=False)
    with pytest.raises(flax.errors.ModifyScopeVariableError):
        jax.eval_shape(lambda: theirs.apply(theirs.init(jax.random.key(0), X[0]), X[0]))
    with pytest.raises(errors.ModifyScopeVariableError, match="BatchNorm"):
        model = nn.BatchNorm(use_running_average=False)
        model.apply(model.init(toile.random.key(0), x), x)


def test_use_running_average_is_given_once():
    """In the constructor or at the call."""
    x = jnp.ones((2, 4))
    with pytest.raises(ValueError, match="use_running_average.*must be passed"):
        nn.BatchNorm().init(toile.random.key(0), x)
    with pytest.raises(ValueError, match="use_running_average.*just once"):
        nn.BatchNorm(use_running_average=True).init(toile.random.key(0), x, True)


WRONG = {
    "no group": (lambda lib: lib.nn.GroupNorm(num_groups=None), "Either `num_groups` or"),
    "both": (lambda lib: lib.nn.GroupNorm(3, 2), "Either `num_groups` or"),
    "size": (lambda lib: lib.nn.GroupNorm(None, 4), r"channels \(6\) is not multiple of the"),
    "number": (lambda lib: lib.nn.GroupNorm(4), r"groups \(4\) does not divide"),
    "zero": (lambda lib: lib.nn.GroupNorm(0), r"groups \(0\) does not divide"),
    "axes": (lambda lib: lib.nn.GroupNorm(2, reduction_axes=(0, 1)), "include the final dimension"),
    "batch": (lambda lib: lib.nn.InstanceNorm(feature_axes=(0, 2)), "cannot include the leading"),
    "dtype": (lambda lib: lib.nn.LayerNorm(dtype=lib.jnp.int32), "must be inexact"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_configurations(name):
    """They are refused as flax refuses them."""
    build, match = WRONG[name]
    for lib in (oracle.flax_library(), oracle.toile_library()):
        with pytest.raises(ValueError, match=match):
            lib.jax.eval_shape(build(lib).init, lib.random.key(0), X)


def test_norms_are_special_cases_of_each_other():
    """GroupNorm with one group is LayerNorm over all axes; with groups of one, InstanceNorm."""
    variables = nn.LayerNorm().init(toile.random.key(0), X)
    run = lambda model: np.asarray(model.apply(variables, X))
    close = lambda a, b: np.testing.assert_allclose(run(a), run(b), atol=1e-5)
    close(nn.GroupNorm(num_groups=1), nn.LayerNorm(reduction_axes=(1, 2)))
    close(nn.GroupNorm(num_groups=None, group_size=1), nn.InstanceNorm())


def test_results_are_strong_and_ranks_agree():
    """Weak inputs give strong results, and nothing relies on promotion of ranks."""
    weak = jnp.broadcast_to(jnp.asarray(2.0), (2, 3, 4))
    models = [
        nn.LayerNorm(use_scale=False, use_bias=False), nn.RMSNorm(use_scale=False),
        nn.GroupNorm(2), nn.InstanceNorm(), nn.BatchNorm(use_running_average=True),
    ]  # fmt: skip
    with toile.numpy_rank_promotion("raise"):
        for model in models:
            out, _ = model.init_with_output(toile.random.key(0), weak)
            assert not out.weak_type and out.dtype == np.float32


@pytest.mark.parametrize("name", ["LayerNorm", "RMSNorm", "GroupNorm", "InstanceNorm", "BatchNorm"])
def test_no_more_operations_than_flax(name):
    """Eager modules cost what their operations cost."""
    counts = []
    for lib in (oracle.flax_library(), oracle.toile_library()):
        options = {"GroupNorm": {"num_groups": 3}, "BatchNorm": {"use_running_average": False}}
        model = getattr(lib.nn, name)(**options.get(name, {}))
        variables = lib.jax.eval_shape(model.init, lib.random.key(0), X)
        call = lambda v, x, model=model: model.apply(v, x, mutable=["batch_stats"])
        counts.append(len(lib.jax.make_jaxpr(call)(variables, X).jaxpr.eqns))
    assert counts[1] <= counts[0], counts


def test_spectral_norm_bounds_the_singular_value():
    """After enough steps the largest singular value of what the layer sees is 1."""
    model = nn.SpectralNorm(nn.Dense(5, use_bias=False), n_steps=50)
    x = jnp.eye(4)
    variables = model.init(toile.random.key(0), x, update_stats=False)
    out, updated = model.apply(variables, x, update_stats=True, mutable=["batch_stats"])
    np.testing.assert_allclose(np.linalg.svd(out)[1][0], 1, rtol=1e-4)
    sigma = updated["batch_stats"]["layer_instance/kernel/sigma"]
    kernel = variables["params"]["layer_instance"]["kernel"]
    np.testing.assert_allclose(np.linalg.svd(kernel)[1][0], sigma, rtol=1e-4)


def test_spectral_norm_of_more_axes_can_be_refused():
    """With `error_on_non_matrix`, as flax does."""
    for lib in (oracle.flax_library(), oracle.toile_library()):
        model = lib.nn.SpectralNorm(lib.nn.Conv(3, (2, 2)), error_on_non_matrix=True)
        with pytest.raises(ValueError, match="4D but error_on_non_matrix is True"):
            init = lambda key, model=model: model.init(key, X[..., None], update_stats=False)
            lib.jax.eval_shape(init, lib.random.key(0))


def test_weight_norm_gives_columns_of_norm_one():
    """Each feature's weights have norm 1 at first, whatever they were."""
    model = nn.WeightNorm(nn.Dense(5, use_bias=False))
    variables = model.init(toile.random.key(0), jnp.eye(4))
    np.testing.assert_allclose((model.apply(variables, jnp.eye(4)) ** 2).sum(0), 1, rtol=1e-5)


def test_public_names():
    """Every layer and helper that `flax.linen.normalization` shows."""
    theirs = flax.linen.normalization
    for name in dir(theirs):
        value = getattr(theirs, name)
        if not name.startswith("_") and getattr(value, "__module__", "").startswith("flax.linen"):
            assert hasattr(nn.normalization, name), name
