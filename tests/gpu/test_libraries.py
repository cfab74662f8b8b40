"""Finding NVIDIA's libraries: where they are looked for, versions, and what errors say."""

import ctypes
import subprocess
import sys
import types

import pytest

from toile.targets.cuda import cublas, cudnn, engines, libraries


@pytest.fixture
def fresh():
    libraries.load.cache_clear()
    yield
    libraries.load.cache_clear()


def installed(root, *paths):
    for path in paths:
        file = root / "nvidia" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()


@pytest.mark.skipif(sys.platform == "win32", reason="names of Linux")
def test_wheels_come_before_the_system(tmp_path):
    installed(tmp_path, "cu13/lib/libcublas.so.13", "cublas/lib/libcublas.so.12",
              "cudnn/lib/libcudnn.so.9")  # fmt: skip
    found = libraries.candidates(libraries.CATALOGUE["cublas"], [tmp_path])
    assert found == [
        str(tmp_path / "nvidia/cu13/lib/libcublas.so.13"),
        str(tmp_path / "nvidia/cublas/lib/libcublas.so.12"), "libcublas.so.13", "libcublas.so.12"]
    found = libraries.candidates(libraries.CATALOGUE["cudnn"], [tmp_path])
    assert found == [str(tmp_path / "nvidia/cudnn/lib/libcudnn.so.9"), "libcudnn.so.9"]
    assert libraries.candidates(libraries.CATALOGUE["nccl"], []) == ["libnccl.so.2"]


class FakeLibrary:
    """A library that says its version, as cuBLAS does."""

    def __init__(self, *version):
        self.version = version

    def cublasGetProperty(self, kind, out):
        ctypes.cast(out, ctypes.POINTER(ctypes.c_int))[0] = self.version[kind]
        return 0


@pytest.mark.parametrize("cuda, extra, package", [
    ((12, 8), "toile[cuda12]", "nvidia-cublas-cu12"), ((13, 0), "toile[cuda13]", "nvidia-cublas)"),
    (None, "toile[cuda13]", "nvidia-cublas)"),
])  # fmt: skip
def test_missing(monkeypatch, fresh, cuda, extra, package):
    monkeypatch.setattr(libraries, "candidates", lambda library: ["/nowhere/libcublas.so.13"])
    monkeypatch.setattr(libraries, "driver_version", lambda: cuda)
    with pytest.raises(libraries.LibraryError) as error:
        libraries.load("cublas")
    text = str(error.value)
    assert text.startswith("toile: needed cuBLAS >= 12.0, found /nowhere/libcublas.so.13, which")
    assert f'pip install "{extra}"' in text and package in text
    assert libraries.version("cublas") is None


def test_too_old(monkeypatch, fresh):
    monkeypatch.setattr(libraries, "candidates", lambda library: ["old", "new"])
    found = {"old": FakeLibrary(11, 9, 2), "new": FakeLibrary(12, 4, 5)}
    monkeypatch.setattr(libraries.ctypes, "CDLL", found.get)
    assert libraries.load("cublas") is found["new"]
    assert libraries.version("cublas") == (12, 4, 5)
    libraries.load.cache_clear()
    monkeypatch.setattr(libraries, "candidates", lambda library: ["old"])
    with pytest.raises(libraries.LibraryError, match="found 11.9.2 at old: pip install"):
        libraries.load("cublas")


def test_versions():
    class Cudnn:
        class cudnnGetVersion:
            def __new__(cls):
                return 91900

    class Nccl:
        @staticmethod
        def ncclGetVersion(out):
            ctypes.cast(out, ctypes.POINTER(ctypes.c_int))[0] = 22803

    class Runtime:
        @staticmethod
        def cudaRuntimeGetVersion(out):
            ctypes.cast(out, ctypes.POINTER(ctypes.c_int))[0] = 13020

    assert libraries.version_of("cudnn", Cudnn) == (9, 19, 0)
    assert libraries.version_of("nccl", Nccl) == (2, 28, 3)
    assert libraries.version_of("cudart", Runtime) == (13, 2)
    assert libraries.version_of("nvrtc", object()) is None


