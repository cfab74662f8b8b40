"""The seed of a run of the tests: the date, so that each day tries something else.

It decides which tests of long tables are left out, which examples hypothesis draws and which
programs are generated. `TOILE_TEST_SEED=20261116 make test` repeats the run of that day. It is
read once: tests/conftest.py writes it into the environment, where workers and processes that
tests start find it, so that a run over midnight has one seed.
"""

import datetime
import os

VARIABLE = "TOILE_TEST_SEED"


def today() -> int:
    """The seed of this run: TOILE_TEST_SEED, or the UTC date as YYYYMMDD."""
    given = os.environ.get(VARIABLE, "")
    if not given:
        return int(datetime.datetime.now(datetime.UTC).strftime("%Y%m%d"))
    try:
        seed = int(given)
    except ValueError:
        seed = -1
    if seed < 0:
        raise ValueError(f"{VARIABLE}: needed an integer such as 20261116 (the date of the run to "
                         f"repeat), got {given!r}")
    return seed
