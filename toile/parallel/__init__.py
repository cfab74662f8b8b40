"""Programs on many devices: pmap, shard_map, meshes and shardings.

A mapped function is one Program that every device runs; each CPU device is a thread. Collectives
are operations of that Program that communicate with the other devices through an exchange. The
modules of this package may import `toile.staging` and the packages below it (docs/design/house.md).
"""

from toile.engine.lazy import attach as _attach

__getattr__, __dir__, __all__ = _attach(__name__, __file__)
