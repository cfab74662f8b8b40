"""Modules with the names of Optax's private modules, which existing optimizers import.

`from toile.optim._src import base, numerics, transform` imports modules with the same names as in
Optax, which refer to parts of `toile.optim` and are loaded on first use. New code should import
`toile.optim`.
"""

import sys as _sys
import types as _types

from toile import optim as _optim
from toile.engine.lazy import attach_table as _attach
from toile.engine.lazy import public_names as _public_names

_HOMES = _public_names(_optim.__file__)


def _all_of(*parts: str) -> str:
    """The public names of modules of `toile.optim`."""
    return " ".join(n for n, (home, _) in _HOMES.items() if f"{home}.".split(".")[2] in parts)


_NAMES = {
    "alias": "MaskOrFn " + _all_of("optimizers", "descent"),
    "base": _all_of("base"),
    "combine": "MultiTransformState chain multi_transform named_chain partition",
    "constrain": _all_of("constraining"),
    "factorized": _all_of("factored"),
    "linear_algebra": _all_of("linear_algebra"),
    "linesearch": _all_of("backtracking", "zoom"),
    "lookahead": _all_of("looking_ahead"),
    "numerics": _all_of("numerics"),
    "schedule": "InjectHyperparamsState inject_hyperparams " + _all_of("schedules"),
    "transform": (
        "AddDecayedWeightsState AddNoiseState ApplyEvery EmaState TraceState abs_sq "
        "add_decayed_weights add_noise apply_every ema trace "
        + _all_of("adaptive", "moments", "quasi_newton", "scaling")
    ),
    "update": _all_of("applying"),
    "wrappers": (
        "MaskedNode MaskedState MultiSteps MultiStepsState ShouldSkipUpdateFunction flatten masked "
        "skip_large_updates skip_not_finite " + _all_of("conditions")
    ),
}


for _name, _names in _NAMES.items():
    _made = _types.ModuleType(f"{__name__}.{_name}", f"What `optax._src.{_name}` has.")
    _sys.modules[_made.__name__] = globals()[_name] = _made
    _homes = {name: ("toile.optim", name) for name in _names.split()}
    vars(_made)["__getattr__"], vars(_made)["__dir__"] = _attach(_made.__name__, _homes)

__getattr__, __dir__ = _attach(__name__, {"utils": (__name__, "utils")})
__all__ = [*sorted(_NAMES), "utils"]  # noqa: PLE0604 -- names of modules that are made above
