"""custom_jvp, custom_vjp, custom_gradient and linear_call: user-defined derivatives.

The arguments at `nondiff_argnums` are passed to the rules unchanged. If a rule returns a tangent or
cotangent with the wrong structure or shape, the error names the function and shows what was needed
and what was returned. This module may import all layers below `api`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, Generic, ParamSpec, TypeVar, overload

import numpy as np

from toile.api.custom_calls import (
    SCALARS,
    CustomCall,
    RuleResults,
    number_or_array,
    signature_of,
)
from toile.api.programs import closed_partial
from toile.control.custom import CustomJVP, CustomVJP
from toile.control.linear import LinearCall
from toile.engine import dtypes
from toile.engine.annotations import ArrayLike, PyTree
from toile.engine.arrays import DeviceArray
from toile.engine.avals import Aval, Zero, aval_of
from toile.engine.cached import cached_property
from toile.engine.conversion import as_array
from toile.engine.errors import called
from toile.engine.keypaths import keystr
from toile.engine.program import Program, trace_program
from toile.engine.refs import Ref, mentions_ref
from toile.engine.source import describe, here, message
from toile.engine.trace import Tracer, state
from toile.engine.tracebacks import expect_error
from toile.engine.treedefs import node_type
from toile.engine.trees import flatten, flatten_with_path, structure, tree_map, unflatten
from toile.primitives.barriers import stop_gradient
from toile.primitives.elementwise import convert
from toile.primitives.families import instantiate
from toile.staging.flat_functions import FlatFunction, dress, name_of

P = ParamSpec("P")
R = TypeVar("R")

_KEPT = (*SCALARS, Ref)  # residuals that the backward rule receives as they are
_MOVING = object()  # takes the place of a residual that is an array


class SymbolicZero:
    """A tangent or cotangent that is known to be zero and is not stored as an array.

    Rules that were set with `symbolic_zeros=True` receive such objects in place of tangents and
    cotangents that are known to be zero, and may also return them.

    Args:
        aval: shape and dtype of the tangent.

    >>> from toile.custom_derivatives import SymbolicZero
    >>> SymbolicZero.from_primal_value(jnp.ones((2, 3)))
    SymbolicZero(float32[2,3])
    """

    def __init__(self, aval: Aval):
        self.aval = aval

    shape = property(lambda self: self.aval.shape, doc="Shape of the tangent.")
    dtype = property(lambda self: self.aval.dtype, doc="Dtype of the tangent.")
    ndim = property(lambda self: len(self.aval.shape), doc="Number of axes.")
    size = property(lambda self: self.aval.size, doc="Number of elements.")
    weak_type = property(lambda self: self.aval.weak_type, doc="Whether its dtype is weak.")

    @staticmethod
    def from_primal_value(val: ArrayLike) -> SymbolicZero:
        """Return the zero tangent of an array or number.

        Args:
            val: array or number.

        Returns:
            A zero with the shape and dtype of `val`. For integers and booleans, the dtype is
            `float0`.
        """
        return SymbolicZero(aval_of(val).to_tangent_aval())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SymbolicZero) and self.aval == other.aval

    def __hash__(self) -> int:
        return hash(self.aval)

    def __repr__(self) -> str:
        return f"SymbolicZero({self.aval.str_short()})"


class CustomVJPPrimal:
    """An array and a flag, as passed to a forward rule that was set with `symbolic_zeros=True`.

    Args:
        value: the array.
        perturbed: whether the value depends on the differentiated arguments. If False, the
            cotangent of the value is not used, and the backward rule need not compute it.

    >>> @toile.custom_vjp
    ... def f(x, y):
    ...     return x * y
    >>> def f_fwd(x, y):
    ...     print(x.perturbed, y.perturbed)
    ...     return x.value * y.value, y.value
    >>> f.defvjp(f_fwd, lambda y, ct: (ct * y, None), symbolic_zeros=True)
    >>> float(toile.grad(f)(2.0, 3.0))
    True False
    3.0
    """

    def __init__(self, value: ArrayLike, perturbed: bool):
        self.value, self.perturbed = value, perturbed

    def __repr__(self) -> str:
        return f"CustomVJPPrimal({self.value!r}, perturbed={self.perturbed})"


def custom_vjp_primal_tree_values(tree: PyTree) -> PyTree:
    """Extract the arrays from the arguments of a forward rule that has `symbolic_zeros=True`.

    Args:
        tree: tree of `CustomVJPPrimal` objects.

    Returns:
        A tree in which each `CustomVJPPrimal` is replaced by its value. This tree can be passed to
        the differentiated function.

    Raises:
        TypeError: a leaf of the tree is not a `CustomVJPPrimal`.

    >>> from toile.custom_derivatives import CustomVJPPrimal, custom_vjp_primal_tree_values
    >>> custom_vjp_primal_tree_values({"x": CustomVJPPrimal(2.0, perturbed=True)})
    {'x': 2.0}
    """

    def value(leaf: Any) -> Any:
        if type(leaf) is not CustomVJPPrimal:
            raise TypeError(
                f"unexpected leaf type {type(leaf)}: needed CustomVJPPrimal, got {describe(leaf)} "
                f"(pass it the arguments of a forward rule with symbolic_zeros=True){here()}"
            )
        return leaf.value

    return tree_map(value, tree)


def zero_from_primal(val: PyTree, symbolic_zeros: bool = False) -> PyTree:
    """Create zero tangents for a tree of arrays.

    Args:
        val: tree of arrays and numbers.
        symbolic_zeros: whether to create `SymbolicZero` objects instead of arrays.

    Returns:
        A tree with the structure of `val`. Zeros for integers and booleans have dtype `float0`.

    >>> from toile.custom_derivatives import zero_from_primal
    >>> zero_from_primal({"x": jnp.ones(2)})
    {'x': Array([0., 0.], dtype=float32)}
    """
    if symbolic_zeros:
        return tree_map(SymbolicZero.from_primal_value, val)
    return tree_map(lambda x: instantiate(Zero(x)), val)


def forwarded(wrapper: Any, name: str) -> Any:
    """An attribute such as `def_vmap` of the wrapped function, which may be a wrapper itself."""
    if name.startswith("def"):
        found = getattr(wrapper.fun, name, None)
        if found is not None:
            return found
        expect_error()
        rule = next((n for n in ("defjvp", "defvjp") if hasattr(type(wrapper), n)), "")
        hint = f" (write {rule} for the rule of a {type(wrapper).__name__})" if rule else ""
        raise AttributeError(f"{type(wrapper).__name__!r} object has no attribute {name!r}{hint}")
    raise AttributeError(f"{type(wrapper).__name__!r} object has no attribute {name!r}")


def _to_symbolic(t: Any) -> Any:
    return SymbolicZero(t.aval) if t.__class__ is Zero else t


def _from_symbolic(t: Any) -> Any:
    return Zero(t.aval) if isinstance(t, SymbolicZero) else t


class _Custom(Generic[P, R]):
    """Base of `custom_jvp` and `custom_vjp`, which wraps functions and splits arguments."""

    symbolic_zeros = False

    # Two overloads, so that mypy infers nothing from `partial(custom_vjp, nondiff_argnums=0)`.
    @overload
    def __init__(self, fun: Callable[P, R], nondiff_argnums: Sequence[int] | int = ()): ...
    @overload
    def __init__(self, fun: Callable[P, R], nondiff_argnums: Sequence[int] | int = (),
                 nondiff_argnames: Sequence[str] = ()): ...
    def __init__(self, fun: Callable[P, R], nondiff_argnums: Sequence[int] | int = (),
                 nondiff_argnames: Sequence[str] = ()):
        dress(self, fun)
        self.fun: Callable[..., Any] = fun
        nums = (nondiff_argnums,) if isinstance(nondiff_argnums, int) else tuple(nondiff_argnums)
        if nondiff_argnames:
            names = list(inspect.signature(fun).parameters)
            nums = (*nums, *(names.index(n) for n in nondiff_argnames))
        self.nondiff_argnums = tuple(sorted(set(nums)))

    @cached_property
    def _signature(self) -> inspect.Signature | None:
        return signature_of(self.fun)

    __getattr__ = forwarded

    def _is_quick(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether the function can be called directly: no trace, and only arrays as arguments."""
        if state.trace is not None or kwargs or self.nondiff_argnums:
            return False
        return all(a.__class__ is DeviceArray for a in args)

    def _quick_result(self, args: tuple[Any, ...]) -> Any:
        try:
            out = self.fun(*args)
        except Exception as error:
            expect_error()
            if args or not isinstance(error, TypeError):
                raise
            raise TypeError(
                f"{error}: needed arrays, got no arguments (pass the function itself, without "
                f"calling it, or call it with an array){here()}"
            ) from None
        return out if out.__class__ is DeviceArray else tree_map(number_or_array, out)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        raise NotImplementedError

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)


