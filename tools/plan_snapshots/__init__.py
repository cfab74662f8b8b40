"""Plans and kernels of several hundred programs as text, to show the effect of compiler changes.

Planning is deterministic: if a change has no effect on the plans, the text stays the same, byte for
byte.

    python -m tools.plan_snapshots write FOLDER            # as this checkout makes them
    python -m tools.plan_snapshots compare FOLDER FOLDER   # what differs
    python -m tools.plan_snapshots against CHECKOUT        # write both, compare

A folder contains a file for each program and device (in `cpu/` and `gpu/`) and a file for each
kernel (in `kernels/`, named after a digest of the kernel's text). No GPU is needed. Each checkout
takes the programs from its own tests and benchmarks, so these must be the same in both checkouts.
"""
