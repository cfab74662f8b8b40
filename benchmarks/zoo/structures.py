"""Programs on tables, graphs, environments, many small parameters and small integers."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from benchmarks.zoo import Made, Program


def _training(L: Any, loss: Any, params: Any, optimizer: Any, batch: tuple[Any, ...]) -> Made:
    """Training steps with an optimizer for `loss(params, *batch)`."""

    def step(state: Any, *batch: Any) -> Any:
        params, opt = state
        value, grads = L.jax.value_and_grad(loss)(params, *batch)
        updates, opt = optimizer.update(grads, opt, params)
        return (L.optim.apply_updates(params, updates), opt), value

    return Made(step, (params, optimizer.init(params)), batch)


def _torch_training(optimizer: Any, loss: Callable[[], Any]) -> Callable[[], Any]:
    """One step of an optimizer in PyTorch."""

    def once() -> Any:
        optimizer.zero_grad(set_to_none=True)
        value = loss()
        value.backward()
        optimizer.step()
        return value.detach()

    return once


# ---------------------------------------------------------------------------------- recommender


def _clicks(batch: int, dense: int, tables: int, rows: int) -> tuple[np.ndarray, ...]:
    """Numbers, row indices into the tables (low ones are more frequent), and whether there was a
    click."""
    random = np.random.RandomState(0)
    x = random.randn(batch, dense).astype("f4")
    ids = (rows * random.rand(batch, tables) ** 4).astype("int32")
    return x, ids, random.randint(0, 2, batch).astype("f4")


def recommender(
    L: Any, batch: int, dense: int, tables: int, rows: int, d: int, width: int
) -> Made:  # fmt: skip
    """Predicts clicks from embedding tables and products of pairs of embeddings, with Adagrad."""
    nn, jnp = L.linen, L.jnp

    class Recommender(nn.Module):
        @nn.compact
        def __call__(self, x: Any, ids: Any) -> Any:
            for features in (width, width // 2, d):
                x = nn.relu(nn.Dense(features)(x))
            rows_of = [nn.Embed(rows, d)(ids[:, i]) for i in range(tables)]
            vectors = jnp.stack([x, *rows_of], axis=1)
            products = jnp.einsum("bid,bjd->bij", vectors, vectors)
            i, j = np.triu_indices(tables + 1, k=1)
            x = jnp.concatenate([x, products[:, i, j]], axis=1)
            for features in (width, width // 2):
                x = nn.relu(nn.Dense(features)(x))
            return nn.Dense(1)(x)[:, 0]

    model = Recommender()
    x, ids, clicks = map(jnp.asarray, _clicks(batch, dense, tables, rows))
    params = L.jax.jit(model.init)(L.random.key(0), x, ids)

    def loss(params: Any, x: Any, ids: Any, clicks: Any) -> Any:
        return L.optim.sigmoid_binary_cross_entropy(model.apply(params, x, ids), clicks).mean()

    return _training(L, loss, params, L.optim.adagrad(0.01), (x, ids, clicks))


def recommender_torch(
    torch: Any, device: str, batch: int, dense: int, tables: int, rows: int, d: int, width: int
) -> Callable[[], Any]:
    """The same model; tables have sparse gradients, so Adagrad changes only the rows that are
    used."""
    nn = torch.nn
    arrays = _clicks(batch, dense, tables, rows)
    x, ids, clicks = (torch.as_tensor(a, device=device) for a in arrays)
    pairs = (tables + 1) * tables // 2

    def layers(*sizes: int) -> Any:
        each = [(nn.Linear(i, o), nn.ReLU()) for i, o in zip(sizes, sizes[1:])]
        return nn.Sequential(*(layer for both in each for layer in both))

    with torch.device(device):
        bottom = layers(dense, width, width // 2, d)
        top = nn.Sequential(layers(d + pairs, width, width // 2), nn.Linear(width // 2, 1))
        embeddings = nn.ModuleList([nn.Embedding(rows, d, sparse=True) for _ in range(tables)])
        i, j = torch.triu_indices(tables + 1, tables + 1, 1)
    params = nn.ModuleList([bottom, top, embeddings]).parameters()
    optimizer = torch.optim.Adagrad(params, 0.01, initial_accumulator_value=0.1, eps=1e-7)

    def loss() -> Any:
        h = bottom(x)
        vectors = torch.stack([h, *(table(ids[:, k]) for k, table in enumerate(embeddings))], 1)
        products = torch.bmm(vectors, vectors.transpose(1, 2))[:, i, j]
        logits = top(torch.cat([h, products], 1))[:, 0]
        return nn.functional.binary_cross_entropy_with_logits(logits, clicks)

    return _torch_training(optimizer, loss)


# ------------------------------------------------------------------------------- graph attention


def _citations(nodes: int, edges: int, features: int, classes: int) -> tuple[np.ndarray, ...]:
    """Features and labels of nodes, and the edges; each node also has an edge to itself."""
    random = np.random.RandomState(0)
    x = random.randn(nodes, features).astype("f4")
    ends = random.randint(0, nodes, (2, edges)).astype("int32")
    own = np.arange(nodes, dtype="int32")
    senders, receivers = (np.concatenate([end, own]) for end in ends)
    return x, senders, receivers, random.randint(0, classes, nodes).astype("int32")


def graph_attention(
    L: Any, nodes: int, edges: int, features: int, heads: int, d: int, layers: int, classes: int
) -> Made:
    """Classifies the nodes of one graph; each attends to its neighbors (softmax by segments)."""
    nn, jnp, ops = L.linen, L.jnp, L.ops
    x, senders, receivers, labels = map(jnp.asarray, _citations(nodes, edges, features, classes))

    def segment_softmax(logits: Any, segments: Any) -> Any:
        logits = logits - ops.segment_max(logits, segments, nodes)[segments]
        weights = jnp.exp(logits)
        return weights / ops.segment_sum(weights, segments, nodes)[segments]

    class Attention(nn.Module):
        features: int

        @nn.compact
        def __call__(self, x: Any, senders: Any, receivers: Any) -> Any:
            h = nn.DenseGeneral((heads, self.features), use_bias=False)(x)
            shape, init = (heads, self.features), nn.initializers.glorot_uniform()
            sent = (h * self.param("sent", init, shape)).sum(-1)
            received = (h * self.param("received", init, shape)).sum(-1)
            logits = nn.leaky_relu(sent[senders] + received[receivers], 0.2)
            weights = segment_softmax(logits, receivers)
            return ops.segment_sum(weights[..., None] * h[senders], receivers, nodes)

    class Network(nn.Module):
        @nn.compact
        def __call__(self, x: Any, senders: Any, receivers: Any) -> Any:
            for _ in range(layers - 1):
                x = nn.elu(Attention(d)(x, senders, receivers)).reshape(nodes, heads * d)
            return Attention(classes)(x, senders, receivers).mean(1)

    model = Network()
    params = L.jax.jit(model.init)(L.random.key(0), x, senders, receivers)

    def loss(params: Any, x: Any, senders: Any, receivers: Any, labels: Any) -> Any:
        logits = model.apply(params, x, senders, receivers)
        return L.optim.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    batch = (x, senders, receivers, labels)
    return _training(L, loss, params, L.optim.adamw(5e-3, weight_decay=5e-4), batch)


def graph_attention_torch(
    torch: Any, device: str, nodes: int, edges: int, features: int, heads: int, d: int,
    layers: int, classes: int,
) -> Callable[[], Any]:  # fmt: skip
    """The same model with scatters and index_add."""
    nn, F = torch.nn, torch.nn.functional
    arrays = _citations(nodes, edges, features, classes)
    x, senders, receivers, labels = (torch.as_tensor(a, device=device).long() for a in arrays)
    x = torch.as_tensor(arrays[0], device=device)

    class Attention(nn.Module):
        def __init__(self, inputs: int, features: int):
            super().__init__()
            self.dense = nn.Linear(inputs, heads * features, bias=False)
            self.sent = nn.Parameter(nn.init.xavier_uniform_(torch.empty(heads, features)))
            self.received = nn.Parameter(nn.init.xavier_uniform_(torch.empty(heads, features)))

        def forward(self, x: Any) -> Any:
            h = self.dense(x).view(nodes, heads, -1)
            sent, received = (h * self.sent).sum(-1), (h * self.received).sum(-1)
            logits = F.leaky_relu(sent[senders] + received[receivers], 0.2)
            places = receivers[:, None].expand_as(logits)
            most = torch.full_like(sent, -math.inf)
            most = most.scatter_reduce(0, places, logits.detach(), "amax")
            weights = torch.exp(logits - most[receivers])
            total = torch.zeros_like(sent).index_add(0, receivers, weights)
            weights = weights / total[receivers]
            return torch.zeros_like(h).index_add(0, receivers, weights[..., None] * h[senders])

    with torch.device(device):
        widths = [features] + [heads * d] * (layers - 1)
        model = nn.ModuleList([Attention(w, d) for w in widths[:-1]])
        model.append(Attention(widths[-1], classes))
    optimizer = torch.optim.AdamW(model.parameters(), 5e-3, weight_decay=5e-4)

    def loss() -> Any:
        h = x
        for layer in model[:-1]:
            h = F.elu(layer(h)).flatten(1)
        return F.cross_entropy(model[-1](h).mean(1), labels)

    return _torch_training(optimizer, loss)


# --------------------------------------------------------------------------------- graph network


def _padded_graphs(graphs: int, nodes: int, edges: int, targets: int) -> tuple[np.ndarray, ...]:
    """Concatenated random graphs; a last graph pads the arrays to a multiple of 256.

    `nodes` and `edges` are the approximate numbers in one graph."""
    random = np.random.RandomState(0)
    n_node = random.randint(nodes // 2, nodes * 3 // 2, graphs)
    n_edge = random.randint(edges // 2, edges * 3 // 2, graphs)
    first, size = np.repeat(np.cumsum(n_node) - n_node, n_edge), np.repeat(n_node, n_edge)
    senders, receivers = (first + (random.rand(len(size)) * size).astype(int) for _ in range(2))
    more_nodes = 256 - n_node.sum() % 256
    more_edges = 256 - n_edge.sum() % 256
    own = np.full(more_edges, n_node.sum())
    whole = [
        np.concatenate(pair).astype("int32")
        for pair in (
            (senders, own), (receivers, own), (n_node, [more_nodes]), (n_edge, [more_edges])
        )
    ]  # fmt: skip
    x = random.randn(whole[2].sum(), 9).astype("f4")
    e = random.randn(whole[3].sum(), 3).astype("f4")
    return x, e, *whole, random.randint(0, 2, (graphs + 1, targets)).astype("f4")


def graph_network(
    L: Any, graphs: int, nodes: int, edges: int, d: int, layers: int, targets: int
) -> Made:
    """Updates edges, nodes and globals of a batch of padded graphs with several labels each."""
    nn, jnp, segment_sum = L.linen, L.jnp, L.ops.segment_sum
    batch = tuple(map(jnp.asarray, _padded_graphs(graphs, nodes, edges, targets)))

    class MLP(nn.Module):
        @nn.compact
        def __call__(self, *parts: Any) -> Any:
            h = nn.relu(nn.Dense(d)(jnp.concatenate(parts, axis=-1)))
            return nn.LayerNorm()(nn.relu(nn.Dense(d)(h)))

    class Network(nn.Module):
        @nn.compact
        def __call__(
            self, x: Any, e: Any, senders: Any, receivers: Any, n_node: Any, n_edge: Any
        ) -> Any:
            n, m, index = x.shape[0], e.shape[0], jnp.arange(graphs + 1)
            node_graph = jnp.repeat(index, n_node, total_repeat_length=n)
            edge_graph = jnp.repeat(index, n_edge, total_repeat_length=m)
            x, e, g = nn.Dense(d)(x), nn.Dense(d)(e), jnp.zeros((graphs + 1, d))
            for _ in range(layers):
                e = e + MLP()(e, x[senders], x[receivers], g[edge_graph])
                sent, received = segment_sum(e, senders, n), segment_sum(e, receivers, n)
                x = x + MLP()(x, sent, received, g[node_graph])
                of_nodes = segment_sum(x, node_graph, graphs + 1)
                of_edges = segment_sum(e, edge_graph, graphs + 1)
                g = g + MLP()(g, of_nodes, of_edges)
            return nn.Dense(targets)(g)

    model = Network()
    params = L.jax.jit(model.init)(L.random.key(0), *batch[:-1])

    def loss(params: Any, *batch: Any) -> Any:
        *graph, labels = batch
        each = L.optim.sigmoid_binary_cross_entropy(model.apply(params, *graph), labels)
        real = jnp.arange(graphs + 1) < graphs
        return jnp.where(real[:, None], each, 0).sum() / (graphs * targets)

    return _training(L, loss, params, L.optim.adam(1e-3), batch)


def graph_network_torch(
    torch: Any, device: str, graphs: int, nodes: int, edges: int, d: int, layers: int, targets: int
) -> Callable[[], Any]:
    """The same model with index_add."""
    nn, F = torch.nn, torch.nn.functional
    arrays = _padded_graphs(graphs, nodes, edges, targets)
    x, e, senders, receivers, n_node, n_edge, labels = (
        torch.as_tensor(a, device=device) for a in arrays
    )

    class MLP(nn.Module):
        def __init__(self, parts: int):
            super().__init__()
            self.layers = nn.Sequential(
                nn.Linear(parts * d, d), nn.ReLU(), nn.Linear(d, d), nn.ReLU(), nn.LayerNorm(d)
            )

        def forward(self, *parts: Any) -> Any:
            return self.layers(torch.cat(parts, -1))

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.nodes, self.edges = nn.Linear(9, d), nn.Linear(3, d)
            layer = lambda: nn.ModuleList([MLP(4), MLP(4), MLP(3)])
            self.layers = nn.ModuleList([layer() for _ in range(layers)])
            self.head = nn.Linear(d, targets)

        def forward(self, x: Any, e: Any) -> Any:
            index = torch.arange(graphs + 1, device=device)
            node_graph = torch.repeat_interleave(index, n_node, output_size=x.shape[0])
            edge_graph = torch.repeat_interleave(index, n_edge, output_size=e.shape[0])
            x, e, g = self.nodes(x), self.edges(e), x.new_zeros(graphs + 1, d)
            total = lambda like, places, values: torch.zeros_like(like).index_add(0, places, values)
            for of_edges, of_nodes, of_graphs in self.layers:
                e = e + of_edges(e, x[senders], x[receivers], g[edge_graph])
                sums = total(x, senders, e), total(x, receivers, e)
                x = x + of_nodes(x, *sums, g[node_graph])
                g = g + of_graphs(g, total(g, node_graph, x), total(g, edge_graph, e))
            return self.head(g)

    with torch.device(device):
        model = Network()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    compare = F.binary_cross_entropy_with_logits
    return _torch_training(optimizer, lambda: compare(model(x, e)[:-1], labels[:-1]))


# ------------------------------------------------------------------------------------- molecules


def _molecules(batch: int, atoms: int) -> tuple[np.ndarray, ...]:
    """Atomic numbers, positions, a mask that is 0 for padding, energies and forces."""
    random = np.random.RandomState(0)
    numbers = random.randint(1, 10, (batch, atoms)).astype("int32")
    positions = (2 * random.randn(batch, atoms, 3)).astype("f4")
    count = random.randint(atoms // 2, atoms + 1, batch)
    mask = (np.arange(atoms) < count[:, None]).astype("f4")
    energies, forces = random.randn(batch).astype("f4"), random.randn(batch, atoms, 3)
    return numbers, positions, mask, energies, (forces * mask[..., None]).astype("f4")


def molecules(
    L: Any, batch: int, atoms: int, d: int, bases: int, layers: int, cutoff: float = 5.0
) -> Made:
    """Predicts energies and forces with continuous filters of distances, vmapped over molecules.

    The forces are derivatives of the energy, so training differentiates twice."""
    nn, jnp, jax = L.linen, L.jnp, L.jax
    softplus = lambda x: nn.softplus(x) - math.log(2.0)

    class Energy(nn.Module):
        """The energy of one molecule."""

        @nn.compact
        def __call__(self, numbers: Any, positions: Any, mask: Any) -> Any:
            pairs = mask[:, None] * mask[None, :] * (1 - jnp.eye(atoms))
            squares = jnp.sum((positions[:, None] - positions[None, :]) ** 2, axis=-1)
            distance = jnp.sqrt(jnp.where(pairs > 0, squares, 1.0))
            centres = jnp.linspace(0.0, cutoff, bases)
            basis = jnp.exp(-10.0 * (distance[..., None] - centres) ** 2)
            near = 0.5 * (jnp.cos(math.pi * distance / cutoff) + 1) * (distance < cutoff) * pairs
            x = nn.Embed(100, d)(numbers)
            for _ in range(layers):
                filters = nn.Dense(d)(softplus(nn.Dense(d)(basis))) * near[..., None]
                h = jnp.einsum("ijd,jd->id", filters, nn.Dense(d, use_bias=False)(x))
                x = x + nn.Dense(d)(softplus(nn.Dense(d)(h)))
            each = nn.Dense(1)(softplus(nn.Dense(d // 2)(x)))[:, 0]
            return jnp.sum(each * mask)

    model = Energy()
    arrays = tuple(map(jnp.asarray, _molecules(batch, atoms)))
    params = jax.jit(model.init)(L.random.key(0), *(a[0] for a in arrays[:3]))
    energy_and_slope = jax.vmap(jax.value_and_grad(model.apply, argnums=2), (None, 0, 0, 0))

    def loss(
        params: Any, numbers: Any, positions: Any, mask: Any, energies: Any, forces: Any
    ) -> Any:
        found, slopes = energy_and_slope(params, numbers, positions, mask)
        errors = ((slopes + forces) ** 2 * mask[..., None]).sum() / (3 * mask.sum())
        return 0.01 * jnp.mean((found - energies) ** 2) + errors

    return _training(L, loss, params, L.optim.adam(5e-4), arrays)


def molecules_torch(
    torch: Any, device: str, batch: int, atoms: int, d: int, bases: int, layers: int,
    cutoff: float = 5.0,
) -> Callable[[], Any]:  # fmt: skip
    """The same model on a batch."""
    nn, F = torch.nn, torch.nn.functional
    numbers, positions, mask, energies, forces = (
        torch.as_tensor(a, device=device) for a in _molecules(batch, atoms)
    )
    positions.requires_grad_()

    class Softplus(nn.Module):
        def forward(self, x: Any) -> Any:
            return F.softplus(x) - math.log(2.0)

    def two(inputs: int, width: int, outputs: int) -> Any:
        return nn.Sequential(nn.Linear(inputs, width), Softplus(), nn.Linear(width, outputs))

    class Energy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.head = nn.Embedding(100, d), two(d, d // 2, 1)
            self.filters = nn.ModuleList([two(bases, d, d) for _ in range(layers)])
            self.inputs = nn.ModuleList([nn.Linear(d, d, bias=False) for _ in range(layers)])
            self.outputs = nn.ModuleList([two(d, d, d) for _ in range(layers)])
            self.register_buffer("centres", torch.linspace(0.0, cutoff, bases))

        def forward(self, positions: Any) -> Any:
            pairs = mask[:, :, None] * mask[:, None, :] * (1 - torch.eye(atoms, device=device))
            squares = ((positions[:, :, None] - positions[:, None, :]) ** 2).sum(-1)
            distance = torch.where(pairs > 0, squares, 1.0).sqrt()
            basis = torch.exp(-10.0 * (distance[..., None] - self.centres) ** 2)
            near = 0.5 * (torch.cos(math.pi * distance / cutoff) + 1) * (distance < cutoff) * pairs
            x = self.embed(numbers)
            for filters, inputs, outputs in zip(self.filters, self.inputs, self.outputs):
                weights = filters(basis) * near[..., None]
                x = x + outputs(torch.einsum("bijd,bjd->bid", weights, inputs(x)))
            return (self.head(x)[..., 0] * mask).sum(-1)

    with torch.device(device):
        model = Energy()

    def loss() -> Any:
        found = model(positions)
        (slopes,) = torch.autograd.grad(found.sum(), positions, create_graph=True)
        errors = ((slopes + forces) ** 2 * mask[..., None]).sum() / (3 * mask.sum())
        return 0.01 * ((found - energies) ** 2).mean() + errors

    return _torch_training(torch.optim.Adam(model.parameters(), 5e-4), loss)


# ----------------------------------------------------------------------- reinforcement learning


def _cart_pole(L: Any) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The functions `reset(key)` and `move(key, state, action)` for a cart with a pole on it.

    A state is an array (position, velocity, angle, angular velocity) and the number of moves. If
    the pole falls, the cart goes too far, or 500 moves have been made, a new episode starts. `move`
    returns the state to continue from, the array that was reached, and whether the episode
    ended."""
    jnp = L.jnp

    def reset(key: Any) -> Any:
        return L.random.uniform(key, (4,), minval=-0.05, maxval=0.05), jnp.zeros((), jnp.int32)

    def move(key: Any, state: Any, action: Any) -> Any:
        (x, speed, angle, spin), moves = state
        push = jnp.where(action == 1, 10.0, -10.0)
        sine, cosine = jnp.sin(angle), jnp.cos(angle)
        pull = (push + 0.05 * spin**2 * sine) / 1.1
        turn = (9.8 * sine - cosine * pull) / (0.5 * (4 / 3 - 0.1 * cosine**2 / 1.1))
        faster = pull - 0.05 * turn * cosine / 1.1
        change = jnp.stack([speed, faster, spin, turn])
        reached, moves = state[0] + 0.02 * change, moves + 1
        done = (jnp.abs(reached[0]) > 2.4) | (jnp.abs(reached[2]) > 0.2095) | (moves >= 500)
        choose = partial(jnp.where, done)
        state = L.jax.tree.map(choose, reset(key), (reached, moves))
        return state, reached, done

    return reset, move


