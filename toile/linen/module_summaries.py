"""The summaries of a module, for `Module` to inherit.

They load `summary` when they are first called: it is large, and few programs need it.
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
        """Summarize the module in a table, from shapes only.

        Args:
            rngs: one key, for the stream `params`; or a dict of keys by name of stream.
            *args: positional arguments of `__call__`; arrays or `toile.ShapeDtypeStruct`.
            depth: number of levels of submodules that have rows; the variables of deeper ones are
                counted in the deepest row above them. None for all.
            show_repeated: whether every call of a module has a row, or only the first.
            mutable: collections that are created; by default all but `intermediates`.
            console_kwargs, table_kwargs, column_kwargs: options of the Console, the Table and
                `add_column` of the package rich.
            compute_flops: whether there is a column with the number of floating-point operations.
            compute_vjp_flops: whether there is a column with the number of floating-point
                operations of the call and its vector-Jacobian product.
            **kwargs: keyword arguments of `__call__`.

        Returns:
            The table, as text.

        >>> import toile.linen as nn
        >>> class Scale(nn.Module):
        ...     @nn.compact
        ...     def __call__(self, x):
        ...         return x * self.param("scale", nn.initializers.ones, (3,))
        >>> text = Scale().tabulate(key(0), jnp.ones((2, 3)), compute_flops=True)
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
        """List the modules that a call uses.

        Args:
            rngs: one key, for the stream `params`; or a dict of keys by name of stream.
            *args: positional arguments of `__call__`; arrays or `toile.ShapeDtypeStruct`.
            show_repeated: whether a later call of a module replaces its entry.
            mutable: collections that are created; by default all but `intermediates`.
            **kwargs: keyword arguments of `__call__`.

        Returns:
            A dict of unbound modules by path, such as `"encoder/Dense_0"`; the module itself is
            `""`.

        >>> import toile.linen as nn
        >>> model = nn.Sequential([nn.Dense(4), nn.Dense(2)])
        >>> list(model.module_paths(key(0), jnp.ones((1, 3))))
        ['', 'layers_0', 'layers_1']
        """
        with loading:
            from toile.linen.summary import module_table

        make = module_table(self, None, show_repeated, False, False)
        table = make(rngs, *args, **kwargs, mutable=mutable)
        return {"/".join(row.path): row.module_copy for row in table}
