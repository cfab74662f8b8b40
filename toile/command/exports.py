"""`toile export`: a function of a Python file as a program that runs without toile."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from toile.command.conversions import leaves_of
from toile.command.explanations import arguments, function_of, imported
from toile.command.failures import Failure, UsageError
from toile.command.weight_files import format_of
from toile.engine.suggestions import did_you_mean
from toile.export import to_c, to_numpy, to_onnx
from toile.traverse_util import unflatten_dict

WRITERS: dict[str, Callable[..., Any]] = {
    ".py": to_numpy, ".onnx": to_onnx, ".so": to_c, ".dylib": to_c, ".o": to_c,
}
# The suffixes of the files that are written beside the target.
BESIDE = {".py": (".npz",), ".so": (".h",), ".dylib": (".h",), ".o": (".c", ".h")}


def export(args: argparse.Namespace) -> None:
    """Write the file, and print its size."""
    source, colon, name = args.function.rpartition(":")
    if not colon or not source or not name:
        raise UsageError(f"needed FILE:FUNCTION, as in model.py:predict, got {args.function!r}")
    if not Path(source).is_file():
        raise Failure(f"needed a Python file, got {source!r}, which does not exist")
    target = Path(args.target)
    write = WRITERS.get(target.suffix)
    if write is None:
        near = did_you_mean(target.suffix, WRITERS)
        raise UsageError(f"needed a file that ends with {' or '.join(WRITERS)}, got "
                         f"{args.target!r}{near}")
    written = [target, *map(target.with_suffix, BESIDE.get(target.suffix, ()))]
    options = {}
    if args.processor:
        if write is not to_c:
            raise UsageError(f"--processor: needed a target that ends with .so, .dylib or .o, got "
                             f"{args.target!r}")
        options["processor"] = args.processor
    _check_targets(written, args.force)
    params = _weights(Path(args.params)) if args.params else None
    module = imported(Path(source))
    function = function_of(module, name, source)
    positional, named = arguments(module, function, args.arguments, name)
    if named:
        raise UsageError(f"--args: needed positional arguments, got {', '.join(named)}= (options "
                         "belong in the function)")
    write(function, *positional, path=target, params=params, free_batch=args.free_batch,
          **options)
    for path in written:
        print(f"wrote {path}: {path.stat().st_size:,} bytes")


def _check_targets(paths: list[Path], force: bool) -> None:
    for path in paths:
        if path.exists() and not force:
            raise Failure(f"{path} exists (--force replaces it)")


def _weights(path: Path) -> dict[str, Any]:
    """The tree of a file of weights."""
    if not path.exists():
        raise Failure(f"{path} does not exist")
    reads = format_of(path, None, "the suffix", path.is_dir())
    tree = reads.read(path, None)
    return tree if reads.nested else unflatten_dict(dict(leaves_of(tree, reads, "/")))
