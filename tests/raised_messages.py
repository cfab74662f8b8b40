"""Every message that toile raises, and what it lacks by the rule of CONTRIBUTING.md.

A message says what was needed and what was given, or what to do, and ends with the place
(`{here()}`). The list raised_exceptions.txt holds those that do not; it may only get shorter. Most
of them are words of JAX and NumPy that programs search for, or what the readers of files find,
which is a part of the sentence that `engine.file_reader` completes.
`python -m tests.raised_messages` writes it again, without those that have been repaired.
"""

from __future__ import annotations

import ast
import functools
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
LISTED = Path(__file__).parent / "raised_exceptions.txt"

# Folders whose messages are not about a line of the user's program, and why.
OUTSIDE = {
    "exporting/numpy_code": "text of exported files, which run without toile",
    "command": "programs for the shell print one line, without a place",
    "compat": "names and words of other libraries",
    "compiler": "invariants of the compiler",
    "disk": "damaged files of the cache, which are made again",
    "kernels": "invariants of the compiler",
    "platforms": "invariants of the compiler, and errors of drivers",
    "primitives": "rules of operations; the functions of lax and numpy check their arguments first",
    "targets": "invariants of the compiler, and errors of drivers",
}
# Errors whose constructors add the place, and errors that are part of a protocol of Python.
PLACED = {
    "AssertionError", "AttributeError", "BufferError", "EOFError", "ImportError",
    "InvalidRngError", "KeyError", "ModifyScopeVariableError", "ModuleNotFoundError",
    "NameInUseError", "NotImplementedError", "ScopeCollectionNotFound", "StopIteration",
    "SystemExit", "UnreadableFileError",
}  # fmt: skip
# What was needed, or what is not possible; what was given is in the call that `here` shows.
_STRUCTURE = re.compile(
    r"need|expect|must|should|require|only|at least|at most|cannot|can't|out of bounds|"
    r"(do|does|is|are) not (support|match|implement|defined)|doesn't (support|match)|deprecated",
    re.IGNORECASE)
_ADVICE = re.compile(
    r"\b(use|pass|give|call|write|add|remove|set|install|try|return|convert|make|declare|did you"
    r"|mark|choose|start|put|name|copy|wrap|take|see|replace|instead|create|keep|avoid|reduce"
    r"|reshape|run)\b", re.IGNORECASE)


def literal(node: ast.expr) -> str | None:
    """The text of a string in the source, with {...} for values; None for other expressions."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(
            str(part.value) if isinstance(part, ast.Constant)
            else "{" + ast.unparse(part.value) + "}"  # type: ignore[attr-defined]
            for part in node.values
        )
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = literal(node.left), literal(node.right)
        if left is None:
            return None
        return left + ("{" + ast.unparse(node.right) + "}" if right is None else right)
    return None


def lacks(kind: str, text: str) -> list[str]:
    """What a message lacks: "place" and "advice"."""
    found = [] if "here()" in text or kind in PLACED else ["place"]
    if not (_STRUCTURE.search(text) or _ADVICE.search(text)):
        found.append("advice")
    return found


def raises(source: str) -> Iterator[tuple[str, str]]:
    """(class, text) of every error that is raised with a literal message."""
    for node in _statements(ast.parse(source)):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
            kind, text = ast.unparse(node.exc.func).rpartition(".")[2], literal(node.exc.args[0])
            if text is not None and kind[0].isupper():  # functions that make errors are apart
                yield kind, text


def _statements(node: ast.AST) -> Iterator[ast.stmt]:
    """All statements inside a node; unlike `ast.walk`, without the expressions."""
    for part in ("body", "handlers", "orelse", "finalbody", "cases"):
        for child in getattr(node, part, ()):
            if isinstance(child, ast.stmt):
                yield child
            yield from _statements(child)


@functools.cache
def incomplete() -> Counter[str]:
    """How often each file of toile raises a message that lacks something: "file what"."""
    found: Counter[str] = Counter()
    for path in sorted((ROOT / "toile").rglob("*.py")):
        parts = path.relative_to(ROOT / "toile").parts
        if parts[0] in OUTSIDE or "/".join(parts[:2]) in OUTSIDE:
            continue
        for kind, text in raises(path.read_text()):
            for what in lacks(kind, text):
                found[f"{'/'.join(parts)} {what}"] += 1
    return found


def listed() -> Counter[str]:
    """The exceptions in the list."""
    rows = [line.rsplit(" ", 1) for line in LISTED.read_text().splitlines()]
    return Counter({name: int(count) for name, count in rows})


if __name__ == "__main__":
    now = incomplete()
    if LISTED.exists():
        now &= listed()
    LISTED.write_text("".join(f"{name} {count}\n" for name, count in sorted(now.items())))
