"""Checks of the library's structure that go beyond the direction of imports.

`python -m tools.structure` is part of `make lint`.

The following are counted or compared with the tables below, and each finding says what to do:

* class tests: code outside the folders of operations that checks the class or the name of an
  operation. An operation contains its own rules (docs/design/house.md); a check of classes would
  have to be extended for each new operation.
* module names: names that several modules share, or that modules of the standard library have.
* imports inside functions, and names of modules in strings, which are easily missed when a module
  is renamed.
* hooks: slots of the engine that higher layers fill.
* `# type: ignore` comments.

The limits are the current numbers. Lower a limit when the number decreases, and never raise it.
"""

from __future__ import annotations

import ast
import collections
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]

MOST_CLASS_TESTS = 4
MOST_HOOKS = 2
MOST_TYPE_IGNORES = 19

# The folders that define operations, and the folders that should not check for a certain one.
OPERATIONS = ("primitives", "control")
DOWNSTREAM = ("compiler", "kernels", "targets", "platforms", "disk", "staging", "parallel",
              "inspection", "experimental", "api")

# Names that several modules share, by reason.
SHARED_NAMES = {
    "the same subject on several levels: operations, their NumPy, the public faces, kernels": """
        _operands arrays attention bits callbacks collectives comparisons complexes contraction
        contractions control conv conversion convolution creation cumulative custom division
        elementwise families fft gathers key_reuse linalg messages pads random reductions shapes
        sorts
        special transcendental windows""",
    "once for each platform, target or family of kernels": """
        commands cpu elements execution exits gpu gpu_tensor_cores launches new_plans
        plan_reader planner plans_on_disk scalars shared steps target text""",
    "JAX, Flax or Optax have a module of this name": """
        activation ad ad_util api_util base checkify compilation_cache compiler core distributed
        dtypes dynamic_scale errors experimental initializers interpreters lax linear linear_util
        metrics monitoring nn normalization numpy optimizers partial_eval pooling primitives
        recurrent scope serialization sparse spmd stages stochastic traceback_util training
        transforms tree tree_util util version
        xla_bridge xla_extension""",
    "a common word for different things, each clear from its package": """
        adaptive autodiff compilation devices exchange files fingerprints gamma images kernels
        keys masks memory modules programs records rules staging states storage tables variables""",
}
# Names of modules of the standard library, and why a module of toile has one.
STANDARD_NAMES = {
    "copy": "kernels/copy is the family of kernels that copy",
    "importlib": "toile.compat.faces has a replacement for it",
    "io": "flax.io",
    "random": "jax.random, and its operations",
    "signal": "jax.scipy.signal",
    "struct": "flax.struct",
    "trace": "engine/trace.py defines traces, as JAX calls them",
    "types": "jax._src.state.types",
    "typing": "jax.typing and flax.typing",
    "unittest": "toile.compat.faces has a replacement for it",
}

