"""What the server requires of an engine: prompts go in, and tokens come out one after the other."""

from __future__ import annotations

import dataclasses
import queue
import time
from collections.abc import Sequence
from typing import Any, Protocol


class Busy(Exception):
    """The engine has as many waiting requests as it accepts.

    >>> from toile.serving import Busy
    >>> issubclass(Busy, Exception)
    True
    """


@dataclasses.dataclass(frozen=True)
class Settings:
    """How to continue one prompt.

    Args:
        max_tokens: largest number of tokens to generate.
        temperature, top_k, top_p, min_p: parameters of the samplers of these names in
            `toile.generation`. A temperature of 0 takes the most likely token, and a `top_k` of 0
            keeps all tokens.
        repetition_penalty, presence_penalty, frequency_penalty: penalties for tokens that occurred.
        seed: number from which the random key is made.

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
    """The tokens of one prompt, while an engine generates them.

    The engine calls `add` and `end`; the server calls `get` and `cancel`. All methods may be called
    from any thread.

    Args:
        prompt: the tokens of the prompt.
        settings: how to continue it.

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
        """Report that no more tokens follow.

        Args:
            reason: `"stop"`, `"length"`, `"cancelled"`, or `"error"` if the engine failed.
        """
        self._events.put(([], reason))

    def get(self, timeout: float | None = None) -> tuple[list[int], str | None] | None:
        """Wait for new tokens.

        Args:
            timeout: number of seconds after which to stop waiting; None to wait as long as needed.

        Returns:
            The new tokens and the reason why no more follow, or None for the reason if more
            follow. After a timeout, None.
        """
        try:
            return self._events.get(timeout=timeout)
        except queue.Empty:
            return None

    def cancel(self) -> None:
        """Ask the engine to stop generating; the tokens are no longer needed."""
        self.cancelled = True


class Engine(Protocol):
    """What generates tokens for the server.

    >>> from toile.serving import BatchEngine
    >>> callable(BatchEngine.submit)
    True
    """

    @property
    def longest(self) -> int:
        """Largest number of tokens of a prompt and its continuation together."""
        ...

    def submit(self, generations: Sequence[Generation]) -> None:
        """Start to generate, for all of several prompts or for none of them.

        Args:
            generations: what to generate.

        Raises:
            Busy: too many prompts are waiting.
        """
        ...

    def status(self) -> dict[str, Any]:
        """Return numbers for the path /health; the entry `ok` tells whether the engine works."""
        ...

    def close(self) -> None:
        """End all generations with the reason `"cancelled"`, and release all resources."""
        ...


def deadline(seconds: float) -> float:
    """The time on the monotonic clock after some seconds."""
    return time.monotonic() + seconds
