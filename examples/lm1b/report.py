"""The report of a finished run: model, curves, samples, baselines, next steps."""

import lzma
import math
from pathlib import Path

import toile.numpy as jnp
from toile import random
from toile.training.report import Report

from . import input_pipeline, train


def order(texts, held_out, size: int) -> float:
    """Return the bits per byte of held-out texts for a model that sees `size` previous bytes.

    The predictions use counts with Witten-Bell interpolation: a context has more weight if fewer
    different bytes followed it per occurrence, and the next shorter context has the remaining
    weight.
    """
    counts: list[dict[bytes, dict[int, int]]] = [{} for _ in range(size + 1)]
    for data in (text.encode() for text in texts):
        for i, byte in enumerate(data):
            for n in range(min(size, i) + 1):
                seen = counts[n].setdefault(data[i - n : i], {})
                seen[byte] = seen.get(byte, 0) + 1
    bits, total = 0.0, 0
    for data in (text.encode() for text in held_out):
        for i, byte in enumerate(data):
            chance = 1 / 256
            for n in range(min(size, i) + 1):
                followed = counts[n].get(data[i - n : i])
                if followed is None:
                    break
                occurred, kinds = sum(followed.values()), len(followed)
                chance = (followed.get(byte, 0) + kinds * chance) / (occurred + kinds)
            bits -= math.log2(chance)
        total += len(data)
    return bits / total


def compressed(texts, held_out) -> float:
    """Return the bits per byte of held-out texts when xz compresses them after the other texts."""
    before = "\n".join(texts).encode()
    whole = before + "\n".join(held_out).encode()
    return 8 * (len(lzma.compress(whole)) - len(lzma.compress(before))) / (len(whole) - len(before))


def show(config, workdir, state) -> float:
    """Print the report, and write report.html and curve.png.

    Returns the bits per byte of the held-out text.
    """
    tokens, _, held_out, text_bytes = input_pipeline.loaders(config, random.key(0))
    result = train.evaluate(state, held_out, text_bytes)
    model = train.create_model(config, tokens.size)
    page = Report.of(workdir, config, title="Language model", echo=True)
    row = jnp.zeros((1, config.length), jnp.int32)
    page.layers(model, random.key(0), row, row, depth=1)
    page.curve("train_loss", "training loss by step", log=True)
    panels = {
        "nats per token": {"train": "train_loss", "held out": "eval_loss"},
        "bits per byte, held out": {"": "eval_bits_per_byte"},
    }
    page.picture(Path(workdir) / "curve.png", panels)

    texts = train.samples(config, state, tokens)
    page.text(
        f"samples (temperature {config.sample_temperature}, top {config.sample_top_k})",
        "\n".join("\n  | " + text.replace("\n", "\n  | ") for text in texts),
    )
    bits = result["bits_per_byte"]
    page.text("", f"\nbits per byte of {text_bytes} held-out bytes: {bits:.3f}")
    if config.dataset == "topics":
        train_texts, texts = input_pipeline.documents(config)
        known = {f"order {n}": order(train_texts, texts, n) for n in (0, 1, 2, 4)}
        known["xz"] = compressed(train_texts, texts)
        page.text("", "  " + ", ".join(f"{name} {value:.3f}" for name, value in known.items()))
    page.checkpoints(workdir)
    page.write(Path(workdir) / "report.html")
    print(NEXT.format(package=__package__, workdir=workdir))
    return bits


NEXT = """
what to try next
  your own text           python -m {package}.main --workdir=runs/mine --config.dataset=file \\
                              --config.train_file=a.txt --config.test_file=b.txt
  One Billion Words       python -m {package}.main --workdir=runs/lm1b_full \\
                              --config=examples/lm1b/configs/default.py
  watch the training      tensorboard --logdir={workdir}
  make it yours           cp -r examples/lm1b mine, edit mine/train.py, python -m mine.main
"""
