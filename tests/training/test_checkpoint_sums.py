"""Checksums beside checkpoints: what they find, and that Flax and tensorflow are not disturbed."""

import json
import os
import pathlib
import shutil
import zlib

import flax
import flax.training.checkpoints as theirs
import numpy as np
import pytest

from toile import errors, io, serialization
from toile.training import checkpoints
from toile.training.checkpoints import files, restore_checkpoint, save_checkpoint, streams

Corrupted = errors.CorruptedCheckpointError
SUMS = ".checkpoint_{}.sums_gda"


def filled(number):
    """A tree whose numbers tell from which save they are."""
    return {"a": np.full(50, number), "b": [np.full((3, 3), number, np.float32)], "step": number}


def sidecars(folder):
    return sorted(name for name in os.listdir(folder) if name.endswith(".sums_gda"))


@pytest.fixture
def flax_without_orbax():
    """Flax writes files of its own format."""
    before = flax.config.flax_use_orbax_checkpointing
    flax.config.update("flax_use_orbax_checkpointing", False)
    yield
    flax.config.update("flax_use_orbax_checkpointing", before)


@pytest.mark.parametrize("prefix", ["checkpoint_", ""])
@pytest.mark.filterwarnings("ignore:Flax Checkpointing:DeprecationWarning")
def test_flax_sees_no_checksums(tmp_path, prefix, flax_without_orbax):
    tree = {"a": np.arange(3.0), "b": {"c": np.ones(2, np.float32)}}
    for step in (1, 2, 3):
        save_checkpoint(tmp_path, tree, step, prefix, keep=2)
    assert sidecars(tmp_path) == [f".{prefix}{step}.sums_gda" for step in (2, 3)]
    if prefix:  # without one it fails for itself
        assert theirs.available_steps(tmp_path, prefix) == [2, 3]
    assert theirs.latest_checkpoint(tmp_path, prefix) == str(tmp_path / f"{prefix}3")
    back = theirs.restore_checkpoint(tmp_path, None, prefix=prefix)
    assert (back["a"] == tree["a"]).all()
    # Flax removes a checkpoint and leaves its checksums; they go with the next save.
    theirs.save_checkpoint(tmp_path, tree, 4, prefix, keep=1)
    assert checkpoints.available_steps(tmp_path, prefix) == [4]
    assert (restore_checkpoint(tmp_path, tree, prefix=prefix)["a"] == tree["a"]).all()
    save_checkpoint(tmp_path, tree, 5, prefix, keep=2)
    assert sidecars(tmp_path) == [f".{prefix}5.sums_gda"]
    assert theirs.latest_checkpoint(tmp_path, prefix) == str(tmp_path / f"{prefix}5")
    # Flax replaces one of toile's: the checksums are not its own.
    other = {"a": np.zeros(3), "b": {"c": np.zeros(2, np.float32)}}
    theirs.save_checkpoint(tmp_path, other, 5, prefix, keep=2, overwrite=True)
    assert os.path.getsize(tmp_path / f"{prefix}5") == len(serialization.to_bytes(tree))
    assert (restore_checkpoint(tmp_path, tree, prefix=prefix)["a"] == 0).all()


def test_checksums_are_kept_with_their_checkpoints(tmp_path):
    for step in range(0, 60, 10):
        save_checkpoint(tmp_path, filled(step), step, keep=2, keep_every_n_steps=20)
    assert checkpoints.available_steps(tmp_path) == [0, 20, 40, 50]
    assert sidecars(tmp_path) == [SUMS.format(step) for step in (0, 20, 40, 50)]
    save_checkpoint(tmp_path, filled(20), 20, keep=9, overwrite=True)
    assert sidecars(tmp_path) == [SUMS.format(step) for step in (0, 20)]
    save_checkpoint(tmp_path, filled(20), 20, keep=9, overwrite=True, checksums=False)
    assert sidecars(tmp_path) == [SUMS.format(0)]
    assert restore_checkpoint(tmp_path, filled(0))["step"] == 20
    text = json.loads((tmp_path / SUMS.format(0)).read_text())["sums"]
    assert text["size"] == os.path.getsize(tmp_path / "checkpoint_0")
    assert [(x["path"], x["dtype"], x["shape"]) for x in text["arrays"]] == [
        ("a", "int64", [50]), ("b/0", "float32", [3, 3]),
    ]  # fmt: skip


