"""Optax on toile: its optimizers against Optax on jax, without jax, and as an ordinary package."""

import functools
import importlib
import inspect
import os
import pathlib
import pickle
import subprocess
import sys
import threading
import traceback

import ml_dtypes
import numpy as np
import pytest

import toile
import toile.numpy as jnp
from tests.golden.recorded import Record, text_of
from tests.interop import optimizers
from tests.quick_jax import OPTIONS
from toile import interop
from toile.interop import optax

real_optax = pytest.importorskip("optax")
jax = pytest.importorskip("jax")

ROOT = pathlib.Path(__file__).parents[2]
HALF = ("adam", "adamw_mask", "lamb", "lion", "sgd", "adafactor", "multi_steps", "inject")


RECORD = Record("optax", every_version=True)


def on_jax(name, dtype):
    """What a row ends with on jax, by the record or asked."""
    inputs = optimizers.inputs(dtype)
    text = text_of(name, optimizers.ROWS[name], optimizers.train, *jax.tree.leaves(inputs))

    def ask():
        train = lambda *args: optimizers.train(real_optax, jax, name, *args)
        return jax.jit(train, compiler_options=OPTIONS)(*inputs)

    return [x.value.astype(np.float64) for x in RECORD.answer(text, ask)]


@functools.cache
def on_toile(name):
    """What a row ends with on toile in this process, where jax is too."""
    return optimizers.run(optax, toile, np.float32, [name])[name]


@pytest.fixture(scope="module")
def found_alone(tmp_path_factory, request):
    """What the rows end with in a process in which importing jax raises."""
    file = tmp_path_factory.mktemp("interop") / "found.npz"
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "COV", "PYTEST"))}
    env["PYTHONPATH"] = str(ROOT)
    names = [item.callspec.params["name"] for item in request.session.items
             if item.name.startswith("test_agrees_where_jax_cannot_be_imported[")]
    command = [sys.executable, "-m", "tests.interop.optimizers", str(file), *names]
    subprocess.run(command, env=env, cwd=ROOT, check=True, timeout=300)
    rows = {}
    with np.load(file) as saved:
        for key in sorted(saved):
            rows.setdefault(key.partition("/")[0], []).append(saved[key])
    return rows


def assert_same(found, expected, rtol, atol):
    """All leaves of a row agree."""
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=atol)


@pytest.mark.parametrize("name", optimizers.ROWS)
def test_agrees_with_optax_on_jax(name):
    loose = name == "adam_bf16"  # XLA keeps some of the rounding to bfloat16 out of a fused loop
    expected = on_jax(name, np.float32)
    assert_same(on_toile(name), expected, 3e-2 if loose else 2e-5, 3e-3 if loose else 1e-6)


@pytest.mark.parametrize("name", optimizers.ROWS)
def test_agrees_where_jax_cannot_be_imported(name, found_alone):
    assert_same(found_alone[name], on_toile(name), 1e-6, 1e-7)


def test_agrees_in_bfloat16():
    params, gradients = toile.tree.map(jnp.asarray, optimizers.inputs(ml_dtypes.bfloat16))
    for name in HALF:
        ours = optimizers.train(optax, toile, name, params, gradients)
        theirs = on_jax(name, ml_dtypes.bfloat16)
        assert_same([np.asarray(x, np.float64) for x in ours], theirs, 2e-2, 4e-3)


def test_the_real_ones_are_untouched():
    assert sys.modules["jax"] is jax and sys.modules["optax"] is real_optax
    assert optax is not real_optax and optax.__name__ == "toile.interop.optax"
    ours, theirs = optax.sgd(0.1).init({}), real_optax.sgd(0.1).init({})
    assert type(ours[0]) is not type(theirs[0]) and type(ours[0]).__name__ == "EmptyState"


def test_one_copy_whatever_the_way_to_it():
    import toile.interop.optax.losses as losses

    assert interop.load("optax") is optax is interop.optax
    assert losses is optax.losses is interop.load("optax.losses")
    assert interop.load("optax._src.base").EmptyState is optax.EmptyState
    assert isinstance(optax.sgd(0.1), optax.GradientTransformation)
    chex = interop.load("chex")
    assert sys.modules["toile.interop.chex"] is chex


