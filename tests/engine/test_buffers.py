"""Large results: memory is kept when nobody has it, and given up before more is asked for."""

import tracemalloc

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from toile.engine import buffers

SIZE = 3 * buffers.LARGE


@pytest.fixture(autouse=True)
def nothing_kept():
    buffers.release()
    yield
    buffers.release()


def kept():
    return {size: len(found) for size, found in buffers._kept.items() if found}


def test_memory_comes_back_when_the_last_view_of_it_goes():
    memory, start = buffers.allocate(SIZE)
    view = np.ndarray((4,), np.float32, memory, 64)[1:]
    del memory
    assert not kept()
    del view
    assert kept() == {SIZE: 1}
    for _ in range(3):
        memory, again = buffers.allocate(SIZE)
        assert again == start
        assert not kept()
        del memory


def test_two_at_a_time_are_two():
    first, second = buffers.allocate(SIZE), buffers.allocate(SIZE)
    assert first[1] != second[1]
    del first, second
    assert kept() == {SIZE: 2}


def test_small_memory_is_not_kept():
    buffers.allocate(buffers.LARGE - 1)
    assert not kept()


def test_kept_memory_is_given_up_before_more_is_asked_for():
    blocks = [buffers.allocate(SIZE + i) for i in range(3)]
    del blocks
    assert len(kept()) == 3
    other = buffers.allocate(2 * SIZE)
    assert len(kept()) == 1  # as many bytes as were asked for went before
    del other
    assert sum(n * count for n, count in kept().items()) <= 3 * SIZE + 3


def test_no_more_than_the_limit_is_kept(monkeypatch):
    monkeypatch.setattr(buffers, "MOST_KEPT", 2 * SIZE)
    blocks = [buffers.allocate(SIZE) for _ in range(4)]
    del blocks
    assert kept() == {SIZE: 2}


@pytest.mark.cpu
def test_results_of_calls_use_it_again_and_held_ones_stay():
    x = jnp.zeros(SIZE // 4, jnp.float32)
    f = toile.jit(lambda x, i: x + i)
    for i in range(4):
        f(x, i)
    before = kept()
    held = [f(x, i) for i in range(3)]
    arrays = [np.asarray(y) for y in held]
    del held
    for i in range(5):
        f(x, 10 + i)
    assert [a[7] for a in arrays] == [0, 1, 2]
    assert before
    assert kept()[SIZE] >= before[SIZE]


def test_clear_caches_gives_it_back():
    buffers.allocate(SIZE)
    assert kept()
    toile.clear_caches()
    assert not kept()


def test_numpy_keeps_what_it_sees_of_an_array_that_is_not_row_major():
    x = jnp.arange(12.0).reshape(3, 4).T + jnp.zeros((3, 4)).T
    seen = np.asarray(x)
    kept, owner = seen.copy(), seen
    assert not seen.flags.c_contiguous
    while isinstance(owner, np.ndarray):
        owner = owner.base
    assert not isinstance(owner, toile.Array)  # it may be deleted, or its memory replaced
    toile.jit(lambda x: x + 1, donate_argnums=0)(x)
    assert x.is_deleted() and (seen == kept).all()


def test_arrays_that_outlive_the_module_go_quietly(monkeypatch):
    """When the interpreter ends the names of modules are None."""
    errors = []
    monkeypatch.setattr("sys.unraisablehook", errors.append)
    memory, _ = buffers.allocate(SIZE)
    monkeypatch.setattr(buffers, "MOST_KEPT", None)
    del memory
    assert not errors and not kept()


@pytest.mark.parametrize("make", [jnp.ones, lambda n: toile.random.split(toile.random.key(0), n)])
def test_iteration_makes_one_row_at_a_time(make):
    """`iter(x)` must be cheap: code calls it to ask whether `x` is a sequence."""
    x = make(100_000)
    next(iter(x))
    tracemalloc.start()
    first = next(iter(x))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert first.shape == () and most < 100_000
    assert len(list(x)) == 100_000
