"""vmap, and the derivatives that are built from it: jacfwd, jacrev and hessian.

`in_axes` and `out_axes` are prefixes of the trees of arguments and results. This module may import
all layers below `api`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from typing import Any, ParamSpec, TypeVar

import numpy as np

from toile.api.autodiff import check_callable, check_inputs, documented
from toile.api.linear_maps import jvp, vjp
from toile.engine import dtypes
from toile.engine.annotations import PyTree
from toile.engine.avals import aval_of
from toile.engine.conversion import as_array, leaving
from toile.engine.errors import axis_error
from toile.engine.refs import Ref, check_aliases, store, value_of
from toile.engine.source import describe, here
from toile.engine.trees import (
    broadcast_prefix,
    flatten,
    structure,
    tree_map,
    unflatten,
)
from toile.primitives.bits import eq
from toile.primitives.elementwise import convert
from toile.primitives.families import bdim_at, broadcast_in_dim, reshape, scalar, sub
from toile.primitives.shapes import iota, slice_axis
from toile.staging.flat_functions import (
    FlatFunction,
    argnums_of,
    argument_labels,
    check_axes,
    given_argnums,
    is_index,
    name_of,
    prefix_error,
)
from toile.transforms.vmap import vmap_flat

P = ParamSpec("P")
R = TypeVar("R")

# Classes of tree nodes that state the shape of their leaves, and their functions `removed(node,
# axis)` and `inserted(node, axis, size)`: a node whose leaves lack or have a mapped axis.
_shaped_nodes: dict[type, tuple[Callable[..., Any], Callable[..., Any]]] = {}


def register_shaped_node(
    cls: type, removed: Callable[[Any, int], Any], inserted: Callable[[Any, int, int], Any]
) -> None:
    """Let `vmap` adapt the static fields of a class of tree nodes to the mapped axis."""
    _shaped_nodes[cls] = removed, inserted


def _is_shaped(x: Any) -> bool:
    return type(x) in _shaped_nodes


def _adapted(which: int, tree: Any, axes: Any, *size: int) -> Any:
    """A tree whose shaped nodes have been adapted to the mapped axes of their leaves."""
    leaves, treedef = flatten(tree, _is_shaped)
    if not any(map(_is_shaped, leaves)):
        return tree
    dims = broadcast_prefix(axes, unflatten(treedef, [0] * len(leaves)), is_leaf=_is_none)
    return unflatten(treedef, [
        _shaped_nodes[type(x)][which](x, d, *size) if _is_shaped(x) and d is not None else x
        for x, d in zip(leaves, dims, strict=True)])


def _of_example(fun: Callable[..., Any], in_axes: Any, out_axes: Any, size: int) -> Any:
    """`fun`, whose arguments and results have nodes with the shapes of one example."""

    @functools.wraps(fun)
    def run(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = _adapted(0, args, in_axes), _adapted(0, kwargs, 0)
        return _adapted(1, fun(*args, **kwargs), out_axes, size)

    return run


def vmap(
    fun: Callable[P, R],
    in_axes: int | None | Sequence[PyTree] = 0,
    out_axes: PyTree = 0,
    axis_name: Hashable | None = None,
    axis_size: int | None = None,
    spmd_axis_name: Hashable | tuple[Hashable, ...] | None = None,
    sum_match: bool = False,
) -> Callable[P, R]:
    """Turn a function of one example into a function of a batch of examples.

    The batch is an additional axis of the arguments. There is no loop: each operation of the
    function is applied to arrays with this axis.

    Args:
        fun: the function of one example.
        in_axes: the position of the batch axis in the arguments: one integer for all of them, or a
            sequence with one entry for each positional argument. An entry is an integer, None, or a
            tree of integers and Nones. All examples share the arguments for which the entry is
            None. Keyword arguments are mapped over axis 0.
        out_axes: the position of the batch axis in the results: an integer, None for results that
            do not depend on the example, or a tree of integers and Nones.
        axis_name: a name for the batch axis, to which collectives such as `lax.psum` can refer.
        axis_size: the number of examples; required only if no argument is mapped.
        spmd_axis_name: the mesh axis over which the examples are divided in sharded programs.
        sum_match: accepted for compatibility with JAX.

    Returns:
        A function like `fun`, but with the additional batch axis in its mapped arguments and
        results.

    Raises:
        ValueError: the mapped axes have different sizes, or `in_axes` does not fit the arguments;
            raised by the returned function.

    >>> toile.vmap(jnp.dot)(jnp.ones((2, 3)), jnp.ones((2, 3)))
    Array([3., 3.], dtype=float32)
    >>> toile.vmap(lambda x, y: x + y, in_axes=(0, None))(jnp.arange(3), 10)
    Array([10, 11, 12], dtype=int32)
    """
    check_callable("vmap", fun)
    if isinstance(in_axes, list):
        in_axes = tuple(in_axes)
    if not isinstance(in_axes, (tuple, int, type(None))):
        raise TypeError(
            "vmap in_axes must be an int, None, or a tuple of entries corresponding to the "
            f"positional arguments passed to the function, but got {in_axes!r}.{here()}"
        )
    check_axes("vmap", "in_axes", in_axes)
    check_axes("vmap", "out_axes", out_axes)
    text = f"Vectorized version of {name_of(fun)}: its arguments have an additional array axis."
    if getattr(fun, "__doc__", None):
        text += f"\n\nOriginal documentation:\n\n{fun.__doc__}"

    @documented(fun, text)
    def vmap_f(*args: Any, **kwargs: Any) -> Any:
        if isinstance(in_axes, tuple) and len(in_axes) != len(args):
            raise ValueError(
                "vmap in_axes must be an int, None, or a tuple of entries corresponding to the "
                "positional arguments passed to the function, but got "
                f"len(in_axes)={len(in_axes)}, len(args)={len(args)}: in_axes={in_axes} (give one "
                f"entry for each positional argument){here()}"
            )
        leaves, in_tree = flatten((args, kwargs))
        if not leaves and axis_size is None:
            raise ValueError(
                "vmap wrapped function must be passed at least one argument containing an array "
                f"or axis_size must be specified, got empty *args={args} and **kwargs={kwargs}"
                f"{here()}"
            )
        dims = _input_axes(in_axes, args, kwargs)
        refs = mapped_refs(fun, args, kwargs, leaves, dims)
        leaves, dims = _mapped_arrays(leaves, dims, fun)
        size = _mapped_size(fun, args, kwargs, leaves, dims, axis_size)
        run = _of_example(fun, in_axes, out_axes, size) if _shaped_nodes else fun
        flat = FlatFunction(run, in_tree)
        of_values = OfValues(flat, refs)
        outs, found = vmap_flat(of_values, (axis_name, size), leaves, dims)
        n = flat.out_tree.num_leaves
        wanted = [*_output_axes(out_axes, flat.out_tree, outs[:n]),
                  *[dims[i] for i in of_values.changed]]
        placed = [
            leaving(_place(o, d, w, (axis_name, size), fun))
            for o, d, w in zip(outs, found, wanted, strict=True)
        ]
        return unflatten(flat.out_tree, of_values.finished(placed))

    return vmap_f


def _mapped_arrays(
    leaves: Sequence[Any], dims: Sequence[Any], fun: Any
) -> tuple[list[Any], list[int | None]]:
    """The mapped arguments as arrays, and their axes as numbers from 0.

    Unmapped arguments are unchanged: they may be numbers used as shapes, or functions."""
    given = [x if d is None else as_array(value_of(x)) for x, d in zip(leaves, dims, strict=True)]
    return given, [_canonical(d, x, fun) for d, x in zip(dims, given, strict=True)]


def mapped_refs(
    fun: Any, args: Any, kwargs: Any, leaves: Sequence[Any], dims: Sequence[Any]
) -> dict[int, Ref]:
    """The Refs among the mapped leaves of the arguments, by position."""
    if not any(x.__class__ is Ref for x in leaves):
        return {}
    check_aliases(leaves, argument_labels(fun, args, kwargs), name_of(fun), "vmap")
    return {i: x for i, x in enumerate(leaves) if x.__class__ is Ref and dims[i] is not None}


class OfValues:
    """A flat function of which some mapped arguments are Refs, as a function of their values.

    The new values of the Refs that have `changed` follow the results. The results whose positions
    are in `made` are Refs that the function has created."""

    __slots__ = ("flat", "refs", "changed", "made")

    def __init__(self, flat: FlatFunction, refs: dict[int, Ref]):
        self.flat, self.refs = flat, refs
        self.changed: list[int] = []
        self.made: set[int] = set()

    def __call__(self, *xs: Any) -> list[Any]:
        given = list(xs)
        for i in self.refs:
            given[i] = Ref(xs[i])
        outs = self.flat(*given)
        self.changed = [i for i in self.refs if given[i]._value is not xs[i]]
        self.made = {i for i, o in enumerate(outs) if o.__class__ is Ref}
        return [*[as_array(value_of(o)) for o in outs], *[given[i]._read() for i in self.changed]]

    def finished(self, outs: Sequence[Any]) -> list[Any]:
        """Store the new values of Refs; returns the results, with new Refs where there were any."""
        n = len(outs) - len(self.changed)
        store([self.refs[i] for i in self.changed], outs[n:])
        return [Ref(x) if i in self.made else x for i, x in enumerate(outs[:n])]


def _is_none(x: Any) -> bool:
    return x is None


def _input_axes(in_axes: Any, args: Any, kwargs: Any) -> list[Any]:
    """One axis for each leaf of (args, kwargs); keyword arguments are mapped over axis 0."""
    try:
        found = broadcast_prefix(in_axes, args, is_leaf=_is_none)
    except ValueError as e:
        raise prefix_error("vmap in_axes", in_axes, args, _is_none) from e
    return found + [0] * len(flatten(kwargs)[0])


def _canonical(dim: Any, x: Any, fun: Any) -> int | None:
    if dim is None:
        return None
    ndim = len(x.shape)
    if not -ndim <= dim < ndim:
        raise ValueError(
            f"vmap was requested to map its argument along axis {dim}, which implies that its rank "
            f"should be at least {dim + 1 if dim >= 0 else -dim}, but is only {ndim} (its shape is "
            f"{x.shape}): got {describe(aval_of(x))} in {name_of(fun)} (use in_axes=None for "
            f"arguments that are not mapped){here()}"
        )
    return dim % ndim


def _mapped_size(
    fun: Any, args: Any, kwargs: Any, leaves: Sequence[Any], dims: Sequence[int | None],
    axis_size: int | None,
) -> int:
    """The common size of the mapped axes; an error lists all of them."""
    sizes = {x.shape[d] for x, d in zip(leaves, dims, strict=True) if d is not None}
    if axis_size is not None:
        sizes.add(axis_size)
    if len(sizes) == 1:
        return sizes.pop()
    if not sizes:
        raise ValueError(
            "vmap must have at least one non-None value in in_axes: needed an argument to map, or "
            f"axis_size, for {name_of(fun)}{here()}"
        )
    labels = argument_labels(fun, args, kwargs, "kwargs")
    positional = len(flatten(args)[0])
    groups: dict[int, list[str]] = {}
    for i, (label, x, d) in enumerate(zip(labels, leaves, dims, strict=True)):
        if d is not None:
            of = "argument " if i < positional else ""
            text = f"axis {d} of {of}{label} of type {describe(x)}"
            groups.setdefault(x.shape[d], []).append(text)
    lines = [f"  * the `axis_size` argument was {axis_size}"] if axis_size is not None else []
    for most, (n, found) in enumerate(sorted(groups.items(), key=lambda g: -len(g[1]))[:7]):
        if len(found) == 1:
            lines.append(f"  * one axis had size {n}: {found[0]}")
        else:
            count = f"{'some' if most else 'most'} axes ({len(found)} of them)"
            lines.append(f"  * {count} had size {n}, e.g. {found[0]}")
    raise ValueError(
        "vmap got inconsistent sizes for array axes to be mapped:\n" + ";\n".join(lines)
        + "\n(map axes of equal sizes with in_axes, or pass in_axes=None for shared arguments)"
        + here()
    )


def _output_axes(out_axes: Any, out_tree: Any, outs: Sequence[Any]) -> list[Any]:
    if isinstance(out_axes, int) or out_axes is None:
        return [out_axes] * len(outs)
    dummy = unflatten(out_tree, [object()] * len(outs))
    try:
        return broadcast_prefix(out_axes, dummy, is_leaf=_is_none)
    except ValueError as e:
        raise prefix_error("vmap out_axes", out_axes, dummy, _is_none) from e


def _place(out: Any, dim: int | None, wanted: Any, axis: tuple[Any, int], fun: Any) -> Any:
    name, size = axis
    if wanted is None:
        if dim is not None:
            said = f"at vmap out_axes, got axis spec None but output was batched on axis {dim}"
            if name is not None:
                said = f"vmap has mapped output (axis_name={name}) but out_axes is None"
            raise ValueError(
                f"{said}: needed an integer in out_axes for a result of {name_of(fun)} that "
                f"depends on mapped arguments{here()}"
            )
        return out
    rank = out.ndim + (dim is None)
    if not -rank <= wanted < rank:
        raise axis_error(wanted, rank, "vmap out_axes: axis")
    return bdim_at(out, dim, size, wanted % rank)


# ------------------------------------------------------------------------------------ jacobians


def jacfwd(
    fun: Callable[P, Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
) -> Callable[P, PyTree]:
    """Create a function that computes the Jacobian of `fun` column by column, in forward mode.

    The cost grows with the number of elements in the arguments. Forward mode is the better choice
    if the result has more elements than the arguments.

    Args:
        fun: the function.
        argnums: the position, or a sequence of positions, of the arguments to differentiate with
            respect to.
        has_aux: whether `fun` returns a pair `(result, aux)`; `aux` is not differentiated.
        holomorphic: whether `fun` is holomorphic, that is, complex differentiable.

    Returns:
        A function that takes the same arguments as `fun` and returns the Jacobian, or the pair
        `(jacobian, aux)` if `has_aux` is True. The Jacobian is an array of shape
        `result.shape + argument.shape`, or a tree of such arrays if the result or the argument is a
        tree.

    >>> toile.jacfwd(lambda x: x ** 2)(jnp.array([1.0, 2.0]))
    Array([[2., 0.],
           [0., 4.]], dtype=float32)
    """
    check_callable("jacfwd", fun)
    given_argnums(argnums, "jacfwd")

    @documented(fun, f"Jacobian of {name_of(fun)} with respect to positional argument(s) "
                     f"{argnums}. It takes the same arguments and returns the derivatives.")
    def jacobian_f(*args: Any, **kwargs: Any) -> Any:
        chosen, partial = _fixed(fun, argnums, args, kwargs, "jacfwd")
        _check_real("jacfwd", chosen, holomorphic, "inputs")
        pushed = lambda t: jvp(partial, chosen, t, has_aux=has_aux)
        basis = _standard_basis(chosen)
        if has_aux:
            y, jac, aux = vmap(pushed, out_axes=(None, -1, None))(basis)
        else:
            y, jac = vmap(pushed, out_axes=(None, -1))(basis)
        if holomorphic:
            _check_real("jacfwd", y, holomorphic, "outputs")
        tree = chosen if not is_index(argnums) else chosen[0]
        result = tree_map(lambda j, like: _unravel(tree, _typed(j, like), -1), jac, y)
        return (result, aux) if has_aux else result

    return jacobian_f


def jacrev(
    fun: Callable[P, Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
) -> Callable[P, PyTree]:
    """Create a function that computes the Jacobian of `fun` row by row, in reverse mode.

    The cost grows with the number of elements in the result. Reverse mode is the better choice if
    the arguments have more elements than the result.

    Args:
        fun: the function.
        argnums: the position, or a sequence of positions, of the arguments to differentiate with
            respect to.
        has_aux: whether `fun` returns a pair `(result, aux)`; `aux` is not differentiated.
        holomorphic: whether `fun` is holomorphic, that is, complex differentiable.
        allow_int: whether integer arguments may be among `argnums`.

    Returns:
        A function that takes the same arguments as `fun` and returns the Jacobian, or the pair
        `(jacobian, aux)` if `has_aux` is True. The Jacobian is an array of shape
        `result.shape + argument.shape`, or a tree of such arrays if the result or the argument is a
        tree.

    >>> toile.jacrev(lambda x: jnp.array([x.sum(), x.prod()]))(jnp.array([2.0, 3.0]))
    Array([[1., 1.],
           [3., 2.]], dtype=float32)
    """
    check_callable("jacrev", fun)

    @documented(fun, f"Jacobian of {name_of(fun)} with respect to positional argument(s) "
                     f"{argnums}. It takes the same arguments and returns the derivatives.")
    def jacobian_f(*args: Any, **kwargs: Any) -> Any:
        chosen, partial = _fixed(fun, argnums, args, kwargs, "jacrev")
        leaves = flatten(chosen)[0]
        check_inputs("jacrev", fun, leaves, chosen, holomorphic, allow_int)
        if has_aux:
            y, pullback, aux = vjp(partial, *chosen, has_aux=True)
        else:
            y, pullback = vjp(partial, *chosen)
        _check_real("jacrev", y, holomorphic, "outputs")
        jac = vmap(pullback)(_standard_basis(y))
        found = jac[0] if is_index(argnums) else jac
        inputs = chosen[0] if is_index(argnums) else chosen
        by_input = tree_map(lambda j, like: _unravel(y, _typed(j, like), 0), found, inputs)
        result = _transposed(structure(inputs), structure(y), by_input)
        return (result, aux) if has_aux else result

    return jacobian_f


jacobian = jacrev


def hessian(
    fun: Callable[P, Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
) -> Callable[P, PyTree]:
    """Create a function that computes the second derivatives of `fun`: `jacfwd(jacrev(fun))`.

    Args:
        fun: the function, which usually returns a single number.
        argnums: the position, or a sequence of positions, of the arguments to differentiate with
            respect to.
        has_aux: whether `fun` returns a pair `(result, aux)`; `aux` is not differentiated.
        holomorphic: whether `fun` is holomorphic, that is, complex differentiable.

    Returns:
        A function that takes the same arguments as `fun` and returns the Hessian, or the pair
        `(hessian, aux)` if `has_aux` is True. The Hessian has the shape
        `result.shape + argument.shape + argument.shape`.

    >>> toile.hessian(lambda x: x[0] ** 2 * x[1])(jnp.array([1.0, 3.0]))
    Array([[6., 2.],
           [2., 0.]], dtype=float32)
    """
    return jacfwd(jacrev(fun, argnums, has_aux=has_aux, holomorphic=holomorphic), argnums,
                  has_aux=has_aux, holomorphic=holomorphic)


def _fixed(fun: Any, argnums: Any, args: Any, kwargs: Any, what: str) -> tuple[Any, Any]:
    """The chosen arguments, and a function of them alone."""
    nums = argnums_of(argnums, len(args), what)

    def partial(*chosen: Any) -> Any:
        full = list(args)
        for n, value in zip(nums, chosen, strict=True):
            full[n] = value
        return fun(*full, **kwargs)

    return tuple(args[n] for n in nums), partial


def _check_real(what: str, tree: Any, holomorphic: bool, side: str) -> None:
    """Raise an error for values that are not real or, for holomorphic functions, not complex."""
    for x in flatten(tree)[0]:
        dtype = aval_of(x).dtype
        kind, name = dtypes.kind(dtype), dtypes.name_of(dtype)
        if holomorphic and kind != "c":
            raise TypeError(f"{what} with holomorphic=True requires {side} with complex dtype, but "
                            f"got {name}{here()}")
        if not holomorphic and kind != "f":
            raise TypeError(
                f"{what} requires real-valued {side} ({side[:-1]} dtype that is a sub-dtype of "
                f"np.floating), but got {name}. For holomorphic differentiation, pass "
                f"holomorphic=True; for other functions of complex numbers or integers, use "
                f"toile.jvp or toile.vjp{here()}"
            )


def _standard_basis(tree: Any) -> Any:
    """The rows of the identity matrix as trees like `tree`, stacked along axis 0."""
    leaves, treedef = flatten(tree)
    avals = [aval_of(x) for x in leaves]
    total = sum(a.size for a in avals)
    parts = []
    offset = 0
    for a in avals:
        dtype = a.dtype if dtypes.is_inexact(a.dtype) else np.dtype(np.float32)
        block = _identity_block(total, offset, a.size, dtype)
        offset += a.size
        block = reshape(block, (total, *a.shape))
        if not dtypes.is_inexact(a.dtype):
            block = np.zeros((total, *a.shape), dtypes.float0)
        parts.append(block)
    return unflatten(treedef, parts)


def _identity_block(rows: int, offset: int, columns: int, dtype: Any) -> Any:
    """Columns [offset, offset + columns) of the identity matrix."""
    i = broadcast_in_dim(iota(np.int32, (rows,)), (rows, columns), (0,))
    j = broadcast_in_dim(iota(np.int32, (columns,)), (rows, columns), (1,))
    return convert(eq(sub(i, scalar(offset, np.int32)), j), dtype)


def _typed(jac: Any, like: Any) -> Any:
    """Derivatives in the dtype and weak type of a result (forward) or an argument (reverse)."""
    aval, given = aval_of(like), aval_of(jac)
    if given.dtype == dtypes.float0:
        jac = broadcast_in_dim(scalar(0, np.int32), given.shape, ())
    return convert(jac, aval.dtype, aval.weak_type)


def _unravel(tree: Any, x: Any, axis: int) -> Any:
    """Split an axis of `x` into the leaves of `tree`, replacing it by their shapes."""
    leaves, treedef = flatten(tree)
    axis = axis % x.ndim
    parts, start = [], 0
    for leaf in leaves:
        a = aval_of(leaf)
        piece = slice_axis(x, start, start + a.size, axis)
        start += a.size
        parts.append(reshape(piece, (*x.shape[:axis], *a.shape, *x.shape[axis + 1 :])))
    return unflatten(treedef, parts)


def _transposed(outer: Any, inner: Any, tree: Any) -> Any:
    """A tree of trees with the two levels exchanged."""
    columns = [flatten(t)[0] for t in _up_to(outer, tree)]
    rows = [unflatten(outer, row) for row in zip(*columns, strict=True)]
    return unflatten(inner, rows)


def _up_to(treedef: Any, tree: Any) -> list[Any]:
    return treedef.flatten_up_to(tree)

