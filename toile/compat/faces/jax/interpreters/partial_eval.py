"""`jax.interpreters.partial_eval`: an empty module, which exists only to be imported."""
