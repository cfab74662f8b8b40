"""Open every page of the documentation in a browser, and report problems.

`python -m tools.look_at_site` serves the folder `site/` on localhost and opens each page in
headless Chromium, 1280 and 500 pixels wide, with light and with dark colors. (`--build` builds the
site first.) The tool reports console messages, requests that fail or go to other machines, elements
that are wider than the page, broken links and anchors, text whose contrast is below WCAG's level
AA, and searches that find nothing or take more than a second. `--shots FOLDER` saves a picture of
each page, and `--pages api/ index` selects pages.
"""

from __future__ import annotations

import argparse
import functools
import html.parser
import http.server
import subprocess
import sys
import threading
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tools.chromium import Browser, NoBrowser

ROOT = Path(__file__).parents[1]
WIDTHS = {1280: 900, 500: 900}
SCHEMES = ("light", "dark")
# Elements whose right edge is outside the window and that no ancestor clips or scrolls.
OVERFLOW = """(() => {
  const width = document.documentElement.clientWidth, found = [];
  const held = e => { for (let p = e.parentElement; p && p !== document.body; p = p.parentElement) {
    const o = getComputedStyle(p).overflowX;
    if (o !== 'visible' && p.getBoundingClientRect().right <= width + 1) return true; }
    return false; };
  for (const e of document.querySelectorAll('.md-content *, .md-header *, .md-footer *')) {
    const box = e.getBoundingClientRect();
    if (box.width && box.right > width + 1 && getComputedStyle(e).visibility !== 'hidden'
        && !held(e)) {
      const id = e.closest('[id]')?.id ?? '', name = e.getAttribute('class') ?? '';
      const end = Math.round(box.right);
      found.push(`${e.tagName.toLowerCase()}.${name} near #${id} ends at ${end}`); } }
  if (document.documentElement.scrollWidth > width + 1)
    found.push('the page scrolls sideways: ' + document.documentElement.scrollWidth);
  return found.slice(0, 8); })()"""
# Texts whose contrast is too low. The background is the nearest opaque ancestor's, blended with #
# translucent backgrounds in front of it.
CONTRAST = """(() => {
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const cache = new Map();
  const rgba = text => { if (!cache.has(text)) {
      canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = text; canvas.fillRect(0, 0, 1, 1);
      const d = canvas.getImageData(0, 0, 1, 1).data;
      cache.set(text, [d[0], d[1], d[2], d[3] / 255]); }
    return cache.get(text); };
  const over = (top, under) =>
    [0, 1, 2].map(i => top[i] * top[3] + under[i] * (1 - top[3])).concat(1);
  const light = c => { const [r, g, b] = c.slice(0, 3).map(v => { v /= 255;
      return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const grounds = new Map();
  const ground = e => { if (!e) return [255, 255, 255, 1];
    if (!grounds.has(e)) { const own = rgba(getComputedStyle(e).backgroundColor);
      grounds.set(e, own[3] > 0.999 ? own : over(own, ground(e.parentElement))); }
    return grounds.get(e); };
  const opacities = new Map();
  const opacity = e => { if (!e) return 1;
    if (!opacities.has(e))
      opacities.set(e, parseFloat(getComputedStyle(e).opacity) * opacity(e.parentElement));
    return opacities.get(e); };
  const found = new Map();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const e = walker.currentNode.parentElement, text = walker.currentNode.data.trim();
    if (!text || e.closest('script, style, noscript, [hidden], .md-search__output')) continue;
    const box = e.getBoundingClientRect();
    if (!box.width || !box.height) continue;
    if (!e.checkVisibility({opacityProperty: true, visibilityProperty: true})) continue;
    const style = getComputedStyle(e), back = ground(e);
    let color = rgba(e.ownerSVGElement ? style.fill : style.color);
    color = over([color[0], color[1], color[2], color[3] * opacity(e)], back);
    const a = light(color), b = light(back);
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const size = parseFloat(style.fontSize), bold = parseInt(style.fontWeight) >= 700;
    if (ratio < (size >= 24 || (bold && size >= 18.66) ? 3 : 4.5) - 0.005) {
      const name = e.getAttribute('class') ?? '';
      const key = `${e.tagName.toLowerCase()}.${name} ${ratio.toFixed(2)}`;
      if (!found.has(key)) found.set(key, key + ' "' + text.slice(0, 30) + '"'); } }
  return [...found.values()].slice(0, 8); })()"""
