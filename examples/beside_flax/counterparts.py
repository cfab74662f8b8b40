"""The counterparts of the examples in Flax and Optax: networks, losses and optimizers.

Each class is an example. Its methods after `random_batch` contain the code that a user of Flax and
Optax would write. `random_batch` makes batches with the shapes of the recipe, without a data set.
"""

import dataclasses

import numpy as np

from .base import Example, named


class Mnist(Example):
    """A small convolutional network."""

    name = "mnist"

    @property
    def total(self) -> int:
        return self.config.num_epochs * len(self.loaders()[0])

    def state(self):
        return self.train.create_state(self.config, self.state_key, self.total)

    def step(self):
        empty = self.train.Metrics.empty()
        return lambda state, batch: self.train.train_step(state, empty, batch)

    def model(self):
        c = self.config
        return self.flax_models().CNN(features=tuple(c.features), hidden=c.hidden)

    def optimizer(self):
        import optax

        c = self.config
        rate = optax.warmup_cosine_decay_schedule(0.0, c.learning_rate, c.warmup_steps, self.total)
        return optax.sgd(rate, c.momentum)

    def loss(self, forward, batch, rngs):
        import optax

        logits = forward(batch["image"])
        loss = optax.softmax_cross_entropy_with_integer_labels(logits, batch["label"]).mean()
        return loss, loss


class Seq2Seq(Example):
    """LSTMs that add numbers."""

    name, unit = "seq2seq", "sums"

    def state(self):
        return self.train.create_state(self.config, self.loaders()[0], self.state_key)

    def model(self):
        return self.flax_models().Seq2Seq(self.config.features)

    def optimizer(self):
        import optax

        c = self.config
        rate = optax.warmup_cosine_decay_schedule(
            0.0, c.learning_rate, c.warmup_steps, max(c.num_steps, c.warmup_steps + 1)
        )
        return optax.chain(optax.clip_by_global_norm(c.clip_norm), optax.adam(rate))

    def loss(self, forward, batch, rngs):
        import jax.numpy as jnp
        import optax

        logits, _ = forward(batch["question"], batch["answer"])
        target = batch["answer"][:, 1:]
        ends = jnp.argmax(target[..., 1], axis=-1)
        real = jnp.arange(target.shape[1]) <= ends[:, None]
        each = jnp.where(real, optax.softmax_cross_entropy(logits, target), 0.0)
        loss = (each.sum(axis=1) / real.sum(axis=1)).mean()
        return loss, loss


class Images(Example):
    """Residual networks trained by SGD with Nesterov momentum and weight decay for kernels."""

    @property
    def classes(self) -> int:
        return 10

    def state(self):
        return self.train.create_state(self.config, self.state_key)

    def step(self):
        return self.train.train_step(self.config)

    def images(self, size: int):
        count = self.config.batch_size
        rng = np.random.default_rng(0)
        image = rng.standard_normal((count, size, size, 3), np.float32)
        return {"image": image, "label": rng.integers(0, self.classes, count, np.int32)}

    def sgd(self, peak: float):
        import optax

        c = self.config
        rate = optax.warmup_cosine_decay_schedule(
            0.0, peak, c.warmup_steps, max(c.num_steps, c.warmup_steps + 1)
        )
        return optax.chain(
            optax.add_decayed_weights(c.weight_decay, mask=named("kernel")),
            optax.sgd(rate, c.momentum, nesterov=True),
        )

    def inputs(self, batch):
        return (batch["image"],)

    def smoothed(self, label):
        import jax
        import optax

        labels = jax.nn.one_hot(label, self.classes)
        return optax.smooth_labels(labels, self.config.label_smoothing)


class Cifar10(Images):
    """A WideResNet with mixup and averaged weights."""

    name, averaged = "cifar10", True

    def random_batch(self):
        return self.images(32)

    def model(self):
        c, models = self.config, self.flax_models()
        if c.model == "resnet":
            return models.ResNet(tuple(c.blocks), c.features, self.classes)
        return models.WideResNet(c.depth, c.width, c.dropout, self.classes)

    def optimizer(self):
        return self.sgd(self.config.learning_rate)

    def loss(self, forward, batch, rngs):
        import jax
        import optax

        images, labels, mixup = batch["image"], self.smoothed(batch["label"]), self.config.mixup
        if mixup:
            share = jax.random.beta(rngs["mixup"], mixup, mixup)
            blend = lambda x: share * x + (1 - share) * x[::-1]
            images, labels = blend(images), blend(labels)
        loss = optax.softmax_cross_entropy(forward(images, train=True), labels).mean()
        return loss, loss


class Imagenet(Images):
    """ResNets with smoothed labels."""

    name = "imagenet"

    @property
    def classes(self) -> int:
        return self.part("input_pipeline").CLASSES[self.config.dataset]

    def random_batch(self):
        return self.images(self.config.image_size)

    def model(self):
        c = self.config
        build = self.flax_models().MODELS[c.model]
        return build(num_classes=self.classes, num_filters=c.num_filters)

    def optimizer(self):
        return self.sgd(self.config.learning_rate * self.config.batch_size / 256)

    def loss(self, forward, batch, rngs):
        import optax

        labels = self.smoothed(batch["label"])
        loss = optax.softmax_cross_entropy(forward(batch["image"], train=True), labels).mean()
        return loss, loss


