"""`compiled`: `jit` for programs that are traced for many sizes of prompts and batches."""

import functools
import sys

from toile.api import jit

# A limit turns the warning about repeated tracing off: users choose these sizes, and each is new.
compiled = functools.partial(jit, max_traces=sys.maxsize)
