"""The tool that looks at the documentation finds what is planted on a page, and nothing else."""

from __future__ import annotations

import pytest

from tools import look_at_site
from tools.chromium import Browser, NoBrowser

GOOD = """<!doctype html><html><head><title>good</title></head>
<body style="background: #fff; color: #222"><div class="md-content"><h2 id="here">A heading</h2>
<a href="bad.html#there" style="color: #00e">a link</a> <a href="#here" style="color: #00e">up</a>
<div style="overflow: auto"><pre style="width: 3000px">wide, and it scrolls</pre></div>
<span style="display: none; color: #fefefe">hidden</span></div></body></html>"""
BAD = """<!doctype html><html><head><title>bad</title></head>
<body style="background: #fff"><div class="md-content"><h2 id="there">A heading</h2>
<a href="missing.html">a</a> <a href="good.html#nowhere">b</a> <a href="https://example.com">c</a>
<div class="broad" style="width: 900px">broad</div>
<p class="faint" style="color: #999">faint</p>
<p style="background: #0008"><b class="through" style="color: #777">on a translucent ground</b></p>
</div><script>console.error("planted"); missing_function();</script></body></html>"""


@pytest.fixture
def site(tmp_path):
    (tmp_path / "good.html").write_text(GOOD)
    (tmp_path / "bad.html").write_text(BAD)
    return tmp_path


def test_broken_links_and_anchors_are_found(site):
    look_at_site.links_of.cache_clear()
    assert list(look_at_site.broken_links(site, site / "good.html")) == []
    assert list(look_at_site.broken_links(site, site / "bad.html")) == [
        "broken link: missing.html", "broken anchor: good.html#nowhere",
    ]  # fmt: skip


def test_pages_are_chosen_by_the_beginnings_of_addresses(site):
    assert [p.name for p in look_at_site.pages_of(site, [])] == ["bad.html", "good.html"]
    assert [p.name for p in look_at_site.pages_of(site, ["go"])] == ["good.html"]


def test_a_missing_site_is_an_error(tmp_path, capsys):
    assert look_at_site.main(["--site", str(tmp_path)]) == 2
    assert "needed a built site" in capsys.readouterr().out


def test_requests_that_leave_the_machine_are_reported():
    event = {"method": "Network.requestWillBeSent"}
    there = {**event, "params": {"request": {"url": "https://example.com/font.woff"}}}
    here = {**event, "params": {"request": {"url": "http://127.0.0.1:80/site.css"}}}
    found = list(look_at_site.console([there, here], "http://127.0.0.1:80"))
    assert found == ["a request to another machine: https://example.com/font.woff"]


def test_a_page_is_looked_at_in_the_browser(site):
    try:
        Browser().close()
    except NoBrowser as error:
        pytest.skip(str(error))
    look_at_site.links_of.cache_clear()
    problems = look_at_site.inspect_site(site, look_at_site.pages_of(site, []), None)
    assert list(problems) == ["bad.html"]
    text = "\n".join(problems["bad.html"])
    assert "500 px, dark: too wide: div.broad" in text
    assert "1280 px, light: too wide" not in text
    assert "low contrast: p.faint 2.85" in text and "low contrast: b.through" in text
    assert "console: planted" in text and "missing_function is not defined" in text


@pytest.mark.parametrize(("script", "problems"), [
    ("this.parentElement.innerHTML += '<p class=md-search-result__item>found</p>'", []),
    ("", ["search for 'adam': nothing"]),
])  # fmt: skip
def test_a_search_without_an_answer_is_reported(tmp_path, monkeypatch, script, problems):
    box = f'<input class="md-search__input" aria-label="Search" onkeyup="{script}">'
    (tmp_path / "index.html").write_text(f"<!doctype html><title>a</title><div>{box}</div>")
    monkeypatch.setattr(look_at_site, "WORDS", ("adam",))
    monkeypatch.setattr(look_at_site, "SCHEMES", ())
    monkeypatch.setattr(look_at_site, "SEARCH", look_at_site.SEARCH.replace("3000", "300"))
    try:
        found = look_at_site.inspect_site(tmp_path, [tmp_path / "index.html"], None)
    except NoBrowser as error:
        pytest.skip(str(error))
    assert found.get("index.html", []) == problems
