"""Clients of the server: well-behaved ones, and raw sockets for the others."""

import contextlib
import http.client
import json
import socket

from tests.generation.models import Counted, Model, StoredPositions, variables_of
from toile.serving import BatchEngine, Server
from toile.training.text import END, Bytes

MODEL = Model(StoredPositions, vocabulary=258)
OTHER = Model(Counted, vocabulary=258)


def engine(model=MODEL, **options):
    options = {"slots": 4, "longest": 96, "waiting": 64, "stop_tokens": [END], **options}
    return BatchEngine(model, variables_of(model), **options)


def template(messages):
    if messages[0]["role"] == "nobody":
        raise ValueError("nobody cannot speak")
    return "".join(f"{m['role']}: {m['content']}\n" for m in messages) + "assistant:"


@contextlib.contextmanager
def running(used=None, **options):
    """A server, which is closed at the end."""
    options = {"template": template, "port": 0, **options}
    server = Server(used or engine(), Bytes(), "tiny", **options)
    server.start()
    try:
        yield server
    finally:
        server.close(grace=5)


def ask(server, body, path="/v1/completions", method="POST", headers=None):
    """The status, the headers and the JSON of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    try:
        connection.request(method, path, data, headers or {})
        reply = connection.getresponse()
        return reply.status, reply.headers, json.loads(reply.read() or b"null")
    finally:
        connection.close()


def completion(server, **body):
    """The first choice of a completion."""
    status, _, found = ask(server, {"model": "tiny", **body})
    assert status == 200, found
    return found["choices"][0]


def events(server, body, path="/v1/completions"):
    """The JSON objects of a stream."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request("POST", path, json.dumps({"model": "tiny", "stream": True, **body}))
    reply = connection.getresponse()
    assert reply.status == 200, reply.read()
    assert reply.headers["Content-Type"] == "text/event-stream"
    lines = [line for line in reply.read().decode().split("\n\n") if line]
    connection.close()
    assert all(line.startswith("data: ") for line in lines) and lines[-1] == "data: [DONE]"
    return [json.loads(line[6:]) for line in lines[:-1]]


def raw(server, data, timeout=10.0):
    """What the server sends for some bytes, until it closes the connection or stops sending."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=timeout) as client:
        with contextlib.suppress(OSError):
            client.sendall(data)
            client.shutdown(socket.SHUT_WR)
        out = b""
        with contextlib.suppress(OSError):
            while part := client.recv(65536):
                out += part
    return out
