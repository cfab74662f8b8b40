"""Functions that create a server for the model in a Hugging Face folder."""

from __future__ import annotations

import functools
import importlib
import os
import sys
from collections.abc import Callable
from typing import Any

from toile.engine.source import here
from toile.interop import huggingface
from toile.interop.chat_templates import ChatTemplate
from toile.serving.batch_engine import BatchEngine

LOADERS = ("language_model.models:load", "examples.language_model.models:load")


class FolderTokenizer:
    """The tokenizer of a folder, with a method for texts that a chat template has created."""

    def __init__(self, tokenizer: huggingface.Tokenizer):
        self._tokenizer = tokenizer

    def encode(self, text: str) -> list[int]:
        """Convert a text to tokens, with the special tokens of the model."""
        return self._tokenizer.encode(text)

    def encode_template(self, text: str) -> list[int]:
        """Convert a text that already contains special tokens to tokens."""
        return self._tokenizer.encode(text, special=False)

    def decode(self, tokens: list[int]) -> str:
        """Return the text that the tokens represent, without special tokens."""
        return self._tokenizer.decode(tokens)


def engine_of(
    folder: str | os.PathLike[str], *, loader: str | None = None, dtype: str | None = None,
    slots: int = 8, longest: int = 2048, waiting: int = 64,
) -> BatchEngine:  # fmt: skip
    """Load the model in a folder, and return an engine for it."""
    model, variables, config = function_of(loader)(folder, dtype=dtype)
    most = config.get("max_position_embeddings") or config.get("n_positions") or longest
    ids = {**config, **huggingface.load_generation_config(folder)}
    ends = ids.get("eos_token_id")
    stops = ends if isinstance(ends, list) else [] if ends is None else [ends]
    return BatchEngine(
        model, variables, slots=slots, longest=min(longest, most), waiting=waiting,
        stop_tokens=stops,
    )  # fmt: skip


def function_of(loader: str | None) -> Callable[..., Any]:
    """Return the function that loads a model, which is written as MODULE:FUNCTION."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    for place in (loader,) if loader else LOADERS:
        module, _, name = place.partition(":")
        try:
            return getattr(importlib.import_module(module), name or "load")
        except ModuleNotFoundError as error:
            if error.name is None or not module.startswith(error.name):
                raise
    raise ImportError(
        f"serve: needed a function load(folder, dtype) that returns a module, its variables and "
        f"its configuration, got none at {loader or ' or '.join(LOADERS)} (run `toile new "
        f"language_model project` and start the server in the folder project, or pass "
        f"--loader MODULE:FUNCTION){here()}"
    )


def template_of(folder: str | os.PathLike[str]) -> Callable[[list[dict]], str] | None:
    """Return the chat template of a folder as a function of messages, or None if it has none."""
    template = ChatTemplate.of_folder(folder)
    if template is None:
        return None
    return functools.partial(template.render, add_generation_prompt=True)
