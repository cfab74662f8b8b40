"""`toile.example_libraries` against `jax.example_libraries`: optimizers and stax, row by row.

JAX runs each row compiled in one piece; toile runs the rows op by op, the trainings compiled.
"""

import importlib
import inspect
import types

import jax
import jax.example_libraries.optimizers
import jax.example_libraries.stax
import numpy as np
import pytest

import toile
from tests.quick_jax import OPTIONS
from toile.example_libraries import optimizers, stax

F = np.float32
RNG = np.random.RandomState(7)
PARAMS = {"b": RNG.randn(2).astype(F), "w": RNG.randn(3, 2).astype(F), "x": F(0.5)}
GRADS = [{k: np.asarray(RNG.randn(*v.shape), F) for k, v in PARAMS.items()} for _ in range(3)]
for _grads in GRADS:
    _grads["w"][1] = 0  # a gradient that has never been anything else


def libraries(package):
    """optimizers and stax of one of the two packages."""
    if package is jax:
        return jax.example_libraries.optimizers, jax.example_libraries.stax
    return optimizers, stax


def compiled(f):
    return jax.jit(f, compiler_options=OPTIONS)


def close(got, want, rtol=2e-5, atol=2e-6):
    """The same structure, and leaves of the same dtype, shape and value."""
    assert str(toile.tree.structure(got)) == str(jax.tree.structure(want))
    for a, b in zip(toile.tree.leaves(got), jax.tree.leaves(want), strict=True):
        a, b = (np.asarray(x, np.int32 if type(x) is int else None) for x in (a, b))
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol)


@pytest.mark.parametrize("name", ["optimizers", "stax"])
def test_names_and_signatures(name):
    ours = importlib.import_module(f"toile.example_libraries.{name}")
    theirs = importlib.import_module(f"jax.example_libraries.{name}")
    found = {n: v for n, v in vars(theirs).items() if n[0] != "_"}
    tools = {"map", "zip", "partial", "safe_map", "safe_zip", "unzip2", "namedtuple"}
    tools |= {"Any", "Callable", "NamedTuple", "annotations"}
    public = {n for n, v in found.items() if not isinstance(v, types.ModuleType)} - tools
    assert public == set(ours.__all__)
    assert getattr(toile.example_libraries, name) is ours
    for each in public:
        if isinstance(found[each], types.FunctionType):
            ps, qs = (inspect.signature(getattr(m, each)).parameters for m in (ours, theirs))
            assert [(p.name, p.kind) for p in ps.values()] == [
                (q.name, q.kind) for q in qs.values()
            ], each
            for p, q in zip(ps.values(), qs.values()):
                assert p.default == q.default or callable(p.default) and callable(q.default), each


# Optimizers: a function of the library that makes each.
MAKERS = {
    "sgd": lambda o: o.sgd(0.1),
    "sgd-exponential": lambda o: o.sgd(o.exponential_decay(0.1, 2, 0.5)),
    "momentum": lambda o: o.momentum(0.1, mass=0.9),
    "momentum-inverse": lambda o: o.momentum(o.inverse_time_decay(0.1, 2, 0.5), 0.8),
    "nesterov": lambda o: o.nesterov(0.1, mass=0.9),
    "nesterov-staircase": lambda o: o.nesterov(o.inverse_time_decay(0.1, 2, 0.5, True), 0.8),
    "adagrad": lambda o: o.adagrad(0.1),
    "adagrad-polynomial": lambda o: o.adagrad(o.polynomial_decay(0.1, 2, 0.01, 2.0), 0.5),
    "rmsprop": lambda o: o.rmsprop(0.1),
    "rmsprop-exponential": lambda o: o.rmsprop(o.exponential_decay(0.1, 2, 0.5), 0.8, 1e-3),
    "rmsprop_momentum": lambda o: o.rmsprop_momentum(0.1),
    "rmsprop_momentum-polynomial": lambda o: o.rmsprop_momentum(
        o.polynomial_decay(0.1, 2, 0.01), gamma=0.8, eps=1e-3, momentum=0.5),
    "adam": lambda o: o.adam(0.1),
    "adam-piecewise": lambda o: o.adam(o.piecewise_constant([0, 1], [0.1, 0.2, 0.3]), 0.8, 0.9),
    "adamax": lambda o: o.adamax(0.1),
    "adamax-function": lambda o: o.adamax(lambda i: 0.1 / (i + 1), 0.8, 0.9, 1e-3),
    "sm3": lambda o: o.sm3(0.1),
    "sm3-inverse": lambda o: o.sm3(o.inverse_time_decay(0.1, 2, 0.5), momentum=0.5),
}  # fmt: skip


