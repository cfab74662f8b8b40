"""Collect information about versions and devices for bug reports."""

from __future__ import annotations

import platform
import sys

import numpy as np

from toile.api.devices import devices, local_device_count, process_count
from toile.version import __version__


def print_environment_info(return_string: bool = False) -> str | None:
    """Print information for bug reports: versions, devices, processes and the platform.

    Args:
        return_string: whether to return the text instead of printing it.

    Returns:
        The text if `return_string` is True; otherwise, None.

    >>> "numpy:" in toile.print_environment_info(return_string=True)
    True
    """
    kinds = ", ".join(sorted({d.device_kind for d in devices()}))
    info = "\n".join([
        f"toile:  {__version__}",
        f"numpy:  {np.__version__}",
        f"python: {sys.version}",
        f"device info: {kinds}-{len(devices())}, {local_device_count()} local devices",
        f"process_count: {process_count()}",
        f"platform: {platform.uname()}",
    ])
    if return_string:
        return info
    print(info)
    return None
