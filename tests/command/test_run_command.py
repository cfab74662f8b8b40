"""`toile run`: programs written for JAX and Flax run unchanged, in a process of their own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = """\
import importlib.metadata
import json
import sys

import flax
import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from flax.training import train_state
from jax.experimental.shard_map import shard_map

model = nn.Dense(1)
key = jax.random.PRNGKey(0)
x = jax.random.normal(key, (16, 3))
params = model.init(key, x)["params"]
state = train_state.TrainState.create(apply_fn=model.apply, params=params, tx=optax.adam(0.1))


@jax.jit
def step(state):
    def loss(p):
        return optax.l2_loss(model.apply({"params": p}, x), x.sum(1, keepdims=True)).mean()
    value, grads = jax.value_and_grad(loss)(state.params)
    return state.apply_gradients(grads=grads), value


for _ in range(20):
    state, value = step(state)
files = [getattr(m, "__file__", None) or "" for m in list(sys.modules.values())]
print(json.dumps({
    "loss": float(value), "argv": sys.argv[1:], "name": __name__, "file": __file__,
    "version": importlib.metadata.version("jax"), "jax": jax.__version__, "flax": flax.__version__,
    "real": [f for f in files if "site-packages/jax" in f or "site-packages/flax" in f],
}))
if "fail" in sys.argv:
    jnp.dot(x, x)
if "exit" in sys.argv:
    sys.exit(7)
"""


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(PROGRAM)
    return path


def started(*arguments, cwd=None, program="toile"):
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run([sys.executable, "-m", program, *map(str, arguments)], env=env, cwd=cwd,
                          capture_output=True, text=True, timeout=100)


def test_a_file_has_its_arguments_and_no_real_jax(program):
    done = started("run", program, "--x=1", "-m", "exit")
    found = json.loads(done.stdout)
    assert done.returncode == 7, done.stderr
    assert found["argv"] == ["--x=1", "-m", "exit"]
    assert (found["name"], found["file"]) == ("__main__", str(program))
    assert found["real"] == []
    assert found["version"] == found["jax"] == "0.10.2"


def test_the_same_numbers_as_on_jax(program):
    ours = json.loads(started(program, program="toile.run").stdout)
    theirs = subprocess.run([sys.executable, str(program)], capture_output=True, text=True,
                            timeout=100)
    found = json.loads(theirs.stdout)
    assert found["real"] != []
    assert ours["loss"] == pytest.approx(found["loss"], rel=1e-4)


def test_a_module_and_its_error(program):
    done = started("run", "-m", "train", "fail", cwd=program.parent)
    assert done.returncode == 1
    assert json.loads(done.stdout)["argv"] == ["fail"]
    lines = done.stderr.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert f'File "{program}"' in lines[1] and len(lines) <= 9
    assert "ShapeError" in done.stderr and "toile/command" not in done.stderr


WRONG = {
    "no file": (("run", "nothing.py"), 2, "toile run: needed a Python file, got 'nothing.py'"),
    "nothing": (("run",), 2, "toile run: needed a Python file, or -m and a module"),
    "no module": (("run", "-m", "no_such_module"), 1, "No module named no_such_module"),
    "own option": (("run", "--moduel", "x"), 2, "there is no option --moduel"),
}


@pytest.mark.parametrize("name", WRONG)
def test_mistakes(name, tmp_path):
    arguments, status, text = WRONG[name]
    done = started(*arguments, cwd=tmp_path)
    assert done.returncode == status
    assert text in done.stderr
    assert len(done.stderr.splitlines()) <= 3


IN_PROCESS = {
    "after jax": (
        "import jax, toile.interop\ntoile.interop.install()",
        "needed a process that has not imported jax yet"),
    "no such part": (
        "import toile\ntoile.interop.install()\nimport jax.experimental.pallas",
        "toile has no module in the place of jax.experimental.pallas"),
    "twice": (
        "import toile\ntoile.interop.install()\ntoile.interop.install()\nimport jax.numpy\n"
        "assert jax.numpy is toile.numpy and toile.interop.installed()\n"
        "import toile.numpy.linalg, jax.numpy.linalg, jax\n"
        "assert jax.numpy.linalg is toile.numpy.linalg\n"
        "assert toile.numpy.__spec__.name == 'toile.numpy'\n"
        "from jax import lax, random as r\nassert r is toile.random\n"
        "import importlib.metadata as m\nassert m.version('flax').startswith('0.')\n"
        "import optax\nassert toile.interop.load('optax') is optax", ""),
    "without the packages": (
        "import sys\n"
        "class Absent:\n"
        "    def find_spec(name, path=None, target=None):\n"
        "        if name.split('.')[0] in ('jax', 'jaxlib', 'flax'):\n"
        "            raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Absent)\n"
        "import toile\ntoile.interop.install()\nimport flax.linen, jax.scipy.special", ""),
}


@pytest.mark.parametrize("name", IN_PROCESS)
def test_install(name):
    code, text = IN_PROCESS[name]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60,
                          env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert (done.returncode == 0) is (not text), done.stderr
    assert text in done.stderr
