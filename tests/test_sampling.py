"""What a run leaves out: another part each day, everything run within a week, workers alike."""

import datetime
import os
import pathlib
import re
import subprocess
import sys

import hypothesis
import pytest
from hypothesis import strategies as st

from tests import sampling, seeds

ROOT = pathlib.Path(__file__).parents[1]
STARTS = ("20261116", "20261229", "20270226", "20280225")  # over ends of months, years, leap days


def week(start):
    """Seven consecutive dates, as seeds."""
    first = datetime.date.fromisoformat(start)
    days = (first + datetime.timedelta(i) for i in range(sampling.DAYS))
    return [int(d.strftime("%Y%m%d")) for d in days]


@pytest.mark.parametrize("start", STARTS)
def test_a_week_runs_everything(start, request):
    """Of all tests that were collected, and of names made up for each table."""
    made_up = [(f"{key}::test" if "::" not in key else key, f"test[{i}]")
               for key in sampling.SAMPLED for i in range(200)]
    each = [*sampling.collected(request.config), *made_up]
    seen = set()
    for seed in week(start):
        runs = {x for x in each if not sampling.is_left_out(*x, seed)}
        assert len(runs) < len(set(each))
        seen |= runs
    assert set(each) - seen == set()


def test_every_file_runs_every_day(request):
    """Some tests of each file that was collected run on every day."""
    if any("::" in arg for arg in request.config.args):
        pytest.skip("only some tests of a file were collected")
    found = sampling.collected(request.config)
    for seed in week("20261116"):
        runs = {place.partition("::")[0] for place, name in found
                if not sampling.is_left_out(place, name, seed)}
        assert {place.partition("::")[0] for place, _ in found} - runs == set()


def test_days_are_even():
    """No day runs much more of a table than another."""
    for n in set(sampling.SAMPLED.values()):
        counts = [sum(seeds.is_chosen(f"test_table[{i}]", n, seed) for i in range(4000))
                  for seed in week("20261116")]
        assert max(counts) < 1.2 * 4000 / n and min(counts) > 0.8 * 4000 / n


def test_tables_are_there(request):
    """Each table is a file of tests, or a test in one, and is left to at most seven days."""
    for key, n in sampling.SAMPLED.items():
        path, _, function = key.partition("::")
        files = [sampling.HERE / path] if (sampling.HERE / path).exists() else [
            *(ROOT / "examples").glob(f"*/{path}")]
        assert any(f"def {function or 'test_'}" in file.read_text() for file in files), key
        assert 2 <= n <= sampling.DAYS, key


@pytest.mark.parametrize(("text", "fits"), [("20261116", True), ("7", True), ("today", False),
                                            ("-3", False), ("1.5", False)])
def test_the_seed_is_a_number(text, fits, monkeypatch):
    monkeypatch.setenv(seeds.VARIABLE, text)
    if fits:
        assert seeds.today() == int(text)
        return
    with pytest.raises(ValueError, match=f"TOILE_TEST_SEED: needed an integer .* got '{text}'"):
        seeds.today()


def test_the_seed_is_the_date(monkeypatch):
    monkeypatch.delenv(seeds.VARIABLE)
    before, found, after = (datetime.datetime.now(datetime.UTC).date(), seeds.today(),
                            datetime.datetime.now(datetime.UTC).date())
    assert found in [int(d.strftime("%Y%m%d")) for d in (before, after)]


def test_hypothesis_follows_the_seed():
    """Another seed gives other examples, and the same one the same."""
    def drawn(seed):
        found = []

        @hypothesis.given(st.lists(st.integers(), min_size=5))
        def collect(xs):
            found.append(xs)

        before = hypothesis.core.global_force_seed
        hypothesis.core.global_force_seed = seed
        try:
            collect()
        finally:
            hypothesis.core.global_force_seed = before
        return found

    assert hypothesis.core.global_force_seed is not None
    assert not hypothesis.settings().derandomize
    assert drawn(20261116) == drawn(20261116) != drawn(20261117)


# Processes that do not agree on the date: midnight is between the first and its workers.
EARLY = '''
import os
from tests import sampling, seeds

class datetime(seeds.datetime.datetime):
    @classmethod
    def now(cls, zone):
        return cls(2026, 12, 31 if "PYTEST_XDIST_WORKER" not in os.environ else 30)

class module:
    UTC, date = seeds.datetime.UTC, seeds.datetime.date

module.datetime = datetime
seeds.datetime = module
sampling.SAMPLED["test_table.py"] = 7
'''
TABLE = '''
import hypothesis, pytest
from hypothesis import strategies as st

@pytest.mark.parametrize("i", range(140))
def test_row(i):
    print("row", i)

@pytest.mark.slow
def test_long():
    print("long")

@hypothesis.given(st.integers())
def test_drawn(x):
    print("drawn", x)
    assert x < 1000
'''


def run_table(folder, *options, **variables):
    """What pytest says of a table of 142 tests, of which each day runs a seventh."""
    (folder / "early.py").write_text(EARLY)
    (folder / "test_table.py").write_text(TABLE)
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "TOILE_TEST"))}
    env |= {"PYTHONPATH": f"{ROOT}{os.pathsep}{folder}", **variables}
    command = [sys.executable, "-m", "pytest", "-c", os.devnull, f"--rootdir={folder}", "-rA",
               "-p", "early", "-p", "tests.conftest", "-p", "no:cacheprovider",
               "-p", "no:jaxtyping", *options]
    out = subprocess.run([*command, str(folder / "test_table.py")], env=env, cwd=folder,
                         capture_output=True, text=True, timeout=120, check=False).stdout
    return {int(i) for i in re.findall(r"^PASSED .*test_row\[(\d+)\]", out, re.M)}, out


def test_workers_agree_over_midnight(tmp_path):
    pytest.importorskip("xdist")
    rows, out = run_table(tmp_path, "-n", "2")
    of = lambda seed: {i for i in range(140) if seeds.is_chosen(f"test_row[{i}]", 7, seed)}
    assert rows == of(20261231) != of(20261230) and 10 <= len(rows) <= 30
    assert re.search(r"1\d\d of 142 tests were left out: they run on other days", out), out
    assert re.search(r"\d of 142 tests were left out: slow: TOILE_TEST_ALL=1", out), out
    assert "PASSED test_table.py::test_long" not in out
    assert "to repeat this run: TOILE_TEST_SEED=20261231 make test" in out
    assert "collected differently" not in out


def test_a_failure_says_how_to_repeat_it(tmp_path):
    everything, out = run_table(tmp_path, "-n", "0", TOILE_TEST_ALL="1", TOILE_TEST_SEED="20261202")
    assert len(everything) == 140 and "PASSED test_table.py::test_long" in out
    assert "@reproduce_failure(" in out and re.search(r"x=1000\b", out)
    assert "TOILE_TEST_SEED=20261202 make test" in out
    assert "were left out" not in out


def test_examples_follow_the_seed_everywhere(tmp_path):
    """hypothesis draws the same examples on every run, unless told otherwise, if `CI` is set."""
    def drawn(seed, ci):
        _, out = run_table(tmp_path, "-n", "0", CI=ci, TOILE_TEST_ALL="1",
                           TOILE_TEST_SEED=seed)
        return re.findall(r"^drawn (-?\d+)", out, re.M)

    first, second = ([drawn(seed, ci) for ci in ("", "true")] for seed in ("20261116", "20261117"))
    assert first[0] and first[0] == first[1]
    assert second[0] and second[0] == second[1] != first[0]
