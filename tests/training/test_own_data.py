"""One's own data: folders of images, CSV files, .npz and mapped .npy files, and their division."""

import re

import numpy as np
import pytest

from tests.readers import bounds
from toile import random
from toile.errors import UnreadableFileError
from toile.metrics import media
from toile.training import datasets
from toile.training.loader import Loader


def first_line(caught):
    return str(caught.value).splitlines()[0]


def batches(source, size=4, **options):
    return list(Loader(source, size, last="keep", **options))


# ------------------------------------------------------------------------------------- images


@pytest.fixture
def photos(tmp_path):
    """Two classes of .npy images of different sizes, and things that are no images."""
    for kind, shape in (("cat", (4, 6)), ("dog", (8, 8, 3))):
        (tmp_path / kind / "deep").mkdir(parents=True)
        for i in range(3):
            place = tmp_path / kind / ("deep" if i == 2 else "") / f"{i}.npy"
            np.save(place, np.full(shape, 50 * i + 10, np.uint8))
    (tmp_path / "cat" / "notes.txt").write_text("no image")
    (tmp_path / "cat" / ".hidden.npy").write_text("no image")
    (tmp_path / ".cache").mkdir()
    return tmp_path


def test_images_have_the_names_of_their_folders_as_classes(photos):
    images = datasets.image_folder(photos, size=(2, 3))
    assert images.classes == ("cat", "dog") and images.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert [str(f.relative_to(photos)) for f in images.files[:3]] == [
        "cat/0.npy", "cat/1.npy", "cat/deep/2.npy",
    ]  # fmt: skip
    (batch, rest) = batches(images)
    assert batch["image"].shape == (4, 2, 3, 3) and batch["image"].dtype == np.uint8
    assert batch["image"][:, 0, 0, 0].tolist() == [10, 60, 110, 10]
    assert batch["label"].dtype == np.int32 and rest["label"].tolist() == [1, 1]


def test_images_are_shuffled_and_augmented_by_key(photos):
    images = datasets.image_folder(photos, size=4)

    def noisy(batch, rng):
        return {**batch, "noise": rng.random(len(batch["label"]))}

    one, two, other = (
        [(b["label"].tolist(), b["noise"].tolist())
         for b in batches(images, key=random.key(k), augment=noisy, threads=2)]
        for k in (0, 0, 1)
    )  # fmt: skip
    assert one == two != other


def test_images_of_different_sizes_need_a_size(photos):
    images = datasets.image_folder(photos)
    assert images[0]["image"].shape == (4, 6, 3)
    with pytest.raises(ValueError, match=r"\[4, 6\] in .*cat.0.npy and \[8, 8\] in .*dog"):
        batches(images)


def test_resizing_keeps_the_middle_and_its_means(tmp_path):
    (tmp_path / "a").mkdir()
    image = np.zeros((4, 12), np.uint8)
    image[:, 4:8] = 100
    image[:, 6:8] = 200
    np.save(tmp_path / "a" / "x.npy", image)
    found = datasets.image_folder(tmp_path, size=2, channels=1)[0]["image"]
    assert found[..., 0].tolist() == [[100, 200], [100, 200]]


@pytest.mark.parametrize(("dtype", "value", "seen"), [
    (np.uint8, 200, 200), (bool, True, 255), (np.float32, 0.5, 127), (np.float64, 1.0, 255),
])  # fmt: skip
def test_pixels_of_npy_files(tmp_path, dtype, value, seen):
    (tmp_path / "a").mkdir()
    np.save(tmp_path / "a" / "x.npy", np.full((2, 2, 1), value, dtype))
    assert (datasets.image_folder(tmp_path)[0]["image"] == seen).all()


