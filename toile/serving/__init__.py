"""A server for decoders: continuous batching behind the HTTP protocol of OpenAI's completions.

`BatchEngine` generates tokens for many requests at once, and `Server` answers HTTP requests with
any `Engine`. The command `toile serve FOLDER` combines both with a pretrained model.
"""

from toile.serving.batch_engine import BatchEngine
from toile.serving.generations import Busy, Engine, Generation, Settings
from toile.serving.http_server import Limits, Server

__all__ = ["BatchEngine", "Busy", "Engine", "Generation", "Limits", "Server", "Settings"]
