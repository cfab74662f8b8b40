"""Programs on text: encoders, decoders, mixtures of experts, translation, generation, recurrences.

The tokens are random. Networks that generate text have random parameters too. Their steps take as
long as those of trained networks, but they hardly ever generate the end token.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.zoo import Made, Program

PADDING, END, MASK = 0, 1, 2
FIRST = 3  # the first token that represents a word


def _tokens(L: Any, *shape: int, vocab: int) -> Any:
    """Random words."""
    return L.jnp.asarray(np.random.RandomState(0).randint(FIRST, vocab, shape))


def _train(L: Any, params: Any, optimizer: Any, loss: Callable[..., Any], *batch: Any) -> Made:
    """A training step for `loss(params, *batch)`."""

    def step(state: Any, *batch: Any) -> Any:
        params, opt_state = state
        value, grads = L.jax.value_and_grad(loss)(params, *batch)
        updates, opt_state = optimizer.update(grads, opt_state, params)
        return (L.optim.apply_updates(params, updates), opt_state), value

    return Made(step, (params, optimizer.init(params)), batch)


def _next_token_loss(L: Any, logits: Any, tokens: Any) -> Any:
    """The mean cross-entropy of predicting each token from the tokens before it."""
    logits = logits[:, :-1].astype(L.jnp.float32)
    return L.optim.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()


def _clipped_adamw(L: Any, rate: float = 3e-4) -> Any:
    """AdamW on gradients whose norm is at most 1."""
    optim = L.optim
    return optim.chain(optim.clip_by_global_norm(1.0), optim.adamw(rate, weight_decay=0.1))


def _torch_train(
    torch: Any, device: Any, model: Any, loss: Callable[[], Any], dtype: str = "float32",
    rate: float = 3e-4, decay: float = 0.1, clip: float | None = 1.0,
) -> Callable[[], Any]:  # fmt: skip
    """A training step for `loss()` with AdamW, in PyTorch."""
    optimizer = torch.optim.AdamW(model.parameters(), rate, weight_decay=decay)
    narrow, kind = dtype == "bfloat16", torch.device(device).type

    def once() -> Any:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(kind, torch.bfloat16, enabled=narrow):
            value = loss()
        value.backward()
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        return value.detach()

    return once


def _torch_next_token_loss(torch: Any, logits: Any, tokens: Any) -> Any:
    """The mean cross-entropy of predicting each token from the tokens before it, in PyTorch."""
    logits, labels = logits[:, :-1].float(), tokens[:, 1:]
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


def _torch_attention(torch: Any) -> Any:
    """The class of causal self-attention layers, in PyTorch."""
    nn, F = torch.nn, torch.nn.functional

    class Attention(nn.Module):
        def __init__(self, d: int, heads: int):
            super().__init__()
            self.heads = heads
            self.inputs, self.outputs = nn.Linear(d, 3 * d), nn.Linear(d, d)

        def forward(self, x: Any) -> Any:
            split = self.inputs(x).unflatten(-1, (3, self.heads, -1))
            q, k, v = split.permute(2, 0, 3, 1, 4)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.outputs(y.transpose(1, 2).flatten(2))

    return Attention


# ----------------------------------------------------------------------------------------- encoder


def _masked(batch: int, seq: int, vocab: int) -> tuple[np.ndarray, ...]:
    """Padded sentences with hidden words, the original words, and a mask of the hidden words."""
    random = np.random.RandomState(0)
    words = random.randint(FIRST, vocab, (batch, seq))
    lengths = random.randint(seq // 2, seq + 1, (batch, 1))
    words = np.where(np.arange(seq) < lengths, words, PADDING)
    hidden = (random.rand(batch, seq) < 0.15) & (words != PADDING)
    return np.where(hidden, MASK, words), words, hidden.astype("f4")


def bert(
    L: Any, batch: int, seq: int, d: int, layers: int, heads: int, vocab: int,
    dtype: str = "float32",
) -> Made:  # fmt: skip
    """Training an encoder to predict hidden words, with padding and dropout."""
    nn, jnp, optim = L.linen, L.jnp, L.optim
    dt = getattr(jnp, dtype)
    dense, norm = partial(nn.Dense, dtype=dt), partial(nn.LayerNorm, dtype=dt)

    class Layer(nn.Module):
        @nn.compact
        def __call__(self, x: Any, mask: Any, train: bool) -> Any:
            attention = nn.MultiHeadDotProductAttention(
                heads, dtype=dt, dropout_rate=0.1, deterministic=not train
            )
            drop = partial(nn.Dropout, 0.1, deterministic=not train)
            x = norm()(x + drop()(attention(x, mask=mask)))
            y = dense(d)(nn.gelu(dense(4 * d)(x), approximate=False))
            return norm()(x + drop()(y))

    class Encoder(nn.Module):
        @nn.compact
        def __call__(self, tokens: Any, train: bool) -> Any:
            embed = nn.Embed(vocab, d, dtype=dt)
            x = embed(tokens) + nn.Embed(seq, d, dtype=dt)(jnp.arange(seq))
            x = nn.Dropout(0.1, deterministic=not train)(norm()(x))
            mask = nn.make_attention_mask(tokens != PADDING, tokens != PADDING)
            for _ in range(layers):
                x = Layer()(x, mask, train)
            x = embed.attend(norm()(nn.gelu(dense(d)(x), approximate=False)))
            return x.astype(jnp.float32) + self.param("bias", nn.initializers.zeros, (vocab,))

    model = Encoder()
    optimizer = optim.adamw(optim.warmup_cosine_decay_schedule(1e-5, 1e-4, 100, 10_000))

    def loss(params: Any, key: Any, tokens: Any, words: Any, hidden: Any) -> Any:
        logits = model.apply({"params": params}, tokens, True, rngs={"dropout": key})
        losses = optim.softmax_cross_entropy_with_integer_labels(logits, words)
        return (losses * hidden).sum() / hidden.sum()

    def step(state: Any, *batch: Any) -> Any:
        params, opt_state, key = state
        key, dropout = L.random.split(key)
        value, grads = L.jax.value_and_grad(loss)(params, dropout, *batch)
        updates, opt_state = optimizer.update(grads, opt_state, params)
        return (optim.apply_updates(params, updates), opt_state, key), value

    data = tuple(jnp.asarray(a) for a in _masked(batch, seq, vocab))
    init = L.jax.jit(partial(model.init, train=False))
    params = init(L.random.key(0), data[0])["params"]
    return Made(step, (params, optimizer.init(params), L.random.key(1)), data)


def bert_torch(
    torch: Any, device: Any, batch: int, seq: int, d: int, layers: int, heads: int, vocab: int,
    dtype: str = "float32",
) -> Callable[[], Any]:  # fmt: skip
    """Training an encoder to predict hidden words."""
    nn, F = torch.nn, torch.nn.functional

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.positions = nn.Embedding(vocab, d), nn.Embedding(seq, d)
            nn.init.normal_(self.embed.weight, std=0.02)
            self.start = nn.Sequential(nn.LayerNorm(d), nn.Dropout(0.1))
            layer = nn.TransformerEncoderLayer(d, heads, 4 * d, 0.1, "gelu", batch_first=True)
            self.layers = nn.TransformerEncoder(layer, layers)
            self.end = nn.Sequential(nn.Linear(d, d), nn.GELU(), nn.LayerNorm(d))
            self.bias = nn.Parameter(torch.zeros(vocab))

        def forward(self, tokens: Any) -> Any:
            x = self.start(self.embed(tokens) + self.positions.weight)
            x = self.layers(x, src_key_padding_mask=tokens == PADDING)
            return F.linear(self.end(x), self.embed.weight, self.bias)

    with torch.device(device):
        model = Encoder()
    tokens, words, hidden = (torch.from_numpy(a).to(device) for a in _masked(batch, seq, vocab))

    def loss() -> Any:
        logits = model(tokens).flatten(0, 1).float()
        losses = F.cross_entropy(logits, words.flatten(), reduction="none")
        return (losses * hidden.flatten()).sum() / hidden.sum()

    return _torch_train(torch, device, model, loss, dtype, 1e-4, 1e-4, None)


# ----------------------------------------------------------------------------------------- decoder


def rotary_decoder(
    L: Any, batch: int, seq: int, d: int, layers: int, heads: int, groups: int, hidden: int,
    vocab: int, dtype: str = "float32",
) -> Made:  # fmt: skip
    """Training a decoder with rotary positions and grouped-query attention; the layers are a
    scan."""
    nn, jnp = L.linen, L.jnp
    dt = getattr(jnp, dtype)
    dense = partial(nn.DenseGeneral, use_bias=False, dtype=dt)
    norm = partial(nn.RMSNorm, dtype=dt)

    def rotary(x: Any) -> Any:
        half = x.shape[-1] // 2
        angles = jnp.arange(x.shape[1])[:, None] * 10_000.0 ** (-jnp.arange(half) / half)
        sin, cos = jnp.sin(angles)[:, None], jnp.cos(angles)[:, None]
        a, b = jnp.split(x, 2, axis=-1)
        return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1).astype(x.dtype)

    class Block(nn.Module):
        @nn.compact
        def __call__(self, x: Any, _: None) -> Any:
            y = norm()(x)
            q = rotary(dense((heads, d // heads), name="query")(y))
            k = rotary(dense((groups, d // heads), name="key")(y))
            v = dense((groups, d // heads), name="value")(y)
            y = L.nn.dot_product_attention(q, k, v, is_causal=True)
            x = x + dense(d, axis=(-2, -1), name="out")(y)
            y = norm()(x)
            y = nn.silu(dense(hidden, name="gate")(y)) * dense(hidden, name="up")(y)
            return x + dense(d, name="down")(y), None

    class Decoder(nn.Module):
        @nn.compact
        def __call__(self, tokens: Any) -> Any:
            x = nn.Embed(vocab, d, dtype=dt)(tokens)
            stack = nn.scan(
                nn.remat(Block, prevent_cse=False), variable_axes={"params": 0},
                split_rngs={"params": True}, length=layers,
            )  # fmt: skip
            x, _ = stack(name="layers")(x, None)
            return dense(vocab, name="head")(norm()(x))

    model, tokens = Decoder(), _tokens(L, batch, seq, vocab=vocab)
    params = L.jax.jit(model.init)(L.random.key(0), tokens)
    loss = lambda params, tokens: _next_token_loss(L, model.apply(params, tokens), tokens)
    return _train(L, params, _clipped_adamw(L), loss, tokens)


def rotary_decoder_torch(
    torch: Any, device: Any, batch: int, seq: int, d: int, layers: int, heads: int, groups: int,
    hidden: int, vocab: int, dtype: str = "float32",
) -> Callable[[], Any]:  # fmt: skip
    """Training a decoder with rotary positions and checkpointed layers."""
    nn, F = torch.nn, torch.nn.functional
    from torch.utils.checkpoint import checkpoint

    half = d // heads // 2
    dense = partial(nn.Linear, bias=False)

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norms = nn.ModuleList([nn.RMSNorm(d, 1e-6), nn.RMSNorm(d, 1e-6)])
            self.query, self.out = dense(d, d), dense(d, d)
            self.key, self.value = dense(d, 2 * half * groups), dense(d, 2 * half * groups)
            self.gate, self.up, self.down = dense(d, hidden), dense(d, hidden), dense(hidden, d)

        def forward(self, x: Any, cos: Any, sin: Any) -> Any:
            def rotary(x: Any) -> Any:
                a, b = x.chunk(2, -1)
                return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).to(x.dtype)

            y = self.norms[0](x)
            inputs = (self.query, self.key, self.value)
            q, k, v = (f(y).unflatten(-1, (-1, 2 * half)).transpose(1, 2) for f in inputs)
            y = F.scaled_dot_product_attention(
                rotary(q), rotary(k), v, is_causal=True, enable_gqa=True
            )
            x = x + self.out(y.transpose(1, 2).flatten(2))
            y = self.norms[1](x)
            return x + self.down(F.silu(self.gate(y)) * self.up(y))

    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.head = nn.Embedding(vocab, d), dense(d, vocab)
            self.layers = nn.ModuleList([Block() for _ in range(layers)])
            self.norm = nn.RMSNorm(d, 1e-6)
            angles = torch.arange(seq)[:, None] * 10_000.0 ** (-torch.arange(half) / half)
            self.cos, self.sin = angles.cos(), angles.sin()

        def forward(self, tokens: Any) -> Any:
            x = self.embed(tokens)
            for layer in self.layers:
                x = checkpoint(layer, x, self.cos, self.sin, use_reentrant=False)
            return self.head(self.norm(x))

    with torch.device(device):
        model, tokens = Decoder(), torch.randint(FIRST, vocab, (batch, seq))
    loss = lambda: _torch_next_token_loss(torch, model(tokens), tokens)
    return _torch_train(torch, device, model, loss, dtype)


# ------------------------------------------------------------------------------ mixture of experts


def mixture_of_experts(
    L: Any, batch: int, seq: int, d: int, layers: int, heads: int, experts: int, vocab: int,
    dtype: str = "float32",
) -> Made:  # fmt: skip
    """Training a decoder in which each token goes to two experts, as long as they have free
    slots."""
    nn, jnp = L.linen, L.jnp
    dt = getattr(jnp, dtype)
    capacity = int(1.25 * 2 * seq / experts)

    class Experts(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            gates = nn.softmax(nn.Dense(experts, use_bias=False)(x.astype(jnp.float32)))
            weights, chosen = L.lax.top_k(gates, 2)
            weights = weights / weights.sum(axis=-1, keepdims=True)
            chosen = L.nn.one_hot(chosen, experts, dtype=jnp.int32)  # [batch, seq, 2, experts]
            density = chosen[:, :, 0].astype(jnp.float32).mean(axis=(0, 1))
            balance = experts * jnp.sum(density * gates.mean(axis=(0, 1)))
            self.sow("losses", "balance", balance)

            # All first choices get their slots before the second choices.
            order = chosen.swapaxes(1, 2).reshape(batch, 2 * seq, experts)
            place = (jnp.cumsum(order, axis=1) - 1).reshape(batch, 2, seq, experts).swapaxes(1, 2)
            slots = L.nn.one_hot(place, capacity) * chosen[..., None]
            combine = jnp.einsum("bsk,bskec->bsec", weights, slots)
            dispatch = (combine > 0).astype(dt)

            init = nn.initializers.lecun_normal(batch_axis=0)
            up = self.param("up", init, (experts, d, 4 * d)).astype(dt)
            down = self.param("down", init, (experts, 4 * d, d)).astype(dt)
            y = jnp.einsum("bsec,bsd->ebcd", dispatch, x)
            y = nn.gelu(jnp.einsum("ebcd,edh->ebch", y, up))
            y = jnp.einsum("ebch,ehd->ebcd", y, down)
            return jnp.einsum("bsec,ebcd->bsd", combine.astype(dt), y)

    class Decoder(nn.Module):
        @nn.compact
        def __call__(self, tokens: Any) -> Any:
            x = nn.Embed(vocab, d, dtype=dt)(tokens)
            mask = nn.make_causal_mask(tokens)
            for _ in range(layers):
                attention = nn.MultiHeadDotProductAttention(heads, dtype=dt)
                x = x + attention(nn.LayerNorm(dtype=dt)(x), mask=mask)
                x = x + Experts()(nn.LayerNorm(dtype=dt)(x))
            return nn.Dense(vocab, dtype=dt)(nn.LayerNorm(dtype=dt)(x))

    model, tokens = Decoder(), _tokens(L, batch, seq, vocab=vocab)
    params = L.jax.jit(model.init)(L.random.key(0), tokens)["params"]

    def loss(params: Any, tokens: Any) -> Any:
        logits, sown = model.apply({"params": params}, tokens, mutable=["losses"])
        return _next_token_loss(L, logits, tokens) + 0.01 * sum(L.jax.tree.leaves(sown["losses"]))

    return _train(L, params, _clipped_adamw(L), loss, tokens)


def mixture_of_experts_torch(
    torch: Any, device: Any, batch: int, seq: int, d: int, layers: int, heads: int, experts: int,
    vocab: int, dtype: str = "float32",
) -> Callable[[], Any]:  # fmt: skip
    """The same model, but a loop over the experts gathers any number of tokens for each expert."""
    nn, F, Attention = torch.nn, torch.nn.functional, _torch_attention(torch)

    class Experts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.router = nn.Linear(d, experts, bias=False)
            mlp = lambda: nn.Sequential(
                nn.Linear(d, 4 * d, False), nn.GELU("tanh"), nn.Linear(4 * d, d, False)
            )
            self.experts = nn.ModuleList([mlp() for _ in range(experts)])

        def forward(self, x: Any) -> Any:
            x = x.flatten(0, 1)
            gates = self.router(x).float().softmax(-1)
            weights, chosen = gates.topk(2)
            weights = weights / weights.sum(-1, keepdim=True)
            y = torch.zeros_like(x)
            for i, expert in enumerate(self.experts):
                row, choice = torch.where(chosen == i)
                y.index_add_(0, row, (expert(x[row]) * weights[row, choice, None]).to(y.dtype))
            density = F.one_hot(chosen[:, 0], experts).float().mean(0)
            return y.view(batch, seq, d), experts * (density * gates.mean(0)).sum()

    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(vocab, d)
            self.norms = nn.ModuleList([nn.LayerNorm(d) for _ in range(2 * layers)])
            self.attentions = nn.ModuleList([Attention(d, heads) for _ in range(layers)])
            self.experts = nn.ModuleList([Experts() for _ in range(layers)])
            self.head = nn.Sequential(nn.LayerNorm(d), nn.Linear(d, vocab))

        def forward(self, tokens: Any) -> Any:
            x, balance = self.embed(tokens), 0.0
            for i in range(layers):
                x = x + self.attentions[i](self.norms[2 * i](x))
                y, more = self.experts[i](self.norms[2 * i + 1](x))
                x, balance = x + y, balance + more
            return self.head(x), balance

    with torch.device(device):
        model, tokens = Decoder(), torch.randint(FIRST, vocab, (batch, seq))

    def loss() -> Any:
        logits, balance = model(tokens)
        return _torch_next_token_loss(torch, logits, tokens) + 0.01 * balance

    return _torch_train(torch, device, model, loss, dtype)


# ------------------------------------------------------------------------------------- translation


def _sentences(batch: int, seq: int, vocab: int) -> tuple[np.ndarray, ...]:
    """Padded sentences in two languages, and the lengths of those in the first language."""
    random = np.random.RandomState(0)
    lengths = random.randint(seq // 2, seq + 1, (2, batch))
    words = random.randint(FIRST, vocab, (2, batch, seq))
    source, target = np.where(np.arange(seq) < lengths[..., None], words, PADDING)
    return source, lengths[0], target


def attention_seq2seq(L: Any, batch: int, seq: int, hidden: int, vocab: int) -> Made:
    """Training a GRU that attends additively to what a bidirectional GRU has read."""
    nn, jnp, optim = L.linen, L.jnp, L.optim

    class Cell(nn.Module):
        @nn.compact
        def __call__(self, state: Any, word: Any, memory: Any, keys: Any, present: Any) -> Any:
            query = nn.Dense(hidden)(state)
            energy = nn.Dense(1, use_bias=False)(nn.tanh(query[:, None] + keys))
            weights = nn.softmax(jnp.where(present, energy[..., 0], -1e9))
            context = jnp.einsum("bs,bsd->bd", weights, memory)
            inputs = jnp.concatenate([word, context], axis=-1)
            state, y = nn.GRUCell(hidden)(state, inputs)
            return state, jnp.concatenate([y, context], axis=-1)

    class Translator(nn.Module):
        @nn.compact
        def __call__(self, source: Any, lengths: Any, target: Any) -> Any:
            rnn = lambda: nn.RNN(nn.GRUCell(hidden), return_carry=True)
            encoder = nn.Bidirectional(rnn(), rnn(), return_carry=True)
            words = nn.Embed(vocab, hidden)(source)
            carries, memory = encoder(words, seq_lengths=lengths)
            state = nn.tanh(nn.Dense(hidden)(jnp.concatenate(carries, axis=-1)))
            keys = nn.Dense(hidden, use_bias=False)(memory)
            decoder = nn.scan(
                Cell, variable_broadcast="params", split_rngs={"params": False},
                in_axes=(1, nn.broadcast, nn.broadcast, nn.broadcast), out_axes=1,
            )()  # fmt: skip
            words = nn.Embed(vocab, hidden)(target)
            _, y = decoder(state, words, memory, keys, source != PADDING)
            return nn.Dense(vocab)(nn.tanh(nn.Dense(hidden)(y)))

    model = Translator()
    data = tuple(jnp.asarray(a) for a in _sentences(batch, seq, vocab))

    def loss(params: Any, source: Any, lengths: Any, target: Any) -> Any:
        logits, labels = model.apply(params, source, lengths, target[:, :-1]), target[:, 1:]
        losses = optim.softmax_cross_entropy_with_integer_labels(logits, labels)
        return losses.mean(where=labels != PADDING)

    optimizer = optim.chain(optim.clip_by_global_norm(1.0), optim.adam(1e-3))
    params = L.jax.jit(model.init)(L.random.key(0), *data)
    return _train(L, params, optimizer, loss, *data)


def attention_seq2seq_torch(
    torch: Any, device: Any, batch: int, seq: int, hidden: int, vocab: int
) -> Callable[[], Any]:
    """Training a GRU that attends additively to what a bidirectional GRU has read."""
    nn, F = torch.nn, torch.nn.functional
    from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

    class Translator(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.source, self.target = nn.Embedding(vocab, hidden), nn.Embedding(vocab, hidden)
            self.encoder = nn.GRU(hidden, hidden, batch_first=True, bidirectional=True)
            self.first = nn.Linear(2 * hidden, hidden)
            self.keys = nn.Linear(2 * hidden, hidden, bias=False)
            self.query, self.energy = nn.Linear(hidden, hidden), nn.Linear(hidden, 1, bias=False)
            self.cell = nn.GRUCell(3 * hidden, hidden)
            self.head = nn.Sequential(
                nn.Linear(3 * hidden, hidden), nn.Tanh(), nn.Linear(hidden, vocab)
            )

        def forward(self, source: Any, lengths: Any, target: Any) -> Any:
            packed = pack_padded_sequence(self.source(source), lengths, True, False)
            memory, carries = self.encoder(packed)
            memory, _ = pad_packed_sequence(memory, True, total_length=seq)
            state = self.first(torch.cat([carries[0], carries[1]], -1)).tanh()
            keys, absent, outputs = self.keys(memory), source == PADDING, []
            for word in self.target(target).unbind(1):
                energy = self.energy(torch.tanh(self.query(state)[:, None] + keys))[..., 0]
                weights = energy.masked_fill(absent, -1e9).softmax(-1)
                context = torch.bmm(weights[:, None], memory)[:, 0]
                state = self.cell(torch.cat([word, context], -1), state)
                outputs.append(torch.cat([state, context], -1))
            return self.head(torch.stack(outputs, 1))

    with torch.device(device):
        model = Translator()
    source, lengths, target = (torch.from_numpy(a) for a in _sentences(batch, seq, vocab))
    source, target = source.to(device), target.to(device)  # lengths stay on the CPU

    def loss() -> Any:
        logits = model(source, lengths, target[:, :-1]).flatten(0, 1).float()
        return F.cross_entropy(logits, target[:, 1:].flatten(), ignore_index=PADDING)

    return _torch_train(torch, device, model, loss, rate=1e-3, decay=0.0)


# -------------------------------------------------------------------------------------- generation


def sampling(
    L: Any, batch: int, prompt: int, length: int, d: int, layers: int, heads: int, vocab: int
) -> Made:  # fmt: skip
    """Sampling from the 40 most likely tokens with the attention layers' own cache, in a scan."""
    nn, jnp, lax = L.linen, L.jnp, L.lax

    class Decoder(nn.Module):
        @nn.compact
        def __call__(self, tokens: Any) -> Any:
            started = self.has_variable("cache", "position")
            position = self.variable("cache", "position", lambda: jnp.zeros((), jnp.int32))
            x = nn.Embed(vocab, d)(tokens)
            x = x + nn.Embed(length, d)(position.value)
            if started:
                position.value = position.value + 1
            for _ in range(layers):
                attention = nn.MultiHeadDotProductAttention(heads, decode=True)
                x = x + attention(nn.LayerNorm()(x))
                y = nn.gelu(nn.Dense(4 * d)(nn.LayerNorm()(x)))
                x = x + nn.Dense(d)(y)
            return nn.Dense(vocab)(nn.LayerNorm()(x))

    model, whole = Decoder(), jnp.zeros((batch, length), jnp.int32)
    prompts = _tokens(L, batch, prompt, vocab=vocab)
    shapes = L.jax.eval_shape(model.init, L.random.key(0), whole)["cache"]
    params = L.jax.jit(model.init)(L.random.key(0), whole)["params"]

    def step(state: Any, prompts: Any) -> Any:
        params, key = state
        key, draw = L.random.split(key)
        given = jnp.pad(prompts, ((0, 0), (0, length - prompt)))

        def write(carry: Any, i: Any) -> Any:
            cache, token = carry
            variables = {"params": params, "cache": cache}
            logits, changed = model.apply(variables, token[:, None], mutable=["cache"])
            logits = logits[:, 0] / 0.8
            least = lax.top_k(logits, 40)[0][:, -1:]
            likely = jnp.where(logits < least, -jnp.inf, logits)
            token = L.random.categorical(L.random.fold_in(draw, i), likely)
            token = jnp.where(i + 1 < prompt, given[:, i + 1], token)
            score = jnp.take_along_axis(L.nn.log_softmax(logits), token[:, None], axis=-1)
            return (changed["cache"], token), (token, score[:, 0])

        cache = L.jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
        _, (_, scores) = lax.scan(write, (cache, prompts[:, 0]), jnp.arange(length - 1))
        return (params, key), scores.mean(axis=0)

    return Made(step, (params, L.random.key(1)), (prompts,))


