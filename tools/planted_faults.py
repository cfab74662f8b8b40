"""Test the tests: plant small faults in the sources, one at a time, and check that a test fails.

`python -m tools.planted_faults` copies the checkout to a temporary folder. For each entry in
planted_faults.toml, it edits the copy, runs the tests of the edited part until one fails, and
undoes the edit. A fault is *caught* if a test fails that passes without the fault. Otherwise, it is
*missed*, so the tests have a gap. Each run starts with an empty cache of compiled code.

    --only NAME ...       these faults alone (parts of names are enough)
    --jobs N              so many copies at the same time
    --tests "FILE ..."    these tests instead of those that the faults name
    --against CHECKOUT    the tests and sources of another checkout, as far as the text is there
    --seconds N           give up the tests of a fault after so long
    --through COMMAND     start pytest with this command in front, such as "nice -n 10"
    --list                say where each fault would be planted, and run nothing

After every edit, it must still be possible to import the library.
"""

from __future__ import annotations

import argparse
import os
import queue
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
TABLE = Path(__file__).with_suffix(".toml")
LEFT_OUT = (".*", "__pycache__", "*.egg-info", "site", "build", "dist", "runs")
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+?(?:\[.*?\])?)(?: - .*)?$", re.M)
MODULES = "toile, toile.linen, toile.optim, toile.training, toile.random, toile.numpy, toile.lax"
PASSED, NONE_RAN = 0, 5  # exit statuses of pytest
CAUGHT, MISSED = "caught", "missed"


@dataclass(frozen=True)
class Fault:
    """An edit: `old`, which occurs once in a file, becomes `new`."""

    name: str
    file: str
    breaks: str
    old: str
    new: str
    tests: tuple[str, ...]
    subtle: bool


@dataclass(frozen=True)
class Outcome:
    """The outcome for a fault: a short result, and details."""

    result: str
    more: str = ""


class Misplaced(Exception):
    """Raised if a fault cannot be planted in a checkout; the message gives the reason."""


def faults(table: Path = TABLE) -> list[Fault]:
    """Read the faults in a table."""
    found = tomllib.loads(table.read_text())["fault"]
    return [Fault(**{**each, "tests": tuple(each["tests"])}) for each in found]


def place(fault: Fault, root: Path) -> Path:
    """The file that contains the fault's text once: the named file or, if that fails, a file in
    toile/."""
    named = root / fault.file
    if named.exists() and named.read_text().count(fault.old) == 1:
        return named
    found = [(p, n) for p in sorted((root / "toile").rglob("*.py"))
             if (n := p.read_text().count(fault.old))]
    if len(found) != 1 or found[0][1] != 1:
        where = ", ".join(f"{p.relative_to(root)} ({n}x)" for p, n in found) or "nowhere"
        raise Misplaced(f"its text should be in one place, but is {where}")
    return found[0][0]


def edited(fault: Fault, path: Path) -> str:
    """The text of a file with the fault; raises SyntaxError if the text is not valid Python."""
    text = path.read_text().replace(fault.old, fault.new)
    compile(text, str(path), "exec", dont_inherit=True)
    return text


