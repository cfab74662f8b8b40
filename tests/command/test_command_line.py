"""The command line as a whole: help, mistakes, errors in one line, what it loads, completions."""

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command.running import refused, run
from toile.command import actions, completions, entry, parsers
from toile.command.failures import Failure
from toile.version import __version__

ROOT = Path(__file__).parents[2]
COMMANDS = ["new", "examples", "doctor", "cache", "convert", "explain", "export", "serve",
            "completion"]


def python(*arguments, **options):
    return subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True,
                          timeout=120, **options)


def test_the_commands_are_listed(capsys):
    ran = run(capsys, "--help")
    assert ran.status == 0 and not ran.err
    assert [name for name in COMMANDS if f"\n    {name}" in ran.out] == COMMANDS
    assert run(capsys).out == ran.out
    assert run(capsys, "--version").out == f"toile {__version__}\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_an_example(capsys, name):
    ran = run(capsys, name, "--help")
    assert ran.status == 0 and ran.out.startswith(f"usage: toile {name} ")
    assert f"toile {name}" in ran.out.partition("\nexample")[2]
    assert "--debug" in ran.out


@pytest.mark.parametrize(("argv", "said"), [
    (["nwe"], "toile: needed a command, got 'nwe' (did you mean 'new'?)"),
    (["exmaples"], "did you mean 'examples'?"),
    (["frobnicate"], "toile: needed a command, got 'frobnicate' (see toile --help)"),
    (["--verison"], "there is no option --verison (did you mean '--version'?)"),
    (["new", "mnits", "p"], "got 'mnits' (did you mean 'mnist'?)"),
    (["new", "qqqq", "p"], "needed one of mnist, vae,"),
    (["new", "mnist"], "toile new: the following arguments are required: FOLDER"),
    (["new", "mnist", "p", "q"], "unrecognized arguments: q"),
    (["new", "mnist", "p", "--debgu"], "there is no option --debgu (did you mean '--debug'?)"),
    (["convert", "a.npz", "b.npz", "--form=npz"], "no option --form (did you mean '--from'?)"),
    (["convert", "--froce", "a.npz"], "there is no option --froce (did you mean '--force'?)"),
    (["convert", "a", "b", "--from", "safetensor"], "did you mean 'safetensors'?"),
    (["convert", "a", "b", "--step", "x"], "argument --step: invalid int value: 'x'"),
    (["cache", "claer"], "got 'claer' (did you mean 'clear'?)"),
    (["cache", "--yes"], "--yes applies to `toile cache clear`"),
    (["completion", "bsh"], "did you mean 'bash'?"),
    (["completion"], "required: SHELL"),
])
def test_a_mistake_is_told_in_one_line(capsys, argv, said):
    assert said in refused(capsys, *argv)


def test_an_abbreviated_option_is_no_option(capsys):
    assert "no option --forc (did you mean '--force'?)" in refused(capsys, "convert", "--forc")


@pytest.mark.parametrize(("error", "line"), [
    (Failure("needed a, got b"), "toile examples: needed a, got b\n"),
    (FileNotFoundError(2, "No such file", "x.npz"), "toile examples: No such file: x.npz\n"),
    (ValueError("first\n  second\n  at file.py:3 in f"),
     "toile examples: ValueError: first second (--debug shows the traceback)\n"),
    (ZeroDivisionError(), "toile examples: ZeroDivisionError (--debug shows the traceback)\n"),
])
def test_an_error_is_one_line_unless_debug_is_given(capsys, monkeypatch, error, line):
    def broken(args):
        raise error

    monkeypatch.setattr(actions, "list_examples", broken, raising=False)
    assert refused(capsys, "examples", status=1) == line
    for argv in (["--debug", "examples"], ["examples", "--debug"]):
        with pytest.raises(type(error)):
            entry.main(argv)


