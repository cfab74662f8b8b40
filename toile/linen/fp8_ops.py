"""Matrix products in eight-bit floats, with scales that adapt to the data.

Each operand is divided by a scale, clipped and rounded to float8 (`quantize`). The scale is
computed from the largest absolute values in the most recent steps:
`new_scale = max(amax_history) / fp8_max`, where `fp8_max` is the largest float8 number. Scales and
histories are variables of the collection `_overwrite_with_gradient`. The "gradient" of such a
variable is its new value, which the training step stores in place of the old value.
"""

from __future__ import annotations

import functools
import warnings
from typing import Any

import numpy as np

from toile import lax, random
from toile import numpy as jnp
from toile.api import custom_jvp, custom_vjp
from toile.engine.source import here
from toile.linen import initializers
from toile.linen.module import Module, nowrap
from toile.typing import DTypeLike

__all__ = [
    "OVERWRITE_WITH_GRADIENT", "Fp8DirectDotGeneralOp", "Fp8DotGeneral", "Fp8DotGeneralBase",
    "Fp8DotGeneralOp", "Fp8Einsum", "NANOOFp8DotGeneralOp", "compute_amax_history", "compute_scale",
    "dequantize", "dot_general_transpose_lhs", "dot_general_transpose_rhs",
    "dot_general_with_precision", "fp8_scaled_dot_general", "get_fp8_max", "in_q", "in_qdq",
    "out_dq", "out_qdq", "qdq", "quantize", "quantize_dequantize_update", "quantized_dot",
    "update_fp8_meta",
]  # fmt: skip

DType = Any
Dims = Any
OVERWRITE_WITH_GRADIENT = "_overwrite_with_gradient"
_FLOAT8 = (jnp.float8_e4m3fn, jnp.float8_e5m2, jnp.float8_e4m3fnuz, jnp.float8_e5m2fnuz)


# Rounding to float8 and back.


def get_fp8_max(fp8_dtype: DType, out_dtype: DType) -> Any:
    """Return the largest finite number of a float8 dtype, converted to another dtype."""
    assert fp8_dtype in _FLOAT8, f"get_fp8_max: needed a float8 dtype of products, got {fp8_dtype}"
    return jnp.finfo(fp8_dtype).max.astype(out_dtype)


def quantize(x: Any, q_dtype: DType, scale: Any, compute_dtype: DType) -> Any:
    """Divide `x` by `scale`, clip it to the range of `q_dtype` and round it to that dtype."""
    bound = get_fp8_max(q_dtype, compute_dtype)
    scaled = x / jnp.broadcast_to(scale.astype(compute_dtype), x.shape)
    return jnp.clip(scaled, -bound, bound).astype(q_dtype)


def dequantize(x: Any, dq_dtype: DType, scale: Any) -> Any:
    """Convert `x` to `dq_dtype` and multiply it by `scale`."""
    return x.astype(dq_dtype) * jnp.broadcast_to(scale.astype(dq_dtype), x.shape)


def qdq(x: Any, q_dtype: DType, scale: Any, compute_dtype: DType) -> Any:
    """Round `x` to float8 and convert it back to its dtype."""
    return dequantize(quantize(x, q_dtype, scale, compute_dtype), x.dtype, scale)


# Scales and histories.


def compute_scale(amax: Any, scale: Any, fp8_max: Any, margin: int = 0) -> Any:
    """The scale by which `amax` must be divided to obtain `fp8_max / 2**margin`.

    If `amax` is 0 or not finite, the result is the old scale. The reciprocal of the scale is
    computed first, so two divisions are rounded. Other libraries call this reciprocal the scale."""
    old = 1.0 / scale
    found = (fp8_max / amax) / (2**margin)
    found = jnp.where(amax > 0.0, found, old)
    return 1.0 / jnp.where(jnp.isfinite(amax), found, old)


def compute_amax_history(x: Any, amax_history: Any) -> Any:
    """The history in which the largest absolute value of `x` replaces the oldest entry."""
    newest = jnp.max(jnp.abs(x)).astype(amax_history.dtype)
    return jnp.roll(amax_history, shift=-1, axis=0).at[0].set(newest)


