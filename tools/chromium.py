"""Control a headless Chromium over the DevTools protocol, using only the standard library.

`Browser` starts Chromium with a new profile and opens one tab. `Browser.call` sends a command,
waits for the answer, and collects the events that arrive in the meantime.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import socket
import struct
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
OPTIONS = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run",
           "--disable-background-networking", "--disable-component-update", "--disable-sync",
           "--disable-extensions", "--disable-dev-shm-usage", "--remote-debugging-port=0",
           "--remote-allow-origins=*", "about:blank")  # fmt: skip


class NoBrowser(RuntimeError):
    """Chromium is not installed or did not start."""


class WebSocket:
    """A minimal WebSocket client for text messages."""

    def __init__(self, address: str, timeout: float = 60):
        host, port, path = re.fullmatch(r"ws://([^:/]+):(\d+)(/.*)", address).groups()  # type: ignore[union-attr]
        self.socket = socket.create_connection((host, int(port)), timeout=timeout)
        key = base64.b64encode(os.urandom(16)).decode()
        request = (f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nUpgrade: websocket\r\n"
                   f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\n"
                   "Sec-WebSocket-Version: 13\r\n\r\n")  # fmt: skip
        self.socket.sendall(request.encode())
        self.buffer = b""
        while b"\r\n\r\n" not in self.buffer:
            self.buffer += self.socket.recv(65536)
        head, _, self.buffer = self.buffer.partition(b"\r\n\r\n")
        if b" 101 " not in head.splitlines()[0]:
            raise NoBrowser(f"the browser refused a connection: {head[:80]!r}")

    def send(self, text: str) -> None:
        """Send one message; the protocol requires clients to mask their messages."""
        data = text.encode()
        mask = os.urandom(4)
        size = len(data)
        if size < 126:
            head = struct.pack("!BB", 0x81, 0x80 | size)
        elif size < 65536:
            head = struct.pack("!BBH", 0x81, 0x80 | 126, size)
        else:
            head = struct.pack("!BBQ", 0x81, 0x80 | 127, size)
        stream = (mask * (size // 4 + 1))[:size]
        masked = (int.from_bytes(data, "big") ^ int.from_bytes(stream, "big")).to_bytes(size, "big")
        self.socket.sendall(head + mask + masked)

    def receive(self) -> str:
        """The next message, assembled from its frames."""
        parts = []
        while True:
            first, second = self._read(2)
            size = second & 0x7F
            if size >= 126:
                size = int.from_bytes(self._read(2 if size == 126 else 8), "big")
            parts.append(self._read(size))
            if first & 0x0F == 8:
                raise NoBrowser("the browser closed the connection")
            if first & 0x80:
                return b"".join(parts).decode()

    def _read(self, size: int) -> bytes:
        pieces, have = [self.buffer], len(self.buffer)
        while have < size:
            pieces.append(self.socket.recv(1 << 20))
            if not pieces[-1]:
                raise NoBrowser("the browser closed the connection")
            have += len(pieces[-1])
        data = b"".join(pieces)
        self.buffer = data[size:]
        return data[:size]


class Browser:
    """One tab of a headless Chromium, as a context manager that ends the process."""

    def __init__(self) -> None:
        program = next((p for name in NAMES if (p := shutil.which(name))), None)
        if program is None:
            raise NoBrowser(f"needs Chromium, and none of {', '.join(NAMES)} is installed "
                            "(Debian: apt-get install chromium)")  # fmt: skip
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.process = subprocess.Popen(
            [program, f"--user-data-dir={self.profile.name}", *OPTIONS],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self.events: list[dict[str, Any]] = []
        self.calls = 0
        try:
            self.connection = WebSocket(self._tab())
        except BaseException:
            self.close()
            raise

    def _tab(self, seconds: float = 30) -> str:
        """The address of the first tab. The browser writes its port to a file when it is ready."""
        file = Path(self.profile.name, "DevToolsActivePort")
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if file.exists() and (text := file.read_text()).count("\n"):
                with urllib.request.urlopen(f"http://127.0.0.1:{text.split()[0]}/json") as answer:
                    tabs = [t for t in json.load(answer) if t["type"] == "page"]
                if tabs:
                    return str(tabs[0]["webSocketDebuggerUrl"])
            time.sleep(0.1)
        raise NoBrowser(f"Chromium did not start within {seconds:.0f} seconds")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command and wait for its result."""
        self.calls += 1
        number = self.calls
        self.connection.send(json.dumps({"id": number, "method": method, "params": params}))
        while (message := json.loads(self.connection.receive())).get("id") != number:
            self.events.append(message)
        if "error" in message:
            raise RuntimeError(f"{method}: {message['error']['message']}")
        return dict(message["result"])

    def evaluate(self, script: str) -> Any:
        """Evaluate an expression in the page; if the result is a promise, wait for its value."""
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True,
                           awaitPromise=True)  # fmt: skip
        if "exceptionDetails" in result:
            details = result["exceptionDetails"]
            raise RuntimeError(details.get("exception", {}).get("description", details["text"]))
        return result["result"].get("value")

    def open(self, address: str, seconds: float = 30) -> None:
        """Load a page and wait until it has loaded."""
        self.events.clear()
        self.call("Page.navigate", url=address)
        end = time.monotonic() + seconds
        while not any(e["method"] == "Page.loadEventFired" for e in self.events):
            if time.monotonic() > end:
                raise RuntimeError(f"{address} did not load within {seconds:.0f} seconds")
            self.call("Runtime.evaluate", expression="0")  # events arrive with the answer
            time.sleep(0.02)

    def resize(self, width: int, height: int) -> None:
        """Set the size of the window, in CSS pixels."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=False)  # fmt: skip

    def prefer(self, scheme: str) -> None:
        """Set the color scheme that the reader's system prefers: "light" or "dark"."""
        features = [{"name": "prefers-color-scheme", "value": scheme},
                    {"name": "prefers-reduced-motion", "value": "reduce"}]  # fmt: skip
        self.call("Emulation.setEmulatedMedia", features=features)

    def screenshot(self, whole: bool = False) -> bytes:
        """Return a PNG of the window, or of the whole page."""
        result = self.call("Page.captureScreenshot", captureBeyondViewport=whole)
        return base64.b64decode(result["data"])

    def close(self) -> None:
        if hasattr(self, "connection"):
            self.connection.socket.close()
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.profile.cleanup()

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None,
                 traceback: TracebackType | None) -> None:  # fmt: skip
        self.close()
