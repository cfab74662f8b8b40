"""Scopes: variables, names, random streams, filters, and pure functions made of scoped ones."""

import types

import flax
import hypothesis
import jax
import numpy as np
import pytest
from hypothesis import strategies as st

import toile
import toile.core.nn
from toile import core, errors, lax, random
from toile import numpy as jnp
from toile.configurations import config
from toile.core import DenyList, FrozenDict, Scope, apply, bind, init, lazy_init, partial_eval
from toile.core.filters import (
    filter_to_set,
    group_collections,
    in_filter,
    intersect_filters,
    is_filter_empty,
    subtract_filters,
    union_filters,
)
from toile.core.rng import LazyRng, _digest, fold_in_static
from toile.core.scope import Variable

KEY = random.key(0)
words = lambda key: np.asarray(random.key_data(key)).tolist()
zeros = toile.nn.initializers.zeros


def root(mutable=True, rngs=("params",), variables=None):
    """A scope to play with."""
    return bind(variables or {}, {name: random.key(0) for name in rngs}, mutable=mutable)


# Random keys. The numbers are known answers of Flax.


def test_known_keys():
    assert words(random.fold_in(KEY, 1)) == [928981903, 3453687069]
    assert _digest(("Dense_0", 1), False) == 0xB2B71315
    assert _digest((1,), False) == 0xBF8B4530
    assert words(fold_in_static(KEY, ("Dense_0", 1))) == [3043437727, 3662875008]
    assert words(root().push("Dense_0").make_rng("params")) == [3043437727, 3662875008]


def test_keys_of_a_tree_of_scopes_are_those_of_flax():
    def draws(lib, random):
        key = lambda n: random.key(n)
        top = lib.core.bind({}, {"params": key(0), "dropout": key(1)}, mutable=True)
        child, other = top.push("a"), top.push(prefix="b")
        keys = [top.make_rng("params"), child.make_rng("params"), child.make_rng("params")]
        keys += [child.push("c").make_rng("dropout"), other.make_rng("noise"), other.make_rng()]
        keys += [top.rewound().make_rng("params"), top.rewound(rewind_rngs=True).make_rng("params")]
        keys += [top.push("a", reuse=True).make_rng("params")]
        return [np.asarray(random.key_data(k)).tolist() for k in keys]

    ours = draws(types.SimpleNamespace(core=core), random)
    assert ours == draws(flax, jax.random)
    assert ours[0] == ours[-2] != ours[-3]  # rewinding the counters draws the same key again


def test_separators_tell_paths_apart():
    scope = root()
    collide = lambda: (
        words(scope.rewound(True).push("ab").push("cdef").make_rng())
        == words(scope.rewound(True).push("abc").push("def").make_rng())
    )
    assert collide()
    with config.temp_flip_flag("fix_rng_separator", True):
        assert not collide()
        assert words(root().push("ab").push("cdef").make_rng()) != words(KEY)


def test_streams():
    scope = root(rngs=("dropout",))
    assert scope.has_rng("dropout") and not scope.has_rng("params")
    scope.make_rng("dropout")
    with pytest.raises(errors.InvalidRngError, match='needs PRNG for "params".*dropout'):
        scope.make_rng()
    with pytest.raises(errors.InvalidRngError, match='^inner needs PRNG for "noise"'):
        scope.push("inner").make_rng("noise")
    legacy = bind({}, {"params": random.PRNGKey(0)}, mutable=True).make_rng()
    assert legacy.dtype == np.uint32 and legacy.tolist() == words(root().make_rng())


def test_lazy_rng():
    lazy = LazyRng.create(KEY, "Dense_0")
    longer = LazyRng.create(lazy, 1)
    assert longer.suffix == ("Dense_0", 1) and longer.rng is KEY
    assert words(longer.as_jax_rng()) == [3043437727, 3662875008]
    assert words(longer.clear_suffix().as_jax_rng()) == words(KEY)
    assert longer.replace(suffix=()).suffix == ()
    split = toile.tree.map(lambda key: random.split(key)[1], longer)
    assert split.suffix == longer.suffix and words(split.rng) == words(random.split(KEY)[1])
    with pytest.raises(ValueError, match="Expected int or string"):
        fold_in_static(KEY, (1.5,))


