"""Reading `x[index]`: NumPy's indexing rules, lowered to slice, dynamic_slice or one gather.

An index becomes a list of entries: ("int", axis, i), ("slice", axis, start, size, step), ("array",
axis, values), ("new",), or ("gap",) for an Ellipsis that stands for no axis but, as in NumPy, still
separates index arrays. The entry of an array whose values are checked has a fourth field: the text
about invalid values in the error message. Static integers and slices never reach the gather;
index_update.py turns the same entries into dynamic_update_slice or one scatter.
"""

from typing import Any

import numpy as np

from toile import lax
from toile.engine import extra_warnings
from toile.engine.config import flags
from toile.engine.errors import NonConcreteBooleanIndexError
from toile.engine.source import describe, here
from toile.lax import gathers
from toile.numpy import _helpers as h
from toile.numpy._helpers import Array, DeviceArray, KeyArray, Tracer, arr, raw_buffer, wrap_raw
from toile.primitives.bounds import bounded

_BASIC = frozenset((int, slice, type(None), type(Ellipsis)))
_INT32_MAX, _INT64_MAX = 2**31 - 1, 2**63 - 1
_RAW_INDICES = "?bhilqBHI"     # no uint64: NumPy reads large ones as negative
NO_AXIS = ("new", "gap")        # entries that belong to no operand axis


# From the user's index to entries.

def _as_index_array(i):
    """Convert one advanced index to an array of integers or booleans, or raise an error."""
    if isinstance(i, (list, tuple)):
        i = arr(list(i)) if _holds_arrays(i) else np.asarray(i)
        if i.size == 0 and i.dtype.kind == "f":
            i = i.astype(np.int32)
    elif getattr(i, "__jax_array__", None) is not None and not isinstance(i, Array):
        i = i.__jax_array__()
    if isinstance(i, (float, complex)):
        i = np.asarray(i)
    if not isinstance(i, (Array, np.ndarray, np.generic)):
        raise IndexError("only integers, slices (`:`), ellipsis (`...`), newaxis (`None`) and "
                         f"integer or boolean arrays are valid indices. Got {describe(i)}{here()}")
    if i.dtype.kind not in "iub" and not str(i.dtype).startswith(("int", "uint")):
        raise TypeError("Indexer must have integer or boolean type, got indexer with type "
                        f"{i.dtype}: {describe(i)} (convert it with .astype(int)){here()}")
    return i


def _holds_arrays(nested):
    """Whether nested lists and tuples contain arrays, which may be traced."""
    return any(isinstance(v, Array) or (isinstance(v, (list, tuple)) and _holds_arrays(v))
               for v in nested)


def _not_a_tuple(idx):
    several = any(i is None or i is Ellipsis or isinstance(i, slice) or np.ndim(i) for i in idx)
    return TypeError("Using a non-tuple sequence for multidimensional indexing is not allowed; use "
                     f"`arr[{'tuple' if several else 'array'}(seq)]` instead of `arr[seq]`."
                     + here())


def _components(idx):
    """Convert an index to a list of ints, slices, None, Ellipsis and index arrays."""
    if isinstance(idx, list):
        raise _not_a_tuple(idx)
    out: list[Any] = []
    for i in idx if isinstance(idx, tuple) else (idx,):
        if i is None or i is Ellipsis or isinstance(i, slice):
            out.append(i)
        elif isinstance(i, (bool, np.bool_)):
            out.append(np.asarray(i))
        elif isinstance(i, (int, np.integer)):
            out.append(int(i))
        elif isinstance(i, str):
            raise TypeError(f"JAX does not support string indexing; got idx={i!r} (index a dict, "
                            f"or use integers){here()}")
        else:
            i = _as_index_array(i)
            if isinstance(i, np.ndarray) and i.ndim == 0 and i.dtype != np.bool_:
                i = int(i)
            out.append(i)
    return out


def _expand_masks(components):
    """Replace each concrete boolean array with the integer arrays that select the same elements.

    A scalar boolean selects from a new axis of length one; it is marked by a ("mask0", count) pair.
    """
    out: list[Any] = []
    for i in components:
        if isinstance(i, (Array, np.ndarray, np.generic)) and i.dtype == np.bool_:
            if isinstance(i, Tracer) and not h.is_concrete(i):
                raise NonConcreteBooleanIndexError(
                    f"Array boolean indices must be concrete; got {i.aval.str_short()} (use "
                    "where(mask, x, y), or nonzero(mask, size=...) for a static number of results)"
                    + here())
            mask = h.concrete(i, "a boolean index")
            if mask.ndim == 0:
                out.append(("mask0", int(mask)))
            else:
                out.append(("mask", mask))
        else:
            out.append(i)
    return out


