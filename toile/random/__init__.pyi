"""The public names of this package: loaded when they are first used, and known to type checkers."""

from toile.random.bits import (
    bernoulli as bernoulli,
    bits as bits,
    choice as choice,
    permutation as permutation,
    randint as randint,
    uniform as uniform,
)
from toile.random.keys import (
    Key as Key,
    PRNGKey as PRNGKey,
    clone as clone,
    fold_in as fold_in,
    key as key,
    key_data as key_data,
    key_dtype as key_dtype,
    key_impl as key_impl,
    split as split,
    wrap_key_data as wrap_key_data,
)
from toile.random.samplers_counts import (
    binomial as binomial,
    multinomial as multinomial,
    poisson as poisson,
)
from toile.random.samplers_gamma import (
    ball as ball,
    beta as beta,
    chisquare as chisquare,
    dirichlet as dirichlet,
    f as f,
    gamma as gamma,
    generalized_normal as generalized_normal,
    loggamma as loggamma,
    random_gamma_p as random_gamma_p,
    t as t,
)
from toile.random.samplers_inverse import (
    categorical as categorical,
    cauchy as cauchy,
    exponential as exponential,
    geometric as geometric,
    gumbel as gumbel,
    laplace as laplace,
    logistic as logistic,
    pareto as pareto,
    triangular as triangular,
    weibull_min as weibull_min,
)
from toile.random.samplers_normal import (
    double_sided_maxwell as double_sided_maxwell,
    lognormal as lognormal,
    maxwell as maxwell,
    multivariate_normal as multivariate_normal,
    normal as normal,
    orthogonal as orthogonal,
    rademacher as rademacher,
    rayleigh as rayleigh,
    truncated_normal as truncated_normal,
    wald as wald,
)
