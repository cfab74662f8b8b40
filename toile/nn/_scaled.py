"""Matrix products of block-scaled low-precision operands (MXFP8 and NVFP4).

Each block of consecutive elements along the contracted axis has one scale, which is stored in 8
bits. To compute a product, the operands are converted back to float32. This conversion defines the
meaning of the formats on every device.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import ml_dtypes
import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.api import custom_vjp
from toile.engine.annotations import Array, ArrayLike, DTypeLike
from toile.engine.records import dataclass
from toile.engine.source import here

AxesOfBoth: TypeAlias = tuple[Sequence[int], Sequence[int]]
DotDimensionNumbers: TypeAlias = tuple[AxesOfBoth, AxesOfBoth]


@dataclass
class BlockScaleConfig:
    """A description of how one operand is quantized: element type, scale type and block size.

    Args:
        mode: "mxfp8" or "nvfp4".
        block_size: number of elements along the contracted axis that share a scale.
        data_type: dtype to which elements are rounded.
        scale_type: dtype to which scales are rounded.
        global_scale: in mode "nvfp4", an additional scale for the whole array; None in mode
            "mxfp8". The array is divided by this scale before the blocks are quantized, and
            multiplied by it afterward.
        infer_only: ignored.
    """

    mode: str
    block_size: int
    data_type: Any
    scale_type: Any
    global_scale: Any
    infer_only: bool


def get_scaled_dot_general_config(
    mode: Literal["nvfp4", "mxfp8"], global_scale: Array | None = None
) -> BlockScaleConfig:
    """Create the configuration that `scaled_dot_general` uses to quantize an operand.

    Args:
        mode: "mxfp8" for 8-bit elements in blocks of 32, or "nvfp4" for 4-bit elements in blocks of
            16.
        global_scale: in mode "nvfp4", an additional scale for the whole array, as a float32 array
            of shape (1,); None for 1. The operand is divided by this scale before the blocks are
            quantized, and multiplied by it afterward.

    Returns:
        The configuration of one operand.

    >>> config = toile.nn.get_scaled_dot_general_config("mxfp8")
    >>> config.block_size, config.data_type.__name__, config.scale_type.__name__
    (32, 'float8_e4m3fn', 'float8_e8m0fnu')
    """
    if mode == "nvfp4":
        if global_scale is None:
            global_scale = jnp.ones((1,), dtype=np.float32)
        return BlockScaleConfig(mode="nvfp4", block_size=16, data_type=ml_dtypes.float4_e2m1fn,
                                scale_type=ml_dtypes.float8_e4m3fn, global_scale=global_scale,
                                infer_only=False)
    if mode == "mxfp8":
        return BlockScaleConfig(mode="mxfp8", block_size=32, data_type=ml_dtypes.float8_e4m3fn,
                                scale_type=ml_dtypes.float8_e8m0fnu, global_scale=None,
                                infer_only=False)
    raise ValueError(f"Unsupported mode: {mode}{here()}")


def scaled_matmul(
    lhs: Array, rhs: Array, lhs_scales: Array, rhs_scales: Array,
    preferred_element_type: DTypeLike = np.float32
) -> Array:
    """Multiply batches of block-scaled matrices: `lhs` times the transposes of `rhs`.

    Each row is divided into blocks of equal size, each of which has its own scale. All elements of
    a block are multiplied by the block's scale. Products are computed in float32.

    Args:
        lhs: array of shape (B, M, K).
        rhs: array of shape (B, N, K).
        lhs_scales: scales of `lhs`, of shape (B, M, K / block size).
        rhs_scales: scales of `rhs`, of shape (B, N, K / block size).
        preferred_element_type: dtype of the result.

    Returns:
        An array of shape (B, M, N).

    Raises:
        ValueError: an array does not have three axes, or the sizes do not match.

    >>> x, y = jnp.ones((1, 2, 4)), jnp.ones((1, 3, 4))
    >>> scales = jnp.full((1, 2, 2), 10.0), jnp.ones((1, 3, 2))  # two blocks of two elements
    >>> toile.nn.scaled_matmul(x, y, *scales)
    Array([[[40., 40., 40.],
            [40., 40., 40.]]], dtype=float32)
    """
    if not all(x.ndim == 3 for x in (lhs, rhs, lhs_scales, rhs_scales)):
        raise ValueError("scaled_matmul requires all inputs to be 3-dimensional arrays" + here())
    if lhs.shape[2] != rhs.shape[2] or lhs.shape[0] != rhs.shape[0]:
        raise ValueError("scaled_matmul requires inputs a and b to have matching batch (B) and "
                         f"contract (K) dimensions, but got shapes {lhs.shape} and "
                         f"{rhs.shape}{here()}")
    if lhs_scales.shape[2] != rhs_scales.shape[2] or lhs_scales.shape[0] != rhs_scales.shape[0]:
        raise ValueError("scaled_matmul requires scales to have matching batch (B) and contract "
                         f"(K) dimensions, but got shapes {lhs_scales.shape} and "
                         f"{rhs_scales.shape}{here()}")
    if lhs_scales.shape[1] != lhs.shape[1] or rhs_scales.shape[1] != rhs.shape[1]:
        raise ValueError("scaled_matmul requires scales to match non-contract dimensions of "
                         f"inputs, but got shapes a: {lhs.shape}, b: {rhs.shape}, a_scales: "
                         f"{lhs_scales.shape}, b_scales: {rhs_scales.shape}{here()}")
    a, b = _dequantize(lhs, lhs_scales), _dequantize(rhs, rhs_scales)
    out = lax.dot_general(a, b, (((2,), (2,)), ((0,), (0,))), preferred_element_type=np.float32)
    return out.astype(preferred_element_type)


def _dequantize(x, scales):
    blocks = scales.shape[-1]
    x = x.astype(np.float32).reshape((*x.shape[:-1], blocks, -1))
    x = x * scales.astype(np.float32)[..., None]
    return x.reshape((*x.shape[:-2], -1))


def scaled_dot_general(
    lhs: ArrayLike, rhs: ArrayLike, dimension_numbers: DotDimensionNumbers,
    preferred_element_type: DTypeLike | None = np.float32,
    configs: Sequence[BlockScaleConfig] | None = None,
    implementation: Literal["cudnn"] | None = None
) -> Array:
    """Multiply two arrays like `lax.dot_general`, with operands quantized to low precision.

    In the backward pass, the gradient of the result (the cotangent) is quantized too.

    Args:
        lhs, rhs: arrays to contract. Contracted sizes must be multiples of the block size.
        dimension_numbers: the contracted axes and the batch axes of both operands, as
            `((lhs_contract, rhs_contract), (lhs_batch, rhs_batch))`.
        preferred_element_type: dtype of the result; None for the dtype that the operands promote
            to.
        configs: three configurations from `get_scaled_dot_general_config`, for `lhs`, `rhs` and the
            cotangent; None for no quantization.
        implementation: ignored; a value other than None causes a DeprecationWarning.

    Returns:
        An array whose axes are, in this order, the batch axes, the remaining axes of `lhs` and the
        remaining axes of `rhs`; the contracted axes are absent.

    >>> config = toile.nn.get_scaled_dot_general_config("mxfp8")
    >>> x, y = jnp.ones((2, 32)), jnp.full((32, 3), 0.5)
    >>> toile.nn.scaled_dot_general(x, y, (((1,), (0,)), ((), ())), configs=[config] * 3)
    Array([[16., 16., 16.],
           [16., 16., 16.]], dtype=float32)
    """
    if implementation is not None:
        warnings.warn(
            "Backend selector, now ignored. The system chooses the backend automatically.",
            DeprecationWarning, stacklevel=2,
        )
    if configs is None:
        return lax.dot_general(lhs, rhs, dimension_numbers,
                               preferred_element_type=preferred_element_type)
    if preferred_element_type is None:
        preferred_element_type = jnp.result_type(lhs, rhs)
    (lc, rc), (lb, rb) = dimension_numbers
    static = ((tuple(lc), tuple(rc)), (tuple(lb), tuple(rb)))
    return _quantized_dot(static, preferred_element_type, _Configs(configs), lhs, rhs)


class _Configs:
    """The configurations as one hashable static argument."""

    def __init__(self, configs):
        self.all = tuple(configs)


def _quantized_contract(lhs, rhs, dims, dtype, lhs_config, rhs_config):
    (lc, rc), (lb, rb) = dims
    a, b = _to_3d(lhs, lc, lb), _to_3d(rhs, rc, rb)
    out = jnp.einsum("bmk,bnk->bmn", _rounded(a, lhs_config), _rounded(b, rhs_config))
    kept = [lhs.shape[i] for i in range(lhs.ndim) if i not in (*lc, *lb)]
    kept += [rhs.shape[i] for i in range(rhs.ndim) if i not in (*rc, *rb)]
    return out.reshape([lhs.shape[i] for i in lb] + kept).astype(dtype)


def _to_3d(x, contract, batch):
    kept = [i for i in range(x.ndim) if i not in (*contract, *batch)]
    sizes = [math.prod(x.shape[i] for i in axes) for axes in (batch, kept, contract)]
    return jnp.transpose(x, (*batch, *kept, *contract)).reshape(sizes)


def _rounded(x, config):
    """`x` after quantization and dequantization, in float32."""
    size = config.block_size
    if x.shape[-1] % size:
        raise ValueError(f"scaled_dot_general: needed a contracted size divisible by {size}, got "
                         f"{x.shape[-1]}{here()}")
    x = x.astype(np.float32).reshape((*x.shape[:-1], -1, size))
    largest = float(ml_dtypes.finfo(config.data_type).max)
    if config.mode == "nvfp4":
        x = x / config.global_scale
    scale = jnp.max(jnp.abs(x), axis=-1, keepdims=True) / largest
    if config.mode == "mxfp8":  # the smallest power of two that is not below the scale
        _, exponent = jnp.frexp(scale)
        power = jnp.where(scale == jnp.ldexp(0.5, exponent), exponent - 1, exponent)
        scale = jnp.exp2(jnp.clip(power, -127, 127).astype(np.float32))
    else:
        limit = float(ml_dtypes.finfo(config.scale_type).max)
        scale = jnp.clip(scale, 0, limit).astype(config.scale_type).astype(np.float32)
    safe = jnp.where(scale == 0, 1.0, scale)
    q = jnp.clip(x / safe, -largest, largest).astype(config.data_type).astype(np.float32)
    if config.mode == "nvfp4":
        scale = scale * config.global_scale
    return (q * scale).reshape((*x.shape[:-2], -1))


@functools.partial(custom_vjp, nondiff_argnums=(0, 1, 2))
def _quantized_dot(dims, dtype, configs, lhs, rhs):
    return _quantized_contract(lhs, rhs, dims, dtype, configs.all[0], configs.all[1])


def _quantized_fwd(dims, dtype, configs, lhs, rhs):
    return _quantized_dot(dims, dtype, configs, lhs, rhs), (lhs, rhs)


def _operand_gradient(ct, x, y, x_dims, y_dims, ct_y, configs):
    """Cotangent of `x`: `ct` contracted with `y` over y's kept axes, both quantized along them."""
    (xc, xb), (yc, yb) = x_dims, y_dims
    y_kept = [i for i in range(y.ndim) if i not in (*yc, *yb)]
    dims = ((tuple(ct_y), tuple(y_kept)), (tuple(range(len(xb))), tuple(yb)))
    out = _quantized_contract(ct, y, dims, np.float32, *configs)  # batch, x kept, y's contracted
    order = [xc[k] for k in np.argsort(yc)]
    kept = [i for i in range(x.ndim) if i not in (*xc, *xb)]
    return jnp.transpose(out, np.argsort([*xb, *kept, *order])).astype(x.dtype)


def _quantized_bwd(dims, dtype, configs, saved, ct):
    lhs, rhs = saved
    (lc, rc), (lb, rb) = dims
    lhs_config, rhs_config, ct_config = configs.all
    left = range(len(lb), lhs.ndim - len(lc))
    right = range(lhs.ndim - len(lc), ct.ndim)
    dlhs = _operand_gradient(ct, lhs, rhs, (lc, lb), (rc, rb), right, (ct_config, rhs_config))
    drhs = _operand_gradient(ct, rhs, lhs, (rc, rb), (lc, lb), left, (ct_config, lhs_config))
    return dlhs, drhs


_quantized_dot.defvjp(_quantized_fwd, _quantized_bwd)