# Files with imports inside functions, and the reasons. To load a part of toile when it is first
# used, use `toile.engine.lazy` instead.
LATE_IMPORTS = {
    "api/callbacks.py": "logging is loaded when a callback fails",
    "api/programs.py": "programs over a mesh are loaded when there is one",
    "api/stepping.py": "pdb is loaded when it is used",
    "command/explanations.py": "it imports the file that the user names",
    "compat/__init__.py": "names of other modules are loaded when they are first used",
    "compat/removed/__init__.py": "names of earlier years are loaded when they are first used",
    "compat/faces/absl/flags.py": "absl is optional",
    "compat/faces/flax/__init__.py": "the installed flax.nnx is loaded when it is used",
    "compat/faces/flax/training/__init__.py": "a module of Flax needs Orbax, which is optional",
    "compat/faces/importlib/__init__.py": "it replaces import_module",
    "debug.py": "rich and matplotlib are optional",
    "displays/notebook.py": "IPython is optional",
    "disk/plan_schema.py": "the module of a class that a plan on disk names",
    "distributed/rendezvous.py": "mpi4py is optional",
    "doctor.py": "it checks whether these packages can be imported",
    "export/_permitted.py": "the modules of all operations are loaded when a function is exported",
    "engine/absl_flags.py": "absl is optional",
    "engine/dtypes.py": "jnp.float32(x) is toile.numpy's asarray",
    "engine/suggestions.py": "difflib is loaded for an error",
    "engine/treedefs.py": "the two modules import each other; only pickles need the other module",
    "interop/chat_templates.py": "jinja2 is optional",
    "interop/huggingface.py": "tokenizers is optional",
    "interop/lookup.py": "faces are modules that are loaded by name",
    "interop/process.py": "faces are modules that are loaded by name",
    "interop/redirect.py": "faces are modules that are loaded by name",
    "io.py": "tensorflow is optional",
    "kernels/contraction/gpu_tensor_cores.py": "CuPy is optional",
    "targets/cuda/user_kernels.py": "CuPy is optional",
    "kernels/families.py": "a family's kernels are loaded when an operation needs them",
    "linen/advice.py": "the two modules import each other; only errors need the other module",
    "linen/fingerprints.py": "serialization is loaded when something is saved",
    "linen/module.py": "HTML is made in notebooks only",
    "linen/module_summaries.py": "the two modules import each other, and tables are rare",
    "linen/summary.py": "rich is slow to load, and tables are rare",
    "numpy/array_methods.py": "HTML is made in notebooks only",
    "parallel/placement.py": "the code that divides programs is loaded when there is a mesh",
    "platforms/cpu/compilation.py": "the compiler is loaded for programs that are not on disk",
    "platforms/cpu/cpus.py": "the fast path for calls is loaded when calls repeat",
    "platforms/gpu/late.py": "the modules for GPUs are loaded if there is a GPU",
    "platforms/gpu/execution.py": "the verifier is loaded when plans are verified",
    "platforms/gpu/plans_on_disk.py": "the compiler is loaded for programs that are not on disk",
    "platforms/gpu/warm_up.py": "CuPy is optional",
    "primitives/arrays/gather_arrays.py": "SciPy is slow to load",
    "primitives/arrays/lapack.py": "SciPy is slow to load",
    "primitives/arrays/scipy_extensions.py": "SciPy is slow to load",
    "random/_arguments.py": "llvmlite is slow to load, and only float16 needs it",
    "primitives/arrays/special.py": "SciPy is slow to load",
    "primitives/bits.py": "the two modules import each other",
    "scipy/signal/_spectral.py": "SciPy is slow to load",
    "staging/causes.py": "logging is loaded when a cause is logged",
    "targets/cuda/cublas.py": "CuPy is optional",
    "targets/cuda/cudnn.py": "CuPy and cuDNN's frontend are optional",
    "targets/cuda/presence.py": "CuPy is optional, and slow to load",
    "targets/cuda/modules.py": "CuPy is optional, and threads are started when several texts wait",
    "targets/llvm/native.py": "LLVM is loaded for the first kernel that is not on disk",
    "serving/folders.py": "it imports the module that loads a model",
    "training/config_flags.py": "absl and ml_collections are optional",
    "training/curves.py": "matplotlib is optional",
    "training/datasets.py": "tensorflow_datasets is optional",
    "training/image_folders.py": "Pillow is optional",
    "training/progress.py": "rich is slow to load, and only one kind of bar is drawn",
    "training/text.py": "sentencepiece is optional",
    "training/train_state.py": "HTML is made in notebooks only",
}
LATE_LOADING = "engine/lazy.py"

# Slots of the engine that are filled by other layers, and their purpose.
HOOKS = {
    "toile.engine.platform_registry.registry.add": "kinds of devices",
    "toile.engine.sharded.placing.fill": "how results are divided over a mesh",
}
# State that is set for a block of code and then restored; it is not counted as a hook.
CONTEXTS = ("toile.engine.trace.state", "toile.engine.exchange.slot",
            "toile.engine.platform_registry.host", "toile.engine.config.flags")

FILLING = ("add", "fill")  # methods that fill a slot

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


@dataclass(frozen=True)
class Source:
    """A file under toile/, which is parsed only when needed, because most checks use few files."""

    place: str  # "compiler/pipeline.py"
    text: str

    @property
    def folder(self) -> str:
        return self.place.partition("/")[0]

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))


class Finding(NamedTuple):
    """A location in a file, and a description of the problem."""

    place: str
    line: int
    what: str

    def __str__(self) -> str:
        return f"toile/{self.place}:{self.line}: {self.what}"


def sources(root: Path = ROOT) -> list[Source]:
    """All files of the library."""
    package = root / "toile"
    return [Source(p.relative_to(package).as_posix(), p.read_text())
            for p in sorted(package.rglob("*.py"))]


