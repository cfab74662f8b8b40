"""Refs, the references to arrays that can be changed: as in jax.

A row is a program of the package that returns arrays and Refs, or a phrase and a program whose
error contains it in both packages. In the rows of `DIFFERENT`, jax raises an error or has a bug,
and the row also has the result.
"""

import functools
import re

import jax
import numpy as np
import pytest

import toile
import toile.numpy as jnp
from tests.golden.recorded import Record

pytestmark = pytest.mark.cpu

REFS = Record("refs")
FOUR = np.arange(4, dtype=np.float32)


def _ref(lib, value=0.0, **kwargs):
    return lib.new_ref(lib.numpy.asarray(value, np.float32), **kwargs)


def _set(ref, value, index=...):
    ref[index] = value


def _then(result, *_):
    """The first argument, after the others were evaluated."""
    return result


# ----------------------------------------------------------------------------------------- eager


def _indices(lib):
    r = _ref(lib, np.arange(12).reshape(3, 4))
    r[0] = r[1] * 2
    r[1, 2:] = lib.numpy.zeros(2)
    r[np.array([0, 2]), 1] = lib.numpy.ones(2)
    r[..., 3] += 1
    r.addupdate(lib.numpy.ones(4), 2)
    r.addupdate(lib.numpy.ones((3, 4)))
    lib.ref.addupdate(r, (0, slice(1, 3)), lib.numpy.full(2, 5.0))
    old = lib.ref.swap(r, (0, 0), 7.0)
    lib.ref.set(r, (1, 1), 9.0)
    return r, old, lib.ref.get(r, 2), r[:], r[()], len(r), r.shape, r.ndim, r.size


def _views(lib):
    @lib.jit
    def f(x):
        r = lib.new_ref(lib.numpy.ones(5))
        r.at[1:4][...] += x
        return r[...], r.at[1:4].at[1:][0]

    return f(np.float32([1, 2, 3])), lib.grad(lambda x: f(x)[0][1:3].sum())(np.float32([1, 2, 3]))


def _independent(lib):
    x = lib.numpy.arange(3.0)
    r = lib.new_ref(x)
    r[0] = 7.0
    y = r[...]
    r[1] = 8.0
    return x, y, r


# ------------------------------------------------------------------------------------------ jit


def _argument(lib):
    @lib.jit
    def f(r, y, s):
        r[...] += 1
        r[0] += s[...]
        s[...] = r[1] + y
        return r[...] * y, y

    r, s = _ref(lib, FOUR), _ref(lib)
    return f(r, 2.0, s), f(r, 3.0, s), r, s


def _trees(lib):
    @lib.jit
    def f(refs, x, *, other):
        refs["a"][...] = x
        other[0].addupdate(x)

    refs, other = {"a": _ref(lib), "b": _ref(lib, 5.0)}, [_ref(lib, 1.0)]
    f(refs, 2.0, other=other)
    return refs["a"], refs["b"], other[0]


def _variable(lib):
    r = _ref(lib, FOUR)

    @lib.jit
    def f(x):
        _set(r, r[1:] * x, slice(0, 3))
        return r[...].sum()

    g = lib.jit(lambda x: f(x) + f(2 * x))
    return f(2.0), r, g(1.0), r, f(0.0), r


def _write_only(lib):
    r = _ref(lib, FOUR)
    f = lib.jit(lambda s, x: _then(None, _set(r, x), _set(s, 2 * x)))
    s = _ref(lib, FOUR)
    f(s, FOUR + 1)
    return r, s


def _other_refs(lib):
    """One traced form serves all Refs of a type."""
    f = lib.jit(lambda r: r.addupdate(1.0))
    refs = [_ref(lib, v) for v in range(3)]
    for r in refs:
        f(r)
    f(refs[0])
    return refs


def _inner(lib):
    def f(x):
        r = lib.new_ref(x)
        lib.jit(lambda: _set(r, lib.numpy.sin(r[...]) + r[...]))()
        lib.jit(lambda s: _set(s, s[...] ** 2))(r)
        return lib.freeze(r)

    return [g(np.float32(2)) for g in (f, lib.jit(f), lib.grad(f), lib.jit(lib.grad(f)))]


def _stages(lib):
    """jax 0.11 calls a compiled stage only with Refs on devices that their user has chosen."""
    f = lib.jit(lambda r, x: _then(r[...] + x, r.addupdate(x)))
    r = _ref(lib)
    compiled = f.lower(r, 1.0).compile()
    out = compiled(r, 2.0), compiled(r, 3.0)
    struct = lib.ShapeDtypeStruct((), np.float32, is_ref=True)
    return *out, f.lower(struct, 1.0).compile()(r, 4.0), r


