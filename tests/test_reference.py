"""The pages of the reference: signatures, sources, docstrings and topics of public names."""

from __future__ import annotations

import importlib
import pathlib

import ml_dtypes
import pytest

import toile
import toile.linen as nn
import toile.numpy as jnp
from toile import optim
from tools.api_docstrings import as_markdown, entries, escape, first_sentence
from tools.api_sources import assignment, location, signature
from tools.api_topics import TABLES, homes, title, topics
from tools.public_names import namespaces, own_docstring, public_list

ROOT = pathlib.Path(__file__).parents[1]


def spread(x, /, first_argument: dict[str, int], *, second_argument: int = 1, **others) -> None:
    """Has parameters of all kinds."""


SIGNATURES = [
    ("sin", jnp.sin, "sin(x: ArrayLike, /) -> Array"),
    ("GRUCell", type("Empty", (), {}), "GRUCell()"),
    ("spread", lambda x, *rest, y=1: x, "spread(x, *rest, y=1)"),
    ("spread", lambda *, y: y, "spread(*, y)"),
    ("spread", lambda x, /: x, "spread(x, /)"),
]


@pytest.mark.parametrize(("name", "value", "expected"), SIGNATURES)
def test_short_signatures_are_one_line(name, value, expected):
    assert signature(name, value) == expected


def test_long_signatures_have_a_line_for_each_parameter():
    assert signature("spread", spread).splitlines() == [
        "spread(", "    x,", "    /,", "    first_argument: dict[str, int],", "    *,",
        "    second_argument: int = 1,", "    **others,", ") -> None",
    ]  # fmt: skip


def test_signatures_of_modules_are_spelled_as_in_their_source():
    lines = signature("Dense", nn.Dense).splitlines()
    assert "    param_dtype: Dtype = jnp.float32," in lines
    assert "    kernel_init: Initializer = default_kernel_init," in lines
    assert not [line for line in lines if "parent" in line or " name:" in line]


@pytest.mark.parametrize(
    ("value", "home", "text"),
    [
        (jnp.sum, ("toile.numpy.reductions", "sum"), "def sum("),
        (nn.Dense, ("toile.linen.linear", "Dense"), "class Dense("),
        (nn.relu, ("toile.core.nn.activation", "relu"), "def relu("),
        (optim.adam, ("toile.optim.optimizers", "adam"), "def adam("),
        (jnp.pi, ("toile.numpy.dtype_names", "pi"), "pi"),
        (toile.config, ("toile.engine.config", "config"), "config ="),
    ],
)
def test_source_lines_are_those_of_definitions(value, home, text):
    file, _, line = location(value, home).partition(":")
    assert text in (ROOT / file).read_text().splitlines()[int(line) - 1]


def test_every_public_name_has_a_source():
    missing = []
    for namespace in namespaces():
        module = importlib.import_module(namespace)
        where = homes(module)
        for name in public_list(module):
            place = location(getattr(module, name), where.get(name, (namespace, name)))
            if not (ROOT / place.partition(":")[0]).is_file() or not place:
                missing.append(f"{namespace}.{name}")
    assert missing == []


def test_values_from_elsewhere_are_found_where_they_are_imported():
    assert assignment("toile.numpy.dtype_names", "no_such_name") == "toile/numpy/dtype_names.py"
    assert assignment("numpy", "pi") == ""


@pytest.mark.parametrize("namespace", sorted(TABLES))
def test_topics_have_every_name_once(namespace):
    module = importlib.import_module(namespace)
    names = public_list(module)
    groups = topics(module, names)
    assert sorted(n for group in groups.values() for n in group) == names
    assert len(groups) > 3 and all(groups)
    assert max(map(len, groups)) <= 50  # a long title is that of a module missing in the table


@pytest.mark.parametrize("namespace", sorted(TABLES))
def test_tables_of_topics_name_modules_that_are_used(namespace):
    used = {home for home, _ in homes(importlib.import_module(namespace)).values()}
    named = [home for group in TABLES[namespace].values() for home in group]
    assert len(named) == len(set(named))
    assert set(named) <= used


def test_modules_without_a_table_are_titled_by_their_docstrings():
    assert title("toile.numpy.sets") == "Functions that treat arrays as sets"
    assert list(topics(toile.tree, ["map"])) == [""]


DOC = """Limit *elements*.

More about `a_b` and c_d:
- one
- two

Args:
    x, y: operands,
        which are broadcast: always.
    **rest: more.

Returns:
    An array.

Raises:
    ValueError: `x` is complex.

>>> f(1)
2

And a last word."""
MARKDOWN = r"""Limit \*elements\*.

More about `a_b` and c\_d:

- one
- two

**Arguments**{ .field }

`x`, `y`
:   operands,
    which are broadcast: always.

`**rest`
:   more.

**Returns**{ .field }

An array.

**Raises**{ .field }

`ValueError`
:   `x` is complex.

```pycon
>>> f(1)
2
```

And a last word."""


def test_docstrings_become_markdown():
    assert as_markdown(DOC) == MARKDOWN


def test_examples_with_blank_lines_and_indented_blocks():
    made = as_markdown("Text.\n\n    a = b\n    c\n\n>>> x\n1\n\n>>> y\n2")
    assert made.count("```pycon") == 2 and "```text\na = b\nc\n```" in made


def test_entries_and_sentences():
    assert entries("x: one\n    two\ny: three") == [("x", "one\ntwo"), ("y", "three")]
    assert entries("a plain sentence") == [("", "a plain sentence")]
    assert first_sentence("One thing, e.g. this. Another.\n\nMore.") == "One thing, e.g. this."
    assert escape("a|b `c|d`") == r"a\|b `c|d`"


def test_methods_are_in_the_entry_of_the_class_that_is_public():
    pytest.importorskip("mkdocs")
    from tools import api_pages

    module = "\n".join(api_pages.methods_table(nn.Module))  # its methods are in private bases
    assert "| `apply()` | Call a method of the module" in module and "| `sow()` |" in module
    assert not any("apply()" in line for line in api_pages.methods_table(nn.Dense))
    assert "| `shape` | The sizes of the axes. |" in api_pages.methods_table(toile.Ref)
    operation = api_pages.entry("toile.lax", "cond_p", toile.lax.cond_p, ("toile.lax", "cond_p"))
    assert "Methods" not in operation  # only the compiler and the transformations call them


def test_docstrings_of_other_packages_are_not_repeated():
    pytest.importorskip("mkdocs")
    from tools import api_pages

    assert own_docstring(tuple[int, ...]) == own_docstring(jnp.finfo) == own_docstring(dict) == ""
    assert own_docstring(optim.nadam)  # a partial function with a docstring of ours
    assert api_pages.alias_of(tuple[int, ...]) == "Another name for `tuple[int, ...]`."
    assert api_pages.alias_of(FileNotFoundError) == "Another name for `FileNotFoundError`."
    assert api_pages.alias_of(ml_dtypes.finfo) == "Another name for `ml_dtypes.finfo`."


def test_pages_have_a_summary_and_every_name():
    pytest.importorskip("mkdocs")
    from tools import api_pages

    page = api_pages.page("toile.random")
    assert page.index("| [Keys](#keys) |") < page.index("## Keys") < page.index("### split ")
    for name in public_list(toile.random):
        assert f"[`{name}`](#toile.random.{name})" in page
        assert f"{{ #toile.random.{name} " in page
