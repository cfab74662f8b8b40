"""Loaders: every example once, the same order for the same key, and exact continuation."""

import itertools
import threading
import time

import numpy as np
import pytest

from toile import random, serialization
from toile.training.loader import Loader

DATA = {"x": np.arange(23), "y": np.arange(46.0).reshape(23, 2)}


class Source:
    """A random-access source, as tfds.data_source gives."""

    def __len__(self):
        return 23

    def __getitem__(self, i):
        return {"x": i, "y": np.array([2.0 * i, 2.0 * i + 1])}


class Fast(Source):
    """One that fetches many at once."""

    def __getitems__(self, indices):
        return [self[i] for i in indices]


def seen(loader):
    return [b["x"].tolist() for b in loader]


@pytest.mark.parametrize("prefetch", [0, 3])
@pytest.mark.parametrize("source", [DATA, Source(), Fast()], ids=["arrays", "source", "fast"])
def test_order_of_the_source(source, prefetch):
    loader = Loader(source, 5, last="keep", prefetch=prefetch, threads=2)
    batches = list(loader)
    assert [len(b["x"]) for b in batches] == [5, 5, 5, 5, 3] and len(loader) == 5
    np.testing.assert_array_equal(np.concatenate([b["x"] for b in batches]), DATA["x"])
    np.testing.assert_array_equal(np.concatenate([b["y"] for b in batches]), DATA["y"])


def test_shuffles_every_epoch_anew_and_by_the_key():
    loader = Loader(DATA, 5, key=random.key(3), last="keep")
    one, two = seen(loader), seen(loader)
    assert one != two
    assert sorted(sum(one, [])) == sorted(sum(two, [])) == list(range(23))
    again = Loader(DATA, 5, key=random.key(3), last="keep", prefetch=0)
    assert [seen(again), seen(again)] == [one, two]
    raw = Loader(DATA, 5, key=random.PRNGKey(3), last="keep")
    assert seen(raw) == one
    assert seen(Loader(DATA, 5, key=random.key(4), last="keep")) != one
    order = np.asarray(random.permutation(random.fold_in(random.key(3), 0), 23))
    assert sum(one, []) == order.tolist()


def test_last_batch():
    assert [len(b) for b in seen(Loader(DATA, 10))] == [10, 10]
    padded = list(Loader(DATA, 10, last="pad"))
    assert [b["mask"].sum() for b in padded] == [10, 10, 3]
    assert all(b["x"].shape == (10,) and b["y"].shape == (10, 2) for b in padded)
    assert padded[-1]["x"][3:].tolist() == [0] * 7
    x, y, mask = next(iter(Loader((DATA["x"], DATA["y"]), 4, last="pad")))
    assert mask.all() and y.shape == (4, 2)
    x, mask = next(iter(Loader(DATA["x"], 4, last="pad")))
    assert x.tolist() == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="'mask'"):
        list(Loader({"mask": np.zeros(3)}, 2, last="pad"))


@pytest.mark.parametrize("last", ["drop", "keep", "pad"])
@pytest.mark.parametrize("prefetch", [0, 2])
def test_continues_exactly(last, prefetch):
    def make():
        return Loader(DATA, 4, key=random.key(0), last=last, prefetch=prefetch)

    whole = make()
    expected = [seen(whole) for _ in range(3)]
    flat = sum(expected, [])
    for stop in range(len(flat) + 1):
        first = make()
        taken = []
        for batch in itertools.islice(first.forever(), stop):
            taken.append(batch["x"].tolist())
        assert first.step == stop
        bytes_ = serialization.msgpack_serialize(first.state_dict())
        second = make()
        second.load_state_dict(serialization.msgpack_restore(bytes_))
        rest = []
        for _ in range(second.epoch, 3):
            rest += seen(second)
        assert taken + rest == flat