def _shape_of_result(lib):
    r = _ref(lib)
    shapes = lib.eval_shape(lambda s: _then(s[...] + 1, _set(s, 5.0)), r)
    return r, shapes.shape, shapes.dtype.name


def _empty(lib):
    @lib.jit
    def f(x):
        r = lib.empty_ref(lib.ShapeDtypeStruct((), "float32"))
        r[...] = 2.0 * x
        result = r[...]
        lib.free_ref(r)
        return result

    one = np.float32(1)
    return f(3.0), lib.jvp(f, (one,), (one,)), lib.grad(f)(one)


def _keys(lib):
    r = lib.new_ref(lib.random.key(0))
    r[...] = lib.random.fold_in(r[...], 1)
    f = lib.jit(lambda: _set(r, lib.random.split(r[...])[0]))
    f()
    f()
    return lib.random.key_data(r[...])


# ---------------------------------------------------------------------------------- control flow


def _scan(lib, run):
    r, s = _ref(lib), _ref(lib, FOUR)

    def body(c, x):
        r[...] += x
        s[1] = s[0] + r[...]
        return c + r[...], s[1]

    return run(lambda: lib.lax.scan(body, 0.0, FOUR)), r, s


def _scan_rows(lib, run, reverse=False):
    s = _ref(lib, np.arange(8).reshape(4, 2))

    def body(c, pair):
        i, row = pair
        row[0] += i
        row.addupdate(c, 1)
        return c + row[...].sum(), row[...]

    return run(lambda: lib.lax.scan(body, 0.0, (FOUR, s), reverse=reverse)), s


def _fori(lib, run):
    r, s = _ref(lib), _ref(lib, FOUR)

    def body(i, c):
        s[i] = c
        r.addupdate(1.0)
        return c + r[...]

    return run(lambda: lib.lax.fori_loop(0, 3, body, np.float32(0))), r, s


def _traced_fori(lib):
    r = _ref(lib, FOUR)
    f = lib.jit(lambda n: lib.lax.fori_loop(0, n, lambda i, c: _then(c, _set(r, c, i)), 5.0))
    return f(3), r


def _cond(lib, run):
    r, s = _ref(lib), _ref(lib, 1.0)

    def f(p):
        return lib.lax.cond(p, lambda x: _then(x, _set(r, x + s[...])),
                            lambda x: _then(x + 1, _set(s, r[...])), np.float32(3))

    return [(run(lambda p=p: f(p)), r[...], s[...]) for p in (True, False)]


def _switch(lib, run):
    r = _ref(lib, 3.0)
    branches = [lambda x: _set(x, 1.0), lambda x: _set(x, x[...] * 2), lambda x: None]
    found = []
    for i in (1, 2, 0, 1):
        run(lambda i=i: lib.lax.switch(i, branches, r))
        found.append(r[...])
    return found


def _nested(lib, run):
    r, s = _ref(lib), _ref(lib, FOUR)

    def inner(i, v):
        lib.lax.cond(i > 0, lambda: r.addupdate(1.0), lambda: s.addupdate(r[...] + FOUR))
        return v

    def body(c, _):
        return lib.lax.fori_loop(0, 2, inner, c), lib.jit(lambda: r[...] + s[0])()

    return run(lambda: lib.lax.scan(body, np.float32(0), None, length=3)), r, s


def _map(lib, run):
    r = _ref(lib)
    return run(lambda: lib.lax.map(lambda x: _then(r[...], r.addupdate(x)), FOUR)), r


# -------------------------------------------------------------------------------- vmap, gradients


def _vmap(lib, axes=(0, 0)):
    r = _ref(lib, np.arange(8).reshape(2, 4) if axes[0] else np.arange(8).reshape(4, 2))
    f = lib.vmap(lambda r, x: _then(r[...] * x, r.addupdate(x * np.ones(2, np.float32))), axes)
    return f(r, FOUR), r


def _vmap_jit(lib):
    r, s = _ref(lib, FOUR), _ref(lib, 2.0)
    f = lib.jit(lambda r, x: _set(r, r[...] * x + s[...]))
    lib.vmap(f)(r, FOUR)
    lib.jit(lib.vmap(f))(r, FOUR)
    return r


