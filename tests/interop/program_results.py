"""Runs the programs of `programs/` and prints their results, on jax or on toile.

`python -m tests.interop.program_results NAME ...` prints a line of JSON for each program: its name,
its results as lists of numbers, and its error if there was one. Without names, it runs all programs
whose packages are installed. `toile run -m tests.interop.program_results` does the same on toile,
and `--write` makes the golden file of what jax gives.
"""

import contextlib
import importlib.util
import io
import json
import runpy
import sys
import traceback
from pathlib import Path

FOLDER = Path(__file__).parent / "programs"
GOLDEN = Path(__file__).parents[1] / "golden" / "package_programs.json"
# The module that a program needs, if its name is not that of the program.
MODULES = {
    "array_api": "array_api_compat", "flax_nnx": "flax", "mjx": "mujoco", "grain": "grain",
    "tfp": "tensorflow_probability", "transformers": "transformers.modeling_flax_utils",
}


def programs():
    """The names of the programs whose packages are installed."""
    names = sorted(path.name.removesuffix("_program.py") for path in FOLDER.glob("*_program.py"))
    return [name for name in names if installed(MODULES.get(name, name))]


def installed(module):
    """Whether a module can be found."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # its package
        return False


def results_of(name):
    """What a program computes: a list of numbers for each array."""
    import jax
    import numpy as np

    with contextlib.redirect_stdout(io.StringIO()):
        found = runpy.run_path(str(FOLDER / f"{name}_program.py"), run_name="program")["results"]
    leaves = jax.tree.leaves(found)
    return [np.asarray(x, dtype=np.float64).ravel()[:40].tolist() for x in leaves]


def main(arguments):
    """Run programs; see the module's docstring."""
    golden = {}
    for name in [a for a in arguments if not a.startswith("-")] or programs():
        line = {"name": name}
        try:
            line["results"] = results_of(name)
        except Exception:
            line["error"] = traceback.format_exc()
        else:
            golden[name] = line["results"]
        print(json.dumps(line), flush=True)
    if "--write" in arguments:
        rows = [f"{json.dumps(name)}: {json.dumps(golden[name])}" for name in sorted(golden)]
        GOLDEN.write_text("{\n" + ",\n".join(rows) + "\n}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
