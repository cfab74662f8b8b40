"""Functions that apply other functions: vectorize, apply_along_axis, apply_over_axes, piecewise.

`vectorize` and `apply_along_axis` map their function with `vmap`, so it is called once, with
scalars, vectors or other small arrays. `apply_over_axes` calls its function with a whole array,
once for each axis, and `piecewise` calls each of its functions once, with the whole array too.
"""

from __future__ import annotations

import functools
import re
import warnings
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.api import vmap
from toile.engine.annotations import Array, ArrayLike, PyTree
from toile.engine.config import flags
from toile.engine.promotion import user_stack_level
from toile.engine.source import describe, here
from toile.numpy import _helpers as h
from toile.numpy import selection
from toile.numpy._helpers import arr, canonical_axis, check

_TERM = r"\((?:[\w]+(?:\s*,\s*[\w]+)*)?\)"
_SIGNATURE = re.compile(rf"^\s*{_TERM}(\s*,\s*{_TERM})*\s*->\s*{_TERM}(\s*,\s*{_TERM})*\s*$")


def _parse_signature(signature):
    """Parse a signature such as "(n,m),(m)->(n)" into lists such as [("n", "m"), ...]."""
    if not _SIGNATURE.match(signature):
        raise ValueError(f"not a valid gufunc signature: {signature}{here()}")
    sides = signature.split("->")
    return [[tuple(re.findall(r"\w+", t)) for t in re.findall(_TERM, side)] for side in sides]


def _core_sizes(args, dims, where):
    """Find the sizes of the core axes, and the shapes of the axes before them."""
    sizes: dict[str, int] = {}
    leads = []
    for x, names in zip(args, dims):
        if x.ndim < len(names):
            raise ValueError(f"input with shape {x.shape} does not have enough dimensions for all "
                             f"core dimensions {names} {where}{here()}")
        split = x.ndim - len(names)
        leads.append(x.shape[:split])
        for name, n in zip(names, x.shape[split:]):
            want = int(name) if name.isdigit() else sizes.setdefault(name, n)
            if want != n:
                raise ValueError(f"inconsistent size for core dimension {name!r}: {n} vs {want} "
                                 f"{where}{here()}")
    return sizes, leads


def _checked(func, out_dims, sizes, where):
    """Wrap `func` to compare the shapes of its results with the signature."""

    def call(*args):
        result = func(*args)
        several = isinstance(result, tuple)
        outs = result if several else (result,)
        if out_dims is None:
            return result
        if not several and len(out_dims) > 1:
            raise TypeError("output must be a tuple when multiple outputs are expected, got: "
                            f"{describe(result)} {where}{here()}")
        if len(outs) != len(out_dims):
            raise TypeError(f"wrong number of output arguments: expected {len(out_dims)}, got "
                            f"{len(outs)} {where}{here()}")
        known = dict(sizes)
        for value, names in zip(outs, out_dims):
            if np.ndim(value) != len(names):
                raise ValueError(f"output shape {np.shape(value)} does not match core dimensions "
                                 f"{names} {where}{here()}")
            for name, n in zip(names, np.shape(value)):
                if known.setdefault(name, n) != n:
                    raise ValueError(f"inconsistent size for core dimension {name!r}: {n} vs "
                                     f"{known[name]} {where}{here()}")
        return result

    return call


def _promotes_rank(shapes, signature):
    text = (f"operands with shapes {shapes} require rank promotion for jnp.vectorize function with "
            f"signature {signature}. Set the jax_numpy_rank_promotion config option to 'allow' to "
            "disable this message.")
    if flags.numpy_rank_promotion == "raise":
        raise ValueError(text + here())
    warnings.warn(text, stacklevel=user_stack_level())