# ------------------------------------------------------------------------------------- class tests


def operation_classes(files: Iterable[Source]) -> set[str]:
    """The subclasses of Operation in the folders of operations, and tables of such classes."""
    files = [f for f in files if f.folder in OPERATIONS]
    bases: dict[str, set[str]] = {}
    made: set[str] = set()
    tables: dict[str, set[str]] = {}
    for f in files:
        functions = {n.name for n in f.tree.body if isinstance(n, ast.FunctionDef)}
        for node in f.tree.body:
            if isinstance(node, ast.ClassDef):
                bases[node.name] = {name for b in node.bases if (name := _last_name(b))}
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                name, value = node.targets[0].id, node.value
                if isinstance(value, ast.Call) and name[:1].isupper():
                    if _last_name(value.func) in functions:  # a class that a function creates
                        made.add(name)
                elif isinstance(value, (ast.Tuple, ast.Set, ast.List)):
                    tables[name] = {_last_name(x) for x in value.elts}
    found = made | {"Operation"}
    while new := {c for c, above in bases.items() if c not in found and above & found}:
        found |= new
    found |= {name for name, inside in tables.items() if inside and inside <= found}
    return found - {"Operation"}


def _last_name(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def class_tests(files: Iterable[Source]) -> list[Finding]:
    """Find code outside the folders of operations that checks the class of an operation.

    Classes in isinstance, comparisons, patterns and tables are reported, and so are comparisons of
    `op.name`. Creating an operation is allowed. Annotations, base classes, assertions and
    typing.cast are allowed too, because they do not choose between operations."""
    files = list(files)
    classes = operation_classes(files)
    found: list[Finding] = []
    for f in files:
        if f.folder not in DOWNSTREAM:
            continue
        names, modules = _imported_classes(f, classes)
        free = set(_without_choice(f))
        for node in f.nodes:
            name = None
            if isinstance(node, ast.Compare):
                name = _asks_by_name(node)
            elif isinstance(node, ast.Name):
                name = names.get(node.id)
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                name = node.attr if node.value.id in modules and node.attr in classes else None
            if name and id(node) not in free:
                found.append(Finding(f.place, node.lineno, name))
    return found


def _asks_by_name(node: ast.Compare) -> str | None:
    """A comparison such as `op.name == "argmax"` as text; None for other nodes."""
    left, right = node.left, node.comparators[0]
    of_operation = isinstance(left, ast.Attribute) and left.attr == "name" and (
        _last_name(left.value) == "op")
    constant = isinstance(right, ast.Constant) or isinstance(node.ops[0], (ast.In, ast.NotIn))
    return ast.unparse(node) if of_operation and constant else None


def _imported_classes(file: Source, classes: set[str]) -> tuple[dict[str, str], set[str]]:
    """The names in a file for operations' classes, and for modules that define such classes."""
    names: dict[str, str] = {}
    modules: set[str] = set()
    homes = tuple(f"toile.{folder}" for folder in OPERATIONS)
    for node in file.nodes:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(homes):
            for a in node.names:
                if a.name in classes:
                    names[a.asname or a.name] = a.name
                else:
                    modules.add(a.asname or a.name)
    return names, modules


def _without_choice(file: Source) -> Iterator[int]:
    """The ids of nodes that may contain the name of a class, because they do not check it."""
    for node in file.nodes:
        parts: list[ast.AST | None] = []
        if isinstance(node, ast.Call):
            if _last_name(node.func) == "cast":
                parts += node.args[:1]
            yield id(node.func)  # an operation is created
        elif isinstance(node, ast.Assert):
            parts.append(node.test)
        elif isinstance(node, ast.ClassDef):
            parts += node.bases
        parts += [getattr(node, name, None) for name in ("annotation", "returns")]
        for part in parts:
            if isinstance(part, ast.AST):
                yield from map(id, ast.walk(part))


# ------------------------------------------------------------------------------------ module names


def module_names(files: Iterable[Source]) -> dict[str, list[str]]:
    """The modules and packages with each name."""
    found: dict[str, list[str]] = collections.defaultdict(list)
    for f in files:
        path = Path(f.place)
        if path.name != "__init__.py":
            found[path.stem].append(f.place)
        elif len(path.parts) > 1:
            found[path.parent.name].append(f"{path.parent.as_posix()}/")
    return dict(found)


def unlisted_names(names: dict[str, list[str]]) -> list[str]:
    """Names in no table that several modules share or that a module of the standard library has."""
    listed = {n for text in SHARED_NAMES.values() for n in text.split()}
    found = [f"{name}: {', '.join(places)}" for name, places in sorted(names.items())
             if len(places) > 1 and name not in listed]
    return found + [f"{name}, a module of Python: {', '.join(places)}"
                    for name, places in sorted(names.items())
                    if name in sys.stdlib_module_names and name not in STANDARD_NAMES]


# --------------------------------------------------------------------------------- late imports


def late_imports(files: Iterable[Source]) -> list[Finding]:
    """Imports inside functions, including calls to importlib.import_module."""
    found = set()
    for f in files:
        if not _MAY_IMPORT_LATE.search(f.text):
            continue
        for function in f.nodes:
            if not isinstance(function, FUNCTIONS):
                continue
            for node in ast.walk(function):
                called = isinstance(node, ast.Call) and _last_name(node.func) == "import_module"
                if called or isinstance(node, (ast.Import, ast.ImportFrom)):
                    found.add(Finding(f.place, node.lineno, ast.unparse(node)))
    return sorted(found)


_MAY_IMPORT_LATE = re.compile(r"import_module|^[ \t]+(import|from)\s|[:;] *(import|from)\s", re.M)


def wrong_modules(files: Iterable[Source]) -> list[Finding]:
    """Strings passed to import_module or sys.modules that do not name a module of toile."""
    files = list(files)
    there = {"toile"} | {parent for f in files for parent in _dotted(f.place)}
    found = []
    for f in files:
        if "import_module" not in f.text and "sys.modules" not in f.text:
            continue
        for node in f.nodes:
            name = _module_in_string(node)
            if name and name.split(".")[0] == "toile" and name not in there:
                found.append(Finding(f.place, node.lineno, f"there is no module {name}"))
    return found


def _dotted(place: str) -> Iterator[str]:
    """The module name of a file, and its packages."""
    parts = ["toile", *Path(place).with_suffix("").parts]
    return (".".join(parts[:n]) for n in range(1, len(parts) + 1))


def _module_in_string(node: ast.AST) -> str:
    """The name of the module in a call; for a name that is computed, the package."""
    if not isinstance(node, ast.Call) or not node.args:
        return ""
    if _last_name(node.func) != "import_module" and ast.unparse(node.func) != "sys.modules.get":
        return ""
    given = node.args[0]
    if isinstance(given, ast.JoinedStr) and given.values:
        first = given.values[0]
        text = first.value if isinstance(first, ast.Constant) else ""
        return str(text).rpartition(".")[0]
    return given.value if isinstance(given, ast.Constant) and isinstance(given.value, str) else ""


# ------------------------------------------------------------------------------------------- hooks


def hooks(files: Iterable[Source]) -> dict[str, list[Finding]]:
    """The attributes of engine objects that other layers assign, with the places."""
    found: dict[str, list[Finding]] = collections.defaultdict(list)
    for f in files:
        if f.folder == "engine" or "toile.engine" not in f.text:
            continue
        names = _of_the_engine(f)
        for target in _targets(f):
            text = ast.unparse(target)
            first, _, rest = text.partition(".")
            slot = f"{names.get(first, '')}.{rest}"
            if first in names and rest and not slot.startswith(tuple(f"{c}." for c in CONTEXTS)):
                found[slot].append(Finding(f.place, target.lineno, f"{text} = …"))
    return dict(found)


def _of_the_engine(file: Source) -> dict[str, str]:
    """The imports from the engine in a file: the local name and the full name of each."""
    found = {}
    for node in file.nodes:
        module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
        if module == "toile.engine" or module.startswith("toile.engine."):
            found.update({a.asname or a.name: f"{module}.{a.name}" for a in node.names})
    return found


def _targets(file: Source) -> Iterator[ast.Attribute]:
    """The attributes that are set by assignments and setattr, and the methods that fill a slot."""
    waiting: list[ast.AST] = []
    for node in file.nodes:
        if isinstance(node, ast.Assign):
            waiting += node.targets
        elif isinstance(node, (ast.AugAssign, ast.AnnAssign)):
            waiting.append(node.target)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and (
            node.func.attr in FILLING):
            yield node.func
        elif isinstance(node, ast.Call) and _last_name(node.func) == "setattr" and (
            len(node.args) == 3 and isinstance(node.args[1], ast.Constant)):
            yield ast.Attribute(node.args[0], str(node.args[1].value), ast.Store(),
                                lineno=node.lineno, col_offset=0)
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.Tuple, ast.List)):
            waiting += node.elts
        elif isinstance(node, ast.Attribute):
            yield node


