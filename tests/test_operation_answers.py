"""What the compiler, checks and jet ask of operations: every operation answers, new ones too."""

import importlib
import importlib.util
import inspect
import pkgutil
import subprocess
import sys

import numpy as np
import pytest
from jax._src import checkify as jax_checkify

import toile
import toile.numpy as jnp
from toile import control, kernels, parallel, primitives
from toile.compiler.passes.calls import inline_calls
from toile.engine.avals import Aval, aval_of
from toile.engine.key_uses import KeyUse
from toile.engine.operation import Operation
from toile.experimental import checkify
from toile.experimental.jet import jet
from toile.kernels.convolution.gpu_tensor_cores import without_libraries
from toile.kernels.families import lowering
from toile.primitives.contractions import DotGeneral
from toile.primitives.families import (
    FLOAT,
    Bilinear,
    BroadcastInDim,
    Elementwise,
    Linear,
    ReduceSum,
    Reshape,
    Transpose,
    mul,
)

DEVICES = ("cpu", "gpu")


class Halved(Elementwise):
    """x / 2, and nothing else is said of it."""

    accepts = FLOAT

    def eager(self, xp, x):
        return x / x.dtype.type(2)


class Positive(Elementwise):
    """Whether x > 0: what has another dtype than the operands does not move with them."""

    accepts, result = FLOAT, np.dtype(bool)

    def eager(self, xp, x):
        return x > 0


class Doubled(Linear):
    """2 x, with nothing but what a linear operation needs."""

    def infer(self, x):
        return x

    def eager(self, xp, x):
        return x + x


class Tripled(Doubled):
    """3 x, with a derivative of its own, which is not what `Linear` has."""

    def eager(self, xp, x):
        return 3 * x

    def jvp(self, primals, tangents):
        return self(*primals), self(*tangents)


class Product(Bilinear):
    """x y."""

    def infer(self, x, y):
        return x

    def eager(self, xp, x, y):
        return x * y


class Plain(Operation):
    """An operation of no family."""

    def infer(self, *xs):
        return xs[0]

    def eager(self, xp, *xs):
        return xs[0]


NEW = [Halved(), Doubled(), Tripled(), Product(), Plain()]
X = np.arange(4.0, dtype=np.float32)


def classes():
    """Every class of operations of the package."""
    for package in (primitives, control, parallel):
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    found = [Operation]
    for c in found:
        found += [s for s in c.__subclasses__() if s.__module__.startswith("toile.")]
    return found


def entries():
    """The functions of kernels, as operations name them, for each device that has them."""
    found = {}
    for family in pkgutil.iter_modules(kernels.__path__):
        for device in DEVICES:
            path = f"{kernels.__name__}.{family.name}.{device}"
            if family.ispkg and importlib.util.find_spec(path):
                for name, value in vars(importlib.import_module(path)).items():
                    if callable(value) and (name == "lower" or name.startswith("lower_")):
                        kind = name.removeprefix("lower").replace("_", ".", 1)
                        found.setdefault(family.name + kind, set()).add(device)
    return found


def test_kernels_of_operations():
    """Each kernel that an operation names is there, and each that is there is named."""
    found = entries()
    assert {c.kernel_family for c in classes()} == {*found, None}
    for name, devices in found.items():
        for device in DEVICES:
            lower = lowering(name, device)
            assert (lower is not None) == (device in devices), (name, device)
            if lower is not None:
                assert list(inspect.signature(lower).parameters) == ["op", "ins", "outs", "plan"]
    assert {n.partition(".")[0] for n, devices in found.items() if len(devices) < 2} == {
        "attention", "collectives", "eigen", "fused_product"}


def test_a_kernel_that_is_not_there():
    with pytest.raises(ModuleNotFoundError, match="nowhere"):
        lowering("nowhere", "cpu")
    with pytest.raises(AttributeError, match="lower_backwards"):
        lowering("sort.backwards", "cpu")


