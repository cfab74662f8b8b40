"""Operations that call Python: pure, with effects, and for debugging.

The user's function takes arrays and returns arrays or numbers. An equation with effects is neither
removed nor reordered; a debug callback never affects derivatives. This module may import
control.call and the modules below it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from toile.control.call import ByIdentity, map_where, move_mapped
from toile.engine import dtypes, key_uses
from toile.engine.arrays import DeviceArray
from toile.engine.avals import Aval, Zero
from toile.engine.errors import JaxRuntimeError
from toile.engine.operation import Axis, Dim, Operation
from toile.engine.source import here, user_source
from toile.engine.tracebacks import expect_error
from toile.primitives.families import bdim_at, reshape
from toile.primitives.shapes import concatenate_all, slice_axis


class DebugEffect(str):
    """The effect of operations, such as `toile.debug.print`, that inspect values in any order.

    The class is a subclass of `str`, because effects are compared by name. As in JAX, `str(effect)`
    does not depend on the name.

    >>> from toile.debug import DebugEffect
    >>> str(DebugEffect("debug"))
    'Debug'
    """

    __slots__ = ()

    def __str__(self) -> str:
        return "Debug"


class OrderedDebugEffect(str):
    """The effect of operations that inspect values in program order.

    An example is `toile.debug.print(..., ordered=True)`. The class is a subclass of `str`, because
    effects are compared by name. As in JAX, `str(effect)` does not depend on the name.

    >>> from toile.debug import OrderedDebugEffect
    >>> str(OrderedDebugEffect("ordered debug"))
    'OrderedDebug'
    """

    __slots__ = ()

    def __str__(self) -> str:
        return "OrderedDebug"


class Callback(ByIdentity, Operation):
    """Calls `function(*arrays)`, which returns a flat list of results with these `avals`."""

    multiple = True
    handles_zeros = True
    interned = False
    keeps_operands = True

    def __init__(self, function: Callable[..., Sequence[Any]], avals: Sequence[Aval],
                 vmap_method: str | None = None, label: str = "callback"):
        self.function, self.avals = function, tuple(avals)
        self.vmap_method, self.label = vmap_method, label
        self.place = user_source()  # errors may come up much later, where the program runs

    def infer(self, *avals: Aval) -> list[Aval]:
        return list(self.avals)

    def eager(self, xp: Any, *xs: Any) -> Any:
        try:
            outs = self.function(*[DeviceArray(x) for x in xs])
        except Exception as error:
            expect_error()
            raise _as_runtime_error(error) from None
        if len(outs) != len(self.avals):
            raise JaxRuntimeError(
                f"{self.name}: Mismatched number of outputs from callback: needed "
                f"{len(self.avals)} results from {self.label}, got {len(outs)} (return one array "
                f"for each leaf of result_shape_dtypes){self._called()}{here()}"
            )
        return [self._checked(i, o, self.avals[i]) for i, o in enumerate(outs)]

    def _called(self) -> str:
        """For errors: where the callback was put into the program."""
        return f"\n  called at {self.place}" if self.place else ""

    def _checked(self, i: int, out: Any, aval: Aval) -> Any:
        """A result as an array of its aval; 64-bit dtypes become 32-bit dtypes unless x64 is on."""
        value = np.asarray(out)
        if value.shape != aval.shape:
            raise JaxRuntimeError(
                f"{self.name}: Incorrect output shape for return value #{i}: needed "
                f"{aval.str_short()} from {self.label}, got shape {value.shape} (return that "
                f"shape, or declare this one in result_shape_dtypes){self._called()}{here()}"
            )
        found = dtypes.canonicalize_dtype(value.dtype)
        if found != aval.dtype:
            raise JaxRuntimeError(
                f"{self.name}: Incorrect output dtype for return value #{i}: needed "
                f"{aval.str_short()} from {self.label}, got {found} (convert it with "
                f".astype, or declare {found} in result_shape_dtypes){self._called()}{here()}"
            )
        return value.astype(found, copy=False)

    def again(self, function: Callable[..., Sequence[Any]], avals: Sequence[Aval]) -> Callback:
        """The same kind of callback with other results."""
        return type(self)(function, avals, self.vmap_method, self.label)

    def one_by_one(self, size: int, xs: Sequence[Any], dims: Sequence[Dim]) -> tuple[Any, Any]:
        """Call the function once per example; stack the results along a new leading axis."""
        rows = []
        for i in range(size):
            args = [x if d is None else _row(bdim_at(x, d, size), i)
                    for x, d in zip(xs, dims, strict=True)]
            rows.append(self(*args))
        stacked = [concatenate_all([reshape(r, (1, *r.shape)) for r in column], 0)
                   for column in zip(*rows, strict=True)]
        return stacked, [0] * len(self.avals)


_kinds: dict[type[Exception], type[Exception]] = {}


def _as_runtime_error(error: Exception) -> Exception:
    """A user's error as an error of a subclass that is also a JaxRuntimeError."""
    kind = type(error)
    if isinstance(error, JaxRuntimeError):
        return error
    if kind not in _kinds:
        bases = (JaxRuntimeError,) if kind is RuntimeError else (JaxRuntimeError, kind)
        try:
            _kinds[kind] = type(kind.__name__, bases, {"__module__": kind.__module__})
        except TypeError:  # the class does not allow subclasses
            _kinds[kind] = kind
    made = _kinds[kind]
    if made is kind:
        return error
    same = made.__new__(made)
    same.args = error.args
    same.__dict__.update(error.__dict__)
    return same.with_traceback(error.__traceback__)


