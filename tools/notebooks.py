"""Notebooks: Python files divided into cells by `# %%`, converted to Markdown and .ipynb files.

A cell that begins with `# %% [markdown]` contains text, written as comments; any other cell
contains code. The cells are executed. Below each code cell, the page shows the printed output and
the value of the last line, as in Jupyter (which is not needed). `python -m tools.notebooks
docs/notebooks/impatient.py` prints the page.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import linecache
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import toile

MARK = re.compile(r"^# %%(.*)\n", re.M)


@dataclass(frozen=True)
class Cell:
    """A cell of a notebook: text or code, and the number of lines before it in the file."""

    kind: str  # "markdown" or "code"
    source: str
    line: int


@dataclass(frozen=True)
class Output:
    """The output of a cell: printed text, and the value of the last line."""

    text: str = ""
    html: str = ""


def cells(text: str) -> list[Cell]:
    """The cells of a file, without the lines before the first mark."""
    marks = list(MARK.finditer(text))
    found = []
    for mark, after in zip(marks, [*marks[1:], None], strict=True):
        body = text[mark.end() : after.start() if after else len(text)]
        line = text[: mark.end()].count("\n")
        if "[markdown]" in mark[1]:
            found.append(Cell("markdown", re.sub(r"^# ?", "", body, flags=re.M).strip(), line))
        elif body.strip():
            found.append(Cell("code", body.strip("\n"), line + _blank_lines(body)))
    return found


def _blank_lines(body: str) -> int:
    return len(body) - len(body.lstrip("\n"))


def execute(text: str, name: str) -> list[tuple[Cell, Output]]:
    """Run all cells in order, in one scope; errors in cells are raised."""
    scope: dict[str, Any] = {"__name__": "__notebook__"}
    lines = [line + "\n" for line in text.split("\n")]
    linecache.cache[name] = (len(text), None, lines, name)  # so that errors can quote the source
    devices = toile.config.read("jax_num_cpu_devices")
    try:
        return [(cell, _run(cell, name, scope)) for cell in cells(text)]
    finally:
        toile.config.update("jax_num_cpu_devices", devices)


def _run(cell: Cell, name: str, scope: dict[str, Any]) -> Output:
    if cell.kind == "markdown":
        return Output()
    tree = ast.parse(cell.source)
    ast.increment_lineno(tree, cell.line)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    value: Any = None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, name, "exec", dont_inherit=True), scope)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), name, "eval"), scope)
    # Arrays are shown as text, which is shorter than a table and needs no unfolding.
    has_html = hasattr(value, "_repr_html_") and not isinstance(value, toile.Array)
    html = value._repr_html_() if has_html else ""
    if value is not None and not html:
        print(repr(value), file=printed)
    return Output(printed.getvalue(), html)


def markdown(executed: list[tuple[Cell, Output]]) -> str:
    """The page as Markdown."""
    parts = []
    for cell, output in executed:
        parts.append(cell.source if cell.kind == "markdown" else f"```python\n{cell.source}\n```")
        if output.text:
            parts.append(f"```text\n{output.text.rstrip()}\n```")
        if output.html:
            parts.append(f'<div class="output">{" ".join(output.html.split())}</div>')
    return "\n\n".join(parts) + "\n"


def ipynb(executed: list[tuple[Cell, Output]]) -> str:
    """The notebook, with its outputs, in Jupyter's format."""
    made: list[dict[str, Any]] = []
    for cell, output in executed:
        entry: dict[str, Any] = {"cell_type": cell.kind, "id": f"cell-{len(made)}", "metadata": {},
                                 "source": cell.source}  # fmt: skip
        if cell.kind == "code":
            shown: list[dict[str, Any]] = []
            if output.text:
                shown.append({"output_type": "stream", "name": "stdout", "text": output.text})
            if output.html:
                shown.append({"output_type": "display_data", "metadata": {},
                              "data": {"text/html": output.html}})  # fmt: skip
            entry |= {"outputs": shown, "execution_count": None}
        made.append(entry)
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {"kernelspec": kernel},
                       "cells": made}, indent=1)  # fmt: skip


if __name__ == "__main__":
    path = Path(sys.argv[1])
    print(markdown(execute(path.read_text(), path.name)))
