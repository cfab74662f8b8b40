"""Graphs as arrays: many graphs are joined into one with offsets and padded to a few shapes.

The fields of a GraphsTuple are those of jraph's. Nodes and edges of all graphs are concatenated;
`n_node` and `n_edge` contain their numbers in each graph. In a padded batch, one graph contains all
padding nodes and edges, which are connected only to each other.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

import toile.numpy as jnp
from toile import ops


class GraphsTuple(NamedTuple):
    """One graph, or several graphs joined into one."""

    nodes: Any  # [nodes, ...]
    edges: Any  # [edges, ...], or None
    receivers: Any  # int [edges]
    senders: Any  # int [edges]
    globals: Any  # [graphs, ...], or None
    n_node: Any  # int [graphs]
    n_edge: Any  # int [graphs]


def batch(graphs: Sequence[GraphsTuple]) -> GraphsTuple:
    """Join several graphs of NumPy arrays into one graph whose parts are not connected."""
    sizes = [len(g.nodes) for g in graphs]
    offsets = np.cumsum([0, *sizes[:-1]])

    def joined(name):
        parts = [getattr(g, name) for g in graphs]
        return None if parts[0] is None else np.concatenate(parts)

    return GraphsTuple(
        nodes=joined("nodes"),
        edges=joined("edges"),
        receivers=np.concatenate([g.receivers + o for g, o in zip(graphs, offsets)]),
        senders=np.concatenate([g.senders + o for g, o in zip(graphs, offsets)]),
        globals=joined("globals"),
        n_node=joined("n_node"),
        n_edge=joined("n_edge"),
    )


def pad(graph: GraphsTuple, n_node: int, n_edge: int, n_graph: int) -> GraphsTuple:
    """Pad a graph to these numbers of nodes, edges and graphs.

    The first padding graph contains all padding nodes and edges; the other padding graphs are
    empty.
    """
    more = n_node - len(graph.nodes), n_edge - len(graph.senders), n_graph - len(graph.n_node)
    if more[0] < 1 or more[1] < 0 or more[2] < 1:
        raise ValueError(
            f"pad: needed more than {len(graph.nodes)} nodes and {len(graph.n_node)} graphs, and "
            f"at least {len(graph.senders)} edges, got {n_node}, {n_graph} and {n_edge}"
        )

    def filled(x, count, value=0):
        if x is None:
            return None
        return np.concatenate([x, np.full((count, *x.shape[1:]), value, x.dtype)])

    extra = np.arange(more[2]) == 0
    return GraphsTuple(
        nodes=filled(graph.nodes, more[0]),
        edges=filled(graph.edges, more[1]),
        receivers=filled(graph.receivers, more[1], len(graph.nodes)),  # the first padding node
        senders=filled(graph.senders, more[1], len(graph.nodes)),
        globals=filled(graph.globals, more[2]),
        n_node=np.concatenate([graph.n_node, np.where(extra, more[0], 0)]).astype(np.int32),
        n_edge=np.concatenate([graph.n_edge, np.where(extra, more[1], 0)]).astype(np.int32),
    )


def graph_of_node(graph: GraphsTuple):
    """Return the index of the graph that each node belongs to, int [nodes]."""
    graphs = jnp.arange(len(graph.n_node))
    return jnp.repeat(graphs, graph.n_node, total_repeat_length=len(graph.nodes))


def segment_mean(values, segments, count: int):
    """Return the mean of the rows of each segment, 0 for an empty segment."""
    total = ops.segment_sum(values, segments, count)
    rows = ops.segment_sum(jnp.ones(len(values), values.dtype), segments, count)
    return total / jnp.maximum(rows, 1)[:, None]


def segment_softmax(logits, segments, count: int):
    """Compute the softmax over the rows of each segment."""
    largest = ops.segment_max(logits, segments, count)
    weights = jnp.exp(logits - largest[segments])
    return weights / ops.segment_sum(weights, segments, count)[segments]
