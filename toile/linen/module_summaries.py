"""The methods that summarize a module, which `Module` inherits.

They load `summary` when they are first called, because it is large and few programs need it.
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
    """The methods that summarize a module."""

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
        """Summarize the module in a table, computing only shapes.

        Args:
            rngs: one key for the stream `params`, or a dict that maps stream names to keys.
            *args: positional arguments of `__call__`, arrays or `toile.ShapeDtypeStruct` objects.
            depth: number of levels of submodules that have rows; None for all levels. The variables
                of a deeper submodule are counted in the row of its closest ancestor that has a row.
            show_repeated: if True, every call to a module has a row; if False, only the first call
                has a row.
            mutable: filter that selects the collections to create; by default, all except
                `intermediates`.
            console_kwargs, table_kwargs, column_kwargs: options for `Console`, `Table` and
                `Table.add_column` in the package rich.
            compute_flops: whether to add a column with the number of floating-point operations.
            compute_vjp_flops: whether to add a column with the number of floating-point operations
                of the call and its vector-Jacobian product.
            **kwargs: keyword arguments of `__call__`.

        Returns:
            The table as a string.

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
            rngs: one key for the stream `params`, or a dict that maps stream names to keys.
            *args: positional arguments of `__call__`, arrays or `toile.ShapeDtypeStruct` objects.
            show_repeated: if a module is called several times, whether its entry is taken from the
                last call (True) or from the first call (False).
            mutable: filter that selects the collections to create; by default, all except
                `intermediates`.
            **kwargs: keyword arguments of `__call__`.

        Returns:
            A dict that maps paths, such as `"encoder/Dense_0"`, to unbound modules. The path of the
            module itself is `""`.

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