def _consumed(i):
    if i is None or i is Ellipsis:
        return 0
    if type(i) is tuple:
        return 0 if i[0] == "mask0" else i[1].ndim
    return 1


def _static_slice(s, n, position):
    """Return (start, size, step) of a static slice on an axis of length n."""
    try:
        start, stop, step = s.indices(n)
    except TypeError:
        if any(isinstance(v, Tracer) for v in (s.start, s.stop, s.step)):
            raise IndexError(f"Slice entries must be static integers. Got {s} at position "
                             f"{position} (use lax.dynamic_slice or lax.dynamic_slice_in_dim for a "
                             "traced start)" + here()) from None
        raise TypeError(f"slice bounds must be integers, got {s} at position {position} (convert "
                        f"them with int, or divide with // instead of /){here()}") from None
    except ValueError as error:
        raise ValueError(f"{error}: needed a step other than 0, got {s} at position {position} "
                         f"(leave the step out, or use -1 to reverse){here()}") from None
    return start, len(range(start, stop, step)), step


class _Parser:
    """Turns the components of one index into entries, axis after axis."""

    def __init__(self, shape, missing, lenient, wrap, selects):
        self.shape, self.missing, self.lenient, self.wrap = shape, missing, lenient, wrap
        self.selects = selects      # whether there are arrays, which may be empty
        self.entries, self.inserted, self.axis = [], [], 0

    def add(self, position, i):
        """Append the entries of one component, which is at `position` in the index."""
        if i is None:
            self.entries.append(("new",))
        elif i is Ellipsis:
            if not self.missing:
                self.entries.append(("gap",))
            for _ in range(self.missing):
                self._next("slice", 0, self._size(), 1)
        elif isinstance(i, slice):
            self._next("slice", *_static_slice(i, self._size(), position))
        elif type(i) is int:
            self._integer(i)
        elif type(i) is not tuple:
            self._next("array", i)
        elif i[0] == "mask0":
            self.inserted.append(self.axis)
            self._next("array", np.zeros(i[1], np.int32))
        else:
            self._mask(position, i[1])

    def _next(self, kind, *fields):
        """Append an entry for the next axis."""
        self.entries.append((kind, self.axis, *fields))
        self.axis += 1

    def _source(self):
        """The number of the next axis in the operand, which lacks the inserted axes."""
        return self.axis - len(self.inserted)

    def _size(self):
        return self.shape[self._source()]

    def _integer(self, i):
        n = self._size()
        lenient = self.lenient if n else self.selects
        if not self.wrap and i < 0 or lenient and not -n <= i < n:
            far = min(max(i, -_INT64_MAX), _INT64_MAX)
            self._next("array", np.asarray(far, np.int64))
        elif -n <= i < n:
            self._next("int", i + n if i < 0 else i)
        else:
            verb = "" if flags.check_static_indices else "is "  # JAX's words, NumPy's words
            raise IndexError(
                f"index {i} {verb}out of bounds for axis {self._source()} with size {n} (needed "
                f"{f'{-n} ... {n - 1}' if n else 'a slice: the axis is empty'}){here()}"
            )

    def _mask(self, position, mask):
        source = self._source()
        want = tuple(self.shape[source:source + mask.ndim])
        # A mask selects nothing from an axis along which it is empty, as in NumPy.
        if len(want) < mask.ndim or any(m not in (0, n) for m, n in zip(mask.shape, want)):
            raise IndexError("boolean index did not match shape of indexed array in index "
                             f"{position}: got {mask.shape}, expected {list(want)} (a mask has "
                             f"the shape of the axes it selects from){here()}")
        for where in np.nonzero(mask):
            self._next("array", where.astype(np.int32))


def parse_index(shape, idx, lenient=False, wrap=True):
    """Parse `idx` into entries for an operand of `shape`, and list the axes to insert first.

    Each inserted axis has length 1 and is indexed by a scalar boolean. An integer that is out of
    bounds raises an error or, if `lenient` is True, is treated like an index array. If `wrap` is
    False, negative integers are out of bounds.
    """
    components = _expand_masks(_components(idx))
    ellipses = sum(i is Ellipsis for i in components)
    if ellipses > 1:
        raise IndexError("an index can only have a single ellipsis ('...'): needed one, got "
                         f"{ellipses} (write : for one axis){here()}")
    consumed = sum(_consumed(i) for i in components)
    missing = len(shape) - consumed
    if missing < 0:
        raise IndexError(f"Too many indices: array is {len(shape)}-dimensional, "
                         f"but {consumed} were indexed (give at most {len(shape)}){here()}")
    if not ellipses:
        components.append(Ellipsis)
    parser = _Parser(shape, missing, lenient, wrap,
                     any(type(i) not in _BASIC for i in components))
    for position, i in enumerate(components):
        parser.add(position, i)
    return parser.entries, parser.inserted


