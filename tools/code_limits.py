"""Check limits on code size: lines per file, complexity per function, and lines in total.

`python -m tools.code_limits [FOLDER ...]` lists all violations, the worst first, and fails if there
are any. `--report` prints the total of each folder. Lines of code are lines other than blank lines,
comments and docstrings. The complexity of a function is 1 plus the number of decisions in it: if,
for, while, except, case, conditional expressions, comprehensions, `and` and `or`. It includes the
decisions in nested functions.
"""

from __future__ import annotations

import argparse
import ast
import collections
import io
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
MOST_LINES = 450  # lines of code in a file
MOST_COMPLEX = 15
MOST_IN_ALL = 135_000  # lines of code under toile/

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
DOCUMENTED = (ast.Module, ast.ClassDef, *FUNCTIONS)
DECISIONS = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.IfExp, ast.ExceptHandler,
             ast.comprehension, ast.match_case)
NO_CODE = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
           tokenize.ENDMARKER)


def code_lines(text: str, tree: ast.Module) -> int:
    """The number of lines with code."""
    documentation: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            first = node.body[0]
            documentation |= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    found: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NO_CODE:
            found |= set(range(token.start[0], token.end[0] + 1))
    return len(found - documentation)


def complexity(function: ast.AST) -> int:
    """The number of decisions in a function, plus one."""
    count = 1
    for node in ast.walk(function):
        if isinstance(node, DECISIONS):
            count += 1
        elif isinstance(node, ast.BoolOp):
            count += len(node.values) - 1
    return count


def functions(tree: ast.AST, inside: str = "") -> Iterator[tuple[str, ast.AST]]:
    """Functions and methods with their names, without nested functions."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, FUNCTIONS):
            yield inside + node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from functions(node, f"{inside}{node.name}.")
        else:
            yield from functions(node, inside)


def main() -> None:
    parser = argparse.ArgumentParser(prog="tools.code_limits", description=__doc__)
    parser.add_argument("folders", nargs="*", default=["toile"])
    parser.add_argument("--report", action="store_true")
    given = parser.parse_args()
    totals: collections.Counter[str] = collections.Counter()
    problems: list[tuple[int, str]] = []
    for path in sorted(p for f in given.folders for p in (ROOT / f).rglob("*.py")):
        text = path.read_text()
        tree = ast.parse(text)
        place = path.relative_to(ROOT)
        lines = code_lines(text, tree)
        totals[str(place.parent)] += lines
        if lines > MOST_LINES:
            problems.append((lines, f"{place}: {lines} lines of code, at most {MOST_LINES}"))
        for name, function in functions(tree):
            found = complexity(function)
            if found > MOST_COMPLEX:
                problems.append((found, f"{place}:{function.lineno} {name}: complexity {found}, "
                                        f"at most {MOST_COMPLEX}"))
    if given.report:
        for folder, lines in totals.most_common():
            print(f"{lines:7} {folder}")
    print(f"{sum(totals.values())} lines of code in {', '.join(given.folders)}")
    if given.folders == ["toile"] and totals.total() > MOST_IN_ALL:
        problems.append((totals.total(), f"{totals.total()} lines of code, at most {MOST_IN_ALL}"))
    for _, problem in sorted(problems, reverse=True):
        print(problem)
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
