"""The torch models behind the fixtures; imported only where torch is installed.

A ResNet-18 of width 4 with torchvision's names, a two-layer LSTM, a transformer encoder, and single
layers of every kind that `torch_weights` maps. Weights and statistics are random, from a seed.
"""

import torch
from torch import nn
from torch.nn import functional as F


class BasicBlock(nn.Module):
    """Two convolutions and a short cut."""

    def __init__(self, inputs, features, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, features, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(features)
        self.conv2 = nn.Conv2d(features, features, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(features)
        self.downsample = None
        if stride != 1 or inputs != features:
            conv = nn.Conv2d(inputs, features, 1, stride, bias=False)
            self.downsample = nn.Sequential(conv, nn.BatchNorm2d(features))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return F.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet18(nn.Module):
    """torchvision's ResNet-18 at another width."""

    def __init__(self, width=4, classes=10):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        inputs = width
        for i in range(4):
            features = width * 2**i
            first = BasicBlock(inputs, features, 1 if i == 0 else 2)
            stage = nn.Sequential(first, BasicBlock(features, features, 1))
            setattr(self, f"layer{i + 1}", stage)
            inputs = features
        self.fc = nn.Linear(inputs, classes)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 3, 2, 1)
        for stage in (self.layer1, self.layer2, self.layer3, self.layer4):
            x = stage(x)
        return self.fc(x.mean((2, 3)))


class Tagger(nn.Module):
    """Words to tags: an embedding, a two-layer LSTM and a projection."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(11, 6)
        self.lstm = nn.LSTM(6, 8, num_layers=2, batch_first=True)
        self.out = nn.Linear(8, 5)

    def forward(self, words):
        return self.out(self.lstm(self.embedding(words))[0])


class Encoder(nn.Module):
    """A transformer encoder over embedded words, with positions that are learned."""

    def __init__(self, size=16, heads=4, hidden=32, length=7):
        super().__init__()
        self.embed = nn.Embedding(11, size)
        self.positions = nn.Parameter(torch.randn(1, length, size))
        layer = nn.TransformerEncoderLayer(size, heads, hidden, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, nn.LayerNorm(size))

    def forward(self, words):
        return self.encoder(self.embed(words) + self.positions)


def first(module):
    """The first of a recurrent network's results."""
    return lambda *x: module(*x)[0]


# name: (module, shapes of its inputs)
LAYERS = {
    "linear": lambda: (nn.Linear(4, 5), [(2, 4)]),
    "linear_no_bias": lambda: (nn.Linear(4, 5, bias=False), [(2, 4)]),
    "conv1d": lambda: (nn.Conv1d(3, 4, 3, stride=2, padding=1), [(2, 3, 9)]),
    "conv2d": lambda: (nn.Conv2d(3, 4, (3, 2), dilation=2), [(2, 3, 8, 7)]),
    "conv2d_groups": lambda: (nn.Conv2d(4, 6, 3, groups=2, padding=1), [(2, 4, 5, 5)]),
    "conv2d_depthwise": lambda: (nn.Conv2d(4, 8, 3, groups=4, bias=False), [(2, 4, 5, 5)]),
    "conv3d": lambda: (nn.Conv3d(2, 3, (2, 3, 2)), [(1, 2, 4, 5, 4)]),
    "conv_transpose1d": lambda: (nn.ConvTranspose1d(3, 4, 3, stride=2), [(2, 3, 5)]),
    "conv_transpose2d": lambda: (nn.ConvTranspose2d(3, 3, (3, 2), stride=2), [(2, 3, 4, 5)]),
    "conv_transpose3d": lambda: (nn.ConvTranspose3d(2, 3, 2, bias=False), [(1, 2, 3, 3, 3)]),
    "batch_norm1d": lambda: (nn.BatchNorm1d(4), [(3, 4)]),
    "batch_norm2d_plain": lambda: (nn.BatchNorm2d(4, affine=False), [(2, 4, 3, 3)]),
    "layer_norm": lambda: (nn.LayerNorm(5), [(3, 5)]),
    "layer_norm_2": lambda: (nn.LayerNorm((3, 4)), [(2, 3, 4)]),
    "group_norm": lambda: (nn.GroupNorm(2, 6), [(2, 6, 3, 3)]),
    "instance_norm": lambda: (nn.InstanceNorm2d(3, affine=True), [(2, 3, 4, 4)]),
    "rms_norm": lambda: (nn.RMSNorm(5, eps=1e-6), [(3, 5)]),
    "prelu": lambda: (nn.PReLU(), [(3, 5)]),
    "embedding": lambda: (nn.Embedding(7, 3), ["words"]),
    "lstm_layer": lambda: (nn.LSTM(3, 4, batch_first=True), [(2, 5, 3)]),
    "lstm_no_bias": lambda: (nn.LSTM(3, 4, batch_first=True, bias=False), [(2, 5, 3)]),
    "lstm_both_ways": lambda: (nn.LSTM(3, 4, bidirectional=True, batch_first=True), [(2, 5, 3)]),
    "gru": lambda: (nn.GRU(3, 4, num_layers=2, batch_first=True), [(2, 5, 3)]),
    "rnn": lambda: (nn.RNN(3, 4, batch_first=True), [(2, 5, 3)]),
    "gru_cell": lambda: (nn.GRUCell(3, 4), [(2, 3), (2, 4)]),
    "attention": lambda: (nn.MultiheadAttention(8, 2, batch_first=True), [(2, 5, 8)] * 3),
    "attention_no_bias": lambda: (
        nn.MultiheadAttention(8, 2, bias=False, batch_first=True), [(2, 5, 8)] * 3),
    "attention_kv": lambda: (
        nn.MultiheadAttention(8, 4, kdim=6, vdim=5, batch_first=True),
        [(2, 3, 8), (2, 4, 6), (2, 4, 5)]),
}  # fmt: skip


def inputs_of(shapes):
    """Random inputs."""
    return [torch.randint(0, 7, (2, 4)) if s == "words" else torch.randn(s) for s in shapes]


def randomize(module):
    """Give every parameter and statistic a value that shows: norms begin with ones and zeros."""
    with torch.no_grad():
        for name, x in module.state_dict().items():
            if name.endswith("running_var"):
                x.copy_(torch.rand_like(x) + 0.5)
            elif x.is_floating_point() and x.ndim <= 1:
                x.copy_(x + 0.2 * torch.randn_like(x))
            elif name.endswith("num_batches_tracked"):
                x.fill_(3)
    return module.eval()


def answer(module, inputs):
    """The module's (first) result."""
    with torch.no_grad():
        out = module(*inputs)
    return out[0] if isinstance(out, tuple) else out


MODELS = {
    "resnet": lambda: (ResNet18(), [torch.randn(2, 3, 40, 40)]),
    "lstm": lambda: (Tagger(), [torch.randint(0, 11, (3, 9))]),
    "transformer": lambda: (Encoder(), [torch.randint(0, 11, (3, 7))]),
}


def recorded(module, inputs):
    """What a fixture holds of a model."""
    randomize(module)
    state = module.state_dict()
    return {"state_dict": state, "inputs": list(inputs), "outputs": answer(module, inputs)}
