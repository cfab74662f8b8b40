"""Generated shapes, and the crops of training."""

import numpy as np
import pytest

from toile.training import images


def test_shapes_are_always_the_same_and_of_every_kind():
    some, more = images.textured_shapes(20, 16, seed=3), images.textured_shapes(30, 16, seed=3)
    assert some["image"].shape == (20, 16, 16, 3) and some["image"].dtype == np.uint8
    assert np.bincount(some["label"]).tolist() == [2] * 10
    assert (some["image"] == more["image"][:20]).all()
    assert (some["image"] != images.textured_shapes(20, 16, seed=4)["image"]).any()


def test_every_shape_fits_its_disc_and_no_two_are_alike():
    v, u = np.mgrid[-1.2:1.2:97j, -1.2:1.2:97j]
    inside = [shape(u, v) for shape in images.SHAPES.values()]
    for i, a in enumerate(inside):
        assert 0.1 < a.sum() / (np.hypot(u, v) < 1).sum() < 0.9
        assert not a[np.hypot(u, v) > 1.12].any()
        for b in inside[:i]:
            assert (a ^ b).sum() > 0.2 * min(a.sum(), b.sum())


def batch_of(count=40, size=8):
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 127, (count, size, size, 3), np.uint8)
    return {"image": pixels, "label": np.arange(count)}


def test_shifting_moves_and_mirrors():
    batch = batch_of()
    moved = images.shifted(batch, np.random.default_rng(1), 2)["image"]
    wide = np.pad(batch["image"], ((0, 0), (2, 2), (2, 2), (0, 0)), mode="reflect")
    found = set()
    for x, w in zip(moved, wide):
        corners = [(i, j) for i in range(5) for j in range(5)]
        places = [(i, j) for i, j in corners if (w[i : i + 8, j : j + 8] == x).all()]
        assert places
        found |= set(places)
    assert len(found) > 15


def test_flipping_turns_about_half():
    batch = batch_of(200)
    out = images.flipped(batch, np.random.default_rng(1))["image"]
    same = (out == batch["image"]).all(axis=(1, 2, 3))
    turned = (out == batch["image"][:, :, ::-1]).all(axis=(1, 2, 3))
    assert (same | turned).all() and 60 < same.sum() < 140


def test_cutting_out_makes_one_square_grey():
    batch = batch_of(200)
    out = images.cut_out(batch, np.random.default_rng(1), 4)["image"]
    grey = (out == 128).all(axis=-1)
    assert (out[~grey] == batch["image"][~grey]).all()
    sizes = grey.sum(axis=(1, 2))
    assert sizes.max() == 16 and sizes.min() >= 4


@pytest.mark.parametrize("shape", [(37, 53, 3), (90, 31, 1), (64, 64)])
def test_crops_have_the_size_asked_for_and_a_plain_image_stays_plain(shape):
    image, rng = np.full(shape, 77, np.uint8), np.random.default_rng(0)
    for _ in range(20):
        crop = images.random_resized_crop(image, rng, 16)
        assert crop.shape == (16, 16, 3) and crop.dtype == np.uint8 and (crop == 77).all()
    assert (images.center_crop(image, 24) == 77).all()


def test_resizing_is_bilinear_and_averages_what_a_pixel_covers():
    ramp = np.broadcast_to(np.arange(0, 240, 5, dtype=np.uint8)[None, :, None], (48, 48, 3))
    half = images.resized_crop(ramp, (0, 0, 48, 48), 24).astype(int)
    expected = ramp.reshape(24, 2, 24, 2, 3).mean(axis=(1, 3))
    assert abs(half - expected).max() <= 0.5
    double = images.resized_crop(ramp, (10, 10, 20, 20), 40).astype(int)
    wanted = 5 * (10 + (np.arange(40) + 0.5) / 2 - 0.5)
    assert abs(double[20, 1:-1, 0] - wanted[1:-1]).max() <= 0.6
    assert (images.resized_crop(ramp, (0, 0, 48, 48), 48) == ramp).all()
