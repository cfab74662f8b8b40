"""The architectures: sizes, dropout, padding, images, and folders that are written and read."""

import functools
import json

import numpy as np
import pytest

import toile
from toile.interop import huggingface

from . import classify, images, models

TOWER = {
    "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
}  # fmt: skip
PATCHES = {"image_size": 12, "patch_size": 4}
CONFIGS: dict[str, dict] = {
    "vit": {**TOWER, **PATCHES, "num_labels": 5, "hidden_dropout_prob": 0.2},
    "resnet": {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 2], "num_labels": 5},
    "clip": {
        "text_config": {**TOWER, "vocab_size": 32, "max_position_embeddings": 12},
        "vision_config": {**TOWER, **PATCHES, "attention_dropout": 0.3}, "projection_dim": 8,
    },
    "convnext": {
        "hidden_sizes": [8, 12], "depths": [1, 2], "num_labels": 5, "drop_path_rate": 0.5,
        "layer_scale_init_value": 0.5,
    },
}  # fmt: skip


@functools.cache
def made(name):
    """A random model, its variables, its configuration and inputs."""
    config = {"model_type": name, **CONFIGS[name]}
    module = models.architecture(config)
    draw = np.random.default_rng(0)
    pixels, *rest = module.inputs(config)
    inputs = [draw.normal(size=(3, *pixels.shape[1:])).astype("float32")]
    inputs += [draw.integers(3, 30, (2, 7)) for _ in rest]
    model = module.model(config)
    return model, model.init(toile.random.key(0), *inputs), config, inputs


def logits_of(out):
    return getattr(out, "logits", out)


@pytest.mark.parametrize("name", CONFIGS)
def test_a_folder_that_is_written_is_read(name, tmp_path):
    _, variables, config, inputs = made(name)
    table = models.architecture(config).table(config)
    huggingface.save(tmp_path, variables, config, table)
    model, again, read = models.load(tmp_path, dtype="bfloat16")
    assert read["model_type"] == config["model_type"]
    want = toile.tree.map(lambda x: x.astype("bfloat16"), variables)
    toile.tree.map(np.testing.assert_array_equal, again, want)
    assert logits_of(model.apply(again, *inputs)).shape == (3, 2 if name == "clip" else 5)


