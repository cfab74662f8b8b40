"""Makes small random models of images with transformers, and what they compute.

`python -m tests.golden.huggingface_vision [NAME ...]` needs transformers and torch. It writes a
folder for each model to `tests/golden/pretrained`: the files that transformers writes, and
`answers.npz` with inputs, logits, losses and gradients. `images.npz` contains images that the
processors of transformers prepared, which needs Pillow.
"""

import json
import sys
import tempfile
from pathlib import Path

import numpy as np

from tests.golden.huggingface import FOLDER, Case, write

TRANSFORMER = {
    "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
}  # fmt: skip
PATCHES = {"image_size": 12, "patch_size": 4}
STAGES = {"embedding_size": 8, "depths": [2, 1], "num_labels": 5}
TEXT = {
    **TRANSFORMER, "vocab_size": 32, "max_position_embeddings": 12, "bos_token_id": 1,
    "pad_token_id": 0,
}  # fmt: skip
CASES = {
    "vit": Case("ViTForImageClassification", {**TRANSFORMER, **PATCHES, "num_labels": 5}, "labels"),
    "vit_without_bias": Case("ViTForImageClassification", {
        **TRANSFORMER, "num_hidden_layers": 1, "image_size": [8, 12], "patch_size": [4, 6],
        "qkv_bias": False, "hidden_act": "relu",
    }, "labels"),
    "resnet_basic": Case("ResNetForImageClassification", {
        **STAGES, "layer_type": "basic", "hidden_sizes": [8, 12],
    }, "labels"),
    "resnet_bottleneck": Case("ResNetForImageClassification", {
        **STAGES, "hidden_sizes": [16, 24], "downsample_in_first_stage": True,
    }, "labels", "sharded"),
    "resnet_first_stride": Case("ResNetForImageClassification", {
        **STAGES, "depths": [1, 1], "hidden_sizes": [16, 24], "downsample_in_bottleneck": True,
    }, "labels"),
    "clip": Case("CLIPModel", {
        "text_config": {**TEXT, "eos_token_id": 30}, "projection_dim": 8,
        "vision_config": {**TRANSFORMER, **PATCHES, "hidden_size": 24},
    }, "matching"),
    "clip_highest_token": Case("CLIPModel", {
        "text_config": {**TEXT, "eos_token_id": 2, "hidden_act": "gelu"}, "projection_dim": 8,
        "vision_config": {**TRANSFORMER, **PATCHES, "num_hidden_layers": 1, "hidden_act": "gelu"},
    }, "matching"),
    "convnext": Case("ConvNextForImageClassification", {
        "num_stages": 2, "hidden_sizes": [8, 12], "depths": [1, 2], "num_labels": 5,
    }, "labels"),
    "convnext_without_scales": Case("ConvNextForImageClassification", {
        "num_stages": 1, "hidden_sizes": [8], "depths": [1], "layer_scale_init_value": 0.0,
        "hidden_act": "relu", "patch_size": 3,
    }, "labels"),
}  # fmt: skip


PREPARED = {  # processors of images, their settings, and the shapes of images
    "vit": ("ViTImageProcessorPil", {"size": {"height": 9, "width": 8}}, (20, 13)),
    "vit_larger": ("ViTImageProcessorPil", {"size": {"height": 16, "width": 16}}, (7, 9)),
    "clip": ("CLIPImageProcessorPil", {"size": {"shortest_edge": 9}, "crop_size": 8}, (17, 24)),
    "clip_nearest": ("CLIPImageProcessorPil", {
        "size": {"shortest_edge": 8}, "crop_size": 8, "resample": 0}, (24, 16)),
    "convnext": ("ConvNextImageProcessorPil", {"size": {"shortest_edge": 12}}, (25, 33)),
    "convnext_crop": ("ConvNextImageProcessorPil", {
        "size": {"shortest_edge": 9}, "crop_pct": 0.6, "resample": 2}, (31, 25)),
}  # fmt: skip


def make(name: str, folder: Path, seed: int = 0) -> None:
    """Write the model and its answers to a folder."""
    import torch
    import transformers

    case = CASES[name]
    torch.manual_seed(seed)
    made = getattr(transformers, case.model)
    config = made.config_class(**case.config)
    config._attn_implementation = "eager"
    model = made(config).eval()
    with torch.no_grad():  # norms and biases would be ones and zeros
        for x in model.parameters():
            x.copy_(x.mean() + 0.25 * torch.randn(x.shape))
        for key, x in model.named_buffers():
            if key.endswith("running_mean"):
                x.copy_(0.25 * torch.randn(x.shape))
            elif key.endswith("running_var"):
                x.copy_(0.5 + 0.5 * torch.rand(x.shape))
    model.tie_weights()
    folder.mkdir(parents=True, exist_ok=True)
    write(model, folder, case.weights)
    answers = ANSWERS[case.kind](model, np.random.default_rng(seed))
    np.savez_compressed(folder / "answers.npz", **answers)


