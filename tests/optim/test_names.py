"""Every name of Optax's top level exists, is called as there, and stands in a table.

A name is covered by the rows of `tests/optim/*cases.py`; a state by its fields, compared here; the
rest is in EXCEPTIONS, with the reason.
"""

import inspect
import pathlib
import re

import pytest

from toile import optim

optax = pytest.importorskip("optax")

MISSING = {
    "contrib": "optimizers outside Optax's stable list; toile.interop runs Optax's own",
    "experimental": "without promises even in Optax; toile.interop runs Optax's own",
}
EXCEPTIONS = {
    **MISSING,
    **dict.fromkeys(
        ("OptState", "Params", "Updates", "ScalarOrSchedule", "Schedule", "MaskOrFn"),
        "a type for annotations",
    ),
    **dict.fromkeys(
        ("TransformInitFn", "TransformUpdateFn", "TransformUpdateExtraArgsFn"),
        "a protocol for annotations",
    ),
    "ShouldSkipUpdateFunction": "a protocol for annotations",
    **dict.fromkeys(
        ("assignment", "losses", "perturbations", "projections", "schedules", "second_order"),
        "a module, whose names have tables of their own",
    ),
    "tree_utils": "the functions of optim.tree under other names; see below",
    "init_empty_state": "the init of every row without state",
}
# Arguments that differ, with the reason.
SIGNATURES = {
    "dpsgd": "optax.dpsgd warns; the one that counts is in contrib and is the same",
    "lbfgs": "the default line search is an object of each library",
    "scale_by_factored_rms": "a default is a function of each library",
    "scale_by_distance_over_gradients": "a default is a dtype of each library",
    "adafactor": "a default is a dtype of each library",
    "MultiSteps": "a default is a dtype of each library",
    "microbatch": "a default is an enum of each library",
    "power_iteration": "a default is an enum of each library",
    "matrix_inverse_pth_root": "a default is an enum of each library",
}
NAMES = sorted(name for name in dir(optax) if not name.startswith("_"))
TABLES = "\n".join(
    path.read_text() for path in sorted(pathlib.Path(__file__).parent.glob("*cases.py"))
)


def _is_state(x):
    return isinstance(x, type) and issubclass(x, tuple) and hasattr(x, "_fields")


def test_all_names_exist():
    assert {name for name in NAMES if not hasattr(optim, name)} == set(MISSING)


@pytest.mark.parametrize("module", ["tree", "tree_utils", "transforms", "microbatching"])
def test_all_names_of_submodules_exist(module):
    theirs = {n for n in dir(getattr(optax, module)) if not n.startswith("_")}
    modules = {n for n in theirs if inspect.ismodule(getattr(getattr(optax, module), n))}
    assert theirs - modules - set(dir(getattr(optim, module))) == set()


def test_every_name_has_a_row_or_a_reason():
    words = set(re.findall(r"\w+", TABLES))
    states = {n for n in NAMES if n not in MISSING and _is_state(getattr(optax, n))}
    bare = set(NAMES) - words - states - set(EXCEPTIONS)
    assert bare == set()


@pytest.mark.parametrize("name", [n for n in NAMES if n not in MISSING])
def test_called_as_in_optax(name):
    ours, theirs = getattr(optim, name), getattr(optax, name)
    if _is_state(theirs):
        assert ours.__name__ == theirs.__name__
        assert ours._fields == theirs._fields
        assert ours._field_defaults == theirs._field_defaults
    elif inspect.isfunction(theirs) or inspect.isclass(theirs) and name not in EXCEPTIONS:
        mine, other = (inspect.signature(f).parameters.values() for f in (ours, theirs))
        assert [(p.name, p.kind) for p in mine] == [(p.name, p.kind) for p in other]
        defaults = lambda ps: {p.name: p.default for p in ps if not callable(p.default)}
        if name not in SIGNATURES:
            assert defaults(mine) == defaults(other)
