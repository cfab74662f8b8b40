"""Recurrent networks: `RNN` runs a cell over a sequence, and `Bidirectional` runs two networks.

The cells are in `recurrent_cells` and are also exported from here. Sequences of different lengths
are padded at the end, and `seq_lengths` contains the length of each sequence without padding.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

from toile import numpy as jnp
from toile import random, tree
from toile.core.filters import CollectionFilter, PRNGSequenceFilter
from toile.core.frozen_dict import FrozenDict
from toile.core.lift import InOutScanAxis
from toile.engine.source import describe, here
from toile.linen import recurrent_cells as _cells
from toile.linen import transforms
from toile.linen.methods import compact, nowrap
from toile.linen.module import Module
from toile.linen.recurrent_cells import *  # noqa: F403
from toile.linen.recurrent_cells import Array, Carry, RNNCellBase

__all__ = [
    "A", "Bidirectional", "CarryHistory", "FrozenDict", "Module", "Output", "RNN", "RNNBase",
    "compact", "flip_sequences", "nowrap",
]  # fmt: skip
__all__ += _cells.__all__

A = TypeVar("A")
CarryHistory = Any
Output = Any


def _given(option: bool | None, default: bool) -> bool:
    return default if option is None else option


def _feature_axes(cell: Any) -> int:
    """The number of feature axes of a cell."""
    needed = "RNN needed a cell, got"
    if isinstance(cell, type):
        raise TypeError(
            f"{needed} the class {cell.__name__} (make a cell first: nn.RNN(nn.LSTMCell(features)))"
            f"{here()}"
        )
    if not hasattr(cell, "num_feature_axes"):
        raise AttributeError(
            f"{type(cell).__name__!r} object has no attribute 'num_feature_axes': {needed} "
            f"{describe(cell)} (write nn.RNN(nn.LSTMCell(features))){here()}"
        )
    found: int = cell.num_feature_axes
    return found


class RNN(Module):
    """Runs a recurrent cell over a sequence, using the same parameters in all steps.

    Inputs have shape (*batch, time, *features), or (time, *batch, *features) if `time_major` is
    True. The outputs have the same axes, but the cell determines the sizes of their feature axes.
    The parameters are those of the cell, stored under `cell`.

    Args:
        cell: a cell, such as `LSTMCell(64)`.
        time_major: whether the first axis of inputs and outputs is time.
        return_carry: whether to return the pair `(last carry, outputs)` instead of only the
            outputs.
        reverse: whether the cell runs from the last element to the first. The outputs are in the
            order in which they are computed, unless `keep_order` is True.
        keep_order: whether the outputs are in the order of the inputs even if `reverse` is True.
        unroll: number of steps that one iteration of the loop computes.
        variable_axes: dict that maps each collection whose variables have a time axis to that axis;
            see `nn.scan`.
        variable_broadcast: filter that selects the collections that are the same in every step; by
            default, the parameters.
        variable_carry: filter that selects the collections that each step may change and pass on to
            the next step.
        split_rngs: dict that maps each random stream that the cell uses to True if every step gets
            a different key, or to False if all steps get the same key.

    >>> import toile.linen as nn
    >>> x = jnp.ones((10, 50, 32))
    >>> lstm = nn.RNN(nn.LSTMCell(64), return_carry=True)
    >>> variables = lstm.init(key(0), x)
    >>> toile.tree.map(jnp.shape, variables["params"]["cell"]["hf"])
    {'bias': (64,), 'kernel': (64, 64)}
    >>> carry, y = lstm.apply(variables, x)
    >>> toile.tree.map(jnp.shape, carry), y.shape
    (((10, 64), (10, 64)), (10, 50, 64))
    """

    cell: RNNCellBase
    time_major: bool = False
    return_carry: bool = False
    reverse: bool = False
    keep_order: bool = False
    unroll: int = 1
    variable_axes: Mapping[CollectionFilter, InOutScanAxis] = FrozenDict()
    variable_broadcast: CollectionFilter = "params"
    variable_carry: CollectionFilter = False
    split_rngs: Mapping[PRNGSequenceFilter, bool] = FrozenDict({"params": False})

    def __call__(
        self,
        inputs: Array,
        *,
        initial_carry: Carry | None = None,
        init_key: Array | None = None,
        seq_lengths: Array | None = None,
        return_carry: bool | None = None,
        time_major: bool | None = None,
        reverse: bool | None = None,
        keep_order: bool | None = None,
    ) -> Output | tuple[Carry, Output]:
        """Run the cell over `inputs`. Options that are passed here override the fields.

        Args:
            inputs: sequences, padded at the end if they have different lengths.
            initial_carry: carry that is passed to the first step; if None, it is the result of the
                cell's `initialize_carry`, which is zero for most cells.
            init_key: key for `initialize_carry`; if None, `random.key(0)` is used.
            seq_lengths: array of shape (*batch,) with the length of each sequence without padding;
                None if there is no padding. The returned carry is the carry after each sequence's
                last element. The outputs at padded positions are not set to zero.
            return_carry, time_major, reverse, keep_order: options that override the fields of the
                same names; if an option is None, the field is used.

        Returns:
            The outputs; if `return_carry` is True, the pair `(carry, outputs)`.
        """
        return_carry = _given(return_carry, self.return_carry)
        time_major = _given(time_major, self.time_major)
        reverse = _given(reverse, self.reverse)
        keep_order = _given(keep_order, self.keep_order)
        feature_axes = _feature_axes(self.cell)
        time_axis = 0 if time_major else inputs.ndim - (feature_axes + 1)
        if time_axis < 0:
            time_axis += inputs.ndim
        batch = inputs.shape[1:-feature_axes] if time_major else inputs.shape[:time_axis]
        if seq_lengths is not None:
            sizes = zip(jnp.shape(seq_lengths)[::-1], batch[::-1], strict=False)
            if any(n not in (1, size) for n, size in sizes):
                raise ValueError(
                    f"RNN: needed a length for each sequence, seq_lengths of shape {batch}, got "
                    f"{describe(seq_lengths)} for inputs {describe(inputs)} (pass the axes of the "
                    f"inputs without time and features){here()}"
                )

        def flip(x: Array) -> Array:
            return flip_sequences(x, seq_lengths, len(batch), time_major)

        if reverse:
            inputs = tree.map(flip, inputs)
        carry = initial_carry
        if carry is None:
            key = random.key(0) if init_key is None else init_key
            shape = inputs.shape[:time_axis] + inputs.shape[time_axis + 1 :]
            carry = self.cell.initialize_carry(key, shape)

        # To find the carry after each sequence's end, keep all carries and choose afterwards. This
        # takes memory, but needs no selection in each step.
        every_carry = seq_lengths is not None and return_carry
        carry, outputs = _loop(self, every_carry, time_axis)(self.cell, carry, inputs)
        if every_carry:
            carries, outputs = outputs
            carry = _last(carries, seq_lengths)
        if reverse and keep_order:
            outputs = tree.map(flip, outputs)
        return (carry, outputs) if return_carry else outputs


def _loop(rnn: RNN, every_carry: bool, time_axis: int) -> Callable[..., Any]:
    """The loop of a cell over time; with `every_carry`, it returns all carries with the outputs."""

    def step(cell: RNNCellBase, carry: Carry, x: Array) -> tuple[Carry, Any]:
        carry, y = cell(carry, x)
        return carry, ((carry, y) if every_carry else y)

    return transforms.scan(
        step, in_axes=time_axis, out_axes=(0, time_axis) if every_carry else time_axis,
        unroll=rnn.unroll, variable_axes=rnn.variable_axes,
        variable_broadcast=rnn.variable_broadcast, variable_carry=rnn.variable_carry,
        split_rngs=rnn.split_rngs,
    )  # fmt: skip


def _last(carries: A, seq_lengths: Array) -> A:
    """From carries of shape (time, batch, ...), the carry after each sequence's last element."""
    last = seq_lengths - 1
    return tree.map(lambda x: x[last, jnp.arange(x.shape[1])], carries)


