"""The HTTP server: paths, limits, errors in OpenAI's form, and an orderly end.

Each connection has a thread, which only reads, waits and writes; the engine computes. Requests are
data: they name no files and contain no code.
"""

from __future__ import annotations

import dataclasses
import io
import json
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any

from toile.engine.locks import InterruptibleCondition
from toile.engine.source import here
from toile.serving import api_requests
from toile.serving.answers import Answer, Tokenizer
from toile.serving.api_requests import ApiError
from toile.serving.connections import Deadlined, Disconnected, is_open
from toile.serving.generations import Engine
from toile.version import __version__

_PATHS = {
    "/health": "GET", "/v1/models": "GET", "/v1/completions": "POST",
    "/v1/chat/completions": "POST",
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Limits:
    """Limits for the requests of clients.

    Args:
        body: largest number of bytes in the body of a request.
        connections: largest number of simultaneous connections. Further connections receive the
            status 503.
        choices: largest number of continuations in one request.
        reading: number of seconds within which a request must arrive, and within which a client
            must accept each part of the answer.
        answering: number of seconds within which an answer must be complete.
        idle: number of seconds for which an open connection may wait for its next request.

    >>> from toile.serving import Limits
    >>> Limits(body=10_000).connections
    256
    """

    body: int = 2**20
    connections: int = 256
    choices: int = 16
    reading: float = 20.0
    answering: float = 600.0
    idle: float = 60.0


class Server:
    """An HTTP server with OpenAI's completions API.

    The paths are `/v1/completions`, `/v1/chat/completions` (if there is a chat template),
    `/v1/models` and `/health`. With `"stream": true` in a request, the answer is a stream of
    server-sent events. There is no encryption and no authentication: the default address can be
    reached only from the same machine.

    The attribute `port` is the port that the server uses.

    Args:
        engine: object that generates tokens, such as a `BatchEngine`.
        tokenizer: object with methods `encode(text)` and `decode(tokens)`.
        model: name of the model, which requests and answers contain.
        template: function that converts a list of messages, which are dicts with `role` and
            `content`, to a prompt; None to disable chats.
        host: address on which to listen.
        port: port on which to listen; 0 for any free port.
        limits: limits for requests; None for the default limits.

    >>> import json, urllib.request
    >>> from toile.serving import Server
    >>> from toile.training.text import Bytes
    >>> class Echo:  # an engine that repeats the prompt
    ...     longest = 100
    ...     def submit(self, generations):
    ...         for one in generations:
    ...             one.add(one.prompt[: one.settings.max_tokens])
    ...             one.end("length")
    ...     def status(self):
    ...         return {"ok": True}
    ...     def close(self):
    ...         pass
    >>> server = Server(Echo(), Bytes(), "echo", port=0)
    >>> server.start()
    >>> body = json.dumps({"model": "echo", "prompt": "hello", "max_tokens": 4}).encode()
    >>> address = f"http://127.0.0.1:{server.port}/v1/completions"
    >>> with urllib.request.urlopen(address, body) as reply:
    ...     json.load(reply)["choices"][0]["text"]
    'hell'
    >>> server.close()
    """

    def __init__(
        self, engine: Engine, tokenizer: Tokenizer, model: str, *,
        template: Callable[[list[dict]], str] | None = None, host: str = "127.0.0.1",
        port: int = 8000, limits: Limits | None = None,
    ):  # fmt: skip
        self.engine, self.tokenizer, self.model = engine, tokenizer, model
        self.template, self.limits = template, limits or Limits()
        self.created = int(time.time())
        self.closing = False
        self._active = 0  # requests that are being answered
        self._condition = InterruptibleCondition()
        self._thread: threading.Thread | None = None
        self._http = (_Http6 if ":" in host else _Http)((host, port), _Handler)
        self._http.owner = self
        self._http.free = threading.BoundedSemaphore(self.limits.connections)
        self.port: int = self._http.server_address[1]

    def start(self) -> None:
        """Answer requests, in threads of this process.

        Raises:
            RuntimeError: the server has already been started.
        """
        if self._thread is not None:
            raise RuntimeError(
                f"Server.start: needed a new server, got one that was started before (make another "
                f"one){here()}"
            )
        self._thread = threading.Thread(
            target=self._http.serve_forever, args=(0.05,), name="toile-http-server", daemon=True
        )
        self._thread.start()

    def close(self, grace: float = 30.0) -> None:
        """Stop the server: accept no new requests, finish current answers, and close the engine.

        Args:
            grace: number of seconds for current answers; answers that take longer are canceled.
        """
        self.closing = True
        if self._thread is not None:
            self._http.shutdown()
            self._thread.join()
        self._http.server_close()
        self._wait(grace)
        self.engine.close()
        self._wait(5.0)  # for the threads that still send errors to their clients

    def begin(self) -> None:
        """Count a request that is being answered."""
        with self._condition:
            if self.closing:
                raise ApiError(503, "the server is shutting down", kind="server_error",
                               headers={"Retry-After": "5"})
            self._active += 1

    def done(self) -> None:
        """Count the end of a request."""
        with self._condition:
            self._active -= 1
            self._condition.notify_all()

    def _wait(self, seconds: float) -> None:
        with self._condition:
            self._condition.wait_for(lambda: self._active == 0, timeout=seconds)


class _Http(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """Manages sockets and threads; closes connections for which there is no thread."""

    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    owner: Server
    free: threading.BoundedSemaphore

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self.free.acquire(blocking=False):
            error = ApiError(503, "too many connections", kind="server_error")
            body = json.dumps(error.body).encode()
            head = (
                "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(body)}\r\nRetry-After: 1\r\nConnection: close\r\n\r\n"
            )
            request.setblocking(False)
            try:
                request.send(head.encode() + body)
            except OSError:
                pass  # the client has disconnected, or does not read
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        error = sys.exception()
        if not isinstance(error, OSError):  # clients may disconnect at any time
            super().handle_error(request, client_address)


class _Http6(_Http):
    """The same for IPv6 addresses."""

    address_family = socket.AF_INET6


class _Handler(BaseHTTPRequestHandler):
    """The requests of one connection."""

    protocol_version = "HTTP/1.1"
    server_version = f"toile/{__version__}"
    sys_version = ""
    disable_nagle_algorithm = True
    server: _Http

    def setup(self) -> None:
        super().setup()
        self.owner = self.server.owner
        self.incoming = Deadlined(self.connection, self.owner.limits.reading)
        self.rfile = self.reader = io.BufferedReader(self.incoming)

    def handle_one_request(self) -> None:
        self.incoming.restart(self.owner.limits.idle)
        try:
            first = self.reader.peek(1)
        except OSError:
            first = b""
        if not first or self.owner.closing:
            self.close_connection = True
            return
        self.incoming.restart()
        super().handle_one_request()

    def log_message(self, format: str, *args: Any) -> None:
        """Do not log requests, because they may contain private text."""

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer a request that cannot be parsed."""
        self.close_connection = True
        self.request_version = self.protocol_version  # so that there is a line with the status
        self._send_error(ApiError(code, message or explain or "the request is not valid HTTP"))

    def do_GET(self) -> None:
        self._answer("GET")

    def do_POST(self) -> None:
        self._answer("POST")

    def _answer(self, method: str) -> None:
        self.streaming = False
        counted = False
        try:
            body = self._body()
            path = self.path.partition("?")[0]
            self._check_path(method, path)
            if path == "/health":
                status = self.owner.engine.status()
                ok = status.pop("ok") and not self.owner.closing
                return self._send(200 if ok else 503, {"status": "ok" if ok else "down", **status})
            if path == "/v1/models":
                return self._send(200, _models(self.owner))
            self.owner.begin()
            counted = True
            self._complete(path, body)
        except ApiError as error:
            self._send_error(error)
        except OSError:
            self.close_connection = True  # the client has disconnected, or is too slow
        except Exception:
            self.server.handle_error(self.connection, self.client_address)
            self._send_error(ApiError(500, "the server failed (see its log)", kind="server_error"))
        finally:
            if counted:
                self.owner.done()

    def _check_path(self, method: str, path: str) -> None:
        known = _PATHS.get(path)
        if known is None or (path == "/v1/chat/completions" and self.owner.template is None):
            why = " (this model has no chat template)" if known else ""
            raise ApiError(404, f"there is no path {path[:100]}{why}; needed one of "
                           f"{', '.join(_PATHS)}", code="not_found")
        if method != known:
            raise ApiError(405, f"needed {known} for {path}, got {method}",
                           headers={"Allow": known})

    def _body(self) -> bytes:
        """Read the body, whose length the client must declare."""
        limit = self.owner.limits.body
        if "Transfer-Encoding" in self.headers:
            self.close_connection = True
            raise ApiError(411, "needed the header Content-Length, got Transfer-Encoding")
        given = self.headers.get_all("Content-Length") or []
        if not given and self.command == "POST":
            self.close_connection = True
            raise ApiError(411, "needed the header Content-Length")
        text = given[0].strip() if len(set(given)) == 1 else "0" if not given else ""
        if not (text.isascii() and text.isdigit()) or len(text) > 15:
            self.close_connection = True
            raise ApiError(400, "needed one number of bytes as Content-Length, got "
                           f"{', '.join(given)[:100]!r}")
        if int(text) > limit:
            self.close_connection = True
            raise ApiError(413, f"needed a body of at most {limit} bytes, got {int(text)}")
        try:
            body = self.rfile.read(int(text))
        except TimeoutError:
            self.close_connection = True
            raise ApiError(408, "the request did not arrive in time") from None
        if len(body) < int(text):
            raise Disconnected
        return body

    def _complete(self, path: str, body: bytes) -> None:
        owner = self.owner
        found = api_requests.parsed(body)
        longest = owner.engine.longest
        if path == "/v1/completions":
            request = api_requests.completion_request(found, owner.model, longest)
        else:
            assert owner.template is not None
            request = api_requests.chat_request(found, owner.model, longest, owner.template)
        limits = owner.limits
        answer = Answer(
            owner.engine, owner.tokenizer, owner.model, request, limits.choices, limits.answering
        )
        try:
            connected = lambda: is_open(self.connection)
            if request.stream:
                self._stream(answer, connected)
            else:
                self._send(200, answer.whole(connected))
        finally:
            answer.cancel()

    def _stream(self, answer: Answer, connected: Callable[[], bool]) -> None:
        """Send server-sent events, each as one chunk if the client supports chunks."""
        headers = {"Content-Type": "text/event-stream", "Cache-Control": "no-cache"}
        self.chunked = self.request_version != "HTTP/1.0"
        if self.chunked:
            headers["Transfer-Encoding"] = "chunked"
        else:
            self.close_connection = True
        self._start(200, headers)
        self.streaming = True
        for event in answer.events(connected):
            self._event(json.dumps(event))
        self._event("[DONE]", last=True)

    def _event(self, text: str, last: bool = False) -> None:
        data = f"data: {text}\n\n".encode()
        if self.chunked:
            end = b"\r\n0\r\n\r\n" if last else b"\r\n"
            data = f"{len(data):x}\r\n".encode() + data + end
        self.wfile.write(data)

    def _start(self, status: int, headers: dict[str, str]) -> None:
        self.connection.settimeout(self.owner.limits.reading)
        self.send_response(status)
        if self.owner.closing:
            self.close_connection = True
        if self.close_connection:
            headers = {**headers, "Connection": "close"}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def _send(self, status: int, content: Any, headers: dict[str, str] | None = None) -> None:
        data = json.dumps(content).encode()
        self._start(status, {"Content-Type": "application/json", "Content-Length": str(len(data)),
                             **(headers or {})})
        if self.command != "HEAD":
            self.wfile.write(data)

    def _send_error(self, error: ApiError) -> None:
        try:
            if getattr(self, "streaming", False):  # the status has been sent
                self.close_connection = True
                self._event(json.dumps(error.body), last=True)
            else:
                self._send(error.status, error.body, error.headers)
        except OSError:
            self.close_connection = True


def _models(owner: Server) -> dict[str, Any]:
    model = {"id": owner.model, "object": "model", "created": owner.created, "owned_by": "toile"}
    return {"object": "list", "data": [model]}
