"""`toile run --since YEAR`: names that JAX and Flax have removed, and programs that use them."""

import json
import os
import re
import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest

from toile.command.entry import main
from toile.compat.removed import absent_since, check_year, names_since
from toile.compat.removed.table import FIRST, REMOVED

ROOT = Path(__file__).parents[2]
PROGRAMS = {"flax_2020": 2020, "flax_sequences_2020": 2020, "jax_2020": 2020, "linen_2021": 2021}


def run(*args, code=0):
    """Standard output of a new Python process in the repository's root."""
    path = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
    done = subprocess.run([sys.executable, "-W", "ignore", *args], capture_output=True, text=True,
                          cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, timeout=300)
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


LOOK = """
import importlib, json, sys
import toile
toile.interop.install(**json.loads(sys.argv[1]))
found = []
for module, names in json.loads(sys.argv[2]).items():
    try:
        module_here = importlib.import_module(module)
    except ImportError:
        continue
    found += [f"{module}.{name}" for name in names if hasattr(module_here, name)]
print(json.dumps(found))
"""


def found(names, **options):
    table = {module: sorted(inner) for module, inner in names.items()}
    return set(json.loads(run("-c", LOOK, json.dumps(options), json.dumps(table))))


def dotted(names):
    return {f"{module}.{name}" for module, inner in names.items() for name in inner}


# Names that are there without `since`, but are other things with it, or take more arguments.
REPLACED = {
    "jax.experimental.pjit.pjit", "jax.experimental.pjit.with_sharding_constraint",
    "jax.lax.with_sharding_constraint", "jax.numpy.clip", "jax.numpy.nanpercentile",
    "jax.numpy.nanquantile", "jax.numpy.percentile", "jax.numpy.quantile", "jax.numpy.reshape",
    "jax.scipy.linalg.solve",
    "flax.nn", "flax.optim", "flax.linen.GRUCell", "flax.linen.LSTMCell",
    "flax.linen.OptimizedLSTMCell", "flax.linen.recurrent.GRUCell", "jax.config",
    "flax.linen.recurrent.LSTMCell", "flax.linen.recurrent.OptimizedLSTMCell",
}


def test_every_name_is_found_in_its_year_and_none_without_one():
    names = names_since(2019)
    assert found(names, since=2019) == dotted(names)
    assert found(names) <= REPLACED | {n for n in dotted(names) if n.startswith("jax.api")}


def test_a_later_year_has_fewer_names():
    latest = max(last for _, last, _, _ in REMOVED)
    sizes = [len(dotted(names_since(year))) for year in range(2019, latest + 2)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] == 0 < sizes[-2] < sizes[0]
    later = found(names_since(2019), since=2024)
    assert "jax.experimental.maps" in later
    assert not later & {"jax.tree_multimap", "jax.ops.index_update", "jax.experimental.stax"}


def test_names_without_a_counterpart_say_what_to_use():
    out = run("-c", """
import toile
toile.interop.install(since=2020)
import importlib, json, sys
for module, names in json.loads(sys.argv[1]).items():
    for name, advice in names.items():
        try:
            getattr(importlib.import_module(module), name)
        except AttributeError as error:
            assert advice in str(error), error
            print(name)
""", json.dumps(absent_since(2020)))
    assert len(out.split()) == sum(map(len, absent_since(2020).values()))


def test_nothing_is_imported_or_changed_without_since():
    run("-c", "import sys, toile; toile.interop.install(); import jax, flax\n"
        "assert not any(name.startswith('toile.compat.removed') for name in sys.modules)\n"
        "assert not hasattr(toile.numpy, 'product')\n"
        "assert toile.config.flax_return_frozendict is False")


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_of_that_time_learn(name):
    path = f"tests/interop/old_programs/{name}_program.py"
    out = run("-m", "toile", "run", "--since", str(PROGRAMS[name]), path)
    first, last = map(float, out.split()[-2:])
    assert last < first / 2


def test_the_same_program_fails_without_since():
    assert "nn" in run("-m", "toile", "run", "tests/interop/old_programs/flax_2020_program.py",
                       code=1)