def update_fp8_meta(x: Any, q_dtype: DType, scale: Any, amax_history: Any) -> tuple[Any, Any]:
    """The new scale, computed from the old history, and the new history, which includes `x`."""
    bound = get_fp8_max(q_dtype, jnp.float32)
    new_scale = compute_scale(jnp.max(amax_history, axis=0), scale, bound)
    return new_scale, compute_amax_history(x, amax_history)


def quantize_dequantize_update(
    x: Any, q_dtype: DType, scale: Any, amax_history: Any, compute_dtype: DType
) -> tuple[Any, Any, Any]:
    """The input rounded to float8 with the new scale, the new scale, and the new history."""
    new_scale, new_history = update_fp8_meta(x, q_dtype, scale, amax_history)
    return qdq(x, q_dtype, new_scale, compute_dtype), new_scale, new_history


# Rounding of operands (forward) and of cotangents (backward).


@functools.partial(custom_vjp, nondiff_argnums=(0, 1))
def in_qdq(compute_dtype: DType, q_dtype: DType, inp: Any, scale: Any, amax_history: Any) -> Any:
    """Round an operand to float8 and convert it back; its cotangent is unchanged."""
    return quantize_dequantize_update(inp, q_dtype, scale, amax_history, compute_dtype)[0]


def in_qdq_fwd(
    compute_dtype: DType, q_dtype: DType, inp: Any, scale: Any, amax_history: Any
) -> tuple[Any, Any]:
    """The rounded operand, and the "gradients" of the scale and the history."""
    out, *new = quantize_dequantize_update(inp, q_dtype, scale, amax_history, compute_dtype)
    return out, tuple(new)


def in_qdq_bwd(compute_dtype: DType, q_dtype: DType, res: Any, g: Any) -> tuple[Any, Any, Any]:
    """The cotangent, the new scale and the new history."""
    return (g, *res)


in_qdq.defvjp(in_qdq_fwd, in_qdq_bwd)


@functools.partial(custom_vjp, nondiff_argnums=(0, 1))
def out_qdq(compute_dtype: DType, q_dtype: DType, out: Any, scale: Any, amax_history: Any) -> Any:
    """Return a result unchanged, but round its cotangent to float8."""
    return out


def out_qdq_fwd(
    compute_dtype: DType, q_dtype: DType, out: Any, scale: Any, amax_history: Any
) -> tuple[Any, Any]:
    """The result, and the scale and history that are needed to round its cotangent."""
    return out, (scale, amax_history)


def out_qdq_bwd(compute_dtype: DType, q_dtype: DType, res: Any, g: Any) -> tuple[Any, Any, Any]:
    """The rounded cotangent, the new scale and the new history."""
    scale, amax_history = res
    return quantize_dequantize_update(g, q_dtype, scale, amax_history, compute_dtype)


out_qdq.defvjp(out_qdq_fwd, out_qdq_bwd)


@functools.partial(custom_vjp, nondiff_argnums=(0, 1))
def in_q(
    compute_dtype: DType, q_dtype: DType, inp: Any, scale: Any, amax_history: Any
) -> tuple[Any, Any]:
    """An operand in float8, and its new scale; `quantized_dot` computes the operand's cotangent."""
    return in_q_fwd(compute_dtype, q_dtype, inp, scale, amax_history)[0]


def in_q_fwd(
    compute_dtype: DType, q_dtype: DType, inp: Any, scale: Any, amax_history: Any
) -> tuple[Any, Any]:
    """The results, and the "gradients" of the scale and the history."""
    new = update_fp8_meta(inp, q_dtype, scale, amax_history)
    return (quantize(inp, q_dtype, new[0], compute_dtype), new[0]), new


def in_q_bwd(compute_dtype: DType, q_dtype: DType, res: Any, _: Any) -> tuple[Any, Any, Any]:
    """None, the new scale and the new history."""
    return (None, *res)


in_q.defvjp(in_q_fwd, in_q_bwd)


@functools.partial(custom_vjp, nondiff_argnums=(0,))
def out_dq(dq_type: DType, lhs_scale: Any, rhs_scale: Any, out: Any) -> Any:
    """Multiply the product of scaled operands by both scales; the cotangent is unchanged."""
    return dequantize(out, dq_type, lhs_scale * rhs_scale)


