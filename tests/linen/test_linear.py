"""Linear layers beyond their rows: errors, fields, dtype promotion, what a call costs."""

import dataclasses
import itertools

import numpy as np
import pytest

import toile
import toile.linen as nn
import toile.numpy as jnp
from tests.linen import oracle
from toile.core import scope_class
from toile.errors import ScopeParamShapeError
from toile.linen import convolution, embedding, linear
from toile.linen.dtypes import canonicalize_dtype, promote_dtype
from toile.nn import initializers

KEY = toile.random.key(0)
LAYERS = ("Dense", "DenseGeneral", "Einsum", "Conv", "ConvLocal", "ConvTranspose", "Embed")

# (what is wrong, a layer, the shape of its input, flax's exception, words of the message)
ERRORS = [
    ("scalar", lambda: nn.Dense(3), (), IndexError, "Dense: needed an input with a feature axis"),
    ("integer dtype", lambda: nn.Dense(3, dtype=jnp.int32), (2, 3), ValueError,
     "Dtype must be inexact"),
    ("precision", lambda: nn.Dense(3, precision="most"), (2, 3), ValueError, "'highest'"),
    ("initializer", lambda: nn.Dense(3, bias_init=initializers.lecun_normal()), (2, 3), ValueError,
     "1-dimensional weights"),
    ("batch_dims", lambda: nn.DenseGeneral(3, batch_dims=(1,)), (2, 3, 4), ValueError,
     r"batch_dims \(1,\) must be consecutive leading dimensions"),
    ("axis", lambda: nn.DenseGeneral(3, axis=5), (2, 3), IndexError, "out of range"),
    ("axis twice", lambda: nn.DenseGeneral(3, axis=(1, 1)), (2, 3), TypeError, "distinct"),
    ("no features", lambda: nn.DenseGeneral(()), (2, 3), TypeError, "cannot reshape"),
    ("implicit", lambda: nn.Einsum((3, 4), "ab,bc"), (2, 3), ValueError, "got 'ab,bc'"),
    ("operands", lambda: nn.Einsum((3, 4), "ab,bc,cd->ad"), (2, 3), ValueError, "instead of 2"),
    ("no equation", lambda: nn.Einsum((3, 4)), (2, 3), ValueError, '"einsum_str" must be passed'),
    ("sizes", lambda: nn.Einsum((5, 4), "ab,bc->ac"), (2, 3), ValueError, "size of label 'b'"),
    ("rank", lambda: nn.Einsum((3, 4), "abc,cd->abd"), (2, 3), ValueError, "rank 2"),
    ("kernel rank", lambda: nn.Einsum((3, 4), "ab,bcd->acd"), (2, 3), AssertionError,
     r"each axis of the kernel \(3, 4\), got 'bcd'"),
    ("label twice", lambda: nn.Einsum((3, 3), "ab,bb->ab"), (2, 3), AssertionError, "got 'bb'"),
    ("output label", lambda: nn.Einsum((3, 4), "ab,bc->ad"), (2, 3), ValueError, "'ad'"),
    ("padding name", lambda: nn.Conv(3, 3, padding="ROUND"), (1, 5, 2), RuntimeError,
     "Unrecognized padding type.*CIRCULAR.*got 'ROUND'"),
    ("padding length", lambda: nn.Conv(3, 3, padding=(1, 2)), (1, 5, 2), ValueError,
     "a sequence of len 1"),
    ("padding float", lambda: nn.Conv(3, 3, padding=1.5), (1, 5, 2), ValueError,
     "Invalid padding format: 1.5"),
    ("causal 2d", lambda: nn.Conv(3, (3, 3), padding="CAUSAL"), (1, 5, 5, 2), ValueError,
     "only implemented for 1D"),
    ("groups of inputs", lambda: nn.Conv(4, 3, feature_group_count=2), (1, 5, 3), AssertionError,
     "feature_group_count=2 divides, got 3"),
    ("groups of outputs", lambda: nn.Conv(3, 3, feature_group_count=2), (1, 5, 4), ValueError,
     "divisible by feature_group_count"),
    ("conv rank", lambda: nn.Conv(3, (3, 3)), (5, 4), ValueError,
     r"rank >= 3 .* got shape \(5, 4\)"),
    ("strides", lambda: nn.Conv(3, (3, 3), strides=(1,)), (1, 5, 5, 4), ValueError,
     "needed strides to be an int or 2 of them"),
    ("kernel_dilation", lambda: nn.Conv(3, (3, 3), kernel_dilation=(1,)), (1, 5, 5, 4), ValueError,
     "needed kernel_dilation"),
    ("input_dilation", lambda: nn.Conv(3, 3, input_dilation=2), (1, 5, 4), ValueError, "padding"),
    ("mask", lambda: nn.Conv(3, 3, mask=jnp.ones((3, 3))), (1, 5, 4), ValueError,
     r"same shape as weights. Shapes are: \(3, 3\), \(3, 4, 3\)"),
    ("local groups", lambda: nn.ConvLocal(4, 3, feature_group_count=2), (1, 5, 4),
     NotImplementedError, "feature_group_count != 1"),
    ("transposed mask", lambda: nn.ConvTranspose(3, 3, mask=jnp.ones((3, 3))), (1, 5, 4),
     ValueError, "same shape as weights"),
    ("transposed padding", lambda: nn.ConvTranspose(3, 3, padding="CAUSAL"), (1, 5, 4),
     RuntimeError, "'CAUSAL'"),
    ("transposed strides", lambda: nn.ConvTranspose(3, (3, 3), strides=(1,)), (1, 5, 5, 4),
     TypeError, "needed strides"),
    ("embed floats", lambda: nn.Embed(3, 2), (2,), ValueError,
     "must be an integer or unsigned integer.*got float32"),
]  # fmt: skip


