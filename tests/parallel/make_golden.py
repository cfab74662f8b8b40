"""What JAX's pmap gives for the table, on 8 host devices: `python -m tests.parallel.make_golden`.

With a path and names as arguments, only those programs run, and their results go to the path."""

import os
import sys

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import numpy as np

from tests.parallel.programs import NOT_IN_JAX, PATH, PROGRAMS


def mapped(f, **options):
    return jax.pmap(f, axis_name="i", **options)


def results(names):
    """The leaves of the results of programs, by name and number."""
    found = {}
    for name in names:
        build, args = PROGRAMS[name]
        leaves = jax.tree.leaves(build(jax, mapped)(*args))
        for i, leaf in enumerate(leaves):
            found[f"{name}.{i}"] = np.asarray(leaf)
    return found


if __name__ == "__main__":
    if len(sys.argv) > 2:
        np.savez(sys.argv[1], **results(sys.argv[2:]))
    else:
        np.savez_compressed(PATH, **results(n for n in PROGRAMS if n not in NOT_IN_JAX))
