"""Functions beside transformations: applying updates, tree arithmetic, linear algebra, numerics.

Each row is a call (o, lib, params, grads) -> tree, the same text for optax and toile.optim.
"""

import numpy as np

from tests.optim.cases import function


@function("apply_updates")
def _(o, lib, params, grads):
    mixed = {"a": params["head"][0], "b": None}
    return [
        o.apply_updates(params, grads),
        o.apply_updates(mixed, {"a": grads["head"][0], "b": None}),
    ]


@function("incremental_update, periodic_update")
def _(o, lib, params, grads):
    return [
        o.incremental_update(grads, params, 0.1),
        o.periodic_update(grads, params, lib.jnp.int32(6), 3),
        o.periodic_update(grads, params, lib.jnp.int32(7), 3),
    ]


@function("tree arithmetic")
def _(o, lib, params, grads):
    t = o.tree
    return {
        "add": t.add(params, grads, params),
        "sub": t.sub(params, grads),
        "mul": t.mul(params, grads),
        "div": t.div(params, grads),
        "scale": t.scale(0.3, params),
        "add_scale": t.add_scale(params, 0.3, grads),
        "vdot": t.vdot(params, grads),
        "sum": t.sum(params),
        "associative": t.sum(params, associative_reduction=True),
        "max": t.max(params),
        "min": t.min(params),
        "size": t.size(params),
        "conj": t.conj(params),
        "real": t.real(params),
        "batch_shape": t.batch_shape(params, (2,)),
        "zeros": t.zeros_like(params, lib.jnp.float32),
        "ones": t.ones_like(params),
        "full": t.full_like(params, 0.3),
        "clip": t.clip(params, -0.5, 0.4),
        "where": t.where(lib.jnp.array(True), params, grads),
        "allclose": t.allclose(params, params),
        "not close": t.allclose(params, grads),
    }


@function("tree norms and casts")
def _(o, lib, params, grads):
    t, jnp = o.tree, lib.jnp
    return {
        "norms": [t.norm(params, ord=k) for k in (None, 1, 2, "inf", np.inf)],
        "squared": [t.norm(params, ord=k, squared=True) for k in (None, 1, "inf")],
        "cast": t.cast(params, jnp.float16),
        "cast_like": t.cast_like(params, t.cast(grads, jnp.float16)),
        "cast None": t.cast(params, None),
        "dtypes": [
            jnp.zeros((), t.dtype(params)),
            *(jnp.zeros((), t.dtype([params, jnp.float16(1)], "lowest")) for _ in range(1)),
        ]
        if params["head"][0].dtype == jnp.float32
        else [],
        "promoted": jnp.zeros((), t.dtype([params, jnp.float16(1)], "promote")),
    }


@function("random trees")
def _(o, lib, params, grads):
    key = lib.jax.random.key(3)
    return [
        o.tree.split_key_like(key, params),
        o.tree.random_like(key, params),
        o.tree.random_like(key, params, lib.jax.random.uniform, lib.jnp.float32),
        o.tree.unwrap_random_key_data({"k": key, "x": params}),
    ]


@function("moments")
def _(o, lib, params, grads):
    some = {"a": grads["head"][0], "b": None}
    old = {"a": params["head"][0], "b": None}
    return [
        o.update_moment(grads, params, 0.9, 1),
        o.update_moment(some, old, 0.9, 2),
        o.update_moment_per_elem_norm(grads, params, 0.9, 2),
        o.update_infinity_moment(grads, params, 0.9, 1e-8),
        o.bias_correction(params, 0.9, 3),
        o.bias_correction(params, 0.9, lib.jnp.int32(3)),
    ]


@function("complex moments")
def _(o, lib, params, grads):
    z = lib.jnp.array([1.0 + 2.0j, -0.5j])
    tx = o.adam(0.1)
    updates, state = tx.update(z, tx.init(z))
    return [updates, state, o.tree.norm(z), o.tree.vdot(z, 1j * z), o.tree.real(z)]


@function("tree_map_params, tree.get, tree.set")
def _(o, lib, params, grads):
    tx = o.chain(o.adam(0.1), o.masked(o.trace(0.9), {"encoder": True, "head": False}))
    state = tx.init(params)
    marked = o.tree_map_params(
        tx, lambda x: x + 1, state, transform_non_params=lambda x: x + lib.jnp.int32(5)
    )
    changed = o.tree.set(state, count=lib.jnp.int32(9))
    return [
        marked,
        changed,
        o.tree.get(state, "mu"),
        o.tree.get(state, "TraceState"),
        o.tree.get(state, "nothing", 3.0),
        [x for _, x in o.tree.get_all_with_path(state, "kernel")],
        [str(p) for p, _ in o.tree.get_all_with_path({"a": state}, "count")] and 1,
    ]