@pytest.mark.parametrize("build, shape, kind, text", [e[1:] for e in ERRORS],
                         ids=[e[0] for e in ERRORS])  # fmt: skip
def test_errors(build, shape, kind, text):
    """The exception is flax's, the message says what is needed and where."""
    with pytest.raises(kind, match=f"(?s){text}") as caught:
        build().init(KEY, jnp.ones(shape))
    # What Flax's tests compare to the letter has no place in it.
    if (kind is not IndexError or "needed" in text) and "must be passed" not in text:
        assert "test_linear.py" in str(caught.value)


def test_errors_of_calls():
    """Missing fields, equations given twice, inputs of another width."""
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'features'"):
        nn.Dense()
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'kernel_size'"):
        nn.Conv(3)
    with pytest.raises(ValueError, match="passed to the constructor and at call time"):
        nn.Einsum((3, 4), "ab,bc->ac").init(KEY, jnp.ones((2, 3)), "ab,bc->ac")
    variables = nn.Dense(3).init(KEY, jnp.ones((2, 4)))
    with pytest.raises(ScopeParamShapeError, match=r"\(5, 3\).*\(4, 3\)"):
        nn.Dense(3).apply(variables, jnp.ones((2, 5)))
    variables = nn.Embed(3, 2).init(KEY, jnp.array([0]))
    with pytest.raises(TypeError, match="contracted axes"):
        nn.Embed(3, 2).apply(variables, jnp.ones((2, 5)), method="attend")


@pytest.mark.parametrize("name", LAYERS)
def test_fields(name):
    """Fields have flax's names, order and defaults."""
    theirs = dataclasses.fields(getattr(oracle.flax_library().nn, name))
    ours = dataclasses.fields(getattr(nn, name))
    assert [(f.name, f.init) for f in ours] == [(f.name, f.init) for f in theirs]
    for mine, their in zip(ours, theirs, strict=True):
        if isinstance(their.default, (int, str, tuple, type(None))):
            assert mine.default == their.default, mine.name
        else:
            assert (mine.default is dataclasses.MISSING) == (their.default is dataclasses.MISSING)
    assert getattr(nn, name) is getattr(linear, name)


