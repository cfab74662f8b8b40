"""Derivatives as linear maps: jvp, vjp, linearize, linear_transpose.

Arguments are flattened and checked here; the work is done by the traces of `toile.transforms`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar, overload

import numpy as np

from toile.api.autodiff import aux_pair, check_callable, check_reduce_axes, weakened
from toile.api.cotangents import Directed, NotNeeded, directed
from toile.engine import dtypes
from toile.engine.annotations import PyTree
from toile.engine.avals import Aval, Zero, aval_of
from toile.engine.conversion import as_array
from toile.engine.program import evaluate, trace_program
from toile.engine.refs import is_ref, value_avals
from toile.engine.source import here
from toile.engine.trees import (
    Partial,
    PyTreeDef,
    flatten,
    register,
    structure,
    unflatten,
)
from toile.parallel.varying_values import shared
from toile.primitives.elementwise import convert
from toile.primitives.families import instantiate
from toile.staging.flat_functions import FlatFunction, name_of
from toile.transforms.jvp import jvp_flat
from toile.transforms.linearize import Tape, linearize_flat, record_linear, tape_to_program
from toile.transforms.transpose import backward

R = TypeVar("R")
Aux = TypeVar("Aux")


@overload
def jvp(
    fun: Callable[..., R], primals: Sequence[Any], tangents: Sequence[Any],
    has_aux: Literal[False] = False,
) -> tuple[R, R]: ...
@overload
def jvp(
    fun: Callable[..., tuple[R, Aux]], primals: Sequence[Any], tangents: Sequence[Any],
    has_aux: Literal[True],
) -> tuple[R, R, Aux]: ...
@overload
def jvp(
    fun: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any], has_aux: bool = False
) -> tuple[Any, ...]: ...
def jvp(
    fun: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any], has_aux: bool = False
) -> tuple[Any, ...]:
    """Compute a function's value and its derivative in a given direction, in one forward pass.

    Args:
        fun: a function whose arguments are arrays or trees of arrays.
        primals: the arguments, as a tuple or a list.
        tangents: the direction: for each argument, a value with the same structure, shapes and
            dtypes. Tangents of integers must be zeros of dtype `float0`.
        has_aux: whether `fun` returns a pair `(result, aux)`; `aux` is not differentiated.

    Returns:
        The pair `(value, tangent)`, both with the structure of the result; if `has_aux` is True,
        the tuple `(value, tangent, aux)`.

    Raises:
        TypeError: `tangents` and `primals` differ in structure, shape or dtype.

    >>> toile.jvp(jnp.sin, (0.0,), (2.0,))
    (Array(0., dtype=float32, weak_type=True), Array(2., dtype=float32, weak_type=True))
    """
    check_callable("jvp", fun)
    if not isinstance(primals, (tuple, list)) or not isinstance(tangents, (tuple, list)):
        raise TypeError(
            "primal and tangent arguments to jax.jvp must be tuples or lists; found "
            f"{type(primals).__name__} and {type(tangents).__name__}. (Pass (x,) for one "
            f"argument){here()}"
        )
    xs, in_tree = flatten(primals)
    ts, t_tree = flatten(tangents)
    if in_tree != t_tree:
        raise TypeError(
            "primal and tangent arguments to jax.jvp must have the same tree structure; primals "
            f"have tree structure {in_tree} whereas tangents have tree structure {t_tree}{here()}"
        )
    ts = [_tangent_of(x, t) for x, t in zip(xs, ts, strict=True)]
    flat = _FlatWithAux(fun, in_tree, has_aux)
    outs, douts = jvp_flat(flat, [as_array(x) for x in xs], ts)
    n = flat.count
    value = unflatten(flat.out_tree, [as_array(o) for o in outs[:n]])
    tangent = unflatten(
        flat.out_tree, [_tangent_out(o, d) for o, d in zip(outs[:n], douts[:n], strict=True)]
    )
    return (value, tangent, unflatten(flat.aux_tree, outs[n:])) if has_aux else (value, tangent)


class _FlatWithAux:
    """`fun(*args)` as a function of leaves; it may return auxiliary data besides its result.

    `count` is the number of leaves of the result, which come first."""

    __slots__ = ("fun", "in_tree", "has_aux", "count", "out_tree", "aux_tree")
    out_tree: PyTreeDef
    aux_tree: PyTreeDef

    def __init__(self, fun: Callable[..., Any], in_tree: Any, has_aux: bool):
        self.fun, self.in_tree, self.has_aux = fun, in_tree, has_aux
        self.count = 0

    def __call__(self, *leaves: Any) -> list[Any]:
        out = self.fun(*unflatten(self.in_tree, leaves))
        aux_leaves: list[Any] = []
        if self.has_aux:
            out, aux = aux_pair(out, self.fun)
            aux_leaves, self.aux_tree = flatten(aux)
        out_leaves, self.out_tree = flatten(out)
        self.count = len(out_leaves)
        return [*out_leaves, *aux_leaves]


def _tangent_out(out: Any, d: Any) -> Any:
    aval = aval_of(out)
    if not dtypes.is_inexact(aval.dtype):
        return np.zeros(aval.shape, dtypes.float0)
    return weakened(instantiate(d), aval.weak_type)


def _all_as_weak(given: Sequence[Any], avals: Sequence[Aval]) -> bool:
    """Whether the (co)tangents are weakly typed wherever their primals are."""
    return all(aval_of(g).weak_type for g, a in zip(given, avals, strict=True) if a.weak_type)


def _tangent_of(x: Any, t: Any) -> Any:
    """A user's tangent, checked against its primal."""
    aval, got = aval_of(x), aval_of(t)
    wanted = aval.to_tangent_aval()
    if got.dtype == dtypes.float0 and wanted.dtype == dtypes.float0:
        return Zero(x)
    if got.dtype != wanted.dtype:
        raise TypeError(
            "primal and tangent arguments to jax.jvp do not match; dtypes must be equal, or in "
            "case of int/bool primal dtype the tangent dtype must be float0. Got primal dtype "
            f"{dtypes.name_of(aval.dtype)} and so expected tangent dtype "
            f"{dtypes.name_of(wanted.dtype)}, but got tangent dtype {dtypes.name_of(got.dtype)} "
            "instead" + here()
        )
    if got.shape != aval.shape:
        raise ValueError(
            f"jvp called with different primal and tangent shapes;Got primal shape {aval.shape} "
            f"and tangent shape as {got.shape}: needed {wanted.str_short()}, got {got.str_short()} "
            f"(give each primal a tangent of the same shape){here()}"
        )
    return convert(as_array(t), wanted.dtype, got.weak_type and aval.weak_type)


