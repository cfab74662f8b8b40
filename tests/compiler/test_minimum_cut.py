"""Minimum cuts against all choices of small networks."""

import itertools
import random

import pytest

from toile.compiler.plan.minimum_cut import SINK, SOURCE, Network


def cost(edges, chosen):
    """What a choice costs; None if it is not allowed."""
    def taken(n):
        return n == SOURCE or n >= 0 and chosen[n]

    cut = [amount for a, b, amount in edges if taken(a) and not taken(b)]
    return None if None in cut else sum(cut)


@pytest.mark.parametrize("seed", range(60))
def test_no_choice_costs_less(seed):
    rng = random.Random(seed)
    count = rng.randint(1, 7)
    nodes = [*range(count), SOURCE, SINK]
    edges = []
    for _ in range(rng.randint(0, 4 * count)):
        a, b = rng.sample(nodes, 2)
        if a != SINK and b != SOURCE:
            free = rng.random() < 0.2 and a != SOURCE and b != SINK
            edges.append((a, b, None if free else rng.randint(0, 9)))
    first = rng.randint(0, count)
    network = Network(first)
    for _ in range(count - first):  # the others are added one by one
        network.node()
    for a, b, amount in edges:
        network.require(a, b) if amount is None else network.cost(a, b, amount)
    found = network.chosen()
    every = {c: cost(edges, c) for c in itertools.product((False, True), repeat=count)}
    least = min(x for x in every.values() if x is not None)
    assert every[tuple(found)] == least
    none = every[(False,) * count] == least
    assert sum(found) == (0 if none else max(sum(c) for c, x in every.items() if x == least))


def test_nodes_may_be_added_between_edges():
    network = Network(2)
    network.cost(SOURCE, 0, 5)
    last = network.node()
    network.require(0, last)
    network.cost(last, SINK, 3)
    network.cost(1, SINK, 1)
    assert network.chosen() == [True, False, True]


def test_no_node_is_chosen_without_a_gain():
    network = Network(2)
    network.require(0, 1)
    assert network.chosen() == [False, False]