def test_functions_are_typed_and_checked():
    class Library:
        @staticmethod
        def cublasCreate_v2(handle):
            return 3

    class Typed:
        argtypes = restype = None

        def __call__(self, handle):
            return 3

    Library.cublasCreate_v2 = Typed()
    table = {"cublasCreate_v2": cublas.PROTOTYPES["cublasCreate_v2"]}
    functions = libraries.Functions(Library, table, cublas._status)
    assert Library.cublasCreate_v2.argtypes == [ctypes.c_void_p]
    with pytest.raises(libraries.LibraryError, match=r"cublasCreate_v2 failed: out of resources"):
        functions.cublasCreate_v2(0)


def test_without_cudnn_there_is_a_reason(monkeypatch, fresh):
    monkeypatch.setattr(libraries, "candidates", lambda library: [])
    found, problem = cudnn.frontend()
    assert found is None
    assert problem.startswith("toile: needed cuDNN >= 9.1, found none: pip install")


def test_without_cudnn_there_is_one_warning(monkeypatch, fresh):
    monkeypatch.setattr(libraries, "candidates", lambda library: [])
    engines.warn_once.cache_clear()
    with pytest.warns(RuntimeWarning, match="found none: pip install .* slower") as found:
        assert cudnn.make() is None
        assert cudnn.make() is None
    assert len(found) == 1
    engines.warn_once.cache_clear()


def test_a_cudnn_that_is_too_old(monkeypatch, fresh):
    class Cudnn:
        class cudnnGetVersion:
            def __new__(cls):
                return 90001

    monkeypatch.setattr(libraries, "candidates", lambda library: ["libcudnn.so.9"])
    monkeypatch.setattr(libraries, "driver_version", lambda: (12, 8))
    monkeypatch.setattr(libraries.ctypes, "CDLL", lambda name: Cudnn)
    _, problem = cudnn.frontend()
    assert problem.startswith("toile: needed cuDNN >= 9.1, found 9.0.1 at libcudnn.so.9: pip")
    assert 'pip install "toile[cuda12]" (or pip install nvidia-cudnn-cu12)' in problem


@pytest.mark.parametrize("text", [
    "", "__version__ = '1.12.0'", "__version__ = 'unknown'", "raise RuntimeError('no symbol')",
    "import ctypes; ctypes.no_such_name",
])
def test_a_frontend_that_is_damaged(monkeypatch, tmp_path, text):
    """A package that is there but broken is reported, and toile's own kernels are used."""
    (tmp_path / "cudnn.py").write_text(text)
    monkeypatch.setattr(libraries, "load", lambda name: None)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "cudnn", raising=False)
    found, problem = cudnn.frontend()
    sys.modules.pop("cudnn", None)
    assert found is None
    assert problem.startswith("toile: needed nvidia-cudnn-frontend, found a package `cudnn` that")
    assert problem.endswith("pip install --force-reinstall nvidia-cudnn-frontend")


def test_a_frontend_that_is_missing_or_too_old(monkeypatch):
    monkeypatch.setattr(libraries, "load", lambda name: object())
    monkeypatch.setitem(sys.modules, "cudnn", None)
    _, problem = cudnn.frontend()
    assert problem.startswith("toile: needed nvidia-cudnn-frontend, found none (")
    assert 'pip install "toile[cuda' in problem
    old = types.ModuleType("cudnn")
    old.__version__ = "1.4.0"
    monkeypatch.setitem(sys.modules, "cudnn", old)
    _, problem = cudnn.frontend()
    assert "found 1.4.0: pip install -U nvidia-cudnn-frontend" in problem


def test_nothing_is_loaded_on_import():
    code = ("import sys, toile.kernels.attention.gpu_calls, toile.kernels.convolution.gpu\n"
            "assert not {'cupy', 'cudnn', 'torch'} & set(sys.modules)")
    subprocess.run([sys.executable, "-c", code], check=True)
