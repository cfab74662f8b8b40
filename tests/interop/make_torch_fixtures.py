"""Write tests/interop/fixtures: `python -m tests.interop.make_torch_fixtures`.

Needs torch and safetensors. `<model>.pt` holds a state dict, inputs and outputs;
`<model>.safetensors` the state dict; `layers.pt` a record for each single layer; `values.pt` every
dtype and container; the other files are refused.
"""

import collections
import io
import pathlib
import pickle
import zipfile

import torch
from safetensors.torch import save_file

from tests.interop import torch_models

FOLDER = pathlib.Path(__file__).parent / "fixtures"
DTYPES = (
    "float64 float32 float16 bfloat16 complex64 complex128 int64 int32 int16 int8 uint64 uint32"
    " uint16 uint8 bool float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu"
).split()


def numbers(dtype):
    """1, 0, 2, 4 in a dtype (its own 1, 0.5, 2, 4 where it has no zero)."""
    start = [1.0, 0.5 if dtype == "float8_e8m0fnu" else 0.0, 2.0, 4.0]
    return torch.tensor(start).to(getattr(torch, dtype))


def values():
    """Whatever a tree of tensors may hold."""
    grid = torch.arange(12.0).reshape(3, 4)
    with_note = torch.nn.Parameter(torch.ones(2))
    with_note.note = "kept by torch only"
    return {
        "dtypes": {name: numbers(name) for name in DTYPES},
        "views": [grid, grid.T, grid[1:, ::2], grid[2], torch.tensor(5.0), torch.zeros(0, 3)],
        "expanded": torch.tensor([1.0, 2.0]).expand(3, 2),
        "conjugate": torch.tensor([1 + 2j]).conj(),
        "negative": torch._neg_view(torch.tensor([2.0])),
        "parameter": torch.nn.Parameter(torch.ones(2)),
        "with_note": with_note,
        "ordered": collections.OrderedDict([("b", 1), ("a", torch.tensor(2))]),
        "default": collections.defaultdict(list, {"x": [1]}),
        "counter": collections.Counter("abca"),
        "python": [None, True, -3, 2**40, 2**70, 0.5, "é", b"\x00\xff", (1, (2,)), {1, 2}, 1 + 2j],
        "size": torch.Size([2, 3]),
        "dtype": torch.bfloat16,
        "device": torch.device("cpu"),
    }


def legacy(value):
    """The bytes of the format before torch 1.6."""
    buffer = io.BytesIO()
    torch.save(value, buffer, _use_new_zipfile_serialization=False)
    return buffer.getvalue()


def script(path):
    """What tells a TorchScript archive."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("net/data.pkl", pickle.dumps({}, 2))
        archive.writestr("net/constants.pkl", pickle.dumps((), 2))


def main():
    FOLDER.mkdir(exist_ok=True)
    torch.manual_seed(0)
    for name, make in torch_models.MODELS.items():
        record = torch_models.recorded(*make())
        torch.save(record, FOLDER / f"{name}.pt")
        state = {k: v.contiguous() for k, v in record["state_dict"].items()}
        save_file(state, FOLDER / f"{name}.safetensors", {"format": "pt"})
    layers = {}
    for name, make in torch_models.LAYERS.items():
        module, shapes = make()
        layers[name] = torch_models.recorded(module, torch_models.inputs_of(shapes))
    torch.save(layers, FOLDER / "layers.pt")
    torch.save(values(), FOLDER / "values.pt")
    torch.save(torch.nn.Sequential(torch.nn.Linear(2, 2)), FOLDER / "module.pt")
    torch.save(torch.eye(2).to_sparse(), FOLDER / "sparse.pt")
    (FOLDER / "legacy.pt").write_bytes(legacy({"w": torch.ones(2)}))
    script(FOLDER / "script.pt")


if __name__ == "__main__":
    main()
