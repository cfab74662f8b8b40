"""Each module that reads files from elsewhere has rows in the table of damaged files."""

from pathlib import Path

from tests.readers.readers import make_readers

ROOT = Path(__file__).parents[2]

# The module, relative to toile/, and the rows of `make_readers` that go through it.
ROWS = {
    "command/weight_files.py": ["npz_arrays", "npz_arrays, inside"],  # the same `read_entry`
    "engine/protobuf.py": ["protobuf"],
    "engine/treeproto.py": ["tree structures"],
    "exporting/onnx_format.py": ["onnx"],
    "exporting/onnx_reader.py": ["onnx"],
    "interop/huggingface_files.py": ["huggingface, configuration", "huggingface, index"],
    "interop/safetensors.py": ["safetensors", "safetensors, inside"],
    "interop/torch_archive.py": ["torch"],
    "interop/torch_files.py": ["torch", "torch, inside"],
    "interop/torch_pickles.py": ["torch, inside"],
    "metrics/events.py": ["events", "events, inside"],
    "metrics/records.py": ["events, inside"],
    "metrics/writers.py": ["table"],
    "numpy/files.py": ["npy", "npy, of a path"],
    "serialization/array_codes.py": ["msgpack, inside"],
    "serialization/structure.py": ["msgpack", "from_bytes"],
    "training/array_files.py": ["npz_arrays", "mapped_arrays"],
    "training/csv_tables.py": ["csv_table"],
    "training/curves.py": ["history"],
    "training/image_folders.py": ["mapped_arrays"],  # .npy images; others are read by Pillow
    "training/report.py": ["report"],
    "training/sweep.py": ["sweep"],
    "training/text.py": ["documents"],
}


def test_every_reader_is_attacked(tmp_path):
    found = {p.relative_to(ROOT / "toile").as_posix() for p in (ROOT / "toile").rglob("*.py")
             if "engine.file_reader import" in p.read_text()}
    assert found == set(ROWS), "a module that reads files needs a row in tests/readers/readers.py"
    assert {row for rows in ROWS.values() for row in rows} <= set(make_readers(tmp_path))