# Entries to values.

NEAREST = "{} was read at the nearest index", 'x.at[i].get(mode="clip")'
FILLED = "the result that was read from {} is {fill}", 'mode="fill"'
IGNORED = "the update of {} was ignored", 'mode="drop"'


def fill_of(dtype):
    """The text of the default result for an index that is out of bounds."""
    kind = h.dtypes.kind(dtype)
    if kind in "iu":
        return str(getattr(h.dtypes.iinfo(dtype), "max" if kind == "u" else "min"))
    return {"b": "True", "f": "NaN", "c": "NaN"}.get(kind, "undefined")


def told(x, axis, wrap, name, what):
    """The arguments `told` of `index_array` for an operation on an axis of `x`.

    `what` is one of NEAREST, FILLED and IGNORED, or a function that describes a bad index."""
    n = x.shape[axis]
    given = lambda bad: bad - n if wrap and bad < 0 else bad
    if callable(what):
        return name, lambda bad: what(given(bad))
    array, fill = describe(x), fill_of(x.dtype) if what is FILLED else ""
    return name, lambda bad: (
        f"index {given(bad)} is out of bounds for axis {axis} with size {n}: "
        f"{what[0].format(array, fill=fill)} (check the indices; {what[1]} says that this is "
        "wanted)")


def with_checks(entries, x, wrap, name, what):
    """The entries of an index, with arrays whose elements are checked."""
    return [(*e, told(x, e[1], wrap, name, what)) if e[0] == "array" else e for e in entries]


def index_array(i, n, wrap, told=None):
    """Convert indices on an axis of length n to int32 or int64; `wrap` allows negative ones.

    With `told`, the name of an operation and a function that describes a bad result, the results
    are checked: that costs little where they are computed."""
    found = _index_array(i, n, wrap)
    # Without `wrap`, the user said that negative indices are out of bounds.
    return found if told is None else bounded(found, 0 if wrap else -_INT64_MAX, n - 1, *told)


def _index_array(i, n, wrap):
    wide = n > _INT32_MAX or i.dtype.itemsize > 4
    if isinstance(i, np.ndarray):
        # static: normalized here, so that the program holds one constant
        out = (np.minimum(i, np.uint64(_INT64_MAX)) if i.dtype == np.uint64 else i).astype(np.int64)
        if wrap and i.dtype.kind == "i":
            out = np.where(out < 0, out + n, out)
        return out if n > _INT32_MAX else np.clip(out, -_INT32_MAX, _INT32_MAX).astype(np.int32)
    signed = i.dtype.kind == "i" or str(i.dtype).startswith("int")
    target: Any = np.dtype(np.int64 if wide else np.int32)
    if not signed and i.dtype.itemsize >= target.itemsize:
        # Large unsigned indices are beyond the end; converted, they would become negative.
        i = lax.min(i, lax.full_like(i, int(np.iinfo(target).max)))
    i = lax.convert_element_type(i, target)
    return h.from_end(i, n) if wrap and signed else i


def join_indices(parts, batch):
    """Join index values into index vectors along a new last axis.

    `parts` is a list of pairs: index values, and the axes of the shape `batch` that they span. The
    result has shape `(*batch, len(parts))`.
    """
    wide = any(p.dtype.itemsize > 4 for p, _ in parts)
    dtype = np.dtype(np.int64 if wide else np.int32)
    if all(isinstance(p, np.ndarray) for p, _ in parts):
        out = np.empty((*batch, len(parts)), dtype)
        for k, (p, dims) in enumerate(parts):
            shape = [1] * len(batch)
            for d, n in zip(dims, p.shape):
                shape[d] = n
            out[..., k] = p.reshape(shape)
        return out
    columns = []
    for p, dims in parts:
        p = lax.convert_element_type(p, dtype)
        keep = tuple(j for j, d in enumerate(dims) if p.shape[j] == batch[d])
        if len(keep) != p.ndim:
            p = lax.squeeze(p, tuple(j for j in range(p.ndim) if j not in keep))
        columns.append(lax.broadcast_in_dim(p, (*batch, 1), tuple(dims[j] for j in keep)))
    return columns[0] if len(columns) == 1 else lax.concatenate(columns, len(batch))


