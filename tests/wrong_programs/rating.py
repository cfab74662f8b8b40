"""Rate the messages of wrong programs by six fields, and compare libraries.

`python -m tests.wrong_programs.rating` prints which fields the messages of toile lack;
`--write` writes their golden texts (messages.txt), and `--compare` rates jax and torch too and
writes the table results.md.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from tests.wrong_programs.corpus import LIBRARIES, Message, Program, programs, run

HERE = Path(__file__).parent
GOLDEN = HERE / "messages.txt"
RESULTS = HERE / "results.md"
MOST_LINES = 15
FIELDS = ("cause", "line", "module", "values", "fix", "short")

_SHAPE = re.compile(r"\(\d[\d, ]*\)")
_EXCERPT = re.compile(r"^(  at \S+:\d+ in .*)\n    .*$", re.MULTILINE)


def rate(program: Program, message: Message) -> dict[str, bool]:
    """Which fields the message has; a program without an error has none of them."""
    if not message.text:
        return dict.fromkeys(FIELDS, False)
    said = _EXCERPT.sub(r"\1", message.error)  # lines of the program do not count as words
    file = re.escape(program.file)
    place = rf'(File "{file}", line |\b{file}:){program.line}\b'
    everywhere = message.text if program.library == "torch" else said
    return {
        "cause": _has(program.cause, said),
        "line": _has(place, message.text),
        "module": not program.module or _has(re.escape(program.module), everywhere),
        "values": all(_has_value(value, said) for value in program.values.split("; ")),
        "fix": _has(program.fix, said),
        "short": len(message.text.splitlines()) <= MOST_LINES,
    }


def _has(pattern: str, text: str) -> bool:
    return re.search(pattern, text, re.IGNORECASE) is not None


def _has_value(value: str, text: str) -> bool:
    """Whether a message gives a value; shapes may be written (3, 4), [3,4] or 3x4."""
    if not _SHAPE.fullmatch(value) and value != "()":
        return _has(value if any(c in value for c in "|\\") else re.escape(value), text)
    sizes = re.findall(r"\d+", value)
    inner = ", ?".join(sizes)
    if not sizes:
        return _has(r"\(\)|\[\]", text)
    return _has(rf"\({inner},?\)|\[{inner}\]|\b{'x'.join(sizes)}\b", text)


def rated(library: str) -> dict[str, tuple[Program, Message, dict[str, bool]]]:
    """Run the programs for a library and rate their messages."""
    found = {}
    for program in programs(library):
        message = run(program)
        found[program.name] = program, message, rate(program, message)
    return found


def golden_text(messages: dict[str, str]) -> str:
    return "".join(f"=== {name}\n{text}\n" for name, text in sorted(messages.items()))


def golden_messages() -> dict[str, str]:
    """The messages of messages.txt by the name of the program."""
    sections = re.split(r"^=== ", GOLDEN.read_text(), flags=re.MULTILINE)[1:]
    pairs = (section.partition("\n") for section in sections)
    return {name: text.removesuffix("\n") for name, _, text in pairs}


def _share(rows: list[dict[str, bool]], test: str) -> str:
    held = sum(all(r.values()) if test == "all" else r[test] for r in rows)
    return f"{held / len(rows):.0%}" if rows else "-"


def table(results: dict[str, dict[str, dict[str, bool]]]) -> str:
    """A Markdown table: libraries by fields, over the programs that each library has."""
    groups = [("all of the library", library, set(rows)) for library, rows in results.items()]
    shared = set(results.get("torch", {}))
    groups += [("those that torch has", library, shared & set(rows))
               for library, rows in results.items()]
    lines = ["| programs | library | count | " + " | ".join(FIELDS) + " | all six | fields |",
             "| --- | --- | " + "--- | " * (len(FIELDS) + 3)]
    for title, library, names in groups:
        rows = [results[library][name] for name in sorted(names)]
        mean = sum(sum(r.values()) for r in rows) / max(1, len(rows))
        cells = [_share(rows, field) for field in (*FIELDS, "all")]
        lines.append(f"| {title} | {library} | {len(rows)} | {' | '.join(cells)} | {mean:.2f} |")
    return "\n".join(lines) + "\n"


_HEAD = """# Messages of wrong programs, rated

Made by `python -m tests.wrong_programs.rating --compare`: the share of programs whose message
states the cause, shows the user's line, names the module that was running, gives all values,
suggests a fix, and has at most 15 lines; the last column is the mean number of these fields.

"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write messages.txt")
    parser.add_argument("--compare", action="store_true", help="rate jax and torch; results.md")
    parser.add_argument("--show", metavar="TEXT", help="print messages of programs with this name")
    parser.add_argument("--library", default="toile", choices=LIBRARIES)
    options = parser.parse_args()
    found = rated(options.library)
    for name, (_, message, fields) in found.items():
        missing = [field for field, held in fields.items() if not held]
        if missing and options.show is None:
            print(f"{name}: {'silent' if not message.text else ', '.join(missing)}")
        if options.show is not None and options.show in name:
            print(f"=== {name}: lacks {missing}\n{message.text}")
    print(table({options.library: {name: row[2] for name, row in found.items()}}))
    if options.write:
        GOLDEN.write_text(golden_text({name: row[1].text for name, row in found.items()}))
    if options.compare:
        ratings = {x: {n: row[2] for n, row in rated(x).items()} for x in LIBRARIES}
        RESULTS.write_text(_HEAD + table(ratings))
        print(table(ratings))


if __name__ == "__main__":
    main()
