"""Models of PyTorch as ONNX files, written by PyTorch's exporter."""

import io
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.onnx._internal.torchscript_exporter import onnx_proto_utils


def _recurrent(kind: type, **options: Any) -> nn.Module:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = kind(5, 6, num_layers=2, bidirectional=True, **options)

        def forward(self, x: Any) -> Any:
            return self.layer(x)[0]

    return Net()


class Upsampled(nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = options

    def forward(self, x: Any) -> Any:
        return nn.functional.interpolate(x, **self.options)


class Indexing(nn.Module):
    def forward(self, x: Any) -> Any:
        y = torch.cat([x[:, 1:], x[:, :1]], 1).transpose(1, 2)
        return y.topk(2, dim=-1)[0], y.argmax(1), torch.where(y > 0, y, -y).clamp(0.1, 0.7)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.attend = nn.Embedding(11, 8), nn.MultiheadAttention(8, 2)
        self.norm = nn.LayerNorm(8)

    def forward(self, tokens: Any) -> Any:
        x = self.embed(tokens)
        return self.norm(x + self.attend(x, x, x)[0]).softmax(-1)


class Causal(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        q, k, v = (y.unflatten(-1, (2, 4)).transpose(1, 2) for y in self.qkv(x).chunk(3, -1))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).flatten(2))


def _image(*shape: int) -> torch.Tensor:
    return torch.from_numpy(np.random.RandomState(0).normal(size=shape).astype(np.float32))


MODELS = {
    "cnn": (lambda: nn.Sequential(
        nn.Conv2d(3, 4, 3, 2, 1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(3, 2, 1),
        nn.Conv2d(4, 6, 3, groups=2, dilation=2, padding=2), nn.SiLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(6, 5), nn.LogSoftmax(-1)), lambda: _image(2, 3, 16, 16)),
    "pools": (lambda: nn.Sequential(
        nn.AvgPool2d(3, 2, 1), nn.MaxPool2d(2, ceil_mode=True),
        nn.AvgPool2d(3, 1, 1, count_include_pad=False)), lambda: _image(2, 3, 15, 17)),
    "deconvolution": (lambda: nn.Sequential(
        nn.ConvTranspose2d(4, 6, 3, 2, 1, 1, groups=2), nn.GroupNorm(3, 6), nn.GELU(),
        nn.ConvTranspose2d(6, 2, 4, 2, 1), nn.InstanceNorm2d(2, affine=True), nn.Hardswish()),
        lambda: _image(2, 4, 5, 6)),
    "one dimension": (lambda: nn.Sequential(
        nn.Conv1d(3, 4, 3, padding=1), nn.ELU(), nn.LeakyReLU(0.2), nn.PReLU(4), nn.Softplus()),
        lambda: _image(2, 3, 9)),
    "lstm": (lambda: _recurrent(nn.LSTM), lambda: _image(7, 2, 5)),
    "gru": (lambda: _recurrent(nn.GRU, batch_first=True), lambda: _image(2, 7, 5)),
    "rnn": (lambda: _recurrent(nn.RNN, nonlinearity="relu"), lambda: _image(7, 2, 5)),
    "causal": (Causal, lambda: _image(2, 5, 8)),
    "attention": (Attention, lambda: torch.tensor([[1, 2, 3], [4, 10, 6]])),
    "indexing": (Indexing, lambda: _image(2, 5, 4)),
    "nearest": (lambda: Upsampled(scale_factor=2), lambda: _image(1, 2, 3, 4)),
    "bilinear": (lambda: Upsampled(size=(7, 5), mode="bilinear"), lambda: _image(1, 2, 3, 4)),
    "aligned": (lambda: Upsampled(scale_factor=3, mode="bilinear", align_corners=True),
                lambda: _image(1, 2, 3, 4)),
    "shuffle": (lambda: nn.Sequential(nn.PixelShuffle(2), nn.PixelUnshuffle(2)),
                lambda: _image(1, 8, 3, 4)),
}


def exported(name: str, free: bool) -> tuple[bytes, torch.Tensor, list[np.ndarray]]:
    """The bytes of the file, the argument, and the results of PyTorch."""
    make, argument = MODELS[name]
    torch.manual_seed(0)
    model, x = make().eval(), argument()
    # The exporter imports onnx only to add functions that these models do not have.
    onnx_proto_utils._add_onnxscript_fn = lambda data, functions: data
    file = io.BytesIO()
    axes = {"x": {0: "batch"}} if free else None
    torch.onnx.export(model, (x,), file, dynamo=False, input_names=["x"], dynamic_axes=axes)
    with torch.no_grad():
        out = model(x)
    outs = out if isinstance(out, tuple) else (out,)
    return file.getvalue(), x, [o.numpy() for o in outs]
