"""`jax._src.numpy.util`: functions that make the dtypes and shapes of arrays equal."""

from toile.numpy._promotion import promote_dtypes

__all__ = ["promote_dtypes"]
