"""Where compiled programs are kept between runs."""

from toile.experimental.compilation_cache import compilation_cache as compilation_cache
