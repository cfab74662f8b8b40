"""Rules of the compiler that one line states and that no program shows by chance: what tells
Programs apart on disk, rounding of what is computed again, huge divisors, where values begin."""

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from toile import lax
from toile.compiler.pipeline import optimize
from toile.compiler.plan.fingerprint import fingerprint
from toile.compiler.plan.fuse import fuse
from toile.compiler.plan.recompute import recompute
from toile.compiler.verify.contents import Address, Content, Memory
from toile.platforms.cpu.target import Target

pytest.importorskip("llvmlite")


def traced(f, *args):
    return toile.make_jaxpr(f)(*args).jaxpr


@pytest.mark.parametrize("f", [lambda x: x, jnp.negative, jnp.sort, lambda x: x[0]])
def test_inputs_of_other_types_have_other_fingerprints(f):
    """The Programs are the same but for what they are given."""
    inputs = [jnp.zeros(shape, dtype) for shape in ((4,), (2, 2), (4, 1))
              for dtype in ("float32", "float16", "bfloat16", "int32", "uint32", "int8")]
    found = [fingerprint(traced(f, x)) for x in inputs]
    assert None not in found and len(set(found)) == len(inputs)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16, jnp.float32])
def test_what_is_computed_again_is_rounded_as_memory_would(dtype):
    x = jnp.ones((600, 700), dtype)

    def f(x, a):
        y = x * a + a  # read here and after the sort: computed in both places
        return lax.sort(y * 2) + y

    program = optimize(traced(f, x, x[0]))
    found = recompute(fuse(program, Target(2).can_fuse, Target.limits))
    assert found is not None, "y should not be stored"
    names = [e.op.name for e in found.program.equations]
    assert names.count("mul") > [e.op.name for e in program.equations].count("mul")
    assert ("reduce_precision" in names) == (dtype != jnp.float32)


def test_quotients_by_huge_numbers_keep_their_digits():
    """The reciprocal of such a divisor is no normal number."""
    random = np.random.default_rng(0)
    x = (random.uniform(1, 3.3, 5000) * 1e38).astype(np.float32)
    for s in random.uniform(1.8, 3.4, 20).astype(np.float32) * np.float32(1e38):
        f = toile.jit(lambda x, s, one: x / s * jnp.sqrt(one))
        got = np.asarray(f(x, s, np.ones_like(x))).astype(np.float64)
        want = x.astype(np.float64) / np.float64(s)
        assert (np.abs(got - want) / np.spacing(want.astype(np.float32))).max() <= 2


def test_bytes_are_one_value_only_if_it_begins_in_one_place():
    memory, value = Memory(), Content("a value")
    memory.write(Address("arena", 0), 64, value)
    assert memory.content(Address("arena", 0), 64) == (value, 0)
    assert memory.content(Address("arena", 16), 48) == (value, 16)
    memory.write(Address("arena", 64), 64, value)  # a second copy of it
    assert memory.content(Address("arena", 64), 64) == (value, 0)
    assert memory.content(Address("arena", 0), 128) == (None, 0)
    assert memory.content(Address("arena", 32), 64) == (None, 0)
    memory.write(Address("arena", 16), 16, Content("another"))
    assert memory.content(Address("arena", 0), 64) == (None, 0)
    assert memory.content(Address("arena", 32), 32) == (value, 32)
    assert memory.content(Address("arena", 120), 16) == (None, 0)  # beyond what was written
