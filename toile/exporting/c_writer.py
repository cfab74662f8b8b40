"""The text of an exported C library: a header, and the C file that runs a plan's kernels."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from toile.engine import dtypes
from toile.engine.keypaths import keystr
from toile.engine.source import here
from toile.engine.trees import flatten_with_path, unflatten
from toile.exporting import c_runtime as runtime
from toile.exporting.c_plans import CPlan, batch_limits
from toile.exporting.free_sizes import FreeSize, expression
from toile.exporting.tracing import Model
from toile.targets.llvm.stop_checks import CHECK

# The C types of numbers, and the size to which their addresses must be aligned.
C_TYPES = {
    "bool": "uint8_t", "int8": "int8_t", "int16": "int16_t", "int32": "int32_t",
    "int64": "int64_t", "uint8": "uint8_t", "uint16": "uint16_t", "uint32": "uint32_t",
    "uint64": "uint64_t", "float16": "uint16_t", "bfloat16": "uint16_t", "float32": "float",
    "float64": "double", "complex64": "float", "complex128": "double",
}  # fmt: skip
_NOTES = {
    "bool": "0 or 1", "float16": "bits of float16", "bfloat16": "bits of bfloat16",
    "complex64": "pairs of real and imaginary parts",
    "complex128": "pairs of real and imaginary parts",
}


class Argument(NamedTuple):
    """An array that is passed to the function."""

    name: str  # in C
    path: str  # in the arguments or the result of the exported function
    slot: int
    dtype: str
    shape: tuple[int, ...]
    size: int


class CText:
    """Writes the files of a library; `name` begins the names of its functions."""

    def __init__(
        self, name: str, model: Model, plan: CPlan, weights: Sequence[tuple[int, int]],
        symbols: Sequence[str], features: Sequence[str], version: str,
    ):
        self.name, self.model, self.plan, self.weights = name, model, plan, weights
        self.symbols, self.features, self.version = symbols, features, version
        self.upper = name.upper()
        self.free = model.free_batch
        self.limits = batch_limits(plan.program) if self.free else (0, 0)
        first = len(model.weights)
        given = plan.program.inputs[first: first + len(model.paths)]
        names = _names([*model.paths, *(f"y{i}" for i in range(len(plan.program.outputs)))])
        self.inputs = [_argument(names[i], path, first + i, v.aval)
                       for i, (path, v) in enumerate(zip(model.paths, given, strict=True))]
        results = len(plan.program.inputs)
        self.outputs = [
            _argument(names[len(self.inputs) + i], path, results + i, o.aval)
            for i, (path, o) in enumerate(zip(_result_paths(model), plan.program.outputs,
                                              strict=True))]

    @property
    def functions(self) -> list[str]:
        """The names of the functions that the header declares."""
        given = [f"{a.name}_count" for a in (*self.inputs, *self.outputs)]
        return [f"{self.name}_{x}" for x in ("create", "run", "destroy", "error_text", *given)]

    # ---- the header
    def header(self) -> str:
        """The text of the header file."""
        name, guard = self.name, f"{self.upper}_H"
        arguments = "\n".join(f" *   {line}" for line in self._described())
        sizes = "\n".join(f"int64_t {name}_{a.name}_count({self._batch_parameter()});"
                          for a in (*self.inputs, *self.outputs))
        errors = ("NULL", "ALIGNMENT", "SIZE", "BATCH", "MEMORY", "THREADS", "BUSY", "PROCESSOR")
        codes = "\n".join(f"    {self.upper}_ERROR_{e} = {i}," for i, e in enumerate(errors, 1))
        batch = ""
        if self.free:
            low, high = self.limits
            batch = (f"\n/* The batch size n may be any number in this range. */\n"
                     f"#define {self.upper}_SMALLEST_BATCH INT64_C({low})\n"
                     f"#define {self.upper}_LARGEST_BATCH INT64_C({high})\n")
        return f"""\
