"""tools.planted_faults plants faults where it should, and tells what tests notice from the rest."""

import dataclasses
import textwrap

import pytest

from tools import planted_faults
from tools.planted_faults import ROOT, Fault, Misplaced

FAULTS = planted_faults.faults()
MOST_MISPLACED = 0

HALF = Fault("half", "toile/halves.py", "halves are thirds", "x / 2", "x / 3", ("tests",), False)


@pytest.fixture
def checkout(tmp_path):
    """A small library with tests."""
    packages = [name.strip() for name in planted_faults.MODULES.split(",")]
    texts = {f"{name.replace('.', '/')}/__init__.py": "" for name in packages}
    texts["toile/halves.py"] = """
        def half(x):
            return x / 2

        def double(x):
            return x * 2
    """
    texts["tests/test_halves.py"] = """
        from toile.halves import half

        def test_half():
            assert half(6) == 3

        def test_nothing():
            pass
    """
    for place, text in texts.items():
        path = tmp_path / "checkout" / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    return tmp_path / "checkout"


def outcomes(checkout, *faults, tests=None):
    found = planted_faults.try_all(list(faults), checkout, 1, tests, 300, [])
    return {name: outcome.result for name, outcome in found.items()}


def test_table():
    assert len(FAULTS) == len({f.name for f in FAULTS}) >= 60
    assert sum(f.subtle for f in FAULTS) >= 30
    for f in FAULTS:
        assert f.old != f.new and f.breaks, f.name
        assert any((ROOT / t.split(" ")[0]).exists() for t in f.tests), f.name


def test_faults_can_be_planted():
    wrong = {}
    for f in FAULTS:
        try:
            planted_faults.edited(f, planted_faults.place(f, ROOT))
        except (Misplaced, SyntaxError) as error:
            wrong[f.name] = str(error)
    assert len(wrong) <= MOST_MISPLACED, wrong


def test_caught_and_missed(checkout, capsys):
    double = dataclasses.replace(HALF, name="double", old="x * 2", new="x * 3")
    before = (checkout / "toile/halves.py").read_text()
    assert outcomes(checkout, HALF, double) == {"half": "caught", "double": "missed"}
    assert (checkout / "toile/halves.py").read_text() == before
    printed = capsys.readouterr().out
    assert "caught          half  tests/test_halves.py::test_half" in printed


def test_failures_without_a_fault_do_not_count(checkout):
    path = checkout / "tests/test_halves.py"
    path.write_text(path.read_text().replace("pass", "assert 1 == 2"))
    double = dataclasses.replace(HALF, old="x * 2", new="x * 3")
    broken = dataclasses.replace(HALF, name="broken", new="x // 2")
    lost = dataclasses.replace(HALF, name="lost", old="x / 5")
    assert outcomes(checkout, double, broken, lost) == {
        "half": "fails anyway", "broken": "fails anyway", "lost": "misplaced"}


def test_what_breaks_imports_does_not_count(checkout):
    (checkout / "toile/linen/__init__.py").write_text("from toile.halves import half, double")
    broken = dataclasses.replace(HALF, old="def double", new="def doubled")
    assert outcomes(checkout, HALF, dataclasses.replace(broken, name="broken")) == {
        "half": "caught", "broken": "missed"}  # no test imports it
    gone = dataclasses.replace(HALF, name="gone", old="def half", new="def halved")
    assert outcomes(checkout, gone) == {"gone": "breaks imports"}


def test_files_that_have_moved(checkout):
    (checkout / "toile/halves.py").rename(checkout / "toile/lax/parts.py")
    assert planted_faults.place(HALF, checkout) == checkout / "toile/lax/parts.py"
    (checkout / "toile/lax/more.py").write_text("x / 2")
    with pytest.raises(Misplaced, match=r"parts.py \(1x\)"):
        planted_faults.place(HALF, checkout)


@pytest.mark.slow
def test_faults_of_the_library():
    chosen = [f for f in FAULTS if f.name in ("joined-schedules", "augmentation-of-each-epoch")]
    assert set(outcomes(ROOT, *chosen).values()) == {"caught"}
