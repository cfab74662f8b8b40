"""Compare toile's public names with JAX's: which are missing or have a different signature.

`python -m tools.api_coverage` compares toile with the installed jax. `--markdown FILE` writes the
page of the documentation, and `--surface` checks the names that real projects use
(`api_surface.csv` has their counts from six code bases that use JAX). A name is public if it has no
leading underscore and is neither an imported module nor a primitive object such as `lax.add_p`.
"""

from __future__ import annotations

import argparse
import csv
import importlib
import inspect
import sys
import types
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

NAMESPACES = (
    *("", "numpy", "numpy.linalg", "numpy.fft", "lax", "lax.linalg", "nn", "nn.initializers"),
    *("random", "tree_util", "tree", "ops", "image", "dtypes", "debug", "flatten_util", "errors"),
    *("typing", "sharding", "stages", "test_util", "ad_checkpoint", "custom_derivatives"),
    *("custom_batching", "dlpack", "profiler", "monitoring", "distributed"),
    *("scipy.cluster.vq", "scipy.fft", "scipy.integrate", "scipy.interpolate", "scipy.linalg"),
    *("scipy.ndimage", "scipy.optimize", "scipy.signal", "scipy.sparse.linalg"),
    *("scipy.spatial.transform", "scipy.special", "scipy.stats"),
    *("scipy.stats.bernoulli", "scipy.stats.beta", "scipy.stats.betabinom", "scipy.stats.binom"),
    *("scipy.stats.cauchy", "scipy.stats.chi2", "scipy.stats.dirichlet", "scipy.stats.expon"),
    *("scipy.stats.gamma", "scipy.stats.gennorm", "scipy.stats.geom", "scipy.stats.gumbel_l"),
    *("scipy.stats.gumbel_r", "scipy.stats.laplace", "scipy.stats.logistic"),
    *("scipy.stats.multinomial", "scipy.stats.multivariate_normal", "scipy.stats.nbinom"),
    *("scipy.stats.norm", "scipy.stats.pareto", "scipy.stats.poisson", "scipy.stats.t"),
    *("scipy.stats.truncnorm", "scipy.stats.uniform", "scipy.stats.vonmises"),
    *("scipy.stats.wrapcauchy",),
    *("experimental", "experimental.checkify", "experimental.mesh_utils"),
    *("experimental.multihost_utils", "experimental.jet", "experimental.ode"),
    *("experimental.random", "experimental.sparse", "experimental.sparse.linalg"),
    *("example_libraries.optimizers", "example_libraries.stax"),
)

# Namespaces with JAX's internals, used only by code that extends JAX itself.
PRIVATE = (
    *("_src", "api_util", "core", "extend", "interpreters", "lib", "linear_util"),
    *("experimental.array_serialization", "experimental.jax2tf", "experimental.layout"),
)

SURFACE = Path(__file__).parent / "api_surface.csv"


@dataclass
class Report:
    """The comparison of one namespace."""

    namespace: str
    present: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    differ: dict[str, str] = field(default_factory=dict)  # name -> how its signature differs

    @property
    def total(self) -> int:
        """The number of public names that JAX has in this namespace."""
        return len(self.present) + len(self.missing)

    @property
    def share(self) -> float:
        """The fraction of JAX's names that toile has."""
        return len(self.present) / self.total if self.total else 1.0


def join(root: str, namespace: str) -> str:
    """Join two names: `join("jax", "numpy")` is "jax.numpy", and `join("jax", "")` is "jax"."""
    return f"{root}.{namespace}" if namespace else root


