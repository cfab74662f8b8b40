"""Stands for tensorflow: the functions that input pipelines call, on arrays of NumPy."""

import os
import shutil
from types import SimpleNamespace

import numpy as np

__version__ = "2.0"
float32, int32, uint8, string = np.float32, np.int32, np.uint8, object
constant, reshape, Tensor = np.asarray, np.reshape, np.ndarray


def cast(x, dtype, **_):
    return np.asarray(x).astype(dtype)


class Nothing:
    """Accepts every call."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *args, **kwargs):
        return self


class Files:
    """The functions of tf.io.gfile."""

    exists, isdir, listdir = map(staticmethod, (os.path.exists, os.path.isdir, os.listdir))
    remove, rename, rmtree = map(staticmethod, (os.remove, os.replace, shutil.rmtree))
    GFile = staticmethod(open)

    @staticmethod
    def makedirs(path):
        os.makedirs(path, exist_ok=True)


random = config = compat = Nothing()
enable_v2_behavior = Nothing()
io = SimpleNamespace(gfile=Files)
data = SimpleNamespace(experimental=SimpleNamespace(AUTOTUNE=-1), AUTOTUNE=-1)
