"""Event files: the framing, the messages, and what the real TensorBoard reads from them.

Where tensorboard is not installed the file is read by our own decoder only.
"""

import io
import struct
import sys
import types
import warnings
import wave
import zlib

import numpy as np
import pytest

from toile import numpy as jnp
from toile.engine import protobuf
from toile.metrics import events, media, records
from toile.metrics.tensorboard import SummaryWriter, _flatten_dict

R = np.random.RandomState(0)


def pixels(data):
    """The image of a PNG file that uses no filter."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, at = {}, 8
    while at < len(data):
        (size,) = struct.unpack(">I", data[at : at + 4])
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + size]
        assert struct.unpack(">I", data[at + 8 + size : at + 12 + size])[0] == zlib.crc32(
            kind + body
        )
        chunks[kind] = body
        at += 12 + size
    width, height, depth, color = struct.unpack(">IIBB", chunks[b"IHDR"][:10])
    channels = {0: 1, 2: 3, 4: 2, 6: 4}[color]
    rows = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(height, -1)
    assert depth == 8 and not rows[:, 0].any()
    return rows[:, 1:].reshape(height, width, channels)


@pytest.mark.parametrize("size", [0, 1, 2048, 2049, 5000, 100_003])
def test_crc32c(size):
    data = R.bytes(size)
    register = 0xFFFFFFFF
    for byte in data:
        register ^= byte
        for _ in range(8):
            register = register >> 1 ^ (0x82F63B78 if register & 1 else 0)
    assert records.crc32c(data) == register ^ 0xFFFFFFFF


def test_crc32c_known_answers():
    assert records.crc32c(b"123456789") == 0xE3069283
    assert records.crc32c(bytes(32)) == 0x8A9136AA
    assert records.crc32c(b"\xff" * 32) == 0x62A8AB43


def test_records_that_are_damaged_or_unfinished(tmp_path):
    path = tmp_path / "r"
    whole = records.frame(b"one") + records.frame(b"two" * 1000)
    path.write_bytes(whole)
    assert list(records.read(path)) == [b"one", b"two" * 1000]
    for cut in (1, 20, 30):
        path.write_bytes(whole[:-cut])
        assert list(records.read(path)) == [b"one"]
    path.write_bytes(whole[:-10] + b"x" + whole[-9:])
    with pytest.raises(ValueError, match="damaged one"):
        list(records.read(path))
    path.write_bytes(b"\x09" + whole[1:])
    with pytest.raises(ValueError, match="damaged length"):
        list(records.read(path))


def test_protobuf():
    for n in (0, 1, 127, 128, 300, 2**32, 2**63 - 1):
        assert protobuf.decode(protobuf.field(5, n)) == {5: [n]}
    assert protobuf.decode(protobuf.field(1, -1)) == {1: [2**64 - 1]}
    assert protobuf.decode(protobuf.double(2, 0.5)) == {2: [struct.pack("<d", 0.5)]}
    with pytest.raises(ValueError, match="needed 5 bytes"):
        protobuf.decode(protobuf.field(1, "hello")[:-1] + b"")
    with pytest.raises(ValueError, match="wire type"):
        protobuf.decode(b"\x0b")


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_png(channels):
    image = R.randint(0, 256, (5, 7, channels)).astype(np.uint8)
    np.testing.assert_array_equal(pixels(media.png(image)), image)
    with pytest.raises(ValueError, match="needed uint8"):
        media.png(image.astype(np.float32))


def test_pixels_as_bytes():
    floats = np.array([-1.0, 0.0, 0.5, 0.999, 1.0, 7.0, np.nan])
    assert media.to_bytes(floats).tolist() == [0, 0, 127, 255, 255, 255, 0]
    assert media.to_bytes(np.array([True, False])).tolist() == [255, 0]
    assert media.to_bytes(np.array([0, 2**16 - 1], np.uint16)).tolist() == [0, 255]


IMAGE = R.randint(0, 256, (2, 6, 5, 3)).astype(np.uint8)
SOUND = R.uniform(-1.3, 1.3, size=(2, 50, 2))
HPARAMS = {"lr": 0.1, "layers": 3, "name": "net", "bn": True, "deep": {"x": None, "n": np.int64(2)}}


def write_all(folder):
    with SummaryWriter(folder) as writer:
        writer.scalar("scalar", jnp.float32(1.5), 1)
        writer.scalar("scalar", 2.5, 2)
        writer.image("image", IMAGE, 3)
        writer.image("gray", IMAGE[0, :, :, 0] / 255.0, 3)
        writer.audio("audio", SOUND, 4, sample_rate=8000, max_outputs=1)
        writer.histogram("histogram", np.arange(1000), 5)
        writer.histogram("constant", np.ones(4), 5, bins=3)
        writer.histogram("empty", np.ones(0), 5, bins=2)
        writer.histogram("wild", np.array([0.0, 1.0, np.inf, np.nan]), 5, bins=2)
        writer.scalar("large", 1e300, 5)
        writer.text("text", "hello *world*", -6)
        writer.write("raw", np.arange(4, dtype=np.int64), 7, events.metadata("mine", b"\x01"))
        writer.hparams(HPARAMS)


def test_what_is_written_is_read_back(tmp_path):
    write_all(tmp_path)
    found = {}
    for value in events.read(tmp_path):
        found.setdefault(value.tag, []).append(value)
    assert [(v.step, float(v.data)) for v in found["scalar"]] == [(1, 1.5), (2, 2.5)]
    assert found["scalar"][0].data.dtype == np.float32
    width, height, *images = found["image"][0].data
    assert (width, height) == (b"5", b"6")
    np.testing.assert_array_equal([pixels(i) for i in images], IMAGE)
    gray = pixels(found["gray"][0].data[2])
    assert gray.shape == (6, 5, 3) and (gray[..., 0] == gray[..., 2]).all()
    ((sound, label),) = found["audio"][0].data
    with wave.open(io.BytesIO(sound)) as file:
        assert (file.getframerate(), file.getnchannels()) == (8000, 2)
        samples = np.frombuffer(file.readframes(100), "<i2").reshape(-1, 2) / 32768
    np.testing.assert_allclose(samples, np.clip(SOUND[0], -1, 1), atol=1e-4)
    histogram = found["histogram"][0].data
    assert histogram.shape == (30, 3) and histogram[:, 2].sum() == 1000
    np.testing.assert_allclose(histogram[0], [0.0, 33.3, 34.0])
    assert found["constant"][0].data.tolist() == [[1, 1, 0], [1, 1, 0], [1, 1, 4]]
    assert found["empty"][0].data.tolist() == [[0, 0, 0]] * 2
    assert found["wild"][0].data.tolist() == [[0, 0.5, 1], [0.5, 1, 1]]
    assert found["large"][0].data == np.inf
    (text,) = found["text"]
    assert (text.step, text.data.item()) == (-6, b"hello *world*")
    assert found["raw"][0].content == b"\x01" and found["raw"][0].data.tolist() == [0, 1, 2, 3]
    assert all(v.wall_time > 1e9 for values in found.values() for v in values)


@pytest.mark.parametrize("dtype", [*"?bBhHiIqQefd", jnp.bfloat16, "F"])
def test_tensors_of_every_dtype(tmp_path, dtype):
    value = np.array([[0, 1, 1]]).astype(dtype)
    writer = events.EventWriter(tmp_path)
    writer.add(events.summary("x", events.tensor(value), None), 0)
    writer.close()
    (back,) = events.read(tmp_path)
    assert back.data.dtype == value.dtype and back.data.shape == (1, 3) and back.step == 0
    np.testing.assert_array_equal(back.data, value)


def test_flushing_and_closing(tmp_path):
    quick, slow = tmp_path / "quick", tmp_path / "slow"
    a, b = SummaryWriter(quick), SummaryWriter(slow, auto_flush=False)
    for writer in (a, b):
        writer.scalar("x", 1, 1)
    assert len(list(events.read(quick))) == 1 and len(list(events.read(slow))) == 0
    b.flush()
    assert len(list(events.read(slow))) == 1
    a.close()
    a.close()
    with pytest.raises(AttributeError):
        a.flush()
    b.close()
    with SummaryWriter(quick) as writer:
        with pytest.raises(ValueError, match="`textdata` should be of the type"):
            writer.text("t", 3, 1)


def test_flatten_dict():
    assert _flatten_dict({"a": {"b": {"c": 1}}, "l": [1], "f": np.float32(2)}) == {
        "a.b.c": 1, "l": "[1]", "f": np.float32(2),
    }  # fmt: skip


def test_tensorboard_reads_it(tmp_path, monkeypatch):
    # A module of this name tells tensorboard to do without TensorFlow, which takes long to import.
    monkeypatch.setitem(sys.modules, "tensorboard.compat.notf", types.ModuleType("notf"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        accumulator = pytest.importorskip(
            "tensorboard.backend.event_processing.event_accumulator"
        )
        from tensorboard.plugins.hparams import plugin_data_pb2
        from tensorboard.util import tensor_util

        write_all(tmp_path)
        found = accumulator.EventAccumulator(str(tmp_path), {"tensors": 0}).Reload()

        def arrays(tag):
            return [(e.step, tensor_util.make_ndarray(e.tensor_proto)) for e in found.Tensors(tag)]

        assert [(s, float(x)) for s, x in arrays("scalar")] == [(1, 1.5), (2, 2.5)]
        ((step, image),) = arrays("image")
        np.testing.assert_array_equal([pixels(i) for i in image[2:]], IMAGE)
        ((step, audio),) = arrays("audio")
        assert step == 4 and audio.reshape(-1)[0][:4] == b"RIFF"
        ((step, histogram),) = arrays("histogram")
        assert histogram.shape == (30, 3) and histogram[:, 2].sum() == 1000
        assert arrays("text")[0][1].item() == b"hello *world*"
        for tag, plugin in {"gray": "images", "raw": "mine", "audio": "audio"}.items():
            assert found.SummaryMetadata(tag).plugin_data.plugin_name == plugin
        content = found.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
        info = plugin_data_pb2.HParamsPluginData.FromString(content).session_start_info
        assert info.hparams["lr"].number_value == 0.1 and info.hparams["bn"].bool_value
        assert info.hparams["deep.x"].string_value == "None"
        assert info.hparams["layers"].number_value == 3
        assert info.hparams["name"].string_value == "net"
        assert len(info.group_name) == 64 and info.start_time_secs > 1e9