def load(name: str) -> types.ModuleType | None:
    """The module called `name`; None if it cannot be imported."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return importlib.import_module(name)
    except (ImportError, AttributeError, NotImplementedError):
        return None


def public_names(module: types.ModuleType) -> list[str]:
    """The public names of a namespace, without modules and primitive objects."""
    names = []
    for name in dir(module):
        value = getattr(module, name, None)
        if name.startswith("_") or name.endswith("_p"):
            continue
        if isinstance(value, types.ModuleType) or type(value).__name__ == "_Feature":
            continue
        names.append(name)
    return sorted(names)


def parameters(value: Any) -> list[inspect.Parameter] | None:
    """The parameters of a function; None for a class, or if Python cannot determine them."""
    if isinstance(value, type) or not callable(value):
        return None
    try:
        return list(inspect.signature(value).parameters.values())
    except (TypeError, ValueError):
        return None


def show_default(value: Any) -> str:
    """A default as text; the texts are equal if both libraries' defaults have the same meaning."""
    if value is inspect.Parameter.empty:
        return "required"
    if isinstance(value, type):
        return value.__name__
    if type(value).__name__ == "_ScalarMeta" or callable(value):
        return getattr(value, "__name__", type(value).__name__)
    if isinstance(value, (tuple, list)):
        return f"({', '.join(map(show_default, value))})"
    if isinstance(value, (set, frozenset)):
        return f"{{{', '.join(sorted(map(show_default, value)))}}}"
    if type(value) is object:
        return "<sentinel>"
    if " object at 0x" in repr(value):  # an address would differ in every run
        return f"<{type(value).__name__}>"
    return repr(value).replace("jax._src.", "").replace("jax.", "").replace("toile.", "")


def compare_parameters(
    theirs: list[inspect.Parameter], ours: list[inspect.Parameter]
) -> str | None:
    """How toile's parameters differ in names, order, kind or defaults; None if they do not
    differ."""
    mine = {p.name: p for p in ours}
    complaints = []
    lacking = [p.name for p in theirs if p.name not in mine]
    if lacking:
        complaints.append("lacks " + ", ".join(lacking))
    extra = [p.name for p in ours if p.name not in {q.name for q in theirs}]
    if extra:
        complaints.append("adds " + ", ".join(extra))
    common = [p for p in theirs if p.name in mine]
    order = [p.name for p in ours if p.name in {q.name for q in common}]
    if order != [p.name for p in common]:
        complaints.append("different order")
    for p in common:
        q = mine[p.name]
        if p.kind != q.kind:
            complaints.append(f"{p.name} is {q.kind.description}, not {p.kind.description}")
        a, b = show_default(p.default), show_default(q.default)
        if a != b:
            complaints.append(f"{p.name}={b}, not {a}")
    return "; ".join(complaints) or None


def compare(namespace: str, root: str = "toile") -> Report | None:
    """Compare a namespace of the installed jax with toile's; None if jax has no such module."""
    theirs = load(join("jax", namespace))
    if theirs is None:
        return None
    report = Report(join("jax", namespace))
    ours = load(join(root, namespace)) or types.ModuleType("nothing")
    for name in public_names(theirs):
        if not hasattr(ours, name):
            report.missing.append(name)
            continue
        report.present.append(name)
        pair = parameters(getattr(theirs, name)), parameters(getattr(ours, name))
        if pair[0] is not None and pair[1] is not None:
            difference = compare_parameters(*pair)
            if difference:
                report.differ[name] = difference
    return report


def compare_all(root: str = "toile") -> list[Report]:
    """Compare all namespaces in `NAMESPACES` that the installed jax has."""
    reports = (compare(namespace, root) for namespace in NAMESPACES)
    return [r for r in reports if r is not None]


def resolve(name: str) -> bool:
    """Whether a dotted name exists, as a module or as an attribute of a module."""
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        value: Any = load(".".join(parts[:cut]))
        if value is None:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # for deprecated names
            for part in parts[cut:]:
                if not hasattr(value, part):
                    return False
                value = getattr(value, part)
        return True
    return False


def is_private(name: str) -> bool:
    """Whether `jax.<...>` belongs to a namespace of JAX's internals."""
    inner = name.partition(".")[2]
    return any(inner == p or inner.startswith(p + ".") for p in PRIVATE)