def _bounds(entry, n):
    """Return (start, limit, stride) of an integer or a slice on an axis of length n."""
    if entry[0] == "int":
        return entry[2], entry[2] + 1, 1
    start, size, step = entry[2:]
    if size == n:
        return 0, n, 1
    if size == 0:
        return 0, 0, 1
    if step < 0:
        start, step = start + (size - 1) * step, -step
    return start, start + (size - 1) * step + 1, step


def basic_get(x, entries):
    """Apply the integers and slices of `entries` by slicing, reversing, squeezing and expanding."""
    whole = [(0, n, 1) for n in x.shape]
    bounds = list(whole)
    for e in entries:
        if e[0] in ("int", "slice"):
            bounds[e[1]] = _bounds(e, x.shape[e[1]])
    if bounds != whole:
        starts, limits, strides = zip(*bounds)
        x = lax.slice(x, starts, limits, strides if any(s != 1 for s in strides) else None)
    reverse = tuple(e[1] for e in entries if e[0] == "slice" and e[4] < 0)
    if reverse:
        x = lax.rev(x, reverse)
    drop = tuple(e[1] for e in entries if e[0] == "int")
    if drop:
        x = lax.squeeze(x, drop)
    kept = [e[0] for e in entries if e[0] not in ("int", "gap")]
    return _with_new_axes(x, kept, 1)


def _with_new_axes(x, tokens, rank):
    """Insert the "new" axes of a layout into `x`; "arrays" in a layout stands for `rank` axes."""
    new, position = [], 0
    for t in tokens:
        if t == "new":
            new.append(position)
        position += rank if t == "arrays" else 1
    return lax.expand_dims(x, tuple(new)) if new else x


def layout(entries):
    """List the axes of the result in order: window axes (ints), "new", and one "arrays" marker.

    NumPy's rule: the axes of the advanced indices stay in place if all of them are adjacent in the
    index, and come first otherwise. Integers next to index arrays count as advanced.
    """
    tokens = []
    for e in entries:
        kind = e[0]
        tokens.append(kind if kind in NO_AXIS else e[1] if kind == "slice" else "arrays")
    where = [k for k, t in enumerate(tokens) if t == "arrays"]
    if not where:
        return [t for t in tokens if t != "gap"]
    adjacent = where[-1] - where[0] + 1 == len(where)
    first = where[0] - tokens[:where[0]].count("gap")
    rest = [t for t in tokens if t not in ("arrays", "gap")]
    rest.insert(first if adjacent else 0, "arrays")
    return rest


def gather_mode(mode, default):
    """Convert a name or a mode to a GatherScatterMode; None becomes `default`."""
    if mode is None:
        return default
    return lax.GatherScatterMode.from_any(mode)


def _refuse_empty(axis, shape):
    if shape[axis] == 0:
        raise IndexError(f"index is out of bounds for axis {axis} with size 0 in shape {shape} "
                         f"(needed a slice: the axis is empty){here()}")


def _scalar_get(x, arrays, wrap):
    """Read at traced scalar positions with dynamic_slice, which clamps them."""
    sizes = list(x.shape)
    starts: list[Any] = [0] * x.ndim
    for axis, i, *told in arrays:
        _refuse_empty(axis, x.shape)
        starts[axis], sizes[axis] = index_array(i, x.shape[axis], wrap, *told), 1
    dtype = np.result_type(*(s.dtype for s in starts if not isinstance(s, int)))
    starts = [lax.convert_element_type(s, dtype) if not isinstance(s, int)
              else np.asarray(s, dtype) for s in starts]
    # Negative positions are wrapped once already; what is still negative is clamped to 0.
    window = gathers.block(x, starts, sizes, allow_negative_indices=False)
    return lax.squeeze(window, tuple(a for a, *_ in arrays))


def _gather(x, arrays, tokens, options):
    """Gather along the axes in `arrays`; the axes of the result are in the order of `tokens`."""
    mode, fill_value, is_sorted, unique, wrap = options
    batch = h.broadcast_shapes(*(tuple(i.shape) for _, i, *_ in arrays))
    parts = [(index_array(i, x.shape[axis], wrap, *told),
              tuple(range(len(batch) - i.ndim, len(batch)))) for axis, i, *told in arrays]
    indices = join_indices(parts, batch)
    axes = tuple(a for a, *_ in arrays)
    offset: list[Any] = []
    shape: list[Any] = []
    for t in tokens:
        if t == "arrays":
            shape.extend(batch)
        elif t != "new":
            offset.append(len(shape))
            shape.append(x.shape[t])
    if 0 in batch and any(x.shape[a] == 0 for a in axes):
        return lax.full(shape, 0, x.dtype), len(batch)     # no index reads the empty axis
    for axis in axes:
        _refuse_empty(axis, x.shape)
    numbers = lax.GatherDimensionNumbers(
        offset_dims=tuple(offset), collapsed_slice_dims=tuple(sorted(axes)), start_index_map=axes)
    sizes = tuple(1 if a in axes else n for a, n in enumerate(x.shape))
    return lax.gather(x, indices, numbers, sizes, unique_indices=unique,
                      indices_are_sorted=is_sorted, mode=mode, fill_value=fill_value), len(batch)


