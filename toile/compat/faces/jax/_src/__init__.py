"""The few modules of `jax._src` that packages import, each with the names that they use."""

from toile.compat.faces.jax._src import compiler, dispatch, dtypes, traceback_util, xla_bridge

__all__ = ["compiler", "dispatch", "dtypes", "traceback_util", "xla_bridge"]