@pytest.mark.parametrize("image", [
    np.zeros((2, 2), np.int64), np.full((2, 2), 1.5), np.zeros(4, np.uint8), np.zeros((0, 2), "u1"),
    np.full((2, 2), np.nan), np.zeros((1, 2, 2, 3), np.uint8),
])  # fmt: skip
def test_arrays_that_are_no_images_are_named(tmp_path, image):
    (tmp_path / "a").mkdir()
    np.save(tmp_path / "a" / "x.npy", image)
    with pytest.raises(ValueError, match="needed uint8, or floats from 0 to 1") as caught:
        datasets.image_folder(tmp_path)[0]
    assert re.search(r"got \w+\[.*\] in .*x.npy", first_line(caught))


def test_png_and_jpeg_through_pillow(tmp_path):
    image = pytest.importorskip("PIL.Image")
    (tmp_path / "a").mkdir()
    rng = np.random.default_rng(0)
    color = rng.integers(0, 256, (5, 7, 3), np.uint8)
    (tmp_path / "a" / "0.png").write_bytes(media.png(color))
    (tmp_path / "a" / "1.PNG").write_bytes(media.png(color[..., :1]))
    image.fromarray(np.full((5, 7), 77, np.uint8)).save(tmp_path / "a" / "2.jpg")
    image.fromarray(np.dstack([color, color[..., 0]]), "RGBA").save(tmp_path / "a" / "3.png")
    image.fromarray(np.full((5, 7), 0x8000, np.uint16)).save(tmp_path / "a" / "4.png")
    turned = image.Exif()
    turned[0x0112] = 6  # the camera was held upright
    image.fromarray(np.full((7, 5), 9, np.uint8)).save(tmp_path / "a" / "5.jpeg", exif=turned)
    images = datasets.image_folder(tmp_path)
    (batch,) = batches(images, 6)
    assert batch["image"].shape == (6, 5, 7, 3)
    np.testing.assert_array_equal(batch["image"][0], color)
    np.testing.assert_array_equal(batch["image"][1], np.repeat(color[..., :1], 3, axis=-1))
    assert abs(batch["image"][2].astype(int) - 77).max() <= 1
    np.testing.assert_array_equal(batch["image"][3], color)
    assert (batch["image"][4] == 0x80).all()
    gray = datasets.image_folder(tmp_path, channels=1)[0]["image"]
    expected = np.asarray(image.fromarray(color).convert("L")).astype(int)
    assert gray.shape == (5, 7, 1) and abs(gray[..., 0] - expected).max() <= 1


@pytest.mark.parametrize("cut", [0, 4, 20, 60])
def test_a_damaged_png_is_named(tmp_path, cut):
    pytest.importorskip("PIL")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.png").write_bytes(media.png(np.ones((30, 30, 3), np.uint8))[:cut])
    with pytest.raises(UnreadableFileError, match="a PNG or JPEG image, got one that is .*x.png"):
        datasets.image_folder(tmp_path)[0]


def test_without_pillow_the_error_says_what_to_install(tmp_path, monkeypatch):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.png").write_bytes(media.png(np.ones((3, 3, 3), np.uint8)))
    monkeypatch.setitem(__import__("sys").modules, "PIL", None)
    with pytest.raises(ImportError, match="pip install pillow"):
        datasets.image_folder(tmp_path)[0]


def test_folders_that_are_none(tmp_path):
    with pytest.raises(FileNotFoundError, match="needed a folder, got none at .*missing"):
        datasets.image_folder(tmp_path / "missing")
    with pytest.raises(FileNotFoundError, match="needed a subfolder for each class, got none"):
        datasets.image_folder(tmp_path)
    (tmp_path / "cats").mkdir()
    with pytest.raises(FileNotFoundError, match=r"\.png, .* for every class, got none in cats of"):
        datasets.image_folder(tmp_path)
    with pytest.raises(ValueError, match="needed channels=1 or 3, got 2"):
        datasets.image_folder(tmp_path, channels=2)
    np.save(tmp_path / "cats" / "x.npy", np.zeros((2, 2), np.uint8))
    for size in (0, (1, 2, 3), (2, -1), (2.5, 2)):
        with pytest.raises(ValueError, match="needed a positive size or"):
            datasets.image_folder(tmp_path, size=size)


