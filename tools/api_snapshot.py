"""A snapshot of all public names and their signatures, so that no change goes unnoticed.

`python -m tools.api_snapshot` writes tests/golden/api.txt, with one name per line, and a test
compares that file with the current names. If the file changes, CHANGELOG.md needs a line about the
change; docs/stability.md says which changes are allowed.
"""

from __future__ import annotations

import enum
import importlib
import inspect
import re
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tools.public_names import can_be_called, namespaces, public_list

FILE = Path(__file__).parents[1] / "tests" / "golden" / "api.txt"
EMPTY = inspect.Parameter.empty


def default(value: Any) -> str:
    """A default value as text, without memory addresses."""
    if isinstance(value, (types.FunctionType, types.BuiltinFunctionType, type)):
        return value.__name__
    text = re.sub(r" at 0x[0-9a-f]+", "", repr(value))
    return text if "\n" not in text else f"<{type(value).__name__}>"


def parameters(value: Any) -> str:
    """The parameters as text, such as `(x, axis=None, *, keepdims=False)`."""
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return "(...)"
    plain = [p.replace(annotation=EMPTY, default=_Text(default(p.default)))
             if p.default is not EMPTY else p.replace(annotation=EMPTY)
             for p in found.parameters.values()]
    return str(found.replace(parameters=plain, return_annotation=EMPTY))


class _Text(str):
    """A string whose repr is the string itself, without quotes."""

    __repr__ = str.__str__


def members(cls: type, public: set[type]) -> Iterator[tuple[str, Any]]:
    """The methods and properties of a class that it does not inherit from a public class."""
    bases = {b for base in cls.__mro__[1:] if base in public for b in base.__mro__}
    found: dict[str, Any] = {}
    for owner in reversed(cls.__mro__):
        if owner not in bases and owner.__module__.startswith("toile"):
            found |= vars(owner)
    for name, value in found.items():
        if not name.startswith("_") and (callable(value) or _is_attribute(value)):
            yield name, value


def _is_attribute(value: Any) -> bool:
    return isinstance(value, (property, classmethod, staticmethod))


def lines() -> Iterator[str]:
    """The lines of the file, unsorted."""
    found = {}
    for namespace in namespaces():
        module = importlib.import_module(namespace)
        found |= {f"{namespace}.{name}": getattr(module, name) for name in public_list(module)}
    classes = {v for v in found.values() if isinstance(v, type)}
    for name, value in found.items():
        if not can_be_called(value) or isinstance(value, enum.EnumMeta):
            yield f"{name}: {type(value).__name__}"  # Python determines its signature
            continue
        yield name + parameters(value)
        if not isinstance(value, type):
            continue
        for part, member in () if name.endswith("_p") else members(value, classes):
            shown = ": property" if isinstance(member, property) else (
                parameters(getattr(value, part)))
            yield f"{name}.{part}{shown}"


def snapshot() -> str:
    """The text of the snapshot file."""
    return "\n".join(sorted(set(lines()))) + "\n"


if __name__ == "__main__":
    FILE.write_text(snapshot())
    print(f"{len(FILE.read_text().splitlines())} names in {FILE}", file=sys.stderr)