CHECKS = """
import toile
toile.interop.install(since=2019)
import jax, jax.numpy as jnp
import numpy as np
from jax.experimental import host_callback as hcb
from jax.experimental.maps import xmap, mesh

x = jnp.arange(4.0)
# float64 and float32 match while 64-bit types are off
from jax.test_util import JaxTestCase
JaxTestCase().assertAllClose(jnp.ones(2), np.ones(2), True)
try:
    JaxTestCase().assertAllClose(jnp.ones(2), np.ones(2, np.int32), check_dtypes=True)
except AssertionError as error:
    assert "int32" in str(error), error
else:
    raise AssertionError("dtypes differ")

# indexed updates are `x.at`
for name in ("update", "add", "mul", "min", "max"):
    method = "set" if name == "update" else name
    update = getattr(jax.ops, "index_" + name)
    idx = jax.ops.index[1:3]
    assert (update(x, idx, 1.5) == getattr(x.at[idx], method)(1.5)).all(), name

# derivatives of custom_transforms
for define in ("defjvp", "defvjp", "defjvp_all", "defvjp_all"):
    f = jax.custom_transforms(lambda x, y: jnp.sin(x) * y)
    if define == "defjvp":
        jax.defjvp(f, lambda t, ans, x, y: 2 * t * y, None)
    if define == "defvjp":
        jax.defvjp(f, lambda g, ans, x, y: 2 * g * y, None)
    if define == "defjvp_all":
        jax.defjvp_all(f, lambda p, t: (f.fun(*p), 2 * t[0] * p[1]))
    if define == "defvjp_all":
        jax.defvjp_all(f, lambda x, y: (f.fun(x, y), lambda g: (2 * g * y, 0 * y)))
    assert jax.grad(f, (0, 1))(1.0, 3.0) == (6.0, 0.0), define
    assert abs(f(1.0, 3.0) - 3 * jnp.sin(1.0)) < 1e-6

# host callbacks
seen = []
def tapped(x):
    y = hcb.id_tap(lambda v, transforms, k=0: seen.append((v.tolist(), k)), x * 2, k=7)
    return hcb.id_tap(lambda v, transforms: seen.append(v.tolist()), y, result=x)
assert (jax.jit(tapped)(x) == x).all()
hcb.barrier_wait()
assert ([0.0, 2.0, 4.0, 6.0], 7) in seen and [0.0, 2.0, 4.0, 6.0] in seen
seen.clear()
jax.vmap(tapped)(x)
hcb.barrier_wait()
assert len(seen) == 8
double = jax.jit(lambda x: hcb.call(lambda v: 2 * v, x, result_shape=x))
assert (double(x) == 2 * x).all()

# named axes
rows = jnp.arange(6.0).reshape(2, 3)
mean = xmap(lambda v: v - jax.lax.pmean(v, "i"), in_axes={0: "i"}, out_axes={0: "i"})
assert jnp.allclose(mean(rows), rows - rows.mean(0))
moved = xmap(lambda v: v, in_axes={0: "i"}, out_axes={1: "i"})
assert (moved(rows) == rows.T).all()
total = xmap(lambda t: jax.lax.psum(t["a"] * t["b"], "i"), in_axes=({"a": {0: "i"}, "b": {}},),
             out_axes={})
assert (total({"a": rows, "b": jnp.ones(3)}) == rows.sum(0)).all()
for wrong, words in [
    (lambda: xmap(lambda a, b: a, ({0: "i"}, {1: "i"}), {0: "i"})(rows, rows), "one size"),
    (lambda: xmap(lambda a: a, {0: "i"}, {0: "i"}, axis_resources={"i": "x"}), "axis_resources"),
]:
    try:
        wrong()
    except (ValueError, NotImplementedError) as error:
        assert words in str(error), error
    else:
        raise AssertionError(words)
with mesh(jax.devices()[:1], ("x",)) as m:
    assert m.axis_names == ("x",)

# cells take their size from the carry; both forms of initialize_carry
import flax.linen as nn
key = jax.random.PRNGKey(0)
for cell, kind in [(nn.LSTMCell(), nn.LSTMCell), (nn.GRUCell(), nn.GRUCell),
                   (nn.OptimizedLSTMCell(), nn.OptimizedLSTMCell)]:
    carry = kind.initialize_carry(key, (2,), 5)
    variables = cell.init(key, carry, jnp.ones((2, 3)))
    new, y = cell.apply(variables, carry, jnp.ones((2, 3)))
    assert y.shape == (2, 5)
    assert jax.tree_map(jnp.shape, new) == jax.tree_map(jnp.shape, carry)
cell = nn.LSTMCell(features=5)
assert cell.initialize_carry(key, (2, 3))[0].shape == (2, 5)
conv = nn.ConvLSTM(features=4, kernel_size=(3, 3))
carry = nn.ConvLSTM.initialize_carry(key, (2,), (6, 6, 4))
assert conv.apply(conv.init(key, carry, jnp.ones((2, 6, 6, 1))), carry,
                  jnp.ones((2, 6, 6, 1)))[1].shape == (2, 6, 6, 4)

# options, and elements as keys of dicts
from jax.config import config
config.enable_omnistaging()
assert config.omnistaging_enabled and config.FLAGS.jax_enable_x64 == config.x64_enabled
jax.config.update("jax_enable_x64", True)
assert jnp.arange(3).dtype == "int64" and config.jax_enable_x64
assert {2: "two"}[jnp.arange(3)[2]] == "two"
try:
    hash(x)
except TypeError as error:
    assert "one element" in str(error)

# arguments and methods of those years
from jax.experimental.pjit import pjit, with_sharding_constraint
from jax.scipy.linalg import solve
assert jnp.clip(a=x, a_min=1, a_max=2).tolist() == jnp.clip(x, 1, a_max=2).tolist() == [1, 1, 2, 2]
assert jnp.reshape(x, newshape=(2, 2)).shape == x.reshape(2, 2).shape == (2, 2)
assert jnp.percentile(x, 40, interpolation="lower") == jnp.quantile(x, 0.4, method="lower") == 1
assert jnp.nanpercentile(x, 40, interpolation="higher") == 2
assert jnp.nanquantile(x, 0.4, interpolation="higher") == 2
assert jnp.allclose(solve(2 * jnp.eye(4), x, sym_pos=True), x / 2)
assert (pjit(lambda x: 2 * x, in_axis_resources=None, out_axis_resources=None)(x) == 2 * x).all()
for put in (with_sharding_constraint, jax.lax.with_sharding_constraint):
    assert (put(x, axis_resources=x.sharding) == x).all()
assert [part.tolist() for part in x.split(2)] == [[0, 1], [2, 3]]
assert jax.jit(lambda x: x.split([1], axis=-1)[1])(x).shape == (3,)
assert x.broadcast((2,)).shape == (2, 4) and x.broadcast_in_dim((4, 3), (0,)).shape == (4, 3)

from jax import core
closed = jax.make_jaxpr(jax.jit(jnp.sin))(1.0)
assert core.jaxpr_as_fun(closed)(0.0) == [0.0]
assert core.raise_to_shaped(core.get_aval(1.0), weak_type=False).weak_type is False
print("done")
"""


