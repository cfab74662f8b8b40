"""Answers to checked requests: submits prompts, waits for tokens, and formats texts."""

from __future__ import annotations

import dataclasses
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from toile.generation.text_pieces import TextPieces
from toile.serving.api_requests import ApiError, Request
from toile.serving.connections import Disconnected
from toile.serving.generations import Busy, Engine, Generation

_POLL = 0.1  # seconds between two checks whether the client is still connected
_SEED_STEP = 1_000_003  # so that the continuations of one request have different seeds


class Tokenizer(Protocol):
    """Interface of objects that convert texts to tokens and back."""

    def encode(self, text: str) -> list[int]:
        """Convert a text to tokens."""
        ...

    def decode(self, tokens: list[int]) -> str:
        """Return the text that the tokens represent."""
        ...


class Choice:
    """One continuation, whose tokens are converted to text."""

    def __init__(self, index: int, generation: Generation, decode: Any, stops: list[str]):
        self.index, self.generation = index, generation
        self.reason: str | None = None
        self.tokens = 0
        self.text = ""
        self._pieces = TextPieces(decode, stops)

    def take(self, event: tuple[list[int], str | None]) -> str:
        """Add tokens, and return the new text."""
        tokens, reason = event
        self.tokens += len(tokens)
        new = self._pieces.push(tokens)
        if reason == "error":
            raise ApiError(500, "the engine failed (see the server's log)", kind="server_error")
        if reason is not None:
            new += self._pieces.finish()
            self.reason = reason
        if self._pieces.stopped is not None:
            self.reason = "stop"
            self.generation.cancel()
        self.text += new
        return new


class Answer:
    """The answer to one request, as one JSON object or as the events of a stream."""

    def __init__(
        self, engine: Engine, tokenizer: Tokenizer, model: str, request: Request, most: int,
        seconds: float,
    ):  # fmt: skip
        self._request, self._model, self._seconds = request, model, seconds
        self._end = time.monotonic() + seconds
        self.id = f"{'chatcmpl' if request.chat else 'cmpl'}-{uuid.uuid4().hex}"
        self.created = int(time.time())
        prompts = [
            p if isinstance(p, list) else _encoded(tokenizer, p, request.chat)
            for p in request.prompts
        ]
        if len(prompts) * request.count > most:
            raise ApiError(400, f"needed at most {most} continuations, got {len(prompts)} prompts "
                           f"with n={request.count}", field="n")
        generations = []
        for i in range(len(prompts) * request.count):
            prompt = prompts[i // request.count]
            seed = (request.settings.seed + i * _SEED_STEP) % 2**31
            settings = dataclasses.replace(request.settings, seed=seed)
            generations.append(Generation(prompt, _with_room(settings, prompt, engine.longest)))
        self._prompt_tokens = sum(map(len, prompts))
        self._choices = [
            Choice(i, g, tokenizer.decode, request.stops) for i, g in enumerate(generations)
        ]
        try:
            engine.submit(generations)
        except Busy as error:
            if not engine.status()["ok"]:
                raise ApiError(503, f"the server cannot answer: {error}",
                               kind="server_error") from None
            raise ApiError(429, f"the server is busy: {error} (try again later)",
                           kind="rate_limit_error", code="rate_limit_exceeded",
                           headers={"Retry-After": "1"}) from None

    def cancel(self) -> None:
        """Stop generating the unfinished continuations."""
        for choice in self._choices:
            if choice.reason is None:
                choice.generation.cancel()

    def whole(self, connected: Callable[[], bool]) -> dict[str, Any]:
        """Return the JSON object of the complete answer."""
        for _ in self._texts(connected):
            pass
        choices = []
        for choice in self._choices:
            message = {"role": "assistant", "content": choice.text}
            content = {"message": message} if self._request.chat else {"text": choice.text}
            choices.append({"index": choice.index, **content, "logprobs": None,
                            "finish_reason": choice.reason})
        kind = "chat.completion" if self._request.chat else "text_completion"
        return {**self._head(kind), "choices": choices, "usage": self._usage()}

    def events(self, connected: Callable[[], bool]) -> Iterator[dict[str, Any]]:
        """Yield the JSON objects of a stream."""
        kind = "chat.completion.chunk" if self._request.chat else "text_completion"
        last = {"usage": None} if self._request.usage else {}
        if self._request.chat:
            for choice in self._choices:
                part = _part(choice, True, {"role": "assistant", "content": ""}, None)
                yield {**self._head(kind), "choices": [part], **last}
        for choice, text in self._texts(connected):
            if text or choice.reason:
                content = {"content": text} if text else {}
                delta = content if self._request.chat else text
                part = _part(choice, self._request.chat, delta, choice.reason)
                yield {**self._head(kind), "choices": [part], **last}
        if self._request.usage:
            yield {**self._head(kind), "choices": [], "usage": self._usage()}

    def _texts(self, connected: Callable[[], bool]) -> Iterator[tuple[Choice, str]]:
        """Yield new texts of all choices, until all of them are finished."""
        running = list(self._choices)
        while running:
            for choice in running:
                wait = _POLL if len(running) == 1 else _POLL / len(running)
                event = choice.generation.get(wait)
                if event is not None:
                    text = choice.take(event)
                    if choice.reason == "cancelled":
                        raise ApiError(503, "the server is shutting down", kind="server_error")
                    yield choice, text
            running = [choice for choice in running if choice.reason is None]
            if running and not connected():
                raise Disconnected
            if running and time.monotonic() > self._end:
                raise ApiError(504, f"the answer was not complete after {self._seconds:g} seconds "
                               "(ask for fewer tokens)", kind="server_error", code="timeout")

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self._model}

    def _usage(self) -> dict[str, int]:
        tokens = sum(choice.tokens for choice in self._choices)
        return {"prompt_tokens": self._prompt_tokens, "completion_tokens": tokens,
                "total_tokens": self._prompt_tokens + tokens}


def _encoded(tokenizer: Tokenizer, text: str, chat: bool) -> list[int]:
    """Return the tokens of a text; chat templates already contain special tokens."""
    special = getattr(tokenizer, "encode_template", None)
    return list(special(text) if chat and special else tokenizer.encode(text))


def _part(choice: Choice, chat: bool, content: Any, reason: str | None) -> dict[str, Any]:
    named = {"delta": content} if chat else {"text": content}
    return {"index": choice.index, **named, "logprobs": None, "finish_reason": reason}


def _with_room(settings: Any, prompt: list[int], longest: int) -> Any:
    """Check the length of a prompt; a limit of 0 is replaced by the largest possible number."""
    room = longest - len(prompt)
    most = settings.max_tokens or max(room, 1)
    if not prompt:
        raise ApiError(400, "needed a prompt with at least one token, got an empty one",
                       field="prompt")
    if most > room:
        raise ApiError(
            400, f"needed at most {longest} tokens, got a prompt of {len(prompt)} tokens and "
            f"max_tokens={most}", field="prompt", code="context_length_exceeded",
        )  # fmt: skip
    return dataclasses.replace(settings, max_tokens=most)
