"""Questions about an operation, with the answers that hold for most operations.

Passes, fusion, kernels and programs over a mesh ask these questions instead of testing for classes,
so that a new operation takes part in all of them through its own answers. A rule that is None is
absent. This module may not import other modules of toile.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

Shape = Sequence[int]


class Traits:
    """The answers of an operation with no special properties."""

    # ---- results
    # The result is the operand; only transformations before the compiler treat it specially.
    forwards_operand: ClassVar[bool] = False
    # The results are the operands, and no equation is moved across the operation.
    is_barrier: ClassVar[bool] = False
    # Equations with equal operands are still different values.
    is_distinct: ClassVar[bool] = False
    # The result costs nothing where it is read, so hoisting it out of a loop gains nothing.
    is_free: ClassVar[bool] = False
    # The result has axes of any extent that are not in any operand.
    makes_axes: ClassVar[bool] = False
    # The axis along which the elements of the result are 0, 1, 2, ..., repeated along the other
    # axes.
    counted_axis: int | None = None
    # The result is a part of the operand and can be read in place.
    views_part: ClassVar[bool] = False
    # The result has the elements of the operand in another order or under other axes.
    rearranges: ClassVar[bool] = False
    # Its kernels can store the result in a part of another array, between gaps.
    stores_parts: ClassVar[bool] = False
    # The result can be read in place, whatever the operand's strides are.
    is_always_view: ClassVar[bool] = False
    # The padding around the first operand in the result: (before, after, between) for each axis.
    margins: Sequence[tuple[int, int, int]] | None = None
    # The result is the first operand with some elements changed, and may share its memory.
    updates: ClassVar[bool] = False
    # The name by which `checkpoint` policies refer to the result.
    saved_name: str | None = None
    # Calls a user's function, which may keep the arrays that it is given.
    keeps_operands: ClassVar[bool] = False
    # Its Program (`op.programs()[0]`) replaces it once everything has been differentiated.
    is_inlined: ClassVar[bool] = False
    # A backend chooses the Program that replaces it.
    backend_chooses: ClassVar[bool] = False

    # ---- arithmetic
    is_sum: ClassVar[bool] = False  # of two operands, element by element
    # Element by element, the sum of the operands times these numbers.
    signs: ClassVar[tuple[int, ...]] = ()
    is_product: ClassVar[bool] = False
    is_quotient: ClassVar[bool] = False
    is_selection: ClassVar[bool] = False  # its first operand selects from the others, by element
    multiplies: ClassVar[bool] = False  # arrays: a contraction or a convolution
    # Elements along `op.axes` are reduced to one; the operation's name says how.
    is_reduction: ClassVar[bool] = False
    sums_axes: ClassVar[bool] = False  # it is such a reduction, by addition
    of_two: ClassVar[Any] = None  # the elementwise operation by which it combines two elements
    chooses_program: ClassVar[bool] = False  # its first operand selects one of its Programs to run
    # It compares numbers, and complex ones have no order.
    needs_order: ClassVar[bool] = False
    # For one operand: op(x) + op(y) = op(x + y), which is less work.
    commutes_with_sums: ClassVar[bool] = False
    # The result has larger rounding errors than basic arithmetic (as all costly operations have).
    is_inexact: ClassVar[bool] = False
    # Basic arithmetic: the result has the rounding errors of its operands.
    passes_errors: ClassVar[bool] = False
    # A product of two arrays, summed over every axis that both have.
    sums_shared_axes: bool = False
    # Relative errors of the operands carry over to the result: no cancellation.
    keeps_relative_errors: ClassVar[bool] = False

    # ---- loop nests
    # `nest_node(b, member)`: the index of its node, made by the builder of a loop nest. None: the
    # operation has no node of its own; if it works by element, `lower` writes it.
    nest_node: ClassVar[Any] = None
    # `picks(ins, out, innermost, short)`: whether a nest can read the first operand, which is in
    # memory, at places that are computed from the position and from the other operands;
    # `innermost`: also along the innermost axis; `short`: also rows of a few elements. None: a nest
    # never can. `picked_maps(out)`: the maps of the operands, for the result's map.
    picks: ClassVar[Any] = None
    picked_maps: ClassVar[Any] = None
    # Operands that are compiled into the code if they are literals.
    code_operands: ClassVar[tuple[int, ...]] = ()
    # `domain_axes(group, m)`: the map of the result in the domain of a group, where `m` is the map
    # of the operand; None if the domain cannot express it. None: a group cannot read through it.
    domain_axes: ClassVar[Any] = None

    # ---- kernels
    # The results of `lower` are numbers of the result's dtype, without excess precision.
    lower_is_exact: ClassVar[bool] = False
    # The results are the operands themselves.
    is_identity: ClassVar[bool] = False
    # Each element of the result is an element of the operands; `eager` on indices says which one.
    moves_elements: ClassVar[bool] = False
    # All elements of the operand under other axes: a reshape, a transpose, a broadcast.
    moves_axes: ClassVar[bool] = False
    # The operand's numbers, except for rounding.
    only_rounds: ClassVar[bool] = False
    # A smooth function of the kind that activations are composed of.
    is_smooth: ClassVar[bool] = False
    # How it combines elements of an array: "axes" (a reduction over them), "running" (partial
    # results along one), "recurrence" (along one), "places" (of extrema), "products" (sums of
    # them); "": in none of these ways.
    combines: ClassVar[str] = ""
    # A device's library computes it: no kernel does.
    by_library: ClassVar[bool] = False
    # Reads, or `updates`, blocks of its first operand at positions given by other operands.
    by_blocks: ClassVar[bool] = False
    # These positions are index vectors, along the last axis of its second operand.
    by_index: ClassVar[bool] = False
    # `in_registers(f, e, ins)`: the results of an equation on tiny arrays, made by the writer `f`
    # of `kernels.tiny`. None: the other traits decide.
    in_registers: ClassVar[Any] = None
    # How often a loop runs its Program, infinity if that depends on values; None: not a loop.
    turns: Any = None

    # ---- devices of a mesh
    # `together()`: the operation that performs several equal operations in one exchange between
    # devices; `begin(number)` and `end()` are its two halves. None: each operation is an exchange
    # of its own.
    together: ClassVar[Any] = None

    # ---- passes
    # `simplified(new, e)`: the atoms that replace the results of an equation, or None; `new` has
    # the preceding equations (`compiler.passes.rewriter.Rewriter`).
    simplified: ClassVar[Any] = None
    # `without_duplicates(operands)`: the operation and its operands without constants that are
    # given twice, for operations that carry Programs; None if there are none.
    without_duplicates: ClassVar[Any] = None

    # ---- numbers that several arrays represent: quantized numbers, sums with low-rank products
    # `decoded(*operands)`: the represented numbers, composed of other operations. None: the
    # operation does not represent numbers in this way.
    decoded: ClassVar[Any] = None
    # The operands are stored numbers, scales and other parts of a quantized array.
    dequantizes: ClassVar[bool] = False

    # ---- random keys
    # The result shares the operand's buffer, reinterpreted as keys or as the words of keys.
    retypes_keys: ClassVar[bool] = False
    # `hash_words(*operands)`: the result in integer arithmetic on the words of threefry keys.
    hash_words: ClassVar[Any] = None
    # `on_words(*operands)`: its form on the words of keys, if that is not `physical`'s operation.
    on_words: ClassVar[Any] = None

    @property
    def exchange_name(self) -> str:
        """The name under which exchanges between devices are counted; "" if it is not an
        exchange."""
        return ""

    def varies_over(self, names: frozenset[Any], bound: frozenset[Any]) -> frozenset[Any]:
        """The axes of `bound` that a result varies over if the operands vary over `names`."""
        return names

    # `with_index_tests(f, ins, e)`: adds an equation that checks indices, or whose Programs do, to
    # the Program that `f` (in `compiler.index_tests`) makes. None: the indices are not tested.
    with_index_tests: ClassVar[Any] = None
    # `sparse(f, *xs)`: the results for operands of which some are sparse, with the rules of `f` (in
    # `experimental.sparse`). None: there is no rule.
    sparse: ClassVar[Any] = None
    # `value_range(r, e, out)`: see `primitives.integer_ranges`. None: other traits may give it.
    value_range: ClassVar[Any] = None

    def programs(self) -> Sequence[Any]:
        """The Programs that the operation carries."""
        return ()

    def called_program(self) -> Any:
        """The Program that computes the results from the operands; None if there is none."""
        return None

    def by_rows(self, *avals: Any) -> bool:
        """Whether it reads, or adds to, whole rows along the first axis of the first operand,
        selected by the second operand."""
        return False

    def with_swapped_sides(self, perm: Sequence[int]) -> Any:
        """The product that gives this product's result with its axes in the order `perm`, if that
        only swaps rows and columns; otherwise None."""
        return None

    def within_rows(self, *avals: Any) -> bool:
        """Whether it reads, or adds to, one element of each row (last axis) of the first operand,
        at an index given by the second operand."""
        return False

    @property
    def joined_axis(self) -> int | None:
        """The axis along which the operands are concatenated in the result."""
        return None

    def repeated(self) -> Any:
        """The operation whose result this one repeats along a new first axis, or None."""
        return None

    def moved_axis(self, shape: Shape, axis: int) -> int | None:
        """The axis of the result that corresponds to `axis`, and to no other axis, of an operand of
        this shape; None if there is no such axis."""
        return None

    def grown_axis(self, i: int, shape: Shape, axis: int, result: Shape, n: int) -> int | None:
        """The axis of a result that grows with the number of examples, which are along `axis` of
        operand i; `shape` and `result` are the shapes of the two, `n` is the number of examples.
        None: no axis grows."""
        if self.moves_axes:
            return self.moved_axis(shape, axis)
        if axis < len(result) and result[axis] == shape[axis]:
            return axis
        return result.index(shape[axis]) if shape[axis] in result else None

    def summed_over_steps(self) -> Any:
        """The operation that sums this one's results over a new first axis of every operand."""
        return None

    def used_operands(self, *avals: Any) -> Sequence[int]:
        """The operands that can affect a result."""
        return range(len(avals))
