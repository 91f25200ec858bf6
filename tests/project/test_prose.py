"""Links of pages lead somewhere, and images say what they show; MkDocs checks the links within the site."""

import re

import pytest

from tests.paths import ROOT

OUTSIDE_THE_SITE = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md"]
OUTSIDE_THE_SITE += sorted((ROOT / "src" / "axial_transformers").glob("pretrained/*/README.md"))
PAGES = [*OUTSIDE_THE_SITE, *sorted(ROOT.glob("docs/**/*.md"))]


@pytest.mark.parametrize("page", OUTSIDE_THE_SITE, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_a_page_links_are_there(page):
    targets = re.findall(r"\]\((?!https?:|#)([^)#\s]+)", page.read_text())
    assert [target for target in targets if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_image_has_an_alternative_text(page):
    assert re.findall(r"!\[\s*\]\(", page.read_text()) == []
