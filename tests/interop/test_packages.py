"""chex, PIX, jraph, Haiku and Equinox on toile: a small real use of each.

Where the package runs on the installed jax, what it computes there is the measure.
"""

import dataclasses
import importlib.metadata
import importlib.util
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from tests.golden.recorded import Record
from tests.quick_jax import OPTIONS
from toile import interop
from toile.interop import optax

jax = pytest.importorskip("jax")
RECORD = Record("packages")
ROOT = pathlib.Path(__file__).parents[2]


def loaded(name):
    """The package on toile."""
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"needs {name}")
    return interop.load(name)


def both(name):
    """The package on toile, and on jax."""
    real = pytest.importorskip(name)
    return interop.load(name), real


def on_jax(run, *packages):
    """The leaves of what `run()` gives on jax, by the record or asked."""
    versions = [importlib.metadata.version(name) for name in packages]
    return RECORD.in_test(lambda: jax.tree.leaves(run()), versions)


def compiled(fun, lib):
    """jit, with an oracle that compiles quickly."""
    return lib.jit(fun) if lib is toile else lib.jit(fun, compiler_options=OPTIONS)


def assert_close(ours, theirs, rtol=1e-5, atol=1e-6):
    """Leaves in order agree."""
    ours, theirs = toile.tree.leaves(ours), jax.tree.leaves(theirs)
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=rtol, atol=atol)


# ---- chex


def test_chex_assertions():
    chex = interop.load("chex")
    x = jnp.ones((2, 3))
    chex.assert_shape(x, (2, None))
    chex.assert_rank([x, x], 2)
    chex.assert_type(x, float)
    chex.assert_trees_all_close({"a": x}, {"a": x + 1e-8})
    chex.assert_tree_all_finite({"a": x})
    chex.assert_numerical_grads(lambda v: jnp.sin(v).sum(), (jnp.ones(3),), order=1)
    with pytest.raises(AssertionError, match=r"has shape \(2, 3\) but expected \(3, 3\)"):
        chex.assert_shape(x, (3, 3))
    with pytest.raises(AssertionError, match="not close|differ"):
        chex.assert_trees_all_close({"a": x}, {"a": x + 1})
    assert "jax" in sys.modules and chex.Array is not importlib.import_module("chex").Array


def test_chex_counts_traces_and_checks_values_in_jitted_code():
    chex = interop.load("chex")

    @toile.jit
    @chex.assert_max_traces(n=1)
    def doubled(x):
        return 2 * x

    doubled(1.0)
    doubled(2.0)
    with pytest.raises(AssertionError, match="traced > 1 times"):
        doubled(jnp.ones(3))

    @chex.chexify
    @toile.jit
    def checked(x):
        chex.assert_tree_all_finite(x)
        return x

    checked(jnp.ones(2))
    chex.block_until_chexify_assertions_complete()
    with pytest.raises(AssertionError, match="non-finite"):
        checked(jnp.array([1.0, np.nan]))
        chex.block_until_chexify_assertions_complete()


def test_chex_dataclasses_are_trees():
    chex = interop.load("chex")

    @chex.dataclass
    class Particle:
        position: chex.Array
        speed: chex.Array

    moved = toile.jit(lambda p: p.replace(position=p.position + p.speed))(
        Particle(position=jnp.zeros(2), speed=jnp.ones(2))
    )
    assert isinstance(moved, Particle) and dataclasses.is_dataclass(moved)
    assert moved.position.tolist() == [1, 1]


# ---- PIX


def augmented(pix, lib, key, image):
    """A pipeline of random and fixed augmentations of one image."""
    keys = lib.random.split(key, 6)
    image = pix.random_flip_left_right(keys[0], image)
    image = pix.random_crop(keys[1], image, (12, 12, 3))
    image = pix.random_brightness(keys[2], image, 0.2)
    image = pix.random_contrast(keys[3], image, 0.7, 1.3)
    image = pix.random_hue(keys[4], image, 0.1)
    image = pix.random_saturation(keys[5], image, 0.5, 1.5)
    image = pix.gaussian_blur(image, 1.0, 3)
    return pix.adjust_gamma(lib.numpy.clip(pix.rotate(image, 0.3), 0, 1), 1.2)


