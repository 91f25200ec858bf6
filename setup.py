"""The description on PyPI: README.md, whose links lead to the repository that the environment names.

`GITHUB_REPOSITORY` (OWNER/NAME) is set where releases are built, .github/workflows/publish.yml. Elsewhere the address
is not known: of links within the repository the text is kept, of its pictures nothing.
"""

import os
import re
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).parent
INSIDE = re.compile(r"(?P<picture>!?)\[(?P<text>[^]]*)\]\((?!https?:|#)(?P<path>[^)]+)\)")


def description(readme: str, version: str, repository: str | None) -> str:
    """The text of README.md with absolute links only."""

    def absolute(link: re.Match[str]) -> str:
        if repository is None:
            return "" if link["picture"] else link["text"]
        kind = "raw" if link["picture"] else "blob"
        return f"{link['picture']}[{link['text']}](https://github.com/{repository}/{kind}/v{version}/{link['path']})"

    return INSIDE.sub(absolute, readme)


if __name__ == "__main__":
    repository = os.environ.get("GITHUB_REPOSITORY")
    source = (ROOT / "src" / "axial_transformers" / "__init__.py").read_text(encoding="utf-8")
    version = re.search('__version__ = "(.+)"', source)[1]
    setup(
        long_description=description((ROOT / "README.md").read_text(encoding="utf-8"), version, repository),
        long_description_content_type="text/markdown",
        project_urls={"Source": f"https://github.com/{repository}"} if repository else {},
    )