def _vmap_makes(lib):
    def f(x):
        r = lib.new_ref(1.0)
        r[...] += x
        return r[...], lib.new_ref(x)

    values, refs = lib.vmap(lib.jit(lambda x: f(x)[0]))(FOUR), lib.vmap(lib.new_ref)(FOUR)
    refs[1] = 7.0
    return values, refs


def _grad_inside(lib):
    def f(x):
        r = lib.new_ref(lib.numpy.zeros_like(x))
        r[...] = x
        lib.lax.fori_loop(0, 3, lambda i, c: _then(c, _set(r, lib.numpy.sin(r[...]) * 2)), 0)
        return r[...]

    two = np.float32(2)
    return f(two), lib.grad(f)(two), lib.jit(lib.grad(f))(two), lib.jvp(f, (two,), (two,))


def _grad_read(lib):
    r = _ref(lib, 3.0)
    f = lambda x: x * r[...]
    before = lib.grad(f)(2.0), lib.grad(lib.jit(f))(2.0), lib.grad(lambda x, r: x * r[...])(2.0, r)
    r[...] = 5.0
    return before, lib.grad(f)(2.0), lib.grad(lib.jit(f))(2.0), lib.vmap(f)(FOUR)


def _grad_count(lib):
    """A counter in a loop that is differentiated counts each step once."""
    r = lib.new_ref(0)

    def f(x):
        return lib.lax.scan(lambda c, _: _then((lib.numpy.sin(c), ()), _set(r, r[...] + 1)), x, (),
                            length=3)[0]

    return lib.grad(f)(1.0), lib.jit(lib.grad(f))(1.0), r


def _stash(lib):
    """A custom_vjp function that stores its cotangent in a Ref."""
    @lib.custom_vjp
    def stash(ref, x):
        return x

    def bwd(ref, ct):
        ref[...] = ct
        return None, ct

    stash.defvjp(lambda ref, x: (x, ref), bwd)
    return stash


def _stashed(lib, wrap):
    stash, r = _stash(lib), _ref(lib)

    def f(r, x):
        x = stash(r, lib.numpy.sin(x))
        return stash(r, lib.numpy.sin(x))  # the backward pass comes here first

    return wrap(lib, f)(r, np.float32(1)), r


def _stashed_in_scan(lib, wrap, checkpoint):
    stash, r = _stash(lib), _ref(lib)

    def f(r, x):
        def body(x, _):
            return lib.numpy.sin(stash(r, lib.numpy.sin(x))), None

        return lib.lax.scan(lib.checkpoint(body) if checkpoint else body, x, None, length=2)[0]

    return wrap(lib, f)(r, np.float32(1)), r


def _history(lib, wrap):
    r = _ref(lib, FOUR)

    @lib.custom_vjp
    def scaled(x):
        return x

    def bwd(_, ct):
        r[...] = lib.numpy.roll(r[...], 1).at[0].set(lib.numpy.abs(ct).max())
        return (ct / r[...].max(),)

    scaled.defvjp(lambda x: (x, None), bwd)
    f = wrap(lib, lambda _, x: scaled(x * FOUR).sum())
    return f(None, np.float32(2)), f(None, np.float32(3)), r


WRAPS = {
    "eager": lambda lib, f: lib.grad(f, 1),
    "of_jit": lambda lib, f: lib.grad(lib.jit(f), 1),
    "in_jit": lambda lib, f: lib.jit(lib.grad(f, 1)),
    "both": lambda lib, f: lib.jit(lib.grad(lib.jit(f), 1)),
    "vjp": lambda lib, f: lambda r, x: lib.vjp(lambda x: f(r, x), x)[1](np.float32(1)),
}


def _rule_of_ref(lib):
    @lib.custom_vjp
    def f(r):
        return r[...] * 2

    f.defvjp(lambda r: (f(r), None), lambda _, ct: (ct,))
    return [g(np.float32(3)) for g in (
        lambda x: f(lib.new_ref(x)), lib.grad(lambda x: f(lib.new_ref(x))),
        lib.jit(lambda x: f(lib.new_ref(x))), lib.grad(lambda x: lib.jit(f)(lib.new_ref(x))))]


def _accumulated(lib, wrap):
    def f(w, batch):
        total = lib.new_ref(lib.numpy.zeros_like(w))

        def step(_, x):
            loss, back = lib.vjp(lambda w: lib.numpy.sin(x * w).sum(), w)
            back.with_refs(total)(lib.numpy.ones_like(loss))
            return (), loss

        return lib.lax.scan(step, (), batch)[1], lib.freeze(total)

    return wrap(f)(FOUR, np.arange(12, dtype=np.float32).reshape(3, 4))