def test_pix_augments_a_batch():
    ours, theirs = both("dm_pix")
    images = np.random.RandomState(0).uniform(size=(3, 16, 16, 3)).astype(np.float32)

    def run(pix, lib):
        keys = lib.random.split(lib.random.PRNGKey(0), 3)
        # Not `compiled`: a hue is found by comparing a maximum with what it is of, and XLA without
        # its passes computes both anew, with other roundings, on x86.
        return lib.jit(lib.vmap(lambda k, x: augmented(pix, lib, k, x)))(keys, images)

    found = run(ours, toile)
    assert found.shape == (3, 12, 12, 3)
    assert_close(found, on_jax(lambda: run(theirs, jax), "dm_pix"), rtol=1e-4, atol=1e-5)


# ---- jraph


def test_jraph_runs_a_graph_network_on_a_batch():
    jraph = loaded("jraph")
    random = np.random.RandomState(0)
    graph = jraph.GraphsTuple(
        nodes=jnp.asarray(random.normal(size=(3, 4)), jnp.float32),
        edges=jnp.asarray(random.normal(size=(2, 4)), jnp.float32),
        senders=jnp.array([0, 1]),
        receivers=jnp.array([1, 2]),
        n_node=jnp.array([3]),
        n_edge=jnp.array([2]),
        globals=jnp.ones((1, 4)),
    )
    network = jraph.GraphNetwork(
        update_edge_fn=lambda edges, sent, received, g: edges + sent - received + g,
        update_node_fn=lambda nodes, sent, received, g: jnp.tanh(nodes + received) + g,
        update_global_fn=lambda nodes, edges, g: nodes + edges - g,
    )
    batch = jraph.pad_with_graphs(jraph.batch([graph, graph]), 8, 6, 4)
    one = jraph.unbatch(jraph.unpad_with_graphs(toile.jit(network)(batch)))[1]

    nodes, edges = np.asarray(graph.nodes), np.asarray(graph.edges)
    edges = edges + nodes[[0, 1]] - nodes[[1, 2]] + 1
    received = np.stack([np.zeros(4), edges[0], edges[1]])
    nodes = np.tanh(nodes + received) + 1
    np.testing.assert_allclose(one.edges, edges, rtol=1e-5)
    np.testing.assert_allclose(one.nodes, nodes, rtol=1e-5)
    np.testing.assert_allclose(one.globals[0], nodes.sum(0) + edges.sum(0) - 1, rtol=1e-5)

    gradient = toile.grad(lambda n: network(graph._replace(nodes=n)).globals.sum())(graph.nodes)
    assert gradient.shape == (3, 4) and bool(jnp.isfinite(gradient).all())


# ---- Haiku


def haiku_training(hk, lib, opt, steps=5):
    """An MLP with batch norm and dropout, trained by Optax; losses and parameters."""

    def forward(x):
        x = hk.BatchNorm(True, True, 0.9)(hk.nets.MLP([8], activate_final=True)(x), True)
        return hk.Linear(1)(hk.dropout(hk.next_rng_key(), 0.2, x))

    model = hk.transform_with_state(forward)
    x = np.random.RandomState(0).normal(size=(16, 3)).astype(np.float32)
    y = x.sum(-1, keepdims=True)
    tx = opt.adam(1e-2)

    def loss(params, state, key):
        out, state = model.apply(params, state, key, x)
        return ((out - y) ** 2).mean(), state

    def step(carry, key):
        params, state, moments = carry
        (value, state), g = lib.value_and_grad(loss, has_aux=True)(params, state, key)
        updates, moments = tx.update(g, moments, params)
        return (opt.apply_updates(params, updates), state, moments), value

    def run(key):
        params, state = model.init(key, x)
        keys = lib.random.split(key, steps)
        (params, state, _), losses = lib.lax.scan(step, (params, state, tx.init(params)), keys)
        return losses, params, state

    return compiled(run, lib)(lib.random.PRNGKey(0))


