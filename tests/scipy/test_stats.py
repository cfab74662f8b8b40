"""`toile.scipy.stats` against `jax.scipy.stats`: every function of every distribution."""

import inspect

import jax
import jax.scipy.stats
import numpy as np
import pytest

import toile
from tests.against_jax import RECORD, case, check, compare, name, runs
from toile.scipy import stats

F = np.float32
RNG = np.random.RandomState(2)
X = np.linspace(-1.9, 2.9, 9, dtype=F)
P = np.linspace(0.1, 3.7, 9, dtype=F)
U = np.linspace(0.05, 0.9, 9, dtype=F)  # without 1/2, where the slope of jax's cauchy.ppf is 0
EDGE_U = np.array([-0.1, 0.0, 0.5, 1.0, 1.1, np.nan], F)
K = np.arange(9).astype(F)

# Distribution -> (first argument, shape parameters); loc and scale are added where accepted.
PARAMETERS = {
    "bernoulli": (K - 1, (F(0.3),)),
    "beta": (X, (F(1.3), F(2.2))),
    "betabinom": (K, (F(6), F(1.3), F(2.2))),
    "binom": (K, (F(6), F(0.3))),
    "cauchy": (X, ()),
    "chi2": (P, (F(3.5),)),
    "expon": (X, ()),
    "gamma": (X, (F(1.7),)),
    "gennorm": (X, (F(1.4),)),
    "geom": (K, (F(0.3),)),
    "gumbel_l": (X, ()),
    "gumbel_r": (X, ()),
    "laplace": (X, ()),
    "logistic": (X, ()),
    "nbinom": (K, (F(3.5), F(0.4))),
    "norm": (X, ()),
    "pareto": (P, (F(1.4),)),
    "poisson": (K, (F(2.5),)),
    "t": (X, (F(3.5),)),
    "truncnorm": (X, (F(-1.5), F(1.2))),
    "uniform": (X, ()),
    "vonmises": (X, (F(1.4),)),
    "wrapcauchy": (P, (F(0.4),)),
}


def _cases():
    for family, (x, shapes) in PARAMETERS.items():
        module = getattr(jax.scipy.stats, family)
        for method in (n for n in dir(module) if not n.startswith("_")):
            accepted = list(inspect.signature(getattr(module, method)).parameters)
            quantile = method in ("ppf", "isf")
            first = () if method == "entropy" else (U if quantile else x,)
            args = (*first, *shapes)
            path = f"scipy.stats.{family}.{method}"
            options = {"rtol": 1e-4, "rtol64": 1e-8, "atol": 1e-5}
            # JAX cannot differentiate xlogy(-1, x), which these two call.
            grad = () if path.endswith(("gumbel_l.ppf", "gumbel_r.ppf")) else (0,)
            yield case(path, *args, grad=grad, **options)
            moved = [F(0.2)] * ("loc" in accepted) + [F(1.3)] * ("scale" in accepted)
            if moved and family not in (
                "poisson",
                "binom",
                "bernoulli",
                "geom",
                "nbinom",
                "betabinom",
            ):
                yield case(path, *args, *moved, x64=(False,), **options)
            # Before 0.12 cauchy.ppf went on outside [0, 1] and was finite at 0 and 1.
            known = family != "cauchy" or jax.__version_info__ >= (0, 12)
            if quantile and family != "norm" and known:
                yield case(path, EDGE_U, *shapes, x64=(False,), **options)


