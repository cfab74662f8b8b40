"""Image resampling: `resize` resizes images, and `scale_and_translate` scales and shifts them.

Shifts may be fractions of a pixel. Both functions accept arrays with any number of axes and can be
differentiated with respect to the image; `scale_and_translate` can also be differentiated with
respect to the scale and the translation.
"""

# Resampling along an axis is a matrix of kernel weights, built once for each axis; one einsum
# contracts all of them with the image.

from toile.image._scale import ResizeMethod, resize, scale_and_translate

__all__ = ["ResizeMethod", "resize", "scale_and_translate"]