# ---------------------------------------------------------------------------------------- CSV


def table(tmp_path, text, **options):
    path = tmp_path / "table.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return datasets.csv_table(path, **options)


HOUSES = """\ufeffid,area, city ,rooms,sold,price
1,50.5,Oslo,3,yes,300

2,80,"Bern, old",?,no,550
3,NaN,Oslo,2,yes,1e3
4,62,,4,no,-1
"""


def test_columns_are_numbers_or_categories(tmp_path):
    found = table(tmp_path, HOUSES, target="price", ignore=["id"], missing="nan")
    assert found.numbers == ("area", "rooms") and found.target.categories is None
    assert found.categories == {"city": ("", "Bern, old", "Oslo"), "sold": ("no", "yes")}
    arrays = found.arrays
    np.testing.assert_array_equal(
        arrays["numbers"], np.array([[50.5, 3], [80, np.nan], [np.nan, 2], [62, 4]], "f4")
    )
    assert arrays["categories"].tolist() == [[2, 1], [1, 0], [2, 1], [0, 0]]
    assert arrays["target"].tolist() == [300, 550, 1000, -1]
    dtypes = [arrays[n].dtype.name for n in ("numbers", "categories", "target")]
    assert dtypes == ["float32", "int32", "float32"]
    (batch,) = batches(found)
    assert batch["categories"].shape == (4, 2)


def test_missing_numbers(tmp_path):
    mean = table(tmp_path, HOUSES, missing="mean").arrays["numbers"]
    assert mean[2, 1] == np.float32((50.5 + 80 + 62) / 3) and mean[1, 2] == 3
    dropped = table(tmp_path, HOUSES, missing="drop")
    assert len(dropped) == 2 and dropped.arrays["numbers"][:, 0].tolist() == [1, 4]
    with pytest.raises(ValueError) as caught:
        table(tmp_path, HOUSES)
    assert re.search(r"the column 'area', got none in line 5 of .*table.csv, the first of 1",
                     first_line(caught))  # fmt: skip
    text = "a,b\n1,\n2,\n"
    assert np.isnan(table(tmp_path, text, missing="nan").arrays["numbers"][:, 1]).all()
    with pytest.raises(ValueError, match="column 'b' for its mean, got none"):
        table(tmp_path, text, missing="mean")
    with pytest.raises(ValueError, match="needed rows, got none"):
        table(tmp_path, text, missing="drop")


def test_a_target_is_never_made_up(tmp_path):
    text = "x,y\n1,a\n2,\n3,b\n"
    for missing in ("error", "mean", "nan"):
        with pytest.raises(ValueError, match="target 'y' in every row, got none in line 3"):
            table(tmp_path, text, target="y", missing=missing)
    assert table(tmp_path, text, target="y", missing="drop").arrays["target"].tolist() == [1, 2]


def test_numbers_as_categories_are_sorted_as_numbers(tmp_path):
    found = table(tmp_path, "zip\n10\n9\n10\n\"\"\n", categories=["zip"])
    assert found.categories == {"zip": ("", "9", "10")}
    assert found.arrays["categories"][:, 0].tolist() == [2, 1, 2, 0]
    assert found.arrays["numbers"].shape == (4, 0)


def test_a_second_file_has_the_codes_of_the_first(tmp_path):
    first = table(tmp_path, "x,kind,y\n1,b,0\n3,a,1\n", target="y")
    second = table(tmp_path, "y,kind,more,x\n5,a,z,\n", like=first, missing="mean")
    assert second.arrays["numbers"].tolist() == [[2]]  # the mean of the first
    assert second.arrays["categories"].tolist() == [[0]]
    assert second.arrays["target"].tolist() == [5]
    with pytest.raises(ValueError, match="categories of the column 'kind', got 'c' in line 3"):
        table(tmp_path, "x,kind,y\n1,b,0\n3,c,1\n", like=first)
    with pytest.raises(ValueError, match="a number in the column 'x', got 'many' in line 2"):
        table(tmp_path, "x,kind,y\nmany,b,0\n", like=first)
    with pytest.raises(ValueError, match="needed one of the columns of .*, got 'x'"):
        table(tmp_path, "kind,y\nb,0\n", like=first)