class VJPFunction:
    """The pullback that `vjp` returns; a pytree whose leaves are the residuals.

    Attributes:
        args_res: list with the arguments that the pullback needs, as nested tuples; `NotNeeded()`
            stands for the others. You can remove values, and must restore them before the call.
        opaque_residuals: list of the other values that the pullback needs.
    """

    __slots__ = ("tape", "in_avals", "in_tree", "out_avals", "out_tree", "moving", "linear",
                 "label", "leaves", "saved")

    def __init__(self, tape: Tape | None, in_avals: Any, in_tree: Any, out_avals: Any,
                 out_tree: Any, moving: Any, label: str, leaves: Any = (), linear: Any = None,
                 saved: Any = None):
        self.tape, self.in_avals, self.in_tree = tape, in_avals, in_tree
        self.out_avals, self.out_tree, self.moving, self.label = out_avals, out_tree, moving, label
        self.leaves = leaves  # weak references to the arguments
        self.linear = linear  # (Program, position of each residual, mask of its outputs)
        self.saved = saved  # `args_res` and `opaque_residuals`, flattened

    def __call__(self, *cotangents: Any) -> Any:
        if len(cotangents) != 1:
            raise TypeError(
                f"The function returned by `jax.vjp` applied to {self.label} was called with "
                f"{len(cotangents)} arguments: needed one, a cotangent for what {self.label} "
                f"returns (for several results pass one tuple, as in f_vjp((a, b))){here()}"
            )
        cts, tree = flatten(cotangents[0])
        if tree != self.out_tree:
            raise ValueError(
                "unexpected tree structure. Tree structure of cotangent input to vjp function: got "
                f"{tree}, does not match that of the result of {self.label}, {self.out_tree}"
                f"{here()}"
            )
        weak = _all_as_weak(cts, self.out_avals)
        cts = [_cotangent_of(c, a) for c, a in zip(cts, self.out_avals, strict=True)]
        if self.tape is not None:
            found = iter(backward(self.tape, cts))
        else:
            (program, _, present), residuals = self.linear, self.residuals()
            live = [c for c, p in zip(cts, present, strict=True) if p]
            n = len(residuals)
            _, tape = record_linear(
                lambda *xs: evaluate(program, [*residuals, *xs]), program.in_avals[n:]
            )
            found = iter(backward(tape, live))
        outs = [
            weakened(instantiate(next(found)), weak and a.weak_type) if m
            else np.zeros(a.shape, dtypes.float0)
            for a, m in zip(self.in_avals, self.moving, strict=True)
        ]
        return unflatten(self.in_tree, outs)

    def with_refs(self, *wishes: Any) -> Directed:
        """Choose for each cotangent whether it is returned, added to a Ref, or omitted."""
        return directed(self, wishes, self.in_tree)

    @property
    def args_res(self) -> list[Any]:
        return self._parts()[0]

    @args_res.setter
    def args_res(self, values: Sequence[Any]) -> None:
        self._parts()[0] = values

    @property
    def opaque_residuals(self) -> list[Any]:
        return self._parts()[1]

    def _parts(self) -> list[Any]:
        """The residuals for a caller that may change them, after which the tape is not valid."""
        self.flattened()
        self.tape = None
        return self.saved

    def residuals(self) -> list[Any]:
        """The residuals in the order of the Program's arguments."""
        self.flattened()
        args_res, opaque = self.saved
        args, others = flatten(args_res, lambda x: isinstance(x, NotNeeded))[0], iter(opaque)
        return [next(others) if i is None else args[i] for i in self.linear[1]]

    def flattened(self) -> tuple[list[Any], Any]:
        if self.saved is None:
            assert self.tape is not None
            present = [self.tape.is_linear(o) for o in self.tape.outputs] if any(self.moving) else [
                False
            ] * len(self.tape.outputs)
            outputs = [o for o, p in zip(self.tape.outputs, present, strict=True) if p]
            program, residuals = tape_to_program(self.tape, outputs, literals=False)
            given = {id(leaf()): i for i, leaf in enumerate(self.leaves)}
            places = tuple([given.get(id(r)) for r in residuals])
            needed = {i: r for i, r in zip(places, residuals, strict=True) if i is not None}
            args = self.in_tree.walk(
                lambda children, _: tuple(children),
                lambda i: needed.get(i, NotNeeded()), range(self.in_tree.num_leaves),
            )
            opaque = [r for i, r in zip(places, residuals, strict=True) if i is None]
            self.linear, self.saved = (program, places, tuple(present)), [list(args), opaque]
        program, places, present = self.linear
        aux = (program, places, present, tuple(self.in_avals), self.in_tree, tuple(self.out_avals),
               self.out_tree, tuple(self.moving), self.label)
        return self.saved, aux


