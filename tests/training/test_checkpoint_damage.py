"""Checkpoints that are damaged, steps that are no numbers, and names that are hostile."""

import contextlib
import math
import os
import pathlib
import random
import stat
import sys
import time
import warnings

import msgpack
import numpy as np
import pytest

import toile.numpy as jnp
from toile import errors, serialization
from toile.training import checkpoints
from toile.training.checkpoints import files, restore_checkpoint, save_checkpoint
from toile.training.checkpoints import names as naming

Corrupted = errors.CorruptedCheckpointError
SUMS = ".checkpoint_{}.sums_gda"


def filled(number):
    """A tree whose numbers tell from which save they are."""
    return {"a": np.full(50, number), "b": [np.full((3, 3), number, np.float32)], "step": number}


def packed(shape, dtype, data):
    """A checkpoint with one array of these properties."""
    return msgpack.packb({"x": msgpack.ExtType(1, msgpack.packb((shape, dtype, data)))})


def deep(levels):
    return b"\x91" * levels + b"\x00"


HOSTILE = {
    "of the issue": packed([1], 5, b""),
    "no triple": msgpack.packb({"x": msgpack.ExtType(1, b"\x91\x01")}),
    "empty extension": msgpack.packb({"x": msgpack.ExtType(1, b"")}),
    "object": packed([1], "object", b"12345678"),
    "class": packed([1], "finfo", b"12345678"),
    "structure": packed([1], "O,i4", b"x" * 12),
    "subarray": packed([1], "(2,)f4", b"12345678"),
    "no dtype": packed([1], "nonsense", b"12345678"),
    "huge": packed([2**62, 2**62], "float32", b"1234"),
    "large and empty": packed([0, 2**62, 2**62], "float32", b""),
    "negative": packed([-2], "float32", b"12345678"),
    "short": packed([3], "float32", b"12345678"),
    "no shape": packed("abc", "float32", b"12345678"),
    "long name": packed([1], "x" * 5000, b"1"),
    "many dimensions": packed([1] * 70, "int8", b"1"),
    "scalar": msgpack.packb(msgpack.ExtType(3, b"\xc0")),
    "complex": msgpack.packb(msgpack.ExtType(2, b"\xc0")),
    "complex of text": msgpack.packb(msgpack.ExtType(2, msgpack.packb(("a", "b")))),
    "timestamp": msgpack.packb(msgpack.ExtType(5, b"")).replace(b"\x05", b"\xff"),
    "unhashable": b"\x81\x90\x01",
    "array as key": b"\x81" + packed([1], "int8", b"a")[3:] + b"\x01",
    "not a text": b"\x81\xa1\xff\x01",
    "reserved byte": b"\x81\xa1a\xc1",
    "more entries than bytes": b"\xdf\xff\xff\xff\xff\xa1a",
    "long text": b"\xdb\xff\xff\xff\xffab",
    "long extension": b"\xc9\xff\xff\xff\xff\x01ab",
    "deep": deep(100_000),
    "chunks of nothing": msgpack.packb({"__msgpack_chunked_array__": True}),
    "chunks of numbers": msgpack.packb(
        {"__msgpack_chunked_array__": True, "shape": {"0": 1}, "chunks": {"0": 1}}
    ),
    "no chunks": msgpack.packb(
        {"__msgpack_chunked_array__": True, "shape": {"0": 0}, "chunks": {}}
    ),
}


def plant(folder, name, content):
    """Put a file there, or something else that has the name of a checkpoint."""
    path = pathlib.Path(folder, name)
    if callable(content):
        content(path)
    else:
        path.write_bytes(content)
    return str(path)


OTHER_KINDS = {
    "pipe": os.mkfifo,
    "directory": os.mkdir,
    "dangling link": lambda path: path.symlink_to("nowhere"),
    "link to itself": lambda path: path.symlink_to(path.name),
    "link to a device": lambda path: path.symlink_to("/dev/zero"),
}


@pytest.mark.parametrize("content", [*HOSTILE.values(), *OTHER_KINDS.values()],
                         ids=[*HOSTILE, *OTHER_KINDS])  # fmt: skip
