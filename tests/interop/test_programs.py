"""Programs with packages written for JAX give the same numbers when `toile run` runs them."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from tests.interop.program_results import GOLDEN, programs

EXPECTED = json.loads(GOLDEN.read_text())
FEWEST = 9  # programs whose packages the test extra installs


def printed(*start):
    """What the programs print, by name."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", *start, "tests.interop.program_results"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        cwd=GOLDEN.parents[2], capture_output=True, text=True, timeout=500)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"name"')]
    assert done.returncode == 0, done.stderr
    return {line["name"]: line for line in lines}


def differences(found):
    """The programs that failed, or whose numbers are not those of jax, with the reasons."""
    wrong = {}
    for name, line in found.items():
        if "error" in line:
            wrong[name] = line["error"]
        elif name in EXPECTED:
            try:
                for x, y in zip(line["results"], EXPECTED[name], strict=True):
                    np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-4)
            except (AssertionError, ValueError) as error:
                wrong[name] = str(error)
    return wrong


def test_same_numbers_as_on_jax():
    found = printed("toile", "run", "-m")
    assert sorted(found) == programs()
    assert len(found) >= FEWEST
    assert differences(found) == {}


@pytest.mark.slow
def test_the_golden_file_is_what_jax_gives():
    assert differences(printed()) == {}
