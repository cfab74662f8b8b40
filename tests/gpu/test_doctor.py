"""What `python -m toile.doctor` prints, with and without a GPU."""

import builtins
import importlib.metadata

import pytest

import toile
from toile import doctor
from toile.targets.cuda import driver, libraries


@pytest.fixture(autouse=True)
def no_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("TOILE_CACHE_DIR", str(tmp_path))


def test_the_cpu_is_enough(monkeypatch, capsys):
    monkeypatch.setattr(libraries, "driver_version", lambda: None)
    assert doctor.main() == 0
    text = capsys.readouterr().out
    assert text.startswith(f"toile {toile.__version__}\n")
    for part in ("numpy", "llvmlite", "kernels on disk", "a compiled matrix product is correct",
                 "there is no NVIDIA GPU", "Programs run on the CPU."):  # fmt: skip
        assert part in text, part


@pytest.mark.parametrize("environment, asked", [
    ({"JAX_PLATFORMS": "cpu"}, "JAX_PLATFORMS=cpu"),
    ({"TOILE_PLATFORM": "cpu", "JAX_PLATFORMS": "cuda"}, "TOILE_PLATFORM=cpu"),
    ({"TOILE_PLATFORM": "gpu", "JAX_PLATFORMS": "cpu"}, ""),
    ({"TOILE_PLATFORM": "auto", "JAX_PLATFORMS": "cpu"}, ""),
    ({}, ""),
])  # fmt: skip
def test_a_gpu_that_is_not_to_be_used(monkeypatch, environment, asked):
    for name in ("TOILE_PLATFORM", "JAX_PLATFORMS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(libraries, "driver_version", lambda: (13, 0))
    monkeypatch.setattr(driver, "device_count", lambda: 1)
    monkeypatch.setattr(libraries, "candidates", lambda library: [])
    libraries.load.cache_clear()
    monkeypatch.setattr(doctor, "_device", lambda i: [doctor.Finding(f"test on GPU {i}", "right")])
    found = doctor.gpu()
    libraries.load.cache_clear()
    gpus = next(f for f in found if f.name == "GPUs")
    last = doctor.summary(True, found)
    if asked:
        assert gpus.found == f"1, not used because {asked} is set" and gpus.works is None
        assert not any(f.name.startswith("test on") for f in found)
        assert last == f"Programs run on the CPU. The GPU is not used: {asked} is set."
    else:
        assert gpus == doctor.Finding("GPUs", "1", True, gpus.repair)
        assert last == "Programs run on the GPU by default, and on the CPU if told to."
        failed = [doctor.Finding("test on GPU 0", "wrong", False)]
        assert "its test failed" in doctor.summary(True, failed)


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
    monkeypatch.setenv("TOILE_PLATFORM", "gpu")
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