def test_leaving_a_loop_early_keeps_the_place():
    loader = Loader(DATA, 5, key=random.key(0), prefetch=3)
    expected = seen(Loader(DATA, 5, key=random.key(0)))
    got = []
    for batch in loader:
        got.append(batch["x"].tolist())
        if len(got) == 2:
            break
    assert (loader.epoch, loader.batch) == (0, 2)
    assert got + seen(loader) == expected
    loader.seek(0)
    assert seen(loader) == expected


def test_refuses_the_position_of_another_loader():
    state = Loader(DATA, 5, key=random.key(0)).state_dict()
    with pytest.raises(ValueError, match=r"global_batch_size=5 \(this loader has 4\), shuffle"):
        Loader(DATA, 4, key=random.key(1)).load_state_dict(state)
    with pytest.raises(ValueError, match="a batch of 0 to 4"):
        Loader(DATA, 5).seek(0, 9)


@pytest.mark.parametrize("last", ["drop", "pad"])
def test_processes_share_what_one_would_read(last):
    whole = list(Loader(DATA, 6, key=random.key(1), last=last))
    parts = [
        list(Loader(DATA, 2, key=random.key(1), last=last, process_index=i, process_count=3))
        for i in range(3)
    ]
    assert {len(p) for p in parts} == {len(whole)}
    for b, batch in enumerate(whole):
        for name, value in batch.items():
            np.testing.assert_array_equal(np.concatenate([p[b][name] for p in parts]), value)
    sources = Loader(Source(), 2, last="pad", process_index=2, process_count=12)
    assert [b["mask"].sum() for b in sources] == [2]
    last_one = Loader(Source(), 8, last="pad", process_index=4, process_count=5)
    assert [(b["mask"].sum(), b["y"].shape) for b in last_one] == [(0, (8, 2))]


def test_transform_and_augment():
    def jitter(batch, rng):
        return {**batch, "noise": rng.normal(size=len(batch["x"]))}

    def make(**options):
        return Loader(
            DATA, 5, key=random.key(0), augment=jitter, transform=lambda b: b["noise"], **options
        )

    loader = make(prefetch=3, threads=3)
    one, two = list(loader), list(loader)
    assert not np.array_equal(one[0], one[1]) and not np.array_equal(one[0], two[0])
    np.testing.assert_array_equal(one, list(make(prefetch=0)))
    resumed = make()
    resumed.seek(1, 2)
    np.testing.assert_array_equal(two[2:], list(resumed))


def test_works_ahead_and_hands_on_errors():
    started, names = threading.Semaphore(0), set()

    def slow(batch):
        names.add(threading.current_thread().name)
        started.release()
        time.sleep(0.01)
        if batch["x"][0] == 10:
            raise OSError("disk")
        return batch

    loader = Loader(DATA, 5, transform=slow, prefetch=2, threads=2)
    batches = iter(loader)
    next(batches)
    for _ in range(3):  # the one that was given and two more
        assert started.acquire(timeout=5)
    assert all(name.startswith("toile-loader") for name in names)
    next(batches)
    with pytest.raises(OSError, match="disk"):
        next(batches)
    assert loader.batch == 2  # the failed one is still to come


def test_refuses_what_makes_no_batches():
    with pytest.raises(ValueError, match=r"\['x'\]: \(3,\), \['y'\]: \(2,\)"):
        Loader({"x": np.zeros(3), "y": np.zeros(2)}, 1)
    with pytest.raises(ValueError, match="needed at least 5 examples"):
        Loader(np.zeros(4), 5)
    with pytest.raises(ValueError, match="needed last in"):
        Loader(np.zeros(4), 2, last="wrap")
    with pytest.raises(ValueError, match="got 'keep'"):
        Loader(np.zeros(4), 2, last="keep", process_index=0, process_count=2)
    with pytest.raises(ValueError, match="0 <= process_index < 2, got 2"):
        Loader(np.zeros(4), 2, process_index=2, process_count=2)
