"""Publish the documentation of several versions, with a menu for switching between them.

`python -m tools.site_versions FOLDER` builds the documentation of this checkout in FOLDER/VERSION
and lists all versions in FOLDER/versions.json, which the menu on every page reads.
FOLDER/index.html redirects to the latest release. FOLDER is a static site that any web server can
serve. Pages that were published earlier are not rebuilt, but their menus also show later versions.
"""

from __future__ import annotations

import argparse
import configparser
import html
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

ROOT = Path(__file__).parents[1]
VERSION, ADDRESS = "TOILE_DOCS_VERSION", "TOILE_DOCS_ADDRESS"  # environment variables for the build
LATEST = "latest"
REDIRECT = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>toile</title>
<link rel="icon" href="data:,"><meta http-equiv="refresh" content="0; url={0}/"></head>
<body><a href="{0}/">The documentation of toile {0}</a></body></html>
"""


def own_version() -> str:
    """The version in setup.cfg."""
    found = configparser.ConfigParser()
    found.read(ROOT / "setup.cfg")
    return found["metadata"]["version"]


def checked(version: str) -> str:
    """Return a version, after checking that it can be a folder name and part of an address."""
    if not re.fullmatch(r"\w[\w.+-]*", version, re.A):
        raise ValueError(f"site_versions: needed a version such as 0.2.0 or dev, got {version!r}")
    return version


def order(version: str) -> tuple[bool, Version, str]:
    """Sort key: releases come after names such as "dev", and later releases after earlier ones."""
    try:
        number = Version(version)
    except InvalidVersion:
        return False, Version("0"), version
    return not number.is_prerelease, number, version


def published(folder: Path) -> list[str]:
    """The versions in a folder, latest release first."""
    found = [p.parent.name for p in folder.glob("*/index.html")]
    return sorted((v for v in found if not v.startswith(".")), key=order, reverse=True)


def write_index(folder: Path) -> list[str]:
    """Write the list of versions, and a start page that redirects to the latest release."""
    versions = published(folder)
    if not versions:
        raise ValueError(f"site_versions: needed a published version, found none in {folder}")
    entries = [{"version": v, "title": v, "aliases": [LATEST] if i == 0 else []}
               for i, v in enumerate(versions)]  # fmt: skip
    (folder / "versions.json").write_text(json.dumps(entries, indent=2) + "\n")
    (folder / "index.html").write_text(REDIRECT.format(html.escape(versions[0], quote=True)))
    return versions


def publish(folder: Path, version: str, address: str = "", config: Path | None = None) -> list[str]:
    """Build the documentation as a new version; a version with the same name is replaced.

    Args:
        folder: folder of the site, which contains all versions.
        version: name of the version.
        address: future address of the site, such as https://example.org/toile. Without it, choosing
            another version opens that version's home page.
        config: MkDocs' configuration file; None for the project's own.

    Returns:
        All versions, latest release first.
    """
    checked(version)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".building-") as made:
        command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", f"{made}/site",
                   "-f", str(config or ROOT / "mkdocs.yml")]  # fmt: skip
        told = {VERSION: version, ADDRESS: address, "NO_MKDOCS_2_WARNING": "1"}
        subprocess.run(command, check=True, cwd=ROOT, env={**os.environ, **told})
        shutil.rmtree(folder / version, ignore_errors=True)
        Path(made, "site").rename(folder / version)
    return write_index(folder)


def on_config(config: Any) -> Any:
    """Hook for MkDocs: add the menu of versions if the build is for `site_versions`."""
    if version := os.environ.get(VERSION):
        # The theme's menu, which reads ../versions.json; "mike" is the theme's name for this
        # layout.
        config.extra["version"] = {"provider": "mike", "default": LATEST}
        if address := os.environ.get(ADDRESS):
            config.site_url = f"{address.rstrip('/')}/{version}/"
    return config


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tools.site_versions", description=__doc__)
    parser.add_argument("folder", type=Path, help="the site that holds all versions")
    parser.add_argument("--version", default=own_version(), help="default: that of setup.cfg")
    parser.add_argument("--address", default="", help="where the site will be")
    parser.add_argument("--list", action="store_true",
                        help="build nothing, only list the existing versions")  # fmt: skip
    given = parser.parse_args(arguments)
    try:
        versions = (write_index(given.folder) if given.list else
                    publish(given.folder, given.version, given.address))  # fmt: skip
    except ValueError as error:
        print(error)
        return 2
    except subprocess.CalledProcessError as error:
        print(f"site_versions: the build failed ({error.returncode}); {given.folder} is unchanged")
        return 1
    print(f"{given.folder}: {', '.join(versions)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