class Acted(NamedTuple):
    """The observations, actions and other records of a rollout."""

    observation: Any
    action: Any
    reward: Any
    done: Any
    value: Any
    logp: Any


def ppo(
    L: Any, environments: int, length: int, epochs: int, minibatches: int, width: int
) -> Made:  # fmt: skip
    """Proximal policy optimization on cart-pole: a rollout, advantages, epochs of minibatches."""
    jax, jnp, lax, random, nn = L.jax, L.jnp, L.lax, L.random, L.linen
    reset, move = _cart_pole(L)
    orthogonal = nn.initializers.orthogonal

    class ActorCritic(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            def head(outputs: int, scale: float) -> Any:
                h = x
                for _ in range(2):
                    h = nn.tanh(nn.Dense(width, kernel_init=orthogonal(math.sqrt(2)))(h))
                return nn.Dense(outputs, kernel_init=orthogonal(scale))(h)

            return head(2, 0.01), head(1, 1.0)[..., 0]

    model = ActorCritic()
    optimizer = L.optim.chain(L.optim.clip_by_global_norm(0.5), L.optim.adam(2.5e-4, eps=1e-5))

    def logp_of(logits: Any, action: Any) -> Any:
        return jnp.take_along_axis(L.nn.log_softmax(logits), action[:, None], axis=1)[:, 0]

    def loss(params: Any, seen: Acted, advantages: Any, returns: Any) -> Any:
        logits, values = model.apply(params, seen.observation)
        ratio = jnp.exp(logp_of(logits, seen.action) - seen.logp)
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        clipped = jnp.clip(ratio, 0.8, 1.2) * advantages
        actor = -jnp.minimum(ratio * advantages, clipped).mean()
        near = seen.value + jnp.clip(values - seen.value, -0.2, 0.2)
        critic = jnp.maximum((values - returns) ** 2, (near - returns) ** 2).mean()
        entropy = -(L.nn.softmax(logits) * L.nn.log_softmax(logits)).sum(-1).mean()
        return actor + 0.25 * critic - 0.01 * entropy

    def train(state: Any, minibatch: Any) -> Any:
        params, opt = state
        value, grads = jax.value_and_grad(loss)(params, *minibatch)
        updates, opt = optimizer.update(grads, opt)
        return (L.optim.apply_updates(params, updates), opt), value

    def step(state: Any) -> Any:
        params, opt, poles, key = state
        key, acting, shuffling = random.split(key, 3)

        def act(poles: Any, key: Any) -> Any:
            choosing, falling = random.split(key)
            logits, value = model.apply(params, poles[0])
            action = random.categorical(choosing, logits)
            keys = random.split(falling, environments)
            after, _, done = jax.vmap(move)(keys, poles, action)
            reward = jnp.ones(environments)
            seen = Acted(poles[0], action, reward, done, value, logp_of(logits, action))
            return after, seen

        def advantage(carry: Any, seen: Acted) -> Any:
            later, next_value = carry
            goes_on = 1 - seen.done
            error = seen.reward + 0.99 * next_value * goes_on - seen.value
            later = error + 0.99 * 0.95 * goes_on * later
            return (later, seen.value), later

        def epoch(state: Any, key: Any) -> Any:
            order = random.permutation(key, environments * length)
            shuffled = jax.tree.map(lambda a: a[order].reshape(minibatches, -1, *a.shape[1:]), flat)
            return lax.scan(train, state, shuffled)

        poles, seen = lax.scan(act, poles, random.split(acting, length))
        _, last = model.apply(params, poles[0])
        start = jnp.zeros_like(last), last
        _, advantages = lax.scan(advantage, start, seen, reverse=True)
        rollout = seen, advantages, advantages + seen.value
        flat = jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), rollout)
        keys = random.split(shuffling, epochs)
        (params, opt), losses = lax.scan(epoch, (params, opt), keys)
        return (params, opt, poles, key), losses.mean()

    key, first = random.split(random.key(0))
    params = jax.jit(model.init)(key, jnp.zeros(4))
    poles = jax.vmap(reset)(random.split(first, environments))
    return Made(step, (params, optimizer.init(params), poles, key), ())


