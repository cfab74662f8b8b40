"""`jax.experimental.colocated_python.func`: nothing, as there are no remote hosts."""

__all__: list[str] = []
