"""The examples: their folders, and the descriptions in their READMEs.

In a wheel they are in a folder beside this module, where setup.py puts them; in a checkout,
including one installed with `pip install --editable`, they are in `examples/`.
"""

from __future__ import annotations

import ast
import functools
from dataclasses import dataclass
from pathlib import Path

# In the order of lists; others follow by name.
ORDER = (
    *("mnist", "vae", "cifar10", "imagenet", "seq2seq", "text_classification"),
    *("sequence_tagging", "lm1b", "t5", "language_model", "finetuning", "vision",
      "speech", "graph"),
    "autograd_classics",
)
PLACES = (Path(__file__).parent / "examples", Path(__file__).parents[2] / "examples")


@dataclass(frozen=True)
class Example:
    """An example: a folder and its README."""

    name: str
    folder: Path
    text: str

    @property
    def title(self) -> str:
        """The first line of the README."""
        return self.text.splitlines()[0].removeprefix("# ")

    @property
    def paragraph(self) -> str:
        """The first paragraph after the title."""
        return self.text.split("\n\n")[1]

    @property
    def task(self) -> str:
        """What the example does: the docstring of main.py or of the package, up to the colon."""
        for name in ("main.py", "__init__.py"):
            file = self.folder / name
            tree = ast.parse(file.read_text(encoding="utf-8")) if file.is_file() else None
            docstring = ast.get_docstring(tree) if tree else None
            if docstring:
                return docstring.splitlines()[0].partition(":")[0].rstrip(".")
        return self.title

    @property
    def result(self) -> tuple[str, list[tuple[str, str]]]:
        """The first row of the table of results: what was run, and pairs (column, value)."""
        text = self.text.partition("## Results")[2] or self.text
        rows = [line for line in text.splitlines() if line.startswith("|")]
        if len(rows) < 3:
            return "", []
        names, values = ([c.strip() for c in r.strip("| ").split("|")] for r in (rows[0], rows[2]))
        return values[0], [(n, v) for n, v in zip(names[1:], values[1:], strict=False) if v]


def root() -> Path | None:
    """The folder that has the examples; None if this installation has none."""
    return next((p for p in PLACES if (p / "mnist" / "README.md").is_file()), None)


def examples(folder: Path) -> list[Example]:
    """The folders that have a README."""
    found = [Example(p.parent.name, p.parent, p.read_text(encoding="utf-8"))
             for p in folder.glob("*/README.md")]
    known = {name: i for i, name in enumerate(ORDER)}
    return sorted(found, key=lambda e: (known.get(e.name, len(ORDER)), e.name))


@functools.cache
def available() -> tuple[Example, ...]:
    """The examples of this installation."""
    folder = root()
    return () if folder is None else tuple(examples(folder))


def names() -> list[str]:
    """The names of the examples of this installation."""
    return [e.name for e in available()]