def out_dq_fwd(dq_type: DType, lhs_scale: Any, rhs_scale: Any, out: Any) -> tuple[Any, None]:
    """The result, without residuals."""
    return out_dq(dq_type, lhs_scale, rhs_scale, out), None


def out_dq_bwd(dq_type: DType, _: None, g: Any) -> tuple[None, None, Any]:
    """The cotangent of the product; the scales have none."""
    return None, None, g


out_dq.defvjp(out_dq_fwd, out_dq_bwd)


# Products.


def _without(ndim: int, *axes: Any) -> list[int]:
    gone = {i for group in axes for i in group}
    return [i for i in range(ndim) if i not in gone]


def dot_general_transpose_lhs(
    g: Any, x: Any, y: Any, *, dimension_numbers: Dims, precision: Any,
    preferred_element_type: DTypeLike | None, swap_ans: bool = False,
) -> Any:  # fmt: skip
    """The cotangent of `x` in `dot_general(x, y)` or, with `swap_ans`, in `dot_general(y, x)`.

    It is the product of `g` and `y` over the axes of `y` that are neither contracted nor batch
    axes."""
    (x_contract, y_contract), (x_batch, y_batch) = dimension_numbers
    x_kept = _without(jnp.ndim(x), x_contract, x_batch)
    y_kept = _without(jnp.ndim(y), y_contract, y_batch)
    first = len(x_batch) + (0 if swap_ans else len(x_kept))  # g: batch, then kept axes of both
    g_y = range(first, first + len(y_kept))
    dims = ((g_y, y_kept), (range(len(x_batch)), y_batch))
    product = lax.dot_general(
        g, y, dims, precision=precision, preferred_element_type=preferred_element_type
    )
    contracted = [x_contract[i] for i in np.argsort(y_contract)]  # those of y are in order
    return lax.transpose(product, tuple(np.argsort([*x_batch, *x_kept, *contracted]).tolist()))


def dot_general_transpose_rhs(
    g: Any, x: Any, y: Any, *, dimension_numbers: Dims, precision: Any,
    preferred_element_type: DTypeLike | None,
) -> Any:  # fmt: skip
    """The cotangent of `y` in `dot_general(x, y)`."""
    (x_contract, y_contract), (x_batch, y_batch) = dimension_numbers
    return dot_general_transpose_lhs(
        g, y, x, dimension_numbers=((y_contract, x_contract), (y_batch, x_batch)),
        precision=precision, preferred_element_type=preferred_element_type, swap_ans=True,
    )  # fmt: skip


@functools.partial(custom_vjp, nondiff_argnums=(8, 9))
def quantized_dot(
    lhs: Any, q_lhs: Any, lhs_scale: Any, rhs: Any, q_rhs: Any, rhs_scale: Any,
    out_grad_scale: Any, out_grad_amax_history: Any, dimension_numbers: Dims,
    preferred_element_type: DType = None,
) -> Any:  # fmt: skip
    """The product of the float8 operands; gradients are passed to the unrounded operands.

    The scales of the operands belong to the current step. The scale and the history of the
    cotangent belong to the previous step."""
    return lax.dot_general(
        q_lhs, q_rhs, dimension_numbers, preferred_element_type=preferred_element_type,
        precision=lax.Precision.DEFAULT,
    )  # fmt: skip


def quantized_dot_fwd(*args: Any) -> tuple[Any, Any]:
    """The product, and all operands as residuals."""
    return quantized_dot(*args), args[:8]


def quantized_dot_bwd(
    dimension_numbers: Dims, preferred_element_type: DType, res: Any, g: Any
) -> tuple[Any, ...]:
    """The gradients, computed with the cotangent in float8_e5m2, which has a sufficient range."""
    lhs, q_lhs, lhs_scale, rhs, q_rhs, rhs_scale, *of_grad = res
    new_scale, new_history = update_fp8_meta(g, jnp.float8_e5m2, *of_grad)
    q_g = quantize(g, jnp.float8_e5m2, new_scale, preferred_element_type)
    options = {
        "dimension_numbers": dimension_numbers,
        "precision": lax.Precision.HIGHEST,
        "preferred_element_type": preferred_element_type,
    }
    grad_lhs = dot_general_transpose_lhs(q_g, lhs, q_rhs, **options)
    grad_lhs = dequantize(grad_lhs, preferred_element_type, rhs_scale * new_scale)
    grad_rhs = dot_general_transpose_rhs(q_g, q_lhs, rhs, **options)
    grad_rhs = dequantize(grad_rhs, preferred_element_type, lhs_scale * new_scale)
    # Zeros, not None: a cotangent has to arrive at `in_q`, or its backward pass would not run.
    none = jnp.zeros_like(lhs_scale), jnp.zeros_like(rhs_scale)
    return grad_lhs, None, none[0], grad_rhs, None, none[1], new_scale, new_history