class PureCallback(Callback):
    """A callback whose result depends only on its operands; it may be called repeatedly."""

    name = "pure_callback"

    def eager(self, xp: Any, *xs: Any) -> Any:
        return super().eager(xp, *xs) if self.avals else []  # without results it need not run

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        raise ValueError(
            "Pure callbacks do not support JVP. Please use `toile.custom_jvp` to use callbacks "
            f"while taking gradients (the callback is {self.label}){here()}"
        )

    def transpose(self, ct: Any, *xs: Any) -> Any:
        raise ValueError(
            "Pure callbacks do not support transpose. Please use `toile.custom_vjp` to use "
            f"callbacks while taking gradients (the callback is {self.label}){here()}"
        )

    def vmap(self, axis: Axis, xs: Sequence[Any], dims: Sequence[Dim]) -> tuple[Any, Any]:
        size = axis[1]
        method = self.vmap_method
        if method is None:
            raise NotImplementedError(
                "vmap is only supported for the pure_callback primitive when vmap_method is one of "
                "'sequential', 'sequential_unrolled', 'expand_dims', 'broadcast_all', or "
                f"'legacy_vectorized'. Got vmap_method=None.{here()}"
            )
        if method in ("sequential", "sequential_unrolled"):
            return self.one_by_one(size, xs, dims)
        avals = [Aval((size, *a.shape), a.dtype) for a in self.avals]
        if method == "broadcast_all":
            moved = map_where(xs, dims, size)
        elif method == "expand_dims":
            moved = [bdim_at(x, d, 1 if d is None else size) for x, d in zip(xs, dims, strict=True)]
        elif method == "legacy_vectorized":
            moved = move_mapped(xs, dims, size)
        else:
            raise ValueError(f"vmap_method: needed a known method, got {method!r}{here()}")
        return self.again(self.function, avals)(*moved), [0] * len(avals)


def _row(x: Any, i: int) -> Any:
    return reshape(slice_axis(x, i, i + 1, 0), x.shape[1:])


class IoCallback(Callback):
    """A callback with side effects; the function is called exactly once, in order if requested."""

    name = "io_callback"
    effects = frozenset({"io"})

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        if any(t.__class__ is not Zero for t in tangents):
            raise ValueError(
                "IO callbacks do not support JVP. Please use `toile.custom_jvp` to use callbacks "
                "while taking gradients." + here()
            )
        outs = self(*primals)
        return outs, [Zero(o) for o in outs]

    def transpose(self, ct: Any, *xs: Any) -> Any:
        raise ValueError(
            f"IO callbacks do not support transpose. (the callback is {self.label}){here()}"
        )

    def vmap(self, axis: Axis, xs: Sequence[Any], dims: Sequence[Dim]) -> tuple[Any, Any]:
        if "ordered" in self.effects:
            raise ValueError("Cannot `vmap` ordered IO callback." + here())
        return self.one_by_one(axis[1], xs, dims)


class OrderedIoCallback(IoCallback):
    """An io_callback that runs in program order relative to other ordered callbacks."""

    effects = frozenset({"io", "ordered"})


class DebugCallback(Callback):
    """A callback that inspects values; derivatives ignore it."""

    name = "debug_callback"
    effects = frozenset[str]({DebugEffect("debug")})
    key_use = key_uses.reads

    def eager(self, xp: Any, *xs: Any) -> Any:
        self.function(*[DeviceArray(x) for x in xs])
        return []

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        return self(*primals), []

    def transpose(self, ct: Any, *xs: Any) -> Any:
        return (None,) * len(xs)

    def vmap(self, axis: Axis, xs: Sequence[Any], dims: Sequence[Dim]) -> tuple[Any, Any]:
        return self.one_by_one(axis[1], xs, dims)

    def split(self, linear: Sequence[bool], args: Sequence[Any]) -> tuple[Any, Any, Any]:
        return [], None, None  # values that depend on tangents only are not shown


class OrderedDebugCallback(DebugCallback):
    """A debug callback that runs in program order relative to other ordered callbacks."""

    effects = frozenset[str]({OrderedDebugEffect("ordered debug")})
