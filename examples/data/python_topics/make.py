"""Make topics.txt from the interpreter's help: `python -m examples.data.python_topics.make`.

Topics are sorted by name. A paragraph that is in an earlier topic, possibly with other line breaks,
is left out, and so is a topic that is then too short.
"""

import pydoc_data.topics
from pathlib import Path

FILE = Path(__file__).parent / "topics.txt"
SEPARATOR = "\n\f\n"
SHORTEST = 150  # characters


def documents(topics: dict[str, str]) -> list[str]:
    """Return the topics without the paragraphs of earlier ones."""
    seen: set[str] = set()
    found = []
    for name in sorted(topics):
        kept = []
        for paragraph in topics[name].strip("\n").split("\n\n"):
            words = " ".join(paragraph.split())
            if words not in seen:
                kept.append(paragraph.rstrip())
            seen.add(words)
        text = "\n\n".join(kept).strip("\n")
        if len(text) >= SHORTEST:
            found.append(text)
    return found


if __name__ == "__main__":
    texts = documents(pydoc_data.topics.topics)
    FILE.write_text(SEPARATOR.join(texts) + "\n", encoding="utf-8", newline="\n")
