"""Parses dimension expressions and symbolic shapes, in the syntax of JAX.

`Reader` is a recursive-descent parser that evaluates expressions while it reads them. It applies
Python's operators to the values of names, so the same code evaluates expressions of dimensions and
of numbers. The length and the depth of an expression are limited.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from toile.engine.source import here
from toile.export._dimensions import operate

MOST_CHARACTERS = 10_000
MOST_DEPTH = 40
MOST_DIGITS = 18
MOST_POWER = 64
_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+\.\d*(?:e[+-]?\d+)?|\d+(?:e[+-]?\d+)?)|(?P<name>[^\W\d]\w*)"
    r"|(?P<sign>\*\*|\.\.\.|[-+*/^(),]))")
_BINARY = ("floordiv", "mod", "max", "min")
FUNCTIONS: Mapping[str, Callable[[Any], Any]] = {"sqrt": math.sqrt, "log": math.log}


class Unreadable(ValueError):
    """A text is not an expression; `at` is the number of characters that were read."""

    def __init__(self, detail: str, at: int):
        super().__init__(detail)
        self.detail, self.at = detail, at


def misread(detail: str, at: int) -> Unreadable:
    """Return the error for a text that is not an expression; the caller completes the message."""
    return Unreadable(detail, at)


class Reader:
    """Reads expressions from a text; the function `name` returns the value of a variable.

    If `numeric` is True, floats, division, and functions of numbers are also accepted."""

    def __init__(self, text: str, name: Callable[[str], Any], numeric: bool = False):
        self.text, self.name, self.numeric = text, name, numeric
        self.at = self.after = self.depth = 0
        self.kind: str | None = None
        self.token = ""
        if len(text) > MOST_CHARACTERS:
            raise misread(f"more than {MOST_CHARACTERS} characters", 0)
        self.advance()

    def advance(self) -> None:
        self.at = self.after
        found = _TOKEN.match(self.text, self.at)
        if found is None:
            if self.text[self.at:].strip():
                raise misread(f"unexpected character {self.text[self.at:].strip()[0]!r}",
                                 self.at)
            self.kind, self.token = None, "ENDMARKER"
            return
        self.kind, self.token, self.after = found.lastgroup, found[0].strip(), found.end()

    def take(self, token: str) -> None:
        if self.token != token:
            raise misread(f"expecting {token!r} but found {self.token}", self.at)
        self.advance()

    def whole(self) -> Any:
        """Return the value of the text, which must be a single expression."""
        found = self.expression()
        if self.kind is not None:
            raise misread(f"expecting the end but found {self.token}", self.at)
        return found

    def expression(self) -> Any:
        self.depth += 1
        if self.depth > MOST_DEPTH:
            raise misread("parentheses are nested too deeply", self.at)
        negative = self.token == "-"
        if self.token in ("-", "+"):
            self.advance()
        total = self.product()
        total = -total if negative else total
        while self.token in ("+", "-"):
            negative = self.token == "-"
            self.advance()
            term = self.product()
            total = total - term if negative else total + term
        self.depth -= 1
        return total

    def product(self) -> Any:
        total = self.power()
        while self.token in (("*", "/") if self.numeric else ("*",)):
            divides = self.token == "/"
            self.advance()
            factor = self.power()
            total = total / factor if divides else total * factor
        return total

    def power(self) -> Any:
        base = self.factor()
        if self.token == "^" or (self.token == "**" and self.numeric):
            self.advance()
            exponent = self.factor()
            if abs(exponent) > MOST_POWER:
                raise misread(f"a power of more than {MOST_POWER}", self.at)
            return base**exponent
        return base

    def factor(self) -> Any:
        token = self.token
        if self.kind == "name":
            self.advance()
            if token in _BINARY:
                self.take("(")
                a = self.expression()
                self.take(",")
                b = self.expression()
                self.take(")")
                return operate(token, a, b)
            if self.numeric and token in FUNCTIONS and self.token == "(":
                return FUNCTIONS[token](self._inside())
            return self.name(token)
        if self.kind == "number":
            return self._number(token)
        if token == "-":
            self.advance()
            return -self.factor() if self.numeric else -self._number(self.token)
        if token == "(" and self.numeric:
            return self._inside()
        raise misread(f"expecting one of {{NAME, MINUS, NUMBER}} but found {token}", self.at)

    def _inside(self) -> Any:
        self.take("(")
        found = self.expression()
        self.take(")")
        return found

    def _number(self, token: str) -> Any:
        if self.kind != "number":
            raise misread(f"expecting one of {{NUMBER}} but found {token}", self.at)
        if token.isdigit():
            if len(token) > MOST_DIGITS:
                raise misread(f"a number of more than {MOST_DIGITS} digits", self.at)
            self.advance()
            return int(token)
        if not self.numeric:
            raise misread(f"expecting integer, found {token}", self.at)
        self.advance()
        return float(token)


def shape_of(text: str, like: Sequence[int | None] | None,
             name: Callable[[str], Any]) -> tuple[Any, ...]:
    """Return the dimensions of a symbolic shape such as "(b, 2*n, _, ...)"."""
    found: list[Any] = []
    try:
        _Shape(Reader(text, name), like, found).read()
    except Unreadable as error:
        raise ValueError(
            f"syntax error in symbolic shape {text!r} in dimension {len(found)}: {error.detail}. "
            f"Parsed {text[:error.at]!r}, remaining {text[error.at:]!r}. (needed expressions "
            f"separated by commas, such as \"b, 2*n, 3\"){here()}") from None
    return tuple(found)


class _Shape:
    """Reads the dimensions of a shape into a list."""

    def __init__(self, reader: Reader, like: Sequence[int | None] | None, found: list[Any]):
        self.reader, self.like, self.found = reader, like, found

    def read(self) -> None:
        self._list()
        if self.reader.kind is not None:
            raise misread(f"expecting the end but found {self.reader.token}", self.reader.at)

    def _list(self) -> None:
        reader = self.reader
        if reader.token == "(":
            reader.depth += 1
            if reader.depth > MOST_DEPTH:
                raise misread("parentheses are nested too deeply", reader.at)
            reader.advance()
            self._list()
            reader.take(")")
            return
        while reader.kind is not None and reader.token != ")":
            if reader.token == "...":
                self._check_placeholder()
                assert self.like is not None
                for size in self.like[len(self.found):]:
                    self._add(size)
                reader.advance()
                return
            if reader.token == "_":
                self._check_placeholder()
                assert self.like is not None
                size = self.like[len(self.found)]
                reader.advance()
                self._add(size)
            else:
                self._add(reader.expression())
            if reader.kind is None or reader.token == ")":
                return
            reader.take(",")

    def _check_placeholder(self) -> None:
        token, at = self.reader.token, self.reader.at
        if self.like is None:
            raise misread("spec contains ... but no 'like' shape was given", at)
        if len(self.like) < len(self.found) + (token == "_"):
            raise misread(
                f"cannot resolve placeholder '{token}' because we parsed {len(self.found)} already "
                f"and 'like' shape has only {len(self.like)} dimensions", at)

    def _add(self, size: Any) -> None:
        reader = self.reader
        if size is None:
            raise misread(
                f"unexpected placeholder for unknown dimension; like={self.like}", reader.at)
        if type(size) is int and self.like is not None and len(self.found) < len(self.like):
            known = self.like[len(self.found)]
            if size != known:
                raise misread(f"different size {size} for known dimension; like={self.like}",
                                 reader.at)
        self.found.append(size)
