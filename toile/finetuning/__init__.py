"""Fine-tuning: low-rank adapters, soft prompts, packed rows, chats and preferences.

See docs/fine-tuning.md.
"""

from toile.engine.lazy import attach as _attach

__getattr__, __dir__, __all__ = _attach(__name__, __file__)
