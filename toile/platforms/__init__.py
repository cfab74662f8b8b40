"""The platforms that run Programs, one folder each; `reference` defines what Programs mean.

Importing this package registers the platforms listed below with the engine.
"""

from toile.engine.platform_registry import registry
from toile.platforms.cpu.cpus import CpuPlatform
from toile.platforms.gpu.gpus import GpuPlatform

if registry.home is None:
    registry.add(CpuPlatform(), is_home=True)
    registry.add(GpuPlatform())
