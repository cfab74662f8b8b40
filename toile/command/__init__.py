"""The command `toile`: creates projects from examples, converts weights and explains functions.

`main` is the console script. The parsers load quickly; the code of a subcommand is loaded when it
runs.
"""

from toile.command.entry import main

__all__ = ["main"]
