"""`toile convert`: converts weights from one format to another, completely or not at all.

Every source becomes a list of leaves with their paths, which are tuples of names. The names in a
flat file, or in a torch state dict, are split at the separator; the names in a nested file are used
unchanged. If the target cannot hold a value, an error is raised before anything is written.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from toile.command.failures import Failure, UsageError
from toile.command.weight_files import Format, Tree, format_of
from toile.engine.suggestions import did_you_mean
from toile.engine.trace import Array

NUMBERS = (bool, int, float, complex)
SHOWN = 3  # names in an error

Leaves = list[tuple[tuple[str, ...], Any]]


def convert(args: argparse.Namespace) -> None:
    """Convert a file, and print what was written."""
    source, target = Path(args.source), Path(args.target)
    if not source.exists():
        raise Failure(f"{source} does not exist")
    reads = format_of(source, args.source_format, "--from", source.is_dir())
    is_folder = target.is_dir() or args.target.endswith(("/", os.sep))
    writes = format_of(target, args.target_format, "--to", is_folder)
    _check_options(args, reads, writes)
    _check_target(source, target, writes, args.force)
    leaves = leaves_of(reads.read(source, args.step), reads, args.separator)
    if args.only is not None:
        leaves = part(leaves, args.only, args.separator)
    tree = tree_of(leaves, writes, args.separator)
    assert writes.write is not None
    path = writes.write(target, tree, args.step)
    arrays = sum(isinstance(x, (np.ndarray, np.generic)) for _, x in leaves)
    others = len(leaves) - arrays
    more = f" and {others} other value{'s' * (others > 1)}" if others else ""
    print(f"wrote {path}: {arrays} array{'s' * (arrays != 1)}{more}, "
          f"{path.stat().st_size:,} bytes")
    for note in reads.left_out(source):
        print(f"left out: {note}")


def _check_options(args: argparse.Namespace, reads: Format, writes: Format) -> None:
    if writes.write is None:
        raise UsageError(f"the format {writes.name} can only be read ({writes.hint})")
    if not args.separator:
        raise UsageError("--separator: needed a non-empty text, got an empty one")
    if args.step is not None and "checkpoint" not in (reads.name, writes.name):
        raise UsageError("--step applies to folders of checkpoints, got none")
    if args.force and writes.name == "checkpoint":
        raise UsageError("--force applies to files (--step adds to a folder of checkpoints)")


def _check_target(source: Path, target: Path, writes: Format, force: bool) -> None:
    """Raise an error if the target exists and must not be replaced, or is the source."""
    if target.exists() and target.samefile(source):
        raise UsageError(f"SOURCE and TARGET: needed two different files, got {target} twice")
    if writes.name == "checkpoint":
        return  # the writer refuses a step unless it is newer than all existing ones
    if target.is_dir():
        raise UsageError(f"needed a file to write, got the folder {target} (--to checkpoint)")
    if target.exists() and not force:
        raise Failure(f"{target} exists (--force replaces it)")


# ---- trees as leaves, and back
def leaves_of(tree: Tree, reads: Format, separator: str) -> Leaves:
    """The leaves of a tree with their paths."""
    is_state_dict = reads.name == "torch" and not any(
        isinstance(x, (Mapping, list, tuple)) for x in tree.values())
    if reads.nested and not is_state_dict:
        return list(_walk(tree, ()))
    return [(tuple(name.split(separator)), x) for (name,), x in _walk(tree, ())]


def _walk(x: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Each leaf; lists are dicts of "0", "1", ..., as in Flax's files; an empty dict is a leaf."""
    if isinstance(x, (list, tuple)):
        x = {str(i): y for i, y in enumerate(x)}
    if not isinstance(x, Mapping) or not x and path:
        yield path, np.asarray(x) if isinstance(x, Array) else x
        return
    for name, y in x.items():
        if not isinstance(name, str):
            where = "/".join(path) or "the tree"
            raise Failure(f"needed names that are strings, got {name!r} in {where}")
        yield from _walk(y, (*path, name))


