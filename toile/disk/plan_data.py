"""Encodes plan data as bytes and decodes it: numbers, text, containers, arrays and records.

Decoding cannot create anything else: a record's class is found by its number in the closed table of
a `Schema`, never by a name in the data, and its fields are checked before it is made. The data is a
header with counts, then flat sections: atoms (numbers, texts, bytes, tuples and tables of
integers), then batches of records of one kind, which refer by number to atoms and to records of
earlier batches. Therefore, sizes are checked against the data before anything is allocated, the
size of the result is at most a constant times the size of the data, and most work is done on whole
columns of fields.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from itertools import accumulate
from operator import itemgetter
from typing import Any

import numpy as np

from toile.disk.plan_schema import Damaged, Maker, Record, Schema, Unencodable

# Kinds of values, as numbered in the data; the records of the schema follow from BUILT_IN on.
TUPLE, LIST, SET, FROZENSET, INT_LIST, DTYPE, ARRAY = range(7)
_OF_ANY_LENGTH = 4  # the kinds below this one have any number of members
BUILT_IN = 7
MOST_DEPTH = 20  # of nested tuples and lists in data that is read
MOST_OPEN = 400  # nested objects that are being written
LARGE = 64  # a container is large if it has more elements, counting those of containers in it
STEPS = 8  # per byte of the data: the budget for references to large containers
_HEADER = struct.Struct("<11Q")
_FIXED: tuple[Any, ...] = (None, False, True)
_INT, _TUPLE = {int}, {tuple}
_SECTION = 48  # bits for the place in a section; the number of the section is in the bits above
# Sections, in the order in which values are numbered; 0 is for numbers that are not references.
_FIXED_PART, _SCALARS, _FLOATS, _TEXTS, _BLOBS, _RUNS, _TABLES, _RECORDS = range(1, 9)


def encode(value: Any, schema: Schema) -> bytes:
    """The bytes of a value; raises Unencodable if it is not plan data of this schema."""
    try:
        return _Writer(schema).written(value)
    except RecursionError:
        raise Unencodable("it is nested too deeply") from None


def decode(data: bytes, schema: Schema) -> Any:
    """The value that was encoded; raises Damaged if the bytes are anything else."""
    try:
        return _Reader(data, schema).value
    except Damaged:
        raise
    except Exception as error:  # classes may raise anything if fields do not fit
        raise Damaged(f"it holds no plan data ({type(error).__name__}: {error})") from error


# ---- writing


class _Writer:
    """Numbers atoms and records as they occur; equal ones share a number unless kept `apart`."""

    def __init__(self, schema: Schema):
        self.schema = schema
        self.records: list[tuple[int, list[int]]] = []  # kind, and references to the fields
        self.levels: list[int] = []  # a record refers only to records of lower levels
        self.atoms: list[dict[Any, int]] = [{} for _ in range(_RECORDS)]
        self.known: dict[int, int] = {}  # references by the id of objects
        self.alive: list[Any] = []  # those objects, so that their ids are not reused
        self.equal: dict[tuple[int, ...], int] = {}  # references by kind and fields
        self.open: set[int] = set()  # ids of objects that are being written
        self.records_of: dict[type, Record] = {}
        self.values: dict[int, Any] = {}  # fields of records, by reference

    def written(self, value: Any) -> bytes:
        root = self.reference(value)
        scalars, floats, texts, blobs, runs, tables = (
            list(x) for x in self.atoms[_SCALARS:_RECORDS])
        texts = [x.encode() for x in texts]
        ints = [n for run in runs for n in run]
        ints += [n for table in tables for row in table for n in row]
        shapes = [n for table in tables for n in (len(table), len(table[0]))]
        counts = [len(_FIXED), *map(len, (scalars, floats, texts, blobs, runs, tables))]
        bases = np.array([0, *accumulate(counts, initial=0)], np.int64)
        batches, number = self._batches()
        stream = np.array([root, *batches], np.int64)
        section, place = stream >> _SECTION, stream & ((1 << _SECTION) - 1)
        stream = bases[section] + np.where(section == _RECORDS, number[place % len(number)], place)
        header = _HEADER.pack(
            len(scalars), len(floats), len(texts), len(blobs), len(runs), len(tables), len(ints),
            len(batches), sum(map(len, texts)), sum(map(len, blobs)), int(stream[0]))
        parts = [scalars, list(map(len, texts)), list(map(len, blobs)), list(map(len, runs)),
                 shapes, ints]
        numbers = [np.array(x, "<i8").tobytes() for x in parts]
        return b"".join([header, *floats, *numbers, stream[1:].astype("<i8").tobytes(), *texts,
                         *blobs])

    def _batches(self) -> tuple[list[int], np.ndarray]:
        """The stream of batches, and the number that each record has in it."""
        groups: dict[tuple[int, int, int], list[int]] = {}
        for i, (kind, fields) in enumerate(self.records):
            arity = -1 if kind < _OF_ANY_LENGTH else len(fields)
            groups.setdefault((self.levels[i], kind, arity), []).append(i)
        stream: list[int] = []
        number = np.zeros(max(len(self.records), 1), np.int64)
        done = 0
        for (_, kind, arity), members in sorted(groups.items()):
            number[members] = range(done, done + len(members))
            done += len(members)
            rows = [self.records[i][1] for i in members]
            if kind < _OF_ANY_LENGTH:
                stream += (kind, len(rows), *map(len, rows))
                for row in rows:
                    stream += row
            else:
                if kind >= BUILT_IN:
                    first = _RECORDS << _SECTION
                    self.schema.records[kind - BUILT_IN].check(
                        [self.values[first | i] for i in members], self.schema)
                stream += (kind, len(rows), arity)
                for column in zip(*rows, strict=True):
                    stream += column
        return stream, number

    def reference(self, x: Any) -> int:
        """The reference to a value, which is added if it is new."""
        found = self.known.get(id(x))
        if found is not None:
            return found
        kind = x.__class__
        if x is None or kind is bool:
            return (_FIXED_PART << _SECTION) | _FIXED.index(x)
        if kind is int:
            return self._atom(_SCALARS, _word(x))
        if kind is str:
            return self._atom(_TEXTS, x)
        if kind is float:
            return self._atom(_FLOATS, struct.pack("<d", x))  # as bytes, because 0.0 == -0.0
        if kind is bytes:
            return self._atom(_BLOBS, x)
        if kind is tuple and _all_words(x):
            found = self._atom(_RUNS, x)
        else:
            if id(x) in self.open or len(self.open) >= MOST_OPEN:
                raise Unencodable("it refers to itself, or is nested too deeply")
            self.open.add(id(x))
            found = self._new(x, kind)
            self.open.discard(id(x))
        self.known[id(x)] = found
        self.alive.append(x)
        return found

    def _new(self, x: Any, kind: type) -> int:
        """The reference to a new container, dtype, array or record."""
        if kind is tuple:
            return self._record(TUPLE, self._references(x))
        if kind is list:
            return self._list(x)
        if kind is set or kind is frozenset:
            return self._record(SET if kind is set else FROZENSET, self._members(x), True)
        if isinstance(x, np.dtype) or kind is self.schema.key_dtype:
            return self._record(DTYPE, [self.reference(self.schema.dtype_name(x))])
        if kind is np.ndarray:
            if not x.dtype.itemsize:
                raise Unencodable("an array of elements without a size")
            fields = (x.dtype, x.shape, np.ascontiguousarray(x).tobytes())
            return self._record(ARRAY, self._references(fields), True)
        record = self.records_of.get(kind)
        if record is None:
            record = self.records_of[kind] = self.schema.record_of(kind)
        values = record.taken(x, self.schema)
        found = self._record(BUILT_IN + record.number, self._references(values), record.identity)
        self.values[found] = values
        return found

    def _references(self, values: Iterable[Any]) -> list[int]:
        return [self.reference(y) for y in values]

    def _list(self, x: list[Any]) -> int:
        """The reference to a list: a table of integers, a list of integers, or any other."""
        if x and _is_table(x):
            return self._atom(_TABLES, tuple(x))
        if _all_words(x):
            return self._record(INT_LIST, [self._atom(_RUNS, tuple(x))], True)
        return self._record(LIST, self._references(x), True)

    def _members(self, buffers: Any) -> list[int]:
        """References to the members of a set, in the same order in all processes: the order in
        which they first occurred; new ones are added in the order of their properties."""
        if any(x.__class__ not in self.schema.hashable for x in buffers):
            raise Unencodable("a set of something other than buffers")
        new = [x for x in buffers if id(x) not in self.known]
        for x in sorted(new, key=_order):
            self.reference(x)
        return sorted([self.reference(x) for x in buffers])

    def _record(self, kind: int, fields: list[int], apart: bool = False) -> int:
        """The reference to a record; if `apart`, it stays distinct from records that equal it."""
        key = (kind, *fields)
        found = None if apart else self.equal.get(key)
        if found is None:
            number = len(self.records)
            found = (_RECORDS << _SECTION) | number
            self.records.append((kind, fields))
            first = _RECORDS << _SECTION
            self.levels.append(1 + max([self.levels[f - first] for f in fields if f >= first],
                                       default=0))
            if not apart:
                self.equal[key] = found
        return found

    def _atom(self, section: int, x: Any) -> int:
        atoms = self.atoms[section]
        return (section << _SECTION) | atoms.setdefault(x, len(atoms))


def _order(buffer: Any) -> tuple[Any, ...]:
    """A key that sorts the buffers of a set in the same order in every process.

    Parts of a buffer are sorted by that buffer and by the avals of their variables."""
    whole = getattr(buffer, "buffer", buffer)
    described = buffer if whole is buffer else buffer.var
    return (buffer.__class__.__name__, repr(getattr(described, "aval", None)),
            getattr(whole, "nbytes", 0), getattr(whole, "serial", -1))


def _word(x: int) -> int:
    if not -(1 << 63) <= x < 1 << 63:
        raise Unencodable(f"an integer of more than 64 bits: {x}")
    return x


def _all_words(xs: Any) -> bool:
    """Whether all elements, if there are any, are 64-bit integers."""
    return set(map(type, xs)) <= _INT and (not xs or -(1 << 63) <= min(xs) and max(xs) < 1 << 63)


def _is_table(rows: list[Any]) -> bool:
    """Whether a list consists of tuples of integers, of equal length and not empty."""
    if set(map(type, rows)) != _TUPLE or len(set(map(len, rows))) != 1 or not rows[0]:
        return False
    return all(map(_all_words, rows))


# ---- reading


class _Reader:
    """Decodes atoms, then records batch by batch; `value` is what was written.

    Checking or hashing a record visits all elements of its containers. Each reference to a large
    container is therefore counted against a budget that is proportional to the size of the data, so
    that many records that share one large tuple cannot take forever."""

    def __init__(self, data: bytes, schema: Schema):
        self.schema, self.data = schema, data
        if len(data) < _HEADER.size:
            raise Damaged("it is too short")
        numbers, root = self._atoms()
        self.steps = STEPS * len(data)
        self.sizes = {i: (len(x), 1) for i, x in enumerate(self.objects)
                      if x.__class__ is tuple or x.__class__ is list}
        self.large = {i: n for i, (n, _) in self.sizes.items() if n > LARGE}
        arrays = _arrays if schema.arrays else _no_arrays
        self.makers: list[Maker] = [_int_lists, schema.dtypes, arrays, *schema.makers]
        self._batches(numbers)
        self.value = self.objects[root]

    def _atoms(self) -> tuple[list[int], int]:
        """Decode the atoms; returns the stream of batches and the number of the value."""
        data = self.data
        *counts, text_bytes, blob_bytes, root = _HEADER.unpack_from(data)
        scalars, floats, texts, blobs, runs, tables, ints, numbers = counts
        lengths = [scalars, texts, blobs, runs, 2 * tables, ints, numbers]
        if _HEADER.size + 8 * (floats + sum(lengths)) + text_bytes + blob_bytes != len(data):
            raise Damaged("its size is not what its header says")
        real = np.frombuffer(data, "<f8", floats, _HEADER.size).tolist()
        cuts = list(accumulate([_HEADER.size + 8 * floats, *[8 * n for n in lengths]]))
        parts = [np.frombuffer(data, "<i8", n, at) for n, at in zip(lengths, cuts, strict=False)]
        scalar_part, text_part, blob_part, run_part, table_part, int_part, stream = parts
        rows, widths = table_part[0::2], table_part[1::2]
        if tables and (table_part.min() < 1 or table_part.max() > ints):
            raise Damaged("it has a table of an impossible size")
        at = cuts[-1]
        text_ends = _ends(text_part, text_bytes, at)
        blob_ends = _ends(blob_part, blob_bytes, at + text_bytes)
        run_ends = _ends(np.concatenate([run_part, rows * widths]), ints, 0)
        plain = int_part.tolist()
        self.objects: list[Any] = [*_FIXED, *scalar_part.tolist(), *real]
        self.objects += [str(data[a:b], "utf-8") for a, b in text_ends]
        self.objects += [data[a:b] for a, b in blob_ends]
        self.objects += [tuple(plain[a:b]) for a, b in run_ends[:runs]]
        for (a, b), width in zip(run_ends[runs:], widths.tolist(), strict=True):
            self.objects.append(list(zip(*[iter(plain[a:b])] * width, strict=True)))
        if numbers and stream.min() < 0:
            raise Damaged("it refers to something by a negative number")
        return stream.tolist(), root

    def _batches(self, numbers: list[int]) -> None:
        at, end = 0, len(numbers)
        while at < end:
            kind, count, arity = numbers[at:at + 3]
            if kind < _OF_ANY_LENGTH:
                first = at + 2 + count
                lengths = numbers[at + 2:first]
                at = first + sum(lengths)
                self._check(at <= end and count, "it ends within a record")
                self._containers(kind, lengths, numbers[first:at])
                continue
            first = at + 3
            at = first + arity * count
            self._check(at <= end and count and (arity or count == 1), "it ends within a record")
            self._pay(numbers[first:at])
            columns = [self._taken(numbers[i:i + count]) for i in range(first, at, count)]
            self.objects += self.makers[kind - _OF_ANY_LENGTH](columns)

    @staticmethod
    def _check(holds: Any, problem: str) -> None:
        if not holds:
            raise Damaged(problem)

    def _pay(self, references: list[int]) -> None:
        if not self.large.keys().isdisjoint(references):
            self.steps -= sum([self.large.get(i, 0) for i in references])
            self._check(self.steps >= 0, "its parts refer to each other too often")

    def _taken(self, references: list[int]) -> tuple[Any, ...]:
        """Atoms and records by their numbers."""
        if len(references) == 1:
            return (self.objects[references[0]],)
        return itemgetter(*references)(self.objects) if references else ()

    def _containers(self, kind: int, lengths: list[int], references: list[int]) -> None:
        """Decode a batch of tuples, lists or sets."""
        self._pay(references)
        flat = self._taken(references)
        stops = list(accumulate(lengths))
        ends = list(zip([0, *stops], stops, strict=False))
        if kind in (SET, FROZENSET):
            fits = set(map(type, flat)) <= self.schema.hashable
            self._check(fits, "it has a set of something other than buffers")
        plain = self.sizes.keys().isdisjoint(references)
        for i, (a, b) in enumerate(ends, len(self.objects)):
            size, depth = b - a, 1
            if not plain:
                inner = [self.sizes[r] for r in references[a:b] if r in self.sizes]
                size += sum([n for n, _ in inner])
                depth += max([n for _, n in inner], default=0)
                self._check(depth <= MOST_DEPTH, "it has tuples that are nested too deeply")
            self.sizes[i] = size, depth
            if size > LARGE:
                self.large[i] = size
        make = (tuple, list, set, frozenset)[kind]
        self.objects += [make(flat[a:b]) for a, b in ends]


def _ends(lengths: np.ndarray, total: int, start: int) -> list[tuple[int, int]]:
    """Where parts of these lengths begin and end; together they must have the length `total`."""
    if lengths.size and (lengths.min() < 0 or lengths.max() > total):
        raise Damaged("it has a part of an impossible length")
    stops = np.cumsum(lengths)
    if (int(stops[-1]) if lengths.size else 0) != total:
        raise Damaged("the lengths of its parts do not add up")
    stops += start
    return list(zip((stops - lengths).tolist(), stops.tolist(), strict=True))


def _int_lists(columns: list[Any]) -> list[Any]:
    (runs,) = columns
    if set(map(type, runs)) != _TUPLE:
        raise Damaged("it has a list whose elements are not in a tuple")
    return [list(x) for x in runs]


def _arrays(columns: list[Any]) -> list[Any]:
    made = []
    for dtype, shape, content in zip(*columns, strict=True):
        if not isinstance(dtype, np.dtype) or min(shape, default=0) < 0:
            raise Damaged("it has an array without a valid dtype or shape")
        made.append(np.frombuffer(content, dtype).reshape(shape).copy())
    return made


def _no_arrays(columns: list[Any]) -> list[Any]:
    raise Damaged("it has an array")
