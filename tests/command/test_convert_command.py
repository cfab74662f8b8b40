"""`toile convert`: what goes through every format, and what is refused before a byte is written."""

import json
import zipfile

import ml_dtypes
import numpy as np
import pytest

from tests.command.running import refused, run
from tests.readers import torch_pickles
from toile import serialization
from toile.interop import safetensors
from toile.training import checkpoints

W = np.arange(6, dtype=np.float32).reshape(2, 3)
TREE = {"params": {"Dense_0": {"kernel": W, "bias": np.zeros(3, np.float32)}}, "count": np.int32(7)}
FLAT = {"params/Dense_0/kernel": W, "params/Dense_0/bias": np.zeros(3, np.float32),
        "count": np.array(7, np.int32)}


def write(path, tree):
    """A file in the format of its suffix; a folder of checkpoints where there is none."""
    if path.suffix == ".msgpack":
        path.write_bytes(serialization.msgpack_serialize(tree))
    elif path.suffix == ".safetensors":
        safetensors.save_file(tree, path)
    elif path.suffix == ".npz":
        with open(path, "wb") as file:
            np.savez(file, **tree)
    else:
        checkpoints.save_checkpoint(path, tree, 3)
    return path


def read(path):
    """What a file holds, flat."""
    if path.suffix == ".npz":
        with np.load(path) as found:
            return dict(found)
    if path.suffix == ".safetensors":
        return safetensors.load_file(path)
    return flat(checkpoints.restore_checkpoint(path, target=None))


def flat(tree, start=""):
    found = {}
    for name, x in tree.items():
        if isinstance(x, dict):
            found |= flat(x, f"{start}{name}/")
        else:
            found[f"{start}{name}"] = x
    return found


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, x in expected.items():
        y = np.asarray(found[name])
        assert y.dtype == x.dtype and y.shape == x.shape, name
        assert y.tobytes() == x.tobytes(), name


def written_by_torch(path, state):
    """A file of torch.save with a state dict of float32 arrays."""
    pickled, storages = b"\x80\x02}(", {}
    for i, (name, x) in enumerate(state.items()):
        stride = [n // 4 for n in x.strides]
        pickled += torch_pickles.text(name)
        pickled += torch_pickles.tensor(x.size, x.shape, stride, key=str(i))
        storages[str(i)] = x.tobytes()
    path.write_bytes(torch_pickles.archive(pickled + b"u.", storages))
    return path


KINDS = ["a.msgpack", "a.safetensors", "a.npz", "folder"]


@pytest.mark.parametrize("target", KINDS)
@pytest.mark.parametrize("source", KINDS)
def test_weights_go_from_any_format_to_any(capsys, tmp_path, source, target):
    nested = source in ("a.msgpack", "folder")
    start = write(tmp_path / source, TREE if nested else FLAT)
    end = tmp_path / f"to_{target}"
    given = str(end) + ("/" if target == "folder" else "")
    ran = run(capsys, "convert", start, given)
    assert ran.status == 0, ran.err
    assert_same(read(end), FLAT)
    assert ran.out.startswith(f"wrote {end}") and ": 3 arrays, " in ran.out
    file = end / "checkpoint_0" if target == "folder" else end
    assert f" {file.stat().st_size:,} bytes" in ran.out
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".")]


@pytest.mark.parametrize("target", ["b.msgpack", "b.safetensors"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float16", "int8", "bool", "uint64",
                                   "complex64"])
def test_dtypes_are_kept(capsys, tmp_path, dtype, target):
    x = np.array([0, 1, 1, 0]).astype(getattr(ml_dtypes, dtype, dtype))
    start = write(tmp_path / "a.safetensors", {"x": x})
    assert run(capsys, "convert", start, tmp_path / target).status == 0
    assert_same(read(tmp_path / target), {"x": x})


def test_torch_files_are_read_and_never_written(capsys, tmp_path):
    torch_file = written_by_torch(tmp_path / "net.pt", {"fc.weight": W, "fc.bias": W[0]})
    target = tmp_path / "net.safetensors"
    assert run(capsys, "convert", torch_file, target).status == 0
    assert_same(read(target), {"fc.weight": W, "fc.bias": W[0]})
    nested = tmp_path / "net.msgpack"
    assert run(capsys, "convert", torch_file, nested, "--separator", ".").status == 0
    assert_same(read(nested), {"fc/weight": W, "fc/bias": W[0]})
    said = refused(capsys, "convert", target, tmp_path / "back.pt")
    assert "can only be read (write .safetensors" in said