# Names.


def test_reservation():
    scope = root()
    scope.reserve("a", "params")
    scope.reserve("a", "batch_stats")  # a variable of another collection may share the name
    for col in ("params", None):  # but neither a second one, nor a child
        assert scope.name_reserved("a", col)
        with pytest.raises(ValueError, match='Duplicate use of scope name: "a"'):
            scope.reserve("a", col)
    scope.push("b")
    for take in (lambda: scope.push("b"), lambda: scope.param("b", zeros, ())):
        with pytest.raises(ValueError, match='Duplicate use of scope name: "b"'):
            take()
    with pytest.raises(TypeError, match='scope "3" should be string'):
        scope.push(3)
    assert not scope.name_reserved("c") and scope.default_name("b") == "b0"


def test_default_names_and_paths():
    scope = root()
    inner = scope.push(prefix="f_").push(prefix="g_")
    assert inner.path == ("f_0", "g_0") and inner.path_text == "/f_0/g_0" and inner.name == "g_0"
    assert [scope.push(prefix="f_").name for _ in range(2)] == ["f_1", "f_2"]
    assert inner.root is scope and scope.root is scope and inner.parent.parent is scope

    def layer(scope, x, k=1):
        return scope.path, x * k

    assert scope.child(layer)(2) == (("layer_0",), 2)
    assert scope.child(layer, prefix="p")(2, k=3) == (("p0",), 6)
    assert scope.child(layer, "name", k=5, named_call=False)(2) == (("name",), 10)
    assert scope.child(layer, "other", k=5)(2, k=7) == (("other",), 14)


def test_rewound_scope_frees_names_and_shares_variables():
    scope = root()
    scope.param("w", zeros, (2,))
    again = scope.rewound()
    again.put_variable("params", "w", jnp.ones(2))
    assert again == scope and again.param("w", zeros, (2,)).tolist() == [1.0, 1.0]
    assert scope.get_variable("params", "w").tolist() == [1.0, 1.0]
    assert scope.rewound(rewind_rngs=True) != scope  # its keys are not those of the other


def test_a_child_called_twice_shares_its_parameters():
    def model(scope, x):
        layer = scope.child(core.nn.dense, "layer", features=3)
        return layer(layer(x))

    y, variables = init(model)(KEY, jnp.ones((2, 3)))
    assert toile.tree.map(jnp.shape, variables) == {
        "params": {"layer": {"bias": (3,), "kernel": (3, 3)}}
    }
    w = variables["params"]["layer"]["kernel"]
    np.testing.assert_allclose(y, jnp.ones((2, 3)) @ w @ w, rtol=1e-6)


def test_equality_is_of_the_place():
    scope = root()
    a, b = scope.push("a"), scope.push("b")
    assert a == scope.push("a", reuse=True) and hash(a) == hash(scope.push("a", reuse=True))
    assert a != b and a != root().push("a") and a != "a"


# Variables and collections.


def test_variables_are_made_read_and_written():
    scope = root(mutable=["state"])
    child = scope.push("child")
    count = child.variable("state", "count", lambda start: start + 1, 4)
    count.value += 1
    assert isinstance(count, Variable) and count.value == 6 and count.is_mutable()
    assert repr(count) == "Variable(state: child/count = 6)"
    assert scope.variables() == {"state": {"child": {"count": 6}}} == scope.mutable_variables()
    assert child.has_variable("state", "count") and not scope.has_variable("state", "count")
    assert child.get_variable("state", "nothing", 7) == 7
    assert child.is_mutable_collection("state") and not child.is_mutable_collection("params")


def test_writing_a_dict_keeps_the_references_of_children():
    scope = root()
    child = scope.push("child")
    child.put_variable("state", "x", 1)
    scope.put_variable("state", "child", {"x": 2, "y": 3})
    assert child.get_variable("state", "x") == 2 and child.get_variable("state", "y") == 3