def _unflatten_vjp(aux: Any, saved: Any) -> VJPFunction:
    program, places, present, in_avals, in_tree, out_avals, out_tree, moving, label = aux
    return VJPFunction(None, in_avals, in_tree, out_avals, out_tree, moving, label,
                       linear=(program, places, present), saved=list(saved))


register(VJPFunction, lambda f: f.flattened(), _unflatten_vjp)


def _cotangent_of(ct: Any, aval: Aval) -> Any:
    """A user's cotangent, checked against the result's aval."""
    got = aval_of(ct)
    wanted = aval.to_tangent_aval()
    if wanted.dtype == dtypes.float0:
        return Zero(aval)
    if got.shape != aval.shape:
        raise ValueError(
            "unexpected JAX type (e.g. shape/dtype) for argument to VJP function. Shape of "
            f"cotangent input to vjp pullback function ({got.shape}) must be the same as the shape "
            f"of corresponding primal input ({aval.shape}): needed {wanted.str_short()}, got "
            f"{got.str_short()} (start from jnp.ones_like(output)){here()}"
        )
    if got.dtype != wanted.dtype:
        raise ValueError(
            "unexpected JAX type (e.g. shape/dtype) for argument to VJP function. Type of "
            f"cotangent input to vjp pullback function ({got.str_short()}) is not the expected "
            f"tangent type ({wanted.str_short()}) of corresponding primal output with type "
            f"{aval.str_short()} (convert it with .astype){here()}"
        )
    return convert(as_array(ct), wanted.dtype)