def test_names():
    """Every name of flax.linen.linear is here, except for what it has imported for its own use."""
    import flax.linen.linear as theirs

    missing = {n for n in dir(theirs) if not n.startswith("__") and not hasattr(linear, n)}
    assert missing == {"Iterable", "Protocol", "ShapedArray", "eval_shape", "jax", "meta", "np",
                       "opt_einsum"}
    assert not {"np", "jnp", "lax", "Iterable", "Sequence"} & set(linear.__all__)
    assert linear.default_kernel_init is convolution.default_kernel_init
    assert linear.default_embed_init is embedding.default_embed_init
    assert nn.Dense(3) == nn.Dense(3) and hash(nn.Conv(3, 3)) == hash(nn.Conv(3, 3))


@pytest.mark.parametrize("padding, rank", [
    ("SAME", 2), (2, 3), ((1, 2), 2), ([(1, 2), 3], 2), (((0, 1),), 1), ([], 0), (True, 1),
])  # fmt: skip
def test_canonicalize_padding(padding, rank):
    """A name stays; numbers become pairs."""
    from flax.linen.linear import canonicalize_padding as theirs

    assert linear.canonicalize_padding(padding, rank) == theirs(padding, rank)


@pytest.mark.parametrize("padding", [(1,), [[1, 2], [1, 2]], ((1, 2, 3), 1), 1.0, None, ("A", 1)])
def test_canonicalize_padding_refuses(padding):
    """Anything else is named in the error."""
    with pytest.raises(ValueError, match="Invalid padding format.*len 2"):
        linear.canonicalize_padding(padding, 2)


# Promotion.

VALUES = {
    "f32": lambda lib: lib.jnp.ones(2), "bf16": lambda lib: lib.jnp.ones(2, lib.jnp.bfloat16),
    "f16": lambda lib: lib.jnp.ones(2, lib.jnp.float16), "i32": lambda lib: lib.jnp.arange(2),
    "c64": lambda lib: lib.jnp.ones(2, lib.jnp.complex64),
    "bool": lambda lib: lib.jnp.ones(2, bool), "weak": lambda lib: lib.jnp.asarray(2.0),
    "number": lambda lib: 1.5, "int": lambda lib: 3, "none": lambda lib: None,
    "numpy": lambda lib: np.ones(2), "numpy scalar": lambda lib: np.float64(2),
    "list": lambda lib: [1, 2], "numpy i64": lambda lib: np.arange(2),
}  # fmt: skip


@pytest.mark.parametrize("inexact", [True, False])
@pytest.mark.parametrize("dtype", [None, "bfloat16", "float32", "int32"])
def test_promote_dtype(dtype, inexact):
    """All pairs of kinds of operands give the dtypes and weak types that flax gives."""
    import flax.linen.dtypes as theirs

    if inexact and dtype == "int32":
        with pytest.raises(ValueError, match="Dtype must be inexact"):
            promote_dtype(jnp.ones(2), dtype=jnp.int32)
        return
    # complex to real warns, and says little
    kinds = [k for k in VALUES if k != "c64" or dtype is None]

    def promoted(lib, promote):
        """The dtypes and weak types of all pairs."""
        wanted, found = None if dtype is None else getattr(lib.jnp, dtype), {}
        for a, b in itertools.product(kinds, repeat=2):
            if not a == b == "none":
                pair = promote(VALUES[a](lib), VALUES[b](lib), dtype=wanted, inexact=inexact)
                assert isinstance(pair, list)
                found[f"{a} {b}"] = [x if x is None else [str(x.dtype), bool(x.weak_type)]
                                     for x in pair]
        return found

    want = oracle.on_flax(lambda: promoted(oracle.flax_library(), theirs.promote_dtype))
    assert promoted(oracle.toile_library(), promote_dtype) == want


