"""What programs rely on without noticing: dtypes, weak types, indexing, errors, printing."""

import numpy as np

from tests.whole_programs.registry import caught, program


@program()
def promotion_in_programs(ns):
    jax, jnp = ns.jax, ns.jnp
    i, f, h, b = (
        jnp.arange(3),
        jnp.ones(3),
        jnp.ones(3, jnp.bfloat16),
        jnp.array([True, False, True]),
    )
    pairs = [
        i + f,
        i + 1.5,
        h * 2,
        h + f,
        b + 1,
        b + 1.0,
        i * True,
        f + np.float64(1),
        i / 2,
        i // 2,
        i**2,
        f**2,
        2**i,
        2.0**i,
        i @ f,
        h @ h,
        b & True,
        -i,
        abs(-i),
        +f,
        i < 2,
        f == i,
        jnp.uint8(3) + jnp.int8(1),
        jnp.int32(3) + np.int64(1),
        1j * f,
        jnp.sum(b),
        jnp.mean(i),
        jnp.sum(h),
        jnp.mean(h),
        jnp.prod(b),
        jnp.cumsum(b),
        jnp.sum(jnp.ones(2, jnp.int8)),
        jnp.where(b, 1, 2.0),
        jnp.where(b, i, 0),
        jnp.maximum(i, 1.0),
        jnp.clip(i, 0, 1.5),
        jnp.array([1, 2.0]),
        jnp.array([True, 2]),
        jnp.asarray(3),
        jnp.full(2, 1),
        jnp.full(2, h[0]),
        jnp.zeros_like(3.0),
        jnp.ones_like(i, dtype=float),
        jnp.stack([i, f]),
        jnp.append(i, 1.0),
        jnp.concatenate([i, b]),
        jnp.linspace(0, 1, 3),
        jnp.arange(0, 1, 0.3),
        jnp.eye(2, dtype=int),
        jnp.round(f),
        jnp.round(i),
        jnp.sqrt(4),
        jnp.exp(i),
        jnp.sin(b),
        jnp.floor(2),
        jnp.sign(-2),
        jnp.dot(i, i),
        jnp.var(i),
        jnp.std(h),
        jnp.median(i),
        jnp.logical_not(i),
        jnp.real(1j * f),
        jnp.float32(1) * 2.0,
        jnp.asarray(1.0) * jnp.asarray(2),
        jax.jit(lambda x: x * 2)(3),
        jax.jit(lambda x: x)(2.5),
        jnp.power(2, -1.0),
        jnp.square(3),
        jax.nn.relu(-1),
        jax.nn.gelu(2),
        jax.nn.softmax(i),
        jax.nn.one_hot(i, 3),
        jax.nn.sigmoid(h),
        jnp.nan_to_num(f),
        jnp.trunc(2.7),
        jnp.mod(-i, 2.0),
        jnp.divmod(i, 2),
        jnp.ldexp(f, i),
        jnp.heaviside(f, 0.5),
        jnp.isclose(f, 1),
        jnp.allclose(f, 1.0),
        jnp.array_equal(i, i),
        jnp.any(i),
        jnp.bool_(1),
        jnp.int16(3.7),
    ]
    return pairs


