"""`jax._src.dtypes`: the error for dtypes that cannot be promoted, and the public names."""

from toile.dtypes import TypePromotionError, canonicalize_dtype, finfo, issubdtype, prng_key

__all__ = ["TypePromotionError", "canonicalize_dtype", "finfo", "issubdtype", "prng_key"]
