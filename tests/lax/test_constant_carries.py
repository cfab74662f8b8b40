"""Parts of a carry that the body of a loop returns unchanged."""

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from toile import lax

X, Y = jnp.arange(4.0), jnp.array([[1.0, 2.0], [3.0, 4.0]])


def _while(x, y):
    return lax.while_loop(lambda c: c[0] < x, lambda c: (c[0] + 1, c[1] + y.sum(), y), (0.0, x, y))


def _while_with_operands(x, y):
    return lax.while_loop(lambda c: c[1] < 3, lambda c: (c[0], c[1] + 1, c[2] + c[0].sum()),
                          (y, x, x))


def _fori(x, y):
    return lax.fori_loop(0, jnp.int32(x), lambda i, c: (c[0], c[1] + c[0].sum()), (y, x))


def _scan(x, y):
    return lax.scan(lambda c, z: ((c[0], c[1] + c[0].sum() * z), c[0]), (y, x), jnp.arange(3.0))


def _scan_in_cond(x, y):
    branch = lambda x, y: _scan(x, y)[0][0]
    return lax.cond(x < 2, branch, branch, x, y), x


LOOPS = {  # name: (loop, whose arguments are mapped and not mapped; index of the constant result)
    "while": (_while_with_operands, 0), "fori": (_fori, 0), "scan": (lambda *a: _scan(*a)[0], 0),
    "scan in cond": (_scan_in_cond, 0), "while in scan": (
        lambda x, y: lax.scan(lambda c, _: (_while_with_operands(x, c)[0], None), y, None, 2), 0),
}


@pytest.mark.parametrize("name", LOOPS)
@pytest.mark.parametrize("jit", [False, True])
def test_constant_part_is_not_mapped(name, jit):
    loop, place = LOOPS[name]
    run = lambda x, y: loop(x, y)[place]
    mapped = toile.vmap(run, (0, None), None)
    np.testing.assert_array_equal((toile.jit(mapped) if jit else mapped)(X, Y), Y)


@pytest.mark.parametrize("name", [*LOOPS, "changing"])
def test_results_and_derivatives_are_those_of_single_examples(name):
    loop = _while if name == "changing" else LOOPS[name][0]
    total = lambda x, y: sum(jnp.sum(v) for v in toile.tree_util.tree_leaves(loop(x, y)))
    both = toile.value_and_grad(total, (0, 1))
    together = toile.jit(toile.vmap(both, (0, None)))(X, Y)
    single = [both(x, Y) for x in X]
    for got, *want in zip(*map(toile.tree_util.tree_leaves, [together, *single]), strict=True):
        np.testing.assert_allclose(got, np.stack(want), rtol=1e-6)


def test_results_outside_transformations_can_be_kept():
    """A donated operand does not delete the results of a loop."""
    y = jnp.ones(3)
    (kept, _), _ = lax.scan(lambda c, _: (c, None), (y, 0.0), None, 3)
    toile.jit(lambda y: y + 1, donate_argnums=0)(y)
    np.testing.assert_array_equal(kept, np.ones(3))