def vectorize(pyfunc: Callable[..., Any], *, excluded: Collection[int | str] = frozenset(),
              signature: str | None = None) -> Callable[..., Any]:
    """Turn a function of scalars or small arrays into a function of arrays of any shape.

    The function is mapped with `toile.vmap`: it is called only once, with traced values that
    represent all elements.

    Args:
        pyfunc: function to map.
        excluded: positions and names of the arguments that are not mapped but passed on unchanged.
        signature: names for the axes of the arguments and results of `pyfunc`, such as
            "(n,m),(m)->(n)"; None if all arguments and results are scalars. All additional leading
            axes are broadcast.

    Returns:
        A function that accepts arrays for the arguments of `pyfunc`.

    Raises:
        ValueError: the signature is malformed, or, when the function is called, its arguments or
            results do not match the signature.

    >>> dot = jnp.vectorize(lambda a, b: a @ b, signature="(n),(n)->()")
    >>> dot(jnp.ones((2, 3)), jnp.arange(3.0))
    Array([3., 3.], dtype=float32)
    """
    if any(not isinstance(e, (str, int)) for e in excluded):
        raise TypeError("jax.numpy.vectorize can only exclude integer or string arguments, but "
                        f"excluded={excluded!r}{here()}")
    if any(isinstance(e, int) and e < 0 for e in excluded):
        raise ValueError(f"excluded={excluded!r} contains negative numbers{here()}")

    @functools.wraps(pyfunc)
    def wrapped(*args, **kwargs):
        where = f"on vectorized function with excluded={excluded!r} and signature={signature!r}"
        nothing = {i for i, x in enumerate(args) if x is None} - set(excluded)
        if nothing and signature is not None:
            raise ValueError(f"Cannot pass None at locations {nothing} with {signature=}{here()}")
        func, mapped = _close_over(pyfunc, args, kwargs, {*excluded, *nothing})
        check("vectorize", *mapped)
        return _mapped(func, [arr(x) for x in mapped], signature, where)

    return wrapped


def _mapped(func, args, signature, where):
    """Apply `func` to the core axes of `args`, and map it over the axes before them."""
    in_dims, out_dims = [()] * len(args), None
    if signature is not None:
        in_dims, out_dims = _parse_signature(signature)
    if len(in_dims) != len(args):
        raise TypeError(f"wrong number of positional arguments: expected {len(in_dims)}, got "
                        f"{len(args)} {where}{here()}")
    sizes, leads = _core_sizes(args, in_dims, where)
    if flags.numpy_rank_promotion != "allow" and len({len(s) for s in leads if s}) > 1:
        _promotes_rank([x.shape for x in args], signature)
    common = jnp.broadcast_shapes(*leads)
    call = _checked(func, out_dims, sizes, where)
    # axes of length one are not mapped: the function sees the same slice each time
    levels, squeezed = [], []
    for x, lead in zip(args, leads):
        pad = len(common) - len(lead)
        level = [0 if n != 1 or common[pad + d] == 1 else None for d, n in enumerate(lead)]
        drop = tuple(d for d, mapped in enumerate(level) if mapped is None)
        levels.append([*(None,) * pad, *level])
        squeezed.append(lax.squeeze(x, drop) if drop else x)
    for d in range(len(common) - 1, -1, -1):
        axes = tuple(level[d] for level in levels)
        call = vmap(call, in_axes=axes, axis_size=common[d])
    return call(*squeezed)


def _close_over(pyfunc, args, kwargs, excluded):
    """Make a function of only the mapped arguments: positional ones, then those passed by name."""
    places = [i for i in range(len(args)) if i not in excluded]
    names = [k for k in kwargs if k not in excluded]

    def func(*values):
        full, named = list(args), dict(kwargs)
        for i, v in zip(places, values):
            full[i] = v
        named.update(zip(names, values[len(places):]))
        return pyfunc(*full, **named)

    return func, [args[i] for i in places] + [kwargs[k] for k in names]


def apply_along_axis(func1d: Callable[..., Any], axis: int, arr: ArrayLike, *args: object,
                     **kwargs: object) -> PyTree:
    """Apply a function to every vector along an axis.

    The function is mapped with `toile.vmap`: it is called only once, with a traced value that
    represents all vectors.

    Args:
        func1d: function of a one-dimensional array.
        axis: axis along which the vectors lie.
        arr: array that contains the vectors.
        *args: additional arguments for the function.
        **kwargs: additional keyword arguments for the function.

    Returns:
        An array in which `axis` is replaced by the axes of the function's results.

    >>> jnp.apply_along_axis(lambda v: v / v.sum(), 1, jnp.array([[1.0, 3.0], [2.0, 2.0]]))
    Array([[0.25, 0.75],
           [0.5 , 0.5 ]], dtype=float32)
    """
    x = h.as_array("apply_along_axis", arr)
    axis = canonical_axis(axis, x.ndim)
    func = lambda v: func1d(v, *args, **kwargs)
    # each vmap over the axes after it takes the last one left and puts it last again
    for _ in range(axis + 1, x.ndim):
        func = vmap(func, in_axes=-1, out_axes=-1)
    for _ in range(axis):
        func = vmap(func, in_axes=0, out_axes=0)
    return func(x)


