"""The summaries of a module, for `Module` to inherit.

They load `summary` when one is asked for: it is large, and few programs do.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from toile.core.filters import CollectionFilter, DenyList
from toile.engine.locks import loading

NOT_INTERMEDIATES = DenyList("intermediates")
NO_OPTIONS: Mapping[str, Any] = MappingProxyType({})


class Summarized:
    """The summaries of a module."""

    def tabulate(
        self,
        rngs: Any,
        *args: Any,
        depth: int | None = None,
        show_repeated: bool = False,
        mutable: CollectionFilter = NOT_INTERMEDIATES,
        console_kwargs: Mapping[str, Any] | None = None,
        table_kwargs: Mapping[str, Any] = NO_OPTIONS,
        column_kwargs: Mapping[str, Any] = NO_OPTIONS,
        compute_flops: bool = False,
        compute_vjp_flops: bool = False,
        **kwargs: Any,
    ) -> str:
        """A table of the module called with these arguments: see `tabulate`.

        >>> import toile, toile.linen as nn, toile.numpy as jnp
        >>> class Scale(nn.Module):
        ...     @nn.compact
        ...     def __call__(self, x):
        ...         return x * self.param("scale", nn.initializers.ones, (3,))
        >>> text = Scale().tabulate(toile.random.key(0), jnp.ones((2, 3)), compute_flops=True)
        >>> "flops" in text
        True
        """
        with loading:
            from toile.linen.summary import tabulate

        draw = tabulate(
            self, rngs, depth=depth, show_repeated=show_repeated, mutable=mutable,
            console_kwargs=console_kwargs, table_kwargs=table_kwargs, column_kwargs=column_kwargs,
            compute_flops=compute_flops, compute_vjp_flops=compute_vjp_flops,
        )  # fmt: skip
        return draw(*args, **kwargs)

    def module_paths(
        self,
        rngs: Any,
        *args: Any,
        show_repeated: bool = False,
        mutable: CollectionFilter = NOT_INTERMEDIATES,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """The modules that a call uses, unbound, by path; '' is the module itself."""
        with loading:
            from toile.linen.summary import module_table

        make = module_table(self, None, show_repeated, False, False)
        table = make(rngs, *args, **kwargs, mutable=mutable)
        return {"/".join(row.path): row.module_copy for row in table}
