"""What `python -m toile.doctor` prints, with and without a GPU."""

import builtins
import importlib.metadata

import pytest

import toile
from toile import doctor
from toile.backends.gpu import driver, libraries


@pytest.fixture(autouse=True)
def no_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("TOILE_CACHE_DIR", str(tmp_path))


def test_the_cpu_is_enough(monkeypatch, capsys):
    monkeypatch.setattr(libraries, "driver_version", lambda: None)
    assert doctor.main() == 0
    text = capsys.readouterr().out
    assert text.startswith(f"toile {toile.__version__}\n")
    for part in ("numpy", "llvmlite", "kernels on disk", "a compiled product is right",
                 "there is no NVIDIA GPU", "Programs run on the CPU."):  # fmt: skip
        assert part in text, part


def test_a_cpu_that_fails(monkeypatch, capsys):
    monkeypatch.setattr(libraries, "driver_version", lambda: None)

    def fails(*args):
        raise OSError("no compiler")

    monkeypatch.setattr(toile, "jit", fails)
    assert doctor.main() == 1
    text = capsys.readouterr().out
    assert "OSError: no compiler" in text and "Programs do not run on the CPU" in text


def test_packages(monkeypatch):
    versions = {"numpy": "1.26.4", "scipy": "1.14.1"}

    def version(name):
        if name not in versions:
            raise importlib.metadata.PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr(importlib.metadata, "version", version)
    found = {f.name: f for f in doctor.packages()}
    assert found["numpy"].works is False and "too old" in found["numpy"].found
    assert found["numpy"].repair == 'pip install "numpy>=2.0"'
    assert found["scipy"] == doctor.Finding("scipy", "1.14.1")
    assert found["llvmlite"].found == "not installed"


@pytest.mark.parametrize("cuda", [12, 13])
def test_a_gpu_without_anything_installed(monkeypatch, capsys, cuda):
    monkeypatch.setattr(libraries, "driver_version", lambda: (cuda, 2))
    monkeypatch.setattr(libraries, "candidates", lambda library: [])
    monkeypatch.setattr(driver, "device_count", lambda: 1)
    libraries.load.cache_clear()
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name == "cupy":
            raise ImportError("no module named cupy")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    findings = {f.name: f for f in doctor.gpu()}
    libraries.load.cache_clear()
    assert findings["driver"].found == f"for CUDA {cuda}.2"
    assert findings["CuPy"].works is False
    assert findings["CuPy"].repair == f'pip install "toile[cuda{cuda}]"'
    assert findings["cuBLAS"] == doctor.Finding(
        "cuBLAS", "needed cuBLAS >= 12.0, found none", False, f'pip install "toile[cuda{cuda}]"')
    assert findings["cuDNN"].works is None  # own kernels are used instead
    assert findings["test on GPU 0"].works is False
    doctor.show("GPU", list(findings.values()))
    assert f'-> pip install "toile[cuda{cuda}]"' in capsys.readouterr().out
