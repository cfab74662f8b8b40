"""ONNX operators of layers: products, convolutions, pooling, norms, recurrent layers, resizing."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from toile import lax, nn
from toile import numpy as jnp
from toile.exporting.onnx_operators import Node, Operator

_ACTIVATIONS = {"Sigmoid": nn.sigmoid, "Tanh": jnp.tanh, "Relu": nn.relu}


def _matmul(xp: Any, n: Node) -> Any:
    return xp.matmul(n.xs[0], n.xs[1])


def _gemm(xp: Any, n: Node) -> Any:
    x, y, c = n.x(0), n.x(1), n.x(2)
    x = x.T if n.get("transA", 0) else x
    y = y.T if n.get("transB", 0) else y
    out = xp.matmul(x, y) * n.get("alpha", 1.0) if n.get("alpha", 1.0) != 1 else xp.matmul(x, y)
    return out if c is None else out + (c if n.get("beta", 1.0) == 1 else c * n.get("beta"))


def _einsum(xp: Any, n: Node) -> Any:
    return jnp.einsum(n.get("equation"), *n.xs)


def _pads(n: Node, spatial: Any, size: Any, strides: Any, dilations: Any) -> list[tuple[int, int]]:
    """Return the padding that `auto_pad` or `pads` specifies."""
    rank, mode = len(size), n.get("auto_pad", "NOTSET")
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        found = []
        for m, k, s, d in zip(spatial, size, strides, dilations, strict=True):
            total = max((-(-m // s) - 1) * s + (k - 1) * d + 1 - m, 0)
            low = total // 2 if mode == "SAME_UPPER" else total - total // 2
            found.append((low, total - low))
        return found
    pads = n.get("pads", [0] * 2 * rank) if mode == "NOTSET" else [0] * 2 * rank
    return list(zip(pads[:rank], pads[rank:], strict=True))


def _spec(rank: int) -> Any:
    axes = "".join("DHWXYZ"[:rank]) if rank != 2 else "HW"
    return f"NC{axes}", f"OI{axes}", f"NC{axes}"


def _conv(xp: Any, n: Node) -> Any:
    x, k, bias = jnp.asarray(n.x(0)), jnp.asarray(n.x(1)), n.x(2)
    rank = x.ndim - 2
    strides, dilations = n.get("strides", [1] * rank), n.get("dilations", [1] * rank)
    pads = _pads(n, x.shape[2:], k.shape[2:], strides, dilations)
    out = lax.conv_general_dilated(
        x, k, strides, pads, rhs_dilation=dilations, dimension_numbers=_spec(rank),
        feature_group_count=n.get("group", 1))
    return out if bias is None else out + bias.reshape(1, -1, *(1,) * rank)


def _conv_transpose(xp: Any, n: Node) -> Any:
    x, k, bias = jnp.asarray(n.x(0)), jnp.asarray(n.x(1)), n.x(2)
    rank, groups = x.ndim - 2, n.get("group", 1)
    strides, dilations = n.get("strides", [1] * rank), n.get("dilations", [1] * rank)
    extra = n.get("output_padding", [0] * rank)
    if n.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID") or "output_shape" in n.attributes:
        raise n.error("pads", "auto_pad or output_shape")
    pads = _pads(n, x.shape[2:], k.shape[2:], strides, dilations)
    config = [((m - 1) * d - low, (m - 1) * d - high + e) for m, d, (low, high), e in zip(
        k.shape[2:], dilations, pads, extra, strict=True)]
    # (I, O / groups, *K), flipped -> (O, I / groups, *K)
    k = jnp.flip(k, tuple(range(2, k.ndim)))
    k = k.reshape(groups, k.shape[0] // groups, *k.shape[1:]).swapaxes(1, 2)
    k = k.reshape(-1, *k.shape[2:])
    out = lax.conv_general_dilated(
        x, k, (1,) * rank, config, lhs_dilation=strides, rhs_dilation=dilations,
        dimension_numbers=_spec(rank), feature_group_count=groups)
    return out if bias is None else out + bias.reshape(1, -1, *(1,) * rank)


def _window(n: Node) -> tuple[Any, Any, Any, Any]:
    """The geometry of a pooling operator, with the batch and channel axes."""
    size, x = n.get("kernel_shape"), n.xs[0]
    rank = len(size)
    strides, dilations = n.get("strides", [1] * rank), n.get("dilations", [1] * rank)
    pads = _pads(n, x.shape[2:], size, strides, dilations)
    if n.get("ceil_mode", 0):
        pads = [(low, high + _missing(m + low + high - (k - 1) * d - 1, s, m, low))
                for m, k, s, d, (low, high) in zip(x.shape[2:], size, strides, dilations, pads,
                                                   strict=True)]
    return (1, 1, *size), (1, 1, *strides), [(0, 0), (0, 0), *pads], (1, 1, *dilations)


def _missing(room: int, stride: int, size: int, low: int) -> int:
    """Return how many elements the last window lacks if it starts within bounds."""
    extra = -room % stride
    starts_inside = (room + extra) // stride * stride < size + low
    return extra if starts_inside else 0


def _max_pool(xp: Any, n: Node) -> Any:
    size, strides, pads, dilations = _window(n)
    x = jnp.asarray(n.xs[0])
    low = -np.inf if np.dtype(x.dtype).kind == "f" else np.iinfo(x.dtype).min
    if n.results > 1:
        raise n.error("one result", "the indices of the largest elements")
    return lax.reduce_window(x, np.asarray(low, x.dtype), lax.max, size, strides, pads,
                             window_dilation=dilations)


def _average_pool(xp: Any, n: Node) -> Any:
    size, strides, pads, dilations = _window(n)
    x = jnp.asarray(n.xs[0])
    pool = lambda x, pads: lax.reduce_window(x, np.zeros((), x.dtype), lax.add, size, strides,
                                             pads, window_dilation=dilations)
    ones, given = jnp.ones((1, 1, *x.shape[2:]), x.dtype), pads
    if n.get("count_include_pad", 0):
        own = n.get("pads", [0] * 2 * (x.ndim - 2))
        rank = x.ndim - 2
        config = [(0, 0), (0, 0), *zip(own[:rank], own[rank:], strict=True)]
        ones = jnp.pad(ones, config, constant_values=1)
        given = [(a - c, b - d) for (a, b), (c, d) in zip(pads, config, strict=True)]
    return pool(x, pads) / pool(ones, given)


def _global(name: str) -> Operator:
    def apply(xp: Any, n: Node) -> Any:
        return getattr(xp, name)(n.xs[0], axis=tuple(range(2, n.xs[0].ndim)), keepdims=True)
    return apply


def _channels(x: Any, v: Any) -> Any:
    return v.reshape(1, -1, *(1,) * (x.ndim - 2))


def _batch_norm(xp: Any, n: Node) -> Any:
    x, scale, bias, mean, var = n.xs[:5]
    factor = scale / jnp.sqrt(var + n.get("epsilon", 1e-5))
    return (x - _channels(x, mean)) * _channels(x, factor) + _channels(x, bias)


def _normalized(x: Any, axes: tuple[int, ...], epsilon: float) -> Any:
    mean = jnp.mean(x, axes, keepdims=True)
    var = jnp.mean((x - mean) ** 2, axes, keepdims=True)
    return (x - mean) * lax.rsqrt(var + epsilon)


def _layer_norm(xp: Any, n: Node) -> Any:
    x, axis = n.xs[0], n.get("axis", -1)
    out = _normalized(x, tuple(range(axis % x.ndim, x.ndim)), n.get("epsilon", 1e-5)) * n.xs[1]
    return out if n.x(2) is None else out + n.xs[2]


def _instance_norm(xp: Any, n: Node) -> Any:
    x, scale, bias = n.xs
    out = _normalized(x, tuple(range(2, x.ndim)), n.get("epsilon", 1e-5))
    return out * _channels(x, scale) + _channels(x, bias)


def _group_norm(xp: Any, n: Node) -> Any:
    x, scale, bias = n.xs
    groups = n.get("num_groups")
    parts = x.reshape(x.shape[0], groups, -1)
    out = _normalized(parts, (2,), n.get("epsilon", 1e-5)).reshape(x.shape)
    if scale.shape[0] == groups != x.shape[1]:  # before version 21
        scale, bias = (jnp.repeat(v, x.shape[1] // groups) for v in (scale, bias))
    return out * _channels(x, scale) + _channels(x, bias)


def _lp_norm(xp: Any, n: Node) -> Any:
    x, axis = n.xs[0], n.get("axis", -1)
    return x / jnp.linalg.norm(x, n.get("p", 2), axis, keepdims=True)


def _softmax(function: Any) -> Operator:
    def apply(xp: Any, n: Node) -> Any:
        x = jnp.asarray(n.xs[0])
        if n.version >= 13:
            return function(x, axis=n.get("axis", -1))
        axis = n.get("axis", 1)  # over all axes from this one on
        flat = x.reshape(math.prod(x.shape[:axis]), -1)
        return function(flat, axis=-1).reshape(x.shape)
    return apply


# -------------------------------------------------------------------------------- recurrent layers


def _check_recurrent(n: Node) -> None:
    """Raise an error for options of recurrent layers that are not converted."""
    lengths = n.known(4)
    if n.get("layout", 0):
        raise n.error("layout=0", str(n.get("layout")))
    if lengths is not None and (lengths != n.xs[0].shape[0]).any():
        raise n.error("sequences of full length", f"lengths {lengths.tolist()}")


def _activations(n: Node, gates: int, directions: int) -> list[list[Any]]:
    """The functions of each direction."""
    names = n.get("activations") or (["Tanh"] if gates == 1 else ["Sigmoid", "Tanh", "Tanh"]) * 2
    if not set(names) <= set(_ACTIVATIONS):
        raise n.error("sigmoid, tanh and relu activations", ", ".join(names))
    each = len(names) // directions if n.get("activations") else len(names) // 2
    return [[_ACTIVATIONS[name] for name in names[d * each : (d + 1) * each]]
            for d in range(directions)]


def _recurrent(gates: int) -> Operator:
    def apply(xp: Any, n: Node) -> Any:
        _check_recurrent(n)
        x, w, r = (jnp.asarray(v) for v in n.xs[:3])
        hidden, batch, directions = n.get("hidden_size", r.shape[-1]), x.shape[1], w.shape[0]
        bias = n.x(3) if n.x(3) is not None else jnp.zeros((directions, 2 * gates * hidden))
        start = [v if v is not None else jnp.zeros((directions, batch, hidden), x.dtype)
                 for v in (n.x(5), n.x(6))]
        functions = _activations(n, gates, directions)
        found = []
        for d in range(directions):
            back = n.get("direction", "forward") == "reverse" or d == 1
            cell = _cell(n, gates, w[d], r[d], bias[d], functions[d])
            found.append(lax.scan(cell, (start[0][d], start[1][d]), x, reverse=back))
        outs = jnp.stack([ys for _, ys in found], 1)
        ends = [jnp.stack([carry[i] for carry, _ in found]) for i in range(2)]
        return [outs, *ends][: 3 if gates == 4 else 2]
    return apply


def _cell(n: Node, gates: int, w: Any, r: Any, bias: Any, fs: list[Any]) -> Any:
    """Compute one step of a layer; the gates are in ONNX's order."""
    own, recurrent = jnp.split(bias, 2)

    def lstm(carry: Any, x: Any) -> Any:
        h, c = carry
        i, o, f, g = jnp.split(x @ w.T + h @ r.T + own + recurrent, 4, -1)
        c = fs[0](f) * c + fs[0](i) * fs[1](g)
        h = fs[0](o) * fs[2](c)
        return (h, c), h

    def gru(carry: Any, x: Any) -> Any:
        h, c = carry
        zx, rx, hx = jnp.split(x @ w.T + own, 3, -1)
        rz, rr, rh = jnp.split(r, 3)
        bz, br, bh = jnp.split(recurrent, 3)
        z, reset = fs[0](zx + h @ rz.T + bz), fs[0](rx + h @ rr.T + br)
        if n.get("linear_before_reset", 0):
            new = fs[1](hx + reset * (h @ rh.T + bh))
        else:
            new = fs[1](hx + (reset * h) @ rh.T + bh)
        h = (1 - z) * new + z * h
        return (h, c), h

    def plain(carry: Any, x: Any) -> Any:
        h = fs[0](x @ w.T + carry[0] @ r.T + own + recurrent)
        return (h, carry[1]), h

    return {4: lstm, 3: gru, 1: plain}[gates]


