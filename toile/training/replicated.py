"""Data-parallel training: a step written for one device becomes a step that runs on many devices.

Each device has a copy of the state and its own part of the batch. Gradients are averaged when the
state applies them, and metrics are averaged when the step returns them. All devices therefore make
the same update, and their states stay bit-for-bit identical. On one device, the step is simply
compiled. The device axis then has size 1, and collective operations over it are resolved while the
step is traced.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from toile import api, lax, tree
from toile.api.devices import devices as all_devices
from toile.api.devices import process_index
from toile.engine import dtypes
from toile.engine import trace as tracing
from toile.engine.annotations import PyTree
from toile.engine.devices import Device
from toile.engine.operation import Dim
from toile.engine.source import here
from toile.engine.trace import Array, bound_axis, opened
from toile.parallel.placement import put
from toile.parallel.pmaps import pmap
from toile.sharding import Mesh, NamedSharding, PartitionSpec
from toile.training import replicas
from toile.transforms.vmap import BatchTrace

__all__ = ["replicated"]

MASK = "mask"


def replicated(
    train_step: Callable[..., Any], *, devices: Sequence[Device] | None = None,
    axis_name: str = "batch", donate: bool = True,
) -> Replicated:
    """Run a training step, written for one device, on many devices.

    Each device has a copy of the state and its own part of the batch. `TrainState.apply_gradients`
    averages the gradients and all other changes to the state. A step that does not use this method
    must call `toile.training.average`. Metrics that the step returns are averaged. `ModelState`
    draws different random numbers on each device.

    The batch is divided along the first axes of its arrays. If the size of a batch is not a
    multiple of the number of devices and the batch has a boolean entry `mask`, the batch is padded,
    and `mask` is False for the padding. Each device is then weighted by its number of real
    examples. In a program that consists of several processes, each process passes its own part of
    the batch, and all parts must have the same size.

    Args:
        train_step: a function `f(state, batch, ...)` that returns a pair (state, metrics). The
            remaining arguments are the same on all devices, except for random keys, which differ.
        devices: the devices; if None, all devices are used.
        axis_name: name of the mapped axis inside the step, to which layers such as `BatchNorm`
            refer.
        donate: whether to reuse the memory of the old state. If True, the old state can no longer
            be read.

    Returns:
        A compiled function that accepts the arguments of `train_step`. Its method `replicate`
        copies a state to the devices.

    Raises:
        ValueError: the batch cannot be divided evenly and has no `mask`; raised by the returned
            function.

    >>> import numpy as np
    >>> import toile.linen as nn
    >>> from toile import optim, training
    >>> from toile.training.train_state import TrainState
    >>> model = nn.Dense(2)
    >>> params = model.init(key(0), np.ones((1, 3)))["params"]
    >>> state = TrainState.create(apply_fn=model.apply, params=params, tx=optim.sgd(0.1))
    >>> def train_step(state, batch):
    ...     def loss(params):
    ...         return ((state.apply_fn({"params": params}, batch["x"]) - batch["y"]) ** 2).mean()
    ...     value, grads = toile.value_and_grad(loss)(state.params)
    ...     return state.apply_gradients(grads=grads), {"loss": value}
    >>> step = training.replicated(train_step)
    >>> batch = {"x": np.ones((8, 3), "float32"), "y": np.ones((8, 2), "float32")}
    >>> for _ in range(3):
    ...     state, metrics = step(state, batch)
    >>> int(state.step), bool(metrics["loss"] < 3.0)
    (3, True)
    """
    return Replicated(train_step, devices, axis_name, donate)


class Replicated:
    """A training step that runs on several devices, as returned by `replicated`.

    Args:
        train_step: a function `f(state, batch, ...)` that returns a pair (state, metrics).
        devices: the devices; if None, all devices are used.
        axis_name: name of the mapped axis inside the step.
        donate: whether to reuse the memory of the old state.

    >>> from toile import training
    >>> step = training.replicated(lambda state, batch: (state + batch.sum(), {}))
    >>> step.shard(jnp.ones((toile.device_count(), 2))).shape == (toile.device_count(), 1, 2)
    True
    """

    def __init__(
        self, train_step: Callable[..., Any], devices: Sequence[Device] | None, axis_name: str,
        donate: bool,
    ):
        if not callable(train_step):
            raise TypeError(f"replicated: needed a train step, got {train_step!r}{here()}")
        functools.update_wrapper(self, train_step, updated=())
        self.train_step, self.axis_name, self.donate = train_step, axis_name, donate
        self.devices = list(all_devices() if devices is None else devices)
        self.own = [d for d in self.devices if d.process_index == process_index()]
        if not self.devices:
            raise ValueError("replicated: needed a device, got none" + here())
        self.steps: dict[int, Any] = {}
        given = (0,) if donate else ()
        self.single = None
        if len(self.devices) == 1:
            self.single = api.jit(_alone(train_step, axis_name), donate_argnums=given)

    def __call__(self, state: Any, batch: Any, *more: Any) -> Any:
        if self.single is not None:
            return self.single(state, batch, *more)
        step = self.steps.get(len(more))
        if step is None:
            step = self.steps[len(more)] = pmap(
                self._step, self.axis_name, in_axes=(None, 0, *[None] * len(more)), out_axes=None,
                devices=self.devices, donate_argnums=(0,) if self.donate else (),
            )
        return step(state, self.shard(batch), *more)

    def _step(self, state: Any, batch: Any, *more: Any) -> Any:
        """Run the step on one device."""
        mask = _mask_of(batch)
        weight = None if mask is None else mask.astype("float32").sum()
        with replicas.over(self.axis_name, weight):
            more = tree.map(_own, more)
            out = self.train_step(state, batch, *more)
            if not isinstance(out, tuple):
                return out
            new, *measured = out
            return new, *(replicas.average_metrics(m) for m in measured)

    def shard(self, batch: PyTree) -> PyTree:
        """Divide a batch among the devices of this process.

        Args:
            batch: tree of arrays whose first axes have the same length.

        Returns:
            A tree of arrays with a new first axis, which has one entry for each device. If
            necessary, a batch with a `mask` is padded.

        Raises:
            ValueError: the batch cannot be divided evenly and has no `mask`.
        """
        count = len(self.own)
        sizes: set[Any] = {np.shape(x)[0] if np.ndim(x) else None for x in tree.leaves(batch)}
        if len(sizes) != 1 or None in sizes:
            raise ValueError(
                "replicated: needed a batch of arrays with first axes of one size, got sizes "
                f"{sorted(sizes, key=str)}{here()}"
            )
        (size,) = sizes
        missing = -size % count
        if missing and _mask_of(batch) is None:
            raise ValueError(
                f"replicated: needed a batch size divisible by {count} devices, got {size} (drop "
                f"the rest, or give the batch a boolean array {MASK!r}, which is padded with False)"
                f"{here()}"
            )

        def divided(x: Any) -> Any:
            if missing:
                x = np.asarray(x)
                x = np.concatenate([x, np.zeros((missing, *x.shape[1:]), x.dtype)])
            return x.reshape(count, -1, *x.shape[1:])

        return tree.map(divided, batch)

    def replicate(self, state: PyTree) -> PyTree:
        """Copy a state to all devices.

        When the step is called with a state that is not on all devices, it copies that state
        automatically.

        Args:
            state: tree of arrays.

        Returns:
            A tree of arrays, each of which has a copy on every device.
        """
        if self.single is not None:
            return state
        mesh = Mesh(np.array(self.own, object), (self.axis_name,))
        everywhere = NamedSharding(mesh, PartitionSpec())
        return tree.map(lambda x: put(x, everywhere), state)

    def __repr__(self) -> str:
        return f"<{self.train_step!r} replicated on {len(self.devices)} devices>"


class _AloneTrace(BatchTrace):
    """An axis of size 1 that no value has; it is removed from results that vmap adds it to."""

    __slots__ = ()

    def wrap(self, value: Any, dim: Dim) -> Any:
        return value if dim is None else lax.squeeze(value, (dim,))


def _alone(step: Callable[..., Any], axis_name: str) -> Callable[..., Any]:
    """The step on a single device, with the axis in scope."""

    @functools.wraps(step, updated=())
    def run(*args: Any) -> Any:
        axis = (axis_name, 1)
        with opened(_AloneTrace(tracing.state.trace, axis)), bound_axis(*axis):
            return step(*args)

    return run


def _mask_of(batch: Any) -> Any:
    return batch.get(MASK) if isinstance(batch, Mapping) else getattr(batch, MASK, None)


def _own(x: Any) -> Any:
    """Make a key different on each device; return any other value unchanged."""
    is_key = isinstance(x, Array) and dtypes.is_extended(x.dtype)
    return replicas.fold(x) if is_key else x