class Experience(NamedTuple):
    """A transition that is stored in the replay buffer."""

    observation: Any
    action: Any
    reward: Any
    reached: Any
    done: Any


def dqn(
    L: Any, environments: int, capacity: int, updates: int, batch: int, width: int
) -> Made:  # fmt: skip
    """Deep Q-learning on cart-pole with a replay buffer and a target network; several updates."""
    jax, jnp, lax, random, nn = L.jax, L.jnp, L.lax, L.random, L.linen
    reset, move = _cart_pole(L)
    model = nn.Sequential([nn.Dense(width), nn.relu, nn.Dense(width), nn.relu, nn.Dense(2)])
    optimizer = L.optim.adam(1e-3)
    exploration = L.optim.linear_schedule(1.0, 0.05, 1000)

    def loss(params: Any, target: Any, seen: Experience) -> Any:
        values = model.apply(params, seen.observation)
        value = jnp.take_along_axis(values, seen.action[:, None], axis=1)[:, 0]
        later = model.apply(target, seen.reached).max(axis=-1)
        wanted = seen.reward + 0.99 * (1 - seen.done) * later
        return L.optim.huber_loss(value, lax.stop_gradient(wanted)).mean()

    def update(state: Any, key: Any) -> Any:
        params, target, opt, poles, buffer, count = state
        exploring, choosing, falling, sampling = random.split(key, 4)
        best = model.apply(params, poles[0]).argmax(axis=-1)
        other = random.randint(choosing, (environments,), 0, 2)
        explores = random.uniform(exploring, (environments,)) < exploration(count)
        action = jnp.where(explores, other, best)
        before = poles[0]
        keys = random.split(falling, environments)
        poles, reached, done = jax.vmap(move)(keys, poles, action)
        new = Experience(before, action, jnp.ones(environments), reached, done)
        place = count * environments % capacity
        write = lambda kept, x: lax.dynamic_update_slice_in_dim(kept, x, place, axis=0)
        buffer = jax.tree.map(write, buffer, new)
        count = count + 1
        filled = jnp.minimum(count * environments, capacity)
        rows = random.randint(sampling, (batch,), 0, filled)
        seen = jax.tree.map(lambda kept: kept[rows], buffer)
        value, grads = jax.value_and_grad(loss)(params, target, seen)
        changes, opt = optimizer.update(grads, opt)
        params = L.optim.apply_updates(params, changes)
        target = L.optim.periodic_update(params, target, count, 50)
        return (params, target, opt, poles, buffer, count), value

    def step(state: Any) -> Any:
        *rest, key = state
        key, now = random.split(key)
        rest, losses = lax.scan(update, tuple(rest), random.split(now, updates))
        return (*rest, key), losses.mean()

    key, first = random.split(random.key(0))
    params = jax.jit(model.init)(key, jnp.zeros(4))
    target = jax.tree.map(jnp.copy, params)
    poles = jax.vmap(reset)(random.split(first, environments))
    buffer = Experience(
        jnp.zeros((capacity, 4)), jnp.zeros(capacity, jnp.int32), jnp.zeros(capacity),
        jnp.zeros((capacity, 4)), jnp.zeros(capacity, bool),
    )  # fmt: skip
    count = jnp.zeros((), jnp.int32)
    return Made(step, (params, target, optimizer.init(params), poles, buffer, count, key), ())


