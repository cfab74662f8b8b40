"""Text from tokens that arrive one after the other, with stop strings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

INCOMPLETE = "\N{REPLACEMENT CHARACTER}"
_LONGEST_CHARACTER = 8  # tokens after which an incomplete character is treated as invalid


class TextPieces:
    """Converts tokens that arrive one after the other to text, up to a stop string.

    Text is returned only when later tokens cannot change it. A character whose bytes are divided
    among several tokens is held back until it is complete. Text that might be the start of a stop
    string is held back until later tokens show whether it is. A stop string may begin and end in
    the middle of a token.

    The attribute `text` contains all text that was returned, and `stopped` is the stop string that
    was found, or None. If several stop strings overlap, the one that ends first is found.

    Args:
        decode: function that converts a list of tokens to a text, such as the method `decode` of a
            tokenizer. If the tokens end in the middle of a character, the text must end with
            U+FFFD.
        stops: texts that end the output. They are not part of the output.

    >>> from toile.generation import TextPieces
    >>> pieces = TextPieces(lambda tokens: bytes(tokens).decode(errors="replace"), ["END"])
    >>> pieces.push(b"caf\\xc3"), pieces.push(b"\\xa9 E"), pieces.push(b"NDnothing")
    ('caf', 'é ', '')
    >>> pieces.text, pieces.stopped
    ('café ', 'END')
    """

    def __init__(self, decode: Callable[[list[int]], str], stops: Iterable[str] = ()):
        self.text = ""
        self.stopped: str | None = None
        self._decode = decode
        self._stops = [stop for stop in stops if stop]
        self._tokens: list[int] = []  # tokens from `_start` on affect new text
        self._start = 0
        self._read = 0  # number of tokens whose text has been used
        self._held = ""  # text that may be the start of a stop string

    def push(self, tokens: Sequence[int]) -> str:
        """Add tokens.

        Args:
            tokens: the new tokens.

        Returns:
            The new text that later tokens cannot change; empty after a stop string.
        """
        if self.stopped is not None:
            return ""
        new = ""
        for token in tokens:
            self._tokens.append(int(token))
            new += self._decoded(final=False)
        return self._release(new, final=False)

    def finish(self) -> str:
        """Return the text that was held back. Call this when there are no more tokens."""
        if self.stopped is not None:
            return ""
        return self._release(self._decoded(final=True), final=True)

    def _decoded(self, final: bool) -> str:
        """Return the text of the new tokens; it is empty while a character is incomplete.

        The text of a token may depend on the token before it. The tokens of the last piece are
        therefore decoded twice: alone, and followed by the new tokens."""
        before = self._decode(self._tokens[self._start : self._read])
        now = self._decode(self._tokens[self._start :])
        waiting = len(self._tokens) - self._read
        if not final and now.endswith(INCOMPLETE) and waiting < _LONGEST_CHARACTER:
            return ""
        if not final and len(now) <= len(before):
            return ""
        self._start, self._read = self._read, len(self._tokens)
        return now[len(before) :]

    def _release(self, new: str, final: bool) -> str:
        text = self._held + new
        starts = {stop: text.find(stop) for stop in self._stops}
        found = [(i + len(stop), i, stop) for stop, i in starts.items() if i >= 0]
        if found:  # the one that ends first
            _, end, self.stopped = min(found)
            self._held = ""
        else:
            end = len(text) if final else len(text) - self._possible(text)
            self._held = text[end:]
        self.text += text[:end]
        return text[:end]

    def _possible(self, text: str) -> int:
        """Return the length of the longest end of the text that is the start of a stop string."""
        longest = max((len(stop) for stop in self._stops), default=1) - 1
        for size in range(min(longest, len(text)), 0, -1):
            if any(stop.startswith(text[-size:]) for stop in self._stops):
                return size
        return 0
