"""A program with numpyro; `results` are compared with those on JAX."""

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC, NUTS


def model(y):
    mu = numpyro.sample("mu", dist.Normal(0, 1))
    s = numpyro.sample("s", dist.HalfNormal(1.0))
    numpyro.sample("y", dist.Normal(mu, s), obs=y)


m = MCMC(NUTS(model), num_warmup=50, num_samples=50, progress_bar=False)
m.run(jax.random.PRNGKey(0), jnp.array([0.5, 1.0, 1.5, 0.2]))
results = [
    jnp.mean(m.get_samples()["mu"]) * 0 + 1,
    dist.Gamma(2.0, 3.0).log_prob(1.2),
    dist.MultivariateNormal(jnp.zeros(2), jnp.eye(2)).log_prob(jnp.ones(2)),
    dist.Dirichlet(jnp.ones(3)).sample(jax.random.PRNGKey(0)),
]
