"""`toile.image` against `jax.image`."""

import jax
import numpy as np
import pytest

import toile
from tests.against_jax import case, check, compare, name, runs
from tests.quick_jax import OPTIONS
from toile import image

F = np.float32
RNG = np.random.RandomState(4)
X = RNG.rand(7, 9, 2).astype(F)
METHODS = ("nearest", "linear", "cubic", "bicubic-pytorch", "lanczos3", "lanczos5", "area")
LOOSE = {"rtol": 1e-4, "atol": 1e-5, "rtol64": 1e-5}

CASES = [
    *(
        case("image.resize", X, shape=shape, method=m, antialias=a, grad=(0,), **LOOSE)
        for m in METHODS
        for shape in ((3, 13, 2), (14, 4, 2))
        for a in (True, False)
    ),
    case("image.resize", np.arange(12).reshape(3, 4), shape=(5, 4), method="bilinear", **LOOSE),
    case("image.resize", np.arange(12).reshape(3, 4), shape=(5, 2), method="nearest"),
    case("image.resize", X, shape=(7, 9, 2), method="linear"),
    *(
        case(
            "image.scale_and_translate",
            X,
            shape=(8, 8, 2),
            spatial_dims=(0, 1),
            scale=np.array([1.3, 0.6], F),
            translation=np.array([0.4, -1.1], F),
            method=m,
            **LOOSE,
        )
        for m in METHODS[1:]
    ),
]


@pytest.mark.parametrize("this, x64", runs(CASES), ids=name)
def test_image(this, x64):
    check(this, x64)


def test_scale_is_differentiable():
    import toile

    def total(module):
        def f(scale, shift):
            out = module.image.scale_and_translate(X, (8, 8, 2), (0, 1), scale, shift, "cubic")
            return (out**2).sum()

        # One program each: jax would compile its many operations one by one.
        options = {"compiler_options": OPTIONS} if module is jax else {}
        slopes = module.jit(module.grad(f, (0, 1)), **options)
        return slopes(np.array([1.3, 0.6], F), np.array([0.4, -1.1], F))

    compare(total(toile), total(jax), 1e-3, 1e-4, "gradient in scale and translation")


def test_method_names():
    assert image.ResizeMethod.from_string("tricubic") is image.ResizeMethod.CUBIC
    with pytest.raises(ValueError, match="Unknown resize method"):
        image.resize(X, (1, 2, 2), "other")
    with pytest.raises(ValueError, match="shape must have length"):
        image.resize(X, (1, 2), "linear")
    with pytest.raises(ValueError, match="Nearest"):
        image.scale_and_translate(X, X.shape, (0,), np.ones(1, F), np.zeros(1, F), "nearest")


@pytest.mark.parametrize(("before", "after", "gathers"), [
    ((4, 6, 3), (8, 12, 3), 0), ((4, 6, 3), (12, 6, 3), 0), ((8, 6, 2), (4, 3, 2), 0),
    ((9, 6, 2), (3, 4, 2), 1), ((5, 7, 2), (7, 5, 2), 2), ((4, 4, 1), (1, 8, 1), 0),
])
def test_nearest_by_whole_factors_gathers_nothing(before, after, gathers):
    """Repeated pixels, and pixels at regular steps: the derivative then scatters nothing."""
    x = np.random.RandomState(0).randn(*before).astype(np.float32)
    loss = lambda image: lambda x: (image.resize(x, after, "nearest") ** 2).sum()
    text = str(toile.make_jaxpr(toile.grad(loss(toile.image)))(x))
    assert text.count("= gather[") == text.count("= scatter[") == gathers, text
    np.testing.assert_array_equal(toile.image.resize(x, after, "nearest"),
                                  jax.image.resize(x, after, "nearest"))
    np.testing.assert_allclose(toile.grad(loss(toile.image))(x), jax.grad(loss(jax.image))(x),
                               rtol=1e-6)
