"""Bytes of msgpack, protocol buffers, safetensors and .npy that are made to do harm."""

import io
import json
import struct
import zipfile
from collections import namedtuple

import msgpack
import numpy as np
import pytest
from msgpack import ExtType, packb

import toile
import toile.numpy as jnp
from tests.readers.bounds import MIB, is_ours, measured
from toile import serialization
from toile.engine import protobuf, treeproto
from toile.errors import UnreadableFileError
from toile.interop import safetensors
from toile.metrics import events, records
from toile.serialization import array_codes as encoding
from toile.training import datasets, text


def array(shape, name, data):
    return packb({"x": ExtType(1, packb([shape, name, data]))})


def pieces(shape, *chunks):
    chunks = {str(i): ExtType(1, encoding.ndarray_to_bytes(x)) for i, x in enumerate(chunks)}
    return {"__msgpack_chunked_array__": True, "shape": shape, "chunks": chunks}


TWO = np.arange(2.0)
NESTED_ARRAYS = b"".join(b"\xdd" + struct.pack(">I", 1000 - i) for i in range(100)) + bytes(2000)
TREES = {
    "an array of numbers": packb({"x": ExtType(1, packb([[1], 5, b""]))}),
    "an array of nothing": packb({"x": ExtType(1, b"")}),
    "an array of two": packb({"x": ExtType(1, packb([[1], "int8"]))}),
    "an array of a text": packb({"x": ExtType(1, packb("float32"))}),
    "no shape": array(3, "int8", b"123"),
    "a negative size": array([-1], "int8", b"1"),
    "two negative sizes": array([-1, -3], "int8", b"123"),
    "a size of text": array(["3"], "int8", b"123"),
    "a size of a boolean": array([True], "int8", b"1"),
    "a size of a number": array([1.0], "int8", b"1"),
    "a huge size": array([2**62], "int8", b"1"),
    "sizes whose product overflows": array([2**32, 2**32], "int8", b""),
    "no elements of too many": array([0, 2**62, 2**62], "int64", b""),
    "65 axes": array([1] * 65, "int8", b"1"),
    "too little data": array([3], "float32", b"1234"),
    "too much data": array([1], "float32", b"12345678"),
    "half a number": array([1], "float32", b"123"),
    "objects": array([1], "object", b"12345678"),
    "objects by a letter": array([1], "O", b"12345678"),
    "records": array([1], "f4,i4", b"12345678"),
    "records by a list": array([1], "[('a', 'f4')]", b"1234"),
    "an array of arrays": array([1], "(3,)f4", bytes(12)),
    "a name of ml_dtypes that is no dtype": array([1], "finfo", b"12345678"),
    "a private name": array([1], "__doc__", b"12345678"),
    "no name": array([1], "", b"1"),
    "a name that is no text": array([1], b"\xff\xfe", b"1"),
    "text of no length": array([1], "str0", b""),
    "text of a huge length": array([1], "str9999999999", b"1"),
    "half a character": array([1], "str33", b"12345"),
    "a unit of nothing": array([1], "datetime64[0s]", bytes(8)),
    "a character of none": array([1], "str32", b"\xff\xff\xff\xff"),
    "a boolean of 7": array([1], "bool", b"\x07"),
    "an int4 of 255": array([1], "int4", b"\xff"),
    "a scalar of two": packb({"x": ExtType(3, packb([[2], "int8", b"12"]))}),
    "a complex number of one": packb({"x": ExtType(2, packb([1.0]))}),
    "a complex number of texts": packb({"x": ExtType(2, packb(["1", "2"]))}),
    "a complex number of a map": packb({"x": ExtType(2, packb({1: 2}))}),
    "a wrong timestamp": packb({"x": ExtType(0, b"")})[:3] + b"\xc7\x03\xff123",
    "lists in an array's triple": packb({"x": ExtType(1, packb([[[[1]]], "int8", b""]))}),
    "pieces of nothing": packb(pieces({"0": 0})),
    "pieces without a shape": packb({"__msgpack_chunked_array__": True, "chunks": {}}),
    "pieces without pieces": packb({"__msgpack_chunked_array__": True, "shape": {"0": 2}}),
    "a shape that lies": packb(pieces({"0": 5}, TWO, TWO)),
    "a shape that is huge": packb(pieces({"0": 2**62, "1": 2**62}, TWO)),
    "a negative shape": packb(pieces({"0": -1}, TWO, TWO)),
    "a shape of texts": packb(pieces({"0": "4"}, TWO, TWO)),
    "a shape with holes": packb(pieces({"0": 2, "2": 2}, TWO, TWO)),
    "a shape that is a list": packb(pieces([4], TWO, TWO)),
    "pieces of several dtypes": packb(pieces({"0": 4}, TWO, TWO.astype("f"))),
    "pieces of two axes": packb(pieces({"0": 4}, TWO[None], TWO[None])),
    "pieces that are numbers": packb({**pieces({"0": 2}), "chunks": {"0": 1, "1": 2}}),
    "deep lists": b"\x91" * 5000 + b"\x01",
    "deep maps": b"\x81\xa1a" * 5000 + b"\x01",
    "lists that say they are long": NESTED_ARRAYS,
    "a list of 4 billion": b"\xdd\xff\xff\xff\xff",
    "a map of 4 billion": b"\xdf\xff\xff\xff\xff",
    "a text of 4 billion": b"\xdb\xff\xff\xff\xff",
    "bytes of 4 billion": b"\xc6\xff\xff\xff\xff",
    "an extension of 4 billion": b"\xc9\xff\xff\xff\xff\x01",
    "a length that is cut": b"\xdd\x00\x00",
    "no value": b"\xc1",
    "nothing": b"",
    "two trees": b"\x80\x80",
    "a text that is no UTF-8": b"\xa2\xff\xfe",
    "a list as a key": b"\x81\x90\x01",
    "an array as a key": b"\x81" + packb(ExtType(1, packb([[1], "int8", b"1"]))) + b"\x01",
}