/* {name}: a function exported by toile {self.version}.
 *
{arguments}
 *
 * Arrays are in row-major order without gaps. Each is passed as a pointer and a number of elements,
 * which must be what {name}_..._count returns. The results do not depend on the number of threads.
 *
 *     {name}_context *context;
 *     int code = {name}_create(&context, 0);
 *     if (!code) code = {name}_run(context, ...);
 *     if (code) fprintf(stderr, "%s\\n", {name}_error_text(code));
 *     {name}_destroy(context);
 */
#ifndef {guard}
#define {guard}

#include <stdint.h>

#ifdef __cplusplus
extern "C" {{
#endif

/* Memory for temporary results, and threads. Contexts are independent of each other: several
 * threads may call the function at the same time, each with a context of its own. Do not use a
 * context in the child process after a fork. */
typedef struct {name}_context {name}_context;

/* All functions that return an int return one of these codes. */
enum {{
    {self.upper}_OK = 0,
{codes}
}};
{batch}
/* Make a context whose calls use this number of threads; 0: as many as there are processors. */
int {name}_create({name}_context **context, int threads);

/* Compute the results. */
{self._prototype()};

/* Free a context, which may be NULL. */
void {name}_destroy({name}_context *context);

/* The text for a code. */
const char *{name}_error_text(int code);

/* The number of elements of each array. */
{sizes}

#ifdef __cplusplus
}}
#endif

#endif
"""

    def _described(self) -> list[str]:
        lines = []
        for kind, group in (("in", self.inputs), ("out", self.outputs)):
            for a in group:
                path = f", {a.path}" if a.path != a.name else ""
                note = f" ({_NOTES[a.dtype]})" if a.dtype in _NOTES else ""
                shape = ", ".join(map(expression, a.shape))
                text = f"{kind:<3} {a.name}: {a.dtype}[{shape}]{note}{path}"
                lines += textwrap.wrap(text, 92, subsequent_indent="      ")
        return [line.replace("*/", "* /") for line in lines]

    def _batch_parameter(self) -> str:
        return "int64_t n" if self.free else "void"

    def _prototype(self) -> str:
        given = [f"{self.name}_context *context"]
        given += ["int64_t n"] if self.free else []
        for a in self.inputs:
            given.append(f"const {C_TYPES[a.dtype]} *{a.name}, int64_t {a.name}_count")
        for a in self.outputs:
            given.append(f"{C_TYPES[a.dtype]} *{a.name}, int64_t {a.name}_count")
        start = f"int {self.name}_run("
        lines = textwrap.wrap(", ".join(given).replace(" ", "\0").replace(",\0", ", "), 96,
                              initial_indent=start, subsequent_indent="    ",
                              break_long_words=False, break_on_hyphens=False)
        return "\n".join(lines).replace("\0", " ") + ")"

    # ---- the C file
    def source(self, check: str = CHECK) -> str:
        """The text of the C file; kernels call the function `check`."""
        head = runtime.HEAD.replace("CHECK", check)
        tests = [f'__builtin_cpu_supports("{x}")' for x in self.features]
        body = runtime.BODY.replace("FEATURES", " && ".join(tests) or "1")
        low, high = self.limits
        body = body.replace("BATCH_TEXT", f"the batch size is not between {low} and {high}"
                            if self.free else "the batch size is wrong")
        parts = [f"/* {self.name}: a function exported by toile {self.version}. See "
                 f"{self.name}.h. */\n", head, self._tables(), self._sizes(), body, self._run()]
        return "\n".join(parts).replace("NAME", self.name).replace("UPPER", self.upper)

    def _tables(self) -> str:
        plan = self.plan
        declared = "".join(f"extern kernel {s};\n" for s in self.symbols)
        below = [j for r in plan.rooms for j in r.below]
        launches = [f"{{{kernel}, {word}, {_fixed(extent)}, {_fixed(grain)}}}"
                    for kernel, word, extent, grain in plan.launches]
        rooms = [f"{{{r.slot}, {r.body}, {len(r.below)}, {_fixed(r.nbytes)}}}"
                 for r in plan.rooms]
        return f"""\
{declared}extern const char NAME_weights[];

