"""Damage to files: flipped bits, cut ends, moved parts, and lengths that are not true.

`mutated(rng, data, others)` damages bytes at random; the functions below it do the same inside of a
format's own checks (a zip entry's checksum, a record's, a header's length), so that the damage
reaches what is behind them.
"""

import io
import json
import struct
import zipfile

import msgpack

from toile.metrics import records

INTERESTING = (0, 1, 2, 3, 7, 8, 15, 16, 31, 32, 63, 64, 127, 128, 255, 256, 1023, 1024, 4096,
               2**15 - 1, 2**15, 2**16 - 1, 2**16, 2**24, 2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1,
               2**40, 2**61 - 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1)  # fmt: skip


def flip_bits(rng, data, others):
    for _ in range(rng.choice((1, 1, 2, 8))):
        at = rng.randrange(len(data))
        data[at] ^= 1 << rng.randrange(8)


def set_bytes(rng, data, others):
    at, n = rng.randrange(len(data)), rng.choice((1, 1, 2, 4, 8))
    choices = (0, 0xFF, 0x7F, 0x80, rng.randrange(256))
    data[at : at + n] = bytes(rng.choice(choices) for _ in range(n))


def cut_end(rng, data, others):
    del data[rng.randrange(len(data)) :]


def cut_start(rng, data, others):
    del data[: rng.randrange(len(data))]


def insert(rng, data, others):
    at = rng.randrange(len(data) + 1)
    data[at:at] = rng.randbytes(rng.choice((1, 2, 4, 8, 33)))


def remove(rng, data, others):
    at = rng.randrange(len(data))
    del data[at : at + rng.choice((1, 2, 4, 8, 100))]


def repeat(rng, data, others):
    at, n = rng.randrange(len(data)), rng.choice((1, 4, 16, 200))
    data[at:at] = data[at : at + n] * rng.choice((1, 2, 50))


def swap(rng, data, others):
    a, b, n = rng.randrange(len(data)), rng.randrange(len(data)), rng.choice((1, 4, 16))
    data[a : a + n], data[b : b + n] = data[b : b + n], data[a : a + n]


def change_length(rng, data, others):
    width = rng.choice((1, 2, 4, 8))
    value = rng.choice((*INTERESTING, len(data), len(data) - 1, rng.randrange(1 << 20)))
    at = rng.randrange(len(data))
    order = rng.choice(("little", "big"))
    data[at : at + width] = (value % (1 << 8 * width)).to_bytes(width, order)


def step_byte(rng, data, others):
    at = rng.randrange(len(data))
    data[at] = (data[at] + rng.choice((-2, -1, 1, 2))) % 256


def splice(rng, data, others):
    other = rng.choice(others)
    at, n = rng.randrange(len(data) + 1), rng.choice((4, 16, 64, 300))
    start = rng.randrange(len(other) + 1)
    data[at : at + rng.choice((0, n))] = other[start : start + n]


KINDS = (flip_bits, set_bytes, cut_end, cut_start, insert, remove, repeat, swap, change_length,
         step_byte, splice)  # fmt: skip


def mutated(rng, data, others):
    """The bytes with one to four kinds of damage."""
    data = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 3, 4))):
        if data:
            rng.choice(KINDS)(rng, data, others)
    return bytes(data)


def mutated_entry(rng, data, others):
    """An archive of torch.save or NumPy, one entry of which is damaged; checksums are right."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old:
        entries = {info.filename: old.read(info) for info in old.infolist()}
    pickles = [name for name in entries if name.endswith("data.pkl")]
    chosen = rng.choice(pickles or sorted(entries))
    if rng.random() < 0.2:
        chosen = rng.choice(list(entries))
    pickles = [bytes(entries[chosen])]
    entries[chosen] = mutated(rng, entries[chosen], pickles)
    with zipfile.ZipFile(buffer, "w") as new:
        for name, content in entries.items():
            new.writestr(name, content)
    return buffer.getvalue()


def mutated_header(rng, data, others):
    """A safetensors file with another header, whose length is right."""
    size = struct.unpack("<Q", data[:8])[0]
    if rng.random() < 0.5:
        header = mutated(rng, data[8 : 8 + size], [o[8:] for o in others])
    else:
        header = json.dumps(_changed(rng, json.loads(data[8 : 8 + size]))).encode()
    return struct.pack("<Q", len(header)) + header + data[8 + size :]


ODD = (None, True, -1, 0, 1, 1.5, "", "F64", "U8", [], {}, [[]], -(2**63), "é" * 50, *INTERESTING)


def _changed(rng, tree):
    """A tree of JSON or msgpack with one value changed for another."""
    if not isinstance(tree, (dict, list)) or not tree or rng.random() < 0.15:
        return rng.choice(ODD)
    if isinstance(tree, list):
        at = rng.randrange(len(tree))
        return tree[:at] + [_changed(rng, tree[at])] * rng.choice((0, 1, 1, 1, 2)) + tree[at + 1 :]
    key = rng.choice(list(tree))
    out = dict(tree)
    if rng.random() < 0.2:
        out[rng.choice(("", "0", "shape", "__metadata__", "chunks"))] = out.pop(key)
    else:
        out[key] = _changed(rng, out[key])
    return out


def mutated_tree(rng, data, others):
    """A msgpack tree with one value changed, also within an array's shape, dtype or data."""
    tree = msgpack.unpackb(data, strict_map_key=False)
    return msgpack.packb(_changed_msgpack(rng, tree, others))


def _changed_msgpack(rng, x, others):
    if isinstance(x, msgpack.ExtType):
        kind = rng.random()
        if kind < 0.2:
            return msgpack.ExtType(rng.randrange(128), x.data)
        if kind < 0.5:
            return msgpack.ExtType(x.code, mutated(rng, x.data, [x.data]))
        inner = msgpack.unpackb(x.data, raw=True)
        return msgpack.ExtType(x.code, msgpack.packb(_changed_triple(rng, inner)))
    if isinstance(x, dict) and x:
        key = rng.choice(list(x))
        return {**x, key: _changed_msgpack(rng, x[key], others)}
    return _changed(rng, x)


NAMES = (b"float32", b"object", b"O", b"f4,i4", b"(3,)f4", b"str32", b"str0", b"bytes8", b"bool",
         b"void16", b"datetime64[ns]", b"datetime64[999999999s]", b"bfloat16", b"int4", b"finfo",
         b"float128", b"", b"\xff", b"str99999999999", b"a4", b"complex64")  # fmt: skip


def _changed_triple(rng, inner):
    if not isinstance(inner, list) or len(inner) != 3:
        return _changed(rng, inner)
    inner = list(inner)
    at = rng.randrange(3)
    if at == 1:
        inner[1] = rng.choice(NAMES)
    elif at == 2 and isinstance(inner[2], bytes):
        inner[2] = mutated(rng, inner[2], [inner[2]]) if inner[2] else b"\x01"
    else:
        inner[at] = _changed(rng, inner[at])
    return inner


def mutated_record(rng, data, others):
    """An event file, one of whose records is damaged; checksums are right."""
    found, at = [], 0
    while at < len(data):
        (n,) = struct.unpack_from("<Q", data, at)
        found.append(data[at + 12 : at + 12 + n])
        at += 16 + n
    chosen = rng.randrange(len(found))
    found[chosen] = mutated(rng, found[chosen], found)
    return b"".join(map(records.frame, found))
