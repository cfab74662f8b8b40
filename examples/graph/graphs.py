"""Graphs as arrays: many graphs in one, by offsets, and padded, so that a step has few shapes.

The fields of a GraphsTuple are those of jraph. Nodes and edges of all graphs stand one after the
other; `n_node` and `n_edge` say where each graph ends. The last graph of a padded batch holds all
nodes and edges that are not real, which are joined to each other only.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

import toile.numpy as jnp
from toile import ops


class GraphsTuple(NamedTuple):
    """One graph, or several in one."""

    nodes: Any  # [nodes, ...]
    edges: Any  # [edges, ...], or None
    receivers: Any  # int [edges]
    senders: Any  # int [edges]
    globals: Any  # [graphs, ...], or None
    n_node: Any  # int [graphs]
    n_edge: Any  # int [graphs]


def batch(graphs: Sequence[GraphsTuple]) -> GraphsTuple:
    """Several graphs, in NumPy arrays, as one whose parts are not connected."""
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
    """The graph filled up to so many nodes, edges and graphs; at least one of each is padding.

    The first graph that is not real takes the padding, those behind it are empty.
    """
    more = n_node - len(graph.nodes), n_edge - len(graph.senders), n_graph - len(graph.n_node)
    if more[0] < 1 or more[1] < 0 or more[2] < 1:
        raise ValueError(
            f"pad: needed more than {len(graph.nodes)} nodes and {len(graph.n_node)} graphs, and "
            f"{len(graph.senders)} edges or more, got {n_node}, {n_graph} and {n_edge}"
        )

    def filled(x, count, value=0):
        if x is None:
            return None
        return np.concatenate([x, np.full((count, *x.shape[1:]), value, x.dtype)])

    extra = np.arange(more[2]) == 0
    return GraphsTuple(
        nodes=filled(graph.nodes, more[0]),
        edges=filled(graph.edges, more[1]),
        receivers=filled(graph.receivers, more[1], len(graph.nodes)),  # the first that is not real
        senders=filled(graph.senders, more[1], len(graph.nodes)),
        globals=filled(graph.globals, more[2]),
        n_node=np.concatenate([graph.n_node, np.where(extra, more[0], 0)]).astype(np.int32),
        n_edge=np.concatenate([graph.n_edge, np.where(extra, more[1], 0)]).astype(np.int32),
    )


def graph_of_node(graph: GraphsTuple):
    """The number of the graph that each node belongs to, int [nodes]."""
    graphs = jnp.arange(len(graph.n_node))
    return jnp.repeat(graphs, graph.n_node, total_repeat_length=len(graph.nodes))


def segment_mean(values, segments, count: int):
    """The mean of the rows of each segment, 0 where a segment has none."""
    total = ops.segment_sum(values, segments, count)
    rows = ops.segment_sum(jnp.ones(len(values), values.dtype), segments, count)
    return total / jnp.maximum(rows, 1)[:, None]


def segment_softmax(logits, segments, count: int):
    """The softmax over the rows of each segment."""
    largest = ops.segment_max(logits, segments, count)
    weights = jnp.exp(logits - largest[segments])
    return weights / ops.segment_sum(weights, segments, count)[segments]