@pytest.mark.parametrize(("text", "options", "message"), [
    ("a,b\n1,2\n3\n", {}, "needed 2 fields, as the header has, got 1 in line 3 of"),
    ("a,b\n1,2\n\n\n3,4,5\n", {}, "got 3 in line 5 of"),
    ('a,b\n"1\n2",2\n3\n', {}, "got 1 in line 4 of"),
    ("", {}, "a header with different names in the first line of"),
    ("a,a\n1,2\n", {}, "got 'a', 'a'"),
    ("a,\n1,2\n", {}, "got 'a', ''"),
    ("a,b\n", {}, "needed rows, got none in"),
    (b"a,b\n\xff,2\n", {}, "needed a CSV file in UTF-8"),
    (b'a,b\n"1,2\n', {}, "needed a CSV file in UTF-8"),
    ("price,b\n1,2\n", {"target": "pirce"}, "got 'pirce' (did you mean 'price'?)"),
    ("price,b\n1,2\n", {"ignore": ["c"]}, "price, b, got 'c'"),
    ("a\n1\n1e39\n", {}, "fit float32 in the column 'a', got '1e39' in line 3"),
    ("price,b\n1,2\n", {"missing": "zero"}, "needed missing in"),
])  # fmt: skip
def test_wrong_tables_are_told_in_a_line(tmp_path, text, options, message):
    with pytest.raises(ValueError) as caught:
        table(tmp_path, text, **options)
    assert message in first_line(caught)


def test_other_delimiters_and_fields_that_are_no_numbers(tmp_path):
    found = table(tmp_path, "a;b;c\n1;1_0;inf\n2;2;-2\n", delimiter=";")
    assert found.numbers == ("a", "c") and found.categories == {"b": ("1_0", "2")}


def test_no_such_table(tmp_path):
    with pytest.raises(FileNotFoundError, match="needed a CSV file, got no file at .*none.csv"):
        datasets.csv_table(tmp_path / "none.csv")


# ------------------------------------------------------------------------------ .npz and .npy


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz_files(tmp_path, save):
    path = tmp_path / "x.npz"
    x = np.asfortranarray(np.arange(12.0).reshape(4, 3))
    save(path, x=x, y=np.array([True, False, True, True]), note=np.array("text"))
    (batch,) = batches(datasets.npz_arrays(path, ["x", "y"]))
    np.testing.assert_array_equal(batch["x"], x)
    assert list(batch) == ["x", "y"] and batch["y"].dtype == bool
    with pytest.raises(ValueError, match="arrays x, y, note of .*, got 'z'"):
        datasets.npz_arrays(path, ["z"])
    with pytest.raises(ValueError, match=r"same length .*x: \[4, 3\], y: \[4\], note: \[\]"):
        datasets.npz_arrays(path)
    np.savez(path, images=x, labels=x[:3])
    with pytest.raises(ValueError, match=r"got 'label' \(did you mean 'labels'\?\)"):
        datasets.npz_arrays(path, ["label"])
    with pytest.raises(ValueError, match=r"images: \[4, 3\], labels: \[3, 3\]"):
        datasets.npz_arrays(path)


def test_objects_are_not_read(tmp_path):
    objects = np.array([{}, []], dtype=object)
    np.savez(tmp_path / "x.npz", x=objects)
    np.save(tmp_path / "x.npy", objects)
    with pytest.raises(UnreadableFileError, match="Python objects"):
        datasets.npz_arrays(tmp_path / "x.npz")
    with pytest.raises(UnreadableFileError, match="x.npy"):
        datasets.mapped_arrays({"x": tmp_path / "x.npy"})