# Milliseconds from typing into the search box to the first result; -1 if there is no result.
SEARCH = """(async word => {
  const box = document.querySelector('.md-search__input'), start = performance.now();
  box.focus(); box.value = word; box.dispatchEvent(new Event('keyup', {bubbles: true}));
  while (performance.now() < start + 3000) {
    if (document.querySelector('.md-search-result__item')) return performance.now() - start;
    await new Promise(done => setTimeout(done, 5)); }
  return -1; })"""
WORDS = ("adam", "toile.optim.adam", "gradient", "checkpoint")


class Links(html.parser.HTMLParser):
    """The anchors of a page, and the links and files to which the page refers."""

    def __init__(self) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.targets: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.anchors |= {v for k in ("id", "name") if (v := given.get(k))}
        name = {"a": "href", "link": "href", "img": "src", "script": "src"}.get(tag, "")
        if (target := given.get(name)) is not None:
            self.targets.append(target)


@functools.cache
def links_of(file: Path) -> Links:
    found = Links()
    found.feed(file.read_text(encoding="utf-8"))
    return found


def broken_links(site: Path, page: Path) -> Iterator[str]:
    """The links of a page to files and anchors that do not exist in the site."""
    for target in dict.fromkeys(links_of(page).targets):
        parts = urllib.parse.urlsplit(target)
        if parts.scheme or parts.netloc:
            continue
        path = urllib.parse.unquote(parts.path)
        file = page if not path else (site / path[1:] if path[0] == "/" else page.parent / path)
        file = file / "index.html" if file.is_dir() else file
        anchor = urllib.parse.unquote(parts.fragment)
        if not file.resolve().is_file():
            yield f"broken link: {target}"
        elif anchor and file.suffix == ".html" and anchor not in links_of(file.resolve()).anchors:
            if not anchor.startswith("__"):  # the theme's script uses these
                yield f"broken anchor: {target}"


def pages_of(site: Path, wanted: list[str]) -> list[Path]:
    """The HTML pages of a site whose paths start with an entry of `wanted`; "index" is the home
    page."""
    found = sorted(site.rglob("*.html"))
    chosen = ["index.html" if w == "index" else w for w in wanted]
    return [p for p in found if not wanted or str(p.relative_to(site)).startswith(tuple(chosen))]


def console(events: Sequence[Mapping[str, Any]], address: str) -> Iterator[str]:
    """Errors and warnings that a page caused, and requests that fail or go to other machines."""
    for event in events:
        method, params = event["method"], event["params"]
        if method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            yield f"exception: {details.get('exception', {}).get('description', details['text'])}"
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
            yield "console: " + " ".join(str(a.get("value", "")) for a in params["args"])
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            yield f"console: {params['entry']['text']} {params['entry'].get('url', '')}"
        elif method == "Network.requestWillBeSent":
            url = str(params["request"]["url"])
            if not url.startswith((address, "about:", "data:", "blob:")):
                yield f"a request to another machine: {url}"


def open_in(browser: Browser, scheme: str, address: str, path: str) -> bool:
    """Open a page with a preferred color scheme; return whether the page uses this scheme.

    The theme stores the scheme in the browser. On a busy machine, the previous page may store its
    scheme after the storage has been cleared here, so the caller tries twice.
    """
    browser.open("about:blank")
    browser.call("Storage.clearDataForOrigin", origin=address, storageTypes="local_storage")
    browser.prefer(scheme)
    browser.open(f"{address}/{path}")
    shown = browser.evaluate("document.body?.getAttribute('data-md-color-scheme')")
    return not shown or (shown == "slate") == (scheme == "dark")


