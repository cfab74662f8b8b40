"""The tests of packages that were written for JAX, on toile and on jax.

`python -m tools.package_tests FOLDER NAME ...` runs the tests of the packages named in `SUITES` in
the environment that `python -m tools.ecosystem FOLDER` makes, and prints the row of each package in
the table of docs/ecosystem.md, "The packages' own tests". The tests come from the installed
package, or from a clone of its repository in FOLDER/sources. All tests run on toile; those that
fail there run on jax, too (with `--whole`, all of them).

Results are kept in FOLDER/results, and a later call runs only files that have none. `--again`
repeats the runs on toile, `--files TEXT ...` chooses files by parts of their paths, and
`--failures` lists the tests that pass on jax and fail on toile.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tools.ecosystem import PACKAGES

PER_FILE_S = 900
PER_TEST_S = 120
OUTCOME = re.compile(r"^(\S.*?::.*?) (PASSED|FAILED|SKIPPED|ERROR|XFAIL|XPASS)\b")
CAUSE = re.compile(r"^(?:FAILED|ERROR) (.*?) - (.*)$")
FAILS = ("FAILED", "ERROR")
WIDE = {"COLUMNS": "400", "CI": "1"}  # pytest does not shorten lines

Files = dict[str, dict[str, Any]]  # the results of a package on one library, by file


class Suite(NamedTuple):
    """Where the tests of a package are."""

    folder: str  # in the repository, or in site-packages
    repository: str = ""  # empty: the installed package contains its tests
    revision: str = ""
    beside: str = ""  # the package in the clone, removed because another version is installed
    needs: Sequence[str] = ()  # packages that the tests import
    variables: dict[str, str] = {}  # environment variables
    on_jax: bool = True  # whether the package can be imported with jax


SUITES = {
    "blackjax": Suite("tests", "blackjax-devs/blackjax", "main", "blackjax"),
    "chex": Suite("chex"),
    "diffrax": Suite("test", "patrick-kidger/diffrax", "v0.7.2"),
    "distrax": Suite("distrax", on_jax=False),
    "e3nn_jax": Suite("tests", "e3nn/e3nn-jax", "0.21.0"),
    "einops": Suite("einops/tests", "arogozhnikov/einops", "v0.8.2",
                    variables={"EINOPS_TEST_BACKENDS": "numpy,jax"}),
    "equinox": Suite("tests", "patrick-kidger/equinox", "v0.13.8"),
    "evosax": Suite("tests", "RobertTLange/evosax", "main", "evosax", needs=["pandas"]),
    "flashbax": Suite("flashbax"),
    "gymnax": Suite("tests", "RobertTLange/gymnax", "main", "gymnax"),
    "haiku": Suite("haiku"),
    "jaxopt": Suite("tests", "google/jaxopt", "jaxopt-v0.8.5"),
    "jaxtyping": Suite("test", "patrick-kidger/jaxtyping", "v0.3.11",
                       needs=["typeguard<3", "ipython", "cloudpickle"]),
    "lineax": Suite("tests", "patrick-kidger/lineax", "v0.1.1"),
    "mctx": Suite("mctx"),
    "numpyro": Suite("test", "pyro-ppl/numpyro", "master", "numpyro", needs=["funsor"]),
    "optax": Suite("optax"),
    "optimistix": Suite("tests", "patrick-kidger/optimistix", "v0.1.0",
                        needs=["pytest-benchmark"]),
    "ott": Suite("tests", "ott-jax/ott", "0.6.0", needs=["scikit-learn", "networkx", "matplotlib"]),
    "penzai": Suite("tests", "google-deepmind/penzai", "v0.2.5", needs=["omegaconf", "pydantic"]),
    "rlax": Suite("rlax", on_jax=False),
    "treescope": Suite("tests", "google-deepmind/treescope", "v0.1.10",
                       needs=["omegaconf", "pydantic", "torch"]),
}


def prepare(folder: Path, python: Path, name: str) -> Path:
    """Install what the tests need; returns the folder in which pytest runs."""
    suite = SUITES[name]
    subprocess.run([python, "-m", "pip", "install", "--quiet", "beartype", "pytest-timeout",
                    *suite.needs], check=True)
    if not suite.repository:
        return next((python.parents[1] / "lib").glob("python3*")) / "site-packages"
    clone = folder / "sources" / name
    if not clone.exists():
        url = f"https://github.com/{suite.repository}"
        subprocess.run(["git", "clone", "--quiet", "--depth=1", f"--branch={suite.revision}",
                        url, clone], check=True)
    if suite.beside and (clone / suite.beside).exists():
        shutil.rmtree(clone / suite.beside)
    return clone


def test_files(root: Path, suite: Suite) -> list[str]:
    """The files of tests of a package."""
    folder = root / suite.folder
    found = {*folder.rglob("test_*.py"), *folder.rglob("*_test.py")}
    return [str(path.relative_to(root)) for path in sorted(found)]


def run_tests(
    python: Path, root: Path, suite: Suite, tests: Sequence[str], on_toile: bool
) -> dict[str, Any]:
    """Run a file or some of its tests: their outcomes, and the last lines of their errors."""
    start = ["toile", "run", "-m"] if on_toile else []
    command = [str(python), "-m", *start, "pytest", "-v", "--color=no", "-p", "no:cacheprovider",
               "--tb=short", f"--timeout={PER_TEST_S}", "-rfE", *tests]
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, env={**os.environ, **WIDE, **suite.variables}) as process:
        try:
            text, _ = process.communicate(timeout=PER_FILE_S)
            finished = True
        except subprocess.TimeoutExpired:
            process.kill()
            text, _ = process.communicate()
            finished = False
    lines = text.splitlines()
    outcomes = {m[1]: m[2] for line in lines if (m := OUTCOME.match(line))}
    causes = {m[1]: m[2] for line in lines if (m := CAUSE.match(line))}
    return {"finished": finished, "outcomes": outcomes, "causes": causes, "text": text}


def failing(found: dict[str, Any]) -> list[str]:
    """The tests of a file that fail."""
    return [test for test, outcome in found["outcomes"].items() if outcome in FAILS]


class Results:
    """The results of a package on one library, kept in a file."""

    def __init__(self, folder: Path, name: str, library: str):
        self.path = folder / "results" / f"{name}-{library}.json"
        self.path.parent.mkdir(exist_ok=True)
        self.files: Files = json.loads(self.path.read_text()) if self.path.exists() else {}

    def keep(self, file: str, found: dict[str, Any]) -> None:
        self.files[file] = found
        self.path.write_text(json.dumps(self.files, indent=1))
        passed = sum(x == "PASSED" for x in found["outcomes"].values())
        print(f"{self.path.stem} {file}: {passed} of {len(found['outcomes'])}", flush=True)


def run_suite(folder: Path, name: str, args: argparse.Namespace) -> tuple[Files, Files]:
    """Run what has no results yet: the results on toile and on jax."""
    python = folder.resolve() / "bin" / "python"
    suite, root = SUITES[name], prepare(folder.resolve(), python, name)
    ours, theirs = (Results(folder, name, library) for library in ("toile", "jax"))
    for file in test_files(root, suite):
        if args.files and not any(part in file for part in args.files):
            continue
        if args.again or file not in ours.files:
            ours.keep(file, run_tests(python, root, suite, [file], on_toile=True))
        if "jax" not in args.on or not suite.on_jax:
            continue
        known = theirs.files.get(file, {"outcomes": {}})["outcomes"]
        tests = [file] if args.whole else failing(ours.files[file])
        if not set(tests) <= {file, *known} or args.whole and not known:
            theirs.keep(file, run_tests(python, root, suite, tests, on_toile=False))
    return ours.files, theirs.files


def differences(ours: Files, theirs: Files, on_jax: bool) -> Iterator[tuple[str, str]]:
    """The tests that fail on toile and pass on jax, and their errors on toile."""
    for file, found in ours.items():
        outcomes = theirs.get(file, {"outcomes": {}})["outcomes"]
        for test in failing(found):
            if not on_jax or outcomes.get(test) == "PASSED":
                yield test, found["causes"].get(test, "")


def row(name: str, ours: Files, theirs: Files) -> str:
    """The row of a package in the table."""
    passed = sum(x == "PASSED" for f in ours.values() for x in f["outcomes"].values())
    failed = len(list(differences(ours, theirs, SUITES[name].on_jax)))
    share = 100 * passed / max(1, passed + failed)
    files = sum(bool(f["outcomes"]) for f in ours.values())
    package = PACKAGES[name].replace("==", " ")
    return f"| {package} | {files} | {passed + failed:,} | {passed:,} | {share:.1f}% |"


def main(arguments: Sequence[str]) -> None:
    """Run the command; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", default=list(SUITES))
    parser.add_argument("--files", nargs="*", default=[])
    parser.add_argument("--on", choices=("jax", "toile"), nargs="*", default=["jax", "toile"])
    for option in ("--again", "--whole", "--failures"):
        parser.add_argument(option, action="store_true")
    args = parser.parse_args(arguments)
    for name in args.names:
        ours, theirs = run_suite(args.folder, name, args)
        if args.failures:
            for test, cause in differences(ours, theirs, SUITES[name].on_jax):
                print(f"{test}: {cause}")
        print(row(name, ours, theirs))


if __name__ == "__main__":
    main(sys.argv[1:])