def test_inputs_are_not_changed():
    variables = {"state": {"a": {"n": 1}}, "params": FrozenDict({"w": 2.0})}

    def count(scope):
        child = scope.push("a")
        child.put_variable("state", "n", child.get_variable("state", "n") + 1)
        return scope.get_variable("params", "w")

    y, changed = apply(count, mutable="state")(variables)
    assert (y, changed) == (2.0, {"state": {"a": {"n": 2}}})
    assert variables["state"] == {"a": {"n": 1}} and type(changed) is dict


def test_frozen_results():
    with config.temp_flip_flag("return_frozendict", True):
        _, variables = init(lambda scope: scope.param("w", zeros, ()))(KEY)
        assert isinstance(variables, FrozenDict)
        assert isinstance(bind(variables).variables(), FrozenDict)


def test_what_cannot_be_found_or_changed():
    scope = root(mutable=False, variables={"params": {"w": jnp.ones(2)}, "state": {}}).rewound()
    with pytest.raises(errors.ModifyScopeVariableError, match='"n" in "/" .*"state" is immutable'):
        scope.put_variable("state", "n", 1)
    with pytest.raises(errors.ScopeCollectionNotFound, match='"n" from collection "state" in "/"'):
        scope.variable("state", "n", lambda: 1)
    with pytest.raises(errors.ScopeParamNotFoundError, match='parameter named "v" in scope "/"'):
        scope.param("v", zeros, (2,))
    with pytest.raises(errors.ScopeParamNotFoundError, match='scope "/inner"'):
        scope.push("inner").param("v", zeros, (2,))
    with pytest.raises(errors.ScopeCollectionNotFound, match='"w".*"params" in "/"'):
        root(mutable=False).param("w", zeros, ())
    with pytest.raises(
        errors.ScopeVariableNotFoundError, match='named "v" .*"params" exists in "/"'
    ):
        scope.rewound().variable("params", "v", lambda: 1)
    with pytest.raises(errors.ScopeCollectionNotFound):  # mutable, but nothing to make it with
        root().variable("state", "n")


@pytest.mark.parametrize("init_fn", [zeros, lambda key, shape: jnp.zeros(shape)])
def test_parameters_have_the_shapes_of_their_initializers(init_fn):
    scope = root(mutable=False, variables={"params": {"a": {"w": jnp.ones((2, 3))}}}).push("a")
    assert scope.rewound().param("w", init_fn, (2, 3)).shape == (2, 3)
    message = r'"w" in "/a".*generate shape \(3, 2\).*has shape \(2, 3\)'
    with pytest.raises(errors.ScopeParamShapeError, match=message):
        scope.rewound().param("w", init_fn, (3, 2))


def test_parameters_may_be_trees():
    make = lambda key, n: {"a": random.normal(key, (n,)), "b": [jnp.zeros(n)]}
    value, variables = init(lambda scope: scope.param("tree", make, 3))(KEY)
    apply(lambda scope: scope.param("tree", make, 3))(variables)
    assert value["a"].tolist() == random.normal(fold_in_static(KEY, (1,)), (3,)).tolist()
    with pytest.raises(errors.ScopeParamShapeError):
        apply(lambda scope: scope.param("tree", make, 4))(variables)


def test_boxes_are_opened_and_kept():
    box = core.meta.Partitioned(jnp.zeros(2), ("data",))
    scope = root()
    v = scope.variable("state", "x", lambda: box)
    assert v.value is box.value
    v.value = jnp.ones(2)
    stored = scope.get_variable("state", "x")
    assert isinstance(stored, core.meta.Partitioned) and stored.value.tolist() == [1.0, 1.0]
    assert scope.rewound().variable("state", "x", unbox=False).value is stored
    assert scope.param("w", lambda key: box) is box.value
    assert scope.rewound().param("w", lambda key: box, unbox=False) is box


def test_flags():
    def model(scope):
        assert not scope.push("a").has_flag("train")
        return scope.push("b").get_flag("initializing", False)

    assert init(model)(KEY)[0] is True and apply(model)({}) is False
    scope = bind({}, flags={"train": 3}).push("a")
    assert scope.has_flag("train") and scope.get_flag("train") == 3
    with pytest.raises(ValueError, match="Flag other not present"):
        scope.get_flag("other")


# The end of a scope.


