"""What a training loop needs: states, checkpoints, schedules, prefetching, metrics.

Each part is a module that is imported by its name: `from toile.training import checkpoints`.
"""