def token_loss(logits, targets):
    """Return the mean cross-entropy of the tokens that are not padding."""
    import jax.numpy as jnp
    import optax

    real = targets > 0
    each = optax.softmax_cross_entropy_with_integer_labels(logits, targets)
    return jnp.sum(each * real) / jnp.maximum(real.sum(), 1)


class Lm1b(Example):
    """A transformer that predicts the next token."""

    name, unit = "lm1b", "tokens"

    @property
    def vocabulary(self) -> int:
        c = self.config
        return c.vocabulary_size if c.dataset == "tfds" else self.loaders()[0].size

    def state(self):
        return self.train.create_state(self.config, self.vocabulary, self.state_key)

    def random_batch(self):
        shape = (self.config.batch_size, self.config.length)
        targets = np.random.default_rng(0).integers(3, self.vocabulary, shape, np.int32)
        inputs = np.pad(targets, ((0, 0), (1, 0)))[:, :-1]
        positions = np.broadcast_to(np.arange(shape[1], dtype=np.int32), shape)
        segments = np.ones(shape, np.int32)
        return {
            "inputs": inputs, "targets": targets, "positions": positions, "segments": segments
        }  # fmt: skip

    def model(self):
        c = self.config
        return self.flax_models().TransformerLM(
            self.vocabulary, c.features, c.layers, c.heads, c.qkv_features, c.mlp_features,
            longest=max(c.length, c.sample_length), dropout=c.dropout, tied=c.tied, remat=c.remat,
            scan_layers=c.scan_layers,
        )  # fmt: skip

    def inputs(self, batch):
        return tuple(batch[name] for name in ("inputs", "positions", "segments"))

    def optimizer(self):
        import jax.numpy as jnp
        import optax

        c, warm = self.config, max(self.config.warmup_steps, 1)
        rate = optax.warmup_cosine_decay_schedule(
            0.0, c.learning_rate, c.warmup_steps, max(c.num_steps, c.warmup_steps + 1)
        )
        if c.schedule == "rsqrt":
            rate = lambda step: c.learning_rate * jnp.minimum(
                step / warm, jnp.sqrt(warm / (step + 1))
            )
        tx = optax.adamw(
            rate, b1=0.9, b2=c.beta2, eps=1e-9, weight_decay=c.weight_decay,
            mask=named("kernel", "embedding"),
        )  # fmt: skip
        return optax.chain(optax.clip_by_global_norm(c.clip_norm), tx)

    def loss(self, forward, batch, rngs):
        loss = token_loss(forward(*self.inputs(batch), train=True), batch["targets"])
        return loss, loss


class T5(Example):
    """T5 1.1, whose config names the gin files with the recipe and the sizes."""

    name, unit = "t5", "tokens"

    def __init__(self, config):
        recipe, self.sizes = self.part("gin_files").configured(config)
        super().__init__(recipe)

    def loaders(self):
        data = self.part("input_pipeline")
        return data.loaders(self.config, self.sizes.vocabulary, self.data_key)

    def state(self):
        return self.train.create_state(self.config, self.sizes, self.state_key)

    def step(self):
        return self.train.train_step(self.config)

    def random_batch(self):
        c, rng = self.config, np.random.default_rng(0)
        names = {"inputs": c.inputs_length, "targets": c.targets_length}
        tokens = lambda n: rng.integers(3, self.sizes.vocabulary, (c.batch_size, n), np.int32)
        return {name: tokens(length) for name, length in names.items()}

    def model(self):
        models = self.flax_models()
        return models.T5(models.T5Config(**dataclasses.asdict(self.sizes)))

    def inputs(self, batch):
        return batch["inputs"], batch["targets"]

    def optimizer(self):
        import jax.numpy as jnp
        import optax

        c = self.config
        if c.optimizer == "adafactor":
            rate = lambda step: c.learning_rate / jnp.sqrt(jnp.maximum(step, c.warmup_steps))
            return optax.adafactor(rate, decay_rate=0.8, multiply_by_parameter_scale=True)
        rate = optax.warmup_cosine_decay_schedule(
            0.0, c.learning_rate, c.warmup_steps, max(c.num_steps, c.warmup_steps + 1)
        )
        tx = optax.adamw(rate, b2=0.98, weight_decay=c.weight_decay, mask=named("kernel"))
        return optax.chain(optax.clip_by_global_norm(c.clip_norm), tx)

    def loss(self, forward, batch, rngs):
        import jax
        import jax.numpy as jnp

        logits, real = forward(*self.inputs(batch), train=True), batch["targets"] > 0
        loss = token_loss(logits, batch["targets"])
        normalizer = jax.nn.logsumexp(logits, axis=-1) ** 2
        extra = jnp.sum(normalizer * real) / jnp.maximum(real.sum(), 1)
        return loss + self.config.z_loss * extra, loss


EXAMPLES = {kind.name: kind for kind in (Mnist, Seq2Seq, Cifar10, Imagenet, Lm1b, T5)}
