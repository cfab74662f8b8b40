"""Training on images and audio: classifiers, generators, a denoiser and private gradients.

Random numbers in a step are drawn with a key that is part of the state. In PyTorch, the models have
their own initial parameters, and images are stored channels-last.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from . import Made, Program


def _labelled_images(L: Any, batch: int, size: int, channels: int, classes: int) -> tuple[Any, Any]:
    random = np.random.RandomState(0)
    images = random.rand(batch, size, size, channels).astype("f4")
    return L.jnp.asarray(images), L.jnp.asarray(random.randint(0, classes, batch))


def _descent(
    optimizer: Any,
    loss: Callable[[], Any],
    before: Callable[[], Any] = lambda: None,
    after: Callable[[], Any] = lambda: None,
) -> Callable[[], Any]:
    """One step of a PyTorch optimizer for `loss()`, including code to run before and after it."""

    def once() -> Any:
        optimizer.zero_grad()
        value = loss()
        value.backward()
        before()
        optimizer.step()
        after()
        return value.detach()

    return once


# --------------------------------------------------------------------------- vision transformer


def vision_transformer(
    L: Any, batch: int, size: int, patch: int, d: int, layers: int, heads: int, classes: int,
    dtype: str = "float32",
) -> Made:  # fmt: skip
    """A pre-norm encoder of patches with a class token and dropout; clipped AdamW with warmup."""
    nn, jnp, random, optim = L.linen, L.jnp, L.random, L.optim
    dt = getattr(jnp, dtype)

    class Block(nn.Module):
        @nn.compact
        def __call__(self, x: Any, train: bool) -> Any:
            y = nn.LayerNorm(dtype=dt)(x)
            y = nn.MultiHeadDotProductAttention(heads, dtype=dt)(y)
            x = x + nn.Dropout(0.1, deterministic=not train)(y)
            y = nn.gelu(nn.Dense(4 * d, dtype=dt)(nn.LayerNorm(dtype=dt)(x)))
            y = nn.Dense(d, dtype=dt)(nn.Dropout(0.1, deterministic=not train)(y))
            return x + nn.Dropout(0.1, deterministic=not train)(y)

    class ViT(nn.Module):
        @nn.compact
        def __call__(self, images: Any, train: bool = False) -> Any:
            x = nn.Conv(d, (patch, patch), (patch, patch), padding="VALID", dtype=dt)(images)
            x = x.reshape((x.shape[0], -1, d))
            token = self.param("class_token", nn.initializers.zeros, (1, 1, d)).astype(dt)
            x = jnp.concatenate([jnp.tile(token, (x.shape[0], 1, 1)), x], axis=1)
            place = self.param("place", nn.initializers.normal(0.02), (1, x.shape[1], d))
            x = nn.Dropout(0.1, deterministic=not train)(x + place.astype(dt))
            for _ in range(layers):
                x = Block()(x, train)
            return nn.Dense(classes)(nn.LayerNorm(dtype=dt)(x)[:, 0])

    model = ViT()
    images, labels = _labelled_images(L, batch, size, 3, classes)
    params = L.jax.jit(model.init)(random.key(0), images)["params"]
    rate = optim.warmup_cosine_decay_schedule(0.0, 1e-3, warmup_steps=10, decay_steps=1000)
    optimizer = optim.chain(optim.clip_by_global_norm(1.0), optim.adamw(rate, weight_decay=0.05))

    def step(state: Any, images: Any, labels: Any) -> Any:
        params, opt_state, key = state
        key, dropout_key = random.split(key)

        def loss_fn(params: Any) -> Any:
            rngs = {"dropout": dropout_key}
            logits = model.apply({"params": params}, images, train=True, rngs=rngs)
            return optim.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

        loss, grads = L.jax.value_and_grad(loss_fn)(params)
        updates, opt_state = optimizer.update(grads, opt_state, params)
        return (optim.apply_updates(params, updates), opt_state, key), loss

    return Made(step, (params, optimizer.init(params), random.key(1)), (images, labels))


def vision_transformer_torch(
    torch: Any, device: str, batch: int, size: int, patch: int, d: int, layers: int, heads: int,
    classes: int, dtype: str = "float32",
) -> Callable[[], Any]:  # fmt: skip
    """The vision transformer with PyTorch's attention module."""
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norms = nn.ModuleList([nn.LayerNorm(d), nn.LayerNorm(d)])
            self.attention = nn.MultiheadAttention(d, heads, batch_first=True)
            self.dropout = nn.Dropout(0.1)
            self.mlp = nn.Sequential(
                nn.Linear(d, 4 * d), nn.GELU("tanh"), nn.Dropout(0.1), nn.Linear(4 * d, d)
            )

        def forward(self, x: Any) -> Any:
            y = self.norms[0](x)
            x = x + self.dropout(self.attention(y, y, y, need_weights=False)[0])
            return x + self.dropout(self.mlp(self.norms[1](x)))

    class ViT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.patches = nn.Conv2d(3, d, patch, patch)
            self.token = nn.Parameter(torch.zeros(1, 1, d))
            self.place = nn.Parameter(0.02 * torch.randn(1, (size // patch) ** 2 + 1, d))
            self.blocks = nn.Sequential(nn.Dropout(0.1), *(Block() for _ in range(layers)))
            self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, classes)

        def forward(self, images: Any) -> Any:
            x = self.patches(images).flatten(2).transpose(1, 2)
            x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.place
            return self.head(self.norm(self.blocks(x))[:, 0])

    with torch.device(device):
        model = ViT()
        images = torch.rand(batch, 3, size, size).to(memory_format=torch.channels_last)
        labels = torch.randint(0, classes, (batch,))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, weight_decay=0.05)
    schedules = torch.optim.lr_scheduler
    warmup = schedules.LinearLR(optimizer, 1e-3, total_iters=10)
    cosine = schedules.CosineAnnealingLR(optimizer, 990)
    schedule = schedules.SequentialLR(optimizer, [warmup, cosine], [10])

    def loss() -> Any:
        with torch.autocast(device, torch.bfloat16, enabled=dtype == "bfloat16"):
            return nn.functional.cross_entropy(model(images), labels)

    clip = lambda: nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    return _descent(optimizer, loss, before=clip, after=schedule.step)


# ----------------------------------------------------------------------------- diffusion denoiser

NOISE_STEPS = 1000


def diffusion_unet(
    L: Any, batch: int, size: int, channels: int, multiples: tuple[int, ...], heads: int,
    dtype: str = "float32",
) -> Made:  # fmt: skip
    """A U-Net with attention in the middle that learns to predict the noise in images.

    A moving average of the parameters is kept."""
    nn, jnp, random, optim = L.linen, L.jnp, L.random, L.optim
    dt = getattr(jnp, dtype)
    conv = partial(nn.Conv, dtype=dt)
    norm = partial(nn.GroupNorm, num_groups=8, dtype=dt)

    class Residual(nn.Module):
        channels: int

        @nn.compact
        def __call__(self, x: Any, time: Any) -> Any:
            y = conv(self.channels, (3, 3))(nn.silu(norm()(x)))
            y = y + nn.Dense(self.channels, dtype=dt)(nn.silu(time))[:, None, None, :]
            y = conv(self.channels, (3, 3))(nn.silu(norm()(y)))
            if x.shape[-1] != self.channels:
                x = conv(self.channels, (1, 1))(x)
            return x + y

    class Attention(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            y = norm()(x).reshape((x.shape[0], -1, x.shape[-1]))
            y = nn.MultiHeadDotProductAttention(heads, dtype=dt)(y)
            return x + y.reshape(x.shape)

    class UNet(nn.Module):
        @nn.compact
        def __call__(self, x: Any, time: Any) -> Any:
            frequencies = jnp.exp(jnp.linspace(0, -np.log(10000.0), channels // 2))
            angles = time[:, None] * frequencies
            time = jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], axis=-1)
            time = nn.silu(nn.Dense(4 * channels, dtype=dt)(time))
            time = nn.Dense(4 * channels, dtype=dt)(time)
            widths = [channels * multiple for multiple in multiples]
            x = conv(channels, (3, 3))(x)
            skips = []
            for width in widths:
                x = Residual(width)(x, time)
                skips.append(x)
                if width != widths[-1]:
                    x = conv(width, (3, 3), strides=(2, 2))(x)
            x = Attention()(Residual(widths[-1])(x, time))
            x = Residual(widths[-1])(x, time)
            for width in reversed(widths):
                if width != widths[-1]:
                    n, height, length, c = x.shape
                    x = L.jax.image.resize(x, (n, 2 * height, 2 * length, c), "nearest")
                    x = conv(width, (3, 3))(x)
                x = Residual(width)(jnp.concatenate([x, skips.pop()], axis=-1), time)
            return nn.Conv(3, (3, 3))(nn.silu(norm()(x)))

    model = UNet()
    images = jnp.asarray(np.random.RandomState(0).uniform(-1, 1, (batch, size, size, 3)), "float32")
    params = L.jax.jit(model.init)(random.key(0), images, jnp.zeros(batch, "int32"))["params"]
    average = L.jax.tree_util.tree_map(jnp.copy, params)
    optimizer = optim.adam(2e-4)
    kept = jnp.cumprod(1 - jnp.linspace(1e-4, 0.02, NOISE_STEPS))

    def step(state: Any, images: Any) -> Any:
        params, average, opt_state, key = state
        key, time_key, noise_key = random.split(key, 3)
        time = random.randint(time_key, (images.shape[0],), 0, NOISE_STEPS)
        noise = random.normal(noise_key, images.shape)
        signal = kept[time][:, None, None, None]
        noisy = jnp.sqrt(signal) * images + jnp.sqrt(1 - signal) * noise

        def loss_fn(params: Any) -> Any:
            return jnp.mean((model.apply({"params": params}, noisy, time) - noise) ** 2)

        loss, grads = L.jax.value_and_grad(loss_fn)(params)
        updates, opt_state = optimizer.update(grads, opt_state, params)
        params = optim.apply_updates(params, updates)
        average = optim.incremental_update(params, average, 0.001)
        return (params, average, opt_state, key), loss

    return Made(step, (params, average, optimizer.init(params), random.key(1)), (images,))


def diffusion_unet_torch(
    torch: Any, device: str, batch: int, size: int, channels: int, multiples: tuple[int, ...],
    heads: int, dtype: str = "float32",
) -> Callable[[], Any]:  # fmt: skip
    """The denoiser, channels last."""
    nn, F = torch.nn, torch.nn.functional

    class Residual(nn.Module):
        def __init__(self, inputs: int, width: int) -> None:
            super().__init__()
            self.norms = nn.ModuleList([nn.GroupNorm(8, inputs), nn.GroupNorm(8, width)])
            self.first = nn.Conv2d(inputs, width, 3, padding=1)
            self.second = nn.Conv2d(width, width, 3, padding=1)
            self.time = nn.Linear(4 * channels, width)
            self.skip = nn.Conv2d(inputs, width, 1) if inputs != width else nn.Identity()

        def forward(self, x: Any, time: Any) -> Any:
            y = self.first(F.silu(self.norms[0](x)))
            y = y + self.time(F.silu(time))[:, :, None, None]
            return self.skip(x) + self.second(F.silu(self.norms[1](y)))

    class Attention(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.norm = nn.GroupNorm(8, width)
            self.attention = nn.MultiheadAttention(width, heads, batch_first=True)

        def forward(self, x: Any) -> Any:
            y = self.norm(x).flatten(2).transpose(1, 2)
            y = self.attention(y, y, y, need_weights=False)[0]
            return x + y.transpose(1, 2).reshape(x.shape)

    class UNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            widths = [channels * multiple for multiple in multiples]
            pairs = list(zip(widths, widths[1:], strict=False))
            conv = partial(nn.Conv2d, kernel_size=3, padding=1)
            wide, last = 4 * channels, widths[-1]
            self.time = nn.Sequential(nn.Linear(channels, wide), nn.SiLU(), nn.Linear(wide, wide))
            self.first = conv(3, channels)
            self.down = nn.ModuleList(
                [Residual(channels, widths[0]), *(Residual(a, b) for a, b in pairs)]
            )
            self.shrink = nn.ModuleList([conv(a, a, stride=2) for a, _ in pairs])
            self.middle = nn.ModuleList([Residual(last, last), Residual(last, last)])
            self.attention = Attention(last)
            self.up = nn.ModuleList([Residual(2 * a, a) for a in reversed(widths)])
            self.grow = nn.ModuleList([conv(b, a) for a, b in reversed(pairs)])
            self.last = nn.Sequential(nn.GroupNorm(8, widths[0]), nn.SiLU(), conv(widths[0], 3))

        def forward(self, x: Any, time: Any) -> Any:
            steps = torch.linspace(0, -np.log(10000.0), channels // 2, device=x.device)
            angles = time[:, None] * torch.exp(steps)
            time = self.time(torch.cat([angles.sin(), angles.cos()], -1))
            x, skips = self.first(x), []
            for i, block in enumerate(self.down):
                x = block(self.shrink[i - 1](x) if i else x, time)
                skips.append(x)
            x = self.middle[1](self.attention(self.middle[0](x, time)), time)
            for i, block in enumerate(self.up):
                x = self.grow[i - 1](F.interpolate(x, scale_factor=2)) if i else x
                x = block(torch.cat([x, skips.pop()], 1), time)
            return self.last(x)

    with torch.device(device):
        model = UNet().to(memory_format=torch.channels_last)
        images = 2 * torch.rand(batch, 3, size, size) - 1
        images = images.to(memory_format=torch.channels_last)
        kept = torch.cumprod(1 - torch.linspace(1e-4, 0.02, NOISE_STEPS), 0)
    swa = torch.optim.swa_utils
    average = swa.AveragedModel(model, multi_avg_fn=swa.get_ema_multi_avg_fn(0.999))

    def loss() -> Any:
        time = torch.randint(0, NOISE_STEPS, (batch,), device=device)
        noise = torch.randn_like(images)
        signal = kept[time][:, None, None, None]
        noisy = signal.sqrt() * images + (1 - signal).sqrt() * noise
        with torch.autocast(device, torch.bfloat16, enabled=dtype == "bfloat16"):
            return F.mse_loss(model(noisy, time), noise)

    optimizer = torch.optim.Adam(model.parameters(), 2e-4)
    return _descent(optimizer, loss, after=lambda: average.update_parameters(model))


# -------------------------------------------------------------------------------------- mobilenet


def mobilenet(
    L: Any, batch: int, size: int, stages: tuple[tuple[int, int, int], ...], classes: int,
    dtype: str = "float32",
) -> Made:  # fmt: skip
    """Depthwise separable convolutions with batch norm and squeeze-and-excite.

    Training uses SGD with momentum, weight decay and smoothed labels. A stage is a tuple (channels,
    number of blocks, stride of the first block)."""
    nn, jnp, optim = L.linen, L.jnp, L.optim
    dt = getattr(jnp, dtype)
    conv = partial(nn.Conv, use_bias=False, dtype=dt)
    dense = partial(nn.Dense, dtype=dt)

    class Block(nn.Module):
        channels: int
        stride: int

        @nn.compact
        def __call__(self, x: Any, train: bool) -> Any:
            norm = partial(nn.BatchNorm, use_running_average=not train, momentum=0.9, dtype=dt)
            hidden = 4 * x.shape[-1]
            strides = (self.stride, self.stride)
            y = nn.hard_swish(norm()(conv(hidden, (1, 1))(x)))
            y = conv(hidden, (3, 3), strides, feature_group_count=hidden)(y)
            y = nn.hard_swish(norm()(y))
            squeezed = nn.relu(dense(hidden // 4)(jnp.mean(y, axis=(1, 2))))
            y = y * nn.hard_sigmoid(dense(hidden)(squeezed))[:, None, None, :]
            y = norm()(conv(self.channels, (1, 1))(y))
            return x + y if x.shape == y.shape else y

    class MobileNet(nn.Module):
        @nn.compact
        def __call__(self, x: Any, train: bool = True) -> Any:
            norm = partial(nn.BatchNorm, use_running_average=not train, momentum=0.9, dtype=dt)
            x = nn.hard_swish(norm()(conv(16, (3, 3), (2, 2))(x)))
            for channels, blocks, stride in stages:
                for i in range(blocks):
                    x = Block(channels, stride if i == 0 else 1)(x, train)
            x = nn.hard_swish(norm()(conv(6 * x.shape[-1], (1, 1))(x)))
            return nn.Dense(classes)(jnp.mean(x, axis=(1, 2)))

    model = MobileNet()
    images, labels = _labelled_images(L, batch, size, 3, classes)
    variables = L.jax.jit(model.init)(L.random.key(0), images)
    kernels = lambda params: L.jax.tree_util.tree_map(lambda p: p.ndim > 1, params)
    optimizer = optim.chain(
        optim.add_decayed_weights(4e-5, mask=kernels),
        optim.sgd(optim.cosine_decay_schedule(0.05, 10_000), momentum=0.9, nesterov=True),
    )

    def step(state: Any, images: Any, labels: Any) -> Any:
        params, batch_stats, opt_state = state

        def loss_fn(params: Any) -> Any:
            variables = {"params": params, "batch_stats": batch_stats}
            logits, changed = model.apply(variables, images, mutable=["batch_stats"])
            targets = optim.smooth_labels(L.nn.one_hot(labels, classes), 0.1)
            loss = optim.softmax_cross_entropy(logits, targets).mean()
            return loss, changed["batch_stats"]

        (loss, batch_stats), grads = L.jax.value_and_grad(loss_fn, has_aux=True)(params)
        updates, opt_state = optimizer.update(grads, opt_state, params)
        return (optim.apply_updates(params, updates), batch_stats, opt_state), loss

    params = variables["params"]
    state = (params, variables["batch_stats"], optimizer.init(params))
    return Made(step, state, (images, labels))


def mobilenet_torch(
    torch: Any, device: str, batch: int, size: int, stages: tuple[tuple[int, int, int], ...],
    classes: int, dtype: str = "float32",
) -> Callable[[], Any]:  # fmt: skip
    """The same network, channels last."""
    nn = torch.nn

    def conv(inputs: int, outputs: int, width: int, stride: int = 1, groups: int = 1) -> list[Any]:
        pad = width // 2
        made = nn.Conv2d(inputs, outputs, width, stride, pad, groups=groups, bias=False)
        return [made, nn.BatchNorm2d(outputs)]

    class Excite(nn.Module):
        def __init__(self, channels: int) -> None:
            super().__init__()
            self.scale = nn.Sequential(
                nn.AdaptiveAvgPool2d(1), nn.Conv2d(channels, channels // 4, 1), nn.ReLU(),
                nn.Conv2d(channels // 4, channels, 1), nn.Hardsigmoid(),
            )  # fmt: skip

        def forward(self, x: Any) -> Any:
            return x * self.scale(x)

    class Block(nn.Module):
        def __init__(self, inputs: int, outputs: int, stride: int) -> None:
            super().__init__()
            hidden = 4 * inputs
            self.same = inputs == outputs and stride == 1
            self.body = nn.Sequential(
                *conv(inputs, hidden, 1), nn.Hardswish(),
                *conv(hidden, hidden, 3, stride, hidden), nn.Hardswish(),
                Excite(hidden), *conv(hidden, outputs, 1),
            )  # fmt: skip

        def forward(self, x: Any) -> Any:
            return x + self.body(x) if self.same else self.body(x)

    with torch.device(device):
        layers, inputs = [*conv(3, 16, 3, 2), nn.Hardswish()], 16
        for channels, blocks, stride in stages:
            for i in range(blocks):
                layers.append(Block(inputs, channels, stride if i == 0 else 1))
                inputs = channels
        layers += [*conv(inputs, 6 * inputs, 1), nn.Hardswish(), nn.AdaptiveAvgPool2d(1)]
        model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(6 * inputs, classes))
        model = model.to(memory_format=torch.channels_last)
        images = torch.rand(batch, 3, size, size).to(memory_format=torch.channels_last)
        labels = torch.randint(0, classes, (batch,))
    kernels = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim <= 1]
    groups = [{"params": kernels, "weight_decay": 4e-5}, {"params": others}]
    optimizer = torch.optim.SGD(groups, 0.05, momentum=0.9, nesterov=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10_000)

    def loss() -> Any:
        with torch.autocast(device, torch.bfloat16, enabled=dtype == "bfloat16"):
            return nn.functional.cross_entropy(model(images), labels, label_smoothing=0.1)

    return _descent(optimizer, loss, after=schedule.step)


# ------------------------------------------------------------------------------------------ DCGAN


def dcgan(L: Any, batch: int, size: int, width: int, latents: int) -> Made:
    """A step of the discriminator on real and generated images, then a step of the generator."""
    nn, jnp, random, optim = L.linen, L.jnp, L.random, L.optim
    start = nn.initializers.normal(0.02)
    conv = partial(nn.Conv, kernel_size=(4, 4), use_bias=False, kernel_init=start)
    transposed = partial(nn.ConvTranspose, kernel_size=(4, 4), use_bias=False, kernel_init=start)
    norm = partial(nn.BatchNorm, use_running_average=False, momentum=0.9)

    class Generator(nn.Module):
        @nn.compact
        def __call__(self, z: Any) -> Any:
            channels = width * size // 8
            x = transposed(channels, padding="VALID")(z[:, None, None, :])
            x = nn.relu(norm()(x))
            while x.shape[1] < size // 2:
                channels //= 2
                x = nn.relu(norm()(transposed(channels, strides=(2, 2))(x)))
            return jnp.tanh(transposed(3, strides=(2, 2))(x))

    class Discriminator(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            x = nn.leaky_relu(conv(width, strides=(2, 2))(x), 0.2)
            while x.shape[1] > 4:
                x = nn.leaky_relu(norm()(conv(2 * x.shape[-1], strides=(2, 2))(x)), 0.2)
            return conv(1, padding="VALID")(x).reshape(-1)

    generator, discriminator = Generator(), Discriminator()
    images = jnp.asarray(np.random.RandomState(0).uniform(-1, 1, (batch, size, size, 3)), "float32")
    g = L.jax.jit(generator.init)(random.key(0), jnp.zeros((batch, latents)))
    d = L.jax.jit(discriminator.init)(random.key(1), images)
    g_optimizer, d_optimizer = optim.adam(2e-4, b1=0.5), optim.adam(2e-4, b1=0.5)

    def apply(model: Any, params: Any, stats: Any, x: Any) -> Any:
        variables = {"params": params, "batch_stats": stats}
        y, changed = model.apply(variables, x, mutable=["batch_stats"])
        return y, changed["batch_stats"]

    def entropy(logits: Any, real: bool) -> Any:
        targets = jnp.ones_like(logits) if real else jnp.zeros_like(logits)
        return optim.sigmoid_binary_cross_entropy(logits, targets).mean()

    def step(state: Any, images: Any) -> Any:
        (g_params, g_stats, g_opt), (d_params, d_stats, d_opt), key = state
        key, z_key = random.split(key)
        z = random.normal(z_key, (images.shape[0], latents))

        def d_loss_fn(params: Any) -> Any:
            fake, _ = apply(generator, g_params, g_stats, z)
            real_logits, stats = apply(discriminator, params, d_stats, images)
            fake_logits, stats = apply(discriminator, params, stats, fake)
            return entropy(real_logits, True) + entropy(fake_logits, False), stats

        (d_loss, d_stats), grads = L.jax.value_and_grad(d_loss_fn, has_aux=True)(d_params)
        updates, d_opt = d_optimizer.update(grads, d_opt, d_params)
        d_params = optim.apply_updates(d_params, updates)

        def g_loss_fn(params: Any) -> Any:
            fake, stats = apply(generator, params, g_stats, z)
            logits, _ = apply(discriminator, d_params, d_stats, fake)
            return entropy(logits, True), stats

        (g_loss, g_stats), grads = L.jax.value_and_grad(g_loss_fn, has_aux=True)(g_params)
        updates, g_opt = g_optimizer.update(grads, g_opt, g_params)
        g_params = optim.apply_updates(g_params, updates)
        state = (g_params, g_stats, g_opt), (d_params, d_stats, d_opt), key
        return state, jnp.stack([d_loss, g_loss])

    g_state = g["params"], g["batch_stats"], g_optimizer.init(g["params"])
    d_state = d["params"], d["batch_stats"], d_optimizer.init(d["params"])
    return Made(step, (g_state, d_state, random.key(2)), (images,))


def dcgan_torch(
    torch: Any, device: str, batch: int, size: int, width: int, latents: int
) -> Callable[[], Any]:
    """Both networks, channels last; both updates use the same generated images."""
    nn, F = torch.nn, torch.nn.functional

    with torch.device(device):
        channels = width * size // 8
        layers: list[Any] = [nn.ConvTranspose2d(latents, channels, 4, bias=False)]
        layers += [nn.BatchNorm2d(channels), nn.ReLU()]
        while channels > width:
            layers.append(nn.ConvTranspose2d(channels, channels // 2, 4, 2, 1, bias=False))
            channels //= 2
            layers += [nn.BatchNorm2d(channels), nn.ReLU()]
        layers += [nn.ConvTranspose2d(channels, 3, 4, 2, 1, bias=False), nn.Tanh()]
        generator = nn.Sequential(*layers).to(memory_format=torch.channels_last)

        layers = [nn.Conv2d(3, width, 4, 2, 1, bias=False), nn.LeakyReLU(0.2)]
        while channels < width * size // 8:
            layers.append(nn.Conv2d(channels, 2 * channels, 4, 2, 1, bias=False))
            channels *= 2
            layers += [nn.BatchNorm2d(channels), nn.LeakyReLU(0.2)]
        layers += [nn.Conv2d(channels, 1, 4, bias=False), nn.Flatten(0)]
        discriminator = nn.Sequential(*layers).to(memory_format=torch.channels_last)
        images = 2 * torch.rand(batch, 3, size, size) - 1
        images = images.to(memory_format=torch.channels_last)
        ones, zeros = torch.ones(batch), torch.zeros(batch)
    adam = partial(torch.optim.Adam, lr=2e-4, betas=(0.5, 0.999))
    g_optimizer, d_optimizer = adam(generator.parameters()), adam(discriminator.parameters())
    entropy = F.binary_cross_entropy_with_logits

    def once() -> Any:
        fake = generator(torch.randn(batch, latents, 1, 1, device=device))
        d_optimizer.zero_grad()
        d_loss = entropy(discriminator(images), ones)
        d_loss = d_loss + entropy(discriminator(fake.detach()), zeros)
        d_loss.backward()
        d_optimizer.step()
        g_optimizer.zero_grad()
        g_loss = entropy(discriminator(fake), ones)
        g_loss.backward()
        g_optimizer.step()
        return torch.stack([d_loss.detach(), g_loss.detach()])

    return once


# --------------------------------------------------------------------------- private gradients

CLIP, NOISE = 1.0, 1.1


def private_gradients(L: Any, batch: int, size: int, classes: int) -> Made:
    """Differentially private SGD: clips each example's gradient, and adds noise to the mean."""
    nn, jnp, random, optim = L.linen, L.jnp, L.random, L.optim
    jax, tree = L.jax, L.jax.tree_util

    class CNN(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            x = nn.relu(nn.Conv(16, (8, 8), (2, 2))(x))
            x = nn.max_pool(x, (2, 2), strides=(1, 1))
            x = nn.relu(nn.Conv(32, (4, 4), (2, 2), padding="VALID")(x))
            x = nn.max_pool(x, (2, 2), strides=(1, 1))
            x = nn.relu(nn.Dense(32)(x.reshape((x.shape[0], -1))))
            return nn.Dense(classes)(x)

    model = CNN()
    images, labels = _labelled_images(L, batch, size, 1, classes)
    params = jax.jit(model.init)(random.key(0), images)["params"]
    optimizer = optim.sgd(0.1)

    def loss_fn(params: Any, image: Any, label: Any) -> Any:
        logits = model.apply({"params": params}, image[None])[0]
        return optim.softmax_cross_entropy_with_integer_labels(logits, label)

    def clipped(params: Any, image: Any, label: Any) -> Any:
        loss, grads = jax.value_and_grad(loss_fn)(params, image, label)
        scale = jnp.minimum(1.0, CLIP / optim.global_norm(grads))
        return loss, tree.tree_map(lambda g: g * scale, grads)

    def step(state: Any, images: Any, labels: Any) -> Any:
        params, opt_state, key = state
        key, noise_key = random.split(key)
        losses, grads = jax.vmap(clipped, (None, 0, 0))(params, images, labels)
        leaves, structure = tree.tree_flatten(grads)
        keys = random.split(noise_key, len(leaves))
        noisy = [
            (g.sum(axis=0) + CLIP * NOISE * random.normal(k, g.shape[1:])) / batch
            for g, k in zip(leaves, keys, strict=True)
        ]
        grads = tree.tree_unflatten(structure, noisy)
        updates, opt_state = optimizer.update(grads, opt_state, params)
        return (optim.apply_updates(params, updates), opt_state, key), losses.mean()

    return Made(step, (params, optimizer.init(params), random.key(1)), (images, labels))


def private_gradients_torch(
    torch: Any, device: str, batch: int, size: int, classes: int
) -> Callable[[], Any]:
    """The same step with per-example gradients from torch.func."""
    nn, func = torch.nn, torch.func
    after = (size // 2 - 5) // 2  # height and width after both convolutions

    with torch.device(device):
        model = nn.Sequential(
            nn.Conv2d(1, 16, 8, 2, 3), nn.ReLU(), nn.MaxPool2d(2, 1),
            nn.Conv2d(16, 32, 4, 2), nn.ReLU(), nn.MaxPool2d(2, 1), nn.Flatten(),
            nn.Linear(32 * after * after, 32), nn.ReLU(), nn.Linear(32, classes),
        )  # fmt: skip
        images = torch.rand(batch, 1, size, size)
        labels = torch.randint(0, classes, (batch,))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def loss_fn(params: Any, image: Any, label: Any) -> Any:
        logits = func.functional_call(model, params, (image[None],))
        return nn.functional.cross_entropy(logits, label[None])

    per_example = func.vmap(func.grad_and_value(loss_fn), (None, 0, 0))

    def once() -> Any:
        params = {name: p.detach() for name, p in model.named_parameters()}
        grads, losses = per_example(params, images, labels)
        norms = torch.stack([g.flatten(1).norm(dim=1) for g in grads.values()]).norm(dim=0)
        scale = (CLIP / norms).clamp(max=1.0)
        for name, p in model.named_parameters():
            total = torch.einsum("n,n...->...", scale, grads[name])
            p.grad = (total + CLIP * NOISE * torch.randn_like(p)) / batch
        optimizer.step()
        return losses.mean()

    return once


# ------------------------------------------------------------------------ variational autoencoder


def variational_autoencoder(L: Any, batch: int, size: int, width: int, latents: int) -> Made:
    """A convolutional encoder, a Gaussian code, and a decoder of transposed convolutions."""
    nn, jnp, random, optim = L.linen, L.jnp, L.random, L.optim

    class VAE(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            for channels in (width, 2 * width, 4 * width):
                x = nn.relu(nn.Conv(channels, (3, 3), strides=(2, 2))(x))
            shape = x.shape
            x = nn.relu(nn.Dense(8 * width)(x.reshape((shape[0], -1))))
            mean, log_variance = nn.Dense(latents)(x), nn.Dense(latents)(x)
            noise = random.normal(self.make_rng("code"), mean.shape)
            z = mean + jnp.exp(0.5 * log_variance) * noise
            x = nn.relu(nn.Dense(shape[1] * shape[2] * shape[3])(z)).reshape(shape)
            for channels in (2 * width, width):
                x = nn.relu(nn.ConvTranspose(channels, (3, 3), strides=(2, 2))(x))
            return nn.ConvTranspose(3, (3, 3), strides=(2, 2))(x), mean, log_variance

    model = VAE()
    images = jnp.asarray(np.random.RandomState(0).rand(batch, size, size, 3), "float32")
    keys = {"params": random.key(0), "code": random.key(1)}
    params = L.jax.jit(model.init)(keys, images)["params"]
    optimizer = optim.adam(1e-3)

    def step(state: Any, images: Any) -> Any:
        params, opt_state, key = state
        key, code_key = random.split(key)

        def loss_fn(params: Any) -> Any:
            rngs = {"code": code_key}
            logits, mean, log_variance = model.apply({"params": params}, images, rngs=rngs)
            entropy = optim.sigmoid_binary_cross_entropy(logits, images).sum(axis=(1, 2, 3))
            divergence = -0.5 * (1 + log_variance - mean**2 - jnp.exp(log_variance)).sum(axis=-1)
            return jnp.mean(entropy + divergence)

        loss, grads = L.jax.value_and_grad(loss_fn)(params)
        updates, opt_state = optimizer.update(grads, opt_state, params)
        return (optim.apply_updates(params, updates), opt_state, key), loss

    return Made(step, (params, optimizer.init(params), random.key(2)), (images,))


def variational_autoencoder_torch(
    torch: Any, device: str, batch: int, size: int, width: int, latents: int
) -> Callable[[], Any]:
    """The same autoencoder, channels last."""
    nn, F = torch.nn, torch.nn.functional
    a, b, c, side = width, 2 * width, 4 * width, size // 8

    class VAE(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            conv = partial(nn.Conv2d, kernel_size=3, stride=2, padding=1)
            up = partial(nn.ConvTranspose2d, kernel_size=3, stride=2, padding=1, output_padding=1)
            self.encoder = nn.Sequential(
                conv(3, a), nn.ReLU(), conv(a, b), nn.ReLU(), conv(b, c), nn.ReLU(), nn.Flatten(),
                nn.Linear(c * side * side, 8 * width), nn.ReLU(),
            )  # fmt: skip
            self.mean = nn.Linear(8 * width, latents)
            self.log_variance = nn.Linear(8 * width, latents)
            self.decoder = nn.Sequential(
                nn.Linear(latents, c * side * side), nn.ReLU(), nn.Unflatten(1, (c, side, side)),
                up(c, b), nn.ReLU(), up(b, a), nn.ReLU(), up(a, 3),
            )  # fmt: skip

        def forward(self, x: Any) -> Any:
            x = self.encoder(x)
            mean, log_variance = self.mean(x), self.log_variance(x)
            z = mean + torch.exp(0.5 * log_variance) * torch.randn_like(mean)
            return self.decoder(z), mean, log_variance

    with torch.device(device):
        model = VAE().to(memory_format=torch.channels_last)
        images = torch.rand(batch, 3, size, size).to(memory_format=torch.channels_last)

    def loss() -> Any:
        logits, mean, log_variance = model(images)
        entropy = F.binary_cross_entropy_with_logits(logits, images, reduction="sum")
        divergence = -0.5 * torch.sum(1 + log_variance - mean**2 - log_variance.exp())
        return (entropy + divergence) / batch

    return _descent(torch.optim.Adam(model.parameters(), 1e-3), loss)


# ---------------------------------------------------------------------------------------- WaveNet


def wavenet(
    L: Any, batch: int, length: int, channels: int, cycles: int, dilations: int,
    dtype: str = "float32",
) -> Made:  # fmt: skip
    """Dilated causal convolutions with gated activations that predict the next audio sample. A
    sample has one of 256 levels. Each cycle has layers with dilations 1, 2, 4 and so on."""
    nn, jnp, optim = L.linen, L.jnp, L.optim
    dt = getattr(jnp, dtype)
    conv = partial(nn.Conv, dtype=dt)

    class Layer(nn.Module):
        dilation: int

        @nn.compact
        def __call__(self, x: Any) -> Any:
            dilation = (self.dilation,)
            y = conv(2 * channels, (2,), kernel_dilation=dilation, padding="CAUSAL")(x)
            filtered, gate = jnp.split(y, 2, axis=-1)
            y = jnp.tanh(filtered) * nn.sigmoid(gate)
            return x + conv(channels, (1,))(y), conv(channels, (1,))(y)

    class WaveNet(nn.Module):
        @nn.compact
        def __call__(self, levels: Any) -> Any:
            x = nn.Embed(256, channels, dtype=dt)(levels)
            total = 0
            for _ in range(cycles):
                for i in range(dilations):
                    x, skip = Layer(2**i)(x)
                    total = total + skip
            x = nn.relu(conv(channels, (1,))(nn.relu(total)))
            return nn.Conv(256, (1,))(x)

    model = WaveNet()
    levels = jnp.asarray(_audio_levels(batch, length + 1))
    params = L.jax.jit(model.init)(L.random.key(0), levels[:, :-1])["params"]
    optimizer = optim.chain(optim.clip_by_global_norm(1.0), optim.adam(1e-3))

    def step(state: Any, levels: Any) -> Any:
        params, opt_state = state

        def loss_fn(params: Any) -> Any:
            logits = model.apply({"params": params}, levels[:, :-1])
            entropy = optim.softmax_cross_entropy_with_integer_labels(logits, levels[:, 1:])
            return entropy.mean()

        loss, grads = L.jax.value_and_grad(loss_fn)(params)
        updates, opt_state = optimizer.update(grads, opt_state, params)
        return (optim.apply_updates(params, updates), opt_state), loss

    return Made(step, (params, optimizer.init(params)), (levels,))


def _audio_levels(batch: int, length: int) -> np.ndarray:
    """Noisy tones, quantized to 256 levels with the mu-law."""
    random = np.random.RandomState(0)
    pitch = random.uniform(0.01, 0.2, (batch, 1))
    audio = 0.7 * np.sin(pitch * np.arange(length)) + 0.05 * random.randn(batch, length)
    pressed = np.sign(audio) * np.log1p(255 * np.abs(audio)) / np.log(256)
    return np.clip((pressed + 1) * 128, 0, 255).astype("int32")


def wavenet_torch(
    torch: Any, device: str, batch: int, length: int, channels: int, cycles: int, dilations: int,
    dtype: str = "float32",
) -> Callable[[], Any]:  # fmt: skip
    """The same network, with the channel axis before the time axis."""
    nn, F = torch.nn, torch.nn.functional

    class Layer(nn.Module):
        def __init__(self, dilation: int) -> None:
            super().__init__()
            self.dilation = dilation
            self.conv = nn.Conv1d(channels, 2 * channels, 2, dilation=dilation)
            self.residual, self.skip = (nn.Conv1d(channels, channels, 1) for _ in range(2))

        def forward(self, x: Any) -> Any:
            filtered, gate = self.conv(F.pad(x, (self.dilation, 0))).chunk(2, 1)
            y = torch.tanh(filtered) * torch.sigmoid(gate)
            return x + self.residual(y), self.skip(y)

    class WaveNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(256, channels)
            self.layers = nn.ModuleList(
                [Layer(2**i) for _ in range(cycles) for i in range(dilations)]
            )
            self.head = nn.Sequential(
                nn.ReLU(), nn.Conv1d(channels, channels, 1), nn.ReLU(), nn.Conv1d(channels, 256, 1)
            )

        def forward(self, levels: Any) -> Any:
            x, total = self.embed(levels).transpose(1, 2), 0
            for layer in self.layers:
                x, skip = layer(x)
                total = total + skip
            return self.head(total)

    with torch.device(device):
        model = WaveNet()
    levels = torch.from_numpy(_audio_levels(batch, length + 1)).long().to(device)

    def loss() -> Any:
        with torch.autocast(device, torch.bfloat16, enabled=dtype == "bfloat16"):
            return F.cross_entropy(model(levels[:, :-1]), levels[:, 1:])

    clip = lambda: nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    return _descent(torch.optim.Adam(model.parameters(), 1e-3), loss, before=clip)


MOBILE = ((16, 1, 1), (24, 2, 2), (40, 3, 2), (80, 4, 2), (112, 2, 1), (160, 3, 2))

PROGRAMS = (
    Program("vision transformer", vision_transformer, {
        "tiny": {
            "batch": 2, "size": 16, "patch": 8, "d": 16, "layers": 1, "heads": 2, "classes": 10,
        },
        "cpu": {
            "batch": 8, "size": 64, "patch": 8, "d": 128, "layers": 4, "heads": 4, "classes": 100,
        },
        "gpu": {
            "batch": 128, "size": 224, "patch": 16, "d": 384, "layers": 12, "heads": 6,
            "classes": 1000, "dtype": "bfloat16",
        },
    }, vision_transformer_torch),
    Program("diffusion U-Net", diffusion_unet, {
        "tiny": {"batch": 2, "size": 8, "channels": 8, "multiples": (1, 2), "heads": 2},
        "cpu": {"batch": 4, "size": 32, "channels": 32, "multiples": (1, 2, 4), "heads": 4},
        "gpu": {
            "batch": 32, "size": 64, "channels": 128, "multiples": (1, 2, 4), "heads": 8,
            "dtype": "bfloat16",
        },
    }, diffusion_unet_torch),
    Program("mobilenet", mobilenet, {
        "tiny": {"batch": 4, "size": 16, "stages": ((16, 2, 1),), "classes": 10},
        "cpu": {"batch": 4, "size": 64, "stages": MOBILE[:4], "classes": 100},
        "gpu": {
            "batch": 128, "size": 224, "stages": MOBILE, "classes": 1000, "dtype": "bfloat16",
        },
    }, mobilenet_torch),
    Program("dcgan", dcgan, {
        "tiny": {"batch": 2, "size": 16, "width": 4, "latents": 8},
        "cpu": {"batch": 16, "size": 32, "width": 32, "latents": 64},
        "gpu": {"batch": 256, "size": 64, "width": 128, "latents": 100},
    }, dcgan_torch),
    Program("private gradients", private_gradients, {
        "tiny": {"batch": 4, "size": 20, "classes": 10},
        "cpu": {"batch": 128, "size": 28, "classes": 10},
        "gpu": {"batch": 4096, "size": 28, "classes": 10},
    }, private_gradients_torch),
    Program("variational autoencoder", variational_autoencoder, {
        "tiny": {"batch": 2, "size": 8, "width": 4, "latents": 4},
        "cpu": {"batch": 32, "size": 32, "width": 32, "latents": 64},
        "gpu": {"batch": 512, "size": 64, "width": 64, "latents": 256},
    }, variational_autoencoder_torch),
    Program("wavenet", wavenet, {
        "tiny": {"batch": 2, "length": 32, "channels": 8, "cycles": 1, "dilations": 3},
        "cpu": {"batch": 2, "length": 2048, "channels": 32, "cycles": 2, "dilations": 6},
        "gpu": {"batch": 8, "length": 8192, "channels": 128, "cycles": 2, "dilations": 10},
    }, wavenet_torch),
)  # fmt: skip
