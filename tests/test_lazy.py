"""Packages that load their parts when they are first used: nothing that a user sees tells.

The names of a package are those that its `__init__.pyi` imports, which type checkers take for the
truth. Looks at what is loaded happen in processes of their own.
"""

import ast
import importlib
import json
import os
import subprocess
import sys
import textwrap
import threading
import types
from pathlib import Path

import jax
import pytest

import toile
from toile.engine import locks
from toile.engine.lazy import MissingName, attach_table, names_in, names_of, public_names

ROOT = Path(__file__).parent.parent
PACKAGES = sorted(".".join(p.parent.relative_to(ROOT).parts)
                  for p in (ROOT / "toile").rglob("__init__.pyi"))
HIDDEN = {"toile.lax.fft", "toile.random.bits"}  # modules with the name of a function in them
MODULES = ["linen.linear", "linen.normalization"]  # with names of files beside them


def run(code, **environment):
    """What a fresh interpreter prints."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "COV", "PYTEST"))}
    env |= {"PYTHONPATH": str(ROOT), **environment}
    command = [sys.executable, "-P", "-c", textwrap.dedent(code)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def shown_to_type_checkers(module):
    """By name, the module and the name there, from the imports under `if TYPE_CHECKING`."""
    tree = ast.parse(Path(module.__file__).read_text())
    found = {}
    for block in tree.body:
        if not (isinstance(block, ast.If) and "TYPE_CHECKING" in ast.unparse(block.test)):
            continue
        for line in block.body:
            home = importlib.import_module(line.module)
            for alias in line.names:
                names = home.__all__ if alias.name == "*" else [alias.name]
                for name in names:
                    found[alias.asname or name] = getattr(home, name)
    return found


def imported_by(stub):
    """By name, the module and the name there, as Python reads a stub."""
    found = {}
    for line in ast.parse(stub).body:
        if isinstance(line, ast.ImportFrom):
            for alias in line.names:
                found[alias.asname or alias.name] = line.module, alias.name
    return found


@pytest.mark.parametrize("name", PACKAGES)
def test_names_are_those_of_the_stub(name):
    package = importlib.import_module(name)
    stub = Path(package.__file__).with_suffix(".pyi").read_text()
    names = imported_by(stub)
    assert names == names_in(stub) == public_names(package.__file__)
    for outer, (home, inner) in names.items():
        module = importlib.import_module(home)
        wanted = importlib.import_module(f"{name}.{inner}") if home == name else (
            getattr(module, inner))
        assert getattr(package, outer) is wanted, outer
    assert set(names) <= set(dir(package))
    assert set(package.__all__) == {n for n in names if n[0] != "_"}


@pytest.mark.parametrize("name", MODULES)
def test_the_table_is_what_eager_imports_would_give(name):
    module = importlib.import_module(f"toile.{name}")
    shown = shown_to_type_checkers(module)
    assert set(names_of(module._ELSEWHERE)) == set(shown)
    for each, value in shown.items():
        assert getattr(module, each) is value, each
    assert set(shown) | set(module.__all__) <= set(dir(module))


@pytest.mark.parametrize("name", PACKAGES)
def test_submodules_are_attributes_and_no_name_hides_one(name):
    package = importlib.import_module(name)
    folder = Path(package.__file__).parent
    # Importing a file makes it an attribute of its package: a function must not be called like it.
    files = {f.stem for f in folder.glob("*.py")} - {"__init__"}
    files |= {f.parent.name for f in folder.glob("*/__init__.py")}
    names = public_names(package.__file__)
    hidden = {n for n in files & set(names) if names[n] != (name, n)}
    assert {f"{name}.{n}" for n in hidden} <= HIDDEN
    for each in files - hidden:
        if f"{name}.{each}" in sys.modules or name == "toile.core":
            assert getattr(package, each) is sys.modules[f"{name}.{each}"]


@pytest.mark.parametrize("name", PACKAGES)
def test_all_can_be_imported(name):
    package = importlib.import_module(name)
    space = {}
    exec(f"from {name} import *", space)
    assert set(package.__all__) <= set(space)
    assert not hasattr(package, "something_else")
    with pytest.raises(AttributeError, match=f"module '{name}' has no attribute 'nothing'"):
        package.nothing  # noqa: B018


@pytest.mark.parametrize("wrong, right", [
    ("numpy.zerso", "zeros"), ("linen.Dence", "Dense"), ("optim.adma", "adam"),
    ("value_and_gard", "value_and_grad"), ("random.nromal", "normal"),
    ("lax.fori_lop", "fori_loop"),
])
def test_the_nearest_name_is_suggested(wrong, right):
    home, _, name = f"toile.{wrong}".rpartition(".")
    with pytest.raises(AttributeError, match=f"did you mean '{right}'") as caught:
        getattr(importlib.import_module(home), name)
    assert isinstance(caught.value, MissingName) and caught.value.name == name


def test_everything_of_the_package():
    """`from jax import *` with another name."""
    space = {}
    exec("from toile import *", space)
    public = {n for n in dir(jax) if not n.startswith("_")}
    assert public & set(dir(toile)) <= set(space)
    assert space["random"] is toile.random and space["pmap"] is toile.pmap
    assert not {"engine", "api", "annotations", "platforms", "kernels", "targets"} & set(space)


def test_a_name_is_looked_up_once():
    module = types.ModuleType("toile.made_for_this")
    sys.modules[module.__name__] = module
    try:
        homes = names_of({"toile.engine.lazy": "attach_table=joined names_of"})
        module.__getattr__, module.__dir__ = attach_table(module.__name__, homes)
        assert module.joined is attach_table and vars(module)["joined"] is attach_table
        assert "names_of" in dir(module) and "names_of" not in vars(module)
    finally:
        del sys.modules[module.__name__]


@pytest.mark.parametrize("code, wanted", [
    ("import toile.numpy as jnp; print(jnp.add.reduce(jnp.arange(3)))", "3"),
    ("from toile.numpy import multiply; print(multiply.nin)", "2"),
    ("from toile.numpy.ufuncs import add; print(add.nout)", "1"),
    ("import toile; print(toile.lax.fft.__name__)", "fft"),
    ("import toile.lax.fft; print(toile.lax.fft.__name__)", "fft"),
    ("from toile.random import bits; import toile.random.bits; print(bits.__name__)", "bits"),
    ("import toile; print(toile.numpy.float32.__name__)", "float32"),
])
def test_what_a_module_does_when_it_loads_does_not_depend_on_the_first_use(code, wanted):
    """Methods are given to ufuncs by another file; two functions are named like their file."""
    assert run(code).strip() == wanted


HEAVY = {
    "toile": (
        "toile.platforms.cpu.compilation toile.compiler.pipeline toile.compiler.ir.loop_nests "
        "toile.core toile.linen toile.optim toile.parallel.spmd toile.scipy toile.serialization "
        "toile.platforms.cpu.exits toile.training concurrent.futures difflib fractions hashlib "
        "logging msgpack numpy.ma queue urllib"
    ),
    "toile.linen, toile.optim, toile.numpy, toile.random": (
        "toile.platforms.cpu.compilation toile.compiler.pipeline toile.linen.attention "
        "toile.linen.convolution toile.linen.fp8_ops toile.linen.normalization "
        "toile.linen.recurrent toile.linen.transforms toile.linen.weight_normalization "
        "toile.core.lift.mapping toile.core.nn.linear toile.optim.base toile.optim.classic "
        "toile.optim.losses toile.optim.optimizers toile.parallel.spmd toile.scipy "
        "toile.serialization toile.traverse_util toile.training concurrent.futures difflib "
        "fractions logging msgpack numpy.ma queue urllib"
    ),
    "toile.platforms.cpu.compilation": (  # plans from disk run without what makes plans
        "toile.platforms.cpu.new_plans toile.platforms.cpu.planner toile.compiler.plan.fuse "
        "toile.compiler.ir.loop_nests toile.compiler.pipeline "
        "toile.compiler.plan.lower"
    ),
    "toile.platforms.gpu.executables": (
        "toile.platforms.gpu.new_plans toile.kernels.nest.gpu toile.platforms.gpu.planner "
        "toile.compiler.plan.fuse toile.compiler.ir.loop_nests toile.compiler.pipeline "
        "toile.compiler.plan.lower"
    ),
}


@pytest.mark.parametrize("imported", HEAVY)
def test_what_programs_may_not_need_is_not_loaded(imported):
    # What others bring, NumPy above all, is not toile's to leave out.
    before = set(run("import sys, numpy, ml_dtypes; print(*sys.modules)").split())
    loaded = set(run(f"import {imported}, sys; print(*sys.modules)").split())
    assert not set(HEAVY[imported].split()) & loaded - before


def test_adam_loads_what_adam_needs():
    loaded = run("import sys; from toile import optim; optim.adam(0.1); print(*sys.modules)")
    of_optim = {name for name in loaded.split() if name.startswith("toile.optim.")}
    assert "toile.optim.moments" in of_optim and len(of_optim) < 25
    for name in ("classic", "losses", "zoom", "quasi_newton", "privacy", "schedules"):
        assert f"toile.optim.{name}" not in of_optim


def test_what_loads_while_something_is_traced_is_none_of_the_trace():
    """A loss may be the first of its file that a program uses, inside of a jitted step."""
    found = run("""
        import importlib, json, pkgutil, sys
        import toile
        from toile.engine.trace import Tracer

        def load(x):
            for package in ("core", "linen", "optim", "parallel", "nn", "numpy", "lax", "random",
                            "scipy", "compiler"):
                whole = importlib.import_module(f"toile.{package}")
                for found in pkgutil.walk_packages(whole.__path__, whole.__name__ + "."):
                    if "gpu" not in found.name:
                        importlib.import_module(found.name)
            importlib.import_module("toile.platforms.cpu.compilation")
            return x

        program = toile.make_jaxpr(load)(1.0)
        leaked = [
            f"{name}.{key}" for name, module in list(sys.modules.items())
            if name.startswith("toile") for key, value in list(vars(module).items())
            if isinstance(value, Tracer)
        ]
        print(json.dumps([len(program.eqns), leaked]))
    """)
    assert json.loads(found) == [0, []]


FIRST = """
    import threading
    import toile, toile.linen as nn, toile.numpy as jnp, toile.optim as optim

    def step(k):
        model = nn.Sequential([nn.Dense(4), nn.LayerNorm(), nn.Dense(2)])
        x = jnp.ones((3, 5)) * k
        params = model.init(toile.random.key(k), x)
        tx = optim.adamw(0.1)

        @toile.jit
        def update(params, state):
            loss = lambda p: optim.l2_loss(model.apply(p, x)).mean()
            updates, state = tx.update(toile.grad(loss)(params), state, params)
            return optim.apply_updates(params, updates), state

        state = tx.init(params)
        for _ in range(3):
            params, state = update(params, state)
        return float(sum(jnp.abs(p).sum() for p in toile.tree.leaves(params)))
