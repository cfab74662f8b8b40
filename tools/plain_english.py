"""Find phrases that a technical writer would not use, in all texts that users read.

`python -m tools.plain_english [FILE ...]` looks for the phrases listed below in README.md,
CHANGELOG.md, the documentation, the examples' pages, and in the docstrings and messages of toile
and of the examples. It prints each phrase that it finds with a plain replacement, and fails if it
finds any. It is part of `make lint`.

The list cannot ensure good English, but it prevents phrases that were removed from coming back.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PROSE = ("README.md", "CHANGELOG.md", "docs", "examples")
CODE = ("toile", "examples", "docs/notebooks")

# Odd phrases and their replacements. A space matches any white space.
PHRASES = {
    r"\bwhoever\b": "a person who, anyone who",
    r"\bwhosoever\b|\bwhomever\b": "anyone who",
    r"\bin the manner of\b": "like",
    r"\bmakes? of (a|an|the) \w+ (its|a|an|the)\b": "turns a function into its gradient",
    r"\bwhat (they|it) stands? on\b": "what they depend on",
    r"\b(it|they) (has|have) not yet\b|\b(has|have) (it|they) not\b": "does not have yet",
    r"\b(there|here)(of|by)\b|\bwhere(in|by)\b|\bhenceforth\b": "make it two sentences",
    r"\blest\b": "so that ... not",
    r"\bis no news\b": "is not reported",
    r"\b(that|to) (can )?be had\b": "that is available",
    r"\bmost surely\b": "most often",
    r"\bof a \w+ the (first|last|second)\b": "the first ... of a ...",
    r"\b(loop|code|program|page)s? of whoever\b": "the user's loop",
    r"\bhas lost (the|its)\b": "no longer has the",
    r"\bof fewer kinds\b": "with fewer different shapes and dtypes",
    r"\bwhat misses its\b": "what does not reach its",
    r"\bbelongs? into\b": "belongs in",
    r"\botherwise than\b": "differently from",
    r"\bknows? nothing of\b": "does not know about",
    r"\b(batchs|epochses|losss|classs)\b": "batches, losses, classes",
    r"\b(in|out)side of\b": "inside, outside",
    r"\banew\b": "again, differently each time",
    r"\blast (axis )?but one\b": "second-to-last axis",
    r"\bcode here is executed\b": "The tests run all code on this page.",
    r"\bwithout a word\b": "without an error",
    r"\bas ever\b": "as usual",
    r"\bfor ever\b": "forever",
    r"\bNone for none\b": "None for no ...",
    r"\bagainst division by zero\b": "to avoid division by zero",
    r"\b(the|a) \w+ in force\b": "the current ...",
    r"\bof whose\b": "say it in two sentences",
    r"\bhands? out\b": "returns",
    r"\baxes of space\b": "spatial axes",
    r"\bhow often to\b": "how many times to",
    r"\bchanges? places\b": "swap",
    r"\bwholly\b": "entirely",
    r"\bone (need not|says)\b": "you need not, you say",
    r"\bg(ives?|iven|ave|iving) back\b": "returns, returned",
    r"\b(rules?|types?|files?|classes|functions?) of (your|one's) own\b": "your own ..., custom",
    r"\ba sign of life\b": "a heartbeat",
    r"\bin parts of\b": "relative to",
    r"\bwhere next\b": "what to read next",
    r"\bas far as can be\b": "as far as possible",
    r"\bso as not to\b": "so that it does not",
    r"\bupon\b": "on, when",
    r"\bfor want of\b": "for lack of",
    r"\bit be (a|an|the|that)\b": "it is",
    r"\bthe same holds of\b": "the same is true of",
    r"\bwithout more ado\b": "at once",
    r"\bmultiplied with\b": "multiplied by",
    r"\b(told|tells?) of\b": "gets, mentions",
    r"\bknows? of\b|\bknown of (it|them|a|an|the)\b": "known about",
    r"\b(takes?|has|have) no part in\b": "does not contribute to, does not affect",
    r"\bby as much\b": "by the same factor",
    r"\bof \w+'s own\b(?! \w)": "toile's own ...",
    r"\bof equal (ones|elements)\b,": "among equal ..., the first if several are equal",
    r"\bof equally \w+ ones\b": "among equally ...",
    r"\b(every|at (most|least)) so many\b": "every few, at most this many",
    r"\bnone too\b": "or none",
    r"\bwith what wrote it\b": "with the library that wrote it",
    r"\bone (position|line|step) a \w+\b": "one ... per ...",
    r"\bpower cut\b": "power failure",
    r"\bbegin of\b": "start of",
    r"[.!?] may import\b": "This module may import ...",
}
# A message is a string argument of a call to a function with such a name.
MESSAGES = re.compile(r"(Error|Warning|warn|warning|info|error|fail|print|help|echo)$")


class Finding(NamedTuple):
    """An odd phrase in a line of a file."""

    path: Path
    line: int
    phrase: str
    plain: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.phrase!r} (write: {self.plain})"


_PATTERNS = [(re.compile(k.replace(" ", r"\s+"), re.IGNORECASE), v) for k, v in PHRASES.items()]
_FENCE = re.compile(r"^( *)(```|~~~).*?^\1\2 *$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`\n]*`")


def odd_phrases(text: str, path: Path = Path("text"), first: int = 1) -> list[Finding]:
    """The odd phrases in a text, not counting code."""
    def blank(match: re.Match[str]) -> str:
        return re.sub(r"[^\n]", "_", match[0])

    text = _CODE.sub(blank, _FENCE.sub(blank, text))
    return [Finding(path, first + text.count("\n", 0, m.start()), " ".join(m[0].split()), plain)
            for pattern, plain in _PATTERNS for m in pattern.finditer(text)]


def texts(source: str) -> Iterator[tuple[int, str]]:
    """The docstrings and messages in Python code, with the numbers of their first lines."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case (ast.Module() | ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef()) if (
                ast.get_docstring(node, clean=False) is not None
            ):
                doc = node.body[0].value  # type: ignore[union-attr]
                yield doc.lineno, doc.value
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
                for part in ast.walk(node) if MESSAGES.search(name) else ():
                    if isinstance(part, ast.Constant) and isinstance(part.value, str):
                        yield part.lineno, part.value


def files() -> Iterator[Path]:
    """The pages and modules to check."""
    for name in PROSE:
        found = ROOT / name
        yield from [found] if found.is_file() else sorted(found.rglob("*.md"))
    for name in CODE:
        yield from sorted((ROOT / name).rglob("*.py"))


def findings(path: Path) -> list[Finding]:
    """The odd phrases in a file."""
    text = path.read_text()
    shown = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
    if path.suffix != ".py":
        return odd_phrases(text, shown)
    return [found for line, part in texts(text) for found in odd_phrases(part, shown, line)]


def main(arguments: list[str]) -> int:
    """Print the odd phrases; return 1 if there are any."""
    found = [f for path in (map(Path, arguments) if arguments else files()) for f in findings(path)]
    print(*found, sep="\n" if found else "")
    if found:
        print(f"{len(found)} phrases to rewrite (tools/plain_english.py lists them)")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
