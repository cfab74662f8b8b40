"""Optimizers that change only the rows of a table that were used: values, and what is computed."""

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from toile import optim
from toile.compiler.passes import sparse_updates
from toile.compiler.passes.sparse_updates import LEAST
from toile.compiler.pipeline import optimize

ROWS, WIDTH = 4000, 8
RNG = np.random.default_rng(0)
TABLE = RNG.normal(size=(ROWS, WIDTH)).astype("f4")
IDS = {
    "one each": RNG.permutation(ROWS)[:100],
    "repeated": RNG.integers(0, 20, 100),
    "all the same": np.full(50, 7),
    "negative": np.array([-1, -ROWS, 3, ROWS - 1, 3]),
    "batches": RNG.integers(0, 50, (6, 9)),
    "one": np.array([5]),
}


def adagrad_by_hand(p, s, g):
    s = s + g * g
    return p - 0.1 * g / (jnp.sqrt(s) + 1e-10), s


RULES = {
    "sgd": lambda p, s, g: (p - 0.1 * g, s),
    "added": lambda p, s, g: (p + g, s),
    "sgd, rate from the state": lambda p, s, g: (p + -g * s[0, 0], s),
    "adagrad": adagrad_by_hand,
    "counts": lambda p, s, g: (p - g, s + jnp.abs(jnp.sign(g))),
    "clipped": lambda p, s, g: (p - jnp.clip(g, -0.1, 0.1), s),
    "in half precision": lambda p, s, g: (p - g.astype(jnp.bfloat16).astype(p.dtype), s),
}


def step_of(rule):
    def step(p, s, ids):
        def loss(p):
            x = p[ids]
            return jnp.sum(x * x * jnp.arange(WIDTH))

        return rule(p, s, toile.grad(loss)(p))

    return step


def operations(fun, *args):
    """The operations on arrays as large as a table, after all passes."""
    program = optimize(toile.make_jaxpr(fun)(*args).jaxpr)
    return [e.op.name for e in program.equations if e.outs and e.outs[0].aval.size >= LEAST]


