"""`toile new` and `toile examples`: complete projects that know nothing of the repository."""

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command.running import refused, run
from toile.command import example_catalog, example_projects

ROOT = Path(__file__).parents[2]
NAMES = sorted(p.parent.name for p in (ROOT / "examples").glob("*/README.md"))


@pytest.fixture(scope="module")
def projects(tmp_path_factory):
    """Every example as a project, by its name."""
    folder = tmp_path_factory.mktemp("projects")
    for e in example_catalog.available():
        example_projects.write(folder / e.name, example_projects.files(e))
    return folder


def test_every_example_is_listed_with_its_result(capsys):
    lines = run(capsys, "examples").out.splitlines()
    assert sorted(line.split()[0] for line in lines) == NAMES
    assert lines[0].startswith("mnist ") and "97.6% of 1,000 digits" in lines[0]
    for line in lines:  # name, what it trains, what it reaches
        _, task, result = re.split(r"  +", line)
        verbs = "Train|Teach|Pretrain|Complete|Fine-tune|Classify|Transcribe"
        assert re.match(rf"({verbs}) ", task), line
        assert re.search(r"\d", result), line


@pytest.mark.parametrize("name", NAMES)
def test_a_project_has_the_parts_of_one(projects, name):
    folder = projects / name
    readme = (folder / "README.md").read_text()
    example = ROOT / "examples" / name
    assert readme.splitlines()[0] == (example / "README.md").read_text().splitlines()[0]
    for command in ("pip install -r requirements.txt", "python -m pytest", f"python -m {name}."):
        assert command in readme
    pretrained = name in ("finetuning", "language_model", "speech", "vision")
    extras = "examples,huggingface" if pretrained else "examples"
    assert f"toile[{extras}]" in (folder / "requirements.txt").read_text()
    code = {p.relative_to(example) for p in example.rglob("*.py")}
    assert {p.relative_to(folder / name) for p in folder.rglob("*.py")} == code
    assert list((folder / name).glob("*_test.py"))
    shown = re.findall(r"\(([\w]+\.png)\)", readme)
    assert {p.name for p in folder.glob("*.png")} == set(shown)


@pytest.mark.parametrize("name", NAMES)
def test_a_project_does_not_mention_the_repository(projects, name):
    found = []
    for path in (projects / name).rglob("*"):
        if path.suffix in (".py", ".md", ".gin") and path.parent.name != "python_topics":
            for line in path.read_text().splitlines():
                if re.search(r"examples[./]\w|\bmake (mnist|example)|beside_flax|<!--", line):
                    found.append(f"{path}: {line}")
    assert found == []


@pytest.mark.parametrize("name", NAMES)
def test_code_of_a_project_is_that_of_the_example(projects, name):
    """Only mentions of paths differ: the syntax trees are equal but for texts and module names."""
    for path in (projects / name / name).rglob("*.py"):
        original = ROOT / "examples" / name / path.relative_to(projects / name / name)
        ours, theirs = (ast.dump(ast.parse(p.read_text())) for p in (path, original))
        assert ours == re.sub(rf"examples[./]{name}\b", name, theirs)


@pytest.mark.parametrize("name", NAMES)
def test_data_that_an_example_reads_is_in_its_project(projects, name):
    package = projects / name / name
    sources = "".join(p.read_text() for p in package.glob("*.py") if "_test" not in p.name)
    needed = re.findall(r'shipped\("([^"]+)"', sources)
    for file in needed:
        assert (package / "data" / file).is_file()
        folder = (package / "data" / file).parent
        assert list(folder.glob("LICENSE*")) and (folder / "README.md").is_file()
    assert bool(needed) == (name in (
        "vae", "lm1b", "t5", "finetuning", "sequence_tagging", "autograd_classics"))


def without_the_checkout(projects) -> dict[str, str]:
    """An environment in which toile is found, and the examples of the checkout are not."""
    site = projects / "site"
    if not site.exists():
        site.mkdir()
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / "toile", site / "toile", ignore=ignored)
    return {**os.environ, "PYTHONPATH": str(site)}


