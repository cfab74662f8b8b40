"""The example vision computes what transformers computes.

The folders in tests/golden/pretrained were made with transformers
(`tests.golden.huggingface_vision`). With TOILE_TEST_ALL=1, where transformers is installed, it
makes new ones from another seed and loads what toile saved.
"""

import functools
import json

import numpy as np
import pytest

import toile
from examples.vision import images, layers, models
from tests.golden import huggingface_vision as golden
from tests.interop.test_huggingface import (
    TOLERANCE,
    answers,
    assert_same_tensors,
    check_gradients,
    full_names,
)
from toile.interop import huggingface, safetensors

pytestmark = pytest.mark.filterwarnings("ignore:jit. .* is traced")  # for each model


@functools.cache
def loaded(folder):
    return models.load(folder)


def table_of(config):
    return models.architecture(config).table(config)


def check_labels(folder, tmp_path):
    model, variables, config = loaded(folder)
    want = answers(folder)

    def loss(variables):
        logits = model.apply(variables, want["images"])
        return layers.label_loss(logits, want["labels"]), logits

    (value, logits), gradients = toile.value_and_grad(loss, has_aux=True)(variables)
    np.testing.assert_allclose(logits, want["logits"], **TOLERANCE)
    np.testing.assert_allclose(value, want["loss"], rtol=1e-5)
    check_gradients(folder, gradients, table_of(config), tmp_path)
    if "train/logits" in want:
        check_statistics(model, variables, config, want, tmp_path)


def check_statistics(model, variables, config, want, tmp_path):
    """A training step changes the running means and variances as torch does.

    torch multiplies the variance of n elements, which it adds to the running variance, by
    n / (n - 1); toile, as Flax, does not.
    """
    run = functools.partial(model.apply, train=True, mutable=["batch_stats"])
    logits, changed = run(variables, want["images"])
    np.testing.assert_allclose(logits, want["train/logits"], **TOLERANCE)
    huggingface.save(tmp_path / "after", {**variables, **changed}, {}, table_of(config))
    huggingface.save(tmp_path / "before", variables, {}, table_of(config))
    before, after = (huggingface.load_tensors(tmp_path / name) for name in ("before", "after"))
    for name in [n for n in after if n.endswith("running_mean")]:
        np.testing.assert_allclose(after[name], want[f"train/{name}"], err_msg=name, **TOLERANCE)
    for name in [n for n in after if n.endswith("running_var")]:
        old = 0.9 * before[name]
        factor = np.mean((want[f"train/{name}"] - old) / (after[name] - old))
        n = round(factor / (factor - 1))
        assert n in (3 * 14 * 14, 3 * 7 * 7, 3 * 4 * 4, 3 * 2 * 2), name
        unbiased = old + (after[name] - old) * n / (n - 1)
        np.testing.assert_allclose(unbiased, want[f"train/{name}"], err_msg=name, **TOLERANCE)


def check_matching(folder, tmp_path):
    model, variables, config = loaded(folder)
    want = answers(folder)

    def loss(variables):
        out = model.apply(variables, want["images"], want["tokens"], want["mask"])
        return layers.matching_loss(out.logits), out

    (value, out), gradients = toile.value_and_grad(loss, has_aux=True)(variables)
    np.testing.assert_allclose(out.logits, want["logits"], **TOLERANCE)
    np.testing.assert_allclose(out.images, want["image"], **TOLERANCE)
    np.testing.assert_allclose(out.texts, want["text"], **TOLERANCE)
    np.testing.assert_allclose(value, want["loss"], rtol=1e-5)
    check_gradients(folder, gradients, table_of(config), tmp_path)


CHECKS = {"labels": check_labels, "matching": check_matching}


