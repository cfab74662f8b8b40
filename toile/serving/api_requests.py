"""Requests in the form of OpenAI's API: JSON objects whose fields are checked."""

from __future__ import annotations

import dataclasses
import json
import math
import secrets
from collections.abc import Callable
from typing import Any

from toile.serving.generations import Settings

_STOPS, _STOP_LENGTH = 16, 256  # the largest number of stop strings, and of characters in one
# Fields that have no effect, and fields for which only the default is supported.
_IGNORED = {"user", "metadata"}
_UNSUPPORTED = {
    "echo": False, "logprobs": None, "top_logprobs": None, "logit_bias": None, "suffix": None,
    "best_of": None, "tools": None, "tool_choice": None, "functions": None,
    "function_call": None, "response_format": None, "parallel_tool_calls": None,
}  # fmt: skip
_COMMON = {
    "model", "max_tokens", "temperature", "top_p", "top_k", "min_p", "repetition_penalty",
    "presence_penalty", "frequency_penalty", "n", "stream", "stream_options", "stop", "seed",
}  # fmt: skip


class ApiError(Exception):
    """An error that the client sees, with its HTTP status."""

    def __init__(
        self, status: int, text: str, *, field: str | None = None, code: str | None = None,
        kind: str = "invalid_request_error", headers: dict[str, str] | None = None,
    ):  # fmt: skip
        super().__init__(text)
        self.status, self.headers = status, headers or {}
        self.body = {"error": {"message": text, "type": kind, "param": field, "code": code}}


@dataclasses.dataclass(frozen=True)
class Request:
    """A checked request; `prompts` are texts or lists of tokens."""

    prompts: list[str] | list[list[int]]
    settings: Settings
    count: int  # number of continuations of each prompt
    stops: list[str]
    stream: bool
    usage: bool  # whether a stream ends with the numbers of tokens
    seeded: bool
    chat: bool = False


def parsed(body: bytes) -> dict[str, Any]:
    """Return the JSON object of a body."""

    def constant(name: str) -> float:
        raise ApiError(400, f"needed a JSON object as the body, got invalid JSON: {name}")

    try:
        found = json.loads(body.decode(), parse_constant=constant)
    except (ValueError, RecursionError) as error:
        text = f"needed a JSON object as the body, got invalid JSON: {str(error)[:200]}"
        raise ApiError(400, text) from None
    if not isinstance(found, dict):
        raise ApiError(400, f"needed a JSON object as the body, got a {type(found).__name__}")
    return found


def completion_request(body: dict[str, Any], model: str, longest: int) -> Request:
    """Check the body of a request to /v1/completions."""
    _check_names(body, _COMMON | {"prompt"})
    return _request(body, model, longest, _prompts(body.get("prompt")), 16, "max_tokens")


def chat_request(
    body: dict[str, Any], model: str, longest: int, template: Callable[[list[dict]], str]
) -> Request:
    """Check the body of a request to /v1/chat/completions; the template creates the prompt."""
    _check_names(body, _COMMON | {"messages", "max_completion_tokens"})
    name = "max_completion_tokens" if "max_completion_tokens" in body else "max_tokens"
    messages = _messages(body.get("messages"))
    try:
        prompt = template(messages)
    except Exception as error:  # templates raise errors about the order of roles
        raise ApiError(400, f"the chat template rejects the messages: {error}",
                       field="messages") from None
    request = _request(body, model, longest, [prompt], None, name)
    return dataclasses.replace(request, chat=True)


