"""`python -m toile` runs the command `toile`."""

import sys

from toile.command import main

if __name__ == "__main__":
    sys.exit(main())
