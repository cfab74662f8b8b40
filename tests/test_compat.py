"""Names kept for code written for JAX, Flax or Optax: importable, and loaded only when used."""

import ast
import importlib
import math
import pkgutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.special import assoc_legendre_p

import toile
import toile.numpy as jnp
import toile.scipy.special
from toile import compat, lax
from toile.core import Literal
from toile.engine.lazy import MissingName

ROOT = Path(toile.__file__).parent
# By module, the names that could be imported before toile.compat existed.
KEPT = dict(line.split(":") for line in (Path(__file__).parent / "golden/compat_names.txt")
            .read_text().splitlines())


def run(code):
    """What a fresh interpreter prints."""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT.parent, capture_output=True,
                          text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def modules_below(name):
    """A module and all modules below it, those without a file too."""
    found = [name]
    importlib.import_module(name)
    path = getattr(sys.modules[name], "__path__", ())
    for each in pkgutil.walk_packages(path, f"{name}."):
        importlib.import_module(each.name)
        found.append(each.name)
    return sorted({*found, *(m for m in sys.modules if m.startswith(f"{name}."))})


def value_of(dotted):
    """The value of `module.name`, without `toile.` in front."""
    home, _, name = dotted.rpartition(".")
    return getattr(importlib.import_module(f"toile.{home}"), name)


@pytest.mark.parametrize("module", KEPT)
def test_what_could_be_imported_still_can(module):
    for name in KEPT[module].split():
        exec(f"from {module} import {name}", {})


@pytest.mark.parametrize("alias", compat.MODULES)
def test_modules_have_two_names_and_exist_once(alias):
    home = compat.MODULES[alias]
    package, _, name = alias.rpartition(".")
    assert getattr(importlib.import_module(package), name) is importlib.import_module(home)
    for below in modules_below(home):
        assert importlib.import_module(below.replace(home, alias)) is sys.modules[below]
    assert importlib.import_module(home).__spec__.name == home
    with pytest.raises(ModuleNotFoundError, match="nothing"):
        importlib.import_module(f"{alias}.nothing")


@pytest.mark.parametrize("name", compat.NAMES)
def test_names_are_found_where_flax_has_them(name):
    flax = pytest.importorskip("flax")
    module, _, private = name.rpartition(".")
    if name != "scipy.special.lpmn_values":  # of some versions of JAX
        assert hasattr(importlib.import_module(f"flax.{module}"), private), flax.__version__
    assert value_of(name) is value_of(compat.NAMES[name])
    space = {}
    exec(f"from toile.{module} import {private}", space)
    assert space[private] is value_of(name)


@pytest.mark.parametrize("module", sorted({name.rpartition(".")[0] for name in compat.NAMES}))
def test_wrong_names_are_errors_as_before(module):
    found = importlib.import_module(f"toile.{module}")
    assert not hasattr(found, "_nothing") and not hasattr(found, "__nothing__")
    with pytest.raises(MissingName, match=f"module 'toile.{module}' has no attribute '_nothing'"):
        found._nothing  # noqa: B018


@pytest.mark.parametrize("package, home", [("core", "jax_core"), ("lax", "jax_primitives")])
def test_public_names_come_from_here(package, home):
    package = importlib.import_module(f"toile.{package}")
    home = importlib.import_module(f"toile.compat.{home}")
    names = getattr(home, "__all__", None) or [n for n in vars(home) if n.endswith("_p")]
    assert len(names) > 10 and set(names) <= set(package.__all__)
    for name in names:
        assert getattr(package, name) is getattr(home, name)


def test_a_second_name_may_be_the_first_that_is_used():
    names = ["toile.optim._src.base", "toile.interop.faces.jax.extend.core", "toile.lax._names"]
    for name in names:
        home = next(name.replace(a, h) for a, h in compat.MODULES.items() if name.startswith(a))
        text = f"import sys, {name}; print(sys.modules[{name!r}] is sys.modules[{home!r}])"
        assert run(text) == "True\n"


def test_programs_do_not_load_the_package():
    loaded = run("""
import sys
import toile, toile.numpy as jnp, toile.linen as nn, toile.optim as optim
from toile import core, lax, serialization
from toile.serialization import states
from toile.training import checkpoints, train_state
model = nn.Sequential([nn.Dense(4), nn.LayerNorm(), nn.Dense(2)])
params = model.init(toile.random.key(0), jnp.ones((3, 5)))
tx = optim.adam(0.1)
state = tx.init(params)
step = toile.jit(toile.grad(lambda p: model.apply(p, jnp.ones((3, 5))).sum()))
optim.apply_updates(params, tx.update(step(params), state)[0])
serialization.from_bytes(params, serialization.to_bytes(params))
print(*sys.modules)
""")
    assert "toile.compat" not in loaded.split()