def test_promote_dtype_changes_nothing():
    """Arrays that agree come back themselves; given dtypes come back as they were given."""
    x, k = jnp.ones(2), jnp.zeros(3)
    for dtype in (None, jnp.float32, "float32", np.float32, np.dtype("float32")):
        assert all(a is b for a, b in zip(promote_dtype(x, None, k, dtype=dtype), (x, None, k)))
    i = jnp.arange(2)
    assert promote_dtype(i, inexact=False)[0] is i
    assert canonicalize_dtype(i, dtype=jnp.bfloat16) is jnp.bfloat16
    with pytest.raises(ValueError):
        promote_dtype(None, None)


# What a call does.


def test_initializers_give_shapes(monkeypatch):
    """With toile's initializers `apply` traces nothing to check shapes; others are traced."""
    traced = []
    original = scope_class.eval_shape
    monkeypatch.setattr(scope_class, "eval_shape", lambda f: traced.append(1) or original(f))
    x = jnp.ones((2, 4, 3))
    for build in (
        lambda **k: nn.Dense(4, **k),
        lambda **k: nn.DenseGeneral((2, 2), **k),
        lambda **k: nn.Einsum((3, 4), "abc,cd->abd", **k),
        lambda **k: nn.Conv(4, 3, **k),
        lambda **k: nn.ConvLocal(4, 3, **k),
        lambda **k: nn.ConvTranspose(4, 3, **k),
    ):
        layer = build()
        variables = layer.init(KEY, x)
        layer.apply(variables, x)
        assert not traced, layer
        build(bias_init=lambda key, shape, dtype: jnp.ones(shape, dtype)).apply(variables, x)
        assert traced.pop()
    makers = ("constant", "uniform", "normal", "truncated_normal", "lecun_normal", "he_uniform",
              "orthogonal", "delta_orthogonal")  # fmt: skip
    for init in (initializers.zeros, initializers.ones, *[
        getattr(initializers, m)(*([1.0] if m == "constant" else [])) for m in makers
    ]):  # fmt: skip
        assert init.gives_shape
        assert init(KEY, (3, 4, 5)).shape == (3, 4, 5)


@pytest.mark.parametrize("build, shape", [
    (lambda: nn.Dense(3), (2, 2, 4)), (lambda: nn.DenseGeneral((3, 2)), (2, 2, 4)),
    (lambda: nn.DenseGeneral(3, batch_dims=(0,)), (2, 2, 4)),
    (lambda: nn.Einsum((4, 3), "...a,ab->...b"), (2, 2, 4)), (lambda: nn.Conv(3, 3), (2, 4, 4)),
    (lambda: nn.ConvLocal(3, 3), (2, 4, 4)), (lambda: nn.ConvTranspose(3, 3), (2, 4, 4)),
])  # fmt: skip
def test_no_rank_promotion(build, shape):
    """Biases are added without implicit new axes where those are forbidden."""
    with toile.numpy_rank_promotion("raise"):
        build().init(KEY, jnp.ones(shape))


def test_dense_is_one_product():
    """A traced Dense is a product, a broadcast bias and a sum."""
    layer = nn.Dense(3)
    variables = layer.init(KEY, jnp.ones((2, 5, 4)))
    program = toile.make_jaxpr(layer.apply)(variables, jnp.ones((2, 5, 4)))
    names = [e.primitive.name for e in program.eqns]
    assert names == ["dot_general", "broadcast_in_dim", "add"]


def test_lists_and_odd_biases():
    """A list of numbers is an input of Dense; a bias of any rank is flattened."""
    y, variables = nn.Dense(3).init_with_output(KEY, [1.0, 2.0])
    assert y.shape == (3,) and variables["params"]["kernel"].shape == (2, 3)
    odd = nn.Dense(3, bias_init=lambda key, shape, dtype: jnp.ones((*shape, 1), dtype))
    assert odd.init_with_output(KEY, jnp.ones((2, 4)))[0].shape == (2, 3)


def test_embed_beyond_the_table():
    """Indices past either end give NaN, without touching the others."""
    y, _ = nn.Embed(3, 2).init_with_output(KEY, jnp.array([0, 3, -3, -4]))
    np.testing.assert_array_equal(np.isnan(y).all(1), [False, True, False, True])
