"""The rule for messages (CONTRIBUTING.md) holds for every `raise` in the package."""

import ast

import pytest

from tests import raised_messages
from tests.raised_messages import incomplete, lacks, listed, literal, raises

MOST = 229  # exceptions; repair messages, then lower the number


def test_no_message_gets_worse():
    found, known = incomplete(), listed()
    worse = {name: count for name, count in found.items() if count > known[name]}
    assert not worse, (
        f"messages that lack a place or advice: {worse} (say what was needed and what was given or "
        "what to do, and end with {here()}; see CONTRIBUTING.md)"
    )


def test_the_list_gets_shorter():
    found, known = incomplete(), listed()
    repaired = {name: count for name, count in known.items() if found[name] < count}
    assert not repaired, f"run python -m tests.raised_messages: {repaired}"
    assert sum(known.values()) <= MOST


def test_every_exempt_folder_exists():
    for folder, reason in raised_messages.OUTSIDE.items():
        assert (raised_messages.ROOT / "toile" / folder).is_dir() and reason


@pytest.mark.parametrize("kind, text, missing", [
    ("ValueError", "add: needed equal shapes, got (3,) and (4,){here()}", []),
    ("ValueError", "the sizes differ (pad one of them, or use where){here()}", []),
    ("ValueError", "add: needed equal shapes, got (3,) and (4,)", ["place"]),
    ("ValueError", "bad shapes{here()}", ["advice"]),
    ("TypeError", "bad shapes", ["place", "advice"]),
    ("KeyError", "needed a name of the file, got {name}", []),
])
def test_the_rule(kind, text, missing):
    assert lacks(kind, text) == missing


def test_literals():
    source = 'raise ValueError(f"a {x + 1}" " b" + here())\nraise shape_error("f")\nraise E(x)'
    assert list(raises(source)) == [("ValueError", "a {x + 1} b{here()}")]
    assert literal(ast.parse("f(x)", mode="eval").body) is None
