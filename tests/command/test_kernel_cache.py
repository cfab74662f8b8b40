"""`toile cache`: counts, and removes entries and nothing else."""

import pytest

from tests.command.running import refused, run
from toile.disk.object_cache import ObjectCache


@pytest.fixture
def kernels(tmp_path, monkeypatch):
    """A cache with two entries and a file of somebody else."""
    for name in ("TOILE_CACHE", "TOILE_CACHE_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TOILE_CACHE_DIR", str(tmp_path))
    found = ObjectCache(tmp_path / "kernels")
    found.put("ab", b"x" * 960_000)
    found.put("cd", b"y" * 40_000)
    (tmp_path / "kernels" / "notes.txt").write_text("mine")
    return found


def test_the_cache_is_shown(capsys, kernels, monkeypatch):
    lines = run(capsys, "cache").out.splitlines()
    assert lines == [f"folder   {kernels.folder}", "entries  2", "size     1.0 MB of at most "
                     "536.9 MB"]
    monkeypatch.setenv("TOILE_CACHE", "off")
    assert run(capsys, "cache").out.splitlines()[-1].startswith("The cache is turned off")


def test_a_cache_that_does_not_exist_yet_is_empty(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("TOILE_CACHE_DIR", str(tmp_path / "none"))
    assert "entries  0" in run(capsys, "cache").out
    assert "no entries" in run(capsys, "cache", "clear").out
    assert not (tmp_path / "none").exists()


def test_clear_removes_entries_only(capsys, kernels):
    assert run(capsys, "cache", "clear", "--yes").out == "removed 2 entries (1.0 MB)\n"
    assert kernels.usage() == (0, 0) and kernels.get("ab") is None
    assert [p.name for p in kernels.folder.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize(("answer", "left"), [("y", 0), ("YES", 0), ("", 2), ("no", 2)])
def test_clear_asks(capsys, kernels, monkeypatch, answer, left):
    asked = []
    monkeypatch.setattr("builtins.input", lambda text: asked.append(text) or answer)
    assert run(capsys, "cache", "clear").status == 0
    assert len(asked) == 1 and "Remove 2 entries (1.0 MB)" in asked[0]
    assert kernels.usage()[0] == left


def test_clear_without_an_answer_removes_nothing(capsys, kernels, monkeypatch):
    def nobody(text):
        raise EOFError

    monkeypatch.setattr("builtins.input", nobody)
    assert "--yes clears without asking" in refused(capsys, "cache", "clear", status=1)
    assert kernels.usage()[0] == 2


def test_a_folder_that_others_can_write_to_is_told(capsys, kernels):
    kernels.folder.chmod(0o777)
    assert "other users can write to it" in refused(capsys, "cache", status=1)
    assert (kernels.folder / "ab").exists()
