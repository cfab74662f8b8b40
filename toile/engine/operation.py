"""The contract of an operation: fields are static parameters, methods are rules.

`op(*args)` passes the operation to the innermost trace, or runs it immediately if there is no
trace. Rules are named after their callers: `infer` (avals), `eager` (NumPy arrays), `jvp`,
`transpose` and `vmap` (traced values). Fields are hashable and never floats or arrays: literals are
operands. This module may import the modules of the engine below it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from toile.engine import dtypes
from toile.engine.arrays import DeviceArray, KeyArray
from toile.engine.avals import Aval, aval_of
from toile.engine.config import flags
from toile.engine.conversion import as_array, raw_operand, wrap_aval
from toile.engine.fp_errors import ignore_errors, restore_errors
from toile.engine.host_memory import memory_error
from toile.engine.key_uses import KeyUse, uses_all
from toile.engine.platform_registry import registry
from toile.engine.sharded import layout
from toile.engine.source import here
from toile.engine.trace import Array, state
from toile.engine.tracebacks import expect_error
from toile.engine.traits import Traits

ndarray = np.ndarray
Axis = tuple[Any, int]  # the name (or None) and size of an axis that vmap maps
Dim = int | None

_SNAKE = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


class OperationType(type):
    """The metaclass of operations; for equal parameters, it returns the same object to save
    time."""

    instances: dict[tuple[Any, ...], Any]
    interned: bool

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if kwargs or not cls.interned:
            return super().__call__(*args, **kwargs)
        try:
            found = cls.instances.get(args)
        except TypeError:  # a list where a tuple is needed: the class raises a better error
            return super().__call__(*args)
        if found is None:
            found = super().__call__(*args)
            if len(cls.instances) >= MOST_INSTANCES:
                cls.instances.clear()
            cls.instances[args] = found
        return found


MOST_INSTANCES = 4096  # of one class, kept for reuse


class _OfBoth:
    """An attribute of operations and of their classes."""

    def __init__(self, get: Callable[[Any], Any]):
        self.get = get

    def __get__(self, op: Any, cls: Any) -> Any:
        return self.get(cls if op is None else op)


def _applied(primitive: Any) -> Callable[..., Any]:
    has_parameters = isinstance(primitive, type)

    def bind(*args: Any, **params: Any) -> Any:
        given = [a if isinstance(a, Array) else as_array(a) for a in args]
        return primitive.apply(given, params) if has_parameters else primitive(*given)

    return bind


class Operation(Traits, metaclass=OperationType):
    """One primitive; if it has parameters, it is a frozen dataclass. Families supply most rules."""

    # Results are a list, not one value; `eager` then returns a sequence.
    multiple: ClassVar[bool] = False
    # `jvp` accepts symbolic zeros; other operations get arrays of zeros instead.
    handles_zeros: ClassVar[bool] = False
    # A result may be weakly typed although an operand is not (or there is no operand).
    makes_weak: ClassVar[bool] = False
    # A result that has an operand's shape also has that operand's layout over devices.
    keeps_layout: ClassVar[bool] = False
    # Each element of the result is computed from the operands' elements at its index (or from
    # scalars) by `lower(k, *xs)`, written with the scalar builder `k` of a kernel
    # (compiler.scalars).
    by_element: ClassVar[bool] = False
    # `lower_steps(k, rounded, *xs)`: the same on narrow floats, for an operation defined by several
    # steps with `rounded` after each. None: the result of `lower` is rounded once.
    lower_steps: ClassVar[Any] = None
    # The folder of `toile.kernels` with its code, or "folder.name" if the folder has several
    # functions (see `kernels.families`). None: a loop nest computes the operation, or `eager` runs
    # as a step.
    kernel_family: ClassVar[str | None] = None
    # Whether computing the result takes longer than storing it and loading it again.
    costly: ClassVar[bool] = False
    # Whether an element takes tens of nanoseconds: code that loops until a series has converged.
    iterates: ClassVar[bool] = False
    # Whether checks look for NaNs in its results: true for JAX's list, and for operations composed
    # of operations on that list.
    can_make_nan: ClassVar[bool] = False
    # Whether it carries Programs, which run when the operation runs.
    carries_programs: ClassVar[bool] = False
    # Whether its Program runs on several devices, each with parts of the operands.
    divided: ClassVar[bool] = False
    # Names of the effects an equation of this operation has ("debug", "io", ...).
    effects: frozenset[str] = frozenset()

    name: ClassVar[str] = "operation"
    title: ClassVar[str]  # its name in errors; `name` by default

    # Instances with equal parameters are one object; not for those that hold Programs or functions.
    interned: ClassVar[bool] = True
    instances: ClassVar[dict[tuple[Any, ...], Any]] = {}
    is_view: ClassVar[bool] = False  # it has a `view` rule

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.instances = {}
        cls.is_view = cls.view is not Operation.view
        if "name" not in cls.__dict__:
            cls.name = _SNAKE.sub("_", cls.__name__).lower()
        if "title" not in cls.__dict__:
            cls.title = cls.name

    def __call__(self, *args: Any) -> Any:
        trace = state.trace
        if trace is None:
            return run_eager(self, args)
        return trace.process(self, args)

    @property
    def axis_names(self) -> tuple[Any, ...]:
        """Named axes the operation communicates over."""
        return ()

    # ---- JAX's names, for packages that interpret Programs: `lax.reduce_sum_p` is a class, which
    # gets the parameters when it is applied, and `lax.add_p` is an operation
    bind = impl = _OfBoth(_applied)
    multiple_results = _OfBoth(lambda primitive: primitive.multiple)
    call_primitive = map_primitive = False

    @staticmethod
    def get_bind_params(params: dict[str, Any]) -> dict[str, Any]:
        """The parameters to pass to `bind`."""
        return params

    def as_primitive(self) -> Any:
        """The object that `toile.lax` exports under a name such as `add_p`: the class of an
        operation with parameters, or the operation itself."""
        return type(self) if hasattr(self, "__dataclass_fields__") else self

    def fields(self) -> dict[str, Any]:
        """The parameters by name."""
        return {name: getattr(self, name) for name in getattr(self, "__dataclass_fields__", {})}

    def as_params(self) -> dict[str, Any]:
        """The parameters by the names that JAX gives them, if it has the operation.

        `op.as_primitive().bind(*args, **op.as_params())` applies the operation."""
        return self.fields()

    @classmethod
    def apply(cls, args: Sequence[Any], params: dict[str, Any]) -> Any:
        """The results of the operation with the parameters that `as_params` returns."""
        return cls(**params)(*args)

    # ---- rules
    def infer(self, *avals: Aval) -> Any:
        """Avals of the results; raises the errors users see for unfit operands."""
        raise NotImplementedError(f"{self.name}: no infer rule{here()}")

    def eager(self, xp: Any, *xs: Any) -> Any:
        """The results, computed with the array library `xp`."""
        raise NotImplementedError(f"{self.name}: no eager rule{here()}")

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        """The result and its tangent."""
        raise NotImplementedError(
            f"{self.name}: has no derivative (wrap it in stop_gradient, or give it a "
            f"custom_jvp){here()}"
        )

    def taylor(self, f: Any, primals: Sequence[Any], series: Sequence[Any]) -> tuple[Any, Any]:
        """The result and the coefficients of its Taylor polynomial, from those of the operands.

        `f` has the rules (see `primitives.taylor`); without a rule, `jvp` is integrated."""
        return f.integrated(self, primals, series)

    def transpose(self, ct: Any, *xs: Any) -> Any:
        """Cotangents of the linear operands, which arrive as avals.

        `ct` is one value, or a list for multiple results. Returns the cotangent of the only linear
        operand, or a tuple with one entry per operand (None for those that are not linear)."""
        raise NotImplementedError(f"{self.name}: is not linear, so it cannot be transposed (use "
                                  f"toile.vjp){here()}")

    def vmap(self, axis: Axis, xs: Sequence[Any], dims: Sequence[Dim]) -> tuple[Any, Any]:
        """Results and their mapped dims (None: not mapped)."""
        raise NotImplementedError(f"{self.name}: no vmap rule{here()}")

    def physical(self, *avals: Aval) -> Operation:
        """The same operation on the uint32 buffers behind arrays of keys."""
        raise TypeError(
            f"{self.name}: needed numbers, got {', '.join(a.str_short() for a in avals)} "
            f"(random keys support indexing and reshaping only; see toile.random.key_data){here()}"
        )

    # ---- for the partitioner
    def divide(self, f: Any, ins: Sequence[Any], outs: Sequence[Aval]) -> list[Any]:
        """The results on the devices of a mesh (see `primitives.division`).

        Without a rule every device takes whole operands and computes whole results."""
        found = self(*(f.to(v, ((),) * v.aval.ndim) for v in ins))
        return f.placed_all(self, outs, [((),) * a.ndim for a in outs], found)

    # ---- for the check of key reuse
    def key_use(self, avals: Sequence[Aval]) -> KeyUse:
        """What the operation does to the random keys among its operands (see `engine.key_uses`)."""
        return uses_all(self, avals)

    # ---- for checks of values
    def checked(self, f: Any, ins: list[Any]) -> list[Any]:
        """The results, with a record of failed checks (`f` is from
        `toile.experimental.checkify`)."""
        return f.run(self, ins)

    # ---- for the compiler
    def undoes(self, first: Operation, x: Aval) -> bool:
        """Whether applying this operation to the result of `first(x)` gives x."""
        return False

    def view(self, x: Any) -> Any:
        """The result as a view (`compiler.ir.views`) of the operand's view `x`; None if it is not
        one."""
        return None

    def placed_at(self, ins: Sequence[Any]) -> tuple[int, ...] | None:
        """Where the second operand begins in the result, if the result is the first operand with a
        block replaced by the second; None if it is not, or if that depends on values."""
        return None

    @property
    def overwrites(self) -> slice:
        """The operands that the operation may overwrite with its results."""
        return slice(1 if self.updates else 0)

    def at_zeros(self, zeros: Sequence[bool]) -> int | None:
        """The operand that the result equals if those marked are zero and the others finite; None
        if that is not known."""
        return None

    def flops(self, *avals: Aval) -> int:
        """Floating-point operations of one call, for cost analysis."""
        return 0

    # Operations without fields are equal if they have the same class; dataclasses define their own.
    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    def __hash__(self) -> int:
        return hash(type(self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def __str__(self) -> str:
        return self.name


def infer_list(op: Operation, avals: Sequence[Aval]) -> list[Aval]:
    """The result avals as a list, whether the operation has one result or several."""
    out = op.infer(*avals)
    return list(out) if op.multiple else [out]


def run_eager(op: Operation, args: Sequence[Any]) -> Any:
    """Run an operation now, on concrete operands."""
    if registry.active:
        found = registry.run(op, args)
        if found is not NotImplemented:
            return found
    raws = []
    weak = False
    plain = True
    for a in args:
        if a.__class__ is DeviceArray:
            raws.append(a._data)
            weak |= a.weak_type
        else:
            if a.__class__ is not KeyArray:
                a = as_array(a)
                weak |= getattr(a, "weak_type", False)
            plain &= a.__class__ is DeviceArray
            raws.append(raw_operand(a))
    if not plain or weak or op.multiple or op.makes_weak or flags.default_device is not None:
        return _run_inferred(op, args, raws)
    try:
        out = state.quiet(op.eager, np, *raws)
    except Exception as error:
        outs = infer_list(op, [aval_of(a) for a in args])  # raises in the user's terms
        if isinstance(error, MemoryError):
            raise memory_error(op.name, outs) from None
        expect_error()
        raise
    if out.__class__ is not ndarray:
        out = np.asarray(out)
    return DeviceArray(out, False)


def _run_inferred(op: Operation, args: Sequence[Any], raws: Sequence[Any]) -> Any:
    """The general path: results are wrapped with their inferred avals."""
    avals = [aval_of(a) for a in args]
    outs = infer_list(op, avals)
    runner = op
    if any(dtypes.is_extended(a.dtype) for a in avals):
        runner = op.physical(*avals)
    wrap = layout(op, args) or wrap_aval
    token = ignore_errors()
    try:
        results = runner.eager(np, *raws)
    except MemoryError:
        raise memory_error(op.name, outs) from None
    except Exception:
        expect_error()
        raise
    finally:
        restore_errors(token)
    if not op.multiple:
        return wrap(results, outs[0])
    return [wrap(r, a) for r, a in zip(results, outs, strict=True)]
