"""`toile explain`: files, packages, arguments, and errors of the user's code in one line."""

import sys

import pytest

from tests.command.running import refused, run

OURS = ("net_to_explain", "neighbor", "package_to_explain")
FILE = """
import toile.numpy as jnp
from neighbor import SCALE

RATE = 0.5

def loss(x, scale=SCALE):
    return jnp.tanh(x * scale).sum()

def needs(x, y):
    return x + y

def none():
    return jnp.zeros(3) + 1

class Model:
    @staticmethod
    def apply(x):
        return x * RATE
"""


@pytest.fixture
def file(tmp_path, monkeypatch):
    """A file that imports the one beside it."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # files are changed within a second
    (tmp_path / "neighbor.py").write_text("SCALE = 2.0\n")
    path = tmp_path / "net_to_explain.py"
    path.write_text(FILE)
    yield path
    for name in [n for n in sys.modules if n.partition(".")[0] in OURS]:
        del sys.modules[name]


@pytest.mark.parametrize(("function", "arguments", "said"), [
    ("loss", "jnp.ones((8, 3))", "reads float32[8,3], writes float32[]"),
    ("loss", "jnp.ones(4), scale=np.float32(3)", "tanh"),
    ("loss", "toile.random.normal(toile.random.key(0), (2, 2)), RATE", "float32[2,2]"),
    ("Model.apply", "jnp.ones(\n  5)", "float32[5]"),
    ("none", None, "none"),
])
def test_kernels_are_shown(capsys, file, function, arguments, said):
    given = [] if arguments is None else ["--args", arguments]
    ran = run(capsys, "explain", f"{file}:{function}", *given)
    assert ran.status == 0, ran.err
    assert said in ran.out and "memory: " in ran.out
    assert f"{function.rpartition('.')[2]}" in ran.out.partition(":")[0]


@pytest.mark.parametrize("returned", ["jnp.ones((7,)), jnp.ones((7,))", "(jnp.ones(7),) * 2"])
def test_example_args_are_used(capsys, file, returned):
    file.write_text(FILE + f"\ndef example_args():\n    return {returned}\n")
    assert "float32[7]" in run(capsys, "explain", f"{file}:needs").out


def test_a_file_of_a_package_can_import_its_siblings(capsys, tmp_path, file):
    package = tmp_path / "package_to_explain" / "inner"
    package.mkdir(parents=True)
    for folder in (package, package.parent):
        (folder / "__init__.py").touch()
    (package / "one.py").write_text("from ..two import g\ndef f(x):\n    return g(x)\n")
    (package.parent / "two.py").write_text("def g(x):\n    return x * 3\n")
    ran = run(capsys, "explain", f"{package}/one.py:f", "--args", "jnp.ones(3)")
    assert "two.py:2: return x * 3" in ran.out


def test_a_file_with_the_name_of_a_module_replaces_nothing(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    import toile

    (tmp_path / "toile.py").write_text("def f(x):\n    return -x\n")
    assert "neg" in run(capsys, "explain", f"{tmp_path}/toile.py:f", "--args", "jnp.ones(3)").out
    assert sys.modules["toile"] is toile
    del sys.modules["toile to explain"]


@pytest.mark.parametrize(("function", "arguments", "status", "said"), [
    ("los", "1", 2, "has no function 'los' (did you mean 'loss'?)"),
    ("Model.aply", "1", 2, "did you mean 'apply'?"),
    ("RATE", "1", 2, "needed a function, got RATE, of type float"),
    ("needs", None, 2, "missing a required argument: 'x'"),
    ("loss", "1)+(2", 2, "--args: needed arguments as in a call, got '1)+(2'"),
    ("loss", "1 +", 2, "--args: needed arguments as in a call"),
    ("loss", "2), _(3", 2, "--args: needed arguments as in a call"),
    ("loss", "jnp.onse(3)", 1, "did you mean 'ones'?"),
    ("needs", "jnp.ones(3), jnp.ones(4)", 1, "incompatible shapes for broadcasting: (3,), (4,)"),
])
def test_mistakes_are_told(capsys, file, function, arguments, status, said):
    given = [] if arguments is None else ["--args", arguments]
    assert said in refused(capsys, "explain", f"{file}:{function}", *given, status=status)


@pytest.mark.parametrize(("text", "said"), [
    ("x = 1\nraise ValueError('no')", ".py cannot be imported: line 2: ValueError: no"),
    ("def f(:", "SyntaxError: invalid syntax"),
    ("import not_a_module_of_anyone", "No module named 'not_a_module_of_anyone'"),
    ("raise SystemExit(3)", "line 1: SystemExit: 3"),
])
def test_a_file_that_fails_is_told(capsys, file, text, said):
    file.write_text(text)
    assert said in refused(capsys, "explain", f"{file}:f", status=1)


@pytest.mark.parametrize(("given", "status"), [
    ("model.py", 2), (":f", 2), ("model.py:", 2), ("no_such_file.py:f", 1)])
def test_a_function_has_to_be_named(capsys, given, status):
    assert f"{given.removesuffix(':f')}" in refused(capsys, "explain", given, status=status)
