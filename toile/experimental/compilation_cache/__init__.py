"""Settings of the cache that keeps compiled programs between runs."""

from toile.experimental.compilation_cache import compilation_cache as compilation_cache
