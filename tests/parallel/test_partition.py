"""The partition pass: functions of sharded arguments, divided, against the same on one device."""

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from toile import lax, linen, nn
from toile.parallel.partition import collectives, find
from toile.parallel.specs import IndivisibleError
from toile.sharding import AxisType, NamedSharding
from toile.sharding import PartitionSpec as P

RANDOM = np.random.default_rng(0)


def normal(*shape):
    return RANDOM.normal(size=shape).astype(np.float32)


def grid(shape=(2, 4), names=("x", "y")):
    names = names[: len(shape)]
    return toile.make_mesh(shape, names, axis_types=(AxisType.Auto,) * len(shape))


def put(mesh, x, spec):
    return toile.device_put(x, NamedSharding(mesh, spec))


def division(f, args, wanted=()):
    """How a jitted function is divided for its arguments."""
    leaves = toile.tree.leaves(args)
    traced = f.trace(*args).traced
    return find(traced.program, traced.consts + leaves, wanted or f._wanted(traced))


def entries(sharding, rank):
    return tuple(sharding.spec) + (None,) * (rank - len(sharding.spec))


A, B, V = normal(8, 16), normal(16, 8), normal(16)
T = normal(8, 4, 16)
I = RANDOM.integers(0, 16, (8, 4))


def attention(x, q, k, v, o):
    """Products around a softmax; heads are the second axis of the weights."""
    q, k, v = (jnp.einsum("btd,dhe->bthe", x, w) for w in (q, k, v))
    scores = jnp.einsum("bqhe,bkhe->bhqk", q, k) / 2.0
    mask = jnp.tril(jnp.ones((x.shape[1],) * 2, bool))
    weights = nn.softmax(jnp.where(mask, scores, -1e9))
    return jnp.einsum("bhqk,bkhe,hed->bqd", weights, v, o)


def mlp(x, w1, b1, w2, b2):
    return nn.relu(x @ w1 + b1) @ w2 + b2


def rnn(w, x):
    def step(h, v):
        h = jnp.tanh(h @ w + v)
        return h, h.sum(1)

    return lax.scan(step, jnp.zeros((x.shape[1], w.shape[0])), x)


def powers(x):
    return lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * c[1].mean()), (0, x))[1]


def cross_entropy(logits, labels):
    chosen = jnp.take_along_axis(nn.log_softmax(logits), labels[:, None], axis=1)
    return -chosen.mean()