def test_a_damaged_newest_one_hides_nothing(tmp_path, content):
    for step in (1, 2):
        save_checkpoint(tmp_path, filled(step), step, keep=3)
    path = plant(tmp_path, "checkpoint_3", content)
    with pytest.warns(UserWarning, match="skipped .*checkpoint_3.* cannot be read: "):
        assert restore_checkpoint(tmp_path, filled(0))["step"] == 2
    if os.path.exists(path):
        with pytest.raises(Corrupted, match="checkpoint_3.* cannot be read: "):
            restore_checkpoint(tmp_path, filled(0), step=3)
    # Training goes on from step 2 and comes to step 3 again.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        save_checkpoint(tmp_path, filled(3), 3, keep=3)
    assert restore_checkpoint(tmp_path, filled(0))["step"] == 3
    assert restore_checkpoint(tmp_path, filled(0), step=3)["step"] == 3
    plant(tmp_path, "checkpoint_4", content)
    save_checkpoint(tmp_path, filled(4), 4, keep=3, overwrite=True)
    assert restore_checkpoint(tmp_path, filled(0))["step"] == 4
    plant(tmp_path, "checkpoint_5", content)
    save_checkpoint(tmp_path, filled(3), 3, keep=3, overwrite=True)
    assert checkpoints.available_steps(tmp_path) == [2, 3]


def test_an_io_error_is_damage_and_others_are_not(tmp_path, monkeypatch):
    for step in (1, 2):
        save_checkpoint(tmp_path, filled(step), step, keep=2)
    original = os.pread

    def failing(number):
        failed = []

        def pread(handle, count, offset):
            if not failed and os.readlink(f"/proc/self/fd/{handle}").endswith("checkpoint_2"):
                failed.append(handle)
                raise OSError(number, os.strerror(number))
            return original(handle, count, offset)

        return pread

    monkeypatch.setattr(os, "pread", failing(5))
    with pytest.warns(UserWarning, match="Input/output error"):
        assert restore_checkpoint(tmp_path, filled(0))["step"] == 1
    monkeypatch.setattr(os, "pread", failing(12))
    with pytest.raises(OSError, match="Cannot allocate memory"):
        restore_checkpoint(tmp_path, filled(0))


def test_if_all_are_damaged_the_error_lists_them(tmp_path):
    plant(tmp_path, "checkpoint_1", b"")
    plant(tmp_path, "checkpoint_2", HOSTILE["object"])
    with pytest.warns(UserWarning) as caught, pytest.raises(Corrupted) as error:
        restore_checkpoint(tmp_path, filled(0))
    assert len(caught) == 2
    assert "checkpoint_1: the file ends" in str(error.value)
    assert "checkpoint_2: msgpack_restore: needed the name of a dtype" in str(error.value)
    assert str(error.value).count("test_if_all_are_damaged_the_error_lists_them") == 1


def test_a_target_that_does_not_fit_is_not_damage(tmp_path):
    for step in (1, 2):
        save_checkpoint(tmp_path, filled(step), step, keep=2)
    for target in ({**filled(0), "c": 1}, {**filled(0), "a": np.zeros(3)}):
        with pytest.raises(ValueError) as error:
            restore_checkpoint(tmp_path, target)
        assert not isinstance(error.value, Corrupted)


def flips(data, count, seed):
    """Single bits of a file: every one, or a number of them at random."""
    bits = range(8 * len(data))
    for bit in bits if count is None else random.Random(seed).sample(bits, count):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        yield bit // 8, changed


