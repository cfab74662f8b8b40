"""Helpers that replicate trees, prefetch and pad batches, and loop over several axes of arrays.

The module corresponds to `flax.jax_utils`. The arrays of a replicated tree have an additional first
axis, with one entry for each device.
"""

from __future__ import annotations

import collections
import itertools
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from toile import lax, tree
from toile import numpy as jnp
from toile.api.devices import device_get, device_put, local_device_count, local_devices
from toile.core.partial_eval import constant_outputs
from toile.engine.annotations import PyTree
from toile.engine.avals import aval_of
from toile.engine.conversion import as_array, raw_operand
from toile.engine.devices import Device
from toile.engine.sharded import from_parts, replicas
from toile.engine.source import here
from toile.engine.structs import ShapeDtypeStruct
from toile.engine.trace import Array, Tracer
from toile.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

__all__ = [
    "pad_shard_unpad", "partial_eval_by_shape", "pmean", "prefetch_to_device", "replicate",
    "scan_in_dim", "unreplicate",
]  # fmt: skip


def _over(devices: Sequence[Any], axis_name: str) -> NamedSharding:
    """Return a sharding that puts one slice along the first axis on each device."""
    return NamedSharding(Mesh(np.array(devices), (axis_name,)), PartitionSpec(axis_name))


def replicate(
    tree_: PyTree, devices: Sequence[Device] | None = None,
    axis_name: str = "_device_put_sharded",
) -> PyTree:
    """Put a copy of each array on every device, stacked along a new first axis.

    Args:
        tree_: tree of arrays.
        devices: the devices; None for all devices of this process.
        axis_name: name of the new axis in the sharding of the result.

    Returns:
        A tree of arrays with one copy for each device along the first axis.

    >>> from toile.jax_utils import replicate
    >>> replicate({"w": jnp.ones(3)})["w"].shape == (toile.local_device_count(), 3)
    True
    """
    chosen = devices or local_devices()
    sharding = _over(chosen, axis_name)

    def copies(x: Any) -> Any:
        x = as_array(x)
        if len(chosen) == 1 or isinstance(x, Tracer):
            return device_put(jnp.stack([x] * len(chosen)), sharding)
        aval = x.aval.update(shape=(len(chosen), *x.shape), weak_type=False)
        return from_parts(replicas(raw_operand(x)[None], chosen), aval, sharding)  # host: shared

    return tree.map(copies, tree_)


def unreplicate(tree_: PyTree) -> PyTree:
    """Undo `replicate`: return the first copy of each array.

    If an array is stored whole on every device, its first axis is kept, and the copy on the first
    device is returned.

    Args:
        tree_: tree of arrays with one copy for each device along the first axis. Scalars are
            returned unchanged.

    Returns:
        A tree of arrays without the first axis.

    >>> from toile.jax_utils import replicate, unreplicate
    >>> unreplicate(replicate({"w": jnp.ones(3)}))["w"].shape
    (3,)
    """
    return tree.map(_first_copy, tree_)


def _first_copy(x: Any) -> Any:
    if getattr(x, "ndim", None) == 0:
        return x
    sharding = getattr(x, "sharding", None)  # tracers and NumPy arrays have none
    if sharding is None or isinstance(sharding, SingleDeviceSharding) or local_device_count() == 1:
        return x[0]
    own = x.addressable_shards[0].data
    return own if sharding.is_fully_replicated else own.squeeze(0)


def pmean(xs: PyTree, axis_name: str | tuple[str, ...]) -> PyTree:
    """Compute the mean over a mapped axis; deprecated in favor of `toile.lax.pmean`.

    Args:
        xs: tree of arrays.
        axis_name: name that was passed to `vmap` or `pmap` as `axis_name`, or a tuple of such
            names.

    Returns:
        A tree of means.
    """
    warnings.warn("use toile.lax.pmean instead", DeprecationWarning, stacklevel=2)
    return lax.pmean(xs, axis_name)


