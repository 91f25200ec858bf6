"""Pages are written for a tired reader: short sentences, and not too many words."""

import re
from collections.abc import Iterator

import pytest

from tests.paths import ROOT

SOURCE = ROOT / "src" / "axial_transformers"
FOR_MAINTAINERS = {*ROOT.glob("docs/project/*.md")}
SITE = [*sorted({*ROOT.glob("docs/**/*.md")} - FOR_MAINTAINERS), *sorted(SOURCE.glob("pretrained/*/README.md"))]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *SITE]
MAX_WORDS, LONG, MAX_LONG = 35, 30, 0.05
"""Words of a sentence at most; words of a long one; share of long ones at most."""
WORDS_OF_README, WORDS_OF_SITE = 600, 19_700


def prose(text: str) -> str:
    """Return a page without code, comments, pictures, formulas and addresses, a paragraph for each cell and item."""
    text = re.sub(r"^(`{3,}|~{3,}).*?^\1", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"<!--.*?-->|\$\$.*?\$\$|<[^>]+>", " ", text, flags=re.DOTALL)
    text = re.sub(r"^:::.*$(\n {4}.*$)*", "", text, flags=re.MULTILINE)
    text = re.sub(r"!\[([^\]]*)\]\([^)]*\)", r"\n\n\1.\n\n", text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"`[^`]*`", "code", text)
    text = re.sub(r"^\s*(#+|[-*+]|\d+\.|>)\s", "\n\n", text, flags=re.MULTILINE)
    return text.replace("|", "\n\n")


def sentences(text: str) -> Iterator[str]:
    for paragraph in re.split(r"\n\s*\n", prose(text)):
        for each in re.split(r"(?<=[.!?:;])[*_)\"']*\s+", paragraph.strip()):
            if re.search(r"[a-zA-Z]", each):
                yield " ".join(each.split())


def words(text: str) -> int:
    return sum(len(each.split()) for each in sentences(text))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_sentences_are_short(page):
    assert [each for each in sentences(page.read_text()) if len(each.split()) > MAX_WORDS] == []


def test_few_sentences_are_long():
    lengths = [len(each.split()) for page in PAGES for each in sentences(page.read_text())]
    assert sum(length > LONG for length in lengths) <= MAX_LONG * len(lengths)


def test_readme_is_one_screen_and_the_site_is_not_a_book():
    assert words((ROOT / "README.md").read_text()) <= WORDS_OF_README
    assert sum(words(page.read_text()) for page in SITE) <= WORDS_OF_SITE
