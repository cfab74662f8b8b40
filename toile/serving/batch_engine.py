"""Continuous batching: a fixed number of rows, which prompts enter and leave while others run.

One thread runs the model. In each iteration it reads at most one chunk of a new prompt, and then
appends a token to every row. The cache of the batch is on the device; all other data of a row is in
NumPy arrays. The compiled programs do not depend on the contents of the rows.
"""

from __future__ import annotations

import collections
import functools
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from toile import lax, random, struct
from toile import numpy as jnp
from toile.engine.annotations import Array, PyTree
from toile.engine.locks import InterruptibleCondition
from toile.engine.source import here
from toile.generation import prompts as reading
from toile.generation import samplers
from toile.generation.compiled_programs import compiled
from toile.generation.decoders import Decoder, decoder_of, empty_cache, put_rows
from toile.generation.sampling_loop import Rows, advance, begin
from toile.linen.module import Module
from toile.serving.generations import Busy, Generation, Settings

_NAMES = (
    "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "presence_penalty",
    "frequency_penalty",
)  # fmt: skip


class _RowSampler(struct.PyTreeNode):
    """A sampler with its own parameters for each row; steps that no row needs are skipped."""

    values: dict[str, Any]

    def __call__(self, logits: Array, tokens: Array) -> Array:
        v = self.values
        penalties = samplers.chain(
            samplers.repetition_penalty(v["repetition_penalty"]),
            samplers.occurrence_penalty(v["presence_penalty"], v["frequency_penalty"]),
        )
        everything = logits.shape[-1]
        cuts = samplers.chain(
            samplers.top_k(jnp.where(v["top_k"] > 0, v["top_k"], everything)),
            samplers.top_p(v["top_p"]), samplers.min_p(v["min_p"]),
        )  # fmt: skip
        penalized = (v["repetition_penalty"] != 1) | (v["presence_penalty"] != 0)
        penalized = jnp.any(penalized | (v["frequency_penalty"] != 0))
        cut = jnp.any((v["top_k"] > 0) | (v["top_p"] < 1) | (v["min_p"] > 0))
        same = lambda logits, tokens: logits
        logits = lax.cond(penalized, penalties, same, logits, tokens)
        logits = samplers.temperature(v["temperature"])(logits, tokens)
        return lax.cond(cut, cuts, same, logits, tokens)


