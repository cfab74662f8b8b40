"""Files of torch.save, read without torch: what they hold, and what is refused."""

import io
import pathlib
import pickle
import struct
import zipfile
from collections import Counter, OrderedDict

import ml_dtypes
import numpy as np
import pytest

from toile.interop import torch_files

FIXTURES = pathlib.Path(__file__).parent / "fixtures"


def archive(pickled, **entries):
    """A file of torch.save with this pickle."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr("archive/data.pkl", pickled)
        for name, data in entries.items():
            file.writestr(f"archive/{name.replace('_', '/')}", data)
    buffer.seek(0)
    return buffer


@pytest.fixture(scope="module")
def values():
    return torch_files.load(FIXTURES / "values.pt")


def test_every_dtype(values):
    assert len(values["dtypes"]) == 20
    for name, x in values["dtypes"].items():
        assert x.dtype == (getattr(ml_dtypes, name, None) or np.dtype(name))
        zero = 0.5 if name == "float8_e8m0fnu" else 0.0
        want = [1, 0, 1, 1] if name == "bool" else [1, zero, 2, 4]
        assert x.astype(np.complex128).tolist() == want, name
    assert values["dtype"] == ml_dtypes.bfloat16


def test_views_are_arrays_of_their_own(values):
    grid = np.arange(12.0, dtype=np.float32).reshape(3, 4)
    wants = [grid, grid.T, grid[1:, ::2], grid[2], np.float32(5), np.zeros((0, 3), np.float32)]
    for x, want in zip(values["views"], wants, strict=True):
        assert x.shape == want.shape and x.tolist() == want.tolist()
        assert x.flags.writeable and x.flags.c_contiguous and x.flags.owndata
    assert values["expanded"].tolist() == [[1, 2]] * 3
    assert values["conjugate"].tolist() == [1 - 2j] and values["negative"].tolist() == [-2]


def test_containers_and_python_values(values):
    assert values["parameter"].tolist() == values["with_note"].tolist() == [1, 1]
    assert list(values["ordered"]) == ["b", "a"] and values["ordered"]["a"] == 2
    assert values["default"] == {"x": [1]} and values["counter"] == Counter("abca")
    python = [None, True, -3, 2**40, 2**70, 0.5, "é", b"\x00\xff", (1, (2,)), {1, 2}, 1 + 2j]
    assert values["python"] == python
    assert values["size"] == (2, 3) and values["device"] == "cpu"


def test_newer_pickles_are_read_too():
    tree = {"a": [1, (2, 3)], "b": {4}, "c": frozenset([5]), "d": OrderedDict(x=b"6"), "e": "ü" * 9}
    for protocol in range(2, 6):
        assert torch_files.load(archive(pickle.dumps(tree, protocol))) == tree


def test_big_endian_files():
    numbers = struct.pack(">2f", 1.5, -2.0)
    storage = b"(U\x07storagectorch\nFloatStorage\nU\x010U\x03cpuK\x02tQ"
    rest = b"K\x00K\x02\x85K\x01\x85\x89ccollections\nOrderedDict\n)RtR."
    pickled = b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(" + storage + rest
    got = torch_files.load(archive(pickled, data_0=numbers, byteorder=b"big"))
    assert got.tolist() == [1.5, -2.0]
    got = torch_files.load(archive(pickled, data_0=numbers[::-1], byteorder=b"little"))
    assert got.tolist() == [-2.0, 1.5]
    with pytest.raises(ValueError, match="a storage of 2 numbers in archive/data/0, got 1"):
        torch_files.load(archive(pickled, data_0=numbers[:4]))
    with pytest.raises(ValueError, match="corrupted"):
        torch_files.load(archive(pickled))


REFUSED = {
    "module": r"refused to build torch.nn.*container.Sequential, torch.nn.*linear.Linear",
    "sparse": r"refused to build torch._utils._rebuild_sparse_tensor.*to_dense",
    "legacy": r"the format of torch before 1.6.*torch.save\(torch.load",
    "script": r"a TorchScript archive.*torch.jit.load",
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_files_of_torch_are_refused(name):
    with pytest.raises(ValueError, match=REFUSED[name]):
        torch_files.load(FIXTURES / f"{name}.pt")


class Evil:
    """A pickle that would run a command."""

    def __reduce__(self):
        return exec, ("raise SystemExit",)


HOSTILE = {
    "reduce": pickle.dumps(Evil(), 2),
    "stack_global": pickle.dumps(Evil(), 4),
    "nested": pickle.dumps({"w": [Evil()]}, 2),
    "getattr": b"\x80\x02cbuiltins\ngetattr\n.",
    "dotted": b"\x80\x04\x8c\x0bcollections\x8c\x17OrderedDict.fromkeys.__a\x93.",
    "inst": b"(S'x'\nios\nsystem\n.",
    "obj": b"\x80\x02(cbuiltins\nset\no.",
    "extension": b"\x80\x02\x82\x01.",
    "state_of_name": b"\x80\x02cbuiltins\nset\n}b.",
    "state_of_list": b"\x80\x02]}b.",
    "call_of_list": b"\x80\x02])R.",
    "call_of_storage_class": b"\x80\x02ctorch\nFloatStorage\n)R.",
    "wrong_arguments": b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n)R.",
    "items_of_list": b"\x80\x02]K\x01K\x02s.",
    "bare_memo": b"\x80\x02h\x05.",
    "empty_stack": b"\x80\x02.",
    "no_mark": b"\x80\x02K\x01t.",
    "no_end": b"\x80\x02K\x01",
    "unhashable": b"\x80\x02}]K\x01s.",
    "persistent": b"\x80\x02K\x01Q.",
    "text_persistent": b"\x80\x02Pabc\n.",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_pickles_are_refused(name):
    with pytest.raises(ValueError, match="torch_files.load: needed"):
        torch_files.load(archive(HOSTILE[name]))


def test_files_that_are_something_else(tmp_path):
    path = tmp_path / "weights.pt"
    for data, told in [
        (b"", "something else"),
        (b"\x08" + b"\x00" * 7 + b"{}      ", "perhaps a safetensors file"),
        ((FIXTURES / "lstm.pt").read_bytes()[:-300], "truncated or corrupted"),
    ]:
        path.write_bytes(data)
        with pytest.raises(ValueError, match=told):
            torch_files.load(path)
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("readme.txt", "")
    with pytest.raises(ValueError, match="a zip file of readme.txt"):
        torch_files.load(path)
    with pytest.raises(FileNotFoundError):
        torch_files.load(tmp_path / "none.pt")


@pytest.mark.slow
def test_live_against_torch(tmp_path):
    torch = pytest.importorskip("torch")
    path = tmp_path / "x.pt"
    for dtype in ("float32", "bfloat16", "uint16", "float8_e5m2", "complex64", "bool"):
        tensor = torch.randn(5, 4).to(getattr(torch, dtype)).T[1:]
        torch.save({"x": tensor, "again": tensor}, path)
        got = torch_files.load(path)
        live = torch_files.array_of(tensor)
        assert got["x"].dtype == live.dtype and got["x"].tobytes() == live.tobytes(order="C")
        assert got["again"].tobytes() == got["x"].tobytes()
