"""GPUs of several processes: who has which, and what they exchange by MPI and by NCCL."""

import pytest

from tests.distributed.launching import NEEDED, start
from tests.multi_gpu.conftest import needs_compiler

pytestmark = [NEEDED, needs_compiler, pytest.mark.slow]


@pytest.mark.parametrize("mode", ["host", "nccl"])
def test_two_processes(mode):
    ended = start(2, "tests.multi_gpu.ranks", mode).check()
    assert "rank 0 agrees" in ended.out and "rank 1 agrees" in ended.out