@pytest.mark.parametrize("name", golden.CASES)
def test_models_compute_what_transformers_computed(name, tmp_path):
    CHECKS[golden.CASES[name].kind](golden.FOLDER / name, tmp_path)


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("name", golden.CASES)
def test_models_compute_what_transformers_computes(name, tmp_path):
    transformers = pytest.importorskip("transformers")
    golden.make(name, tmp_path / "made", seed=7)
    CHECKS[golden.CASES[name].kind](tmp_path / "made", tmp_path / "gradients")
    _, variables, config = loaded(tmp_path / "made")
    huggingface.save(tmp_path / "saved", variables, config, table_of(config), max_shard_size=9000)
    kind = getattr(transformers, golden.CASES[name].model)
    ours, theirs = (kind.from_pretrained(tmp_path / folder) for folder in ("saved", "made"))
    for (key, x), (_, y) in zip(
        ours.state_dict().items(), theirs.state_dict().items(), strict=True
    ):
        assert x.dtype == y.dtype and x.numpy().tobytes() == y.numpy().tobytes(), key


@pytest.mark.parametrize("most", [5_000_000_000, 3_000])
@pytest.mark.parametrize("name", golden.CASES)
def test_weights_there_and_back(name, most, tmp_path):
    folder = golden.FOLDER / name
    _, variables, config = loaded(folder)
    huggingface.save(tmp_path, variables, config, table_of(config), max_shard_size=most)
    stored = full_names(huggingface.load_tensors(folder), table_of(config))
    assert_same_tensors(huggingface.load_tensors(tmp_path), stored)
    assert len(list(tmp_path.glob("*.safetensors"))) > 1 or most > 3_000
    assert huggingface.load_config(tmp_path) == huggingface.load_config(folder)
    toile.tree.map(np.testing.assert_array_equal, models.load(tmp_path)[1], variables)


def with_pooler(tensors):
    ones = np.ones(16, np.float32)
    return tensors | {"vit.pooler.dense.weight": np.eye(16), "vit.pooler.dense.bias": ones}


def with_positions(tensors):
    towers = ("text_model", "vision_model")
    ids = {f"{name}.embeddings.position_ids": np.arange(9)[None] for name in towers}
    return tensors | ids


def with_counts(tensors):
    counts = {name: np.array(7) for name in tensors if name.endswith("num_batches_tracked")}
    assert counts
    return tensors | counts


def without_counts(tensors):
    return {name: x for name, x in tensors.items() if not name.endswith("num_batches_tracked")}


@pytest.mark.parametrize("name, changed", [
    ("vit", with_pooler), ("clip", with_positions), ("resnet_basic", with_counts),
    ("resnet_basic", without_counts),
])  # fmt: skip
def test_files_of_other_versions(name, changed, tmp_path):
    tensors = huggingface.load_tensors(golden.FOLDER / name)
    config = (golden.FOLDER / name / "config.json").read_text()
    (tmp_path / "config.json").write_text(config)
    safetensors.save_file(changed(tensors), tmp_path / "model.safetensors")
    got, want = models.load(tmp_path)[1], loaded(golden.FOLDER / name)[1]
    toile.tree.map(np.testing.assert_array_equal, got, want)


def check_images(found):
    for name in golden.PREPARED:
        settings = images.settings_of(json.loads(found[f"{name}/settings"].item()))
        got, want = images.prepare(found[f"{name}/image"], settings), found[f"{name}/ready"]
        assert got.shape == want.shape and got.dtype == want.dtype == np.float32
        level = 1 / 255 / np.float32(settings["image_std"])  # Pillow rounds twice
        apart = np.round(np.abs(got - want) / level, 3)
        assert set(np.unique(apart)) <= {0.0, 1.0} and np.mean(apart) < 0.25, name


def test_images_are_prepared_as_transformers_prepared_them():
    with np.load(golden.FOLDER.parent / "images.npz") as file:
        check_images(dict(file))


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_images_are_prepared_as_transformers_prepares_them():
    pytest.importorskip("transformers")
    check_images(golden.prepared())