def flip_sequences(
    inputs: Array, seq_lengths: Array | None, num_batch_dims: int, time_major: bool
) -> Array:
    """Reverse sequences in time, but keep their padding at the end.

    Args:
        inputs: array of shape (*batch, time, ...), or (time, *batch, ...) if `time_major` is True.
        seq_lengths: array of shape (*batch,) with the length of each sequence without padding; if
            None, the whole time axis is reversed.
        num_batch_dims: number of batch axes.
        time_major: whether the first axis is time.

    Returns:
        An array with the shape of `inputs`.

    >>> from toile.linen.recurrent import flip_sequences
    >>> x = jnp.array([[1, 0, 0], [2, 3, 0], [4, 5, 6]])
    >>> flip_sequences(x, jnp.array([1, 2, 3]), num_batch_dims=1, time_major=False)
    Array([[1, 0, 0],
           [3, 2, 0],
           [6, 5, 4]], dtype=int32)
    """
    time_axis = 0 if time_major else num_batch_dims
    if seq_lengths is None:
        return jnp.flip(inputs, axis=time_axis)
    steps = inputs.shape[time_axis]
    lengths = jnp.expand_dims(seq_lengths, axis=time_axis)
    # Step t takes element length - 1 - t, which wraps around if it is negative.
    backwards = jnp.arange(steps - 1, -1, -1)
    ones = (1,) * num_batch_dims
    backwards = backwards.reshape((steps, *ones) if time_major else (*ones, steps))
    index = (backwards + lengths) % steps
    index = index.reshape(index.shape + (1,) * (inputs.ndim - index.ndim))
    return jnp.take_along_axis(inputs, index, axis=time_axis)