@program()
def indexing_in_programs(ns):
    jnp = ns.jnp
    x = jnp.arange(24).reshape(2, 3, 4)
    rows, mask = jnp.array([1, 0]), x[0] % 2 == 0
    return (
        x[1],
        x[-1, ..., 0],
        x[:, 1:3, ::2],
        x[rows],
        x[:, rows],
        x[rows, :, rows],
        x[rows, rows],
        x[0, [0, 2]],
        x[..., None].shape,
        x[x > 20],
        x[0][mask],
        x[0, mask[:, 0]],
        x[None, 0, :, None, 1],
        x[jnp.array([[0, 1], [1, 0]]), 0],
        x[:, :, -5:],
        x[1:1],
        x[(0, 1)],
        x[np.int64(1)],
        x[jnp.int8(-1)],
        x[True].shape,
        x[-7:, 0, 0],
        x.at[0, 0].set(9),
        x.at[..., -1].add(100),
        x.at[rows, :, 1].mul(2),
        x.at[x > 10].set(0),
        x.at[1, rows, 2].max(50),
        x.at[0].power(2)[0, 0],
        x.at[5].set(1, mode="drop"),
        x.at[-1, -1, -1].get(),
        x.at[9].get(mode="fill", fill_value=-1)[0, 0],
        caught(lambda: x[0, 0, 0, 0]),
        caught(lambda: x["a"]),
        caught(lambda: x[1.5]),
        caught(lambda: x.at[0].set(jnp.ones(3))),
        caught(x.__setitem__, 0, 1),
        caught(lambda: x[[0, 1]]),
        jnp.take(x, 7),
        jnp.take(x, rows, axis=2),
        jnp.take_along_axis(x, rows[None, None, :], 2),
        jnp.put_along_axis(x, rows[None, None, :], 7, axis=2, inplace=False),
        jnp.ix_(rows, rows),
        jnp.unravel_index(jnp.array([5, 23]), x.shape),
        jnp.ravel_multi_index((1, 2, 3), x.shape),
        jnp.diagonal(x, axis1=1, axis2=2),
        jnp.argwhere(x > 21),
        jnp.extract(x > 21, x),
        jnp.compress(jnp.array([True, False, True]), x, axis=1),
        jnp.squeeze(x[:1], 0),
        jnp.delete(x, 1, axis=1),
        jnp.insert(jnp.arange(3), 1, 9),
        jnp.tril(x),
        jnp.flatnonzero(x > 21),
        x[:, jnp.newaxis, 1, 2],
    )


@program()
def array_methods(ns):
    jax, jnp = ns.jax, ns.jnp
    x = jnp.array([[3.0, 1.0], [2.0, 4.0]])
    i = jnp.array(3)
    return {
        "methods": [
            x.sum(),
            x.mean(0),
            x.max(axis=1),
            x.argmin(),
            x.T,
            x.reshape(-1),
            x.ravel(),
            x.std(),
            x.cumsum(1),
            x.prod(),
            x.any(),
            x.all(),
            x.round(),
            x.clip(2, 3),
            x.dot(x),
            x.flatten(),
            x.transpose(1, 0),
            x.swapaxes(0, 1),
            x.squeeze(),
            x.astype(int),
            x.copy(),
            x.trace(),
            x.diagonal(),
            x.repeat(2, axis=0),
            x.take(jnp.array([0])),
            x.sort(axis=0),
            x.argsort(),
            x.conj(),
            x.real,
            x.imag,
            x.mT,
            x.var(ddof=1),
            x.ptp(),
            x.nonzero(),
            x.searchsorted(2.0) if x.ndim == 1 else 0,
            x.compress(jnp.array([True, False]), axis=0),
            x.view(jnp.int32),
        ],
        "facts": [x.shape, x.ndim, x.size, x.nbytes, x.itemsize, str(x.dtype), x.weak_type, len(x)],
        "python": [
            float(x[0, 0]),
            int(i),
            bool(i),
            x.tolist(),
            i.item(),
            list(range(10))[i],
            [*map(float, x[0])],
            f"{x[0, 0]:.3f}",
            f"{i}",
            str(i),
            hash("a") == hash("a"),
            i.__index__(),
            complex(i),
            round(2.5),
        ],
        "repr": [
            repr(x),
            repr(i),
            repr(jnp.float32(1.5)),
            repr(x.astype(jnp.bfloat16)),
            str(x),
            repr(x > 2),
            repr(jnp.zeros((0, 3))),
            repr(jnp.array(2.0)),
            repr(jnp.asarray(1.5) * 2),
            str(jnp.int8(3)),
            repr(jnp.arange(3, dtype="uint8")),
            repr(jnp.array(1 + 2j)),
            repr(jnp.arange(2000)),
            repr(jnp.linspace(0, 1e5, 4)),
            repr(jnp.array([jnp.nan, jnp.inf])),
            repr(jnp.ones((2, 2, 2))),
        ],
        "numpy": [
            np.asarray(x),
            np.array(i),
            np.sin(x) + 1,
            np.ones(2) @ x,
            x @ np.ones((2, 1)),
            np.float32(2) * x,
        ],
        "errors": [
            caught(hash, x),
            caught(bool, x),
            caught(int, x),
            caught(x.reshape, 3),
            caught(lambda: x @ jnp.ones(3)),
            caught(lambda: x + jnp.ones(3)),
            caught(iter, i),
            caught(len, i),
            caught(lambda: x + "a"),
            caught(lambda: jnp.concatenate([])),
            caught(lambda: jnp.stack([x, i])),
            caught(lambda: jnp.zeros(-1)),
            caught(lambda: jnp.array("s")),
            caught(lambda: jnp.sum([1, 2])),
            caught(lambda: jnp.sum(x, axis=5)),
            caught(lambda: x.at[0].set()),
            caught(lambda: jnp.add(x)),
            caught(lambda: jnp.einsum("ij,jk", x)),
        ],
        "isinstance": [
            isinstance(x, jax.Array),
            isinstance(1.0, jax.Array),
            isinstance(np.ones(2), jax.Array),
        ],
        "iter": list(x),
        "unpack": (lambda a, b: a - b)(*x),
        "contains": 3.0 in x[0],
        "eq": (x == x).all(),
        "devices": [len(x.devices()), x.is_fully_addressable, x.committed],
        "ready": x.block_until_ready() is x,
    }


