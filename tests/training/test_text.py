"""Documents, tokenizers and packed rows."""

import sys

import numpy as np
import pytest

from toile.training import text


def test_bytes_round_trip_and_ends_are_left_out():
    tokens = text.Bytes()
    words = "naïve\n  日本 ~"
    assert tokens.decode([*tokens.encode(words), text.END, text.PAD]) == words
    assert max(tokens.encode(words)) < tokens.size and min(tokens.encode(words)) >= 2


@pytest.mark.parametrize("together", [False, True])
def test_packing_keeps_every_document_in_order(together):
    rng = np.random.default_rng(0)
    documents = [rng.integers(2, 99, rng.integers(0, 40)).tolist() for _ in range(200)]
    rows = text.pack(documents, 16, together=together)
    pieces = []
    for tokens, segments in zip(rows["tokens"], rows["segments"]):
        assert (np.diff(segments[segments > 0]) >= 0).all()
        assert ((tokens == 0) == (segments == 0)).all()
        pieces += [tuple(tokens[segments == i].tolist()) for i in range(1, segments.max() + 1)]
    expected = []
    for document in documents:
        whole = [*document, text.END]
        expected += [tuple(whole[i : i + 16]) for i in range(0, len(whole), 16)]
    assert sorted(pieces) == sorted(expected)
    full = (rows["tokens"] > 0).mean()
    assert full > 0.95 if together else full < 0.9


def test_documents_are_split_by_form_feeds_or_blank_lines(tmp_path):
    file = tmp_path / "a.txt"
    file.write_text("one\n\ntwo\nlines\n\n\n\nthree\n")
    assert text.documents_of_file(file) == ["one", "two\nlines", "three"]
    file.write_text("one\n\ntwo\n\f\nthree\n")
    assert text.documents_of_file(file) == ["one\n\ntwo", "three"]
    with pytest.raises(FileNotFoundError, match="none at"):
        text.documents_of_file(tmp_path / "b.txt")


def test_pieces_are_learnt_and_read_back(tmp_path):
    pytest.importorskip("sentencepiece")
    kinds = ("map", "set")
    lines = [f"the value number {i} of the {w}\n  is set" for i in range(50) for w in kinds]
    path = tmp_path / "folder" / "pieces.model"
    made = text.train_sentencepiece(lines, path, 300)
    again = text.SentencePiece(path)
    assert made.size == again.size == 300
    tokens = again.encode(lines[3])
    assert min(tokens) > text.END and len(tokens) < len(lines[3]) / 2
    assert again.decode([*tokens, text.END, text.PAD]) == lines[3]


def test_what_is_missing_for_pieces_is_told(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "sentencepiece", None)
        with pytest.raises(ImportError, match="pip install sentencepiece"):
            text.SentencePiece(tmp_path / "a.model")
    monkeypatch.setitem(sys.modules, "sentencepiece", sys)
    with pytest.raises(FileNotFoundError, match="train_sentencepiece"):
        text.SentencePiece(tmp_path / "a.model")
