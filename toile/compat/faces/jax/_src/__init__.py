"""The few modules of `jax._src` that packages import by name, each with what they take from it."""

from toile.compat.faces.jax._src import compiler, dispatch, dtypes, traceback_util, xla_bridge

__all__ = ["compiler", "dispatch", "dtypes", "traceback_util", "xla_bridge"]
