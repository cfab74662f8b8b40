"""A program with jraph; `results` are compared with those on JAX."""

import jax
import jax.numpy as jnp
import jraph

g = jraph.GraphsTuple(
    nodes=jnp.arange(4.0)[:, None],
    edges=jnp.ones((5, 1)),
    senders=jnp.array([0, 1, 2, 3, 0]),
    receivers=jnp.array([1, 2, 3, 0, 2]),
    n_node=jnp.array([4]),
    n_edge=jnp.array([5]),
    globals=jnp.zeros((1, 1)),
)
net = jraph.GraphNetwork(
    update_edge_fn=lambda e, s, r, g: e + s * r,
    update_node_fn=lambda n, s, r, g: n + r,
    update_global_fn=lambda n, e, g: g + n.sum(),
)
o = jax.jit(net)(g)
results = [o.nodes, o.edges, o.globals]