class Copy:
    """A copy of a checkout in which faults are planted."""

    def __init__(self, source: Path, folder: Path, through: list[str], precompiled: bool):
        self.root, self.folder, self.through = folder / "tree", folder, through
        self.passes: dict[str, bool] = {}  # results of tests without a fault
        ignored = shutil.ignore_patterns(*LEFT_OUT)
        shutil.copytree(source, self.root, ignore=ignored, symlinks=True)
        if precompiled:
            bytecode = [sys.executable, "-m", "compileall", "-q", "toile", "tests"]
            subprocess.run([*through, *bytecode], cwd=self.root, check=True)

    def run(self, command: list[str], seconds: float) -> tuple[int | None, str]:
        """Run a command with an empty code cache; return its status (None if it takes too long) and
        output.

        Bytecode files are read but not written, because Python does not recognize them as outdated
        if two edits in the same second leave the length unchanged."""
        with tempfile.TemporaryDirectory(dir=self.folder) as cache:
            given = {"PYTHONPATH": str(self.root), "TOILE_CACHE_DIR": cache, "CI": "true",
                     "PYTHONDONTWRITEBYTECODE": "1"}
            process = subprocess.Popen(
                [*self.through, *command], cwd=self.root, env={**os.environ, **given}, text=True,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
            try:
                output, _ = process.communicate(timeout=seconds)
                return process.returncode, output
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
                return None, ""

    def pytest(self, tests: tuple[str, ...], seconds: float) -> tuple[int | None, str]:
        """Run tests until one fails; "FILE -k NAME" selects the tests in a file by name."""
        there = [t for t in tests if (self.root / re.split("::| ", t)[0]).exists()]
        some = [shlex.split(t) for t in there if " -k " in t]
        whole = [t for t in there if " -k " not in t]
        code, output = NONE_RAN, ""
        for chosen in [*([whole] if whole else []), *some]:
            code, output = self.run([sys.executable, "-m", "pytest", "-q", "-x", "--tb=line", "-p",
                                     "no:cacheprovider", *chosen], seconds)
            if code != PASSED:
                break
        return code, output

    def passes_without(self, test: str, seconds: float) -> bool:
        """Whether a test passes in the copy without a fault."""
        if test not in self.passes:
            self.passes[test] = self.pytest((test,), seconds)[0] == PASSED
        return self.passes[test]

    def try_fault(self, fault: Fault, tests: tuple[str, ...], seconds: float) -> Outcome:
        """Plant a fault, run tests, and undo it."""
        try:
            path = place(fault, self.root)
            text = edited(fault, path)
        except (Misplaced, SyntaxError) as error:
            return Outcome("misplaced", str(error))
        before, times = path.read_text(), path.stat()
        try:
            path.write_text(text)
            code, output = self.pytest(tests, seconds)
            failed = FAILED.search(output)
            broken = code and (failed is None or failed[0].startswith("ERROR"))
            if broken and self.run([sys.executable, "-c", f"import {MODULES}"], seconds)[0]:
                return Outcome("breaks imports")
        finally:
            path.write_text(before)
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        if code is None:
            return Outcome("too long", f"its tests took more than {seconds:.0f} s")
        if code == PASSED:
            return Outcome(MISSED)
        if code == NONE_RAN or failed is None:
            return Outcome("no tests ran", output.strip().rpartition("\n")[2])
        if not self.passes_without(failed[1], seconds):
            return Outcome("fails anyway", failed[1])
        return Outcome(CAUGHT, failed[1])


def try_all(chosen: list[Fault], source: Path, jobs: int, tests: tuple[str, ...] | None,
            seconds: float, through: list[str]) -> dict[str, Outcome]:
    """Try faults in copies of a checkout, and print the outcome of each."""
    found: dict[str, Outcome] = {}
    printing = threading.Lock()
    with tempfile.TemporaryDirectory(prefix="planted-faults-") as folder:
        copies: queue.Queue[Copy] = queue.Queue()
        for i in range(jobs):
            copies.put(Copy(source, Path(folder) / str(i), through, len(chosen) > 3 * jobs))

        def one(fault: Fault) -> None:
            copy = copies.get()
            try:
                outcome = copy.try_fault(fault, tests or fault.tests, seconds)
            finally:
                copies.put(copy)
            with printing:
                found[fault.name] = outcome
                more = f"  {outcome.more}" if outcome.more else ""
                print(f"{outcome.result:15} {fault.name}{more}", flush=True)

        with ThreadPoolExecutor(jobs) as pool:
            list(pool.map(one, chosen))
    return found


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="tools.planted_faults", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="NAME")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--tests", type=lambda text: tuple(text.split()))
    parser.add_argument("--against", type=Path, default=ROOT, metavar="CHECKOUT")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--through", type=shlex.split, default=[], metavar="COMMAND")
    parser.add_argument("--list", action="store_true")
    given = parser.parse_args(arguments)
    chosen = [f for f in faults() if not given.only or any(n in f.name for n in given.only)]
    if given.list:
        return _show(chosen, given.against)
    found = try_all(chosen, given.against.resolve(), given.jobs, given.tests, given.seconds,
                    given.through)
    caught = [n for n, outcome in found.items() if outcome.result == CAUGHT]
    print(f"{len(caught)} of {len(found)} faults were caught")
    for fault in chosen:
        if fault.name not in caught:
            print(f"  {found[fault.name].result}: {fault.name} ({fault.file}): {fault.breaks}")
    return int(len(caught) < len(found))


def _show(chosen: list[Fault], root: Path) -> int:
    """Print where faults would be planted."""
    wrong = 0
    for fault in chosen:
        try:
            path = place(fault, root)
            edited(fault, path)
            where = str(path.relative_to(root))
        except (Misplaced, SyntaxError) as error:
            where, wrong = f"misplaced: {error}", wrong + 1
        print(f"{fault.name:45} {where}")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
