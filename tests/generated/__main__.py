"""`python -m tests.generated`: see command.py."""

import sys

from tests.generated.command import main

if __name__ == "__main__":
    sys.exit(main())
