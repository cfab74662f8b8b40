"""The tokens of chats, and which of them a model is trained to predict."""

from __future__ import annotations

from typing import Any

from toile.interop.chat_templates import ChatTemplate, Messages
from toile.interop.huggingface import Tokenizer
from toile.training.text import Bytes, SentencePiece

__all__ = ["encode_chat"]


def encode_chat(
    template: ChatTemplate, tokenizer: Tokenizer | Bytes | SentencePiece, messages: Messages,
    **variables: object,
) -> tuple[list[int], list[bool]]:
    """Convert a chat to tokens, and mark the tokens that the assistant writes.

    Args:
        template: the chat template. If it contains no `{% generation %}` block, the end of each
            assistant message is also marked.
        tokenizer: a tokenizer of `toile.interop.huggingface` or `toile.training.text`, or any
            object with a method `encode`.
        messages: the messages of the chat, dicts such as `{"role": "user", "content": "Hello"}`.
        **variables: values of other variables in the template.

    Returns:
        The tokens, and a list of bools that are True for the marked tokens. `pack` accepts such
        pairs.

    Raises:
        ValueError: the template does not show what the assistant writes; see
            `ChatTemplate.parts`.

    >>> from toile.finetuning import encode_chat
    >>> from toile.interop.chat_templates import ChatTemplate
    >>> from toile.training.text import Bytes
    >>> template = ChatTemplate(
    ...     "{% for m in messages %}{{ m.role[0] }}{{ m.content }}{% endfor %}"
    ...     "{% if add_generation_prompt %}a{% endif %}")
    >>> chat = [{"role": "user", "content": "2"}, {"role": "assistant", "content": "4"}]
    >>> tokens, trained = encode_chat(template, Bytes(), chat)
    >>> Bytes().decode(tokens), trained
    ('u2a4', [False, False, False, True])
    """
    parts = template.parts(messages, **variables)
    if hasattr(tokenizer, "encode_with_places"):
        return _with_places(parts, tokenizer)
    tokens: list[int] = []
    trained: list[bool] = []
    for text, written in parts:
        found = list(tokenizer.encode(text))
        tokens += found
        trained += [written] * len(found)
    return tokens, trained


def _with_places(
    parts: list[tuple[str, bool]], tokenizer: Any
) -> tuple[list[int], list[bool]]:
    """Convert the whole text at once; a token is marked if its first character is."""
    flags = [written for text, written in parts for _ in text]
    tokens, places = tokenizer.encode_with_places("".join(text for text, _ in parts))
    return tokens, [start < end and flags[start] for start, end in places]