def states(package, make, grads, params):
    """The flat state and the parameters after each step."""
    init, update, get_params = make(libraries(package)[0])
    state, out = init(params), []
    for i, g in enumerate(grads):
        state = update(i, g, state)
        out.append((package.tree.leaves(state), get_params(state)))
    return out


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_optimizers(make):
    # The gradients are arguments: NumPy's own arithmetic must not take the place of theirs.
    traced = [toile.tree.map(toile.numpy.asarray, g) for g in GRADS]
    got = states(toile, make, traced, toile.tree.map(toile.numpy.asarray, PARAMS))
    close(got, compiled(lambda grads, params: states(jax, make, grads, params))(GRADS, PARAMS))


def test_a_state_is_a_tree():
    got, want = (o.adam(0.1).init_fn(PARAMS) for o in (optimizers, libraries(jax)[0]))
    close(got, want)
    assert got._fields == want._fields and repr(got.tree_def) == repr(want.tree_def)
    doubled = toile.tree.map(lambda x: 2 * x, got)
    assert isinstance(doubled, optimizers.OptimizerState) and doubled.tree_def == got.tree_def
    close(optimizers.adam(0.1).params_fn(doubled), toile.tree.map(lambda x: 2 * x, PARAMS))
    paths = toile.tree_util.tree_leaves_with_path(got)
    theirs = jax.tree_util.tree_leaves_with_path(want)
    assert [toile.tree_util.keystr(p) for p, _ in paths] == [
        jax.tree_util.keystr(p) for p, _ in theirs
    ]


def test_steps_under_jit_and_scan():
    init, update, get_params = optimizers.adam(optimizers.exponential_decay(0.1, 2, 0.5))
    want = state = init(PARAMS)
    for i, g in enumerate(GRADS):
        want = update(i, g, want)
        state = toile.jit(update)(i, g, state)
    leaves = toile.tree.leaves(want)
    assert toile.tree.structure(state) == toile.tree.structure(want)
    close(toile.tree.leaves(state), leaves)
    stacked = toile.tree.map(lambda *gs: np.stack(gs), *GRADS)
    step = lambda s, xs: (update(*xs, s), get_params(s)["x"])
    last, xs = toile.lax.scan(step, init(PARAMS), (np.arange(3), stacked))
    close(toile.tree.leaves(last), leaves)
    assert xs.shape == (3,) and float(xs[0]) == 0.5


SCHEDULES = {
    "constant": lambda o: o.constant(0.1),
    "exponential": lambda o: o.exponential_decay(0.1, 3, 0.9),
    "inverse": lambda o: o.inverse_time_decay(0.1, 3, 0.9),
    "staircase": lambda o: o.inverse_time_decay(0.1, 3, 0.9, staircase=True),
    "polynomial": lambda o: o.polynomial_decay(0.1, 3, 0.02),
    "square": lambda o: o.polynomial_decay(0.1, 3, 0.02, power=2.0),
    "piecewise": lambda o: o.piecewise_constant([2, 4], [0.3, 0.2, 0.1]),
    "made": lambda o: o.make_schedule(0.5),
    "kept": lambda o: o.make_schedule(lambda i: i * 2),
}