# ---------------------------------------------------------------------------------------- the whole


def type_ignores(files: Iterable[Source]) -> list[Finding]:
    """Lines that mypy ignores."""
    pattern = re.compile(r"#\s*type:\s*ignore")
    return [Finding(f.place, number, line.strip()) for f in files
            for number, line in enumerate(f.text.splitlines(), 1) if pattern.search(line)]


class Check(NamedTuple):
    """The result of a check: a summary in one line, the problems, and unnecessary table entries."""

    summary: str
    problems: list[str]
    stale: list[str] = []


def _counted(what: str, found: list[Finding], most: int, advice: str) -> Check:
    problems = []
    if len(found) > most:
        counts = collections.Counter(x.place for x in found).most_common(10)
        where = "".join(f"\n  {count:4} toile/{place}" for place, count in counts)
        problems = [f"{len(found)} {what}, at most {most}: {advice}. Most are in{where}"]
    return Check(f"{len(found)} {what} (at most {most})", problems)


def _check_names(files: list[Source]) -> Check:
    names = module_names(files)
    several = sum(len(places) > 1 for places in names.values())
    problems = [f"a module's name that is not unique: {x} (choose another one, or say why in "
                "SHARED_NAMES or STANDARD_NAMES of tools/structure.py)"
                for x in unlisted_names(names)]
    listed = [n for text in SHARED_NAMES.values() for n in text.split()]
    stale = [f"SHARED_NAMES: {n}" for n in listed if len(names.get(n, ())) < 2]
    stale += [f"STANDARD_NAMES: {n}" for n in STANDARD_NAMES if n not in names]
    return Check(f"{several} names of several modules", problems, stale)


