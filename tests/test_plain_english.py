"""The check of phrases finds what editors removed, in prose, docstrings and messages only."""

import pytest

from tools import plain_english

ODD = [
    "Whoever knows JAX", "the loop of whoever uses them", "in the\nmanner of NumPy",
    "makes of a function its gradient", "what they stand on", "between processes it has not yet",
    "saving is no news", "all that can be had", "Of a loop the first turn", "got wrong most surely",
    "has lost the frames", "arguments of fewer kinds", "What misses its goal", "4 batchs/s",
    "a capsule has lost its device", "arrays are given back at once", "take no part in the sum",
    "larger by as much", "of equal elements, the first", "every so many steps", "is told of it",
]


@pytest.mark.parametrize("text", ODD)
def test_odd_phrases_are_found(text):
    found = plain_english.odd_phrases("A line.\n\n" + text)
    assert found and found[0].line in (3, 4) and found[0].plain in str(found[0])


@pytest.mark.parametrize("text", [
    "`whoever`", "```python\nwhoever = 1\n```", "It depends on what you do.", "the upper part",
])
def test_code_and_plain_words_are_left_alone(text):
    assert not plain_english.odd_phrases(text)


def test_docstrings_and_messages_are_read_and_code_is_not():
    source = '''
def f(whoever):
    """Whoever calls it."""
    table["whoever"] = 1  # whoever
    raise ValueError(f"{f} needs whoever")
'''
    assert [line for line, text in plain_english.texts(source) if "hoever" in text] == [3, 5]


def test_it_fails_if_anything_is_found(tmp_path, capsys):
    page = tmp_path / "page.md"
    page.write_text("Whoever reads this\n")
    assert plain_english.main([str(page)]) == 1
    assert "page.md:1: 'Whoever'" in capsys.readouterr().out
    page.write_text("Anyone who reads this\n")
    assert plain_english.main([str(page)]) == 0
