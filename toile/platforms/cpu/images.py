"""Encodes an `Image` with its kernel names, symbols and Python steps as bytes, and decodes it.

What is read is checked before it is used: numbers of slots, kernels, words and steps are in range,
and results are within their blocks.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from toile.disk import operation_records
from toile.disk.plan_data import decode, encode
from toile.disk.plan_schema import Damaged, Schema
from toile.engine.buffers import allocate
from toile.engine.program import Atom, Program
from toile.platforms.cpu.command_code import Coding, Reading
from toile.platforms.cpu.execution import Image, PythonStep

_DIGEST = 32  # bytes
_LOCATED = "tuple[tuple[int, int, tuple[int, ...], dtype, tuple[int, ...]], ...]"
_TYPE = ("tuple[tuple[int, int, int, bool], tuple[bytes, ...], tuple[bytes, ...], "
         "tuple[tuple[int, bytes], ...], tuple[bytes, bytes], tuple[str, ...], "
         f"tuple[tuple[Operation, {_LOCATED}, {_LOCATED}], ...]]")


class Kept(NamedTuple):
    """What is on disk: kernels are identified by a digest and the key of their object."""

    image: Image
    kernels: list[tuple[bytes, str]]
    symbols: list[str]
    steps: list[PythonStep]


@functools.cache
def schema() -> Schema:
    """The records that may be in an image: operations and their parameters."""
    operations = operation_records.operations()
    return Schema([*operations, *operation_records.parameters()],
                  families={"Operation": [r.name for r in operations]})


def written(kept: Kept) -> bytes:
    """The encoded bytes; raises Unencodable if a step cannot be encoded."""
    image = kept.image
    arrays = (image.blocks, image.places, *image.in_arena, image.words)
    digests = b"".join([digest for digest, _ in kept.kernels])
    keys = b"".join([bytes.fromhex(key) for _, key in kept.kernels])
    return encode((
        (image.inputs, image.slots, image.arena_bytes, bool(image.calls_blas)),
        tuple([np.asarray(x, np.int64).tobytes() for x in arrays]),
        Coding(image.commands).parts,
        tuple([(slot, x.tobytes()) for slot, x in image.constants]),
        (digests, keys), tuple(kept.symbols), tuple(kept.steps),
    ), schema())


def read(data: bytes, program: Program, tests: bool = False) -> Kept:
    """Decode what was kept for a Program; raises Damaged if the bytes are anything else.

    With `tests`, its last output, which has the results of its tests, is not among the results."""
    parts = decode(data, schema())
    if not schema().check(_TYPE).fits(parts):
        raise Damaged("it is not the plan of a Program")
    (inputs, slots, arena_bytes, calls_blas), arrays, code, constants, names, symbols, steps = parts
    try:
        blocks, places, in_arena, offsets, words = [np.frombuffer(x, np.int64) for x in arrays]
        places = places.reshape(-1, 2)
        digests, keys = [_names(x) for x in names]
        kernels = [(d, k.hex()) for d, k in zip(digests, keys, strict=True)]
        commands = Reading(code, slots, words.size, len(kernels), len(steps)).commands()
    except ValueError as error:
        raise Damaged(f"its parts are of another form ({error})") from error
    _need(0 <= inputs and inputs + blocks.size <= slots < 1 << 32, "the number of slots")
    _need(0 <= arena_bytes < 1 << 56, "the size of temporaries")
    _need(inputs == len(program.inputs), "the number of inputs")
    _check_results(blocks, places, program.outputs[: len(program.outputs) - tests])
    _need(in_arena.size == offsets.size, "the number of temporaries")
    _need(_within(in_arena, slots - 1) and _within(offsets, arena_bytes), "a temporary")
    _need(all(0 <= slot < slots for slot, _ in constants), "a constant")
    for _, ins, outs in steps:
        _need(all(0 <= x[0] < slots and len(x[2]) == len(x[4]) for x in (*ins, *outs)), "a step")
    image = Image(
        inputs, slots, blocks.tolist(), list(zip(*places.T.tolist(), strict=True)), arena_bytes,
        (in_arena, offsets), [(slot, _aligned(x)) for slot, x in constants], commands, words,
        calls_blas,
    )
    return Kept(image, kernels, list(symbols), list(steps))


def _need(holds: Any, what: str) -> None:
    if not holds:
        raise Damaged(f"{what} of the plan is out of range")


def _within(numbers: np.ndarray, most: int) -> bool:
    return not numbers.size or bool(numbers.min() >= 0 and numbers.max() <= most)


def _check_results(blocks: np.ndarray, places: np.ndarray, outputs: Sequence[Atom]) -> None:
    """Reject an image of another Program, or one with results outside their blocks."""
    _need(len(places) == len(outputs), "the number of results")
    if not places.size:
        return
    _need(_within(blocks, 1 << 56) and _within(places[:, 0], blocks.size - 1), "a block")
    sizes = np.array([o.aval.nbytes for o in outputs], np.int64)
    fits = places[:, 1] + sizes <= blocks[places[:, 0]]
    _need(_within(places[:, 1], 1 << 56) and fits.all(), "the place of a result")


def _names(joined: bytes) -> list[bytes]:
    if len(joined) % _DIGEST:
        raise Damaged("the name of a kernel is cut off")
    return [joined[i:i + _DIGEST] for i in range(0, len(joined), _DIGEST)]


def _aligned(data: bytes) -> np.ndarray:
    """The bytes as an array in memory that is aligned for kernels."""
    made = allocate(len(data))[0][: len(data)]
    made[...] = np.frombuffer(data, np.uint8)
    return made