def part(leaves: Leaves, name: str, separator: str) -> Leaves:
    """The leaves of a part of the tree, or the single leaf with this name."""
    start = tuple(name.split(separator))
    found = [(path[len(start):] or path[-1:], x) for path, x in leaves
             if path[: len(start)] == start]
    if not found:
        known = {separator.join(path[:n]) for path, _ in leaves for n in range(1, len(path) + 1)}
        top = ", ".join(dict.fromkeys(path[0] for path, _ in leaves))
        longer = sorted(k for k in known if k.endswith(f"{separator}{name}"))
        near = (f" (did you mean {longer[0]!r}?)" if longer else did_you_mean(name, known)
                or f" (the tree has {top[:200]})")
        raise UsageError(f"--only: {name!r} was not found{near}")
    return found


def tree_of(leaves: Leaves, writes: Format, separator: str) -> Tree:
    """The tree to pass to the writer; raises an error if the format cannot hold it."""
    if not leaves:
        raise Failure("needed at least one array, got none")
    if not writes.nested:
        leaves = [(path, np.asarray(x) if type(x) in NUMBERS else x) for path, x in leaves]
        _check_flat(leaves, writes, separator)
    _check_dtypes(leaves, writes)
    return nested(leaves, separator) if writes.nested else {
        separator.join(path): np.asarray(x) for path, x in leaves}


def _check_flat(leaves: Leaves, writes: Format, separator: str) -> None:
    """Raise an error for values that a flat file of arrays cannot hold."""
    holding = [path for path, _ in leaves if any(separator in name for name in path)]
    if holding:
        raise Failure(f"the separator {separator!r} occurs in the name of {_listed(holding)}, "
                      "which would look like nested names (choose another with --separator)")
    other = [(path, x) for path, x in leaves if not isinstance(x, (np.ndarray, np.generic))]
    if other:
        what = ", ".join(f"{'/'.join(path)} ({_described(x)})" for path, x in other[:SHOWN])
        params = next((separator.join(path[: path.index("params") + 1]) for path, _ in leaves
                       if "params" in path), "NAME")
        raise Failure(f"the format {writes.name} holds only arrays, got {what}{_more(other)} "
                      f"(convert a part with --only {params}, or write .msgpack)")


def _described(x: Any) -> str:
    return "an empty dict" if isinstance(x, Mapping) else type(x).__name__


def _check_dtypes(leaves: Leaves, writes: Format) -> None:
    wrong = [(path, x.dtype) for path, x in leaves
             if isinstance(x, (np.ndarray, np.generic)) and not writes.holds(x.dtype)]
    if wrong:
        what = ", ".join(f"{dtype} at {'/'.join(path)}" for path, dtype in wrong[:SHOWN])
        raise Failure(f"the format {writes.name} cannot hold {what}{_more(wrong)}")


def nested(leaves: Leaves, separator: str) -> Tree:
    """Nested dicts; raises an error if a name is an array and also has entries below it."""
    tree: Tree = {}
    for path, x in leaves:
        at = tree
        for name in path[:-1]:
            at = at.setdefault(name, {})
            if not isinstance(at, dict):
                raise _collision(path, name, separator)
        if path[-1] in at:
            raise _collision(path, path[-1], separator)
        at[path[-1]] = x
    return tree


def _collision(path: tuple[str, ...], name: str, separator: str) -> Failure:
    return Failure(f"{separator.join(path)!r} collides with {name!r}, which would be both an array "
                   "and a dict of arrays (choose another --separator)")


def _listed(paths: list[tuple[str, ...]]) -> str:
    return ", ".join(repr("/".join(path)) for path in paths[:SHOWN]) + _more(paths)


def _more(found: list[Any]) -> str:
    return f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
