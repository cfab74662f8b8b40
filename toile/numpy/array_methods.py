"""The methods, properties and operators of arrays, attached to the abstract Array type.

`install` is called once, when toile is imported. Operators take arrays, NumPy arrays and numbers,
and return NotImplemented for anything else, so that Python tries the other operand.
"""

from typing import Any

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.engine import source
from toile.engine.source import here
from toile.numpy import index_read, index_update
from toile.numpy._dtypes import user_dtype
from toile.numpy._helpers import Array

__all__ = ["install"]

_OPERANDS = (Array, np.ndarray, np.generic, int, float, complex)


# Operators.

def _foreign(symbol, x, other, swapped):
    """The result of an operator for an operand that is neither array nor number."""
    if isinstance(other, (list, tuple)):
        left, right = (type(other), type(x)) if swapped else (type(x), type(other))
        raise TypeError(f"unsupported operand type(s) for {symbol}: '{left.__name__}' and "
                        f"'{right.__name__}' (convert the sequence with toile.numpy.array){here()}")
    return NotImplemented


def _binary(symbol, function, swapped=False):
    if swapped:
        def method(self, other):
            if isinstance(other, _OPERANDS):
                return function(other, self)
            if hasattr(other, "__jax_array__"):
                return function(other.__jax_array__(), self)
            return _foreign(symbol, self, other, True)
    else:
        def method(self, other):
            if isinstance(other, _OPERANDS):
                return function(self, other)
            if hasattr(other, "__jax_array__"):
                return function(self, other.__jax_array__())
            return _foreign(symbol, self, other, False)
    return method


_BINARY = {
    "add": ("+", jnp.add), "sub": ("-", jnp.subtract), "mul": ("*", jnp.multiply),
    "truediv": ("/", jnp.true_divide), "floordiv": ("//", jnp.floor_divide),
    "mod": ("%", jnp.remainder), "divmod": ("divmod()", jnp.divmod), "pow": ("**", jnp.power),
    "matmul": ("@", jnp.matmul), "and": ("&", jnp.bitwise_and), "or": ("|", jnp.bitwise_or),
    "xor": ("^", jnp.bitwise_xor), "lshift": ("<<", jnp.left_shift),
    "rshift": (">>", jnp.right_shift),
}
_COMPARISONS = {
    "eq": ("==", jnp.equal), "ne": ("!=", jnp.not_equal), "lt": ("<", jnp.less),
    "le": ("<=", jnp.less_equal), "gt": (">", jnp.greater), "ge": (">=", jnp.greater_equal),
}


def _operators():
    out: dict[str, Any] = {"__array_priority__": 100}
    for name, (symbol, function) in _BINARY.items():
        out[f"__{name}__"] = _binary(symbol, function)
        out[f"__r{name}__"] = _binary(symbol, function, swapped=True)
    for name, (symbol, function) in _COMPARISONS.items():
        out[f"__{name}__"] = _binary(symbol, function)
    out["__neg__"] = lambda self: jnp.negative(self)
    out["__pos__"] = lambda self: jnp.positive(self)
    out["__abs__"] = lambda self: jnp.absolute(self)
    out["__invert__"] = lambda self: jnp.bitwise_not(self)
    out["__round__"] = _round
    out["__getitem__"] = index_read.getitem
    out["__setitem__"] = _refuse_assignment
    out["__iter__"] = _iterate
    out["__contains__"] = lambda self, value: bool(jnp.any(jnp.equal(self, value)))
    return out


def _round(self, ndigits=None):
    if ndigits is not None:
        return jnp.round(self, ndigits)
    return jnp.astype(jnp.round(self), int)


def _iterate(self):
    if self.ndim == 0:
        raise TypeError("iteration over a 0-d array: needed an array of rank >= 1, got "
                        f"{self.aval.str_short()} (use x.reshape(-1) to give it an axis){here()}")
    return iter(jnp.unstack(self))


def _refuse_assignment(self, index, value):
    raise TypeError("JAX arrays are immutable and do not support in-place item assignment: needed "
                    f"a new array, got an item assignment to {self.aval.str_short()} (write "
                    f"`x = x.at[idx].set(y)` instead of `x[idx] = y`){here()}")


# Methods.

def _reshape(self, *args, order="C", out_sharding=None):
    """`self` with a new shape, given as one tuple or as several integers."""
    shape = args[0] if len(args) == 1 else args
    return jnp.reshape(self, shape, order)


def _transpose(self, *args):
    """`self` with its axes reversed, or permuted as given."""
    if not args:
        axes = None
    elif len(args) == 1:
        axes = args[0]
        axes = axes if axes is None or np.iterable(axes) else (axes,)
    else:
        axes = args
    return jnp.transpose(self, axes)


def _flatten(self, order="C", *, out_sharding=None):
    """`self` as one axis."""
    return jnp.ravel(self, order)


def _copy(self):
    """An array with the same elements."""
    return jnp.copy(self)


def _nonzero(self, *, fill_value=None, size=None):
    """Indices of nonzero elements."""
    return jnp.nonzero(self, size=size, fill_value=fill_value)


def _compress(self, condition, axis=None, *, out=None, size=None, fill_value=0):
    """Slices along `axis` where the condition holds."""
    return jnp.compress(condition, self, axis, size=size, fill_value=fill_value, out=out)


def _astype(self, dtype, copy=False, device=None):
    """`self` converted to `dtype`."""
    return jnp.astype(self, dtype, copy=copy, device=device)


def _clip(self, min=None, max=None):
    """`self` with elements limited to [min, max]."""
    return jnp.clip(self, min, max)