def test_temporary_scopes_end():
    with root().temporary() as scope:
        child = scope.push("a")
        scope.put_variable("state", "n", 1)
    assert scope.invalid and not child.invalid
    for use in (
        lambda: scope.push("b"),
        lambda: scope.rewound(),
        lambda: scope.put_variable("state", "n", 2),
        lambda: scope.make_rng("params"),
        lambda: scope.param("w", zeros, ()),
    ):
        with pytest.raises(errors.InvalidScopeError, match="no longer valid"):
            use()
    assert scope.get_variable("state", "n") == 1  # reading stays allowed


@pytest.mark.parametrize("fails", [False, True])
def test_apply_ends_its_scope(fails):
    kept = []

    def model(scope):
        kept.append(scope)
        assert not fails

    if fails:
        with pytest.raises(AssertionError):
            apply(model)({})
    else:
        apply(model)({})
    assert kept[0].invalid


# Filters: each stands for a set of names. A universe of three and one name besides tells the
# infinite ones (True, DenyList) from the finite.

NAMES = ("a", "b", "c")
UNIVERSE = {*NAMES, "elsewhere"}
plain = st.one_of(
    st.booleans(),
    st.sampled_from(NAMES),
    st.lists(st.sampled_from(NAMES)),
    st.frozensets(st.sampled_from(NAMES)),
    st.lists(st.sampled_from(NAMES)).map(tuple),
)
filters = st.recursive(plain, lambda inner: inner.map(DenyList), max_leaves=3)


def taken(f):
    """The names of the universe that a filter takes in."""
    return {name for name in UNIVERSE if in_filter(f, name)}


@hypothesis.given(filters, filters)
def test_filters_are_sets(a, b):
    assert taken(union_filters(a, b)) == taken(a) | taken(b)
    assert taken(intersect_filters(a, b)) == taken(a) & taken(b)
    assert taken(subtract_filters(a, b)) == taken(a) - taken(b)
    assert taken(DenyList(a)) == UNIVERSE - taken(a)
    assert is_filter_empty(a) == (not taken(a))
    if "elsewhere" not in taken(a) and not isinstance(a, DenyList):
        assert filter_to_set(a) == taken(a)


@hypothesis.given(st.lists(filters, max_size=4))
def test_collections_go_to_the_first_filter(some):
    xs = {name: {"x": [i]} for i, name in enumerate(NAMES)}
    groups = group_collections(xs, some)
    seen = set()
    for f, group in zip(some, groups, strict=True):
        assert set(group) == (taken(f) & set(NAMES)) - seen
        assert all(group[name] == xs[name] and group[name] is not xs[name] for name in group)
        seen |= set(group)


def test_filters_that_are_none():
    for use in (in_filter, lambda f, _: is_filter_empty(f), lambda f, _: filter_to_set(f)):
        with pytest.raises(errors.InvalidFilterError, match="Invalid Filter"):
            use(3, "params")
    for infinite in (True, DenyList("a")):
        with pytest.raises(AssertionError, match="Infinite set"):
            filter_to_set(infinite)


def test_mutable_takes_any_filter():
    for mutable in (True, "state", ["state"], {"state"}, DenyList("params"), DenyList(())):
        _, changed = apply(lambda s: s.put_variable("state", "n", 1), mutable=mutable)({})
        assert changed == {"state": {"n": 1}}
    for mutable in (False, (), "params", DenyList(["state"]), DenyList(True)):
        with pytest.raises(errors.ModifyScopeVariableError):
            apply(lambda s: s.put_variable("state", "n", 1), mutable=mutable)({})


# Pure functions.


def test_init_and_apply_pass_arguments_and_take_keys_in_both_forms():
    def model(scope, x, *, k):
        return x * k * scope.param("w", toile.nn.initializers.normal(), ())

    y, variables = init(model)({"params": KEY}, 2.0, k=3.0)
    same, _ = init(model)(KEY, 2.0, k=3.0)
    assert y == same == apply(model)(variables, 2.0, k=3.0) == 6.0 * variables["params"]["w"]
    assert model.__name__ == apply(model).__name__
    frozen = FrozenDict(variables)
    assert apply(model)(frozen, 2.0, k=3.0) == y
    drawn = apply(lambda scope: scope.make_rng("any"))({}, rngs=KEY)
    assert words(drawn) == words(random.fold_in(KEY, 0xBF8B4530))