def partial_eval_by_shape(
    fn: Callable[..., Any], input_spec: Iterable[Any], *args: PyTree, **kwargs: PyTree
) -> PyTree:
    """Evaluate a function as far as possible when only the shapes of some arguments are known.

    Args:
        fn: a function that is called as `fn(*inputs, *args, **kwargs)`.
        input_spec: the shape of each input, or a pair `(shape, dtype)`. The default dtype is
            float32.
        *args, **kwargs: the other arguments of `fn`, whose values are known.

    Returns:
        The results of `fn`. Results that do not depend on the inputs are computed. Every other
        result is replaced by a `toile.ShapeDtypeStruct`, which has only a shape and a dtype.

    >>> from toile.jax_utils import partial_eval_by_shape
    >>> partial_eval_by_shape(lambda x: (jnp.ones(2), x @ x.T), [(3, 4)])
    (Array([1., 1.], dtype=float32), ShapeDtypeStruct(shape=(3, 3), dtype=float32))
    """
    leaves, in_tree = tree.flatten([_parse_spec(spec) for spec in input_spec])
    seen: list[Any] = []

    def flat(*inputs: Any) -> list[Any]:
        outs, out_tree = tree.flatten(fn(*tree.unflatten(in_tree, inputs), *args, **kwargs))
        seen[:] = [out_tree, [aval_of(o) for o in outs]]
        return outs

    values = constant_outputs(flat, [aval_of(leaf) for leaf in leaves])
    out_tree, avals = seen
    return tree.unflatten(out_tree, [
        ShapeDtypeStruct(aval.shape, aval.dtype) if value is None else value
        for value, aval in zip(values, avals, strict=True)
    ])


def _parse_spec(spec: Any) -> ShapeDtypeStruct:
    """Convert a shape, or a pair of a shape and a dtype, to a ShapeDtypeStruct."""
    parts = tuple(spec)
    if len(parts) == 2 and isinstance(parts[0], Iterable):
        return ShapeDtypeStruct(tuple(parts[0]), parts[1])
    return ShapeDtypeStruct(parts, jnp.float32)


def prefetch_to_device(
    iterator: Iterator[PyTree], size: int, devices: Sequence[Device] | None = None,
    axis_name: str = "_device_put_sharded",
) -> Iterator[PyTree]:
    """Transfer the items of an iterator to the devices before they are needed.

    Args:
        iterator: iterator over trees of arrays. The first axis of each array has one entry for each
            device.
        size: number of items to prefetch. The value 2 is usually enough: each batch is transferred
            while the previous batch is processed.
        devices: the devices; None for all devices of this process.
        axis_name: name of the first axis in the sharding of the results.

    Yields:
        The items, whose arrays are split across the devices along the first axis.

    >>> import numpy as np
    >>> from toile.jax_utils import prefetch_to_device
    >>> batches = ({"x": np.full((1, 2), i)} for i in range(3))
    >>> [int(b["x"].sum()) for b in prefetch_to_device(batches, 2, toile.local_devices()[:1])]
    [0, 2, 4]
    """
    chosen = local_devices() if devices is None else devices
    sharding = _over(chosen, axis_name)
    waiting: collections.deque[Any] = collections.deque()
    items = iter(iterator)

    def put(xs: Any) -> Any:
        return device_put(xs if isinstance(xs, Array) else np.stack(list(xs)), sharding)

    def fetch(count: int) -> None:
        for item in itertools.islice(items, count):
            waiting.append(tree.map(put, item))

    fetch(size)
    while waiting:
        yield waiting.popleft()
        fetch(1)


