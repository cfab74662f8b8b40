"""Random keys that are used twice: toile raises KeyReuseError in the programs that JAX does.

A row is a function of the package. It runs at once and inside of jit, with `debug_key_reuse` on.
JAX traces every row; it runs only those at once in which that makes a difference, which is slow.
"""

import os
import subprocess
import sys
import threading

import jax
import numpy as np
import pytest

import toile
from tests.golden.recorded import CORNERS
from toile import linen, random

pytestmark = pytest.mark.cpu


def _key(lib, seed=0):
    return lib.random.key(seed)


def _keys(lib, shape=2, **options):
    return lib.random.split(lib.random.key(0, **options), shape)


def _each(lib, keys):
    return lib.vmap(lib.random.bits)(keys)


def _steps(lib, key, length=3):
    """A carried key after some steps, and what they drew."""

    def body(key, _):
        key, sub = lib.random.split(key)
        return key, lib.random.normal(sub)

    return lib.lax.scan(body, key, None, length=length)


def _looped(lib, key, cond=lambda lib, key, x: x < 3):
    def body(carry):
        key, sub = lib.random.split(carry[0])
        return key, carry[1] + 1 + lib.random.uniform(sub)

    return lib.lax.while_loop(lambda carry: cond(lib, *carry), body, (key, 0.0))[1]


def _both(*uses):
    """A row that does several things with one key, or with what `make` gives."""

    def row(lib, make=_key):
        key = make(lib)
        return [use(lib, key) for use in uses]

    return row


def _on(make, *uses):
    return lambda lib: _both(*uses)(lib, make)


def _noisy(lib, wrap=lambda f: f, draws=1):
    """A function of a number and a key that draws so many times."""

    def f(x, key):
        for _ in range(draws):
            x = lib.numpy.sin(x * lib.random.normal(key))
        return x

    return wrap(f)


def _custom(lib, fold=False, draws=1):
    @lib.custom_jvp
    def f(x, key):
        key = lib.random.fold_in(key, 1) if fold else key
        return _noisy(lib, draws=draws)(x, key)

    f.defjvp(lambda primals, tangents: (f(*primals), tangents[0]))
    return f


bits = lambda lib, key: lib.random.bits(key)
normal = lambda lib, key: lib.random.normal(key)
split = lambda lib, key: lib.random.key_data(lib.random.split(key))
fold = lambda lib, key: lib.random.bits(lib.random.fold_in(key, 3))
jitted = lambda lib, key: lib.jit(lambda k: lib.random.bits(k))(key)
jit_dead = lambda lib, key: lib.jit(lambda k: (lib.random.bits(k), 1.0)[1])(key)
jit_closed = lambda lib, key: lib.jit(lambda: (lib.random.bits(key), 1.0)[1])()
at = lambda *index: lambda lib, keys: lib.random.bits(keys[index])
part = lambda *index: lambda lib, keys: _each(lib, keys[slice(*index)])
pair = lambda lib: _keys(lib, 2)
four = lambda lib: _keys(lib, 4)
square = lambda lib: _keys(lib, (2, 2))
rbg = lambda lib: lib.random.key(0, impl="rbg")


def _cond(one, other):
    return lambda lib, key: lib.lax.cond(
        lib.numpy.asarray(True), lambda k: one(lib, k), lambda k: other(lib, k), key)


def _scan_over(use):
    return lambda lib, key: lib.lax.scan(
        lambda carry, x: (carry, use(lib, key, x)), 0.0, lib.numpy.arange(3))