def test_haiku_trains_as_it_does_on_jax():
    ours, theirs = both("haiku")
    real_optax = pytest.importorskip("optax")
    found = haiku_training(ours, toile, optax)
    expected = on_jax(lambda: haiku_training(theirs, jax, real_optax), "dm-haiku", "optax")
    assert list(found[1]) == ["batch_norm", "linear", "mlp/~/linear_0"]
    assert found[0][-1] < found[0][0]
    assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_haiku_lifts_and_describes():
    hk = loaded("haiku")
    model = hk.without_apply_rng(hk.transform(lambda x: hk.vmap(hk.Linear(2), split_rng=False)(x)))
    x = jnp.ones((4, 3))
    params = model.init(toile.random.PRNGKey(0), x)
    assert model.apply(params, x).shape == (4, 2)
    assert "linear" in hk.experimental.tabulate(model)(x)


# ---- Equinox


def equinox_training(eqx, lib, opt, steps=5):
    """An MLP trained by Optax through filtered transformations; losses and parameters."""
    key = lib.random.PRNGKey(0)
    model = eqx.nn.MLP(3, 1, 8, 2, activation=lib.nn.tanh, key=key)
    x = np.random.RandomState(0).normal(size=(16, 3)).astype(np.float32)
    y = x.sum(-1, keepdims=True)
    tx = opt.adam(1e-2)

    @eqx.filter_value_and_grad
    def loss(model):
        return ((lib.vmap(model)(x) - y) ** 2).mean()

    @eqx.filter_jit
    def step(model, moments):
        value, g = loss(model)
        updates, moments = tx.update(g, moments, model)
        return eqx.apply_updates(model, updates), moments, value

    moments, losses = tx.init(eqx.filter(model, eqx.is_array)), []
    for _ in range(steps):
        model, moments, value = step(model, moments)
        losses.append(value)
    return losses, eqx.filter(model, eqx.is_array)


def test_equinox_trains_as_it_does_on_jax():
    ours, theirs = both("equinox")
    real_optax = pytest.importorskip("optax")
    found = equinox_training(ours, toile, optax)
    expected = on_jax(lambda: equinox_training(theirs, jax, real_optax), "equinox", "optax")
    assert found[0][-1] < found[0][0]
    assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_equinox_state_checks_and_loops():
    eqx = interop.load("equinox")

    class Block(eqx.Module):
        norm: eqx.nn.BatchNorm
        linear: eqx.nn.Linear

        def __init__(self, key):
            self.norm = eqx.nn.BatchNorm(3, "batch", mode="batch")
            self.linear = eqx.nn.Linear(3, 2, key=key)

        def __call__(self, x, state):
            x, state = self.norm(x, state)
            return self.linear(x), state

    block, state = eqx.nn.make_with_state(Block)(toile.random.PRNGKey(0))
    run = toile.vmap(block, axis_name="batch", in_axes=(0, None), out_axes=(0, None))
    out, _ = run(toile.random.normal(toile.random.PRNGKey(1), (4, 3)), state)
    assert out.shape == (4, 2)

    checked = eqx.filter_jit(lambda v: eqx.error_if(v, (v > 2).any(), "too big"))
    assert checked(jnp.ones(2)).tolist() == [1, 1]
    with pytest.raises(RuntimeError, match="too big"):
        checked(jnp.array([1.0, 3.0]))

    def doubled(x, kind):
        body, limit = (lambda c: 2 * c), (lambda c: c < 50)
        return eqx.internal.while_loop(limit, body, x, kind=kind, max_steps=16)

    for kind in ("checkpointed", "bounded"):
        assert toile.grad(lambda x, kind=kind: doubled(x, kind))(1.0) == 64


# ---- all of them


def test_none_of_them_needs_jax():
    names = ["chex", "dm_pix", "jraph", "haiku", "equinox", "optax"]
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}")
    code = f"""
import sys
from tests.interop.optimizers import NoJax
sys.meta_path.insert(0, NoJax)
from toile import interop
for name in {names}:
    interop.load(name)
known = {{"jax", "jaxlib", "flax", "jaxtyping", "jmp", *{names}}}
print(sorted(known & {{name.partition(".")[0] for name in sys.modules}}))
"""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "COV", "PYTEST"))}
    done = subprocess.run(
        [sys.executable, "-c", code], env={**env, "PYTHONPATH": str(ROOT)}, cwd=ROOT,
        capture_output=True, text=True, check=True, timeout=120,
    )
    assert done.stdout.strip() == "[]"
