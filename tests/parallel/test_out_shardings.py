"""Results that are divided among devices according to the argument `out_sharding`."""

import inspect

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from toile import random
from toile.sharding import AxisType, NamedSharding, PartitionSpec

X = np.arange(8, dtype=np.float32)
HALVES = np.full(8, 0.5, np.float32)

# Arguments of the samplers after the key, for a result whose first axis is divided.
SAMPLERS = {
    **dict.fromkeys(("bits", "cauchy", "exponential", "gumbel", "laplace", "logistic", "maxwell",
                     "normal", "rademacher", "uniform"), ((8,),)),
    **dict.fromkeys(("chisquare", "gamma", "geometric", "loggamma", "lognormal", "pareto",
                     "poisson", "rayleigh", "t", "wald"), (HALVES, (8,))),
    "ball": (2, 2.0, (8,)), "bernoulli": (0.5, (8,)), "beta": (HALVES, HALVES, (8,)),
    "categorical": (np.zeros((8, 3)),), "dirichlet": (np.ones(3, np.float32), (8,)),
    "f": (HALVES, HALVES, (8,)), "generalized_normal": (1.0, (8,)),
    "multivariate_normal": (np.zeros(2), np.eye(2), (8,)), "orthogonal": (2, (8,)),
    "permutation": (8,), "randint": ((8,), 0, 10), "triangular": (0.0, 0.5, 1.0, (8,)),
    "truncated_normal": (-1.0, 1.0, (8,)),
}
CREATION = {
    "arange": (8,), "array": (X,), "asarray": (X,), "empty": (8,), "full": (8, 2.0),
    "full_like": (X, 2.0), "ones": (8,), "ones_like": (X,), "zeros": ((8, 2),), "zeros_like": (X,),
}
ROWS = [*((random, name, args) for name, args in SAMPLERS.items()),
        *((jnp, name, args) for name, args in CREATION.items())]


def test_all_samplers_are_in_the_table():
    functions = {name: getattr(random, name) for name in random.__all__}
    found = {name for name, f in functions.items() if inspect.isfunction(f)
             and "out_sharding" in inspect.signature(f).parameters}
    assert found == set(SAMPLERS)


@pytest.mark.parametrize(("module", "name", "args"), ROWS, ids=[row[1] for row in ROWS])
@pytest.mark.parametrize("given", ["sharding", "spec"])
def test_results_are_divided(module, name, args, given):
    mesh = toile.make_mesh((2,), ("x",), axis_types=(AxisType.Explicit,))
    sharding = NamedSharding(mesh, PartitionSpec("x"))
    wanted = sharding if given == "sharding" else sharding.spec
    key = (random.key(0),) if module is random else ()

    def made(**options):
        return getattr(module, name)(*key, *args, **options)

    with toile.set_mesh(mesh):
        plain, divided = made(), made(out_sharding=wanted)
        compiled = toile.jit(lambda: made(out_sharding=wanted))()
    for found in (divided, compiled):
        assert found.sharding.is_equivalent_to(sharding, found.ndim)
        np.testing.assert_allclose(found, plain, rtol=1e-5)


@pytest.mark.parametrize("wrong", ["x", 3])
def test_other_values_are_refused(wrong):
    with pytest.raises(TypeError, match="out_sharding"):
        random.normal(random.key(0), (8,), out_sharding=wrong)
