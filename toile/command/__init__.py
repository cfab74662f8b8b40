"""The command `toile`: makes projects from examples, converts weights, explains functions.

`main` is the console script. The parsers load quickly; the code of a subcommand is loaded when it
runs.
"""

from toile.command.entry import main

__all__ = ["main"]
