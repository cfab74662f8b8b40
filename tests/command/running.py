"""Running the command in this process, and what it printed."""

from typing import NamedTuple

from toile.command import main


class Ran(NamedTuple):
    """The exit status, and what was printed."""

    status: int
    out: str
    err: str


def run(capsys, *argv) -> Ran:
    """Run `toile ARGV`."""
    status = main([str(a) for a in argv])
    return Ran(status, *capsys.readouterr())


def refused(capsys, *argv, status=2) -> str:
    """Run what has to fail; its one line of error."""
    ran = run(capsys, *argv)
    assert ran.status == status, ran
    assert ran.err.endswith("\n") and ran.err.count("\n") == 1, ran.err
    assert "Traceback" not in ran.err
    return ran.err
