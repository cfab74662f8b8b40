"""`jax.experimental.host_callback`: functions of Python that compiled programs call."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from toile import debug, devices, tree
from toile.api.callbacks import effects_barrier
from toile.experimental import io_callback
from toile.numpy import asarray

__all__ = [
    "CallbackException", "barrier_wait", "call", "id_print", "id_tap", "outfeed_receiver",
    "stop_outfeed_receiver",
]


class CallbackException(Exception):
    """An error in a function that a program called."""


def id_tap(tap_func: Callable[..., Any], arg: Any, *, result: Any = None,
           tap_with_device: bool = False, device_index: int = 0, **kwargs: Any) -> Any:
    """Call `tap_func(arg, transforms)`, and return `result`, or `arg` if it is None.

    toile calls the function for each example of `vmap`, so `transforms` is empty."""
    def tap(values: Any) -> None:
        more = {"device": devices()[device_index]} if tap_with_device else {}
        tap_func(values, (), **more, **kwargs)

    arg = tree.map(asarray, arg)
    debug.callback(tap, arg, ordered=False)
    return arg if result is None else result


def id_print(arg: Any, *, result: Any = None, tap_with_device: bool = False,
             device_index: int = 0, output_stream: Any = None, threshold: Any = None,
             **kwargs: Any) -> Any:
    """Print `arg` with the given options, and return `result`, or `arg` if it is None."""
    def show(values: Any, _: Any, **device: Any) -> None:
        named = {**device, **kwargs}
        lines = "  ".join(f"{name}: {value}" for name, value in named.items())
        print(*([lines] if lines else []), values, sep="\n", file=output_stream)

    return id_tap(show, arg, result=result, tap_with_device=tap_with_device,
                  device_index=device_index)


def call(callback_func: Callable[..., Any], arg: Any, *, result_shape: Any = None,
         call_with_device: bool = False, device_index: int = 0) -> Any:
    """Call `callback_func(arg)` and return its result, whose shapes are those of `result_shape`."""
    def run(values: Any) -> Any:
        more = {"device": devices()[device_index]} if call_with_device else {}
        out = callback_func(values, **more)
        return None if result_shape is None else out

    return io_callback(run, result_shape, arg)


def barrier_wait(barrier_name: str | None = None) -> None:
    """Wait until all functions that programs call have returned."""
    effects_barrier()


def stop_outfeed_receiver() -> None:
    """Wait as `barrier_wait` does; there is no receiver."""
    effects_barrier()


@contextlib.contextmanager
def outfeed_receiver(**_: Any) -> Iterator[None]:
    """Wait for all calls at the end of the block; JAX needed this until 2020."""
    try:
        yield
    finally:
        effects_barrier()