enum {{
    WORDS = {len(plan.words)}, LAUNCHES = {len(plan.launches)}, SLOTS = {plan.slots},
    ROOMS = {len(plan.rooms)}, NUMBERS = {len(plan.numbers)}
}};

static kernel *const kernels[] = {{{_listed(self.symbols or ["0"])}}};
static const int64_t fixed_words[WORDS + 1] = {{{_listed([*map(_fixed, plan.words), "0"])}}};

/* The kernel, its first word, units of work, and units of a chunk. Numbers that depend on the batch
 * size are 0 here. */
static const struct {{ int kernel, word; int64_t extent, grain; }} fixed_launches[] = {{
    {_listed([*launches, "{0, 0, 0, 0}"])}
}};

/* Temporary arrays: the buffer, or -1 for the arrays of a loop's body; the body that an array
 * belongs to, or -1; the number of arrays below it; bytes. `below` lists those arrays. */
static const struct {{ int slot, body, below; int64_t bytes; }} rooms[] = {{
    {_listed([*rooms, "{0, 0, 0, 0}"])}
}};
static const int below[] = {{{_listed([*map(str, below), "0"])}}};

/* Scalars that depend on the batch size. */
typedef union {{ int64_t integer; float single; double number; char room[16]; }} NUMBER;
"""

    def _sizes(self) -> str:
        plan = self.plan
        sizes: dict[FreeSize, int] = {}
        tables = {
            "sized_words": _sized(plan.words, sizes),
            "sized_extents": _sized([x[2] for x in plan.launches], sizes),
            "sized_grains": _sized([x[3] for x in plan.launches], sizes),
            "sized_rooms": _sized([r.nbytes for r in plan.rooms], sizes),
        }
        lines = [f"s[{i}] = {expression(size)};" for size, i in sizes.items()]
        numbers = [_number(i, x.var.aval.dtype, expression(x.size), x.inverted)
                   for i, x in enumerate(plan.numbers)]
        first = len(self.model.weights) + len(self.model.paths)
        places = [f"b[{slot}] = (void *)(NAME_weights + {place});" for slot, place in self.weights]
        places += [f"b[{first + i}] = &numbers[{i}];" for i in range(len(plan.numbers))]
        text = "".join(f"static const sized {name}[] = {{{_listed([*rows, '{0, -1}'])}}};\n"
                       for name, rows in tables.items())
        return f"""\
/* Numbers that depend on the batch size: where they belong, and which size they are. */
typedef struct {{ int at, size; }} sized;
{text}
enum {{ SIZES = {len(sizes)} }};

static void set_sizes(int64_t *s, int64_t n) {{
    (void)s, (void)n, (void)rounded, (void)smaller, (void)larger;
{_body(lines)}}}

static void set_numbers(NUMBER *numbers, int64_t n) {{
    (void)numbers, (void)n;
{_body(numbers)}}}

static void set_buffers(void **b, NUMBER *numbers) {{
    (void)b, (void)numbers;
{_body(places)}}}
"""

    def _run(self) -> str:
        given = (*self.inputs, *self.outputs)
        unused = "(void)n; " if self.free else ""
        counts = "".join(
            f"int64_t NAME_{a.name}_count({self._batch_parameter()}) {{ {unused}return "
            f"{expression(a.size)}; }}\n" for a in given)
        checks = []
        if self.free:
            low, high = self.limits
            checks.append(f"if (n < {low} || n > INT64_C({high})) return UPPER_ERROR_BATCH;")
        checks.append("int code = UPPER_OK;")
        for a in given:
            checks.append(
                f"if ((code = check({a.name}, {a.name}_count, {expression(a.size)}, "
                f"sizeof *{a.name}))) return code;")
        buffers = [f"context->buffers[{a.slot}] = (void *){a.name};" for a in given]
        batch = "n" if self.free else "0"
        steps = "\n".join(self.plan.lines)
        return f"""\
{counts}
static void run_steps(context *c) {{
    void **b = c->buffers;
    const int64_t n = c->batch;
    (void)b, (void)n, (void)exchange, (void)selected;
{steps}
}}