@pytest.mark.parametrize("name", TREES)
def test_hostile_trees_are_refused(name):
    data = TREES[name]
    for file in (data, bytearray(data), memoryview(data)):
        found = measured(serialization.msgpack_restore, file)
        assert isinstance(found.error, UnreadableFileError), repr(found.error)
        assert str(found.error).startswith("msgpack_restore: needed one whole msgpack tree, got")
        assert len(str(found.error)) < 1500
        assert found.peak < 2 * MIB and found.seconds < 2
    assert isinstance(measured(serialization.from_bytes, {"x": 1}, data).error, UnreadableFileError)


def test_lists_are_not_made_before_they_are_known_to_be_there():
    """msgpack itself makes 100 lists of a million entries of this megabyte: 800 MB.

    Nor does the message of the error hold more than a part of the bytes.
    """
    data = b"".join(b"\xdd" + struct.pack(">I", 1_000_000) for _ in range(100)) + bytes(MIB)
    assert measured(serialization.msgpack_restore, data).peak < MIB // 4


def test_memory_is_in_proportion_to_the_bytes():
    for item in (b"\x80", b"\x81\x00\x00", b"\x90", b"\x91\x01", b"\xa1a", b"\xcd\x10\x00",
                 packb(ExtType(3, packb([[], "int8", b"1"]))), packb(1.5)):  # fmt: skip
        n = 8_000 // len(item)
        data = b"\xdd" + struct.pack(">I", n) + item * n
        found = measured(serialization.msgpack_restore, data)
        assert found.error is None and found.peak < 128 * len(data) + MIB // 8, item


def test_what_flax_writes_is_still_read():
    values = {"x": np.ones((2, 3)), "c": 1 - 2j, "s": np.float32(3), "e": ExtType(9, b"x"),
              "t": np.array(["a"]), "d": np.array(["2020"], "datetime64[Y]"), "z": np.zeros((0, 4))}
    back = serialization.msgpack_restore(serialization.msgpack_serialize(values))
    assert back["e"] == ExtType(9, b"x") and back["c"] == 1 - 2j and back["z"].shape == (0, 4)
    assert back["t"].tolist() == ["a"] and str(back["d"][0]) == "2020" and back["s"].shape == ()
    assert back["x"].flags.writeable
    depth = 127
    nested = b"\x91" * depth + b"\x01"
    assert serialization.msgpack_restore(nested) == msgpack.unpackb(nested)


STATES = {
    "a named tuple of before 2022, of nothing": {"name": "P", "fields": 3, "values": None},
    "one with holes": {"name": "P", "fields": {"0": "x", "2": "y"}, "values": {"0": 1, "2": 2}},
    "one of lists": {"name": "P", "fields": ["x"], "values": [1]},
    "one of one": {"name": "P", "fields": {"0": "x"}, "values": {}},
}


