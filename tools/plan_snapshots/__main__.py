"""The command `python -m tools.plan_snapshots`; see the docstring of the package."""

from __future__ import annotations

import argparse
import difflib
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[2]
LEAST = 300  # minimum number of programs in a comparison
SHOWN = 40  # maximum number of lines shown for a difference


def write_part(folder: Path, part: str) -> int:
    """Write the plans of one part, and return its number of programs."""
    from tools.plan_snapshots import programs, text

    found = list(programs.PARTS[part]())
    text.without_compiling()
    texts = text.Texts()
    for name, program in found:
        for device, describe in (("cpu", text.cpu_text), ("gpu", text.gpu_text)):
            (folder / device / f"{name}.txt").write_text(describe(program, texts))
    for name, kernel in texts.found.items():
        (folder / "kernels" / name).write_text(kernel)
    return len(found)


def parts_of(checkout: Path) -> list[str]:
    """The names of the parts that a checkout can write."""
    code = "from tools.plan_snapshots.programs import PARTS; print(*PARTS, sep='\\n')"
    return _run(checkout, ["-c", code]).split()


def write(folder: Path, checkout: Path, jobs: int) -> int:
    """Write a checkout's plans of all programs, and return the number of programs."""
    for name in ("cpu", "gpu", "kernels"):
        (folder / name).mkdir(parents=True, exist_ok=True)
        if any((folder / name).iterdir()):
            raise SystemExit(f"needed an empty folder, got {folder}: it has files in {name}/")

    def part(name: str) -> int:
        command = ["-m", "tools.plan_snapshots", "part", str(folder.resolve()), name]
        return int(_run(checkout, command).split()[-1])

    with ThreadPoolExecutor(jobs) as pool:
        return sum(pool.map(part, parts_of(checkout)))


def _run(checkout: Path, arguments: list[str]) -> str:
    """Run Python in a checkout without cached plans, and return the output."""
    env = {**os.environ, "PYTHONPATH": str(checkout), "TOILE_PLATFORM": "cpu", "TOILE_PLANS": "off",
           "TOILE_OPTIMIZE": "0", "PYTHONHASHSEED": "0", "TOILE_NUM_THREADS": "4"}
    env.pop("TOILE_DEBUG", None)
    done = subprocess.run([sys.executable, *arguments], cwd=checkout, env=env, text=True,
                          capture_output=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(arguments)} in {checkout} failed:\n{done.stderr}")
    return done.stdout


def compare(old: Path, new: Path) -> int:
    """Print the differences between two folders, and return the number of files that differ."""
    names = [{str(p.relative_to(f)) for p in f.rglob("*.*")} for f in (old, new)]
    differ = sorted(n for n in names[0] & names[1]
                    if (old / n).read_bytes() != (new / n).read_bytes())
    for name in differ:
        lines = [(f / name).read_text().splitlines() for f in (old, new)]
        shown = list(difflib.unified_diff(*lines, f"old/{name}", f"new/{name}", lineterm="", n=1))
        print("\n".join(line[:300] for line in shown[:SHOWN]))
    for label, only in (("only old", names[0] - names[1]), ("only new", names[1] - names[0])):
        for name in sorted(only):
            print(f"{label}: {name}")
    count = len(differ) + len(names[0] ^ names[1])
    plans = len([n for n in names[0] & names[1] if n.endswith(".txt")])
    kernels = len([n for n in names[0] & names[1] if not n.endswith(".txt")])
    print(f"{plans} plans and {kernels} kernels compared, {count} files differ")
    if plans < 2 * LEAST:
        raise SystemExit(f"needed plans of at least {LEAST} programs for both devices")
    return count


def main() -> None:
    parser = argparse.ArgumentParser(prog="tools.plan_snapshots", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, help, arguments in (
        ("write", "write the plans of this checkout", ["folder"]),
        ("part", "write the plans of one part", ["folder", "name"]),
        ("compare", "show what differs between two folders", ["old", "new"]),
        ("against", "compare the plans of this checkout with those of another", ["checkout"]),
    ):
        command = commands.add_parser(name, help=help)
        for argument in arguments:
            command.add_argument(argument, type=str if argument == "name" else Path)
        command.add_argument("--jobs", type=int, default=os.cpu_count())
    given = parser.parse_args()
    match given.command:
        case "write":
            print(write(given.folder, ROOT, given.jobs), "programs")
        case "part":
            print(write_part(given.folder, given.name))
        case "compare":
            sys.exit(bool(compare(given.old, given.new)))
        case "against":
            with tempfile.TemporaryDirectory() as folder:
                old, new = Path(folder, "old"), Path(folder, "new")
                write(old, given.checkout.resolve(), given.jobs)
                write(new, ROOT, given.jobs)
                sys.exit(bool(compare(old, new)))


if __name__ == "__main__":
    main()
