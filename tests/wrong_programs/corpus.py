"""Wrong programs as texts: how they are written down, run and printed.

The files in programs/ hold sections. A section starts with `=== name`, followed by what a complete
message says (see `Program`), a line `---` and the program; the wrong line ends in `# wrong`. The
same program is run on jax and flax with other imports. A section `=== name / torch` holds the same
mistake in PyTorch; the fields that it does not give are those of the section before it.
"""

from __future__ import annotations

import contextlib
import io
import linecache
import re
import tempfile
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "programs"
LIBRARIES = ("toile", "jax", "torch")


@dataclass(frozen=True)
class Program:
    """A wrong program and what a complete message about it says."""

    name: str
    library: str
    text: str = ""
    cause: str = ""  # regular expression: what is wrong
    values: str = ""  # regular expressions or shapes, separated by `; `: what was given
    module: str = ""  # the path of the module that was running; empty if there was none
    fix: str = ""  # regular expression: what to do

    @property
    def file(self) -> str:
        return f"{self.name}.py"

    @property
    def line(self) -> int:
        """The number of the wrong line."""
        lines = self.text.splitlines()
        return next(i for i, text in enumerate(lines, 1) if text.endswith("# wrong"))


@dataclass(frozen=True)
class Message:
    """What Python prints: all of it, and the last error alone."""

    text: str
    error: str


def programs(library: str = "toile") -> list[Program]:
    """All programs for a library; for jax, those of toile with other imports."""
    found = list(_sections(LIBRARIES[0] if library == "jax" else library))
    return [p for p in map(_for_jax, found) if p] if library == "jax" else found


def _sections(library: str) -> Iterator[Program]:
    before = Program("", "")
    for path in sorted(FOLDER.glob("*.txt")):
        for section in re.split(r"^=== ", path.read_text(), flags=re.MULTILINE)[1:]:
            head, _, text = section.partition("---\n")
            title, *lines = head.splitlines()
            name, _, other = title.partition(" / ")
            fields: dict[str, Any] = dict(line.split(": ", 1) for line in lines)
            start = before if other else Program(name, "toile")
            program = replace(start, library=other or "toile", text=text, **fields)
            before = start if other else program
            if program.library == library:
                yield program


_JAX = (
    ("import toile.linen", "import flax.linen"),
    ("from toile import optim", "import optax as optim"),
    ("from toile import serialization", "from flax import serialization"),
    ("from toile.training import", "from flax.training import"),
    ("toile", "jax"),
)


def _for_jax(program: Program) -> Program | None:
    """The program for jax, flax and optax, or None if it uses parts that only toile has."""
    if re.search(r"toile\.training\.|checkpoints|toile\.interop", program.text):
        return None
    text = program.text
    for ours, theirs in _JAX:
        text = text.replace(ours, theirs)
    return replace(program, library="jax", text=text)


def run(program: Program) -> Message:
    """Run a program in this process; what it prints besides the error is dropped."""
    linecache.cache[program.file] = (
        len(program.text), None, program.text.splitlines(keepends=True), program.file)
    code = compile(program.text, program.file, "exec", dont_inherit=True)
    space = {"__name__": "__main__", "__file__": program.file}
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            exec(code, space)
        except Exception as error:
            assert error.__traceback__ is not None
            shown = error.with_traceback(error.__traceback__.tb_next)  # without this function
            whole = "".join(traceback.format_exception(shown))
            return Message(_normal(whole), _normal("".join(traceback.format_exception_only(shown))))
    return Message("", "")


def _normal(text: str) -> str:
    """The text without what differs between machines: folders, addresses and free memory."""
    text = text.replace(str(Path(__file__).parents[2]) + "/", "")
    text = re.sub(re.escape(tempfile.gettempdir()) + r"/\w+", "/tmp/folder", text)
    text = re.sub(r'"[^"\n]*/site-packages/', '"', text)
    text = re.sub(r"0x[0-9a-f]{6,}", "0x...", text)
    text = re.sub(r"\b(\d+) CPU devices?\b", "N CPU devices", text)
    return re.sub(r"with [\d.]+ \wiB, of which [\d.]+ \wiB are", "with N GiB, of which M are", text)
