"""`to_numpy`, which writes a function as one Python file that needs only NumPy."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from toile.engine.annotations import PyTree
from toile.engine.source import here
from toile.engine.trees import unflatten
from toile.exporting.numpy_rules import RULES
from toile.exporting.numpy_writer import BATCH, NumpyWriter, check_native, shape_text
from toile.exporting.support import closure, definitions
from toile.exporting.tracing import Model, trace

_HEAD = '''"""{title}

Exported by toile; needs NumPy only. The weights are in {weights}.

{signature}
"""

import math
import os

import numpy as np

W = dict(np.load(os.path.join(os.path.dirname(os.path.abspath(__file__)), {weights!r})))
'''


def to_numpy(
    fun: Callable[..., Any], *args: PyTree, path: str | os.PathLike[str], params: PyTree = None,
    free_batch: bool = False,
) -> str:
    """Write a function as a Python file that needs only NumPy, and its weights as an .npz file.

    The file contains one function for each module, with the user's lines of code as comments. It
    also contains a function that has the name of the file, takes the arguments of `fun` except
    `params`, and returns the same results up to rounding.

    Args:
        fun: the function. It must not contain callbacks or collectives.
        args: example arguments, or `ShapeDtypeStruct` objects with their shapes and dtypes.
        path: the file to write, such as `model.py`; the weights are written to `model.npz`.
        params: first argument of `fun`, whose arrays become weights; None if no argument contains
            weights. Arrays that `fun` closes over become weights too.
        free_batch: whether the exported function accepts any batch size. The batch axis is the
            first axis of the first argument, and of all arguments whose first axis has the same
            size.

    Returns:
        The text of the Python file.

    Raises:
        NotImplementedError: an operation or a dtype has no equivalent in NumPy.
        ValueError: with `free_batch`, the operations differ between batch sizes.

    >>> import tempfile, os.path
    >>> layer = toile.linen.Dense(3)
    >>> variables = layer.init(key(0), jnp.ones((1, 4)))
    >>> folder = tempfile.mkdtemp()
    >>> text = toile.export.to_numpy(
    ...     layer.apply, jnp.ones((1, 4)), path=os.path.join(folder, "dense.py"),
    ...     params=variables, free_batch=True)
    >>> sorted(os.listdir(folder))
    ['dense.npz', 'dense.py']
    """
    target = Path(path)
    if target.suffix != ".py":
        raise ValueError(f"to_numpy: needed a path that ends with .py, got {str(path)!r} (the "
                         f"weights are written beside it){here()}")
    model = trace(fun, args, params, free_batch, target.stem)
    weights = target.with_suffix(".npz")
    text = numpy_text(model, weights.name)
    save_weights(weights, model)
    target.write_text(text, encoding="utf-8")
    return text


def save_weights(path: Path, model: Model) -> None:
    """Write the weights to an .npz file."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in model.weights:
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, array, allow_pickle=False)


def numpy_text(model: Model, weights: str) -> str:
    """Return the text of the file."""
    w = NumpyWriter(RULES)
    w.taken |= {model.name, *definitions(), "W", "np", "math", "os", BATCH}
    program = model.program
    for v in program.inputs:
        check_native(v.aval, None)
    for v, (name, _) in zip(program.inputs, model.weights, strict=False):
        w.names[v] = f"W[{name!r}]"
    w.line("with np.errstate(all='ignore'):")
    w.depth += 1
    _read_arguments(w, model)
    w.body(program)
    results = [f"np.asarray({w.atom(o)})" for o in program.outputs]
    w.line(f"return {_tree_text(model, results)}")
    entry = [f"def {model.name}({', '.join(model.arguments)}):",
             f'    """{_signature(model)}"""', *w.lines]
    head = _HEAD.format(title=f"{model.name}: an exported function.", weights=weights,
                        signature=_signature(model))
    blocks = [head.rstrip(), closure(w.support), *w.functions, "\n".join(entry)]
    return "\n\n\n".join(b for b in blocks if b) + "\n"


def _read_arguments(w: NumpyWriter, model: Model) -> None:
    """Write statements that read the leaves of the arguments and the batch size."""
    w.use("expect")
    source = model.batch_source()
    if source is not None:
        i, axis, factor = source
        divided = f" // {factor}" if factor > 1 else ""
        w.line(f"{BATCH} = np.shape({model.paths[i]})[{axis}]{divided}")
    for v, path in zip(model.inputs, model.paths, strict=True):
        w.names[v] = name = w.fresh("a")
        w.line(f"{name} = expect({path!r}, {path}, {w.dtype(v.aval.dtype)}, "
               f"{w.shape(v.aval.shape)})")


def _signature(model: Model) -> str:
    ins = [f"{path}: {v.aval.dtype.name}{shape_text(v.aval.shape)}"
           for v, path in zip(model.inputs, model.paths, strict=True)]
    outs = [o.aval.dtype.name + shape_text(o.aval.shape) for o in model.program.outputs]
    return f"{', '.join(ins) or 'no arguments'} -> {', '.join(outs) or 'nothing'}."


class _Text:
    def __init__(self, text: str):
        self.text = text


def _tree_text(model: Model, results: list[str]) -> str:
    """Return the expression of the result, with the same tree structure as in the function."""
    return _shown(unflatten(model.out_tree, [_Text(r) for r in results]))


def _shown(x: Any) -> str:
    if isinstance(x, _Text):
        return x.text
    if x is None:
        return "None"
    if isinstance(x, tuple):
        return f"({', '.join(map(_shown, x))}{',' if len(x) == 1 else ''})"
    if isinstance(x, list):
        return f"[{', '.join(map(_shown, x))}]"
    if hasattr(x, "items"):
        return "{" + ", ".join(f"{k!r}: {_shown(v)}" for k, v in x.items()) + "}"
    raise TypeError(
        f"to_numpy: needed a result made of tuples, lists, dictionaries and arrays, got "
        f"{type(x).__name__} (return its arrays in a tuple){here()}")
