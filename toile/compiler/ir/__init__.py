"""The data structures that the compiler works on: views, groups, loop nests, operands, steps.

They hold no decisions.
"""
