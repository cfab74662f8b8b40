"""Puts the examples into wheels, where `toile new` finds them; all else is in setup.cfg."""

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

EXAMPLES = Path("examples")
TARGET = Path("toile", "command", "examples")


class BuildWithExamples(build_py):
    """Copies the folders of examples that have a README, and the data that they share."""

    def run(self) -> None:
        """Build the package; an editable installation reads the examples where they are."""
        super().run()
        if self.editable_mode:
            return
        folders = {p.parent for p in EXAMPLES.glob("*/README.md")} | {EXAMPLES / "data"}
        for folder in sorted(folders):
            for path in sorted(p for p in folder.rglob("*") if p.is_file()):
                if "__pycache__" in path.parts or "runs" in path.parts:
                    continue
                copy = Path(self.build_lib, TARGET, path.relative_to(EXAMPLES))
                self.mkpath(str(copy.parent))
                self.copy_file(str(path), str(copy))


setup(cmdclass={"build_py": BuildWithExamples})
