"""The seed of a run of the tests: the date, so that each day tries something else.

It decides which tests of long tables are left out, which examples hypothesis draws and which
programs are generated. `TOILE_TEST_SEED=20261116 make test` repeats the run of that day. It is
read once: tests/conftest.py writes it into the environment, where workers and processes that
tests start find it, so that a run over midnight has one seed.
"""

import datetime
import os
import zlib
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

VARIABLE = "TOILE_TEST_SEED"
EVERYTHING = os.environ.get("TOILE_TEST_ALL", "0") not in ("", "0")


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


def day(seed: int) -> int:
    """The number of a seed's day: consecutive for consecutive dates, over ends of months too.

    Seeds that are no dates are numbers of days themselves."""
    try:
        return datetime.date(seed // 10000, seed // 100 % 100, seed % 100).toordinal()
    except ValueError:
        return seed


def is_chosen(name: str, one_in: int, seed: int | None = None) -> bool:
    """Whether the run of a seed (today's) takes this one of many: each is taken every n-th day."""
    found = day(today() if seed is None else seed)
    return zlib.crc32(name.encode()) % one_in == found % one_in


def of_today(options: Sequence[T]) -> Sequence[T]:
    """The option whose turn it is, as a sequence; all of them where everything is tested."""
    return options if EVERYTHING else [options[day(today()) % len(options)]]