@pytest.mark.cpu
def test_kernels_are_loaded_when_they_are_used():
    code = """
import sys, toile, numpy as np
x = np.ones(3, np.float32)
loaded = lambda: {m.split(".")[2] for m in sys.modules if m.startswith("toile.kernels.")}
assert not loaded(), loaded()
toile.jit(lambda x: x + 1)(x)
few = loaded()
assert not few & {"sort", "gather", "convolution", "window", "attention", "collectives"}, few
toile.jit(toile.numpy.sort)(x)
assert loaded() == few | {"sort"}, loaded() - few
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_answer_is_of_its_kind():
    for c in classes():
        assert c.kernel_family is None or isinstance(c.kernel_family, str), c
        assert isinstance(c.can_make_nan, bool), c
        for rule, names in ("key_use", 2), ("taylor", 4), ("checked", 3):
            found = inspect.signature(getattr(c, rule)).parameters.values()
            free = any(p.kind is p.VAR_POSITIONAL for p in found)
            assert len(found) == names or free, (c, rule)


# Operations of toile alone that make NaNs, and abstract classes of those that do.
OWN_NAN_MAKERS = {"cumulative", "fused_multiply_add", "linear_recurrence", "one_minus_square",
                  "psum_together", "reduce_window_prod", "undivided_fft"}
JAX_CHECKS = {p.name for p in jax_checkify.nan_primitives} | {
    "div",  # by a rule of its own
    "exp2", "log2",  # since 0.11
}


def test_nan_checks_are_of_the_operations_that_jax_checks():
    found = {c.name: c.can_make_nan for c in classes()
             if isinstance(c.name, str) and not c.__name__.startswith("_")}
    makers = {name for name, makes in found.items() if makes}
    assert makers - OWN_NAN_MAKERS == JAX_CHECKS & found.keys()
    assert JAX_CHECKS - found.keys() == {"reduce", "reduce_window", "rng_uniform"}


def test_no_tables_by_class():
    """Outside the passes of the compiler, whose rules are patterns, nobody has a dict by class.

    The writers of exported files have: their rules are about other languages. (What `toile.interop`
    has loaded of other packages does as it likes.)"""
    tables = []
    for name, module in list(sys.modules.items()):
        if name.startswith("toile.") and not name.startswith(
            ("toile.compiler.passes.", "toile.interop.", "toile.compat.", "toile.export.",
             "toile.exporting.")
        ):
            tables += [f"{name}.{key}" for key, value in vars(module).items()
                       if isinstance(value, dict) and any(_is_operation(k) for k in value)]
    assert not tables


def _is_operation(x):
    return isinstance(x, type) and issubclass(x, Operation)


@pytest.mark.parametrize("op", NEW, ids=lambda op: op.name)
def test_a_new_operation(op):
    """Without a word about it: no kernel, keys are used up, results are not searched for NaNs."""
    xs = [X] * (2 if isinstance(op, Bilinear) else 1)
    assert op.kernel_family is None and not op.can_make_nan
    np.testing.assert_array_equal(toile.jit(op)(*xs), op.eager(np, *xs))
    key = aval_of(toile.random.key(0))
    number = Aval((), np.dtype(np.float32))
    assert op.key_use([number, key, key]) == KeyUse({1: True, 2: True})
    assert op.called_program() is None and not op.programs() and op.together is None
    assert op.saved_name is op.margins is op.counted_axis is op.in_registers is None
    assert not (op.by_rows(number, key) or op.within_rows(number, key) or op.makes_axes)
    assert op.varies_over(frozenset("i"), frozenset("ij")) == {"i"} and not op.exchange_name
    assert [op.grown_axis(0, (3, 5), 1, shape, 5) for shape in [(4, 5), (5,), (4,)]] == [1, 0, None]
    error, found = checkify.checkify(lambda *xs: op(*xs), errors=checkify.all_checks)(*xs)
    assert error.get() is None
    np.testing.assert_array_equal(found, op.eager(np, *xs))


def test_a_program_with_a_new_product_is_planned_for_a_gpu():
    """It asks products for their precision, which a new one need not have."""
    image, kernel = np.ones((1, 4, 4, 1), np.float32), np.ones((2, 2, 1, 1), np.float32)

    def f(x, w):
        y = toile.lax.conv_general_dilated(x, w, (1, 1), "SAME",
                                           dimension_numbers=("NHWC", "HWIO", "NHWC"))
        return Product()(y, x)

    program = toile.make_jaxpr(f)(image, kernel).jaxpr
    assert not without_libraries(program)


@pytest.mark.parametrize(("op", "factor"), [(Doubled(), 2), (Tripled(), 3)])
def test_jet_of_a_new_linear_operation(op, factor):
    f = lambda x: mul(op(x), x)
    y, terms = jet(f, (X,), ((np.ones_like(X), np.zeros_like(X)),))
    np.testing.assert_allclose(y, factor * X * X)
    np.testing.assert_allclose(terms, [2 * factor * X, np.full_like(X, 2 * factor)])


def test_jet_of_a_new_bilinear_operation():
    _, terms = jet(lambda x: Product()(x, x), (X,), ((np.ones_like(X), np.zeros_like(X)),))
    np.testing.assert_allclose(terms, [2 * X, np.full_like(X, 2)])


def test_jet_of_a_new_comparison():
    y, terms = jet(lambda x: jnp.where(Positive()(x), x, -x), (X - 1.5,), ((np.ones_like(X),),))
    np.testing.assert_array_equal(y, abs(X - 1.5))
    np.testing.assert_array_equal(terms, [np.sign(X - 1.5)])


def test_the_axis_of_examples():
    """Of operations that are not asked in any other test without a GPU."""
    dot = DotGeneral("bik", "bkj", "bij")
    assert [dot.grown_axis(i, (2, 3, 4), 2, (2, 3, 5), 4) for i in (0, 1)] == [None, 2]
    assert dot.grown_axis(1, (2, 4, 5), 0, (2, 3, 5), 2) == 0
    assert Transpose((2, 0, 1)).grown_axis(0, (2, 3, 4), 0, (4, 2, 3), 2) == 1
    assert ReduceSum((0,)).grown_axis(0, (2, 3), 0, (3,), 2) is None
    assert ReduceSum((0,)).grown_axis(0, (2, 3), 1, (3,), 3) == 0
    assert Reshape((6, 4)).grown_axis(0, (2, 3, 4), 0, (6, 4), 2) == 0
    assert Reshape((6, 4)).grown_axis(0, (2, 3, 4), 1, (6, 4), 3) == 0
    assert Reshape((3, 8)).grown_axis(0, (3, 2, 4), 1, (3, 8), 2) == 1
    assert BroadcastInDim((7, 2), (1,)).grown_axis(0, (2,), 0, (7, 2), 2) == 1
    assert BroadcastInDim((7, 2), (1,)).grown_axis(0, (1,), 0, (7, 2), 1) is None


@pytest.mark.parametrize(("indices", "whole", "within"), [
    (lambda x, i: x[i], True, False),
    (lambda x, i: jnp.take_along_axis(x, i[:, None], 1), False, True),
    (lambda x, i: x[:, i], False, False),
])
def test_rows(indices, whole, within):
    """What a gather says of rows is what the scatter says that is its transpose."""
    x, i = aval_of(np.ones((4, 6), np.float32)), aval_of(np.zeros(4, np.int32))
    forward = toile.make_jaxpr(indices)(x, i).jaxpr
    backward = toile.make_jaxpr(lambda x, i: toile.vjp(lambda x: indices(x, i), x)[1](
        indices(x, i)))(x, i).jaxpr
    for program, updates in (forward, False), (backward, True):
        (e,) = [e for e in inline_calls(program).equations
                if e.op.by_blocks and e.op.updates == updates]
        avals = [a.aval for a in e.ins]
        assert (e.op.by_rows(*avals), e.op.within_rows(*avals)) == (whole, within)


@pytest.mark.parametrize(("op", "said"), [
    (Halved(), "halved: has no derivative"),
    (Plain(), "plain: has no derivative \\(wrap it in stop_gradient, or give it a custom_jvp\\)"),
])
def test_jet_of_an_operation_without_a_derivative(op, said):
    with pytest.raises(NotImplementedError, match=said):
        jet(lambda x: jnp.sin(op(x)), (X,), ((np.ones_like(X),),))
