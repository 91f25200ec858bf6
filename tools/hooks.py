"""Hooks of the site's build: generated pages, pages from outside of docs/, and a check of all links."""

import os
import posixpath
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

sys.path.insert(0, str(Path(__file__).parent))
import commands
import notebooks

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
FOR_MAINTAINERS = DOCS / "project"
CARRIED = {
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
    **{
        path.relative_to(ROOT).as_posix(): f"pretrained/{path.parent.name}.md"
        for path in ROOT.glob("src/axial_transformers/pretrained/*/README.md")
    },
}
"""Pages of the repository outside of docs/, and their places on the site."""
NOTEBOOKS = {f"notebooks/{name}.ipynb": f"notebooks/{name}.md" for name in notebooks.NAMES}
PLACES = {
    "README.md": "index.md",
    **CARRIED,
    **NOTEBOOKS,
    **{name.removesuffix("/README.md"): to for name, to in CARRIED.items()},
}
COMMANDS = "commands"
BOOSTS = {
    "reference/": 0.001, f"{COMMANDS}/": 0.001, "project/": 0.001, "glossary.md": 0.3, "how-to/troubleshooting.md": 3
}  # fmt: skip
"""Weights of pages in the search by the beginning of their path: pages that explain a word come before lists of names.

A word in a title counts a thousand times as much as one in a text.
"""
LINK = re.compile(r"(?<=\]\()([^)\s#:]+)(?=[)#])")
WHOLE_LINK = re.compile(r"(?<!!)\[(?P<text>[^][]*)\]\((?P<path>[^)\s#:]+)(#[^)\s]*)?\)")


def on_config(config: MkDocsConfig) -> None:
    """Write in the place of FOLDER/* in the navigation the pages of the folder that it names nowhere else.

    The environment variable GITHUB_REPOSITORY (OWNER/NAME) gives the link to the repository.
    """
    if repository := os.environ.get("GITHUB_REPOSITORY"):
        config.repo_url, config.repo_name = f"https://github.com/{repository}", repository
    config.nav = _expanded(config.nav, set(re.findall(r"[\w/-]+\.md", str(config.nav))))


def _expanded(entries: list[Any], named: set[str]) -> list[Any]:
    found: list[Any] = []
    for entry in entries:
        if isinstance(entry, dict):
            ((title, inner),) = entry.items()
            found.append({title: _expanded(inner, named) if isinstance(inner, list) else inner})
        elif entry.endswith("*"):
            found += [
                page for page in _pages() if re.fullmatch(entry.replace("*", "[^/]+"), page) and page not in named
            ]
        else:
            found.append(entry)
    return found


def _pages() -> list[str]:
    written = sorted(
        path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md") if FOR_MAINTAINERS not in path.parents
    )
    listed = (f"{COMMANDS}/{command}.md" for command in commands.COMMANDS)
    return [*written, *sorted(CARRIED.values()), *NOTEBOOKS.values(), *listed]


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add the pages of the command line, the notebooks, and the pages that are carried over."""
    for name, text in commands.pages().items():
        files.append(File.generated(config, f"{COMMANDS}/{name}.md", content=text))
    for name in notebooks.NAMES:
        text, images = notebooks.page(name)
        files.append(File.generated(config, f"notebooks/{name}.md", content=text))
        for image, content in images.items():
            files.append(File.generated(config, f"notebooks/{image}", content=content))
    for source, place in CARRIED.items():
        files.append(File.generated(config, place, abs_src_path=str(ROOT / source)))


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links to pages that are carried over, and the links of these, to their places on the site.

    A link to another file of the repository leads to the repository; where its address is unknown, the text remains.
    """
    here = page.file.src_uri
    page.meta["search"] = {"boost": next((boost for start, boost in BOOSTS.items() if here.startswith(start)), 1)}
    origin = next((source for source, place in (CARRIED | NOTEBOOKS).items() if place == here), f"docs/{here}")

    def target_of(link: str) -> str:
        return posixpath.normpath(posixpath.join(posixpath.dirname(origin), link))

    def outside(link: re.Match[str]) -> str:
        target = target_of(link["path"])
        on_site = target in PLACES or (target.startswith("docs/") and FOR_MAINTAINERS not in (ROOT / target).parents)
        if on_site or not (ROOT / target).is_file():
            return link[0]
        return f"[{link['text']}]({config.repo_url}/blob/main/{target})" if config.repo_url else link["text"]

    def moved(link: re.Match[str]) -> str:
        target = target_of(link[1])
        place = PLACES.get(target, target.removeprefix("docs/"))
        return posixpath.relpath(place, posixpath.dirname(here) or ".")

    return LINK.sub(moved, WHOLE_LINK.sub(outside, markdown))


class _Links(HTMLParser):
    """The addresses and the anchors of a page."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.links, self.loads, self.anchors = [], [], {""}
        self.feed(page.read_text())

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        of = {name: value for name, value in attributes if value}
        self.anchors |= {of[name] for name in ("id", "name") if name in of}
        follows = tag == "a" or (tag == "link" and of.get("rel") in ("next", "prev", "canonical"))
        for address in (of[name] for name in ("href", "src") if name in of):
            (self.links if follows else self.loads).append(address)


def on_post_build(config: MkDocsConfig) -> None:
    """Raises PluginError where a page links to what is not there, or loads anything from another host."""
    site = Path(config.site_dir)
    pages = {path: _Links(path) for path in site.rglob("*.html") if path.name != "404.html"}
    wrong = []
    for path, page in pages.items():
        wrong += [f"{path.relative_to(site)} loads {link}" for link in page.loads if urlsplit(link).netloc]
        for link in {*page.links, *page.loads}:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            anchors = pages[target].anchors if target in pages else {parts.fragment}
            if not target.exists() or unquote(parts.fragment) not in anchors:
                wrong.append(f"{path.relative_to(site)} links to {link}")
    if wrong:
        raise PluginError("\n".join(["dead links, or files of other hosts:", *sorted(wrong)]))
