"""Functions with user-defined derivatives."""
# ruff: noqa: F401

from toile.api.custom import (
    CustomVJPPrimal,
    SymbolicZero,
    custom_gradient,
    custom_jvp,
    custom_vjp,
    custom_vjp_primal_tree_values,
    linear_call,
    zero_from_primal,
)
from toile.api.programs import closure_convert
from toile.control.custom import CustomJVPCall as custom_jvp_call_p
from toile.control.custom import CustomVJPCall as custom_vjp_call_p

__all__ = [name for name in globals() if name[0] != "_"]
