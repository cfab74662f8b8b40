"""Reads HTML as strictly as a test should: every element closed, nothing from elsewhere."""

from __future__ import annotations

import re
from html.parser import HTMLParser

EMPTY = {"br"}
FIXED_COLOR = re.compile(r"(?<![-\w])(background|background-color|color)\s*:\s*(#|rgb|white|black)")


class Reader(HTMLParser):
    """Collects text, and finds elements that are not closed in order."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        assert all(not name.startswith("on") for name, _ in attrs), attrs
        assert tag not in ("script", "link", "img", "iframe", "style"), tag
        if tag not in EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, (self.open, tag)
        self.open.pop()

    def handle_data(self, data):
        self.texts.append(data)


def read(html: str, colors: bool = False) -> tuple[str, list[str]]:
    """The text of well-formed HTML, and its elements; `colors` are allowed in plots only."""
    reader = Reader()
    reader.feed(html)
    reader.close()
    assert reader.open == [], reader.open
    assert "http" not in html and "url(" not in html
    assert colors or not FIXED_COLOR.search(html), FIXED_COLOR.search(html)
    return "\n".join(reader.texts).replace("\xa0", " "), reader.tags