def _unrecorded(lib):
    r = _ref(lib, 1.0, kind="no_grad_no_remat")
    f = lambda x: _then(x * x, _set(r, r[...] + x))
    return lib.grad(f)(2.0), lib.grad(lib.jit(f))(3.0), r


ROWS = {
    "indices": _indices, "views": _views, "independent": _independent, "argument": _argument,
    "trees": _trees, "variable": _variable, "write_only": _write_only, "other_refs": _other_refs,
    "inner": _inner, "shape_of_result": _shape_of_result, "empty": _empty, "keys": _keys,
    "traced_fori": _traced_fori, "vmap": _vmap, "vmap_axis": lambda lib: _vmap(lib, (1, 0)),
    "vmap_jit": _vmap_jit, "vmap_makes": _vmap_makes, "grad_inside": _grad_inside,
    "grad_read": _grad_read, "grad_count": _grad_count, "rule_of_ref": _rule_of_ref,
    "accumulated": lambda lib: _accumulated(lib, lambda f: f),
    "accumulated_jit": lambda lib: _accumulated(lib, lib.jit),
    "bool_of_type": lambda lib: [isinstance(_ref(lib), lib.Ref), isinstance(_ref(lib), lib.Array)],
    "unrecorded": _unrecorded,
}
for _f in (_scan, _scan_rows, functools.partial(_scan_rows, reverse=True), _fori, _cond, _switch,
           _nested, _map):
    _name = getattr(_f, "__name__", "_scan_rows_reverse").removeprefix("_")
    ROWS[_name] = lambda lib, f=_f: f(lib, lambda run: run())
    ROWS[f"{_name}_jit"] = lambda lib, f=_f: f(lib, lambda run: lib.jit(run)())
for _name, _wrap in WRAPS.items():
    ROWS[f"stashed_{_name}"] = lambda lib, w=_wrap: _stashed(lib, w)
    ROWS[f"history_{_name}"] = lambda lib, w=_wrap: _history(lib, w)
    for _c in (False, True):
        ROWS[f"stashed_in_scan_{_name}_{_c}"] = (
            lambda lib, w=_wrap, c=_c: _stashed_in_scan(lib, w, c))


def _leaked(lib):
    kept = []
    lib.jit(lambda x: kept.append(lib.new_ref(x)))(1.0)
    return kept[0][...]


def _differentiated(lib, wrap):
    r = _ref(lib)
    return wrap(lib.grad(lambda x: _then(x, _set(r, x))))(1.0)


def _made_for_bwd(lib):
    f = lib.custom_vjp(lambda x: x)
    f.defvjp(lambda x: (x, lib.new_ref(0)), lambda r, ct: (ct,))
    return lib.grad(f)(1.0)


def _twice(lib, run):
    r = _ref(lib)
    return run(r, r)


