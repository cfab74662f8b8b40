"""Functions that create a server for the model in a Hugging Face folder."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from toile.engine.source import here
from toile.interop import huggingface
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
    """Return the chat template of a folder as a function of messages, or None if it has none.

    Templates may come from untrusted sources, so they run in Jinja's sandbox.
    """
    path, config = Path(folder), Path(folder) / "tokenizer_config.json"
    names = json.loads(config.read_text(encoding="utf-8")) if config.is_file() else {}
    source = names.get("chat_template")
    if (path / "chat_template.jinja").is_file():
        source = (path / "chat_template.jinja").read_text(encoding="utf-8")
    if isinstance(source, list):  # several templates with names
        source = {one["name"]: one["template"] for one in source}.get("default")
    if not isinstance(source, str):
        return None
    try:
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ImportError as error:
        raise ImportError(
            "serve: needed the package jinja2 for the chat template of the folder, which is not "
            "installed: pip install 'toile[serve]'"
        ) from error
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)

    def fail(text: str) -> str:
        raise ValueError(text)

    environment.globals["raise_exception"] = fail
    template = environment.from_string(source)
    special = {name: _text(names.get(name)) for name in ("bos_token", "eos_token", "pad_token")}
    return lambda messages: template.render(
        messages=messages, add_generation_prompt=True, **special
    )


def _text(token: Any) -> str:
    return token.get("content", "") if isinstance(token, dict) else token or ""
