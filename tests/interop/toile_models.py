"""The models of torch_models in toile, and which of torch's layers is which of theirs."""

import toile.linen as nn
import toile.numpy as jnp
from toile.interop import torch_weights as tw


class BasicBlock(nn.Module):
    """Two convolutions and a short cut."""

    features: int
    stride: int

    @nn.compact
    def __call__(self, x):
        def conv(features, size, stride=1, padding=1):
            return nn.Conv(features, (size, size), stride, padding, use_bias=False)

        def norm():
            return nn.BatchNorm(use_running_average=True)

        y = nn.relu(norm()(conv(self.features, 3, self.stride)(x)))
        y = norm()(conv(self.features, 3)(y))
        if x.shape != y.shape:
            x = norm()(conv(self.features, 1, self.stride, 0)(x))
        return nn.relu(x + y)


class ResNet18(nn.Module):
    """torchvision's ResNet-18 at another width."""

    width: int = 4
    classes: int = 10

    @nn.compact
    def __call__(self, x):
        x = nn.Conv(self.width, (7, 7), 2, 3, use_bias=False)(x)
        x = nn.relu(nn.BatchNorm(use_running_average=True)(x))
        x = nn.max_pool(x, (3, 3), (2, 2), [(1, 1), (1, 1)])
        for i in range(4):
            x = BasicBlock(self.width * 2**i, 1 if i == 0 else 2)(x)
            x = BasicBlock(self.width * 2**i, 1)(x)
        return nn.Dense(self.classes)(x.mean((1, 2)))


def resnet_names():
    """Compact modules are numbered in the order in which they run."""
    names = {"conv1": "Conv_0", "bn1": "BatchNorm_0", "fc": "Dense_0"}
    for i in range(8):
        layer, block = f"layer{i // 2 + 1}.{i % 2}", f"BasicBlock_{i}"
        for j in range(2):
            names[f"{layer}.conv{j + 1}"] = f"{block}/Conv_{j}"
            names[f"{layer}.bn{j + 1}"] = f"{block}/BatchNorm_{j}"
        if i in (2, 4, 6):
            names[f"{layer}.downsample.0"] = f"{block}/Conv_2"
            names[f"{layer}.downsample.1"] = f"{block}/BatchNorm_2"
    return names


class Tagger(nn.Module):
    """Words to tags."""

    @nn.compact
    def __call__(self, words):
        x = nn.Embed(11, 6, name="embedding")(words)
        x = nn.RNN(nn.OptimizedLSTMCell(8))(x)
        x = nn.RNN(nn.LSTMCell(8))(x)
        return nn.Dense(5, name="out")(x)


LSTM_NAMES = {
    "embedding": "embedding",
    "lstm.l0": "OptimizedLSTMCell_0",
    "lstm.l1": "LSTMCell_0",
    "out": "out",
}


class EncoderLayer(nn.Module):
    """torch's TransformerEncoderLayer, whose submodules have the same names."""

    def setup(self):
        self.self_attn = nn.MultiHeadDotProductAttention(4)
        self.linear1, self.linear2 = nn.Dense(32), nn.Dense(16)
        self.norm1, self.norm2 = nn.LayerNorm(epsilon=1e-5), nn.LayerNorm(epsilon=1e-5)

    def __call__(self, x):
        x = self.norm1(x + self.self_attn(x))
        return self.norm2(x + self.linear2(nn.relu(self.linear1(x))))


class Stack(nn.Module):
    """torch's TransformerEncoder."""

    def setup(self):
        self.layers = [EncoderLayer() for _ in range(2)]
        self.norm = nn.LayerNorm(epsilon=1e-5)

    def __call__(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)


class Encoder(nn.Module):
    """A transformer encoder over embedded words: all names are torch's, so that none is given."""

    def setup(self):
        self.embed = nn.Embed(11, 16)
        self.positions = self.param("positions", nn.initializers.zeros, (1, 7, 16))
        self.encoder = Stack()

    def __call__(self, words):
        return self.encoder(self.embed(words) + self.positions)


MODELS = {
    "resnet": (ResNet18(), resnet_names()),
    "lstm": (Tagger(), LSTM_NAMES),
    "transformer": (Encoder(), None),
}