@overload
def vjp(
    fun: Callable[..., R], *primals: PyTree, has_aux: Literal[False] = False,
    reduce_axes: Sequence[Any] = (),
) -> tuple[R, VJPFunction]: ...
@overload
def vjp(
    fun: Callable[..., tuple[R, Aux]], *primals: PyTree, has_aux: Literal[True],
    reduce_axes: Sequence[Any] = (),
) -> tuple[R, VJPFunction, Aux]: ...
@overload
def vjp(
    fun: Callable[..., Any], *primals: PyTree, has_aux: bool = False,
    reduce_axes: Sequence[Any] = (),
) -> Any: ...
def vjp(
    fun: Callable[..., Any], *primals: PyTree, has_aux: bool = False,
    reduce_axes: Sequence[Any] = ()
) -> Any:
    """Compute a function's value, and return a function that computes cotangents of the arguments.

    `grad` accepts only functions that return a single number; `vjp` accepts functions with any
    result.

    Args:
        fun: a function whose arguments are arrays or trees of arrays.
        *primals: the arguments at which `fun` is evaluated.
        has_aux: whether `fun` returns a pair `(result, aux)`; `aux` is not differentiated.
        reduce_axes: must be empty; accepted for compatibility with JAX.

    Returns:
        The pair `(value, pullback)`; if `has_aux` is True, the tuple `(value, pullback, aux)`.
        `pullback(ct)` expects a cotangent with the structure of `value`, and returns a tuple with
        one cotangent for each argument.

    >>> y, pullback = toile.vjp(lambda x: x * jnp.arange(3.0), 2.0)
    >>> pullback(jnp.ones(3))
    (Array(3., dtype=float32, weak_type=True),)
    """
    check_reduce_axes("vjp", reduce_axes)
    check_callable("vjp", fun)
    leaves, in_tree = flatten(primals)
    flat = _FlatWithAux(fun, in_tree, has_aux)
    avals = value_avals(leaves)
    moving = [dtypes.is_inexact(a.dtype) and not is_ref(x)
              for x, a in zip(leaves, avals, strict=True)]
    leaves = [x if is_ref(x) else as_array(x) for x in leaves]
    outs, tape = linearize_flat(shared(flat, leaves), leaves, moving)
    n = flat.count
    results = [as_array(o) for o in outs[:n]]
    tape.outputs = tape.outputs[:n]
    function = VJPFunction(tape, avals, in_tree, [aval_of(o) for o in results], flat.out_tree,
                           moving, name_of(fun), [weakref.ref(x) for x in leaves])
    value = unflatten(flat.out_tree, results)
    if has_aux:
        return value, function, unflatten(flat.aux_tree, outs[n:])
    return value, function


@overload
def linearize(
    fun: Callable[..., R], *primals: PyTree, has_aux: Literal[False] = False
) -> tuple[R, Callable[..., R]]: ...
@overload
def linearize(
    fun: Callable[..., tuple[R, Aux]], *primals: PyTree, has_aux: Literal[True]
) -> tuple[R, Callable[..., R], Aux]: ...
@overload
def linearize(fun: Callable[..., Any], *primals: PyTree, has_aux: bool = False) -> Any: ...
def linearize(fun: Callable[..., Any], *primals: PyTree, has_aux: bool = False) -> Any:
    """Compute a function's value at a point, and return its derivative there as a linear function.

    `jvp` evaluates the function again for each direction. `linearize` evaluates it once, and the
    derivative can then be applied to many directions.

    Args:
        fun: a function whose arguments are arrays or trees of arrays.
        *primals: the point: one value for each argument.
        has_aux: whether `fun` returns a pair `(result, aux)`; `aux` is not differentiated.

    Returns:
        The pair `(value, derivative)`; if `has_aux` is True, the tuple `(value, derivative, aux)`.
        `derivative(*tangents)` expects one tangent for each argument. `derivative` is a pytree
        whose leaves are the values that it stores.

    >>> y, derivative = toile.linearize(jnp.sin, 0.0)
    >>> derivative(2.0)
    Array(2., dtype=float32, weak_type=True)
    """
    check_callable("linearize", fun)
    if has_aux:
        value, pullback, aux = vjp(fun, *primals, has_aux=True)
    else:
        value, pullback = vjp(fun, *primals)
    residuals = pullback.residuals()
    f_jvp = Partial(_Linearized(pullback), residuals)
    return (value, f_jvp, aux) if has_aux else (value, f_jvp)


