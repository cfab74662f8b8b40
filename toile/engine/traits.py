"""What others ask of an operation, with the answers of most operations.

Passes, fusion, kernels and programs over a mesh ask these questions and not which class an
operation is of, so that a new operation takes part in all of them by its own answers. A rule that
is None is one that the operation does not have. May import nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

Shape = Sequence[int]


class Traits:
    """The answers of an operation about which nothing special is known."""

    # ---- what its results are
    # The result is the operand; only transformations that come before the compiler look at it.
    forwards_operand: ClassVar[bool] = False
    # The results are the operands, and nothing moves across.
    is_barrier: ClassVar[bool] = False
    # Equations with equal operands are different values all the same.
    is_distinct: ClassVar[bool] = False
    # The result costs nothing where it is read: moving it out of a loop gains nothing.
    is_free: ClassVar[bool] = False
    # The result has axes of any extent that no operand has.
    makes_axes: ClassVar[bool] = False
    # The axis along which the elements of the result are 0, 1, 2, ..., each of them repeated along
    # the other axes.
    counted_axis: int | None = None
    # The result is a part of the operand, which can be read where it is.
    views_part: ClassVar[bool] = False
    # What surrounds the first operand in the result: (before, after, between) for each axis.
    margins: Sequence[tuple[int, int, int]] | None = None
    # The result is the first operand but for some elements, and may be where that is.
    updates: ClassVar[bool] = False
    # The name by which policies of `checkpoint` choose the result.
    saved_name: str | None = None
    # A user's function is called, which may keep the arrays that it is given.
    keeps_operands: ClassVar[bool] = False
    # Its Program (`op.programs()[0]`) stands for it once everything has been differentiated.
    is_inlined: ClassVar[bool] = False
    # A backend chooses the Program that stands for it.
    backend_chooses: ClassVar[bool] = False

    # ---- arithmetic
    is_sum: ClassVar[bool] = False  # of two operands, element by element
    is_product: ClassVar[bool] = False
    is_quotient: ClassVar[bool] = False
    multiplies: ClassVar[bool] = False  # arrays: a contraction or a convolution
    # Elements along `op.axes` become one; the operation's name says how.
    is_reduction: ClassVar[bool] = False
    # It compares numbers, and complex ones have no order.
    needs_order: ClassVar[bool] = False
    # Of one operand: op(x) + op(y) = op(x + y), which is less work.
    commutes_with_sums: ClassVar[bool] = False
    # The result has more rounding errors than the one of basic arithmetic (as all costly ones).
    is_inexact: ClassVar[bool] = False
    # Basic arithmetic: the result has the errors of its operands.
    passes_errors: ClassVar[bool] = False
    # A product of two arrays with a sum over every axis that both have.
    sums_shared_axes: bool = False
    # Relative errors of the operands are those of the result: nothing can cancel.
    keeps_relative_errors: ClassVar[bool] = False

    # ---- loop nests
    # `nest_node(b, member)`: the number of its node, made by the builder of a loop nest. None: it
    # has none of its own, and `lower` writes it if it works by element.
    nest_node: ClassVar[Any] = None
    # Operands that are part of the code where they are literals.
    code_operands: ClassVar[tuple[int, ...]] = ()
    # `domain_axes(group, m)`: the axes of a group's domain along those of the result, where `m`
    # are those along the operand's axes, or None. None: a group cannot read through it.
    domain_axes: ClassVar[Any] = None

    # ---- kernels
    # What `lower` gives are numbers of the result's dtype, without excess precision.
    lower_is_exact: ClassVar[bool] = False
    # The results are the operands themselves.
    is_identity: ClassVar[bool] = False
    # Each element of the result is one of the operands': `eager` on their numbers says which.
    moves_elements: ClassVar[bool] = False
    # All elements of the operand under other axes: a reshape, a transposition, a broadcast.
    moves_axes: ClassVar[bool] = False
    # The operand's numbers, but for rounding.
    only_rounds: ClassVar[bool] = False
    # A smooth function, one of those that activations are composed of.
    is_smooth: ClassVar[bool] = False
    # How it combines elements of an array: "axes" (a reduction over them), "running" (partial
    # results along one), "places" (of extrema), "products" (sums of them); "": in no such way.
    combines: ClassVar[str] = ""
    # A device's library computes it: no kernel does.
    by_library: ClassVar[bool] = False
    # Reads, or `updates`, blocks of its first operand at places that other operands say.
    by_blocks: ClassVar[bool] = False
    # `in_registers(f, e, ins)`: the results of an equation of tiny arrays, by the writer `f` of
    # `kernels.tiny`. None: what else is said here decides.
    in_registers: ClassVar[Any] = None
    # How often a loop runs its Program, infinity where the values decide; None: it is no loop.
    turns: Any = None

    # ---- devices of a mesh
    # `together()`: the operation that does several equal ones in one exchange between the devices;
    # `begin(number)` and `end()` are its halves. None: each is an exchange of its own.
    together: ClassVar[Any] = None

    # ---- passes
    # `simplified(new, e)`: the atoms that stand for the results of an equation, or None; `new` has
    # the equations before it (`compiler.passes.rewriter.Rewriter`).
    simplified: ClassVar[Any] = None

    # ---- random keys
    # The result has the operand's buffer: it is taken for keys, or for the words of keys.
    retypes_keys: ClassVar[bool] = False
    # `hash_words(*operands)`: the result in integer arithmetic on the words of threefry keys.
    hash_words: ClassVar[Any] = None
    # `on_words(*operands)`: what it is on the words of keys where it is not `physical`'s operation.
    on_words: ClassVar[Any] = None

    @property
    def exchange_name(self) -> str:
        """The name by which exchanges between devices are counted; "": it is none itself."""
        return ""

    def varies_over(self, names: frozenset[Any], bound: frozenset[Any]) -> frozenset[Any]:
        """The axes of `bound` that a result differs along, if operands do along `names` of them."""
        return names

    def programs(self) -> Sequence[Any]:
        """The Programs that it carries."""
        return ()

    def called_program(self) -> Any:
        """The Program whose results for the operands are its own; None: there is none."""
        return None

    def by_rows(self, *avals: Any) -> bool:
        """Whether it reads, or adds to, rows along the first axis of the first operand, whole ones,
        which the second operand numbers."""
        return False

    def within_rows(self, *avals: Any) -> bool:
        """Whether it reads, or adds to, one element of each row of the first operand, which lies
        along its last axis, at a place that the second operand says."""
        return False

    @property
    def joined_axis(self) -> int | None:
        """The axis along which the operands follow each other in the result."""
        return None

    def repeated(self) -> Any:
        """The operation whose result this one repeats along a new first axis; None: there is none.
        """
        return None

    def moved_axis(self, shape: Shape, axis: int) -> int | None:
        """The axis of the result that runs as an axis of an operand of this shape, alone, does."""
        return None

    def grown_axis(self, i: int, shape: Shape, axis: int, result: Shape, n: int) -> int | None:
        """The axis of a result that is longer for more examples, which lie along `axis` of operand
        i; `shape` and `result` are the shapes of the two, `n` is how many examples there are. None:
        no axis is."""
        if self.moves_axes:
            return self.moved_axis(shape, axis)
        if axis < len(result) and result[axis] == shape[axis]:
            return axis
        return result.index(shape[axis]) if shape[axis] in result else None

    def summed_over_steps(self) -> Any:
        """The operation that sums up its results for operands with a new first axis each."""
        return None

    def used_operands(self, *avals: Any) -> Sequence[int]:
        """The operands that can change a result."""
        return range(len(avals))
