"""Chat templates, which turn the messages of a chat into one text.

Hugging Face folders contain them as Jinja templates. They may come from untrusted sources, so they
run in Jinja's sandbox.
"""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from toile.engine.source import here

__all__ = ["ChatTemplate"]

_PRIVATE = range(0xE000, 0xF8FF)  # characters that mark the start and end of a block
_MARKS = "marks_of_toile"
Messages = Sequence[Mapping[str, Any]]


class ChatTemplate:
    """A Jinja template that turns the messages of a chat into one text.

    A message is a dict such as `{"role": "user", "content": "Hello"}`. The template may use the
    function `raise_exception(text)`, and the block `{% generation %} ... {% endgeneration %}`
    around text that the model writes.

    Args:
        source: text of the template.
        variables: values of variables in the template, such as `{"bos_token": "<s>"}`; None if
            it needs no variables.

    Raises:
        ImportError: the package jinja2 is not installed.

    >>> from toile.interop.chat_templates import ChatTemplate
    >>> template = ChatTemplate(
    ...     "{% for m in messages %}[{{ m.role }}]{{ m.content }}|{% endfor %}"
    ...     "{% if add_generation_prompt %}[assistant]{% endif %}")
    >>> chat = [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]
    >>> template.render(chat[:1], add_generation_prompt=True)
    '[user]2+2?|[assistant]'
    >>> template.parts(chat)
    [('[user]2+2?|[assistant]', False), ('4|', True)]
    """

    def __init__(self, source: str, variables: Mapping[str, Any] | None = None):
        self._source = source
        self._template, self._has_blocks = _compiled(source)
        self.variables = dict(variables or {})

    @classmethod
    def of_folder(cls, folder: str | os.PathLike[str]) -> ChatTemplate | None:
        """Read the chat template of a model.

        Args:
            folder: path of a folder with `chat_template.jinja` or `tokenizer_config.json`.

        Returns:
            The template; None if the folder contains no template.
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
        special = ("bos_token", "eos_token", "pad_token")
        return cls(source, {name: _text(names.get(name)) for name in special})

    def render(
        self, messages: Messages, *, add_generation_prompt: bool = False, **variables: Any
    ) -> str:
        """Turn messages into one text.

        Args:
            messages: the messages of the chat.
            add_generation_prompt: whether the text ends with the start of a message that the model
                is to write.
            **variables: values of other variables in the template.

        Returns:
            The text.
        """
        return "".join(text for text, _ in self._pieces(
            messages, add_generation_prompt=add_generation_prompt, **variables))

    def parts(self, messages: Messages, **variables: Any) -> list[tuple[str, bool]]:
        """Divide the text of a chat into the parts that the model writes and all other parts.

        If the template contains `{% generation %}` blocks, these are what the model writes.
        Otherwise, the template renders the chat up to each message of the role "assistant", with
        and without the message; the difference is what the model writes.

        Args:
            messages: the messages of the chat.
            **variables: values of other variables in the template.

        Returns:
            A list of pairs (text, whether the model writes it). The texts together are the result
            of `render`.

        Raises:
            ValueError: the template has no `{% generation %}` block, and the text of earlier
                messages changes when messages are added.
        """
        pieces = self._pieces(messages, **variables)
        if self._has_blocks:
            return [piece for piece in pieces if piece[0]]
        whole = "".join(text for text, _ in pieces)
        out: list[tuple[str, bool]] = []
        done = 0
        for i, message in enumerate(messages):
            if message.get("role") != "assistant":
                continue
            start = self.render(messages[:i], add_generation_prompt=True, **variables)
            end = self.render(messages[: i + 1], **variables)
            if not (whole.startswith(end) and end.startswith(start) and len(start) >= done):
                raise ValueError(
                    "ChatTemplate.parts: needed a template that keeps the text of earlier messages "
                    f"when it adds message {i}, got a different text (write {{% generation %}} ... "
                    f"{{% endgeneration %}} around what the model writes){here()}")
            out += [(whole[done : len(start)], False), (whole[len(start) : len(end)], True)]
            done = len(end)
        out.append((whole[done:], False))
        return [piece for piece in out if piece[0]]

    def _pieces(self, messages: Messages, **variables: Any) -> list[tuple[str, bool]]:
        """The pieces of the text, and whether they are from a `{% generation %}` block."""
        given = {"add_generation_prompt": False, **self.variables, **variables}
        texts = json.dumps((messages, given), default=str, ensure_ascii=False, skipkeys=True)
        shown = texts + self._source
        begin, end = itertools.islice((c for c in map(chr, _PRIVATE) if c not in shown), 2)
        text = self._template.render(messages=messages, **given, **{_MARKS: (begin, end)})
        out: list[tuple[str, bool]] = []
        for i, piece in enumerate(text.split(begin)):
            inside, found, after = piece.partition(end)
            out += [(inside, True), (after, False)] if i and found else [(piece, bool(i))]
        return out


def _compiled(source: str) -> tuple[Any, bool]:
    """Return the template of Jinja, and whether it has `{% generation %}` blocks."""
    try:
        from jinja2 import nodes
        from jinja2.ext import Extension
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ImportError as error:
        raise ImportError(
            "ChatTemplate: needed the package jinja2 for a chat template, which is not installed: "
            "pip install 'toile[serve]'"
        ) from error
    blocks: list[int] = []

    class Generation(Extension):
        """The block `{% generation %}`."""

        tags = {"generation"}

        def parse(self, parser: Any) -> Any:
            """Parse a block."""
            line = next(parser.stream).lineno
            blocks.append(line)
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            call = self.call_method("marked", [nodes.ContextReference()])
            return nodes.CallBlock(call, [], [], body).set_lineno(line)

        def marked(self, context: Any, caller: Any) -> str:
            """Put marks around the text of a block."""
            begin, end = context[_MARKS]
            return f"{begin}{caller()}{end}"

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True,
        extensions=[Generation, "jinja2.ext.loopcontrols"],
    )  # fmt: skip
    environment.filters["tojson"] = _json
    environment.globals |= {"raise_exception": _fail, "strftime_now": time.strftime}
    return environment.from_string(source), bool(blocks)


def _fail(text: str) -> str:
    raise ValueError(text)


def _json(x: Any, indent: int | None = None, **options: Any) -> str:
    """The JSON text of a value; Jinja's own filter replaces characters of HTML."""
    return json.dumps(x, indent=indent, **{"ensure_ascii": False, **options})


def _text(token: Any) -> str:
    return token.get("content", "") if isinstance(token, dict) else token or ""