FINE = {
    "once": _both(normal),
    "unpacked": lambda lib: [lib.random.normal(k) for k in _keys(lib)],
    "indexed": _on(pair, at(0), at(1)),
    "indexed_square": _on(square, at(0, 1), at(1, 0)),
    "parts": _on(four, part(0, 2), part(2, 4)),
    "strides": _on(four, part(0, 4, 2), part(1, 4, 2)),
    "taken_then_indexed": lambda lib: _on(
        lambda lib: four(lib)[lib.numpy.asarray([2, 1])], at(0), at(1))(lib),
    "folds": _both(fold, fold, normal, fold),
    "clone": _both(normal, lambda lib, key: lib.random.bits(lib.random.clone(key))),
    "words": _both(
        normal, lambda lib, key: lib.random.key_data(key),
        lambda lib, key: lib.random.bits(lib.random.wrap_key_data(lib.random.key_data(key)))),
    "raw_keys": _on(lambda lib: lib.random.PRNGKey(0), normal, normal, split),
    "joined": lambda lib: _each(lib, lib.numpy.concatenate([four(lib), _keys(lib)])),
    "compared": _both(lambda lib, key: key == key, normal, lambda lib, key: key == key),
    "broadcast": lambda lib: _each(lib, lib.numpy.broadcast_to(_key(lib), (3,))),
    "looked_at": _both(lambda lib, key: lib.debug.callback(lambda k: None, key), normal),
    "jit_new_keys": lambda lib: bits(lib, lib.jit(lambda k: lib.random.split(k)[0])(_key(lib))),
    "jit_half": _on(pair, lambda lib, ks: lib.jit(lambda ks: lib.random.bits(ks[0]))(ks), at(1)),
    "scan": lambda lib: bits(lib, _steps(lib, _key(lib))[0]),
    "scan_over_keys": lambda lib: lib.lax.map(lib.random.bits, four(lib)),
    "scan_fold": _both(_scan_over(lambda lib, key, x: fold(lib, lib.random.fold_in(key, x)))),
    "scan_pairs": lambda lib: lib.lax.map(
        lambda ks: lib.random.bits(ks[0]) + lib.random.bits(ks[1]), square(lib)),
    "while": _both(_looped),
    "fori": lambda lib: lib.lax.fori_loop(
        0, 3, lambda i, x: x + lib.random.normal(lib.random.fold_in(_key(lib), i)), 0.0),
    "cond": _both(_cond(normal, lambda lib, k: lib.random.uniform(k))),
    "cond_neither": _both(_cond(lambda lib, k: 1.0, lambda lib, k: 2.0), normal),
    "cond_closed_over_by_both": lambda lib: lib.jit(lambda p, k: lib.lax.cond(
        p, lambda: lib.random.normal(k), lambda: lib.random.uniform(k)))(True, _key(lib)),
    "cond_in_scan": lambda lib: lib.lax.map(
        lambda k: lib.lax.cond(True, lib.random.normal, lambda k: 0.0, k), four(lib)),
    "vmap": lambda lib: lib.vmap(lib.random.normal)(four(lib)),
    "vmap_axis": lambda lib: lib.vmap(lambda ks: _each(lib, ks), in_axes=1)(_keys(lib, (2, 3))),
    "vmap_seeds": lambda lib: lib.vmap(lambda s: normal(lib, lib.random.key(s)))(np.arange(3)),
    "vmap_closed_over": lambda lib: _both(lambda lib, key: lib.vmap(
        lambda x: x + lib.random.normal(key))(lib.numpy.ones(3)))(lib),
    "vmap_scan": lambda lib: lib.vmap(lambda k: _steps(lib, k)[1])(pair(lib)),
    "vmap_while": lambda lib: lib.vmap(lambda k: _looped(lib, k))(pair(lib)),
    "grad": lambda lib: lib.grad(_noisy(lib))(2.0, _key(lib)),
    "grad_jit": lambda lib: lib.grad(_noisy(lib, lib.jit))(2.0, _key(lib)),
    "grad_scan": lambda lib: lib.grad(
        lambda x, key: (x * _steps(lib, key)[1]).sum())(2.0, _key(lib)),
    "hessian": lambda lib: lib.hessian(_noisy(lib))(2.0, _key(lib)),
    "remat": lambda lib: _noisy(lib, lib.checkpoint)(2.0, _key(lib)),
    "custom": lambda lib: _custom(lib)(2.0, _key(lib)),
    "rbg": _on(rbg, fold, normal, fold),
    "static_and_dict": lambda lib: lib.jit(
        lambda d, n: lib.random.normal(d["key"], (n,)), static_argnums=1)({"key": _key(lib)}, 2),
}