@program()
def numpy_style_preprocessing(ns):
    jnp = ns.jnp
    raw = np.arange(40, dtype=np.float64).reshape(8, 5)
    raw[2, 3] = np.nan
    x = jnp.asarray(raw)
    mean, std = jnp.nanmean(x, axis=0), jnp.nanstd(x, axis=0)
    filled = jnp.where(jnp.isnan(x), mean, x)
    z = (filled - mean) / std
    train, test = jnp.split(z, [6])
    folds = jnp.array_split(jnp.arange(7), 3)
    bins = jnp.digitize(z[:, 0], jnp.linspace(-1, 1, 4))
    return (
        x.dtype.name,
        mean,
        std,
        z,
        train,
        test,
        folds,
        bins,
        jnp.hstack([train, train**2]).shape,
        jnp.vstack([mean, std]),
        jnp.column_stack([mean, std]),
        jnp.tile(mean, (2, 1)),
        jnp.repeat(jnp.arange(3), jnp.array([1, 0, 2]), total_repeat_length=3),
        jnp.broadcast_to(mean, (2, 5)),
        jnp.expand_dims(mean, (0, 2)).shape,
        jnp.moveaxis(jnp.ones((2, 3, 4)), 0, -1).shape,
        jnp.pad(mean, (1, 2), mode="reflect"),
        jnp.pad(x[:2], ((0, 1), (2, 0)), constant_values=7),
        jnp.average(filled, axis=1, weights=jnp.arange(5.0)),
        jnp.array(raw.tolist()).dtype.name,
        jnp.triu_indices(3),
        jnp.flip(mean),
        jnp.fliplr(x),
        jnp.block([[jnp.eye(2), jnp.ones((2, 1))]]),
        jnp.indices((2, 2)),
        jnp.mgrid[0:2, 0:3],
        jnp.r_[0:3, 7],
        jnp.c_[mean, std],
        jnp.ogrid[0:2],
        jnp.outer(mean, std)[0],
        jnp.vdot(mean, std),
        jnp.inner(mean, std),
        jnp.cross(mean[:3], std[:3] + mean[:3]),
        jnp.atleast_2d(3.0),
        jnp.nan_to_num(x)[2],
        jnp.count_nonzero(x > 5),
        jnp.finfo("bfloat16").eps,
        jnp.iinfo(jnp.int8).max,
        jnp.result_type(1, jnp.float16),
        jnp.promote_types("int8", "uint8"),
        jnp.issubdtype(x.dtype, jnp.floating),
        jnp.shape(raw),
        jnp.ndim(3),
        jnp.size(raw),
        jnp.asarray(raw.astype(np.int64)).dtype,
        jnp.dtype("float32"),
        jnp.pi,
    )


