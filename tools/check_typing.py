"""Run type checkers on programs that use toile, and compare their messages with the expected ones.

`python -m tools.check_typing` runs pyright (in basic mode) and mypy on the programs in tests/typing
and on the examples. Accepted programs and examples must not cause errors. In refused programs,
exactly the lines with a comment `# error` must cause errors. In revealed.py, each `reveal_type`
must reveal the type in its comment (written as `mypy | pyright` if the two checkers differ).
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROGRAMS = ROOT / "tests" / "typing"
CHECKED = [str(PROGRAMS.relative_to(ROOT)), "examples"]
LINE = re.compile(r"^(.*?\.py):(\d+): (error|note): (.*)$")

Message = tuple[Path, int, str]


def pyright() -> tuple[list[Message], list[Message]]:
    """Errors and revealed types."""
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable,
               "--project", str(PROGRAMS / "pyrightconfig.json")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if not done.stdout.startswith("{"):
        sys.exit(f"pyright did not run:\n{done.stdout}{done.stderr}")
    errors, notes = [], []
    for found in json.loads(done.stdout)["generalDiagnostics"]:
        where = (Path(found["file"]), found["range"]["start"]["line"] + 1,
                 found["message"].partition("\n")[0])
        if found["severity"] == "error":
            errors.append(where)
        elif "Type of" in found["message"]:
            notes.append((*where[:2], re.sub(r'^Type of ".*" is "(.*)"$', r"\1", where[2])))
    return errors, notes


def mypy() -> tuple[list[Message], list[Message]]:
    """Errors and revealed types."""
    command = [sys.executable, "-m", "mypy", "--config-file", str(PROGRAMS / "mypy.ini"), *CHECKED]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        sys.exit(f"mypy did not run:\n{done.stdout}{done.stderr}")
    errors, notes = [], []
    for line in done.stdout.splitlines():
        if found := LINE.match(line):
            where = ROOT / found[1], int(found[2])
            if found[3] == "error":
                errors.append((*where, found[4]))
            elif "Revealed type is" in found[4]:
                shown = re.sub(r'^Revealed type is "(.*)"$', r"\1", found[4])
                notes.append((*where, re.sub(r"\b(?:[a-z_]\w*\.)+(?=[A-Z])", "", shown)))
    return errors, notes


def expected(folder: Path, mark: str) -> dict[tuple[Path, int], str]:
    """The lines with a comment that starts with `mark`, and the rest of each comment."""
    found = {}
    for path in sorted(folder.rglob("*.py")) if folder.is_dir() else [folder]:
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if mark in line:
                found[path, number] = line.partition(mark)[2].strip()
    return found


def problems(checker: str, errors: list[Message], notes: list[Message]) -> Iterator[str]:
    """The lines where a checker's messages differ from the expected ones."""
    refused = expected(PROGRAMS / "refused", "# error")
    for path, number, text in errors:
        if (path, number) not in refused:
            yield f"{path.relative_to(ROOT)}:{number}: {checker}: {text}"
    seen = {(path, number) for path, number, _ in errors}
    for path, number in refused.keys() - seen:
        yield f"{path.relative_to(ROOT)}:{number}: {checker} accepts this line"
    revealed = expected(PROGRAMS / "revealed.py", ")  # ")
    shown = {(path, number): text for path, number, text in notes}
    for (path, number), wanted in revealed.items():
        of_mypy, _, of_pyright = wanted.partition(" | ")
        right = of_pyright or of_mypy if checker == "pyright" else of_mypy
        if (got := shown.get((path, number))) != right:
            yield f"{path.relative_to(ROOT)}:{number}: {checker}: {got}, not {right}"


def main() -> int:
    """Print the differences; return 1 if there are any."""
    count = 0
    for checker in (pyright, mypy):
        for problem in sorted(set(problems(checker.__name__, *checker()))):
            print(problem)
            count += 1
    files = sum(1 for name in CHECKED for _ in (ROOT / name).rglob("*.py"))
    print(f"{files} files, {count} problems")
    return int(count > 0)


if __name__ == "__main__":
    sys.exit(main())
