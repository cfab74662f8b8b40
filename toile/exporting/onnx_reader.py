"""`from_onnx`, which converts an ONNX file to a function of parameters and arguments."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.engine.arrays import DeviceArray
from toile.engine.file_reader import guarded
from toile.engine.source import describe, here
from toile.exporting import onnx_format as form
from toile.exporting.onnx_layers import LAYERS
from toile.exporting.onnx_operators import OPERATORS, Node, Operator, canonical, sequence

_TABLE: dict[str, Operator] = {**OPERATORS, **LAYERS}
_CONTROL = ("Loop", "If")
# Operands that must be known when the function is traced: if they are weights, they are constants.
_KNOWN = {"Resize": (1, 2, 3), "Upsample": (1,), "Reshape": (1,), "Range": (0, 1, 2)}
Env = dict[str, Any]


def from_onnx(
    path: str | os.PathLike[str],
) -> tuple[Callable[..., Any], dict[str, DeviceArray]]:
    """Convert an ONNX file to a function and its parameters.

    The operators that toile and PyTorch write when they export convolutional networks, transformers
    and recurrent networks are supported. The function can be compiled, differentiated and mapped
    with `vmap`.

    Args:
        path: path of the file. Its opset version must be from 7 to 30.

    Returns:
        A function `f(params, *args)`, and the parameters: a dict that maps names to the
        floating-point weights in the file. The arguments are in the order of the file's inputs. The
        result is an array, or a tuple if the file has several outputs. 64-bit values become 32-bit
        values unless x64 mode is on.

    Raises:
        UnreadableFileError: the file is damaged or not an ONNX file.
        NotImplementedError: the file contains operators that toile does not support.
        ValueError: shapes depend on the values of the arguments. The function that is returned
            raises this error when it is called.

    >>> import tempfile, os.path
    >>> path = os.path.join(tempfile.mkdtemp(), "scale.onnx")
    >>> toile.export.to_onnx(
    ...     lambda p, x: x * p["scale"], jnp.ones(3), path=path,
    ...     params={"scale": jnp.full(3, 2.0)})
    >>> function, params = toile.export.from_onnx(path)
    >>> function(params, jnp.arange(3.0))
    Array([0., 2., 4.], dtype=float32)
    """
    where = f" (in {os.fspath(path)})"
    with guarded("from_onnx", "an ONNX file", where):
        graph, version = form.read_model(Path(path).read_bytes())
        _check_names(graph, set())
    missing = sorted(_missing(graph))
    if missing:
        raise NotImplementedError(
            f"from_onnx: needed operators that toile has, got {', '.join(missing)}{where} (export "
            f"the model with other options){here()}")
    return _made(graph, version)


def _made(graph: form.GraphData, version: int) -> tuple[Callable[..., Any], dict[str, Any]]:
    fixed = {name for node in graph.nodes for i in _KNOWN.get(node.op, ()) if i < len(node.ins)
             for name in [node.ins[i]]}
    params = {name: jnp.asarray(x) for name, x in graph.weights.items()
              if x.dtype.kind not in "iub" and name not in fixed}
    constants = {name: x for name, x in graph.weights.items() if name not in params}
    ins = [v for v in graph.ins if v.name not in graph.weights]

    def model(params: Mapping[str, Any], *args: Any) -> Any:
        if len(args) != len(ins):
            raise TypeError(
                f"from_onnx: needed {len(ins)} arguments ({', '.join(v.name for v in ins)}) after "
                f"the parameters, got {len(args)} (pass one array for each input){here()}")
        env: Env = {**constants, **params}
        for v, x in zip(ins, args, strict=True):
            env[v.name] = _argument(v, x)
        _run(graph.nodes, env, version)
        outs = [jnp.asarray(env[v.name]) for v in graph.outs]
        return outs[0] if len(outs) == 1 else tuple(outs)

    return model, params


def _argument(v: form.ValueData, x: Any) -> Any:
    x = jnp.asarray(x)
    fits = v.dtype is None or x.ndim == len(v.shape) and all(
        isinstance(n, str) or n == m for n, m in zip(v.shape, x.shape, strict=True))
    if not fits or v.dtype is not None and x.dtype != canonical(v.dtype):
        needed = f"{v.dtype.name}[{','.join(map(str, v.shape))}]"
        raise ValueError(f"from_onnx: needed {v.name} of type {needed}, got {describe(x)} "
                         f"(convert or reshape the argument){here()}")
    return x


# ---------------------------------------------------------------------------------------- checks


def _check_names(graph: form.GraphData, outer: set[str]) -> None:
    """Check that every name is defined before a node reads it."""
    known = outer | set(graph.weights) | {v.name for v in graph.ins}
    for node in graph.nodes:
        for name in node.ins:
            if name and name not in known:
                raise ValueError(f"the node {node.name or node.op!r} reads {name!r}, which no "
                                 f"earlier node produces{here()}")
        for inner in _graphs(node):
            _check_names(inner, known)
        known |= {name for name in node.outs if name}
    for v in graph.outs:
        if v.name not in known:
            raise ValueError(f"no node produces the output {v.name!r}{here()}")


def _graphs(node: form.NodeData) -> list[form.GraphData]:
    return [a.data for a in node.attributes.values() if isinstance(a, form.Graph)]


def _missing(graph: form.GraphData) -> set[str]:
    found = {node.op if node.domain in ("", "ai.onnx") else f"{node.domain}.{node.op}"
             for node in graph.nodes
             if node.domain not in ("", "ai.onnx")
             or node.op not in _TABLE and node.op not in _CONTROL}
    for node in graph.nodes:
        for inner in _graphs(node):
            found |= _missing(inner)
    return found


# ------------------------------------------------------------------------------------- evaluation


def _run(nodes: Sequence[form.NodeData], env: Env, version: int) -> None:
    """Evaluate nodes; the results are added to `env`."""
    for data in nodes:
        xs = [env[name] if name else None for name in data.ins]
        node = Node(data.op, xs, data.attributes, version, len([n for n in data.outs if n]),
                    data.name)
        if data.op in _CONTROL:
            outs = _CONTROLS[data.op](node, env)
        else:
            outs = _results(node)
        env.update(zip(data.outs, outs, strict=False))


def _results(node: Node) -> Sequence[Any]:
    """Return the results of an operator; errors name the node."""
    known = all(x is None or isinstance(x, np.ndarray) for x in node.xs)
    try:
        found = sequence(_TABLE[node.op](np if known else jnp, node))
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        if str(error).startswith("from_onnx:"):
            raise
        given = ", ".join("nothing" if x is None else describe(x) for x in node.xs)
        reason = str(error).split("\n")[0][:200]
        raise node.error("operands and attributes that fit", f"{given}: {reason}") from error
    if known and all(isinstance(x, (np.ndarray, np.generic)) for x in found):
        return [np.asarray(x) for x in found]
    return found


def _if(node: Node, env: Env) -> Sequence[Any]:
    branches = [node.get("else_branch").data, node.get("then_branch").data]

    def run(graph: form.GraphData) -> list[Any]:
        inner = {**env, **graph.weights}
        _run(graph.nodes, inner, node.version)
        return [jnp.asarray(inner[v.name]) for v in graph.outs]

    which = node.xs[0]
    if isinstance(which, np.ndarray):
        return run(branches[int(which.reshape(()))])
    return lax.cond(which.reshape(()), lambda: run(branches[1]), lambda: run(branches[0]))


def _loop(node: Node, env: Env) -> Sequence[Any]:
    graph = node.get("body").data
    count, going, *carry = node.xs
    names = [v.name for v in graph.ins]
    carry = [jnp.asarray(x) for x in carry]

    def body(i: Any, flag: Any, values: Sequence[Any]) -> list[Any]:
        inner = {**env, **graph.weights, **dict(zip(names, [i, flag, *values], strict=True))}
        _run(graph.nodes, inner, node.version)
        return [jnp.asarray(inner[v.name]) for v in graph.outs]

    stacks = len(graph.outs) - 1 - len(carry)
    always = _passes(graph) and (going is None or isinstance(going, np.ndarray) and going.all())
    if always and isinstance(count, np.ndarray):
        return _counted(body, int(count.reshape(())), carry)
    if stacks:
        raise node.error("a loop with a known number of steps", "one that also collects values")
    return _repeated(body, count, going, carry)


def _passes(graph: form.GraphData) -> bool:
    """Whether the loop's body returns its condition unchanged, or always true."""
    name = graph.outs[0].name
    made = {n.outs[0]: n for n in graph.nodes if n.op == "Identity"}
    while name in made:
        name = made[name].ins[0]
    return name == graph.ins[1].name or bool(np.all(graph.weights.get(name, False)))


def _counted(body: Any, count: int, carry: list[Any]) -> Sequence[Any]:
    def step(values: Any, i: Any) -> Any:
        outs = body(i, np.array(True), values)
        k = 1 + len(carry)
        return tuple(outs[1:k]), tuple(outs[k:])

    last, stacked = lax.scan(step, tuple(carry), jnp.arange(count))
    return [*last, *stacked]


def _repeated(body: Any, count: Any, going: Any, carry: list[Any]) -> Sequence[Any]:
    flag = jnp.asarray(True if going is None else going).reshape(())

    def goes(state: Any) -> Any:
        i, flag, _ = state
        return flag if count is None else flag & (i < jnp.asarray(count).reshape(()))

    def step(state: Any) -> Any:
        i, flag, values = state
        flag, *values = body(i, flag, values)
        return i + 1, flag.reshape(()), values

    return lax.while_loop(goes, step, (jnp.asarray(0), flag, carry))[2]


_CONTROLS: dict[str, Callable[[Node, Env], Sequence[Any]]] = {"If": _if, "Loop": _loop}
