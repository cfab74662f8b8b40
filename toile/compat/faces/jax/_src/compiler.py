"""`jax._src.compiler`: the function that chex replaces to forbid backends; not used by toile."""

from typing import Any


def backend_compile_and_load(backend: Any, *args: Any, **kwargs: Any) -> Any:
    """Never called, because toile has its own compiler."""
    raise NotImplementedError("backend_compile_and_load: toile compiles Programs, not XLA modules")
