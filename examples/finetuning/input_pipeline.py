"""Data of the recipes: packed texts, pairs of answers, and windows with labels.

The included text is that of Python's help topics, on which the small base model is trained, and the
source code of Python's library, which it has not seen. You can use your own texts or chats.
"""

import json
import zipfile
from pathlib import Path

import numpy as np

from toile import finetuning
from toile.interop import huggingface
from toile.interop.chat_templates import ChatTemplate
from toile.training import datasets, text


def topics() -> tuple[list[str], list[str]]:
    """Return Python's help topics for training, and those that are held out."""
    file = datasets.shipped("python_topics/topics.txt", __file__)
    return text.split_off(text.documents_of_file(file), 9)


def library() -> tuple[list[str], list[str]]:
    """Return functions and classes of Python's library for training, and those held out."""
    with zipfile.ZipFile(datasets.shipped("python_library/library.zip", __file__)) as archive:
        names = sorted(name for name in archive.namelist() if name.endswith(".py"))
        sources = [archive.read(name).decode("ascii") for name in names]
    kept, held_out = text.split_off(sources, 9)
    cut = lambda files: [part for file in files for part in file.split("\n\n\n") if len(part) > 40]
    return cut(kept), cut(held_out)


def tokenizer(config):
    """Return the tokenizer of the folder of the base model, or bytes."""
    return huggingface.load_tokenizer(config.folder) if config.folder else text.Bytes()


def examples(config) -> tuple[list, list]:
    """Return the tokens of the texts, and which of them are trained, for training and held out."""
    tokens = tokenizer(config)
    if config.dataset == "chats":  # one JSON object with `messages` per line
        template = ChatTemplate.of_folder(config.folder)
        if template is None:
            raise ValueError(f"needed a folder with a chat template, got {config.folder!r}")
        lines = Path(config.file).read_text(encoding="utf-8").splitlines()
        chats = [json.loads(line)["messages"] for line in lines if line.strip()]
        encoded = [finetuning.encode_chat(template, tokens, chat) for chat in chats]
        return text.split_off(encoded, config.held_out)
    found = {
        "library": library,
        "topics": topics,
        "file": lambda: text.split_off(text.documents_of_file(config.file), config.held_out),
    }
    if config.dataset not in found:
        raise ValueError(
            "config.dataset: needed 'library', 'topics', 'file' or 'chats', got "
            f"{config.dataset!r}"
        )
    kept, held_out = found[config.dataset]()
    return pieces(tokens, kept, config.length), pieces(tokens, held_out, config.length)


def pieces(tokens, texts, length) -> list:
    """Return the tokens of texts in pieces of at most `length`, all of which are trained."""
    return [(ids, [True] * len(ids)) for one in map(tokens.encode, texts)
            for ids in (one[i : i + length] for i in range(0, len(one), length))]  # fmt: skip


def packed(config, prompt=()) -> tuple[dict, dict]:
    """Return packed rows for training and held-out rows; each text begins with `prompt`."""
    kept, held_out = (
        [(list(prompt) + list(ids), [False] * len(prompt) + list(flags)) for ids, flags in some]
        for some in examples(config)
    )
    length = config.length + len(prompt)
    return (finetuning.pack(kept, length, together=config.pack),
            finetuning.pack(held_out, length, together=config.pack))  # fmt: skip


def pairs(config) -> tuple[dict, dict]:
    """Return pairs of answers: the one in capital letters is preferred.

    The answer continues a line of a help topic. The base model has seen few capital letters.
    """
    encode, width = tokenizer(config).encode, config.length

    def rows(texts: list[str], count: int) -> dict:
        lines = [line.strip() for one in texts for line in one.splitlines() if len(line) > 60]
        chosen: list = []
        rejected: list = []
        for line in lines[:: max(1, len(lines) // count)][:count]:
            question, answer = encode(line[:36]), line[36:60]
            for end, out in ((answer.upper(), chosen), (answer.lower(), rejected)):
                own = encode(end)
                out.append((question + own, [False] * len(question) + [True] * len(own)))
        both = (("chosen", chosen), ("rejected", rejected))
        return {name: finetuning.pack(some, width, together=False) for name, some in both}

    kept, held_out = topics()
    return rows(kept, config.pairs), rows(held_out, config.pairs // 4)


def windows(config) -> tuple[dict, dict]:
    """Return windows of text, labelled 0 (help topics) or 1 (source code)."""
    encode = tokenizer(config).encode

    def rows(kinds: tuple, count: int) -> dict:
        numbers = np.random.default_rng(config.seed)
        tokens, labels = [], []
        for label, texts in enumerate(kinds):
            whole = "\n\n\n".join(texts)
            for start in numbers.integers(0, len(whole) - 4 * config.window, count):
                ids = encode(whole[start : start + 4 * config.window])[: config.window]
                tokens.append(ids)
                labels.append(label)
        packed = finetuning.pack(tokens, config.window, together=False)
        return {**packed, "labels": np.array(labels, np.int32)}

    (prose, prose_out), (code, code_out) = topics(), library()
    return rows((prose, code), config.windows), rows((prose_out, code_out), config.windows // 4)