@pytest.mark.parametrize("make", SCHEDULES.values(), ids=SCHEDULES)
def test_schedules(make):
    ours, theirs = make(optimizers), make(libraries(jax)[0])
    for step in (0, 5):
        got, want = ours(step), theirs(step)
        assert isinstance(got, float) == isinstance(want, float)
        np.testing.assert_allclose(float(got), float(want), rtol=1e-6)
    steps = np.arange(6, dtype=np.int32)
    got = toile.jit(toile.vmap(lambda i: ours(i) + i * 0.0))(steps)
    close(got, compiled(jax.vmap(lambda i: theirs(i) + i * 0.0))(steps))


def test_norm_and_clipping():
    def both(package, tree, empty):
        o = libraries(package)[0]
        return o.l2_norm(tree), o.clip_grads(tree, 0.5), o.clip_grads(tree, 100.0), o.l2_norm(empty)

    close(both(toile, PARAMS, []), compiled(lambda t, e: both(jax, t, e))(PARAMS, []))


@pytest.mark.parametrize("name", ["sgd", "momentum", "adam", "sm3"])
def test_states_unpack_and_pack(name):
    unpacked = []
    for package in (toile, jax):
        o, _ = libraries(package)
        init, update, get_params = MAKERS[name](o)
        state = init(package.tree.map(package.numpy.asarray, PARAMS))
        marked = o.unpack_optimizer_state(state)
        assert sorted(marked) == sorted(PARAMS)
        assert all(isinstance(point, o.JoinPoint) for point in marked.values())
        (inner,) = marked["w"]  # looks like a container of one
        assert inner is marked["w"].subtree
        again = o.pack_optimizer_state(marked)
        assert isinstance(again, o.OptimizerState)
        assert (again.tree_def, again.subtree_defs) == (state.tree_def, state.subtree_defs)
        assert package.tree.structure(again) == package.tree.structure(state)
        assert get_params(again)["x"].shape == ()
        unpacked.append({k: point.subtree for k, point in marked.items()})
    close(*unpacked)


def _wrong_structure(o):
    init, update, _ = o.optimizer(lambda: (lambda x: x, lambda i, g, x: (x, g), lambda x: x))()
    update(0, [1.0], init([1.0]))


def _wrong_gradient(o):
    init, update, _ = o.sgd(0.1)
    update(0, {"a": 1.0}, init({"b": 1.0}))


WRONG = {
    "gradient": (TypeError, _wrong_gradient, ["{'b': *}", "{'a': *}"]),
    "structure": (TypeError, _wrong_structure, ["PyTreeDef(*)", "PyTreeDef((*, *))"]),
    "rate": (TypeError, lambda o: o.sgd(np.ones(2)), ["numpy.ndarray"]),
    "mass": (TypeError, lambda o: o.momentum(0.1), ["mass"]),
    "boundaries": (ValueError, lambda o: o.piecewise_constant([1, 2], [1.0, 2.0]), ["boundar"]),
    "sequences": (ValueError, lambda o: o.piecewise_constant(1, [1.0, 2.0]), ["sequences"]),
    "leaves": (AssertionError, lambda o: o.pack_optimizer_state([1.0]), []),
}


@pytest.mark.parametrize("error, attempt, words", WRONG.values(), ids=WRONG)
def test_errors_of_optimizers(error, attempt, words):
    for package in (toile, jax):
        with pytest.raises(error) as caught:
            attempt(libraries(package)[0])
        assert all(word in str(caught.value) for word in words)


def _residual(s):
    inner = s.serial(s.Dense(5), s.Tanh, s.Dense(4))
    return s.serial(s.FanOut(2), s.parallel(inner, s.Identity), s.FanInSum, s.Relu)


IMAGES, ROWS = (2, 6, 5, 3), (3, 4)
CONV3D = ("NCHWD", "OIHWD", "NHWDC")