USED_TWICE = {
    "twice": _both(normal, normal),
    "split_first": _both(split, normal),
    "split_after": _both(bits, split),
    "split_twice": _both(split, split),
    "sub_key": lambda lib: _on(lambda lib: list(_keys(lib))[0], normal, bits)(lib),
    "indexed": _on(pair, at(0), at(0)),
    "indexed_from_the_end": _on(pair, at(0), at(-2)),
    "indexed_in_a_row": lambda lib: _on(square, lambda lib, ks: bits(lib, ks[0][1]), at(0, 1))(lib),
    "parts_overlap": _on(four, part(0, 3), part(2, 4)),
    "part_and_all": _on(four, part(0, 1), _each),
    "all_and_all": _on(four, part(None), _each),
    "clone": lambda lib: _on(lambda lib: lib.random.clone(_key(lib)), bits, bits)(lib),
    "newaxis_of_used": _both(bits, lambda lib, key: _each(lib, key[None])),
    "joined": _on(four, lambda lib, ks: _each(lib, lib.numpy.concatenate([ks, four(lib)])), _each),
    "joined_with_itself": _on(
        four, lambda lib, ks: _each(lib, lib.numpy.concatenate([ks, ks])), _each),
    "chosen": _on(pair, lambda lib, ks: bits(lib, lib.numpy.where(True, ks[0], ks[1]))),
    "reversed": _on(four, lambda lib, ks: _each(lib, lib.lax.rev(ks, (0,)))),
    "updated": _on(pair, lambda lib, ks: lib.lax.dynamic_update_slice(four(lib), ks, (0,)).shape,
                   _each),
    "jit": _both(jitted, jitted),
    "jit_inside": lambda lib: lib.jit(lambda k: _both(normal, bits)(lib, lambda _: k))(_key(lib)),
    "jit_then_at_once": _both(jitted, bits),
    "jit_dead_code": _both(jit_dead, bits),
    "jit_closed_over": _both(jit_closed, bits),
    "jit_result_of_used": lambda lib: bits(
        lib, lib.jit(lambda k: (lib.random.bits(k), k))(_key(lib))[1]),
    "jit_half": _on(pair, lambda lib, ks: lib.jit(lambda ks: lib.random.bits(ks[0]))(ks), at(0)),
    "jit_one_key_for_two": lambda lib: lib.jit(lambda k: lib.jit(
        lambda a, b: lib.random.bits(a) + lib.random.bits(b))(k, k))(_key(lib)),
    "scan_closed_over": _both(_scan_over(lambda lib, key, x: lib.random.normal(key))),
    "scan_carry": lambda lib: lib.lax.scan(
        lambda key, _: (key, lib.random.bits(key)), _key(lib), None, length=2)[1],
    "scan_inside": lambda lib: lib.lax.map(
        lambda s: _both(bits, bits)(lib, lambda lib: lib.random.key(s)), np.arange(2)),
    "scan_then": _both(lambda lib, key: _steps(lib, key)[1], bits),
    "scan_over_keys": _on(four, lambda lib, ks: lib.lax.map(lib.random.bits, ks), _each),
    "scan_over_half": _on(square, lambda lib, ks: lib.lax.map(
        lambda row: lib.random.bits(row[0]), ks), at(1, 0)),
    "while_body": lambda lib: lib.lax.while_loop(
        lambda c: c[1] < 2, lambda c: (c[0], c[1] + lib.random.uniform(c[0])), (_key(lib), 0.0))[1],
    "while_closed_over": _both(lambda lib, key: lib.lax.while_loop(
        lambda x: x < 2, lambda x: x + 1 + lib.random.uniform(key), 0.0)),
    "while_cond": _both(lambda lib, key: lib.lax.while_loop(
        lambda x: x < lib.random.uniform(key), lambda x: x + 1, 0.0)),
    "while_cond_and_body": _both(lambda lib, key: _looped(
        lib, key, lambda lib, key, x: x < lib.random.uniform(key))),
    "while_then": _both(_looped, bits),
    "cond_both": _both(_cond(normal, normal), bits),
    "cond_one": _both(_cond(normal, lambda lib, k: 1.0), bits),
    "cond_dead_code": _both(_cond(lambda lib, k: (bits(lib, k), 1.0)[1], lambda lib, k: 0.0), bits),
    "cond_closed_over": _both(lambda lib, key: lib.lax.cond(
        True, lambda: lib.random.normal(key), lambda: 0.0), bits),
    "cond_inside": lambda lib: lib.lax.cond(
        True, lambda k: lib.random.normal(k) + lib.random.normal(k), lambda k: 0.0, _key(lib)),
    "switch": _both(lambda lib, key: lib.lax.switch(
        1, [lib.random.normal, lib.random.uniform, lambda k: 0.0], key), bits),
    "vmap": _on(four, _each, _each),
    "vmap_inside": lambda lib: lib.vmap(
        lambda k: lib.random.normal(k) + lib.random.uniform(k))(four(lib)),
    "vmap_closed_over": _both(lambda lib, key: lib.vmap(
        lambda x: x + lib.random.normal(key))(lib.numpy.ones(3)), bits),
    "grad": _both(lambda lib, key: lib.grad(_noisy(lib))(2.0, key), bits),
    "grad_inside": lambda lib: lib.grad(_noisy(lib, draws=2))(2.0, _key(lib)),
    "remat": _both(lambda lib, key: _noisy(lib, lib.checkpoint)(2.0, key), bits),
    "remat_dead_code": _both(
        lambda lib, key: lib.checkpoint(lambda k: (lib.random.bits(k), 1.0)[1])(key), bits),
    "remat_inside": lambda lib: _noisy(lib, lib.checkpoint, 2)(2.0, _key(lib)),
    "custom": _both(lambda lib, key: _custom(lib)(2.0, key), bits),
    "rbg": _on(rbg, bits, bits),
    "rbg_split": _on(rbg, split, bits),
    "rbg_vmap": _on(lambda lib: _keys(lib, 2, impl="rbg"), _each, _each),
}

