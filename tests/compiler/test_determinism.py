"""Planning is deterministic: the same Program has the same plan, to the byte, in every process.

Processes differ in the seed of Python's hashes and in where objects lie; each plans the same
generated programs for the CPU and for a GPU. What threads there are decides how work is cut, and
so is part of a plan's key; kernels and their keys do not depend on it.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import seeds

ROOT = Path(__file__).parents[2]


def digests(count: int, noise: int, hashes: str, threads: str = "2") -> list[list[str]]:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": hashes,
           "TOILE_NUM_THREADS": threads}
    run = subprocess.run(
        [sys.executable, "-m", "tests.compiler.plan_digests", str(seeds.today()), str(count),
         str(noise)], env=env, cwd=ROOT, capture_output=True, text=True, check=False)
    assert not run.returncode, run.stderr
    return json.loads(run.stdout)


def compare(count: int, processes: int) -> None:
    first = digests(count, 0, "0")
    planned = [x for x in first if len(x) > 1]
    assert len(planned) > count / 2
    for n in range(1, processes):
        for index, (a, b) in enumerate(zip(first, digests(count, n, str(n)), strict=True)):
            assert a == b, f"program {index} of seed {seeds.today()}"
    print(f"\n{len(planned)} programs in {processes} processes: equal keys, plans and kernels")


def test_plans_are_the_same_in_another_process():
    compare(16, 2)


@pytest.mark.slow
def test_plans_are_the_same_in_five_processes():
    compare(200, 5)


def test_kernels_do_not_depend_on_the_number_of_threads():
    few, many = digests(12, 0, "0", "1"), digests(12, 0, "0", "7")
    assert [x[2:3] for x in few] == [x[2:3] for x in many]
