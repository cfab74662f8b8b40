"""Mistakes in the use of arrays."""
import toile.numpy as jnp

x = jnp.zeros((3, 4))
x.shpae  # error: misspelled
x.sum(axes=0)  # error: it is axis
x.reshap(3)  # error: misspelled
x[0] = 1  # error: arrays cannot be changed
jnp.zerso((3,))  # error: misspelled
jnp.zeros()  # error: no shape
x + "1"  # error: no number
x.at[0].sett(1)  # error: misspelled
jnp.sum(x, axis="rows")  # error: no axis