# At once a result that is an operand's keys again has its own count, as in JAX; in jit it has not.
IN_JIT_ONLY = {
    "newaxis": _both(lambda lib, key: _each(lib, key[None]), bits),
    "reshaped": _both(lambda lib, key: bits(lib, key.reshape(1).squeeze()), bits),
    "traced_index": lambda lib: _on(
        pair, *[lambda lib, ks: bits(lib, ks[lib.numpy.asarray(0)])] * 2)(lib),
    "iterated": _on(pair, _each, lambda lib, ks: [lib.random.bits(k) for k in ks]),
    "set": lambda lib: _both(lambda lib, key: four(lib).at[0].set(key).shape, bits)(lib),
    "jit_identity": _both(lambda lib, key: bits(lib, lib.jit(lambda k: k)(key)), bits),
    "jit_two_names": _both(lambda lib, key: lib.jit(
        lambda a, b: lib.random.bits(a) + lib.random.bits(b))(key, key)),
    "custom_fold": _both(lambda lib, key: _custom(lib, fold=True)(2.0, key), bits),
}
# The opposite: what a custom rule is for is not looked into.
AT_ONCE_ONLY = {"custom_inside": lambda lib: _custom(lib, draws=2)(2.0, _key(lib))}

def _sampler(f):
    return lambda lib, key: f(lib.random, key, lib.numpy.ones(3) / 3)


SAMPLERS = {
    name: _sampler(f)
    for name, f in {
        "ball": lambda r, k, p: r.ball(k, 3),
        "bernoulli": lambda r, k, p: r.bernoulli(k, 0.3),
        "beta": lambda r, k, p: r.beta(k, 1.0, 2.0),
        "binomial": lambda r, k, p: r.binomial(k, 5.0, 0.5),
        "categorical": lambda r, k, p: r.categorical(k, p),
        "choice": lambda r, k, p: r.choice(k, 5, (2,), replace=False),
        "choice_p": lambda r, k, p: r.choice(k, 3, (2,), p=p),
        "dirichlet": lambda r, k, p: r.dirichlet(k, p),
        "exponential": lambda r, k, p: r.exponential(k),
        "f": lambda r, k, p: r.f(k, 2.0, 3.0),
        "gamma": lambda r, k, p: r.gamma(k, 2.0),
        "gumbel": lambda r, k, p: r.gumbel(k),
        "loggamma": lambda r, k, p: r.loggamma(k, 0.5),
        "multinomial": lambda r, k, p: r.multinomial(k, 5, p),
        "multivariate_normal": lambda r, k, p: r.multivariate_normal(k, p, np.eye(3)),
        "normal_complex": lambda r, k, p: r.normal(k, (2,), "complex64"),
        "orthogonal": lambda r, k, p: r.orthogonal(k, 2),
        "permutation": lambda r, k, p: r.permutation(k, 5),
        "poisson": lambda r, k, p: r.poisson(k, 2.0),
        "rademacher": lambda r, k, p: r.rademacher(k),
        "randint": lambda r, k, p: r.randint(k, (), 0, 5),
        "t": lambda r, k, p: r.t(k, 2.0),
        "truncated_normal": lambda r, k, p: r.truncated_normal(k, -1.0, 1.0),
        "uniform": lambda r, k, p: r.uniform(k, minval=1.0, maxval=4.0),
        "wald": lambda r, k, p: r.wald(k, 1.0),
    }.items()
}
NO_BITS = {"choice": lambda lib, key: lib.random.choice(key, 3, (0,)),
           "permutation": lambda lib, key: lib.random.permutation(key, 1)}


