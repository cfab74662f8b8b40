"""The HTTP server: answers, streams, errors, limits, load and an orderly end."""

import concurrent.futures
import contextlib
import http.client
import json
import random
import socket
import struct
import threading
import time

import pytest

from tests.generation.models import plain, variables_of
from tests.serving.clients import MODEL, ask, completion, engine, events, raw, running
from toile.serving import Generation, Limits, Settings
from toile.training.text import END, Bytes


@pytest.fixture(scope="module")
def server():
    with running(limits=Limits(body=20_000, reading=1.0, choices=6)) as found:
        yield found


def expected(text, count):
    tokens = plain(MODEL, variables_of(MODEL), Bytes().encode(text), count, stop=[END])
    return Bytes().decode(tokens)


def test_completions(server):
    status, _, found = ask(server, {
        "model": "tiny", "prompt": ["Hello", "no"], "max_tokens": 9, "temperature": 0, "n": 2,
    })  # fmt: skip
    assert status == 200 and found["object"] == "text_completion" and found["model"] == "tiny"
    assert found["id"].startswith("cmpl-") and isinstance(found["created"], int)
    texts = [choice["text"] for choice in found["choices"]]
    assert texts == [expected("Hello", 9)] * 2 + [expected("no", 9)] * 2
    assert [choice["index"] for choice in found["choices"]] == [0, 1, 2, 3]
    assert {choice["finish_reason"] for choice in found["choices"]} <= {"stop", "length"}
    usage = found["usage"]
    assert usage["prompt_tokens"] == 7 and usage["completion_tokens"] <= 36
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


def test_tokens_as_prompts(server):
    tokens = Bytes().encode("Hello")
    options = {"max_tokens": 5, "temperature": 0}
    assert completion(server, prompt=tokens, **options)["text"] == expected("Hello", 5)
    assert completion(server, prompt=[tokens], **options)["text"] == expected("Hello", 5)


def test_streams_equal_answers(server):
    body = {"prompt": "Hello", "max_tokens": 30, "temperature": 1.0, "seed": 3, "n": 2}
    status, _, found = ask(server, {"model": "tiny", **body})
    assert status == 200
    parts = events(server, {**body, "stream_options": {"include_usage": True}})
    assert parts[-1]["choices"] == [] and parts[-1]["usage"] == found["usage"]
    for choice in found["choices"]:
        own = [p["choices"][0] for p in parts[:-1] if p["choices"][0]["index"] == choice["index"]]
        assert "".join(part["text"] for part in own) == choice["text"]
        reasons = [part["finish_reason"] for part in own]
        assert reasons == [None] * (len(own) - 1) + [choice["finish_reason"]]
    assert found["choices"][0]["text"] != found["choices"][1]["text"]