def _concatenate(a: Array, b: Array) -> Array:
    """Concatenate the outputs of both directions along the last axis."""
    return jnp.concatenate([a, b], axis=-1)


class RNNBase(Protocol):
    """The interface that the networks in a `Bidirectional` must have; `RNN` has this interface."""

    def __call__(
        self,
        inputs: Array,
        *,
        initial_carry: Carry | None = None,
        init_key: Array | None = None,
        seq_lengths: Array | None = None,
        return_carry: bool | None = None,
        time_major: bool | None = None,
        reverse: bool | None = None,
        keep_order: bool | None = None,
    ) -> Output | tuple[Carry, Output]: ...


class Bidirectional(Module):
    """Runs two recurrent networks over a sequence, one forward and one backward.

    Inputs have shape (*batch, time, *features), or (time, *batch, *features) if `time_major` is
    True. The outputs of both networks are put in the order of the inputs and combined by
    `merge_fn`. The parameters are those of the networks, stored under `forward_rnn` and
    `backward_rnn`.

    Args:
        forward_rnn: network that runs from the first element to the last.
        backward_rnn: network that runs from the last element to the first. If it is the same object
            as `forward_rnn`, the two directions share parameters.
        merge_fn: function `f(forward, backward)` that combines the outputs of both networks. By
            default, it concatenates them along the last axis.
        time_major: whether the first axis of inputs and outputs is time.
        return_carry: whether to return the pair `((forward carry, backward carry), outputs)`
            instead of only the outputs.

    >>> import toile.linen as nn
    >>> layer = nn.Bidirectional(nn.RNN(nn.GRUCell(4)), nn.RNN(nn.GRUCell(4)))
    >>> x = jnp.ones((2, 7, 3))
    >>> variables = layer.init(key(0), x)
    >>> toile.tree.map(jnp.shape, variables["params"]["backward_rnn"]["cell"]["in"])
    {'bias': (4,), 'kernel': (3, 4)}
    >>> layer.apply(variables, x).shape
    (2, 7, 8)
    """

    forward_rnn: RNNBase
    backward_rnn: RNNBase
    merge_fn: Callable[[Array, Array], Array] = _concatenate
    time_major: bool = False
    return_carry: bool = False

    def __call__(
        self,
        inputs: Array,
        *,
        initial_carry: Carry | None = None,
        init_key: Array | None = None,
        seq_lengths: Array | None = None,
        return_carry: bool | None = None,
        time_major: bool | None = None,
        reverse: bool | None = None,
        keep_order: bool | None = None,
    ) -> Output | tuple[Carry, Output]:
        """Run both networks over `inputs` and merge their outputs.

        Args:
            inputs: sequences, padded at the end if they have different lengths.
            initial_carry: pair of the carries that are passed to the first step of each network;
                if None, the networks create them.
            init_key: key that is split into one key for each network, to create the initial
                carries. If `init_key` is None, the networks use their default key.
            seq_lengths: array of shape (*batch,) with the length of each sequence without padding;
                None if there is no padding.
            return_carry, time_major: options that override the fields of the same names; if an
                option is None, the field is used.
            reverse, keep_order: not used.

        Returns:
            The merged outputs; if `return_carry` is True, the pair
            `((forward carry, backward carry), outputs)`.
        """
        return_carry = _given(return_carry, self.return_carry)
        keys = (None, None) if init_key is None else random.split(init_key)
        carries = (None, None) if initial_carry is None else initial_carry
        if self.forward_rnn is self.backward_rnn:
            logging.getLogger("toile").warning(
                "Bidirectional: forward_rnn and backward_rnn are the same object, so they will "
                "share parameters."
            )
        options: dict[str, Any] = {
            "seq_lengths": seq_lengths,
            "return_carry": True,
            "time_major": _given(time_major, self.time_major),
        }
        carry_forward, forwards = self.forward_rnn(
            inputs, initial_carry=carries[0], init_key=keys[0], reverse=False, **options
        )
        carry_backward, backwards = self.backward_rnn(
            inputs, initial_carry=carries[1], init_key=keys[1], reverse=True, keep_order=True,
            **options,
        )  # fmt: skip
        outputs = tree.map(self.merge_fn, forwards, backwards)
        return ((carry_forward, carry_backward), outputs) if return_carry else outputs
