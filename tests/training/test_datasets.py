"""Where examples find their data: shipped files, and data sets of tensorflow-datasets."""

import sys

import numpy as np
import pytest

from toile.training import datasets


def test_a_shipped_file_is_found_beside_the_example_first(tmp_path):
    module = tmp_path / "train.py"
    shipped = datasets.shipped("mnist_5k.npz", module)
    assert shipped.parts[-3:] == ("mnist", "data", "mnist_5k.npz")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "mnist_5k.npz").touch()
    assert datasets.shipped("mnist_5k.npz", module) == tmp_path / "data" / "mnist_5k.npz"
    with pytest.raises(FileNotFoundError, match="needed the data file nothing.npz"):
        datasets.shipped("nothing.npz", module)


def test_without_tensorflow_datasets_the_command_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    with pytest.raises(ImportError, match=r"pip install 'toile\[datasets\]'"):
        datasets.tfds_sources("mnist", ["train"])


MOLECULE = {
    "node_feat": np.ones((3, 9), np.float32), "edge_feat": np.ones((4, 3), np.float32),
    "edge_index": np.array([[0, 1], [1, 0], [1, 2], [2, 1]]), "num_nodes": np.array([3]),
    "labels": np.full(128, np.nan, np.float32), "num_edges": np.array([4]),
}  # fmt: skip
PREPARED = {
    "binarized_mnist": ("test", lambda i: {"image": np.full((28, 28, 1), i % 2, np.uint8)}),
    "glue/sst2": ("validation", lambda i: {"sentence": f"film {i}", "label": i % 2, "idx": i}),
    "ogbg_molpcba": ("validation", lambda i: MOLECULE),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", list(PREPARED))
def test_a_prepared_set_is_read_and_one_that_is_not_is_told(name, tmp_path, monkeypatch):
    """The real builders write a few examples of ours; nothing is downloaded."""
    tfds = pytest.importorskip("tensorflow_datasets")
    held_out, example = PREPARED[name]
    builder = tfds.builder(name, data_dir=tmp_path, file_format="array_record")

    def examples(self, count, **kwargs):
        yield from ((i, example(i)) for i in range(count))

    def splits(self, manager, **kwargs):
        return {"train": examples(self, 8), held_out: examples(self, 3)}

    real = tfds.data_source
    monkeypatch.setattr(
        tfds, "data_source", lambda *a, **k: real(*a, **{"data_dir": tmp_path, **k})
    )
    with pytest.raises(FileNotFoundError, match=f"tfds build {name} --file_format=array_record"):
        datasets.tfds_sources(name, ["train", held_out])
    monkeypatch.setattr(type(builder), "_split_generators", splits)
    builder.download_and_prepare()
    train, test = datasets.tfds_sources(name, ["train", held_out])
    assert (len(train), len(test)) == (8, 3)
    for key, value in example(0).items():
        assert key in train[0] and np.shape(train[0][key]) == np.shape(value)
