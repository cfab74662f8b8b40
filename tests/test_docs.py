"""The code in the documentation runs, in order, page by page."""

from __future__ import annotations

import pathlib
import re

import pytest

DOCS = pathlib.Path(__file__).parent.parent / "docs"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.S | re.M)
PAGES = sorted(p for p in DOCS.rglob("*.md") if BLOCK.search(p.read_text()))


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(DOCS)))
def test_code_of_page_runs(page):
    text = page.read_text()
    scope = {"__name__": "__page__"}
    for match in BLOCK.finditer(text):
        line = text[: match.start()].count("\n") + 1
        source = "\n" * line + match.group(1)
        code = compile(source, str(page), "exec", dont_inherit=True)
        exec(code, scope)


def test_engine_from_scratch_is_short():
    code = "".join(BLOCK.findall((DOCS / "engine-from-scratch.md").read_text()))
    assert len(code.splitlines()) <= 800
