"""Random numbers against JAX's: bits exactly, transformed numbers in units in the last place."""