def test_ctrl_c_has_the_status_of_shells(capsys, monkeypatch):
    def interrupted(args):
        raise KeyboardInterrupt

    monkeypatch.setattr(actions, "list_examples", interrupted, raising=False)
    assert refused(capsys, "examples", status=130) == "toile examples: interrupted\n"


def test_python_m_toile_is_the_command():
    done = python("-m", "toile", "nwe")
    assert done.returncode == 2 and "did you mean 'new'?" in done.stderr
    assert "Traceback" not in done.stderr


def test_import_toile_does_not_load_the_command_and_help_loads_little():
    code = """
import sys, toile
before = set(sys.modules)
assert not [m for m in before if m.startswith("toile.command")]
from toile.command import main
try:
    main(["--help"])
finally:
    print(*sorted(m for m in set(sys.modules) - before if m.startswith("toile")), file=sys.stderr)
"""
    done = python("-c", code)
    assert done.returncode == 0, done.stderr
    loaded = set(done.stderr.split())
    assert loaded == {"toile.command", *(f"toile.command.{name}" for name in (
        "actions", "entry", "example_catalog", "failures", "parsers"))} | {"toile.version"}


def test_a_closed_pipe_is_no_error():
    script = f"{sys.executable} -m toile examples | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], cwd=ROOT, capture_output=True, text=True,
                          timeout=120)
    assert done.stderr == "" and done.returncode in (0, 1)


def test_doctor_is_that_of_the_module(capsys, monkeypatch):
    monkeypatch.setattr("toile.doctor.main", lambda: 1)
    assert run(capsys, "doctor").status == 1


# ---- completions
def complete(line: str) -> list[str]:
    """What bash offers for the last word of a line."""
    words = line.split(" ")
    script = completions.bash(parsers.command_parser())
    given = " ".join(f"'{w}'" for w in words)
    script += f"\nCOMP_WORDS=({given}); COMP_CWORD={len(words) - 1}; _toile\n"
    script += 'printf "%s\\n" "${COMPREPLY[@]}"'
    done = subprocess.run(["bash", "-c", script], cwd=ROOT, capture_output=True, text=True,
                          timeout=60)
    assert done.returncode == 0 and not done.stderr, done.stderr
    return done.stdout.split()


@pytest.mark.skipif(not shutil.which("bash"), reason="no bash here")
@pytest.mark.parametrize(("line", "offered"), [
    ("toile n", ["new"]),
    ("toile co", ["convert", "completion"]),
    ("toile new cif", ["cifar10"]),
    ("toile convert --fo", ["--force"]),
    ("toile convert --from s", ["safetensors"]),
    ("toile convert --to t", []),
    ("toile convert --from npz a.npz setup.c", ["setup.cfg"]),
    ("toile convert --only setup.c", []),
    ("toile cache c", ["clear"]),
    ("toile --debug completion f", ["fish"]),
])
def test_bash_completes(line, offered):
    assert complete(line) == offered


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_have_every_command_option_and_name(capsys, shell):
    ran = run(capsys, "completion", shell)
    assert ran.status == 0 and not ran.err
    parser = parsers.command_parser()
    for name, sub in parser.subcommands.items():
        assert name in ran.out
        for option in sub.options:
            assert (option.lstrip("-") if shell == "fish" else option) in ran.out
    for name in ("mnist", "autograd_classics", "safetensors", "clear"):
        assert name in ran.out
    if shutil.which(shell):
        checked = subprocess.run([shell, "-n"], input=ran.out, text=True, capture_output=True)
        assert checked.returncode == 0, checked.stderr


def test_texts_are_quoted_for_their_shell():
    action = argparse.Action(["--x"], "x", nargs=0, help="it's [one]: 50%(default)s", default="%")
    assert completions._zsh_option("--x", action) == "'--x[it'\\''s \\[one\\]\\: 50%]'"
    assert completions._fish_option("--x", action) == "-l x -d 'it\\'s [one]: 50%'"
