"""Random keys become arrays of numbers, and random bits integer arithmetic.

`lower_random` writes threefry2x32 as an elementwise operation on words, which fuses with what uses
the bits; keys are unwrapped before and wrapped after. `physical_keys` then declares every key
variable, here and in the Programs that operations carry, as its uint32 buffer with one more axis:
later passes see no keys.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import lru_cache, reduce
from typing import Any

import numpy as np

from toile.compiler.passes.rewriter import Replacement, Rewriter, rewrite, splice
from toile.engine import dtypes
from toile.engine.avals import Aval
from toile.engine.operation import Operation, infer_list
from toile.engine.program import Atom, Equation, Literal, Program, Var, derive
from toile.engine.records import dataclass
from toile.primitives.arrays import threefry
from toile.primitives.arrays.threefry import PARITY, ROTATIONS, threefry2x32
from toile.primitives.bits import (
    _KeyComparison,
    and_,
    eq,
    not_,
    or_,
    shift_left,
    shift_right_logical,
    xor,
)
from toile.primitives.elementwise import SelectN, convert
from toile.primitives.families import Elementwise, add, broadcast_in_dim, mul, reshape, scalar
from toile.primitives.gathers import DynamicSlice, DynamicUpdateSlice
from toile.primitives.random import (
    RandomBits,
    RandomFoldIn,
    RandomSeed,
    RandomSplit,
    RandomUnwrap,
    RandomWrap,
)
from toile.primitives.shapes import Pad, concatenate_all, iota, slice_axis

_UINT32, _UINT64 = np.dtype(np.uint32), np.dtype(np.uint64)
_WORDS = 2  # of a threefry key
UNSIGNED = "u"

Build = Callable[..., Any]  # traced values in, traced values out


# ---------------------------------------------------------------------------------------- threefry


def _word(words: Any, i: int) -> Any:
    """One of the words along the last axis."""
    return reshape(slice_axis(words, i, i + 1, words.ndim - 1), words.shape[:-1])


def _joined(*words: Any) -> Any:
    """Words as a new last axis."""
    return concatenate_all([reshape(w, (*w.shape, 1)) for w in words], len(words[0].shape))


@dataclass(frozen=True)
class ThreefryWord(Elementwise):
    """One of the two words of the hash of (x0, x1) under the key (k0, k1): twenty rounds."""

    word: int

    accepts = UNSIGNED

    def eager(self, xp: Any, k0: Any, k1: Any, x0: Any, x1: Any) -> Any:
        return threefry2x32(xp, k0, k1, x0, x1)[self.word]

    def lower(self, k: Any, k0: Any, k1: Any, x0: Any, x1: Any) -> Any:
        keys = k0, k1, k.xor(k.xor(k0, k1), PARITY)
        x0, x1 = k.add(x0, k0), k.add(x1, k1)
        for i in range(5):
            for r in ROTATIONS[i % 2]:
                x0 = k.add(x0, x1)
                turned = k.or_(k.shift_left(x1, r), k.shift_right_logical(x1, 32 - r))
                x1 = k.xor(turned, x0)
            x0 = k.add(x0, keys[(i + 1) % 3])
            x1 = k.add(x1, k.add(keys[(i + 2) % 3], i + 1))
        return (x0, x1)[self.word]


def _hash(k0: Any, k1: Any, x0: Any, x1: Any) -> tuple[Any, Any]:
    """Both words; they are computed together where both are used."""
    return ThreefryWord(0)(k0, k1, x0, x1), ThreefryWord(1)(k0, k1, x0, x1)


def _hashed_counts(words: Any, shape: tuple[int, ...]) -> tuple[Any, Any]:
    """The hash of 0 ... prod(shape) - 1 under each key, of shape (*keys, prod(shape))."""
    batch, size = words.shape[:-1], math.prod(shape)
    whole, dims = (*batch, size), tuple(range(len(batch)))
    keys = [_word(words, 0), _word(words, 1)]
    if batch:  # a key of rank 0 needs no copies
        keys = [broadcast_in_dim(w, whole, dims) for w in keys]
    if size <= 1 << 32:
        return _hash(keys[0], keys[1], scalar(0, _UINT32), iota(_UINT32, whole, len(batch)))
    count = iota(_UINT64, whole, len(batch))
    high = convert(shift_right_logical(count, scalar(32, _UINT64)), _UINT32)
    return _hash(keys[0], keys[1], high, convert(count, _UINT32))


def _bits(op: RandomBits, words: Any) -> Any:
    if op.older:
        bits = _older_bits(op, words)
    elif op.bit_width == 64:
        bits = _wide(*_hashed_counts(words, op.shape))
    else:
        bits = convert(xor(*_hashed_counts(words, op.shape)), np.dtype(f"uint{op.bit_width}"))
    return reshape(bits, (*words.shape[:-1], *op.shape))


def _wide(high: Any, low: Any) -> Any:
    """Words as 64-bit numbers."""
    high = shift_left(convert(high, _UINT64), scalar(32, _UINT64))
    return or_(high, convert(low, _UINT64))


def _split(op: RandomSplit, words: Any) -> Any:
    if op.older:
        both = _joined_halves(*_hashed_pairs(words, 2 * math.prod(op.shape)))
    else:
        both = _joined(*_hashed_counts(words, op.shape))
    return reshape(both, (*words.shape[:-1], *op.shape, _WORDS))


# The older layout of counters: see the array kernels.


def _hashed_pairs(words: Any, count: int) -> tuple[Any, Any]:
    """The first and the second half of `count` words for each key, one more if that is odd."""
    batch, half = words.shape[:-1], -(-count // 2)
    whole, axis = (*batch, half), len(batch)
    keys = [broadcast_in_dim(_word(words, i), whole, tuple(range(axis))) for i in range(_WORDS)]
    first = iota(_UINT32, whole, axis)
    second = add(first, scalar(half, _UINT32))
    if count % 2:  # the last word has no partner
        last = broadcast_in_dim(scalar(half - 1, _UINT32), whole, ())
        zero = broadcast_in_dim(scalar(0, _UINT32), whole, ())
        second = SelectN()(eq(first, last), second, zero)
    return _hash(keys[0], keys[1], first, second)


def _joined_halves(first: Any, second: Any) -> Any:
    return concatenate_all([first, second], first.ndim - 1)


def _older_words(words: Any, count: int) -> Any:
    """`count` words for each key, along the last axis."""
    axis = words.ndim - 1
    blocks, rest = divmod(count, threefry.LONGEST)
    if not blocks:
        both = _joined_halves(*_hashed_pairs(words, count))
        return slice_axis(both, 0, count, axis)
    keys = _split(RandomSplit((blocks + 1,), True), words)
    both = _joined_halves(*_hashed_pairs(slice_axis(keys, 0, blocks, axis), threefry.LONGEST))
    many = slice_axis(both, 0, threefry.LONGEST, axis + 1)
    many = reshape(many, (*words.shape[:-1], blocks * threefry.LONGEST))
    last = reshape(slice_axis(keys, blocks, blocks + 1, axis), words.shape)
    return concatenate_all([many, _older_words(last, rest)], axis)


def _older_bits(op: RandomBits, words: Any) -> Any:
    """Bits along the last axis: narrow integers are parts of words, the lowest bits first."""
    size, width, axis = math.prod(op.shape), op.bit_width, words.ndim - 1
    if width == 64 and 2 * size < threefry.LONGEST:
        return _wide(*_hashed_pairs(words, 2 * size))
    found = _older_words(words, -(-width * size // 32))
    if width == 32:
        return found
    if width == 64:
        return _wide(slice_axis(found, 0, size, axis), slice_axis(found, size, 2 * size, axis))
    parts = 32 // width
    whole = (*found.shape, parts)
    spread = broadcast_in_dim(found, whole, tuple(range(axis + 1)))
    by = mul(iota(_UINT32, whole, axis + 1), scalar(width, _UINT32))
    bits = convert(shift_right_logical(spread, by), np.dtype(f"uint{width}"))
    flat = reshape(bits, (*found.shape[:-1], found.shape[-1] * parts))
    return slice_axis(flat, 0, size, axis)


def _fold_in(op: RandomFoldIn, words: Any, data: Any) -> Any:
    return _joined(*_hash(_word(words, 0), _word(words, 1), scalar(0, _UINT32), data))


def _seed(op: RandomSeed, seeds: Any) -> Any:
    """Both words of 64-bit seeds, (0, seed mod 2**32) of narrower ones."""
    if seeds.dtype.itemsize == 8:
        wide = convert(seeds, _UINT64)
        high = convert(shift_right_logical(wide, scalar(32, _UINT64)), _UINT32)
        return _joined(high, convert(wide, _UINT32))
    if dtypes.kind(seeds.dtype) == "i":
        seeds = convert(seeds, np.dtype(np.int32))
    high = broadcast_in_dim(scalar(0, _UINT32), seeds.shape, ())
    return _joined(high, convert(seeds, _UINT32))


_BUILDS: dict[type, Build] = {
    RandomBits: _bits, RandomSplit: _split, RandomFoldIn: _fold_in, RandomSeed: _seed,
}  # fmt: skip


# ------------------------------------------------------------------------- equations of a function


@lru_cache(maxsize=1024)
def _derived(build: Build, op: Operation, avals: tuple[Aval, ...]) -> Program:
    """The Program of build(op, *xs), made once."""
    return derive(lambda *xs: [build(op, *xs)], list(avals), op.name)


def spliced(new: Rewriter, e: Equation, build: Build, ins: Sequence[Atom]) -> Atom:
    """Add the equations of build(op, *ins); its result."""
    program = _derived(build, e.op, tuple(a.aval for a in ins))
    return splice(program, ins, new.keep, e)[0]


# ------------------------------------------------------------------------------------ lower_random


def lower_random(program: Program) -> Program:
    """Random operations on threefry keys as integer arithmetic, bit for bit."""
    if not any(e.op.__class__ in _BUILDS for e in program.equations):
        return program
    return rewrite(program, _random_rule, _BUILDS)


def _random_rule(new: Rewriter, e: Equation) -> Replacement:
    build = _BUILDS[e.op.__class__]
    keys = e.outs[0].aval if e.op.__class__ is RandomSeed else e.ins[0].aval
    if not dtypes.is_extended(keys.dtype):  # its keys are words already
        return [spliced(new, e, build, e.ins)]
    if dtypes.key_words(keys.dtype) != _WORDS:
        return None
    ins = list(e.ins)
    if e.op.__class__ is not RandomSeed:
        ins[0] = _unwrapped(new, e, ins[0])
    result = spliced(new, e, build, ins)
    if e.op.__class__ is RandomBits:
        return [result]
    return [new.add(RandomWrap(keys.dtype), [result], e, e.outs[0].aval)]


def _unwrapped(new: Rewriter, e: Equation, keys: Atom) -> Atom:
    """The words of keys; those they were wrapped from, if they were."""
    made = new.producer(keys)
    if made is not None and made.op.__class__ is RandomWrap:
        return made.ins[0]
    return new.add(RandomUnwrap(), [keys], e, physical_aval(keys.aval))


# ----------------------------------------------------------------------------------- physical_keys


def physical_aval(aval: Aval) -> Aval:
    """The aval of the buffer behind an array: keys are uint32 words along a new last axis."""
    if not dtypes.is_extended(aval.dtype):
        return aval
    return Aval((*aval.shape, dtypes.key_words(aval.dtype)), _UINT32)


def physical_keys(program: Program) -> Program:
    """The Program on the buffers of its keys: no variable has an extended dtype."""
    return program.memoized("physical_keys", lambda: _physical(lower_random(program)))


def _has_keys(program: Program) -> bool:
    """Whether a Program has keys; most have none, and stay as they are."""
    if any(map(_is_key, program.inputs)):
        return True
    for e in program.equations:
        op = e.op
        if op.__class__ in _ON_KEYS or not op.interned and _carrying_physical(op) is not op:
            return True
        if any(map(_is_key, e.outs)):
            return True
    return False


def _physical(program: Program) -> Program:
    if not _has_keys(program):
        return program
    new = _Keyless(program)
    for e in program.equations:
        new.take(e)
    inputs = [new.variable(v) for v in program.inputs]
    return Program(inputs, new.equations, new.finish().outputs, program.name)


_ON_KEYS = frozenset((RandomWrap, RandomUnwrap))


def _is_key(a: Atom) -> bool:
    return dtypes.is_extended(a.aval.dtype)


class _Keyless(Rewriter):
    """The equations on buffers, and what stands for the variables of the old Program."""

    __slots__ = ()

    def variable(self, v: Var) -> Var:
        """The variable for an input or result."""
        found = self.atom(v)
        assert isinstance(found, Var)
        return found

    def atom(self, a: Atom) -> Atom:
        """What stands for an atom: for keys, the variable of their buffer."""
        if a.__class__ is not Var:
            return a
        found = self.env.get(a)
        if found is None:
            found = Var(physical_aval(a.aval)) if _is_key(a) else a
            self.env[a] = found
        return found

    def take(self, e: Equation) -> None:
        """Rewrite one equation of the old Program."""
        if e.op.__class__ in _ON_KEYS:
            self.env[e.outs[0]] = self.atom(e.ins[0])
            return
        ins = [self.atom(a) for a in e.ins]
        op = _carrying_physical(e.op)
        if not any(map(_is_key, [*e.ins, *e.outs])):
            self.keep(Equation(op, ins, [self.variable(o) for o in e.outs], e.source, e.scope))
            return
        build = _KEY_BUILDS.get(e.op.__class__)
        if build is not None:
            self.env[e.outs[0]] = spliced(self, e, build, ins)
            return
        if e.op.__class__ in (DynamicSlice, DynamicUpdateSlice):
            op, ins = _with_start(e.op, ins, len(e.outs[0].aval.shape))
        elif op is e.op:
            op = _on_buffers(e)
        self.keep(Equation(op, ins, [self.variable(o) for o in e.outs], e.source, e.scope))


def _carrying_physical(op: Operation) -> Operation:
    """An operation with the Programs that it carries on buffers."""
    if op.interned or not is_dataclass(op):
        return op
    changes: dict[str, Any] = {}
    for field in fields(op):
        value = getattr(op, field.name)
        after = _physical_field(value)
        if after is not value:
            changes[field.name] = after
    return replace(op, **changes) if changes else op


def _physical_field(value: Any) -> Any:
    if isinstance(value, Program):
        return physical_keys(value)
    if isinstance(value, Operation):
        return _carrying_physical(value)
    if isinstance(value, tuple) and any(isinstance(v, Program) for v in value):
        after = tuple(_physical_field(v) for v in value)
        return value if all(a is b for a, b in zip(after, value, strict=True)) else after
    return value


def _on_buffers(e: Equation) -> Operation:
    """The operation of an equation on buffers, wrapped where it does not infer their shapes."""
    avals = [a.aval for a in e.ins]
    wanted = [physical_aval(o.aval) for o in e.outs]
    if any(_is_key(a) for a in e.ins):
        op = e.op.physical(*avals)
        try:
            found = infer_list(op, [physical_aval(a) for a in avals])
        except Exception:  # the rule of an operation that expects keys may raise anything
            found = []
        if [(a.shape, a.dtype) for a in found] == [(a.shape, a.dtype) for a in wanted]:
            return op
    return OnBuffers(e.op, tuple(avals))


@dataclass(frozen=True)
class OnBuffers(Operation):
    """An operation with keys among its operands or results, on their buffers."""

    op: Operation
    avals: tuple[Aval, ...]
    interned = False

    @property
    def multiple(self) -> bool:
        return self.op.multiple

    @property
    def effects(self) -> frozenset[str]:
        return self.op.effects

    @property
    def axis_names(self) -> tuple[Any, ...]:
        return self.op.axis_names

    def infer(self, *avals: Aval) -> Any:
        found = [physical_aval(a) for a in infer_list(self.op, self.avals)]
        return found if self.op.multiple else found[0]

    def eager(self, xp: Any, *xs: Any) -> Any:
        keyed = any(dtypes.is_extended(a.dtype) for a in self.avals)
        return (self.op.physical(*self.avals) if keyed else self.op).eager(xp, *xs)

    def __str__(self) -> str:
        return str(self.op)


def _with_start(op: Operation, ins: list[Atom], rank: int) -> tuple[Operation, list[Atom]]:
    """A dynamic slice or update of keys: the words start at 0 and are taken whole."""
    starts = ins[len(ins) - rank :]
    dtype = starts[0].aval.dtype if starts else np.dtype(np.int32)
    if isinstance(op, DynamicSlice):
        op = DynamicSlice((*op.sizes, ins[0].aval.shape[-1]))
    return op, [*ins, Literal(np.zeros((), dtype), Aval((), dtype))]


def _select(op: SelectN, which: Any, *cases: Any) -> Any:
    shape = cases[0].shape
    if which.shape and which.shape != shape:
        which = broadcast_in_dim(which, shape, tuple(range(which.ndim)))
    return SelectN()(which, *cases)


def _pad(op: Pad, words: Any, value: Any) -> Any:
    size = words.shape[-1]
    return _joined(*(Pad(op.config)(_word(words, i), _word(value, i)) for i in range(size)))


def _equal(op: Any, x: Any, y: Any) -> Any:
    same = reduce(and_, (eq(_word(x, i), _word(y, i)) for i in range(x.shape[-1])))
    return same if op.equal else not_(same)


_KEY_BUILDS: dict[type, Build] = {SelectN: _select, Pad: _pad, _KeyComparison: _equal}
