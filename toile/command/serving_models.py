"""`toile serve`: a server that speaks OpenAI's protocol and runs the model in a folder."""

from __future__ import annotations

import argparse
import signal
import threading
from pathlib import Path
from typing import Any

from toile.command.failures import UsageError
from toile.interop import huggingface
from toile.serving import folders
from toile.serving.http_server import Limits, Server


def serve(args: argparse.Namespace) -> None:
    """Run the server until SIGTERM or Ctrl-C."""
    for name in ("slots", "length", "queue"):
        if getattr(args, name) < (2 if name == "length" else 1):
            raise UsageError(f"--{name}: needed a larger number, got {getattr(args, name)}")
    if not 0 <= args.port <= 65535:
        raise UsageError(f"--port: needed a number from 0 to 65535, got {args.port}")
    if not Path(args.folder).is_dir():
        raise UsageError(f"needed a folder with a model, got {args.folder!r}, which is not a "
                         "folder (toile downloads nothing)")
    template = folders.template_of(args.folder)
    tokenizer = folders.FolderTokenizer(huggingface.load_tokenizer(args.folder))
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    print(f"loading {args.folder}", flush=True)
    engine = folders.engine_of(
        args.folder, loader=args.loader, dtype=args.dtype, slots=args.slots, longest=args.length,
        waiting=args.queue,
    )  # fmt: skip
    try:
        server = Server(
            engine, tokenizer, args.name or Path(args.folder).resolve().name, template=template,
            host=args.host, port=args.port, limits=Limits(answering=args.seconds),
        )  # fmt: skip
    except BaseException:
        engine.close()
        raise
    serve_until(server, stop, args.host)


def serve_until(server: Any, stop: threading.Event, host: str) -> None:
    """Answer requests until the event is set, and then finish those that are running."""
    server.start()
    print(f"serving {server.model} at http://{host}:{server.port}", flush=True)
    # A signal can reach another thread. Python runs its handler when the main thread wakes up.
    while not stop.wait(0.5):
        pass
    print("finishing current answers", flush=True)
    server.close()