def scan_in_dim(
    body_fn: Callable[[Any, Any], Any], init: PyTree, xs: PyTree,
    axis: int | Iterable[int] = (0,), unroll: int | Iterable[int] = (1,), keepdims: bool = False,
) -> tuple[PyTree, PyTree]:
    """Loop over one or more axes of arrays, like nested calls to `toile.lax.scan`.

    Args:
        body_fn: a function `f(carry, x)` that returns `(carry, y)`, where `x` is a slice of `xs`.
        init: initial carry, a tree of arrays.
        xs: tree of arrays to loop over.
        axis: axis or axes to loop over, starting with the outermost loop.
        unroll: for each loop, the number of steps that are unrolled in one iteration. If there are
            fewer numbers than axes, they apply to the innermost loops, and the outer loops are not
            unrolled.
        keepdims: whether slices and results keep the axes that are looped over, with size 1.

    Returns:
        The pair `(carry, ys)`: the last carry, and the results stacked along the same axes.

    >>> from toile.jax_utils import scan_in_dim
    >>> total, sums = scan_in_dim(lambda c, x: (c + x, c + x), 0.0, jnp.ones((2, 3)), axis=(1, 0))
    >>> float(total), sums.shape
    (6.0, (2, 3))
    """
    axes = tuple(axis) if isinstance(axis, Iterable) else (axis,)
    unrolls = tuple(unroll) if isinstance(unroll, Iterable) else (unroll,)
    unrolls = (1,) * (len(axes) - len(unrolls)) + unrolls
    n = len(axes)

    def front(x: Any) -> Any:
        return jnp.moveaxis(x, axes, tuple(range(n)))

    def back(x: Any) -> Any:
        return jnp.moveaxis(x, tuple(range(n)), axes)

    def body(carry: Any, x: Any) -> Any:
        if keepdims:
            x = tree.map(lambda v: back(v.reshape((1,) * n + v.shape)), x)
        carry, y = body_fn(carry, x)
        if keepdims:
            y = tree.map(lambda v: front(v).reshape(front(v).shape[n:]), y)
        return carry, y

    def loops(level: int) -> Callable[[Any, Any], Any]:
        if level == n:
            return body
        return lambda carry, x: lax.scan(loops(level + 1), carry, x, unroll=unrolls[level])

    carry, ys = loops(0)(init, tree.map(front, xs))
    return carry, tree.map(back, ys)


def pad_shard_unpad(
    wrapped: Callable[..., Any], static_argnums: Sequence[int] = (0,),
    static_argnames: Sequence[str] = (), static_return: bool = False,
) -> Callable[..., Any]:
    """Wrap a function that expects one batch per device so that it accepts batches of any size.

    The new function pads its arguments with zeros until the batch size is a multiple of the number
    of devices, and splits the padded arguments across the devices along a new first axis. After
    calling `wrapped`, it joins the results and removes the padding. The new function also has a
    keyword argument `min_device_batch`, the minimum number of examples per device. If this argument
    is set, a smaller last batch is padded to the usual shape, which avoids a recompilation.

    Args:
        wrapped: a function whose arguments have shape `(devices, batch, ...)`, such as a function
            that `toile.pmap` returned.
        static_argnums: positions of arguments that are passed unchanged, such as parameters.
        static_argnames: names of keyword arguments that are passed unchanged.
        static_return: whether to return the results of `wrapped` unchanged.

    Returns:
        A function whose arguments have shape `(batch, ...)`. Its results are NumPy arrays, unless
        `static_return` is True.

    >>> import numpy as np
    >>> from toile.jax_utils import pad_shard_unpad
    >>> forward = pad_shard_unpad(lambda w, x: w * x)
    >>> forward(2.0, np.arange(3.0)).tolist()
    [0.0, 2.0, 4.0]
    """

    def pad_shard_unpad_wrapper(
        *args: Any, min_device_batch: int | None = None, **kwargs: Any
    ) -> Any:
        devices = local_device_count()
        moved = [a for i, a in enumerate(args) if i not in static_argnums]
        moved += [v for k, v in kwargs.items() if k not in static_argnames]
        sizes = {leaf.shape[0] for leaf in tree.leaves(moved)}
        if len(sizes) != 1:
            raise AssertionError(
                f"Inconsistent batch-sizes: {sizes or '{}'} (pad_shard_unpad: needed one size of "
                f"first axes among the arguments that are not static){here()}"
            )
        (batch,) = sizes
        per_device = max(-(-batch // devices), min_device_batch or 0)

        def pad(x: Any) -> Any:
            missing = devices * per_device - batch
            if missing:
                x = np.concatenate([x, np.zeros((missing, *x.shape[1:]), x.dtype)], axis=0)
            return x.reshape(devices, per_device, *x.shape[1:])

        def unpad(x: Any) -> Any:  # on the host, so that devices see few shapes
            return device_get(x).reshape(-1, *x.shape[2:])[:batch]

        args = tuple(
            a if i in static_argnums else tree.map(pad, a) for i, a in enumerate(args)
        )
        kwargs = {
            k: v if k in static_argnames else tree.map(pad, v) for k, v in kwargs.items()
        }
        out = wrapped(*args, **kwargs)
        return out if static_return else tree.map(unpad, out)

    return pad_shard_unpad_wrapper
