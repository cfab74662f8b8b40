"""Files of torch.save that are made to take memory or time: refused, or read within the bounds.

The bounds are those of docs/bringing-weights.md: 8 bytes of arrays for each byte of the file and
256 of everything else for each byte of the pickle, and 18 MiB; some seconds for a megabyte.
"""

import io
import pickle
import stat
import struct
import zipfile

import numpy as np
import pytest

from tests.conftest import TEST_ALL
from tests.readers import torch_pickles as make
from tests.readers.bounds import MIB, measured
from toile.errors import UnreadableFileError
from toile.interop import torch_files

P = b"\x80\x02"
N = MIB // (8 if TEST_ALL else 64)  # the length of long pickles


def load(data):
    return torch_files.load(io.BytesIO(data))


def allowed(data, pickled, arrays=True):
    """The memory that loading a file may take."""
    return 9 * len(data) + 256 * len(pickled) + (18 if arrays else 2) * MIB


def memo(i):
    return b"j" + struct.pack("<I", i)


def store(i):
    return b"r" + struct.pack("<I", i)


M61 = 2**61 - 1
SIZE = b"ctorch\nSize\n"
ORDERED = b"ccollections\nOrderedDict\n"
LONG_LIST = b"](" + b"K\x01" * 50_000 + b"e"
FLOATS = np.zeros(1000, np.float32).tobytes()
NESTED_KEY = make.doubled(60, b"K\x01\x85", b"\x86")
MANY_VIEWS = (
    make.REBUILD + store(0) + make.arguments(1 << 18, (1 << 18,), (1,)) + store(1)
    + b"](" + (memo(0) + memo(1) + b"R") * 2000 + b"e."
)  # fmt: skip


def reduced(name, argument, n):
    """A name applied n times to one argument."""
    return P + name + store(0) + argument + b"\x85" + store(1) + b"](" + (
        memo(0) + memo(1) + b"R"
    ) * n + b"e."


def nested_rebuilds(n):
    function = b"ctorch._tensor\n_rebuild_from_type_v2\n"
    kind = b"ctorch\nTensor\n"
    inner = b"(" + function + kind
    return P + function + inner * n + b")" + b"Nt" * n + b"R."


