"""Asserts of test files are rewritten by one worker each, where there are several.

pytest rewrites a file when it imports it, and keeps the bytecode. All workers import all files, in
the same order and at the same time: where nothing is kept yet, each of them would rewrite all.
"""

import contextlib
import pathlib
import sys

import pytest
from _pytest.assertion import rewrite


def pytest_sessionstart(session: pytest.Session) -> None:
    """Rewrite this worker's share of the files, for the others too."""
    config = session.config
    given = getattr(config, "workerinput", None)
    if given is None or sys.dont_write_bytecode or config.getoption("assertmode") != "rewrite":
        return
    if any(pathlib.Path(arg).is_file() or "::" in arg for arg in config.args):
        return  # a few files only
    names = config.getini("python_files")
    files = sorted({path for arg in config.args for name in names
                    for path in (config.rootpath / arg).rglob(name)})
    worker = int(given["workerid"].removeprefix("gw"))
    state = config.stash[rewrite.assertstate_key]
    for path in files[worker::given["workercount"]]:
        folder = rewrite.get_cache_dir(path)
        kept = folder / (path.stem + rewrite.PYC_TAIL)
        if not kept.exists() and rewrite.try_makedirs(folder):
            with contextlib.suppress(SyntaxError):  # collecting tells of it
                source, code = rewrite._rewrite_test(path, config)
                rewrite._write_pyc(state, code, source, kept)
