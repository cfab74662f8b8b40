"""Convert docstrings to Markdown: paragraphs, the sections of docs/docstrings.md, and examples."""

from __future__ import annotations

import re
import textwrap

TITLES = {"Args": "Arguments", "Returns": "Returns", "Yields": "Yields", "Raises": "Raises",
          "Differences": "Differences"}  # fmt: skip
SECTION = re.compile(rf"^({'|'.join(TITLES)}):[ \t]*(.*)$")
ENTRY = re.compile(r"^(\*{0,2}\w[\w.]*(?:, *\*{0,2}\w[\w.]*)*): ?")


def escape(text: str) -> str:
    """Escape Markdown's special characters in a text, except in `code`."""
    pieces = re.split(r"(`+[^`]*`+)", text)
    pieces[::2] = [re.sub(r"([\[\]<>*_\\|])", r"\\\1", piece) for piece in pieces[::2]]
    return "".join(pieces)


def first_sentence(doc: str) -> str:
    """The first sentence of a docstring, in one line."""
    paragraph = " ".join(doc.split("\n\n")[0].split())
    return re.split(r"(?<=\.)\s+(?=[A-Z`])", paragraph)[0]


def as_markdown(doc: str) -> str:
    """A docstring as Markdown, with fenced examples, and sections as definition lists."""
    parts = []
    for name, lines in blocks(doc):
        body = textwrap.dedent("\n".join(lines)).strip("\n")
        if name == ">>>":
            parts.append(f"```pycon\n{body}\n```")
        elif name == "":
            parts.append(_paragraphs(body))
        else:
            parts.append(f"**{TITLES[name]}**{{ .field }}\n\n{_section(name, body)}")
    return "\n\n".join(part for part in parts if part.strip())


def blocks(doc: str) -> list[tuple[str, list[str]]]:
    """The pieces of a docstring: ("", text), (">>>", example), ("Args", the section's lines)."""
    found: list[tuple[str, list[str]]] = [("", [])]
    for line in doc.splitlines():
        name = found[-1][0]
        indented = line.startswith(" ") or not line.strip()
        if match := SECTION.match(line):
            found.append((match[1], [f"    {match[2]}"] if match[2] else []))
        elif line.lstrip().startswith(">>>") and (name in ("", ">>>") or not indented):
            if name != ">>>":
                found.append((">>>", []))
            found[-1][1].append(line)
        elif name == ">>>" and not line.strip():
            found.append(("", []))
        elif name in TITLES and not indented:
            found.append(("", [line]))
        else:
            found[-1][1].append(line)
    return found


def entries(body: str) -> list[tuple[str, str]]:
    """The entries of a section as pairs (names, text); names is "" for text outside entries."""
    found: list[tuple[str, str]] = []
    for line in body.splitlines():
        match = ENTRY.match(line)
        if match:
            found.append((match[1], line[match.end() :]))
        elif found:
            found[-1] = found[-1][0], f"{found[-1][1]}\n{line}"
        else:
            found.append(("", line))
    return [(names, _dedent_rest(text)) for names, text in found]


def _dedent_rest(text: str) -> str:
    first, _, rest = text.partition("\n")
    return f"{first}\n{textwrap.dedent(rest)}".strip()


def _section(name: str, body: str) -> str:
    if name not in ("Args", "Raises"):
        return _paragraphs(body)
    parts = []
    for names, text in entries(body):
        if not names:
            parts.append(_paragraphs(text))
            continue
        term = ", ".join(f"`{n.strip()}`" for n in names.split(","))
        definition = textwrap.indent(_paragraphs(text) or "\u2013", "    ").lstrip()
        parts.append(f"{term}\n:   {definition}")
    return "\n\n".join(parts)


def _paragraphs(text: str) -> str:
    """Convert paragraphs to Markdown; indented paragraphs become literal text."""
    made = []
    for paragraph in re.split(r"\n\s*\n", text.strip("\n")):
        if not paragraph.strip():
            continue
        lines = paragraph.splitlines()
        if all(line.startswith("    ") for line in lines):
            made.append(f"```text\n{textwrap.dedent(paragraph)}\n```")
        else:
            made.append(escape(_with_lists(lines)))
    return "\n\n".join(made)


def _with_lists(lines: list[str]) -> str:
    """Join lines, and insert a blank line before each list, as Markdown requires."""
    out: list[str] = []
    for line in lines:
        item = re.match(r"\s*(- |\d+\. )", line)
        if item and out and not re.match(r"\s*(- |\d+\. |  )", out[-1]):
            out.append("")
        out.append(line)
    return "\n".join(out)