UNBATCHED = "performing an? .* operation with vmapped value on an unbatched array reference"
RETURNED = r"traced for {} returned a mutable array reference of type Ref\{{"
TWICE = "only one reference to a mutable array may be passed.*"
BOTH_WAYS = "was both closed over and passed as the argument y"
ERRORS = {
    "returned_jit": (RETURNED.format("jit") + r"int32\[3\].*\n\nThe returned mutable array was "
                     "created on line", lambda lib: lib.jit(lib.new_ref)(np.arange(3))),
    "returned_argument": (
        RETURNED.format("jit") + r".*\n\n.*was passed in as the argument x_ref",
        lambda lib: lib.jit(lambda x_ref: {"a": x_ref})(_ref(lib))),
    "returned_scan": (RETURNED.format("scan"), lambda lib: lib.lax.scan(
        lambda c, x: (lib.new_ref(c), x), 0, np.arange(3))),
    "returned_cond": (RETURNED.format("cond"), lambda lib: lib.lax.cond(
        True, lambda: lib.new_ref(1.0), lambda: lib.new_ref(2.0))),
    "returned_custom_vjp": ("returned a mutable array reference", lambda lib: lib.jit(
        _rules(lib, lambda r: r))(_ref(lib))),
    "carried_while": ("returned a mutable array reference", lambda lib: lib.lax.while_loop(
        lambda c: False, lambda c: c, _ref(lib))),
    "carried_scan": ("returned a mutable array reference", lambda lib: lib.lax.scan(
        lambda c, _: (c, None), _ref(lib), length=2)),
    "twice_jit": (TWICE + "for jit.* at both x and y", lambda lib: _twice(
        lib, lib.jit(lambda x, y: x[...] + y[...]))),
    "twice_vmap": (TWICE + "for vmap.* at both x and y", lambda lib: lib.vmap(lambda x, y: None)(
        *[_ref(lib, FOUR)] * 2)),
    "twice_scan": (TWICE + r"for scan.* at both c\[0\] and c\[1\]", lambda lib: _twice(
        lib, lambda *rs: lib.lax.scan(lambda c, _: (None, None), rs, None, length=1))),
    "twice_cond": (TWICE + "for cond.* at both x and y", lambda lib: _twice(
        lib, lambda *rs: lib.lax.cond(True, lambda x, y: 0, lambda x, y: 0, *rs))),
    "twice_custom_vjp": (TWICE + "x and y", lambda lib: _twice(
        lib, _rules(lib, lambda x, y: 0.0))),
    "variable_jit": (BOTH_WAYS, lambda lib: _both_ways(lib, lambda f, r: lib.jit(f)(r))),
    "variable_written_jit": (BOTH_WAYS, lambda lib: _both_ways(
        lib, lambda f, r: lib.jit(lambda y: _then(y[...], _set(r, 1.0)))(r))),
    "variable_cond": (BOTH_WAYS, lambda lib: _both_ways(
        lib, lambda f, r: lib.lax.cond(True, f, f, r))),
    "unbatched": (UNBATCHED, lambda lib: (lambda r: lib.vmap(lambda x: _set(r, x))(FOUR))(
        _ref(lib))),
    "unbatched_add": (UNBATCHED, lambda lib: (lambda r: lib.vmap(r.addupdate)(FOUR))(_ref(lib))),
    "unbatched_argument": (UNBATCHED, lambda lib: lib.vmap(_set, (None, 0))(_ref(lib), FOUR)),
    "unbatched_jit": (UNBATCHED, lambda lib: lib.vmap(lib.jit(_set), (None, 0))(_ref(lib), FOUR)),
    "differentiated": ("differentiated value on a non-differentiated array reference",
                       lambda lib: _differentiated(lib, lambda f: f)),
    "differentiated_jit": ("Move the array reference", lambda lib: _differentiated(lib, lib.jit)),
    "made_for_bwd": ("fwd function .* returned a mutable array reference", _made_for_bwd),
    "leaked": ("unexpected tracer", _leaked),
    "dtype": ("Invalid dtype for `swap`", lambda lib: _set(_ref(lib), lib.numpy.int32(1))),
    "dtype_in_jit": ("Invalid dtype", lambda lib: lib.jit(_set)(_ref(lib), lib.numpy.int32(1))),
    "shape": ("Invalid shape for `swap`", lambda lib: _set(_ref(lib, FOUR), np.ones(2, "f"))),
    "operand": ("Ref", lambda lib: lib.numpy.add(_ref(lib), 1)),
}


def _rules(lib, f):
    made = lib.custom_vjp(f)
    made.defvjp(lambda *_: None, lambda *_: None)
    return made


def _both_ways(lib, run):
    r = _ref(lib)
    return run(lambda y: r[...] + y[...], r)


def _concrete(x):
    return x[...] if isinstance(x, (toile.Ref, jax.Ref)) else x


def _values(lib, row):
    """What a row gives, as NumPy arrays."""
    found = lib.tree.leaves(row(lib))
    return [x if isinstance(x, str) else np.asarray(_concrete(x)) for x in found]


def _message(lib, row):
    try:
        return repr(row(lib))
    except Exception as error:
        return f"{type(error).__name__}: {error}"


@pytest.mark.parametrize("name", ROWS)
def test_same_as_jax(name):
    want = REFS.in_test(lambda: _values(jax, ROWS[name]))
    got = _values(toile, ROWS[name])
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        if isinstance(b, str):
            assert a == b
            continue
        assert a.shape == b.shape and a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize("name", ERRORS)
def test_errors_of_jax(name):
    phrase, row = ERRORS[name]
    want, got = REFS.in_test(lambda: _message(jax, row)), _message(toile, row)
    for text in (want, got):
        assert re.search(phrase, text, re.DOTALL | re.IGNORECASE), text


def _while(lib):
    r = _ref(lib)
    out = lib.lax.while_loop(lambda c: c + r[...] < 10, lambda c: _then(c + 1, r.addupdate(c)), 1.0)
    return out, r


