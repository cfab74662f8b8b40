"""CLIP: two towers that map images and texts to vectors, whose products are similarities."""

import dataclasses
from typing import Any, NamedTuple

import toile.numpy as jnp
from toile import linen as nn
from toile.interop.huggingface import Table
from toile.interop.torch_weights import Leaf

from . import layers

MODEL_TYPES = ("clip",)


@dataclasses.dataclass(frozen=True)
class Tower:
    """The sizes and options of the transformer of one tower."""

    features: int
    layers: int
    heads: int
    mlp_features: int
    epsilon: float
    activation: str
    attention_dropout: float

    @classmethod
    def from_dict(cls, c: dict, features: int, heads: int) -> "Tower":
        """Read a part of config.json, which may leave out the sizes of the smallest model."""
        return cls(
            features=c.get("hidden_size", features), layers=c.get("num_hidden_layers", 12),
            heads=c.get("num_attention_heads", heads), epsilon=c.get("layer_norm_eps", 1e-5),
            mlp_features=c.get("intermediate_size", 4 * features),
            activation=c.get("hidden_act", "quick_gelu"),
            attention_dropout=c.get("attention_dropout", 0.0),
        )  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Config:
    """The sizes and options of a model."""

    image: Tower
    text: Tower
    features: int  # of the vectors of images and texts
    size: int  # height and width of images
    patch: int
    channels: int
    vocabulary: int
    longest: int  # number of learned positions of tokens
    end: int | None  # the token whose features represent a text; None for the highest token
    scale: float  # first value of the logarithm of the factor of similarities

    @classmethod
    def from_dict(cls, c: dict) -> "Config":
        """Read the contents of config.json."""
        text = c.get("text_config_dict") or c.get("text_config") or {}
        image = c.get("vision_config_dict") or c.get("vision_config") or {}
        end = text.get("eos_token_id", 49407)
        return cls(
            image=Tower.from_dict(image, 768, 12), text=Tower.from_dict(text, 512, 8),
            features=c.get("projection_dim", 512), size=image.get("image_size", 224),
            patch=image.get("patch_size", 32), channels=image.get("num_channels", 3),
            vocabulary=text.get("vocab_size", 49408),
            longest=text.get("max_position_embeddings", 77),
            end=None if end == 2 else end,  # early files contain 2, which is not the token's number
            scale=c.get("logit_scale_init_value", 2.6592),
        )  # fmt: skip


class Outputs(NamedTuple):
    """What a model computes. All vectors have length 1."""

    logits: jnp.ndarray  # similarities [images, texts]
    images: jnp.ndarray  # [images, features]
    texts: jnp.ndarray  # [texts, features]


def transformer(tower: Tower, x, mask=None, train=False):
    """Apply the layers of a tower; call it in a compact method of a module."""
    for i in range(tower.layers):
        layer = layers.TransformerLayer(
            tower.heads, tower.mlp_features, tower.epsilon, tower.activation,
            attention_dropout=tower.attention_dropout, name=f"layer_{i}",
        )  # fmt: skip
        x = layer(x, mask, train)
    return x


class ImageTower(nn.Module):
    """Summarizes images in vectors [batch, features of the tower]."""

    config: Config

    @nn.compact
    def __call__(self, images, train=False):
        c, tower = self.config, self.config.image
        layers.check_images(images, (c.size, c.size), c.channels)
        patch = (c.patch, c.patch)
        conv = nn.Conv(
            tower.features, patch, strides=patch, padding="VALID", use_bias=False, name="patches"
        )
        x = conv(images).reshape(len(images), -1, tower.features)
        first = self.param("class_token", nn.initializers.normal(0.02), (tower.features,))
        x = jnp.concatenate([jnp.broadcast_to(first, (len(x), 1, tower.features)), x], axis=1)
        x = x + nn.Embed(x.shape[1], tower.features, name="positions")(jnp.arange(x.shape[1]))
        x = nn.LayerNorm(tower.epsilon, name="first_norm")(x)
        x = transformer(tower, x, train=train)
        return nn.LayerNorm(tower.epsilon, name="norm")(x[:, 0])