# Layers: who makes them, and the shape of their inputs.
LAYERS = {
    "Dense": (lambda s: s.Dense(5), ROWS),
    "Dense-options": (lambda s: s.Dense(5, s.randn(0.1), s.zeros), (2, 3, 4)),
    "Conv": (lambda s: s.Conv(4, (3, 2)), IMAGES),
    "Conv-strides": (lambda s: s.Conv(4, (3, 3), (2, 1), "SAME", b_init=s.ones), IMAGES),
    "Conv-W_init": (lambda s: s.Conv(2, (1, 2), None, ((1, 0), (0, 2)), s.glorot(2, 3)), IMAGES),
    "GeneralConv": (lambda s: s.GeneralConv(CONV3D, 2, (2, 1, 2)), (2, 2, 3, 4, 3)),
    "ConvTranspose": (lambda s: s.ConvTranspose(2, (3, 2), (2, 2)), IMAGES),
    "ConvTranspose-same": (lambda s: s.ConvTranspose(2, (3, 3), (2, 1), "SAME"), IMAGES),
    "Conv1DTranspose": (lambda s: s.Conv1DTranspose(3, (3,), strides=(2,)), (2, 4, 2)),
    "BatchNorm": (lambda s: s.BatchNorm(), IMAGES),
    "BatchNorm-axis": (lambda s: s.BatchNorm(0, 1e-3, beta_init=s.randn(), scale=False), ROWS),
    "BatchNorm-scale": (lambda s: s.BatchNorm((0, 2), center=False), (3, 2, 4)),
    "BatchNorm-bare": (lambda s: s.BatchNorm((0, 1), center=False, scale=False), (3, 2, 4)),
    "elementwise": (lambda s: s.elementwise(lambda x, by: x * by, by=3.0), ROWS),
    "Tanh": (lambda s: s.Tanh, ROWS),
    "Relu": (lambda s: s.Relu, ROWS),
    "Exp": (lambda s: s.Exp, ROWS),
    "LogSoftmax": (lambda s: s.LogSoftmax, ROWS),
    "Softmax": (lambda s: s.Softmax, ROWS),
    "Softplus": (lambda s: s.Softplus, ROWS),
    "Sigmoid": (lambda s: s.Sigmoid, ROWS),
    "Elu": (lambda s: s.Elu, ROWS),
    "LeakyRelu": (lambda s: s.LeakyRelu, ROWS),
    "Selu": (lambda s: s.Selu, ROWS),
    "Gelu": (lambda s: s.Gelu, ROWS),
    "MaxPool": (lambda s: s.MaxPool((2, 2)), IMAGES),
    "MaxPool-same": (lambda s: s.MaxPool((3, 2), (2, 2), "SAME"), IMAGES),
    "MaxPool-spec": (lambda s: s.MaxPool((2, 1), (1, 2), spec="NCHW"), (2, 3, 6, 5)),
    "SumPool": (lambda s: s.SumPool((2, 3), (2, 1)), IMAGES),
    "AvgPool": (lambda s: s.AvgPool((2, 2), (2, 2)), IMAGES),
    "AvgPool-same": (lambda s: s.AvgPool((3, 3), (2, 1), "SAME"), IMAGES),
    "AvgPool-spec": (lambda s: s.AvgPool((2, 3), padding="SAME", spec="CHWN"), (3, 6, 5, 2)),
    "Flatten": (lambda s: s.Flatten, IMAGES),
    "Identity": (lambda s: s.Identity, ROWS),
    "FanOut": (lambda s: s.FanOut(3), ROWS),
    "FanInSum": (lambda s: s.FanInSum, [ROWS, ROWS]),
    "FanInConcat": (lambda s: s.FanInConcat(), [(3, 4), (3, 2)]),
    "FanInConcat-axis": (lambda s: s.FanInConcat(1), [(3, 4, 2), (3, 1, 2)]),
    "Dropout": (lambda s: s.Dropout(0.7), IMAGES),
    "Dropout-test": (lambda s: s.Dropout(0.7, mode="test"), ROWS),
    "serial": (lambda s: s.serial(s.Dense(5), s.Dropout(0.5), s.Relu, s.Dropout(0.9)), ROWS),
    "parallel": (lambda s: s.parallel(s.Dense(2), s.Dropout(0.5)), [ROWS, (2, 3)]),
    "residual": (_residual, ROWS),
    "shape_dependent": (lambda s: s.shape_dependent(lambda shape: s.Dense(shape[-1])), ROWS),
}  # fmt: skip


