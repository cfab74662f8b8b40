"""Pages made of the examples' READMEs: one for each, with its pictures, and a gallery of all."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

# In the order of the gallery; others follow by name.
ORDER = (
    *("mnist", "vae", "cifar10", "imagenet", "seq2seq", "text_classification"),
    *("sequence_tagging", "lm1b", "t5", "graph", "autograd_classics"),
)
HEAD = """# Examples

Programs to copy and change. Each is complete, runs alone and needs no download: `make example-NAME`
runs one, `make examples` all of them, with the recipes and results that are stated here. The
training step, the loop and the evaluation are written out in each `train.py`; [training loops to
fork](../forking.md) shows what a change looks like.
"""


class Example(NamedTuple):
    """What the README of an example says."""

    name: str
    folder: Path
    text: str

    @property
    def title(self) -> str:
        return self.text.splitlines()[0].removeprefix("# ")

    @property
    def paragraph(self) -> str:
        """The first paragraph after the title."""
        return self.text.split("\n\n")[1]

    @property
    def pictures(self) -> list[str]:
        """Files of the pictures that the README shows; MkDocs tells of those that are missing."""
        names = re.findall(r"!\[[^\]]*\]\(([^)/]+\.png)\)", self.text)
        return [name for name in dict.fromkeys(names) if (self.folder / name).exists()]

    @property
    def results(self) -> str:
        """The first row of the table of results, in words."""
        text = self.text.partition("## Results")[2] or self.text
        rows = [line for line in text.splitlines() if line.startswith("|")]
        if len(rows) < 3:
            return ""
        names, values = ([c.strip() for c in r.strip("| ").split("|")] for r in (rows[0], rows[2]))
        pairs = [f"{n}: {v}" for n, v in zip(names[1:], values[1:], strict=False) if v]
        return f"*{values[0]}* — " + "; ".join(pairs)

    @property
    def curve(self) -> str:
        """A curve that is drawn with letters."""
        blocks = re.findall(r"^```\n(.*?)^```", self.text, re.S | re.M)
        return next((b.rstrip() for b in blocks if re.search("[\u2801-\u28ff]", b)), "")

    def card(self) -> str:
        """Its part of the gallery."""
        page = f"{self.name}/README.md"
        parts = [f"## [{self.title}]({page})"]
        if self.pictures:  # a picture of results says more than a curve
            best = next((p for p in self.pictures if p != "curve.png"), self.pictures[0])
            parts.append(f"[![{self.title}]({self.name}/{best})]({page})")
        elif self.curve:
            parts.append(f"```text\n{self.curve}\n```")
        parts.append(self.paragraph)
        if self.results:
            parts.append(self.results)
        body = "\n\n".join(parts)
        return f'<div class="card" markdown="1">\n\n{body}\n\n</div>'


def examples(root: Path) -> list[Example]:
    """The folders that have a README."""
    found = [Example(p.parent.name, p.parent, p.read_text()) for p in root.glob("*/README.md")]
    known = {name: i for i, name in enumerate(ORDER)}
    return sorted(found, key=lambda e: (known.get(e.name, len(ORDER)), e.name))


def pages(root: Path) -> dict[str, str | bytes]:
    """Pages and pictures by their paths in the documentation."""
    found = examples(root)
    cards = "\n\n".join(e.card() for e in found)
    made: dict[str, str | bytes] = {
        "examples/index.md": f'{HEAD}\n<div class="gallery" markdown="1">\n\n{cards}\n\n</div>\n'
    }
    for e in found:
        made[f"examples/{e.name}/README.md"] = e.text
        for name in e.pictures:
            made[f"examples/{e.name}/{name}"] = (e.folder / name).read_bytes()
    return made
