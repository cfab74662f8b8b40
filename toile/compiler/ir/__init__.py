"""The data that the compiler works on, without decisions: views, groups, loop nests, operands,
steps.
"""