def test_chats(server):
    messages = [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]
    body = {"messages": messages, "temperature": 0, "max_completion_tokens": 6}
    status, _, found = ask(server, {"model": "tiny", **body}, "/v1/chat/completions")
    text = expected("user: Hi\nassistant:", 6)
    assert status == 200 and found["object"] == "chat.completion"
    assert found["choices"][0]["message"] == {"role": "assistant", "content": text}
    parts = events(server, body, "/v1/chat/completions")
    assert parts[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    deltas = [part["choices"][0]["delta"].get("content", "") for part in parts]
    assert "".join(deltas) == text and parts[0]["object"] == "chat.completion.chunk"
    free = ask(server, {"messages": messages, "seed": 1}, "/v1/chat/completions")[2]
    assert free["usage"]["total_tokens"] <= server.engine.longest


def test_stop_strings(server):
    text = expected("Hello", 30)
    stop = text[3:5]
    choice = completion(server, prompt="Hello", max_tokens=30, temperature=0, stop=[stop, "zzz"])
    assert choice["text"] == text.partition(stop)[0] and choice["finish_reason"] == "stop"


def test_other_paths(server):
    assert ask(server, None, "/v1/models", "GET")[2]["data"][0]["id"] == "tiny"
    status, _, found = ask(server, None, "/health?x=1", "GET")
    assert status == 200 and found["status"] == "ok" and found["slots"] == 4


BAD = {
    "invalid JSON": (b"{", 400, "invalid JSON"),
    "no JSON": (b"\xff\xfe", 400, "invalid JSON"),
    "deep": (b"[" * 15_000, 400, "invalid JSON"),
    "NaN": (b'{"prompt": "a", "temperature": NaN}', 400, "invalid JSON"),
    "a list": (b"[]", 400, "JSON object"),
    "empty": (b"", 400, "invalid JSON"),
    "no prompt": ({}, 400, "as prompt"),
    "numbers": ({"prompt": [1.5]}, 400, "as prompt"),
    "booleans": ({"prompt": [True]}, 400, "as prompt"),
    "negative": ({"prompt": [-1]}, 400, "as prompt"),
    "huge token": ({"prompt": [2**40]}, 400, "as prompt"),
    "empty prompt": ({"prompt": ""}, 400, "at least one token"),
    "empty prompts": ({"prompt": []}, 400, "as prompt"),
    "long": ({"prompt": "x" * 95}, 400, "at most 96 tokens"),
    "many tokens": ({"prompt": "x", "max_tokens": 97}, 400, "max_tokens"),
    "no tokens": ({"prompt": "x", "max_tokens": 0}, 400, "max_tokens"),
    "text": ({"prompt": "x", "max_tokens": "5"}, 400, "max_tokens"),
    "float": ({"prompt": "x", "max_tokens": 5.5}, 400, "max_tokens"),
    "cold": ({"prompt": "x", "temperature": -1}, 400, "temperature"),
    "true": ({"prompt": "x", "temperature": True}, 400, "temperature"),
    "no mass": ({"prompt": "x", "top_p": 0}, 400, "top_p"),
    "n": ({"prompt": "x", "n": 7}, 400, "at most 6 continuations"),
    "stream": ({"prompt": "x", "stream": 1}, 400, "stream"),
    "stops": ({"prompt": "x", "stop": [""]}, 400, "stop"),
    "stop": ({"prompt": "x", "stop": 5}, 400, "stop"),
    "options": ({"prompt": "x", "stream_options": 5}, 400, "stream_options"),
    "model": ({"prompt": "x", "model": "gpt-9"}, 404, "gpt-9"),
    "unknown": ({"prompt": "x", "colour": 1}, 400, "colour"),
    "unsupported": ({"prompt": "x", "logprobs": 3}, 400, "not supported"),
    "code": ({"prompt": "x", "__class__": "os.system('true')"}, 400, "__class__"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_bodies(server, name):
    body, wanted, words = BAD[name]
    status, headers, found = ask(server, body)
    assert status == wanted and headers["Content-Type"] == "application/json"
    assert set(found) == {"error"} and set(found["error"]) == {"message", "type", "param", "code"}
    assert words in found["error"]["message"]


CHATS = {
    "no messages": ({}, "messages"),
    "no list": ({"messages": "hi"}, "messages"),
    "no role": ({"messages": [{"content": "hi"}]}, "messages[0]"),
    "image": ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0]"),
    "template": ({"messages": [{"role": "nobody", "content": "hi"}]}, "nobody cannot speak"),
    "tools": ({"messages": [{"role": "user", "content": "hi"}], "tools": [{}]}, "tools"),
}  # fmt: skip


@pytest.mark.parametrize("name", CHATS)
def test_bad_chats(server, name):
    body, words = CHATS[name]
    status, _, found = ask(server, body, "/v1/chat/completions")
    assert status == 400 and words in found["error"]["message"]


@pytest.mark.parametrize("method, path, wanted", [
    ("GET", "/", 404), ("GET", "/../../etc/passwd", 404), ("POST", "/v1/models", 405),
    ("GET", "/v1/completions", 405), ("POST", "/v1/" + "x" * 3000, 404),
])  # fmt: skip
def test_wrong_paths(server, method, path, wanted):
    status, _, found = ask(server, b"" if method == "POST" else None, path, method)
    assert status == wanted and found["error"]["type"] == "invalid_request_error"
    assert len(found["error"]["message"]) < 400


RAW = {
    "nonsense": (b"\x00\x01\x02\r\n\r\n", b" 400 "),
    "method": (b"BREW /pot HTTP/1.1\r\n\r\n", b" 501 "),
    "version": (b"GET / HTTP/9.9\r\n\r\n", b" 505 "),
    "long line": (b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n", b" 414 "),
    "long header": (b"GET / HTTP/1.1\r\nA: " + b"x" * 70_000 + b"\r\n\r\n", b" 431 "),
    "many headers": (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 200 + b"\r\n", b" 431 "),
    "no length": (b"POST /v1/completions HTTP/1.1\r\n\r\n", b" 411 "),
    "chunks": (b"POST /v1/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
               b" 411 "),
    "negative": (b"POST /v1/completions HTTP/1.1\r\nContent-Length: -5\r\n\r\n", b" 400 "),
    "no number": (b"POST /v1/completions HTTP/1.1\r\nContent-Length: many\r\n\r\n", b" 400 "),
    "digits": ("POST /v1/completions HTTP/1.1\r\nContent-Length: ²\r\n\r\n".encode("latin1"),
               b" 400 "),
    "two lengths": (b"POST /v1/completions HTTP/1.1\r\nContent-Length: 2\r\n"
                    b"Content-Length: 3\r\n\r\n{}", b" 400 "),
    "huge": (b"POST /v1/completions HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n{", b" 413 "),
    "endless": (b"POST /v1/completions HTTP/1.1\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n",
                b" 400 "),
}  # fmt: skip


@pytest.mark.parametrize("name", RAW)
def test_wrong_http(server, name):
    data, wanted = RAW[name]
    out = raw(server, data)
    assert wanted in out.partition(b"\r\n")[0], out[:200]
    assert b'{"error":' in out
    assert ask(server, None, "/health", "GET")[0] == 200


def test_slow_clients_are_cut_off(server):
    start = time.monotonic()
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as client:
        client.sendall(b"POST /v1/completions HTTP/1.1\r\nContent-Length: 50\r\n\r\n")
        with contextlib.suppress(OSError):
            for _ in range(40):  # one byte at a time does not extend the time
                client.sendall(b"x")
                time.sleep(0.1)
        out = b""
        with contextlib.suppress(OSError):
            out = client.recv(65536)
    assert b" 408 " in out or time.monotonic() - start < 4.5
    assert ask(server, None, "/health", "GET")[0] == 200


def test_connections_are_kept_and_old_clients_are_served(server):
    body = b'{"prompt": "x", "max_tokens": 3, "temperature": 0}'
    client = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    client.connect()
    used = client.sock
    for _ in range(3):
        client.request("POST", "/v1/completions", body)
        reply = client.getresponse()
        assert reply.status == 200 and reply.read() and client.sock is used
    client.close()
    streamed = body.replace(b"}", b', "stream": true}')
    head = b"POST /v1/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % len(streamed)
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as client:
        client.sendall(head + streamed)
        out = b""
        while part := client.recv(65536):
            out += part
    assert out.endswith(b"data: [DONE]\n\n") and b"chunked" not in out


class Endless:
    """An engine that generates until a request is cancelled."""

    longest, most = 10**6, 3

    def __init__(self):
        self.started, self.closed = [], False

    def submit(self, generations):
        from toile.serving import Busy

        if len(self.started) + len(generations) > self.most:
            raise Busy("all rows are taken")
        for one in generations:
            self.started.append(one)
            threading.Thread(target=self._run, args=(one,), daemon=True).start()

    def _run(self, one):
        while not one.cancelled and not self.closed:
            one.add(Bytes().encode("word "))
            time.sleep(0.01)
        self.started.remove(one)
        one.end("cancelled")

    def status(self):
        return {"ok": not self.closed, "running": len(self.started)}

    def close(self):
        self.closed = True


def eventually(condition, seconds=10):
    end = time.monotonic() + seconds
    while not (found := condition()) and time.monotonic() < end:
        time.sleep(0.02)
    return found


@pytest.mark.parametrize("stream", [False, True])
def test_disconnecting_cancels(stream):
    used = Endless()
    with running(used) as server:
        body = json.dumps({"prompt": "x", "max_tokens": 1000, "stream": stream}).encode()
        head = b"POST /v1/completions HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body)
        for reset in (False, True):
            client = socket.create_connection(("127.0.0.1", server.port), timeout=10)
            client.sendall(head + body)
            assert eventually(lambda: len(used.started) == 1)
            if reset:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()
            assert eventually(lambda: not used.started)


def test_back_pressure_and_time_limit():
    used = Endless()
    with running(used, limits=Limits(answering=1.0)) as server:
        body = {"prompt": "x", "max_tokens": 1000}
        with concurrent.futures.ThreadPoolExecutor() as pool:
            found = [pool.submit(ask, server, body) for _ in range(3)]
            assert eventually(lambda: len(used.started) == 3)
            status, headers, error = ask(server, body)
            assert status == 429 and int(headers["Retry-After"]) >= 1
            assert error["error"]["code"] == "rate_limit_exceeded"
            for one in found:
                status, _, error = one.result()
                assert status == 504 and error["error"]["code"] == "timeout"
        assert eventually(lambda: not used.started)
        parts = events_with_error(server, body)
        assert parts[-1]["error"]["code"] == "timeout"


def events_with_error(server, body):
    data = json.dumps({**body, "stream": True}).encode()
    out = raw_open(server, b"POST /v1/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n"
                   % len(data) + data)
    return [json.loads(line[6:]) for line in out.split(b"\n\n") if line.startswith(b"data: ")]


def raw_open(server, data):
    """What the server sends to a client that keeps its side open."""
    out = b""
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as client:
        client.sendall(data)
        while part := client.recv(65536):
            out += part
    return out.partition(b"\r\n\r\n")[2]


def test_connections_are_limited():
    with running(Endless(), limits=Limits(connections=2)) as server:
        held = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(2)]
        time.sleep(0.2)
        out = raw(server, b"")
        assert b" 503 " in out and b"too many connections" in out
        for client in held:
            client.close()
        assert eventually(lambda: b" 200 " in raw_status(server))


def raw_status(server):
    try:
        return f" {ask(server, None, '/health', 'GET')[0]} ".encode()
    except OSError:
        return b""


def accepted(server):
    """How many prompts run or wait."""
    status = server.engine.status()
    return status["running"] + status["waiting"]


def test_close_finishes_running_answers():
    with running() as server:
        with concurrent.futures.ThreadPoolExecutor() as pool:
            body = {"prompt": "x", "max_tokens": 80, "temperature": 0, "stop": ["never"]}
            ask(server, {**body, "max_tokens": 1})
            found = [pool.submit(ask, server, body) for _ in range(6)]
            assert eventually(lambda: accepted(server) + sum(one.done() for one in found) >= 6)
            server.close(grace=30)
            assert {one.result()[0] for one in found} == {200}
        with pytest.raises(OSError):
            ask(server, body)


def test_close_cancels_what_takes_too_long():
    used = Endless()
    with running(used) as server:
        with concurrent.futures.ThreadPoolExecutor() as pool:
            one = pool.submit(ask, server, {"prompt": "x", "max_tokens": 1000})
            assert eventually(lambda: used.started)
            server.close(grace=0.2)
            assert one.result()[0] == 503


def load(count, seed=0):
    """Bodies of requests of all kinds."""
    made = random.Random(seed)
    return [{
        "model": "tiny", "prompt": "".join(made.choices("abc de", k=made.randrange(1, 60))),
        "max_tokens": made.randrange(1, 30), "temperature": made.choice([0, 0.8, 1.5]), "seed": i,
        "top_p": made.choice([1, 0.9]), "stop": made.choice([None, ["e"]]),
        "stream": made.random() < 0.5,
    } for i in range(count)]  # fmt: skip


def text_of(server, body):
    if body["stream"]:
        return "".join(part["choices"][0]["text"] for part in events(server, body))
    status, _, found = ask(server, body)
    assert status == 200, found
    return found["choices"][0]["text"]


def leave_early(server, body):
    """A client that closes its connection while its answer is generated."""
    data = json.dumps({**body, "stream": True, "max_tokens": 30}).encode()
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as client:
        client.sendall(
            b"POST /v1/completions HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(data) + data
        )
        client.recv(100)


def test_load():
    """32 clients at once, some of which leave, receive the answers that they receive alone."""
    with running(engine(waiting=100)) as server:
        bodies = load(48)
        alone = [text_of(server, body) for body in bodies]
        with concurrent.futures.ThreadPoolExecutor(32) as pool:
            leaving = [pool.submit(leave_early, server, body) for body in bodies[::4]]
            texts = list(pool.map(lambda body: text_of(server, body), bodies))
            for one in leaving:
                one.result()
        assert texts == alone
        assert eventually(lambda: server.engine.status()["running"] == 0)
        assert server.engine.status() == {"ok": True, "running": 0, "waiting": 0, "slots": 4}


def test_an_overloaded_server_answers_or_refuses():
    with running(engine(slots=2, waiting=4)) as server:
        body = {"prompt": "x", "max_tokens": 60, "temperature": 0, "stop": ["never"]}
        ask(server, body)
        with concurrent.futures.ThreadPoolExecutor(32) as pool:
            statuses = [status for status, _, _ in pool.map(lambda _: ask(server, body), range(32))]
        assert set(statuses) <= {200, 429} and statuses.count(200) >= 6 and 429 in statuses
        assert ask(server, body)[0] == 200


def test_messages():
    one = Generation([1], Settings(max_tokens=1))
    assert one.get(timeout=0.01) is None
    with running(Endless()) as server, pytest.raises(RuntimeError, match="started before"):
        server.start()