def _cached_decoder(
    L: Any, length: int, d: int, layers: int, heads: int, vocab: int, dtype: str
) -> tuple[Any, Callable[[int], Any]]:
    """A model that reads and fills a cache of keys and values, and a function that makes one."""
    nn, jnp, lax = L.linen, L.jnp, L.lax
    dt = getattr(jnp, dtype)
    typed = {"dtype": dt, "param_dtype": dt}
    dense = partial(nn.DenseGeneral, **typed)

    class Decoder(nn.Module):
        @nn.compact
        def __call__(self, tokens: Any, cache: Any, start: Any) -> Any:
            """Return the logits after the last of `tokens`; the first of them has the position
            `start`."""
            places = start + jnp.arange(tokens.shape[1])
            mask = (jnp.arange(length) <= places[:, None])[None, None]
            x = nn.Embed(vocab, d, **typed)(tokens) + nn.Embed(length, d, **typed)(places)
            filled = []
            for keys, values in cache:
                y = nn.LayerNorm(**typed)(x)
                q, k, v = (dense((heads, d // heads))(y) for _ in range(3))
                keys = lax.dynamic_update_slice(keys, k, (0, start, 0, 0))
                values = lax.dynamic_update_slice(values, v, (0, start, 0, 0))
                filled.append((keys, values))
                y = L.nn.dot_product_attention(q, keys, values, mask=mask)
                x = x + dense(d, axis=(-2, -1))(y)
                y = nn.gelu(dense(4 * d)(nn.LayerNorm(**typed)(x)))
                x = x + dense(d)(y)
            x = nn.LayerNorm(**typed)(x[:, -1])
            return dense(vocab)(x).astype(jnp.float32), filled

    def empty(rows: int) -> Any:
        zeros = partial(jnp.zeros, (rows, length, heads, d // heads), dt)
        return [(zeros(), zeros()) for _ in range(layers)]

    return Decoder(), empty


def greedy_decoding(
    L: Any, batch: int, prompt: int, length: int, d: int, layers: int, heads: int, vocab: int,
    dtype: str = "float32",
) -> Made:  # fmt: skip
    """Generating the most likely token until all sentences have ended, in a while loop."""
    jnp, lax = L.jnp, L.lax
    model, empty = _cached_decoder(L, length, d, layers, heads, vocab, dtype)

    def step(state: Any, prompts: Any) -> Any:
        params, cache, tokens = state
        tokens = lax.dynamic_update_slice(tokens, prompts, (0, 0))
        logits, cache = model.apply(params, prompts, cache, 0)

        def unfinished(carry: Any) -> Any:
            i, done, *_ = carry
            return (i < length) & ~jnp.all(done)

        def write(carry: Any) -> Any:
            i, done, scores, tokens, cache, logits = carry
            token = jnp.where(done, PADDING, jnp.argmax(logits, axis=-1))
            scores = scores + jnp.where(done, 0.0, L.nn.log_softmax(logits).max(axis=-1))
            tokens = lax.dynamic_update_slice(tokens, token[:, None], (0, i))
            logits, cache = model.apply(params, token[:, None], cache, i)
            return i + 1, done | (token == END), scores, tokens, cache, logits

        first = (prompt, jnp.zeros(batch, bool), jnp.zeros(batch), tokens, cache, logits)
        _, _, scores, tokens, cache, _ = lax.while_loop(unfinished, write, first)
        return (params, cache, tokens), scores

    prompts, cache = _tokens(L, batch, prompt, vocab=vocab), empty(batch)
    params = L.jax.jit(model.init)(L.random.key(0), prompts, cache, 0)
    return Made(step, (params, cache, jnp.zeros((batch, length), prompts.dtype)), (prompts,))


def beam_search(
    L: Any, batch: int, prompt: int, length: int, d: int, layers: int, heads: int, vocab: int,
    beams: int = 4, dtype: str = "float32",
) -> Made:  # fmt: skip
    """Keeping the most likely beginnings of each sentence and their caches, in a while loop."""
    jnp, lax = L.jnp, L.lax
    model, empty = _cached_decoder(L, length, d, layers, heads, vocab, dtype)

    def step(state: Any, prompts: Any) -> Any:
        params, tokens = state
        tokens = tokens.at[:, :, :prompt].set(prompts[:, None])
        logits, cache = model.apply(params, prompts, empty(batch), 0)
        logits, cache = L.jax.tree.map(lambda x: jnp.repeat(x, beams, axis=0), (logits, cache))
        only_end = jnp.where(jnp.arange(vocab) == END, 0.0, -jnp.inf)

        def unfinished(carry: Any) -> Any:
            i, done, *_ = carry
            return (i < length) & ~jnp.all(done)

        def extend(carry: Any) -> Any:
            i, done, scores, tokens, cache, logits = carry
            logp = L.nn.log_softmax(logits).reshape(batch, beams, vocab)
            logp = jnp.where(done[..., None], only_end, logp)
            totals = (scores[..., None] + logp).reshape(batch, beams * vocab)
            scores, chosen = lax.top_k(totals, beams)
            parent, token = chosen // vocab, chosen % vocab
            tokens = jnp.take_along_axis(tokens, parent[..., None], axis=1)
            tokens = tokens.at[:, :, i].set(token)
            done = jnp.take_along_axis(done, parent, axis=1) | (token == END)
            rows = (beams * jnp.arange(batch)[:, None] + parent).reshape(-1)
            cache = L.jax.tree.map(lambda x: x[rows], cache)
            logits, cache = model.apply(params, token.reshape(-1, 1), cache, i)
            return i + 1, done, scores, tokens, cache, logits

        done = jnp.zeros((batch, beams), bool)
        scores = jnp.tile(jnp.where(jnp.arange(beams) == 0, 0.0, -jnp.inf), (batch, 1))
        first = (prompt, done, scores, tokens, cache, logits)
        _, _, scores, tokens, _, _ = lax.while_loop(unfinished, extend, first)
        return (params, tokens), scores

    prompts = _tokens(L, batch, prompt, vocab=vocab)
    params = L.jax.jit(model.init)(L.random.key(0), prompts, empty(batch), 0)
    return Made(step, (params, jnp.zeros((batch, beams, length), prompts.dtype)), (prompts,))


def _torch_cached_decoder(
    torch: Any, device: Any, length: int, d: int, layers: int, heads: int, vocab: int,
    dtype: str = "float32",
) -> tuple[Any, Callable[[int], Any]]:  # fmt: skip
    """A model that reads and fills a cache of keys and values, and a function that makes one."""
    nn, F = torch.nn, torch.nn.functional

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.LayerNorm(d)
            self.inputs, self.outputs = nn.Linear(d, 3 * d), nn.Linear(d, d)
            self.mlp = nn.Sequential(
                nn.LayerNorm(d), nn.Linear(d, 4 * d), nn.GELU("tanh"), nn.Linear(4 * d, d)
            )

        def forward(self, x: Any, cache: Any, start: int) -> Any:
            split = self.inputs(self.norm(x)).unflatten(-1, (3, heads, -1))
            q, k, v = split.permute(2, 0, 3, 1, 4)
            end = start + x.shape[1]
            keys, values = cache
            keys[:, :, start:end], values[:, :, start:end] = k, v
            y = F.scaled_dot_product_attention(
                q, keys[:, :, :end], values[:, :, :end], is_causal=start == 0
            )
            x = x + self.outputs(y.transpose(1, 2).flatten(2))
            return x + self.mlp(x)

    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.positions = nn.Embedding(vocab, d), nn.Embedding(length, d)
            self.layers = nn.ModuleList([Block() for _ in range(layers)])
            self.head = nn.Sequential(nn.LayerNorm(d), nn.Linear(d, vocab))

        def forward(self, tokens: Any, caches: Any, start: int) -> Any:
            x = self.embed(tokens) + self.positions.weight[start : start + tokens.shape[1]]
            for layer, cache in zip(self.layers, caches, strict=True):
                x = layer(x, cache, start)
            return self.head(x[:, -1]).float()

    with torch.device(device):
        model = Decoder().to(getattr(torch, dtype)).eval()
    like = {"device": device, "dtype": getattr(torch, dtype)}
    empty = lambda rows: [
        torch.zeros(2, rows, heads, length, d // heads, **like) for _ in range(layers)
    ]
    return model, empty


def sampling_torch(
    torch: Any, device: Any, batch: int, prompt: int, length: int, d: int, layers: int, heads: int,
    vocab: int,
) -> Callable[[], Any]:  # fmt: skip
    """Sampling from the 40 most likely tokens with a cache; the prompts are read in one call."""
    model, empty = _torch_cached_decoder(torch, device, length, d, layers, heads, vocab)
    prompts = torch.randint(FIRST, vocab, (batch, prompt), device=device)

    @torch.no_grad()
    def once() -> Any:
        cache, total = empty(batch), 0.0
        logits = model(prompts, cache, 0)
        for i in range(prompt, length):
            logits = logits / 0.8
            least = logits.topk(40).values[:, -1:]
            likely = logits.masked_fill(logits < least, -torch.inf)
            token = torch.multinomial(likely.softmax(-1), 1)
            total = total + logits.log_softmax(-1).gather(-1, token)[:, 0]
            logits = model(token, cache, i)
        return total / (length - prompt)

    return once


def greedy_decoding_torch(
    torch: Any, device: Any, batch: int, prompt: int, length: int, d: int, layers: int, heads: int,
    vocab: int, dtype: str = "float32",
) -> Callable[[], Any]:  # fmt: skip
    """Generating the most likely token until all sentences have ended."""
    model, empty = _torch_cached_decoder(torch, device, length, d, layers, heads, vocab, dtype)
    prompts = torch.randint(FIRST, vocab, (batch, prompt), device=device)
    cache = empty(batch)

    @torch.no_grad()
    def once() -> Any:
        tokens = torch.zeros(batch, length, dtype=torch.long, device=device)
        tokens[:, :prompt] = prompts
        done = torch.zeros(batch, dtype=torch.bool, device=device)
        scores = torch.zeros(batch, device=device)
        logits = model(prompts, cache, 0)
        for i in range(prompt, length):
            best, token = logits.log_softmax(-1).max(-1)
            token = token.masked_fill(done, PADDING)
            scores = scores + best.masked_fill(done, 0.0)
            tokens[:, i] = token
            done = done | (token == END)
            if done.all():
                break
            logits = model(token[:, None], cache, i)
        return scores

    return once


def beam_search_torch(
    torch: Any, device: Any, batch: int, prompt: int, length: int, d: int, layers: int, heads: int,
    vocab: int, beams: int = 4, dtype: str = "float32",
) -> Callable[[], Any]:  # fmt: skip
    """Keeping the most likely beginnings of each sentence and their caches."""
    model, empty = _torch_cached_decoder(torch, device, length, d, layers, heads, vocab, dtype)
    prompts = torch.randint(FIRST, vocab, (batch, prompt), device=device)
    only_end = torch.full((vocab,), -torch.inf, device=device)
    only_end[END] = 0.0
    offsets = beams * torch.arange(batch, device=device)[:, None]

    @torch.no_grad()
    def once() -> Any:
        tokens = torch.zeros(batch, beams, length, dtype=torch.long, device=device)
        tokens[:, :, :prompt] = prompts[:, None]
        done = torch.zeros(batch, beams, dtype=torch.bool, device=device)
        scores = torch.full((batch, beams), -torch.inf, device=device)
        scores[:, 0] = 0.0
        cache = empty(batch)
        logits = model(prompts, cache, 0).repeat_interleave(beams, 0)
        cache = [c.repeat_interleave(beams, 1) for c in cache]
        for i in range(prompt, length):
            logp = logits.log_softmax(-1).view(batch, beams, vocab)
            logp = torch.where(done[..., None], only_end, logp)
            scores, chosen = (scores[..., None] + logp).flatten(1).topk(beams)
            parent, token = chosen // vocab, chosen % vocab
            tokens = tokens.gather(1, parent[..., None].expand_as(tokens))
            tokens[:, :, i] = token
            done = done.gather(1, parent) | (token == END)
            if done.all():
                break
            rows = (offsets + parent).flatten()
            cache = [c.index_select(1, rows) for c in cache]
            logits = model(token.view(-1, 1), cache, i)
        return scores

    return once


# -------------------------------------------------------------------------------- large vocabulary


def large_vocabulary(
    L: Any, batch: int, seq: int, d: int, layers: int, heads: int, vocab: int,
    dtype: str = "float32",
) -> Made:  # fmt: skip
    """Training a small decoder whose many embeddings are also the weights of its last layer."""
    nn, jnp = L.linen, L.jnp
    dt = getattr(jnp, dtype)

    class Decoder(nn.Module):
        @nn.compact
        def __call__(self, tokens: Any) -> Any:
            embed = nn.Embed(vocab, d, dtype=dt)
            x, mask = embed(tokens), nn.make_causal_mask(tokens)
            x = x + nn.Embed(seq, d, dtype=dt)(jnp.arange(seq))
            for _ in range(layers):
                attention = nn.MultiHeadDotProductAttention(heads, dtype=dt)
                x = x + attention(nn.LayerNorm(dtype=dt)(x), mask=mask)
                y = nn.gelu(nn.Dense(4 * d, dtype=dt)(nn.LayerNorm(dtype=dt)(x)))
                x = x + nn.Dense(d, dtype=dt)(y)
            return embed.attend(nn.LayerNorm(dtype=dt)(x))

    model, tokens = Decoder(), _tokens(L, batch, seq, vocab=vocab)
    params = L.jax.jit(model.init)(L.random.key(0), tokens)
    loss = lambda params, tokens: _next_token_loss(L, model.apply(params, tokens), tokens)
    return _train(L, params, _clipped_adamw(L), loss, tokens)


def large_vocabulary_torch(
    torch: Any, device: Any, batch: int, seq: int, d: int, layers: int, heads: int, vocab: int,
    dtype: str = "float32",
) -> Callable[[], Any]:  # fmt: skip
    """Training a small decoder whose many embeddings are also the weights of its last layer."""
    nn, Attention = torch.nn, _torch_attention(torch)

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.Sequential(nn.LayerNorm(d), Attention(d, heads))
            self.mlp = nn.Sequential(
                nn.LayerNorm(d), nn.Linear(d, 4 * d), nn.GELU("tanh"), nn.Linear(4 * d, d)
            )

        def forward(self, x: Any) -> Any:
            x = x + self.attention(x)
            return x + self.mlp(x)

    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.positions = nn.Embedding(vocab, d), nn.Embedding(seq, d)
            nn.init.normal_(self.embed.weight, std=d**-0.5)
            self.body = nn.Sequential(*(Block() for _ in range(layers)), nn.LayerNorm(d))
            self.head = nn.Linear(d, vocab, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, tokens: Any) -> Any:
            return self.head(self.body(self.embed(tokens) + self.positions.weight))

    with torch.device(device):
        model, tokens = Decoder(), torch.randint(FIRST, vocab, (batch, seq))
    loss = lambda: _torch_next_token_loss(torch, model(tokens), tokens)
    return _torch_train(torch, device, model, loss, dtype)


# ------------------------------------------------------------------------------------- state space


def state_space(
    L: Any, batch: int, seq: int, d: int, layers: int, states: int, vocab: int,
    dtype: str = "float32",
) -> Made:  # fmt: skip
    """Training layers of linear recurrences whose coefficients depend on the input."""
    nn, jnp = L.linen, L.jnp
    dt = getattr(jnp, dtype)
    inner, rank = 2 * d, max(1, d // 16)
    dense = partial(nn.Dense, use_bias=False, dtype=dt)

    def combine(left: Any, right: Any) -> Any:
        return left[0] * right[0], left[1] * right[0] + right[1]

    class Recurrence(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            logs = lambda key: jnp.tile(jnp.log(jnp.arange(1.0, states + 1)), (inner, 1))
            decay = -jnp.exp(self.param("decay", logs))
            rate, b, c = jnp.split(dense(rank + 2 * states)(x), [rank, rank + states], axis=-1)
            delta = nn.softplus(nn.Dense(inner, dtype=dt)(rate)).astype(jnp.float32)
            a = jnp.exp(delta[..., None] * decay)  # [batch, seq, inner, states]
            u = (delta * x)[..., None] * b[..., None, :]
            _, h = L.lax.associative_scan(combine, (a, u), axis=1)
            y = jnp.einsum("btdn,btn->btd", h, c.astype(jnp.float32))
            return (y + x * self.param("skip", nn.initializers.ones, (inner,))).astype(dt)

    class Block(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            y, gate = jnp.split(dense(2 * inner)(nn.RMSNorm(dtype=dt)(x)), 2, axis=-1)
            conv = nn.Conv(inner, (4,), padding="CAUSAL", feature_group_count=inner, dtype=dt)
            return x + dense(d)(Recurrence()(nn.silu(conv(y))) * nn.silu(gate))

    class Decoder(nn.Module):
        @nn.compact
        def __call__(self, tokens: Any) -> Any:
            embed = nn.Embed(vocab, d, dtype=dt)
            x = embed(tokens)
            for _ in range(layers):
                x = Block()(x)
            return embed.attend(nn.RMSNorm(dtype=dt)(x))

    model, tokens = Decoder(), _tokens(L, batch, seq, vocab=vocab)
    params = L.jax.jit(model.init)(L.random.key(0), tokens)
    loss = lambda params, tokens: _next_token_loss(L, model.apply(params, tokens), tokens)
    return _train(L, params, _clipped_adamw(L), loss, tokens)


def state_space_torch(
    torch: Any, device: Any, batch: int, seq: int, d: int, layers: int, states: int, vocab: int,
    dtype: str = "float32",
) -> Callable[[], Any]:  # fmt: skip
    """The same model; a recurrence takes log2(seq) passes, and the distance doubles with each
    pass."""
    nn, F = torch.nn, torch.nn.functional
    inner, rank = 2 * d, max(1, d // 16)

    def recurrence(a: Any, u: Any) -> Any:
        shift = 1
        while shift < seq:
            u = torch.cat([u[:, :shift], u[:, shift:] + a[:, shift:] * u[:, :-shift]], 1)
            a = torch.cat([a[:, :shift], a[:, shift:] * a[:, :-shift]], 1)
            shift *= 2
        return u

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.inputs = nn.RMSNorm(d, 1e-6), nn.Linear(d, 2 * inner, bias=False)
            self.conv = nn.Conv1d(inner, inner, 4, groups=inner, padding=3)
            self.split = nn.Linear(inner, rank + 2 * states, bias=False)
            self.rate, self.skip = nn.Linear(rank, inner), nn.Parameter(torch.ones(inner))
            self.decay = nn.Parameter(torch.arange(1.0, states + 1).log().repeat(inner, 1))
            self.outputs = nn.Linear(inner, d, bias=False)

        def forward(self, x: Any) -> Any:
            y, gate = self.inputs(self.norm(x)).chunk(2, -1)
            y = F.silu(self.conv(y.transpose(1, 2))[..., :seq].transpose(1, 2))
            rate, b, c = self.split(y).split([rank, states, states], -1)
            delta = F.softplus(self.rate(rate)).float()
            a = torch.exp(delta[..., None] * -self.decay.exp())
            h = recurrence(a, (delta * y)[..., None] * b[..., None, :])
            y = torch.einsum("btdn,btn->btd", h, c.float()) + y * self.skip
            return x + self.outputs(y * F.silu(gate))

    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(vocab, d)
            nn.init.normal_(self.embed.weight, std=d**-0.5)
            self.body = nn.Sequential(*(Block() for _ in range(layers)), nn.RMSNorm(d, 1e-6))

        def forward(self, tokens: Any) -> Any:
            return F.linear(self.body(self.embed(tokens)), self.embed.weight)

    with torch.device(device):
        model, tokens = Decoder(), torch.randint(FIRST, vocab, (batch, seq))
    loss = lambda: _torch_next_token_loss(torch, model(tokens), tokens)
    return _torch_train(torch, device, model, loss, dtype)


def _sizes(names: str, **values: tuple[Any, ...]) -> dict[str, dict[str, Any]]:
    """The arguments for each size, by name; values for the last names may be missing."""
    return {size: dict(zip(names.split(), given)) for size, given in values.items()}


PROGRAMS = (
    Program("bert", bert, _sizes(
        "batch seq d layers heads vocab dtype",
        tiny=(2, 16, 32, 1, 4, 100),
        cpu=(8, 64, 128, 4, 4, 4096),
        gpu=(32, 256, 768, 12, 12, 30_000, "bfloat16"),
    ), bert_torch),
    Program("rotary decoder", rotary_decoder, _sizes(
        "batch seq d layers heads groups hidden vocab dtype",
        tiny=(2, 16, 32, 2, 4, 2, 64, 100),
        cpu=(4, 128, 128, 4, 4, 2, 352, 4096),
        gpu=(4, 1024, 1024, 8, 16, 4, 2816, 32_000, "bfloat16"),
    ), rotary_decoder_torch),
    Program("mixture of experts", mixture_of_experts, _sizes(
        "batch seq d layers heads experts vocab dtype",
        tiny=(2, 16, 32, 1, 4, 4, 100),
        cpu=(4, 128, 128, 2, 4, 8, 2048),
        gpu=(16, 512, 768, 4, 12, 8, 32_000, "bfloat16"),
    ), mixture_of_experts_torch),
    Program("attention seq2seq", attention_seq2seq, _sizes(
        "batch seq hidden vocab",
        tiny=(2, 8, 16, 50),
        cpu=(16, 24, 128, 2048),
        gpu=(64, 48, 512, 16_000),
    ), attention_seq2seq_torch),
    Program("sampling", sampling, _sizes(
        "batch prompt length d layers heads vocab",
        tiny=(2, 4, 12, 32, 1, 4, 100),
        cpu=(8, 16, 64, 128, 2, 4, 2048),
        gpu=(32, 16, 96, 512, 6, 8, 16_000),
    ), sampling_torch),
    Program("greedy decoding", greedy_decoding, _sizes(
        "batch prompt length d layers heads vocab dtype",
        tiny=(2, 4, 12, 32, 1, 4, 100),
        cpu=(8, 32, 96, 128, 2, 4, 2048),
        gpu=(16, 128, 192, 768, 8, 12, 32_000, "bfloat16"),
    ), greedy_decoding_torch),
    Program("beam search", beam_search, _sizes(
        "batch prompt length d layers heads vocab beams dtype",
        tiny=(2, 4, 12, 32, 1, 4, 100),
        cpu=(4, 16, 48, 128, 2, 4, 2048),
        gpu=(16, 32, 80, 512, 6, 8, 32_000, 4, "bfloat16"),
    ), beam_search_torch),
    Program("large vocabulary", large_vocabulary, _sizes(
        "batch seq d layers heads vocab dtype",
        tiny=(2, 8, 16, 1, 2, 500),
        cpu=(4, 32, 128, 2, 4, 32_768),
        gpu=(8, 512, 512, 2, 8, 131_072, "bfloat16"),
    ), large_vocabulary_torch),
    Program("state space", state_space, _sizes(
        "batch seq d layers states vocab dtype",
        tiny=(2, 8, 16, 1, 4, 100),
        cpu=(2, 128, 64, 2, 8, 1024),
        gpu=(8, 1024, 256, 4, 16, 16_000, "bfloat16"),
    ), state_space_torch),
)  # fmt: skip