class Gru2(nn.Module):
    """Two layers of GRU."""

    @nn.compact
    def __call__(self, x):
        x = nn.RNN(nn.GRUCell(4))(x)
        return nn.RNN(nn.GRUCell(4))(x)


def one(layer):
    """The names of a model that is one layer."""
    return {"": layer}


# name: (module, names)
LAYERS = {
    "linear": (nn.Dense(5), one("")),
    "linear_no_bias": (nn.Dense(5, use_bias=False), one("")),
    "conv1d": (nn.Conv(4, (3,), 2, 1), one("")),
    "conv2d": (nn.Conv(4, (3, 2), padding=0, kernel_dilation=2), one("")),
    "conv2d_groups": (nn.Conv(6, (3, 3), feature_group_count=2, padding=1), one("")),
    "conv2d_depthwise": (
        nn.Conv(8, (3, 3), feature_group_count=4, padding=0, use_bias=False), one("")),
    "conv3d": (nn.Conv(3, (2, 3, 2), padding=0), one("")),
    "conv_transpose1d": (
        nn.ConvTranspose(4, (3,), (2,), "VALID"), one(tw.ConvTranspose(""))),
    "conv_transpose2d": (
        nn.ConvTranspose(3, (3, 2), (2, 2), "VALID", transpose_kernel=True),
        one(tw.ConvTranspose("", transpose_kernel=True))),
    "conv_transpose3d": (
        nn.ConvTranspose(3, (2, 2, 2), padding="VALID", use_bias=False),
        one(tw.ConvTranspose(""))),
    "batch_norm1d": (nn.BatchNorm(use_running_average=True), one("")),
    "batch_norm2d_plain": (
        nn.BatchNorm(use_running_average=True, use_bias=False, use_scale=False), one("")),
    "layer_norm": (nn.LayerNorm(epsilon=1e-5), one("")),
    "layer_norm_2": (
        nn.LayerNorm(epsilon=1e-5, reduction_axes=(-2, -1), feature_axes=(-2, -1)), one("")),
    "group_norm": (nn.GroupNorm(2, epsilon=1e-5), one("")),
    "instance_norm": (nn.InstanceNorm(epsilon=1e-5), one("")),
    "rms_norm": (nn.RMSNorm(epsilon=1e-6), one("")),
    "prelu": (nn.PReLU(), one("")),
    "embedding": (nn.Embed(7, 3), one("")),
    "lstm_layer": (nn.RNN(nn.LSTMCell(4)), {"l0": "cell"}),
    "lstm_no_bias": (nn.RNN(nn.OptimizedLSTMCell(4)), {"l0": "cell"}),
    "lstm_both_ways": (
        nn.Bidirectional(nn.RNN(nn.LSTMCell(4)), nn.RNN(nn.LSTMCell(4))),
        {"l0": "forward_rnn/cell", "l0_reverse": "backward_rnn/cell"}),
    "gru": (Gru2(), {"l0": "GRUCell_0", "l1": tw.GRU("GRUCell_1")}),
    "rnn": (nn.RNN(nn.SimpleCell(4)), {"l0": "cell"}),
    "gru_cell": (nn.GRUCell(4), one("")),
    "attention": (nn.MultiHeadDotProductAttention(2), one("")),
    "attention_no_bias": (nn.MultiHeadDotProductAttention(2, use_bias=False), one("")),
    "attention_kv": (nn.MultiHeadDotProductAttention(4), one("")),
}  # fmt: skip

SPATIAL = ("conv", "batch_norm2d", "group_norm", "instance_norm", "resnet")


def arguments(name, inputs):
    """Torch's inputs as toile's module takes them: channels last, the carry first."""
    inputs = [jnp.asarray(x) for x in inputs]
    if name == "gru_cell":
        return inputs[::-1]
    return [channels_last(name, x) for x in inputs]


def channels_last(name, x):
    """(N, C, *space) -> (N, *space, C) for those that have a space."""
    return jnp.moveaxis(jnp.asarray(x), 1, -1) if name.startswith(SPATIAL) else jnp.asarray(x)
