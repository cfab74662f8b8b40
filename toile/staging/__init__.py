"""From Python functions to Programs: flattening, the trace cache and the call path of jit."""