# --------------------------------------------------------------------------- many small parameters


def _patches(batch: int, patches: int) -> tuple[np.ndarray, np.ndarray]:
    """Images as patches of 48 numbers, and labels."""
    random = np.random.RandomState(0)
    x = random.randn(batch, patches, 48).astype("f4")
    return x, random.randint(0, 10, batch).astype("int32")


def mixer(L: Any, batch: int, patches: int, d: int, blocks: int) -> Made:
    """Many small blocks with 12 parameters each, which mix patches, then channels; clipped
    AdamW."""
    nn, jnp, optim = L.linen, L.jnp, L.optim

    class Block(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            h = jnp.swapaxes(nn.LayerNorm()(x), 1, 2)
            h = nn.Dense(patches)(nn.gelu(nn.Dense(d)(h)))
            x = x + jnp.swapaxes(h, 1, 2)
            h = nn.gelu(nn.Dense(2 * d)(nn.LayerNorm()(x)))
            return x + nn.Dense(d)(h)

    class Mixer(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            x = nn.Dense(d)(x)
            for _ in range(blocks):
                x = Block()(x)
            return nn.Dense(10)(nn.LayerNorm()(x).mean(axis=1))

    model = Mixer()
    x, labels = map(jnp.asarray, _patches(batch, patches))
    params = L.jax.jit(model.init)(L.random.key(0), x)
    matrices = lambda params: L.jax.tree.map(lambda p: p.ndim > 1, params)
    rate = optim.cosine_decay_schedule(1e-3, 10_000)
    decaying = optim.adamw(rate, weight_decay=0.05, mask=matrices)
    optimizer = optim.chain(optim.clip_by_global_norm(1.0), decaying)

    def loss(params: Any, x: Any, labels: Any) -> Any:
        logits = model.apply(params, x)
        return optim.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    return _training(L, loss, params, optimizer, (x, labels))


def mixer_torch(
    torch: Any, device: str, batch: int, patches: int, d: int, blocks: int
) -> Callable[[], Any]:
    """The same."""
    nn, F = torch.nn, torch.nn.functional
    x, labels = (torch.as_tensor(a, device=device) for a in _patches(batch, patches))
    labels = labels.long()

    def two(outer: int, inner: int) -> Any:
        return nn.Sequential(nn.Linear(outer, inner), nn.GELU("tanh"), nn.Linear(inner, outer))

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.patches, self.channels = two(patches, d), two(d, 2 * d)
            self.norms = nn.ModuleList([nn.LayerNorm(d), nn.LayerNorm(d)])

        def forward(self, x: Any) -> Any:
            x = x + self.patches(self.norms[0](x).transpose(1, 2)).transpose(1, 2)
            return x + self.channels(self.norms[1](x))

    with torch.device(device):
        body = nn.Sequential(nn.Linear(48, d), *(Block() for _ in range(blocks)), nn.LayerNorm(d))
        head = nn.Linear(d, 10)
    params = [*body.parameters(), *head.parameters()]
    groups = [
        {"params": [p for p in params if p.ndim > 1], "weight_decay": 0.05},
        {"params": [p for p in params if p.ndim < 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, 1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10_000)

    def once() -> Any:
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(head(body(x).mean(1)), labels)
        loss.backward()
        nn.utils.clip_grad_norm_(params, 1.0)
        optimizer.step()
        schedule.step()
        return loss.detach()

    return once


# -------------------------------------------------------------------------------- small integers


def _layers(width: int, layers: int, outputs: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Weights and biases of an MLP whose inputs and hidden layers have the same width."""
    random = np.random.RandomState(0)
    shapes = [(width, width)] * (layers - 1) + [(width, outputs)]
    scale = math.sqrt(2 / width)
    return [
        ((scale * random.randn(*s)).astype("f4"), (0.1 * random.randn(s[1])).astype("f4"))
        for s in shapes
    ]


def quantised_inference(L: Any, batch: int, width: int, layers: int) -> Made:
    """An MLP with int8 weights and a scale for each output; activations are quantized row by
    row."""
    jnp, lax = L.jnp, L.lax

    def quantise(x: Any, axis: int) -> Any:
        scale = jnp.maximum(jnp.max(jnp.abs(x), axis=axis, keepdims=True), 1e-8) / 127
        return jnp.round(x / scale).astype(jnp.int8), scale

    def step(params: Any, x: Any) -> Any:
        for i, (weights, scale, bias) in enumerate(params):
            x = L.nn.relu(x) if i else x
            small, row_scale = quantise(x, 1)
            dimensions = (((1,), (0,)), ((), ()))
            x = lax.dot_general(small, weights, dimensions, preferred_element_type=jnp.int32)
            x = x.astype(jnp.float32) * row_scale * scale + bias
        return params, L.nn.softmax(x).mean(axis=0)

    made = _layers(width, layers, 16)
    params = [(*quantise(jnp.asarray(w), 0), jnp.asarray(bias)) for w, bias in made]
    x = np.random.RandomState(1).randn(batch, width).astype("f4")
    return Made(step, params, (jnp.asarray(x),))


def quantised_inference_torch(
    torch: Any, device: str, batch: int, width: int, layers: int
) -> Callable[[], Any]:
    """The same model with PyTorch's int8 matrix product, which works on the CPU and on GPUs."""

    def quantise(x: Any) -> Any:
        scale = x.abs().amax(1, keepdim=True).clamp_min(1e-8) / 127
        return torch.round(x / scale).to(torch.int8), scale

    params = []
    for weights, bias in _layers(width, layers, 16):
        small, scale = quantise(torch.as_tensor(weights.T.copy(), device=device))
        params.append((small.t(), scale.t(), torch.as_tensor(bias, device=device)))
    x = torch.as_tensor(np.random.RandomState(1).randn(batch, width).astype("f4"), device=device)

    @torch.no_grad()
    def once() -> Any:
        h = x
        for i, (weights, scale, bias) in enumerate(params):
            small, row_scale = quantise(torch.relu(h) if i else h)
            h = torch._int_mm(small, weights) * row_scale * scale + bias
        return torch.softmax(h, 1).mean(0)

    return once


def _digits(batch: int) -> tuple[np.ndarray, np.ndarray]:
    """Images of 784 numbers, and labels."""
    random = np.random.RandomState(0)
    return random.rand(batch, 784).astype("f4"), random.randint(0, 10, batch).astype("int32")


def quantised_training(L: Any, batch: int, width: int, layers: int) -> Made:
    """Trains an MLP with simulated int8 arithmetic; gradients pass through the rounding
    unchanged."""
    nn, jnp, stop_gradient = L.linen, L.jnp, L.lax.stop_gradient

    def rounded(x: Any, axis: int | None) -> Any:
        largest = stop_gradient(jnp.max(jnp.abs(x), axis=axis, keepdims=True))
        scale = jnp.maximum(largest, 1e-8) / 127
        return x + stop_gradient(jnp.round(x / scale) * scale - x)

    class RoundedDense(nn.Module):
        features: int

        @nn.compact
        def __call__(self, x: Any) -> Any:
            shape = (x.shape[-1], self.features)
            kernel = self.param("kernel", nn.initializers.lecun_normal(), shape)
            bias = self.param("bias", nn.initializers.zeros, (self.features,))
            return rounded(x, None) @ rounded(kernel, 0) + bias

    class MLP(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            for _ in range(layers - 1):
                x = nn.relu(RoundedDense(width)(x))
            return RoundedDense(10)(x)

    model = MLP()
    x, labels = map(jnp.asarray, _digits(batch))
    params = L.jax.jit(model.init)(L.random.key(0), x)

    def loss(params: Any, x: Any, labels: Any) -> Any:
        logits = model.apply(params, x)
        return L.optim.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    return _training(L, loss, params, L.optim.sgd(0.05, momentum=0.9), (x, labels))


def quantised_training_torch(
    torch: Any, device: str, batch: int, width: int, layers: int
) -> Callable[[], Any]:
    """The same model with PyTorch's fake quantization."""
    nn, F = torch.nn, torch.nn.functional
    x, labels = (torch.as_tensor(a, device=device) for a in _digits(batch))
    labels = labels.long()

    class RoundedLinear(nn.Linear):
        def __init__(self, inputs: int, outputs: int):
            super().__init__(inputs, outputs)
            self.register_buffer("zeros", torch.zeros(outputs, dtype=torch.int32))

        def forward(self, x: Any) -> Any:
            scale = x.detach().abs().amax().clamp_min(1e-8) / 127
            scales = self.weight.detach().abs().amax(1).clamp_min(1e-8) / 127
            x = torch.fake_quantize_per_tensor_affine(x, scale, self.zeros[0], -127, 127)
            weight = torch.fake_quantize_per_channel_affine(
                self.weight, scales, self.zeros, 0, -127, 127
            )
            return F.linear(x, weight, self.bias)

    with torch.device(device):
        parts: list[Any] = []
        for i in range(layers - 1):
            parts += [RoundedLinear(width if i else 784, width), nn.ReLU()]
        model = nn.Sequential(*parts, RoundedLinear(width, 10))
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    return _torch_training(optimizer, lambda: F.cross_entropy(model(x), labels))


PROGRAMS = (
    Program(
        "recommender",
        recommender,
        {
            "tiny": {"batch": 16, "dense": 13, "tables": 3, "rows": 100, "d": 8, "width": 16},
            "cpu": {"batch": 512, "dense": 13, "tables": 8, "rows": 20_000, "d": 32, "width": 256},
            "gpu": {
                "batch": 8192, "dense": 13, "tables": 26, "rows": 200_000, "d": 128, "width": 1024,
            },
        },
        recommender_torch,
    ),
    Program(
        "graph attention",
        graph_attention,
        {
            "tiny": {
                "nodes": 30, "edges": 100, "features": 8, "heads": 2, "d": 4, "layers": 2,
                "classes": 5,
            },
            "cpu": {
                "nodes": 4000, "edges": 30_000, "features": 128, "heads": 4, "d": 16, "layers": 2,
                "classes": 8,
            },
            "gpu": {
                "nodes": 170_000, "edges": 1_200_000, "features": 128, "heads": 4, "d": 32,
                "layers": 3, "classes": 40,
            },
        },
        graph_attention_torch,
    ),
    Program(
        "graph network",
        graph_network,
        {
            "tiny": {
                "graphs": 4, "nodes": 6, "edges": 12, "d": 8, "layers": 1, "targets": 3,
            },
            "cpu": {
                "graphs": 64, "nodes": 25, "edges": 56, "d": 64, "layers": 3, "targets": 16,
            },
            "gpu": {
                "graphs": 1024, "nodes": 25, "edges": 56, "d": 256, "layers": 5, "targets": 128,
            },
        },
        graph_network_torch,
    ),
    Program(
        "molecules",
        molecules,
        {
            "tiny": {"batch": 2, "atoms": 5, "d": 8, "bases": 6, "layers": 1},
            "cpu": {"batch": 16, "atoms": 20, "d": 64, "bases": 32, "layers": 3},
            "gpu": {"batch": 256, "atoms": 24, "d": 128, "bases": 64, "layers": 6},
        },
        molecules_torch,
    ),
    # No natural equivalent: with PyTorch, environments usually run in Python or in other processes.
    Program(
        "ppo",
        ppo,
        {
            "tiny": {"environments": 4, "length": 8, "epochs": 2, "minibatches": 2, "width": 8},
            "cpu": {"environments": 16, "length": 128, "epochs": 4, "minibatches": 4, "width": 64},
            "gpu": {
                "environments": 2048, "length": 128, "epochs": 4, "minibatches": 8, "width": 256,
            },
        },
    ),
    # The same as above.
    Program(
        "dqn",
        dqn,
        {
            "tiny": {"environments": 4, "capacity": 64, "updates": 3, "batch": 8, "width": 8},
            "cpu": {
                "environments": 8, "capacity": 100_000, "updates": 32, "batch": 128, "width": 128,
            },
            "gpu": {
                "environments": 64, "capacity": 1_024_000, "updates": 64, "batch": 1024,
                "width": 512,
            },
        },
    ),
    Program(
        "mixer",
        mixer,
        {
            "tiny": {"batch": 4, "patches": 4, "d": 8, "blocks": 1},
            "cpu": {"batch": 16, "patches": 16, "d": 32, "blocks": 24},
            "gpu": {"batch": 64, "patches": 64, "d": 64, "blocks": 48},
        },
        mixer_torch,
    ),
    Program(
        "quantised inference",
        quantised_inference,
        {
            "tiny": {"batch": 32, "width": 64, "layers": 2},
            "cpu": {"batch": 256, "width": 1024, "layers": 4},
            "gpu": {"batch": 4096, "width": 4096, "layers": 12},
        },
        quantised_inference_torch,
    ),
    Program(
        "quantised training",
        quantised_training,
        {
            "tiny": {"batch": 8, "width": 16, "layers": 3},
            "cpu": {"batch": 256, "width": 1024, "layers": 4},
            "gpu": {"batch": 8192, "width": 4096, "layers": 6},
        },
        quantised_training_torch,
    ),
)  # fmt: skip
