"""Pages made from the READMEs of the examples: a page for each example, and a gallery."""

from __future__ import annotations

import re
from pathlib import Path

from toile.command.example_catalog import Example, examples

__all__ = ["Example", "card", "examples", "pages", "pictures"]

HEAD = """# Examples

These are complete programs that you can copy and change. `toile new NAME my_project` copies an
example and its data into a new project; nothing is downloaded. In most examples, the file
`train.py` contains the training step, loop and evaluation; [customizing a training
loop](../forking.md) shows how to change them. In a clone of the repository, `make example-NAME`
runs one example and `make examples` runs all of them, with the hyperparameters and results that
are listed here.
"""


def pictures(e: Example) -> list[str]:
    """The pictures in the README; MkDocs warns if one is missing."""
    names = re.findall(r"!\[[^\]]*\]\(([^)/]+\.png)\)", e.text)
    return [name for name in dict.fromkeys(names) if (e.folder / name).exists()]


def results(e: Example) -> str:
    """The first row of the table of results, in words."""
    what, values = e.result
    return f"*{what}* — " + "; ".join(f"{n}: {v}" for n, v in values) if what else ""


def curve(e: Example) -> str:
    """The curve that is drawn with characters in the README."""
    blocks = re.findall(r"^```\n(.*?)^```", e.text, re.S | re.M)
    return next((b.rstrip() for b in blocks if re.search("[\u2801-\u28ff]", b)), "")


def card(e: Example) -> str:
    """The card of an example in the gallery."""
    page = f"{e.name}/README.md"
    parts = [f"## [{e.title}]({page})"]
    if shown := pictures(e):  # a picture is preferred to a curve
        best = next((p for p in shown if p != "curve.png"), shown[0])
        parts.append(f"[![{e.title}]({e.name}/{best})]({page})")
    elif curve(e):
        parts.append(f"```text\n{curve(e)}\n```")
    parts.append(e.paragraph)
    if results(e):
        parts.append(results(e))
    body = "\n\n".join(parts)
    return f'<div class="card" markdown="1">\n\n{body}\n\n</div>'


def pages(root: Path) -> dict[str, str | bytes]:
    """All pages and pictures, by path in the documentation."""
    found = examples(root)
    cards = "\n\n".join(card(e) for e in found)
    made: dict[str, str | bytes] = {
        "examples/index.md": f'{HEAD}\n<div class="gallery" markdown="1">\n\n{cards}\n\n</div>\n'
    }
    for e in found:
        made[f"examples/{e.name}/README.md"] = e.text
        for name in pictures(e):
            made[f"examples/{e.name}/{name}"] = (e.folder / name).read_bytes()
    return made
