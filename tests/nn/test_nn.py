"""`toile.nn` against `jax.nn`: values, dtypes, weak types and gradients, kinks included."""

import jax
import ml_dtypes
import numpy as np
import pytest

import toile
from tests.against_jax import RECORD, case, check, compare, name, runs
from toile import nn

F = np.float32
RNG = np.random.RandomState(0)
KINKS = np.array([-7, -3, -1, -0.5, -0.0, 0.0, 0.3, 1, 2.5, 3, 6, 7, 90, -90], F)
X = RNG.randn(3, 4).astype(F)
MASK = RNG.rand(3, 4) > 0.4
MASK[:, 0] = True

ACTIVATIONS = (
    "celu elu gelu hard_sigmoid hard_silu hard_swish hard_tanh identity leaky_relu log_sigmoid "
    "mish relu relu6 selu sigmoid silu soft_sign softplus sparse_plus sparse_sigmoid squareplus "
    "swish tanh"
).split()
LOGISTIC = ("sigmoid", "silu", "swish")  # these refuse integers


def fn(name, *args, **kwargs):
    return case("nn." + name, *args, **kwargs)


CASES = [
    *(fn(f, KINKS, grad=(0,)) for f in ACTIVATIONS),
    *(fn(f, 0.5) for f in ACTIVATIONS),
    *(fn(f, np.array([-2, 0, 3], np.int32)) for f in ACTIVATIONS if f not in LOGISTIC),
    *(fn(f, X.astype(ml_dtypes.bfloat16), x64=(False,), rtol=2e-2, atol=1e-2) for f in ACTIVATIONS),
    fn("gelu", KINKS, approximate=False, grad=(0,)),
    fn("gelu", 0.5, approximate=False),
    fn("gelu", np.array([1, 2]), approximate=False),
    fn("elu", X, F(0.3), grad=(0, 1)),
    fn("celu", X, 0.7, grad=(0,)),
    fn("leaky_relu", X, negative_slope=0.2, grad=(0,)),
    fn("squareplus", X, b=1.0, grad=(0,)),
    fn("glu", X, grad=(0,)),
    fn("glu", X.T.copy(), axis=0, grad=(0,)),
    fn("log1mexp", np.array([0.1, 0.5, 0.7, 3.0, 30.0], F), grad=(0,)),
    fn("logsumexp", X, axis=(0, 1), grad=(0,)),
    fn("logmeanexp", X, grad=(0,)),
    fn("logmeanexp", X, axis=1, keepdims=True, where=MASK, grad=(0,)),
    fn("softmax", X, grad=(0,)),
    fn("softmax", X, axis=0, grad=(0,)),
    fn("softmax", X, axis=(0, 1), grad=(0,)),
    fn("softmax", X, where=MASK, grad=(0,)),
    fn("softmax", np.array([np.inf, 0, 1], F)),
    fn("softmax", X.astype(np.float16), x64=(False,), rtol=2e-3),
    fn("log_softmax", X, grad=(0,)),
    fn("log_softmax", X, axis=0, where=MASK),
    fn("log_softmax", 100 * X, grad=(0,)),
    fn("standardize", X, grad=(0,)),
    fn("standardize", X, axis=0, algorithm="stable", grad=(0,)),
    fn("standardize", X, where=MASK, epsilon=1e-3, grad=(0,)),
    fn("standardize", X, mean=0.1, variance=2.0, grad=(0,)),
    fn("one_hot", np.array([0, 3, 1, -1, 9]), num_classes=4),
    fn("one_hot", np.array([[0, 3], [1, 2]], np.int8), num_classes=4, axis=0),
    fn("one_hot", np.array([0, 2]), num_classes=3, dtype=np.int32),
    fn("scaled_dot_general", X, X, dimension_numbers=(((1,), (1,)), ((), ())), x64=(False,)),
]


@pytest.mark.parametrize("this, x64", runs(CASES), ids=name)
def test_nn(this, x64):
    check(this, x64)


def test_relu_gradient_is_zero_at_zero_and_blocks_infinite_tangents():
    x = toile.numpy.array([0.0, -1.0, 2.0])
    assert np.asarray(toile.grad(lambda x: nn.relu(x).sum())(x)).tolist() == [0.0, 0.0, 1.0]
    tangent = toile.numpy.array([np.inf, np.inf, 1.0])
    assert np.asarray(toile.jvp(nn.relu, (x,), (tangent,))[1]).tolist() == [0.0, 0.0, 1.0]