def reuses(lib, run):
    """Whether `run` raises KeyReuseError under the flag; its result."""
    with lib.debug_key_reuse(True):
        try:
            return False, run()
        except lib.errors.KeyReuseError:
            return True, None


def by_record(lib, run):
    """`reuses`, for JAX by the record or asked, and without the results."""
    if lib is jax:
        return CORNERS.in_test(lambda: reuses(lib, run)[0]), None
    return reuses(lib, run)


def at_once(lib, row):
    return by_record(lib, lambda: row(lib))


def in_jit(lib, row):
    """In jit; JAX need only trace, which is where it looks."""
    made = lib.jit(lambda: row(lib))
    return by_record(lib, made.trace if lib is jax else made)


def closely(results, expected):
    for x, y in zip(*map(toile.tree.leaves, (results, expected)), strict=True):
        np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=1e-5)


@pytest.mark.parametrize("name", FINE)
def test_keys_that_are_used_once(name):
    row = FINE[name]
    expected = row(toile)
    for how in (at_once, in_jit):
        found, results = how(toile, row)
        assert not found
        closely(results, expected)
    assert not in_jit(jax, row)[0]


@pytest.mark.parametrize("name", USED_TWICE)
def test_keys_that_are_used_twice(name):
    row = USED_TWICE[name]
    row(toile)  # nobody looks
    assert at_once(toile, row)[0] and in_jit(toile, row)[0]
    assert in_jit(jax, row)[0]


@pytest.mark.parametrize("name", IN_JIT_ONLY)
def test_keys_that_are_an_operands(name):
    row = IN_JIT_ONLY[name]
    for lib in (toile, jax):
        assert not at_once(lib, row)[0] and in_jit(lib, row)[0]


@pytest.mark.parametrize("name", AT_ONCE_ONLY)
def test_custom_rules(name):
    row = AT_ONCE_ONLY[name]
    for lib in (toile, jax):
        assert at_once(lib, row)[0] and not in_jit(lib, row)[0]


@pytest.mark.parametrize("name", ["once", "indexed", "folds", "clone", "words", "jit_half", "scan"])
def test_jax_at_once_fine(name):
    assert not at_once(jax, FINE[name])[0]


@pytest.mark.parametrize("name", [
    "twice", "split_twice", "indexed", "newaxis_of_used", "chosen", "jit_then_at_once",
    "jit_closed_over", "jit_result_of_used", "scan_closed_over", "cond_one", "vmap", "custom",
])
def test_jax_at_once_used_twice(name):
    assert at_once(jax, USED_TWICE[name])[0]


@pytest.mark.parametrize("name", SAMPLERS)
def test_samplers(name):
    once, twice = _both(SAMPLERS[name]), _both(SAMPLERS[name], bits)
    for how in (at_once, in_jit):
        assert not how(toile, once)[0] and how(toile, twice)[0]
    assert not in_jit(jax, once)[0] and in_jit(jax, twice)[0]


@pytest.mark.parametrize("name", NO_BITS)
def test_samplers_that_draw_nothing(name):
    row = _both(NO_BITS[name], bits)
    assert not at_once(toile, row)[0] and not in_jit(toile, row)[0] and not in_jit(jax, row)[0]


