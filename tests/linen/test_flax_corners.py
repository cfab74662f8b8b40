"""Corners of modules where Flax is easily missed: each case runs in both libraries."""

import collections
import copy
import pickle
import types

import flax
import flax.linen
import jax
import numpy as np
import pytest

import toile
import toile.linen
from tests.linen.oracle import on_flax
from toile.core.variables import Variable

BOTH = {"toile": types.SimpleNamespace(nn=toile.linen, jax=toile, jnp=toile.numpy, flax=toile),
        "flax": types.SimpleNamespace(nn=flax.linen, jax=jax, jnp=jax.numpy, flax=flax)}
X = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)


class Settings(collections.abc.MutableMapping):
    """A mapping that is no dict, with attributes, as configuration libraries have them."""

    def __init__(self, **values):
        self.__dict__.update(values)

    def __getitem__(self, k):
        return self.__dict__[k]

    def __setitem__(self, k, v):
        self.__dict__[k] = v

    def __delitem__(self, k):
        del self.__dict__[k]

    def __iter__(self):
        return iter(self.__dict__)

    def __len__(self):
        return len(self.__dict__)

    def __hash__(self):
        return hash(tuple(self.__dict__.items()))


class Pair(tuple):
    """A tuple whose constructor takes its elements."""

    def __new__(cls, a, b):
        return super().__new__(cls, (a, b))


def copies(lib):
    layer = lib.nn.Dense(3)
    return lib.nn.Sequential([copy.deepcopy(layer) for _ in range(3)])


def copies_and_one_shared(lib):
    layer = lib.nn.Dense(3)
    return lib.nn.Sequential([layer, copy.deepcopy(layer), layer])


def copied_whole(lib):
    layer = lib.nn.Dense(3)
    return copy.deepcopy(lib.nn.Sequential([layer, layer]))


def settings(lib):
    class Net(lib.nn.Module):
        cfg: object

        @lib.nn.compact
        def __call__(self, x):
            assert type(self.cfg) is Settings
            return lib.nn.Dense(self.cfg.width)(x)

    return Net(Settings(width=4))


def subclasses(lib):
    class Net(lib.nn.Module):
        a: object
        b: object
        c: object

        @lib.nn.compact
        def __call__(self, x):
            kinds = [type(v).__name__ for v in (self.a, self.b, self.c)]
            assert kinds == ["tuple", "tuple", "FrozenDict"], kinds
            return lib.nn.Dense(self.a[1])(x)

    class Numbers(list):
        pass

    return Net(Pair(2, 5), Numbers([1, 2]), collections.OrderedDict(z=lib.nn.Dense(2)))


def shared(lib):
    class Net(lib.nn.Module):
        def setup(self):
            self.net = lib.nn.Sequential([lib.nn.Dense(3), lib.nn.Dense(4)])
            lib.nn.share_scope(self, self.net)

        def __call__(self, x):
            return self.net(x)

    return Net()


def shared_upwards(lib):
    class Net(lib.nn.Module):
        net: lib.nn.Module

        def setup(self):
            self.more = lib.nn.Dense(2)
            lib.nn.share_scope(self, self.net)

        def __call__(self, x):
            return self.more(self.net(x))

    return Net(lib.nn.Dense(3))


def own_init(lib):
    class Base(lib.nn.Module):
        a: int = 1

    class Sub(Base):
        layer: lib.nn.Module = None

        def __init__(self, layer=None, **kw):
            self.layer = layer
            super().__init__(**kw)

        @lib.nn.compact
        def __call__(self, x):
            return self.layer(x)

    class Outer(lib.nn.Module):
        @lib.nn.compact
        def __call__(self, x):
            return Sub(lib.nn.Dense(3))(x)

    return Outer()


def assigned_field(lib):
    class Inner(lib.nn.Module):
        layer: object = None

        def __call__(self, x):
            return self.layer(x)

    class Outer(lib.nn.Module):
        def setup(self):
            inner = Inner()
            inner.layer = lib.nn.Dense(3)
            self.inner = inner

        def __call__(self, x):
            return self.inner(x)

    return Outer()


def own_norm(lib):
    parts = lib.nn.normalization

    class Norm(lib.nn.Module):
        @lib.nn.compact
        def __call__(self, x):
            ones, zeros = lib.nn.initializers.ones, lib.nn.initializers.zeros
            mean, var = parts._compute_stats(x, (-1,), None, use_mean=False)
            assert not mean.any()
            y = parts._normalize(self, x, mean, var, (-1,), (-1,), None, np.float32, 1e-6, True,
                                 True, zeros, ones)
            return parts._l2_normalize(y, axis=-1) + y

    return Norm()


TREES = [copies, copies_and_one_shared, copied_whole, settings, subclasses, shared, shared_upwards,
         own_init, assigned_field, own_norm]


@pytest.mark.parametrize("make", TREES, ids=lambda f: f.__name__)
def test_variables_and_results(make):
    def observed(lib):
        model = make(lib)
        out, variables = model.init_with_output(lib.jax.random.key(3), X)
        flat = lib.flax.traverse_util.flatten_dict(variables, sep="/")
        return {k: np.asarray(v) for k, v in flat.items()}, np.asarray(out)

    (ours, y), (theirs, z) = observed(BOTH["toile"]), on_flax(lambda: observed(BOTH["flax"]))
    assert list(ours) == list(theirs)
    for name, value in ours.items():
        np.testing.assert_allclose(value, theirs[name], rtol=1e-6, err_msg=name)
    np.testing.assert_allclose(y, z, rtol=1e-5, atol=1e-6)


def unbound(lib):
    class Net(lib.nn.Module):
        def make(self):
            return lib.nn.Dense(2)(X)

    Net().make()


ERRORS = {
    "no key": lambda lib: lib.nn.Dense(2).init(None, X),
    "a list is flattened": lambda lib: lib.flax.traverse_util.flatten_dict([1]),
    "a FrozenDict is unflattened": lambda lib: lib.flax.traverse_util.unflatten_dict(
        lib.flax.core.FrozenDict({("a",): 1})),
    "another axis is removed": lambda lib: lib.nn.Partitioned(X, ("a", "b")).remove_axis(
        0, {lib.nn.PARTITION_NAME: "b"}),
    "a submodule of an unbound one": unbound,
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    kinds = []
    for lib in BOTH.values():
        with pytest.raises(Exception) as caught:
            ERRORS[name](lib)
        kinds.append(type(caught.value).__name__)
    assert kinds[0] == kinds[1]


def test_identities():
    one, two = toile.linen.Dropout(0.5), toile.linen.Dropout(0.5)
    seen = {one._id, two._id, copy.deepcopy(one)._id, pickle.loads(pickle.dumps(one))._id}
    assert len(seen) == 4
    pair = copy.deepcopy([one, one])
    assert pair[0]._id == pair[1]._id != one._id


def test_loaded_identities_are_new():
    """Pickling once took the counter along: what was loaded got numbers that were in use."""
    text = pickle.dumps(toile.linen.Dropout(0.5))
    later = [toile.linen.Dropout(0.5) for _ in range(3)]
    loaded = [pickle.loads(text) for _ in range(3)]
    assert len({x._id for x in [*later, *loaded]}) == 6


def test_a_variable_is_not_taken_for_a_module():
    """They are noted together where a function is lifted: their numbers come from one place."""
    made = [make()._id for _ in range(3) for make in (
        lambda: toile.linen.Dropout(0.5), lambda: Variable(None, "state", "v", True))]
    assert [int(x) for x in made] == sorted({int(x) for x in made})
