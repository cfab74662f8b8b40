"""The operations that compiled code leaves to Python, for each device, with the reason.

A step in Python computes one operation with NumPy, on one thread, and on a GPU it also copies its
operands to the host and its results back. The list may only become shorter: an operation that is
missing from it must have a kernel for every dtype of its rows.
"""

import collections

import pytest

import toile
from tests.cases import dtype_of, noted
from tests.cases_control import ROWS
from tests.gpu.fake_solvers import FakeCufft, FakeCusolver
from toile.compiler.ir.steps import EagerStep
from toile.compiler.pipeline import optimize
from toile.compiler.plan.lower import planned
from toile.platforms.cpu.target import Target
from toile.platforms.gpu.target import TARGET
from toile.targets.cuda import cufft, cusolver

TARGETS = {"cpu": Target(4), "gpu": TARGET}

USERS = dict.fromkeys(
    ("DebugCallback", "OrderedDebugCallback", "IoCallback", "OrderedIoCallback", "PureCallback",
     "OnBuffers"),
    "a function that a user wrote in Python",
)  # fmt: skip
MESHES = dict.fromkeys(
    ("Constraint", "Spmd", "Varying"), "divided over a mesh before anything is compiled"
)
RARE = dict.fromkeys(
    ("Eig", "Schur", "Hessenberg", "Tridiagonal", "TridiagonalSolve", "CholeskyUpdate", "Geqrf",
     "HouseholderProduct", "Ormqr"),
    "rare: LAPACK through NumPy or SciPy, or a loop over rows",
)  # fmt: skip
COMPLEX = dict.fromkeys(
    ("Cholesky", "Eigh", "FactoredSolve", "Lu", "LuFactors", "Qr", "Svd", "TriangularSolve"),
    "of complex matrices, and QR with pivots: LAPACK through NumPy or SciPy",
)  # fmt: skip
BOTH = {
    **USERS,
    **MESHES,
    **RARE,
    "BitcastConvertType": "between dtypes of different sizes: NumPy's view of an array",
}
IN_PYTHON = {
    "cpu": {**BOTH, **COMPLEX, "ConvGeneralDilated": "of complex numbers"},
    "gpu": {
        **BOTH,
        "Qr": "with pivots: LAPACK on the host",
    },
}


def operations(plan):
    """The operations that steps of a plan, and of the loops inside, compute in Python."""
    for step in plan.steps:
        if isinstance(step, EagerStep):
            yield step.equation
        for body in getattr(step, "children", ()):
            yield from operations(body)


def program(row, dtype):
    """The optimized Program of a row."""
    args = [toile.numpy.asarray(a) for a in row.arguments(dtype)]
    return optimize(toile.make_jaxpr(row.run)(*args).jaxpr)


@pytest.fixture(scope="module")
def found():
    """For each device, the operations in Python and their dtypes."""
    seen = {device: collections.defaultdict(set) for device in TARGETS}
    for row in ROWS:
        for dtype in row.dtypes:
            with noted(f"{row}, {dtype}"), toile.enable_x64(dtype_of(dtype).itemsize >= 8):
                made = program(row, dtype)
                for device, target in TARGETS.items():
                    with cufft.use(FakeCufft()), cusolver.use(FakeCusolver()):
                        plan = planned(made, target)
                    for e in operations(plan):
                        seen[device][type(e.op).__name__].add(dtype)
    return seen


@pytest.mark.parametrize("device", TARGETS)
def test_only_listed_operations_run_in_python(found, device):
    assert {k: sorted(v) for k, v in found[device].items() if k not in IN_PYTHON[device]} == {}


@pytest.mark.parametrize("device", TARGETS)
def test_listed_operations_do(found, device):
    """An operation that has got its kernel leaves the list."""
    assert set(IN_PYTHON[device]) - set(found[device]) == set()


def test_decompositions_of_real_matrices_have_kernels(found):
    for name in {*COMPLEX} - {"Qr"}:
        assert {d for d in found["cpu"][name] if not d.startswith("complex")} == set(), name