def test_softmax_hessian_matches():
    got = toile.hessian(lambda x: nn.softmax(x)[1])(toile.numpy.asarray(X[0]))
    want = RECORD.in_test(lambda: jax.hessian(lambda x: jax.nn.softmax(x)[1])(X[0]))
    compare(got, want, 1e-4, 1e-6, "hessian of softmax")


B, T, S, N, K, H = 2, 5, 6, 4, 2, 8
Q = RNG.randn(B, T, N, H).astype(F)
KEY, VALUE = RNG.randn(2, B, S, K, H).astype(F)
BIAS = RNG.randn(1, N, T, S).astype(F)
KEEP = RNG.rand(B, 1, T, S) > 0.3
LENGTHS = np.array([3, 5], np.int32)

ATTENTION = [
    {},
    {"scale": 0.3},
    {"is_causal": True},
    {"bias": BIAS},
    {"mask": KEEP},
    {"query_seq_lengths": LENGTHS, "key_value_seq_lengths": LENGTHS},
    {"local_window_size": 2},
    {"local_window_size": (1, 3), "mask": np.broadcast_to(KEEP, (B, N, T, S)).copy()},
    {"return_residual": True, "is_causal": True},
    {"implementation": "xla", "bias": BIAS[:, :1], "is_causal": True},
]


@pytest.mark.parametrize("options", ATTENTION, ids=lambda o: "-".join(o) or "plain")
@pytest.mark.parametrize("x64", [False, True], ids=["x32", "x64"])
def test_dot_product_attention(options, x64):
    # The softmax is in float32 whatever the inputs: x64 is no more exact.
    this = case(
        "nn.dot_product_attention",
        *(Q, KEY, VALUE),
        grad=(0, 1, 2),
        rtol64=1e-4,
        atol=1.0 if x64 else 1e-6,
        **options,
    )
    check(this, x64)


def test_attention_of_one_example_and_half_precision():
    half = [x[0].astype(ml_dtypes.bfloat16) for x in (Q, KEY, VALUE)]
    got = nn.dot_product_attention(*half)
    want = RECORD.in_test(lambda: jax.nn.dot_product_attention(*half), *half)
    compare(got, want, 2e-2, 1e-2, "bfloat16 attention")


@pytest.mark.parametrize(
    "change, message",
    [
        ({"query": Q[:, :, :3]}, "multiple"),
        ({"mask": BIAS}, "mask dtype"),
        ({"implementation": "other"}, "Unsupported"),
        ({"value": VALUE[:, :2]}, "value shape"),
    ],
)
def test_attention_errors(change, message):
    arguments = {"query": Q, "key": KEY, "value": VALUE, **change}
    with pytest.raises(ValueError, match=message):
        nn.dot_product_attention(**arguments)


@pytest.mark.parametrize("mode, size", [("mxfp8", 32), ("nvfp4", 16)])
def test_scaled_dot_general_is_near_the_exact_product(mode, size):
    a, b = RNG.randn(2, 1, 32, 2 * size).astype(F)
    configs = [nn.get_scaled_dot_general_config(mode)] * 3
    numbers = (((2,), (2,)), ((0,), (0,)))

    def total(a, b):
        return nn.scaled_dot_general(a, b, numbers, configs=configs)

    exact = a[:, :16] @ b.swapaxes(1, 2)
    got = np.asarray(total(a[:, :16], b))
    assert np.abs(got - exact).max() / np.abs(exact).max() < (0.05 if mode == "mxfp8" else 0.3)
    slopes = toile.grad(lambda a, b: total(a, b).sum(), (0, 1))(a, b)
    wanted = np.broadcast_to(b.sum(1, keepdims=True), a.shape)
    assert np.abs(np.asarray(slopes[0]) - wanted).max() / np.abs(wanted).max() < 0.4


def test_scaled_matmul_multiplies_blocks_by_their_scales():
    a = RNG.randn(1, 3, 64).astype(ml_dtypes.float8_e4m3fn)
    scale = np.full((1, 3, 2), 2.0, ml_dtypes.float8_e8m0fnu)
    got = nn.scaled_matmul(*(toile.numpy.asarray(x) for x in (a, a, scale, scale)))
    wide = a.astype(F)
    np.testing.assert_allclose(np.asarray(got), 4 * wide @ wide.swapaxes(1, 2), rtol=1e-5)