class custom_jvp(_Custom[P, R]):
    """A function with a user-defined rule for forward-mode differentiation.

    Reverse-mode differentiation uses the transpose of the same rule. Set the rule with `defjvp`
    before the first call.

    Args:
        fun: the function.
        nondiff_argnums: positions of arguments that are not differentiated, such as functions or
            sizes. The rule receives them before its other arguments.
        nondiff_argnames: names of arguments that are not differentiated.

    >>> @toile.custom_jvp
    ... def f(x):
    ...     return x ** 2
    >>> @f.defjvp
    ... def f_jvp(primals, tangents):
    ...     (x,), (dx,) = primals, tangents
    ...     return f(x), 3.0 * dx
    >>> float(toile.grad(f)(5.0))
    3.0
    """

    jvp: Callable[..., Any] | None = None

    def defjvp(self, jvp: Callable[..., Any], symbolic_zeros: bool = False) -> Callable[..., Any]:
        """Set the derivative rule.

        Args:
            jvp: a function `jvp(*nondiff, primals, tangents)` that returns the pair (result,
                tangent of the result). `nondiff` are the arguments that are not differentiated,
                `primals` is the tuple of the other arguments, and `tangents` is the tuple of their
                tangents.
            symbolic_zeros: whether tangents that are known to be zero are passed to the rule as
                `SymbolicZero` objects instead of arrays of zeros.

        Returns:
            `jvp`, so that `defjvp` can be used as a decorator.
        """
        self.jvp, self.symbolic_zeros = jvp, symbolic_zeros
        return jvp

    def defjvps(self, *jvps: Callable[..., Any] | None) -> None:
        """Set a separate derivative rule for each argument.

        Args:
            *jvps: for each argument, a function, or None if the derivative with respect to that
                argument is zero. The function is called as `jvp(tangent, result, *args)`, where
                `tangent` is the tangent of that argument, and returns the argument's contribution
                to the tangent of the result. All contributions are added.

        Raises:
            TypeError: the function has `nondiff_argnums`.
        """
        if self.nondiff_argnums:
            raise TypeError("Can't use ``defjvps`` with ``nondiff_argnums``." + here())

        called: Callable[..., Any] = self

        def rule(primals: Any, tangents: Any) -> Any:
            out = called(*primals)
            zero = zero_from_primal(out)
            terms = [f(t, out, *primals) for f, t in zip(jvps, tangents, strict=True) if f]
            total = functools.reduce(
                lambda a, b: tree_map(lambda x, y: x + y, a, b), terms, zero
            )
            return out, total

        self.defjvp(rule)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if self.jvp is None:
            raise AttributeError(
                f"No JVP defined for custom_jvp function {name_of(self.fun)} using defjvp "
                f"(call it with the rule: f.defjvp(rule)){here()}"
            )
        if self._is_quick(args, kwargs):
            return self._quick_result(args)
        call = CustomCall(self, "custom_jvp", args, kwargs)
        if call.is_direct():
            return call.direct()
        call.fixed = tree_map(_unmoved, call.fixed)

        def rule(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
            ts = [_to_symbolic(t) for t in tangents] if self.symbolic_zeros else tangents
            ts = [np.zeros(t.shape, dtypes.float0) if t.__class__ is Zero else t for t in ts]
            assert self.jvp is not None
            pair = called(self.jvp, (*call.fixed, unflatten(call.tree, primals),
                                     unflatten(call.tree, ts)))
            return self._checked(pair, call.results)

        return call.run(CustomJVP(call.flat, rule, self.symbolic_zeros, name_of(self.fun)))

    def _checked(self, pair: Any, results: RuleResults) -> tuple[list[Any], list[Any]]:
        name = name_of(self.fun)
        if not isinstance(pair, (list, tuple)) or len(pair) != 2:
            raise TypeError(
                f"Custom JVP rule {name_of(self.jvp)} for function {name} must produce a pair "
                "(list or tuple of length two) representing primal and tangent outputs, but got "
                f"{_shown(pair)} (return the value and its tangent).{here()}"
            )
        outs, tree = flatten(pair[0])
        douts, d_tree = flatten(pair[1])
        if tree != d_tree:
            raise TypeError(
                f"Custom JVP rule {name_of(self.jvp)} for function {name} must produce primal and "
                f"tangent outputs with equal container (pytree) structures, but got {tree} and "
                f"{d_tree} respectively.{here()}"
            )
        outs = [as_array(o) for o in outs]
        results.check("custom_jvp", self.jvp, self.fun, tree, outs)
        found = []
        for o, d in zip(outs, douts, strict=True):
            d = _from_symbolic(d)
            want = aval_of(o).to_tangent_aval()
            if d.__class__ is Zero:
                found.append(d)
                continue
            got = aval_of(d)
            if want.dtype == dtypes.float0:
                found.append(Zero(o))
                continue
            fits = got.weak_type and dtypes.kind(got.dtype) in "biuf"  # a number takes any dtype
            if got.shape != want.shape or (got.dtype != want.dtype and not fits):
                raise TypeError(
                    "Custom JVP rule must produce primal and tangent outputs with corresponding "
                    f"shapes and dtypes. Expected {want.str_short()} (tangent type of "
                    f"{aval_of(o).str_short()}) but got {got.str_short()}. The rule is "
                    f"{name_of(self.jvp)} for function {name}.{here()}"
                )
            d = as_array(d)
            found.append(d if got.dtype == want.dtype else convert(d, want.dtype))
        return outs, found


def _shown(x: Any) -> str:
    """A value in an error: numbers by value, other arrays by their type."""
    return str(x) if x.__class__ is DeviceArray and not x.shape else describe(x)


def _unmoved(x: Any) -> Any:
    """An argument that is not differentiated, without its tangent, if any."""
    return stop_gradient(x) if isinstance(x, Tracer) else x


class custom_vjp(_Custom[P, R]):
    """A function with a user-defined rule for reverse-mode differentiation.

    Set the rule with `defvjp` before the first call. Forward-mode differentiation (`jvp`) raises an
    error, because there is no rule for it.

    Args:
        fun: the function.
        nondiff_argnums: positions of arguments that are not differentiated, such as functions or
            sizes. The backward rule receives them before its other arguments.
        nondiff_argnames: names of arguments that are not differentiated.

    >>> @toile.custom_vjp
    ... def f(x):
    ...     return x ** 2
    >>> f.defvjp(lambda x: (f(x), x), lambda x, ct: (3.0 * x * ct,))
    >>> float(toile.grad(f)(5.0))
    15.0
    """

    fwd: Callable[..., Any] | None = None
    bwd: Callable[..., Any] | None = None

    def defvjp(self, fwd: Callable[..., Any], bwd: Callable[..., Any],
               symbolic_zeros: bool = False, optimize_remat: bool = False) -> None:
        """Set the forward and backward rules.

        Args:
            fwd: a function with the same arguments that returns the pair (result, residuals). The
                residuals are a tree of the values that `bwd` needs.
            bwd: a function `bwd(*nondiff, residuals, ct)` that returns a tuple with one entry for
                each differentiated argument: its cotangent, or None if the cotangent is zero.
                `nondiff` are the arguments that are not differentiated, and `ct` is the cotangent
                of the result.
            symbolic_zeros: whether `fwd` receives `CustomVJPPrimal` objects instead of arrays, and
                `bwd` receives `SymbolicZero` objects in place of cotangents that are known to be
                zero.
            optimize_remat: accepted for compatibility with JAX.
        """
        self.fwd, self.bwd, self.symbolic_zeros = fwd, bwd, symbolic_zeros

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if self.fwd is None or self.bwd is None:
            raise AttributeError(
                f"No VJP defined for custom_vjp function {name_of(self.fun)} using defvjp "
                f"(give it both rules: f.defvjp(fwd, bwd)){here()}"
            )
        if self._is_quick(args, kwargs):
            return self._quick_result(args)
        call = CustomCall(self, "custom_vjp", args, kwargs)
        if call.is_direct():
            return call.direct()
        call.check_fixed()
        avals = call.avals
        kept: list[Any] = []  # the residuals' tree, and the residuals that are not arrays

        def fwd(mask: Sequence[bool], *xs: Any) -> tuple[list[Any], list[Any]]:
            outs, residuals = self._forward(call, mask, xs)
            leaves, tree = flatten(residuals)
            # Python scalars are kept, so that the backward rule can branch on them.
            kept[:] = [tree, [r if type(r) in _KEPT else _MOVING for r in leaves]]
            self._check_refs(call, leaves)
            return outs, [as_array(r) for r in leaves if type(r) not in _KEPT]

        def bwd(residuals: Sequence[Any], cts: Sequence[Any]) -> list[Any]:
            given = [_to_symbolic(c) for c in cts] if self.symbolic_zeros else cts
            ct = unflatten(call.results.tree, given)
            (tree, places), rest = kept, iter(residuals)
            leaves = [next(rest) if x is _MOVING else x for x in places]
            assert self.bwd is not None
            found = called(self.bwd, (*call.fixed, unflatten(tree, leaves), ct))
            cts = self._checked(found, call.tree, avals)
            return [ct for i, ct in enumerate(cts) if call.is_operand(i)]

        made = CustomVJP(call.flat, fwd, bwd, name_of(self.fun), self.symbolic_zeros)
        made.passes_refs = bool(call.refs) or mentions_ref(self.bwd)
        return call.run(made)

    def _check_refs(self, call: CustomCall, residuals: Sequence[Any]) -> None:
        """Raise an error for a Ref that the forward rule has created for the backward rule."""
        for r in residuals:
            if r.__class__ is Ref and r._trace is state.trace is not None and not any(
                r is known for known in call.refs.values()
            ):
                raise ValueError(
                    f"the custom_vjp fwd function {name_of(self.fwd)} for {name_of(self.fun)} "
                    f"returned a mutable array reference of type {r._aval_text()} as a residual, "
                    "but needed a Ref among its arguments (return the value, ref[...])"
                    f"{here()}")

    def _forward(
        self, call: CustomCall, mask: Sequence[bool], xs: Sequence[Any]
    ) -> tuple[list[Any], Any]:
        """The results and residuals of the forward rule; `mask` marks differentiated arguments."""
        given: Any = xs
        if self.symbolic_zeros:
            given = [CustomVJPPrimal(x, m) for x, m in zip(xs, mask, strict=True)]
        assert self.fwd is not None
        pair = self.fwd(*call.arguments(given))
        if not isinstance(pair, (list, tuple)) or len(pair) != 2:
            raise TypeError(
                f"Custom VJP fwd rule {name_of(self.fwd)} for function {name_of(self.fun)} "
                "must produce a pair (list or tuple of length two) where the first element "
                "represents the primal output and the second element represents residuals, "
                f"but got {describe(pair)} (return the value and what the bwd rule needs).{here()}"
            )
        outs, found = flatten(pair[0])
        outs = [as_array(o) for o in outs]
        call.results.check("custom_vjp", self.fwd, self.fun, found, outs)
        return outs, pair[1]

    def _checked(self, cts: Any, tree: Any, avals: Sequence[Aval]) -> list[Any]:
        """A cotangent for each leaf; None means that the cotangent of a whole argument is zero."""
        name = name_of(self.fun)
        if isinstance(cts, list):
            cts = tuple(cts)
        dummy = unflatten(tree, list(range(len(avals))))
        if not isinstance(cts, tuple) or len(cts) != len(dummy):
            raise _other_structure(name_of(self.bwd), name, flatten(cts)[1], tree)
        found: list[Any] = [Zero(a) for a in avals]
        given, given_tree = flatten(cts, is_leaf=lambda x: x is None)
        try:
            places = given_tree.flatten_up_to(dummy)
        except ValueError as e:
            got = flatten(cts)[1]
            raise _other_structure(name_of(self.bwd), name, got, tree, f" {message(e)}") from e
        for ct, below in zip(given, places, strict=True):  # a None may stand for a whole argument
            for i in flatten(below)[0] if ct is not None and ct.__class__ is not Ref else ():
                found[i] = self._cotangent(ct, i, avals[i], dummy)
        return found

    def _cotangent(self, ct: Any, i: int, aval: Aval, dummy: Any) -> Any:
        """The rule's cotangent for leaf number i of `dummy`, with its input's shape and dtype."""
        want = aval.to_tangent_aval()
        symbolic = isinstance(ct, SymbolicZero)
        got = ct.aval if symbolic else aval_of(ct)
        if not symbolic and dtypes.float0 in (want.dtype, got.dtype):
            return Zero(aval)
        if got.shape != want.shape:
            at = next(keystr(path) for path, j in flatten_with_path(dummy)[0] if j == i)
            raise _other_shape(name_of(self.bwd), name_of(self.fun), at, got, want, symbolic)
        if symbolic:
            return Zero(aval)
        return as_array(ct) if got.dtype == want.dtype else convert(as_array(ct), want.dtype)


def _other_structure(rule: str, name: str, got: Any, needed: Any, more: str = "") -> TypeError:
    return TypeError(
        "Custom VJP bwd rule must produce an output with the same container (pytree) structure as "
        "the args tuple of the primal function, and in particular must produce a tuple of length "
        "equal to the number of arguments to the primal function, but got bwd output structure "
        f"{got} for primal input structure {needed} from the rule {rule} for function "
        f"{name}.{more} (return a tuple with one cotangent for each argument: needed "
        f"{needed.num_leaves} leaves, got {got.num_leaves}){here()}"
    )


def _other_shape(
    rule: str, name: str, at: str, got: Aval, want: Aval, symbolic: bool
) -> ValueError:
    if symbolic:
        return ValueError(
            "Custom VJP bwd rule produced a SymbolicZero with a shape/dtype that does not match the"
            f" corresponding input tangent shape/dtype: at output{at} the SymbolicZero had "
            f"shape/dtype {got.str_short()} while the corresponding input had shape/dtype "
            f"{want.str_short()}. Consider just returning a None here instead of a SymbolicZero "
            f"object (bwd rule {rule} for function {name}).{here()}"
        )
    return ValueError(
        "Custom VJP bwd rule must produce an output with the same type as the args tuple of the "
        f"primal function, but at output{at} the bwd rule produced an output of type "
        f"{got.str_short()} corresponding to an input of type {want.str_short()}, so the shapes do "
        f"not match, from the rule {rule} for function {name} (custom_vjp: return one cotangent "
        f"per argument, shaped like it){here()}"
    )


def custom_gradient(fun: Callable[..., Any]) -> Callable[..., Any]:
    """Turn a function that returns its value and a backward rule into a differentiable function.

    This decorator is a short form of `custom_vjp`: the backward rule is defined inside the function
    and can use the values that the function has computed. Forward-mode differentiation (`jvp`)
    raises an error.

    Args:
        fun: a function that returns the pair (result, backward rule). The backward rule is a
            function that is called with the cotangent of the result and returns a tuple with the
            cotangents of the arguments. For a single argument, it may return the cotangent itself.

    Returns:
        A function with the same arguments that returns the result. Reverse-mode differentiation
        uses the backward rule.

    >>> @toile.custom_gradient
    ... def f(x):
    ...     return x ** 2, lambda ct: 3.0 * ct
    >>> float(f(5.0)), float(toile.grad(f)(5.0))
    (25.0, 3.0)
    """

    @custom_vjp
    def wrapped(*args: Any) -> Any:
        return fun(*args)[0]

    def fwd(*args: Any) -> Any:
        out, rule = fun(*args)
        leaves, tree = flatten(out)
        avals = [aval_of(x) for x in leaves]
        shapes = unflatten(tree, [np.zeros(a.shape, a.dtype) for a in avals])
        return out, closed_partial(rule, shapes)

    def bwd(pullback: Any, ct: Any) -> Any:
        cts = pullback(ct)
        return (cts,) if cts is None or node_type(type(cts)) is None else cts

    wrapped.defvjp(fwd, bwd)
    return dress(wrapped, fun)


def linear_call(
    fun: Callable[..., PyTree], fun_transpose: Callable[..., PyTree], residual_args: PyTree,
    linear_args: PyTree,
) -> PyTree:
    """Call a linear function whose transpose is given by another function.

    Reverse-mode differentiation and `linear_transpose` use `fun_transpose` instead of transposing
    the operations of `fun`.

    Args:
        fun: a function `fun(residual_args, linear_args)` that is linear in `linear_args`.
        fun_transpose: a function `fun_transpose(residual_args, ct)` that returns a tree with the
            structure of `linear_args`. `ct` is a cotangent with the structure of the result of
            `fun`.
        residual_args: tree of arrays; `fun` need not be linear in them.
        linear_args: tree of arrays; `fun` must be linear in them.

    Returns:
        `fun(residual_args, linear_args)`.

    Raises:
        TypeError: during transposition, the result of `fun_transpose` and `linear_args` have
            different structures.

    Differences:
        Unlike toile, JAX does not differentiate the call with respect to `residual_args`.

    >>> from toile.custom_derivatives import linear_call
    >>> def divide(x, y):
    ...     return linear_call(lambda r, v: v / r, lambda r, ct: ct / r, y, x)
    >>> float(toile.grad(divide)(6.0, 2.0))
    0.5
    """
    args = tree_map(as_array, (residual_args, linear_args))
    if state.trace is None:
        return tree_map(as_array, fun(*args))
    residuals, linear = flatten(args[0])[0], flatten(args[1])[0]
    fixed, moving = [aval_of(x) for x in residuals], [aval_of(x) for x in linear]
    flat = FlatFunction(fun, structure((args, {})))
    program, consts = trace_program(flat, [*fixed, *moving], name_of(fun))

    @functools.cache
    def transposed() -> tuple[Program, list[Any]]:
        out = unflatten(flat.out_tree, [0] * len(program.outputs))
        back = FlatFunction(fun_transpose, structure(((args[0], out), {})))
        made = trace_program(back, [*fixed, *program.out_avals], name_of(fun_transpose))
        if back.out_tree != structure(args[1]):
            raise TypeError(
                "transpose output pytree structure must match that of linear inputs: needed "
                f"{structure(args[1])}, got {back.out_tree} from {name_of(fun_transpose)}{here()}"
            )
        return made

    op = LinearCall(program, name_of(fun), transposed, len(consts), len(residuals))
    return unflatten(flat.out_tree, op(*consts, *residuals, *linear))