def look(browser: Browser, address: str, path: str, shots: Path | None) -> Iterator[str]:
    """Open one page in every scheme and at every width, and yield the problems."""
    for scheme in SCHEMES:
        shown = open_in(browser, scheme, address, path) or open_in(browser, scheme, address, path)
        yield from (f"{scheme}: {e}" for e in console(browser.events, address))
        if not shown:
            yield f"{scheme}: the page has the colors of the other scheme"
        browser.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
        for width, height in WIDTHS.items():
            browser.resize(width, height)
            where = f"{width} px, {scheme}"
            yield from (f"{where}: too wide: {e}" for e in browser.evaluate(OVERFLOW))
            yield from (f"{where}: low contrast: {e}" for e in browser.evaluate(CONTRAST))
            if shots:
                name = path.removesuffix("index.html").strip("/").replace("/", "_") or "index"
                (shots / f"{name}-{width}-{scheme}.png").write_bytes(browser.screenshot())


def slow_searches(browser: Browser, address: str, path: str) -> Iterator[str]:
    """Search for some words, each on a newly opened page, and yield the searches that fail or are
    slow."""
    for word in WORDS:
        for _ in range(2):  # a second try, in case the machine was busy
            browser.open(f"{address}/{path}")
            if not browser.evaluate("!!document.querySelector('.md-search__input')"):
                return
            browser.evaluate("new Promise(done => setTimeout(done, 1000))")  # as a user would
            time_ms = browser.evaluate(f"{SEARCH}({word!r})")
            if 0 <= time_ms <= 1000:
                break
        else:
            found = "nothing" if time_ms < 0 else f"an answer after {time_ms / 1000:.1f} s"
            yield f"search for {word!r}: {found}"


class Quiet(http.server.SimpleHTTPRequestHandler):
    """A server of files that does not log its requests."""

    def log_message(self, *_: Any) -> None:
        return


def inspect_site(site: Path, pages: list[Path], shots: Path | None) -> dict[str, list[str]]:
    """Find the problems of each page."""
    handler = functools.partial(Quiet, directory=str(site))
    problems: dict[str, list[str]] = {}
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        browser = ready()
        try:
            for page in pages:
                path = str(page.relative_to(site))
                try:
                    seen = list(look(browser, address, path, shots))
                except (NoBrowser, OSError):  # a browser may crash on a machine that is short of
                    browser.close()           # memory: a new one gets a second try
                    browser = ready()
                    seen = list(look(browser, address, path, shots))
                if path == "index.html":
                    seen += slow_searches(browser, address, path)
                if found := list(dict.fromkeys([*broken_links(site, page), *seen])):
                    problems[path] = found
                    print(path, *found, sep="\n  ", flush=True)
        finally:
            browser.close()
            server.shutdown()
    return problems


def ready() -> Browser:
    """Start a browser that reports events on pages."""
    browser = Browser()
    for domain in ("Page", "Runtime", "Log", "Network"):
        browser.call(f"{domain}.enable")
    return browser


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tools.look_at_site", description=__doc__)
    parser.add_argument("--site", type=Path, default=ROOT / "site")
    parser.add_argument("--build", action="store_true", help="build the site first")
    parser.add_argument("--shots", type=Path, help="a folder for pictures of the pages")
    parser.add_argument("--pages", nargs="*", default=[], help="beginnings of addresses")
    given = parser.parse_args(arguments)
    if given.build:
        command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(given.site)]
        subprocess.run(command, check=True, cwd=ROOT)
    pages = pages_of(given.site, given.pages)
    if not pages:
        print(f"look_at_site: needed a built site, found no page in {given.site} (--build)")
        return 2
    if given.shots:
        given.shots.mkdir(parents=True, exist_ok=True)
    try:
        problems = inspect_site(given.site.resolve(), [p.resolve() for p in pages], given.shots)
    except NoBrowser as error:
        print(f"look_at_site: {error}")
        return 2
    print(f"{len(pages)} pages, {sum(map(len, problems.values()))} problems")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
