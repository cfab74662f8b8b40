"""`toile new`, which creates a project from an example, and `toile examples`.

A project does not need the repository. It is a folder that contains the example as a package, the
data files that the example reads, a README, requirements and settings for pytest. The files are
created in memory and written to a temporary folder, which is then renamed, so an error leaves
nothing behind.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from toile.command import example_catalog
from toile.command.example_catalog import Example
from toile.command.failures import Failure, UsageError
from toile.version import __version__

TEXTS = (".py", ".md", ".gin")  # files in which paths are adapted
PYTEST = """[pytest]
pythonpath = .
python_files = *_test.py
addopts = --import-mode=importlib -m "not slow"
markers =
    slow: takes long; `python -m pytest -m slow` runs these
"""
LEFT_OUT = {"__pycache__", "runs"}  # folders that runs and tests create
_PRETRAINED = re.compile(r"^from toile\.interop import huggingface$", re.MULTILINE)
_SHIPPED = re.compile(r'shipped\(\s*"([^"]+)"')
# A part of a README that is only for readers in the repository.
_REPOSITORY_ONLY = re.compile(
    r"[ \n]*<!-- only in the repository -->.*?<!-- end -->\n?", re.DOTALL)
_BLOCK = re.compile(r"^```\n(.*?)^```\n", re.DOTALL | re.MULTILINE)


# ---- the subcommands
def list_examples(args: argparse.Namespace) -> None:
    """Print a line for each example."""
    rows = [(e.name, e.task, "; ".join(f"{n}: {v}" for n, v in e.result[1][:1])) for e in _known()]
    widths = [max(len(row[i]) for row in rows) for i in (0, 1)]
    for name, task, result in rows:
        print(f"{name:<{widths[0]}}  {task:<{widths[1]}}  {result}".rstrip())


def new(args: argparse.Namespace) -> None:
    """Create a project from an example, and print the commands to run next."""
    (example,) = (e for e in _known() if e.name == args.example)
    folder = Path(args.folder)
    made = files(example)
    write(folder, made)
    print(f"created {folder}: {len(made)} files from the example {example.name} "
          f"({example.title})\n\nnext:\n  cd {shlex.quote(str(folder))}")
    for line in commented(commands(example)):
        print(f"  {line}")


def _known() -> tuple[Example, ...]:
    found = example_catalog.available()
    if not found:
        raise Failure("this installation has no examples (install a wheel of toile, or a checkout "
                      "of its repository)")
    return found


# ---- the files of a project
def files(example: Example) -> dict[str, bytes]:
    """The content of each file, by its path in the project."""
    made = {
        "README.md": readme(example).encode(),
        "pytest.ini": PYTEST.encode(),
        ".gitignore": b"__pycache__/\n.pytest_cache/\nruns/\n",
    }
    texts = []
    for path in _files_below(example.folder):
        name = path.relative_to(example.folder).as_posix()
        if name == "README.md":
            continue
        content = path.read_bytes()
        if path.suffix in TEXTS:
            text = adapted(content.decode(), example)
            texts.append(text)
            content = text.encode()
        # The pictures belong to the README and are placed beside it.
        made[name if path.suffix == ".png" else f"{example.name}/{name}"] = content
    for text in texts:
        for name in _SHIPPED.findall(text):
            made |= _data(example, name)
    pretrained = any(_PRETRAINED.search(text) for text in texts)
    extras = "examples,huggingface" if pretrained else "examples"
    made["requirements.txt"] = f"toile[{extras}]>={__version__}\npytest>=8\n".encode()
    mentioned = made["README.md"].decode()
    return {name: content for name, content in made.items()
            if not name.endswith(".png") or f"({name})" in mentioned}


def _files_below(folder: Path) -> list[Path]:
    found = (p for p in folder.rglob("*") if p.is_file())
    return sorted(p for p in found if not LEFT_OUT & set(p.relative_to(folder).parts[:-1]))


def _data(example: Example, name: str) -> dict[str, bytes]:
    """A data file that the example reads with `datasets.shipped`, with its README and license."""
    folders = [example.folder.parent / "data", *sorted(example.folder.parent.glob("*/data"))]
    place = next((f for f in folders if (f / name).is_file()), None)
    if place is None:
        raise Failure(f"the data file {name} of the example {example.name} is missing")
    inside = (place / name).parent
    return {f"{example.name}/data/{p.relative_to(place).as_posix()}": p.read_bytes()
            for p in sorted(inside.iterdir()) if p.is_file() and p.suffix not in (".py", ".pyc")}


def adapted(text: str, example: Example) -> str:
    """A text of the example, with the paths that files have in the project."""
    name = example.name
    text = re.sub(rf"\bexamples([./]){name}\b", name, text)
    return text.replace("examples/data/", f"{name}/data/")


def readme(example: Example) -> str:
    """The README of a project: that of the example, with the commands of the project."""
    text = adapted(_REPOSITORY_ONLY.sub("\n", example.text), example)
    lines = commented([("python -m pip install -r requirements.txt", ""),
                       *commands(example)[1:], *_own_commands(example)[1:]])
    block = "```\n" + "\n".join(lines) + "\n```\n"
    return _BLOCK.sub(lambda _: block, text, count=1).rstrip() + "\n"


def commands(example: Example) -> list[tuple[str, str]]:
    """The commands for a new project, each with a comment: install, train, test, inspect."""
    train = _own_commands(example)[0][0]
    found = [("python -m pip install -r requirements.txt", "install requirements"),
             (train, "train" if "--workdir" in train else "run"),
             ("python -m pytest", "run its tests")]
    workdir = re.search(r"--workdir=(\S+)", train)
    look = [(f"tensorboard --logdir={workdir[1]}", "look at the results")] if workdir else []
    return found + look


def _own_commands(example: Example) -> list[tuple[str, str]]:
    """The commands of the README with their comments, without those for the repository."""
    block = _BLOCK.search(example.text)
    found = []
    for line in block[1].splitlines() if block else []:
        command, _, comment = adapted(line, example).partition("#")
        if command.strip() and not re.match(r"make |.*\bbeside_flax\b", command):
            found.append((command.strip(), comment.strip()))
    return found


def commented(lines: list[tuple[str, str]]) -> list[str]:
    """Commands with their comments in a column."""
    width = max(len(command) for command, comment in lines if comment)
    return [f"{command:<{width}}   # {comment}" if comment else command
            for command, comment in lines]


# ---- writing
def write(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Write files into a folder that is empty or does not exist: all of them or none."""
    there = os.path.lexists(folder)
    if there and not folder.is_dir():
        raise UsageError(f"needed a new or empty folder, got the file {folder}")
    if there and any(folder.iterdir()):
        raise UsageError(f"needed a new or empty folder, got {folder}, which contains files")
    with _parents(folder.absolute().parent) as parent:
        aside = (folder if there else parent) / f".toile-new-{os.urandom(8).hex()}"
        moved: list[Path] = []
        try:
            aside.mkdir()
            for name, content in contents.items():
                path = aside / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            if not there:
                aside.rename(folder)
                return
            for path in sorted(aside.iterdir()):
                moved.append(folder / path.name)
                path.rename(moved[-1])
            aside.rmdir()
        except BaseException:
            for path in [aside, *moved]:
                shutil.rmtree(path, ignore_errors=True)
                with contextlib.suppress(OSError):
                    path.unlink()
            raise


@contextlib.contextmanager
def _parents(folder: Path) -> Iterator[Path]:
    """Make a folder and those above it; after an error, the new ones are removed again."""
    missing = [p for p in (folder, *folder.parents) if not p.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield folder
    except BaseException:
        for path in missing:
            with contextlib.suppress(OSError):
                path.rmdir()
        raise