def inputs_of(shape):
    rng = np.random.RandomState(1)
    if isinstance(shape, list):
        return [rng.randn(*each).astype(F) for each in shape]
    return rng.randn(*shape).astype(F)


def ran(package, make, shape, seed, x):
    """Parameters, outputs and gradients of a layer; its output shape apart."""
    init_fun, apply_fun = make(libraries(package)[1])
    init_key, apply_key = package.random.split(seed(package))
    out_shape, params = init_fun(init_key, shape)
    out = apply_fun(params, x, rng=apply_key)

    def total(params, x):
        outs = package.tree.leaves(apply_fun(params, x, rng=apply_key))
        weights = [np.linspace(0.5, 1.5, y.size, dtype=F).reshape(y.shape) for y in outs]
        return sum((y * w).sum() for y, w in zip(outs, weights, strict=True))

    return (params, out, package.grad(total, (0, 1))(params, x)), out_shape


def seed(package):
    return package.random.key(3)


def old_seed(package):
    return package.random.PRNGKey(3)


def both_ran(make, shape, seed, x):
    """What both packages make of a layer."""
    shapes = []

    def theirs(x):
        results, out_shape = ran(jax, make, shape, seed, x)
        shapes.append(out_shape)  # not to become arrays
        return results

    ours = ran(toile, make, shape, seed, toile.tree.map(toile.numpy.asarray, x))
    return *ours, compiled(theirs)(x), shapes[0]


@pytest.mark.parametrize("make, shape", LAYERS.values(), ids=LAYERS)
def test_layers(make, shape):
    got, out_shape, want, their_shape = both_ran(make, shape, seed, inputs_of(shape))
    assert out_shape == their_shape
    made = toile.tree.map(lambda y: y.shape, got[1])
    assert toile.tree.leaves(made) == toile.tree.leaves(list(out_shape))
    for ours, theirs in zip(got, want, strict=True):
        close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_layers_in_double_precision_with_an_old_key():
    make = lambda s: s.serial(s.Conv(2, (2, 2)), s.Relu, s.AvgPool((2, 2)), s.Flatten, s.Dense(3))
    with toile.enable_x64(), jax.enable_x64():
        x = inputs_of(IMAGES).astype(np.float64)
        got, _, want, _ = both_ran(make, IMAGES, old_seed, x)
        assert got[1].dtype == np.float64
        for ours, theirs in zip(got, want, strict=True):
            close(ours, theirs, rtol=1e-9, atol=1e-9)


def test_shapes_with_an_open_batch():
    def network(s):
        layers = s.Conv(4, (3, 3), (2, 2), "SAME"), s.BatchNorm(), s.Relu, s.Flatten, s.Dense(5)
        return s.serial(*layers)

    key, (init, apply) = toile.random.key(0), network(stax)
    shape, params = init(key, (-1, 8, 8, 1))
    assert shape == (-1, 5) and apply(params, np.ones((2, 8, 8, 1), F)).shape == (2, 5)
    same = init(key, (16, 8, 8, 1))[1]  # the parameters do not depend on the batch
    close(toile.tree.map(np.asarray, same), toile.tree.map(np.asarray, params))


def test_pooling_with_pairs_of_padding():
    make = lambda s: s.SumPool((2,), padding=((0, 0), (1, 0), (0, 0)))
    x = inputs_of((2, 4, 3))
    got = make(stax)[1]((), toile.numpy.asarray(x))
    close(got, compiled(lambda x: make(libraries(jax)[1])[1]((), x))(x))
    assert make(stax)[0](None, x.shape) == (got.shape, ())  # JAX's init_fun wants a string