@pytest.mark.parametrize("name", STATES)
def test_states_that_do_not_fit_a_named_tuple(name):
    target = namedtuple("P", "x y")(1, 2)
    error = measured(serialization.from_state_dict, target, STATES[name]).error
    assert error is not None and is_ours(error), repr(error)


def test_states_that_do_not_fit_keys_and_partials():
    key, partial = toile.random.key(0), toile.tree_util.Partial(max, 1)
    words = np.zeros(2, np.uint32)
    assert serialization.from_state_dict(key, words).dtype == key.dtype
    arrays = words.astype(float), words[:1], words[0]
    for state in (None, "text", 3, {}, [1, 2], ExtType(1, b""), *arrays):
        error = measured(serialization.from_state_dict, key, state).error
        assert error is not None and is_ours(error), (state, error)
    for state in (None, {}, {"args": {}}, {"args": 1, "keywords": 2}, {"keywords": {}}):
        error = measured(serialization.from_state_dict, partial, state).error
        assert error is not None and is_ours(error), (state, error)


MESSAGES = {
    "an integer of 11 bytes": b"\x08" + b"\x80" * 10 + b"\x01",
    "an integer of a megabyte": b"\x08" + b"\x80" * MIB,
    "an integer of 65 bits": b"\x08" + b"\xff" * 9 + b"\x02",
    "an integer that ends": b"\x08\x80",
    "a tag that ends": b"\x80",
    "a length beyond": b"\x0a\x05abc",
    "a length of 2**63": b"\x0a" + protobuf.varint(2**63) + b"abc",
    "field 0": b"\x00\x01",
    "field 2**29": protobuf.varint(2**32) + b"\x01",
    "a group": b"\x0b",
    "a wire type of 7": b"\x0f\x01",
    "half a number": b"\x09\x01\x02",
}


@pytest.mark.parametrize("name", MESSAGES)
def test_hostile_messages_are_refused(name):
    for read in (protobuf.decode, treeproto.loads):
        found = measured(read, MESSAGES[name])
        assert isinstance(found.error, UnreadableFileError), repr(found.error)
        assert found.peak < 4 * MIB and found.seconds < 1
    assert protobuf.varint_at(protobuf.varint(2**64 - 1), 0) == (2**64 - 1, 10)


def node(kind, arity=0, *keys):
    content = (protobuf.field(1, arity) if arity else b"") + protobuf.field(2, kind)
    if keys:
        content += protobuf.field(3, protobuf.field(1, b"".join(map(protobuf.varint, keys))))
    return protobuf.field(1, content)


LEAF, LIST, NONE, DICT = 1, 2, 3, 5
STRUCTURES = {
    "nothing": b"",
    "two trees": node(LEAF) * 2,
    "no type": protobuf.field(1, protobuf.field(1, 1)),
    "an unknown type": node(77),
    "children that are not there": node(LIST, 3),
    "children of 2**63": node(LIST, 2**63),
    "children of a leaf": node(LEAF) + node(LEAF, 1),
    "children of None": node(LEAF) + node(NONE, 1),
    "keys that are not there": node(LEAF) + node(DICT, 1, 5),
    "a dict without keys": node(LEAF) + node(DICT, 1),
    "a dict with a key twice": node(LEAF) * 2 + node(DICT, 2, 0, 0) + protobuf.field(2, "a"),
    "keys of a list": node(LEAF) + node(LIST, 1, 0) + protobuf.field(2, "a"),
    "a key that is no UTF-8": node(LEAF) + node(DICT, 1, 0) + protobuf.field(2, b"\xff"),
    "a key of 2**63": node(LEAF) + node(DICT, 1, 2**63) + protobuf.field(2, "a"),
    "deep lists": node(LEAF) + node(LIST, 1) * 2000,
    "a number as a node": protobuf.field(1, 5),
    "a text as a type": protobuf.field(1, protobuf.field(2, "x")),
}


@pytest.mark.parametrize("name", STRUCTURES)
def test_hostile_structures_are_refused(name):
    found = measured(toile.tree_util.PyTreeDef.deserialize_using_proto, None, STRUCTURES[name])
    assert isinstance(found.error, UnreadableFileError), repr(found.error)
    assert "Could not deserialize PyTreeDefProto" in str(found.error)