@program()
def activations_and_losses(ns):
    jax, jnp, nn = ns.jax, ns.jnp, ns.nn
    x = jnp.array([-30.0, -2.0, -0.5, 0.0, 0.5, 3.0, 30.0])
    names = (
        "relu relu6 sigmoid softplus soft_sign silu swish log_sigmoid leaky_relu hard_sigmoid "
        "hard_silu "
        "hard_tanh elu celu selu gelu squareplus mish tanh identity sparse_plus sparse_sigmoid"
    ).split()
    table = {n: (getattr(nn, n)(x), jax.vmap(jax.grad(getattr(nn, n)))(x)) for n in names}
    logits = jnp.array([[2.0, -1.0, 0.5], [0.0, 1e4, -1e4]])
    labels = jnp.array([0, 1])

    def cross_entropy(logits):
        return -jnp.sum(nn.one_hot(labels, 3) * nn.log_softmax(logits), -1)

    def hinge(logits):
        right = jnp.take_along_axis(logits, labels[:, None], 1)
        return jnp.maximum(0.0, 1 + logits - right).sum(-1)

    def huber(d, delta=1.0):
        return jnp.where(jnp.abs(d) < delta, 0.5 * d**2, delta * (jnp.abs(d) - 0.5 * delta))

    losses = [
        (f(v), jax.grad(lambda v, f=f: f(v).sum())(v))
        for f, v in ((cross_entropy, logits), (hinge, logits), (huber, x))
    ]
    return (
        table,
        losses,
        nn.glu(x[:6]),
        nn.logsumexp(logits, axis=1, b=jnp.array([1.0, 2.0, 0.5])),
        nn.standardize(logits[:1]),
        nn.softmax(logits, where=logits > -1e3, axis=0),
        nn.one_hot(jnp.array([0, 5, -1]), 3),
        nn.softmax(jnp.array([-jnp.inf, -jnp.inf])),
        nn.logmeanexp(logits),
        nn.log_softmax(logits, axis=0),
        nn.gelu(x, approximate=False),
        nn.elu(x, 0.5),
        nn.log1mexp(-x[:2]),
    )


@program()
def initializers_table(ns):
    jnp, init = ns.jnp, ns.nn.initializers
    key = ns.random.PRNGKey(0)
    shape = (3, 3, 4, 6)
    plain = [
        init.zeros,
        init.ones,
        init.constant(0.3),
        init.uniform(),
        init.normal(),
        init.truncated_normal(0.1),
        init.variance_scaling(2.0, "fan_avg", "truncated_normal"),
        init.glorot_uniform(),
        init.glorot_normal(),
        init.he_uniform(),
        init.he_normal(),
        init.lecun_uniform(),
        init.lecun_normal(),
        init.xavier_normal(),
        init.kaiming_normal(in_axis=0, out_axis=1),
        init.lecun_normal(batch_axis=(0, 1)),
    ]
    return (
        [f(key, shape, jnp.float32) for f in plain],
        init.orthogonal(scale=2.0)(key, (4, 3)),
        init.delta_orthogonal()(key, (3, 2, 4)),
        init.he_normal(dtype=jnp.bfloat16)(key, (2, 3)),
        init.normal(dtype=jnp.float16)(key, (2,)),
        caught(init.glorot_uniform(), key, (3,)),
    )
