"""The names of `jax.experimental.compilation_cache`; toile's own cache has other settings."""

from toile.experimental.compilation_cache import compilation_cache as compilation_cache
