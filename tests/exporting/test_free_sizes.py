"""Sizes that are expressions of the batch size compute like integers, for every batch size."""

import operator
import random

import pytest

from toile.compiler.ir.extents import larger, smaller
from toile.exporting.free_sizes import FreeSize, evaluated, expression, free_size

VALUE = 37
OPERATORS = (operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod, smaller,
             larger)  # fmt: skip
NAMES = {"rounded": lambda a, b: a // (b or 1), "smaller": min, "larger": max}


def value(x, n):
    return evaluated(x.terms, n) if isinstance(x, FreeSize) else x


def pairs(draw, depth):
    """A random expression, and a function that computes it with plain integers."""
    if not depth or draw.random() < 0.2:
        if draw.random() < 0.5:
            k = draw.choice((1, 2, 3, 4, 7, 8, 16, 64))
            return k, lambda n: k
        scale, offset = draw.choice((1, 2, 3, 8)), draw.choice((-1, 0, 0, 1, 5))
        return free_size(scale, offset, VALUE), lambda n: scale * n + offset
    op = draw.choice(OPERATORS)
    (a, f), (b, g) = pairs(draw, depth - 1), pairs(draw, depth - 1)
    if op in (operator.floordiv, operator.mod) and any(g(n) == 0 for n in range(1, 60)):
        op = operator.add
    return op(a, b), lambda n: op(f(n), g(n))


@pytest.mark.parametrize("seed", range(30))
def test_arithmetic(seed):
    """Expressions, and their texts in C, have the values of the integers that they stand for."""
    draw = random.Random(seed)
    for _ in range(20):
        x, plain = pairs(draw, 4)
        text = expression(x)
        for n in (1, 2, 3, 8, 31, 48, 59):
            assert value(x, n) == plain(n), (text, n)
            assert eval(text, {"n": n, **NAMES}) == plain(n)
        if isinstance(x, FreeSize):
            assert int.__add__(x, 0) == plain(VALUE)


def test_sizes_are_equal_if_their_expressions_are():
    n = free_size(1, 0, VALUE)
    assert (n + n) * 4 == 8 * n and hash((n + n) * 4) == hash(8 * n)
    assert n != VALUE and n != 48 and n + 1 != n
    assert -(-(4 * n) // 4) == n and (8 * n + 3) % 4 == 3 and (6 * n) // (2 * n) == 3
    assert n * 4 // n == 4 and type(n * 4 // n) is int and type(n - n) is int


def test_decisions_do_not_depend_on_the_plain_integers():
    """Sizes are ordered as for one batch size; remainders that are not always 0 are positive."""
    for plain in (3, 48, 1000):
        n = free_size(1, 0, plain)
        assert n > 47 and n < 49 and max(n, 49) == 49 and min(n, 100) is n
        assert 0.5 * float(n) == 24 and n * 0.5 == 24 and n / 2 == 24
        assert n % 16 > 0 and n % 16 != 0 and bool(n % 16)