@pytest.mark.parametrize("rngs", [3, {"params": 0}, {0: 1}, random.split(random.key(0)), "key"])
def test_what_is_no_key(rngs):
    with pytest.raises(ValueError, match="First argument passed to an init function should be"):
        init(lambda scope: None)(rngs)
    with pytest.raises(ValueError, match="The ``rngs`` argument passed to an apply function"):
        apply(lambda scope: None)({}, rngs=rngs)
    with pytest.raises(errors.InvalidRngError, match="rngs should be a dictionary"):
        bind({}, rngs)


@pytest.mark.parametrize("variables", [3, {"params": 1}, {1: {}}, {"params": {1: 2}}, [1]])
def test_what_is_no_dict_of_collections(variables):
    for use in (apply(lambda scope: None), bind):
        with pytest.raises(errors.ApplyScopeInvalidVariablesTypeError, match="dictionary of coll"):
            use(variables)


def test_params_within_params():
    _, variables = init(lambda scope: scope.param("w", zeros, ()))(KEY)
    with pytest.raises(errors.ApplyScopeInvalidVariablesStructureError, match="extra params layer"):
        apply(lambda scope: None)({"params": variables})


def test_lazy_init_needs_no_inputs():
    def model(scope, x, k, flag=True):
        assert flag and k == 3
        h = scope.child(core.nn.dense, features=k)(x)
        scope.variable("state", "n", jnp.zeros, x.shape)
        return h

    shape = toile.ShapeDtypeStruct((1024 * 1024 * 1024, 2), jnp.float32)
    with pytest.raises(errors.LazyInitError):  # k is unknown to no one, the state needs no numbers
        lazy_init(lambda s, x: s.param("w", lambda key: x.sum()))(KEY, shape)
    small = toile.ShapeDtypeStruct((5, 2), jnp.float32)
    lazy = lazy_init(model)(KEY, small, 3, flag=True)
    _, eager = init(model)(KEY, jnp.ones((5, 2)), 3)
    assert toile.tree.structure(lazy) == toile.tree.structure(eager)
    for a, b in zip(toile.tree.leaves(lazy), toile.tree.leaves(eager), strict=True):
        assert a.dtype == b.dtype and a.tolist() == b.tolist()
    huge = lazy_init(lambda s, x: core.nn.dense(s, x, 3))(KEY, shape)
    assert huge["params"]["kernel"].shape == (2, 3)


def test_lazy_init_says_which_shape_depends_on_the_input():
    def model(scope, x):
        scope.param("fine", zeros, x.shape)
        return scope.param("w", lambda key: 2 * x)

    with pytest.raises(errors.LazyInitError, match=r"could not be computed.*float32\[8,4\]"):
        lazy_init(model)(KEY, toile.ShapeDtypeStruct((8, 4), jnp.float32))
    given = lazy_init(model)(KEY, jnp.ones((8, 4)))  # with an array it can be computed
    assert given["params"]["w"].sum() == 64


def test_lazy_init_sees_through_calls():
    """A compiled call with an unknown argument may have results that do not need it."""

    @toile.jit
    def pair(x, y):
        return 2 * x, jnp.ones(y.shape)

    def model(scope, x):
        doubled, ones = pair(x, x)
        scope.param("w", lambda key: ones)
        return doubled

    made = lazy_init(model)(KEY, toile.ShapeDtypeStruct((3,), jnp.float32))
    assert made["params"]["w"].tolist() == [1.0, 1.0, 1.0]


def test_constant_outputs():
    known = jnp.arange(3.0)
    outs = partial_eval.constant_outputs(
        lambda x: [known * 2, x + 1, jnp.zeros(x.shape)],
        [core.ShapedArray((2,), np.dtype("float32"))],
    )
    assert outs[0].tolist() == [0.0, 2.0, 4.0] and outs[1] is None and outs[2].tolist() == [0, 0]


