"""The interpreters of operations: jvp, linearize, transpose and vmap, one per file."""