"""


def test_threads_may_be_the_first_at_the_same_time(tmp_path):
    text = textwrap.dedent(FIRST) + textwrap.dedent("""
        found, begin = {}, threading.Barrier(6)

        def work(k):
            begin.wait()
            found[k] = step(k % 2)

        workers = [threading.Thread(target=work, args=(k,)) for k in range(6)]
        for w in workers: w.start()
        for w in workers: w.join()
        assert sorted(found) == list(range(6)), sorted(found)
        assert len(set(found.values())) == 2 and found[0] == found[2] == found[4]
        print("done")
    """)
    assert run(text, TOILE_CACHE_DIR=str(tmp_path)) == "done\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.parametrize("part", ["compilation", "new_plans"])
def test_a_child_may_be_forked_while_the_compiler_loads(part, tmp_path):
    text = textwrap.dedent(FIRST) + textwrap.dedent(f"""
        import os, signal, sys, warnings
        warnings.simplefilter("ignore")
        work = threading.Thread(target=step, args=(0,))
        work.start()
        while "toile.platforms.cpu.{part}" not in sys.modules:  # it has begun to load
            assert work.is_alive()
        child = os.fork()
        if child == 0:
            signal.alarm(100)  # one that waits for ever would keep the pipe open
            os._exit(0 if step(1) > 0 else 1)
        assert os.waitpid(child, 0)[1] == 0
        work.join()
        print("done")
    """)
    assert run(text, TOILE_CACHE_DIR=str(tmp_path), TOILE_PLATFORM="cpu") == "done\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.parametrize("module, use", [
    ("toile.linen.convolution", "nn.Conv"),
    ("toile.platforms.cpu.exits", "[f(jnp.ones(3)) for _ in range(4)]"),
])
def test_a_child_may_be_forked_while_a_part_loads(module, use, tmp_path):
    text = textwrap.dedent(f"""
        import importlib.machinery, os, signal, sys, threading, time, warnings
        import toile, toile.linen as nn, toile.numpy as jnp
        warnings.simplefilter("ignore")
        real, begun = importlib.machinery.SourceFileLoader.exec_module, threading.Event()

        def slowly(self, module):
            if module.__name__ == {module!r}:
                begun.set()
                time.sleep(0.5)
            return real(self, module)

        importlib.machinery.SourceFileLoader.exec_module = slowly
        f = toile.jit(lambda x: x + 1)
        work = threading.Thread(target=lambda: {use})
        work.start()
        assert begun.wait(60)
        child = os.fork()
        if child == 0:
            signal.alarm(60)
            {use}
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        work.join()
        print("done")
    """)
    assert run(text, TOILE_CACHE_DIR=str(tmp_path), TOILE_PLATFORM="cpu") == "done\n"


def test_a_fork_waits_no_longer_than_it_is_told(monkeypatch):
    monkeypatch.setattr(locks, "LONGEST", 0.05)
    inside, go = threading.Event(), threading.Event()

    def load():
        with locks.loading:
            inside.set()
            go.wait()

    work = threading.Thread(target=load)
    work.start()
    inside.wait()
    locks.compiling.before_fork()
    locks.compiling.after_in_parent()
    go.set()
    work.join()
    with locks.loading:  # one's own imports are not waited for
        assert not locks._others_import()
    assert locks._Loading.everyone == 0
