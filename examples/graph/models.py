"""Graph convolution (Kipf and Welling, 2017) and graph attention (Velickovic et al., 2018)."""

from collections.abc import Sequence

import toile.numpy as jnp
from toile import lax, ops
from toile import linen as nn

from . import graphs


class GCNLayer(nn.Module):
    """Replaces each node with the sum of its neighbors and itself, weighted by their degrees.

    It computes D^-1/2 A D^-1/2 x W, for the adjacency matrix A with self-loops and its degrees D.
    If edges have features, a message is relu(x W + edge).
    """

    features: int

    @nn.compact
    def __call__(self, x, edges, senders, receivers):
        """Map nodes [nodes, …] and edges [edges, features] or None to [nodes, features]."""
        count = len(x)
        x = nn.Dense(self.features)(x)
        degree = ops.segment_sum(jnp.ones(len(receivers), x.dtype), receivers, count) + 1
        weight = lax.rsqrt(degree[senders] * degree[receivers])
        sent = x[senders] if edges is None else nn.relu(x[senders] + edges)
        messages = weight[:, None] * sent
        return ops.segment_sum(messages, receivers, count) + x / degree[:, None]


class GATLayer(nn.Module):
    """Replaces each node with a mean of its neighbors and itself, weighted by attention, per
    head."""

    features: int
    heads: int = 4

    @nn.compact
    def __call__(self, x, edges, senders, receivers):
        """Map nodes [nodes, …] and edges [edges, features] or None to [nodes, features]."""
        count, width = len(x), self.features // self.heads
        loops = jnp.arange(count)
        all_senders, all_receivers = (jnp.concatenate([i, loops]) for i in (senders, receivers))
        x = nn.DenseGeneral((self.heads, width))(x)
        init = nn.initializers.glorot_normal()
        to, by = (self.param(name, init, (self.heads, width)) for name in ("to", "by"))
        sent = x[all_senders]
        if edges is not None:
            attached = edges.reshape((len(edges), self.heads, width))
            zeros = jnp.zeros((count, self.heads, width), edges.dtype)
            sent = sent + jnp.concatenate([attached, zeros])
        logits = (sent * by).sum(axis=-1) + (x * to).sum(axis=-1)[all_receivers]
        weight = graphs.segment_softmax(nn.leaky_relu(logits, 0.2), all_receivers, count)
        mixed = ops.segment_sum(weight[..., None] * sent, all_receivers, count)
        return mixed.reshape((count, self.features))


LAYERS = {"gcn": GCNLayer, "gat": GATLayer}


class Categories(nn.Module):
    """The sum of one learned vector for each of several small integers."""

    sizes: Sequence[int]
    features: int

    @nn.compact
    def __call__(self, x):
        """Map integers [count, len(sizes)] to vectors [count, features]."""
        vectors = [nn.Embed(n, self.features)(x[:, i]) for i, n in enumerate(self.sizes)]
        return sum(vectors)


class GraphNetwork(nn.Module):
    """Layers of one kind on a GraphsTuple, which return logits for its nodes or for its graphs."""

    layer: str
    features: int
    layers: int
    outputs: int
    of_graphs: bool
    node_sizes: Sequence[int]
    edge_sizes: Sequence[int] = ()
    dropout: float = 0.0
    residual: bool = True  # add the output of each layer to its input, after a LayerNorm

    @nn.compact
    def __call__(self, graph, train: bool = False):
        """Return logits [graphs, outputs] if `of_graphs`, else [nodes, outputs]."""
        x = Categories(self.node_sizes, self.features, name="nodes")(graph.nodes)
        for number in range(self.layers):
            edges = None
            if self.edge_sizes:
                encode = Categories(self.edge_sizes, self.features, name=f"edges_{number}")
                edges = encode(graph.edges)
            y = nn.LayerNorm()(x) if self.residual else x
            y = LAYERS[self.layer](self.features)(y, edges, graph.senders, graph.receivers)
            y = nn.Dropout(self.dropout, deterministic=not train)(nn.relu(y))
            x = x + y if self.residual else y
        if self.of_graphs:
            x = graphs.segment_mean(x, graphs.graph_of_node(graph), len(graph.n_node))
            x = nn.relu(nn.Dense(self.features)(x))
        return nn.Dense(self.outputs)(x)
