"""Functions whose results solve an equation: custom_linear_solve and custom_root.

The derivatives come from the equation, not from the solver. This module may import all layers below
`lax`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from toile.api import custom_jvp, jvp, linear_transpose
from toile.control.linear_solve import LinearSolve
from toile.engine import dtypes
from toile.engine.annotations import PyTree
from toile.engine.avals import aval_of
from toile.engine.errors import TreeStructureError
from toile.engine.program import Program, Var, evaluate
from toile.engine.source import here
from toile.engine.trees import flatten, structure, tree_map, unflatten
from toile.lax._traced_functions import flat_arrays, leaf, stage
from toile.primitives.families import neg, zeros

__all__ = ["custom_linear_solve", "custom_root"]


def custom_root(f: Callable[[Any], Any], initial_guess: PyTree, solve: Callable[..., Any],
                tangent_solve: Callable[..., Any], has_aux: bool = False) -> PyTree:
    """Find a root of a function, using a solver that need not be differentiable.

    The derivatives come from the implicit function theorem, so `solve` may iterate in any way, for
    example with `while_loop`. If `f` uses a value `a` from the surrounding code, the derivative of
    the root `x` with respect to `a` is `-(df/dx)**-1 * df/da`, which is computed by calling
    `tangent_solve`.

    Args:
        f: the function whose root is sought. It is called with `x` and returns a tree with the
            structure and shapes of `x`.
        initial_guess: the starting point of the search: an array or number, or a tree of arrays and
            numbers.
        solve: a function `solve(f, initial_guess)` that returns the root.
        tangent_solve: a function `tangent_solve(g, y)` that returns the solution `z` of `g(z) = y`,
            where the linear function `g` is the derivative of `f` at the root. For scalars, the
            solution is `y / g(1.0)`.
        has_aux: whether `solve` returns a pair `(root, aux)`. The auxiliary output `aux` is not
            differentiated.

    Returns:
        The root, or the pair `(root, aux)` if `has_aux` is True.

    Compute a square root by Newton's method, and its derivative `1 / (2 * sqrt(a))`:

    >>> def square_root(a):
    ...     def newton(f, x):
    ...         return lax.fori_loop(0, 10, lambda i, x: x - f(x) / (2 * x), x)
    ...     return lax.custom_root(lambda x: x * x - a, a, newton, lambda g, y: y / g(1.0))
    >>> toile.value_and_grad(square_root)(4.0)
    (Array(2., dtype=float32, weak_type=True), Array(0.25, dtype=float32, weak_type=True))
    """
    guess, tree = flat_arrays(initial_guess)
    avals = [aval_of(g) for g in guess]
    in_tree = structure((initial_guess,))
    f_program, f_consts, f_tree = stage(f, in_tree, avals)
    _check_tree("f", f_tree, "initial_guess", tree)
    s_program, s_consts, s_tree = stage(lambda x: solve(f, x), in_tree, avals)
    _check_tree("solve", _without_aux(s_tree, has_aux), "initial_guess", tree)

    # Staged, because the functions may use values that the caller is differentiating: these become
    # operands, of which the rule below receives the primal values.
    t_program, t_consts, t_tree = stage(
        lambda x, y: tangent_solve(lambda v: jvp(f, (x,), (v,))[1], y),
        structure((initial_guess, initial_guess)), avals * 2)
    _check_tree("tangent_solve", t_tree, "x", tree)

    def g(consts: Any, x: Any) -> Any:
        return unflatten(f_tree, evaluate(f_program, [*consts, *flatten(x)[0]]))

    @custom_jvp
    def root(consts: Any, solver_consts: Any, tangent_consts: Any, start: Any) -> Any:
        outs = evaluate(s_program, [*solver_consts, *flatten(start)[0]])
        return unflatten(s_tree, outs)

    @root.defjvp
    def root_jvp(primals: Any, tangents: Any) -> Any:
        consts, solver_consts, tangent_consts, start = primals
        result = root(consts, solver_consts, tangent_consts, start)
        x, aux = result if has_aux else (result, None)
        _, df = jvp(lambda c: g(c, x), (consts,), (tangents[0],))
        operands = [*tangent_consts, *flatten((x, df))[0]]
        dx = unflatten(t_tree, [neg(d) for d in evaluate(t_program, operands)])
        return result, (dx, tree_map(_zero_tangent, aux)) if has_aux else dx

    return root(f_consts, s_consts, t_consts, unflatten(tree, guess))


def _check_tree(name: str, found: Any, like: str, needed: Any) -> None:
    if found != needed:
        raise TreeStructureError(f"{name}() output pytree structure must match {like}, got {found} "
                                 f"and {needed}.{here()}")


def _without_aux(tree: Any, has_aux: bool) -> Any:
    """The structure of the solution, without the auxiliary output that a solver may return."""
    return tree.children()[0] if has_aux and tree.children() else tree


def _check_like_b(name: str, found: Any, outs: Sequence[Any], tree: Any, avals: Any) -> None:
    """Raise unless a function of `custom_linear_solve` returns a value like its right-hand side."""
    shapes, needed = [a.shape for a in outs], [a.shape for a in avals]
    if shapes != needed:
        raise ValueError(f"{name}() output shapes must match b, got {shapes} and {needed} (needed "
                         f"the structure and shapes of b from {name}){here()}")
    _check_tree(name, found, "b", tree)


def _zero_tangent(x: Any) -> Any:
    aval = aval_of(x).to_tangent_aval()
    return np.zeros(aval.shape, dtypes.float0) if aval.dtype == dtypes.float0 else zeros(aval)


def custom_linear_solve(matvec: Callable[[Any], Any], b: PyTree, solve: Callable[..., Any],
                        transpose_solve: Callable[..., Any] | None = None, symmetric: bool = False,
                        has_aux: bool = False) -> PyTree:
    """Solve a linear system `matvec(x) = b`, using a solver that need not be differentiable.

    The derivatives are themselves solutions of linear systems: `solve` computes them in forward
    mode, and `transpose_solve` computes them in reverse mode.

    Args:
        matvec: a linear function of `x`. It returns a tree with the structure and shapes of `b`.
        b: the right-hand side: an array or number, or a tree of arrays and numbers.
        solve: a function `solve(matvec, b)` that returns the solution `x`.
        transpose_solve: a function `transpose_solve(vecmat, b)` that returns the solution `x` of
            the transposed system `vecmat(x) = b`, where `vecmat` is the transpose of `matvec`.
            Reverse mode (`toile.grad`) requires this function, unless `symmetric` is True.
        symmetric: whether `matvec` equals its transpose. If True and `transpose_solve` is None,
            `solve` also solves the transposed system.
        has_aux: whether `solve` and `transpose_solve` return a pair `(x, aux)` of the solution and
            an auxiliary output.

    Returns:
        The solution or, if `has_aux` is True, the pair `(x, aux)` that `solve` returns.

    Solve a system by conjugate gradients; the symmetric matrix is given only as a function:

    >>> from toile.scipy.sparse.linalg import cg
    >>> def solve(scale, b):
    ...     matvec = lambda x: scale * jnp.array([2 * x[0] + x[1], x[0] + 3 * x[1]])
    ...     return lax.custom_linear_solve(matvec, b, lambda f, b: cg(f, b)[0], symmetric=True)
    >>> solve(1.0, jnp.array([3.0, 4.0])).round(4)
    Array([1., 1.], dtype=float32)
    >>> toile.grad(lambda scale: solve(scale, jnp.array([3.0, 4.0])).sum())(1.0).round(4)
    Array(-2., dtype=float32, weak_type=True)
    """
    if transpose_solve is None and symmetric:
        transpose_solve = solve
    leaves, tree = flat_arrays(b)
    avals = [aval_of(x).strip_weak_type() for x in leaves]
    in_tree = structure((b,))
    transposed = linear_transpose(matvec, unflatten(tree, leaves))
    vecmat = matvec if symmetric else (lambda v: transposed(v)[0])
    first = stage(matvec, in_tree, avals)
    _check_like_b("matvec", first[2], first[0].out_avals, tree, avals)
    functions = [None, lambda v: solve(matvec, v), None]
    if transpose_solve is not None:
        functions[0] = vecmat
        functions[2] = lambda v: transpose_solve(vecmat, v)
    staged = [first, *[None if fn is None else stage(fn, in_tree, avals) for fn in functions]]
    solver = staged[2]
    assert solver is not None
    for name, found in (("solve", solver), ("transpose_solve", staged[3])):
        if found is not None:
            x_tree = _without_aux(found[2], has_aux)
            _check_like_b(name, x_tree, found[0].out_avals[: x_tree.num_leaves], tree, avals)
    consts = [c for s in staged if s is not None for c in s[1]]
    forward, backward, solved, solved_back = _with_shared_consts(staged, consts)
    op = LinearSolve(forward, backward, solved, solved_back, len(consts), len(leaves))
    outs = op(*consts, *[leaf(x) for x in leaves])
    return unflatten(solver[2], outs)


def _with_shared_consts(staged: Sequence[Any], consts: Sequence[Any]) -> list[Any]:
    """The programs, changed to take the closed-over values of all programs as first inputs."""
    made: list[Any] = []
    start = 0
    for s in staged:
        if s is None:
            made.append(None)
            continue
        program, own, _ = s
        shared = [Var(aval_of(c)) for c in consts]
        shared[start : start + len(own)] = program.inputs[: len(own)]
        start += len(own)
        made.append(Program([*shared, *program.inputs[len(own) :]], program.equations,
                            program.outputs, program.name))
    return made
