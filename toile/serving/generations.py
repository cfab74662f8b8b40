"""The interface between the server and an engine, which generates tokens for prompts."""

from __future__ import annotations

import dataclasses
import queue
import time
from collections.abc import Sequence
from typing import Any, Protocol


class Busy(Exception):
    """The queue of waiting prompts is full.

    >>> from toile.serving import Busy
    >>> issubclass(Busy, Exception)
    True
    """


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings for generating the continuation of one prompt.

    Args:
        max_tokens: largest number of tokens to generate.
        temperature, top_k, top_p, min_p: parameters of the samplers of these names in
            `toile.generation`. With a temperature of 0, the most likely token is chosen. With a
            `top_k` of 0, all tokens are kept.
        repetition_penalty, presence_penalty, frequency_penalty: penalties for tokens that
            occur in the prompt or the continuation.
        seed: number from which the random key is derived.

    >>> from toile.serving import Settings
    >>> Settings(max_tokens=5, temperature=0.0).top_p
    1.0
    """

    max_tokens: int
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int = 0


class Generation:
    """The tokens that an engine generates for one prompt.

    The engine calls `add` and `end`; the server calls `get` and `cancel`. All methods may be called
    from any thread.

    Args:
        prompt: the tokens of the prompt.
        settings: settings for the continuation.

    >>> from toile.serving import Generation, Settings
    >>> one = Generation([1, 2], Settings(max_tokens=3))
    >>> one.add([7, 8]), one.end("length")
    (None, None)
    >>> one.get(), one.get()
    (([7, 8], None), ([], 'length'))
    """

    def __init__(self, prompt: Sequence[int], settings: Settings):
        self.prompt, self.settings = list(prompt), settings
        self.cancelled = False
        self._events: queue.SimpleQueue[tuple[list[int], str | None]] = queue.SimpleQueue()

    def add(self, tokens: list[int]) -> None:
        """Add tokens.

        Args:
            tokens: the new tokens, without a stop token.
        """
        self._events.put((tokens, None))

    def end(self, reason: str) -> None:
        """Report that there are no more tokens.

        Args:
            reason: `"stop"`, `"length"`, `"cancelled"`, or `"error"` if the engine failed.
        """
        self._events.put(([], reason))

    def get(self, timeout: float | None = None) -> tuple[list[int], str | None] | None:
        """Wait for new tokens.

        Args:
            timeout: number of seconds after which to stop waiting; None to wait as long as needed.

        Returns:
            A tuple of the new tokens and the reason for the end, which is None if there will be
            more tokens. After a timeout, the result is None.
        """
        try:
            return self._events.get(timeout=timeout)
        except queue.Empty:
            return None

    def cancel(self) -> None:
        """Tell the engine to stop generating, because the tokens are no longer needed."""
        self.cancelled = True


class Engine(Protocol):
    """Interface of objects that generate tokens for the server.

    >>> from toile.serving import BatchEngine
    >>> callable(BatchEngine.submit)
    True
    """

    @property
    def longest(self) -> int:
        """Largest number of tokens in a prompt and its continuation together."""
        ...

    def submit(self, generations: Sequence[Generation]) -> None:
        """Start generating continuations for several prompts, either for all of them or for none.

        Args:
            generations: one object for each prompt.

        Raises:
            Busy: too many prompts are waiting.
        """
        ...

    def status(self) -> dict[str, Any]:
        """Return the data for the path /health; the entry `ok` says whether the engine works."""
        ...

    def close(self) -> None:
        """End all generations with the reason `"cancelled"`, and release all resources."""
        ...


def deadline(seconds: float) -> float:
    """Return the time of the monotonic clock after a number of seconds."""
    return time.monotonic() + seconds
