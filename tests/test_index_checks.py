"""Indices out of bounds are reported, once per place, unless the user chose what happens to them.

Each operation runs outside jit, under jit, grad, vmap, scan, cond and while_loop, with indices that
are in bounds, out of bounds, and out of bounds with a mode.
"""

import re
import warnings

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from toile import lax, optim
from toile import linen as nn
from toile.compiler import index_tests
from toile.engine import out_of_bounds
from toile.errors import OutOfBoundsWarning

pytestmark = pytest.mark.cpu  # a GPU reports later: tests/gpu/test_index_words.py
X = jnp.arange(12.0).reshape(6, 2) + 1
GOOD, BAD, LOW = jnp.array([0, -6, 5]), jnp.array([1, 9, 2]), jnp.array([1, -9, 2])
ROWS = lax.GatherDimensionNumbers((1,), (0,), (0,))
UPDATES = lax.ScatterDimensionNumbers((1,), (0,), (0,))
ONES = jnp.ones((3, 2))


def along(i):
    return jnp.broadcast_to(i[:, None], (3, 2))


# Functions of an array, indices and options, and the options that choose a mode.
CLIP = {"mode": "clip"}
OPERATIONS = {
    "x[i]": (lambda x, i, **o: x.at[i].get(**o) if o else x[i], CLIP),
    "x[i, 0]": (lambda x, i, **o: x.at[i, 0].get(**o) if o else x[i, 0], CLIP),
    "x[i[1]]": (lambda x, i, **o: x.at[i[1]].get(**o) if o else x[i[1]], CLIP),
    "x[:, None, i]": (lambda x, i, **o: x.T.at[:, None, i].get(**o) if o else x.T[:, None, i],
                      CLIP),
    "get": (lambda x, i, **o: x.at[i].get(**o), {"mode": "promise_in_bounds"}),
    "get fill_value": (lambda x, i, **o: x.at[i].get(**o), {"fill_value": 0.0}),
    "take": (lambda x, i, **o: jnp.take(x, i, axis=0, **o), {"mode": "wrap"}),
    "take fill": (lambda x, i, **o: jnp.take(x, i, axis=0, **o), {"mode": "fill"}),
    "x.take": (lambda x, i, **o: x.take(i, axis=0, **o), CLIP),
    "take_along_axis": (lambda x, i, **o: jnp.take_along_axis(x, along(i), 0, **o),
                        {"mode": "fill"}),
    "set": (lambda x, i, **o: x.at[i].set(0.0, **o), {"mode": "drop"}),
    "set one": (lambda x, i, **o: x.at[i[1], 0].set(0.0, **o), {"mode": "drop"}),
    "add": (lambda x, i, **o: x.at[i].add(ONES, **o), CLIP),
    "multiply": (lambda x, i, **o: x.at[i].multiply(2.0, unique_indices=True, **o),
                 {"mode": "drop"}),
    "max": (lambda x, i, **o: x.at[i].max(3.0, **o), {"mode": "drop"}),
    "apply": (lambda x, i, **o: x.at[i].apply(jnp.sin, unique_indices=True, **o), {"mode": "drop"}),
    "put_along_axis": (lambda x, i, **o: jnp.put_along_axis(
        x, along(i), 0.0, 0, inplace=False, **o), {"mode": "drop"}),
}
WAYS = {
    "eager": lambda f, x, i: f(x, i),
    "jit": lambda f, x, i: toile.jit(f)(x, i),
    "jit of jit": lambda f, x, i: toile.jit(lambda x, i: toile.jit(f)(x, i) * 2)(x, i),
    "grad": lambda f, x, i: toile.grad(lambda x: (f(x, i) ** 2).sum())(x),
    "jit of grad": lambda f, x, i: toile.jit(toile.grad(lambda x, i: (f(x, i) ** 2).sum()))(x, i),
    "checkpoint": lambda f, x, i: toile.jit(toile.grad(
        lambda x, i: (toile.checkpoint(f)(x, i) ** 2).sum()))(x, i),
    "vmap": lambda f, x, i: toile.vmap(f, (None, 0))(x, jnp.stack([GOOD, i])),
    "jit of vmap": lambda f, x, i: toile.jit(toile.vmap(f))(
        jnp.stack([x, x]), jnp.stack([GOOD, i])),
    "scan": lambda f, x, i: lax.scan(
        lambda c, i: (c + 1, f(c, i)), x, jnp.stack([GOOD, i, GOOD])),
    "jit of scan": lambda f, x, i: toile.jit(lambda x, i: lax.scan(
        lambda c, i: (c + 1, f(c, i)), x, i))(x, jnp.stack([GOOD, i, GOOD])),
    "while": lambda f, x, i: toile.jit(lambda x, i: lax.while_loop(
        lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] + f(x, i).sum()), (0, 0.0)))(x, i),
    "cond": lambda f, x, i: toile.jit(lambda p, x, i: lax.cond(
        p, lambda x, i: f(x, i).sum(), lambda x, i: x.sum(), x, i))(True, x, i),
}


