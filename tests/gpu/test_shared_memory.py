"""Shared memory of blocks: how much a function is allowed, and how much the GPUs here have."""

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from tests.compiler.test_golden_kernels import cross_entropy, shape
from tests.gpu import fibers, host_driver
from tests.gpu.emulator import LIMITS, Nests
from tests.gpu.test_nests import layer_norm_backward
from tests.gpu.test_programs import program_of
from toile import nn
from toile.kernels.contraction import gpu_tensor_cores as tensor_products
from toile.kernels.contraction import gpu_tensor_text
from toile.kernels.nest import gpu as nests
from toile.kernels.nest import gpu_forms as nest_forms
from toile.targets.cuda import driver as driver_module
from toile.targets.cuda.driver import driver

HOPPER, AMPERE, GEFORCE, TURING, PASCAL = (n << 10 for n in (227, 163, 99, 64, 48))
LONG, SHORT = 50304, 40000  # rows of float32 that one kernel holds in shared memory


@pytest.fixture
def library(monkeypatch):
    with host_driver.host_gpu(monkeypatch) as (_, device):
        with host_driver.cuda_library(monkeypatch, HOPPER) as found:
            found.device = device
            yield found


def limited(monkeypatch, nbytes):
    """Have GPUs here give so much to a block."""
    monkeypatch.setattr(driver_module, "shared_limit", lambda: nbytes)


# ---- functions


def softmax_of(*lengths, device):
    rows = [np.zeros((2, n), np.float32) for n in lengths]
    program, leaves = program_of(lambda *xs: [nn.softmax(x) for x in xs], rows)
    made = host_driver.compiled(program, device)
    assert sorted(s.shared for s in every(made)) == sorted(4 * n for n in lengths)
    return made, leaves


def every(executable):
    return [x for same in executable.issuer.launches.values() for x in same]


@pytest.mark.parametrize("lengths", [(LONG, SHORT), (SHORT, LONG)])
def test_launches_of_one_function_in_a_program(lengths, library):
    executable, leaves = softmax_of(*lengths, device=library.device)
    assert len({x.function for x in every(executable)}) == 1
    host_driver.run(executable, [x._data for x in leaves], library.device)
    assert library.allowed == {every(executable)[0].function: 4 * LONG}


def test_a_later_program_takes_nothing_away(library):
    first, leaves = softmax_of(LONG, device=library.device)
    second, _ = softmax_of(SHORT, device=library.device)
    assert every(first)[0].function == every(second)[0].function
    host_driver.run(first, [leaves[0]._data], library.device)
    assert library.names.count("cuFuncSetAttribute") == 1


def test_what_is_allowed_only_grows(library):
    for nbytes in (60_000, 50_000, 60_000, 90_000, 70_000):
        driver().allow_shared(5, nbytes)
    driver().allow_shared(6, 50_000)
    assert library.allowed == {5: 90_000, 6: 50_000}
    assert library.names.count("cuFuncSetAttribute") == 3


# ---- GPUs


@pytest.mark.parametrize(("current", "limits", "expected"), [
    (0, (HOPPER,), HOPPER), (1, (HOPPER, GEFORCE, AMPERE), GEFORCE),
    (2, (HOPPER, GEFORCE, AMPERE), AMPERE), (None, (HOPPER, GEFORCE, AMPERE), GEFORCE),
    (0, (None,), 48 << 10), (None, (), HOPPER)])  # fmt: skip
def test_what_the_gpu_has(current, limits, expected, monkeypatch):
    """The current one; all of them where none is; Hopper where there is none."""
    with host_driver.cuda_library(monkeypatch, *limits) as library:
        library.current = current
        assert driver_module.shared_limit() == expected


def entropy_backward(x, labels):
    return toile.value_and_grad(cross_entropy)(x, labels)


LABELS = shape(3, dtype=jnp.int32)
ROWS = {
    "softmax": (nn.softmax, shape(3, 50257)),
    "cross entropy": (entropy_backward, shape(3, 50257), LABELS),
    "bfloat16": (nn.softmax, shape(3, 50257, dtype=jnp.bfloat16)),
    "almost all": (nn.softmax, shape(3, (GEFORCE - 64) // 4)),
    "with totals": (layer_norm_backward, *[shape(9, 8192)] * 2, *[shape(8192)] * 2),
    "with totals of warps": (layer_norm_backward, *[shape(40, 1024)] * 2, *[shape(1024)] * 2),
}


@pytest.mark.parametrize("limit", [HOPPER, AMPERE, GEFORCE, TURING, PASCAL])
@pytest.mark.parametrize("name", ROWS)
def test_rows_fit_the_gpu(name, limit, monkeypatch):
    limited(monkeypatch, limit)
    for x in Nests(*ROWS[name], limits=LIMITS).launches:
        own = 128 * x.text.count("__shared__ float r")  # which the kernel declares itself
        assert not x.shared or x.shared + own <= limit
        assert x.shared <= nest_forms.MOST_SHARED


def test_what_fits_is_held(monkeypatch):
    held = {}
    for limit in (HOPPER, AMPERE, GEFORCE):
        limited(monkeypatch, limit)
        held[limit] = [Nests(f, given).launches[0].shared
                       for f, given in (ROWS["softmax"], ROWS["bfloat16"])]
    assert held == {HOPPER: [201028, 100514], AMPERE: [0, 100514], GEFORCE: [0, 100514]}


@pytest.mark.skipif(not fibers.available(), reason="needs g++")
def test_sums_are_the_same_on_all_gpus(monkeypatch):
    x = np.random.default_rng(0).normal(size=(2, 50257)).astype(np.float32)
    found = []
    for limit in (HOPPER, GEFORCE):
        limited(monkeypatch, limit)
        found += Nests(nn.softmax, shape(2, 50257))(x)
    np.testing.assert_array_equal(*found)
    np.testing.assert_allclose(found[0].sum(-1), 1, rtol=1e-5)


@pytest.mark.skipif(not fibers.available(), reason="needs g++")
def test_totals_in_less_memory(monkeypatch):
    """Rows that share less are right too."""
    monkeypatch.setattr(nests, "PROCESSORS", 1)
    rng = np.random.default_rng(0)
    given = [rng.normal(size=s).astype(np.float32) for s in ((40, 1024),) * 2 + ((1024,),) * 2]
    found = []
    for limit in (HOPPER, 8 << 10):
        limited(monkeypatch, limit)
        made = Nests(*ROWS["with totals of warps"], limits=LIMITS)
        assert max(x.shared for x in made.launches) <= limit
        found.append(made(*given))
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


def test_products_by_tensor_cores_fit_from_ampere_on():
    sizes = (1, 16, 17, 32, 33, 64, 65, 128, 1000)
    most = max(gpu_tensor_text.STAGES * tensor_products._tile(m, n, k).shared
               for m in sizes for n in sizes for k in (8, 16, 17, 1000)) * tensor_products.ITEM
    assert 48 << 10 < most <= GEFORCE
