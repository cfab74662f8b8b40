"""Drawn calls: public functions with random options and arguments, against the real libraries.

A case is the text of an expression with its arrays (`calls.py`); the other modules draw cases of
one subject each. `python -m tests.drawn arrays --count 1000 --seed 3` runs many.
"""