def _resize(xp: Any, n: Node) -> Any:
    x = jnp.asarray(n.xs[0])
    last = len(n.xs) - 1
    sizes = n.known(3) if last >= 3 else None
    scales = n.known(2) if last >= 2 else n.known(1)
    shape = x.shape
    out = [int(s) for s in sizes] if sizes is not None and sizes.size else [
        int(math.floor(m * float(s))) for m, s in zip(shape, scales, strict=True)]
    mode = n.get("mode", "nearest")
    where = n.get("coordinate_transformation_mode", "half_pixel" if n.op == "Resize"
                  else "asymmetric")
    if mode not in ("nearest", "linear") or where not in _COORDINATES:
        raise n.error("nearest or linear resizing", f"{mode} with {where}")
    for axis, (m, k) in enumerate(zip(shape, out, strict=True)):
        if m != k:
            at = _COORDINATES[where](np.arange(k), m, k)
            x = _resampled(x, axis, at, m, mode, n.get("nearest_mode", "round_prefer_floor"))
    return x


_COORDINATES = {
    "half_pixel": lambda i, m, k: (i + 0.5) * m / k - 0.5,
    "pytorch_half_pixel": lambda i, m, k: (i + 0.5) * m / k - 0.5 if k > 1 else i * 0.0,
    "asymmetric": lambda i, m, k: i * m / k,
    "align_corners": lambda i, m, k: i * (m - 1) / max(k - 1, 1),
}
_NEAREST: dict[str, Any] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5), "round_prefer_ceil":
    lambda x: np.floor(x + 0.5), "floor": np.floor, "ceil": np.ceil,
}


