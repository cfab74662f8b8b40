"""Functions that rearrange axes and not elements: reshape, transpose, broadcast, flip, roll.

Each is one or two `lax` operations after its arguments are checked; arrays that already have the
wanted form are returned as they are. Joining and splitting live in joins.py.
"""

import math
import operator
import warnings

import numpy as np

from toile import lax
from toile.engine.errors import ShapeError
from toile.engine.promotion import user_stack_level
from toile.engine.source import here
from toile.numpy import _helpers as h
from toile.numpy._helpers import Array, arr, as_array, canonical_axes, canonical_axis, check
from toile.numpy._operands import is_arraylike

__all__ = [
    "atleast_1d", "atleast_2d", "atleast_3d", "broadcast_arrays", "broadcast_shapes",
    "broadcast_to", "expand_dims", "flip", "fliplr", "flipud", "matrix_transpose", "moveaxis",
    "ndim", "permute_dims", "ravel", "reshape", "resize", "roll", "rollaxis", "rot90", "shape",
    "size", "squeeze", "swapaxes", "transpose", "trim_zeros",
]


def _warn_of_lists(name, a):
    if not is_arraylike(a):
        warnings.warn(f"{name} requires ndarray or scalar arguments, got {type(a)}: this will be "
                      "an error (convert it with jnp.array)", DeprecationWarning,
                      stacklevel=user_stack_level())


def shape(a):
    """The shape of an array or scalar, as a tuple."""
    if hasattr(a, "shape"):
        return a.shape
    _warn_of_lists("shape", a)
    return np.shape(a)


def ndim(a):
    """The number of axes of an array or scalar."""
    if hasattr(a, "ndim"):
        return a.ndim
    _warn_of_lists("ndim", a)
    return np.ndim(a)


def size(a, axis=None):
    """The number of elements, or the length of the given axis or axes."""
    if not hasattr(a, "shape"):
        _warn_of_lists("size", a)
    dims = np.shape(a)
    if axis is None:
        return math.prod(dims)
    axes = axis if isinstance(axis, (tuple, list)) else (axis,)
    axes = tuple(canonical_axis(i, len(dims)) for i in axes)
    if len(set(axes)) < len(axes):
        raise ValueError(f"repeated axis: {axes}{here()}")
    return math.prod(dims[i] for i in axes)


def _given_sizes(wanted):
    """A new shape as a tuple of integers."""
    if isinstance(wanted, (tuple, list)):
        return tuple(d if type(d) is int else h.static_int(d, "reshape shape") for d in wanted)
    if isinstance(wanted, (Array, np.ndarray)) and wanted.ndim:
        return tuple(int(d) for d in h.concrete(wanted, "reshape shape"))
    return (h.static_int(wanted, "reshape shape"),)


