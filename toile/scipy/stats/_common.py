"""What distributions with a location and a scale share."""

import numpy as np

from toile import numpy as jnp
from toile.nn._promote import inexact


def standardized(name, x, loc, scale):
    """(x - loc) / scale and the scale, in one floating dtype."""
    x, loc, scale = inexact(name, x, loc, scale)
    return (x - loc) / scale, scale


def where_positive(scale, value):
    """`value`, or NaN where the scale is not positive."""
    return jnp.where(scale > 0, value, np.nan)
