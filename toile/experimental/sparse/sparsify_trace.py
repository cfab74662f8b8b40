"""The transformation `sparsify`, which runs functions of arrays on sparse arrays."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from toile.engine.annotations import Array, ArrayLike
from toile.engine.avals import Aval
from toile.engine.conversion import as_array
from toile.engine.operation import Operation
from toile.engine.program import Program, evaluate
from toile.engine.trace import Trace, Tracer, opened, state
from toile.engine.trees import flatten, unflatten
from toile.experimental.sparse.sparse_rules import Rules, unsupported
from toile.experimental.sparse.storage import BatchedStorage, JAXSparse
from toile.primitives.families import Identity
from toile.primitives.rules import frame_rule
from toile.primitives.simplification import operand


class SparseTracer(Tracer):
    """A sparse array inside a function that `sparsify` has transformed.

    Args:
        trace: the trace of the function.
        matrix: the sparse array.
        pattern: an object that all arrays with these indices share; None if no other array has
            these indices.
    """

    __slots__ = ("matrix", "pattern")

    def __init__(self, trace: Trace, matrix: BatchedStorage, pattern: object = None):
        self._trace, self.matrix = trace, matrix
        self.pattern = object() if pattern is None else pattern

    @property
    def aval(self) -> Aval:
        """The shape and dtype of the dense array."""
        matrix = self.matrix
        return Aval(matrix.shape, matrix.dtype, getattr(matrix.data, "weak_type", False))

    def describe(self) -> str:
        return "\n  it is a sparse array (use sparse.todense to convert it)"

    def __repr__(self) -> str:
        return f"SparseTracer[{self.matrix!r}]"


class SparseTrace(Trace):
    """Runs the rules for sparse operands in the parent trace."""

    __slots__ = ()

    def value(self, x: Any) -> Any:
        """A tracer's sparse array; other values are unchanged."""
        return x.matrix if x.__class__ is SparseTracer and x._trace is self else x

    def wrap(self, x: Any, tracers: Sequence[SparseTracer] = ()) -> Any:
        """A sparse array as a tracer, which shares its indices with those it was made from."""
        if not isinstance(x, BatchedStorage):
            return x
        same = [t.pattern for t in tracers if getattr(t.matrix, "indices", None) is x.indices]
        return SparseTracer(self, x, same[0] if same else None)

    def process(self, op: Operation, args: Sequence[Any]) -> Any:
        sparse = [x for x in args if x.__class__ is SparseTracer and x._trace is self]
        values = [self.value(x) for x in args]
        state.trace = self.parent
        try:
            if not sparse:
                return op(*args)
            if op.sparse is None:
                unsupported(op, *values)
            shared = len(args) == 2 == len(sparse) and sparse[0].pattern is sparse[1].pattern
            outs = op.sparse(Rules(_run, shared), *values)
        finally:
            state.trace = self
        return [self.wrap(x, sparse) for x in outs] if op.multiple else self.wrap(outs, sparse)

    def process_custom_jvp(self, call: Any, args: Sequence[Any]) -> list[Any]:
        if any(self.value(x) is not x for x in args):
            return call.run(*args)  # differentiation sees the operations on the buffers
        state.trace = self.parent
        try:
            return call(*args)
        finally:
            state.trace = self

    process_custom_vjp = process_custom_jvp


def _run(program: Program, xs: Sequence[Any]) -> list[Any]:
    """Evaluate a Program with sparse arguments."""
    return _sparsified(lambda *args: evaluate(program, args), xs)


def _sparsified(fun: Callable[..., Sequence[Any]], xs: Sequence[Any]) -> list[Any]:
    trace = SparseTrace(state.trace)
    with opened(trace):
        return [trace.value(x) for x in fun(*map(trace.wrap, xs))]


def _is_sparse(x: Any) -> bool:
    return isinstance(x, BatchedStorage)


def sparsify(f: Callable[..., Any], use_tracer: bool = False) -> Callable[..., Any]:
    """Turn a function of arrays into a function that also accepts sparse arrays.

    The operations of the function use the sparse format where possible. Operations with dense
    results, such as `exp`, raise an error; convert their operands with `sparse.todense` first.

    Args:
        f: function of arrays, or of trees of arrays.
        use_tracer: accepted for compatibility with JAX.

    Returns:
        A function like `f`, whose arguments may be BCOO or BCSR arrays, and whose results may be
        sparse too.

    >>> from toile.experimental import sparse
    >>> f = sparse.sparsify(lambda mat, v: 2 * mat.T @ v)
    >>> mat = sparse.BCOO.fromdense(jnp.arange(12).reshape(3, 4))
    >>> f(mat, jnp.array([3, 4, 2]))
    Array([ 64,  82, 100, 118], dtype=int32)
    """

    @functools.wraps(f)
    def sparsified(*args: Any, **kwargs: Any) -> Any:
        leaves, tree = flatten((args, kwargs), _is_sparse)
        found: list[Any] = []

        def flat(*xs: Any) -> list[Any]:
            args, kwargs = unflatten(tree, xs)
            outs, out_tree = flatten(f(*args, **kwargs), _is_sparse)
            found.append(out_tree)
            return outs

        outs = _sparsified(flat, leaves)
        return unflatten(found[0], outs)

    return sparsified


class ToDense(Identity):
    """The operand, which is dense."""

    forwards_operand = True
    simplified = operand
    sparse = frame_rule("dense")


to_dense = ToDense()


def todense(arr: JAXSparse | ArrayLike) -> Array:
    """Convert an array to a dense array; dense arrays are returned unchanged.

    Args:
        arr: a sparse array or a dense array. A function that `sparsify` transforms can convert its
            sparse arguments.

    Returns:
        A dense array.

    >>> from toile.experimental import sparse
    >>> sparse.todense(sparse.eye(2))
    Array([[1., 0.],
           [0., 1.]], dtype=float32)
    """
    if isinstance(arr, JAXSparse):
        return arr.todense()
    return to_dense(arr) if isinstance(arr, Tracer) else as_array(arr)
