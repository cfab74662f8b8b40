"""Random numbers from explicit keys: the same names, arguments and numbers as `jax.random`.

A key is used once: `split` it for more. Equal keys give equal numbers, on every device and inside
or outside jit.
"""

from toile.random.bits import (
    bernoulli,
    bits,
    choice,
    permutation,
    randint,
    uniform,
)
from toile.random.keys import (
    Key,
    PRNGKey,
    clone,
    fold_in,
    key,
    key_data,
    key_dtype,
    key_impl,
    split,
    wrap_key_data,
)
from toile.random.samplers_counts import binomial, multinomial, poisson
from toile.random.samplers_gamma import (
    ball,
    beta,
    chisquare,
    dirichlet,
    f,
    gamma,
    generalized_normal,
    loggamma,
    random_gamma_p,
    t,
)
from toile.random.samplers_inverse import (
    categorical,
    cauchy,
    exponential,
    geometric,
    gumbel,
    laplace,
    logistic,
    pareto,
    triangular,
    weibull_min,
)
from toile.random.samplers_normal import (
    double_sided_maxwell,
    lognormal,
    maxwell,
    multivariate_normal,
    normal,
    orthogonal,
    rademacher,
    rayleigh,
    truncated_normal,
    wald,
)

__all__ = [
    "Key", "PRNGKey", "ball", "bernoulli", "beta", "binomial", "bits", "categorical", "cauchy",
    "chisquare", "choice", "clone", "dirichlet", "double_sided_maxwell", "exponential", "f",
    "fold_in", "gamma", "generalized_normal", "geometric", "gumbel", "key", "key_data", "key_dtype",
    "key_impl", "laplace", "loggamma", "logistic", "lognormal", "maxwell", "multinomial",
    "multivariate_normal", "normal", "orthogonal", "pareto", "permutation", "poisson", "rademacher",
    "randint", "random_gamma_p", "rayleigh", "split", "t", "triangular", "truncated_normal",
    "uniform", "wald", "weibull_min", "wrap_key_data",
]
