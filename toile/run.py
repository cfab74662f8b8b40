"""`python -m toile.run SCRIPT`: the same as `toile run SCRIPT`."""

import sys

from toile.command.entry import main

if __name__ == "__main__":
    sys.exit(main(["run", *sys.argv[1:]]))
