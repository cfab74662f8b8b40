"""What runs Programs: a folder for each platform, and `reference`, the authority on meaning.

Importing it makes the platforms of the list below known to the engine.
"""

from toile.engine.platform_registry import registry
from toile.platforms.cpu.cpus import CpuPlatform
from toile.platforms.gpu.gpus import GpuPlatform

if registry.home is None:
    registry.add(CpuPlatform(), is_home=True)
    registry.add(GpuPlatform())