def _dot(self, b, *, precision=None, preferred_element_type=None):
    """Product with `b`."""
    return jnp.dot(self, b, precision=precision, preferred_element_type=preferred_element_type)


def _byteswap(self):
    """`self` with the bytes of each element in reverse order."""
    size = self.dtype.itemsize
    if size == 1:
        return self
    flat = view(self, np.uint8)
    grouped = lax.reshape(flat, (*self.shape, size))
    back = lax.reshape(lax.rev(grouped, (self.ndim,)), flat.shape)
    return view(back, self.dtype)


def _to_device(self, device, *, stream=None):
    """`self` on another device."""
    return jnp.asarray(self, device=device)


def view(self, dtype=None, type=None):
    """The same bytes read as another dtype; a change of width goes into the last axis."""
    if type is not None:
        raise NotImplementedError("`type` argument of array.view() is not supported." + here())
    if dtype is None:
        return self
    dtype = user_dtype(dtype, "view")
    have = self.dtype
    if have == dtype:
        return self
    if self.ndim == 0:
        if have.itemsize != dtype.itemsize:
            raise ValueError("view() of a 0d array is only supported if the itemsize is "
                             "unchanged." + here())
        return lax.reshape(view(lax.reshape(self, (1,)), dtype), ())
    if have == np.bool_:
        return view(lax.convert_element_type(self, np.uint8), dtype)
    if have.kind == "c":
        parts = [lax.expand_dims(part(self), (self.ndim,)) for part in (lax.real, lax.imag)]
        both = lax.concatenate(parts, self.ndim)
        return view(lax.reshape(both, (*self.shape[:-1], 2 * self.shape[-1])), dtype)
    if dtype.kind == "c":
        parts = view(self, np.dtype(f"f{dtype.itemsize // 2}"))
        pairs = lax.reshape(parts, (*parts.shape[:-1], parts.shape[-1] // 2, 2))
        return lax.complex(pairs[..., 0], pairs[..., 1])
    if dtype == np.bool_:
        return lax.ne(view(self, np.uint8), lax.full((), 0, np.uint8))
    wide, narrow = have.itemsize, dtype.itemsize
    if wide < narrow:
        ratio = narrow // wide
        if self.shape[-1] % ratio:
            raise ValueError("When changing to a larger dtype, its size must be a divisor of the "
                             "total size in bytes of the last axis of the array." + here())
        self = lax.reshape(self, (*self.shape[:-1], self.shape[-1] // ratio, ratio))
        return lax.bitcast_convert_type(self, dtype)
    out = lax.bitcast_convert_type(self, dtype)
    return out if wide == narrow else lax.reshape(
        out, (*self.shape[:-1], self.shape[-1] * (wide // narrow)))


def _no_flat(self):
    raise NotImplementedError("JAX Arrays do not implement the arr.flat property: consider "
                              "arr.flatten() instead." + here())


def _std(self, axis=None, dtype=None, out=None, ddof=0, keepdims=False, *, where=None,
         correction=None):
    """The standard deviation over `axis`."""
    return jnp.std(self, axis, dtype, out, ddof, keepdims, where=where, correction=correction)


def _var(self, axis=None, dtype=None, out=None, ddof=0, keepdims=False, *, where=None,
         correction=None):
    """The variance over `axis`."""
    return jnp.var(self, axis, dtype, out, ddof, keepdims, where=where, correction=correction)


def _namespace(self, *, api_version=None):
    """The module with the functions of these arrays."""
    if api_version is not None and api_version != jnp.__array_api_version__:
        raise ValueError(f"{api_version=} is not available; available versions are: "
                         f"{[jnp.__array_api_version__]}{here()}")
    return jnp


_METHODS = {
    # functions whose first argument is the array are methods without change
    **{name: getattr(jnp, name) for name in (
        "all", "any", "argmax", "argmin", "argpartition", "argsort", "choose", "conj", "conjugate",
        "cumprod", "cumsum", "diagonal", "max", "mean", "min", "prod", "ptp", "ravel", "repeat",
        "round", "searchsorted", "sort", "squeeze", "sum", "swapaxes", "take", "trace")},
    "astype": _astype, "byteswap": _byteswap, "clip": _clip, "clone": _copy, "compress": _compress,
    "copy": _copy, "dot": _dot, "flatten": _flatten, "nonzero": _nonzero, "reshape": _reshape,
    "std": _std, "to_device": _to_device, "transpose": _transpose, "var": _var, "view": view,
    "__array_namespace__": _namespace,
}

_PROPERTIES = {
    "T": (jnp.transpose, "The array with its axes reversed."),
    "mT": (jnp.matrix_transpose, "The array with its last two axes exchanged."),
    "real": (jnp.real, "The real part."),
    "imag": (jnp.imag, "The imaginary part."),
    "at": (index_update.IndexUpdateHelper, "Index it to update elements: x.at[idx].set(y)."),
    "flat": (_no_flat, "Not available: use flatten()."),
}


def _name_for_errors():
    """Name the calls that have no name of their own, for error messages."""
    source.name_call(index_read.getitem, "x[idx]")
    for name, method in vars(index_update.IndexUpdateRef).items():
        if callable(method) and not name.startswith("_"):
            source.name_call(method, f"x.at[idx].{name}")


def install(array_type, tracer_type):
    """Attach operators, methods and properties to `array_type`, which tracers inherit from."""
    _name_for_errors()
    members = {**_operators(), **_METHODS}
    for name, (function, doc) in _PROPERTIES.items():
        members[name] = property(function, doc=doc)
    for target in dict.fromkeys((array_type, tracer_type)):
        if target is not array_type and issubclass(target, array_type):
            continue
        for name, member in members.items():
            setattr(target, name, member)
