"""Special functions, with the names, dtypes and derivatives of `jax.scipy.special`.

Compositions over `lax` (which has the gamma, error and Bessel families) plus rational approximations
from `_tables`. The real SciPy is never imported here.
"""

from toile.scipy.special._bessel import bessel_jn, i0, i0e, i1, i1e, sph_harm_y
from toile.scipy.special._entropy import (
    boxcox,
    boxcox1p,
    entr,
    expit,
    kl_div,
    log_softmax,
    logit,
    logsumexp,
    rel_entr,
    softmax,
    xlog1py,
    xlogy,
)
from toile.scipy.special._erf import (
    dawsn,
    erf,
    erfc,
    erfcx,
    erfinv,
    fresnel,
    log_ndtr,
    ndtr,
    ndtri,
    owens_t,
    wofz,
)
from toile.scipy.special._expint import exp1, expi, expn, sici, spence
from toile.scipy.special._gamma import (
    bernoulli,
    beta,
    betainc,
    betaln,
    comb,
    digamma,
    factorial,
    gamma,
    gammainc,
    gammaincc,
    gammaln,
    gammasgn,
    loggamma,
    multigammaln,
    poch,
    polygamma,
    zeta,
)
from toile.scipy.special._hyper import hyp1f1, hyp2f1

__all__ = [
    "bernoulli", "bessel_jn", "beta", "betainc", "betaln", "boxcox", "boxcox1p", "comb", "dawsn",
    "digamma", "entr", "erf", "erfc", "erfcx", "erfinv", "exp1", "expi", "expit", "expn",
    "factorial", "fresnel", "gamma", "gammainc", "gammaincc", "gammaln", "gammasgn", "hyp1f1",
    "hyp2f1", "i0", "i0e", "i1", "i1e", "kl_div", "log_ndtr", "log_softmax", "loggamma", "logit",
    "logsumexp", "multigammaln", "ndtr", "ndtri", "owens_t", "poch", "polygamma", "rel_entr", "sici",
    "softmax", "spence", "sph_harm_y", "wofz", "xlog1py", "xlogy", "zeta",
]