def test_a_part_can_be_converted(capsys, tmp_path):
    state = {**TREE, "opt_state": {"0": {}, "1": {"mu": W}}, "step": 3}
    start = write(tmp_path / "run", state)
    target = tmp_path / "b.safetensors"
    said = refused(capsys, "convert", start, target, status=1)
    assert "holds only arrays, got opt_state/0 (an empty dict)" in said and "--only params" in said
    assert run(capsys, "convert", start, target, "--only", "params").status == 0
    assert set(read(target)) == {"Dense_0/kernel", "Dense_0/bias"}
    kernel = tmp_path / "kernel.npz"
    assert run(capsys, "convert", start, kernel, "--only", "params/Dense_0/kernel").status == 0
    assert_same(read(kernel), {"kernel": W})
    said = refused(capsys, "convert", start, kernel, "--force", "--only", "parmas")
    assert "'parmas' was not found (did you mean 'params'?)" in said
    said = refused(capsys, "convert", start, kernel, "--force", "--only", "kernel")
    assert "did you mean 'params/Dense_0/kernel'?" in said
    whole = tmp_path / "whole.msgpack"
    ran = run(capsys, "convert", start, whole)
    assert "4 arrays and 2 other values" in ran.out  # the empty dict and the number are kept
    assert serialization.msgpack_restore(whole.read_bytes())["step"] == 3


def test_a_checkpoint_is_chosen_and_added(capsys, tmp_path):
    folder = tmp_path / "runs"
    for step in (1, 2):
        checkpoints.save_checkpoint(folder, {"w": W + step}, step, keep=9)
    target = tmp_path / "a.npz"
    assert run(capsys, "convert", folder, target, "--step", 1).status == 0
    assert_same(read(target), {"w": W + 1})
    assert run(capsys, "convert", folder, target, "--force").status == 0
    assert_same(read(target), {"w": W + 2})
    assert run(capsys, "convert", folder / "checkpoint_1", tmp_path / "one.npz").status == 0
    assert run(capsys, "convert", target, folder, "--step", 5).status == 0
    assert checkpoints.available_steps(folder) == [1, 2, 5]
    refused(capsys, "convert", target, folder, "--step", 2, status=1)
    refused(capsys, "convert", folder, tmp_path / "b.npz", "--step", 9, status=1)
    assert checkpoints.available_steps(folder) == [1, 2, 5]


@pytest.mark.parametrize(("tree", "source", "target", "options", "said"), [
    ({"a": {"b/c": W}}, "a.msgpack", "b.npz", [], "'/' occurs in the name of 'a/b/c'"),
    ({"a.b": W}, "a.msgpack", "b.safetensors", ["--separator", "."], "the separator '.'"),
    ({"a": W, "a/b": W}, "a.npz", "b.msgpack", [], "'a/b' collides with 'a'"),
    ({"a/b": W, "a": W}, "a.npz", "b.msgpack", [], "'a' collides with 'a'"),
    ({"w": W.astype(ml_dtypes.bfloat16)}, "a.safetensors", "b.npz", [], "not hold bfloat16 at w"),
    ({"w": W.astype(np.complex128)}, "a.npz", "b.safetensors", [], "cannot hold complex128 at w"),
    ({"w": np.array(["text"])}, "a.npz", "b.safetensors", [], "cannot hold <U4 at w"),
    ({"w": W.astype(ml_dtypes.bfloat16)}, "a.npz", "b.msgpack", [], "msgpack cannot hold |V2 at w"),
    ({"w": W, "s": "text", "n": None}, "a.msgpack", "b.npz", [], "got n (NoneType), s (str)"),
    ({"w": {1: W}}, "a.msgpack", "b.npz", [], "needed names that are strings, got 1 in w"),
    ({"a": W, "a.npy": W}, "a.safetensors", "b.npz", [], "cannot read 'a.npy' back"),
    ({"a\0b": W}, "a.safetensors", "b.npz", [], "cannot read"),
    ({}, "a.safetensors", "b.npz", [], "needed at least one array, got none"),
])
def test_what_cannot_be_kept_is_refused(capsys, tmp_path, tree, source, target, options, said):
    start = write(tmp_path / source, tree)
    assert said in refused(capsys, "convert", start, tmp_path / target, *options, status=1)
    assert [p.name for p in tmp_path.iterdir()] == [source]