def test_no_module_imports_the_package():
    """A lower layer loads it by name, in one file."""
    named = {}
    for path in ROOT.rglob("*.py"):
        place = path.relative_to(ROOT).as_posix()
        if place.startswith("compat/") or "toile.compat" not in path.read_text():
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and node.value == "toile.compat":
                named.setdefault(place, []).append(node.lineno)
            assert not (isinstance(node, ast.ImportFrom) and str(node.module).startswith(
                "toile.compat")), place
    assert list(named) == ["engine/lazy.py"]


def interpreted(f, *args):
    """A function evaluated by an interpreter such as packages write; the names of what it did."""
    closed = toile.make_jaxpr(f)(*args)
    known = dict(zip(closed.jaxpr.invars, args, strict=True))
    known.update(zip(closed.jaxpr.constvars, closed.consts, strict=True))

    def read(a):
        return a.val if isinstance(a, Literal) else known[a]

    names = []
    for e in closed.jaxpr.eqns:
        found = e.primitive.bind(*map(read, e.invars), **e.primitive.get_bind_params(e.params))
        names.append(e.primitive.name)
        results = found if e.primitive.multiple_results else [found]
        known.update(zip(e.outvars, results, strict=True))
    return [read(a) for a in closed.jaxpr.outvars], names


def test_interpreters_of_packages():
    x = jnp.arange(6.0).reshape(2, 3)

    def f(x):
        y = jnp.sum(jnp.sin(x) * 2 + x.T.reshape(2, 3), axis=0).astype(jnp.int32)
        return lax.scan(lambda c, v: (c + v, c), 0, y)

    (total, each), names = interpreted(f, x)
    want_total, want_each = f(x)
    np.testing.assert_array_equal(total, want_total)
    np.testing.assert_array_equal(each, want_each)
    assert {"sin", "mul", "transpose", "reduce_sum", "scan"} <= set(names)


PRIMITIVES = {
    "add_p": lambda x: x + 1,
    "concatenate_p": lambda x: jnp.concatenate([x, x]),
    "cumsum_p": lambda x: jnp.cumsum(x, axis=0),
    "dot_general_p": lambda x: x @ x.T,
    "exp_p": jnp.exp,
    "integer_pow_p": lambda x: x**3,
    "reduce_max_p": jnp.max,
    "reduce_sum_p": jnp.sum,
    "scan_p": lambda x: lax.scan(lambda c, v: (c, v), 0, x),
    "select_n_p": lambda x: lax.select(x > 0, x, x),
    "sort_p": jnp.sort,
    "transpose_p": jnp.transpose,
}


@pytest.mark.parametrize("name", PRIMITIVES)
def test_primitives_of_equations_are_those_of_lax(name):
    found = [e.primitive for e in toile.make_jaxpr(PRIMITIVES[name])(jnp.ones((2, 3))).jaxpr.eqns]
    assert any(p is getattr(lax, name) for p in found), found


@pytest.mark.parametrize("is_normalized", [False, True])
@pytest.mark.parametrize("n", [0, 1, 2, 5, 9])
def test_legendre_functions(n, is_normalized):
    z = np.linspace(-0.9, 0.9, 7)
    with toile.enable_x64():
        special = toile.scipy.special
        run = toile.jit(lambda z: special.lpmn_values(n, n, z, is_normalized))
        got = run(z)
        slopes = toile.jacfwd(run)(z)
    want, slope = np.zeros((2, n + 1, n + 1, 7))
    for m in range(n + 1):
        for k in range(m, n + 1):
            scale = np.sqrt((2 * k + 1) / (4 * np.pi) * math.factorial(k - m)
                            / math.factorial(k + m)) if is_normalized else 1
            want[m, k], slope[m, k] = scale * np.array(assoc_legendre_p(k, m, z, diff_n=1))
    np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(np.einsum("mkii->mki", slopes), slope, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("args, error", [
    ((2, 2, np.ones(3, int)), TypeError), ((2, 2, np.ones((3, 1), "f")), ValueError),
    ((1, 2, np.ones(3, "f")), NotImplementedError),
])
def test_arguments_of_legendre_functions(args, error):
    with pytest.raises(error, match="lpmn_values"):
        toile.scipy.special.lpmn_values(*args, True)
