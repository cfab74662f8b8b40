"""How a mistake is written down and what every message must have."""

import inspect

import pytest


class Table(list):
    """Wrong programs with what their errors must say; used as a decorator."""

    def wrong(self, kind, operation, *shown, fix, where=None):
        """Add a program; `shown` are texts of the message, mostly operands.

        The line is the one marked `# wrong`, or `where` = (an object, a text in its source)."""

        def add(program):
            row = (program, kind, operation, shown, fix, where)
            self.append(pytest.param(*row, id=program.__name__))
            return program

        return add


def check(program, kind, operation, shown, fix, where=None):
    """The class, the line that is wrong, the operation, the operands, a fix; 15 lines."""
    with pytest.raises(kind) as caught:
        program()
    text = str(caught.value)
    place, mark = where or (program, "# wrong")
    lines, first = inspect.getsourcelines(place)
    line = first + next(i for i, s in enumerate(lines) if mark in s)
    assert f"{inspect.getsourcefile(program)}:{line} " in text, f"line {line} is not in: {text}"
    for part in (operation, fix, *shown):
        assert part in text, f"{part!r} is not in: {text}"
    assert len(text.splitlines()) <= 15, text
    assert "Array(" not in text, f"values instead of shapes: {text}"