def attack(folder, count=None, seed=0):
    """Flip bits and truncate; each is found, and no other error is raised without checksums."""
    tree = {"w": np.arange(2.0), "b": {"k": jnp.ones((2, 3), jnp.bfloat16)}, "n": 3, "t": "text"}
    path = pathlib.Path(save_checkpoint(folder, tree, 1, overwrite=True))
    data = path.read_bytes()
    w, k = data.find(tree["w"].tobytes()), data.find(tree["b"]["k"].tobytes())
    places = {"w": range(w, w + 16), "b/k": range(k, k + 12)}
    named = 0
    for place, changed in flips(data, count, seed):
        path.write_bytes(changed)
        with pytest.raises(Corrupted) as caught:
            restore_checkpoint(folder, tree, 1)
        inside = [name for name in places if place in places[name]]
        for name in inside:
            assert f"the array {name} (" in str(caught.value)
            named += 1
        if not inside:
            with contextlib.suppress(Corrupted):
                restore_checkpoint(folder, None, 1, checksums=False)
    for length in range(len(data)):
        path.write_bytes(data[:length])
        for check in (True, False):
            with pytest.raises(Corrupted):
                restore_checkpoint(folder, None, 1, checksums=check)
    return len(data), named


def test_every_flipped_bit_is_found(tmp_path, capsys):
    size, named = attack(tmp_path)
    assert named == 8 * (16 + 12)
    with capsys.disabled():
        print(f"\n{8 * size} flipped bits, {size} truncations: all found, {named} by array")


