"""The alignment of places, which decides whether kernels and libraries may use them directly."""

import re
from pathlib import Path

import numpy as np
import pytest

import toile
from toile.compiler.ir.operands import Operand, Ref, Scratch
from toile.compiler.ir.steps import ALIGNMENT, Moving, alignment
from toile.kernels.attention.gpu_calls import readable
from toile.kernels.contraction.gpu_tensor_cores import is_aligned

KERNELS = Path(toile.__file__).parent / "kernels"


@pytest.mark.parametrize("buffer, offset, expected", [
    (Scratch(256), 0, ALIGNMENT), (Scratch(256), 8, 8), (Scratch(256), 128, ALIGNMENT),
    (Moving(64), 0, 64), (Moving(2), 0, 2), (Moving(2), 64, 2), (Moving(16), 4, 4),
    (Moving(), 0, 1),
])  # fmt: skip
def test_alignment_of_a_place(buffer, offset, expected):
    assert alignment(Ref(buffer, offset)) == expected


@pytest.mark.parametrize("bytes_, expected", [(64, True), (16, True), (8, False), (2, False)])
def test_libraries_get_aligned_slices_of_loops(bytes_, expected):
    """A slice of a loop that begins anywhere is copied first."""
    x = Operand(Ref(Moving(bytes_)), (2, 4, 4, 64), (1024, 256, 64, 1), np.dtype(np.float16))
    assert readable("q", x) is expected and is_aligned(x.ref) is expected


def test_kernels_ask_for_the_alignment():
    """An offset alone does not say where a place in a loop begins."""
    found = [f"{file.relative_to(KERNELS)}: {line.strip()}"
             for file in KERNELS.rglob("gpu*.py") for line in file.read_text().splitlines()
             if re.search(r"\.offset\s*(%|&)|gcd\(.*\.offset", line)]
    assert found == []