def _vmapped_cond(lib):
    r = _ref(lib, FOUR)
    lib.vmap(lambda r, x: lib.lax.cond(x > 1, lambda: _set(r, x), lambda: _set(r, -x)))(r, FOUR)
    return r


def _nested_vmap(lib):
    r = _ref(lib, np.zeros((2, 3)))
    lib.vmap(lib.vmap(lambda r, x: r.addupdate(x)))(r, np.arange(6, dtype="f").reshape(2, 3))
    return r


def _counted(lib):
    r = _ref(lib)
    grad = lib.grad(lib.checkpoint(lambda x: _then(lib.numpy.sin(x) * r[...], r.addupdate(1.0))))
    return grad(0.0), lib.jit(grad)(0.0), r


def _reverse_while(lib):
    """The gradient of a while loop that changes a Ref; the values of the Ref are the products."""
    def f(x, n):
        r = lib.new_ref(x)
        lib.lax.fori_loop(0, n, lambda i, c: _then(c, _set(r, r[...] * x)), 0)
        return r[...]

    return lib.grad(f)(2.0, 3), lib.jit(lib.grad(f))(2.0, 3)


def _chosen_rule(lib):
    stash, r = _stash(lib), _ref(lib)
    grads = [lib.grad(lambda x, p=p: lib.lax.cond(p, lambda: stash(r, x * 2), lambda: x))(1.0)
             for p in (True, False)]
    return *grads, r


DIFFERENT = {
    "while": (_while, [4, 6]), "vmapped_cond": (_vmapped_cond, [[0, -1, 2, 3]]),
    "nested_vmap": (_nested_vmap, [[[0, 1, 2], [3, 4, 5]]]), "counted": (_counted, [0, 1, 2]),
    "reverse_while": (_reverse_while, [32, 32]), "chosen_rule": (_chosen_rule, [2, 1, 1]),
    "stages": (_stages, [2, 5, 9, 9]),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_programs_that_jax_refuses(name):
    row, want = DIFFERENT[name]
    for a, b in zip(_values(toile, row), want, strict=True):
        np.testing.assert_allclose(a, b)


REFUSED = {
    "condition": lambda r: toile.lax.while_loop(
        lambda c: _then(c < 3, r.addupdate(1.0)), lambda c: c + 1, 0),
    "linear_transpose": lambda r: toile.linear_transpose(lambda x: _then(x, _set(r, 1.0)), 1.0),
    "traced_rule": lambda r: toile.jit(toile.grad(lambda x, p: toile.lax.cond(
        p, lambda: _stash(toile)(r, x), lambda: x)))(1.0, True),
    "program": lambda r: toile.grad(lambda x: toile.core.eval_jaxpr(
        *(lambda m: (m.jaxpr, m.consts))(toile.make_jaxpr(_stash(toile))(r, 1.0)), r[...], x)[0])(
            1.0),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_supported_says_so(name):
    with pytest.raises(NotImplementedError, match="needed"):
        REFUSED[name](_ref(toile))


def test_a_ref_is_released_with_its_function():
    r = toile.new_ref(jnp.ones(3))
    toile.free_ref(r)
    with pytest.raises(RuntimeError, match="freed"):
        toile.freeze(r)
    with pytest.raises(ValueError, match="from outside"):
        toile.jit(toile.free_ref)(toile.new_ref(1.0))
        r = toile.new_ref(1.0)
        toile.jit(lambda: toile.free_ref(r))()


def test_deleted_and_donated_arrays_leave_refs_alone():
    x = jnp.arange(3.0)
    r = toile.new_ref(x)
    x.delete()
    toile.jit(lambda y: y + 1, donate_argnums=0)(r[...])
    assert r[...].tolist() == [0, 1, 2]


def test_calls_with_refs_are_traced_once():
    f = toile.jit(lambda r, x: r.addupdate(x))
    for value in (1.0, 2.0, 3.0):
        f(_ref(toile, value), value)
    assert len(f.why()) == 1
    assert f.eval_shape(_ref(toile), 1.0) is None


def test_checks_and_steps_do_not_keep_refs():
    with toile.checks("index"):
        r = _ref(toile, FOUR)
        r[1] = 5.0
    assert r[...].tolist() == [0, 5, 2, 3]
    with toile.ensure_compile_time_eval():
        s = _ref(toile, 2.0)
    assert toile.jit(lambda: s[...] * 2)() == 4
