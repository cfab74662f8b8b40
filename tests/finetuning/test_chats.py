"""Chat templates show which tokens are trained."""

import pytest

from toile.finetuning import encode_chat, pack
from toile.interop.chat_templates import ChatTemplate
from toile.training.text import Bytes

CHAT = [
    {"role": "system", "content": "be brief"},
    {"role": "user", "content": "2+2?"},
    {"role": "assistant", "content": "4"},
    {"role": "user", "content": "<bold> \ue000?"},
    {"role": "assistant", "content": "no\nyes"},
]
# The templates of chatml, Llama 2 and Zephyr, and one that changes earlier messages.
CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
MARKED = """{{ bos_token }}{% for message in messages %}
    {% if message.role == "assistant" %}
<|assistant|>
{% generation %}
{{ message.content }}</s>
{% endgeneration %}
    {% else %}
<|{{ message.role }}|>
{{ message.content }}</s>
    {% endif %}
{% endfor %}"""
FORGETFUL = (
    "{% for m in messages %}{% if m.role != 'assistant' or loop.last %}{{ m.content }}|{% endif %}"
    "{% endfor %}"
)


def written(parts):
    return [text for text, trained in parts if trained]


def test_differences_between_prefixes():
    template = ChatTemplate(CHATML)
    parts = template.parts(CHAT)
    assert "".join(text for text, _ in parts) == template.render(CHAT)
    assert written(parts) == ["4<|im_end|>\n", "no\nyes<|im_end|>\n"]
    assert parts[0][0].endswith("<|im_start|>assistant\n")
    assert written(template.parts(CHAT[:2])) == []


def test_blocks_of_generation():
    template = ChatTemplate(MARKED, {"bos_token": "<s>"})
    parts = template.parts(CHAT)
    assert "".join(text for text, _ in parts) == template.render(CHAT)
    assert written(parts) == ["4</s>\n", "no\nyes</s>\n"]
    plain = MARKED.replace("{% generation %}\n", "").replace("{% endgeneration %}\n", "")
    assert template.render(CHAT) == ChatTemplate(plain, {"bos_token": "<s>"}).render(CHAT)
    assert template.render(CHAT).startswith("<s><|system|>\nbe brief</s>\n")


def test_templates_that_change_earlier_messages():
    with pytest.raises(ValueError, match="keeps the text of earlier messages when it adds message"):
        ChatTemplate(FORGETFUL).parts(CHAT)
    block = "{% generation %}{{ m.content }}{% endgeneration %}"
    marked = FORGETFUL.replace("{{ m.content }}", block)
    assert written(ChatTemplate(marked).parts(CHAT[-1:])) == ["no\nyes"]


def test_templates_run_in_a_sandbox():
    for source in ("{{ messages.__class__.__mro__ }}", "{{ messages.append(1) }}"):
        with pytest.raises(Exception, match="unsafe|not safely callable"):
            ChatTemplate(source).render([{"role": "user", "content": ""}])
    with pytest.raises(ValueError, match="roles must alternate"):
        ChatTemplate("{{ raise_exception('roles must alternate') }}").render([])
    assert ChatTemplate("{{ messages | tojson }}").render([{"a": "<é>"}]) == '[{"a": "<é>"}]'


class Words:
    """A tokenizer whose tokens are words, which may extend over the end of a part."""

    def encode_with_places(self, text):
        places, start = [], 0
        for word in text.split(" "):
            places.append((start, start + len(word)))
            start += len(word) + 1
        return [len(text[a:b]) for a, b in places], places


def test_tokens_of_what_the_assistant_writes_are_trained():
    template, tokenizer = ChatTemplate(CHATML), Bytes()
    tokens, trained = encode_chat(template, tokenizer, CHAT)
    assert tokenizer.decode(tokens) == template.render(CHAT) and len(tokens) == len(trained)
    kept = [t for t, flag in zip(tokens, trained, strict=True) if flag]
    assert tokenizer.decode(kept) == "4<|im_end|>\nno\nyes<|im_end|>\n"
    rows = pack([(tokens, trained)], len(tokens))
    assert (rows["labels"][0] != -100).tolist() == trained
    template = ChatTemplate("{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}"
                            "{% else %}{% generation %}{{ m.content }}{% endgeneration %}"
                            "{% endif %}{% endfor %}")
    chat = [{"role": "user", "content": "a bc"}, {"role": "assistant", "content": "d efg  h"}]
    assert template.render(chat) == "a bcd efg  h"
    assert encode_chat(template, Words(), chat) == (
        [1, 3, 3, 0, 1], [False, False, True, False, True])


def test_templates_of_folders(tmp_path):
    assert ChatTemplate.of_folder(tmp_path) is None
    (tmp_path / "tokenizer_config.json").write_text(
        '{"chat_template": [{"name": "default", "template": "{{ bos_token }}{{ eos_token }}"}], '
        '"bos_token": {"content": "<s>"}, "eos_token": "</s>"}')
    assert ChatTemplate.of_folder(tmp_path).render([]) == "<s></s>"
    (tmp_path / "chat_template.jinja").write_text("other")
    assert ChatTemplate.of_folder(tmp_path).render([]) == "other"
