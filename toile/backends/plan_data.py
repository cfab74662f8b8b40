"""Plan data as bytes, and back: numbers, text, tuples, lists, and records of a closed table.

Reading can make nothing else: a record's class is found by its place in the table of a `Schema`,
never by a name in the data, and its fields are checked before it is made. Data is a header of
counts and flat sections: atoms (numbers, texts, bytes, tuples of integers), then records, each of
which refers to atoms and to earlier records by number. So sizes are checked against the data before
anything is allocated, and what is read is at most a constant times as large as the data.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from itertools import accumulate
from typing import Any

import numpy as np

from toile.backends.plan_schema import Damaged, Schema, Unencodable

# Containers come before the schema's records: their numbers in the data.
TUPLE, LIST, INT_LIST, SET, FROZENSET, DTYPE, ARRAY = range(7)
BUILT_IN = 7
MOST_DEPTH = 200  # of tuples and records inside of each other
# Elements of tuples count each time they are referred to, so that hashing takes a bounded time.
MOST_SHARED = 64  # times the bytes of the data
_HEADER = struct.Struct("<11Q")
_FIXED: tuple[Any, ...] = (None, False, True)
_SECTION = 48  # bits of a reference below the number of its section
# Sections of atoms, in the order in which they are numbered; 0 is for numbers that refer to none.
_FIXED_PART, _SCALARS, _FLOATS, _TEXTS, _BLOBS, _RUNS, _TABLES, _RECORDS = range(1, 9)


def encode(value: Any, schema: Schema) -> bytes:
    """The bytes of a value; raises Unencodable for what is not plan data of this schema."""
    return _Writer(schema).written(value)


def decode(data: bytes, schema: Schema) -> Any:
    """The value of such bytes; raises Damaged for any others."""
    try:
        return _decoded(data, schema)
    except Damaged:
        raise
    except Exception as error:  # whatever classes say of fields that do not fit
        raise Damaged(f"it holds no plan data ({type(error).__name__}: {error})") from error


# ---- writing


class _Writer:
    """Numbers atoms and records as they are met, equal ones once."""

    def __init__(self, schema: Schema):
        self.schema = schema
        self.stream: list[int] = []  # kind, count, references ... of each record
        self.records = 0
        self.atoms: list[dict[Any, int]] = [{} for _ in range(_RECORDS)]
        self.known: dict[int, int] = {}  # references by the identity of objects
        self.alive: list[Any] = []  # those objects: identities are of what is alive
        self.equal: dict[tuple[int, ...], int] = {}  # references by kind and fields
        self.open: set[int] = set()  # objects that are being written

    def written(self, value: Any) -> bytes:
        root = self.reference(value)
        scalars, floats, texts, blobs, runs, tables = (
            list(x) for x in self.atoms[_SCALARS:_RECORDS])
        texts = [x.encode() for x in texts]
        ints = [n for run in runs for n in run]
        ints += [n for table in tables for row in table for n in row]
        shapes = [n for table in tables for n in (len(table), len(table[0]))]
        counts = [3, *map(len, (scalars, floats, texts, blobs, runs, tables)), self.records]
        bases = np.array([0, *accumulate(counts, initial=0)], np.int64)[:-1]
        stream = np.array([root, *self.stream], np.int64)
        stream = (stream & ((1 << _SECTION) - 1)) + bases[stream >> _SECTION]
        header = _HEADER.pack(
            len(scalars), len(floats), len(texts), len(blobs), len(runs), len(tables), len(ints),
            len(self.stream), sum(map(len, texts)), sum(map(len, blobs)), int(stream[0]))
        parts = [scalars, list(map(len, texts)), list(map(len, blobs)), list(map(len, runs)),
                 shapes, ints]
        numbers = [np.array(x, "<i8").tobytes() for x in parts]
        return b"".join([header, np.array([struct.unpack("<d", x)[0] for x in floats],
                                          "<f8").tobytes() if floats else b"",
                         *numbers, stream[1:].astype("<i8").tobytes(), *texts, *blobs])

    def reference(self, x: Any) -> int:
        """The number that stands for a value."""
        kind = x.__class__
        if x is None or kind is bool:
            return (_FIXED_PART << _SECTION) | _FIXED.index(x)
        if kind is int:
            return self._atom(_SCALARS, _word(x))
        if kind is str:
            return self._atom(_TEXTS, x)
        if kind is float:
            return self._atom(_FLOATS, struct.pack("<d", x))  # by bits: 0.0 == -0.0
        if kind is bytes:
            return self._atom(_BLOBS, x)
        if kind is tuple and _all_words(x):
            return self._atom(_RUNS, x)
        found = self.known.get(id(x))
        if found is None:
            if id(x) in self.open or len(self.open) >= MOST_DEPTH:
                raise Unencodable("it refers to itself, or is very deep")
            self.open.add(id(x))
            found = self._new(x, kind)
            self.open.discard(id(x))
            self.known[id(x)] = found
            self.alive.append(x)
        return found

    def _new(self, x: Any, kind: type) -> int:
        if kind is tuple:
            return self._record(TUPLE, [self.reference(y) for y in x])
        if kind is list:
            if x and _is_table(x):
                return self._atom(_TABLES, tuple(x))
            if _all_words(x):
                return self._record(INT_LIST, [self._atom(_RUNS, tuple(x))], True)
            return self._record(LIST, [self.reference(y) for y in x], True)
        if kind is set or kind is frozenset:
            return self._record(SET if kind is set else FROZENSET, self._members(x), True)
        if isinstance(x, np.dtype) or kind is self.schema.key_dtype:
            return self._record(DTYPE, [self.reference(self.schema.dtype_name(x))])
        if kind is np.ndarray:
            if not x.dtype.itemsize:
                raise Unencodable("an array of elements without a size")
            fields = (x.dtype, x.shape, np.ascontiguousarray(x).tobytes())
            return self._record(ARRAY, [self.reference(y) for y in fields], True)
        record = self.schema.record_of(x)
        taken = [self.reference(y) for y in record.taken(x, self.schema)]
        return self._record(BUILT_IN + record.number, taken, record.identity)

    def _members(self, buffers: Any) -> list[int]:
        """References to the members of a set, in the same order in all processes: by when they were
        met first, and those that are new by what they are."""
        if any(x.__class__ not in self.schema.hashable for x in buffers):
            raise Unencodable("a set of something other than buffers")
        new = [x for x in buffers if id(x) not in self.known]
        for x in sorted(new, key=lambda x: (x.__class__.__name__, repr(getattr(x, "aval", None)),
                                            getattr(x, "nbytes", 0))):
            self.reference(x)
        return sorted([self.reference(x) for x in buffers])

    def _record(self, kind: int, fields: list[int], apart: bool = False) -> int:
        """A record; `apart`: it is another object than those that equal it."""
        key = (kind, *fields)
        found = None if apart else self.equal.get(key)
        if found is None:
            found = (_RECORDS << _SECTION) | self.records
            self.records += 1
            self.stream += (kind, len(fields), *fields)
            if not apart:
                self.equal[key] = found
        return found

    def _atom(self, section: int, x: Any) -> int:
        atoms = self.atoms[section]
        return (section << _SECTION) | atoms.setdefault(x, len(atoms))


def _word(x: int) -> int:
    if not -(1 << 63) <= x < 1 << 63:
        raise Unencodable(f"an integer of more than 64 bits: {x}")
    return x


def _all_words(xs: Any) -> bool:
    return all([x.__class__ is int and -(1 << 63) <= x < 1 << 63 for x in xs])


def _is_table(rows: list[Any]) -> bool:
    """Whether a list has tuples of the same number of integers, at least one, and nothing else."""
    first = rows[0]
    if first.__class__ is not tuple or not first:
        return False
    width = len(first)
    return all([x.__class__ is tuple and len(x) == width and _all_words(x) for x in rows])


# ---- reading


def _decoded(data: bytes, schema: Schema) -> Any:
    if len(data) < _HEADER.size:
        raise Damaged("it is too short")
    *counts, text_bytes, blob_bytes, root = _HEADER.unpack_from(data)
    scalars, floats, texts, blobs, runs, tables, ints, numbers = counts
    lengths = [scalars, texts, blobs, runs, 2 * tables, ints, numbers]
    words = sum(lengths) + floats
    if _HEADER.size + 8 * words + text_bytes + blob_bytes != len(data):
        raise Damaged("its size is not what its header says")
    real = np.frombuffer(data, "<f8", floats, _HEADER.size).tolist()
    cuts = list(accumulate([_HEADER.size + 8 * floats, *[8 * n for n in lengths]]))
    parts = [np.frombuffer(data, "<i8", n, at) for n, at in zip(lengths, cuts, strict=False)]
    scalar_part, text_part, blob_part, run_part, table_part, int_part, number_part = parts
    rows, widths = table_part[0::2], table_part[1::2]
    if tables and (widths.min() < 1 or rows.min() < 1 or rows.max() > ints or widths.max() > ints):
        raise Damaged("it has a table of no size")
    at = cuts[-1]
    text_ends = _ends(text_part, text_bytes, at)
    blob_ends = _ends(blob_part, blob_bytes, at + text_bytes)
    run_ends = _ends(np.concatenate([run_part, rows * widths]), ints, 0)
    plain = int_part.tolist()
    objects: list[Any] = [*_FIXED, *scalar_part.tolist(), *real]
    objects += [str(data[a:b], "utf-8") for a, b in text_ends]
    objects += [data[a:b] for a, b in blob_ends]
    objects += [tuple(plain[a:b]) for a, b in run_ends[:runs]]
    for (a, b), width in zip(run_ends[runs:], widths.tolist(), strict=True):
        objects.append(list(zip(*[iter(plain[a:b])] * width, strict=True)))
    if numbers and number_part.min() < 0:
        raise Damaged("it refers to something by a negative number")
    _make_records(number_part.tolist(), objects, schema, MOST_SHARED * len(data))
    return objects[root]


def _ends(lengths: np.ndarray, total: int, start: int) -> list[tuple[int, int]]:
    """Where parts of such lengths begin and end, which together have a given length."""
    if lengths.size and (lengths.min() < 0 or lengths.max() > total):
        raise Damaged("it has a part of an impossible length")
    stops = np.cumsum(lengths)
    if (int(stops[-1]) if lengths.size else 0) != total:
        raise Damaged("the lengths of its parts do not add up")
    stops += start
    return list(zip((stops - lengths).tolist(), stops.tolist(), strict=True))


def _make_records(
    numbers: list[int], objects: list[Any], schema: Schema, most_shared: int
) -> None:
    """Make the records that a stream of numbers tells of, each of those before it."""
    makers: list[Callable[[list[Any]], Any]] = [*_containers(schema), *schema.makers]
    flat = [False] * BUILT_IN + schema.flat
    # Elements and depth of what is not flat, by number.
    sizes = {i: (len(x), 0) for i, x in enumerate(objects) if x.__class__ in (tuple, list)}
    at, end, add = 0, len(numbers), objects.append
    while at < end:
        kind, first = numbers[at], at + 2
        at = first + numbers[at + 1]
        if at > end:
            raise Damaged("it ends within a record")
        references = numbers[first:at]
        made = makers[kind]([objects[i] for i in references])
        if not flat[kind]:
            count, depth = len(references), 0
            for i in references:
                if i in sizes:
                    more, below = sizes[i]
                    count += more
                    depth = below if below > depth else depth
            most_shared -= count
            if most_shared < 0 or depth >= MOST_DEPTH:
                raise Damaged("its parts are too deep, or refer to each other too often")
            sizes[len(objects)] = count, depth + 1
        add(made)


def _containers(schema: Schema) -> list[Callable[[list[Any]], Any]]:
    """What makes the values that are not records, by their numbers."""

    def int_list(values: list[Any]) -> list[int]:
        (run,) = values
        return list(run) if run.__class__ is tuple else _refuse("a list of no tuple")

    def hashed(values: list[Any]) -> list[Any]:
        if not {x.__class__ for x in values} <= schema.hashable:
            _refuse("a set of something other than buffers")
        return values

    def array(values: list[Any]) -> np.ndarray:
        dtype, shape, content = values
        if not isinstance(dtype, np.dtype) or min(shape, default=0) < 0:
            _refuse("an array of no dtype or shape")
        return np.frombuffer(content, dtype).reshape(shape).copy()

    return [tuple, list, int_list, lambda x: set(hashed(x)), lambda x: frozenset(hashed(x)),
            schema.dtype, array]


def _refuse(what: str) -> Any:
    raise Damaged(f"it has {what}")