class TextTower(nn.Module):
    """Summarizes texts in vectors [batch, features of the tower]."""

    config: Config

    @nn.compact
    def __call__(self, tokens, mask=None, train=False):
        c, tower = self.config, self.config.text
        length = tokens.shape[1]
        if length > c.longest:
            raise ValueError(
                f"needed texts of at most {c.longest} tokens, got {length} (shorten the texts)"
            )
        x = nn.Embed(c.vocabulary, tower.features, name="embedding")(tokens)
        x = x + nn.Embed(c.longest, tower.features, name="positions")(jnp.arange(length))
        seen = jnp.tril(jnp.ones((1, 1, length, length), bool))
        if mask is not None:
            seen = seen & jnp.asarray(mask, bool)[:, None, None, :]
        x = nn.LayerNorm(tower.epsilon, name="norm")(transformer(tower, x, seen, train))
        end = jnp.argmax(tokens if c.end is None else tokens == c.end, axis=1)
        return jnp.take_along_axis(x, end[:, None, None], axis=1)[:, 0]


class CLIP(nn.Module):
    """A model of the similarity of images and texts."""

    config: Config

    def setup(self):
        c = self.config
        self.image, self.text = ImageTower(c), TextTower(c)
        self.image_projection = nn.Dense(c.features, use_bias=False)
        self.text_projection = nn.Dense(c.features, use_bias=False)
        self.scale = self.param("scale", nn.initializers.constant(c.scale), ())

    def __call__(self, images, tokens, mask=None, train=False):
        """Return `Outputs` for images [images, height, width, channels] and tokens [texts, length].

        The tokens of a text end with an end token; `mask` is False for padding after it.
        """
        x, y = self.images(images, train), self.texts(tokens, mask, train)
        return Outputs(jnp.exp(self.scale) * x @ y.T, x, y)

    def images(self, images, train=False):
        """Return a vector of length 1 for each image."""
        x = self.image_projection(self.image(images, train))
        return x / jnp.linalg.norm(x, axis=-1, keepdims=True)

    def texts(self, tokens, mask=None, train=False):
        """Return a vector of length 1 for each text."""
        x = self.text_projection(self.text(tokens, mask, train))
        return x / jnp.linalg.norm(x, axis=-1, keepdims=True)


def model(config: dict) -> CLIP:
    """Return the module for a config.json."""
    return CLIP(Config.from_dict(config))


def inputs(config: dict) -> tuple:
    """Return inputs with the shapes that the module needs, for its initialization."""
    c = Config.from_dict(config)
    return jnp.zeros((1, c.size, c.size, c.channels)), jnp.zeros((1, 2), jnp.int32)


def table(config: dict) -> Table:
    """Return the names that the tensors have in files."""
    names: dict[str, Any] = {
        "text_model.embeddings.token_embedding": "text/embedding",
        "text_model.embeddings.position_embedding": "text/positions",
        "text_model.final_layer_norm": "text/norm",
        "text_projection": "text_projection",
        "vision_model.embeddings.class_embedding": Leaf("image/class_token"),
        "vision_model.embeddings.patch_embedding": "image/patches",
        "vision_model.embeddings.position_embedding": "image/positions",
        "vision_model.pre_layrnorm": "image/first_norm",  # the name has this spelling
        "vision_model.post_layernorm": "image/norm",
        "visual_projection": "image_projection",
        "logit_scale": Leaf("scale"),
    }
    parts = {
        "layer_norm1": "attention_norm", "self_attn.q_proj": "attention/query",
        "self_attn.k_proj": "attention/key", "self_attn.v_proj": "attention/value",
        "self_attn.out_proj": "attention/out", "layer_norm2": "mlp_norm", "mlp.fc1": "up",
        "mlp.fc2": "down",
    }  # fmt: skip
    for theirs, ours in (("text_model", "text"), ("vision_model", "image")):
        names |= {
            f"{theirs}.encoder.layers.{{i}}.{name}": f"{ours}/layer_{{i}}/{path}"
            for name, path in parts.items()
        }
    return Table(names, ignore=("*.position_ids",))