def test_a_project_trains_without_the_checkout(projects):
    pytest.importorskip("ml_collections")
    env = without_the_checkout(projects)
    command = [sys.executable, "-m", "mnist.main", "--workdir=runs/mnist",
               "--config=mnist/configs/tiny.py", "--config.train_examples=100",
               "--config.num_epochs=1"]
    done = subprocess.run(command, cwd=projects / "mnist", env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "accuracy on 1000 held-out digits" in done.stdout
    assert "python -m mnist.main --workdir=runs/mnist" in done.stdout
    assert (projects / "mnist" / "runs" / "mnist" / "metrics.jsonl").exists()


def test_the_modules_of_every_project_are_imported_without_the_checkout(projects):
    pytest.importorskip("ml_collections")
    pytest.importorskip("gin")
    env = without_the_checkout(projects)
    code = f"""
import importlib, pathlib, sys
for name in {NAMES!r}:
    sys.path.insert(0, str(pathlib.Path({str(projects)!r}) / name))
    for part in ("train", "report", "input_pipeline", "models"):
        if (pathlib.Path({str(projects)!r}) / name / name / f"{{part}}.py").exists():
            found = importlib.import_module(f"{{name}}.{{part}}")
            assert found.__file__.startswith({str(projects)!r}), found.__file__
from autograd_classics import rnn
print(len(rnn.TEXT))
assert not [m for m in sys.modules if m.split(".")[0] == "examples"]
"""
    done = subprocess.run([sys.executable, "-P", "-c", code], cwd=projects, env=env,
                          capture_output=True, text=True)
    assert done.returncode == 0 and int(done.stdout) > 100_000, done.stderr


def test_a_test_of_a_project_runs(projects):
    pytest.importorskip("ml_collections")
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "-k", "balanced or fields"]
    done = subprocess.run(command, cwd=projects / "mnist", env=without_the_checkout(projects),
                          capture_output=True, text=True)
    assert done.returncode == 0 and "2 passed" in done.stdout, done.stdout


def test_new_says_what_to_run_next(capsys, tmp_path):
    folder = tmp_path / "new" / "my project"
    ran = run(capsys, "new", "mnist", folder)
    assert ran.status == 0 and not ran.err
    assert [line.partition("#")[0].strip() for line in ran.out.splitlines()[3:]] == [
        f"cd '{folder}'", "python -m pip install -r requirements.txt",
        "python -m mnist.main --workdir=runs/mnist", "python -m pytest",
        "tensorboard --logdir=runs/mnist"]
    assert (folder / "mnist" / "data" / "mnist_5k.npz").is_file()
    assert not [p for p in folder.parent.iterdir() if p != folder]


def test_an_empty_folder_is_filled(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(capsys, "new", "vae", ".").status == 0
    assert {p.name for p in tmp_path.iterdir()} == {
        ".gitignore", "README.md", "curve.png", "pytest.ini", "reconstructions.png",
        "requirements.txt", "samples.png", "vae"}


def test_a_folder_with_files_is_left_alone(capsys, tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    assert "which contains files" in refused(capsys, "new", "mnist", tmp_path)
    assert "got the file" in refused(capsys, "new", "mnist", tmp_path / "mine.txt")
    assert [p.name for p in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("fails_at", ["write_bytes", "rename"])
def test_an_error_leaves_nothing_behind(capsys, tmp_path, monkeypatch, there, fails_at):
    folder = tmp_path / "a" / "b" / "project"
    if there:
        folder.mkdir(parents=True)
    real, calls = getattr(Path, fails_at), []

    def failing(path, *rest):
        calls.append(path)
        if len(calls) == (3 if there or fails_at == "write_bytes" else 1):
            raise OSError(28, "No space left on device", str(path))
        return real(path, *rest)

    monkeypatch.setattr(Path, fails_at, failing)
    assert "No space left" in refused(capsys, "new", "mnist", folder, status=1)
    monkeypatch.undo()
    assert list(tmp_path.rglob("*")) == ([tmp_path / "a", folder.parent, folder] if there else [])


def test_an_installation_without_examples_says_so(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(example_catalog, "PLACES", (tmp_path,))
    example_catalog.available.cache_clear()
    try:
        assert "has no examples" in refused(capsys, "examples", status=1)
        assert "has no examples" in refused(capsys, "new", "mnist", tmp_path / "p", status=1)
    finally:
        example_catalog.available.cache_clear()


def test_the_wheel_is_given_every_example(tmp_path):
    """The build step of setup.py copies what the catalog finds, and the catalog finds it there."""
    pytest.importorskip("setuptools")
    code = "import sys; sys.argv = ['setup.py', '-q', 'build_py', '-d', sys.argv[1]]; import setup"
    for part in ("setup.py", "setup.cfg", "examples"):
        (tmp_path / part).symlink_to(ROOT / part)
    (tmp_path / "toile").mkdir()
    (tmp_path / "toile" / "__init__.py").touch()
    (tmp_path / "README.md").touch()
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code, str(tmp_path / "built")],
                          cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "built" / "toile" / "command" / "examples"
    built = example_catalog.examples(folder)
    assert [e.name for e in built] == example_catalog.names()
    for e, original in zip(built, example_catalog.available(), strict=True):
        assert example_projects.files(e) == example_projects.files(original)
