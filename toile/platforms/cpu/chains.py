"""Chains: a product or convolution and the loop nests before or after it, run block by block.

A product writes rows that a loop nest then reads (a bias and an activation, a softmax), or reads
rows that one has written (a layer norm). As separate stages, each processes whole arrays, which
have left the caches in between. As links of a chain they run one after the other on one block of
rows, which stays in the caches, and then on the next; a chunk is a number of blocks. An array that
only the chain uses is not allocated if one block of it fits on the stack of a chunk.

Links are the launches that the stages would have been, with the same units in the same order within
each row: results are the same to the bit. Strides tell which bytes a row has (`Rows`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from math import lcm
from typing import Any, NamedTuple

from toile.compiler.ir.operands import Ref, Temporary
from toile.compiler.ir.steps import ALIGNMENT, Region, whole_buffer
from toile.compiler.plan.lower import Plan, independent
from toile.engine.cached import cached_property
from toile.engine.records import dataclass
from toile.targets.llvm.launches import Launch, Rows

ENABLED = True
WORTH = 1 << 19  # bytes passed between the links; fewer stay in the caches anyway
# Bytes that a block should touch, and may touch: half of a second-level cache. With 128 KB a
# convolution, its bias and relu take 0.94 of their time as separate stages; with 32 KB 0.98, with
# 512 KB the same time.
BLOCK = 1 << 17
MOST_BLOCK = 1 << 19
ROOM = 1 << 17  # bytes of stack for a chunk
FAIR = 1.02  # how much more work than before a thread may get when a chain changes the chunks
LOOK = 8  # steps searched on either side of the product


class Room(NamedTuple):
    """Stack space for one block of a buffer; byte `start` of the buffer begins the first block."""

    buffer: Any
    start: int
    nbytes: int  # of one block


@dataclass(frozen=True)
class Chain:
    """Launches that run in order on each block of rows; `units`: units of each in a block."""

    links: tuple[Launch, ...]
    units: tuple[int, ...]
    rooms: tuple[Room, ...]
    lead: int  # which link is the product
    extent: int  # number of blocks
    grain: int
    cost: float | None = None

    @property
    def chunks(self) -> int:
        return -(-self.extent // self.grain)

    def first(self, count: int) -> Chain:
        """The chain with only its first links."""
        return replace(self, links=self.links[:count], units=self.units[:count])


class Apart(Exception):
    """The reason why launches cannot form a chain."""


def chained(plan: Plan, region: type[Region]) -> tuple[list[Any], dict[int, str]]:
    """The steps of a plan with chains, and the reasons, by origin, why products have none."""
    if not ENABLED:
        return plan.steps, {}
    chains = _Chains(plan)
    made: dict[int, Region] = {}  # by the position of the product
    used: set[int] = set()
    reasons: dict[int, str] = {}
    for i, step in enumerate(plan.steps):
        lead = _launch(step)
        if lead is None or not (lead.apart or isinstance(lead.rows, Rows) and lead.rows.leads):
            continue
        found = chains.around(i, used)
        if isinstance(found, str):
            reasons[id(lead.origin)] = found
        elif found is not None:
            chain, places = found
            used |= set(places)
            chains.moved(i, places)
            held = {r.buffer for r in chain.rooms}
            reads, writes = ({b for j in places for b in getattr(plan.steps[j], side)
                              if whole_buffer(b) not in held} for side in ("reads", "writes"))
            made[i] = region([chain], reads, writes)
    steps = [made.get(i, s) for i, s in enumerate(plan.steps) if i in made or i not in used]
    return steps, reasons


def _launch(step: Any) -> Launch | None:
    """The launch of a step that consists of exactly one."""
    alone = isinstance(step, Region) and len(step.launches) == 1
    return step.launches[0] if alone else None


class _Chains:
    """Looks for chains among the steps of a plan."""

    def __init__(self, plan: Plan):
        self.steps, self.outside = plan.steps, plan.outside
        self.threads: int = getattr(plan, "threads", 1)
        self.links: dict[int, _Link | None] = {}  # of steps that have been examined
        self.at: dict[int, list[int]] = {}  # the steps that now run at a position, if changed

    @cached_property
    def users(self) -> dict[Any, set[int]]:
        """For each buffer, the steps that touch it."""
        found: dict[Any, set[int]] = {}
        for i, step in enumerate(self.steps):
            for b in map(whole_buffer, step.reads | step.writes):
                found.setdefault(b, set()).add(i)
        return found

    def moved(self, i: int, places: Sequence[int]) -> None:
        """Record that steps now run at the position of step i."""
        self.at.update({j: [] for j in places})
        self.at[i] = list(places)

    def around(self, i: int, used: set[int]) -> tuple[Chain, list[int]] | str | None:
        """The chain of the product at step i, and its steps; if there is none, the reason or None.

        Later steps join first, because they usually read the largest arrays."""
        lead = _launch(self.steps[i])
        places, best, reason, seen = [i], None, lead.apart if lead else "", False
        for j in [*self._after(i, used), *self._before(i, used)]:
            wanted, seen = sorted([*places, j]), True
            if not self._can_move(i, j, places):
                reason = reason or "another kernel must run between them"
                continue
            try:
                best = self._solve(wanted, wanted.index(i))
                places = wanted
            except Apart as why:
                reason = reason or str(why)
        if best is not None:
            return best, places
        return reason if seen else None

    def _after(self, i: int, used: set[int]) -> Iterator[int]:
        """Later loop nests that read what the product, or one of these nests, writes."""
        lead, origin = self._link(i), self.steps[i].launches[0].origin
        ready = set(lead.rows.writes if lead else self.steps[i].writes)
        for j in range(i + 1, min(i + 1 + LOOK, len(self.steps))):
            step = self.steps[j]
            if j in used or ready.isdisjoint(step.reads) and ready.isdisjoint(step.writes):
                continue  # stages of one equation all write the values that they pass on
            x = _launch(step)
            if x is None:
                continue
            nest = self._link(j)
            if nest is not None and not nest.rows.leads:
                yield j
                ready |= nest.rows.writes
            elif x.origin is origin:
                ready |= step.writes  # a later stage of the product

    def _before(self, i: int, used: set[int]) -> Iterator[int]:
        """Earlier loop nests that write what the product reads."""
        lead = self._link(i)
        wanted = set(lead.rows.spans) if lead else set()
        for j in range(i - 1, max(i - 1 - LOOK, -1), -1):
            if j not in used and _launch(self.steps[j]) and not wanted.isdisjoint(
                self.steps[j].writes):
                x = self._link(j)
                if x is not None and not x.rows.leads and wanted & x.rows.writes:
                    yield j

    def _link(self, i: int) -> _Link | None:
        """The launch of a step, if it works row by row."""
        if i not in self.links:
            x = _launch(self.steps[i])
            rows = x.rows() if x is not None and callable(x.rows) else x and x.rows
            self.links[i] = _Link(x, rows) if x is not None and isinstance(rows, Rows) else None
        return self.links[i]

    def _can_move(self, i: int, j: int, places: list[int]) -> bool:
        """Whether step j may run at the position of step i."""
        between = range(i + 1, j) if j > i else range(j + 1, i)
        return all(independent(self.steps[j], self.steps[k])
                   for place in between for k in self.at.get(place, [place]) if k not in places)

    # ---- how blocks are divided
    def _solve(self, places: Sequence[int], at: int) -> Chain:
        """The chain of some steps, of which number `at` is the product. Raises Apart."""
        links = [x for x in map(self._link, places) if x is not None]
        if len(links) < len(places):
            raise Apart(self.steps[places[at]].launches[0].apart)
        rates, passed = _rates(links, at)
        if sum(_total(links[at], b) for b in passed) < WORTH:
            raise Apart("what passes between them is small")
        own = [b for b in passed if self._is_own(b, set(places))]
        lead = links[at]
        count, links[at] = self._block(links, at, rates)
        units = [int(count * r / x.rows.per_unit) for x, r in zip(links, rates, strict=True)]
        blocks = {-(-x.launch.extent // n) for x, n in zip(links, units, strict=True)}
        if len(blocks) > 1:
            raise Apart("it has rows that the other does not")
        (extent,) = blocks
        if extent == 1:
            raise Apart("it is a single block")
        grain = extent
        if any(x.launch.chunks > 1 for x in links):
            grain = self._chunk(lead, count)
        windows = [_window(links, rates, count, b) for b in passed]
        rooms = _rooms([w for w in windows if w.buffer in own])
        return Chain(tuple(x.launch for x in links), tuple(units), rooms, at, extent, grain)

    def _chunk(self, lead: _Link, count: int) -> int:
        """How many blocks, of `count` items of the product each, a thread takes at a time."""
        grain = _grain(lead.items, count, self.threads)
        now = lead.launch.grain * lead.rows.per_unit
        if _longest(lead.items, grain * count, self.threads) > FAIR * _longest(
            lead.items, now, self.threads):
            raise Apart("its blocks do not divide evenly among the threads")
        return grain

    def _block(
        self, links: Sequence[_Link], at: int, rates: Sequence[Fraction]
    ) -> tuple[int, _Link]:
        """How many items of the product a block has, and its link, which may be divided again."""
        lead = links[at]
        rows = lead.rows
        each = sum({b: rate * s.step for x, rate in zip(links, rates, strict=True)
                    for b, s in x.rows.spans.items()}.values())
        whole = lcm(*(n.denominator for i, (x, rate) in enumerate(zip(links, rates, strict=True))
                      for n in (rate, rate / x.rows.per_unit) if i != at))
        wanted = min(int(BLOCK / each), -(-lead.items // (4 * self.threads)))
        unit, again = lcm(whole, rows.per_unit.numerator), lcm(whole, rows.multiple)
        fewest = -(-rows.least // again)
        anew = (rows.cut is not None and fewest * again <= rows.most
                and fewest * again * each <= MOST_BLOCK)
        if rows.cut is None or not anew or unit * each <= 2 * BLOCK:  # keep the existing division
            if unit * each > MOST_BLOCK:
                raise Apart("a block of its rows is larger than a cache")
            return self._even(lead.items, unit, 1, wanted), lead
        count = self._even(lead.items, again, fewest, min(wanted, rows.most))
        launch = replace(rows.cut(count), origin=lead.launch.origin)
        return count, _Link(launch, replace(rows, per_unit=Fraction(count)))

    def _even(self, items: int, unit: int, fewest: int, wanted: int) -> int:
        """About `wanted` items, a multiple of `unit`, such that threads get equal work."""
        most = max(fewest, wanted // unit)

        def busy(n: int) -> tuple[int, int]:
            grain = _grain(items, n * unit, self.threads)
            return _longest(items, grain * n * unit, self.threads), -n

        return unit * min(range(max(fewest, most // 2), most + 1), key=busy)

    def _is_own(self, buffer: Any, places: set[int]) -> bool:
        """Whether a buffer is used only inside the chain."""
        return (isinstance(buffer, Temporary) and buffer not in self.outside
                and self.users[buffer] <= places)


def _longest(items: int, chunk: int | Fraction, threads: int) -> Any:
    """How many items the busiest thread gets, if chunks are claimed one by one."""
    full = -(-items // chunk) - 1  # without the last one
    each, more = divmod(full, threads)
    return (each + 1) * chunk if more else each * chunk + (items - full * chunk)


def _grain(items: int, block: int, threads: int) -> int:
    """How many blocks form a chunk, such that each thread has about four chunks or more."""
    most = max(1, -(-items // block) // (4 * threads))
    return min(range(-(-most // 2), most + 1),
               key=lambda n: (_longest(items, n * block, threads), -n))


class _Link(NamedTuple):
    """A launch whose rows are known."""

    launch: Launch
    rows: Rows

    @property
    def items(self) -> int:
        return self.rows.items or int(self.launch.extent * self.rows.per_unit)


def _touched(x: Launch) -> list[Any]:
    """The buffers that a launch reads or writes."""
    return list(dict.fromkeys(a.buffer for a in x.args if isinstance(a, Ref)))


def _total(x: _Link, buffer: Any) -> int:
    """The bytes of a buffer that a link processes row by row."""
    s = x.rows.spans.get(buffer)
    return x.items * s.step if s else 0


def _rates(links: Sequence[_Link], at: int) -> tuple[list[Fraction], list[Any]]:
    """Items of each link per item of the product, and the buffers passed between links.

    If one link writes a buffer and another touches it, both must divide it into the same blocks, so
    that the bytes of a block are touched by that block alone."""
    rates: list[Fraction | None] = [None] * len(links)
    rates[at] = Fraction(1)
    shared = _shared_buffers(links)
    todo = list(shared)
    while todo:
        known = [x for x in todo if rates[x[0]] is not None or rates[x[1]] is not None]
        if not known:
            raise Apart("they have no rows in common")
        for i, j, b in known:
            todo.remove((i, j, b))
            steps = [links[n].rows.spans[b].step for n in (i, j)]
            if rates[i] is None:
                i, j, steps = j, i, steps[::-1]
            rate = Fraction(rates[i] or 0) * Fraction(steps[0], steps[1])
            if rates[j] not in (None, rate):
                raise Apart("their rows are of different arrays")
            rates[j] = rate
    found = [r for r in rates if r is not None]
    if len(found) < len(links):
        raise Apart("they have no rows in common")
    passed = list(dict.fromkeys(b for _, _, b in shared))
    return found, passed


def _shared_buffers(links: Sequence[_Link]) -> list[tuple[int, int, Any]]:
    """The buffers that one link writes and another touches, with the numbers of both. Raises Apart
    if such a buffer is not divided by rows."""
    buffers = [_touched(x.launch) for x in links]
    pairs = [(i, j) for j in range(len(links)) for i in range(j)]
    shared = []
    for i, j in pairs:
        one, other = links[i].rows, links[j].rows
        shared += [(i, j, b) for b in buffers[i]
                   if b in buffers[j] and (b in one.writes or b in other.writes)]
    for i, j, b in shared:
        one, other = links[i].rows, links[j].rows
        if b in one.writes and b in other.writes:
            raise Apart("both write to one array")
        if b not in one.spans or b not in other.spans:
            raise Apart("it is read in another order")
    return shared


def _window(links: Sequence[_Link], rates: Sequence[Fraction], count: int, buffer: Any) -> Room:
    """The bytes of a buffer that the first block touches; the next block's bytes follow."""
    found = [(x.rows.spans[buffer], int(count * rate)) for x, rate in zip(links, rates, strict=True)
             if buffer in x.rows.spans]
    low = min(s.low for s, _ in found)
    high = max(s.high + (n - 1) * s.step for s, n in found)
    step, n = found[0]
    if high - low > n * step.step:
        raise Apart("it reads beyond its rows")
    return Room(buffer, low, n * step.step)


def _rooms(wanted: Sequence[Room]) -> tuple[Room, ...]:
    """Stack space for these buffers, the smallest first, as long as any is left."""
    kept, left = [], ROOM
    for room in sorted(wanted, key=lambda r: r.nbytes):
        if room.nbytes <= left:
            kept.append(room)
            left -= -(-room.nbytes // ALIGNMENT) * ALIGNMENT
    return tuple(kept)
