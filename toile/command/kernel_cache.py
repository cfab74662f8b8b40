"""`toile cache`: shows where compiled kernels are kept and how many there are, or removes them."""

from __future__ import annotations

import argparse
import os

from toile.command.failures import Failure, UsageError
from toile.disk import object_cache
from toile.disk.object_cache import ObjectCache


def cache(args: argparse.Namespace) -> None:
    """Show the cache, or clear it."""
    if args.yes and args.what is None:
        raise UsageError("--yes applies to `toile cache clear` (did you forget clear?)")
    found = _cache()
    if args.what == "clear":
        _clear(found, args.yes)
        return
    count, size = found.usage()
    print(f"folder   {found.folder}\n"
          f"entries  {count:,}\n"
          f"size     {megabytes(size)} of at most {megabytes(found.limit)}")
    if object_cache.from_environment() is None:
        print("The cache is turned off by TOILE_CACHE or TOILE_CACHE_SIZE.")


def _cache() -> ObjectCache:
    """The cache, even if it is turned off, since its folder may have entries."""
    on = {k: v for k, v in os.environ.items() if k != "TOILE_CACHE"}
    limited = object_cache.from_environment(on)
    found = limited or object_cache.from_environment(on | {"TOILE_CACHE_SIZE": "1"})
    if found is None:
        raise Failure("there is no folder for compiled kernels: this user has no home folder "
                      "(set TOILE_CACHE_DIR)")
    problem = found.problem()
    if problem:
        raise Failure(f"the folder {found.folder} is not used: {problem} (run chmod 700 on it, or "
                      "set TOILE_CACHE_DIR to a folder that you own)")
    return found


def _clear(found: ObjectCache, sure: bool) -> None:
    count, size = found.usage()
    if not count:
        print(f"{found.folder} has no entries")
        return
    if not sure:
        try:
            answer = input(f"Remove {count:,} entries ({megabytes(size)}) from {found.folder}? "
                           "[y/N] ")
        except EOFError:
            raise Failure("needed an answer, got none (--yes clears without asking)") from None
        if answer.strip().lower() not in ("y", "yes"):
            print("nothing was removed")
            return
    removed, freed = found.clear()
    print(f"removed {removed:,} entries ({megabytes(freed)})")
    if removed < count:
        raise Failure(f"{count - removed:,} entries of {found.folder} could not be removed")


def megabytes(size: int) -> str:
    """A size as text."""
    return f"{size / 1e6:,.1f} MB"
