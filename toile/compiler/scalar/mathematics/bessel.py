"""Modified Bessel functions of the first kind, multiplied by exp(-|x|).

There are two Chebyshev series: one in x for |x| <= 8, and beyond that, one in 1/x for the function
times the square root of x. Their coefficients were computed with 60 digits. float32 is computed in
float64, by polynomials with as many terms as its result needs, and rounded once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import zip_longest

from toile.compiler.scalar.builder import FLOAT32, FLOAT64, Arithmetic, Value
from toile.compiler.scalar.mathematics.exponential import INFINITY

_LIMIT = 8.0
_SINGLE = 1e-9  # terms below this, relative to the first, do not change a float32
# The series of I0 and of I1(x) / x, in x / 4 - 1; and of both times sqrt(x), in 16 / x - 1.
_NEAR_ZERO = (
    0.33839763720473803, -0.3046826723431984, 0.17162090152220877, -0.09490109704804764,
    0.04930528423967071, -0.02373741480589947, 0.010546460394594998, -0.004324309995050576,
    0.0016394756169413357, -0.0005763755745385824, 0.00018850288509584165, -5.754195010082104e-05,
    1.6448448070728896e-05, -4.4167383584587505e-06, 1.1173875391201037e-06,
    -2.670793853940612e-07, 6.046995022541919e-08, -1.300025009986248e-08, 2.6598237246823866e-09,
    -5.189795601635263e-10, 9.675809035373237e-11, -1.726826291441556e-11, 2.95505266312964e-12,
    -4.856446783111929e-13, 7.676185498604936e-14, -1.1685332877993451e-14, 1.715391285555133e-15,
    -2.431279846547955e-16, 3.3307945188222384e-17, -4.4153416464793395e-18,
)
_FAR_ZERO = (
    0.4022452055070544, 0.0033691164782556943, 6.889758346916825e-05, 2.8913705208347567e-06,
    2.0489185894690638e-07, 2.266668990498178e-08, 3.3962320257083865e-09, 4.94060238822497e-10,
    1.1889147107846439e-11, -3.1499165279632416e-11, -1.3215811840447713e-11,
    -1.7941785315068062e-12, 7.180124451383666e-13, 3.8527783827421426e-13, 1.54008621752141e-14,
    -4.150569347287222e-14, -9.554846698828307e-15, 3.8116806693526224e-15,
    1.7725601330565263e-15, -3.425485619677219e-16, -2.8276239805165836e-16,
    3.461222867697461e-17, 4.46562142029676e-17, -4.830504485944182e-18, -7.233180487874754e-18,
    9.921475412173699e-19, 1.193650890845982e-18,
)
_NEAR_ONE = (
    0.12629359322181682, -0.17641651835783406, 0.1026436586898471, -0.05294598120809499,
    0.024726449030626516, -0.010564084894626197, 0.004156422944312888, -0.0015135724506312532,
    0.0005122859561685758, -0.00016176081582589674, 4.781565107550054e-05,
    -1.3273163656039436e-05, 3.4702513081376785e-06, -8.568720264695455e-07,
    2.0032947535521353e-07, -4.445059128796328e-08, 9.381537386495773e-09,
    -1.8872497517228294e-09, 3.625590281552117e-10, -6.663489723502027e-11,
    1.1736186298890901e-11, -1.9839743977649436e-12, 3.223793365945575e-13,
    -5.042185504727912e-14, 7.600684294735408e-15, -1.1055969477353862e-15,
    1.5536319577362005e-16, -2.111421214358166e-17, 2.7779141127610464e-18,
    -3.541581772542136e-19,
)
_FAR_ONE = (
    0.38928811750914005, -0.009761097491361469, -0.00011058893876262371, -3.882564808877691e-06,
    -2.512236237870209e-07, -2.6314688468895196e-08, -3.835380385964237e-09,
    -5.589743462196584e-10, -1.8974958123505413e-11, 3.2526035830154884e-11,
    1.4125807436613782e-11, 2.0356285441470896e-12, -7.198551776245908e-13,
    -4.0835511110921974e-13, -2.1015418427726643e-14, 4.272440016711951e-14,
    1.0420276984128802e-14, -3.8144030724370075e-15, -1.8803547755107825e-15,
    3.3082023109209285e-16, 2.96262899764595e-16, -3.209525921993424e-17, -4.6503053684893586e-17,
    4.414348323071708e-18, 7.517296310842105e-18, -9.314178867326884e-19, -1.242193275194891e-18,
)


def _series(k: Arithmetic, t: Value, coefficients: Sequence[float]) -> Value:
    """Σ c T(t) by Clenshaw's recurrence."""
    twice = k.add(t, t)
    below, last = k.constant(0.0, FLOAT64), k.constant(0.0, FLOAT64)
    for c in coefficients[:0:-1]:
        below, last = k.fma(twice, below, k.sub(c, last)), below
    return k.fma(t, below, k.sub(coefficients[0], last))


