"""`einsum`, which parses its subscripts and contracts operands in pairs with `dot_general`.

The order of contraction comes from NumPy's einsum_path. Plans are cached, so that planning a
repeated call costs only a dictionary lookup. Labels are characters; an ellipsis is replaced by one
label for each axis that it stands for.
"""

from __future__ import annotations

import functools
import string
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from toile import lax
from toile.engine.annotations import Array, ArrayLike, DTypeLike
from toile.engine.source import describe, here
from toile.numpy import _helpers as h
from toile.numpy import contractions, diagonals, manipulation
from toile.numpy._helpers import promote
from toile.numpy._operands import no_out


def _from_sublists(operands: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
    """Convert the form einsum(x, [0, 1], y, [1, 2], [0, 2]) to the form with a string."""
    pairs, rest = len(operands) // 2, len(operands) % 2
    arrays = operands[0:2 * pairs:2]
    lists = list(operands[1:2 * pairs:2])
    seen: list[Any] = []
    for part in [*lists, *([operands[-1]] if rest else [])]:
        for v in part:
            if v is not Ellipsis and v not in seen:
                seen.append(v)
    letters = dict(zip(sorted(seen), string.ascii_lowercase + string.ascii_uppercase))
    spell = lambda part: "".join("..." if v is Ellipsis else letters[v] for v in part)
    text = ",".join(spell(part) for part in lists)
    return (text + "->" + spell(operands[-1]) if rest else text), arrays


def _normal_form(subscripts, ranks):
    """Return the labels of each operand and of the output, with ellipses expanded."""
    text = subscripts.replace(" ", "")
    left, arrow, out = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise ValueError(f"einsum: needed {len(terms)} operands for {subscripts!r}, got "
                         f"{len(ranks)} (the commas separate the operands){here()}")
    for c in text.replace("->", "").replace(",", "").replace("...", ""):
        if not c.isalnum():
            raise ValueError(f"einsum: needed letters or digits in the subscripts, got {c!r} in "
                             f"{subscripts!r}{here()}")
    used = set(text)
    spare = [c for c in string.ascii_letters + "".join(map(chr, range(192, 400)))
             if c not in used]
    widths = [rank - len(t.replace("...", "")) if "..." in t else 0
              for t, rank in zip(terms, ranks)]
    widest = max(widths, default=0)
    dots = "".join(spare[:widest])
    full = []
    for t, rank, width in zip(terms, ranks, widths):
        t = t.replace("...", dots[widest - width:])
        if len(t) != rank or width < 0:
            raise ValueError(f"einsum: needed {len(t)} axes for {t!r} in {subscripts!r}, got an "
                             f"operand of rank {rank} (use one letter for each axis, or ... for "
                             f"leading axes){here()}")
        full.append(t)
    if arrow:
        out = out.replace("...", dots)
    else:
        joined = "".join(full)
        out = dots + "".join(sorted(c for c in set(joined) if joined.count(c) == 1
                                    and c not in dots))
    if len(set(out)) != len(out) or set(out) - set("".join(full)):
        raise ValueError(f"einsum: needed output labels that are distinct and occur in the inputs, "
                         f"got {out!r} in {subscripts!r}{here()}")
    return full, out


def _sizes(terms, shapes, subscripts):
    sizes: dict[str, int] = {}
    for term, dims in zip(terms, shapes):
        for c, n in zip(term, dims):
            have = sizes.get(c, 1)
            if have != 1 and n != 1 and have != n:
                raise ValueError(f"einsum: size of label {c!r} ({n}) does not match previous terms "
                                 f"({have}) in {subscripts!r} (rename the label, or transpose an "
                                 f"operand){here()}")
            sizes[c] = n if have == 1 else have
    return sizes


@functools.lru_cache(maxsize=4096)
def _plan(subscripts, shapes, optimize):
    """Return (terms, output labels, contraction order) for operands of the given shapes."""
    terms, out = _normal_form(subscripts, [len(s) for s in shapes])
    sizes = _sizes(terms, shapes, subscripts)
    count = len(terms)
    if isinstance(optimize, tuple):
        order = [p for p in optimize if p != "einsum_path"]
    elif count <= 2 or optimize is False:
        order = [(0, 1)] * (count - 1) if count > 1 else [(0,)]
    else:
        # stand-ins without memory: einsum_path looks at shapes only
        rename = dict(zip(sizes, string.ascii_letters))
        text = ",".join("".join(rename[c] for c in t) for t in terms)
        text += "->" + "".join(rename[c] for c in out)
        dummies = [np.broadcast_to(np.float32(0), tuple(sizes[c] for c in t)) for t in terms]
        how = {"auto": "optimal" if count <= 4 else "greedy", True: "greedy"}.get(
            optimize, optimize)
        how = how if how in ("greedy", "optimal") else "greedy"
        order = np.einsum_path(text, *dummies, optimize=how)[0][1:]
    return terms, out, order


@functools.lru_cache(maxsize=4096)
def _simple(subscripts, shapes):
    """Return (dimension numbers, permutation or None) if one dot_general is enough, else None.

    One dot_general is enough if no label repeats within an operand, no label that occurs in only
    one of the two operands is summed over, and the sizes agree.
    """
    (xs, ys), out, _ = _plan(subscripts, shapes, "auto")
    sizes = _sizes((xs, ys), shapes, subscripts)
    if len(set(xs)) != len(xs) or len(set(ys)) != len(ys):
        return None
    if any(sizes[c] != n for t, s in zip((xs, ys), shapes) for c, n in zip(t, s)):
        return None
    if any(c not in out for c in set(xs) ^ set(ys)):
        return None
    numbers, made = _dot_numbers(xs, ys, out)
    perm = tuple(made.index(c) for c in out)
    return numbers, None if perm == tuple(range(len(perm))) else perm


def _dot_numbers(xs, ys, keep):
    """Find the dimension numbers of the product of two operands, and the labels of its result.

    The result has the labels of the batch first, then those of x alone and those of y alone.
    Shared labels are summed over unless they are in `keep`.
    """
    batch = [c for c in xs if c in ys and c in keep]
    summed = [c for c in xs if c in ys and c not in keep]
    places = lambda labels, t: tuple(t.index(c) for c in labels)
    numbers = ((places(summed, xs), places(summed, ys)), (places(batch, xs), places(batch, ys)))
    return numbers, "".join((*batch, *(c for c in xs if c not in ys),
                             *(c for c in ys if c not in xs)))


def _simplify(x, labels, keep, sizes):
    """Take diagonals of repeated labels, sum over labels that are not kept, drop broadcast axes."""
    for c in dict.fromkeys(labels):
        while labels.count(c) > 1:
            i = labels.index(c)
            j = labels.index(c, i + 1)
            x = diagonals.diagonal(x, 0, i, j)
            labels = labels[:i] + labels[i + 1:j] + labels[j + 1:] + c
    drop = tuple(i for i, c in enumerate(labels) if x.shape[i] == 1 and sizes[c] != 1)
    if drop:
        x = lax.squeeze(x, drop)
        labels = "".join(c for i, c in enumerate(labels) if i not in drop)
    gone = tuple(i for i, c in enumerate(labels) if c not in keep)
    if gone:
        x = _sum(x, gone)
        labels = "".join(c for c in labels if c in keep)
    return x, labels


def _sum(x, axes):
    if x.dtype == np.bool_:
        return lax.reduce_or(x, axes)
    return lax.reduce_sum(x, axes)


def _pair(x, xs, y, ys, keep, options):
    """Contract two operands after `_simplify`, and return the result and its labels."""
    numbers, labels = _dot_numbers(xs, ys, keep)
    out = options["dot"](x, y, numbers, precision=options["precision"],
                         preferred_element_type=options["preferred"])
    return out, labels


def _by_own_product(dot, arrays, simple, precision, preferred):
    """Contract two operands with a caller's dot_general, which may treat its operands differently.

    The caller can rely on the order of the operands: the second one comes first, unless the result
    needs no transposition.
    """
    (x, y), (numbers, perm) = arrays, simple
    options = {"precision": precision, "preferred_element_type": preferred}
    if perm is None:
        return dot(x, y, numbers, **options)
    (cx, cy), (bx, by) = numbers
    out = dot(y, x, ((cy, cx), (by, bx)), **options)
    own = x.ndim - len(cx) - len(bx)  # axes of x alone, which are last
    axes = list(range(out.ndim))
    axes = axes[:len(bx)] + axes[out.ndim - own:] + axes[len(bx):out.ndim - own]
    return lax.transpose(out, tuple(axes[i] for i in perm))


def einsum(subscripts: str | ArrayLike, /, *operands: ArrayLike | Sequence[Any], out: None = None,
           optimize: bool | Literal["auto", "greedy", "optimal"] | Sequence[Any] = "auto",
           precision: lax.PrecisionLike = None, preferred_element_type: DTypeLike | None = None,
           _dot_general: Callable[..., Array] | None = None, out_sharding: object = None) -> Array:
    """Compute sums of products in Einstein notation, which names each axis with a letter.

    In "ij,jk->ik", the first operand has axes i and j, the second has axes j and k, and the result
    has axes i and k. Axes with the same letter are matched; letters that are missing from the
    result are summed over. If "->" is missing, the axes of the result are the letters that occur
    once, in alphabetical order. A letter that occurs twice in one operand selects the diagonal.
    "..." represents all remaining axes, which are broadcast.

    Args:
        subscripts: letters of each operand and of the result. Alternatively, follow each array with
            a list of integers that name its axes, and optionally end with a list for the result:
            `einsum(x, [0, 1], y, [1, 2], [0, 2])`.
        operands: arrays or numbers, one for each part of `subscripts`.
        out: not supported; must be None.
        optimize: the order in which to contract three or more operands: "optimal", "greedy" (or
            True), False for the order in which the operands are passed, or a list of positions from
            `einsum_path`. "auto" is "optimal" for up to four operands and "greedy" for more.
        precision: precision of the multiplication, as in `lax.dot_general`; None for the default.
        preferred_element_type: dtype of the sums and of the result; None for the promoted
            dtype.
        out_sharding: accepted for compatibility with JAX, and ignored.

    Returns:
        An array with an axis for each letter of the result, in the dtype that the operands promote
        to. For booleans, AND replaces multiplication and OR replaces addition.

    Raises:
        ValueError: the subscripts do not fit the operands.

    Differences:
        NumPy has `dtype`, `order` and `casting` instead of `precision` and
        `preferred_element_type`.

    >>> x, y = jnp.array([[1, 2], [3, 4]]), jnp.array([10, 100])
    >>> jnp.einsum("ij,j->i", x, y)  # a matrix times a vector
    Array([210, 430], dtype=int32)
    >>> jnp.einsum("ii", x)  # the trace
    Array(5, dtype=int32)
    """
    no_out("einsum", out)
    if not isinstance(subscripts, str):
        if any(isinstance(x, str) for x in operands):
            raise TypeError("einsum: needed the subscripts as the first argument, got "
                            f"{describe(subscripts)} (write einsum('ij,jk->ik', x, y)){here()}")
        subscripts, operands = _from_sublists((subscripts, *operands))
    preferred = contractions.element_type(preferred_element_type)
    arrays = promote(*operands, name="einsum")
    weak = all(x.weak_type for x in arrays)
    shapes = tuple(x.shape for x in arrays)
    if len(arrays) == 2:
        simple = _simple(subscripts, shapes)
        if simple is not None:
            return _single_product(arrays, simple, weak, precision, preferred, _dot_general)
    if isinstance(optimize, list):
        optimize = tuple(tuple(p) if isinstance(p, list) else p for p in optimize)
    terms, target, order = _plan(subscripts, shapes, optimize)
    sizes = _sizes(terms, shapes, subscripts)
    options = {"dot": _dot_general or lax.dot_general, "precision": precision,
               "preferred": _own_dtype(arrays, preferred) if _dot_general else preferred}
    x, labels = _contracted(list(zip(arrays, terms)), order, target, sizes, options)
    return _arrange(x, labels, target, sizes, preferred, weak)


def _own_dtype(arrays, preferred):
    """The dtype of the result, which is always passed to a caller's dot_general."""
    return arrays[0].dtype if preferred is None else preferred


def _single_product(arrays, simple, weak, precision, preferred, dot):
    """Contract two operands by one product: lax.dot_general, or the caller's `dot`."""
    if dot is not None:
        return _by_own_product(dot, arrays, simple, precision, _own_dtype(arrays, preferred))
    (x, y), (numbers, perm) = arrays, simple
    x = lax.dot_general(x, y, numbers, precision=precision, preferred_element_type=preferred)
    x = lax.transpose(x, perm) if perm else x
    return x if x.weak_type == weak else h.with_dtype(x, x.dtype, weak)


def _contracted(work, order, target, sizes, options):
    """Contract pairs of operands with their labels, in the order of a plan, until one is left."""
    for places in order:
        first, *others = [work[i] for i in places]
        work = [w for i, w in enumerate(work) if i not in places]
        for k, second in enumerate(others):
            rest = [*work, *others[k + 1:]]
            needed = set(target).union(*(set(t) for _, t in rest))
            first = _product(first, second, needed, sizes, options)
        if not others:
            needed = set(target).union(*(set(t) for _, t in work))
            first = _simplify(first[0], first[1], needed, sizes)
        work.append(first)
    (x, labels), = work
    return _simplify(x, labels, set(target), sizes)


def _product(first, second, needed, sizes, options):
    """Contract two operands over the labels that are no longer needed."""
    (x, xs), (y, ys) = first, second
    for _ in range(2):  # a label dropped from one operand may have become private to the other
        x, xs = _simplify(x, xs, needed | set(ys), sizes)
        y, ys = _simplify(y, ys, needed | set(xs), sizes)
    return _pair(x, xs, y, ys, needed, options)


def _arrange(x, labels, target, sizes, preferred, weak):
    """Put axes in the requested order, and restore labels that have length 1 in all operands."""
    missing = [c for c in target if c not in labels]
    if missing:
        x = lax.expand_dims(x, tuple(range(x.ndim, x.ndim + len(missing))))
        labels += "".join(missing)
    perm = tuple(labels.index(c) for c in target)
    x = x if perm == tuple(range(len(perm))) else lax.transpose(x, perm)
    x = h.broadcast_to(x, tuple(sizes[c] for c in target))
    if preferred is not None:
        return lax.convert_element_type(x, preferred)
    return h.with_dtype(x, x.dtype, weak)


def einsum_path(
    subscripts: str | ArrayLike, /, *operands: ArrayLike | Sequence[Any],
    optimize: bool | Literal["auto", "greedy", "optimal"] = "auto",
) -> tuple[list[tuple[int, ...]], str]:
    """Find the order in which `einsum` contracts its operands.

    Only the shapes of the operands matter.

    Args:
        subscripts: letters of each operand and of the result, as in `einsum`.
        operands: arrays or numbers, one for each part of `subscripts`.
        optimize: "optimal", "greedy" (or True), or "auto", which is "optimal" for up to four
            operands and "greedy" for more.

    Returns:
        A pair: a list that contains a tuple for each step, and a string that reports the cost. Each
        tuple contains the positions of the operands to contract; the result of the step is appended
        to the remaining operands.

    Differences:
        NumPy's list begins with the string "einsum_path".

    >>> x, y, z = jnp.ones((2, 9)), jnp.ones((9, 3)), jnp.ones((3, 1))
    >>> jnp.einsum_path("ij,jk,kl->il", x, y, z)[0]
    [(1, 2), (0, 1)]
    """
    if not isinstance(subscripts, str):
        subscripts, operands = _from_sublists((subscripts, *operands))
    dummies = [np.broadcast_to(np.float32(0), manipulation.shape(x)) for x in operands]
    how = "optimal" if optimize == "auto" and len(operands) <= 4 else (
        "greedy" if optimize in ("auto", True) else optimize)
    path, text = np.einsum_path(subscripts, *dummies, optimize=how)
    return path[1:], text