quantized_dot.defvjp(quantized_dot_fwd, quantized_dot_bwd)


def fp8_scaled_dot_general(
    lhs: Any, rhs: Any, dimension_numbers: Dims, precision: Any = None,
    preferred_element_type: DType = None, *,
    lhs_scale: Any = None, rhs_scale: Any = None, grad_scale: Any = None,
    lhs_amax_history: Any = None, rhs_amax_history: Any = None, grad_amax_history: Any = None,
    quantize_compute_type: DType = jnp.float32,
) -> Any:  # fmt: skip
    """Scale two arrays, multiply them in float8_e4m3fn, and scale the product back."""
    if precision is not None:
        warnings.warn(
            'The function fp8_scaled_dot_general will set the "precision" and disregard any '
            'provided "precision" argument.',
            stacklevel=2,
        )
    e4m3 = jnp.float8_e4m3fn
    q_lhs, lhs_scale = in_q(quantize_compute_type, e4m3, lhs, lhs_scale, lhs_amax_history)
    q_rhs, rhs_scale = in_q(quantize_compute_type, e4m3, rhs, rhs_scale, rhs_amax_history)
    y = quantized_dot(
        *(lhs, q_lhs, lhs_scale, rhs, q_rhs, rhs_scale, grad_scale, grad_amax_history),
        dimension_numbers,
        preferred_element_type,
    )
    return out_dq(preferred_element_type, lhs_scale, rhs_scale, y)


@functools.partial(custom_jvp, nondiff_argnums=(2, 3, 4))
def dot_general_with_precision(
    lhs: Any,
    rhs: Any,
    dimension_numbers: Dims,
    precision: Any = None,
    preferred_element_type: DType = None,
) -> Any:
    """Multiply in the default precision, and compute derivatives in the highest precision."""
    if precision is not None or preferred_element_type is not None:
        warnings.warn(
            "The function dot_general_with_precision will set the precision/"
            "preferred_element_type and disregard any provided values.",
            stacklevel=2,
        )
    return lax.dot_general(lhs, rhs, dimension_numbers, precision=lax.Precision.DEFAULT)


@dot_general_with_precision.defjvp
def dot_general_with_precision_jvp(
    dimension_numbers: Dims, precision: Any, preferred_element_type: DType, primals: Any,
    tangents: Any,
) -> tuple[Any, Any]:  # fmt: skip
    """The product and its tangent."""
    (lhs, rhs), (dlhs, drhs) = primals, tangents
    highest = functools.partial(
        lax.dot_general, dimension_numbers=dimension_numbers, precision=lax.Precision.HIGHEST
    )
    out = lax.dot_general(lhs, rhs, dimension_numbers, precision=lax.Precision.DEFAULT)
    return out, highest(dlhs, rhs) + highest(lhs, drhs)


# Modules for the fields of layers that take a class, such as `dot_general_cls`.


def _operands(name: str, args: tuple[Any, ...]) -> tuple[Any, Any, Dims, DType]:
    """The operands in the dtype of the second one, in which the layer computes."""
    if len(args) != 3:
        raise AssertionError(
            f"{name}: needed (lhs, rhs, dimension_numbers), got {len(args)} arguments{here()}"
        )
    x, k, dimension_numbers = args
    return jnp.asarray(x, k.dtype), k, dimension_numbers, k.dtype


