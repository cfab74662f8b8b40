"""Statistics of the inputs of products with parameters, collected while a model runs.

While the model runs, parameters are represented by tracers. Operations run immediately. A product
of an array and such a tracer also adds the rows of the array to the statistics of the parameter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from toile import struct
from toile import tree as trees
from toile.engine.annotations import PyTree
from toile.engine.avals import Aval, aval_of
from toile.engine.conversion import as_array
from toile.engine.operation import Operation
from toile.engine.program import evaluate
from toile.engine.source import here
from toile.engine.trace import Trace, Tracer, opened, state
from toile.quantization.selected_parameters import selected

__all__ = ["InputStatistics", "calibrate"]


@struct.dataclass
class InputStatistics:
    """Statistics of the inputs of products with one parameter.

    Args:
        axes: the axes of the parameter over which products sum.
        moments: matrix that contains the mean product of each pair of inputs. The inputs are
            numbered in row-major order of `axes`.
        magnitudes: the mean absolute value of each input.
        largest: the largest absolute value of all inputs.
        rows: the number of input rows that were observed.

    >>> from toile.quantization import calibrate
    >>> found = calibrate(lambda p, x: x @ p["w"], {"w": jnp.ones((2, 3))}, [jnp.eye(2)], "w")
    >>> found["w"].moments
    array([[0.5, 0. ],
           [0. , 0.5]])
    """

    axes: tuple[int, ...] = struct.field(pytree_node=False)
    moments: np.ndarray
    magnitudes: np.ndarray
    largest: float
    rows: int


class _Sums:
    """The sums from which the statistics of one parameter are computed."""

    def __init__(self, axes: tuple[int, ...], size: int):
        self.axes, self.rows, self.largest = axes, 0, 0.0
        self.moments, self.magnitudes = np.zeros((size, size)), np.zeros(size)

    def add(self, x: np.ndarray) -> None:
        """Add rows of inputs."""
        self.rows += len(x)
        self.largest = max(self.largest, float(np.abs(x).max(initial=0)))
        self.moments += x.T @ x
        self.magnitudes += np.abs(x).sum(0)

    def statistics(self) -> InputStatistics:
        """Compute the statistics from the sums."""
        n = max(self.rows, 1)
        return InputStatistics(self.axes, self.moments / n, self.magnitudes / n, self.largest,
                               self.rows)


class _Watched(Tracer):
    """A parameter whose products are observed; axis i is axis `perm[i]` of the parameter."""

    __slots__ = ("path", "array", "perm")

    def __init__(self, trace: Trace, path: str, array: Any, perm: tuple[int, ...]):
        self._trace, self.path, self.array, self.perm = trace, path, array, perm

    @property
    def aval(self) -> Aval:
        """The shape and dtype of the parameter."""
        return aval_of(self.array)


class _Watch(Trace):
    """Runs operations in the parent trace, and observes products with parameters."""

    __slots__ = ("sums",)

    def __init__(self, parent: Trace | None, sums: dict[str, _Sums]):
        super().__init__(parent)
        self.sums = sums

    def owns(self, x: Any) -> bool:
        """Whether a value is a parameter that is observed."""
        return x.__class__ is _Watched and x._trace is self

    def value(self, x: Any) -> Any:
        """What the parent trace reads."""
        return x.array if self.owns(x) else x

    def process(self, op: Operation, args: Sequence[Any]) -> Any:
        mine = [x for x in args if self.owns(x)]
        program = op.called_program() if mine else None
        if program is not None:
            outs = evaluate(program, args)
            return outs if op.multiple else outs[0]
        state.trace = self.parent
        try:
            if len(mine) == 1 and len(args) == 2 and op.kernel_family == "contraction":
                self._observe(op, args)
            out = op(*map(self.value, args))
        finally:
            state.trace = self
        if len(mine) == 1 == len(args) and not op.multiple:
            one, any_op = mine[0], op  # type: tuple[Any, Any]
            if any_op.moves_axes and any_op.is_always_view:
                return _Watched(self, one.path, out, tuple(one.perm[i] for i in any_op.perm))
            if any_op.only_rounds:
                return _Watched(self, one.path, out, one.perm)
        return out

    def process_custom_jvp(self, call: Any, args: Sequence[Any]) -> list[Any]:
        return call.run(*args)

    process_custom_vjp = process_custom_jvp

    def _observe(self, op: Any, args: Sequence[Any]) -> None:
        """Add the inputs of a product to the statistics of its parameter."""
        side = 0 if self.owns(args[0]) else 1
        one, x = args[side], np.asarray(args[1 - side]).astype(np.float64)
        labels, x_labels = (op.lhs, op.rhs) if side == 0 else (op.rhs, op.lhs)
        by_axis = dict(zip(one.perm, labels, strict=True))
        axes = tuple(i for i in sorted(by_axis) if by_axis[i] not in op.out)
        summed = [by_axis[i] for i in axes]
        if any(c in x_labels and c in op.out for c in labels):
            return  # the inputs differ along a batch axis
        order = [c for c in x_labels if c not in summed] + summed
        size = int(np.prod([x.shape[x_labels.index(c)] for c in summed]))
        rows = x.transpose([x_labels.index(c) for c in order]).reshape(-1, size)
        found = self.sums.setdefault(one.path, _Sums(axes, size))
        if found.axes == axes:
            found.add(rows)


def calibrate(
    apply: Callable[..., Any], params: PyTree, batches: Iterable[Any],
    select: str | Sequence[str] = "**/kernel",
) -> dict[str, InputStatistics]:
    """Run a model on batches, and collect statistics of the inputs of its parameters.

    The model runs without compilation. Products in loops such as `nn.scan` are not observed.

    Args:
        apply: the function that runs the model. It is called as `apply(params, batch)`, or as
            `apply(params, *batch)` if the batch is a tuple.
        params: tree of parameters, or of variables.
        batches: examples, which should resemble the inputs that the model will process; a few
            hundred rows are usually enough.
        select: one or more globs that match the paths of the parameters.

    Returns:
        A dict that maps the paths of parameters to their statistics; pass it to `quantize`.

    Raises:
        ValueError: no product with a selected parameter was observed.

    >>> import toile.linen as nn
    >>> from toile.quantization import calibrate, quantize
    >>> layer = nn.Dense(4)
    >>> x = toile.random.normal(key(1), (32, 8))
    >>> variables = layer.init(key(0), x)
    >>> statistics = calibrate(layer.apply, variables, [x])
    >>> sorted(statistics), statistics["params/kernel"].rows
    (['params/kernel'], 32)
    >>> quantized = quantize(variables, bits=4, group=4, method="gptq", statistics=statistics)
    """
    named, mask, structure = selected(params, select)
    sums: dict[str, _Sums] = {}
    for batch in batches:
        trace = _Watch(state.trace, sums)
        leaves = [
            _Watched(trace, path, array, tuple(range(array.ndim))) if chosen else x
            for (path, x), chosen in zip(named, mask, strict=True)
            for array in (as_array(x) if chosen else x,)
        ]
        with opened(trace):
            apply(trees.unflatten(structure, leaves), *batch if isinstance(batch, tuple) else (
                batch,))
    missing = [path for (path, _), chosen in zip(named, mask, strict=True)
               if chosen and path not in sums]
    if missing:
        raise ValueError(
            f"calibrate: needed products with all selected parameters, got none with "
            f"{', '.join(missing[:8])} (select other parameters, or pass batches in which the model"
            f" uses them){here()}")
    return {path: found.statistics() for path, found in sums.items()}
