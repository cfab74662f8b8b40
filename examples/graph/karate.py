"""Zachary's karate club (1977): 34 members, 78 friendships, and the two clubs it split into."""

import numpy as np

from .graphs import GraphsTuple

# Members are numbered from 0; each entry is a member, with its friends of smaller numbers.
FRIENDS = """
1: 0 | 2: 0 1 | 3: 0 1 2 | 4: 0 | 5: 0 | 6: 0 4 5 | 7: 0 1 2 3 | 8: 0 2 | 9: 2 | 10: 0 4 5
11: 0 | 12: 0 3 | 13: 0 1 2 3 | 16: 5 6 | 17: 0 1 | 19: 0 1 | 21: 0 1 | 25: 23 24 | 27: 2 23 24
28: 2 | 29: 23 26 | 30: 1 8 | 31: 0 24 25 28 | 32: 2 8 14 15 18 20 22 23 29 30 31
33: 8 9 13 14 15 18 19 20 22 23 26 27 28 29 30 31 32
"""
INSTRUCTOR, PRESIDENT = 0, 33  # founders of the two clubs; the network gets only their labels
WITH_INSTRUCTOR = (0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13, 16, 17, 19, 21)


def friendships() -> np.ndarray:
    """Return the pairs of friends, int32 [78, 2]."""
    pairs = []
    for entry in FRIENDS.replace("\n", "|").split("|"):
        if entry.strip():
            member, friends = entry.split(":")
            pairs += [(int(friend), int(member)) for friend in friends.split()]
    return np.array(pairs, np.int32)


def club() -> tuple[GraphsTuple, np.ndarray]:
    """Return the graph, with each friendship in both directions, and each member's club, 0 or 1."""
    pairs = friendships()
    both = np.concatenate([pairs, pairs[:, ::-1]])
    graph = GraphsTuple(
        nodes=np.arange(34, dtype=np.int32)[:, None], edges=None,
        receivers=both[:, 1], senders=both[:, 0], globals=None,
        n_node=np.array([34], np.int32), n_edge=np.array([len(both)], np.int32),
    )  # fmt: skip
    return graph, 1 - np.isin(np.arange(34), WITH_INSTRUCTOR).astype(np.int32)
