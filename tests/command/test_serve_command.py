"""`toile serve`: a server for the model in a folder, until SIGTERM."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

import toile
import toile.numpy as jnp
from examples.language_model import gpt2
from tests.command.running import refused
from toile.interop import huggingface
from toile.serving import folders

ROOT = Path(__file__).parents[2]
needs_tokenizers = pytest.mark.skipif(
    importlib.util.find_spec("tokenizers") is None, reason="needs tokenizers")
needs_jinja = pytest.mark.skipif(
    importlib.util.find_spec("jinja2") is None, reason="needs jinja2")
CONFIG = {"model_type": "gpt2", "vocab_size": 256, "n_embd": 16, "n_layer": 1, "n_head": 2,
          "n_positions": 64, "eos_token_id": 255}
TEMPLATE = "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}\n{% endfor %}{{ eos_token }}"


@pytest.fixture
def folder(tmp_path):
    """A folder with a small model and a tokenizer of bytes."""
    import tokenizers

    model = gpt2.model(CONFIG)
    variables = model.init(toile.random.key(0), jnp.zeros((1, 4), jnp.int32))
    huggingface.save(tmp_path / "tiny", variables, CONFIG, gpt2.table(CONFIG))
    letters = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    made = tokenizers.Tokenizer(
        tokenizers.models.BPE({letter: i for i, letter in enumerate(letters)}, []))
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    made.save(str(tmp_path / "tiny" / "tokenizer.json"))
    (tmp_path / "tiny" / "tokenizer_config.json").write_text(json.dumps(
        {"chat_template": TEMPLATE, "eos_token": {"content": "</s>"}}))
    return tmp_path / "tiny"


def post(port, path, body):
    request = f"http://127.0.0.1:{port}{path}"
    with urllib.request.urlopen(request, json.dumps(body).encode(), timeout=60) as reply:
        return json.load(reply)


@needs_tokenizers
@needs_jinja
def test_serve_until_sigterm(folder):
    server = subprocess.Popen(
        [sys.executable, "-m", "toile", "serve", str(folder), "--port", "0", "--slots", "2"],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"})
    try:
        assert server.stdout.readline().startswith("loading ")
        line = server.stdout.readline()
        assert line.startswith("serving tiny at http://127.0.0.1:"), server.stderr.read()
        port = int(line.rpartition(":")[2])
        body = {"model": "tiny", "max_tokens": 5, "temperature": 0}
        found = post(port, "/v1/completions", {**body, "prompt": "Hello"})
        assert found["usage"]["prompt_tokens"] == 5
        chat = {**body, "messages": [{"role": "user", "content": "hi"}]}
        found = post(port, "/v1/chat/completions", chat)
        assert found["usage"]["prompt_tokens"] == len("<user>hi\n</s>")
        server.send_signal(signal.SIGTERM)
        assert server.wait(timeout=60) == 0
        assert server.stderr.read() == ""
    finally:
        server.kill()
        server.wait()
        server.stdout.close()
        server.stderr.close()


@needs_jinja
@pytest.mark.parametrize("source, words", [
    ("{{ ''.__class__.__mro__ }}", "unsafe"),
    ("{{ raise_exception('no system role') }}", "no system role"),
    ("{{ messages.append(1) }}", "unsafe"),
])
def test_templates_run_in_a_sandbox(tmp_path, source, words):
    (tmp_path / "chat_template.jinja").write_text(source)
    template = folders.template_of(tmp_path)
    with pytest.raises(Exception, match=words):
        template([{"role": "user", "content": "hi"}])


def test_folders_without_a_template(tmp_path):
    assert folders.template_of(tmp_path) is None
    (tmp_path / "tokenizer_config.json").write_text('{"bos_token": "<s>"}')
    assert folders.template_of(tmp_path) is None


def test_mistakes(capsys, tmp_path):
    missing = refused(capsys, "serve", tmp_path / "nothing")
    assert "needed a folder with a model" in missing
    assert "--port" in refused(capsys, "serve", tmp_path, "--port", 70_000)
    assert "--slots" in refused(capsys, "serve", tmp_path, "--slots", 0)
    with pytest.raises(ImportError, match="--loader MODULE:FUNCTION"):
        folders.function_of("no_such_module:load")
