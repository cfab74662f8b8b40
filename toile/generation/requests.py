"""`generate` and `stream`, which continue prompts, all at once or piece by piece."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal

import numpy as np

from toile import numpy as jnp
from toile.engine.annotations import Array, PyTree
from toile.engine.source import describe, here
from toile.generation import prompts as reading
from toile.generation import sampling_loop
from toile.generation.decoders import Decoder, decoder_of
from toile.generation.samplers import Sampler, sampler_of
from toile.generation.speculation import Draft, advance_with_draft
from toile.generation.text_pieces import TextPieces
from toile.linen.module import Module

Reason = Literal["stop", "length"]
_STEPS_BETWEEN_CHECKS = 16  # tokens between two searches for stop strings


@dataclasses.dataclass(frozen=True)
class Completion:
    """The continuation of a prompt.

    Args:
        tokens: the generated tokens, without the stop token.
        reason: `"stop"` if a stop token or a stop string ended the continuation; `"length"` if
            `max_tokens` was reached.
        text: the text of the tokens up to the stop string; None if no `decode` was given.

    >>> from toile import generation
    >>> generation.Completion([5, 6], "length").text is None
    True
    """

    tokens: list[int]
    reason: Reason
    text: str | None = None


@dataclasses.dataclass(frozen=True)
class Piece:
    """A part of the continuation of a prompt.

    Args:
        row: index of the prompt.
        tokens: the new tokens, without the stop token.
        text: the new text, which may be empty; None if no `decode` was given.
        reason: why the continuation ends with this piece, as in `Completion`; None if the
            continuation does not end with this piece.

    >>> from toile import generation
    >>> generation.Piece(0, [5]).reason is None
    True
    """

    row: int
    tokens: list[int]
    text: str | None = None
    reason: Reason | None = None


def generate(
    model: Module | Decoder, variables: PyTree, prompts: Sequence[Sequence[int]], *,
    max_tokens: int | Sequence[int], sampler: Sampler | None = None, key: Array | None = None,
    stop_tokens: Iterable[int] = (), stop_strings: Iterable[str] = (),
    decode: Callable[[list[int]], str] | None = None, window: int | None = None,
    draft: Draft | None = None,
) -> list[Completion]:
    """Continue prompts by drawing one token after another.

    The prompts may have different lengths. Prompts of similar lengths are read together. After
    that, one compiled loop appends tokens to all rows until every row has ended. The loop is
    compiled again if the model, the number of prompts or the (rounded) lengths change, but not if
    the parameters of samplers change.

    Random numbers depend only on the key of the row and on the position of the token. A prompt with
    its own key therefore gets the same random numbers in any batch. The logits of the prompt may
    differ slightly, because the order of additions in a matrix product can depend on the size of
    the batch.

    Args:
        model: a linen module that stores what it has read in the collection `cache` (see
            `ModuleDecoder`), or a `Decoder`.
        variables: the model's variables, `{"params": ...}`.
        prompts: list of prompts, one for each row of the batch. Each prompt is a list of at least
            one token.
        max_tokens: largest number of tokens to generate, or a list with a number for each prompt.
        sampler: a sampler such as `temperature(0.7)`, or None to choose the most likely token. See
            `temperature`, `top_p` and `chain`.
        key: random key, from which a key for each row is derived, or an array with one key for each
            row; None for `random.key(0)`. Without a sampler, the key has no effect.
        stop_tokens: tokens that end a continuation.
        stop_strings: texts that end a continuation; if there are any, `decode` is required.
        decode: function that converts a list of tokens to a text, such as `tokenizer.decode`.
        window: the size of the sliding window if all attention layers of the model have one. The
            cache then has a fixed size; see `cached_attention`.
        draft: a smaller model that proposes tokens; see `Draft`.

    Returns:
        A list with a `Completion` for each prompt.

    Raises:
        ValueError: a prompt is empty or contains a negative number; `stop_strings` is given without
            `decode`; `window` is given, but the model's cache is not a ring buffer.

    >>> import toile.linen as nn
    >>> from toile import generation
    >>> class Model(nn.Module):
    ...     @nn.compact
    ...     def __call__(self, tokens, decode=False):
    ...         x = nn.Embed(10, 8)(tokens)
    ...         return nn.Dense(10)(nn.MultiHeadDotProductAttention(2, decode=decode)(x))
    >>> variables = Model().init(key(0), jnp.zeros((1, 4), int))
    >>> sampler = generation.chain(generation.temperature(0.7), generation.top_p(0.9))
    >>> options = {"max_tokens": 5, "sampler": sampler, "key": key(1)}
    >>> out = generation.generate(Model(), variables, [[1, 2, 3], [4]], **options)
    >>> [len(one.tokens) for one in out], out[0].reason
    ([5, 5], 'length')
    """
    options = _Options.of(
        "generate", model, prompts, max_tokens, sampler, key, stop_tokens, stop_strings, decode,
        window, draft,
    )  # fmt: skip
    most = max(options.limits)
    steps = min(most, _STEPS_BETWEEN_CHECKS) if options.stop_strings else most
    tokens: list[list[int]] = [[] for _ in options.prompts]
    texts: list[str] = ["" for _ in options.prompts]
    reasons: list[Reason] = ["length" for _ in options.prompts]
    for piece in _pieces(options, variables, steps):
        tokens[piece.row] += piece.tokens
        texts[piece.row] += piece.text or ""
        reasons[piece.row] = piece.reason or "length"
    shown = texts if decode else [None] * len(texts)
    return [Completion(*parts) for parts in zip(tokens, reasons, shown, strict=True)]


def stream(
    model: Module | Decoder, variables: PyTree, prompts: Sequence[Sequence[int]], *,
    max_tokens: int | Sequence[int], sampler: Sampler | None = None, key: Array | None = None,
    stop_tokens: Iterable[int] = (), stop_strings: Iterable[str] = (),
    decode: Callable[[list[int]], str] | None = None, window: int | None = None,
    draft: Draft | None = None, every: int = 1,
) -> Iterator[Piece]:
    """Continue prompts, and yield tokens as they are generated.

    The tokens are the same as those that `generate` returns.

    Args:
        model, variables, prompts, max_tokens: as for `generate`.
        sampler, key, stop_tokens, stop_strings, decode: as for `generate`.
        window, draft: as for `generate`.
        every: number of steps between two pieces. Each step adds a token to every row, or several
            tokens if there is a `draft`. With a larger number, less time is spent in Python.

    Yields:
        A `Piece` for each row that has new tokens. The last piece of each row has a `reason`.

    Raises:
        ValueError: as for `generate`.

    >>> from toile import generation
    >>> class Successor:  # a decoder without parameters
    ...     rings = False
    ...     def empty(self, batch, length):
    ...         return jnp.zeros((batch, length))
    ...     def apply(self, variables, cache, tokens, positions):
    ...         return toile.nn.one_hot(tokens + 1, 10), cache
    >>> for piece in generation.stream(Successor(), {}, [[2]], max_tokens=9, stop_tokens=[5]):
    ...     print(piece.tokens, piece.reason)
    [3] None
    [4] None
    [] stop
    """
    if not isinstance(every, int) or every < 1:
        raise ValueError(
            f"stream: needed a number of steps >= 1, got every={every!r} (1 yields each token)"
            f"{here()}"
        )
    options = _Options.of(
        "stream", model, prompts, max_tokens, sampler, key, stop_tokens, stop_strings, decode,
        window, draft,
    )  # fmt: skip
    return _pieces(options, variables, every)


@dataclasses.dataclass
class _Options:
    """The checked arguments of `generate` and `stream`."""

    decoder: Decoder
    prompts: list[list[int]]
    limits: list[int]
    sampler: Sampler
    keys: Array
    stop_tokens: np.ndarray
    stop_strings: list[str]
    decode: Callable[[list[int]], str] | None
    window: int | None
    draft: Draft | None

    @classmethod
    def of(
        cls, who: str, model: Any, prompts: Any, max_tokens: Any, sampler: Any, key: Any,
        stop_tokens: Any, stop_strings: Any, decode: Any, window: Any, draft: Any,
    ) -> _Options:  # fmt: skip
        rows = reading.checked(prompts, who)
        if isinstance(stop_strings, str):
            stop_strings = [stop_strings]
        strings = list(stop_strings)
        if strings and decode is None:
            raise ValueError(
                f"{who}: needed `decode` for the stop strings {strings}, got None (pass "
                f"decode=tokenizer.decode){here()}"
            )
        decoder = decoder_of(model)
        if window is not None and not (decoder.rings and (draft is None or draft.decoder.rings)):
            raise ValueError(
                f"{who}: needed a cache that stores positions for window={window}, got a decoder "
                f"with another cache (use cached_attention in the model, or leave out window)"
                f"{here()}"
            )
        return cls(
            decoder, rows, _limits(max_tokens, len(rows), who), sampler_of(sampler),
            sampling_loop.row_keys(key, len(rows)), _token_array(stop_tokens, who), strings, decode,
            window, draft,
        )  # fmt: skip


def _limits(max_tokens: Any, count: int, who: str) -> list[int]:
    given = np.asarray(max_tokens)
    fits = given.dtype.kind in "iu" and given.shape in ((), (count,)) and given.min() >= 1
    if not fits:
        raise ValueError(
            f"{who}: needed an integer >= 1, or a list with such a number for each of {count} "
            f"prompts, got max_tokens={max_tokens!r} (pass 100, for example){here()}"
        )
    return [int(n) for n in np.broadcast_to(given, (count,))]


def _token_array(tokens: Any, who: str) -> np.ndarray:
    found = list(tokens) if isinstance(tokens, Iterable) else [tokens]
    array = np.asarray(found, np.int32 if not found else None)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ValueError(
            f"{who}: needed integers as stop tokens, got {describe(tokens)} (texts are passed as "
            f"stop_strings){here()}"
        )
    return array.astype(np.int32)


def _pieces(options: _Options, variables: PyTree, steps: int) -> Iterator[Piece]:
    """Run the loop for `steps` steps at a time, and yield the new tokens of each row."""
    o = options
    ahead = o.draft.count + 1 if o.draft else 0
    length = reading.slots_needed(o.prompts, max(o.limits), ahead)
    slots, chunk = length, reading.CHUNK
    if o.window is not None:  # a chunk must not overwrite tokens to which its first token attends
        chunk = max(64, reading.rounded(ahead))
        slots = min(length, reading.rounded(o.window + chunk))
    read = lambda decoder, variables: reading.read(decoder, variables, o.prompts, slots, chunk)
    logits, cache = read(o.decoder, variables)
    drafts = read(o.draft.decoder, o.draft.variables)[1] if o.draft else None
    stops = jnp.asarray(o.stop_tokens)
    rows = sampling_loop.start(o.prompts, o.limits, length, o.keys)
    rows = sampling_loop.begin(rows, logits, o.sampler, stops)
    left = steps - 1  # in the first piece
    outputs = [_Output(row, prompt, o) for row, prompt in enumerate(o.prompts)]
    while any(output.running for output in outputs):
        if o.draft and left:
            cache, drafts, rows = advance_with_draft(
                o.decoder, o.draft.decoder, o.draft.count, (variables, o.draft.variables),
                (cache, drafts), rows, o.sampler, stops, left,
            )  # fmt: skip
        elif left:
            cache, rows = sampling_loop.advance(
                o.decoder, variables, cache, rows, o.sampler, stops, left
            )
        left = steps
        tokens, counts, ended = (np.asarray(x) for x in (rows.tokens, rows.counts, rows.ended))
        for output in outputs:
            if output.running:
                row = output.row
                yield output.piece(tokens[row, output.count : counts[row]].tolist(), ended[row])
        over = np.array([not output.running for output in outputs])
        if (over & ~ended).any():  # rows that a stop string has ended
            rows = rows.replace(ended=ended | over)


class _Output:
    """The output of one row."""

    def __init__(self, row: int, prompt: list[int], options: _Options):
        self.row, self.count, self.running = row, len(prompt), True
        self._stop_tokens = frozenset(options.stop_tokens.tolist())
        self._text = TextPieces(options.decode, options.stop_strings) if options.decode else None

    def piece(self, new: list[int], ended: bool) -> Piece:
        """Return the piece with new tokens of the row; `ended`: the row ends with them."""
        self.count += len(new)
        stopped = bool(new) and new[-1] in self._stop_tokens
        if stopped:
            new = new[:-1]
        text = None
        if self._text:
            new, text = self._up_to_stop(new, bool(ended))
            stopped = stopped or self._text.stopped is not None
        self.running = not (ended or stopped)
        reason: Reason | None = "stop" if stopped else "length" if ended else None
        return Piece(self.row, new, text, reason)

    def _up_to_stop(self, new: list[int], ended: bool) -> tuple[list[int], str]:
        """Return the tokens up to a stop string, and their text."""
        assert self._text is not None
        text = ""
        for i, token in enumerate(new):
            text += self._text.push([token])
            if self._text.stopped is not None:
                return new[: i + 1], text
        return new, text + (self._text.finish() if ended else "")
