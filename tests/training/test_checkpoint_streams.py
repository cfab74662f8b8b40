"""Checkpoints written and read piece by piece: Flax's bytes, and how much memory that takes."""

import io
import json
import os
import subprocess
import sys
import threading
import zlib

import flax.serialization as theirs
import ml_dtypes
import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import toile
import toile.numpy as jnp
from toile import jax_utils, serialization
from toile.serialization import stream_decoder, stream_encoder
from toile.training import checkpoints, progress
from toile.training.checkpoints import streams, sums

DTYPES = (
    *("bool int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 float32 float64".split()),
    *("complex64 complex128 bfloat16 float8_e4m3fn float8_e5m2 int4 uint4".split()),
    *("datetime64[s] timedelta64[ms] U3 S5 >f4 >i8 >c16".split()),
)


class Memory:
    """Bytes as a file that can be read at any place."""

    def __init__(self, data):
        self.data, self.size = data, len(data)

    def read(self, offset, count):
        return self.data[offset : offset + count]


def written(tree, block=1 << 20):
    """The bytes that a tree is written as."""
    parts = stream_encoder.encode(tree, serialization.MAX_CHUNK_SIZE)
    data = b"".join(
        part if isinstance(part, bytes) else b"".join(x.tobytes() for x in part.blocks(block))
        for part in parts
    )
    assert len(data) == stream_encoder.total_bytes(parts)
    return data


def read(data):
    """The tree in bytes."""
    decoded = stream_decoder.decode(Memory(data))
    for each in decoded.placements:
        found = data[each.offset : each.offset + each.memory.size]
        if each.is_filled:
            assert each.memory.tobytes() == found and each.crc32 == zlib.crc32(found)
        else:
            each.memory[:] = np.frombuffer(found, np.uint8)
    stream_decoder.finish(decoded)
    return decoded.tree


def same(a, b):
    """Whether two trees are equal, arrays with their dtypes."""
    if isinstance(a, dict):
        return isinstance(b, dict) and list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, (np.ndarray, np.generic)):
        return type(a) is type(b) and a.dtype == b.dtype and a.tobytes() == b.tobytes()
    return type(a) is type(b) and (a == b or a != a)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("chunk", [2**30, 91])
@pytest.mark.parametrize("small", [0, 2**14])
def test_bytes_are_those_of_flax(dtype, chunk, small, monkeypatch):
    monkeypatch.setattr(stream_decoder, "_SMALL", small)
    for module in (serialization, theirs):
        monkeypatch.setattr(module, "MAX_CHUNK_SIZE", chunk)
    dtype = np.dtype(getattr(ml_dtypes, dtype, dtype))
    x = (np.arange(210) % 7).astype(dtype)
    tree = {
        "whole": x.reshape(2, 3, 35),
        "transposed": x.reshape(6, 35).T,
        "strided": x[::-3],
        "broadcast": np.broadcast_to(x[3], (5, 40)),
        "none": x[:0].reshape(0, 3),
        "scalar": x[5].reshape(()),
        "np": x[2],
        "list": [x[:9], {"inner": x[:40]}],
    }
    for block in (1, 100, 1 << 20):
        data = written(tree, block)
        assert data == serialization.msgpack_serialize(tree, in_place=True)
    if dtype.isnative:  # Flax writes the bytes of others and reads them as if they were its own
        assert data == theirs.msgpack_serialize(tree, in_place=True)
    back = read(data)
    assert same(back, serialization.msgpack_restore(data))
    for name in ("whole", "none"):
        assert back[name].flags.writeable and back[name].flags.owndata


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text()
    | st.complex_numbers(allow_nan=False) | st.binary(max_size=300) | st.text(min_size=32)
    | st.sampled_from([np.float32(1.5), np.arange(3), np.zeros((2, 0)), np.True_, jnp.ones(2)])
    | st.builds(np.zeros, st.integers(0, 300), st.sampled_from([np.int8, np.float64])),
    lambda x: st.lists(x, max_size=17) | st.dictionaries(st.text(max_size=40), x, max_size=17),
    max_leaves=20,
)  # fmt: skip


@settings(max_examples=50)
@given(values)
def test_any_tree_has_the_bytes_of_flax(tree):
    data = written(tree)
    assert data == serialization.msgpack_serialize(tree, in_place=True)
    assert same(read(data), serialization.msgpack_restore(data))


@pytest.mark.parametrize(
    "value",
    [
        msgpack.Timestamp(3, 4),
        msgpack.ExtType(77, b"abc"),
        msgpack.ExtType(1, msgpack.packb(([2], b"int8", "ab"), use_bin_type=False)),
        {1: 2, None: 3, b"k": [1.5, -200, 2**40, -(2**40)]},
        [{"__msgpack_chunked_array__": True, "shape": 1}],
        list(range(70_000)),
        {str(i): "x" for i in range(70_000)},
        ["x" * 300, "x" * 70_000, b"x" * 300, b"x" * 70_000],
    ],
    ids="timestamp unknown raw keys list integers map texts".split(),
)
def test_other_writers_are_read_as_by_msgpack(value):
    data = msgpack.packb(value)
    assert same(read(data), serialization.msgpack_restore(data))


def test_what_cannot_be_written_leaves_nothing(tmp_path):
    for tree in ({"a": np.array([None])}, {"a": {1, 2}}, {"a": object()}):
        with pytest.raises((TypeError, ValueError)):
            checkpoints.save_checkpoint(tmp_path, tree, 1)
    deep = {}
    for _ in range(600):
        deep = {"a": deep}
    with pytest.raises(ValueError, match="at most 511 levels"):
        stream_encoder.encode(deep, 2**30)
    assert os.listdir(tmp_path) == []