def missing_in_use(projects: int = 2, root: str = "toile") -> list[tuple[str, int, int]]:
    """Tuples (name, uses, projects) for missing names that at least `projects` projects use."""
    found = []
    with SURFACE.open(newline="") as file:
        for row in csv.DictReader(file):
            name, used_by = row["name"], int(row["projects"])
            if row["in_jax"] == "no" or used_by < projects or is_private(name):
                continue
            if not resolve(root + name.removeprefix("jax")):
                found.append((name, int(row["uses"]), used_by))
    return found


def print_reports(reports: list[Report], details: bool) -> None:
    """Print the table; with `details`, also print the missing and differing names."""
    width = max(len(r.namespace) for r in reports)
    print(f"{'namespace':{width}}   names  present  differ  missing")
    for r in reports:
        print(
            f"{r.namespace:{width}}  {r.total:6d}  {r.share:7.1%}  {len(r.differ):6d}"
            f"  {len(r.missing):7d}"
        )
    if not details:
        return
    for r in reports:
        if r.missing:
            print(f"\n{r.namespace}, missing: {' '.join(r.missing)}")
        for name, difference in r.differ.items():
            print(f"{r.namespace}.{name}: {difference}")


def markdown(reports: list[Report]) -> str:
    """The page of the documentation: the table, and missing and differing names by namespace."""
    version = load("jax").__version__
    lines = [
        "# Coverage of JAX's names",
        "",
        "This page compares the public names of toile with those of jax "
        f"{version}. `python -m tools.api_coverage --markdown FILE` generates this page.",
        "A name is public if it has no leading underscore and is neither a module nor a primitive",
        "object (`lax.add_p`). Signatures are compared by the names, order, kinds and defaults of",
        "their parameters; `x=1, not 2` means that the default of `x` is 1 in toile and 2 in JAX.",
        "",
        "| namespace | names | present | with a different signature | missing |",
        "|---|---:|---:|---:|---:|",
    ]
    for r in reports:
        lines.append(
            f"| `{r.namespace}` | {r.total} | {r.share:.1%} | {len(r.differ)} | {len(r.missing)} |"
        )
    for title, pick in (("Missing", "missing"), ("Different signatures", "differ")):
        lines += ["", f"## {title}", ""]
        for r in reports:
            names = getattr(r, pick)
            if pick == "missing" and names:
                lines.append(f"- `{r.namespace}`: " + ", ".join(f"`{n}`" for n in names))
            if pick == "differ":
                lines += [f"- `{r.namespace}.{n}`: `{how}`" for n, how in names.items()]
        if lines[-1] == "":
            lines.append("None.")
    return "\n".join(lines) + "\n"


def print_surface(projects: int) -> int:
    """Print the missing names that projects use, and return their number."""
    found = missing_in_use(projects)
    for name, uses, used_by in found:
        print(f"{name}: {uses} uses in {used_by} projects")
    print(f"{len(found)} names used by {projects} or more projects are missing")
    return len(found)


def main() -> int:
    """Run the command; the exit status is 1 if `--surface` finds a missing name."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("namespace", nargs="*", help="e.g. numpy lax.linalg; all by default")
    parser.add_argument("--brief", action="store_true", help="print only the table")
    parser.add_argument("--markdown", metavar="FILE", help="write the documentation's page")
    parser.add_argument("--surface", action="store_true", help="names used by real projects")
    parser.add_argument("--projects", type=int, default=2, help="with --surface: minimum number")
    flags = parser.parse_args()
    if flags.surface:
        return 1 if print_surface(flags.projects) else 0
    if load("jax") is None:
        print("jax is not installed: there is nothing to compare with", file=sys.stderr)
        return 2
    if flags.namespace:
        reports = [r for r in map(compare, flags.namespace) if r is not None]
    else:
        reports = compare_all()
    if flags.markdown:
        Path(flags.markdown).write_text(markdown(reports))
    else:
        print_reports(reports, details=not flags.brief)
    return 0


if __name__ == "__main__":
    sys.exit(main())