class BatchEngine:
    """An engine that generates tokens for many prompts at once.

    A prompt enters the batch when a row is free, and leaves it when its continuation ends. The
    engine runs in its own thread until `close` is called. The tokens of a prompt depend on its
    settings and its seed, but not on the other prompts in the batch.

    Args:
        model: a linen module that stores what it has read in the collection `cache`, or a decoder,
            as for `toile.generation.generate`.
        variables: the model's variables, `{"params": ...}`.
        slots: number of rows in the batch.
        longest: largest number of tokens in a prompt and its continuation together.
        waiting: largest number of prompts that wait for a row.
        stop_tokens: tokens that end a continuation.

    Raises:
        ValueError: a number is less than 1, or `longest` is less than 2.

    >>> import toile.linen as nn
    >>> from toile.serving import BatchEngine, Generation, Settings
    >>> class Model(nn.Module):
    ...     @nn.compact
    ...     def __call__(self, tokens, decode=False):
    ...         x = nn.Embed(10, 8)(tokens)
    ...         return nn.Dense(10)(nn.MultiHeadDotProductAttention(2, decode=decode)(x))
    >>> variables = Model().init(key(0), jnp.zeros((1, 4), int))
    >>> engine = BatchEngine(Model(), variables, slots=2, longest=16)
    >>> one = Generation([1, 2, 3], Settings(max_tokens=1))
    >>> engine.submit([one])
    >>> tokens, reason = one.get()
    >>> len(tokens), one.get()
    (1, ([], 'length'))
    >>> engine.close()
    """

    def __init__(
        self, model: Module | Decoder, variables: PyTree, *, slots: int = 8, longest: int = 2048,
        waiting: int = 64, stop_tokens: Iterable[int] = (),
    ):  # fmt: skip
        given = {"slots": (slots, 1), "longest": (longest, 2), "waiting": (waiting, 1)}
        for name, (value, low) in given.items():
            if not isinstance(value, int) or value < low:
                raise ValueError(
                    f"BatchEngine: needed a number from {low}, got {name}={value!r} (the usual "
                    f"values are slots=8, longest=2048, waiting=64){here()}"
                )
        self._decoder, self._variables = decoder_of(model), variables
        self._slots, self._longest, self._most = slots, longest, waiting
        self._stops = np.array(sorted(set(stop_tokens)), np.int32)
        self._length = reading.slots_needed([[0] * longest], 0, 0)  # slots of the cache
        self._tokens = np.full((slots, self._length), -1, np.int32)
        self._counts = np.ones(slots, np.int32)
        self._limits = np.ones(slots, np.int32)
        self._keys = np.zeros((slots, 2), np.uint32)
        kinds = {"top_k": np.int32}
        neutral = Settings(1)
        self._values = {
            name: np.full(slots, getattr(neutral, name), kinds.get(name, np.float32))
            for name in _NAMES
        }
        self._cache = empty_cache(self._decoder, variables, slots, self._length)
        self._rows: list[Generation | None] = [None] * slots
        self._entering: tuple[Generation, int, Iterator[Any]] | None = None
        self._queue: collections.deque[Generation] = collections.deque()
        self._condition = InterruptibleCondition()
        self._closing = False
        self._error: str | None = None
        self._thread = threading.Thread(target=self._run, name="toile-batch-engine", daemon=True)
        self._thread.start()

    @property
    def longest(self) -> int:
        """Largest number of tokens in a prompt and its continuation together."""
        return self._longest

    def submit(self, generations: Sequence[Generation]) -> None:
        """Start generating continuations for several prompts, either for all of them or for none.

        Args:
            generations: one object for each prompt.

        Raises:
            Busy: more prompts would wait than the engine accepts.
            ValueError: a prompt is empty, or it is too long together with its continuation.
        """
        for one in generations:
            if not one.prompt or len(one.prompt) + one.settings.max_tokens > self._longest:
                raise ValueError(
                    f"BatchEngine: needed a prompt that has, with its continuation, 2 to "
                    f"{self._longest} tokens, got {len(one.prompt)} tokens and "
                    f"max_tokens={one.settings.max_tokens} (shorten the prompt, or pass a larger "
                    f"`longest`){here()}"
                )
        with self._condition:
            self._queue = collections.deque(g for g in self._queue if not self._dropped(g))
            free = sum(row is None for row in self._rows) - (self._entering is not None)
            why = self._error or ("the engine is closed" if self._closing else None)
            if why is None and len(self._queue) + len(generations) > self._most + free:
                why = f"{len(self._queue)} prompts are waiting"
            if why is not None:
                raise Busy(why)
            self._queue.extend(generations)
            self._condition.notify()

    def status(self) -> dict[str, Any]:
        """Return the numbers of running and waiting prompts, and whether the engine works."""
        with self._condition:
            return {
                "ok": self._error is None and not self._closing,
                "running": sum(row is not None for row in self._rows),
                "waiting": len(self._queue) + (self._entering is not None),
                "slots": self._slots,
            }

    def close(self) -> None:
        """End all generations with the reason `"cancelled"`, and wait for the thread."""
        with self._condition:
            self._closing = True
            self._condition.notify()
        self._thread.join()

    # ---- the thread
    def _run(self) -> None:
        try:
            while self._wait():
                self._enter()
                if any(row is not None for row in self._rows):
                    self._step()
            self._end_all("cancelled")
        except Exception as error:  # the server must answer the requests that are running
            self._error = f"{type(error).__name__}: {error}"
            self._end_all("error")
            raise

    def _wait(self) -> bool:
        """Wait for work; False when the engine is to be closed."""
        with self._condition:
            while not (
                self._closing or self._queue or self._entering
                or any(row is not None for row in self._rows)
            ):  # fmt: skip
                self._condition.wait()
            return not self._closing

    def _enter(self) -> None:
        """Take a prompt from the queue, or read a chunk of the one that was taken."""
        if self._entering is None:
            with self._condition:
                while self._queue and self._dropped(self._queue[0]):
                    self._queue.popleft()
                free = [i for i, row in enumerate(self._rows) if row is None]
                if not self._queue or not free:
                    return
                one = self._queue.popleft()
                self._entering = one, free[0], self._read(one)
        one, slot, chunks = self._entering
        if self._dropped(one):
            self._entering = None
            return
        found = next(chunks)
        if found is not None:
            logits, part = found
            self._cache = _place(self._decoder, self._cache, np.array([slot]), part)
            self._start(one, slot, logits)

    def _read(self, one: Generation) -> Iterator[tuple[Array, PyTree] | None]:
        """Yield None for each chunk of the prompt but the last, then its logits and its cache."""
        cache = empty_cache(self._decoder, self._variables, 1, self._length)
        *before, last = reading.chunks([one.prompt], reading.CHUNK)
        for tokens, positions in before:
            cache = reading.store(self._decoder, self._variables, cache, tokens, positions)
            yield None
        yield reading.store_last(self._decoder, self._variables, cache, *last)

    def _start(self, one: Generation, slot: int, logits: Array) -> None:
        """Give a prompt its row, and draw its first token."""
        settings, count = one.settings, len(one.prompt)
        self._tokens[slot] = -1
        self._tokens[slot, :count] = one.prompt
        self._counts[slot], self._limits[slot] = count, count + settings.max_tokens
        self._keys[slot] = np.asarray(random.PRNGKey(settings.seed))
        for name, values in self._values.items():
            values[slot] = getattr(settings, name)
        with self._condition:
            self._rows[slot], self._entering = one, None
        row = slice(slot, slot + 1)
        sampler = _RowSampler({name: values[row] for name, values in self._values.items()})
        rows = begin(
            Rows(self._tokens[row], self._counts[row], self._limits[row], np.zeros(1, bool),
                 self._keys[row]), logits, sampler, self._stops,
        )  # fmt: skip
        self._tokens[slot], self._counts[slot] = np.asarray(rows.tokens)[0], rows.counts[0]
        self._pass_on(one, slot, count, bool(rows.ended[0]))

    def _step(self) -> None:
        """Append a token to each row, and pass it to the request of the row."""
        for slot, one in enumerate(self._rows):
            if one is not None and self._dropped(one):
                self._leave(slot)
        ended = np.array([row is None for row in self._rows])
        if ended.all():
            return
        rows = Rows(self._tokens, self._counts, self._limits, ended, self._keys)
        sampler = _RowSampler(self._values)
        self._cache, rows = advance(
            self._decoder, self._variables, self._cache, rows, sampler, self._stops, 1
        )
        before, ended = self._counts, np.asarray(rows.ended)
        self._tokens, self._counts = (np.array(x) for x in (rows.tokens, rows.counts))
        for slot, one in enumerate(self._rows):
            if one is not None:
                self._pass_on(one, slot, before[slot], ended[slot])

    def _pass_on(self, one: Generation, slot: int, count: int, ended: bool) -> None:
        """Pass the tokens of a row after the first `count` to its request."""
        new = self._tokens[slot, count : self._counts[slot]].tolist()
        stopped = bool(new) and new[-1] in self._stops
        if stopped:
            new = new[:-1]
        if new:
            one.add(new)
        if ended:
            one.end("stop" if stopped else "length")
            self._leave(slot)

    def _leave(self, slot: int) -> None:
        for name, values in self._values.items():  # so that skipped steps of the sampler stay so
            values[slot] = getattr(Settings(1), name)
        with self._condition:
            self._rows[slot] = None

    def _dropped(self, one: Generation) -> bool:
        """Whether the request of a generation no longer needs it; then it ends."""
        if one.cancelled:
            one.end("cancelled")
        return one.cancelled

    def _end_all(self, reason: str) -> None:
        with self._condition:
            left = [row for row in self._rows if row is not None] + list(self._queue)
            if self._entering:
                left.append(self._entering[0])
            self._queue.clear()
            self._rows = [None] * self._slots
        for one in left:
            one.end(reason)


@functools.partial(compiled, static_argnums=0, donate_argnums=1)
def _place(decoder: Decoder, cache: PyTree, rows: Array, part: PyTree) -> PyTree:
    return put_rows(decoder, cache, rows, part)