def _check_imports(files: list[Source]) -> Check:
    found = [x for x in late_imports(files) if x.place != LATE_LOADING]
    problems = [f"an import inside of a function, {x} (import it at the top of the file or through "
                "toile.engine.lazy, or say why in LATE_IMPORTS of tools/structure.py)"
                for x in found if x.place not in LATE_IMPORTS]
    problems += [f"{x} (it was renamed, perhaps)" for x in wrong_modules(files)]
    places = {x.place for x in found}
    stale = [f"LATE_IMPORTS: {place}" for place in LATE_IMPORTS if place not in places]
    return Check(f"{len(found)} imports inside of functions", problems, stale)


def _check_hooks(files: list[Source]) -> Check:
    found = hooks(files)
    problems = [f"a hook of the engine, {slot}, filled at {places[0]} (pass what is needed as an "
                "argument, or make it a method; else list it in HOOKS of tools/structure.py)"
                for slot, places in sorted(found.items()) if slot not in HOOKS]
    if len(found) > MOST_HOOKS:
        problems.append(f"{len(found)} hooks of the engine, at most {MOST_HOOKS}: a higher layer "
                        "should call a lower one, not be called through a slot that it fills")
    stale = [f"HOOKS: {slot}" for slot in HOOKS if slot not in found]
    return Check(f"{len(found)} hooks of the engine (at most {MOST_HOOKS})", problems, stale)


def checks(files: list[Source]) -> list[Check]:
    """Run all checks."""
    return [
        _counted("class tests behind the operations", class_tests(files), MOST_CLASS_TESTS,
                 "give the operation a method or an attribute with a default by family, and ask "
                 "that"),
        _check_names(files),
        _check_imports(files),
        _check_hooks(files),
        _counted("`# type: ignore`", type_ignores(files), MOST_TYPE_IGNORES,
                 "say what the type is, or change the code so that mypy sees it"),
    ]


def main() -> int:
    found = checks(sources())
    for check in found:
        print(check.summary)
        for entry in check.stale:
            print(f"note: an entry of tools/structure.py that can go, {entry}")
    problems = [p for check in found for p in check.problems]
    for problem in problems:
        print(problem)
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