# ------------------------------------------------------------------------------ where toile differs


def test_more_is_allowed_than_in_jax():
    lenient = {
        "stacked": lambda lib: _each(lib, lib.numpy.stack([_key(lib), _key(lib, 1)])),
        "transposed": lambda lib: lib.vmap(lambda ks: _each(lib, ks))(_keys(lib, (2, 3)).T),
    }
    for row in lenient.values():
        assert not at_once(toile, row)[0] and not in_jit(toile, row)[0] and in_jit(jax, row)[0]
    replayed = lambda lib: lib.grad(_noisy(lib, lib.checkpoint))(2.0, _key(lib))
    assert not at_once(toile, replayed)[0] and at_once(jax, replayed)[0]


def test_copies_are_the_array_itself():
    assert at_once(toile, _both(lambda lib, key: bits(lib, lib.device_put(key)), bits))[0]


def test_no_keys_are_not_used():
    row = lambda lib: _on(lambda lib: _keys(lib, 0), _each, _each)(lib)
    assert not at_once(toile, row)[0] and not in_jit(toile, row)[0]


# ---------------------------------------------------------------------------------------- the flag


def test_messages_say_where():
    with toile.debug_key_reuse(True):
        key = random.key(0)
        random.split(key)
        text = "Previously-consumed key passed to random_bits at index 0"
        with pytest.raises(toile.errors.KeyReuseError, match=text) as caught:
            random.normal(key)
        assert str(caught.value).count("test_key_reuse.py") >= 2
        text = "In random_bits, argument 0 is already consumed"
        with pytest.raises(toile.errors.KeyReuseError, match=text):
            toile.jit(lambda k: random.normal(k) + random.uniform(k))(random.key(0))
        drawn = toile.jit(random.bits)
        drawn(key := random.key(1))
        with pytest.raises(toile.errors.KeyReuseError, match="passed to jit-compiled function"):
            drawn(key)


def test_uses_count_while_the_flag_is_on():
    key, drawn = random.key(0), toile.jit(random.bits)
    for _ in range(4):
        drawn(key), random.normal(key)
    with toile.debug_key_reuse(True):
        drawn(key)
        with pytest.raises(toile.errors.KeyReuseError):
            drawn(key)
    for _ in range(4):
        drawn(key), random.normal(key)


def test_repeated_calls_are_watched():
    drawn = toile.jit(random.bits)
    with toile.debug_key_reuse(True):
        keys = [random.key(i) for i in range(6)]
        for key in keys:
            drawn(key)
        for key in keys:
            with pytest.raises(toile.errors.KeyReuseError):
                drawn(key)


def test_other_threads_are_not_watched():
    found = []
    with toile.debug_key_reuse(True):
        thread = threading.Thread(target=lambda: found.append(USED_TWICE["twice"](toile)))
        thread.start()
        thread.join()
    assert len(found) == 1


def test_flag_of_the_environment():
    program = "import toile; k = toile.random.key(0); toile.random.bits(k); toile.random.bits(k)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                          env=os.environ | {"JAX_DEBUG_KEY_REUSE": "1"})
    assert done.returncode and "KeyReuseError: Previously-consumed key" in done.stderr


def test_modules_train():
    class Model(linen.Module):
        @linen.compact
        def __call__(self, x):
            for _ in range(2):
                x = linen.Dropout(0.5, deterministic=False)(linen.Dense(4)(x))
            return x

    x = np.ones((2, 4), np.float32)
    for model in (Model(), linen.remat(Model)()):
        loss = lambda p, key, m=model: (m.apply(p, x, rngs={"dropout": key}) ** 2).sum()
        with toile.debug_key_reuse(True):
            first, second, key = random.split(random.key(0), 3)
            variables = model.init({"params": first, "dropout": second}, x)
            step = toile.jit(toile.grad(loss))
            for _ in range(3):
                key, sub = random.split(key)
                step(variables, sub)
            toile.grad(loss)(variables, key)


def test_module_is_experimental():
    from toile.experimental import key_reuse

    assert key_reuse.KeyReuseError is toile.errors.KeyReuseError