@pytest.mark.parametrize("part", ["contrib", "losses", "tree_utils", "schedules", "transforms"])
def test_submodules(part):
    module = getattr(optax, part)
    assert module.__name__ == f"toile.interop.optax.{part}"
    assert importlib.import_module(module.__name__) is module
    assert inspect.getsource(module) == pathlib.Path(module.__file__).read_text()


def test_losses_schedules_and_trees():
    logits, labels = jnp.array([[2.0, -1.0, 0.5]]), jnp.array([2])
    loss = optax.losses.softmax_cross_entropy_with_integer_labels(logits, labels)
    theirs = real_optax.losses.softmax_cross_entropy_with_integer_labels(
        np.asarray(logits), np.asarray(labels)
    )
    np.testing.assert_allclose(loss, theirs, rtol=1e-6)
    assert float(optax.linear_schedule(1.0, 0.0, 10)(5)) == 0.5
    tree = {"a": jnp.array([3.0]), "b": jnp.array([4.0])}
    assert float(optax.tree_utils.tree_norm(tree)) == 5.0


def test_states_pickle():
    tx = optax.adam(optax.cosine_decay_schedule(1e-2, 10))
    params = {"w": jnp.ones(3)}
    state = tx.update(params, tx.init(params), params)[1]
    again = pickle.loads(pickle.dumps(state))
    assert type(again[0]) is type(state[0])
    assert toile.tree.structure(again) == toile.tree.structure(state)
    assert toile.tree.all(toile.tree.map(lambda a, b: bool((a == b).all()), again, state))


def test_pickles_are_read_in_a_process_that_has_loaded_nothing():
    data = pickle.dumps(optax.adam(1e-2).init({"w": jnp.ones(3)}))
    code = f"import pickle; print(type(pickle.loads({data!r})[0]).__module__)"
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "COV", "PYTEST"))}
    done = subprocess.run(
        [sys.executable, "-c", code], env={**env, "PYTHONPATH": str(ROOT)}, cwd=ROOT,
        capture_output=True, text=True, check=True, timeout=120,
    )
    assert done.stdout.strip() == "toile.interop.optax._src.transform"


def test_tracebacks_show_the_true_file_and_line():
    with pytest.raises(ValueError) as caught:
        optax.adamw(1e-3).update({"w": jnp.ones(2)}, optax.adamw(1e-3).init({"w": jnp.ones(2)}))
    frames = traceback.extract_tb(caught.value.__traceback__)
    inside = [f for f in frames if f.filename.startswith(os.path.dirname(real_optax.__file__))]
    assert inside
    lines = pathlib.Path(inside[-1].filename).read_text().splitlines()
    assert lines[inside[-1].lineno - 1].strip() == inside[-1].line != ""


def test_loaded_code_knows_arrays_of_toile():
    face = interop.load("jax")
    assert face.Array is toile.Array and isinstance(jnp.ones(2), face.Array)
    assert not isinstance(jax.numpy.ones(2), face.Array)
    seen = []
    toile.jit(lambda x: seen.append(isinstance(x, face.Array)) or x)(1.0)
    assert seen == [True]


def test_under_the_transforms_of_toile():
    tx = optax.adam(1e-1)

    def trained(rate):
        params = {"w": jnp.ones(2)}
        state = tx.init(params)
        for _ in range(2):
            gradients = toile.grad(lambda p: (rate * p["w"] ** 2).sum())(params)
            updates, state = tx.update(gradients, state, params)
            params = optax.apply_updates(params, updates)
        return params["w"].sum()

    rates = jnp.array([1.0, 2.0])
    eager = jnp.stack([trained(r) for r in rates])
    assert jnp.allclose(toile.jit(toile.vmap(trained))(rates), eager, rtol=1e-6)
    slope = (trained(1.01) - trained(0.99)) / 0.02
    assert jnp.allclose(toile.grad(trained)(1.0), slope, atol=1e-2)


def test_reloading():
    module = interop.load("optax._src.numerics")
    before = module.safe_norm
    assert importlib.reload(module) is module
    assert module.safe_norm is not before
    assert float(module.safe_norm(jnp.array([3.0, 4.0]), 1.0)) == 5.0
    assert sys.modules["jax"] is jax


def test_loading_from_many_threads():
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(interop.load("optax.projections")))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [optax.projections] * 4