def _new_shape(have, count, wanted):
    """The tuple meant by `wanted`, with -1 worked out."""
    dims = _given_sizes(wanted)
    unknown = dims.count(-1)
    if unknown > 1:
        raise TypeError("can only specify one unknown axis size with a `-1` value, got "
                        f"{wanted}{here()}")
    if any(d < -1 for d in dims):
        raise TypeError(f"reshape: needed sizes >= -1, got {dims}{here()}")
    known = math.prod(d for d in dims if d != -1)
    if unknown:
        if known == 0 or count % known:
            raise ShapeError(f"cannot reshape array of shape {have} (size {count}) into shape "
                            f"{dims}: {known} does not evenly divide {count} (sizes other than -1 "
                            f"must divide the number of elements){here()}")
        return tuple(count // known if d == -1 else d for d in dims)
    if known != count:
        raise ShapeError(f"cannot reshape array of shape {have} (size {count}) into shape {dims} "
                        f"(size {known}) (the sizes must multiply to {count}; one may be "
                        f"-1){here()}")
    return dims


def _reshaped(a, dims):
    """`a` with the shape `dims`; a view of the buffer when it is concrete."""
    data = h.raw_buffer(a)
    if data is not None:
        return h.wrap_raw(data.reshape(dims), a)
    return lax.reshape(a, dims)


def _permuted(a, perm):
    """`a` with its axes in the order `perm`; a view of the buffer when it is concrete."""
    data = h.raw_buffer(a)
    if data is not None:
        return h.wrap_raw(data.transpose(perm), a)
    return lax.transpose(a, perm)


def reshape(a, shape, order="C", *, copy=None, out_sharding=None):
    """`a` with a new shape of the same size; one size may be -1."""
    a = as_array("reshape", a)
    if copy is False:
        raise ValueError("reshape: needed copy None or True, got False (results are new "
                         "arrays)" + here())
    dims = _new_shape(a.shape, a.size, shape)
    if order == "C":
        return a if dims == a.shape else _reshaped(a, dims)
    if order == "F":
        flipped = lax.reshape(transpose(a), dims[::-1])
        return transpose(flipped)
    if order == "A":
        raise NotImplementedError("np.reshape order=A is not implemented." + here())
    raise ValueError(f"Unexpected value for 'order' argument: {order}.{here()}")


def ravel(a, order="C", *, out_sharding=None):
    """`a` as one axis, in C or F order."""
    a = as_array("ravel", a)
    if order == "K":
        raise NotImplementedError("Ravel not implemented for order='K'." + here())
    return reshape(a, (a.size,), order)


def transpose(a, axes=None):
    """`a` with its axes reversed, or permuted as given."""
    a = as_array("transpose", a)
    n = a.ndim
    if axes is None:
        axes = range(n)[::-1]
    perm = tuple(operator.index(i) for i in axes)
    full = tuple(i + n if i < 0 else i for i in perm)
    if sorted(full) != list(range(n)):
        kind = TypeError if all(-n <= i < n for i in perm) else ValueError
        raise kind("transpose permutation isn't a permutation of operand dimensions, got "
                   f"permutation {perm} for operand shape {a.shape} (each of 0 ... {n - 1} once, "
                   f"or no axes to reverse them){here()}")
    return a if full == tuple(range(n)) else _permuted(a, full)


def permute_dims(a, /, axes):
    """`a` with its axes permuted."""
    return transpose(a, axes)


def matrix_transpose(x, /):
    """`x` with its last two axes swapped."""
    x = as_array("matrix_transpose", x)
    if x.ndim < 2:
        raise ValueError("x must be at least two-dimensional for matrix_transpose; "
                         f"got ndim={x.ndim}{here()}")
    return _permuted(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


def swapaxes(a, axis1, axis2):
    """`a` with two axes exchanged."""
    a = as_array("swapaxes", a)
    i, j = canonical_axis(axis1, a.ndim), canonical_axis(axis2, a.ndim)
    if i == j:
        return a
    perm = list(range(a.ndim))
    perm[i], perm[j] = j, i
    return _permuted(a, perm)


def moveaxis(a, source, destination):
    """`a` with the axes `source` moved to `destination`; the others keep their order."""
    a = as_array("moveaxis", a)
    src, dst = canonical_axes(source, a.ndim), canonical_axes(destination, a.ndim)
    if len(src) != len(dst):
        raise ValueError(f"Inconsistent number of elements: {len(src)} vs {len(dst)}{here()}")
    if len(set(src)) != len(src) or len(set(dst)) != len(dst):
        raise ValueError(f"moveaxis: needed different axes, got {source} and {destination}{here()}")
    perm = [i for i in range(a.ndim) if i not in src]
    for d, s in sorted(zip(dst, src)):
        perm.insert(d, s)
    return a if perm == list(range(a.ndim)) else _permuted(a, perm)


def rollaxis(a, axis, start=0):
    """`a` with `axis` rolled back until it stands before `start`."""
    a = as_array("rollaxis", a)
    axis = canonical_axis(axis, a.ndim)
    start = operator.index(start)
    if not -a.ndim <= start <= a.ndim:
        raise ValueError(f"start={start!r} must satisfy {-a.ndim}<=start<={a.ndim}{here()}")
    start += a.ndim if start < 0 else 0
    return moveaxis(a, axis, start - 1 if start > axis else start)


def squeeze(a, axis=None):
    """`a` without axes of length one (all of them, or those given)."""
    a = as_array("squeeze", a)
    if axis is None:
        axes = tuple(i for i, n in enumerate(a.shape) if n == 1)
    else:
        axes = canonical_axes(axis, a.ndim)
        if len(set(axes)) != len(axes):
            raise ValueError(f"dimensions are not unique: {axes}{here()}")
        if any(a.shape[i] != 1 for i in axes):
            raise ValueError("cannot select an axis to squeeze out which has size not equal to "
                             f"one, got shape={a.shape} and dimensions={axes} (only axes of size 1 "
                             f"can go: index, reduce or reshape others){here()}")
    if not axes:
        return a
    data = h.raw_buffer(a)
    return lax.squeeze(a, axes) if data is None else h.wrap_raw(data.squeeze(axes), a)


def expand_dims(a, axis):
    """`a` with axes of length one inserted at the given positions of the result."""
    a = as_array("expand_dims", a)
    count = len(axis) if isinstance(axis, (tuple, list)) else 1
    axes = canonical_axes(axis, a.ndim + count)
    if len(set(axes)) != len(axes):
        raise ValueError(f"repeated axis in expand_dims: {axis}{here()}")
    data = h.raw_buffer(a)
    return lax.expand_dims(a, axes) if data is None else h.wrap_raw(np.expand_dims(data, axes), a)


def broadcast_shapes(*shapes):
    """The shape that arrays of the given shapes broadcast to."""
    return h.broadcast_shapes(*shapes)


def broadcast_to(array, shape, *, out_sharding=None):
    """`array` repeated along new and length-one axes to have `shape`."""
    array = as_array("broadcast_to", array)
    if not isinstance(shape, tuple):
        shape = tuple(shape) if np.iterable(shape) else (shape,)
    dims = tuple(d if type(d) is int else h.static_int(d, "broadcast shape") for d in shape)
    return h.broadcast_to(array, dims)


def broadcast_arrays(*args):
    """The arguments, each broadcast to their common shape."""
    xs = h.as_arrays("broadcast_arrays", *args)
    common = broadcast_shapes(*(x.shape for x in xs))
    return tuple(h.broadcast_to(x, common) for x in xs)


def _atleast(name, make, arys):
    if len(arys) == 1 and isinstance(arys[0], (list, tuple)):
        check(name, *arys[0])
        return make(arr(arys[0]))
    out = [make(as_array(name, x)) for x in arys]
    return out[0] if len(out) == 1 else out


def atleast_1d(*arys):
    """Each argument with one axis or more."""
    return _atleast("atleast_1d", lambda x: x if x.ndim else lax.reshape(x, (1,)), arys)


def atleast_2d(*arys):
    """Each argument with two axes or more, new ones in front."""
    return _atleast("atleast_2d", lambda x: x if x.ndim > 1 else lax.expand_dims(
        x, tuple(range(2 - x.ndim))), arys)


def atleast_3d(*arys):
    """Each argument with three axes or more: (n,) becomes (1, n, 1), (m, n) becomes (m, n, 1)."""
    def make(x):
        new = {0: (0, 1, 2), 1: (0, 2), 2: (2,)}.get(x.ndim, ())
        return lax.expand_dims(x, new) if new else x
    return _atleast("atleast_3d", make, arys)


def flip(m, axis=None):
    """`m` with the order of elements reversed along the given axes, or all."""
    m = as_array("flip", m)
    axes = tuple(range(m.ndim)) if axis is None else canonical_axes(axis, m.ndim)
    return lax.rev(m, axes) if axes else m


def flipud(m):
    """`m` with its first axis reversed."""
    return flip(m, 0)


def fliplr(m):
    """`m` with its second axis reversed."""
    return flip(m, 1)


def rot90(m, k=1, axes=(0, 1)):
    """`m` turned by k quarter turns in the plane of `axes`, from the first towards the second."""
    m = as_array("rot90", m)
    i, j = (canonical_axis(a, m.ndim) for a in axes)
    if i == j:
        raise ValueError("Axes must be different" + here())
    k %= 4
    if k == 0:
        return m
    if k == 2:
        return lax.rev(m, (i, j))
    perm = list(range(m.ndim))
    perm[i], perm[j] = j, i
    if k == 1:
        return lax.transpose(lax.rev(m, (j,)), perm)
    return lax.rev(lax.transpose(m, perm), (j,))


def _roll_one(a, shift, axis):
    """Roll one axis: two static slices for a known shift, one dynamic slice for a traced one."""
    n = a.shape[axis]
    if n == 0:
        return a
    if isinstance(shift, int):
        k = shift % n
        if k == 0:
            return a
        return lax.concatenate([lax.slice_in_dim(a, n - k, n, axis=axis),
                                lax.slice_in_dim(a, 0, n - k, axis=axis)], axis)
    # rolled[i] = a[(i - shift) mod n]: read n elements of a twice over, from -shift mod n
    shift = lax.convert_element_type(shift, np.int32)
    start = lax.rem(lax.neg(shift), lax.full_like(shift, n))
    start = h.from_end(start, n)
    return lax.dynamic_slice_in_dim(lax.concatenate([a, a], axis), start, n, axis)


def _shifts(shift):
    """The shifts meant by a number, a sequence or an array: integers or traced scalars."""
    if isinstance(shift, (tuple, list)):
        return [s if isinstance(s, Array) else operator.index(s) for s in shift]
    if h.is_concrete(shift):
        value = h.concrete(shift, "roll shift")
        if value.dtype.kind not in "iu":
            raise TypeError(f"roll: needed an integer shift, got {value.dtype}{here()}")
        return [int(s) for s in value.reshape(-1)]
    return [shift[i] for i in range(shift.shape[0])] if shift.ndim else [shift]


def roll(a, shift, axis=None):
    """`a` with elements shifted along the axes, those that fall off re-entering at the start."""
    a = as_array("roll", a)
    if axis is None:
        return lax.reshape(roll(lax.reshape(a, (a.size,)), shift, 0), a.shape)
    axes, shifts = canonical_axes(axis, a.ndim), _shifts(shift)
    if len(shifts) == 1:
        shifts = shifts * len(axes)
    elif len(axes) == 1:
        axes = axes * len(shifts)
    if len(shifts) != len(axes):
        raise ValueError(f"roll: needed as many shifts as axes, got {len(shifts)} and "
                         f"{len(axes)}{here()}")
    for s, i in zip(shifts, axes):
        if isinstance(s, Array) and h.is_concrete(s):
            s = int(h.concrete(s, "roll shift"))
        a = _roll_one(a, s, i)
    return a


def resize(a, new_shape):
    """`a` repeated or cut to fill `new_shape`, in C order."""
    a = as_array("resize", a)
    dims = tuple(new_shape) if np.iterable(new_shape) else (operator.index(new_shape),)
    if any(d < 0 for d in dims):
        raise ValueError("all elements of `new_shape` must be non-negative" + here())
    count = math.prod(dims)
    if count == 0 or a.size == 0:
        return lax.full(dims, 0, a.dtype)
    flat = lax.reshape(a, (a.size,))
    repeats = -(-count // a.size)
    if repeats > 1:
        flat = lax.concatenate([flat] * repeats, 0)
    return lax.reshape(lax.slice(flat, (0,), (count,)), dims)


def trim_zeros(filt, trim="fb", axis=None):
    """`filt` without leading ("f") and trailing ("b") zeros; needs concrete values."""
    filt = as_array("trim_zeros", filt)
    if filt.ndim == 0:
        return filt
    values = h.concrete(filt, "trim_zeros")
    axes = range(filt.ndim) if axis is None else canonical_axes(axis, filt.ndim)
    where, index = np.nonzero(values), [slice(None)] * filt.ndim
    for i in axes:
        n = filt.shape[i]
        low, high = (where[i].min(), where[i].max() + 1) if where[i].size else (n, n)
        front, back = "f" in trim.lower(), "b" in trim.lower()
        index[i] = slice(int(low) if front else 0, int(high) if back else n)
        if not where[i].size:
            index[i] = slice(0, 0)
    return filt[tuple(index)]