@cache
def _polynomial(coefficients: tuple[float, ...]) -> list[float]:
    """The series as a polynomial, from the highest power on, with the terms that a float32 needs.
    This takes half as many operations, and is exact enough in float64."""
    least = _SINGLE * abs(coefficients[0])
    total, last, this = [0.0], [0.0], [1.0]
    for i, c in enumerate(coefficients):
        if i:
            # T(i + 1) = 2 t T(i) - T(i - 1), and T(1) = t T(0)
            factor = 1.0 if i == 1 else 2.0
            following = [a - b for a, b in zip_longest(
                [0.0, *(factor * a for a in this)], last if i > 1 else [], fillvalue=0.0)]
            last, this = this, following
        if abs(c) > least:
            total = [a + c * b for a, b in zip_longest(total, this, fillvalue=0.0)]
    return total[::-1]


def _of_double(k: Arithmetic, a: Value, near: tuple[float, ...], far: tuple[float, ...]
               ) -> tuple[Value, Value, Value]:
    small = k.le(a, _LIMIT)
    inside = k.select(small, a, _LIMIT)
    outside = k.select(small, _LIMIT, a)
    low = _series(k, k.fma(inside, 0.25, -1.0), near)
    high = _series(k, k.sub(k.div(16.0, outside), 1.0), far)
    return small, low, k.div(high, k.sqrt(outside))


def _of_single(k: Arithmetic, a: Value, near: tuple[float, ...], far: tuple[float, ...]
               ) -> tuple[Value, Value, Value]:
    """The numbers of `_both` for a float32, without a division or root in float64: 1 / sqrt(a) is
    computed in float32 and improved by a step of Newton's method."""
    small = k.le(a, _LIMIT)
    inside = k.convert(k.select(small, a, _LIMIT), FLOAT64)
    outside = k.select(small, _LIMIT, k.select(k.eq(a, INFINITY), _LIMIT, a))
    low = k.pairwise(k.fma(inside, 0.25, -1.0), _polynomial(near))
    rough = k.convert(k.div(1.0, k.sqrt(outside)), FLOAT64)
    half = k.mul(k.convert(outside, FLOAT64), -0.5)
    root = k.mul(rough, k.fma(k.mul(half, rough), rough, 1.5))
    high = k.mul(root, k.pairwise(k.fma(k.mul(root, root), 16.0, -1.0), _polynomial(far)))
    return small, low, k.select(k.eq(a, INFINITY), 0.0, high)


def _both(k: Arithmetic, a: Value, near: tuple[float, ...], far: tuple[float, ...]
          ) -> tuple[Value, Value, Value]:
    """Whether |x| is small, the series for small |x| and that for large |x|, in float64."""
    return (_of_single if a.dtype == FLOAT32 else _of_double)(k, a, near, far)


def bessel_i0e(k: Arithmetic, x: Value) -> Value:
    """exp(-|x|) I₀(x)."""
    small, low, high = _both(k, k.abs(x), _NEAR_ZERO, _FAR_ZERO)
    return k.convert(k.select(small, low, high), x.dtype)


def bessel_i1e(k: Arithmetic, x: Value) -> Value:
    """exp(-|x|) I₁(x), an odd function."""
    a = k.abs(x)
    small, low, high = _both(k, a, _NEAR_ONE, _FAR_ONE)
    y = k.convert(k.select(small, k.mul(k.convert(a, FLOAT64), low), high), x.dtype)
    return k.select(k.lt(x, 0.0), k.neg(y), y)