def test_checksums_that_cannot_be_used(tmp_path):
    path = save_checkpoint(tmp_path, filled(1), 1)
    sums = tmp_path / SUMS.format(1)
    good = sums.read_bytes()
    body = good[good.index(b'"sums": ') + 8 : -1]
    bodies = (b"{}", b"[]", body.replace(b'"crc32": [', b'"crc32": [7, '),
              body.replace(b'"block": 8', b'"block": -8'), b"[" * 100_000)  # fmt: skip
    framed = [b'{"crc32": %10d, "sums": %s}' % (zlib.crc32(text), text) for text in bodies]
    for wrong in (b"", good[:-1], good.replace(b"50", b"51"), *framed[:2], *framed[3:]):
        sums.write_bytes(wrong)
        with pytest.warns(UserWarning, match="restored unchecked"):
            assert restore_checkpoint(tmp_path, filled(0))["step"] == 1
    sums.write_bytes(framed[2])  # of somebody who can write there
    with pytest.raises(Corrupted, match="a .*int64"):
        restore_checkpoint(tmp_path, filled(0), 1)
    sums.unlink()
    os.mkfifo(sums)
    with pytest.warns(UserWarning, match="restored unchecked.*not a regular file"):
        assert restore_checkpoint(tmp_path, filled(0))["step"] == 1
    sums.unlink()
    assert restore_checkpoint(tmp_path, filled(0))["step"] == 1
    # A copy is checked as the original is.
    save_checkpoint(tmp_path, filled(1), 1, overwrite=True)
    copy = tmp_path / "copy"
    copy.mkdir()
    shutil.copy(sums, copy)
    data = bytearray(pathlib.Path(path).read_bytes())
    (copy / "checkpoint_1").write_bytes(data)
    assert restore_checkpoint(copy, filled(0))["step"] == 1
    data[-1] ^= 1
    (copy / "checkpoint_1").write_bytes(data)
    with pytest.raises(Corrupted, match="not those that were saved"):
        restore_checkpoint(copy, filled(0), 1)


def test_a_full_disk_takes_the_checksums_first(tmp_path, monkeypatch):
    original = files.write_file

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, "write_file", full)
    with pytest.warns(UserWarning, match="no checksums for .*checkpoint_1: .*No space left"):
        save_checkpoint(tmp_path, filled(1), 1)
    monkeypatch.setattr(files, "write_file", original)
    assert restore_checkpoint(tmp_path, filled(0))["step"] == 1


def test_files_of_tensorflow(tmp_path, monkeypatch):
    """The calls that `gs://` paths go through, with the plain files behind them."""
    class GFile:
        """What toile calls of tf.io.gfile."""

        listdir, isdir, exists = os.listdir, os.path.isdir, os.path.exists
        makedirs, remove, rmtree = os.makedirs, os.remove, shutil.rmtree

        @staticmethod
        def GFile(name, mode):
            return open(name, mode)

        @staticmethod
        def rename(source, target, overwrite=False):
            os.replace(source, target)

        @staticmethod
        def stat(path):
            return type("Stat", (), {"length": os.path.getsize(path)})

    monkeypatch.setattr(io, "_gfile", lambda: GFile)
    monkeypatch.setattr(streams, "_SMALL", 10)
    with io.override_mode(io.BackendMode.TF):
        for step in (1, 2, 3):
            path = save_checkpoint(tmp_path, filled(step), step, keep=2)
        assert restore_checkpoint(tmp_path, filled(0))["step"] == 3
        data = bytearray(pathlib.Path(path).read_bytes())
        data[data.find(filled(3)["a"].tobytes())] ^= 1
        pathlib.Path(path).write_bytes(data)
        with pytest.warns(UserWarning, match="the array a"):
            assert restore_checkpoint(tmp_path, filled(0))["step"] == 2
        assert len(sidecars(tmp_path)) == 2 and not [n for n in os.listdir(tmp_path) if "tmp" in n]
