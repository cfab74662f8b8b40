"""Image resizing: `resize` to a shape, `scale_and_translate` by real factors.

Resampling along each axis is a matrix of kernel weights, built once per axis and contracted with
the image in one einsum; differentiable in the image, and in scale and translation.
"""

from toile.image._scale import ResizeMethod, resize, scale_and_translate

__all__ = ["ResizeMethod", "resize", "scale_and_translate"]
