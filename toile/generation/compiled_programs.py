"""`compiled`: `jit` for programs that are traced for many sizes of prompts and batches."""

import functools
import sys

from toile.api import jit

# The limit disables the warning about repeated tracing, because users choose these sizes.
compiled = functools.partial(jit, max_traces=sys.maxsize)
