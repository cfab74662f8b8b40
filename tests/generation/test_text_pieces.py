"""Text that arrives in pieces equals the text of all tokens, up to the first stop string."""

from hypothesis import example, given
from hypothesis import strategies as st

from toile.generation import TextPieces

TEXTS = st.text("abcé€😀 \n", max_size=30)
STOPS = st.lists(st.text("abcé€😀 ", min_size=1, max_size=4), max_size=3)


def decode(tokens):
    return bytes(tokens).decode(errors="replace")


def cut(text, stops):
    ends = [(text.find(s) + len(s), text.find(s)) for s in stops if s in text]
    return text[: min(ends)[1]] if ends else text


@given(TEXTS, STOPS, st.lists(st.integers(1, 6), min_size=40, max_size=150))
@example("aab", ["ab"], [1] * 40)
@example("abab😀", ["bab😀"], [1] * 40)
@example("aaa", ["aa", "a"], [3] * 40)
def test_pieces(text, stops, sizes):
    data, out = text.encode(), ""
    pieces = TextPieces(decode, stops)
    expected = cut(text, stops)
    while data:
        size = sizes.pop() if sizes else 1
        out += pieces.push(data[:size])
        data = data[size:]
        assert expected.startswith(out) and pieces.text == out
    out += pieces.finish()
    assert out == expected
    assert (pieces.stopped is not None) == any(stop in text for stop in stops)


@given(st.binary(max_size=30))
def test_invalid_bytes(data):
    pieces = TextPieces(decode)
    out = "".join(pieces.push([byte]) for byte in data) + pieces.finish()
    # A long run of invalid bytes may be divided differently into replacement characters.
    assert out.replace("�", "") == decode(data).replace("�", "")


def test_spaces_that_depend_on_the_token_before():
    words = ["Hello", "world", "!"]

    def decode(tokens):  # as tokenizers that strip the space before the first word
        return " ".join(words[t] for t in tokens).replace(" !", "!")

    pieces = TextPieces(decode)
    assert [pieces.push([t]) for t in (0, 1, 2)] == ["Hello", " world", "!"]


def test_nothing_is_held_longer_than_needed():
    pieces = TextPieces(decode, ["stop"])
    assert pieces.push(b"a s") == "a " and pieces.push(b"to") == "" and pieces.push(b"x") == "stox"
    assert pieces.push(b"sto") == "" and pieces.finish() == "sto"
