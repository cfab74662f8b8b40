"""Code shared by layers with weights: their parameters, and functions that users can replace."""

from __future__ import annotations

from typing import Any

import numpy as np

from toile.engine.source import describe, here


def last_size(layer: Any, inputs: Any) -> int:
    """The number of input features: the length of the last axis."""
    try:
        shape = inputs.shape
    except AttributeError:  # a list of numbers
        shape = np.shape(inputs)
    if not shape:
        raise IndexError(
            f"{type(layer).__name__}: needed an input with a feature axis, got "
            f"{_scalar(inputs)}{here()}"
        )
    return shape[-1]


def _scalar(inputs: Any) -> str:
    """What a layer was given in place of an array with axes, and what to do."""
    if isinstance(inputs, dict):
        key = next(iter(inputs), "x")
        return f"{describe(inputs)} (pass one of its arrays, such as batch[{key!r}])"
    if not hasattr(inputs, "shape") and not isinstance(inputs, (bool, int, float, complex)):
        return f"{describe(inputs)} (pass an array of numbers)"
    return f"a scalar, {describe(inputs)} (reshape it to (1,), or to (batch, features))"


def kernel_and_bias(layer: Any, kernel_shape: Any, bias_shape: Any) -> tuple[Any, Any]:
    """The kernel and the bias of a layer; the bias is None if the layer has no bias."""
    kernel = layer.param("kernel", layer.kernel_init, kernel_shape, layer.param_dtype)
    if not layer.use_bias:
        return kernel, None
    return kernel, layer.param("bias", layer.bias_init, bias_shape, layer.param_dtype)


def chosen(made_by: Any, given: Any, default: Any = None) -> Any:
    """The function that a layer calls: the result of `made_by()`, `given`, or the default."""
    if made_by is not None:
        return made_by()
    return default if given is None else given