{self._prototype()} {{
    if (!context) return UPPER_ERROR_NULL;
{_body(checks)}    if (atomic_flag_test_and_set(&context->busy)) return UPPER_ERROR_BUSY;
    code = prepare(context, {batch});
    if (!code) {{
{_body(buffers, 2)}        run_steps(context);
    }}
    atomic_flag_clear(&context->busy);
    return code;
}}
"""


def _argument(name: str, path: str, slot: int, aval: Any) -> Argument:
    dtype = "" if dtypes.is_extended(aval.dtype) else np.dtype(aval.dtype).name
    if dtype not in C_TYPES:
        raise NotImplementedError(
            f"to_c: needed arguments and results of dtypes that C has, got {aval.str_short()} for "
            f"{path} (convert it in the function that is exported){here()}")
    return Argument(name, path, slot, dtype, aval.shape, aval.size)


def _result_paths(model: Model) -> list[str]:
    """Where the leaves of the result are, as `result['logits']`."""
    count = len(model.program.outputs)
    tree = unflatten(model.out_tree, [_Leaf() for _ in range(count)])
    return [f"result{keystr(path)}" for path, _ in flatten_with_path(tree)[0]]


class _Leaf:
    """A result."""


_RESERVED = {"n", "context", "code", "int", "float", "double", "char", "long", "short", "void",
             "for", "while", "if", "else", "do", "switch", "case", "default", "return", "static",
             "const", "struct", "union", "enum", "signed", "unsigned", "register", "auto", "goto",
             "break", "continue", "extern", "inline", "restrict", "sizeof", "typedef", "volatile",
             "new", "class", "this", "template", "bool", "true", "false", "check", "prepare"}


def _names(paths: Iterable[str]) -> list[str]:
    """Different names in C for the paths of arguments: `x0['image']` is `x0_image`."""
    taken, names = set(_RESERVED), []
    for path in paths:
        start = re.sub(r"\W+", "_", path, flags=re.ASCII).strip("_") or "x"
        name, number = start, 1
        while name in taken or f"{name}_count" in taken or name.removesuffix("_count") in taken:
            number += 1
            name = f"{start}_{number}"
        taken.add(name)
        names.append(name)
    return names


def _fixed(x: int) -> str:
    if isinstance(x, FreeSize):
        return "0"
    if x == -(2**63):
        return "INT64_MIN"
    return str(int(x)) if -(2**31) < x < 2**31 else f"INT64_C({int(x)})"


def _sized(numbers: Sequence[int], sizes: dict[FreeSize, int]) -> list[str]:
    """Rows for the numbers that depend on the batch size."""
    return [f"{{{i}, {sizes.setdefault(x, len(sizes))}}}" for i, x in enumerate(numbers)
            if isinstance(x, FreeSize)]


def _number(i: int, dtype: Any, text: str, inverted: bool) -> str:
    """A statement that stores a scalar in its dtype."""
    field = {"f": {4: "single", 8: "number"}[np.dtype(dtype).itemsize]} if np.dtype(
        dtype).kind == "f" else {}
    name = field.get("f", "integer")
    kind = {"single": "float", "number": "double"}.get(name, "int64_t")
    value = f"1.0 / (double)({text})" if inverted else text
    return f"numbers[{i}].{name} = ({kind})({value});"


def _listed(items: Iterable[str]) -> str:
    text = ", ".join(items)
    if len(text) < 60:
        return text
    return "\n    " + "\n    ".join(textwrap.wrap(text, 96)).strip() + "\n"


def _body(lines: Sequence[str], depth: int = 1) -> str:
    return "".join(f"{'    ' * depth}{line}\n" for line in lines)