def saved_gradients(model, loss) -> dict[str, np.ndarray]:
    """Return the gradients by the names of parameters in files; the parameters are lost.

    transformers saves some parameters under other names than those they have in its modules.
    """
    import torch
    from safetensors.numpy import load_file

    model.zero_grad()
    loss.backward()
    with torch.no_grad():
        for x in model.parameters():
            x.copy_(torch.full_like(x, torch.nan) if x.grad is None else x.grad)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        tensors = load_file(Path(folder) / "model.safetensors")
    buffers = {name for name, _ in model.named_buffers()}
    return {f"grad/{n}": x for n, x in tensors.items() if n not in buffers and x.sum() == x.sum()}


def images(rng, config, number=3) -> np.ndarray:
    """Return random images [batch, channels, height, width]."""
    config = getattr(config, "vision_config", config)
    size = 28 if config.model_type in ("resnet", "convnext") else config.image_size
    height, width = (size, size) if isinstance(size, int) else size
    return rng.normal(size=(number, 3, height, width)).astype(np.float32)


def _labels(model, rng) -> dict[str, np.ndarray]:
    """Logits, loss and gradients of a classifier, also for training if it has batch norms."""
    import torch

    given = images(rng, model.config)
    labels = rng.integers(0, model.config.num_labels, len(given))
    run = lambda: model(pixel_values=torch.tensor(given), labels=torch.tensor(labels))
    out = {"images": given.transpose(0, 2, 3, 1), "labels": labels}
    statistics = [n for n, _ in model.named_buffers() if "running" in n]
    if statistics:
        before = {name: x.clone() for name, x in model.state_dict().items()}
        model.train()
        out["train/logits"] = run().logits.detach().numpy()
        after = model.state_dict()
        out |= {f"train/{name}": after[name].numpy().copy() for name in statistics}
        model.load_state_dict(before)
        model.eval()
    done = run()
    out |= {"logits": done.logits.detach().numpy(), "loss": done.loss.item()}
    return out | saved_gradients(model, done.loss)


def _matching(model, rng) -> dict[str, np.ndarray]:
    """Vectors, similarities, loss and gradients of images and texts, with padding."""
    import torch

    given = images(rng, model.config)
    tokens = rng.integers(3, 30, (3, 7))
    mask = np.arange(7) < [[7], [5], [4]]
    tokens[np.arange(3), mask.sum(1) - 1] = 30
    tokens = np.where(mask, tokens, 0)
    done = model(
        input_ids=torch.tensor(tokens), attention_mask=torch.tensor(mask.astype(int)),
        pixel_values=torch.tensor(given), return_loss=True,
    )
    out = {"logits": done.logits_per_image, "image": done.image_embeds, "text": done.text_embeds}
    out = {name: x.detach().numpy().copy() for name, x in out.items()}
    out |= {"images": given.transpose(0, 2, 3, 1), "tokens": tokens, "mask": mask}
    return out | {"loss": done.loss.item()} | saved_gradients(model, done.loss)


ANSWERS = {"labels": _labels, "matching": _matching}


def prepared() -> dict[str, np.ndarray]:
    """Images before and after their preparation, and the settings of their processors."""
    import transformers

    rng, out = np.random.default_rng(0), {}
    for name, (processor, settings, shape) in PREPARED.items():
        made = getattr(transformers, processor)(**settings)
        noise = rng.integers(0, 256, (*shape, 3)).astype(np.uint8)
        ready = made(noise, input_data_format="channels_last")["pixel_values"][0]
        told = json.dumps(json.loads(made.to_json_string()))
        out |= {f"{name}/image": noise, f"{name}/settings": np.array(told),
                f"{name}/ready": np.asarray(ready).transpose(1, 2, 0)}
    return out


def main(names: list[str]) -> None:
    """Write the folders of the named models, or of all, and the images."""
    np.savez_compressed(FOLDER.parent / "images.npz", **prepared())
    for name in names or CASES:
        make(name, FOLDER / name)
        size = sum(path.stat().st_size for path in (FOLDER / name).iterdir())
        print(f"{name}: {size / 1000:.0f} kB")


if __name__ == "__main__":
    main(sys.argv[1:])
