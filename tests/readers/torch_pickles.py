"""Pickles and archives of torch.save, made by hand to be as harmful as the format allows."""

import io
import struct
import zipfile


def archive(pickled, storages=(), compression=zipfile.ZIP_STORED):
    """The bytes of a file of torch.save with this pickle and these storages."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as file:
        file.writestr("archive/data.pkl", pickled)
        for key, data in dict(storages).items():
            file.writestr(f"archive/data/{key}", data)
    return buffer.getvalue()


def integer(n):
    """An integer of any size."""
    data = n.to_bytes(n.bit_length() // 8 + 1, "little", signed=True)
    if len(data) < 256:
        return b"\x8a" + bytes([len(data)]) + data
    return b"\x8b" + struct.pack("<i", len(data)) + data


def integers(*ns):
    return b"(" + b"".join(map(integer, ns)) + b"t"


def text(x):
    data = x.encode()
    return b"X" + struct.pack("<I", len(data)) + data


def storage(count, kind="FloatStorage", key="0"):
    """The description of a storage."""
    return (
        b"(" + text("storage") + b"ctorch\n" + kind.encode() + b"\n" + text(key) + text("cpu")
        + integer(count) + b"tQ"
    )  # fmt: skip


REBUILD = b"ctorch._utils\n_rebuild_tensor_v2\n"


def arguments(count, size, stride, offset=0, kind="FloatStorage", key="0"):
    """The arguments of _rebuild_tensor_v2."""
    return (
        b"(" + storage(count, kind, key) + integer(offset) + integers(*size) + integers(*stride)
        + b"\x89N" + b"t"
    )  # fmt: skip


def tensor(count, size, stride, **kwargs):
    return REBUILD + arguments(count, size, stride, **kwargs) + b"R"


def tensor_file(data, count, size, stride, **kwargs):
    return archive(b"\x80\x02" + tensor(count, size, stride, **kwargs) + b".", {"0": data})


def doubled(levels, start, join):
    """A value in which each level is twice the one below, by the memo."""
    steps = b"".join(
        b"r" + struct.pack("<I", i) + b"j" + struct.pack("<I", i) + join for i in range(levels)
    )
    return start + steps
