"""`to_onnx`, which writes a function as an ONNX file."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from toile.engine.annotations import PyTree
from toile.engine.program import Program
from toile.engine.source import here
from toile.exporting import onnx_format as form
from toile.exporting.broadcasting import implied_broadcasts
from toile.exporting.onnx_rules import RULES
from toile.exporting.onnx_writer import OnnxWriter, check_dtype, free_shape
from toile.exporting.tracing import Model, trace
from toile.version import __version__

LARGEST = 2**31 - 1  # largest number of bytes in a Protocol Buffers message


def to_onnx(
    fun: Callable[..., Any], *args: PyTree, path: str | os.PathLike[str], params: PyTree = None,
    free_batch: bool = False,
) -> None:
    """Write a function as an ONNX file with operators of opset version 18.

    Loops and branches become Loop and If nodes. The inputs have the same names as the arguments in
    `to_numpy`. The outputs are named `y0`, `y1`, and so on, in the order of the leaves of the
    result.

    Args:
        fun: the function. It must not contain callbacks, collectives, complex numbers or random
            numbers.
        args: example arguments, or `ShapeDtypeStruct` objects with their shapes and dtypes.
        path: the file to write, such as `model.onnx`.
        params: first argument of `fun`, whose arrays become weights in the file; None if no
            argument contains weights.
        free_batch: whether the exported function accepts any batch size, which is named `batch` in
            the file. The batch axis is the first axis of the first argument, and of all arguments
            whose first axis has the same size.

    Raises:
        NotImplementedError: an operation or a dtype has no equivalent in ONNX.
        ValueError: with `free_batch`, the operations differ between batch sizes.

    >>> import tempfile, os.path
    >>> layer = toile.linen.Dense(3)
    >>> variables = layer.init(key(0), jnp.ones((1, 4)))
    >>> path = os.path.join(tempfile.mkdtemp(), "dense.onnx")
    >>> toile.export.to_onnx(
    ...     layer.apply, jnp.ones((1, 4)), path=path, params=variables, free_batch=True)
    >>> function, params = toile.export.from_onnx(path)
    >>> function(params, jnp.ones((2, 4))).shape
    (2, 3)
    """
    target = Path(path)
    if target.suffix != ".onnx":
        raise ValueError(f"to_onnx: needed a path that ends with .onnx, got {str(path)!r} (name "
                         f"the file model.onnx){here()}")
    model = trace(fun, args, params, free_batch, target.stem)
    data = onnx_bytes(model)
    if len(data) > LARGEST:
        raise ValueError(f"to_onnx: needed a model of at most {LARGEST} bytes, got {len(data)} "
                         f"(ONNX files cannot be larger; use to_numpy){here()}")
    target.write_bytes(data)


def onnx_bytes(model: Model) -> bytes:
    """Return the contents of the file."""
    w = OnnxWriter(RULES)
    program = model.program
    for v in program.inputs:
        check_dtype(v.aval, None)
    for v, (name, array) in zip(program.inputs, model.weights, strict=False):
        w.names[v] = w.constant(array, name=name)
    for v, path in zip(model.inputs, model.paths, strict=True):
        w.names[v] = path
    w.elided = implied_broadcasts(program, within_modules=False)
    _set_batch(w, model)
    results = w.program(program, [w.names[v] for v in program.inputs])
    outs = [w.named("Identity", [x], f"y{i}") for i, x in enumerate(results)]
    body = form.graph(
        model.name, w.graphs[0],
        [form.tensor(n, x) for n, x in w.constants.items() if n in w.used],
        [form.value_info(path, v.aval.dtype, free_shape(v.aval.shape))
         for v, path in zip(model.inputs, model.paths, strict=True)],
        _outputs(program, outs))
    return form.model(body, __version__)


def _set_batch(w: OnnxWriter, model: Model) -> None:
    """Compute the batch size from the shape of an input, where a size is first needed."""
    source = model.batch_source()
    if source is None:
        return
    i, axis, factor = source
    shape = w.node("Shape", [model.paths[i]], start=axis, end=axis + 1)
    size = w.node("Reshape", [shape, w.constant(np.zeros(0), np.int64)])
    if factor > 1:
        size = w.node("Div", [size, w.constant(factor, np.int64)])
    w.batch = lambda: size


def _outputs(program: Program, names: list[str]) -> list[bytes]:
    return [form.value_info(n, o.aval.dtype, free_shape(o.aval.shape))
            for n, o in zip(names, program.outputs, strict=True)]
