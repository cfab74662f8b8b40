"""The command `toile`: projects from examples, weights between formats, what a function runs.

`main` is the console script. The parsers are light; what a subcommand does is loaded when it runs.
"""

from toile.command.entry import main

__all__ = ["main"]
