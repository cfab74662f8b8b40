"""What optax answers to each row, kept in `tests/golden/optim.npz`.

A row is recorded under a hash of its text; `python -m tests.optim.recording` records what is new
and drops what is gone (`--all` asks for everything again). A few rows are asked live in every run.
"""

import ast
import hashlib
import inspect
import json
import pathlib
import sys

import numpy as np

from tests.optim import cases, function_cases, oracle

FILE = pathlib.Path(__file__).parent.parent / "golden" / "optim.npz"


def _texts():
    """The text of each row and of what runs them, without layout and comments."""
    texts = {}
    for module in (cases, function_cases, oracle):
        for node in ast.parse(inspect.getsource(module)).body:
            if isinstance(node, ast.FunctionDef):
                texts[node.name] = ast.unparse(node)
                for decorator in node.decorator_list:
                    texts[decorator.args[0].value] = ast.unparse(node)
            elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
                first = node.value.args[0]
                if node.value.func.id == "row":
                    texts[first.value] = ast.unparse(node)
    return texts


TEXTS = _texts()
RUNNER = "".join(TEXTS[f] for f in ("values", "gradients", "loss_of", "make_step", "run"))


def name_of(case, dtype):
    """What identifies a recorded run: name, dtype, a hash of the row's text and of the runner's."""
    label = case.name if isinstance(case, cases.Row) else case
    text = TEXTS.get(label, TEXTS["_simple"]) + RUNNER
    return f"{label}:{dtype}:{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def answer(lib, case, dtype):
    """The description of all that a case gives."""
    if isinstance(case, cases.Row):
        # Operation by operation, as its meaning is; but a search's loop would compile each time.
        jit = lib.jax.jit if case.loss and lib.jax.__name__ == "jax" else None
        return oracle.described(lib, oracle.run(lib, case, dtype, jit=jit))
    params, grads = (oracle.values(lib, dtype, seed) for seed in (1, 100))
    return oracle.described(lib, cases.FUNCTIONS[case](lib.o, lib, params, grads))


def all_cases():
    """Every (case, dtype)."""
    rows = [(row, dtype) for row in cases.ROWS for dtype in row.dtypes]
    return rows + [(name, d) for name in cases.FUNCTIONS for d in ("float32", "bfloat16")]


def load():
    """All recorded answers."""
    if not FILE.exists():
        return {}
    with np.load(FILE) as data:
        index = json.loads(str(data["index"]))
        numbers = data["numbers"]
    found, start = {}, 0
    for name, structure, kinds, size in index:
        found[name] = structure, kinds, numbers[start : start + size]
        start += size
    return found


def main():
    """Record what is new or changed."""
    known = {} if "--all" in sys.argv else load()
    lib, answers = oracle.jax_library(), {}
    for case, dtype in all_cases():
        name = name_of(case, dtype)
        if name not in known:
            print("asking optax:", name, flush=True)
        answers[name] = known[name] if name in known else answer(lib, case, dtype)
    index = [(name, s, kinds, v.size) for name, (s, kinds, v) in answers.items()]
    numbers = np.concatenate([v for _, _, v in answers.values()])
    np.savez_compressed(FILE, index=np.array(json.dumps(index)), numbers=numbers)


if __name__ == "__main__":
    main()