def apply_over_axes(func: Callable[[Array, int], Array], a: ArrayLike,
                    axes: int | Sequence[int]) -> Array:
    """Apply a reduction over several axes, one after the other.

    Args:
        func: function `f(array, axis)` whose result either lacks that axis or keeps it with length
            1.
        a: array to reduce.
        axes: axis or axes to reduce over.

    Returns:
        An array with the same number of axes as `a`; axes that `func` removes are kept with length
        1.

    >>> jnp.apply_over_axes(jnp.sum, jnp.ones((2, 3, 4)), (0, 2)).shape
    (1, 3, 1)
    """
    x = h.as_array("apply_over_axes", a)
    for axis in axes if np.iterable(axes) else (axes,):
        out = func(x, axis)
        if out.ndim == x.ndim:
            x = out
        elif out.ndim == x.ndim - 1:
            x = jnp.expand_dims(out, axis)
        else:
            raise ValueError("function is not returning an array of the correct shape" + here())
    return x


def _conditions(x: Array, condlist: Any, functions: int) -> list[Array]:
    """The conditions of `piecewise`, which may be given as one array."""
    if isinstance(condlist, (list, tuple)):
        condlist = [h.unwrapped(c) for c in condlist]
        whole = len(condlist) and np.ndim(condlist[0]) == 0 and x.ndim
        return [arr(list(condlist))] if whole else [arr(c) for c in condlist]
    block = arr(condlist)
    each = block.ndim == 1 and functions - block.shape[0] in (0, 1)  # of rank 0
    single = block.ndim == 0 or (block.ndim == x.ndim and x.ndim and not each)
    return [block] if single else [block[i] for i in range(block.shape[0])]


def piecewise(x: ArrayLike, condlist: ArrayLike | Sequence[ArrayLike],
              funclist: Sequence[ArrayLike | Callable[..., ArrayLike]], *args: object,
              **kw: object) -> Array:
    """Evaluate a function that is defined by cases.

    Every function is evaluated on the whole array. Where several conditions are true, the last of
    them determines the result.

    Args:
        x: array to evaluate the functions on.
        condlist: conditions with the shape of `x` or of rank 0, one for each case; or a single
            condition.
        funclist: functions or constants, one for each case, and optionally one more for the
            elements for which no condition is true; these elements are 0 by default.
        *args: additional arguments for the functions.
        **kw: additional keyword arguments for the functions.

    Returns:
        An array with the shape and dtype of `x`; the results of the functions are converted to this
        dtype.

    Differences:
        NumPy calls each function with only the elements for which its condition is true.

    >>> x = jnp.array([-2.0, 0.0, 3.0])
    >>> jnp.piecewise(x, [x < 0, x > 0], [lambda v: -v, lambda v: 2 * v])
    Array([2., 0., 6.], dtype=float32)
    """
    x = h.as_array("piecewise", x)
    conditions = _conditions(x, condlist, len(funclist))
    count = len(conditions)
    if len(funclist) == count + 1:
        default = funclist[-1]
    elif len(funclist) == count:
        default = 0
    else:
        raise ValueError(f"with {count} condition(s), either {count} or {count + 1} functions are "
                         f"expected; got {len(funclist)}{here()}")

    def value(f):
        out = f(x, *args, **kw) if callable(f) else f
        return h.broadcast_to(lax.convert_element_type(arr(out), x.dtype), x.shape)

    out = value(default)
    for condition, f in zip(conditions, funclist):
        out = jnp.where(selection.as_condition(condition), value(f), out)
    return out