@pytest.fixture(autouse=True)
def fresh():
    out_of_bounds.forget_places()


def reported(run):
    """The messages of the warnings of a function."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        run()
    assert all(w.category is OutOfBoundsWarning for w in found), [str(w.message) for w in found]
    return [str(w.message) for w in found]


@pytest.mark.parametrize("way", ["eager", "jit"])
def test_reported_once_also_when_python_has_specialized_the_line(way):
    """CPython replaces instructions that run often, and enters `__getitem__` in another way."""
    def f(x, i):
        return x[i, 0], x[i, 1]

    def often(i, count):
        for _ in range(count):
            WAYS[way](f, X, i)

    assert len(reported(lambda: (often(BAD, 1), often(GOOD, 100), often(BAD, 100)))) == 2


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", OPERATIONS)
def test_reported_once_unless_chosen(name, way):
    f, chosen = OPERATIONS[name]
    go = WAYS[way]
    assert reported(lambda: go(f, X, GOOD)) == []
    assert reported(lambda: go(lambda x, i: f(x, i, **chosen), X, BAD)) == []
    (message,) = reported(lambda: [go(f, X, BAD) for _ in range(3)])
    assert re.search("^index 9 is out of bounds for axis [01] with size 6: ", message)
    assert "test_index_checks.py:" in message and "float32[" in message
    assert len(message.splitlines()) <= 15
    out_of_bounds.forget_places()
    (message,) = reported(lambda: go(f, X, LOW))
    assert "index -9 is out of bounds" in message


@pytest.mark.parametrize("way", ["eager", "jit", "jit of scan", "jit of grad"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_values_are_those_of_no_check(name, way, monkeypatch):
    f, _ = OPERATIONS[name]
    want = WAYS[way](f, X, BAD)
    monkeypatch.setattr("toile.numpy.index_read.bounded", lambda index, *rest: index)
    got = WAYS[way](lambda *a: f(*a), X, BAD)
    for a, b in zip(toile.tree.leaves(want), toile.tree.leaves(got), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["x[i]", "take", "set"])
def test_checks_make_it_an_error(name, way):
    f, chosen = OPERATIONS[name]
    with toile.checks("index"):
        WAYS[way](f, X, GOOD)
        WAYS[way](lambda x, i: f(x, i, **chosen), X, BAD)
        for _ in range(2):
            with pytest.raises(IndexError, match="index 9 is out of bounds for axis 0 with size 6"):
                WAYS[way](f, X, BAD)
    assert len(reported(lambda: WAYS[way](f, X, BAD))) == 1


BLOCKS = {
    "dynamic_slice": lambda x, k: lax.dynamic_slice(x, (k, 0), (3, 2)),
    "dynamic_slice_in_dim": lambda x, k: lax.dynamic_slice_in_dim(x, k, 3),
    "dynamic_update_slice": lambda x, k: lax.dynamic_update_slice(x, ONES, (k, 0)),
    "gather": lambda x, k: lax.gather(x, k.reshape(1, 1), ROWS._replace(
        offset_dims=(1, 2), collapsed_slice_dims=()), (3, 2)),
    "scatter_add": lambda x, k: lax.scatter_add(
        x, jnp.stack([k, 0 * k])[None], ONES[None], lax.ScatterDimensionNumbers(
            (1, 2), (), (0, 1))),
}


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", BLOCKS)
def test_blocks_that_do_not_fit(name, compiled):
    f = toile.jit(BLOCKS[name]) if compiled else BLOCKS[name]
    assert reported(lambda: [f(X, jnp.int32(k)) for k in (0, 3)]) == []
    (message,) = reported(lambda: [f(X, jnp.int32(k)) for k in (4, 5)])
    assert re.match(r"\w+: start 4 of a block of size 3 is out of bounds for axis 0 with size 6: "
                    r"the block of float32\[6,2\] was \w+", message)
    assert "(needed a start in 0 ... 3)" in message


def in_words(f, *args):
    """The only message about a function, which is the same outside jit and inside."""
    found = set()
    for run in (f, toile.jit(f)):
        out_of_bounds.forget_places()
        (message,) = reported(lambda run=run: run(*args))
        found.add(message.splitlines()[0])
    (only,) = found
    return only


def test_embed_and_losses_use_their_own_words():
    class Model(nn.Module):
        @nn.compact
        def __call__(self, ids):
            return nn.Embed(10, 4, name="words")(ids)

    model = Model()
    variables = model.init(toile.random.key(0), jnp.array([3]))
    assert reported(lambda: model.apply(variables, jnp.array([0, 9, -1]))) == []
    assert in_words(lambda ids: model.apply(variables, ids), jnp.array([1, 50])) == (
        "Embed: id 50 is out of bounds for a table of 10 rows (num_embeddings=10): its vector is "
        "NaN (needed ids in 0 ... 9: check the vocabulary)")
    out_of_bounds.forget_places()
    (message,) = reported(lambda: toile.jit(model.apply)(variables, jnp.array([50])))
    assert "in module /words (Embed)" in message

    logits, labels = jnp.zeros((2, 10)), jnp.array([3, 99])
    cross_entropy = optim.softmax_cross_entropy_with_integer_labels
    assert in_words(cross_entropy, logits, labels) == (
        "softmax_cross_entropy_with_integer_labels: label 99 is out of bounds for 10 classes: its "
        "loss is NaN (needed labels in 0 ... 9; `where` leaves examples out)")
    assert reported(lambda: cross_entropy(logits, labels, where=labels < 10)) == []
    for loss in (optim.multiclass_hinge_loss, optim.multiclass_perceptron_loss,
                 optim.losses.multiclass_sparsemax_loss):
        assert "label 99 is out of bounds for 10 classes" in in_words(loss, logits, labels)


@pytest.mark.parametrize("name", ["segment_sum", "segment_prod", "segment_max", "segment_min"])
def test_segment_ids(name):
    reduce = getattr(toile.ops, name)
    data, ids = jnp.ones(3), jnp.array([0, 5, 1])
    assert in_words(lambda data, ids: reduce(data, ids, 3), data, ids).startswith(
        f"{name}: segment id 5 is out of bounds for num_segments=3: its slice was ignored")
    for wanted in ({"ids": ids, "mode": "drop"}, {"ids": jnp.array([0, -1, 1])}):
        run = lambda ids, **o: toile.jit(lambda data, ids: reduce(data, ids, 3, **o))(data, ids)
        assert reported(lambda run=run, wanted=wanted: run(**wanted)) == []


@pytest.mark.parametrize(("dtype", "fill"), [
    ("float32", "NaN"), ("bfloat16", "NaN"), ("complex64", "NaN"), ("bool", "True"),
    ("int8", "-128"), ("uint8", "255"), ("key", "undefined")])
def test_what_take_returns_is_in_the_message(dtype, fill):
    x = toile.random.split(toile.random.key(0), 3) if dtype == "key" else jnp.ones(3, dtype)
    f = lambda x, i: jnp.take(x, i, axis=0)
    assert reported(lambda: [f(x, GOOD // 3), toile.jit(f)(x, GOOD // 3)]) == []
    assert re.search(rf"the result that was read from \S+\[3\] is {fill} ", in_words(f, x, BAD))


def test_known_before_the_call():
    index = np.array([1, 9])
    f = toile.jit(lambda x: x[index])
    assert len(reported(lambda: f(X))) == 1  # when it is traced
    with pytest.raises(IndexError, match="index 9 is out of bounds for axis 0 with size 6"):
        toile.jit(lambda x: x[9])(X)


def test_two_operations_on_one_line_are_two_places():
    f = toile.jit(lambda x, i: x[i] + x[i - 1])
    assert len(reported(lambda: f(X, jnp.array([8])))) == 2


def test_examples_that_do_not_run_are_not_reported():
    values = X[:, 0]
    total = lambda n: lax.while_loop(
        lambda s: s[0] < n, lambda s: (s[0] + 1, s[1] + values[s[0]]), (0, 0.0))[1]
    masked = lambda i: lax.cond(i < 6, lambda i: lax.scan(
        lambda c, k: (c + values[k], None), 0.0, i[None])[0], lambda i: 0.0, i)
    for f, given in ((total, [2, 6]), (masked, [2, 7])):
        for run in (toile.vmap(f), toile.jit(toile.vmap(f))):
            assert reported(lambda run=run, given=given: run(jnp.array(given))) == []


PROVEN = {
    "arange": lambda x, i: x[jnp.arange(6), jnp.argmax(x, axis=1)],
    "argsort": lambda x, i: x[jnp.argsort(x[:, 0])],
    "top_k": lambda x, i: x[lax.top_k(x[:, 0], 3)[1]],
    "clip": lambda x, i: x[jnp.clip(i, 0, 5)],
    "minimum": lambda x, i: x[jnp.minimum(jnp.maximum(i, -6), 5).clip(0)],
    "sums": lambda x, i: x[jnp.arange(3) + jnp.arange(4)[:, None]],
    "bits": lambda x, i: jnp.ones(300)[i.astype(jnp.uint8)],
}


@pytest.mark.parametrize("name", PROVEN)
def test_indices_that_are_in_bounds_need_no_test(name):
    program = toile.jit(PROVEN[name]).trace(X, GOOD).traced.program
    assert index_tests.tested(program) is None
    assert reported(lambda: toile.jit(PROVEN[name])(X, BAD)) == []


NOT_PROVEN = {
    "larger arange": lambda x, i: x[jnp.arange(7)],
    "shifted": lambda x, i: x[jnp.argmax(x[:, 0]) + 1],
    "of another array": lambda x, i: x[jnp.argsort(jnp.concatenate([x, x])[:, 0])],
    "clipped too high": lambda x, i: x[jnp.clip(i, 0, 6)],
}


@pytest.mark.parametrize("name", NOT_PROVEN)
def test_other_indices_are_tested(name):
    program = toile.jit(NOT_PROVEN[name]).trace(X, GOOD).traced.program
    assert len(index_tests.tested(program).bounds) == 1
    assert len(reported(lambda: toile.jit(NOT_PROVEN[name])(X, BAD))) == 1


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64",
                                   "uint64"])
@pytest.mark.parametrize("compiled", [False, True])
def test_dtypes_of_indices(dtype, compiled):
    with toile.enable_x64():
        x = jnp.arange(100.0)
        f = (lambda x, i: x[i])
        f = toile.jit(f) if compiled else f
        limits = np.iinfo(dtype)
        given = [100, limits.max] + ([-101, limits.min] if limits.min else [])
        assert reported(lambda: f(x, jnp.array([0, 99, *([-100] if limits.min else [])],
                                               dtype))) == []
        for index in given:
            out_of_bounds.forget_places()
            (message,) = reported(lambda index=index: f(x, jnp.array([1, index], dtype)))
            shown = int(message.split()[1])
            # A very large index may be cut off to 32 bits.
            assert shown == index or abs(index) >= 2**31 and shown * index > 0


def test_many_tests_in_one_program():
    f = toile.jit(lambda x, *indices: sum(x[i].sum() for i in indices))
    good = [GOOD + 0 for _ in range(9)]
    assert reported(lambda: f(X, *good)) == []
    for k in range(9):
        out_of_bounds.forget_places()
        (message,) = reported(lambda k=k: f(X, *good[:k], BAD, *good[k + 1:]))
        assert "index 9" in message


def test_a_new_process_finds_plans_with_tests(tmp_path):
    """A plan on disk knows where its tests are; the lines come from the process that runs it."""
    from tests.test_lazy import run

    code = """
import os, sys, warnings
os.environ.update(TOILE_PLANS="on", TOILE_CACHE_DIR=%r); os.environ.pop("TOILE_DEBUG", None)
import toile, toile.numpy as jnp
f = toile.jit(lambda x, i: x[i] * 2)
x = jnp.arange(5.0)
with warnings.catch_warnings(record=True) as found:
    warnings.simplefilter("always")
    f(x, jnp.array([1, 2]))
    print(len(found), "toile.platforms.cpu.new_plans" in sys.modules)
    f(x, jnp.array([1, 7]))
    print([str(w.message).split(":")[0] for w in found])
"""
    first, second = (run(code % str(tmp_path)).splitlines() for _ in range(2))
    assert first == ["0 True", "['index 7 is out of bounds for axis 0 with size 5']"]
    assert second == ["0 False", first[1]]


def test_printed_programs_have_no_checks():
    found = str(toile.make_jaxpr(lambda x, i: x[i])(X, GOOD))
    assert "gather" in found and "check" not in found


def test_a_profile_includes_the_tests():
    """They have a result of their own, which callers do not see."""
    found = toile.profile(toile.jit(lambda x, i: (x[i] * 2).sum(0)), rounds=1)(X, GOOD)
    assert "gather" in str(found)
