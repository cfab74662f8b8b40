"""Damaged files: every reader gives a value or raises toile's own error, within bounds.

Each case is drawn from the seed of the run (the date, or TOILE_TEST_SEED), the reader and a number,
all of which a failure prints. `make test` draws a few for each reader; `make test-all` draws more
than 100,000 and prints how many were read and how many refused.
"""

import contextlib
import random
import resource
import signal
import threading
import tracemalloc
import warnings

import numpy as np
import pytest

from tests import seeds
from tests.readers.bounds import MIB, is_ours, measured
from tests.readers.readers import make_readers

FEW, MANY = 25, 6_500
SECONDS, LARGEST = 3.0, 40 * MIB  # of one damaged file, all of which are small
HANGS = 60  # seconds by the clock


@pytest.fixture(scope="module")
def readers(tmp_path_factory):
    return make_readers(tmp_path_factory.mktemp("whole"))


@contextlib.contextmanager
def stopped_after(seconds):
    """Raise a TimeoutError in what does not end."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_):
        raise TimeoutError(f"no end after {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def array_bytes(x, depth=0):
    """The bytes of the arrays in a value; raises where it cannot be walked."""
    assert depth < 300
    if isinstance(x, np.ndarray):
        return x.nbytes if any(x.strides) else x.itemsize
    if isinstance(x, dict):
        return sum(array_bytes(y, depth + 1) for y in x.values())
    if isinstance(x, (list, tuple, set)):
        return sum(array_bytes(y, depth + 1) for y in x)
    return 0


def attack(name, reader, folder, seed, number, count_memory):
    """Damage a file and read it; whether it was read."""
    rng = random.Random(f"{seed} {name} {number}")
    data = reader.damage(rng, rng.choice(reader.files), reader.files)
    told = f"reader {name!r}, TOILE_TEST_SEED={seed}, case {number}: {data[:2000]!r}"
    with stopped_after(HANGS), warnings.catch_warnings():
        warnings.simplefilter("error")
        found = measured(reader.read, folder, data, count_memory=count_memory)
    at_the_end = isinstance(found.error, EOFError) and name == "npy" and not data  # as NumPy has it
    if found.error is not None and not is_ours(found.error) and not at_the_end:
        raise AssertionError(told) from found.error
    assert found.seconds < SECONDS, f"{found.seconds} s: {told}"
    assert found.peak < LARGEST, f"{found.peak / MIB} MiB: {told}"
    assert array_bytes(found.value) <= 8 * len(data) + 16 * MIB, told
    return found.error is None


def test_whole_files_are_read(readers, tmp_path):
    for name, reader in readers.items():
        for data in reader.files:
            outcome = measured(reader.read, tmp_path, data)
            refused = name.startswith("from_bytes") and data is reader.files[1]
            assert refused or outcome.error is None, (name, outcome.error)


def test_damaged_files(readers, tmp_path):
    seed = seeds.today()
    print(f"TOILE_TEST_SEED={seed}")
    tracemalloc.start()
    try:
        for name, reader in readers.items():
            for number in range(FEW):
                attack(name, reader, tmp_path, seed, number, count_memory=True)
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_100_000_damaged_files(readers, tmp_path, capsys):
    seed = seeds.today()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    total = 0
    with capsys.disabled():
        print(f"\ndamaged files, TOILE_TEST_SEED={seed}")
        for name, reader in readers.items():
            read = sum(
                attack(name, reader, tmp_path, seed, FEW + number, count_memory=number % 20 == 0)
                for number in range(MANY)
            )
            total += MANY
            print(f"  {name:22} {MANY:7,} files, {read:6,} read, {MANY - read:6,} refused")
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        print(f"  {total:,} files in all; the process grew by {grown:.0f} MiB")
    assert total >= 100_000 and grown < 300