@function("numerics")
def _(o, lib, params, grads):
    jnp, jax = lib.jnp, lib.jax
    x = params["encoder"]["kernel"]
    zero = jnp.zeros_like(x)
    return {
        "norm": [o.safe_norm(x, 0.1), o.safe_norm(zero, 0.1)],
        "axes": o.safe_norm(x, 0.1, ord=1, axis=0, keepdims=True),
        "axis": o.safe_norm(x, 0.5, axis=1),
        "rms": [o.safe_root_mean_squares(x, 0.1), o.safe_root_mean_squares(zero, 0.1)],
        "slopes": [jax.grad(lambda v: o.safe_norm(v, 0.1))(v) for v in (x, zero)],
        "rms slopes": [jax.grad(lambda v: o.safe_root_mean_squares(v, 0.1))(v) for v in (x, zero)],
        "increments": [
            o.safe_increment(jnp.int32(3)),
            o.safe_increment(jnp.int8(127)),
            o.safe_int32_increment(jnp.int32(2**31 - 1)),
            o.safe_increment(jnp.float16(2.0)),
        ],
    }


@function("scale_gradient")
def _(o, lib, params, grads):
    total = lambda p, s: o.tree.sum(o.tree.scale(2.0, o.scale_gradient(p, s)))
    return [lib.jax.value_and_grad(total)(params, s) for s in (0.0, 0.5, 1.0)]


@function("multi_normal")
def _(o, lib, params, grads):
    d = o.multi_normal(params["head"][0], grads["head"][0])
    sample = d.sample((3,), lib.jax.random.key(1))
    return [sample, d.log_prob(sample), d.log_scale, d.params]


@function("linear algebra")
def _(o, lib, params, grads):
    jnp = lib.jnp
    a = jnp.array([[2.0, 0.5, 0.1], [0.5, 1.0, 0.2], [0.1, 0.2, 3.0]])
    value, vector = o.power_iteration(a)
    of_tree, direction = o.power_iteration(
        lambda v: {"x": 2.0 * v["x"]}, v0={"x": jnp.array([1.0, 2.0])}, num_iters=5
    )
    b = jnp.array([1.0, -2.0, 0.5])
    return {
        "power_iteration": [value, jnp.abs(vector), of_tree, direction],
        "matrix_inverse_pth_root": [o.matrix_inverse_pth_root(a, p)[0] for p in (1, 2, 4)],
        "nnls": [o.nnls(a, b, 50), o.nnls(a, jnp.stack([b, -b], 1), 50, L=12.0)],
    }


@function("global_norm")
def _(o, lib, params, grads):
    return o.global_norm(params)


@function("per_example_global_norm_clip, per_example_layer_norm_clip")
def _(o, lib, params, grads):
    batched = lib.jax.tree.map(lambda p, g: lib.jnp.stack([p, g, 0 * p]), params, grads)
    return [
        o.per_example_global_norm_clip(batched, 0.7),
        o.per_example_layer_norm_clip(batched, 0.7),
        o.per_example_layer_norm_clip(batched, 0.7, uniform=False),
    ]


@function("unitwise norms")
def _(o, lib, params, grads):
    x = lib.jnp.arange(1.0, 25.0).astype(params["head"][0].dtype)
    shapes = [(24,), (4, 6), (2, 3, 4), (2, 1, 3, 4), (1, 2, 2, 2, 3)]
    norms = [o.transforms.unitwise_norm(x.reshape(s)) for s in shapes]
    return [*norms, o.transforms.unitwise_norm(x.reshape(4, 6), axis=1)]


@function("skip_large_updates, skip_not_finite")
def _(o, lib, params, grads):
    return [
        o.skip_large_updates(grads, 0, params, 1.0),
        o.skip_large_updates(grads, 0, params, 1e6),
        o.skip_not_finite({"a": lib.jnp.array([1.0, lib.jnp.inf])}, 0, None),
    ]


@function("WrappedSchedule")
def _(o, lib, params, grads):
    schedule = o.WrappedSchedule(lambda count: 1.0 / (1 + count))
    state = schedule.update(schedule.init())
    return [state, schedule(state)]


@function("value_and_grad_from_state")
def _(o, lib, params, grads):
    loss = lambda p, scale=1.0: scale * o.tree.norm(p, squared=True)
    tx = o.chain(o.sgd(0.1), o.scale_by_zoom_linesearch(5))
    f = o.value_and_grad_from_state(loss)
    state = tx.init(params)
    value, grad = f(params, state=state)
    _, state = tx.update(grad, state, params, value=value, grad=grad, value_fn=loss)
    return [(value, grad), f(params, 2.0, state=state)]


@function("microbatch, micro_vmap, micro_grad")
def _(o, lib, params, grads):
    jnp, m = lib.jnp, o.microbatching
    x = jnp.arange(12.0).reshape(6, 2)
    kinds = (m.AccumulationType.SUM, m.AccumulationType.MEAN, m.AccumulationType.RUNNING_MEAN)
    f = lambda w, x: jnp.mean((x @ w) ** 2)
    w = params["head"][0]
    return [
        [o.microbatch(f, 1, 2, kind)(w, x) for kind in kinds],
        o.microbatch(lambda x: x * 2, 0, 2, m.AccumulationType.CONCAT)(x),
        o.microbatch(f, 1, 2, num_real_microbatches=jnp.int32(2))(w, x),
        o.microbatch(lambda *, x: x.sum(0), (), 3, argnames="x")(x=x),
        m.micro_vmap(lambda x: x.sum(), microbatch_size=2)(x),
        list(m.micro_grad(f, microbatch_size=3)(w, x)),
        m.reshape_batch_axis(x, 2),
    ]
