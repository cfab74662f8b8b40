"""Every public name has a whole docstring, and `tools.documented` sees what one lacks."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path
from typing import Any

import pytest

import toile
from toile.engine.lazy import public_names
from tools.documented import Public, problems, public
from tools.public_names import namespaces, public_list

# Submodules of toile that users do not import. Public names among them are listed elsewhere:
# those of `inspection` and `parallel` in toile, those of `exporting` in toile.export. `ids` is for
# programs that use flax.ids.
INTERNAL = {
    "api", "command", "compat", "compiler", "control", "disk", "displays", "doctor", "engine",
    "exporting", "ids", "inspection", "kernels", "parallel", "platforms", "primitives", "run",
    "staging", "targets", "transforms",
}  # fmt: skip


def test_every_public_name_is_documented():
    found = public()
    assert len(found) > 1500  # an empty list would be documented too
    lacking = [f"{one.name} ({one.home}): {'; '.join(missing)}"
               for one in found if (missing := list(problems(one)))]
    assert not lacking, "\n".join(["see docs/docstrings.md", *lacking])


def test_every_public_submodule_is_in_the_reference_and_known_to_editors():
    listed = public_names(str(Path(toile.__file__)))
    named = {name for name in namespaces() if name.count(".") == 1}
    for found in pkgutil.iter_modules(toile.__path__, "toile."):
        name = found.name.partition(".")[2]
        if name.startswith("_") or name in INTERNAL:
            continue
        assert name in listed, f"toile/__init__.pyi does not list {name}"
        if public_list(importlib.import_module(found.name)):
            assert found.name in named, f"add {name} to tools/public_names.py"


def whole(x: float, *rest: float, scale: float = 1.0) -> float:
    """Add numbers, multiplied with a scale.

    Args:
        x: first number.
        *rest: more numbers.
        scale: factor for all of them.

    Returns:
        The sum.

    >>> 2 + 3
    5
    """
    return scale * sum(rest, x)


def no_docstring(x: float) -> float:
    return x


def no_end(x: float) -> float:
    """Return a number

    Args:
        x: the number.

    Returns:
        The number.

    >>> 2
    2
    """
    return x


def no_entry(x: float, y: float, *rest: float) -> float:
    """Add numbers.

    Args:
        x: first number.

    Returns:
        The sum.

    >>> 2 + 3
    5
    """
    return x + y + sum(rest)


def entry_of_returns(x: float) -> float:
    """Return a number.

    Returns:
        x: the number.

    >>> 2
    2
    """
    return x


def no_type(x, y: Any) -> float:
    """Add numbers.

    Args:
        x, y: the numbers.

    Returns:
        The sum.

    >>> 2 + 3
    5
    """
    return x + y


def no_returns(x: float) -> float:
    """Return a number.

    Args:
        x: the number.

    >>> 2
    2
    """
    return x


def no_example(x: float) -> float:
    """Return a number.

    Args:
        x: the number.

    Returns:
        The number.
    """
    return x


def nothing(x: float) -> float:
    """Return a number."""
    return x


def returns_none(x: float) -> None:
    """Take a number.

    Args:
        x: the number.

    >>> 2
    2
    """


def generator(n: int):
    """Count.

    Args:
        n: how far.

    Yields:
        The numbers from 0 to `n - 1`.

    >>> 2
    2
    """
    yield from range(n)


class NoEntry:
    """A number with a unit.

    Args:
        x: the number.

    >>> 2
    2
    """

    def __init__(self, x: float, unit):
        self.x, self.unit = x, unit


class NoConstructor(ValueError):
    """An error, which users catch and do not make."""

    def __init__(self, x: float):
        super().__init__(x)


PLANTED = {
    whole: [],
    no_docstring: ["no docstring"],
    no_end: ["the first sentence does not end"],
    no_entry: ["no entry in Args: y, rest"],
    entry_of_returns: ["no entry in Args: x"],
    no_type: ["no type: x, y"],
    no_returns: ["no Returns"],
    no_example: ["no example"],
    nothing: ["no entry in Args: x", "no Returns", "no example"],
    returns_none: [],
    generator: [],
    NoEntry: ["no entry in Args: unit"],
    NoConstructor: [],
}


@pytest.mark.parametrize("value", PLANTED, ids=lambda v: v.__name__)
def test_what_a_docstring_lacks_is_reported(value, monkeypatch):
    monkeypatch.setattr(value, "__module__", "toile.lax.planted")
    assert list(problems(Public("toile.lax.planted", value))) == PLANTED[value]


def test_examples_are_up_to_the_writer_where_numpy_has_the_name(monkeypatch):
    monkeypatch.setattr(no_example, "__module__", "toile.numpy.planted")
    assert not list(problems(Public("toile.numpy.planted", no_example)))


def test_names_are_found_by_namespace_and_by_defining_module():
    assert any(one.name == "toile.vmap" for one in public(("toile.api.vectorization",)))
    assert {one.name for one in public(("toile.stages",))} >= {"toile.stages.Lowered"}
    assert not public(("toile.nowhere",))
