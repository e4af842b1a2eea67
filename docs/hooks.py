"""Links from pages to files outside docs/ work on GitHub as they are; in the site they lead to copies of the files."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"\]\(([^)\s#:]+)(#[^)\s]*)?\)")
COPIES = "source"


def outside(text: str, page: str) -> dict[str, str]:
    """What a page links to that is no part of the site: each link with its path from the repository's root."""
    found = {}
    for link, _ in LINK.findall(text):
        path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), link))
        if not path.startswith(("docs/", "../")) or path.endswith(".py"):
            found[link] = path
    return found


def copy_of(path: str) -> str:
    return f"{COPIES}/{path}.txt"  # a browser shows it, whatever it is


def on_files(files: Files, config: Any) -> Files:
    for page in list(files.documentation_pages()):
        for path in outside(page.content_string, page.src_uri).values():
            if (ROOT / path).is_file() and copy_of(path) not in files.src_uris:
                files.append(File.generated(config, copy_of(path), abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    for link, path in outside(markdown, page.file.src_uri).items():
        if (ROOT / path).is_file():
            to = posixpath.relpath(copy_of(path), posixpath.dirname(page.file.src_uri) or ".")
            markdown = markdown.replace(f"]({link}", f"]({to}")
    return markdown