@pytest.mark.parametrize("name", CONFIGS)
def test_images_of_a_batch_are_independent(name):
    model, variables, _, (pixels, *rest) = made(name)
    whole = logits_of(model.apply(variables, pixels, *rest))
    alone = logits_of(model.apply(variables, pixels[1:2], *rest))
    np.testing.assert_allclose(alone[0], whole[1], rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("name", ["vit", "clip", "convnext"])
def test_dropout_is_for_training(name):
    model, variables, _, inputs = made(name)
    run = functools.partial(model.apply, variables, *inputs)
    moved = run(train=True, rngs={"dropout": toile.random.key(1)})
    assert np.abs(logits_of(moved) - logits_of(run())).max() > 1e-4


def test_training_uses_the_statistics_of_the_batch_and_keeps_them():
    model, variables, _, (pixels,) = made("resnet")
    run = functools.partial(model.apply, train=True, mutable=["batch_stats"])
    logits, changed = run(variables, pixels)
    shifted, _ = run(variables, 3 * pixels)  # the first norm removes the factor
    np.testing.assert_allclose(shifted, logits, rtol=1e-3, atol=1e-4)
    moved = toile.tree.map(lambda x, y: np.abs(x - y).max(), changed, {
        "batch_stats": variables["batch_stats"]})  # fmt: skip
    assert min(toile.tree.leaves(moved)) > 0


@pytest.mark.parametrize("end", [30, 2])
def test_a_text_is_its_tokens_up_to_the_end(end):
    _, _, config, _ = made("clip")
    config = {**config, "text_config": {**config["text_config"], "eos_token_id": end}}
    model = models.clip.model(config)
    _, variables, _, _ = made("clip")
    tokens = np.array([[1, 5, 6, 30, 0, 0]])
    run = functools.partial(model.apply, variables, method="texts")
    short = run(tokens[:, :4])
    np.testing.assert_allclose(run(tokens, tokens > 0), short, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(run(tokens), short, rtol=1e-4, atol=1e-5)  # texts are causal
    assert np.abs(run(tokens[:, [0, 2, 1, 3]]) - short).max() > 1e-3
    np.testing.assert_allclose(np.linalg.norm(short), 1, rtol=1e-5)


@pytest.mark.parametrize("name", ["vit", "clip"])
def test_inputs_without_positions_are_errors(name):
    model, variables, _, (pixels, *rest) = made(name)
    with pytest.raises(
        ValueError, match=r"needed images \[batch, 12, 12, 3\], got \[3, 8, 12, 3\]"
    ):
        model.apply(variables, pixels[:, :8], *rest)
    if name == "clip":
        with pytest.raises(ValueError, match="needed texts of at most 12 tokens, got 13"):
            model.apply(variables, np.zeros((1, 13), int), method="texts")


def vit(features, layers, heads, patch, **more):
    """The entries of config.json of a ViT with 1000 classes."""
    return {
        "model_type": "vit", "hidden_size": features, "num_hidden_layers": layers,
        "num_attention_heads": heads, "intermediate_size": 4 * features, "patch_size": patch,
        "num_labels": 1000, **more,
    }  # fmt: skip


def resnet(kind, depths, sizes):
    """The entries of config.json of a ResNet with 1000 classes."""
    return {
        "model_type": "resnet", "embedding_size": 64, "hidden_sizes": sizes, "depths": depths,
        "layer_type": kind, "num_labels": 1000,
    }  # fmt: skip


CONVNEXT = {"model_type": "convnext", "depths": [3, 3, 9, 3], "hidden_sizes": [96, 192, 384, 768]}
LARGE = {
    "text_config_dict": {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072},
    "vision_config_dict": {
        "hidden_size": 1024,
        "num_attention_heads": 16,
        "patch_size": 14,
        "num_hidden_layers": 24,
        "intermediate_size": 4096,
    },
}


@pytest.mark.parametrize("config, parameters", [
    (vit(768, 12, 12, 16), 86_567_656),
    (vit(1024, 24, 16, 16), 304_326_632),
    (resnet("basic", [2, 2, 2, 2], [64, 128, 256, 512]), 11_689_512),
    (resnet("bottleneck", [3, 4, 6, 3], [256, 512, 1024, 2048]), 25_557_032),
    (resnet("bottleneck", [3, 8, 36, 3], [256, 512, 1024, 2048]), 60_192_808),
    ({**CONVNEXT, "num_labels": 1000}, 28_589_128),
    ({"model_type": "clip"}, 151_277_313),
    ({"model_type": "clip", "projection_dim": 768, **LARGE}, 427_616_513),
])  # fmt: skip
def test_published_models_have_their_numbers_of_parameters(config, parameters):
    module = models.architecture(config)
    model = module.model(config)
    shapes = toile.eval_shape(model.init, toile.random.key(0), *module.inputs(config))
    assert sum(x.size for x in toile.tree.leaves(shapes["params"])) == parameters


def test_an_architecture_that_no_file_implements_is_an_error():
    with pytest.raises(ValueError, match="needed one of clip, convnext.* got 'swin'"):
        models.architecture({"model_type": "swin"})


@pytest.mark.parametrize("settings, shape, size", [
    ({"feature_extractor_type": "ViTFeatureExtractor", "size": 8}, (20, 30), (8, 8)),
    ({"image_processor_type": "ViTImageProcessor", "size": {"height": 6, "width": 8}}, (5, 5),
     (6, 8)),
    ({"feature_extractor_type": "CLIPFeatureExtractor", "size": 8, "crop_size": 8}, (20, 30),
     (8, 8)),
    ({"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": 9},
      "do_center_crop": False}, (30, 20), (13, 9)),
    ({"feature_extractor_type": "ConvNextFeatureExtractor", "size": 7, "crop_pct": 0.875},
     (16, 20), (7, 7)),
    ({"feature_extractor_type": "ConvNextFeatureExtractor", "size": 384}, (16, 20), (384, 384)),
    ({"feature_extractor_type": "ViTFeatureExtractor", "do_resize": False}, (4, 5), (4, 5)),
])  # fmt: skip
def test_images_get_the_size_of_the_settings(settings, shape, size):
    image = np.full((*shape, 3), 255, np.uint8)
    settings = images.settings_of({**settings, "image_mean": [0.5, 0.25, 0.0]})
    x = images.prepare(image, settings)
    assert x.shape == (*size, 3) and x.dtype == np.float32
    want = (1 - np.array([0.5, 0.25, 0], np.float32)) / np.float32(settings["image_std"])
    np.testing.assert_allclose(x, np.broadcast_to(want, x.shape), rtol=1e-5)


@pytest.mark.parametrize("image, told", [
    (np.zeros((4, 4), np.uint8), r"uint8 \[4, 4\]"),
    (np.zeros((4, 4, 3), np.float32), "float32"),
    (np.zeros((3, 4, 4), np.uint8), r"\[3, 4, 4\]"),
])  # fmt: skip
def test_other_arrays_are_not_images(image, told):
    with pytest.raises(ValueError, match=told):
        images.prepare(image, images.settings_of({"image_processor_type": "ViTImageProcessor"}))


def test_wrong_settings_are_errors():
    with pytest.raises(ValueError, match="needed a processor of ViT.* got 'Other'"):
        images.settings_of({"image_processor_type": "Other"})
    small = {"image_processor_type": "CLIPImageProcessor", "size": 4, "crop_size": 8}
    with pytest.raises(ValueError, match="needed an image of at least 8 x 8"):
        images.prepare(np.zeros((9, 9, 3), np.uint8), images.settings_of(small))


def write_folder(folder, name, processor):
    """Write a folder of a model, two images, and return the images."""
    model, variables, config, _ = made(name)
    huggingface.save(folder, variables, config, models.architecture(config).table(config))
    settings = {"image_processor_type": processor, "size": {"height": 12, "width": 12}}
    (folder / "preprocessor_config.json").write_text(json.dumps({**settings, "crop_size": 12}))
    found = np.random.default_rng(1).integers(0, 256, (2, 12, 12, 3)).astype(np.uint8)
    for i, image in enumerate(found):
        np.save(folder / f"{i}.npy", image)
    return model, variables, found


def test_images_are_classified(tmp_path):
    model, variables, found = write_folder(tmp_path, "vit", "ViTImageProcessor")
    rows = classify.probabilities(tmp_path, [tmp_path / "0.npy", tmp_path / "1.npy"])
    logits = np.asarray(model.apply(variables, found / np.float32(127.5) - 1))
    for row, want in zip(rows, logits, strict=True):
        assert [label for label, _ in row] == [f"label {i}" for i in np.argsort(-want)]
        np.testing.assert_allclose(sum(share for _, share in row), 1, rtol=1e-5)
    with pytest.raises(ValueError, match="needed no --label for vit"):
        classify.probabilities(tmp_path, [tmp_path / "0.npy"], ["a cat"])


def test_a_picture_file_is_read(tmp_path):
    pillow = pytest.importorskip("PIL.Image")
    image = np.random.default_rng(1).integers(0, 256, (5, 4, 3)).astype(np.uint8)
    pillow.fromarray(image).save(tmp_path / "image.png")
    np.testing.assert_array_equal(images.read(tmp_path / "image.png"), image)


def test_clip_chooses_among_texts(tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    model, variables, found = write_folder(tmp_path, "clip", "CLIPImageProcessor")
    with pytest.raises(ValueError, match="needed texts for CLIP"):
        classify.probabilities(tmp_path, [tmp_path / "0.npy"])
    words = {f"w{i}": i for i in range(32)}
    raw = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="w0"))
    raw.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    raw.save(str(tmp_path / "tokenizer.json"))
    texts = ["w1 w5 w6 w31", "w1 w7 w31", "w1 w8 w9 w31"]
    rows = classify.probabilities(tmp_path, [tmp_path / "0.npy"], texts)
    pixels = images.prepare(found[0], images.load_settings(tmp_path))[None]
    tokens = [[[1, 5, 6, 31]], [[1, 7, 31]], [[1, 8, 9, 31]]]
    want = [float(model.apply(variables, pixels, np.array(t)).logits[0, 0]) for t in tokens]
    assert [texts.index(text) for text, _ in rows[0]] == np.argsort(-np.array(want)).tolist()
