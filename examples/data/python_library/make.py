"""Make library.zip, with Python 3.11.7: `python -m examples.data.python_library.make`."""

import ast
import os
import re
import zipfile
from pathlib import Path

LIB = Path(os.__file__).parent
TABLES = {"_compat_pickle.py", "opcode.py", "stat.py", "stringprep.py"}
LEFT_OUT = {
    "ctypes", "distutils", "encodings", "ensurepip", "idlelib", "lib2to3", "msilib", "pydoc_data",
    "site-packages", "test", "tests", "tkinter", "turtledemo",
}  # fmt: skip


def is_chosen(path: Path) -> bool:
    """Whether a file is ASCII text of the right size, without newer syntax or its own license."""
    inside = path.relative_to(LIB)
    if len(inside.parts) > 2 or LEFT_OUT & set(inside.parts) or str(inside) in TABLES:
        return False
    source = path.read_bytes()
    if inside.name.startswith("_sysconfig") or not 4000 <= len(source) <= 24000:
        return False
    if not source.isascii() or re.search(rb"[\t\f\r]|licen[cs]e|copyright", source, re.IGNORECASE):
        return False
    nodes = ast.walk(ast.parse(source))
    return not any(isinstance(node, (ast.JoinedStr, ast.Match)) for node in nodes)


def main() -> None:
    """Write the archive; its bytes are the same in every run."""
    chosen = [path for path in sorted(LIB.rglob("*.py")) if is_chosen(path)]
    with zipfile.ZipFile(Path(__file__).parent / "library.zip", "w") as archive:
        for path in (LIB / "LICENSE.txt", *chosen):
            entry = zipfile.ZipInfo(path.relative_to(LIB).as_posix(), (1980, 1, 1, 0, 0, 0))
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED, 9)


if __name__ == "__main__":
    main()