class Fp8DotGeneralBase(Module):
    """Base class with scales and histories for the two operands and the output gradient.

    Args:
        amax_history_length: number of past steps whose largest absolute values determine the
            scales.
        e4m3_dtype: float8 dtype of the operands.
        e5m2_dtype: float8 dtype of the gradient of the output.
    """

    amax_history_length: int = 1024
    e4m3_dtype: DType = jnp.float8_e4m3fn
    e5m2_dtype: DType = jnp.float8_e5m2

    def setup(self) -> None:
        """Declare the scales and the histories."""
        key = random.PRNGKey(0)  # for initializers that use no random numbers
        history = (initializers.zeros_init(), key, (self.amax_history_length,), jnp.float32)
        scale = (initializers.ones_init(), key, (1,), jnp.float32)
        variable = functools.partial(self.variable, OVERWRITE_WITH_GRADIENT)
        self.input_amax_history = variable("input_amax_history", *history)
        self.kernel_amax_history = variable("kernel_amax_history", *history)
        self.output_grad_amax_history = variable("output_grad_amax_history", *history)
        self.input_scale = variable("input_scale", *scale)
        self.kernel_scale = variable("kernel_scale", *scale)
        self.output_grad_scale = variable("output_grad_scale", *scale)

    @nowrap
    def _scaled_dot_general(self, compute_dtype: DType) -> Any:
        """`fp8_scaled_dot_general` with this module's variables."""
        return functools.partial(
            fp8_scaled_dot_general,
            lhs_scale=self.input_scale.value,
            rhs_scale=self.kernel_scale.value,
            grad_scale=self.output_grad_scale.value,
            lhs_amax_history=self.input_amax_history.value,
            rhs_amax_history=self.kernel_amax_history.value,
            grad_amax_history=self.output_grad_amax_history.value,
            quantize_compute_type=compute_dtype,
        )


class Fp8DotGeneralOp(Fp8DotGeneralBase):
    """A `dot_general` whose operands are rounded to float8 and converted back; deprecated.

    Use `Fp8DirectDotGeneralOp` or `Fp8Einsum` instead. Pass this class to a layer as
    `dot_general_cls`. Its variables are in the collection `_overwrite_with_gradient`. The input,
    the kernel and the gradient of the output each have a scale of shape (1,) and a history of shape
    (amax_history_length,). The "gradients" of these variables are their new values.

    Args:
        amax_history_length: number of past steps whose largest absolute values determine the
            scales.
        e4m3_dtype: float8 dtype of the operands.
        e5m2_dtype: float8 dtype of the gradient of the output.

    >>> import warnings
    >>> import toile.linen as nn
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore", DeprecationWarning)
    ...     layer = nn.Dense(2, dot_general_cls=nn.Fp8DotGeneralOp)
    ...     y, variables = layer.init_with_output(key(0), jnp.ones((4, 3)))
    >>> toile.tree.map(jnp.shape, variables["params"]), y.shape
    ({'bias': (2,), 'kernel': (3, 2)}, (4, 2))
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if type(self) is Fp8DotGeneralOp:
            warnings.warn(
                "The Fp8DotGeneralOp is deprecated. Use Fp8DirectDotGeneralOp or Fp8Einsum "
                "instead.",
                DeprecationWarning,
                stacklevel=2,
            )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the product of two arrays.

        Args:
            *args: the operands and the dimension numbers, as in `toile.lax.dot_general`.
            **kwargs: not used; this class chooses `precision` and `preferred_element_type`.

        Returns:
            The product, in the dtype of the second operand.
        """
        x, k, dimension_numbers, dtype = _operands("Fp8DotGeneralOp", args)
        e4m3 = self.e4m3_dtype
        x = in_qdq(dtype, e4m3, x, self.input_scale.value, self.input_amax_history.value)
        k = in_qdq(dtype, e4m3, k, self.kernel_scale.value, self.kernel_amax_history.value)
        y = dot_general_with_precision(x, k, dimension_numbers)
        scale, history = self.output_grad_scale.value, self.output_grad_amax_history.value
        return out_qdq(dtype, self.e5m2_dtype, y, scale, history)


class NANOOFp8DotGeneralOp(Fp8DotGeneralOp):
    """An `Fp8DotGeneralOp` with the float8 dtypes that have no infinities and no negative zero.

    Pass this class to a layer as `dot_general_cls`. It has the same variables as `Fp8DotGeneralOp`.

    Args:
        amax_history_length: number of past steps whose largest absolute values determine the
            scales.
        e4m3_dtype: float8 dtype of the operands.
        e5m2_dtype: float8 dtype of the gradient of the output.

    >>> import toile.linen as nn
    >>> layer = nn.Dense(2, dot_general_cls=nn.NANOOFp8DotGeneralOp)
    >>> variables = layer.init(key(0), jnp.ones((4, 3)))
    >>> toile.tree.map(jnp.shape, variables["params"])
    {'bias': (2,), 'kernel': (3, 2)}
    >>> layer.apply(variables, jnp.ones((4, 3))).shape
    (4, 2)
    """

    e4m3_dtype: DType = jnp.float8_e4m3fnuz
    e5m2_dtype: DType = jnp.float8_e5m2fnuz


