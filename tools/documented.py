"""Check that every public name is documented: purpose, arguments, result and an example.

`python -m tools.documented [NAMESPACE ...]` prints what is missing in these namespaces, and fails
if anything is missing. `--count` prints the number of documented names in each package.
docs/docstrings.md describes docstrings. This tool checks the rules that can be checked
automatically: a docstring must have a first sentence, an `Args:` entry and an informative
annotation for each parameter, a `Returns:` section, and an example if one is required.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import enum
import functools
import importlib
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from typing import Any

from tools.public_names import can_be_called, namespaces, own_docstring, public_list

# Packages whose names NumPy and SciPy users know. Examples are optional there.
KNOWN = ("toile.numpy", "toile.scipy", "toile.dtypes", "toile.typing", "toile.errors",
         "toile.monitoring", "toile.core", "toile.test_util")
EXAMPLES = ("toile.api", "toile.nn", "toile.lax", "toile.random", "toile.linen", "toile.optim",
            "toile.training", "toile.tree", "toile.tree_util", "toile.control", "toile.parallel",
            "toile.staging")
SECTION = re.compile(r"^(Args|Returns|Yields|Raises|Differences):", re.MULTILINE)
EMPTY = inspect.Parameter.empty


@dataclasses.dataclass(frozen=True)
class Public:
    """A public object, under the first of its names."""

    name: str
    value: Any

    @property
    def home(self) -> str:
        """The module that defines it."""
        return str(getattr(self.value, "__module__", ""))

    @property
    def package(self) -> str:
        return ".".join(self.home.split(".")[:2])


def public(wanted: tuple[str, ...] = ()) -> list[Public]:
    """Every public function and class that toile defines, once each."""
    found: dict[int, Public] = {}
    for namespace in namespaces():
        module = importlib.import_module(namespace)
        for name in public_list(module):
            value = getattr(module, name)
            whole = f"{namespace}.{name}"
            if not callable(value) or not _is_ours(value) or name.endswith("_p"):
                continue  # names such as `add_p` are JAX's names for operations
            one = Public(whole, value)
            if not wanted or any(_under(where, w) for w in wanted for where in (whole, one.home)):
                found.setdefault(id(value), one)
    return sorted(found.values(), key=lambda p: p.name)


def _under(name: str, namespace: str) -> bool:
    return name == namespace or name.startswith(f"{namespace}.")


def _is_ours(value: Any) -> bool:
    if not can_be_called(value):
        return False
    return not (isinstance(value, type) and issubclass(value, (enum.Enum, Warning)))


# ---- the contents of a docstring


def sections(doc: str) -> dict[str, str]:
    """The sections of a docstring by heading; "" stands for the text outside the sections."""
    pieces = SECTION.split(doc)
    found = {"": pieces[0]}
    for name, text in zip(pieces[1::2], pieces[2::2], strict=True):
        body = re.split(r"\n(?=\S)", text, maxsplit=1)  # a section ends where its indentation ends
        found[name] = body[0]
        found[""] += "\n" + body[1] if len(body) > 1 else ""
    return found


def described(doc: str) -> set[str]:
    """The parameters that the `Args:` section describes; an entry may describe several."""
    text = textwrap.dedent(sections(doc).get("Args", "").lstrip("\n"))
    found: set[str] = set()
    for entry in re.findall(r"^([*\w, ]+):", text, re.MULTILINE):
        found |= {name.strip(" *") for name in entry.split(",")}
    return found


def parameters(value: Any) -> list[inspect.Parameter]:
    """The parameters that a caller can pass."""
    try:
        found = list(inspect.signature(value).parameters.values())
    except (TypeError, ValueError):
        return []
    hidden = {"parent", "name"} if isinstance(value, type) and _is_module(value) else set()
    return [p for p in found if p.name not in hidden and not p.name.startswith("_")]


@functools.cache
def _modules() -> Any:
    return importlib.import_module("toile.linen").Module


def _is_module(value: type) -> bool:
    return issubclass(value, _modules())


def annotation(p: inspect.Parameter) -> str:
    """The text of an annotation; "" if there is none."""
    found = p.annotation
    if found is EMPTY:
        return ""
    return found if isinstance(found, str) else getattr(found, "__name__", str(found))


def problems(one: Public) -> Iterator[str]:
    """The problems in a public name's documentation."""
    doc = own_docstring(one.value)
    if not doc:
        yield "no docstring"
        return
    first = doc.split("\n\n")[0]
    if not first.rstrip().endswith((".", ":", "`")):
        yield "the first sentence does not end"
    is_class = isinstance(one.value, type)
    if is_class and (issubclass(one.value, BaseException) or vars(one.value).get("_is_protocol")):
        return  # their constructors are not documented
    names = parameters(one.value)
    missing = [p.name for p in names if p.name not in described(doc)]
    if missing:
        yield f"no entry in Args: {', '.join(missing)}"
    vague = [p.name for p in names if annotation(p) in ("", "Any")]
    if vague and not is_class:
        yield f"no type: {', '.join(vague)}"
    if not is_class and not _returns_nothing(one.value):
        if not {"Returns", "Yields"} & sections(doc).keys():
            yield "no Returns"
    if _needs_example(one) and ">>> " not in doc:
        yield "no example"


def _returns_nothing(value: Any) -> bool:
    try:
        return inspect.signature(value).return_annotation in (None, "None")
    except (TypeError, ValueError):
        return True


def _needs_example(one: Public) -> bool:
    if any(_under(one.home, n) for n in KNOWN):
        return False
    return any(_under(one.home, n) for n in EXAMPLES)


def main() -> int:
    parser = argparse.ArgumentParser(prog="tools.documented", description=__doc__)
    parser.add_argument("namespaces", nargs="*")
    parser.add_argument("--count", action="store_true")
    given = parser.parse_args()
    total: collections.Counter[str] = collections.Counter()
    done: collections.Counter[str] = collections.Counter()
    for one in public(tuple(given.namespaces)):
        found = list(problems(one))
        total[one.package] += 1
        done[one.package] += not found
        if found and not given.count:
            print(f"{one.name} ({one.home}): {'; '.join(found)}")
    for package, number in total.most_common() if given.count else ():
        print(f"{done[package]:5} of {number:5}  {package}")
    print(f"{done.total()} of {total.total()} public names are documented")
    return int(done.total() < total.total())


if __name__ == "__main__":
    sys.exit(main())
