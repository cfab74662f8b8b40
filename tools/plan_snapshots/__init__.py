"""Plans and kernels of a few hundred programs as text: shows what a change of the compiler changes.

Planning is deterministic: a change that should change nothing gives the same text, byte by byte.

    python -m tools.plan_snapshots write FOLDER            # as this checkout makes them
    python -m tools.plan_snapshots compare FOLDER FOLDER   # what differs
    python -m tools.plan_snapshots against CHECKOUT        # write both, compare

A folder has one file for each program and device (`cpu/`, `gpu/`) and one for each kernel
(`kernels/`, named by a digest of its text). No GPU is needed. Programs are made from the tests'
and benchmarks' of the checkout that writes, so that both sides have to have the same of those.
"""