def test_blocks_hold_whole_elements(tmp_path, monkeypatch):
    monkeypatch.setattr(sums, "BLOCK", 1000)
    monkeypatch.setattr(streams, "_SMALL", 10)
    tree = {"a": np.arange(900).astype("U3"), "b": np.arange(3000.0)[::2], "c": np.arange(5)}
    path = checkpoints.save_checkpoint(tmp_path, tree, 1)
    back = checkpoints.restore_checkpoint(path, tree)
    assert all((back[name] == tree[name]).all() for name in tree)
    text = json.loads((tmp_path / ".checkpoint_1.sums_gda").read_bytes())
    assert [len(each["crc32"]) for each in text["sums"]["arrays"]] == [11, 12, 1]


# Each kind in a process of its own, forked from one that has loaded everything.
MEASURE = """
import os, resource, sys, numpy as np
import toile, toile.numpy as jnp
from toile.training import checkpoints

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

def measure(kind, folder, count):
    if kind == "restored":
        before = peak()
        tree = checkpoints.restore_checkpoint(folder, None)
        assert all(x[0, 0] == 1 for x in tree.values())
        return (peak() - before) / count
    rows = count // 4 // 1024
    tree = {"large": np.ones((rows // 2, 1024), "f"), "turned": np.ones((rows // 4, 1024), "f").T,
            "toile": jnp.ones((rows - rows // 2 - rows // 4, 1024), "f")}
    before = peak()
    assert before > count
    checkpoints.save_checkpoint(folder, tree, 1, overwrite=True)
    return 1 + (peak() - before) / count

folder, count = sys.argv[1], int(sys.argv[2]) * 2**20
checkpoints.save_checkpoint(folder, {"w": jnp.ones(300_000)}, 1, "warm_")
checkpoints.restore_checkpoint(folder, None, prefix="warm_")
for kind in ("saved", "restored"):
    if not os.fork():
        print(kind, measure(kind, folder, count), flush=True)
        os._exit(0)
    assert os.wait()[1] == 0
"""


def peaks(folder, megabytes):
    """The peak memory of saves and of a restoration, as multiples of the arrays' bytes."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", MEASURE, str(folder), str(megabytes)]
    run = subprocess.run(command, capture_output=True, text=True, env=env, timeout=300)
    assert run.returncode == 0, run.stderr
    found = {kind: float(x) for kind, x in (line.split() for line in run.stdout.splitlines())}
    assert len(found) == 2
    print(f"{megabytes} MB:", ", ".join(f"{kind} {x:.2f}" for kind, x in found.items()))
    return found


@pytest.mark.cpu  # it forks, and a forked process cannot use a GPU
@pytest.mark.skipif(sys.platform != "linux", reason="reads ru_maxrss in KiB")
def test_no_second_copy_of_the_arrays(tmp_path):
    found = peaks(tmp_path, 200)
    assert max(found.values()) <= 1.25, found


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads ru_maxrss in KiB")
def test_no_second_copy_of_two_gigabytes(tmp_path):
    found = peaks(tmp_path, 2500)  # the large array is split in pieces of 1 GiB
    assert max(found.values()) <= 1.25, found


def test_asynchronous_saves_hold_the_values_of_the_call(tmp_path):
    release = threading.Event()
    step = toile.jit(lambda x: x + 1, donate_argnums=0)
    tree = {"np": np.zeros((300, 30)).T, "toile": jnp.zeros((300, 300))}
    with checkpoints.AsyncManager() as manager:
        manager.wait_previous_save = lambda: None  # else the save would wait for the event
        manager.executor.submit(release.wait)
        checkpoints.save_checkpoint(tmp_path, tree, 1, async_manager=manager)
        tree["np"][:] = 7
        for _ in range(3):
            tree["toile"] = step(tree["toile"])  # in place, if nobody else held the memory
        release.set()
        manager.executor.shutdown()
    back = checkpoints.restore_checkpoint(tmp_path, None)
    assert (back["np"] == 0).all() and (back["toile"] == 0).all() and tree["toile"][0, 0] == 3


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_is_shown_on_a_terminal(tmp_path, monkeypatch):
    tree = {"a": np.zeros(3_000_000)}
    monkeypatch.setattr(streams, "_SHOWN", 10**7)

    def shown():
        monkeypatch.setattr(sys, "stderr", Terminal())
        path = checkpoints.save_checkpoint(tmp_path, tree, 1, overwrite=True)
        saved = sys.stderr.getvalue()
        checkpoints.restore_checkpoint(path, None)
        return saved, sys.stderr.getvalue()[len(saved) :]

    saved, restored = shown()
    assert "save checkpoint_1" in saved and "24/24" in saved
    assert "restore checkpoint_1" in restored and "24/24" in restored
    with progress.progress(range(3), stream=Terminal()):
        assert shown() == ("", "")  # a second bar would be drawn over this one
    monkeypatch.setattr(streams, "_SHOWN", 10**9)
    assert shown() == ("", "")
    monkeypatch.setattr(streams, "_SHOWN", 0)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    checkpoints.save_checkpoint(tmp_path, tree, 1, overwrite=True)
    assert sys.stderr.getvalue() == ""


def test_arrays_of_many_devices_and_keys(tmp_path):
    tree = {
        "replicated": jax_utils.replicate({"w": jnp.arange(6.0).reshape(2, 3)}),
        "keys": toile.random.split(toile.random.key(3)),
    }
    path = checkpoints.save_checkpoint(tmp_path, tree, 1)
    with open(path, "rb") as file:
        assert file.read() == serialization.to_bytes(tree)
    back = checkpoints.restore_checkpoint(path, tree)
    assert back["replicated"]["w"].shape == (toile.local_device_count(), 2, 3)
    assert back["keys"].dtype == tree["keys"].dtype