@pytest.mark.parametrize(("content", "name"), [
    (b"", "a.npz"), (b"PK\3\4 not a zip", "a.npz"), (b"\x93NUMPY", "a.npz"),
    (b"\xff" * 20, "a.safetensors"), (b"\xc1", "a.msgpack"), (b"\x93\x01\x02\x03", "a.msgpack"),
    (b"nothing", "a.pt"),
])
def test_damaged_files_are_told(capsys, tmp_path, content, name):
    (tmp_path / name).write_bytes(content)
    said = refused(capsys, "convert", tmp_path / name, tmp_path / "b.safetensors", status=1)
    assert name in said or "dict of arrays" in said
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_pickles_in_npz_files_are_not_loaded(capsys, tmp_path):
    with open(tmp_path / "a.npz", "wb") as file:
        np.savez(file, x=np.array([{}], object))
    said = refused(capsys, "convert", tmp_path / "a.npz", tmp_path / "b.msgpack", status=1)
    assert "allow_pickle=False" in said


def test_formats_can_be_named(capsys, tmp_path):
    start = write(tmp_path / "a.npz", FLAT).rename(tmp_path / "weights.dat")
    said = refused(capsys, "convert", start, tmp_path / "b.npz")
    assert "needed one of the suffixes .msgpack" in said
    said = refused(capsys, "convert", start, tmp_path / "b.npzz", "--from", "npz")
    assert "did you mean '.npz'?" in said
    target = tmp_path / "out.dat"
    ran = run(capsys, "convert", start, target, "--from", "npz", "--to", "safetensors")
    assert ran.status == 0
    assert_same(safetensors.load_file(target), FLAT)


def test_files_are_not_replaced_by_mistake(capsys, tmp_path):
    start = write(tmp_path / "a.npz", FLAT)
    target = tmp_path / "b.npz"
    target.write_bytes(b"mine")
    assert "exists (--force replaces it)" in refused(capsys, "convert", start, target, status=1)
    assert target.read_bytes() == b"mine"
    assert "got" in refused(capsys, "convert", start, start, "--force")
    assert run(capsys, "convert", start, target, "--force").status == 0
    assert_same(read(target), FLAT)
    for argv, said in [
        ([tmp_path / "none.npz", target], "does not exist"),
        ([start, tmp_path, "--to", "npz"], "got the folder"),
        ([start, tmp_path / "c.npz", "--step", 1], "--step applies to folders of checkpoints"),
        ([start, tmp_path / "f/", "--to", "checkpoint", "--force"], "--force applies to files"),
        ([start, tmp_path / "c.npz", "--separator", ""], "--separator: needed a non-empty text"),
    ]:
        assert said in refused(capsys, "convert", *argv, status=1 if "not exist" in said else 2)


def test_a_failing_disk_leaves_the_old_file(capsys, tmp_path, monkeypatch):
    start = write(tmp_path / "a.safetensors", FLAT)
    target = tmp_path / "b.npz"
    target.write_bytes(b"mine")

    def full(*arguments, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    assert "No space left" in refused(capsys, "convert", start, target, "--force", status=1)
    assert target.read_bytes() == b"mine" and len(list(tmp_path.iterdir())) == 2


def test_metadata_that_is_left_out_is_told(capsys, tmp_path):
    safetensors.save_file({"w": W}, tmp_path / "a.safetensors", {"format": "pt"})
    ran = run(capsys, "convert", tmp_path / "a.safetensors", tmp_path / "b.npz")
    assert ran.out.splitlines()[1] == f"left out: the metadata 'format' of {tmp_path}/a.safetensors"


def test_npz_files_are_those_of_numpy(capsys, tmp_path):
    start = write(tmp_path / "a.safetensors", FLAT)
    assert run(capsys, "convert", start, tmp_path / "b.npz").status == 0
    with zipfile.ZipFile(tmp_path / "b.npz") as archive:
        assert sorted(archive.namelist()) == sorted(f"{name}.npy" for name in FLAT)
        assert archive.testzip() is None
    assert json.dumps(sorted(read(tmp_path / "b.npz"))) == json.dumps(sorted(FLAT))
