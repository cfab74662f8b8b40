"""Gradients of functions of trees: grad and value_and_grad.

Arguments are flattened and checked here; the work is done by the traces of `toile.transforms`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, ParamSpec, TypeVar, overload

import numpy as np

from toile.engine import dtypes
from toile.engine.annotations import PyTree
from toile.engine.arrays import Array, DeviceArray
from toile.engine.avals import aval_of
from toile.engine.broadcasts import any_suspects, begin_loss, end_loss
from toile.engine.conversion import as_array
from toile.engine.errors import ConcretizationTypeError
from toile.engine.keypaths import keystr
from toile.engine.source import describe, here
from toile.engine.trace import state
from toile.engine.trees import (
    flatten,
    flatten_with_path,
    unflatten,
)
from toile.parallel.varying_values import shared
from toile.primitives.elementwise import convert
from toile.primitives.families import instantiate, scalar
from toile.staging.flat_functions import argnums_of, dress, given_argnums, is_index, name_of
from toile.transforms.loss_shapes import check_loss
from toile.transforms.remembered import grad_tape
from toile.transforms.transpose import backward

P = ParamSpec("P")
R = TypeVar("R")
Aux = TypeVar("Aux")
Positions = int | Sequence[int]


def documented(fun: Callable[..., Any], text: str) -> Callable[[Any], Any]:
    """A decorator that copies the name and signature of `fun` and sets the docstring to `text`."""

    def wrap(wrapper: Any) -> Any:
        dress(wrapper, fun)
        wrapper.__doc__ = text
        return wrapper

    return wrap


# ------------------------------------------------------------------------------ gradients


@overload
def grad(
    fun: Callable[P, Any], argnums: Positions = 0, has_aux: Literal[False] = False,
    holomorphic: bool = False, allow_int: bool = False, reduce_axes: Sequence[Any] = (),
) -> Callable[P, PyTree]: ...
@overload
def grad(
    fun: Callable[P, tuple[Any, Aux]], argnums: Positions = 0, *, has_aux: Literal[True],
    holomorphic: bool = False, allow_int: bool = False, reduce_axes: Sequence[Any] = (),
) -> Callable[P, tuple[PyTree, Aux]]: ...
@overload
def grad(
    fun: Callable[P, Any], argnums: Positions = 0, has_aux: bool = False,
    holomorphic: bool = False, allow_int: bool = False, reduce_axes: Sequence[Any] = (),
) -> Callable[P, Any]: ...
def grad(
    fun: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    reduce_axes: Sequence[Any] = (),
) -> Callable[..., Any]:
    """Create a function that computes the gradient of `fun`, which must return a scalar.

    The gradient has the structure of the argument: for a tree of parameters, it is a tree of
    gradients.

    Args:
        fun: the function. Its result must be an array of shape `()`, which must be real unless
            `holomorphic` is True.
        argnums: the position, or a sequence of positions, of the arguments to differentiate with
            respect to.
        has_aux: whether `fun` returns a pair `(result, aux)`. Only the result is differentiated;
            `aux`, which may be any tree, is returned with the gradient.
        holomorphic: whether `fun` is holomorphic, that is, complex differentiable. If True, the
            arguments and the result must be complex.
        allow_int: whether integer arguments may be among `argnums`; their gradients are zeros of
            dtype `float0`.
        reduce_axes: must be empty; accepted for compatibility with JAX.

    Returns:
        A function that takes the same arguments as `fun` and returns the gradient, or the pair
        `(gradient, aux)` if `has_aux` is True. The gradient is a tuple if `argnums` is a sequence.

    Raises:
        TypeError: the result of `fun` is not a real scalar, or an argument in `argnums` is an
            integer and `allow_int` is False; raised by the returned function.

    >>> toile.grad(lambda x: x ** 2)(3.0)
    Array(6., dtype=float32, weak_type=True)
    >>> loss = lambda params, x: jnp.sum(params["w"] * x + params["b"])
    >>> toile.grad(loss)({"w": 2.0, "b": 1.0}, jnp.arange(3.0))
    {'b': Array(3., dtype=float32, weak_type=True), 'w': Array(3., dtype=float32, weak_type=True)}
    """
    check_reduce_axes("grad", reduce_axes)
    both = value_and_grad(fun, argnums, has_aux, holomorphic, allow_int)

    @documented(fun, f"Gradient of {name_of(fun)} with respect to positional argument(s) {argnums}."
                     " It takes the same arguments and returns the gradient, shaped like them.")
    def grad_f(*args: Any, **kwargs: Any) -> Any:
        value, g = both(*args, **kwargs)
        return (g, value[1]) if has_aux else g

    return grad_f


@overload
def value_and_grad(
    fun: Callable[P, R], argnums: Positions = 0, has_aux: Literal[False] = False,
    holomorphic: bool = False, allow_int: bool = False, reduce_axes: Sequence[Any] = (),
) -> Callable[P, tuple[R, PyTree]]: ...
@overload
def value_and_grad(
    fun: Callable[P, tuple[R, Aux]], argnums: Positions = 0, *, has_aux: Literal[True],
    holomorphic: bool = False, allow_int: bool = False, reduce_axes: Sequence[Any] = (),
) -> Callable[P, tuple[tuple[R, Aux], PyTree]]: ...
@overload
def value_and_grad(
    fun: Callable[P, Any], argnums: Positions = 0, has_aux: bool = False,
    holomorphic: bool = False, allow_int: bool = False, reduce_axes: Sequence[Any] = (),
) -> Callable[P, Any]: ...
def value_and_grad(
    fun: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    reduce_axes: Sequence[Any] = (),
) -> Callable[..., Any]:
    """Create a function that computes the value and the gradient of `fun` together.

    Args:
        fun: the function. Its result must be an array of shape `()`, which must be real unless
            `holomorphic` is True.
        argnums: the position, or a sequence of positions, of the arguments to differentiate with
            respect to.
        has_aux: whether `fun` returns a pair `(result, aux)`; `aux` is not differentiated.
        holomorphic: whether `fun` is holomorphic, that is, complex differentiable. If True, the
            arguments and the result must be complex.
        allow_int: whether integer arguments may be among `argnums`; their gradients are zeros of
            dtype `float0`.
        reduce_axes: must be empty; accepted for compatibility with JAX.

    Returns:
        A function that takes the same arguments as `fun` and returns the pair `(value, gradient)`,
        or the pair `((value, aux), gradient)` if `has_aux` is True. The gradient is a tuple if
        `argnums` is a sequence.

    >>> toile.value_and_grad(lambda x: x ** 2)(3.0)
    (Array(9., dtype=float32, weak_type=True), Array(6., dtype=float32, weak_type=True))
    """
    check_reduce_axes("grad", reduce_axes)
    check_callable("grad", fun)
    given_argnums(argnums, "grad")

    @documented(fun, f"Value and gradient of {name_of(fun)} with respect to positional argument(s) "
                     f"{argnums}. It takes the same arguments and returns both as a pair.")
    def value_and_grad_f(*args: Any, **kwargs: Any) -> Any:
        nums = argnums_of(argnums, len(args), "grad")
        chosen = tuple(args[n] for n in nums)
        leaves, in_tree = flatten(chosen)
        check_inputs("grad", fun, leaves, chosen, holomorphic, allow_int)
        aux_tree: list[Any] = []

        def flat(*xs: Any) -> list[Any]:
            full = list(args)
            for n, value in zip(nums, unflatten(in_tree, xs), strict=True):
                full[n] = value
            out = fun(*full, **kwargs)
            if has_aux:
                out, aux = aux_pair(out, fun)
                aux_leaves, tree = flatten(aux)
                aux_tree.append(tree)
                return [_scalar_result(out, fun), *aux_leaves]
            return [_scalar_result(out, fun)]

        leaves = [as_array(x) for x in leaves]
        moving = [dtypes.is_inexact(x.dtype) for x in leaves]
        state.read = None
        results, tape = _loss_tape(shared(flat, leaves), leaves, moving)
        if results[0].__class__ is float:
            _check_read(fun, results[0])
        value = results[0] if isinstance(results[0], Array) else as_array(results[0])
        _check_output("grad", fun, value, holomorphic)
        seed = scalar(1, aval_of(value).dtype)
        tape.outputs = tape.outputs[:1]
        found = iter(backward(tape, [seed]))
        grads = [
            instantiate(next(found)) if m else np.zeros(aval_of(x).shape, dtypes.float0)
            for x, m in zip(leaves, moving, strict=True)
        ]
        grads = [weakened(g, aval_of(x).weak_type) for g, x in zip(grads, leaves, strict=True)]
        tree = unflatten(in_tree, grads)
        g = tree[0] if is_index(argnums) else tree
        if has_aux:
            return (value, unflatten(aux_tree[0], results[1:])), g
        return value, g

    return value_and_grad_f


def _check_read(fun: Callable[..., Any], value: float) -> None:
    """Raise if a loss is a number that was read from a tracer, which has no gradient."""
    number, source = state.read or (None, None)
    if number is value:
        raise ConcretizationTypeError(
            "Abstract tracer value encountered where concrete value is expected: needed "
            f"{name_of(fun)} to return an array, got {value!r} of type float, which was read from "
            f"an array and so has no gradient (return the array itself, without float() or .item())"
            f"\n  it was read at {source}{here()}"
        )


def _loss_tape(fun: Callable[..., Any], leaves: Sequence[Any], moving: Sequence[bool]) -> Any:
    """The results and the tape of a loss, which is checked for operands of the wrong shape."""
    before = begin_loss()
    try:
        results, tape = grad_tape(fun, leaves, moving)
        if any_suspects():
            check_loss(tape)
    finally:
        end_loss(before)
    return results, tape


def weakened(g: Any, weak: bool) -> Any:
    """Set whether a derivative is weakly typed; a gradient is weak exactly when its argument is."""
    if g.__class__ is DeviceArray:
        if g.weak_type != weak:
            return DeviceArray(g._data, weak)
        return g
    if isinstance(g, Array) and aval_of(g).weak_type != weak:
        return convert(g, g.dtype, weak)
    return g


def aux_pair(out: Any, fun: Callable[..., Any]) -> tuple[Any, Any]:
    if not isinstance(out, (list, tuple)) or len(out) != 2:
        raise TypeError(
            "expected function with aux output to return a two-element tuple, but got "
            f"{describe(out)}: needed {name_of(fun)} to return (value, aux) because has_aux=True "
            "(leave has_aux out to return the value alone; put several results in one aux tuple)"
            f"{here()}"
        )
    return out[0], out[1]


def _scalar_result(out: Any, fun: Callable[..., Any]) -> Any:
    """The single leaf of a result that must be a scalar."""
    leaves, tree = flatten(out)
    if len(leaves) == 1 and not isinstance(out, (dict, list, tuple)) and leaves[0] is out:
        return out
    raise TypeError(
        f"Gradient only defined for scalar-output functions. Output was {describe(out)}: needed "
        f"{name_of(fun)} to return one array of shape (), got a tree {tree} (return the loss "
        f"alone, or (loss, aux) with has_aux=True){here()}"
    )


def check_callable(what: str, fun: Any) -> None:
    if not callable(fun):
        raise TypeError(
            f"Expected a callable value, got {fun!r}: {what} needed a function, got an object "
            f"of type {type(fun).__name__} (pass the function without calling it: {what}(f), not "
            f"{what}(f(x))){here()}"
        )


def check_reduce_axes(what: str, reduce_axes: Sequence[Any]) -> None:
    if reduce_axes:
        raise NotImplementedError(
            f"reduce_axes argument to {what} is deprecated: needed none, got {reduce_axes} (sum "
            f"the derivatives over the axes with lax.psum){here()}"
        )


def check_inputs(
    what: str, fun: Any, leaves: Sequence[Any], tree: Any, holomorphic: bool, allow_int: bool
) -> None:
    for i, x in enumerate(leaves):
        dtype = x.dtype if x.__class__ is DeviceArray else _leaf_dtype(what, fun, x)
        kind = dtypes.kind(dtype)
        if kind == "f" and not holomorphic:
            continue
        name = _leaf_name(tree, i)
        if holomorphic and kind != "c":
            raise TypeError(
                f"{what} with holomorphic=True requires inputs with complex dtype, but got "
                f"{dtypes.name_of(dtype)} for {name}{here()}"
            )
        if kind in "biuV" and not allow_int:  # V: random keys
            raise TypeError(
                f"{what} requires real- or complex-valued inputs (input dtype that is a sub-dtype "
                f"of np.inexact), but got {dtypes.name_of(dtype)} for {name}. If you want integer "
                "inputs with float0 gradients, pass allow_int=True; else convert it with "
                f".astype(float){here()}"
            )


def _leaf_dtype(what: str, fun: Any, x: Any) -> Any:
    try:
        return aval_of(x).dtype
    except TypeError as e:
        raise TypeError(
            f"Argument {describe(x)} of type {type(x)} is not a valid JAX type: {what} needed "
            f"arrays or numbers to differentiate {name_of(fun)} with respect to (choose other "
            f"argnums){here()}"
        ) from e


def _leaf_name(tree: Any, i: int) -> str:
    path = flatten_with_path(tree)[0][i][0]
    return f"the differentiated argument at {keystr(path)}"


_OTHER_OUTPUTS = (
    "Return a loss that is a float: integers and booleans, such as counts, argmax and accuracy, "
    "have no gradient",
    "For holomorphic differentiation, pass holomorphic=True; for other functions of complex "
    "numbers, use toile.vjp",
)


def _check_output(what: str, fun: Any, value: Any, holomorphic: bool) -> None:
    aval = aval_of(value)
    kind = dtypes.kind(aval.dtype)
    if aval.shape:
        raise TypeError(
            f"Gradient only defined for scalar-output functions. Output had shape: {aval.shape}: "
            f"needed {name_of(fun)} to return an array of shape (), got {aval.str_short()} (reduce "
            f"it with .sum() or .mean(), or use jacrev){here()}"
        )
    if holomorphic and kind != "c":
        raise TypeError(
            f"{what} with holomorphic=True requires outputs with complex dtype, but got "
            f"{dtypes.name_of(aval.dtype)}{here()}"
        )
    if not holomorphic and kind != "f":
        raise TypeError(
            f"{what} requires real-valued outputs (output dtype that is a sub-dtype of "
            f"np.floating), but got {dtypes.name_of(aval.dtype)}. {_OTHER_OUTPUTS[kind == 'c']}"
            f"{here()}"
        )
