"""Versions of the documentation are published side by side, and pages switch between them."""

from __future__ import annotations

import contextlib
import functools
import http.server
import json
import subprocess
import threading
import time

import pytest

from tools import look_at_site, site_versions
from tools.chromium import NoBrowser

CONFIG = f"""
site_name: a site
theme: {{name: material, font: false, custom_dir: {site_versions.ROOT}/tools/site_theme}}
hooks: [{site_versions.ROOT}/tools/site_versions.py]
plugins: []
"""


def folder_with(path, *versions):
    for version in versions:
        (path / version).mkdir()
        (path / version / "index.html").write_text(version)
    return path


def test_versions_are_listed_with_the_latest_release_first(tmp_path):
    folder_with(tmp_path, "0.9.0", "dev", "0.10.0", "0.11rc1", ".building-x")
    (tmp_path / "assets").mkdir()
    versions = ["0.10.0", "0.9.0", "0.11rc1", "dev"]
    assert site_versions.write_index(tmp_path) == versions
    entries = json.loads((tmp_path / "versions.json").read_text())
    assert [e["version"] for e in entries] == [e["title"] for e in entries] == versions
    assert [e["aliases"] for e in entries] == [["latest"], [], [], []]
    assert "url=0.10.0/" in (tmp_path / "index.html").read_text()


def test_a_single_version_is_the_latest_whatever_its_name(tmp_path):
    assert site_versions.main([str(folder_with(tmp_path, "dev")), "--list"]) == 0
    (entry,) = json.loads((tmp_path / "versions.json").read_text())
    assert entry == {"version": "dev", "title": "dev", "aliases": ["latest"]}


def test_a_folder_without_versions_is_an_error(tmp_path, capsys):
    assert site_versions.main([str(tmp_path), "--list"]) == 2
    assert "needed a published version" in capsys.readouterr().out


@pytest.mark.parametrize("version", ["", "..", "a/b", "-x", "0.1 0", "<b>"])
def test_versions_that_are_no_names_of_folders_are_refused(tmp_path, version, capsys):
    assert site_versions.main([str(tmp_path), f"--version={version}"]) == 2
    assert "needed a version such as" in capsys.readouterr().out and not list(tmp_path.iterdir())


def test_the_default_version_is_that_of_the_package():
    assert site_versions.order(site_versions.own_version()) > site_versions.order("dev")


@pytest.fixture
def sources(tmp_path):
    """A small site with the project's hook and theme."""
    pytest.importorskip("material", reason="the site is built with mkdocs-material")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("# First\n\n[a guide](guide.md)\n")
    (tmp_path / "docs" / "guide.md").write_text("# Guide\n\n[first](index.md)\n")
    (tmp_path / "mkdocs.yml").write_text(CONFIG)
    return tmp_path


def test_a_build_that_fails_leaves_the_published_version(sources):
    folder, config = sources / "published", sources / "mkdocs.yml"
    site_versions.publish(folder, "0.1", config=config)
    before = (folder / "0.1" / "index.html").read_bytes()
    (sources / "docs" / "index.md").write_text("# First\n\n[nowhere](missing.md)\n")
    with pytest.raises(subprocess.CalledProcessError):
        site_versions.publish(folder, "0.1", config=config)
    assert (folder / "0.1" / "index.html").read_bytes() == before
    assert sorted(p.name for p in folder.iterdir()) == ["0.1", "index.html", "versions.json"]


def test_a_plain_build_asks_for_no_versions(sources, monkeypatch):
    monkeypatch.delenv(site_versions.VERSION, raising=False)
    config = type("Config", (), {"extra": {}, "site_url": ""})()
    assert site_versions.on_config(config).extra == {}
    monkeypatch.setenv(site_versions.VERSION, "0.1")
    assert site_versions.on_config(config).extra["version"]["provider"] == "mike"
    assert config.site_url == ""


@contextlib.contextmanager
def browsing(folder):
    """A browser, and the address of the folder's site."""
    handler = functools.partial(look_at_site.Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            browser = look_at_site.ready()
        except NoBrowser as error:
            server.shutdown()
            pytest.skip(str(error))
        try:
            with browser:
                browser.resize(1280, 900)
                yield browser, f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


def until(browser, script, seconds=20):
    """Wait for a value that is true."""
    end = time.monotonic() + seconds
    while not (found := browser.evaluate(script)) and time.monotonic() < end:
        time.sleep(0.05)
    return found


LISTED = "[...document.querySelectorAll('.md-version__link')].map(e => e.textContent.trim())"
SHOWN = "document.querySelector('.md-version__current')?.textContent.trim()"
BANNER = "!document.querySelector('[data-md-component=outdated]').hidden"


def test_pages_switch_between_versions(sources):
    folder, config = sources / "published", sources / "mkdocs.yml"
    address = "https://docs.invalid/toile"
    site_versions.publish(folder, "0.1", address, config)
    with browsing(folder) as (browser, place):
        browser.open(f"{place}/")
        assert until(browser, SHOWN) == "0.1"  # the first page led there
        assert browser.evaluate(LISTED) == ["0.1"] and not browser.evaluate(BANNER)
        assert list(look_at_site.console(browser.events, place)) == []

        site_versions.publish(folder, "0.2", address, config)
        browser.evaluate("sessionStorage.clear()")  # another visit
        browser.open(f"{place}/0.1/guide/")
        assert until(browser, SHOWN) == "0.1" and browser.evaluate(LISTED) == ["0.2", "0.1"]
        assert until(browser, BANNER)
        browser.evaluate("document.querySelector('.md-version__link').click()")
        assert until(browser, "location.pathname.includes('/0.2/')")
        assert browser.evaluate("location.pathname") == "/0.2/guide/"
        assert until(browser, SHOWN) == "0.2" and not browser.evaluate(BANNER)