def test_functions_do_what_they_did():
    assert run("-c", CHECKS).strip() == "done"


MODULES = """
import toile
toile.interop.install(since=2020)
import jax, jax.numpy as jnp
from flax import nn
import flax.deprecated.nn
from flax.serialization import from_state_dict, to_state_dict
key, x = jax.random.PRNGKey(0), jnp.ones((2, 4))

class Two(nn.Module):
    def apply(self, x):
        nn.Dense(x, 3, name="a")
        return nn.Dense(x, 3, name="a")

class Named(nn.Module):
    def apply(self, x, wide=3):
        seen = self.state("seen", (), nn.initializers.zeros)
        seen.value += 0 if self.is_initializing() else 1
        return nn.Dense(x, wide, name="a")

    @nn.module_method
    def half(self, x):
        return nn.Dense(x, 3, name="a") / 2

@nn.module
def Plain(x, n):
    return nn.relu(nn.Dense(x, n))

y, params = Plain.partial(n=5).init(key, x)
assert y.shape == (2, 5) and list(params) == ["Dense_0"]
with nn.stateful() as state:
    y, params = Named.init(key, x)
    model = nn.Model(Named, params)
    assert jnp.allclose(model.half(x), y / 2)
with nn.stateful(state) as new:
    model(x)
assert new.as_dict()["/"]["seen"] == 1 and state.as_dict()["/"]["seen"] == 0
copy = from_state_dict(state, to_state_dict(new))
assert copy.as_dict()["/"]["seen"] == 1
with nn.stateful():
    assert Named.init_by_shape(key, [(2, 4)])[0].shape == (2, 3)
with nn.stateful(state, mutable=False):
    five = Plain.partial(n=5)
    inner = nn.Model(five, five.init(key, x)[1]).truncate_at("/Dense_0")
    assert inner(x)[0].shape == (2, 5)
leaves = jax.tree_leaves(model)
assert len(leaves) == 2

def fails(kind, words, call):
    try:
        call()
    except kind as error:
        assert words in str(error), error
    else:
        raise AssertionError(words)

fails(ValueError, "inside another module", lambda: nn.Dense(x, 3))
fails(ValueError, "already exists", lambda: Two.init(key, x))
fails(ValueError, "stateful context", lambda: Named.init(key, x))
fails(ValueError, "nn.stochastic()", lambda: nn.dropout(x, 0.5))
fails(ValueError, "differs from requested shape", lambda: Plain.partial(n=5).call(
    {"Dense_0": {"kernel": jnp.ones((9, 9)), "bias": jnp.ones(9)}}, x))
fails(ValueError, "does not exist", lambda: nn.Dense.partial(features=3).call({}, x))
fails(ValueError, "No module named Dense_0", lambda: Plain.partial(n=5).call({}, x))
fails(AttributeError, "module_method", lambda: model.quarter)

def frozen():
    with nn.stateful(state, mutable=False):
        model(x)

def leaking():
    with nn.stateful(state) as s:
        jax.jit(lambda s: s)(s)

fails(ValueError, "not mutable", frozen)
fails(ValueError, "should not be transformed", leaking)

# the layers have the parameters and results of their successors
from flax import linen
for old, new, shape in [
    (nn.Dense.partial(features=3), linen.Dense(3), (2, 4)),
    (nn.DenseGeneral.partial(features=(3, 2), axis=(-2, -1)),
     linen.DenseGeneral((3, 2), axis=(-2, -1)), (2, 4, 5)),
    (nn.Conv.partial(features=3, kernel_size=(3, 3)), linen.Conv(3, (3, 3)), (2, 5, 5, 2)),
    (nn.ConvTranspose.partial(features=3, kernel_size=(3, 3), strides=(2, 2)),
     linen.ConvTranspose(3, (3, 3), strides=(2, 2)), (2, 5, 5, 2)),
    (nn.LayerNorm, linen.LayerNorm(), (2, 4)),
    (nn.GroupNorm.partial(num_groups=2), linen.GroupNorm(2), (2, 5, 4)),
    (nn.SelfAttention.partial(num_heads=2), linen.SelfAttention(2), (2, 5, 4)),
]:
    value = jax.random.normal(key, shape)
    y, params = old.init(key, value)
    expected = new.init(key, value)["params"].unfreeze()
    if "Group" in type(new).__name__:
        params = jax.tree_map(lambda p, e: p.reshape(e.shape), params, expected)
    assert jax.tree_map(jnp.shape, params) == jax.tree_map(jnp.shape, expected), new
    assert jnp.allclose(y, new.apply({"params": params}, value), atol=1e-5), new
print("done")
"""


def test_modules_of_flax_nn():
    assert run("-c", MODULES).strip() == "done"


@pytest.mark.parametrize("year", [FIRST - 1, date.today().year + 1, "2020", 2020.0, True])
def test_other_years_are_refused(year):
    with pytest.raises(ValueError, match=re.escape(f"needed a year from {FIRST} to")):
        check_year(year)


@pytest.mark.parametrize("year", [str(FIRST - 1), "soon", str(date.today().year + 1)])
def test_the_command_line_refuses_them_too(year, capsys):
    assert main(["run", "--since", year, "x.py"]) != 0
    assert f"needed a year from {FIRST} to" in capsys.readouterr().err


def test_the_page_lists_every_name():
    page = (ROOT / "docs/removed-names.md").read_text()
    shown = {}
    for module, last, names in re.findall(r"^\| `([\w.]+)` \| (\d+) \| (.*) \|$", page, re.M):
        for name in re.findall(r"`(\w+)`", names):
            shown[f"{module}.{name}"] = int(last)
    listed = {f"{module}.{name}": max(last for m, last, _, names in REMOVED
                                      if m == module and re.search(rf"(^|[ =]){name}( |$)", names))
              for module, inner in names_since(2019).items() for name in inner}
    assert shown == listed