@pytest.mark.slow
def test_random_changes_of_files(tmp_path, capsys):
    """Several bytes changed, inserted, removed, with and without checksums."""
    rng = random.Random(int(os.environ.get("TOILE_SEED", "0")) or int(time.time()) // 86400)
    tree = {"w": np.arange(7.0), "b": {"k": np.ones((2, 3)), "s": np.float32(2)}, "n": [3, 1j, "t"]}
    path = pathlib.Path(save_checkpoint(tmp_path, tree, 1))
    data, read, refused = path.read_bytes(), 0, 0
    for _ in range(20_000):
        changed = bytearray(data)
        for _ in range(rng.randint(1, 4)):
            at, kind = rng.randrange(len(changed)), rng.randrange(4)
            if kind == 0:
                changed[at] = rng.randrange(256)
            elif kind == 1:
                changed[at:at] = rng.randbytes(rng.randint(1, 9))
            elif kind == 2:
                del changed[at : at + rng.randint(1, 9)]
            else:
                changed[at : at + 4] = rng.choice([b"\xff" * 4, b"\0" * 4, b"\xc9\xff\xff\xff"])
        path.write_bytes(changed)
        if changed != data:
            with pytest.raises(Corrupted):
                restore_checkpoint(tmp_path, None, 1)
        try:
            restore_checkpoint(tmp_path, None, 1, checksums=False)
            read += 1
        except Corrupted:
            refused += 1
    with capsys.disabled():
        print(f"\n20000 changed files: all found; without checksums {refused} refused, {read} read")


def test_the_newest_one_with_a_flipped_bit_is_skipped(tmp_path):
    for step in (1, 2):
        path = save_checkpoint(tmp_path, filled(step), step, keep=2)
    data = bytearray(pathlib.Path(path).read_bytes())
    data[data.find(filled(2)["a"].tobytes()) + 17] ^= 4
    pathlib.Path(path).write_bytes(data)
    with pytest.warns(UserWarning, match=r"checkpoint_2.*the array a \(int64\[50\]\) is not what"):
        assert restore_checkpoint(tmp_path, filled(0))["step"] == 1
    with pytest.raises(Corrupted, match=r"the array a \(int64\[50\]\) is not what was saved"):
        restore_checkpoint(tmp_path, filled(0), 2)
    assert restore_checkpoint(tmp_path, filled(0), 2, checksums=False)["a"][2] == 2 + 1024
    with pytest.warns(UserWarning, match="could not be read and is now"):
        save_checkpoint(tmp_path, filled(7), 2)
    assert restore_checkpoint(tmp_path, filled(0))["a"][0] == 7


# Steps that are refused, and the start of what is said about them.
STEPS = [
    (math.nan, "a finite number, got nan"),
    (math.inf, "a finite number, got inf"),
    (-math.inf, "a finite number, got -inf"),
    (np.float32("nan"), "a finite number, got nan"),
    (jnp.asarray(math.nan), "a finite number, got nan"),
    (None, "an int or a float, got None"),
    (True, "an int or a float, got True"),
    (np.True_, "one number, got an array of bool"),
    ("5", "an int or a float, got '5'"),
    ("../5", "an int or a float"),
    (b"5", "an int or a float"),
    (1j, "an int or a float"),
    ([5], "an int or a float"),
    (np.array([5, 5]), r"one number, got an array of int64\[2\] \(of a replicated state: step"),
    (jnp.zeros((1,), jnp.int32), r"one number, got an array of int32\[1\]"),
    (np.array("5"), "one number, got an array of <U1"),
    (np.complex64(1), "one number, got an array of complex64"),
]


@pytest.mark.parametrize("step, message", STEPS)
def test_steps_that_are_no_numbers(tmp_path, step, message):
    folder = tmp_path / "new"
    for save in (save_checkpoint, checkpoints.save_checkpoint_multiprocess):
        told = f"{save.__name__}: needed step to be {message}"
        with pytest.raises((TypeError, ValueError), match=told):
            save(folder, filled(0), step)
    assert not folder.exists()


def test_steps_of_any_kind_of_number(tmp_path):
    steps = [-2, -0.5, np.int8(3), jnp.asarray(4), np.array(5), jnp.asarray(5.5)]
    steps += [2**53, 2**53 + 1, 1e20]
    for step in steps:
        save_checkpoint(tmp_path, {"step": 1}, step, keep=99)
    want = ["-2", "-0.5", "3", "4", "5", "5.5", str(2**53), str(2**53 + 1), "1e+20"]
    assert checkpoints.available_steps(tmp_path, step_type=str) == want
    for step in steps:
        assert restore_checkpoint(tmp_path, None, step) == {"step": 1}


def test_a_folder_with_names_that_are_no_steps(tmp_path):
    others = ["checkpoint_nan", "checkpoint_None", "checkpoint_best", "checkpoint_inf"]
    for name in others:
        plant(tmp_path, name, serialization.to_bytes(filled(-1)))
    assert restore_checkpoint(tmp_path, filled(0))["step"] == -1  # there is nothing else
    for step in (1, 2, 3):
        save_checkpoint(tmp_path, filled(step), step, keep=2)
        assert restore_checkpoint(tmp_path, filled(0))["step"] == step
    assert checkpoints.available_steps(tmp_path) == [2, 3]
    assert checkpoints.latest_checkpoint(tmp_path) == str(tmp_path / "checkpoint_3")
    save_checkpoint(tmp_path, filled(2), 2, overwrite=True)
    found = {name for name in os.listdir(tmp_path) if name[0] != "."}
    assert found == {*others, "checkpoint_2"}
    assert restore_checkpoint(tmp_path / "checkpoint_best", filled(0))["step"] == -1


def test_links_are_not_followed(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    folder = tmp_path / "folder"
    folder.mkdir()
    names = ("checkpoint_tmp", "checkpoint_1", "checkpoint_2.tmp", ".checkpoint_tmp-0_gda")
    for name in (*names, SUMS.format(1)):
        (folder / name).symlink_to(victim)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what the link leads to is no checkpoint
        save_checkpoint(folder, filled(1), 1)
    save_checkpoint(folder, filled(2), 2)
    assert victim.read_text() == "precious" and not (folder / "checkpoint_2").is_symlink()
    assert restore_checkpoint(folder, filled(0))["step"] == 2
    (folder / SUMS.format(2)).unlink()
    (folder / SUMS.format(2)).symlink_to(victim)
    with pytest.warns(UserWarning, match="restored unchecked"):
        assert restore_checkpoint(folder, filled(0))["step"] == 2


def test_temporary_files_are_new_and_have_names_nobody_can_guess(tmp_path, monkeypatch):
    opened = []
    original = os.open

    def record(path, flags, *mode):
        if flags & os.O_CREAT:
            opened.append((os.path.basename(path), flags))
        return original(path, flags, *mode)

    monkeypatch.setattr(os, "open", record)
    for step in range(5):
        save_checkpoint(tmp_path, filled(step), step)
    assert len(opened) == 10 and len({name for name, _ in opened}) == 10
    for name, flags in opened:
        assert len(name) >= len(".checkpoint_tmp-") + 16
        assert flags & os.O_EXCL and flags & os.O_NOFOLLOW
    mode = stat.S_IMODE(os.stat(tmp_path / "checkpoint_4").st_mode)
    old = os.umask(0)
    os.umask(old)
    assert mode == 0o666 & ~old


def test_what_interrupted_saves_left_is_removed(tmp_path):
    long_ago = time.time() - 10_000
    for name in ("checkpoint_tmp", "checkpoint_7.tmp", "new.checkpoint_tmp", "checkpoint_8.tmp"):
        plant(tmp_path, name, b"half")
    for name in ("checkpoint_tmp", "checkpoint_7.tmp", "new.checkpoint_tmp"):
        os.utime(tmp_path / name, (long_ago, long_ago))
    plant(tmp_path, ".checkpoint_tmp-dead_gda", b"half")
    plant(tmp_path, ".other_tmp-dead_gda", b"half")
    plant(tmp_path, SUMS.format(6), b"of one that is gone")
    with files.PendingFile(str(tmp_path), "checkpoint_") as alive:
        assert checkpoints.available_steps(tmp_path) == []
        assert restore_checkpoint(tmp_path, None) is None
        save_checkpoint(tmp_path, filled(1), 1, checksums=False)
        left = {"new.checkpoint_tmp", "checkpoint_8.tmp", ".other_tmp-dead_gda", "checkpoint_1"}
        assert set(os.listdir(tmp_path)) == {os.path.basename(alive.path), *left}
        alive.discard()


def test_a_file_that_was_cleaned_up_before_it_was_locked_is_made_again(tmp_path, monkeypatch):
    removed = []
    original = files.fcntl.flock

    def flock(handle, kind):
        if not removed and kind == files.fcntl.LOCK_EX:
            removed.append(os.readlink(f"/proc/self/fd/{handle}"))
            os.remove(removed[0])
        return original(handle, kind)

    monkeypatch.setattr(files.fcntl, "flock", flock)
    save_checkpoint(tmp_path, filled(1), 1)
    assert removed and restore_checkpoint(tmp_path, filled(0))["step"] == 1


def test_new_folders_are_forced_to_disk(tmp_path, monkeypatch):
    synced = []
    original = os.fsync

    def fsync(handle):
        synced.append(os.readlink(f"/proc/self/fd/{handle}"))
        return original(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    save_checkpoint(tmp_path / "a" / "b", filled(1), 1, prefix="c/d_")
    above = [str(tmp_path / part) for part in ("", "a", "a/b")]
    assert synced[:3] == [path.rstrip("/") for path in above]
    assert "/.d_tmp-" in synced[3] and synced[4] == str(tmp_path / "a" / "b" / "c")

    def fails(handle):
        if os.path.isdir(f"/proc/self/fd/{handle}"):
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(OSError, match="Input/output"):
        save_checkpoint(tmp_path, filled(1), 1)


def test_a_directory_is_replaced_only_when_asked(tmp_path):
    (tmp_path / "checkpoint_1").mkdir()
    (tmp_path / "checkpoint_1" / "something").write_text("of another program")
    with pytest.raises(errors.InvalidCheckpointError):
        save_checkpoint(tmp_path, filled(1), 1)
    save_checkpoint(tmp_path, filled(1), 1, overwrite=True)
    assert sorted(os.listdir(tmp_path)) == [SUMS.format(1), "checkpoint_1"]


def test_names_are_recognized():
    assert naming.step_of("/x/checkpoint_12", "checkpoint_") == 12
    assert naming.step_of("/x/run-3.5e2", "sub/run-") == 350.0
    for name in ("c_", "c_nan", "c_1x", "c_1e999", "c_1_000"):
        assert naming.step_of(name, "c_") is None
    assert sys.maxsize < naming.step_of("c_" + "9" * 200, "c_")