def header(content, data=b""):
    text = content if isinstance(content, bytes) else json.dumps(content).encode()
    return struct.pack("<Q", len(text)) + text + data


def entry(dtype="F32", shape=(1,), offsets=(0, 4)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


HEADERS = {
    "longer than the file": struct.pack("<Q", 2**63) + b"{}",
    "longer than 100 MB": struct.pack("<Q", 2**40) + b"{}",
    "integers of many digits": header(b'{"a":{"dtype":"F32","shape":[' + b"9" * 10_000
                                      + b'],"data_offsets":[0,4]}}', b"1234"),
    "integers of 4000 digits": header(b'{"a":{"dtype":"F32","shape":['
                                      + b",".join([b"9" * 4000] * 500)
                                      + b'],"data_offsets":[0,4]}}', b"1234"),
    "too many axes": header({"a": entry(shape=[2] * 20_000)}, b"1234"),
    "no elements of too many": header({"a": entry(shape=[0, 2**62, 2**62], offsets=[0, 0])}),
    "offsets of 2**64": header({"a": entry(offsets=[2**64, 2**64 + 4])}, b"1234"),
    "offsets of numbers": header({"a": entry(offsets=[0.0, 4.0])}, b"1234"),
    "a boolean of 2": header({"a": entry("BOOL", [1], [0, 1])}, b"\x02"),
    "names that occur twice": header(b'{"a":1,"a":2}'),
    "keys that occur twice": header(b'{"a":{"dtype":"F32","dtype":"F32","shape":[1],'
                                    b'"data_offsets":[0,4]}}', b"1234"),
    "overlapping arrays": header({"a": entry(shape=[2], offsets=[0, 8]),
                                  "b": entry(offsets=[4, 8])}, b"12345678"),
    "a wrong dtype for the shape": header({"a": entry("F64")}, b"1234"),
    "deep metadata": header(b'{"__metadata__":' + b'{"a":' * 900 + b"1" + b"}" * 901),
    "a huge name": header({"a" * 100_000: 1}),
    "not a number": header(b'{"a":{"dtype":"F32","shape":[NaN],"data_offsets":[0,4]}}', b"1234"),
}  # fmt: skip


@pytest.mark.parametrize("name", HEADERS)
def test_hostile_headers_are_refused(name, tmp_path):
    data = HEADERS[name]
    path = tmp_path / "x.safetensors"
    path.write_bytes(data)
    for read, file in ((safetensors.load, data), (safetensors.load_file, path)):
        found = measured(read, file)
        assert isinstance(found.error, UnreadableFileError), repr(found.error)
        assert len(str(found.error)) < 2000
        assert found.peak < 128 * len(data) + MIB and found.seconds < 3
    assert str(path) in str(found.error)


def npy(head, data=b"", version=(1, 0)):
    head = head.encode() if isinstance(head, str) else head
    return b"\x93NUMPY" + bytes(version) + struct.pack("<H", len(head)) + head + data


ARRAYS = {
    "a size beyond": npy("{'descr': '<f8', 'fortran_order': False, 'shape': (10**9,)}".replace(
        "10**9", "1000000000"), bytes(8)),
    "a negative size": npy("{'descr': '<f8', 'fortran_order': False, 'shape': (-1,)}", bytes(8)),
    "sizes that overflow": npy(
        "{'descr': '<f8', 'fortran_order': False, 'shape': (4611686018427387904, 4)}", bytes(8)),
    "objects": npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", bytes(8)),
    "a boolean of 3": npy("{'descr': '|b1', 'fortran_order': False, 'shape': (1,)}", b"\x03"),
    "no dict": npy("[1, 2]"),
    "no dtype": npy("{'descr': 'x9', 'fortran_order': False, 'shape': (1,)}", bytes(8)),
    "a call": npy("{'descr': exit(), 'fortran_order': False, 'shape': (1,)}", bytes(8)),
    "brackets": npy(b"(" * 1000),
    "signs": npy(b"-" * 9000 + b"1"),
    "a cut header": npy("{'descr': '<f8'}")[:12],
    "another version": npy("{}", version=(9, 9)),
    "a header of 600 MB": npy("{'descr': '<f8', 'fortran_order': False, 'shape': (1,)}", bytes(8),
                              (2, 0)),
    "a later header of 600 MB": npy("{'descr': '<f8', 'fortran_order': False, 'shape': (1,)}",
                                    bytes(8), (3, 0)),
    "something else": b"hello",
    "a zip file that is cut": b"PK\x03\x04" + bytes(40),
    "a pickle": b"\x80\x04K\x01.",
}  # fmt: skip


@pytest.mark.parametrize("name", ARRAYS)
def test_hostile_arrays_are_refused(name, tmp_path):
    path = tmp_path / "x.npy"
    path.write_bytes(ARRAYS[name])
    for file in (path, str(path), io.BytesIO(ARRAYS[name])):
        found = measured(jnp.load, file)
        assert isinstance(found.error, UnreadableFileError), repr(found.error)
        assert found.peak < 4 * MIB
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.write(path, "x.npy")
    for read, source in ((datasets.npz_arrays, tmp_path / "x.npz"),
                         (datasets.mapped_arrays, {"x": path})):
        found = measured(read, source)
        assert isinstance(found.error, UnreadableFileError) or name == "a boolean of 3"
        assert found.peak < 4 * MIB


def test_arrays_one_after_another():
    file = io.BytesIO()
    for n in (2, 3):
        np.save(file, np.ones(n, np.float32))
    file.seek(0)
    assert [jnp.load(file).shape for _ in range(2)] == [(2,), (3,)]
    with pytest.raises(EOFError):
        jnp.load(file)
    with pytest.raises(FileNotFoundError):
        jnp.load("no such file.npy")


def tensor(dtype=1, dims=(), **contents):
    shape = b"".join(protobuf.field(2, protobuf.field(1, n)) for n in dims)
    rest = b"".join(protobuf.field(int(k[1:]), v) for k, v in contents.items())
    return protobuf.field(1, dtype) + protobuf.field(2, shape) + rest


EVENTS = {
    "no dtype": events.summary("a", protobuf.field(2, b""), None),
    "an unknown dtype": events.summary("a", tensor(99), None),
    "no content": events.summary("a", tensor(), None),
    "too little": events.summary("a", tensor(dims=[3], _4=b"1234"), None),
    "a negative size": events.summary("a", tensor(dims=[-1], _4=b"1234"), None),
    "a huge size": events.summary("a", tensor(dims=[2**40], _5=b"1234"), None),
    "texts that are not there": events.summary("a", tensor(7, dims=[2**40], _8=b"a"), None),
    "half a number": events.summary("a", tensor(_4=b"12"), None),
    "a boolean of 9": events.summary("a", tensor(10, _4=b"\x09"), None),
    "a tag that is no text": protobuf.field(1, protobuf.field(1, 5)),
    "a tag that is no UTF-8": protobuf.field(1, protobuf.field(1, b"\xff")),
    "no tag": protobuf.field(1, protobuf.field(8, tensor(_4=b"1234"))),
    "a plugin that is a number": events.summary("a", tensor(_4=b"1234"), protobuf.field(1, 4)),
    "no summary": b"\xff\xff",
}


@pytest.mark.parametrize("name", EVENTS)
def test_hostile_events_are_refused(name, tmp_path):
    path = tmp_path / "events"
    path.write_bytes(records.frame(events.event(EVENTS[name], 1, 1.0)))
    found = measured(lambda: list(events.read(path)))
    assert isinstance(found.error, UnreadableFileError), repr(found.error)
    assert str(path) in str(found.error) and found.peak < MIB


def test_events_with_other_fields(tmp_path):
    path = tmp_path / "events"
    length = struct.pack("<Q", 2**62)
    whole = records.frame(protobuf.field(2, 3))  # no time: that is its default, 0
    path.write_bytes(whole + length + struct.pack("<I", records.masked(length)) + b"rest")
    assert list(events.read(path)) == []  # a record that is not there yet
    for event in (protobuf.field(1, 3), protobuf.field(2, "step"), protobuf.field(5, 3)):
        path.write_bytes(records.frame(event))
        with pytest.raises(UnreadableFileError, match="record 0 of"):
            list(events.read(path))


def test_documents_that_are_no_text(tmp_path):
    path = tmp_path / "documents.txt"
    path.write_bytes(b"one\n\n\xff\xfe")
    with pytest.raises(UnreadableFileError, match=r"UTF-8.*documents\.txt"):
        text.documents_of_file(path)
