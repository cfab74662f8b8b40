"""No public function, and no gradient of one, needs more launches or moves more bytes on a GPU than
its result demands; what does is listed with its reason.

The costs are those of plans, which are made without a GPU: `python -m tests.gpu.plan_costs`. A
cliff that a change of the compiler makes is seen here before anybody measures it.
"""

from fnmatch import fnmatch
from typing import NamedTuple

import pytest

from tests.gpu.plan_costs import cost_of, functions, plan_of_measurement

LAUNCHES, RATIO = 8, 6.5  # of most functions: launches, and bytes moved for each that must be


class Outlier(NamedTuple):
    """Functions that cost more: the pattern of their names, the most launches, the largest ratio of
    bytes moved, and why."""

    pattern: str
    launches: int
    ratio: float
    reason: str


SORTS = "a radix sort of 32 bits takes 14 launches, and reads and writes its keys four times"
ADDED = "floats are added to elements in a fixed order: their places are sorted"
STEPS = "a launch or a few for each step of a loop that cannot be run at once"

OUTLIERS = [Outlier(*x) for x in (
    ("linalg | expm*", 280, 240, "16 terms of a series, and squarings that depend on the norm"),
    ("linalg | *", 22, 27, "a call of a solver for each factorization, and copies of matrices"),
    ("neural | linen.GRU*", 650, 33, STEPS), ("neural | linen.LSTM*", 400, 27, STEPS),
    ("loops | lax.scan, rows*", 390, RATIO, STEPS), ("loops | lax.map*", 260, RATIO, STEPS),
    ("loops | lax.fori_loop*", 104, 73.1, STEPS),
    ("loops | lax.switch | gradient*", 13, 11.1, "branches store what their gradients need"),
    ("sorts | jnp.unique*", 31, 29, SORTS), ("more | jnp.unique*", 31, 29, SORTS),
    ("sorts | jnp.lexsort*", 28, RATIO, SORTS), ("sorts | jnp.sort of all*", 20, 9.2, SORTS),
    ("more | jnp.union1d*", 32, 31, SORTS), ("more | jnp.setdiff1d*", 55, 27, SORTS),
    ("more | jnp.intersect1d*", 110, 65, SORTS), ("more | jnp.setxor1d*", 113, 67, SORTS),
    ("more | median*", 25, 11, SORTS), ("more | jnp.*median*", 18, 9.4, SORTS),
    ("reductions | jnp.percentile*", 18, 9.4, SORTS),
    ("reductions | jnp.quantile*", 15, 9.1, SORTS),
    ("more | vmap searchsorted*", 16, RATIO, SORTS),
    ("random | random.permutation*", 40, 14, SORTS),
    ("indexing | jnp.interp | gradient*", 41, 27, ADDED),
    ("indexing | take rows | gradient*", 13, RATIO, ADDED),
    ("indexing | at.add of elements | gradient*", 9, RATIO, ADDED),
    ("neural | ndimage.map_coordinates | gradient*", 35, 26, ADDED),
    ("more | jnp.histogram2d*", 17, RATIO, ADDED),
    ("reductions | jnp.histogram*", 11, 7.1, "edges come from the smallest and largest element, "
     "and each element is compared with all of them"),
    ("indexing | boolean mask*", 9, 8.3, "places of true elements follow from a cumulative sum"),
    ("more | jnp.flatnonzero*", 9, 9.6, "places of true elements follow from a cumulative sum"),
    ("reductions | jnp.prod* | gradient*", 37, RATIO, "products of all other elements, by halves"),
    ("reductions | lax.associative_scan | gradient*", 14, RATIO, "halves, and back"),
    ("reductions | jnp.var, all | gradient*", 10, RATIO, "two sums that depend on each other"),
    ("reductions | jnp.std, all | gradient*", 10, RATIO, "two sums that depend on each other"),
    ("reductions | cum* | gradient*", 9, 7.2, "cumulative sums in both directions"),
    ("reductions | jnp.corrcoef | gradient*", 10, RATIO, "small matrices"),
    ("random | random.beta*", 52, 140, "rejection: rounds until all samples are accepted"),
    ("random | random.t |*", 28, 68, "rejection: rounds until all samples are accepted"),
    ("random | random.gamma*", 25, 68, "rejection: rounds until all samples are accepted"),
    ("random | random.dirichlet*", 25, 110, "rejection: rounds until all samples are accepted"),
    ("random | random.binomial*", 14, 13, "rejection: rounds until all samples are accepted"),
    ("random | random.poisson*", 14, 11.1, "rejection: rounds until all samples are accepted"),
    ("random | random.categorical*", LAUNCHES, 17, "Gumbel noise is stored before the maximum"),
    ("fft | signal.fftconvolve*", 22, 17, "three transforms, and six in its gradient"),
    ("fft | fft.* | gradient*", LAUNCHES, 11.1, "complex results, whose squares are summed"),
    ("neural | linen.MultiHeadDotProductAttention*", 29, 41, "products, and weights of attention"),
    ("neural | attention | gradient*", 9, RATIO, "products, and weights of attention"),
    ("neural | convolution* | gradient*", 9, 12, "libraries want other layouts"),
    ("neural | image.resize* | gradient*", 10, 8.6, "a product for each axis, in both directions"),
    ("optim | optim.adafactor*", 16, RATIO, "norms of rows, of columns, and of the whole update"),
    ("optim | optim.la[mr][bs]*", 13, RATIO, "norms of each array, before its update"),
    ("more | pad linear_ramp | gradient*", 11, RATIO, "margins are added one by one"),
    ("more | pad m* | gradient*", 12, RATIO, "margins are added one by one"),
    ("more | stencil of padded | gradient*", 10, 8.6, "margins are added one by one"),
)]  # fmt: skip

FUNCTIONS = functions()
NAMES = {group: [n for n in FUNCTIONS if n.startswith(f"{group} |")]
         for group in sorted({n.partition(" |")[0] for n in FUNCTIONS})}


def allowed(name):
    """The entry of a function, the first of several."""
    return next((x for x in OUTLIERS if fnmatch(name, x.pattern)), None)


@pytest.mark.parametrize("group", NAMES)
def test_costs(group):
    """A function may cost as much as its entry says; each entry is needed."""
    needed, dear = set(), {}
    for name in NAMES[group]:
        cost, entry = cost_of(plan_of_measurement(FUNCTIONS[name])), allowed(name)
        if cost.launches > LAUNCHES or cost.ratio > RATIO:
            needed.add(entry)
        _, launches, ratio, _ = entry or ("", LAUNCHES, RATIO, "")
        if cost.launches > launches or cost.ratio > ratio:
            dear[name] = cost
    assert not dear
    assert {x for x in OUTLIERS if x.pattern.startswith(f"{group} |")} <= needed


def test_every_entry_is_of_a_group():
    assert all(x.pattern.partition(" |")[0] in NAMES and x.reason for x in OUTLIERS)