class Fp8DirectDotGeneralOp(Fp8DotGeneralBase):
    """A `dot_general` that multiplies its operands in float8, with scales that adapt to the data.

    Pass this class to a layer as `dot_general_cls`. Its variables are in the collection
    `_overwrite_with_gradient`. The input, the kernel and the gradient of the output each have a
    scale of shape (1,) and a history of shape (amax_history_length,). The "gradients" of these
    variables are their new values, which `TrainState.apply_gradients` stores.

    Args:
        amax_history_length: number of past steps whose largest absolute values determine the
            scales.
        e4m3_dtype: not used; the operands are always float8_e4m3fn.
        e5m2_dtype: not used; the gradient of the output is always float8_e5m2.

    >>> import toile.linen as nn
    >>> layer = nn.Dense(2, dot_general_cls=nn.Fp8DirectDotGeneralOp)
    >>> variables = layer.init(key(0), jnp.ones((4, 3)))
    >>> shapes = toile.tree.map(jnp.shape, variables["_overwrite_with_gradient"])
    >>> shapes["Fp8DirectDotGeneralOp_0"]["input_amax_history"]
    (1024,)
    >>> layer.apply(variables, jnp.ones((4, 3))).shape
    (4, 2)
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the product of two arrays.

        Args:
            *args: the operands and the dimension numbers, as in `toile.lax.dot_general`.
            **kwargs: not used; this class chooses `precision` and `preferred_element_type`.

        Returns:
            The product, in the dtype of the second operand.
        """
        x, k, dimension_numbers, dtype = _operands("Fp8DirectDotGeneralOp", args)
        product = self._scaled_dot_general(dtype)
        return product(x, k, dimension_numbers, preferred_element_type=x.dtype)


Fp8DotGeneral = Fp8DirectDotGeneralOp


class Fp8Einsum(Fp8DotGeneralBase):
    """Einstein summation of two operands in float8, with scales that adapt to the data.

    The second operand is the kernel, and the computation uses the kernel's dtype. The variables of
    the module are in the collection `_overwrite_with_gradient`. The input, the kernel and the
    gradient of the output each have a scale of shape (1,) and a history of shape
    (amax_history_length,). The "gradients" of these variables are their new values, which
    `TrainState.apply_gradients` stores.

    Args:
        amax_history_length: number of past steps whose largest absolute values determine the
            scales.
        e4m3_dtype: not used; the operands are always float8_e4m3fn.
        e5m2_dtype: not used; the gradient of the output is always float8_e5m2.

    >>> import toile.linen as nn
    >>> x, kernel = jnp.ones((4, 3)), jnp.ones((3, 2))
    >>> variables = nn.Fp8Einsum().init(key(0), "ij,jk->ik", x, kernel)
    >>> variables["_overwrite_with_gradient"]["kernel_scale"].shape
    (1,)
    >>> nn.Fp8Einsum().apply(variables, "ij,jk->ik", x, kernel).shape
    (4, 2)
    """

    def __call__(
        self,
        eqn: str,
        lhs: Any,
        rhs: Any,
        precision: Any = None,
        preferred_element_type: DTypeLike | None = None,
    ) -> Any:
        """Compute the Einstein summation of two operands.

        Args:
            eqn: equation, as in `jnp.einsum`.
            lhs: the input; it is converted to the dtype of `rhs`.
            rhs: the kernel.
            precision: not used; a value other than None causes a warning.
            preferred_element_type: dtype of the sums and of the result.

        Returns:
            The result of the summation.
        """
        return jnp.einsum(
            eqn, lhs.astype(rhs.dtype), rhs, precision=precision,
            preferred_element_type=preferred_element_type,
            _dot_general=self._scaled_dot_general(rhs.dtype),
        )  # fmt: skip
