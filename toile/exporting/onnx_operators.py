"""ONNX operators as functions of arrays: arithmetic, shapes, indexing and reductions.

The arguments of a function are an array module and a `Node`; it returns the results. The module is
NumPy if all operands are known, so that shapes which a file computes stay known. Otherwise, it is
toile.numpy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from toile import lax, nn
from toile import numpy as jnp
from toile.engine import dtypes
from toile.engine.source import here
from toile.exporting import onnx_format as form
from toile.scipy import special


class Node(NamedTuple):
    """A node to evaluate: its operands (None if left out), attributes and opset version."""

    op: str
    xs: list[Any]
    attributes: dict[str, Any]
    version: int
    results: int  # number of results
    name: str

    def get(self, name: str, default: Any = None) -> Any:
        """An attribute."""
        return self.attributes.get(name, default)

    def x(self, i: int) -> Any:
        """An operand; None if it is left out."""
        return self.xs[i] if i < len(self.xs) else None

    def known(self, i: int, default: Any = None) -> Any:
        """Return an operand whose value must be known, such as axes."""
        x = self.x(i)
        if x is None:
            return default
        if not isinstance(x, np.ndarray):
            raise self.error(f"a constant as operand {i}", "a value that is computed from the "
                             "arguments")
        return x

    def ints(self, i: int, attribute: str, default: Any = None) -> Any:
        """Return integers that are an operand or, in older versions, an attribute."""
        found = self.known(i)
        if found is None:
            found = self.get(attribute)
        return default if found is None else [int(n) for n in np.asarray(found).reshape(-1)]

    def error(self, needed: str, got: str) -> ValueError:
        """The error for a node that cannot be converted."""
        return ValueError(
            f"from_onnx: needed {needed} for the operator {self.op} (node {self.name!r}), got "
            f"{got} (export the model with other options, or remove the node){here()}")


Operator = Callable[[Any, Node], Any]
MOST_KNOWN = 1 << 26  # largest number of elements in a constant that a file computes


def limited(n: Node, shape: Sequence[int]) -> tuple[int, ...]:
    """Check the shape of a constant from a file, which may be damaged."""
    if math.prod(shape) > MOST_KNOWN:
        raise n.error(f"constants of at most {MOST_KNOWN} elements", f"shape {tuple(shape)}")
    return tuple(shape)


def canonical(dtype: Any) -> np.dtype[Any]:
    """Return the dtype of an array in toile: 64 bits become 32 bits without x64 mode."""
    return np.dtype(dtypes.canonicalize_dtype(dtype))


def _plain(name: str) -> Operator:
    return lambda xp, n: getattr(xp, name)(*n.xs)


def _of(function: Callable[..., Any]) -> Operator:
    """Return an operator for a function that toile has and NumPy lacks."""
    return lambda xp, n: function(*map(jnp.asarray, n.xs))


def _folded(name: str) -> Operator:
    def apply(xp: Any, n: Node) -> Any:
        out = n.xs[0]
        for x in n.xs[1:]:
            out = getattr(xp, name)(out, x)
        return out
    return apply


def _div(xp: Any, n: Node) -> Any:
    x, y = n.xs
    if np.dtype(x.dtype).kind not in "iu":
        return xp.divide(x, y)
    if xp is np:
        return (np.sign(x) * np.sign(y) * (np.abs(x) // np.abs(y))).astype(x.dtype)
    return lax.div(*jnp.broadcast_arrays(x, y))


def _mod(xp: Any, n: Node) -> Any:
    return (xp.fmod if n.get("fmod", 0) else xp.mod)(*n.xs)


def _pow(xp: Any, n: Node) -> Any:
    return xp.power(n.xs[0], n.xs[1]).astype(n.xs[0].dtype)


def _clip(xp: Any, n: Node) -> Any:
    low = n.x(1) if len(n.xs) > 1 else n.get("min")
    high = n.x(2) if len(n.xs) > 2 else n.get("max")
    x = n.xs[0]
    x = x if low is None else xp.maximum(x, xp.asarray(low, x.dtype))
    return x if high is None else xp.minimum(x, xp.asarray(high, x.dtype))


def _cast(xp: Any, n: Node) -> Any:
    code = n.get("to")
    if code not in form.DTYPES:
        raise n.error("a dtype that toile has", f"type {code}")
    dtype = form.DTYPES[code]
    return n.xs[0].astype(dtype if xp is np else canonical(dtype))


def _gelu(xp: Any, n: Node) -> Any:
    return nn.gelu(jnp.asarray(n.xs[0]), approximate=n.get("approximate", "none") == "tanh")


def _hard_sigmoid(xp: Any, n: Node) -> Any:
    return xp.clip(n.get("alpha", 0.2) * n.xs[0] + n.get("beta", 0.5), 0, 1)


def _prelu(xp: Any, n: Node) -> Any:
    x, slope = n.xs
    return xp.where(x < 0, x * slope, x)


def _isinf(xp: Any, n: Node) -> Any:
    x = n.xs[0]
    found = xp.zeros(x.shape, bool)
    found = found | (x == np.inf) if n.get("detect_positive", 1) else found
    return found | (x == -np.inf) if n.get("detect_negative", 1) else found


def _bit_shift(xp: Any, n: Node) -> Any:
    return (xp.left_shift if n.get("direction") == "LEFT" else xp.right_shift)(*n.xs)


# ------------------------------------------------------------------------------------------ shapes


def _shape(xp: Any, n: Node) -> Any:
    return np.array(np.shape(n.xs[0])[n.get("start", 0) : n.get("end", None)], np.int64)


def _reshape(xp: Any, n: Node) -> Any:
    x, sizes = n.xs[0], n.ints(1, "shape")
    if not n.get("allowzero", 0):
        sizes = [x.shape[i] if m == 0 else m for i, m in enumerate(sizes)]
    return x.reshape(tuple(sizes))


def _flatten(xp: Any, n: Node) -> Any:
    axis = n.get("axis", 1)
    return n.xs[0].reshape(math.prod(n.xs[0].shape[:axis]), -1)


def _transpose(xp: Any, n: Node) -> Any:
    return xp.transpose(n.xs[0], n.get("perm"))


def _squeeze(xp: Any, n: Node) -> Any:
    axes = n.ints(1, "axes")
    return xp.squeeze(n.xs[0], None if axes is None else tuple(axes))


def _unsqueeze(xp: Any, n: Node) -> Any:
    return xp.expand_dims(n.xs[0], tuple(n.ints(1, "axes")))


def _concat(xp: Any, n: Node) -> Any:
    return xp.concatenate(n.xs, n.get("axis", 1))


def _split(xp: Any, n: Node) -> Any:
    axis, sizes = n.get("axis", 0), n.ints(1, "split")
    length = n.xs[0].shape[axis]
    if sizes is None:
        part = -(-length // n.results)
        sizes = [min(part, length - part * i) for i in range(n.results)]
    return xp.split(n.xs[0], np.cumsum(sizes)[:-1].tolist(), axis)


def _slice(xp: Any, n: Node) -> Any:
    x = n.xs[0]
    starts, stops = n.x(1), n.x(2)
    if n.version >= 10 and not all(isinstance(s, np.ndarray) for s in (starts, stops)):
        raise n.error("starts and ends that are constants", "computed ones")
    starts, stops = n.ints(1, "starts"), n.ints(2, "ends")
    axes = n.ints(3, "axes", range(len(starts)))
    index = [slice(None)] * x.ndim
    for start, stop, axis, step in zip(starts, stops, axes, n.ints(4, "", [1] * len(starts)),
                                       strict=True):
        size = x.shape[axis]
        stop = None if step < 0 and stop < -size else stop
        index[axis] = slice(start, stop, step)
    return x[tuple(index)]


def _gather(xp: Any, n: Node) -> Any:
    axis = n.get("axis", 0)
    if xp is np:
        return np.take(n.xs[0], n.xs[1], axis=axis)
    return jnp.take(n.xs[0], jnp.asarray(n.xs[1]), axis=axis, mode="wrap" if _may_wrap(
        n.xs[1]) else None)


def _may_wrap(index: Any) -> bool:
    return isinstance(index, np.ndarray) and bool((index < 0).any())


def _gather_elements(xp: Any, n: Node) -> Any:
    return xp.take_along_axis(n.xs[0], n.xs[1], n.get("axis", 0))


def _gather_nd(xp: Any, n: Node) -> Any:
    x, index = n.xs
    if n.get("batch_dims", 0):
        raise n.error("batch_dims=0", str(n.get("batch_dims")))
    return x[tuple(index[..., i] for i in range(index.shape[-1]))]


def _scatter_nd(xp: Any, n: Node) -> Any:
    x, index, updates = (jnp.asarray(v) for v in n.xs)
    place = x.at[tuple(index[..., i] for i in range(index.shape[-1]))]
    return _combined(n, place, updates)


def _combined(n: Node, place: Any, updates: Any) -> Any:
    how = {"none": "set", "add": "add", "mul": "multiply", "min": "min", "max": "max"}
    return getattr(place, how[n.get("reduction", "none")])(updates)


def _scatter_elements(xp: Any, n: Node) -> Any:
    x, index, updates = (jnp.asarray(v) for v in n.xs)
    axis = n.get("axis", 0) % x.ndim
    grid = list(jnp.indices(index.shape))
    grid[axis] = index
    return _combined(n, x.at[tuple(grid)], updates)


def _expand(xp: Any, n: Node) -> Any:
    shape = tuple(n.ints(1, "shape"))
    shape = limited(n, shape) if xp is np else shape
    return xp.broadcast_to(n.xs[0], np.broadcast_shapes(n.xs[0].shape, shape))


def _tile(xp: Any, n: Node) -> Any:
    return xp.tile(n.xs[0], limited(n, n.ints(1, "repeats")))


def _pad(xp: Any, n: Node) -> Any:
    x, pads = n.xs[0], n.ints(1, "pads")
    axes = n.ints(3, "", range(x.ndim))
    low, high = pads[: len(axes)], pads[len(axes) :]
    config = [(0, 0)] * x.ndim
    for axis, a, b in zip(axes, low, high, strict=True):
        config[axis] = (a, b)
    index = tuple(slice(max(-a, 0), m - max(-b, 0)) for (a, b), m in zip(config, x.shape,
                                                                        strict=True))
    x, config = x[index], [(max(a, 0), max(b, 0)) for a, b in config]
    mode = n.get("mode", "constant")
    if mode != "constant":
        return xp.pad(x, config, mode=mode)
    value = n.x(2) if len(n.xs) > 2 else n.get("value", 0.0)
    value = 0 if value is None else value
    return xp.pad(x, config, constant_values=xp.asarray(value).astype(x.dtype).reshape(()))


def _constant(xp: Any, n: Node) -> Any:
    for name, dtype in (("value", None), ("value_float", np.float32), ("value_int", np.int64),
                        ("value_floats", np.float32), ("value_ints", np.int64)):
        if name in n.attributes:
            return np.asarray(n.attributes[name], dtype)
    raise n.error("a number or tensor", ", ".join(n.attributes) or "nothing")


def _constant_of_shape(xp: Any, n: Node) -> Any:
    value = n.get("value", np.zeros(1, np.float32))
    return np.full(limited(n, n.ints(0, "")), value.reshape(-1)[0])


def _range(xp: Any, n: Node) -> Any:
    start, stop, step = (float(n.known(i).item()) for i in range(3))
    limited(n, [int(abs(stop - start) / max(abs(step), 1e-9))])
    return np.arange(start, stop, step).astype(n.xs[0].dtype)


def _one_hot(xp: Any, n: Node) -> Any:
    depth, values = int(n.known(1).reshape(())), n.xs[2]
    index = jnp.asarray(n.xs[0])
    hot = nn.one_hot(index % depth, depth, axis=n.get("axis", -1), dtype=bool)
    return jnp.where(hot, values[1], values[0])


def _trilu(xp: Any, n: Node) -> Any:
    k = int(n.known(1, np.zeros(())).reshape(()))
    return (xp.triu if n.get("upper", 1) else xp.tril)(n.xs[0], k)


def _depth_to_space(xp: Any, n: Node) -> Any:
    (b, c, h, w), s = n.xs[0].shape, n.get("blocksize")
    if n.get("mode", "DCR") == "DCR":
        x = n.xs[0].reshape(b, s, s, c // s**2, h, w).transpose(0, 3, 4, 1, 5, 2)
    else:
        x = n.xs[0].reshape(b, c // s**2, s, s, h, w).transpose(0, 1, 4, 2, 5, 3)
    return x.reshape(b, c // s**2, h * s, w * s)


def _space_to_depth(xp: Any, n: Node) -> Any:
    (b, c, h, w), s = n.xs[0].shape, n.get("blocksize")
    x = n.xs[0].reshape(b, c, h // s, s, w // s, s).transpose(0, 3, 5, 1, 2, 4)
    return x.reshape(b, c * s**2, h // s, w // s)


# -------------------------------------------------------------------------------------- reductions


def _reduction(function: Callable[..., Any]) -> Operator:
    def apply(xp: Any, n: Node) -> Any:
        axes = n.ints(1, "axes")
        if not axes and n.get("noop_with_empty_axes", 0):
            return n.xs[0]
        axis = tuple(axes) if axes else None
        out = function(xp, n.xs[0], axis=axis, keepdims=bool(n.get("keepdims", 1)))
        return out.astype(n.xs[0].dtype)
    return apply


def _arg(name: str) -> Operator:
    def apply(xp: Any, n: Node) -> Any:
        axis = n.get("axis", 0)
        x = n.xs[0]
        if n.get("select_last_index", 0):
            found = x.shape[axis] - 1 - getattr(xp, name)(xp.flip(x, axis), axis=axis)
        else:
            found = getattr(xp, name)(x, axis=axis)
        return xp.expand_dims(found, axis) if n.get("keepdims", 1) else found
    return apply


def _top_k(xp: Any, n: Node) -> Any:
    axis, k = n.get("axis", -1), int(n.known(1).reshape(()))
    x = jnp.asarray(n.xs[0])
    order = jnp.argsort(x, axis=axis, descending=bool(n.get("largest", 1)), stable=True)
    index = lax.slice_in_dim(order, 0, k, axis=axis % x.ndim)
    return jnp.take_along_axis(x, index, axis), index.astype(canonical(np.int64))


def _cumsum(xp: Any, n: Node) -> Any:
    axis = int(n.known(1).reshape(()))
    x = xp.flip(n.xs[0], axis) if n.get("reverse", 0) else n.xs[0]
    out = xp.cumsum(x, axis, dtype=x.dtype)
    if n.get("exclusive", 0):
        out = out - x
    return xp.flip(out, axis) if n.get("reverse", 0) else out


_PLAIN = {
    "Sub": "subtract", "Neg": "negative", "Abs": "abs", "Sign": "sign", "Floor": "floor",
    "Ceil": "ceil", "Round": "round", "Sqrt": "sqrt", "Exp": "exp", "Log": "log", "Sin": "sin",
    "Cos": "cos", "Tan": "tan", "Asin": "arcsin", "Acos": "arccos", "Atan": "arctan",
    "Sinh": "sinh", "Cosh": "cosh", "Tanh": "tanh", "Asinh": "arcsinh", "Acosh": "arccosh",
    "Atanh": "arctanh", "Equal": "equal", "Less": "less", "LessOrEqual": "less_equal",
    "Greater": "greater", "GreaterOrEqual": "greater_equal", "And": "logical_and",
    "Or": "logical_or", "Xor": "logical_xor", "Not": "logical_not", "BitwiseAnd": "bitwise_and",
    "BitwiseOr": "bitwise_or", "BitwiseXor": "bitwise_xor", "BitwiseNot": "invert",
    "IsNaN": "isnan", "Where": "where",
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "Sigmoid": nn.sigmoid, "Relu": nn.relu, "Softplus": nn.softplus, "Softsign": nn.soft_sign,
    "Mish": lambda x: x * jnp.tanh(nn.softplus(x)), "Erf": special.erf,
    "HardSwish": nn.hard_swish,
}
_REDUCTIONS: dict[str, Callable[..., Any]] = {
    "ReduceSum": lambda xp, x, **k: xp.sum(x, **k),
    "ReduceMean": lambda xp, x, **k: xp.mean(x, **k),
    "ReduceMax": lambda xp, x, **k: xp.max(x, **k),
    "ReduceMin": lambda xp, x, **k: xp.min(x, **k),
    "ReduceProd": lambda xp, x, **k: xp.prod(x, **k),
    "ReduceL1": lambda xp, x, **k: xp.sum(xp.abs(x), **k),
    "ReduceL2": lambda xp, x, **k: xp.sqrt(xp.sum(x * x, **k)),
    "ReduceSumSquare": lambda xp, x, **k: xp.sum(x * x, **k),
    "ReduceLogSum": lambda xp, x, **k: xp.log(xp.sum(x, **k)),
    "ReduceLogSumExp": lambda xp, x, **k: nn.logsumexp(jnp.asarray(x), **k),
}
OPERATORS: dict[str, Operator] = {
    **{op: _plain(name) for op, name in _PLAIN.items()},
    **{op: _of(function) for op, function in _FUNCTIONS.items()},
    **{op: _reduction(function) for op, function in _REDUCTIONS.items()},
    "Add": _plain("add"), "Mul": _plain("multiply"), "Div": _div, "Mod": _mod, "Pow": _pow,
    "Max": _folded("maximum"), "Min": _folded("minimum"), "Sum": _folded("add"),
    "Mean": lambda xp, n: sum(n.xs[1:], start=n.xs[0]) / len(n.xs),
    "Reciprocal": lambda xp, n: (1 / n.xs[0]).astype(n.xs[0].dtype),
    "Identity": lambda xp, n: n.xs[0], "Dropout": lambda xp, n: n.xs[0], "Clip": _clip,
    "Cast": _cast, "CastLike": lambda xp, n: n.xs[0].astype(n.xs[1].dtype), "Gelu": _gelu,
    "LeakyRelu": lambda xp, n: nn.leaky_relu(jnp.asarray(n.xs[0]), n.get("alpha", 0.01)),
    "Elu": lambda xp, n: nn.elu(jnp.asarray(n.xs[0]), n.get("alpha", 1.0)),
    "Celu": lambda xp, n: nn.celu(jnp.asarray(n.xs[0]), n.get("alpha", 1.0)),
    "Selu": lambda xp, n: nn.selu(jnp.asarray(n.xs[0])),
    "HardSigmoid": _hard_sigmoid, "PRelu": _prelu, "IsInf": _isinf, "BitShift": _bit_shift,
    "Shape": _shape, "Size": lambda xp, n: np.array(np.size(n.xs[0]), np.int64),
    "Reshape": _reshape, "Flatten": _flatten, "Transpose": _transpose, "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze, "Concat": _concat, "Split": _split, "Slice": _slice,
    "Gather": _gather, "GatherElements": _gather_elements, "GatherND": _gather_nd,
    "ScatterND": _scatter_nd, "ScatterElements": _scatter_elements, "Expand": _expand,
    "Tile": _tile, "Pad": _pad, "Constant": _constant, "ConstantOfShape": _constant_of_shape,
    "Range": _range, "OneHot": _one_hot, "Trilu": _trilu, "DepthToSpace": _depth_to_space,
    "SpaceToDepth": _space_to_depth, "ArgMax": _arg("argmax"), "ArgMin": _arg("argmin"),
    "TopK": _top_k, "CumSum": _cumsum,
}


def sequence(x: Any) -> Sequence[Any]:
    """Return several results, or one."""
    return list(x) if isinstance(x, (tuple, list)) else [x]