def test_only_the_batch_of_a_mapped_array_is_read(tmp_path):
    rows, width = 1024, 16384  # 64 MiB
    big = np.lib.format.open_memmap(tmp_path / "x.npy", "w+", np.float32, (rows, width))
    big[::100, 0] = np.arange(len(big[::100]))
    del big
    np.save(tmp_path / "label.npy", np.arange(rows))

    def read():
        source = datasets.mapped_arrays(tmp_path)
        train, _ = datasets.split(source, 0.5)
        loader = Loader(train, 8, key=random.key(0))
        return source.take(np.array([200]))["x"][0, 0], next(iter(loader))["x"].shape

    read()
    found = bounds.measured(read)
    assert found.error is None and found.value == (2, (8, width))
    assert found.peak < 6 * 8 * 4 * width  # a few batches of 512 KiB


def test_mapped_arrays_by_name_and_their_errors(tmp_path):
    import ml_dtypes

    np.save(tmp_path / "a.npy", np.ones((3, 2), ml_dtypes.bfloat16))
    source = datasets.mapped_arrays({"weights": tmp_path / "a.npy"})
    assert source[2]["weights"].dtype == ml_dtypes.bfloat16
    with pytest.raises(IndexError):
        source[3]
    with pytest.raises(FileNotFoundError, match="got no file at .*b.npy"):
        datasets.mapped_arrays({"x": tmp_path / "b.npy"})
    with pytest.raises(FileNotFoundError, match="needed a folder, got none at"):
        datasets.mapped_arrays(tmp_path / "none")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="needed .npy files, got none in"):
        datasets.mapped_arrays(tmp_path / "empty")
    np.save(tmp_path / "c.npy", np.ones(4))
    with pytest.raises(ValueError, match=r"a: \[3, 2\], c: \[4\]"):
        datasets.mapped_arrays(tmp_path)
    whole = (tmp_path / "c.npy").read_bytes()
    for data in (whole[:-1], whole[:20], b"", b"text", b"PK\x03\x04"):
        (tmp_path / "c.npy").write_bytes(data)
        with pytest.raises(UnreadableFileError, match="c.npy"):
            datasets.mapped_arrays({"c": tmp_path / "c.npy"})


# --------------------------------------------------------------------------------- division


class Squares:
    def __len__(self):
        return 50

    def __getitem__(self, i):
        return {"x": np.int64(i * i)}


@pytest.mark.parametrize("source", [Squares(), {"x": np.arange(50) ** 2}], ids=["source", "arrays"])
def test_a_division_has_everything_once_and_follows_the_seed(source):
    def parts(**options):
        divided = datasets.split(source, **options)
        return [np.concatenate([b["x"] for b in batches(part)]).tolist() for part in divided]

    train, test = parts()
    assert len(test) == 10 and sorted(train + test) == [i * i for i in range(50)]
    assert train == sorted(train) and test == sorted(test)
    assert parts() == [train, test] != parts(seed=1)
    assert [len(x) for x in parts(test=0.001)] == [49, 1]
    for share in (0, 1, -0.1, 1.5):
        with pytest.raises(ValueError, match="needed a share between 0 and 1"):
            parts(test=share)


def test_parts_keep_their_kind_and_can_be_divided_again(photos, tmp_path):
    images = datasets.image_folder(photos, size=2)
    train, test = datasets.split(images, 0.5)
    assert train.classes == images.classes and sorted(train.files + test.files) == images.files
    assert [train[i]["label"] for i in range(3)] == train.labels.tolist()
    rows = table(tmp_path, "x,y\n" + "".join(f"{i},{i % 2}\n" for i in range(20)), target="y")
    train, test = datasets.split(rows, 0.25)
    first, second = datasets.split(train, 0.2)
    assert [len(p) for p in (first, second, test)] == [12, 3, 5]
    seen = np.concatenate([p.arrays["numbers"] for p in (first, second, test)])
    assert sorted(seen[:, 0].tolist()) == list(range(20)) and first.numbers == ("x",)
