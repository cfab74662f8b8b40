"""docs/extending.md keeps its word: the files that it names are there, and a new operation takes
one file and one row. (Its code runs in tests/test_docs.py.)"""

import os
import re
import shutil
import subprocess
import sys

import pytest

from tests.test_docs import BLOCK, DOCS, ROOT
from tools.planted_faults import LEFT_OUT

PAGES = ("extending.md", "design/house.md")
FOLDERS = "toile|tests|tools|engine|compiler|kernels|targets|platforms|disk|primitives|transforms" \
    "|control|linen|optim|staging|api"
PLACE = re.compile(rf"`((?:{FOLDERS})/[\w/]*(?:\.\w+)?)`")
NEW = "primitives/log_cauchy.py"  # which the page adds


@pytest.mark.parametrize("page", PAGES)
def test_files_are_there(page):
    places = {p for p in PLACE.findall((DOCS / page).read_text()) if p != NEW}
    assert len(places) > 10
    homes = (ROOT, ROOT / "toile")
    assert [p for p in sorted(places) if not any((home / p).exists() for home in homes)] == []


def first_block_with(text, code):
    return next(m["code"] for m in BLOCK.finditer(text) if code in m["code"])


@pytest.mark.slow
def test_an_operation_is_one_file_and_one_row(tmp_path):
    """The page's operation as part of a copy of toile."""
    copy = tmp_path / "toile"
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(*LEFT_OUT), symlinks=True)
    text = (DOCS / "extending.md").read_text()
    (copy / "toile" / NEW).write_text(first_block_with(text, "class LogCauchy"))
    row = re.search(r"^unary\(log_cauchy\..*\),$", text, re.M)[0]
    table = copy / "tests/cases_elementwise.py"
    table.write_text(f"{table.read_text()}\nfrom toile.primitives import log_cauchy\n\n"
                     f"ROWS += [{row}]\n")
    tests = [
        "tests/test_operations.py", "tests/compiler/test_plan_data.py",
        "tests/compiler/test_fusion.py", "-k",
        "LogCauchy or has_a_row or the_table_has_every or all_scalar_code",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests], cwd=copy,
        env={**os.environ, "PYTHONPATH": str(copy)}, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) >= 8
