"""Trees of strings as YAML for the cells of summaries: nested dicts and sequences in block style.

This file implements only the part that tables need: text for human readers in 80 columns. Quotes
that YAML requires around a scalar are left out of the result, but they count in the length of a
line when it is folded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_WIDTH = 80
_STEP = 2
_STARTS = frozenset("#,[]{}&*!|>'\"%@`")  # no plain scalar begins with these
_ESCAPES = {"\0": "0", "\a": "a", "\b": "b", "\t": "t", "\v": "v", "\f": "f", "\r": "r",
            "\x1b": "e", '"': '"', "\\": "\\", "\x85": "N", "\xa0": "_", "\u2028": "L",
            "\u2029": "P", "\n": "n"}  # fmt: skip


def yaml_text(value: Any) -> str:
    """The tree in block style; an empty string for None and empty containers."""
    if value is None or (hasattr(value, "__len__") and len(value) == 0):
        return ""
    lines = _block(value, 0) if _is_nested(value) else _scalar(str(value), 0, _STEP)
    return "\n".join(lines).replace("'", "").strip()


def _is_nested(value: Any) -> bool:
    return isinstance(value, Mapping | list | tuple) and len(value) > 0


def _block(value: Any, indent: int) -> list[str]:
    """The lines of a dict or a sequence whose entries begin at column `indent`."""
    margin = " " * indent
    lines: list[str] = []
    if isinstance(value, Mapping):
        for key, item in value.items():
            head = f"{margin}{_key(key)}:"
            if _is_nested(item):  # a sequence does not move to the right of its key
                lines += [head, *_block(item, indent + _STEP * isinstance(item, Mapping))]
            else:
                lines += _entry(head, item, indent)
        return lines
    for item in value:
        if _is_nested(item):
            inner = _block(item, indent + _STEP)
            lines += [f"{margin}- {inner[0][indent + _STEP :]}", *inner[1:]]
        else:
            lines += _entry(f"{margin}-", item, indent)
    return lines


def _entry(head: str, item: Any, indent: int) -> list[str]:
    if isinstance(item, Mapping):
        return [head + " {}"]
    if isinstance(item, list | tuple):
        return [head + " []"]
    text = item if isinstance(item, str) else _plain_value(item)
    first, *rest = _scalar(text, len(head) + 1, indent + _STEP)
    return [f"{head} {first}", *rest]


def _plain_value(x: Any) -> str:
    return "null" if x is None else str(x).lower() if isinstance(x, bool) else str(x)


def _key(key: Any) -> str:
    return key if isinstance(key, str) else _plain_value(key)


def _scalar(text: str, column: int, indent: int) -> list[str]:
    """The lines of a string; the first begins at `column`, and the others begin at `indent`."""
    if any(not (" " <= c <= "~" or c == "\n") for c in text) or " \n" in text:
        return ['"' + "".join(map(_escaped, text)) + '"']
    quoted = not _is_plain(text)
    lines: list[str] = []
    line = ""
    column += quoted
    pieces = text.split(" ")
    for i, piece in enumerate(pieces):
        if i:
            alone = piece != "" and pieces[i - 1] != ""  # one space, and not the first or last
            if alone and column > _WIDTH:
                lines.append(line)
                line, column = " " * indent, indent
            else:
                line, column = line + " ", column + 1
        *broken, piece = piece.split("\n")
        for part in broken:  # a line break is an empty line
            lines += [line + part, ""]
            line, column = " " * indent, indent
        line += piece
        column += len(piece) + (piece.count("'") if quoted else 0)
    return [*lines, line]


def _is_plain(text: str) -> bool:
    """Whether a string needs no quotes."""
    if not text or text[0] in _STARTS or text != text.strip() or "\n" in text:
        return False
    if text[0] in "-?:" and (len(text) == 1 or text[1] == " "):
        return False
    return not (": " in text or " #" in text or text.endswith(":") or text[:3] in ("---", "..."))


def _escaped(c: str) -> str:
    if c in _ESCAPES:
        return "\\" + _ESCAPES[c]
    if " " <= c <= "~":
        return c
    code = ord(c)
    kind, digits = ("x", 2) if code < 1 << 8 else ("u", 4) if code < 1 << 16 else ("U", 8)
    return f"\\{kind}{code:0{digits}X}"
