"""`jax.interpreters.partial_eval`: nothing of it has a counterpart; the module can be imported."""