def test_init_under_transforms():
    """Scopes made inside a transform belong to it: jit, vmap and grad around init and apply."""
    model = lambda scope, x: core.nn.dense(scope, x, 3).sum()
    x = jnp.ones((4, 2))
    _, variables = init(model)(KEY, x)
    _, compiled = toile.jit(init(model))(KEY, x)
    for a, b in zip(toile.tree.leaves(compiled), toile.tree.leaves(variables), strict=True):
        assert a.tolist() == b.tolist()
    _, many = toile.vmap(init(model), (0, None))(random.split(KEY), x)
    assert many["params"]["kernel"].shape == (2, 2, 3)
    assert many["params"]["kernel"][1].tolist() != many["params"]["kernel"][0].tolist()
    grads = toile.grad(apply(model))(variables, x)
    assert grads["params"]["kernel"].tolist() == [[4.0] * 3] * 2
    shapes = toile.eval_shape(init(model), KEY, x)[1]
    assert shapes["params"]["bias"].shape == (3,)


# Raw transforms around code that changes scopes.

TRANSFORMS = {
    "vmap": (lambda f: toile.vmap(f)(jnp.ones(2)), "nn.vmap"),
    "grad": (lambda f: toile.grad(f)(1.0), "nn.grad or nn.vjp"),
    "jvp": (lambda f: toile.jvp(f, (1.0,), (1.0,)), "nn.jvp"),
    "jit": (lambda f: toile.jit(f)(1.0), "nn.jit"),
    "checkpoint": (lambda f: toile.grad(toile.checkpoint(f))(1.0), "nn."),
    "scan": (lambda f: lax.scan(lambda c, x: (f(c), x), 1.0, jnp.ones(3)), "nn.scan"),
    "cond": (lambda f: lax.cond(jnp.array(True), f, f, 1.0), "nn.cond"),
    "while_loop": (lambda f: lax.while_loop(lambda c: c < 9.0, f, 1.0), "nn.while_loop"),
    "eval_shape": (lambda f: toile.eval_shape(f, 1.0), "nn."),
}
CHANGES = {
    "creates": lambda scope, x: x + scope.param("new", zeros, ()),
    "writes": lambda scope, x: (scope.put_variable("state", "n", x), x + 1.0)[1],
    "draws": lambda scope, x: x + random.uniform(scope.make_rng("params")),
    "in a child": lambda scope, x: core.nn.dense(scope.push(prefix="d"), x[None], 1)[0],
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", TRANSFORMS)
def test_raw_transforms_may_not_change_a_scope_from_outside(name, change):
    transform, lifted = TRANSFORMS[name]
    scope = root(variables={"params": {"w": jnp.array(2.0)}}).push("layer")
    with pytest.raises(errors.JaxTransformError) as e:
        transform(lambda x: CHANGES[change](scope.rewound(), x))
    assert lifted in str(e.value) and "layer" in str(e.value)
    assert scope.root.variables() == {"params": {"w": scope.root.get_variable("params", "w")}}
    assert words(scope.make_rng()) == words(fold_in_static(KEY, ("layer", 1)))  # none was drawn


@pytest.mark.parametrize("name", TRANSFORMS)
def test_raw_transforms_may_read(name):
    transform, _ = TRANSFORMS[name]
    scope = root(variables={"params": {"w": jnp.array(2.0)}, "state": {"n": jnp.array(3.0)}})

    def read(x):
        here = scope.rewound()
        w = here.param("w", zeros, ())
        return x * w + here.variable("state", "n", lambda: 0.0).value

    transform(read)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_scopes_made_inside_are_free(name):
    transform, _ = TRANSFORMS[name]

    def whole(x):
        y, variables = init(lambda scope: x + scope.param("w", zeros, ()))(KEY)
        return apply(lambda scope: y + random.uniform(scope.make_rng()))(variables, rngs=KEY)

    transform(whole)


def test_check_trace_level():
    level = core.current_trace()
    core.check_trace_level(level)

    def inside(x):
        with pytest.raises(errors.JaxTransformError, match="cannot be mixed"):
            core.check_trace_level(level)
        core.check_trace_level(core.current_trace())
        return x

    toile.vmap(inside)(jnp.ones(2))


def test_repr():
    assert repr(root(rngs=("a",)).push("x")) == "Scope(/x, mutable=True, rngs=['a'])"
    assert isinstance(root(), Scope)