CASES = [
    *_cases(),
    case("scipy.stats.norm.logpdf", 0.5),
    case("scipy.stats.norm.logpdf", np.array([1, 2])),
    case("scipy.stats.norm.logpdf", X, X, P, grad=(0, 1, 2), rtol=1e-4),
    case("scipy.stats.norm.cdf", 0.5, 1.0, 2.0),
    case(
        "scipy.stats.norm.logcdf",
        np.array([-30.0, -5.0, 9.0], F),
        grad=(0,),
        rtol=1e-4,
        rtol64=1e-9,
    ),
    case("scipy.stats.poisson.entropy", np.array([0, 0.5, 12, 200], F), rtol=1e-4),
    case("scipy.stats.truncnorm.logcdf", X + 4, F(2.0), F(9.0), rtol=1e-3, rtol64=1e-7),
    case(
        "scipy.stats.dirichlet.logpdf",
        np.array([0.2, 0.3, 0.5], F),
        np.array([1.5, 2, 3], F),
        grad=(1,),
        rtol=1e-4,
    ),
    case(
        "scipy.stats.dirichlet.logpdf",
        np.array([[0.2, 0.1], [0.3, 0.6]], F),
        np.array([1.5, 2, 3], F),
        rtol=1e-4,
    ),
    case("scipy.stats.dirichlet.pdf", np.array([0.2, 0.3, 0.6], F), np.array([1.5, 2, 3], F)),
    case(
        "scipy.stats.multinomial.logpmf",
        np.array([1, 2, 3]),
        6,
        np.array([0.2, 0.3, 0.5], F),
        rtol=1e-4,
    ),
    case("scipy.stats.multinomial.pmf", np.array([1, 2, 3]), 7, np.array([0.2, 0.3, 0.5], F)),
    case("scipy.stats.multivariate_normal.logpdf", X[:3], F(0.3), F(2.0), grad=(0, 1, 2)),
    case("scipy.stats.multivariate_normal.logpdf", X[:3], P[:3], F(2.0), grad=(0, 1, 2)),
    case(
        "scipy.stats.multivariate_normal.logpdf",
        X[:2],
        P[:2],
        np.array([[2, 0.3], [0.3, 1]], F),
        grad=(0, 1),
        rtol=1e-4,
    ),
    case(
        "scipy.stats.multivariate_normal.pdf",
        RNG.randn(5, 2).astype(F),
        P[:2],
        np.array([[2, 0.3], [0.3, 1]], F),
        rtol=1e-4,
    ),
    case("scipy.stats.mode", np.array([[1, 3, 3], [1, 2, 3]])),
    case("scipy.stats.mode", np.array([[1.0, 3, 3], [1, 2, 3]], F), axis=1, keepdims=True),
    case("scipy.stats.mode", np.array([[1.0, 3, 3], [1, 2, 3]], F), axis=None),
    *(
        case("scipy.stats.rankdata", np.array([3.0, 1, 3, 2, 1], F), method=m)
        for m in ("average", "min", "max", "dense", "ordinal")
    ),
    case("scipy.stats.rankdata", np.array([[3, 1], [3, 2]]), axis=1),
    case("scipy.stats.rankdata", np.array([3.0, np.nan], F)),
    case("scipy.stats.sem", RNG.randn(4, 3).astype(F)),
    case("scipy.stats.sem", RNG.randn(4, 3).astype(F), axis=None, ddof=0),
    case("scipy.stats.sem", np.array([1.0, np.nan, 2.0], F), nan_policy="omit"),
]


@pytest.mark.parametrize("this, x64", runs(CASES), ids=name)
def test_stats(this, x64):
    check(this, x64)


DATA = RNG.randn(2, 30).astype(F)


@pytest.mark.parametrize("method", [None, "silverman", 0.4])
def test_gaussian_kde(method):
    weights = np.linspace(1, 2, 30, dtype=F)
    points = np.random.RandomState(3).randn(2, 4).astype(F)
    cov = np.eye(2, dtype=F)

    def estimates(kind):
        kde, line = kind(DATA, method, weights), kind(DATA[0])
        found = {f: getattr(kde, f)(points) for f in ("evaluate", "pdf", "logpdf")}
        found["integrate_kde"] = kde.integrate_kde(kde)
        found["integrate_gaussian"] = kde.integrate_gaussian(points[:, 0], cov)
        found["integrate_box_1d"] = line.integrate_box_1d(-1.0, 0.5)
        return found

    got = estimates(stats.gaussian_kde)
    want = RECORD.in_test(lambda: estimates(jax.scipy.stats.gaussian_kde))
    for f in want:
        compare(got[f], want[f], 1e-4, 1e-6, f)
    ours = stats.gaussian_kde(DATA, method, weights)
    assert ours.resample(toile.random.key(0), (5,)).shape == (2, 5)
    rebuilt = toile.tree.map(lambda x: x, ours)
    compare(rebuilt.pdf(points), want["pdf"], 1e-4, 1e-6, "tree")


def test_errors():
    with pytest.raises(NotImplementedError):
        stats.mode(DATA, nan_policy="omit")
    with pytest.raises(ValueError):
        stats.rankdata(DATA, method="other")
    with pytest.raises(ValueError):
        stats.dirichlet.logpdf(DATA[:, 0], np.ones(5))
