"""Series of metrics that were written down, and the pictures made of them."""

import pytest

from toile.errors import UnreadableFileError
from toile.metrics.writers import create_default_writer
from toile.training import curves
from toile.training.devices import first_devices


@pytest.fixture
def workdir(tmp_path):
    with create_default_writer(tmp_path, console=False) as writer:
        for step in (1, 2, 2, 3):
            writer.write_scalars(step, {"train_loss": 1.0 / step})
        writer.write_scalars(3, {"eval_loss": 0.5})
    return tmp_path


def test_history_is_by_step(workdir):
    assert curves.history(workdir, "train_loss") == pytest.approx({1: 1.0, 2: 0.5, 3: 1 / 3})
    assert curves.history(workdir, "eval_loss") == {3: 0.5} and not curves.history(workdir, "x")


def test_a_line_that_a_kill_cut_short(workdir):
    path = workdir / "metrics.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"step": 4, "train_lo')
    assert list(curves.history(workdir, "train_loss")) == [1, 2, 3]
    with create_default_writer(workdir, console=False) as writer:  # the run goes on
        writer.write_scalars(4, {"train_loss": 0.0})
    assert path.read_bytes().startswith(whole)
    assert list(curves.history(workdir, "train_loss")) == [1, 2, 3, 4]
    for damage in (b"\xff\n", b"[" * 100_000 + b"\n", b'{"train_loss": 1}\n', b"3\n"):
        path.write_bytes(damage + whole)
        with pytest.raises(UnreadableFileError, match=r"line 1 of .*metrics\.jsonl"):
            curves.history(workdir, "train_loss")


def test_a_picture_is_drawn_where_matplotlib_is(workdir, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    assert not curves.picture(tmp_path / "no.png", {"loss": {"train": {1: 2.0}}})
    monkeypatch.undo()
    pytest.importorskip("matplotlib")
    curves.main([str(tmp_path / "c.png"), "train_loss,eval_loss", f"one={workdir}"])
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")


def test_first_devices_are_counted():
    assert len(first_devices(1)) == 1
    with pytest.raises(ValueError, match="needed a number of devices from 1 to"):
        first_devices(0)