def _rest_of_axes(entries):
    """Renumber the axes of entries after the axes that integers index are removed."""
    gone = sorted(e[1] for e in entries if e[0] == "int")
    shift = lambda a: a - sum(g < a for g in gone)
    return [e if e[0] in ("int", *NO_AXIS) else (e[0], shift(e[1]), *e[2:]) for e in entries]


def _is_lenient(clamp_integers, mode):
    """Whether a Python integer that is out of bounds is treated like an array."""
    if flags.check_static_indices and mode in (None, "promise_in_bounds"):
        return False
    return clamp_integers or mode is not None or extra_warnings.mode.clamps_integers


def get(x: Any, idx: Any, *, indices_are_sorted: bool = False, unique_indices: bool = False,
        mode: Any = None, fill_value: Any = None, wrap_negative_indices: bool = True,
        check: tuple[str, Any] | None = None, clamp_integers: bool = False) -> Array:
    """Read `x[idx]`; by default, out-of-bounds indices in index arrays are clamped.

    `check` is the name of the operation and what it does to such indices, if they are reported
    although a mode is given. With `clamp_integers`, Python integers are treated like arrays."""
    if fill_value is not None and mode is None:
        mode = "fill"
    lenient = _is_lenient(clamp_integers, mode)
    entries, inserted = parse_index(x.shape, idx, lenient, wrap_negative_indices)
    check = ("getitem", NEAREST) if mode is None else check
    if check is not None and not inserted:
        entries = with_checks(entries, x, wrap_negative_indices, *check)
    mode = gather_mode(mode, lax.GatherScatterMode.PROMISE_IN_BOUNDS)
    if inserted:
        x = lax.expand_dims(x, tuple(inserted))
    if not any(e[0] == "array" for e in entries):
        return basic_get(x, entries)
    x = basic_get(x, [e for e in entries if e[0] in ("int", "slice")])
    entries = _rest_of_axes(entries)
    tokens = layout(entries)
    arrays = [e[1:] for e in entries if e[0] == "array"]
    clamps = mode in (lax.GatherScatterMode.PROMISE_IN_BOUNDS, lax.GatherScatterMode.CLIP)
    if clamps and all(i.ndim == 0 for _, i, *_ in arrays):
        x, rank = _scalar_get(x, arrays, wrap_negative_indices), 0
    else:
        options = (mode, fill_value, indices_are_sorted, unique_indices, wrap_negative_indices)
        x, rank = _gather(x, arrays, tokens, options)
    return _with_new_axes(x, tokens, rank)


# Eager reads.

def raw_index(idx):
    """Convert `idx` to an index for a NumPy buffer, or None where NumPy's rules differ."""
    kind = type(idx)
    if kind in _BASIC:
        return idx
    if kind is DeviceArray:
        data = raw_buffer(idx)
        return data if data is not None and data.dtype.char in _RAW_INDICES else None
    if kind is np.ndarray:
        return idx if idx.dtype.char in _RAW_INDICES else None
    if kind is not tuple:
        return None
    out = []
    for i in idx:
        if type(i) not in _BASIC:
            i = None if type(i) is tuple else raw_index(i)
            if i is None:
                return None
        out.append(i)
    return tuple(out)


def is_basic(key):
    """Whether an index has only ints, slices, None and Ellipsis, so that NumPy returns a view."""
    return type(key) in _BASIC or type(key) is tuple and _BASIC.issuperset(map(type, key))


def getitem(x, idx):
    """Read `x[idx]` with NumPy if `x` is a concrete CPU array, and otherwise with operations."""
    if type(x) is KeyArray and type(idx) is int and h.is_eager():
        n = x.shape[0] if x.shape else 0
        if -n <= idx < n:
            return KeyArray(x._data[idx], x.dtype)
    data = raw_buffer(x)
    if data is not None:
        key = idx if type(idx) in _BASIC else raw_index(idx)
        if key is not None or idx is None:
            try:
                out = data[key]
            except (IndexError, TypeError, ValueError):
                pass                      # out of bounds or wrong: clamp or raise below
            else:
                return wrap_raw(np.asarray(out), x)
    return get(x, idx)