def _resampled(x: Any, axis: int, at: Any, size: int, mode: str, nearest: str) -> Any:
    if mode == "nearest":
        index = np.clip(_NEAREST[nearest](at), 0, size - 1).astype(np.int32)
        return jnp.take(x, index, axis)
    at = np.clip(at, 0, size - 1)
    low = np.floor(at).astype(np.int32)
    part = (at - low).astype(np.float32).reshape([-1 if i == axis else 1 for i in range(x.ndim)])
    high = np.minimum(low + 1, size - 1)
    return jnp.take(x, low, axis) * (1 - part) + jnp.take(x, high, axis) * part


LAYERS: dict[str, Operator] = {
    "MatMul": _matmul, "Gemm": _gemm, "Einsum": _einsum, "Conv": _conv,
    "ConvTranspose": _conv_transpose, "MaxPool": _max_pool, "AveragePool": _average_pool,
    "GlobalAveragePool": _global("mean"), "GlobalMaxPool": _global("max"),
    "BatchNormalization": _batch_norm, "LayerNormalization": _layer_norm,
    "InstanceNormalization": _instance_norm, "GroupNormalization": _group_norm,
    "LpNormalization": _lp_norm, "Softmax": _softmax(nn.softmax),
    "LogSoftmax": _softmax(nn.log_softmax), "LSTM": _recurrent(4), "GRU": _recurrent(3),
    "RNN": _recurrent(1), "Resize": _resize, "Upsample": _resize,
}