PICKLES = {
    "nested tuples as keys": P + b"}" + NESTED_KEY + b"K\x01s.",
    "nested tuples in a set": b"\x80\x04\x8f(" + NESTED_KEY + b"\x90.",
    "nested tuples in pairs": P + ORDERED + b"](" + NESTED_KEY + b"K\x01\x86e\x85R.",
    "nested tuples as a device": P + b"ctorch\ndevice\n" + NESTED_KEY + b"\x85R.",
    "nested tuples as a name": b"\x80\x04" + NESTED_KEY + b"K\x01\x93.",
    "nested tuples as a storage": P + b"(" + make.text("storage") + NESTED_KEY * 4 + b"tQ.",
    "lists in lists": P + make.doubled(60, b"]", b"l").replace(b"l", b"\x86") + b".",
    "a list in itself": P + b"]" + store(0) + memo(0) + b"a.",
    "a dict in itself": P + b"}" + store(0) + b"K\x01" + memo(0) + b"s.",
    "a list in a tuple in itself": P + b"]" + store(0) + memo(0) + b"\x85a.",
    "deep lists": P + b"]" * (N // 2) + b"a" * (N // 2 - 1) + b".",
    "deep tuples": P + b")" + b"\x85" * N + b".",
    "deep dicts": P + b"}K\x01" * (N // 4) + b"N" + b"s" * (N // 4) + b".",
    "many sets": b"\x80\x04" + b"\x8f" * N + b".",
    "many marks": P + b"(" * N + b".",
    "many dicts": b"\x80\x04(" + b"}\x94" * (N // 2) + b"l.",
    "many tuples": P + b"(" + b")\x85" * (N // 2) + b"l.",
    "many texts": P + b"(" + b"U\x01a" * (N // 3) + b"l.",
    "many frozensets": b"\x80\x04(" + b"(K\x01\x91" * (N // 4) + b"l.",
    "many small dicts": P + b"(" + b"}NNs" * (N // 4) + b"l.",
    "a wide text": P + b"X" + struct.pack("<I", 200_004) + b"a" * 200_000 + "😀".encode() + b".",
    "keys with one hash": P + b"}(" + b"".join(
        make.integer(i * M61) + b"N" for i in range(N // 32)
    ) + b"u.",
    "tuples with one hash": P + b"}(" + b"".join(
        make.integer(i * M61) + b"\x85N" for i in range(N // 32)
    ) + b"u.",
    "a large key again and again": P + make.integer(1 << 800_000) + store(0) + b"}" + (
        memo(0) + b"Ns"
    ) * (N // 32) + b".",
    "an integer as a size": P + make.tensor(1000, (1 << 800_000,), (1,)) + b".",
    "sizes of many bits": P + make.tensor(1000, [1 << 4000] * 60, [1] * 60) + b".",
    "a text of 2**63 bytes": b"\x80\x04\x8d" + b"\xff" * 7 + b"\x7fabc.",
    "bytes of 2**64 bytes": b"\x80\x04\x8e" + b"\xff" * 8 + b"abc.",
    "an integer of 2**32 bytes": P + b"\x8b\xff\xff\xff\xffabc.",
    "sizes again and again": reduced(SIZE, LONG_LIST, N // 32),
    "dicts again and again": reduced(ORDERED, b"](" + b"K\x01K\x02\x86" * 10_000 + b"e", N // 32),
    "sets again and again": reduced(b"cbuiltins\nset\n", LONG_LIST, N // 32),
    "counters again and again": reduced(
        b"ccollections\nCounter\n", b"}(" + b"".join(
            b"M" + struct.pack("<H", i) + b"K\x01" for i in range(N // 32)) + b"u", N // 32),
    "bytes again and again": P + b"c_codecs\nencode\n" + store(0) + make.text("a" * 100_000)
        + make.text("latin1") + b"\x86" + store(1) + b"](" + (memo(0) + memo(1) + b"R") * (N // 32)
        + b"e.",
    "rebuilt rebuilds": nested_rebuilds(N // 64),
    "a name that is no text": P + b"c\xff\xfe\n\xff\n.",
    "a text that is no UTF-8": P + b"X\x02\x00\x00\x00\xff\xfe.",
    "bytes that are no latin1": P + b"c_codecs\nencode\n" + make.text("€") + make.text("latin1")
        + b"\x86R.",
    "a class as a value": P + b"](cbuiltins\nset\ne.",
    "a storage as a value": P + make.storage(1000) + b".",
    "a mark as a value": P + b"(.",
    "a remembered mark": P + b"(" + store(0) + memo(0) + b"K\x01tK\x02t.",
    "a storage without a name": P + b"(" + make.text("storage") + b"ctorch\nFloatStorage\n"
        + b"N" + make.text("cpu") + b"K\x00tQ.",
    "a type that is none": P + b"(" + make.text("storage") + b"K\x01" + make.text("0")
        + make.text("cpu") + b"K\x00tQ.",
    "a parameter of a list": P + b"ctorch._utils\n_rebuild_parameter\n(]\x89NtR.",
    "a complex number of texts": P + b"cbuiltins\ncomplex\nU\x011U\x012\x86R.",
}  # fmt: skip


HARMLESS = ("many dicts", "many tuples", "many texts", "many frozensets", "many small dicts",
            "a wide text", "a remembered mark")


@pytest.mark.parametrize("name", PICKLES)
def test_hostile_pickles_are_refused_or_cheap(name):
    pickled = PICKLES[name]
    data = make.archive(pickled, {"0": FLOATS})
    found = measured(load, data)
    assert found.error is None or isinstance(found.error, UnreadableFileError), repr(found.error)
    assert len(str(found.error)) < 3000
    assert found.peak <= allowed(data, pickled, arrays=False), f"{found.peak / MIB:.1f} MiB"
    assert found.seconds < 1 + 40 * len(data) / MIB, found.seconds  # while memory is traced
    assert found.error is not None or name in HARMLESS, name


VIEWS = {
    "stride 0": (1, (3_000_000_000,), (0,)),
    "two strides of 0": (1000, (1 << 20, 1 << 20, 1000), (0, 0, 1)),
    "overlapping strides": (1000, (500, 500, 300), (1, 1, 0)),
    "negative size": (1000, (-1,), (1,)),
    "negative stride": (1000, (10,), (-1,)),
    "size beyond": (1000, (1001,), (1,)),
    "stride beyond": (1000, (2,), (1 << 62,)),
    "65 axes": (1000, (1,) * 65, (1,) * 65),
    "lengths that differ": (1000, (2, 2), (1,)),
    "no elements of too many": (1000, (0, 1 << 62, 1 << 62), (1, 1, 1)),
    "sizes whose product overflows": (1000, (1 << 32, 1 << 32), (0, 0)),
    "a negative count": (-1, (0,), (1,)),
}


@pytest.mark.parametrize("name", VIEWS)
def test_views_that_no_tensor_has(name):
    count, size, stride = VIEWS[name]
    data = make.tensor_file(FLOATS[: 4 * abs(count)], count, size, stride)
    found = measured(load, data)
    assert isinstance(found.error, UnreadableFileError), repr(found.error)
    assert found.peak < 20 * MIB and found.seconds < 2


def test_offsets_and_other_storages():
    for kwargs in ({"offset": -1}, {"offset": 1000}, {"offset": 1 << 70}, {"key": "1"},
                   {"key": "../data.pkl"}, {"kind": "DoubleStorage"}, {"kind": "BoolStorage"}):
        with pytest.raises(UnreadableFileError, match="torch_files.load: needed"):
            load(make.tensor_file(FLOATS, 1000, (1,), (1,), **kwargs))
    for count in (999, 1001, 250):
        with pytest.raises(UnreadableFileError, match=f"a storage of {count} numbers .*got 1000"):
            load(make.tensor_file(FLOATS, count, (1,), (1,)))
    with pytest.raises(UnreadableFileError, match="values of bool of at most 0x1, got 0x7"):
        load(make.tensor_file(b"\x00\x01\x07", 3, (3,), (1,), kind="BoolStorage"))


def test_an_expanded_tensor_is_copied_up_to_the_limit():
    got = load(make.tensor_file(FLOATS[:4], 1, (2000, 1000), (0, 0)))
    assert got.shape == (2000, 1000) and got.flags.writeable and got.flags.owndata
    with pytest.raises(UnreadableFileError, match=r"arrays of at most \d+ bytes .* x\.clone\(\)"):
        load(make.tensor_file(FLOATS[:4], 1, (5000, 1000), (0, 0)))
    # A large file may hold more: 8 times its size.
    large = make.tensor_file(bytes(8 * MIB), 2 * MIB, (7, 2 * MIB), (0, 1))
    found = measured(load, large)
    assert found.value.shape == (7, 2 * MIB) and found.peak < allowed(large, b"")
    with pytest.raises(UnreadableFileError, match="arrays of at most"):
        load(make.tensor_file(bytes(8 * MIB), 2 * MIB, (11, 2 * MIB), (0, 1)))


def test_views_of_one_storage_are_arrays_of_their_own_up_to_the_limit():
    data = make.archive(P + MANY_VIEWS, {"0": bytes(MIB)})
    found = measured(load, data)
    assert isinstance(found.error, UnreadableFileError)
    assert found.peak < allowed(data, MANY_VIEWS)
    pickled = (P + b"(" + make.tensor(1 << 18, (1 << 18,), (1,)) * 3
               + make.tensor(1 << 18, (512, 512), (1, 512)) + b"t.")
    numbers = np.arange(1 << 18, dtype=np.float32)
    views = load(make.archive(pickled, {"0": numbers.tobytes()}))
    for x in views[:3]:
        assert x.tolist() == numbers.tolist()
    assert (views[3] == numbers.reshape(512, 512).T).all()
    for i, x in enumerate(views):
        assert x.flags.owndata and x.flags.c_contiguous
        assert not any(np.shares_memory(x, y) for y in views[:i])


def test_a_whole_tensor_needs_its_memory_once():
    data = make.tensor_file(bytes(32 * MIB), 8 * MIB, (8 * MIB,), (1,))
    found = measured(load, data)
    assert found.value.nbytes == 32 * MIB and found.peak < 40 * MIB


def test_time_is_in_proportion_to_the_file():
    tree = {f"layer{i}.weight": [i, float(i), (i, str(i)), {"a": None}] for i in range(N // 32)}
    data = make.archive(pickle.dumps(tree, 2))
    found = measured(load, data, count_memory=False)
    assert found.value == tree and found.seconds < 5 * len(data) / MIB


SIMPLE = P + make.tensor(1000, (1000,), (1,)) + b"."


def patched(data, name, central=None, local=None):
    """An archive with other bytes in the headers of one entry: {place: bytes}."""
    out = bytearray(data)
    name = name.encode()
    at = data.index(name) - 30
    for place, new in (local or {}).items():
        out[at + place : at + place + len(new)] = new
    at = data.rindex(name) - 46
    for place, new in (central or {}).items():
        out[at + place : at + place + len(new)] = new
    return bytes(out)


STORED = make.archive(SIMPLE, {"0": FLOATS})
D0, U32 = "archive/data/0", struct.Struct("<I").pack
ARCHIVES = {
    "deflated": (make.archive(SIMPLE, {"0": FLOATS}, zipfile.ZIP_DEFLATED), "compressed"),
    "a bomb of zeros": (
        make.archive(P + make.tensor(4 * MIB, (4 * MIB,), (1,)) + b".", {"0": bytes(16 * MIB)},
                     zipfile.ZIP_DEFLATED), "compressed"),
    "lzma": (make.archive(SIMPLE, {"0": FLOATS}, zipfile.ZIP_LZMA), "compressed"),
    "encrypted": (patched(STORED, D0, central={8: b"\x01"}), "encrypted"),
    "strongly encrypted": (patched(STORED, D0, central={8: b"\x41"}), "encrypted"),
    "a link": (patched(STORED, D0, central={38: U32((stat.S_IFLNK | 0o777) << 16)}), "link"),
    "a size beyond": (patched(STORED, D0, central={20: U32(5000), 24: U32(5000)}), "got 1250"),
    "a size beyond that the pickle has too": (
        patched(make.archive(P + make.tensor(1250, (1250,), (1,)) + b".", {"0": FLOATS}), D0,
                central={20: U32(5000), 24: U32(5000)}), "before the next entry"),
    "a size of 4 GB": (patched(STORED, D0, central={20: U32(2**32 - 2), 24: U32(2**32 - 2)}), ""),
    "sizes that differ": (patched(STORED, D0, central={20: U32(100)}), "compressed"),
    "the place of another": (patched(STORED, D0, central={42: U32(0)}), "before the next entry"),
    "a place beyond": (patched(STORED, D0, central={42: U32(2**31)}), ""),
    "a header of another": (patched(STORED, D0, local={30: b"archive/data/1"}), "the header of"),
    "no header": (patched(STORED, D0, local={0: b"XXXX"}), "the header of"),
    "a long extra field": (patched(STORED, D0, local={28: b"\xff\xff"}), "before the next entry"),
    "another checksum": (patched(STORED, D0, central={16: U32(1)}), "checksum 00000001"),
    "a later version": (patched(STORED, D0, central={6: b"\xff"}), ""),
    "a method of none": (patched(STORED, D0, central={10: b"\x63"}), "compressed"),
    "a name that is no UTF-8": (
        patched(STORED, D0, central={9: b"\x08", 46: b"\xff\xfe"}), ""),
    "no entries": (b"PK\x05\x06" + bytes(18), "a zip file of nothing"),
    "a directory beyond": (STORED[:-6] + U32(2**31) + STORED[-2:], ""),
    "a directory of 4 GB": (STORED[:-10] + U32(2**32 - 2) + STORED[-6:], ""),
}  # fmt: skip


@pytest.mark.parametrize("name", ARCHIVES)
def test_hostile_archives_are_refused(name, tmp_path):
    data, told = ARCHIVES[name]
    path = tmp_path / "x.pt"
    path.write_bytes(data)
    for file in (path, io.BytesIO(data)):
        found = measured(torch_files.load, file)
        assert isinstance(found.error, UnreadableFileError), repr(found.error)
        assert told in str(found.error)
        assert found.peak < 2 * MIB and found.seconds < 2


def test_names_that_occur_twice():
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file, pytest.warns(UserWarning, match="Duplicate name"):
        for content in (SIMPLE, SIMPLE):
            file.writestr("archive/data.pkl", content)
    with pytest.raises(UnreadableFileError, match="names that occur once"):
        load(buffer.getvalue())


def test_a_directory_of_many_entries():
    data = make.archive(SIMPLE, {str(i): b"" for i in range(3000)} | {"0": FLOATS})
    found = measured(load, data)
    assert found.value.shape == (1000,) and found.peak < allowed(data, data)


def test_a_file_with_something_before_it():
    assert load(b"#!/bin/sh\n" * 100 + STORED).shape == (1000,)