WRONG_LAYERS = {
    "no key": (ValueError, lambda s, key: s.Dropout(0.5)[1]((), np.ones(3, F))),
    "no key inside": (ValueError, lambda s, key: s.serial(s.Dropout(0.5))[1]([()], np.ones(3, F))),
    "no key to test": (ValueError, lambda s, key: s.Dropout(0.5, "test")[1]((), np.ones(3, F))),
    "nothing in series": (ValueError, lambda s, key: s.serial()),
    "nothing in parallel": (ValueError, lambda s, key: s.parallel()),
    "kernel axes": (ValueError, lambda s, key: s.GeneralConv(("NHC", "HXO", "NHC"), 2, (3,))),
    "pooled axes": (ValueError, lambda s, key: s.MaxPool((2, 2), spec="BHWC")),
    "padding": (RuntimeError, lambda s, key: s.Conv(2, (3, 3), padding="ALL")[0](key, IMAGES)),
    "pooled padding": (RuntimeError, lambda s, key: s.MaxPool((3,), padding="A")[0](key, ROWS)),
    "list of windows": (TypeError, lambda s, key: s.MaxPool([2, 2])),
    "list of sizes": (TypeError, lambda s, key: s.Dense(3)[0](key, [4])),
    "no features": (IndexError, lambda s, key: s.Dense(3)[0](key, ())),
    "nothing to join": (IndexError, lambda s, key: s.FanInConcat()[0](key, [])),
    "features": (TypeError, lambda s, key: s.Dense(3)[1](np.ones((2, 5, 3), F), inputs_of(ROWS))),
}  # fmt: skip


@pytest.mark.parametrize("error, attempt", WRONG_LAYERS.values(), ids=WRONG_LAYERS)
def test_errors_of_layers(error, attempt):
    for package in (toile, jax):
        with pytest.raises(error):
            attempt(libraries(package)[1], package.random.key(0))


def classifier(s):
    """Rows of images, twice: with dropout and normalization, and straight on."""
    return s.serial(
        s.Conv(4, (3, 3), padding="SAME"), s.BatchNorm(), s.Relu, s.MaxPool((2, 2), (2, 2)),
        s.Flatten, s.FanOut(2), s.parallel(s.Dense(8), s.serial(s.Dense(8), s.Dropout(0.8))),
        s.FanInSum, s.Gelu, s.Dense(3), s.LogSoftmax,
    )  # fmt: skip


def perceptron(s):
    return s.serial(s.Flatten, s.Dense(16), s.Relu, s.Dense(3), s.LogSoftmax)


TRAININGS = {
    "perceptron": (perceptron, lambda o: o.momentum(0.05, mass=0.9)),
    "classifier": (classifier, lambda o: o.adam(o.exponential_decay(0.01, 3, 0.8))),
}


def losses(package, network, make, jit):
    """The losses of a few steps, as tutorials write them, and the norm of the last parameters."""
    o, s = libraries(package)
    rng = np.random.RandomState(0)
    images, labels = rng.randn(8, 6, 6, 1).astype(F), np.eye(3, dtype=F)[rng.randint(3, size=8)]
    init_random_params, predict = network(s)
    opt_init, opt_update, get_params = make(o)

    def loss(params, key):
        return -package.numpy.mean((predict(params, images, rng=key) * labels).sum(axis=1))

    def step(i, key, opt_state):
        value, grads = package.value_and_grad(loss)(get_params(opt_state), key)
        return value, opt_update(i, o.clip_grads(grads, 2.0), opt_state)

    @jit
    def start(key):
        return opt_init(init_random_params(key, (-1, 6, 6, 1))[1])

    opt_state, step, values = start(package.random.key(0)), jit(step), []
    for i in range(6):
        value, opt_state = step(i, package.random.key(i), opt_state)
        values.append(float(value))
    return values, float(jit(lambda state: o.l2_norm(get_params(state)))(opt_state))


@pytest.mark.parametrize("network, make", TRAININGS.values(), ids=TRAININGS)
def test_training(network, make):
    got, norm = losses(toile, network, make, toile.jit)
    want, their_norm = losses(jax, network, make, compiled)
    assert got[-1] < got[0]
    np.testing.assert_allclose(got, want, rtol=2e-4)
    np.testing.assert_allclose(norm, their_norm, rtol=1e-4)
