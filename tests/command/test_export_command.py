"""`toile export`: its formats, parameters from files, and mistakes; weights of ONNX files."""

import runpy
import sys

import numpy as np
import pytest

import toile.numpy as jnp
from tests.command.running import refused, run
from tests.exporting import c_libraries
from toile.export import from_onnx
from toile.interop import safetensors

FILE = """
import toile.numpy as jnp

def double(x):
    return 2 * jnp.tanh(x)

def dense(params, x):
    return x @ params["layer"]["w"]

def example_args():
    return (jnp.ones((2, 3)),)
"""


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    path = tmp_path / "net_to_export.py"
    path.write_text(FILE)
    yield path
    sys.modules.pop("net_to_export", None)


X = np.linspace(-1, 1, 15, dtype=np.float32).reshape(5, 3)


def test_a_numpy_file(capsys, file, tmp_path):
    ran = run(capsys, "export", f"{file}:double", tmp_path / "out.py", "--free-batch")
    assert ran.status == 0, ran.err
    assert ran.out.count("wrote ") == 2
    got = runpy.run_path(str(tmp_path / "out.py"))["out"](X)
    np.testing.assert_allclose(got, 2 * np.tanh(X), rtol=1e-6)
    assert "exists (--force" in refused(
        capsys, "export", f"{file}:double", tmp_path / "out.py", status=1)
    assert run(capsys, "export", f"{file}:double", tmp_path / "out.py", "--force").status == 0


def test_an_onnx_file_with_parameters(capsys, file, tmp_path):
    w = np.arange(6, dtype=np.float32).reshape(3, 2)
    safetensors.save_file({"layer/w": w}, tmp_path / "w.safetensors")
    ran = run(capsys, "export", f"{file}:dense", tmp_path / "out.onnx", "--args",
              "jnp.ones((4, 3))", "--params", tmp_path / "w.safetensors", "--free-batch")
    assert ran.status == 0, ran.err
    function, params = from_onnx(tmp_path / "out.onnx")
    np.testing.assert_allclose(function(params, jnp.asarray(X)), X @ w, rtol=1e-6)
    ran = run(capsys, "convert", tmp_path / "out.onnx", tmp_path / "back.safetensors")
    assert ran.status == 0, ran.err
    np.testing.assert_array_equal(safetensors.load_file(tmp_path / "back.safetensors")["layer/w"],
                                  w)


@pytest.mark.skipif(not c_libraries.HAS_COMPILER, reason=c_libraries.REASON)
def test_a_c_library(capsys, file, tmp_path):
    target = tmp_path / f"out{c_libraries.SUFFIX}"
    ran = run(capsys, "export", f"{file}:double", target, "--free-batch", "--processor", "native")
    assert ran.status == 0, ran.err
    assert ran.out.count("wrote ") == 2 and "out.h: " in ran.out
    (got,) = c_libraries.Library(target, True)([X], [X])
    np.testing.assert_allclose(got, 2 * np.tanh(X), rtol=1e-6)


def test_an_object_file(capsys, file, tmp_path):
    ran = run(capsys, "export", f"{file}:double", tmp_path / "out.o")
    assert ran.status == 0, ran.err
    assert {p.name for p in tmp_path.glob("out.*")} == {"out.o", "out.c", "out.h"}


@pytest.mark.parametrize("arguments, status, said", [
    (["{file}:double", "out.py", "--processor", "native"], 2, "--processor: needed a target that"),
    (["{file}:double", "out.so", "--processor", "x86-64-v5"], 2, "needed"),
    (["predict", "out.py"], 2, "needed FILE:FUNCTION, as in model.py:predict"),
    (["none.py:f", "out.py"], 1, "which does not exist"),
    (["{file}:double", "out.pb"], 2, "needed a file that ends with .py or .onnx"),
    (["{file}:dubble", "out.py"], 2, "did you mean 'double'?"),
    (["{file}:double", "out.py", "--args", "x=1"], 2, "needed positional arguments, got x="),
    (["{file}:double", "out.py", "--params", "w.npz"], 1, "w.npz does not exist"),
])
def test_mistakes(capsys, file, tmp_path, monkeypatch, arguments, status, said):
    monkeypatch.chdir(tmp_path)
    given = [a.format(file="net_to_export.py") for a in arguments]
    assert said in refused(capsys, "export", *given, status=status)


def test_a_damaged_onnx_file_is_not_converted(capsys, tmp_path):
    (tmp_path / "bad.onnx").write_bytes(b"not a model")
    assert "onnx" in refused(capsys, "convert", tmp_path / "bad.onnx", tmp_path / "w.npz", status=1)