@pytest.mark.parametrize("ids", IDS)
@pytest.mark.parametrize("rule", RULES)
def test_values(rule, ids):
    step = step_of(RULES[rule])
    args = jnp.asarray(TABLE), jnp.abs(jnp.asarray(TABLE)), jnp.asarray(IDS[ids])
    assert set(operations(step, *args)) <= {"scatter"}
    with toile.disable_jit():
        wanted = step(*args)
    for got in (toile.jit(step)(*args), toile.jit(step, donate_argnums=(0, 1))(
            *(x.copy() for x in args))):
        for a, b in zip(got, wanted, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    used = np.zeros(ROWS, bool)
    used[IDS[ids]] = True
    np.testing.assert_array_equal(np.asarray(wanted[0])[~used], TABLE[~used])


@pytest.mark.parametrize("mode", ["drop", "clip", "promise_in_bounds"])
@pytest.mark.parametrize("width", [1, 8])
def test_ids_out_of_bounds(mode, width):
    ids = jnp.array([3, ROWS + 5, 3, -ROWS - 2, 10**6, 0, ROWS - 1, -1])
    if mode == "promise_in_bounds":
        ids = ids.clip(0, ROWS - 1)
    updates = jnp.asarray(RNG.normal(size=(8, width)).astype("f4"))
    table = jnp.asarray(RNG.normal(size=(max(ROWS, 2 * LEAST // width), width)).astype("f4"))

    def step(p, ids, u):
        g = jnp.zeros_like(p).at[ids].add(u, mode=mode)
        return p - 0.5 * g, g.sum() * 0

    def alone(p, ids, u):
        return step(p, ids, u)[0]

    with toile.disable_jit():
        wanted = alone(table, ids, updates)
    np.testing.assert_allclose(toile.jit(alone)(table, ids, updates), wanted, rtol=1e-6)
    assert set(operations(alone, table, ids, updates)) <= {"scatter", "broadcast_in_dim", "reshape"}
    assert "sub" in operations(step, table, ids, updates)  # the whole sum is read


def test_two_reads_of_one_table():
    def step(p, a, b):
        def loss(p):
            return jnp.sum(jnp.sin(p[a])) + jnp.sum(p[b] ** 3)

        return p - 0.1 * toile.grad(loss)(p)

    args = jnp.asarray(TABLE), jnp.asarray(IDS["repeated"]), jnp.asarray(IDS["one each"])
    assert {"sub", "add", "mul"}.isdisjoint(operations(step, *args))
    with toile.disable_jit():
        wanted = step(*args)
    np.testing.assert_allclose(toile.jit(step)(*args), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("reads", [1, 2, 3])
@pytest.mark.parametrize("examples", ["a table each", "one table"])
def test_reads_for_each_example(reads, examples):
    """The first axis of the indices counts examples: rows of several reads have no place there."""
    def loss(p, ids):
        return sum(jnp.sum(jnp.sin(p[ids[k]] * (k + 1))) for k in range(reads))

    def step(p, ids):
        axes = 0 if examples == "a table each" else None, 0
        return p - 0.1 * toile.grad(lambda p: toile.vmap(loss, axes)(p, ids).sum())(p)

    table = TABLE.reshape(4, ROWS // 4, WIDTH) if examples == "a table each" else TABLE
    args = jnp.asarray(table), jnp.asarray(RNG.integers(0, 50, (4, reads, 9)))
    with toile.disable_jit():
        wanted = step(*args)
    np.testing.assert_allclose(toile.jit(step)(*args), wanted, rtol=1e-5, atol=1e-6)


def training(tx):
    """A training step with two tables and a matrix, and its arguments."""
    def loss(params, ids):
        x = jnp.concatenate([params["a"][ids[:, 0]], params["b"][ids[:, 1]]], 1)
        return jnp.mean((x @ params["w"]) ** 2)

    def step(params, state, ids):
        grads = toile.grad(loss)(params, ids)
        updates, state = tx.update(grads, state, params)
        return optim.apply_updates(params, updates), state

    params = {"a": jnp.asarray(TABLE), "b": jnp.asarray(TABLE[::-1].copy()),
              "w": jnp.ones((2 * WIDTH, 3))}
    ids = jnp.asarray(RNG.integers(0, 30, (64, 2)))
    return step, (params, tx.init(params), ids)


SPARSE = {"sgd": lambda: optim.sgd(0.1), "adagrad": lambda: optim.adagrad(0.1),
          "scheduled": lambda: optim.sgd(optim.linear_schedule(0.1, 0.0, 10)),
          "clipped": lambda: optim.chain(optim.clip(0.5), optim.sgd(0.1))}  # fmt: skip
DENSE = {"adam": lambda: optim.adam(0.1), "momentum": lambda: optim.sgd(0.1, 0.9),
         "decay": lambda: optim.chain(optim.add_decayed_weights(0.1), optim.sgd(0.1)),
         "global norm": lambda: optim.chain(optim.clip_by_global_norm(1.0), optim.sgd(0.1))}


@pytest.mark.parametrize("name", [*SPARSE, *DENSE])
def test_optimizers(name):
    step, args = training((SPARSE | DENSE)[name]())
    assert ("mul" not in operations(step, *args)) == (name in SPARSE)
    compiled = toile.jit(step)
    for _ in range(3):
        params, state = compiled(*args)
        with toile.disable_jit():
            wanted = step(*args)
        for a, b in zip(toile.tree.leaves((params, state)), toile.tree.leaves(wanted),
                        strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
        args = params, state, args[2]


def test_a_transposed_table_is_not_the_table():
    table = jnp.asarray(RNG.normal(size=(200, 200)).astype("f4"))

    def step(p, ids):
        return p.T - 0.1 * jnp.zeros_like(p).at[ids].add(1.0)

    for ids in (jnp.arange(3), jnp.array([5, 5])):
        with toile.disable_jit():
            wanted = step(table, ids)
        np.testing.assert_allclose(toile.jit(step)(table, ids), wanted, rtol=1e-6)


def test_the_time_to_look_does_not_depend_on_the_rest_of_the_program():
    """Of many sums, each looks at its own readers only."""
    def program_of(count):
        def step(ps, ids):
            grads = toile.grad(lambda ps: sum(jnp.sum(p[ids] ** 2) for p in ps))(ps)
            return [p - g for p, g in zip(ps, grads)]

        return optimize(toile.make_jaxpr(step)(
            [jnp.zeros((ROWS, 8))] * count, jnp.arange(4)).jaxpr)

    seen = []
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(sparse_updates, "by_element",
                        lambda e, asked=sparse_updates.by_element: (seen.append(e), asked(e))[1])
        program_of(4)
        few = len(seen)
        program_of(40)
    assert len(seen) - few <= 11 * few


def test_small_tables_stay_as_they_are():
    step = step_of(RULES["sgd"])
    args = jnp.asarray(TABLE[:100]), jnp.asarray(TABLE[:100]), jnp.arange(5)
    program = optimize(toile.make_jaxpr(step)(*args).jaxpr)
    assert [e.op.combine for e in program.equations if e.op.name == "scatter"] == ["add"]


def test_the_gradient_itself_is_dense():
    def step(p, ids):
        g = toile.grad(lambda p: jnp.sum(p[ids] ** 2))(p)
        return p - g, g

    args = jnp.asarray(TABLE), jnp.arange(9)
    for a, b in zip(toile.jit(step)(*args), step(*args), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
