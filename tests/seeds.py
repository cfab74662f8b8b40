"""The seed of tests that draw their cases: it moves with the date and can be set again.

A run here and one in CI on the same day draw the same cases. TOILE_TEST_SEED=20261116 repeats those
of another day.
"""

import datetime
import os


def today() -> int:
    """TOILE_TEST_SEED, or the date in UTC as YYYYMMDD."""
    given = os.environ.get("TOILE_TEST_SEED", "").strip()
    if given:
        return int(given)
    return int(datetime.datetime.now(datetime.UTC).strftime("%Y%m%d"))