def _request(
    body: dict[str, Any], model: str, longest: int, prompts: Any, usual: int | None, name: str
) -> Request:
    asked = body.get("model")
    if asked is not None and asked != model:
        raise ApiError(404, f"needed the model {model!r}, got {str(asked)[:100]!r}", field="model",
                       code="model_not_found")
    # Without a limit, chats continue up to the maximum length; 0 means this here.
    most = _integer(body, name, usual or 0, 1, longest)
    seed = _integer(body, "seed", None, -(2**63), 2**63 - 1)
    settings = Settings(
        max_tokens=most, seed=secrets.randbits(31) if seed is None else seed % 2**31,
        temperature=_number(body, "temperature", 1.0, 0, 100),
        top_p=_number(body, "top_p", 1.0, 1e-6, 1), min_p=_number(body, "min_p", 0.0, 0, 1),
        top_k=_integer(body, "top_k", 0, 0, 2**31 - 1),
        repetition_penalty=_number(body, "repetition_penalty", 1.0, 0.01, 100),
        presence_penalty=_number(body, "presence_penalty", 0.0, -2, 2),
        frequency_penalty=_number(body, "frequency_penalty", 0.0, -2, 2),
    )  # fmt: skip
    options = body.get("stream_options") or {}
    if not isinstance(options, dict):
        raise ApiError(400, "needed an object as stream_options", field="stream_options")
    return Request(
        prompts, settings, _integer(body, "n", 1, 1, 128), _stops(body.get("stop")),
        _boolean(body, "stream"), _boolean(options, "include_usage"), seed is not None,
    )  # fmt: skip


def _check_names(body: dict[str, Any], known: set[str]) -> None:
    for name, value in body.items():
        if name in _UNSUPPORTED and name not in known:
            if value not in (None, _UNSUPPORTED[name], [], {}):
                raise ApiError(400, f"{name} is not supported (leave it out)", field=name)
        elif name not in known | _IGNORED:
            raise ApiError(400, f"needed one of {', '.join(sorted(known))}, got the unknown field "
                           f"{name[:100]!r}", field=name[:100])


def _prompts(prompt: Any) -> list[str] | list[list[int]]:
    if isinstance(prompt, str):
        return [prompt]
    if isinstance(prompt, list) and prompt:
        if all(isinstance(x, str) for x in prompt):
            return prompt
        if _are_tokens(prompt):
            return [prompt]
        if all(isinstance(x, list) and x and _are_tokens(x) for x in prompt):
            return prompt
    raise ApiError(400, "needed a string, a list of strings, a list of tokens or a list of such "
                   "lists as prompt", field="prompt")


def _are_tokens(values: list[Any]) -> bool:
    return all(type(x) is int and 0 <= x < 2**31 for x in values)


def _messages(messages: Any) -> list[dict]:
    if not isinstance(messages, list) or not messages:
        raise ApiError(400, "needed a list of messages", field="messages")
    out = []
    for i, message in enumerate(messages):
        field = f"messages[{i}]"
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise ApiError(400, f"needed an object with a role and a content as {field}",
                           field=field)
        out.append({"role": message["role"], "content": _content(message.get("content"), field)})
    return out


def _content(content: Any, field: str) -> str:
    """Return the text of a message: a string, or a list of parts that are texts."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else [None]
    texts = [p.get("text") if isinstance(p, dict) and p.get("type") == "text" else None
             for p in parts]
    if not all(isinstance(text, str) for text in texts):
        raise ApiError(400, f"needed a text as the content of {field}", field=field)
    return "".join(str(text) for text in texts)


def _stops(stop: Any) -> list[str]:
    found = [] if stop is None else [stop] if isinstance(stop, str) else stop
    good = isinstance(found, list) and len(found) <= _STOPS
    if not good or not all(isinstance(s, str) and 0 < len(s) <= _STOP_LENGTH for s in found):
        raise ApiError(400, f"needed a string or a list of up to {_STOPS} strings of 1 to "
                       f"{_STOP_LENGTH} characters as stop", field="stop")
    return found


def _number(body: dict[str, Any], name: str, usual: float, low: float, high: float) -> float:
    value = body.get(name)
    if value is None:
        return usual
    good = type(value) in (int, float) and math.isfinite(value) and low <= value <= high
    if not good:
        raise ApiError(400, f"needed a number from {low} to {high} as {name}, got "
                       f"{str(value)[:50]!r}", field=name)
    return float(value)


def _integer(body: dict[str, Any], name: str, usual: Any, low: int, high: int) -> Any:
    value = body.get(name)
    if value is None:
        return usual
    if type(value) is not int or not low <= value <= high:
        raise ApiError(400, f"needed an integer from {low} to {high} as {name}, got "
                       f"{str(value)[:50]!r}", field=name)
    return value


def _boolean(body: dict[str, Any], name: str) -> bool:
    value = body.get(name)
    if value not in (None, True, False) or type(value) is int:
        raise ApiError(400, f"needed true or false as {name}", field=name)
    return bool(value)