class _Linearized:
    """A derivative as a function of its residuals and tangents; compared by identity."""

    __slots__ = ("program", "present", "in_avals", "in_tree", "out_avals", "out_tree", "moving")

    def __init__(self, pullback: VJPFunction):
        self.program, _, self.present = pullback.linear
        self.in_avals, self.in_tree = pullback.in_avals, pullback.in_tree
        self.out_avals, self.out_tree = pullback.out_avals, pullback.out_tree
        self.moving = pullback.moving

    def __call__(self, residuals: Sequence[Any], *tangents: Any) -> Any:
        ts, tree = flatten(tangents)
        if tree != self.in_tree:
            raise TypeError(
                f"linearized function: needed tangents of structure {self.in_tree}, got "
                f"{tree}{here()}"
            )
        for t, a in zip(ts, self.in_avals, strict=True):
            got, want = aval_of(t), a.to_tangent_aval()
            if got.shape != want.shape or got.dtype != want.dtype:
                raise ValueError(
                    "linearized function called on tangent values inconsistent with the original "
                    f"primal values: got tangent {got.str_short()} for primal "
                    f"{a.str_short()} (linearize again for other shapes){here()}"
                )
        live = [as_array(t) for t, m in zip(ts, self.moving, strict=True) if m]
        weak = _all_as_weak(ts, self.in_avals)
        outs = iter(evaluate(self.program, [*residuals, *live]))
        found = [
            weakened(next(outs), weak and a.weak_type) if p else _tangent_out(a, Zero(a))
            for p, a in zip(self.present, self.out_avals, strict=True)
        ]
        return unflatten(self.out_tree, found)


def linear_transpose(
    fun: Callable[..., Any], *primals: PyTree, reduce_axes: Sequence[Any] = ()
) -> Callable[..., tuple[PyTree, ...]]:
    """Return the transpose of a linear function.

    If `fun` multiplies its argument by a matrix, the returned function multiplies its argument by
    the transposed matrix.

    Args:
        fun: a function that is linear in all of its arguments together, such as `x + 2 * y`; a
            product `x * y` of two arguments is not.
        *primals: example arguments, or `ShapeDtypeStruct` objects; only their shapes and dtypes are
            used.
        reduce_axes: must be empty; accepted for compatibility with JAX.

    Returns:
        A function that maps a cotangent of the result to a tuple of cotangents of the arguments.
        This function is a pytree whose leaves are the values that `fun` closes over.

    Raises:
        TypeError: `fun` maps integers to floats or floats to integers.

    >>> transposed = toile.linear_transpose(lambda x: 3 * x, 1.0)
    >>> transposed(2.0)
    (Array(6., dtype=float32, weak_type=True),)
    """
    check_reduce_axes("linear_transpose", reduce_axes)
    leaves, in_tree = flatten(primals)
    avals = [aval_of(x) for x in leaves]
    flat = FlatFunction(lambda *args: fun(*args), structure((primals, {})))
    program, consts = trace_program(flat, avals, name_of(fun))
    kinds = {dtypes.is_inexact(a.dtype) for a in (*avals, *program.out_avals)}
    if len(kinds) > 1:
        raise TypeError(
            "linear_transpose only supports [float or complex] -> [float or complex], and integer "
            f"-> integer functions, but got {[a.str_short() for a in avals]} -> "
            f"{[a.str_short() for a in program.out_avals]} for {name_of(fun)}{here()}"
        )
    return Partial(_Transposed(program, in_tree, flat.out_tree), consts)


class _Transposed:
    """A transpose, called with the values that the linear function closes over, then cotangents."""

    __slots__ = ("program", "in_tree", "out_tree")

    def __init__(self, program: Any, in_tree: Any, out_tree: Any):
        self.program, self.in_tree, self.out_tree = program, in_tree, out_tree

    def __call__(self, consts: Sequence[Any], cotangents: Any) -> Any:
        program = self.program
        cts, tree = flatten(cotangents)
        if tree != self.out_tree:
            raise TypeError(
                f"cotangent tree does not match function output, expected {self.out_tree} but got "
                f"{tree}{here()}"
            )
        for c, a in zip(cts, program.out_avals, strict=True):
            got = aval_of(c)
            if got.shape != a.shape or got.dtype != a.dtype:
                raise TypeError(
                    "cotangent type does not match function output, expected "
                    f"{a.str_short()} but got {got.str_short()}{here()}"
                )
        avals = program.in_avals[len(consts) :]
        _, tape = record_linear(lambda *xs: evaluate(program, [*consts, *xs]), avals)
        found = backward(tape, [as_array(c) for c in cts])
        outs = [weakened(instantiate(f), a.weak_type) if isinstance(f, Zero) else instantiate(f)
                for f, a in zip(found, avals, strict=True)]
        return unflatten(self.in_tree, outs)
