"""Solvers for the assignment problem, which pairs rows with columns at the lowest total cost.

Both solvers run in cubic time and can be jitted. If several assignments have the lowest cost, the
two solvers may choose different assignments, but each solver is deterministic.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import toile.numpy as jnp
from toile import lax
from toile.engine.annotations import Array

__all__ = ["base_hungarian_algorithm", "hungarian_algorithm"]


def _empty_assignment() -> Any:
    return jnp.zeros(0, int), jnp.zeros(0, int)


def hungarian_algorithm(cost_matrix: Array) -> tuple[Array, Array]:
    """Pair each row with a different column at the lowest total cost.

    The algorithm runs in cubic time. The pairs are not sorted by row. If several assignments have
    the lowest cost, one of them is returned. If there are more rows than columns, some rows are not
    paired.

    Args:
        cost_matrix: cost matrix, which need not be square. The number of pairs is the number of
            rows or the number of columns, whichever is smaller.

    Returns:
        The row indices `i` and the column indices `j` of the pairs. Their total cost is
        `cost_matrix[i, j].sum()`.

    >>> from toile.optim import assignment
    >>> cost = jnp.array([[8, 4, 7], [5, 2, 3], [9, 6, 7], [9, 4, 8]])
    >>> i, j = assignment.hungarian_algorithm(cost)
    >>> cost[i, j].sum()
    Array(15, dtype=int32)
    """
    if 0 in cost_matrix.shape:
        return _empty_assignment()
    tall = cost_matrix.shape[0] > cost_matrix.shape[1]
    cost = cost_matrix.T if tall else cost_matrix
    rows, cols = cost.shape
    # Column 0 and row 0 stand for "none yet"; row potentials have a slot for discarded writes.
    state = jnp.zeros(rows + 2), jnp.zeros(cols + 1), jnp.zeros(cols + 1, int)
    place = lambda state, row: (_place_row(cost, row, *state), None)
    (_, _, owner), _ = lax.scan(place, state, jnp.arange(rows))
    if rows == cols:
        owner, columns = owner[1:], jnp.arange(rows)
    else:
        owner, columns = lax.top_k(owner[1:], rows)
    owner -= 1
    return (columns, owner) if tall else (owner, columns)


def _place_row(cost: Any, row: Any, u: Any, v: Any, owner: Any) -> Any:
    """Return the potentials and the owners of columns after one more row has found a column."""
    rows, cols = cost.shape
    owner = owner.at[0].set(row + 1)

    def extend(state: Any) -> Any:
        """Step to the nearest column, lowering reduced costs so that its edge is tight."""
        u, v, used, nearest, back, column = state
        used = used.at[column].set(True)
        free = ~used[1:]
        at = owner[column]
        reach = jnp.where(free, cost[at - 1, :] - u[at] - v[1:], jnp.inf)
        back = jnp.where(reach < nearest, column, back)
        nearest = jnp.where(reach < nearest, reach, nearest)
        column = jnp.argmin(jnp.where(free, nearest, jnp.inf)) + 1
        delta = nearest.min(where=free, initial=jnp.inf)
        u = u.at[jnp.where(used, owner, rows + 1)].add(delta)
        v = jnp.where(used, v - delta, v)
        nearest = jnp.where(free, nearest - delta, nearest)
        return u, v, used, nearest, back, column

    start = (u, v, jnp.zeros(cols + 1, bool), jnp.full(cols, jnp.inf), jnp.zeros(cols, int), 0)
    taken = lambda state: owner[state[-1]] != 0
    u, v, _, _, back, column = lax.while_loop(taken, extend, start)

    def shift(state: Any) -> Any:
        """Assign a column of the path to the previous row of the path."""
        owner, column = state
        before = back[column - 1]
        return owner.at[column].set(owner[before]), before

    owner, _ = lax.while_loop(lambda state: state[1] != 0, shift, (owner, column))
    return u, v, owner


def base_hungarian_algorithm(cost_matrix: Array) -> tuple[Array, Array]:
    """Pair each row with a different column at the lowest total cost, by Crouse's method.

    The algorithm runs in cubic time (Crouse, 2016). The pairs are sorted by row. If there are more
    rows than columns, some rows are not paired.

    Args:
        cost_matrix: cost matrix, which need not be square. The number of pairs is the number of
            rows or the number of columns, whichever is smaller.

    Returns:
        The row indices `i` and the column indices `j` of the pairs. Their total cost is
        `cost_matrix[i, j].sum()`.

    >>> from toile.optim import assignment
    >>> cost = jnp.array([[8, 4, 7], [5, 2, 3], [9, 6, 7], [9, 4, 8]])
    >>> i, j = assignment.base_hungarian_algorithm(cost)
    >>> i.tolist(), j.tolist()
    ([0, 1, 3], [0, 2, 1])
    """
    if 0 in cost_matrix.shape:
        return _empty_assignment()
    tall = cost_matrix.shape[1] < cost_matrix.shape[0]
    cost = (cost_matrix.T if tall else cost_matrix).astype(float)
    rows, cols = cost.shape
    state = _Matching(
        u=jnp.zeros(rows, cost.dtype), v=jnp.zeros(cols, cost.dtype), before=jnp.full(cols, -1),
        row_of=jnp.full(cols, -1), column_of=jnp.full(rows, -1),
    )
    state = lax.fori_loop(0, rows, lambda row, state: _augment(cost, row, state), state)
    if tall:
        i = state.column_of.argsort()
        return state.column_of[i], i
    return jnp.arange(rows), state.column_of


class _Matching(NamedTuple):
    u: Any  # potentials of rows and of columns
    v: Any
    before: Any  # of a column: the row from which it was reached
    row_of: Any  # the partners, -1 for none
    column_of: Any


class _Search(NamedTuple):
    row: Any
    length: Any  # of the shortest path to that row
    left: Any  # columns that are not done, the first `count` entries
    count: Any
    rows_done: Any
    columns_done: Any
    paths: Any  # the lengths of the shortest paths to columns
    before: Any
    sink: Any  # a column without a partner, or -1


def _augment(cost: Any, row: Any, m: _Matching) -> _Matching:
    """Return the matching with one more row."""
    rows, cols = cost.shape
    start = _Search(
        row=row, length=jnp.zeros((), cost.dtype), left=jnp.arange(cols)[::-1],
        count=jnp.asarray(cols), rows_done=jnp.zeros(rows, bool),
        columns_done=jnp.zeros(cols, bool), paths=jnp.full(cols, jnp.inf), before=m.before,
        sink=jnp.asarray(-1),
    )
    found = lax.while_loop(lambda s: s.sink == -1, lambda s: _advance(cost, m, s), start)
    u = m.u.at[row].add(found.length)
    others = found.rows_done & (jnp.arange(rows) != row)
    u = jnp.where(others, u + found.length - found.paths[m.column_of], u)
    v = jnp.where(found.columns_done, m.v + found.paths - found.length, m.v)

    def flip(state: Any) -> Any:
        column, row_of, column_of, _ = state
        i = found.before[column]
        following = column_of[i]
        return following, row_of.at[column].set(i), column_of.at[i].set(column), i == row

    walk = (found.sink, m.row_of, m.column_of, False)
    _, row_of, column_of, _ = lax.while_loop(lambda s: ~s[-1], flip, walk)
    return _Matching(u, v, found.before, row_of, column_of)


def _advance(cost: Any, m: _Matching, s: _Search) -> _Search:
    """Relax the edges of a row and continue from the nearest column.

    Among equally near columns, the last free one in `left` is chosen, or the first if none is free.
    """
    cols = cost.shape[1]
    places = jnp.arange(cols)
    waiting = places < s.count
    open_ = jnp.zeros(cols, bool).at[s.left].max(waiting)
    reach = s.length + cost[s.row] - m.u[s.row] - m.v
    shorter = open_ & (reach < s.paths)
    before = jnp.where(shorter, s.row, s.before)
    paths = jnp.where(shorter, reach, s.paths)
    lengths = jnp.where(waiting, paths[s.left], jnp.inf)
    nearest = jnp.min(lengths)
    ties = waiting & (lengths == nearest)
    free = ties & (m.row_of[s.left] == -1)
    last_free = cols - 1 - jnp.argmax(free[::-1])
    place = jnp.where(jnp.any(free), last_free, jnp.argmax(ties))
    column = s.left[place]
    partner = m.row_of[column]
    return _Search(
        row=jnp.where(partner == -1, s.row, partner),
        length=nearest,
        left=s.left.at[place].set(s.left[s.count - 1]),
        count=s.count - 1,
        rows_done=s.rows_done.at[s.row].set(True),
        columns_done=s.columns_done.at[column].set(True),
        paths=paths,
        before=before,
        sink=jnp.where(partner == -1, column, s.sink),
    )
