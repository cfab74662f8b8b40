"""From a Program to its plan: what becomes a kernel, what is computed again, and where bytes
lie.
"""