def convolution(x, w):
    y = lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    return lax.reduce_window(nn.relu(y), -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


IMAGES, KERNELS = normal(8, 6, 6, 4), normal(3, 3, 4, 8)
HEADS = [normal(8, 4, 16)] + [normal(16, 4, 4) / 4 for _ in range(3)] + [normal(4, 4, 16) / 4]
HEAD_SPECS = [P("x"), *[P(None, "y")] * 3, P("y")]
DENSE = [A, normal(16, 32) / 4, normal(32), normal(32, 8) / 6, normal(8)]
DENSE_SPECS = [P("x"), P(None, "y"), P("y"), P("y"), P()]

# name: (function, arguments, their specs on ('x': 2, 'y': 4), the result's spec or None: not told)
CASES = {
    "elementwise": (lambda a: jnp.tanh(a) * 2 + 1, [A], [P("x", "y")], P("x", "y")),
    "two_layouts": (lambda a, b: a + b, [A, A + 1], [P("x"), P(None, "y")], P("x", "y")),
    "conflict": (lambda a, b: a * b, [A, A + 1], [P("x"), P("y")], P("y")),
    "moved": (lambda a, b: a * b, [A, A + 1], [P("x", "y"), P("y", "x")], None),
    "both_names": (lambda a: a - 3, [A], [P(("x", "y"))], P(("x", "y"))),
    "broadcast": (lambda a, v: a * v, [A, V], [P("x"), P("y")], P("x", "y")),
    "bias": (lambda a, v: a + v[None, :], [A, V], [P("x", "y"), P()], P("x", "y")),
    "sum_all": (lambda a: a.sum(), [A], [P("x", "y")], P()),
    "sum_one": (lambda a: a.sum(0), [A], [P("x", "y")], P("y")),
    "mean_keep": (lambda a: a.mean(1, keepdims=True), [A], [P("x", "y")], P("x")),
    "variance": (lambda a: a.var(0), [A], [P("x", "y")], P("y")),
    "max": (lambda a: a.max(1), [A], [P("x", "y")], P("x")),
    "min_all": (lambda a: a.min(), [A], [P("x", "y")], P()),
    "any": (lambda a: (a > 2).any(0), [A], [P("x", "y")], P("y")),
    "all": (lambda a: (a > -2).all(), [A], [P("x", "y")], P()),
    "count": (lambda a: (a > 0).sum(0), [A], [P("x")], P()),
    "prod": (lambda a: a.prod(0), [A], [P("x", "y")], P("y")),
    "transpose": (lambda a: a.T * 2, [A], [P("x", "y")], P("y", "x")),
    "split_axis": (lambda a: a.reshape(8, 4, 4), [A], [P("x", "y")], P("x", "y")),
    "merge_axes": (lambda t: t.reshape(32, 16), [T], [P("x", None, "y")], P("x", "y")),
    "merge_inner": (lambda t: t.reshape(8, 64), [T], [P("x", "y")], P("x", "y")),
    "merge_all": (lambda t: t.reshape(-1), [T], [P("x", "y", None)], None),
    "split_names": (lambda a: a.reshape(2, 4, 16), [A], [P(("x", "y"))], P("x", "y")),
    "reshape_across": (lambda a: a.reshape(4, 32), [A], [P(None, "y")], None),
    "dot_batch": (lambda a, b: a @ b, [A, B], [P("x"), P()], P("x")),
    "dot_columns": (lambda a, b: a @ b, [A, B], [P("x"), P(None, "y")], P("x", "y")),
    "dot_contracted": (lambda a, b: a @ b, [A, B], [P("x", "y"), P("y")], P("x")),
    "dot_half": (lambda a, b: a @ b, [A, B], [P(), P("y")], P()),
    "dot_same_name": (lambda a, b: a @ b, [A, B], [P("x"), P("x")], P("x")),
    "dot_twice": (lambda a, b: a @ b, [A, B], [P("x"), P(None, "x")], P("x")),
    "einsum_batched": (lambda t: jnp.einsum("btd,bsd->bts", t, t), [T], [P("x", None, "y")],
                       P("x")),
    "softmax": (lambda a: nn.softmax(a), [A], [P("x", "y")], P("x", "y")),
    "logsumexp": (lambda a: nn.logsumexp(a, axis=0), [A], [P("x", "y")], P("y")),
    "layer_norm": (lambda a: (a - a.mean(-1, keepdims=True)) / jnp.sqrt(
        a.var(-1, keepdims=True) + 1e-5), [A], [P("x", "y")], P("x", "y")),
    "where": (lambda a: jnp.where(a > 0, a, 0.5), [A], [P("x", "y")], P("x", "y")),
    "convert": (lambda a: (a * 10).astype(jnp.int32), [A], [P("x")], P("x")),
    "iota": (lambda a: a + jnp.arange(16.0) + jnp.arange(8.0)[:, None], [A], [P("x", "y")],
             P("x", "y")),
    "causal": (lambda a: jnp.where(jnp.tril(jnp.ones((8, 16), bool)), a, 0), [A], [P("x", "y")],
               P("x", "y")),
    "concatenate": (lambda a, b: jnp.concatenate([a, b], 1), [A, A + 1], [P("x"), P("x")], P("x")),
    "concatenate_along": (lambda a: jnp.concatenate([a, a]), [A], [P("x", "y")], P(None, "y")),
    "slice": (lambda a: a[:, 2:10], [A], [P("x")], P("x")),
    "slice_along": (lambda a: a[1:5], [A], [P("x", "y")], P(None, "y")),
    "pad": (lambda a: jnp.pad(a, ((0, 0), (1, 2))), [A], [P("x")], P("x")),
    "flip": (lambda a: a[:, ::-1], [A], [P("x")], P("x")),
    "cumsum": (lambda a: jnp.cumsum(a, 1), [A], [P("x", "y")], P("x")),
    "sort": (lambda a: jnp.sort(a, 0), [A], [P("x", "y")], P(None, "y")),
    "argmax": (lambda a: a.argmax(1), [A], [P("x", "y")], P("x")),
    "top_k": (lambda a: lax.top_k(a, 3)[0], [A], [P("x")], P("x")),
    "embedding": (lambda e, i: e[i], [normal(16, 8), I], [P(None, "y"), P("x")],
                  P("x", None, "y")),
    "embedding_rows": (lambda e, i: e[i], [normal(16, 8), I], [P("y"), P("x")], P("x")),
    "take_along": (lambda a, i: jnp.take_along_axis(a, i, 1), [A, I], [P("x"), P("x")], P("x")),
    "scatter_add": (lambda i, u: jnp.zeros((16, 8)).at[i].add(u), [I, normal(8, 4, 8)],
                    [P("x"), P("x", None, "y")], P(None, "y")),
    "scatter_into": (lambda a, i, u: a.at[i].add(u), [normal(16, 8), I, normal(8, 4, 8)],
                     [P(), P("x"), P("x")], None),
    "scatter_set": (lambda a: a.at[2].set(0.0), [A], [P(None, "y")], P(None, "y")),
    "dynamic_slice": (lambda a: lax.dynamic_slice(a, (0, 3), (8, 4)), [A], [P("x", "y")], P("x")),
    "update_slice": (lambda a: lax.dynamic_update_slice(a, jnp.ones((8, 2)), (0, 3)), [A],
                     [P("x")], P("x")),
    "convolution": (convolution, [IMAGES, KERNELS], [P("x"), P(None, None, None, "y")],
                    P("x", None, None, "y")),
    "mlp": (mlp, DENSE, DENSE_SPECS, P("x")),
    "attention": (attention, HEADS, HEAD_SPECS, P("x")),
    "cross_entropy": (cross_entropy, [A, I[:, 0]], [P("x"), P("x")], P()),
    "cholesky": (lambda a: jnp.linalg.cholesky(a @ a.T + 9 * jnp.eye(8)), [A], [P("x")], P()),
    "scan": (rnn, [normal(8, 8) / 3, normal(5, 4, 8)], [P(), P(None, "x")], None),
    "scan_features": (rnn, [normal(8, 8) / 3, normal(5, 4, 8)], [P(None, "y"), P(None, "x")], None),
    "scan_along": (lambda a: lax.scan(lambda c, v: (c + v.sum(), c * v), 0.0, a), [A],
                   [P("x", "y")], None),
    "while": (powers, [A], [P("x", "y")], P("x", "y")),
    "cond": (lambda a: lax.cond(a.sum() > 0, jnp.sin, lambda v: v * v.max(), a), [A],
             [P("x", "y")], P("x", "y")),
    "inner_jit": (lambda a, b: toile.jit(jnp.dot)(a, b) + 1, [A, B], [P("x"), P()], P("x")),
    "checkpoint": (toile.checkpoint(mlp), DENSE, DENSE_SPECS, P("x")),
    "vmap": (toile.vmap(lambda v: nn.softmax(v * 2)), [A], [P("x", "y")], P("x", "y")),
    "random": (lambda a: a * toile.random.bernoulli(toile.random.key(1), 0.5, a.shape), [A],
               [P("x", "y")], P("x", "y")),
    "complex": (lambda a: jnp.abs(a + 1j * a), [A], [P("x", "y")], P("x", "y")),
    "bfloat16": (lambda a, b: (a.astype(jnp.bfloat16) @ b.astype(jnp.bfloat16)).astype(float),
                 [A, B], [P("x", "y"), P("y")], P("x")),
}
DIFFERENTIABLE = [
    "elementwise", "two_layouts", "conflict", "moved", "broadcast", "sum_one", "variance", "max",
    "transpose", "split_axis", "merge_all", "reshape_across", "dot_columns", "dot_contracted",
    "dot_same_name", "dot_twice", "softmax", "layer_norm", "where", "concatenate_along",
    "slice_along", "pad", "cumsum", "convolution", "mlp", "attention", "cholesky", "scan",
    "scan_features", "scan_along", "cond", "checkpoint",
]
MESHES = {"2x4": ((2, 4), ("x", "y")), "8": ((8,), ("x",))}


def adapted(spec, mesh):
    """A spec without the axes that a mesh has not."""
    kept = [tuple(n for n in (e if isinstance(e, tuple) else (e,)) if n in mesh.axis_names)
            for e in spec]
    return P(*[e or None for e in kept])


def check(f, args, specs, mesh, low):
    sharded = [put(mesh, a, adapted(s, mesh)) for a, s in zip(args, specs, strict=True)]
    jitted = toile.jit(f)
    if any(any(s.sharding.spec) for s in sharded):
        assert division(jitted, sharded) is not None
    found, wanted = jitted(*sharded), toile.jit(f)(*args)
    for a, b in zip(toile.tree.leaves(found), toile.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=2e-2 if low else 2e-5,
                                   atol=5e-2 if low else 1e-5)
        assert a.dtype == b.dtype and a.weak_type == b.weak_type
        assert a.devices() == set(mesh.devices.flat)
        local = a.sharding.shard_shape(a.shape)
        assert all(s.data.shape == local for s in a.addressable_shards)
    return found


@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("name", CASES)
def test_results(name, mesh):
    f, args, specs, wanted = CASES[name]
    on = grid(*MESHES[mesh])
    if mesh == "8":  # sizes that eight devices divide
        fits = all(n % 8 == 0 for a, s in zip(args, specs, strict=True)
                   for n, e in zip(a.shape, adapted(s, on), strict=False) if e)
        if not fits:
            pytest.skip("not divisible by 8")
    found = check(f, args, specs, on, low=name == "bfloat16")
    if wanted is not None and mesh == "2x4":
        assert found.sharding.is_equivalent_to(NamedSharding(on, wanted), found.ndim), \
            found.sharding


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradients(name):
    f, args, specs, _ = CASES[name]
    mesh = grid()

    def total(*args):
        return sum((o * jnp.cos(o)).sum() for o in toile.tree.leaves(f(*args)))

    numbers = tuple(range(len(args)))
    g = toile.jit(toile.grad(total, numbers))
    sharded = [put(mesh, a, s) for a, s in zip(args, specs, strict=True)]
    for a, b in zip(g(*sharded), toile.grad(total, numbers)(*args), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=3e-4, atol=1e-4)


# ----------------------------------------------------------------- what devices say to each other


def counts(f, args, specs, mesh=None, wanted=()):
    mesh = mesh or grid()
    jitted = f if hasattr(f, "trace") else toile.jit(f)
    sharded = [put(mesh, a, s) for a, s in zip(args, specs, strict=True)]
    found = division(jitted, sharded, wanted)
    return dict(collectives(found.program)), found


def test_tensor_parallel_mlp_sums_once():
    assert counts(mlp, DENSE, DENSE_SPECS)[0] == {"psum": 1}


def test_attention_over_heads_sums_once():
    found, division = counts(attention, HEADS, HEAD_SPECS)
    assert found == {"psum": 1} and not division.notes


def test_data_parallel_gradients_are_summed_together():
    def loss(w, x):
        return (mlp(x, *w) ** 2).mean()

    mesh = grid((8,), ("x",))
    params = [put(mesh, w, P()) for w in DENSE[1:]]
    x = put(mesh, A, P("x"))
    g = toile.jit(toile.grad(loss))
    found = division(g, (params, x))
    assert collectives(found.program) == {"psum": 4}  # one for each of the weights
    assert collectives(found.op.prepare()) == {"psum_together": 1}
    assert [e.sharding.spec for e in g(params, x)] == [P()] * 4


def test_wanted_results_are_scattered():
    mesh = grid((8,), ("x",))
    rows = NamedSharding(mesh, P("x"))
    f = toile.jit(lambda a, b: a.T @ b, out_shardings=rows)
    a, b = put(mesh, A, P("x")), put(mesh, A * 2, P("x"))
    assert collectives(division(f, (a, b)).program) == {"reduce_scatter": 1}
    out = f(a, b)
    assert out.sharding == rows and out.addressable_shards[0].data.shape == (2, 16)
    np.testing.assert_allclose(out, A.T @ (A * 2), rtol=1e-4, atol=1e-5)


def test_weights_in_parts_are_gathered_before_use_and_their_gradients_scattered():
    mesh = grid((8,), ("x",))
    w, x = put(mesh, B, P("x")), put(mesh, A, P("x"))
    g = toile.jit(toile.grad(lambda w, x: ((x @ w) ** 2).sum()),
                  out_shardings=NamedSharding(mesh, P("x")))
    found = division(g, (w, x))
    assert collectives(found.program) == {"all_gather": 1, "reduce_scatter": 1}
    np.testing.assert_allclose(g(w, x), 2 * A.T @ (A @ B), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("f, specs, wanted", [
    (lambda a: a * 2, [P("x", "y")], {}),
    (lambda a: a.sum(), [P("x", "y")], {"psum": 1}),
    (lambda a: a.mean(0) - a.sum(0) * 2, [P("x", "y")], {"psum": 1}),
    (lambda a: nn.softmax(a), [P("x")], {}),
    (lambda a: nn.softmax(a), [P("x", "y")], {"pmax": 1, "psum": 1}),
    (lambda a: a @ a.T, [P("x")], {"all_gather": 1}),
    (lambda a: a.T @ a, [P("x")], {"psum": 1}),
    (lambda a: jnp.cumsum(a, 0), [P("x")], {"all_gather": 1}),
    (lambda a: jnp.cumsum(a, 1), [P("x")], {}),
    (lambda a: lax.scan(lambda c, v: (c + v, None), jnp.zeros(16), a)[0], [P(None, "y")], {}),
])
def test_numbers_of_collectives(f, specs, wanted):
    assert counts(f, [A], specs)[0] == wanted


def test_sums_in_a_backward_loop_are_taken_after_it():
    def loss(w, x):
        return (rnn(w, x)[0] ** 2).sum()

    args, specs = [normal(8, 8), normal(5, 4, 8)], [P(), P(None, "x")]
    found, _ = counts(toile.jit(toile.grad(loss)), args, specs)
    assert found == {"psum": 1}


def test_constraints():
    mesh = grid()
    rows, columns = NamedSharding(mesh, P("x")), NamedSharding(mesh, P(None, "y"))

    @toile.jit
    def f(a, b):
        a = lax.with_sharding_constraint(a, rows)  # from here on, rows
        h = lax.with_sharding_constraint(a @ b, NamedSharding(mesh, P("x", "y")))
        return lax.with_sharding_constraint(jnp.tanh(h), columns), h.sum(0)

    out, total = f(A, B)  # nothing is sharded but inside
    assert out.sharding == columns and total.sharding.spec == P("y")
    np.testing.assert_allclose(out, np.tanh(A @ B), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(total, (A @ B).sum(0), rtol=1e-4, atol=1e-5)
    found = division(f, (A, B))
    assert found.program.equations[2].op.name == "dynamic_slice"
    assert collectives(found.program) == {"all_gather": 1, "psum": 1} and not found.notes
    with toile.set_mesh(mesh):
        g = toile.jit(lambda a: lax.with_sharding_constraint(a * 2, P(P.UNCONSTRAINED, "y")))
        assert g(put(mesh, A, P("x"))).sharding.spec == P("x", "y")


def test_in_and_out_shardings():
    mesh = grid()
    s = lambda *names: NamedSharding(mesh, P(*names))
    f = toile.jit(lambda p, x: {"y": x @ p["w"] + p["b"], "n": x.sum()},
                  in_shardings=({"w": s(None, "y"), "b": s("y")}, s("x")),
                  out_shardings={"y": s("x", "y"), "n": s()})
    params = {"w": B, "b": normal(8)}
    for _ in range(3):
        out = f(params, A)
        assert out["y"].sharding == s("x", "y") and out["n"].sharding == s()
        np.testing.assert_allclose(out["y"], A @ B + params["b"], rtol=1e-4, atol=1e-5)
    inside = toile.jit(lambda p, x: toile.grad(lambda p: f(p, x)["y"].sum())(p))
    again = inside(params, put(mesh, A, P("x")))
    np.testing.assert_allclose(again["w"], np.repeat(A.sum(0)[:, None], 8, 1), rtol=1e-4, atol=1e-5)
    compiled = f.lower(params, A).compile()
    assert compiled(params, A)["y"].sharding == s("x", "y")
    plain = toile.jit(lambda v: v, donate_argnums=0)
    given = put(mesh, A, P("x"))
    assert plain(given).sharding == s("x") and given.is_deleted()


def test_parts_go_from_one_call_to_the_next():
    mesh = grid()
    f = toile.jit(lambda a: a * 2)
    x = put(mesh, A, P("x", "y"))
    y = f(f(x))
    with pytest.raises(AttributeError):  # never put together
        type(y)._data.__get__(y)
    np.testing.assert_array_equal(y, A * 4)
    assert f.why() == ["first call"]


def test_keys():
    mesh = grid((8,), ("x",))
    keys = toile.random.split(toile.random.key(0), 8)
    sharded = put(mesh, keys, P("x"))
    f = toile.jit(lambda k: toile.vmap(lambda k: toile.random.normal(k, (3,)))(k))
    np.testing.assert_array_equal(f(sharded), f(keys))
    same = toile.jit(lambda k: k)(sharded)
    assert same.sharding.spec == P("x")


def test_mapped_functions_inside():
    mesh = grid()
    inner = toile.shard_map(lambda p: p - lax.pmean(p, "x"), mesh=mesh, in_specs=P("x", "y"),
                            out_specs=P("x", "y"))
    f = toile.jit(lambda a: inner(a * 2).sum(1))
    a = put(mesh, A, P("x"))
    halves = 2 * A.reshape(2, 4, 16)
    np.testing.assert_allclose(f(a), (halves - halves.mean(0)).reshape(8, 16).sum(1), atol=1e-4)
    assert division(f, (a,)) is not None


def test_what_stays_on_one_device():
    mesh, other = grid(), grid((8,), ("z",))
    a = put(mesh, A, P("x"))
    seen = []

    def looked(v):
        toile.debug.callback(lambda v: seen.append(v.shape), v)
        return v * 2

    np.testing.assert_array_equal(toile.jit(looked)(a), A * 2)
    assert seen == [(8, 16)]  # called once, with all of it
    assert division(toile.jit(lambda v: v + 1), (put(mesh, A, P()),)) is None
    f = toile.jit(lambda v, w: v + w)
    np.testing.assert_array_equal(f(a, put(other, A, P("z"))), A * 2)

    def two(v):
        v = lax.with_sharding_constraint(v, NamedSharding(mesh, P("x")))
        return lax.with_sharding_constraint(v, NamedSharding(other, P("z")))

    out = toile.jit(two)(A)
    assert out.sharding.mesh == other


def test_errors():
    mesh = grid()
    s = NamedSharding(mesh, P("x", "y"))
    text = r"array axis 0 is partitioned 2 times, but the dimension size is 3"
    with pytest.raises(IndivisibleError, match=text):
        toile.jit(lambda a: a + 1, in_shardings=s)(np.ones((3, 8)))
    with pytest.raises(IndivisibleError, match="axis 1 is partitioned 4 times.*size is 6"):
        toile.jit(lambda a: a + 1, out_shardings=s)(np.ones((4, 6)))
    with pytest.raises(IndivisibleError, match=text):
        toile.device_put(np.ones((3, 8)), s)
    with pytest.raises(ValueError, match="only valid for values of rank at least 2"):
        toile.jit(lambda a: lax.with_sharding_constraint(a, s))(np.ones(4))
    with pytest.raises(ValueError, match="incompatible devices.*sharding_constraint inside jit"):
        toile.jit(lambda a: lax.with_sharding_constraint(a, s))(
            toile.device_put(A, toile.devices()[1]))
    hinted = toile.jit(lambda a: lax.with_sharding_constraint(a, s))(np.ones((4, 6), np.float32))
    assert hinted.sharding.spec == P("x")  # as far as it divides
    failing = toile.jit(lambda a: toile.pure_callback(_fail, a, a) + a.sum())
    with pytest.raises(Exception, match="on purpose"):
        failing(put(mesh, A, P("x")))


def _fail(_):
    raise ValueError("on purpose")


def test_explain_says_what_is_gathered():
    mesh = grid()
    f = toile.jit(lambda a: jnp.linalg.cholesky(a @ a.T + jnp.eye(8)).sum() + jnp.sort(a, 0).max())
    found = toile.explain(f)(put(mesh, A, P("x")))
    assert len(found.partition.notes) == 3
    text = str(found)
    assert "partition: 8 devices ('x': 2, 'y': 4); 3 all_gather" in text
    assert "dot_general at" in text and "gathers float32[8,16] along 'x'" in text
    assert "cholesky at" in text and "test_partition.py" in text
    inside = toile.explain(toile.jit(lambda a: a * 2, in_shardings=NamedSharding(mesh, P("x"))))(A)
    assert inside.partition is not None and not inside.partition.notes
    assert toile.explain(lambda a: a * 2)(A).partition is None


# ---------------------------------------------------------------------------------------- training


class Block(linen.Module):
    @linen.compact
    def __call__(self, x):
        y = linen.LayerNorm()(x)
        y = linen.MultiHeadDotProductAttention(num_heads=4, name="attention")(y, y)
        x = x + y
        y = linen.LayerNorm()(x)
        y = linen.Dense(64, name="up")(y)
        return x + linen.Dense(16, name="down")(nn.gelu(y))


class Transformer(linen.Module):
    @linen.compact
    def __call__(self, tokens):
        x = linen.Embed(32, 16, name="embed")(tokens)
        for i in range(2):
            x = Block(name=f"block{i}")(x)
        return linen.Dense(32, name="head")(linen.LayerNorm()(x))


def spec_of(path, x):
    """Columns of what comes first in a block, rows of what comes last, over 'model'."""
    names = [k.key for k in path]
    if "attention" in names:
        if "out" in names:
            return P("model") if names[-1] == "kernel" else P()
        return P(None, "model") if names[-1] == "kernel" else P("model")
    if "up" in names or "head" in names:
        return P(None, "model") if names[-1] == "kernel" else P("model")
    return P("model") if "down" in names and names[-1] == "kernel" else P()


def train(mesh, steps=5):
    model, tx = Transformer(), toile.optim.sgd(0.1, momentum=0.9)
    random = np.random.default_rng(1)
    batches = [random.integers(0, 32, (8, 9)).astype(np.int32) for _ in range(steps)]
    params = model.init(toile.random.key(0), batches[0][:, :-1])["params"]
    if mesh is not None:
        params = toile.tree_util.tree_map_with_path(
            lambda path, x: put(mesh, x, spec_of(path, x)), params)
        batches = [put(mesh, b, P("data")) for b in batches]
    opt_state = tx.init(params)

    @toile.jit
    def step(params, opt_state, tokens):
        def loss_of(params):
            logits = model.apply({"params": params}, tokens[:, :-1])
            chosen = jnp.take_along_axis(nn.log_softmax(logits), tokens[:, 1:, None], axis=-1)
            return -chosen.mean()

        loss, grads = toile.value_and_grad(loss_of)(params)
        updates, opt_state = tx.update(grads, opt_state, params)
        return toile.optim.apply_updates(params, updates), opt_state, loss

    losses = []
    for b in batches:
        args = params, opt_state, b
        params, opt_state, loss = step(*args)
        losses.append(float(loss))
    return losses, params, division(step, args) if mesh is not None else None


def test_a_transformer_trains_as_on_one_device():
    mesh = grid((2, 4), ("data", "model"))
    losses, params, found = train(mesh)
    wanted, reference, _ = train(None)
    np.testing.assert_allclose(losses, wanted, rtol=1e-4)
    assert losses[-1] < losses[0]
    flat = toile.tree_util.tree_leaves_with_path(params)
    for (path, a), b in zip(flat, toile.tree.leaves(reference), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-3, atol=1e-5)
        wanted = NamedSharding(mesh, spec_of(path, a))
        assert a.sharding.is_equivalent_to(wanted, a.ndim), path
    # Over 'model': two sums for each block forward and two backward, one behind the head and one
    # in the softmax; over 'data': all gradients and the loss together.
    assert collectives(found.op.prepare()) == {
        "psum": 10, "pmax": 1, "all_gather": 1, "psum_together": 1}
    assert len(found.notes) == 1 and "gather at" in found.notes[0]  # of the chosen tokens
